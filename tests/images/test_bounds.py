"""What the processes of an image may use together, and what becomes of those that evaluated code leaves."""

import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import pytest

from gramercy.images import bounds, kin
from gramercy.images.environment import Environment
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings, open_image
from gramercy.images.sandbox import Confinement, Grants, why_not
from gramercy.images.spawning import Spawned
from gramercy.images.thrift import Thrift

WAIT = 60.0
PROC = Path("/proc")
SLEEPER = ["sleep", "1000"]
START = {
    "python": "import subprocess; background = subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "sbcl": '(defvar *background* (sb-ext:run-program "/bin/sleep" (list "1000") :wait nil :input nil))',
}
# Every child allocates and waits for good, so that only a bound ends them.
HOGS = {
    "python": """
import os, time
for _ in range(6):
    if os.fork() == 0:
        held = bytearray(os.urandom(1 << 20)) * 60
        time.sleep(1000)
time.sleep(1000)
""",
    "sbcl": """
(dotimes (number 6)
  (when (zerop (sb-posix:fork))
    (defvar *held* (make-array (* 60 1024 1024) :element-type '(unsigned-byte 8) :initial-element 1))
    (sleep 1000)))
(sleep 1000)
""",
}
BOMB = {
    "python": """
import os, time
for _ in range(400):
    if os.fork() == 0:
        time.sleep(1000)
time.sleep(1000)
""",
    "sbcl": "(progn (dotimes (number 400) (when (zerop (sb-posix:fork)) (sleep 1000))) (sleep 1000))",
}


def sleepers(image):
    """Return the processes below an image that run `sleep`."""
    zygote = image.processes()["zygote"]
    return [process for process in kin.descendants(zygote) if b"sleep" in command(process)]


def command(process):
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:  # noqa: PTH123 - as below /proc
            return file.read()
    except OSError:
        return b""


def wait_until(holds, seconds=WAIT):
    deadline = monotonic() + seconds
    while not holds():
        assert monotonic() < deadline
        sleep(0.01)


@pytest.mark.contract("trust.bounds.reset")
def test_a_reset_ends_what_evaluated_code_left_running_and_says_so(image):
    image.evaluate(START[image.language])
    assert len(sleepers(image)) == 1
    told = image.reset()
    assert told == [
        "1 process that evaluated code had started was still running and is ended: " + named(image)
    ]
    wait_until(lambda: not sleepers(image))


def named(image):
    return "/bin/sleep 1000." if image.language == "sbcl" else "sleep 1000."


def test_a_reset_without_any_says_nothing(image):
    image.evaluate("1")
    assert image.reset() == []


def test_a_reset_does_not_take_copies_that_are_kept_for_processes_of_the_users(image):
    """The copy of an error that has not said hello yet, and those dropped that have not ended yet."""
    failing = {"python": "1 / 0", "sbcl": "(car 1)"}[image.language]
    for errors in (1, 2, 1, 3, 1, 6, 1, 1):
        for _ in range(errors):
            assert not image.evaluate(failing).ok
        assert image.reset() == []


def test_a_copy_that_code_forked_is_told_as_one(image):
    code = {
        "python": "import os, time\nif os.fork() == 0:\n    time.sleep(1000)",
        "sbcl": "(when (zerop (sb-posix:fork)) (sleep 1000))",
    }
    assert image.evaluate(code[image.language]).ok
    assert "a copy that it forked" in image.reset()[0]


@pytest.mark.contract("trust.bounds.memory")
@pytest.mark.parametrize("language", ["python", "sbcl"])
def test_all_processes_together_have_a_bound_of_memory(language, tmp_path):
    """Each stays far below its own limit; together they do not."""
    image = open_image(language, project=tmp_path, environment=Environment(memory_mb=128))
    try:
        image.evaluate("1")
        limit = image.program().grants.memory_mb
        # SBCL's has a gigabyte more beside its heap, which would make the test a heavy one.
        family = image._lifecycle.family
        assert limit is not None
        assert family is not None
        family.program = with_memory(image.program(), 128)
        reply = image.evaluate(HOGS[language], timeout=60)
        assert reply.error is not None, reply
        assert reply.error.type == "IMAGE-DIED", reply
        assert "MB together, and 256 MB are allowed" in reply.error.message
        assert image.evaluate("1").ok
    finally:
        image.close()


def with_memory(program, memory_mb):
    from msgspec.structs import replace

    return replace(program, grants=replace(program.grants, memory_mb=memory_mb))


@pytest.mark.contract("trust.bounds.processes")
@pytest.mark.parametrize("language", ["python", "sbcl"])
def test_a_fork_bomb_ends_at_a_bound_and_the_state_before_is_back(language, tmp_path):
    image = open_image(language, project=tmp_path)
    try:
        image.evaluate("x = 41" if language == "python" else "(defvar *x* 41)")
        reply = image.evaluate(BOMB[language], timeout=60)
        assert reply.error is not None, reply
        assert reply.error.type == "IMAGE-DIED", reply
        assert "processes, and 256 are allowed" in reply.error.message
        assert image.evaluate("x" if language == "python" else "*x*").values == ["41"]
        zygote = image.processes()["zygote"]
        wait_until(lambda: len(kin.descendants(zygote)) < 10)
    finally:
        image.close()


@pytest.mark.slow
@pytest.mark.contract("trust.bounds.kept")
def test_kept_states_together_have_a_bound_of_memory(tmp_path):
    """An array that is written anew in each call makes every kept state as big as itself."""
    image = open_image("python", project=tmp_path, environment=Environment(memory_mb=512))
    image._lifecycle.thrift = Thrift(heavy_bytes=64 << 20, part=1e9)
    try:
        image.evaluate("held = bytearray(200 << 20)")
        notes = []
        for number in range(1, 9):
            notes += image.evaluate(f"for place in range(0, len(held), 4096): held[place] = {number}").notes
        notes += image.evaluate("held[0]").notes
        dropped = [note for note in notes if "Kept states may use 1024 MB together: c" in note]
        assert dropped, notes
        kept = image.checkpoints()
        used = sum(kin.shared_out_bytes(pid) for pid in image._lifecycle.usage.kept_pids())
        # The bound, and what differs between two looks.
        assert used < 1100 << 20
        assert kept[-1].is_current
        image.undo()
        assert image.evaluate("held[0]").values == ["7"]
    finally:
        image.close()


def test_the_kernel_bounds_the_number_of_tasks_where_it_counts_them(image):
    """For root outside of the sandbox it counts none: there the watch is all."""
    image.evaluate("1")
    limit = resource.prlimit(image.processes()["live"], resource.RLIMIT_NPROC)
    assert limit == (bounds.MOST_TASKS, bounds.MOST_TASKS)


def test_the_watch_ends_with_the_last_image(tmp_path):
    image = open_image("python", project=tmp_path)
    image.evaluate("1")
    assert any(thread.name == "gramercy-bounds" for thread in threading.enumerate())
    image.close()
    looks = bounds.watch._looks
    wait_until(lambda: all(look.watched is not image._lifecycle.usage for look in looks))


SLIPPING = {
    "python": "import subprocess; subprocess.Popen(['setsid', 'sh', '-c', 'sleep 100; :', '{}'])",
    "sbcl": '(progn (sb-ext:run-program "/usr/bin/setsid" (list "/bin/sh" "-c" "sleep 100; :" "{}")'
    " :wait nil) 1)",
}


@pytest.mark.parametrize("language", ["python", "sbcl"])
@pytest.mark.parametrize("confinement", [Confinement.BUBBLEWRAP, Confinement.LANDLOCK])
def test_what_forks_and_ends_at_once_does_not_outlive_the_image(language, confinement, tmp_path):
    """It is gone when its turn comes to be killed, and its child is not in the list yet."""
    if why_not(confinement) is not None:
        pytest.skip(f"no {confinement} here: {why_not(confinement)}")
    for number in range(6):
        mark = f"slipping-{os.getpid()}-{number}"
        image = LiveImage(language, ImageSettings(language, tmp_path, confinement).program, language=language)
        try:
            assert image.evaluate(SLIPPING[language].format(mark)).ok
        finally:
            image.close()
        wait_until(partial(is_gone, mark.encode() + b"\0"))


def is_gone(ending):
    return not any(command(int(path.name)).endswith(ending) for path in PROC.glob("[0-9]*"))


def test_a_process_that_ends_while_all_are_listed_is_left_out(monkeypatch):
    """Reading its file fails with ESRCH or ENOENT; closing an image died of that."""
    ended = subprocess.Popen(["true"])
    open_file = os.open(f"/proc/{ended.pid}/stat", os.O_RDONLY)
    ended.wait(60)
    try:
        real = os.open
        monkeypatch.setattr(kin, "numbers", lambda: [ended.pid, os.getpid()])
        assert list(kin.living()) == [os.getpid()]
        stat_of_ended = f"/proc/{ended.pid}/stat"
        monkeypatch.setattr(
            os, "open", lambda path, *a: os.dup(open_file) if path == stat_of_ended else real(path, *a)
        )
        assert list(kin.living()) == [os.getpid()]
    finally:
        os.close(open_file)


def test_only_descendants_are_ended():
    """A process that is not below the one given is never touched, whatever its number."""
    other = subprocess.Popen(SLEEPER)
    middle = subprocess.Popen([sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '1000'])"])
    try:
        wait_until(lambda: any(command(each).startswith(b"sleep") for each in kin.descendants(middle.pid)))
        assert kin.end_processes(middle.pid, set()) == ["sleep 1000"]
        assert middle.wait(WAIT) == 0
        assert other.poll() is None
        assert kin.end_processes(other.pid, set()) == []
    finally:
        for each in (other, middle):
            each.kill()
            each.wait(WAIT)


def test_what_is_spared_stays():
    middle = subprocess.Popen([sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '1000'])"])
    try:
        wait_until(lambda: kin.descendants(middle.pid))
        (below,) = kin.descendants(middle.pid)
        assert kin.end_processes(middle.pid, {below}) == []
        os.kill(below, 0)
    finally:
        kin.end_processes(middle.pid, set())
        middle.wait(WAIT)


def test_what_is_made_after_the_look_is_ended_too(monkeypatch):
    """A child whose parent had leave to fork; all that were seen may be dead before the next look."""
    sleeping = "import subprocess; first, second = (subprocess.Popen(['sleep', '1000']) for _ in 'ab')"
    middle = subprocess.Popen([sys.executable, "-c", f"{sleeping}; first.wait(); second.wait()"])
    below, send = kin.descendants, signal.pidfd_send_signal

    def seen_late(above):
        found = below(above)
        return found[:1] if kin._runs(first) else found

    def send_and_wait(handle, number):
        send(handle, number)
        assert select.select([handle], [], [], WAIT)[0]

    try:
        wait_until(lambda: len(below(middle.pid)) == 2)
        first, second = below(middle.pid)
        wait_until(lambda: all(command(each).startswith(b"sleep") for each in (first, second)))
        monkeypatch.setattr(kin, "descendants", seen_late)
        monkeypatch.setattr(signal, "pidfd_send_signal", send_and_wait)
        assert kin.end_processes(middle.pid, set()) == ["sleep 1000", "sleep 1000"]
        assert middle.wait(WAIT) == 0
    finally:
        monkeypatch.undo()
        kin.end_processes(middle.pid, set())
        middle.wait(WAIT)


def test_a_first_process_that_takes_long_to_end_is_reaped_when_it_has(tmp_path, monkeypatch):
    """A busy machine takes seconds to end one with gigabytes; it would stay a zombie, and be warned of."""
    with (tmp_path / "log").open("wb") as log:
        spawned = Spawned(SLEEPER, Confinement.NONE, Grants(), log.fileno())
    process = spawned._process
    assert process is not None
    monkeypatch.setattr(process, "kill", lambda: None)  # it has no effect yet
    spawned.end(0.0)
    assert spawned.status() is None
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: process.returncode == -signal.SIGKILL)
    assert spawned.status() == -signal.SIGKILL


def test_a_process_whose_first_thread_has_ended_is_ended_too():
    """It looks like one that has ended, and its other threads go on."""
    code = "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\n"
    code += "ctypes.CDLL(None).pthread_exit(None)"
    starting = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    middle = subprocess.Popen([sys.executable, "-c", starting])
    try:
        wait_until(lambda: [state(each) for each in kin.descendants(middle.pid)] == ["Z"])
        assert kin.end_processes(middle.pid, set()) == ["a process without a name"]
        assert middle.wait(WAIT) == 0
    finally:
        for each in kin.descendants(middle.pid):
            os.kill(each, signal.SIGKILL)
        middle.kill()
        middle.wait(WAIT)


def state(process):
    return (PROC / str(process) / "stat").read_text().rpartition(") ")[2][0]


class Asked:
    """What is known of an image whose zygote is 1, with one kept state."""

    bounds = bounds.Bounds()
    kept_bytes = 0

    def written(self):
        return None

    def prefer(self, running, kept):
        raise AssertionError(running, kept)

    def is_settled(self):
        return True

    def zygote_pid(self):
        return 1

    def kept_pids(self):
        return {2}

    def exceeded(self, reason):
        raise AssertionError(reason)

    def give_up_all(self):
        raise AssertionError


def test_the_keeper_may_fork_while_the_others_are_ended(monkeypatch):
    """A fork that is not allowed is never answered: a state that is being restored would hang."""
    forks = bounds.Forks(Asked())
    monkeypatch.setattr(bounds, "descendants", lambda _above: [2, 3])
    assert forks(3)
    monkeypatch.setattr(bounds.watch, "is_ending", lambda _watched: True)
    denied: list[object] = []
    monkeypatch.setattr(bounds.watch, "denied", denied.append)
    assert forks(1)
    assert forks(2)
    assert not forks(3)
    # To ask for one more look, when the others are ended, would end what is restored meanwhile.
    assert denied == []


BOMBS = {
    "python": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
    "sbcl": "(loop (ignore-errors (sb-posix:fork)))",
}


@pytest.mark.contract("trust.bounds.bomb")
@pytest.mark.parametrize("language", ["python", "sbcl"])
def test_processes_that_fork_without_end_are_held_at_once(language, tmp_path):
    """Every child forks too: a watch alone would come too late, and take the machine down with it."""
    image = open_image(language, project=tmp_path)
    try:
        image.evaluate("x = 41" if language == "python" else "(defvar *x* 41)")
        family = image._lifecycle.family
        if family is None or family.listener is None or not family.listener.is_alive():
            pytest.skip("nothing is asked before a fork here: no seccomp listener")
        reply = image.evaluate(BOMBS[language], timeout=60)
        assert reply.error is not None, reply
        # Who is asked before each fork tells first, or who counts; both have held it at about the limit.
        told = re.search(r"it (wanted more|had (\d+)) processes, and 256 are allowed", reply.error.message)
        assert told is not None, reply.error.message
        # A fork that was allowed a moment ago is not counted yet: on a busy machine some more come about.
        assert int(told[2] or 0) < 2 * 256
        after = image.evaluate("x" if language == "python" else "*x*")
        assert after.values == ["41"], (after, reply)
        zygote = image.processes()["zygote"]
        # Hundreds of processes with the memory of a core each end one after another.
        wait_until(lambda: len(kin.descendants(zygote)) < 10, 3 * WAIT)
    finally:
        image.close()


@pytest.mark.contract("trust.bounds.memory")
def test_memory_that_is_shared_counts_too(tmp_path):
    """The limit of a process counts private memory only."""
    image = open_image("python", project=tmp_path, environment=Environment(memory_mb=128))
    try:
        assert image.evaluate("1").ok
        code = "import mmap\nheld = [mmap.mmap(-1, 1 << 24) for _ in range(40)]"
        code += "\nfor each in held: each.write(bytes(1 << 24))"
        reply = image.evaluate(f"{code}\nimport time; time.sleep(30)", timeout=60)
        assert reply.error is not None
        assert "MB together, and 256 MB are allowed" in reply.error.message
    finally:
        image.close()
