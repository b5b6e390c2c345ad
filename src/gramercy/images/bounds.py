"""Bound what the processes of an image use together: memory, and how many there are.

Limits of the kernel count each process by itself, and for root they do not bound the number of processes at
all. So one thread looks at the processes of every image, more often the nearer they come to a bound. Memory
grows by gigabytes a second: a watch notices late, and the limit of each process stands behind it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import threading
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Protocol

import msgspec

from gramercy.images.sandbox import Confinement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gramercy.images.present import Present
    from gramercy.images.processes import Family

PAGE = os.sysconf("SC_PAGE_SIZE")
# More than any library starts by itself on a big machine; a fork bomb passes it within a tenth of a second.
MOST_PROCESSES = 256
# Processes and threads, as the kernel counts them: more than a program needs, and few enough to kill.
MOST_TASKS = 4096
# All processes together, in parts of what each may use: evaluated code and some helpers of its own.
TIMES_MEMORY = 2
# Seconds between two looks: with nothing under way, usually, and close to a bound.
IDLE, USUAL, QUICKEST = 2.0, 0.1, 0.005
# Bytes a second by which memory can grow; how soon the next look is due follows from it.
GROWTH = 8 << 30
# The part of the time that may be spent on exact looks: the kernel takes 30 µs a megabyte.
PART = 0.05
# Each turn kills all that run; only a fork bomb that is faster makes new ones in so many of them.
MOST_TURNS = 10
# Until all that were killed have ended: on a busy machine hundreds of them take seconds.
END_SECONDS, END_TURN_SECONDS = 10.0, 0.02
# Where the number of threads stands in /proc/PID/stat, behind the name.
THREADS = 17
# Looks in a row after which a bomb has won, and all is ended.
MOST_TIMES = 5
# Names of processes are written by evaluated code: a few short ones are told.
MOST_TOLD = 5
LONGEST_NAME = 60


class Bounds(msgspec.Struct, frozen=True):
    """What all processes that evaluated code runs may use together."""

    memory_bytes: int | None = None
    processes: int = MOST_PROCESSES


class Watched(Protocol):
    """What the watch needs to know of an image; asked without any lock."""

    @property
    def bounds(self) -> Bounds:
        """What its processes may use."""

    def zygote_pid(self) -> int | None:
        """Return the process that is above all that evaluated code starts; None when it has ended."""

    def kept_pids(self) -> set[int]:
        """Return the processes that evaluate nothing: those of ours, and the kept states."""

    def exceeded(self, reason: str) -> None:
        """Take note that the others are being killed, and why."""

    def give_up_all(self) -> None:
        """End all processes of the image at once: they come faster than they are killed."""


def limit_tasks(process: int) -> None:
    """Let the kernel bound how many tasks a process and those below it make: at once, other than the watch.

    It counts them in the user namespace of the sandbox, never those of root outside. Without a namespace it
    would count all processes of the user, so this is for a namespaced image only.
    """
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(process, resource.RLIMIT_NPROC, (MOST_TASKS, MOST_TASKS))


def descendants(above: int) -> list[int]:
    """Return the processes below one, those that evaluated code has started included."""
    found = [above]
    for process in found:
        # A child belongs to the thread that forked it.
        for task in _entries(f"/proc/{process}/task"):
            found += map(int, _read(f"/proc/{process}/task/{task}/children").split())
    return found[1:]


def _entries(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - in the loop of a look, where paths cost more
    except OSError:
        return []


def _read(path: str, most: int = 1 << 16) -> bytes:
    """Return the beginning of a file below /proc; nothing where the process has ended."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, most)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def resident_bytes(process: int) -> int:
    """Return the memory that a process has in use, what it shares with others included."""
    fields = _read(f"/proc/{process}/statm").split()
    return int(fields[1]) * PAGE if fields else 0


def shared_out_bytes(process: int) -> int:
    """Return the memory in use with what is shared divided among its users (PSS); slow."""
    for line in _read(f"/proc/{process}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) << 10
    return resident_bytes(process)


def end_processes(above: int, spared: set[int]) -> list[str]:
    """Kill the processes below one but for those that are spared; return names of those that ran.

    Looks again until it sees none: a child may be made between the look and the death of its parent, and its
    own next fork is not answered while the others are ended, so that it would wait for good.
    """
    names: dict[int, str] = {}
    own = _command_line(above)
    turns, until = 0, monotonic() + END_SECONDS
    while turns < MOST_TURNS and monotonic() < until:
        running = [each for each in descendants(above) if each not in spared and _runs(each)]
        if not running:
            break
        has_new = any(process not in names for process in running)
        turns += has_new
        # What makes new ones is not waited for.
        _end_all(above, running, names, own, 0.0 if has_new else END_TURN_SECONDS)
    return list(names.values())


def _end_all(above: int, running: list[int], names: dict[int, str], own: bytes, seconds: float) -> None:
    """Kill processes, add the names of those that are new, and wait so long for them to end.

    By pidfd, opened before the look that shows that it still is below `above`: numbers are used again.
    """
    handles = {process: handle for process in running if (handle := _handle(process)) is not None}
    ours = set(descendants(above))
    killed = []
    for process, handle in handles.items():
        if process in ours and _runs(process):
            names.setdefault(process, _name(process, own))
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                killed.append(handle)
    _wait_for_all(killed, seconds)
    for handle in handles.values():
        os.close(handle)


def _wait_for_all(handles: list[int], seconds: float) -> None:
    """Wait until these processes have ended, for so long at most."""
    until = monotonic() + seconds
    for handle in handles:
        one = select.poll()
        one.register(handle, select.POLLIN)
        one.poll(1000 * max(0.0, until - monotonic()))


def _handle(process: int) -> int | None:
    try:
        return os.pidfd_open(process)
    except OSError:
        return None


def _runs(process: int) -> bool:
    """Tell whether a process has not ended; one that nobody has waited for yet has.

    One whose first thread has ended looks the same while other threads of it go on.
    """
    fields = _read(f"/proc/{process}/stat").rpartition(b") ")[2].split()
    return bool(fields) and (fields[0] not in (b"Z", b"X") or int(fields[THREADS]) > 1)


def _command_line(process: int) -> bytes:
    return _read(f"/proc/{process}/cmdline", 4 * LONGEST_NAME)


def _name(process: int, own: bytes) -> str:
    """Return the command of a process, where that is another one than the image's own."""
    line = _command_line(process)
    if line == own:
        return "a copy that it forked"
    words = line.replace(b"\0", b" ").decode("utf-8", "replace").strip()
    shown = "".join(letter if letter.isprintable() else "?" for letter in words)
    return shown[:LONGEST_NAME] or "a process without a name"


def told(names: list[str]) -> str:
    """Say which processes were ended; nothing where none was."""
    if not names:
        return ""
    count = len(names)
    listed = ", ".join(names[:MOST_TOLD]) + (", …" if count > MOST_TOLD else "")
    which = (
        "1 process that evaluated code had started was"
        if count == 1
        else (f"{count} processes that evaluated code had started were")
    )
    return f"{which} still running and {'is' if count == 1 else 'are'} ended: {listed}."


class Forks:
    """Says, at each fork and before it happens, whether there may be one more process."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        # How many more are allowed without counting again: what ends meanwhile only makes room.
        self._left = 0

    def __call__(self, pid: int) -> bool:
        """Tell whether a process may make another one; if not, all that evaluate are ended."""
        is_ending = watch.is_ending(self._watched)
        if self._left > 0 and not is_ending:
            self._left -= 1
            return True
        kept = self._watched.kept_pids()
        zygote = self._watched.zygote_pid()
        if zygote is None or pid == zygote or pid in kept:
            # They fork only when the keeper asks them to.
            return True
        if is_ending:
            # It is ended with the others, or was: one more look would end what is restored by then.
            self._left = 0
            return False
        self._left = self._watched.bounds.processes - len(set(descendants(zygote)) - kept)
        if self._left <= 0:
            watch.denied(self._watched)
            self._left = 0
            return False
        self._left -= 1
        return True


class _Look:
    """How one image has fared, and when it is looked at next."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.due = monotonic() + USUAL
        self._ticks = -1
        self._times = 0
        self.is_denied = False
        # Cleared while what evaluates is being killed.
        self.is_over = threading.Event()
        self.is_over.set()
        self._rests_until = 0.0

    def now(self) -> bool:
        """Look once, and act on what is seen; return False when the image has ended."""
        zygote = self.watched.zygote_pid()
        if zygote is None:
            return False
        spared = self.watched.kept_pids()
        running = [process for process in descendants(zygote) if process not in spared]
        used = sum(map(resident_bytes, running))
        reason = self._exceeded(running, used)
        self._times = 0 if reason is None else self._times + 1
        if reason is not None:
            self._end(zygote, spared, reason)
        self.due = monotonic() + self._pause(running, used)
        if self.is_denied:
            # Since the look: nothing that waits for a fork is answered until the next one.
            self.due = 0.0
        return True

    def _end(self, zygote: int, spared: set[int], reason: str) -> None:
        self.is_over.clear()
        try:
            self.watched.exceeded(reason)
            end_processes(zygote, spared)
            if self._times == MOST_TIMES:
                self.watched.give_up_all()
        finally:
            self.is_denied = False
            self.is_over.set()

    def _exceeded(self, running: list[int], used: int) -> str | None:
        bounds = self.watched.bounds
        if self.is_denied:
            return f"it wanted more processes, and {bounds.processes} are allowed"
        if len(running) > bounds.processes:
            return f"it had {len(running)} processes, and {bounds.processes} are allowed"
        if bounds.memory_bytes is None or used <= bounds.memory_bytes or monotonic() < self._rests_until:
            return None
        began = perf_counter()
        exact = sum(map(shared_out_bytes, running))
        self._rests_until = monotonic() + (perf_counter() - began) / PART
        if exact <= bounds.memory_bytes:
            return None
        most = bounds.memory_bytes >> 20
        return f"its processes used {exact >> 20} MB together, and {most} MB are allowed"

    def _pause(self, running: list[int], used: int) -> float:
        ticks = sum(map(_ticks, running))
        is_idle, self._ticks = ticks == self._ticks, ticks
        if is_idle:
            return IDLE
        most = self.watched.bounds.memory_bytes
        return USUAL if most is None else max(QUICKEST, min(USUAL, (most - used) / GROWTH))


def _ticks(process: int) -> int:
    """Return the processor time of a process, to tell whether it does anything."""
    fields = _read(f"/proc/{process}/stat").rpartition(b") ")[2].split()
    return int(fields[11]) + int(fields[12]) if fields else 0


class Watch:
    """The thread that looks at every image; it starts with the first one and ends with the last."""

    def __init__(self) -> None:
        self._looks: list[_Look] = []
        self._lock = threading.Lock()
        self._hurry = threading.Event()
        self._is_running = False

    def add(self, watched: Watched) -> None:
        """Watch an image until it has ended."""
        with self._lock:
            if all(look.watched is not watched for look in self._looks):
                self._looks.append(_Look(watched))
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="gramercy-bounds", daemon=True).start()
        self._hurry.set()

    def hurry(self) -> None:
        """Look soon: a call takes longer than a moment."""
        soon = monotonic() + USUAL
        for look in self._looks:
            if look.due > soon:
                look.due = soon
                self._hurry.set()

    def denied(self, watched: Watched) -> None:
        """End what an image runs: one more process than it may have was to be made."""
        for look in self._of(watched):
            look.is_denied, look.due = True, 0.0
        self._hurry.set()

    def is_ending(self, watched: Watched) -> bool:
        """Tell whether what an image runs is about to be killed."""
        return any(look.is_denied or not look.is_over.is_set() for look in self._of(watched))

    def wait_for_end(self, watched: Watched, seconds: float) -> None:
        """Wait until what an image runs is killed: what it makes meanwhile would be killed too."""
        for look in self._of(watched):
            look.is_over.wait(seconds)

    def _of(self, watched: Watched) -> list[_Look]:
        return [look for look in self._looks if look.watched is watched]

    def _run(self) -> None:
        while True:
            self._hurry.clear()
            with self._lock:
                due = min((look.due for look in self._looks), default=None)
                if due is None:
                    self._is_running = False
                    return
            self._hurry.wait(max(0.0, due - monotonic()))
            self._look_at(look for look in list(self._looks) if look.due <= monotonic())

    def _look_at(self, looks: Iterable[_Look]) -> None:
        for look in looks:
            try:
                goes_on = look.now()
            except Exception:  # noqa: BLE001 - a look at what changes meanwhile: the next one sees
                look.due, goes_on = monotonic() + USUAL, True
            with self._lock:
                # It may have been started anew meanwhile.
                if not goes_on and look.watched.zygote_pid() is None:
                    self._looks.remove(look)


watch = Watch()


class Usage:
    """The processes of an image: bounded by the watch, shed with old states, ended at a reset."""

    def __init__(self, present: Present) -> None:
        self._present = present
        # Why the processes that evaluate were killed by the watch.
        self._excess = ""

    def begin(self, family: Family) -> None:
        """Bound the processes of a family from now on."""
        if family.program.confinement is Confinement.BUBBLEWRAP:
            limit_tasks(family.zygote.pid)
        watch.add(self)

    @property
    def bounds(self) -> Bounds:
        """What all processes that evaluated code runs may use together."""
        family = self._present.family
        memory_mb = family.program.grants.memory_mb if family is not None else None
        return Bounds(None if memory_mb is None else TIMES_MEMORY * memory_mb << 20)

    def zygote_pid(self) -> int | None:
        """Return the process that is above all that evaluated code starts; None when it has ended."""
        family = self._present.family
        return family.zygote.pid if family is not None and family.is_alive else None

    def kept_pids(self) -> set[int]:
        """Return the processes that evaluate nothing: the kept states and moments."""
        kept = {each.connection.pid for each in self._present.timeline.all()}
        return kept | set(self._present.moments.pids().values())

    def exceeded(self, reason: str) -> None:
        """Take note that the processes that evaluate are being killed."""
        self._excess = reason

    def give_up_all(self) -> None:
        """End every process of the image at once."""
        family = self._present.family
        if family is not None:
            family.end_first()

    def take_excess(self) -> str:
        """Return why the watch killed what evaluates, once; empty where it did not."""
        excess, self._excess = self._excess, ""
        return excess

    def wait_for_end(self) -> None:
        """Wait until the watch has killed what it is about to kill, if anything."""
        if self._excess:
            # The look that goes before may take as long on a machine that is as busy.
            watch.wait_for_end(self, 2 * END_SECONDS)

    def shed(self, pid: int, heavy_bytes: int) -> list[str]:
        """Drop old states where a new one of this size makes them use more than they may; say which."""
        most = self.bounds.memory_bytes
        # As the kernel tells, not the image; the states of a small one never come near.
        if most is None or resident_bytes(pid) < heavy_bytes:
            return []
        dropped = self._present.timeline.shed(most)
        if not dropped:
            return []
        listed = ", ".join(each.id for each in dropped)
        verb = "was" if len(dropped) == 1 else "were"
        return [f"Kept states may use {most >> 20} MB together: {listed} {verb} dropped for room."]

    def end_strays(self, kept: set[int]) -> list[str]:
        """End what evaluated code has left running, but for these; say what that was."""
        zygote, family = self.zygote_pid(), self._present.family
        if zygote is None or family is None:
            return []
        if family.listener is not None:
            family.listener.holds_forks = True
        try:
            ended = end_processes(zygote, kept)
        finally:
            if family.listener is not None:
                family.listener.holds_forks = False
        return [told(ended)] if ended else []
