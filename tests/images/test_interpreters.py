"""A Python image runs under the project's own interpreter, and no file of the project runs outside."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gramercy.errors import ImageStartError
from gramercy.images.cpython import python_findings, python_program
from gramercy.images.environment import Environment, Status
from gramercy.images.interpreters import chosen_interpreter, find_environment
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement, why_not
from tests.support import files_of_processes, until

BASE = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
HEADER = BASE.read_bytes()[:64]
OLD_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 11))"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
CONFINEMENTS = [
    pytest.param(kind, marks=pytest.mark.skipif(bool(why_not(kind)), reason=str(why_not(kind))))
    for kind in (Confinement.BUBBLEWRAP, Confinement.LANDLOCK, Confinement.NONE)
]


@pytest.fixture
def project(tmp_path):
    """Return a project with a module at the top and a package in src."""
    place = tmp_path / "garden"
    (place / "src" / "beds").mkdir(parents=True)
    (place / "gate.py").write_text("key = 'top'\n")
    (place / "src" / "beds" / "__init__.py").write_text("rows = 3\n")
    return place.resolve()


@pytest.fixture
def opened():
    """Return a function that opens images, which are closed at the end."""
    images = []

    def start(project, *, confinement=None, **told):
        settings = ImageSettings("python", Path(project), confinement, Environment(**told))
        images.append(LiveImage("python", settings.program, timeout=60, language="python"))
        return images[-1]

    yield start
    for image in images:
        image.close()


def make_environment(place, python=BASE, *options):
    """Make a virtual environment without pip, with one module in it; return its packages."""
    subprocess.run([python, "-m", "venv", "--without-pip", *options, place], check=True, timeout=60)
    packages = next(place.glob("lib/python3*/site-packages"))
    (packages / "spade.py").write_text("made = 'of steel'\n")
    return packages


def find_version(version):
    """Return an interpreter of that version, or skip the test."""
    try:
        return chosen_interpreter(version)
    except ImageStartError as error:
        pytest.skip(str(error))


def value(image, code):
    """Evaluate code that must work, and return the last value as Python sees it."""
    reply = image.evaluate(code)
    assert reply.ok, reply.error
    return reply.values[-1]


def until_logged(image, text):
    """Wait until a thread has read what the image wrote to its log."""
    until(lambda: text in image._lifecycle.family.log.tail())


def command_lines():
    """Return the command line of every process there is."""
    found = []
    for file in files_of_processes("cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            found.append(file.read_bytes())
    return found


def notes(project, **told):
    """Return what is told about the image of a project."""
    return python_program(project, Environment(**told), confinement=Confinement.NONE).notes


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_an_image_has_the_environment_and_the_modules_of_its_project(project, opened, confinement):
    """Own program: it imported only the standard library."""
    make_environment(project / ".venv")
    image = opened(project, confinement=confinement)
    assert value(image, "import sys; sys.prefix") == repr(str(project / ".venv"))
    assert (
        value(image, "import spade, gate, beds; (spade.made, gate.key, beds.rows)")
        == "('of steel', 'top', 3)"
    )
    assert value(image, "sys.path[:2]") == repr([str(project), str(project / "src")])
    assert value(image, "sys.executable") == repr(str(project / ".venv" / "bin" / "python"))
    inner = "['python', '-c', 'import spade, sys; print(sys.prefix)']"
    assert str(project / ".venv") in value(image, f"import subprocess as s; s.run({inner}, stdout=-1).stdout")


def test_it_has_them_again_after_a_reset_and_an_undo_and_in_a_preview(project, opened):
    """Every live process moves in anew; copies of it have what it had."""
    make_environment(project / ".venv")
    image = opened(project)
    assert image.load_system("spade").ok
    assert image.preview("import beds; beds.rows").values == ["3"]
    assert value(image, "x = 1; x") == "1"
    image.undo()
    assert value(image, "'x' in globals(), __import__('gate').key") == "(False, 'top')"
    image.reset()
    assert value(image, "import spade; spade.made") == "'of steel'"


def test_without_an_environment_an_image_has_its_project_and_no_packages(project, opened):
    """Own program: the project directory and src come first on the path."""
    image = opened(project)
    assert value(image, "import gate, beds; (gate.key, beds.rows)") == "('top', 3)"
    assert value(image, "import sys; [p for p in sys.path if 'packages' in p]") == "[]"
    assert notes(project) == ()


def test_code_of_the_environment_runs_and_a_sitecustomize_of_the_project_does_not(project, opened):
    """Environments, 1: as with `python script.py`."""
    packages = make_environment(project / ".venv")
    (packages / "early.pth").write_text("import sys; sys.early = 'yes'\n")
    (packages / "sitecustomize.py").write_text("import sys; sys.customized = 'by the environment'\n")
    (project / "sitecustomize.py").write_text("import sys; sys.customized = 'by the project'\n")
    image = opened(project)
    assert value(image, "import sys; (sys.early, sys.customized)") == "('yes', 'by the environment')"
    assert image.evaluate("1").changed == []


@pytest.mark.parametrize("line", ["raise SystemExit(3)", "print('loud'); 1/0", "import sys; sys.exit()"])
def test_an_environment_whose_start_fails_does_not_stop_the_image(project, opened, line):
    """Code in .pth files may do anything."""
    packages = make_environment(project / ".venv")
    (packages / "bad.pth").write_text(f"import os; exec({line!r})\n")
    assert value(opened(project), "6 * 7") == "42"


def test_the_nearest_environment_is_taken(project, opened, monkeypatch, tmp_path):
    """`.venv`, then `venv`, then the one that is active; what is told explicitly before all of them."""
    for place in (tmp_path / "active", project / "venv", project / ".venv", tmp_path / "told"):
        make_environment(place)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    told = opened(project, python=str(tmp_path / "told"))
    assert value(told, "import sys, spade; sys.prefix") == repr(str(tmp_path / "told"))
    for place in (project / ".venv", project / "venv", tmp_path / "active"):
        assert value(opened(project), "import sys, spade; sys.prefix") == repr(str(place))
        assert notes(project) == ()
        shutil.rmtree(place)
    found, wrong = find_environment(project)
    assert found is None
    assert "VIRTUAL_ENV is not used: there is no directory" in wrong[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_can_be_chosen_as_interpreter_and_as_environment(project, opened, version):
    """Proof: interpreters chosen by --python."""
    python = find_version(version)
    image = opened(project, python=version)
    assert value(image, "import sys; '%d.%d' % sys.version_info[:2]") == repr(version)
    make_environment(project / ".venv", python.program)
    inner = opened(project)
    assert value(inner, "import sys, spade, gate; '%d.%d' % sys.version_info[:2]") == repr(version)
    assert value(inner, "class A: pass\nimport asyncio, ssl, sqlite3, ctypes; sys.prefix") == repr(
        str(project / ".venv")
    )
    inner.undo()
    assert inner.evaluate("1/0").error.type == "ZeroDivisionError"


def test_an_environment_of_copies_works(project, opened):
    """Without links the program is a file of the project, and started in the sandbox alone."""
    make_environment(project / ".venv", BASE, "--copies")
    assert value(opened(project), "import spade; spade.made") == "'of steel'"


def test_a_home_that_goes_through_links_is_there_under_each_name(project, opened, tmp_path):
    """Environments, 1: uv names its interpreters by the minor version, as links."""
    link, environment = tmp_path / "kept" / "cpython-3-linux", project / ".venv"
    link.parent.mkdir()
    link.symlink_to(BASE.parent.parent)
    packages = environment / "lib" / NAME / "site-packages"
    packages.mkdir(parents=True)
    (environment / "bin").mkdir()
    (environment / "bin" / "python").symlink_to(link / "bin" / BASE.name)
    version = ".".join(map(str, sys.version_info[:3]))
    (environment / "pyvenv.cfg").write_text(f"home = {link}/bin\nversion_info = {version}\n")
    (packages / "spade.py").write_text("made = 1\n")
    image = opened(project, confinement=Confinement.BUBBLEWRAP)
    assert value(image, "import spade, sys; sys.prefix") == repr(str(environment))
    assert value(image, f"import os; sorted(os.listdir({str(link)!r}))") in (
        "['bin', 'lib']",
        repr(["bin", "lib"]),
    )


def test_no_file_of_the_project_runs_outside(project, opened, tmp_path):
    """A repository may bring any program as .venv/bin/python."""
    mark, programs = tmp_path / "it-ran", project / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(f'#!/bin/sh\ntouch {mark}\nexec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)
    (programs.parent / "pyvenv.cfg").write_text(f"home = {BASE.parent}\nversion = 3.11.0\n")
    assert value(opened(project), "import gate; gate.key") == "'top'"
    told = notes(project)
    assert ".venv is not used" in told[0]
    assert "is no program for" in told[0]
    assert told[1] == "The image runs a Python without packages instead."
    with pytest.raises(ImageStartError, match="is no program for"):
        notes(project, python=str(project / ".venv"))
    python_findings(project, Environment())
    assert not mark.exists()


@pytest.mark.skipif(bool(why_not(Confinement.BUBBLEWRAP)), reason="needs bubblewrap")
def test_links_and_homes_that_lie_open_nothing(project, opened, tmp_path):
    """Only what is really named like a part of Python is bound."""
    secret = tmp_path / "secret.txt"
    secret.write_text("mine")
    fake = project / "fake"
    shutil.copytree(BASE.parent.parent / "lib" / NAME / "encodings", fake / "lib" / NAME / "encodings")
    (fake / "lib" / NAME / "os.py").write_text("")
    (fake / "lib" / "libpython3.11.so").symlink_to(secret)
    (fake / "bin").mkdir()
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "bin" / "python").symlink_to(BASE)
    (project / ".venv" / "pyvenv.cfg").write_text(f"home = {fake}/bin\n")
    program = python_program(project, Environment(), confinement=Confinement.BUBBLEWRAP)
    assert secret not in {path for place in program.grants.aliases for path in place}
    (project / ".venv" / "bin" / "python").unlink()
    (project / ".venv" / "bin" / "python").symlink_to(secret)
    image = opened(project)
    assert not image.evaluate(f"open({str(secret)!r}).read()").ok
    assert "not python3" in notes(project)[0]


@pytest.mark.parametrize("confinement", CONFINEMENTS[:2])
@pytest.mark.parametrize("language", ["python", "sbcl"])
def test_the_environment_of_a_project_cannot_be_written_from_inside(project, language, confinement):
    """Environments, 1: else code could put programs there that the user runs unconfined."""
    if language == "sbcl" and shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed: apt-get install sbcl")
    make_environment(project / ".venv")
    make_environment(project / "other")
    settings = ImageSettings(language, project, confinement)
    image = LiveImage("test", settings.program, timeout=60, language=language)
    write = '(with-open-file (s "{}" :direction :output :if-exists :supersede) (print 1 s))'
    write = write if language == "sbcl" else "open('{}', 'w').write('1')"
    for place in (".venv/bin/python9", ".venv/pyvenv.cfg", "other/lib/x.pth"):
        assert not image.evaluate(write.format(project / place)).ok
    assert image.evaluate(write.format(project / "src" / "new.txt")).ok
    image.close()


@pytest.mark.skipif(bool(why_not(Confinement.BUBBLEWRAP)), reason="needs bubblewrap")
def test_an_environment_deeper_in_the_project_is_read_only_when_it_is_used(project, opened):
    """It is bound on top of the writable project."""
    make_environment(project / "tools" / "env")
    image = opened(project, python=str(project / "tools" / "env"))
    assert value(image, "import spade; spade.made") == "'of steel'"
    error = image.evaluate("open('tools/env/x', 'w')").error
    assert error is not None
    assert "Read-only file system" in error.message


def fake_environment(project, *, program=HEADER, name=NAME, settings="home = {base}/bin\n"):
    """Make an environment whose interpreter is only a few octets, of an installation in the project."""
    base = project / "installation"
    (base / "bin").mkdir(parents=True)
    (base / "bin" / name).write_bytes(program)
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "bin" / "python").symlink_to(base / "bin" / name)
    (project / ".venv" / "pyvenv.cfg").write_text(settings.format(base=base))
    return base


def dangle(project):
    fake_environment(project)
    (project / "installation" / "bin" / NAME).unlink()


def lead_nowhere(project):
    (project / ".venv").symlink_to(project / "absent")


def lead_outside(project):
    make_environment(project.parent / "elsewhere")
    (project / ".venv").symlink_to(project.parent / "elsewhere")


def be_a_pipe(project):
    fake_environment(project)
    (project / ".venv" / "pyvenv.cfg").unlink()
    os.mkfifo(project / ".venv" / "pyvenv.cfg")


BROKEN = {
    "its program is gone": (dangle, "which is not there"),
    "it leads nowhere": (lead_nowhere, "there is no directory"),
    "it leads outside": (lead_outside, "outside of the project: if that is yours, say --python"),
    "its installation is gone": (fake_environment, "was made with is not in"),
    "another machine": (
        lambda project: fake_environment(project, program=HEADER[:18] + b"\xfe\xfe" + HEADER[20:]),
        "is no program for",
    ),
    "too old": (
        lambda project: fake_environment(project, name="python3.9"),
        "is Python 3.9: 3.11 or newer is needed",
    ),
    "no home": (
        lambda project: fake_environment(project, settings="home\n= 3\n"),
        "does not say where its Python is",
    ),
    "not a Python": (lambda project: fake_environment(project, name="pypy3.10"), "not python3"),
    "no program": (
        lambda project: (project / ".venv" / "conda-meta").mkdir(parents=True),
        "has no bin/python",
    ),
    "no settings": (be_a_pipe, "has no standard library"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_environment_is_one_line_and_the_image_starts(project, opened, case):
    """Bad input: a broken .venv, an interpreter that is too old or of another architecture."""
    spoil, words = BROKEN[case]
    spoil(project)
    told = notes(project)
    assert len(told) == 2
    assert told[0].startswith(".venv is not used: ")
    assert words in told[0]
    assert "\n" not in told[0]
    assert value(opened(project), "import gate; gate.key") == "'top'"
    findings = python_findings(project, Environment())
    assert [finding.status for finding in findings if finding.name == "environment"] == [Status.WARNING]
    if case != "it leads outside":
        with pytest.raises(ImageStartError):
            notes(project, python=str(project / ".venv"))


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("3.99", "there is no Python 3.99 on PATH"),
        ("pyton", "is no Python that is known: expected an interpreter"),
        ("/nowhere/python3", "there is no /nowhere/python3"),
        ("/bin/false", "is not a Python that can be used"),
        (str(Path.home()), "cannot be an environment"),
        ("", None),
    ],
)
def test_an_interpreter_that_was_asked_for_and_cannot_be_used_is_an_error(project, word, words):
    """Only what was found by itself may be passed over."""
    if words is None:
        assert notes(project, python=word) == ()
        return
    with pytest.raises(ImageStartError) as caught:
        notes(project, python=word)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_version_is_looked_up_on_the_path_behind_shims_and_where_pyenv_and_uv_keep_them(
    tmp_path, monkeypatch
):
    """A shim of pyenv is a script; the interpreter is in versions/X/bin."""
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    pyenv, uv = tmp_path / "pyenv", tmp_path / "uv"
    (pyenv / "versions").mkdir(parents=True)
    (pyenv / "shims").mkdir()
    uv.mkdir()
    for place in (pyenv / "versions" / f"{minor}.5", uv / f"cpython-{minor}.77-linux-x86_64-gnu"):
        place.symlink_to(BASE.parent.parent)
    shim = pyenv / "shims" / f"python{minor}"
    shim.write_text("#!/bin/sh\nexit 1\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(pyenv))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(uv))
    monkeypatch.setenv("PATH", str(pyenv / "shims"))
    for word in (minor, f"{minor}.5", f"{minor}.77", f"python{minor}", str(shim)):
        assert chosen_interpreter(word).program == BASE
    with pytest.raises(ImageStartError, match=f"there is no Python {minor}.6 .*there are {minor}"):
        chosen_interpreter(f"{minor}.6")


def test_a_file_can_be_run_when_the_image_starts(project, opened):
    """`--init FILE`; what goes wrong in it is on the log."""
    (project / "start.py").write_text("import gate\nready = gate.key * 2\nprint('prepared')\n")
    image = opened(project, init=project / "start.py")
    assert value(image, "ready") == "'toptop'"
    (project / "start.py").write_text("before = 1\nraise ValueError('not today')\n")
    failing = opened(project, init=project / "start.py")
    assert value(failing, "before") == "1"
    until_logged(failing, "start.py failed: ValueError: not today")


@pytest.mark.skipif(bool(why_not(Confinement.BUBBLEWRAP)), reason="needs bubblewrap")
def test_variables_reach_the_image_and_not_the_programs_that_start_it(project, opened):
    """What a user names for the image is not for the shell and the sandbox that start it."""
    image = opened(project, variables={"GARDEN": "rose"})
    assert value(image, "import os; os.environ['GARDEN']") == "'rose'"
    starter = image._lifecycle.family._spawned._process.pid
    assert b"GARDEN" not in Path(f"/proc/{starter}/environ").read_bytes()


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_the_values_of_variables_are_on_no_command_line(project, opened, confinement):
    """Everybody on the machine can read command lines."""
    image = opened(
        project, confinement=confinement, variables={"TOKEN": "rosebud" * 3, "EMPTY": "", "SIGN": "ä\n="}
    )
    assert value(image, "import os; [os.environ[n] for n in ('TOKEN', 'EMPTY', 'SIGN')]") == repr(
        ["rosebud" * 3, "", "ä\n="]
    )
    assert not any(b"rosebud" in line for line in command_lines())


def test_a_search_path_in_a_variable_of_the_user_is_granted(project, opened, tmp_path):
    """Own program: PYTHONPATH on request."""
    (tmp_path / "shed").mkdir()
    (tmp_path / "shed" / "rake.py").write_text("teeth = 12\n")
    image = opened(project, variables={"PYTHONPATH": f"{tmp_path / 'shed'}:{tmp_path / 'absent'}"})
    assert value(image, "import rake; rake.teeth") == "12"


def test_each_process_says_which_environment_it_is_in(project, opened):
    """Which one is in force must be visible."""
    make_environment(project / ".venv")
    image = opened(project)
    assert value(image, "1") == "1"
    assert image._lifecycle.live.hello.prefix == str(project / ".venv")


@pytest.mark.slow
def test_an_environment_of_conda_is_used_with_all_its_libraries(tmp_path, project, opened):
    """Imitated: conda-meta, and an installation of its own."""
    system = Path(os.path.realpath("/usr/bin/python3"))
    if not system.exists() or subprocess.run([system, "-c", OLD_ENOUGH], check=False, timeout=60).returncode:
        pytest.skip("/usr/bin/python3 is not there or too old: apt-get install python3")
    root = tmp_path / "conda" / "envs" / "garden"
    (root / "conda-meta").mkdir(parents=True)
    (root / "bin").mkdir()
    shutil.copy(system, root / "bin" / system.name)
    (root / "bin" / "python").symlink_to(system.name)
    skipped = shutil.ignore_patterns("test", "site-packages", "dist-packages", "__pycache__", "config-*")
    shutil.copytree(Path("/usr/lib") / system.name, root / "lib" / system.name, ignore=skipped)
    # The second is where Debian's Python looks.
    for place in (root / "lib" / system.name / "site-packages", root / "lib" / "python3" / "dist-packages"):
        place.mkdir(parents=True)
        (place / "spade.py").write_text("made = 2\n")
    image = opened(project, python=str(root))
    assert value(image, "import spade, sys; sys.prefix") == repr(str(root))


@pytest.mark.slow
def test_an_environment_that_hangs_at_its_start_is_given_up_and_told(project, opened):
    """Every wait is bounded."""
    packages = make_environment(project / ".venv")
    (packages / "slow.pth").write_text("import time; time.sleep(300)\n")
    image = opened(project)
    assert value(image, "import gate; gate.key") == "'top'"
    until_logged(image, "could not be taken up: TooSlow: it takes more than 5 seconds")


@pytest.mark.slow
def test_a_file_that_hangs_at_the_start_is_given_up_and_told(project, opened):
    """Every wait is bounded."""
    (project / "start.py").write_text("before = 1\nwhile True: pass\n")
    image = opened(project, init=project / "start.py")
    assert value(image, "before") == "1"
    until_logged(image, "start.py failed: TooSlow: it takes more than 30 seconds")
