"""What is wrong with a project or its machine is one line that its user sees, and the image is there."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.projects import walking
from tests.support import fill

write = walking.write

needs_sbcl = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
SUM = {"sbcl": "(+ 1 2)", "python": "1 + 2"}
NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
HEADER = Path(sys.executable).resolve().read_bytes()[:64]
OTHER_MACHINE = HEADER[:18] + b"\xfe\xfe" + HEADER[20:]


@dataclass
class Trouble:
    """What a test has spoiled: the options and variables that go with it, and the line that tells of it."""

    language: str
    words: str
    options: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    held: list[socket.socket] = field(default_factory=list)


def make_environment(project, name, program):
    """Make an environment whose interpreter is only a few octets."""
    base = project.parent / "installation"
    for directory in (base / "bin", base / "lib" / name, project / ".venv/bin"):
        directory.mkdir(parents=True)
    (base / "lib" / name / "os.py").touch()
    (base / "bin" / name).write_bytes(program)
    (base / "bin" / name).chmod(0o755)
    (project / ".venv/bin/python").symlink_to(base / "bin" / name)
    (project / ".venv/pyvenv.cfg").write_text(f"home = {base}/bin\n")


def broken_environment(project):
    make_environment(project, NAME, HEADER)
    (project.parent / "installation/bin" / NAME).unlink()
    return Trouble("python", ".venv is not used: ")


def old_interpreter(project):
    make_environment(project, "python3.9", HEADER)
    return Trouble("python", "is Python 3.9: 3.11 or newer is needed")


def other_machine(project):
    make_environment(project, NAME, OTHER_MACHINE)
    return Trouble("python", "is no program for")


def registry_outside(_project):
    variables = {"CL_SOURCE_REGISTRY": "(:source-registry (:tree (:home)) :inherit-configuration)"}
    return Trouble("sbcl", "evaluated code could read all that is in it", variables=variables)


def registry_of_the_project(project):
    (project / "gramercy.toml").write_text('registries = ["../elsewhere"]\n')
    (project.parent / "elsewhere").mkdir()
    return Trouble("sbcl", "registries is refused")


def cache_not_to_be_written(project):
    (project.parent / "cache/gramercy/fasl").touch()
    return Trouble("sbcl", "What is compiled is not kept for the next image: ")


def taken_port(language):
    def spoil(_project):
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]
        words = f"port {port} of this machine is taken by another program"
        return Trouble(language, words, ("--publish", f"{port}:8000"), held=[server])

    return spoil


def unknown_key(language):
    def spoil(project):
        (project / "gramercy.toml").write_text("tiemout = 3\n")
        return Trouble(language, "there is no key 'tiemout': did you mean 'timeout'?")

    return spoil


SPOILT = {
    "a broken environment": broken_environment,
    "an interpreter that is too old": old_interpreter,
    "an interpreter of another machine": other_machine,
    "a registry that is the home": registry_outside,
    "a registry outside that the project names": registry_of_the_project,
    "a cache that cannot be written": cache_not_to_be_written,
    "a port that is taken, Python": taken_port("python"),
    "a port that is taken, Lisp": taken_port("sbcl"),
    "an unknown key, Python": unknown_key("python"),
    "an unknown key, Lisp": unknown_key("sbcl"),
}


def lines_about(words, text):
    return [line for line in text.splitlines() if words in line]


@needs_sbcl
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("case", SPOILT)
@pytest.mark.slow
def test_the_user_is_told_once_and_the_image_is_there(project, gramercy, walk, monkeypatch, case):
    """Issue, Bad input: one clear line each, nothing lost, and the image still starts."""
    trouble = SPOILT[case](project)
    for name, value in trouble.variables.items():
        monkeypatch.setenv(name, value)
    code = SUM[trouble.language]
    done = gramercy("eval", "--language", trouble.language, *trouble.options, code, cwd=project)
    assert (done.returncode, done.stdout.startswith("3\n")) == (0, True), done.stderr
    assert len(lines_about(trouble.words, done.stdout + done.stderr)) == 1
    day = walk(trouble.language, project, *trouble.options)
    first = day.eval(code)
    assert first.startswith("=> 3\n")
    assert len(lines_about(trouble.words, first)) == 1
    assert "?." not in first
    assert day.eval(code) == "=> 3"
    for server in trouble.held:
        server.close()


@pytest.mark.parametrize("spoil", [broken_environment, old_interpreter, other_machine])
def test_an_interpreter_that_was_asked_for_is_refused_in_a_line(project, gramercy, spoil):
    """What was chosen by a person is not passed over."""
    spoil(project)
    done = gramercy("eval", "--language", "python", "--python", ".venv", "1", cwd=project)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert done.stderr.startswith("gramercy: ")


OLD = [version for version in ("3.10", "3.9", "3.8") if shutil.which(f"python{version}")]


@pytest.mark.skipif(not OLD, reason="there is no Python older than 3.11")
def test_a_real_environment_that_is_too_old_is_told(project, gramercy):
    python = shutil.which(f"python{OLD[0]}")
    try:
        words = [python, "-m", "venv", "--without-pip", project / ".venv"]
        # A shim of pyenv has to be told which of its interpreters is meant.
        variables = {**os.environ, "PYENV_VERSION": OLD[0]}
        subprocess.run(words, check=True, timeout=60, capture_output=True, env=variables)
    except subprocess.CalledProcessError:
        pytest.skip(f"Python {OLD[0]} cannot be started or makes no environments")
    done = gramercy("eval", "--language", "python", "1 + 2", cwd=project)
    assert (done.returncode, done.stdout.startswith("3\n")) == (0, True)
    assert len(lines_about(f"is Python {OLD[0]}: 3.11 or newer is needed", done.stderr)) == 1


@needs_sbcl
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('(defsystem "bad"\n  :components ((:file "x"', "bad.asd:1 cannot be read"),
        ('\n(no-such-form "bad")', "NO-SUCH-FORM"),
        ('(defsystem "bad" :depends-on ("not-there"))', "not-there"),
    ],
)
def test_a_definition_with_an_error_is_told_when_it_is_loaded(project, gramercy, walk, text, words):
    """Issue, Bad input: a .asd with an error; others are loaded as ever."""
    good = '(defsystem "good" :components ((:file "code")))'
    write(project, {"bad.asd": text, "a/good.asd": good, "a/code.lisp": "(defun cl-user::good () :good)"})
    done = gramercy("eval", "--language", "sbcl", "(+ 1 2)", cwd=project)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
    day = walk("sbcl", project)
    told = day.fail("load-system", system="bad")
    assert words in told
    assert "#<" not in told.partition("[Backtrace]")[0]
    assert "Loaded: good" in day.load("good")
    assert day.eval("(good)") == "=> :GOOD"


@needs_sbcl
@pytest.mark.usefixtures("home")
def test_a_cache_on_a_full_disk_is_told(project, gramercy, tmp_path):
    """Issue, Bad input: a cache directory that is full."""
    place = tmp_path / "cache/gramercy/fasl"
    place.mkdir()
    if os.system(f"mount -t tmpfs -o size=1m tmpfs '{place}' 2>/dev/null") != 0:
        pytest.skip("a disk cannot be mounted here")
    try:
        good = '(defsystem "good" :components ((:file "code")))'
        write(project, {"good.asd": good, "code.lisp": "(defun cl-user::good () :good)"})
        code = '(asdf:load-system "good") (good)'
        done = gramercy("eval", "--language", "sbcl", code, cwd=project)
        assert (done.returncode, ":GOOD\n" in done.stdout) == (0, True)
        words = "What is compiled is not kept for the next image: "
        assert len(lines_about(words, done.stdout + done.stderr)) == 1
    finally:
        os.system(f"umount -l '{place}'")


@pytest.mark.slow
@needs_sbcl
@pytest.mark.usefixtures("home")
def test_a_project_with_50000_files_is_one_as_any_other(project, gramercy, walk):
    """Issue, Bad input: by every door, and in both languages."""
    write(project, {"here.py": "x = 1\n", "here.asd": '(defsystem "here")'})
    fill(project, 50_000)
    done = gramercy("eval", "--language", "python", "import here; here.x", cwd=project)
    assert (done.returncode, done.stdout) == (0, "1\n")
    done = gramercy("eval", "--language", "sbcl", '(asdf:load-system "here") 3', cwd=project)
    # ASDF tells of itself first where the machine has a newer one to compile.
    assert (done.returncode, "3" in done.stdout.splitlines()) == (0, True)
    assert len(lines_about("has many files", done.stderr)) == 1
    day = walk("python", project)
    assert "Loaded: here" in day.load("here")
    assert gramercy("doctor", "--project", ".", cwd=project).returncode == 0
