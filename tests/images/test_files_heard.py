"""Every way to write a file of the project is heard and taken back, or the answers say that it is not."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gramercy.images.files import doubts
from gramercy.images.files.listener import Stop
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement, why_not
from tests.support import until

WAIT = 60.0
HELP = """
import array, ctypes, fcntl, mmap, os, socket, subprocess, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
top = os.getcwd()
def system(number, *words):
    given = [ctypes.c_long(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in words]
    if libc.syscall(ctypes.c_long(number), *given) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def put(path, text='new'):
    place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(place, text.encode())
    os.close(place)
def reading(path): return os.open(path, os.O_RDONLY)
def writing(path): return os.open(path, os.O_WRONLY)
def naming(path): return os.open(path, os.O_PATH)
def deeper(make):
    for n in range(25):
        if make: os.mkdir('y' * 200)
        os.chdir('y' * 200)
def rename2(old, new, flags):
    system(316 if os.uname().machine == 'x86_64' else 276, -100, old, -100, new, flags)
"""
# By magic links of /proc, in all spellings, straight and through a link of the file system.
MAGIC = {
    "cwd of itself": "put('/proc/self/cwd/t.txt')",
    "a link to cwd": "os.symlink('/proc/self/cwd', 'd/l'); put('d/l/t.txt')",
    "cwd of a thread": "put(f'/proc/self/task/{threading.get_native_id()}/cwd/t.txt')",
    "a link to cwd of a thread": (
        "os.symlink(f'/proc/self/task/{threading.get_native_id()}/cwd', 'd/l'); put('d/l/t.txt')"
    ),
    "thread-self": "os.symlink('/proc/thread-self/cwd', 'd/l'); put('d/l/t.txt')",
    "cwd by number": "put(f'/proc/{os.getpid()}/cwd/t.txt')",
    "root by number": "put(f'/proc/{os.getpid()}/root{top}/t.txt')",
    "a link to root": "os.symlink('/proc/self/root', 'd/l'); put(f'd/l{top}/t.txt')",
    "cwd of a child": (
        "p = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\n"
        "put(f'/proc/{p.pid}/cwd/t.txt'); p.communicate()"
    ),
    "a descriptor": "fd = reading('t.txt'); put(f'/proc/self/fd/{fd}'); os.close(fd)",
    "a link to a descriptor": (
        "fd = reading('t.txt'); os.symlink(f'/proc/self/fd/{fd}', 'd/l'); put('d/l'); os.close(fd)"
    ),
    "the device of descriptors": "fd = reading('t.txt'); put(f'/dev/fd/{fd}'); os.close(fd)",
    "through proc and back": ("fd = reading('t.txt'); put(f'/proc/../proc/./self//fd/{fd}'); os.close(fd)"),
    "a descriptor without rights": "fd = naming('t.txt'); put(f'/proc/self/fd/{fd}'); os.close(fd)",
    "the mode by a descriptor": "fd = naming('t.txt'); os.chmod(f'/proc/self/fd/{fd}', 0o600)",
    "the size by a descriptor": "fd = reading('t.txt'); os.truncate(f'/proc/self/fd/{fd}', 1)",
    "proc as the directory": (
        "fd = reading('t.txt'); os.chdir('/proc/self/fd'); put(str(fd)); os.chdir(top); os.close(fd)"
    ),
    "a chain of 39 links": (
        "os.symlink(f'{top}/t.txt', 'd/0')\nfor n in range(38): os.symlink(f'{n}', f'd/{n + 1}')\nput('d/38')"
    ),
}
# By other names of the same file.
LINKED = {
    "made and written": "os.link('t.txt', 'h'); put('h')",
    "made, written and removed": "os.link('t.txt', 'h'); put('h'); os.unlink('h')",
    "made, written and put elsewhere": "os.link('t.txt', 'h'); put('h'); os.rename('h', 'd/h')",
    "there before": "put('one')",
    "there before, the written one removed": "put('one'); os.unlink('one')",
    "the mode of one": "os.chmod('one', 0o600)",
    "appended": "os.link('t.txt', 'h'); subprocess.run('echo more >> h', shell=True, check=True)",
}
# Names that change places, descriptors, and the rest.
OTHER = {
    "exchanged files": "rename2(b't.txt', b'b.txt', 2)",
    "exchanged and written": "rename2(b't.txt', b'b.txt', 2); put('t.txt', 'third')",
    "exchanged directories": "rename2(b'd', b'e', 2)",
    "a file without a name gets one": (
        "fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.write(fd, b'new')\n"
        "system(265 if os.uname().machine == 'x86_64' else 37, fd, b'', -100, b'made', 0x1000); os.close(fd)"
    ),
    "a descriptor through a socket": (
        "a, b = socket.socketpair(); fd = writing('t.txt'); socket.send_fds(a, [b'x'], [fd])\n"
        "os.close(fd); fd = socket.recv_fds(b, 1, 1)[1][0]; os.write(fd, b'new'); os.close(fd)"
    ),
    "a mapping": (
        "f = open('t.txt', 'r+b'); m = mmap.mmap(f.fileno(), 3); m[:] = b'new'; m.close(); f.close()"
    ),
    "space": "fd = writing('t.txt'); os.posix_fallocate(fd, 0, 99); os.close(fd)",
    "copied inside the kernel": ("a = reading('b.txt'); b = writing('t.txt'); os.sendfile(b, a, 0, 9)"),
    "a name that is not text": "put(b'\\xff\\xfe')",
    "deleted and written": "fd = reading('t.txt'); os.unlink('t.txt'); put(f'/proc/self/fd/{fd}')",
}
# In two calls: what the first one leaves, and what the second one writes.
LATER = {
    "a link of before": ("os.link('t.txt', 'h')", "put('h')"),
    "a descriptor": ("g = writing('t.txt')", "os.write(g, b'new')"),
    "copied into a descriptor": (
        "g = writing('t.txt')",
        "a = reading('b.txt'); os.copy_file_range(a, g, 3)",
    ),
    "a mapping": ("f = open('t.txt', 'r+b'); m = mmap.mmap(f.fileno(), 3); f.close()", "m[:] = b'new'"),
    "a descriptor without rights": (
        "g = naming('t.txt')",
        "put(f'/proc/self/fd/{g}')",
    ),
}
# What cannot be taken back, and is told.
TOLD = {
    "of a child": (
        """r, w = os.pipe(); g = writing('t.txt'); child = os.fork()
if not child:
    os.read(r, 1); os.write(g, b'new'); os._exit(0)
os.close(g)""",
        "os.write(w, b'x'); os.waitpid(child, 0)",
        "in the background",
    ),
    "in a socket": (
        "a, b = socket.socketpair(); g = writing('t.txt'); socket.send_fds(a, [b'x'], [g]); os.close(g)",
        "g = socket.recv_fds(b, 1, 1)[1][0]; os.write(g, b'new')",
        "without being heard of",
    ),
    "under a name that is gone": (
        "os.link('t.txt', 'h'); g = writing('h'); os.unlink('h')",
        "os.write(g, b'new')",
        "without being heard of",
    ),
    "by a name that is gone": (
        "pass",
        "os.link('t.txt', 'h'); fd = reading('h'); os.unlink('h'); put(f'/proc/self/fd/{fd}')",
        "",
    ),
}
# The path is another one when the kernel reads it: some time after the call, another thread changes it.
SWAPPED = """
decoy = b'd/decoy'.ljust(40, b'\\0')
path, started = ctypes.create_string_buffer(decoy, 40), []
def swap(name, delay):
    started.append(1)
    end = time.perf_counter() + delay
    while time.perf_counter() < end: pass
    ctypes.memmove(path, name, 40)
for number in range(200):
    name = f'e/{number}'.encode().ljust(40, b'\\0')
    ctypes.memmove(path, decoy, 40)
    started.clear()
    thread = threading.Thread(target=swap, args=(name, number % 100 * 3e-6))
    thread.start()
    while not started: pass
    fd = libc.open(path, os.O_WRONLY, 0o644)
    thread.join()
    if fd >= 0:
        os.write(fd, b'new')
        os.close(fd)
"""


@dataclass
class World:
    """A small project and an image that works in it."""

    image: LiveImage
    project: object

    def run(self, code):
        reply = self.image.evaluate(code, timeout=WAIT)
        assert reply.ok, reply.error
        return reply


@pytest.fixture(params=[Confinement.BUBBLEWRAP, Confinement.LANDLOCK], ids=["bubblewrap", "landlock"])
def confinement(request):
    if (why := why_not(request.param)) is not None:
        pytest.skip(f"{request.param} is not there: {why}")
    return request.param


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    for name in ("d", "e"):
        (folder / name).mkdir(parents=True)
        (folder / name / "in").write_text(name)
    (folder / "t.txt").write_text("old")
    (folder / "b.txt").write_text("other")
    (folder / "one").write_text("linked")
    (folder / "d" / "two").hardlink_to(folder / "one")
    return folder


def opened(project, confinement=Confinement.BUBBLEWRAP):
    image = LiveImage("python", ImageSettings("python", project, confinement).program, language="python")
    world = World(image, project)
    world.run(HELP)
    return world


@pytest.fixture
def world(project, confinement):
    made = opened(project, confinement)
    yield made
    made.image.close()


@pytest.fixture
def boxed(project):
    if (why := why_not(Confinement.BUBBLEWRAP)) is not None:
        pytest.skip(f"bubblewrap is not there: {why}")
    made = opened(project)
    yield made
    made.image.close()


def look(project):
    """Return mode and content, or target, of each path."""
    found = {}
    for place in sorted(project.rglob("*")):
        status = place.lstat()
        name = os.fsencode(place.relative_to(project))
        if name.split(b"/")[0].startswith(b".") or name == b"commondir":
            continue
        if stat.S_ISLNK(status.st_mode):
            found[name] = place.readlink()
        elif stat.S_ISREG(status.st_mode):
            found[name] = (stat.S_IMODE(status.st_mode), place.read_bytes())
        else:
            found[name] = stat.S_IMODE(status.st_mode)
    return found


def comes_back(world, code):
    """Evaluate, see that something changed and that undo brings all of it back; None where it is refused."""
    # What has a name is not dropped for room.
    world.image.checkpoint("before")
    before = look(world.project)
    reply = world.image.evaluate(code, timeout=WAIT)
    if reply.error is not None and look(world.project) == before:
        assert reply.error.type == "PermissionError", reply.error
        return None
    assert look(world.project) != before, reply.error
    assert reply.files
    assert reply.unknown_files == ""
    told = world.image.undo()
    assert look(world.project) == before, (reply.files, told.files)
    return told


@pytest.mark.contract("trust.heard.magic")
def test_a_write_through_proc_is_heard_and_taken_back(world):
    """A magic link leads where only the process itself knows: it is followed for that process."""
    for name, code in MAGIC.items():
        told = comes_back(world, code)
        assert told is None or any(each.path == "t.txt" for each in told.files), name


@pytest.mark.contract("trust.heard.links")
def test_a_write_by_another_name_brings_all_names_back(world):
    """A package manager makes hard links: what is written by one name is written by all."""
    for name, code in LINKED.items():
        told = comes_back(world, code)
        assert told is None or not any("not known" in each.reason for each in told.files), name


@pytest.mark.contract("trust.heard.links")
def test_a_name_outside_of_the_project_is_told_as_not_known(boxed, tmp_path):
    """The other name cannot be found, so the reply says that there is one."""
    (tmp_path / "outside").hardlink_to(boxed.project / "t.txt")
    reply = boxed.run("put('t.txt')")
    assert [(each.path, each.note) for each in reply.files] == [
        ("t.txt", "it has other names (hard links) that are not known")
    ]
    told = boxed.image.undo().files
    assert [(each.path, each.outcome) for each in told] == [("t.txt", "back")]
    assert "other names" in told[0].reason
    assert (tmp_path / "outside").read_text() == "new"


@pytest.mark.contract("trust.heard.exchange")
def test_names_that_change_places_and_descriptors_come_back(world):
    """Exchanged names are the call's own doing, and no other program is blamed for them."""
    for code in OTHER.values():
        told = comes_back(world, code)
        assert not any("another program" in each.reason for each in told.files)


@pytest.mark.contract("trust.heard.later")
def test_what_an_earlier_call_left_open_is_heard_later(boxed):
    """A descriptor or mapping needs no system call that is stopped."""
    for first, second in LATER.values():
        boxed.run(first)
        comes_back(boxed, second)


@pytest.mark.contract("trust.heard.swapped")
@pytest.mark.parametrize(
    "held", ["log = open('b.txt', 'a')", "f = open('b.txt', 'r+b'); m = mmap.mmap(f.fileno(), 3)"]
)
def test_what_a_person_saves_between_two_calls_is_not_said_to_be_saved_during_one(boxed, held):
    """Also where the image has another file open for writing, such as a log."""
    boxed.run(held)
    for text in ("mine", "mine again"):
        (boxed.project / "t.txt").write_text(text)
        reply = boxed.run("put('t.txt')")
        assert [(each.path, each.change, each.note) for each in reply.files] == [("t.txt", "changed", "")]
        assert [(each.path, each.outcome) for each in boxed.image.undo().files] == [("t.txt", "back")]
        assert (boxed.project / "t.txt").read_text() == text


@pytest.mark.contract("trust.heard.later")
@pytest.mark.parametrize("way", TOLD)
def test_a_descriptor_that_wandered_off_is_told(boxed, way):
    """With a child, in a socket, or of a name that is gone: told, left alone, never silent."""
    first, second, words = TOLD[way]
    boxed.run(first)
    reply = boxed.run(second)
    assert (boxed.project / "t.txt").read_text() == "new"
    assert [(each.path, each.change) for each in reply.files if each.path != "h"] == [("t.txt", "changed")]
    assert words in reply.files[-1].note
    outcomes = {each.path: each for each in boxed.image.undo().files}
    if outcomes["t.txt"].outcome == "left alone":
        assert outcomes["t.txt"].reason
    else:
        assert (boxed.project / "t.txt").read_text() == "old"


@pytest.mark.contract("trust.heard.swapped")
def test_a_path_that_is_swapped_in_memory_is_noticed_afterwards(boxed):
    """The path that was heard is not the one that the kernel opens: a look afterwards tells of the file."""
    (boxed.project / "d" / "decoy").write_text("old")
    for number in range(200):
        (boxed.project / "e" / str(number)).write_text("old")
    reply = boxed.run(SWAPPED)
    changed = {os.fsdecode(name) for name, what in look(boxed.project).items() if what == (0o644, b"new")}
    told = {each.path for each in reply.files}
    assert changed <= told
    outcomes = {each.path: each.outcome for each in boxed.image.undo().files}
    for name in changed:
        content = (boxed.project / name).read_text()
        assert (outcomes[name], content) in (("back", "old"), ("left alone", "new"))


TWO_THREADS = """
import sys, threading
second = threading.Thread(target=sys.stdin.readline)
second.start()
print(flush=True)
second.join()
print(flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def other():
    """Return a process with a second thread, which ends with a line to it."""
    words = [sys.executable, "-c", TWO_THREADS]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@pytest.mark.contract("trust.heard.swapped")
def test_a_thread_that_ends_right_after_the_path_was_read_is_a_doubt(other):
    """It may have changed the path between the look of the listener and that of the kernel."""
    doubting = doubts.Doubts(threads=1)
    doubting.expect(other.pid, None)
    other.stdin.write(b"\n")
    other.stdin.flush()
    other.stdout.readline()
    until(lambda: Path(f"/proc/{other.pid}/task").stat().st_nlink == 3)
    doubting.hear(Stop(other.pid, "open", ("d/decoy",), opens=True))
    assert doubting
    assert doubting.take()
    doubting.expect(other.pid, None)
    doubting.hear(Stop(other.pid, "open", ("d/decoy",), opens=True))
    assert not doubting


@pytest.mark.contract("trust.heard.swapped")
def test_a_process_that_moves_names_and_ends_right_after_the_path_was_read_is_a_doubt(other):
    """Its last rename may be under way while the path is followed."""
    doubting = doubts.Doubts(threads=1000)
    doubting.hear(Stop(other.pid, "rename", ("x", "y")))
    assert not doubting
    doubting.expect(os.getpid(), None)
    other.kill()
    other.wait(WAIT)
    doubting.hear(Stop(os.getpid(), "open", ("d/in",), opens=True))
    assert doubting
    assert doubting.take()
    doubting.expect(os.getpid(), None)
    doubting.hear(Stop(os.getpid(), "open", ("d/in",), opens=True))
    assert not doubting


@pytest.mark.contract("trust.heard.swapped")
def test_links_that_are_swapped_by_another_thread_are_noticed(boxed):
    """The links on the way are exchanged between our look and the kernel's."""
    boxed.run("os.symlink('d', 'x'); os.symlink('e', 'y'); put('d/in'); put('e/in')")
    reply = boxed.run(
        "stop = []\n"
        "def swap():\n"
        "    while not stop: rename2(b'x', b'y', 2)\n"
        "thread = threading.Thread(target=swap); thread.start()\n"
        "for number in range(300):\n"
        "    fd = os.open('x/in', os.O_WRONLY); os.write(fd, b'swapped'); os.close(fd)\n"
        "stop.append(1); thread.join()"
    )
    changed = {name for name in ("d/in", "e/in") if (boxed.project / name).read_text() == "swapped"}
    assert changed <= {each.path for each in reply.files}
    assert not any("saved it during the call" in each.note for each in reply.files)


@pytest.mark.contract("trust.heard.long")
def test_a_path_too_long_to_be_read_is_named_afterwards(boxed):
    """Reached by steps of a directory: no path of it fits into a system call."""
    boxed.run("deeper(True); put('deep.txt', 'old'); os.chdir(top)")
    reply = boxed.run("deeper(False); put('deep.txt'); os.chdir(top)")
    told = [each for each in reply.files if each.path.endswith("deep.txt")]
    assert len(told) == 1
    assert "without being heard of" in told[0].note
    undone = boxed.image.undo().files
    assert [each.outcome for each in undone if each.path.endswith("deep.txt")] == ["left alone"]


@pytest.mark.contract("trust.heard.unknown")
def test_where_the_look_afterwards_cannot_see_all_it_is_said(boxed, monkeypatch):
    """A sentence, a fact in the data, and the same at the undo; never a miss without a word."""
    monkeypatch.setattr(doubts, "MOST_FILES", 3)
    boxed.run("deeper(True)")
    reply = boxed.run("put('deep.txt')\nos.chdir(top)")
    assert reply.unknown_files
    assert f"Not all files that changed are known: {reply.unknown_files}." in reply.notes
    told = boxed.image.undo()
    assert told.unknown_files == reply.unknown_files
    assert f"Not all files that changed are known: {reply.unknown_files}." in told.notes


@pytest.mark.contract("trust.heard.unknown")
def test_where_the_look_afterwards_finds_nothing_nothing_is_said(boxed):
    """Many threads that write outside of the project raise no alarm."""
    reply = boxed.run(
        "def write(n): put(f'/tmp/{n}')\n"
        "threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()"
    )
    assert (reply.files, reply.notes, reply.unknown_files) == ([], [], "")


@pytest.mark.contract("trust.heard.unknown")
def test_threads_that_write_are_named_and_taken_back(boxed):
    """A program with threads is no reason to leave its files."""
    comes_back(
        boxed,
        "def write(n): put(f'made-{n}'); put('t.txt', str(n)); os.rename(f'made-{n}', f'd/{n}')\n"
        "threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()",
    )


@pytest.mark.contract("trust.heard.unknown")
def test_what_an_undo_writes_itself_is_not_told_as_a_change(boxed):
    """A server with threads opens its database all the time; that its file went back is known."""
    server = (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "for _ in range(30_000):\n"
        "    open('t.txt', 'r+').close()\n"
        "    open('/tmp/serving', 'w').close()\n"
        "    time.sleep(0.001)\n"
    )
    assert [each.path for each in boxed.run("put('t.txt', 'new')").files] == ["t.txt"]
    boxed.run(
        f"import subprocess, sys, time; server = subprocess.Popen([sys.executable, '-c', {server!r}]).pid\n"
        "while not os.path.exists('/tmp/serving'): time.sleep(0.001)"
    )
    number = boxed.run("server").values[0]
    boxed.image.undo()
    boxed.image.undo()
    assert boxed.run("1").files == []
    assert (boxed.project / "t.txt").read_text() != "new"
    assert boxed.run(f"import signal; os.kill({number}, signal.SIGKILL)").ok


@pytest.mark.contract("trust.heard.socket")
def test_a_socket_with_a_path_is_told(boxed):
    """It is a name in the project as any other."""
    reply = boxed.run("s = socket.socket(socket.AF_UNIX); s.bind('sock'); s.close()")
    assert [(each.change, each.path) for each in reply.files] == [("created", "sock")]


@pytest.mark.contract("trust.heard.stranded")
@pytest.mark.parametrize(
    "code",
    [
        "os.rename('t.txt', 'moved'); os.mkfifo('t.txt')",
        "os.rename('t.txt', 'moved'); put('t.txt', 'x' * (6 << 20))",
        "rename2(b't.txt', b'moved', 4)",
    ],
    ids=["a pipe", "a large file", "a whiteout"],
)
def test_an_undo_never_removes_the_last_copy_of_a_content(boxed, code):
    """The file was moved and something that is not kept has its name: the moved one stays."""
    boxed.run(code)
    outcomes = {each.path: each.outcome for each in boxed.image.undo().files}
    assert outcomes == {"moved": "left alone", "t.txt": "left alone"}
    assert (boxed.project / "moved").read_text() == "old"


@pytest.mark.contract("trust.heard.free")
def test_what_changes_the_meaning_of_paths_is_told_without_a_sandbox(project):
    """A sandbox refuses namespaces; without one every later answer says what it does not know."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed: apt-get install util-linux")
    world = opened(project, Confinement.NONE)
    try:
        (project / "node_modules").mkdir()
        before = world.run("1")
        assert before.unknown_files == ""
        reply = world.run("subprocess.run(['unshare', '-Um', 'true'], capture_output=True)")
        assert "what paths mean" in reply.unknown_files
        assert "what paths mean" in world.run("put('t.txt')").unknown_files
    finally:
        world.image.close()


@pytest.mark.contract("trust.heard.interrupted")
def test_ctrl_c_in_an_undo_comes_after_it(boxed):
    """A program of its own: the interrupt is raised, and the files are all back by then."""
    boxed.run("for n in range(1500): open(f'made-{n:04}', 'w').close()")
    last = boxed.project / "made-1499"

    def press():
        deadline = time.monotonic() + WAIT
        # They go from the last to the first.
        while last.exists() and time.monotonic() < deadline:
            continue
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()

    def undo():
        boxed.image.undo()
        # The interrupt may come a moment after the undo.
        thread.join()

    with pytest.raises(KeyboardInterrupt):
        undo()
    assert not list(boxed.project.glob("made-*"))
    assert boxed.run("1").files == []


@pytest.mark.contract("trust.heard.pipe")
@pytest.mark.parametrize(
    ("language", "codes"),
    [
        ("python", ("open('pipe').read()", "import os; os.read(os.open(b'pipe', os.O_RDONLY), 9)")),
        (
            "sbcl",
            (
                '(with-open-file (s "pipe") (read-line s))',
                '(sb-posix:open "pipe" sb-posix:o-rdonly)',
            ),
        ),
    ],
)
def test_a_preview_does_not_empty_a_pipe(project, language, codes):
    """What is read from a pipe is gone for the program that it is for: refused, and told."""
    if language == "sbcl" and shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed: apt-get install sbcl")
    os.mkfifo(project / "pipe")
    end = os.open(project / "pipe", os.O_RDWR | os.O_NONBLOCK)
    os.write(end, b"for you\n")
    image = LiveImage("it", ImageSettings(language, project).program, language=language)
    try:
        for code in codes:
            reply = image.preview(code)
            assert not reply.ok
            assert [(each.kind, each.outcome) for each in reply.effects] == [("read", "refused")]
            assert reply.effects[0].target.endswith("pipe")
        assert os.read(end, 100) == b"for you\n"
    finally:
        os.close(end)
        image.close()


@pytest.mark.contract("trust.heard.fork")
def test_a_signal_does_not_break_a_fork(boxed):
    """A fork is counted before it happens; a handler that runs meanwhile does not end it with an error."""
    reply = boxed.run(
        """
import signal
signal.signal(signal.SIGALRM, lambda *_: None)
broken = 0
for _ in range(100):
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
    try:
        child = os.fork()
        if not child:
            os._exit(0)
    except InterruptedError:
        broken += 1
        continue
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    os.waitpid(child, 0)
broken
"""
    )
    assert reply.values == ["0"]
