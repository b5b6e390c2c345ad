"""An SBCL image finds the systems of its project and of its user, and keeps what it has compiled."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pytest

from gramercy.images.asdf import user_registry
from gramercy.images.environment import Environment, Status
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.requests import Load
from gramercy.images.sandbox import Confinement, find_confinement, why_not
from gramercy.images.sbcl import lisp_findings, sbcl_program
from gramercy.images.systems import MOST_DIRECTORIES, find_systems
from tests.support import empty_home, fill

pytestmark = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
DEBIAN = Path("/usr/share/common-lisp/source")
CONFINEMENTS = [
    pytest.param(c, marks=pytest.mark.skipif(why_not(c) is not None, reason=f"{why_not(c)}"))
    for c in Confinement
]
LONG = 300.0
ROOT = 0


def needs(*systems):
    lacking = [system for system in systems if not (DEBIAN / system).is_dir()]
    return pytest.mark.skipif(bool(lacking), reason=f"the Debian package of {lacking} is not installed")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Give each test an empty home and a cache that has nothing but the core."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return empty_home(tmp_path, monkeypatch)


@pytest.fixture
def project(tmp_path):
    """Return an empty project."""
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def opened():
    """Open images of a project, and end them with the test."""
    images = []

    def open_one(project, confinement=None, **environment):
        settings = ImageSettings("sbcl", project, confinement, Environment(**environment))
        images.append(LiveImage("test", settings.program))
        return images[-1]

    yield open_one
    for image in images:
        image.close()


def write_system(directory, name, answer=None):
    """Write a system of one file, whose function of the same name returns a keyword."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.asd").write_text(
        f'(defsystem "{name}" :version "1.2" :components ((:file "{name}-code")))'
    )
    (directory / f"{name}-code.lisp").write_text(f"(defun cl-user::{name} () :{answer or name})")


def loaded(image, name):
    """Load a system and return what its function says."""
    reply = image.load_system(name, timeout=LONG)
    assert reply.ok, reply.error
    return image.evaluate(f"({name})").values[0]


def failure(image, name):
    reply = image.load_system(name, timeout=LONG)
    assert not reply.ok
    assert reply.error is not None
    return reply.error


def start_notes(image):
    """Return what there is to tell of the start of an image: before it, and by the process itself."""
    assert image.evaluate("1").ok
    assert image._lifecycle.live is not None
    return [*image.program().notes, *image._lifecycle.live.hello.notes]


# ---- the project's own systems


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_the_systems_of_the_project_are_found(project, opened, confinement):
    """Own program: SBCL does not see the project's own .asd."""
    write_system(project, "top")
    write_system(project / "a" / "b", "below")
    image = opened(project, confinement)
    assert (loaded(image, "top"), loaded(image, "below")) == (":TOP", ":BELOW")
    assert start_notes(image) == []


GARDEN = {
    "garden.asd": """
(defsystem "garden" :class :package-inferred-system :depends-on ("garden/src/beds")
  :in-order-to ((test-op (test-op "garden/tests"))))
(defsystem "garden/tests" :class :package-inferred-system :depends-on ("garden/tests/beds")
  :perform (test-op (o c) (unless (uiop:symbol-call :fiveam :run! :garden) (error "a test failed"))))
""",
    "src/beds.lisp": """
(defpackage garden/src/beds (:use :cl :alexandria) (:export #:beds))
(in-package garden/src/beds)
(defun beds (list) (flatten list))
""",
    "tests/beds.lisp": """
(defpackage garden/tests/beds (:use :cl :fiveam :garden/src/beds))
(in-package garden/tests/beds)
(def-suite :garden)
(in-suite :garden)
(test beds-are-flat (is (equal '(1 2 3) (beds '(1 (2 (3)))))))
""",
}


@needs("alexandria", "fiveam")
def test_a_package_inferred_project_is_loaded_and_its_tests_run(project, opened):
    """Proof: a package-inferred ASDF system with fiveam tests."""
    for name, text in GARDEN.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    image = opened(project)
    assert image.load_system("garden", timeout=LONG).ok
    assert image.evaluate("(garden/src/beds:beds '(1 (2)))").values == ["(1 2)"]
    reply = image.evaluate('(asdf:test-system "garden")', timeout=LONG)
    assert reply.ok, reply.error
    assert "Pass: 1 (100%)" in reply.stdout
    (project / "src/beds.lisp").write_text(GARDEN["src/beds.lisp"].replace("(flatten list)", "list"))
    # ASDF sees a change by its date, in whole seconds.
    later = time.time() + 5
    os.utime(project / "src/beds.lisp", (later, later))
    reply = image.evaluate('(asdf:test-system "garden")', timeout=LONG)
    assert reply.error is not None
    assert "a test failed" in reply.error.message


def test_hidden_vendored_and_deep_directories_are_left_alone(project, opened):
    """Own program: top two levels, not vendored or hidden directories."""
    for name in (".hidden", "node_modules", "vendor", ".venv", "a/b/c"):
        write_system(project / name, "unseen")
    write_system(project / "a/b", "seen")
    systems = find_systems(project, Environment())
    assert [file.name for file in systems.definitions] == ["seen.asd"]
    image = opened(project)
    assert loaded(image, "seen") == ":SEEN"
    assert failure(image, "unseen").message == 'System "unseen" not found.'


def test_a_system_that_is_written_while_the_image_runs_is_found(project, opened):
    """An agent writes new systems, after ASDF has looked around."""
    write_system(project / "sub", "old")
    image = opened(project)
    assert loaded(image, "old") == ":OLD"
    write_system(project, "new")
    write_system(project / "sub", "newer")
    assert (loaded(image, "new"), loaded(image, "newer")) == (":NEW", ":NEWER")


BROKEN = {
    '\n; a comment\n(defsystem "bad"\n  :components ((:file "x"))\n': (3, "the file ends inside of the form"),
    '\n\n(defsystem "bad" :components ((:nosuch "x")))': (3, "don't recognize component type :NOSUCH"),
    '(in-package :asdf-user)\n\n(nosuch:thing 1)\n(defsystem "bad")': (3, "NOSUCH"),
    '(in-package :nosuch)\n(defsystem "bad")': (1, "NOSUCH"),
}


@pytest.mark.parametrize("text", BROKEN)
def test_an_error_in_a_definition_is_told_with_its_place(project, opened, text):
    """Bad input: a .asd with an error."""
    write_system(project, "good")
    (project / "bad.asd").write_text(text)
    image = opened(project)
    line, words = BROKEN[text]
    error = failure(image, "bad")
    assert (error.file, error.line) == ("bad.asd", line)
    assert words in error.message
    assert "#<" not in error.message
    assert loaded(image, "good") == ":GOOD"


def test_of_a_project_with_50000_files_only_a_part_is_looked_at(project, opened, monkeypatch):
    """Bad input: a project with 50,000 files; the walk is bounded, and says so. ASDF walks none of it."""
    write_system(project / "a", "near")
    fill(project, 50_000)
    looked = []
    scandir = os.scandir

    def counted(directory):
        looked.append(directory)
        return scandir(directory)

    with monkeypatch.context() as patched:
        patched.setattr("gramercy.images.systems.os.scandir", counted)
        systems = find_systems(project, Environment())
    (problem,) = systems.problems
    assert f"has many files: .asd files were looked for in {MOST_DIRECTORIES} directories only" in problem
    assert 0 < len([each for each in looked if Path(each).is_relative_to(project)]) <= MOST_DIRECTORIES
    assert [each for each in systems.sources if each.is_tree and each.path.is_relative_to(project)] == []
    assert loaded(opened(project), "near") == ":NEAR"


@pytest.mark.parametrize("name", ['qu"ote', "with space", "ti~lde", "co:lon", "se;mi", "größe", "(paren"])
def test_directories_with_strange_names_are_found(project, opened, name):
    """Environments, not tried: paths with odd characters."""
    write_system(project / name, "odd")
    image = opened(project / name)
    assert loaded(image, "odd") == ":ODD"
    image = opened(project)
    assert loaded(image, "odd") == ":ODD"


@pytest.mark.parametrize("name", ["st*ar", "que?st", "br[ack]et", "back\\slash", "["])
def test_names_that_asdf_cannot_use_are_refused_in_a_line(project, opened, name):
    """Environments, not tried: ASDF reads patterns into them."""
    write_system(project / name, "odd")
    write_system(project, "fine")
    image = opened(project)
    (note,) = start_notes(image)
    assert note.startswith(f"{project / name} is left out: ASDF cannot use a path with ")
    assert loaded(image, "fine") == ":FINE"
    image = opened(project / name)
    notes = start_notes(image)
    assert notes[0].startswith(f"the systems of the project {project / name} are not found by ASDF: ")
    assert image.evaluate("(+ 1 2)").values == ["3"]
    (refused,) = start_notes(opened(project.with_name("cache"), registries=(project / name,)))
    assert refused.startswith(f"{project / name} (--registry) is left out: ")


def test_a_definition_that_is_a_link_out_of_the_project_is_told(project, tmp_path, opened):
    """Environments: what files of the project name outside is shown, and granted by the user's word alone."""
    write_system(tmp_path / "elsewhere", "linked")
    (project / "linked.asd").symlink_to(tmp_path / "elsewhere" / "linked.asd")
    image = opened(project)
    (note,) = start_notes(image)
    assert note == (
        f"{project}/linked.asd is left out: it is a link out of the project. "
        f"To read it, give --registry {tmp_path}/elsewhere"
    )
    again = opened(project, registries=(tmp_path / "elsewhere",))
    assert loaded(again, "linked") == ":LINKED"


@pytest.mark.skipif(os.getuid() != ROOT, reason="another user is needed")
def test_a_directory_that_may_not_be_read_is_told(monkeypatch):
    """Bad input: unreadable directories."""
    place = Path(tempfile.mkdtemp())
    try:
        place.chmod(0o755)
        monkeypatch.setenv("HOME", str(place / "home"))
        (place / "closed").mkdir(mode=0o700)
        (place / "mine.asd").touch()
        os.seteuid(65534)
        try:
            systems = find_systems(place, Environment(registries=(place / "closed",)))
        finally:
            os.seteuid(ROOT)
        assert systems.definitions == [place / "mine.asd"]
        assert systems.problems == [
            f"{place}/closed is left out: it cannot be read (Permission denied)",
            f"{place}/closed (--registry) is left out: it cannot be read (Permission denied)",
        ]
    finally:
        shutil.rmtree(place)


# ---- the user's systems


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_the_systems_of_the_user_are_found_and_cannot_be_written(
    project, home, opened, monkeypatch, confinement
):
    """Own program: ~/common-lisp, CL_SOURCE_REGISTRY, the configuration of ASDF; read-only."""
    tmp_path = project.parent
    places = {
        "one": home / "common-lisp" / "x",
        "two": home / ".local/share/common-lisp/source" / "x",
        "three": tmp_path / "three" / "deep" / "er",
        "four": tmp_path / "four",
        "five": home / "src" / "x",
        "six": tmp_path / "six" / "x",
    }
    for name, place in places.items():
        write_system(place, name)
    configuration = home / ".config/common-lisp"
    (configuration / "source-registry.conf.d").mkdir(parents=True)
    (configuration / "source-registry.conf").write_text(
        f'; mine\n(:source-registry (:directory "{places["four"]}/") :inherit-configuration)'
    )
    (configuration / "source-registry.conf.d/50.conf").write_text('(:tree (:home "src"))')
    monkeypatch.setenv("CL_SOURCE_REGISTRY", f"{tmp_path}/three//:")
    image = opened(project, confinement, registries=(tmp_path / "six",))
    assert {name: loaded(image, name) for name in places} == {name: f":{name.upper()}" for name in places}
    assert start_notes(image) == []
    if confinement is not Confinement.NONE:
        for place in places.values():
            reply = image.evaluate(f'(open "{place}/new" :direction :output :if-does-not-exist :create)')
            assert reply.error is not None
            assert not (place / "new").exists()


def test_the_nearest_source_of_a_system_wins(project, home, tmp_path, opened, monkeypatch):
    """The project first, then what the user has said, then the defaults."""
    for place, answer in ((home / "common-lisp", "default"), (tmp_path / "told", "told"), (project, "own")):
        write_system(place, "here", answer)
    write_system(home / "common-lisp", "there", "default")
    write_system(tmp_path / "told", "there", "told")
    monkeypatch.setenv(
        "CL_SOURCE_REGISTRY", f'(:source-registry (:tree "{tmp_path}/told") :inherit-configuration)'
    )
    image = opened(project)
    assert (loaded(image, "here"), loaded(image, "there")) == (":OWN", ":TOLD")


def test_links_in_the_users_own_registry_are_followed(project, home, tmp_path, opened):
    """It is common to link a work tree into ~/common-lisp."""
    write_system(tmp_path / "work", "linked")
    (home / "common-lisp").mkdir()
    (home / "common-lisp/linked").symlink_to(tmp_path / "work")
    assert loaded(opened(project), "linked") == ":LINKED"


REGISTRIES = {
    "/nowhere/at/all//": "/nowhere/at/all (CL_SOURCE_REGISTRY) is left out: there is no such directory",
    "relative/path": "'relative/path' of CL_SOURCE_REGISTRY is left out: it is not an absolute path",
    "(:source-registry": "CL_SOURCE_REGISTRY is left out: a parenthesis is not closed",
    '(:source-registry (:tree "/x)': "CL_SOURCE_REGISTRY is left out: a string is not closed in line 1",
    "(:source-registry (:tree :user-cache))": (
        "an entry of CL_SOURCE_REGISTRY is left out: (:tree :user-cache) is not understood"
    ),
    "(:source-registry (:tree (:home)))": "evaluated code could read all that is in it",
    "//": "evaluated code could read all that is in it",
}


@pytest.mark.parametrize("value", REGISTRIES)
def test_a_registry_that_cannot_be_used_is_told_in_a_line(project, opened, monkeypatch, value):
    """Bad input: a registry that points outside; the image still starts."""
    monkeypatch.setenv("CL_SOURCE_REGISTRY", value)
    write_system(project, "mine")
    image = opened(project)
    (note,) = start_notes(image)
    assert REGISTRIES[value] in note
    assert "\n" not in note
    assert loaded(image, "mine") == ":MINE"


def test_the_user_can_leave_out_the_defaults(project, home, tmp_path, monkeypatch):
    """ASDF: :ignore-inherited-configuration, and a path without an empty part."""
    write_system(home / "common-lisp", "default")
    write_system(tmp_path / "told", "told")
    texts = (
        f"{tmp_path}/told//",
        f'(:source-registry (:tree "{tmp_path}/told/") :ignore-inherited-configuration)',
    )
    for text in texts:
        monkeypatch.setenv("CL_SOURCE_REGISTRY", text)
        sources = find_systems(project, Environment()).sources
        assert [source.path for source in sources] == [project, tmp_path / "told"]


def test_a_configuration_of_asdf_is_read_as_it_is_written(home, tmp_path):
    """ASDF manual, source registry: comments, inclusion, exclusion, locations in parts."""
    configuration = home / ".config/common-lisp"
    configuration.mkdir(parents=True)
    for name in ("a", "b c", "d", "e"):
        (home / name).mkdir()
    (configuration / "source-registry.conf").write_text(
        '#| old: (:tree "/old") |#\n(:SOURCE-REGISTRY ; new\n (:tree (:home "a"))\n'
        f' (:directory #p"{home}/b c/") (:also-exclude "attic" "_build")\n'
        ' (:include (:here "more.conf")) (:tree "~/e/") :ignore-inherited-configuration)\n'
    )
    (configuration / "more.conf").write_text(f'(:directory "{home}/d") (:include (:here "more.conf"))')
    found = user_registry({}, home)
    places = [(place.path.name, place.is_tree) for place in found.places]
    assert places == [("a", True), ("b c", False), *[("d", False)] * 5, ("e", True)]
    assert (found.excluded, found.inherits) == (["attic", "_build"], False)
    # A file that includes itself comes to an end, and its places count once.
    assert len(found.problems) == 1
    sources = find_systems(None, Environment()).sources
    assert [source.path.name for source in sources] == ["a", "b c", "d", "e"]
    (configuration / "source-registry.conf").write_text("(:source-registry (:tree")
    (problem,) = user_registry({"XDG_DATA_DIRS": str(tmp_path)}, home).problems
    assert problem == f"{configuration}/source-registry.conf is left out: a parenthesis is not closed"


# ---- Quicklisp, qlot, ocicl

# What the real one has of this: its home by the file that is loaded, QUICKLOAD, and the nickname QL.
QUICKLISP = """
(defpackage ql-setup (:use :cl) (:export #:*quicklisp-home* #:qmerge))
(in-package ql-setup)
(defvar *quicklisp-home* (make-pathname :name nil :type nil :defaults *load-truename*))
(defun qmerge (path) (merge-pathnames path *quicklisp-home*))
(defpackage quicklisp-client (:nicknames ql) (:use :cl :ql-setup)
  (:export #:quickload #:system-not-found #:*quicklisp-home*))
(in-package quicklisp-client)
(define-condition system-not-found (error) ())
(defun local-projects-searcher (name)
  (with-open-file (index (qmerge "local-projects/system-index.txt") :direction :output :if-exists :supersede)
    (print name index))
  nil)
(setf asdf:*system-definition-search-functions*
      (append asdf:*system-definition-search-functions* '(local-projects-searcher)))
(defun quickload (name &key silent)
  (declare (ignore silent))
  (unless (asdf:find-system name nil) (error 'system-not-found))
  (asdf:load-system name)
  (list name))
"""


@pytest.mark.parametrize("name", ["quicklisp", ".quicklisp"])
def test_quicklisp_of_the_user_is_found_and_loads_its_local_projects(project, home, opened, name):
    """Proof: a stand-in for Quicklisp in a scratch HOME, found by the real look-up."""
    write_system(home / name / "local-projects/x", "local")
    (home / name / "setup.lisp").write_text(QUICKLISP)
    image = opened(project)
    # It is set up when it is first named, not at each start.
    assert image.evaluate('(find-package "QUICKLISP-CLIENT")').values == ["NIL"]
    assert image.evaluate("(namestring ql:*quicklisp-home*)").values == [f'"{home / name}/"']
    assert image.evaluate('(ql:quickload "local")').values == ['("local")']
    assert image.evaluate("(local)").values == [":LOCAL"]
    image.reset()
    assert loaded(image, "local") == ":LOCAL"
    assert failure(image, "absent").type == "QUICKLISP-CLIENT:SYSTEM-NOT-FOUND"
    assert start_notes(image) == []


# A system that Quicklisp knows, and one that this needs and is not installed.
DIST = """
(defpackage ql-dist (:use :cl) (:export #:find-system #:installedp #:required-systems))
(in-package ql-dist)
(defun find-system (name) (find name '("wanted" "needed") :test #'string=))
(defun installedp (system) (string= system "wanted"))
(defun required-systems (system) (and (string= system "wanted") '("asdf" "needed")))
"""


def test_what_quicklisp_would_have_to_install_is_told(project, home, opened):
    """Images have no network: the user installs it outside."""
    write_system(home / "quicklisp/local-projects/x", "local")
    (home / "quicklisp/setup.lisp").write_text(QUICKLISP + DIST)
    image = opened(project)
    error = failure(image, "wanted")
    assert error.message.startswith(
        "Quicklisp has not installed needed yet, and this image could not do it ("
    )
    assert 'call (ql:quickload "needed") in an SBCL of your own first.' in error.message
    assert failure(image, "unknown").message == 'System "unknown" not found.'
    assert loaded(image, "local") == ":LOCAL"


def test_a_broken_quicklisp_is_told_and_asdf_goes_on(project, home, opened):
    """Bad input: one clear line, and the image is there."""
    (home / "quicklisp").mkdir()
    (home / "quicklisp/setup.lisp").write_text('(error "half installed")')
    write_system(project, "mine")
    image = opened(project)
    reply = image.load_system("mine", timeout=LONG)
    assert reply.ok
    assert f"Quicklisp cannot be set up by {home}/quicklisp/setup.lisp: half installed" in reply.stderr


def test_qlot_and_ocicl_of_the_project_are_found(project, home, opened):
    """Own program: qlot's and ocicl's directories in the project."""
    (home / "quicklisp").mkdir()
    (home / "quicklisp/setup.lisp").write_text('(error "not this one")')
    write_system(project / ".qlot/local-projects/x", "by-qlot")
    (project / ".qlot/setup.lisp").write_text(QUICKLISP)
    write_system(project / "ocicl/by-ocicl-20240101-abc/deep", "by-ocicl")
    (project / "ocicl.csv").write_text("by-ocicl, ghcr.io/x, by-ocicl-20240101-abc/deep/by-ocicl.asd\n")
    image = opened(project)
    assert (loaded(image, "by-qlot"), loaded(image, "by-ocicl")) == (":BY-QLOT", ":BY-OCICL")
    assert image.evaluate("(namestring ql:*quicklisp-home*)").values == [f'"{project}/.qlot/"']
    if find_confinement() is Confinement.BUBBLEWRAP:
        assert not image.evaluate(
            '(with-open-file (s ".qlot/setup.lisp" :direction :output :if-exists :append))'
        ).ok
    assert (project / ".qlot/setup.lisp").read_text() == QUICKLISP


def test_a_directory_of_a_tool_that_leads_out_of_the_project_is_told(project, tmp_path):
    """Environments: bound only after the user's own word."""
    write_system(tmp_path / "elsewhere", "far")
    (project / ".qlot").symlink_to(tmp_path / "elsewhere")
    (project / "ocicl").symlink_to(tmp_path / "elsewhere")
    (project / "ocicl.csv").touch()
    systems = find_systems(project, Environment())
    assert len(systems.problems) == 2
    assert all(f"give --registry {tmp_path}/elsewhere" in problem for problem in systems.problems)
    assert systems.readable == []


# ---- the init file


@pytest.mark.slow
def test_the_init_file_is_loaded_when_an_image_begins_and_again_after_a_reset(project, tmp_path, opened):
    """Own program: --init FILE; ~/.sbclrc is not loaded by itself."""
    (Path.home() / ".sbclrc").write_text("(defvar cl-user::*rc* 1)")
    init = tmp_path / "init.lisp"
    init.write_text("(defvar *greeting* :hello)\n(defvar *count* 0)\n(incf *count*)")
    image = opened(project, init=init)
    assert image.evaluate("(list *greeting* *count*)").values == ["(:HELLO 1)"]
    assert image.evaluate("(boundp '*rc*)").values == ["NIL"]
    image.evaluate("(setf *count* 50)")
    image.undo()
    assert image.evaluate("*count*").values == ["1"]
    image.evaluate("(setf *count* 50)")
    saved = tmp_path / "saved.core"
    image.save(str(saved))
    image.reset()
    assert image.evaluate("*count*").values == ["1"]
    image.restore(str(saved))
    assert image.evaluate("*count*").values == ["50"]
    (project / "own.lisp").write_text("(defvar *own* 7)")
    assert opened(project, init=Path("own.lisp")).evaluate("*own*").values == ["7"]


FAILING = {
    '(defvar *before* 1)\n\n(error "no ~a" :way)\n(defvar *after* 1)': (
        "failed in line 3; what came before it is loaded. SIMPLE-ERROR: no WAY"
    ),
    "(defvar *before* 1)\n(car 1)": "failed in line 2",
    "(defvar *before* 1)\n\n(list 1\n": "failed in line 3; what came before it is loaded. ",
    "(defvar *before* 1)\n(nosuch:thing)": "NOSUCH",
    "(defvar *before* 1)\n(sb-ext:exit :code 3)": "called EXIT; what it did before stays.",
    "(defvar *before* 1)\n(labels ((f (n) (+ 1 (f n)))) (f 1))": "exhausted",
}


@pytest.mark.parametrize("text", FAILING)
def test_an_init_file_that_fails_is_told_in_a_line_and_the_image_is_there(project, tmp_path, opened, text):
    """Bad input: the image still starts."""
    init = tmp_path / "init.lisp"
    init.write_text(text)
    image = opened(project, init=init)
    (note,) = start_notes(image)
    assert note.startswith(f"The image says: The init file {init} ")
    assert FAILING[text] in note
    assert "\n" not in note
    assert image.evaluate("(list *before* (boundp '*after*))").values == ["(1 NIL)"]
    assert image.evaluate("(sleep 0.01)").ok


def test_an_init_file_that_ends_its_process_is_left_out(project, tmp_path, opened):
    """Bad input: the image still starts."""
    init = tmp_path / "init.lisp"
    init.write_text("(defvar *before* 1)\n(sb-ext:exit :code 3 :abort t)")
    image = opened(project, init=init)
    (note,) = start_notes(image)
    assert note.startswith("The init file is left out: it ended its process")
    assert image.evaluate("(boundp '*before*)").values == ["NIL"]
    missing = opened(project, init=tmp_path / "absent.lisp")
    assert start_notes(missing) == [
        f"The init file {tmp_path}/absent.lisp is not loaded: there is no such file."
    ]


# ---- the compile cache


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Hide the systems of the machine: a newer ASDF among them would be compiled first, and be counted."""
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "data"))


def compiled_files(tmp_path, rights=""):
    return sorted((tmp_path / "cache/gramercy/fasl").glob(f"*{rights}/files/**/*.fasl"))


def compiled_by(image, system):
    """Return how many files an image compiles to load a system."""
    reply = image.load_system(system, timeout=LONG)
    assert reply.ok, reply.error
    return int(image.evaluate("gramercy.image::*compiled-count*").values[0])


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_what_one_image_has_compiled_another_loads(project, opened, tmp_path, confinement):
    """Own program: every session compiles every library again."""
    write_system(project, "mine")
    assert compiled_by(opened(project, confinement), "mine") == 1
    assert [file.name for file in compiled_files(tmp_path)] == ["mine-code.fasl"]
    assert compiled_by(opened(project, confinement), "mine") == 0
    assert not (Path.home() / ".cache").exists()


@pytest.mark.usefixtures("alone")
@pytest.mark.slow
def test_a_restored_state_and_a_fresh_image_share_the_cache(project, opened, tmp_path):
    """Own program: images started from a saved core use it too."""
    write_system(project, "mine")
    write_system(project, "other")
    image = opened(project)
    assert compiled_by(image, "mine") == 1
    image.save(str(tmp_path / "saved.core"))
    image = opened(project)
    image.restore(str(tmp_path / "saved.core"))
    assert image.evaluate("(mine)").values == [":MINE"]
    assert compiled_by(image, "other") == 1
    assert compiled_by(opened(project), "other") == 0


@pytest.mark.usefixtures("alone")
def test_what_confined_code_has_written_is_never_loaded_unconfined(project, opened, tmp_path):
    """Environments, Lisp: another cache for images without sandbox."""
    if find_confinement() is Confinement.NONE:
        pytest.skip("there is no sandbox here")
    write_system(project, "mine")
    confined = opened(project)
    assert compiled_by(confined, "mine") == 1
    (compiled,) = compiled_files(tmp_path, "confined")
    poison = '(with-open-file (s "x.lisp" :direction :output) (print \'(defun cl-user::mine () :poison) s))'
    assert confined.evaluate(f'{poison} (compile-file "x.lisp" :output-file "{compiled}")').ok
    assert compiled_by(opened(project, Confinement.NONE), "mine") == 1
    assert len(compiled_files(tmp_path, "free")) == 1
    free = opened(project, Confinement.NONE)
    assert loaded(free, "mine") == ":MINE"
    # The other cache and the rest of this one are out of reach.
    (other,) = compiled_files(tmp_path, "free")
    for target in (other, compiled.parents[-1] / "x", tmp_path / "cache/gramercy/fasl/x"):
        assert not confined.evaluate(
            f'(with-open-file (s "{target}" :direction :output :if-exists :append))'
        ).ok


@pytest.mark.usefixtures("alone")
@needs("alexandria")
def test_two_images_that_compile_at_once_do_not_disturb_each_other(project, opened, tmp_path):
    """Own program: ASDF writes beside and renames."""
    where = {"registries": (DEBIAN / "alexandria",)}
    images = [opened(project, **where) for _ in range(3)]
    for image in images:
        assert image.evaluate("1").ok
    replies = []
    threads = [
        threading.Thread(
            target=lambda image=image: replies.append(image.load_system("alexandria", timeout=LONG))
        )
        for image in images
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert [reply.ok for reply in replies] == [True] * 3, [reply.error for reply in replies]
    for image in images:
        assert image.evaluate("(alexandria:flatten '(1 (2)))").values == ["(1 2)"]
    assert compiled_by(opened(project, **where), "alexandria") == 0
    sources = {file.stem for file in (DEBIAN / "alexandria").rglob("*.lisp")}
    assert {file.stem for file in compiled_files(tmp_path)} <= sources


def test_a_cache_that_cannot_be_written_is_told_and_a_private_one_is_used(project, opened, tmp_path):
    """Bad input: a cache directory that is read-only."""
    (tmp_path / "cache/gramercy/fasl").touch()
    write_system(project, "mine")
    image = opened(project)
    (note,) = start_notes(image)
    assert note.startswith("What is compiled is not kept for the next image: ")
    assert "cannot be written (Not a directory)" in note
    assert loaded(image, "mine") == ":MINE"


@pytest.fixture
def small_disk(tmp_path):
    """Mount a disk of 16 MB where the cache of compiled files is, if that is possible here."""
    place = tmp_path / "cache/gramercy/fasl"
    place.mkdir()
    if os.system(f"mount -t tmpfs -o size=16m tmpfs '{place}' 2>/dev/null") != 0:
        pytest.skip("a disk cannot be mounted here")
    yield place
    os.system(f"umount -l '{place}'")


def test_a_full_disk_is_told_and_a_private_cache_is_used(project, opened, small_disk):
    """Bad input: a cache directory that is full."""
    write_system(project, "mine")
    image = opened(project)
    (note,) = start_notes(image)
    assert note.endswith("MB left.")
    assert loaded(image, "mine") == ":MINE"
    assert os.system(f"mount -o remount,ro '{small_disk}'") == 0
    image = opened(project)
    (note,) = start_notes(image)
    assert "cannot be written (Read-only file system)" in note
    assert loaded(image, "mine") == ":MINE"


def test_caches_that_nobody_needs_are_removed(project, tmp_path):
    """Own program: the cache does not grow for ever."""
    caches = tmp_path / "cache/gramercy/fasl"
    days = {"unused": 40, "orphan": 2, "recent": 2, "orphan-in-use": 0}
    for name, age in days.items():
        (caches / name / "files").mkdir(parents=True)
        stamp = caches / name / "project"
        stamp.write_text("/nowhere/at/all\n" if "orphan" in name else f"{project}\n")
        then = time.time() - age * 24 * 3600 - 60
        os.utime(stamp, (then, then))
    program = sbcl_program(project, Environment(), confinement=Confinement.NONE)
    own = program.grants.writable[0].parent.name
    assert {path.name for path in caches.iterdir()} == {"recent", "orphan-in-use", own, "swept"}


@needs("cl-ppcre")
def test_the_second_image_compiles_nothing_of_a_library(project, opened):
    """Speed: how long it takes beside the first image and a plain SBCL is for `scripts/bench`."""
    assert compiled_by(opened(project), "cl-ppcre") > 0
    assert compiled_by(opened(project), "cl-ppcre") == 0


@pytest.mark.usefixtures("alone")
def test_what_is_being_compiled_can_be_watched(project, opened):
    """Own program: the first compilation needs a progress line."""
    write_system(project, "mine")
    (project / "mine-code.lisp").write_text("(eval-when (:compile-toplevel) (sleep 1)) (defun mine () 1)")
    image = opened(project)
    assert image.evaluate("1").ok
    seen = []
    watching = image.arun(Load("mine"), timeout=LONG, watch=lambda progress: seen.append(progress.stderr))
    reply = asyncio.run(watching)
    assert "".join(seen) == f"compiling {project}/mine-code.lisp\n"
    assert (reply.ok, reply.stderr, reply.notes) == (True, "", [])


@pytest.mark.slow
def test_a_compilation_that_is_cut_short_says_how_far_it_came(project, opened):
    """Own program: the first compilation may take minutes."""
    write_system(project, "mine")
    (project / "mine-code.lisp").write_text("(eval-when (:compile-toplevel) (sleep 60))")
    reply = opened(project).load_system("mine", timeout=7)
    assert reply.error is not None
    assert reply.error.interrupted
    # ASDF compiles itself first where the machine has a newer one, as Debian's package cl-asdf.
    told = r"(1 file was|2 files were) compiled, which took 7 s; the last was .*mine-code\.lisp\."
    told = f"The image says: {told}"
    assert any(re.fullmatch(told, note) for note in reply.notes)


# ---- what is told to people


def test_what_was_found_can_be_shown(project, home, monkeypatch):
    """Doctor: what the image will see."""
    write_system(project / "sub", "mine")
    write_system(home / "common-lisp", "default")
    (home / "quicklisp").mkdir()
    (home / "quicklisp/setup.lisp").write_text(QUICKLISP)
    monkeypatch.setenv("CL_SOURCE_REGISTRY", "/nowhere/at/all:")
    findings = lisp_findings(project, Environment())
    told = [(finding.name, finding.detail.partition(" ")[0]) for finding in findings]
    assert told[:2] == [("system", str(project / "sub/mine.asd")), ("registry", str(home / "common-lisp"))]
    assert ("quicklisp", str(home / "quicklisp")) in told
    (cache,) = [finding for finding in findings if finding.name == "compile cache"]
    assert cache.detail.endswith("(0.0 MB)")
    assert not Path(cache.detail.partition(" ")[0]).exists()
    assert findings[-1].status is Status.WARNING
    assert "/nowhere/at/all" in findings[-1].detail


# ---- real libraries


@pytest.mark.slow
@needs("cl-cffi", "ironclad", "hunchentoot")
def test_large_libraries_are_compiled_once(project, opened):
    """Proof: cffi, ironclad and hunchentoot, which take minutes to compile."""
    # 512 MB are not enough to compile ironclad.
    image = opened(project, memory_mb=1024)
    seconds = {}
    for system in ("cffi", "ironclad", "hunchentoot"):
        reply = image.load_system(system, timeout=900)
        assert reply.ok, reply.error
        seconds[system] = reply.elapsed_ms
    again = opened(project, memory_mb=1024)
    for system, first in seconds.items():
        reply = again.load_system(system, timeout=LONG)
        assert reply.ok, reply.error
        assert reply.elapsed_ms <= 0.25 * first
    octets = "(coerce #(97) '(simple-array (unsigned-byte 8) (*)))"
    digest = f"(ironclad:byte-array-to-hex-string (ironclad:digest-sequence :sha256 {octets}))"
    assert again.evaluate(digest).values[0].startswith('"ca978112ca1bbdcafac231b39a23dc4da786eff8')
    assert again.evaluate('(cffi:foreign-funcall "abs" :int -3 :int)').values == ["3"]
