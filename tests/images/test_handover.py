"""Nothing to connect to, nothing to steal: processes are met on ends of sockets that the keeper made itself.

The attacks are evaluated in images of the test, with what evaluated code can find: its command line and its
own descriptors. The server that they are aimed at is this process.
"""

import ctypes
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gramercy.errors import ImageGoneError, ImageProtocolError
from gramercy.images import handover
from gramercy.images.handover import MOST_AWAITED, Ends, read_hello
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.present import MEETING_SECONDS
from gramercy.images.sandbox import Confinement, why_not
from gramercy.images.wire import LARGEST_HELLO

HELLO = b'{"hello":1,"role":"checkpoint","language":"python","version":"3"}'
PATIENCE = 60.0
needs_sbcl = pytest.mark.skipif(shutil.which("sbcl") is None, reason="sbcl is not installed")

# Says hello on all that may lead to the keeper: sockets that the command line names, with the word that looks
# like a token, and the sockets that the process holds. `victim` is whose handle it shows.
ATTACK = """
import json, os, socket, stat
words = open('/proc/self/cmdline').read().split(chr(0))
def said(tag, more=''):
    body = json.dumps({{'hello': 1, 'role': 'checkpoint', 'language': 'python', 'version': '3', 'pid': 1,
                       'tag': tag, 'notes': [more],
                       'token': next((w for w in words if len(w) == 32 and w.isalnum()), '')}}).encode()
    return len(body).to_bytes(4, 'big') + body
def lines():
    for word in words:
        if os.path.exists(word) and stat.S_ISSOCK(os.stat(word).st_mode):
            for _ in range({turns}):
                plug = socket.socket(socket.AF_UNIX)
                plug.connect(word)
                yield plug
    for name in os.listdir('/proc/self/fd'):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                plug = socket.socket(fileno=os.dup(int(name)))
                for _ in range({turns}):
                    yield plug
        except OSError:
            pass
kept = []
if {copied} and __import__('ctypes').CDLL(None).fork() == 0:
    # A copy that no hook has seen: it holds the same sockets, and has time.
    for plug in lines():
        if os.fork() == 0:
            plug.settimeout(10)
            try: plug.sendall(said('forged', 'x' * {size}))
            finally: os._exit(0)
    os._exit(0)
for number, plug in enumerate(lines()):
    kept.append(plug)
    plug.settimeout({patience})
    try:
        handle = os.pidfd_open({victim} or os.getpid())
        socket.send_fds(plug, [said(f'forged{{number}}', 'x' * {size})], [handle] * {handles})
        os.close(handle)
    except OSError:
        pass
"""


def attack(*, turns=1, size=0, handles=1, victim=0, copied=False):
    return ATTACK.format(turns=turns, size=size, handles=handles, victim=victim, copied=copied, patience=0.05)


@pytest.fixture
def images(tmp_path):
    """Make images of any language and confinement, and end them all."""
    made = []

    def make(language="python", confinement=Confinement.BUBBLEWRAP):
        reason = why_not(confinement)
        if reason is not None:
            pytest.skip(reason)
        made.append(
            LiveImage("test", ImageSettings(language, tmp_path, confinement).program, timeout=PATIENCE)
        )
        return made[-1]

    yield make
    for image in made:
        image.close()


@pytest.fixture
def bystander():
    """Start a process that is none of the image's."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


@pytest.fixture
def pair():
    """Return an end as the keeper waits at it, and the other one."""
    ends = Ends()
    tag = ends.new()
    yield ends._awaited[tag], ends.fresh[tag]
    ends.close()


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def steady_descriptors(wanted):
    """Return how many descriptors this process has, once they are as few as wanted or time is up."""
    deadline = time.monotonic() + PATIENCE
    while descriptors() > wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return descriptors()


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sockets_in(directory):
    return [path for path in directory.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]


# --- nothing to find


@pytest.mark.contract("trust.handover.no-secret")
@pytest.mark.parametrize("confinement", [Confinement.BUBBLEWRAP, Confinement.LANDLOCK, Confinement.NONE])
def test_the_command_line_holds_no_secret_and_no_socket(images, confinement):
    image = images("python", confinement)
    (said,) = image.evaluate("open('/proc/self/cmdline').read()").values
    assert "--connection" in said
    assert not re.search(r"[0-9a-f]{16}", said)
    family = image._lifecycle.family
    assert family is not None
    assert str(family.directory.path) not in said
    assert sockets_in(family.directory.path) == []


@pytest.mark.contract("trust.handover.no-secret")
@needs_sbcl
def test_the_arguments_of_lisp_hold_no_secret_and_no_socket(images):
    image = images("sbcl")
    (said,) = image.evaluate("sb-ext:*posix-argv*").values
    assert "--connection" in said
    assert not re.search(r"[0-9a-f]{32}|/s\"", said.partition("--end-runtime-options")[2])
    assert sockets_in(image._lifecycle.family.directory.path) == []


# --- too many descriptors on their way

# The kernel counts those of all processes of a user; an image with its 1,024 cannot add to so many. Code of
# other tests that sends a descriptor would fail meanwhile, hence the marks.
CROWD = 2048
# nanosleep and clock_nanosleep, on x86-64 and arm64.
SLEEPING = {"35", "230", "101", "115"}
EVERYWHERE = [
    pytest.param(language, confinement, marks=[needs_sbcl] if language == "sbcl" else [])
    for language in ("python", "sbcl")
    for confinement in (Confinement.BUBBLEWRAP, Confinement.LANDLOCK)
]


@pytest.fixture
def crowd():
    """Give a function that puts descriptors on their way, and returns what takes them back."""
    if os.geteuid() != 0:
        pytest.skip("for root alone the kernel sets no limit")
    made: list[socket.socket] = []

    def leave():
        while made:
            made.pop().close()

    def come():
        for _ in range(CROWD // 128):
            pair = socket.socketpair()
            made.extend(pair)
            socket.send_fds(pair[0], [b"x"], [0] * 128)
        return leave

    yield come
    leave()


@pytest.mark.undisturbed
@pytest.mark.parametrize(("language", "confinement"), EVERYWHERE)
def test_a_copy_says_hello_while_too_many_descriptors_are_on_their_way(images, crowd, language, confinement):
    """A preview ended before its hello while an image of another process sent descriptors without end."""
    if not kernel_names_senders():
        pytest.skip("this kernel tells nothing by itself, so that the copy waits")
    image = images(language, confinement)
    assert image.evaluate("1").ok
    before = len(image.checkpoints())
    crowd()
    define = {"python": "x = 7", "sbcl": "(defvar *x* 7)"}[language]
    assert image.preview(define).ok
    assert image.evaluate(define).ok
    assert len(image.checkpoints()) == before + 1


@pytest.mark.undisturbed
@pytest.mark.parametrize(("language", "confinement"), EVERYWHERE)
def test_an_image_starts_once_fewer_descriptors_are_on_their_way(images, crowd, language, confinement):
    """The listener for changes of files has to be sent: without it nothing in the image could fork."""
    image = images(language, confinement)
    leave = crowd()
    replies = []
    thread = threading.Thread(target=lambda: replies.append(image.evaluate("1")))
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while thread.is_alive() and not waits_for_room(image) and time.monotonic() < deadline:
        time.sleep(0.002)
    leave()
    thread.join(PATIENCE)
    assert image._lifecycle.family.listener is not None
    assert replies[0].notes == []


def waits_for_room(image):
    """Tell whether the first process of an image sleeps, as it does only until it may send."""
    family = image._lifecycle.family
    if family is None:
        return False
    with suppress(OSError):
        return Path(f"/proc/{family.zygote.pid}/syscall").read_text().split()[0] in SLEEPING
    return False


def kernel_names_senders():
    ours, theirs = socket.socketpair()
    with ours, theirs, suppress(OSError):
        ours.setsockopt(socket.SOL_SOCKET, handover.SO_PASSPIDFD, 1)
        return True
    return False


# --- forged hellos


@pytest.mark.contract("trust.handover.descriptors")
@pytest.mark.parametrize("handles", [1, 2])
@pytest.mark.slow
def test_hellos_of_evaluated_code_cost_no_descriptor(images, handles):
    image = images()
    assert image.evaluate("1").ok
    before = descriptors()
    for _ in range(3):
        image.evaluate(attack(turns=50, handles=handles))
    # It may cost the image its state, never the server.
    image.reset()
    assert image.evaluate("6 * 7").values == ["42"]
    assert steady_descriptors(before) <= before


@pytest.mark.contract("trust.handover.memory")
@pytest.mark.slow
def test_hellos_of_sixty_megabytes_cost_no_memory(images):
    image = images()
    assert image.evaluate("1").ok
    before = resident()
    for _ in range(4):
        image.evaluate(attack(size=60_000_000, copied=True))
        image.evaluate("x = 1")
        image.checkpoints()
    assert resident() - before < 40_000_000
    image.reset()
    assert image.evaluate("6 * 7").values == ["42"]


@pytest.mark.contract("trust.handover.pidfd")
@pytest.mark.parametrize("attached", [True, False], ids=["attached", "sent"])
@pytest.mark.parametrize("confinement", [Confinement.LANDLOCK, Confinement.NONE])
def test_a_forged_checkpoint_never_names_a_process_of_the_host(
    images, bystander, confinement, attached, monkeypatch
):
    """Without a pid namespace code can open a handle of any process of the user."""
    if not attached:
        monkeypatch.setattr(handover, "SO_PASSPIDFD", 12345)
    image = images("python", confinement)
    image.evaluate("x = 1")
    for number in range(3):
        image.evaluate(attack(victim=bystander.pid))
        image.evaluate(f"x = {number}")
    pids = set(image.processes().values())
    assert bystander.pid not in pids
    with suppress(Exception):
        image.undo()
    image.reset()
    image.close()
    assert bystander.poll() is None


def say(plug, *handles, frame=None):
    frame = len(HELLO).to_bytes(4, "big") + HELLO if frame is None else frame
    socket.send_fds(plug, [frame], list(handles))


@pytest.mark.contract("trust.handover.pidfd")
@pytest.mark.parametrize("attached", [True, False], ids=["attached", "sent"])
def test_a_hello_gives_the_handle_of_who_said_it(pair, attached, monkeypatch):
    if not attached:
        pair[0].setsockopt(socket.SOL_SOCKET, handover.SO_PASSPIDFD, 0)
        monkeypatch.setattr(handover, "SO_PASSPIDFD", 12345)
    before = descriptors()
    handle = os.pidfd_open(os.getpid())
    say(pair[1], handle)
    os.close(handle)
    arrival = read_hello(pair[0])
    assert (arrival.pid, arrival.inner_pid, arrival.frame) == (os.getpid(), os.getpid(), HELLO)
    assert descriptors() == before + 1
    signal.pidfd_send_signal(arrival.handle, 0)
    os.close(arrival.handle)


def without_kernel(pair):
    """Let no pidfd be attached, as before Linux 6.5."""
    pair[0].setsockopt(socket.SOL_SOCKET, handover.SO_PASSPIDFD, 0)


@pytest.mark.contract("trust.handover.pidfd")
def test_the_handle_of_another_process_is_refused(pair, bystander):
    without_kernel(pair)
    handle = os.pidfd_open(bystander.pid)
    say(pair[1], handle)
    os.close(handle)
    before = descriptors()
    with pytest.raises(ImageProtocolError, match="handle of another"):
        read_hello(pair[0])
    assert descriptors() == before


@pytest.mark.contract("trust.paths.bad-input")
def test_that_there_is_no_proc_is_told_as_such(pair, monkeypatch, tmp_path):
    """Some containers have no /proc; then no process has sent a wrong handle."""
    monkeypatch.setattr(handover, "PROC", str(tmp_path / "gone"))
    monkeypatch.setattr(handover, "_pids", lambda _: (0, 0))
    handle = os.pidfd_open(os.getpid())
    say(pair[1], handle)
    os.close(handle)
    before = descriptors()
    with pytest.raises(ImageProtocolError, match="/proc is not mounted here"):
        read_hello(pair[0])
    assert descriptors() == before


@pytest.mark.contract("trust.handover.pidfd")
@pytest.mark.parametrize("count", [0, 2, 3, 8], ids="{}-descriptors".format)
def test_another_number_of_descriptors_is_refused(pair, count):
    without_kernel(pair)
    handle = os.pidfd_open(os.getpid())
    say(pair[1], *[handle] * count)
    before = descriptors()
    with pytest.raises(ImageProtocolError):
        read_hello(pair[0])
    assert descriptors() == before
    os.close(handle)


@pytest.mark.contract("trust.handover.pidfd")
def test_what_is_no_handle_of_a_process_is_refused(pair, tmp_path):
    without_kernel(pair)
    with (tmp_path / "Pid:").open("w+") as file:
        file.write(f"Pid:\t{os.getpid()}\nNSpid:\t{os.getpid()}\n")
        say(pair[1], file.fileno())
    with pytest.raises(ImageProtocolError, match="handle of another"):
        read_hello(pair[0])


@pytest.mark.contract("trust.handover.memory")
@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0",
        b"\0\0\0\5hell",
        b"\0\0\0\5hello!",
        (LARGEST_HELLO + 1).to_bytes(4, "big") + b"x" * (LARGEST_HELLO + 1),
        b"\x03\xff\xff\xff" + b"x" * 100_000,
    ],
    ids=["nothing", "half", "short", "long", "large", "huge"],
)
def test_what_is_no_hello_is_refused(pair, frame):
    before = descriptors()
    if frame:
        say(pair[1], frame=frame)
    else:
        pair[1].shutdown(socket.SHUT_RDWR)
    with pytest.raises((ImageProtocolError, ImageGoneError)):
        read_hello(pair[0])
    assert descriptors() == before


@pytest.mark.contract("trust.handover.descriptors")
def test_the_ends_that_are_waited_at_are_bounded():
    ends = Ends()
    before = descriptors()
    tags = [ends.new() for _ in range(3 * MOST_AWAITED)]
    assert descriptors() - before <= 2 * MOST_AWAITED
    assert tags[-1] in ends
    assert tags[0] not in ends
    ends.close()
    assert descriptors() == before


# --- ends that are used, used again, lost


@pytest.mark.contract("trust.handover.ends")
def test_a_look_takes_no_end_along_and_a_change_takes_one(images, words, monkeypatch):
    image = images(words.language)
    image.evaluate(words.define)
    image.evaluate(words.look)
    made = []
    new = Ends.new

    def counted(ends):
        made.append(new(ends))
        return made[-1]

    monkeypatch.setattr(Ends, "new", counted)
    for _ in range(5):
        assert image.evaluate(words.look).ok
    assert len(made) == 0
    for number in range(5):
        assert image.evaluate(words.change.format(number)).ok
    assert len(made) in (4, 5)


@pytest.mark.contract("trust.handover.ends")
def test_errors_and_refusals_leave_no_descriptor_behind(images):
    image = images()
    count = "len(__import__('os').listdir('/proc/self/fd'))"
    image.evaluate("x = 1")
    (inside,) = image.evaluate(count).values
    outside = descriptors()
    for number in range(20):
        image.evaluate("1 / 0")
        image.evaluate("((")
        image.evaluate(f"x = {number}")
    assert int(image.evaluate(count).values[0]) <= int(inside) + 1
    # Of the errors the last are kept, and of the states; each has a socket and a handle.
    image.reset()
    image.evaluate("x = 1")
    assert steady_descriptors(outside) <= outside


@pytest.mark.contract("trust.handover.ends")
@pytest.mark.parametrize("language", ["python", pytest.param("sbcl", marks=needs_sbcl)])
def test_code_that_closes_every_descriptor_dies_at_once(images, language):
    close = {
        "python": "__import__('os').closerange(3, 1 << 20)",
        "sbcl": "(loop for fd from 3 below 70000 do (ignore-errors (sb-posix:close fd)))",
    }[language]
    image = images(language)
    image.evaluate("x = 1" if language == "python" else "(defvar *x* 1)")
    began = time.monotonic()
    reply = image.evaluate(close)
    assert time.monotonic() - began < PATIENCE / 2
    assert reply.error is not None
    assert reply.error.type == "IMAGE-DIED"
    assert image.evaluate("x" if language == "python" else "*x*").values == ["1"]


@pytest.mark.contract("trust.handover.ends")
def test_code_that_closes_the_ends_alone_is_told_so(images):
    image = images()
    image.evaluate("x = 1")
    reply = image.evaluate(
        "import os, sys\n"
        "frame = sys._getframe()\n"
        "while not hasattr(frame.f_locals.get('self'), '_ends'): frame = frame.f_back\n"
        "for fd, _ in list(frame.f_locals['self']._ends._ends.values()): os.close(fd)\n"
        "x = 2"
    )
    assert reply.ok
    assert reply.unkept is not None
    assert "descriptor for its copy is gone" in reply.unkept
    reply = image.evaluate("x = 3")
    assert reply.unkept is None
    assert image.evaluate("1 / 0").error.moment is not None
    assert image.undo().taken_back == 1


@pytest.mark.contract("trust.handover.fork-fails")
def test_a_fork_that_fails_is_seen_at_once(images):
    """An audit hook of the user's refuses the fork after the reply has promised a state."""
    image = images()
    image.evaluate("x = 1")
    refuse = "if event == 'os.fork' and armed: raise OSError('no')"
    image.evaluate(f"import sys\narmed = []\ndef hook(event, _):\n    {refuse}\nsys.addaudithook(hook)")
    image.checkpoints()
    began = time.monotonic()
    image.evaluate("armed.append(1)")
    image.checkpoints()
    # Whatever the machine takes: a wait for the state would have taken as long as this.
    assert time.monotonic() - began < MEETING_SECONDS
    reply = image.evaluate("armed.clear()")
    assert any("No state was kept" in note for note in reply.notes)


def test_a_state_whose_copy_is_slow_outlives_the_process_it_is_a_copy_of(images):
    """The copy has not said hello when its process ends: on a loaded machine, or in a hook of the user."""
    image = images()
    wait = "time.sleep(1)"
    image.evaluate(f"import os, time\nos.register_at_fork(after_in_child=lambda: {wait})")
    image.checkpoints()
    image.evaluate("x = 41")
    reply = image.evaluate("os._exit(3)")
    assert reply.error is not None
    assert reply.error.type == "IMAGE-DIED"
    assert image.evaluate("x").values == ["41"]


@pytest.mark.contract("trust.handover.end-of-process")
def test_the_end_of_a_process_is_seen_where_another_holds_its_socket(images):
    image = images()
    image.evaluate("x = 1")
    began = time.monotonic()
    # A fork behind the back of Python: no hook closes the socket in the copy.
    reply = image.evaluate(
        "import ctypes, os\nlibc = ctypes.CDLL(None)\nif libc.fork() == 0:\n    libc.sleep(1000)\nos._exit(3)"
    )
    assert time.monotonic() - began < PATIENCE / 2
    assert reply.error is not None
    assert reply.error.type == "IMAGE-DIED"
    assert "3" in reply.error.message
    assert image.evaluate("x").values == ["1"]


@pytest.mark.contract("trust.handover.ends")
@pytest.mark.parametrize("language", ["python", pytest.param("sbcl", marks=needs_sbcl)])
def test_a_child_that_code_forks_has_no_way_to_the_keeper(images, language, tmp_path):
    """Its descriptors are counted by itself: none of them is a socket."""
    code = {
        "python": "import os\n"
        "if os.fork() == 0:\n"
        "    links = [f'/proc/self/fd/{n}' for n in os.listdir('/proc/self/fd')]\n"
        "    told = ' '.join(os.readlink(link) for link in links if os.path.lexists(link))\n"
        "    open('found', 'w').write(f'found {told}')\n"
        "    os._exit(0)\n"
        "os.wait()",
        "sbcl": "(let ((process (sb-posix:fork)))"
        ' (when (zerop process) (with-open-file (s "found" :direction :output)'
        " (dotimes (fd 2000) (let ((link (ignore-errors (sb-posix:readlink"
        ' (format nil "/proc/self/fd/~d" fd))))) (when link (format s "~a " link)))))'
        " (sb-ext:exit :code 0 :abort t)) (sb-posix:waitpid process 0))",
    }[language]
    image = images(language)
    assert image.evaluate(code).error is None
    found = (tmp_path / "found").read_text()
    assert "found" in found
    assert "socket:" not in found


@pytest.mark.contract("trust.handover.old-kernels")
def test_an_image_works_where_the_kernel_attaches_no_handle(images, words, monkeypatch):
    monkeypatch.setattr(handover, "SO_PASSPIDFD", 12345)
    image = images(words.language)
    image.evaluate(words.define)
    image.evaluate(words.change.format(7))
    assert image.undo().taken_back == 1
    assert image.evaluate(words.look).values == ["41"]
    assert image.preview(words.change.format(9)).ok
    assert image.evaluate(words.fail).error.moment is not None
    assert image.ask_moment("frames").ok
    image.reset()
    assert image.evaluate(words.six).values == ["6"]


@pytest.mark.contract("trust.handover.pidfd")
def test_credentials_that_root_may_forge_name_no_process_of_the_host(images, bystander):
    """Where nothing is confined, root can send the pid of another process in its own place."""
    if os.geteuid() != 0:
        pytest.skip("only root may forge credentials")
    image = images("python", Confinement.NONE)
    image.evaluate("x = 1")
    image.evaluate(
        "import os, socket, stat, struct\n"
        f"pid, body = {bystander.pid}, {HELLO!r}\n"
        "for name in os.listdir('/proc/self/fd'):\n"
        "    try:\n"
        "        if not stat.S_ISSOCK(os.fstat(int(name)).st_mode): continue\n"
        "        plug = socket.socket(fileno=os.dup(int(name)))\n"
        "        handle = os.pidfd_open(pid)\n"
        "        plug.sendmsg([len(body).to_bytes(4, 'big') + body],\n"
        "            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', handle)),\n"
        "             (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack('3i', pid, 0, 0))])\n"
        "    except OSError: pass"
    )
    image.evaluate("x = 2")
    assert bystander.pid not in image.processes().values()
    with suppress(Exception):
        image.undo()
    image.close()
    assert bystander.poll() is None


def test_this_process_may_be_told_from_others():
    """The attacks open handles of processes: that has to work here for the tests to mean anything."""
    assert ctypes.CDLL(None).getpid() == os.getpid()
    os.close(os.pidfd_open(os.getppid()))
