"""The listener hears of calls that are about to change files, and reads paths as their callers mean them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gramercy.images.confine.seccomp import NUMBERS
from gramercy.images.files.listener import CALLS, watching_filter
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement

WAIT = 60.0


@pytest.fixture(autouse=True)
def state_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "d").mkdir(parents=True)
    return folder


@pytest.fixture
def image(project):
    """Open an image without a sandbox: all calls are there."""
    settings = ImageSettings("python", project, Confinement.NONE)
    made = LiveImage("python", settings.program, language="python")
    yield made
    made.close()


def run(image, code):
    reply = image.evaluate(code, timeout=WAIT)
    assert reply.ok, reply.error
    return {(each.change, each.path) for each in reply.files}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_names_every_call_that_the_machine_has(machine):
    """files-in-time.md: arm64 has other numbers, and only the calls that take a directory."""
    made = watching_filter(machine)
    assert made is not None
    column = {"x86_64": 0, "aarch64": 1}[machine]
    wanted = {NUMBERS[name][column] for name in CALLS} - {None}
    compared = {code >> 32 for code in made[1][3:] if code & 0xFFFF == 0x15}
    assert wanted <= compared
    assert watching_filter("m68k") is None


@pytest.mark.parametrize(
    ("code", "path"),
    [
        ("os.close(os.open('x', os.O_WRONLY | os.O_CREAT, dir_fd=os.open('d', os.O_RDONLY)))", "d/x"),
        ("open('/proc/self/cwd/x', 'w').close()", "x"),
        ("open('d/../x', 'w').close()", "x"),
        ("os.chdir('d'); open('x', 'w').close()", "d/x"),
        ("os.chdir('d'); open('../x', 'w').close()", "x"),
        ("open('a b\\tc', 'w').close()", "a b\\u{9}c"),
        ("open(b'\\xff', 'w').close()", "\\u{dcff}"),
        ("open('x' * 250, 'w').close()", "x" * 250),
        ("os.mkfifo('pipe')", "pipe"),
        ("os.symlink('nowhere', 'x')", "x"),
        ("open('x', 'w').close(); os.link('x', 'y')", "y"),
        ("import ctypes; ctypes.CDLL(None).creat(b'x', 0o600)", "x"),
        ("threading.Thread(target=lambda: open('x', 'w').close()).run()", "x"),
        ("t = threading.Thread(target=lambda: open('x', 'w').close()); t.start(); t.join()", "x"),
        (
            "p = os.fork() or (open('x', 'w').close(), os._exit(0)); os.wait()",
            "x",
        ),
    ],
)
def test_a_path_is_read_as_its_caller_means_it(image, code, path):
    """files-in-time.md, pitfalls: directories, links, the caller's own /proc, names of any octets."""
    run(image, "import os, threading")
    assert ("created", path) in run(image, code)


def test_openat2_is_read_too(image):
    """Without a sandbox there are calls whose flags are in memory; to read is not told."""
    run(image, "import ctypes, os, struct; call = ctypes.CDLL(None).syscall")
    opening = "call(437, -100, b'{}', struct.pack('=QQQ', {}, {}, 0), 24)"
    assert run(image, opening.format("x", "os.O_WRONLY | os.O_CREAT", "0o600")) == {("created", "x")}
    assert run(image, opening.format("x", "os.O_RDONLY", "0")) == set()


def test_numpy_arrays_are_seen(image, project):
    """Libraries write by themselves."""
    if not image.evaluate("import numpy").ok:
        pytest.skip("the image has no numpy")
    assert run(image, "numpy.save('array.npy', numpy.arange(9))") == {("created", "array.npy")}
    image.undo()
    assert not (project / "array.npy").exists()


def test_nothing_is_left_when_an_image_closes(project):
    """One thread and its descriptors for each image, which end with it."""

    def descriptors():
        return len(list(Path("/proc/self/fd").iterdir()))

    def listeners():
        return sum(thread.name == "gramercy-files" for thread in threading.enumerate())

    # Images of other tests have theirs.
    others = listeners()

    def live_through():
        settings = ImageSettings("python", project, Confinement.NONE)
        image = LiveImage("python", settings.program, language="python")
        run(image, "open('x', 'w').close()")
        image.undo()
        assert listeners() == others + 1
        image.close()

    live_through()
    before = descriptors()
    for _ in range(5):
        live_through()
    assert listeners() == others
    assert descriptors() == before


def test_a_caller_that_is_killed_while_it_waits_ends_nothing(image, project):
    """The listener goes on after a caller has died, and after calls that fail."""
    code = "import subprocess; p = subprocess.Popen('while :; do echo > k; done', shell=True)"
    run(image, code)
    run(image, "p.kill(); p.wait()")
    run(image, "import os\ntry: os.rmdir('/proc/1')\nexcept OSError: pass")
    assert run(image, "open('after', 'w').close()") >= {("created", "after")}
    assert (project / "k").exists()


def test_evaluated_code_cannot_get_the_listener(image):
    """Its descriptor is sent to the keeper and closed before the first fork."""
    run(image, LINK)
    code = "import os; [n for n in os.listdir('/proc/self/fd') if 'seccomp' in link(n)]"
    assert image.evaluate(code).values == ["[]"]


LINK = """
def link(name):
    import os
    try:
        return os.readlink('/proc/self/fd/' + name)
    except OSError:
        return ''
"""
