"""Images are opened by language, start when used, and leave nothing behind however they end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gramercy.errors import ImageError, ImageStartError, SandboxError
from gramercy.images.caches import KEPT_SECONDS, cache_directory, find_core
from gramercy.images.connection import as_json
from gramercy.images.cpython import python_program
from gramercy.images.environment import Environment
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings, open_image
from gramercy.images.processes import Family, Program
from gramercy.images.sandbox import Confinement, why_not
from gramercy.images.sbcl import find_sbcl, sbcl_program, sbcl_version

SOURCE = Path(__file__).parents[2] / "src"
needs_sbcl = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
LANGUAGES = [pytest.param("sbcl", marks=needs_sbcl), "python"]
CONFINEMENTS = [
    pytest.param(c, marks=pytest.mark.skipif(why_not(c) is not None, reason=f"{why_not(c)}"))
    for c in Confinement
]
BUSY = {"sbcl": "(sb-sys:without-interrupts (loop))", "python": "while True: pass"}
PATIENCE = 60.0


def processes_of(directory):
    """Return the processes that have the directory of an image in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in line:
                found.append(line)
    return found


def processes_in(project):
    """Return the processes of the images of a project, which begin in its directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_there = (entry / "cwd").readlink() == project
        except OSError:
            continue
        if is_there:
            found.append((entry / "cmdline").read_bytes())
    return found


def wait_for(condition):
    """Wait until a condition holds, but not for ever."""
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        threading.Event().wait(0.02)


def left_after_a_while(found, what):
    """Return what is still found when what is about to end has ended."""
    wait_for(lambda: not found(what))
    return found(what)


@pytest.mark.parametrize("confinement", CONFINEMENTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_is_left_when_an_image_is_closed(tmp_path, language, confinement):
    """Images, Process model: no orphans."""
    image = LiveImage("test", ImageSettings(language, tmp_path, confinement).program)
    assert image.evaluate("1").ok
    assert image._lifecycle.family is not None
    directory = image._lifecycle.family.directory.path
    assert processes_in(tmp_path)
    image.close()
    assert left_after_a_while(processes_in, tmp_path) == []
    assert not directory.exists()


TIDY = """
from gramercy.images.processes import PrivateDirectory
PrivateDirectory().remove()
"""
KILLED = """
import sys, threading, time
from pathlib import Path
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement
image = LiveImage("test", ImageSettings(sys.argv[1], Path(sys.argv[2]), Confinement(sys.argv[3])).program)
image.evaluate("1")
threading.Thread(target=image.evaluate, args=(sys.argv[4],), daemon=True).start()
until = time.monotonic() + 60
while image._runner.wait is None and time.monotonic() < until:
    threading.Event().wait(0.001)
print(image._lifecycle.family.directory.path, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("confinement", CONFINEMENTS)
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.slow
def test_nothing_is_left_when_the_parent_is_killed_while_the_image_is_busy(tmp_path, language, confinement):
    """Images, Process model: a busy process does not notice that nobody is there any more."""
    command = [sys.executable, "-c", KILLED, language, str(tmp_path), confinement, BUSY[language]]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        directory = parent.stdout.readline().decode().strip()
        running = processes_in(tmp_path) if directory else []
        parent.kill()
        parent.stdin.close()
    assert running
    assert left_after_a_while(processes_in, tmp_path) == []
    # Nobody was left to remove it: the next image on the machine does.
    subprocess.run([sys.executable, "-c", TIDY], env=environment, check=True, timeout=60)
    assert not Path(directory).exists()


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_programs_that_evaluated_code_started_end_with_the_image(tmp_path, confinement):
    """Images, Process model: no orphans of orphans."""
    image = LiveImage("test", ImageSettings("python", tmp_path, confinement).program)
    seconds = f"{os.getpid()}.{time.monotonic_ns()}"
    assert image.evaluate(f"import subprocess; p = subprocess.Popen(['sleep', '{seconds}'])").ok
    # Its command line shows a moment after it has started.
    wait_for(lambda: processes_of(seconds))
    assert processes_of(seconds)
    image.close()
    assert left_after_a_while(processes_of, seconds) == []


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_programs_that_left_the_session_end_with_the_image_too(tmp_path, confinement):
    """Images, Process model: without a pid namespace the zygote adopts who tries to get away."""
    image = LiveImage("test", ImageSettings("python", tmp_path, confinement).program)
    seconds = f"{os.getpid()}.{time.monotonic_ns()}"
    started = "import subprocess; p = subprocess.Popen({}, start_new_session=True)"
    assert image.evaluate(started.format(["sh", "-c", f"sleep {seconds} & setsid sleep {seconds} &"])).ok
    wait_for(lambda: len(processes_of(seconds)) > 1)
    assert processes_of(seconds)
    image.close()
    assert left_after_a_while(processes_of, seconds) == []


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_a_program_that_does_not_start_is_told_with_its_last_words(confinement):
    """Images: useful start-up errors."""
    program = Program("odd", ["/bin/sh", "-c", "echo it is broken; exit 5"], as_json, confinement=confinement)
    with pytest.raises(ImageStartError, match=r"the odd image does not start: .*status 5\n.*it is broken"):
        Family(program)
    assert left_after_a_while(processes_of, "it is broken") == []


def test_a_command_that_is_not_there_is_told(tmp_path):
    """Images: useful start-up errors."""
    program = Program("odd", [str(tmp_path / "absent")], as_json, confinement=Confinement.NONE)
    with pytest.raises(ImageStartError, match=r"the odd image does not start(.|\n)*not found"):
        Family(program)


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_an_image_outlives_the_thread_that_started_it(tmp_path, confinement):
    """The kernel takes the thread that started a process for its parent."""
    image = LiveImage("test", ImageSettings("python", tmp_path, confinement).program)
    starter = threading.Thread(target=image.evaluate, args=("x = 42",))
    starter.start()
    starter.join()
    assert [image.evaluate("x").values for _ in range(5)] == [["42"]] * 5
    image.close()


def test_a_long_temporary_directory_does_not_hinder_the_socket(tmp_path, monkeypatch):
    """The path of a unix socket has room for 107 bytes."""
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    image = LiveImage("test", ImageSettings("python", tmp_path, Confinement.NONE).program)
    assert image.evaluate("1").ok
    image.close()
    assert list(long.iterdir()) == []


def test_an_image_starts_when_it_is_first_used(tmp_path):
    """Images: started lazily."""
    image = open_image("python", name="scratch", project=tmp_path, timeout=60)
    assert (image.name, image.timeout, image._lifecycle.family) == ("scratch", 60, None)
    assert image.evaluate("6 * 7").values == ["42"]
    image.close()


def test_without_a_language_sbcl_is_used_where_it_is(tmp_path, monkeypatch):
    """SBCL where it is, else Python."""
    (tmp_path / "sbcl").write_text("#!/bin/sh\n")
    (tmp_path / "sbcl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert open_image(project=tmp_path).name == "sbcl"
    (tmp_path / "sbcl").unlink()
    assert open_image(project=tmp_path).name == "python"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["pyproject.toml"], "python"),
        (["requirements.txt", "notes.lisp"], "python"),
        (["garden.py"], "python"),
        (["garden.py", "garden.lisp"], "sbcl"),
        (["garden.asd", "setup-notes.py"], "sbcl"),
        (["garden.asd"], "sbcl"),
        (["garden.asd", "pyproject.toml"], "sbcl"),
        ([], "sbcl"),
    ],
)
def test_without_a_language_that_of_the_project_is_taken(tmp_path, monkeypatch, files, expected):
    """Own program: from the first minute."""
    programs, project = tmp_path / "bin", tmp_path / "project"
    for directory in (programs, project):
        directory.mkdir()
    (programs / "sbcl").write_text("#!/bin/sh\n")
    (programs / "sbcl").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    for name in files:
        (project / name).touch()
    assert open_image(project=project).name == expected


def test_an_sbcl_image_without_sbcl_says_what_to_install(tmp_path, monkeypatch):
    """Images: useful start-up errors."""
    monkeypatch.setenv("PATH", str(tmp_path))
    reply = open_image("sbcl", project=tmp_path).evaluate("1")
    assert reply.error is not None
    assert "apt-get install sbcl" in reply.error.message


def test_an_unknown_language_gets_a_suggestion(tmp_path):
    """Errors say what to try."""
    with pytest.raises(ImageError, match="did you mean 'python'"):
        open_image("pyton", project=tmp_path)


def test_a_sandboxed_image_is_refused_the_home_directory_at_once():
    """Images, Sandbox: everything in the project is writable."""
    with pytest.raises(SandboxError):
        open_image("python", project="~")
    with pytest.raises(ImageError, match="is not a directory"):
        open_image("python", project="/nowhere", sandbox=False)


def test_packages_outside_the_project_can_be_granted(tmp_path):
    """The site-packages of the user's environment, if asked for."""
    packages, project = tmp_path / "packages", tmp_path / "project"
    packages.mkdir()
    project.mkdir()
    (packages / "present.py").write_text("answer = 42\n")
    image = open_image("python", project=project, environment=Environment(paths=(packages,)))
    assert image.evaluate("import present; present.answer").values == ["42"]
    assert image.evaluate(f"open({str(packages / 'present.py')!r}, 'w')").error is not None
    image.close()
    with pytest.raises(ImageStartError, match="there is no such directory"):
        python_program(project, Environment(paths=(tmp_path / "absent",)), confinement=Confinement.NONE)


def test_another_interpreter_can_be_chosen_and_a_wrong_one_is_told(tmp_path):
    """An image runs the Python of the user's environment."""
    base = getattr(sys, "_base_executable", sys.executable)
    image = LiveImage(
        "test", lambda: python_program(tmp_path, Environment(python=base), confinement=Confinement.NONE)
    )
    assert image.evaluate("1").ok
    image.close()
    with pytest.raises(ImageStartError, match="is not a Python that can be used"):
        python_program(tmp_path, Environment(python="/bin/false"), confinement=Confinement.NONE)


@needs_sbcl
@pytest.mark.slow
def test_two_processes_build_a_core_once(tmp_path):
    """Images, Process model: the core is built at first use."""
    code = (
        "from gramercy.images.caches import find_core; from gramercy.images.sbcl import *; "
        "s = find_sbcl(); print(find_core(s, sbcl_version(s)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "XDG_CACHE_HOME": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, env=environment)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=120) for process in both]
    assert told[0][0] == told[1][0] != b""
    assert sum(b"building the SBCL core" in noise for _, noise in told) == 1
    kept = sorted(path.suffix for path in (tmp_path / "gramercy").iterdir())
    assert kept == [".core", ".lock"]


@needs_sbcl
def test_cores_that_nobody_used_for_a_month_are_removed(tmp_path, monkeypatch):
    """The cache does not grow for ever."""
    sbcl = find_sbcl()
    core = find_core(sbcl, sbcl_version(sbcl))
    assert core is not None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_directory().mkdir()
    copied, recent, old = (cache_directory() / name for name in (core.name, "sbcl-1-a.core", "sbcl-1-b.core"))
    for path in (copied, recent, old):
        path.touch()
    long_ago = time.time() - KEPT_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    os.utime(copied, (long_ago, long_ago))
    assert find_core(sbcl, sbcl_version(sbcl)) == copied
    assert sorted(path.name for path in cache_directory().iterdir()) == sorted([copied.name, recent.name])
    assert time.time() - copied.stat().st_mtime < 60


@needs_sbcl
@pytest.mark.slow
def test_a_cache_that_cannot_be_written_means_starting_from_source(tmp_path, monkeypatch):
    """Images, Process model: fall back to loading source."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    program = sbcl_program(tmp_path, Environment(), confinement=Confinement.NONE)
    assert "--load" in program.command
    image = LiveImage("test", lambda: program)
    assert image.evaluate("(+ 40 2)").values == ["42"]
    image.close()


@needs_sbcl
def test_the_heap_of_an_image_can_be_chosen(tmp_path):
    """Memory: the limit of the process follows the heap."""
    program = sbcl_program(tmp_path, Environment(memory_mb=256), confinement=Confinement.NONE)
    assert program.grants.memory_mb == 256 + 1024
    image = LiveImage("test", lambda: program)
    assert image.evaluate("(ceiling (sb-ext:dynamic-space-size) (* 1024 1024))").values[0] == "256"
    image.close()


@needs_sbcl
@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_compiled_systems_go_to_the_home_of_the_image_not_of_the_build(tmp_path, confinement):
    """Images, Systems: ASDF compiles into the user's cache."""
    image = LiveImage("test", ImageSettings("sbcl", tmp_path, confinement).program)
    home = image.evaluate('(sb-posix:getenv "HOME")').values[0].strip('"')
    assert f'"{home}/.cache/common-lisp/' in image.evaluate("uiop:*user-cache*").values[0]
    image.close()


def test_a_core_dump_of_an_image_is_never_written(tmp_path):
    """A dump would land in the project."""
    image = LiveImage("test", ImageSettings("python", tmp_path, Confinement.NONE).program)
    assert image.evaluate("import resource; resource.getrlimit(resource.RLIMIT_CORE)").values == ["(0, 0)"]
    reply = image.evaluate(f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})")
    assert not reply.ok
    image.close()
    assert list(tmp_path.iterdir()) == []
