# ruff: noqa: E501 - a form of Lisp is easier to read on one line
"""Systems of ASDF in the SBCL child: what was edited is loaded again, what is wrong is told with its file and line."""

from __future__ import annotations

import shutil
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from tests.images import children

LIBRARIES = Path("/usr/share/common-lisp/source")

pytestmark = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    # To compile ironclad takes more than the usual half a gigabyte, in plain SBCL too.
    command = [word.replace("512MB", "2GB") for word in children.program("sbcl")]
    with pytest.MonkeyPatch.context() as patch:
        compiled = tmp_path_factory.mktemp("compiled")
        patch.setenv(
            "ASDF_OUTPUT_TRANSLATIONS",
            f'(:output-translations (t ("{compiled}/" :**/ :*.*.*)) :ignore-inherited-configuration)',
        )
        with closing(children.Family(tmp_path_factory.mktemp("family"), "sbcl", command=command)) as family:
            yield family


@pytest.fixture
def live(family):
    process = family.live()
    yield process
    process.kill()


class Project:
    """A directory with systems, known to one process."""

    def __init__(self, directory, process):
        self.directory = directory
        self.process = process
        process.eval(f'(push #p"{directory}/" asdf:*central-registry*)')

    def write(self, name, text):
        (self.directory / name).write_text(text)

    def load(self, system="demo", seconds=60.0):
        return self.process.ask("load_system", seconds, system=system)


@pytest.fixture
def project(tmp_path, live):
    project = Project(tmp_path, live)
    project.write(
        "demo.asd", '(defsystem "demo" :components ((:file "one") (:file "two" :depends-on ("one"))))'
    )
    project.write("one.lisp", "(defun one () 1)\n")
    project.write("two.lisp", "(defun two () (+ 1 (one)))\n")
    return project


def places(reply):
    return [(w["kind"], w["file"] and Path(w["file"]).name, w["line"]) for w in reply["warnings"]]


# ---- loading again


def test_what_was_edited_is_loaded_again_at_once_and_only_that(project):
    first = project.load()
    assert first["ok"]
    assert "reloaded" not in first
    assert "reloaded" not in project.load()
    for number in (5, 6, 7):
        project.write("two.lisp", f"(defun two () (+ {number} (one)))\n")
        assert project.load()["reloaded"] == ["demo (two.lisp)"]
        assert project.process.value("(two)") == str(number + 1)


def test_what_depends_on_the_edited_is_loaded_again_too(project):
    project.write("user.asd", '(defsystem "user" :depends-on ("demo") :components ((:file "three")))')
    project.write("three.lisp", "(defun three () (two))")
    assert project.load("user")["ok"]
    project.write("one.lisp", "(defmacro one () 10)\n")
    assert project.load("user")["reloaded"] == ["demo (one.lisp, two.lisp)", "user (three.lisp)"]
    assert project.process.value("(three)") == "11"


def test_an_edited_definition_of_a_system_is_taken_up(project):
    project.load()
    project.write("three.lisp", "(defun three () 3)")
    project.write(
        "demo.asd",
        '(defsystem "demo" :version "2.0" :components ((:file "one") (:file "two") (:file "three")))',
    )
    reply = project.load()
    assert (reply["ok"], reply["version"]) == (True, "2.0")
    assert project.process.value("(three)") == "3"


def test_an_inferred_system_is_loaded_again(project):
    project.write(
        "inferred.asd", '(defsystem "inferred" :class :package-inferred-system :depends-on ("inferred/top"))'
    )
    project.write(
        "top.lisp",
        "(uiop:define-package :inferred/top (:use :cl :inferred/low))\n(in-package :inferred/top)\n(defun top () (low))",
    )
    project.write(
        "low.lisp",
        "(uiop:define-package :inferred/low (:use :cl) (:export #:low))\n(in-package :inferred/low)\n(defun low () 1)",
    )
    assert project.load("inferred")["ok"]
    project.write(
        "low.lisp",
        "(uiop:define-package :inferred/low (:use :cl) (:export #:low))\n(in-package :inferred/low)\n(defun low () 2)",
    )
    assert project.load("inferred")["reloaded"] == ["inferred/low (low.lisp)", "inferred/top (top.lisp)"]
    assert project.process.value("(inferred/top::top)") == "2"


def test_a_stale_compiled_file_of_an_earlier_image_is_not_loaded(family, project):
    project.load()
    project.write("one.lisp", "(defun one () 41)\n")
    other = Project(project.directory, family.live())
    assert other.load()["ok"]
    assert other.process.value("(two)") == "42"


# ---- what is wrong


def test_warnings_of_the_users_own_files_are_told_with_file_and_line(project):
    project.write("two.lisp", "(defun two (x)\n  (one))\n\n(defun three ()\n  (nowhere))\n")
    reply = project.load()
    assert reply["ok"]
    assert places(reply) == [("style-warning", "two.lisp", 1), ("style-warning", "two.lisp", 5)]
    assert reply["stderr"] == ""


def test_broken_code_does_not_count_as_loaded(project):
    project.load()
    project.write("one.lisp", "(defun one () 2)\n\n(defun bad ()\n  (car 1))\n")
    reply = project.load()
    fault = reply["error"]
    assert (reply["ok"], fault["type"]) == (False, "UIOP/LISP-BUILD:COMPILE-FILE-ERROR")
    assert (Path(fault["file"]).name, fault["line"], fault["text"]) == ("one.lisp", 4, "  (car 1))")
    assert 'System "demo" was not loaded: it could not be compiled.' in fault["message"]
    assert "one.lisp:4: Constant 1 conflicts with its asserted type LIST." in fault["message"]
    # The message tells it, so no warning does.
    assert places(reply) == []
    assert project.process.value("(one)") == "1"
    project.write("one.lisp", "(defun one () 3)\n")
    assert project.load()["reloaded"] == ["demo (one.lisp, two.lisp)"]


def test_a_file_that_is_not_closed_does_not_count_as_loaded(project):
    project.write("two.lisp", "(defun two () 1)\n(defun bad (\n")
    fault = project.load()["error"]
    assert (Path(fault["file"]).name, fault["line"]) == ("two.lisp", 2)
    assert fault["message"].endswith(
        "two.lisp:2 cannot be read: the file ends inside of the form that begins on line 2."
    )


def test_an_error_while_a_component_is_loaded_names_its_source(project):
    project.write("two.lisp", '(error "not today")\n')
    fault = project.load()["error"]
    assert (fault["message"], Path(fault["file"]).name) == ("not today", "two.lisp")


def test_asdf_by_hand_fails_as_in_plain_sbcl(project):
    project.write("two.lisp", "(defun two () (car 1))\n")
    reply = project.process.eval(
        '(handler-case (asdf:load-system "demo") (uiop:compile-file-error () :failed))'
    )
    assert reply["forms"][0]["values"] == [":FAILED"]
    assert places(reply) == [("warning", "two.lisp", 1)]


def test_a_missing_dependency_tells_who_needs_it(project):
    project.write("needy.asd", '(defsystem "needy" :depends-on ("no-such-thing"))')
    project.write("top.asd", '(defsystem "top" :depends-on ("needy"))')
    fault = project.load("top")["error"]
    assert fault["type"] == "ASDF/FIND-COMPONENT:MISSING-DEPENDENCY"
    assert fault["message"] == 'System "no-such-thing" not found; system "needy" needs it.'


def test_a_definition_that_cannot_be_read_tells_where(project):
    project.write("demo.asd", '\n(defsystem "demo" :components ((:file "one"))\n')
    fault = project.load()["error"]
    assert fault["type"].endswith("LOAD-SYSTEM-DEFINITION-ERROR")
    assert (Path(fault["file"]).name, fault["line"]) == ("demo.asd", 2)
    assert "demo.asd:2 cannot be read" in fault["message"]
    assert project.process.value("(+ 1 2)") == "3"


def test_loading_a_system_is_not_taken_back_and_says_so(project):
    project.process.eval("(defun mine () 1)")
    project.load()
    reply = project.process.ask("undo_definitions")
    assert (reply["ok"], reply["notes"]) == (True, ["The loading of the system demo is not taken back."])
    assert project.process.value("(two)") == "2"
    assert project.process.ask("undo_definitions")["changed"][0]["name"] == "CL-USER::MINE"


# ---- real libraries


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "form", "value"),
    [
        ("cl-cffi", '(cffi:foreign-funcall "abs" :int -5 :int)', "5"),
        ("bordeaux-threads", "(bt:join-thread (bt:make-thread (lambda () 7)))", "7"),
        ("hunchentoot", '(hunchentoot:url-encode "a b")', '"a%20b"'),
        ("ironclad", "(ironclad:byte-array-to-hex-string (ironclad:digest-sequence :sha256 (make-array 0 :element-type '(unsigned-byte 8))))", '"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"'),
    ],
)  # fmt: skip
def test_a_real_library_is_loaded_and_is_not_loaded_again(tmp_path, live, system, form, value):
    if not (LIBRARIES / system).is_dir():
        pytest.skip(f"{system} is not installed: apt-get install cl-{system.removeprefix('cl-')}")
    project = Project(tmp_path, live)
    name = {"cl-cffi": "cffi"}.get(system, system)
    reply = project.load(name, seconds=600)
    assert reply["ok"], reply["error"]
    # Matters of style in files of others are counted, not told.
    assert [warning for warning in reply["warnings"] if warning["kind"] == "style-warning"] == []
    assert live.value(form) == value
    assert "reloaded" not in project.load(name)


@pytest.mark.slow
def test_a_handler_of_a_running_server_is_taken_back(tmp_path, live):
    if not (LIBRARIES / "hunchentoot").is_dir():
        pytest.skip("hunchentoot is not installed: apt-get install cl-hunchentoot")
    assert Project(tmp_path, live).load("hunchentoot", seconds=600)["ok"]
    live.eval(
        '(defvar *server* (make-instance \'hunchentoot:easy-acceptor :port 0 :address "127.0.0.1" :access-log-destination nil))'
    )
    live.eval('(hunchentoot:define-easy-handler (hello :uri "/hello") () "first")')
    assert live.eval("(hunchentoot:start *server*)")["state"]["threads"] > 1
    port = live.value("(hunchentoot:acceptor-port *server*)")

    def answer():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/hello", timeout=60) as response:
            return response.read()

    assert answer() == b"first"
    assert live.ask("fork", role="checkpoint", tag="t")["error"]["type"] == "CANNOT-FORK"
    live.eval('(defun hello () "second")')
    assert answer() == b"second"
    reply = live.ask("undo_definitions")
    assert [change["change"] for change in reply["changed"]] == ["restored"]
    assert answer() == b"first"
    live.eval("(hunchentoot:stop *server*)")
