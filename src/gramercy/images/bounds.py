"""Bound the total resources of an image's processes: memory, space in the project, and their number.

The kernel's limits count each process by itself, and for root they do not bound the number of processes at
all. So one thread checks the processes of every image, more often the nearer they are to a bound. Memory
grows by gigabytes a second: the watch notices late, so each process also has its own limit.
"""

from __future__ import annotations

import contextlib
import resource
import threading
from collections import deque
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Protocol

import msgspec

from gramercy.images.descriptors import MOST_WATCHERS, held, watchers
from gramercy.images.groups import Group
from gramercy.images.kin import (
    END_SECONDS,
    descendants,
    end_processes,
    processor_ticks,
    resident_bytes,
    shared_out_bytes,
    table_bytes,
    told,
)
from gramercy.images.sandbox import Confinement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gramercy.images.checkpoints import Checkpoint
    from gramercy.images.files.changes import Written
    from gramercy.images.present import Present
    from gramercy.images.processes import Family

# More than any library starts by itself on a large machine. A fork bomb exceeds it within 0.1 s.
MOST_PROCESSES = 256
# Processes and threads, as the kernel counts them: more than a program needs, and few enough to kill.
MOST_TASKS = 4096
# The memory of all processes, as a multiple of one process's limit: for evaluated code and some helpers.
TIMES_MEMORY = 2
# Seconds between two checks: without activity, usually, and close to a bound.
IDLE, USUAL, QUICKEST = 2.0, 0.1, 0.005
# Bytes a second by which memory can grow. The time of the next check follows from it.
GROWTH = 8 << 30
# The share of time that exact checks may take: the kernel needs 30 µs a megabyte.
PART = 0.05
# Instances that were just allowed may not be visible yet.
UNSEEN_SECONDS = 1.0
# A copy connects within milliseconds. Meanwhile a process can use at most its own memory limit.
SETTLING_SECONDS = 0.5
# After this many checks in a row above a bound, the bomb has won and the whole image is ended.
MOST_TIMES = 5


class Bounds(msgspec.Struct, frozen=True):
    """The limits for all processes of evaluated code together."""

    memory_bytes: int | None = None
    processes: int = MOST_PROCESSES
    written_bytes: int | None = None


class Watched(Protocol):
    """The parts of an image that the watch needs. They are called without any lock."""

    # The memory behind descriptors that only kept states still hold. The watch sets it.
    kept_bytes: int

    @property
    def bounds(self) -> Bounds:
        """The limits of its processes."""

    def zygote_pid(self) -> int | None:
        """Return the common ancestor of all processes that evaluated code starts. None when it has ended."""

    def kept_pids(self) -> set[int]:
        """Return the processes that evaluate nothing: our own, and the kept states."""

    def written(self) -> Written | None:
        """Return the counter of writes to the project since the last call began. None if unheard."""

    def prefer(self, running: list[int], kept: set[int]) -> None:
        """Let the kernel kill running processes before kept ones, where it bounds their memory."""

    def is_settled(self) -> bool:
        """Return whether all kept copies have connected. Before that one looks like any other process."""

    def exceeded(self, reason: str) -> None:
        """Note that the other processes are being killed, and the reason."""

    def give_up_all(self) -> None:
        """End all processes of the image at once: they fork faster than they are killed."""


def limit_tasks(process: int) -> None:
    """Let the kernel bound the tasks of a process and its descendants. Unlike the watch, this acts at once.

    The kernel counts them in the user namespace of the sandbox, never those of root outside. Without a
    namespace it would count all processes of the user, so this is for a namespaced image only.
    """
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(process, resource.RLIMIT_NPROC, (MOST_TASKS, MOST_TASKS))


class Forks:
    """Decides before each fork whether there may be one more process."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        # Forks that are allowed without counting again: processes that end meanwhile only make room.
        self._left = 0

    def __call__(self, pid: int) -> bool:
        """Return whether a process may fork. If not, all evaluating processes are ended."""
        is_ending = watch.is_ending(self._watched)
        if self._left > 0 and not is_ending:
            self._left -= 1
            return True
        kept = self._watched.kept_pids()
        zygote = self._watched.zygote_pid()
        if zygote is None or pid == zygote or pid in kept:
            # These fork only at the keeper's request.
            return True
        if is_ending:
            # It is ended with the others, or was. Another check would end the processes restored meanwhile.
            self._left = 0
            return False
        room = self._watched.bounds.processes - len(set(descendants(zygote)) - kept)
        if room <= 0:
            watch.denied(self._watched)
            self._left = 0
            return False
        # Only half of the room: forks that were allowed a moment ago may not be visible to the count yet.
        self._left = (room - 1) // 2
        return True


class _Look:
    """The last measurements of one image, and the time of its next check."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.due = monotonic() + USUAL
        self._ticks = -1
        self._times = 0
        self.is_denied = False
        # Cleared while the evaluating processes are being killed.
        self.is_over = threading.Event()
        self.is_over.set()
        self._rests_until = 0.0
        # The bytes behind descriptors and the written bytes at the last check, and the time of the next.
        self._held, self._written, self._next = 0, 0, 0.0
        # When a bound was first exceeded while copies had not connected yet.
        self._since = 0.0

    def now(self) -> bool:
        """Check once, and act on the result. Return False when the image has ended."""
        zygote = self.watched.zygote_pid()
        if zygote is None:
            return False
        spared = self.watched.kept_pids()
        running = [process for process in descendants(zygote) if process not in spared]
        self.watched.prefer(running, spared)
        self._look_behind(running, spared)
        used = self._held + sum(map(resident_bytes, running))
        reason = self._exceeded(running, used)
        self.due = monotonic() + self._pause(running, used)
        if reason is not None and self._waits():
            self.due = monotonic() + QUICKEST
            return True
        self._times = 0 if reason is None else self._times + 1
        self._since = 0.0
        if reason is not None:
            self._end(zygote, reason)
        if self.is_denied:
            # A fork was denied after the check began. Its process waits unanswered, so check again at once.
            self.due = 0.0
        return True

    def _waits(self) -> bool:
        """Return whether to wait for copies that have not connected: if killed, their states are lost."""
        if self.is_denied or self.watched.is_settled():
            return False
        self._since = self._since or monotonic()
        return monotonic() - self._since < SETTLING_SECONDS

    def _end(self, zygote: int, reason: str) -> None:
        self.is_over.clear()
        try:
            self.watched.exceeded(reason)
            # Computed again: a copy may have connected since the check.
            end_processes(zygote, self.watched.kept_pids())
            # Their memory is free. Files that they wrote stay until they are restored, and are reported.
            self._held = self._written = 0
            if (written := self.watched.written()) is not None:
                written.forget()
            if self._times == MOST_TIMES:
                self.watched.give_up_all()
        finally:
            self.is_denied = False
            self.is_over.set()

    def _look_behind(self, running: list[int], spared: set[int]) -> None:
        """Measure the kernel memory behind the processes, within the allowed share of time."""
        if monotonic() < self._next:
            return
        # Processor time: on a busy machine the elapsed time would delay the next check by seconds.
        began = thread_time()
        written = self.watched.written()
        seen: set[str] = set()
        behind = held(running, seen, written.project if written is not None else "")
        self.watched.kept_bytes = held(spared, seen).memory
        self._held = behind.memory + sum(map(table_bytes, running))
        self._written = behind.deleted + (written.size() if written is not None else 0)
        self._next = monotonic() + (thread_time() - began) / PART

    def _exceeded(self, running: list[int], used: int) -> str | None:
        bounds = self.watched.bounds
        if self.is_denied:
            return f"it wanted more processes, and {bounds.processes} are allowed"
        if len(running) > bounds.processes:
            return f"it had {len(running)} processes, and {bounds.processes} are allowed"
        if bounds.written_bytes is not None and self._written > bounds.written_bytes:
            much, most = self._written >> 20, bounds.written_bytes >> 20
            return f"it had written {much} MB to the project, and {most} MB are allowed for one call (--disk)"
        if bounds.memory_bytes is None or used <= bounds.memory_bytes:
            return None
        return self._exceeded_memory(running, bounds.memory_bytes)

    def _exceeded_memory(self, running: list[int], allowed: int) -> str | None:
        # The kernel memory behind them is known. Only measuring shared memory takes time.
        if self._held <= allowed and monotonic() < self._rests_until:
            return None
        began = thread_time()
        exact = self._held + sum(map(shared_out_bytes, running))
        self._rests_until = monotonic() + (thread_time() - began) / PART
        if exact <= allowed:
            return None
        most, behind = allowed >> 20, self._held >> 20
        of_it = f" ({behind} MB of it in sockets and the like)" if behind else ""
        return f"its processes used {exact >> 20} MB together{of_it}, and {most} MB are allowed"

    def _pause(self, running: list[int], used: int) -> float:
        ticks = sum(map(processor_ticks, running))
        is_idle, self._ticks = ticks == self._ticks, ticks
        if is_idle:
            return IDLE
        most = self.watched.bounds.memory_bytes
        return USUAL if most is None else max(QUICKEST, min(USUAL, (most - used) / GROWTH))


class Watch:
    """The thread that checks every image. It starts with the first image and ends with the last."""

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
        """Check soon: a call takes longer than a moment."""
        soon = monotonic() + USUAL
        for look in self._looks:
            if look.due > soon:
                look.due = soon
                self._hurry.set()

    def denied(self, watched: Watched) -> None:
        """End the running processes of an image: it tried to exceed its number of processes."""
        for look in self._of(watched):
            look.is_denied, look.due = True, 0.0
        self._hurry.set()

    def is_ending(self, watched: Watched) -> bool:
        """Return whether the running processes of an image are about to be killed."""
        return any(look.is_denied or not look.is_over.is_set() for look in self._of(watched))

    def wait_for_end(self, watched: Watched, seconds: float) -> None:
        """Wait until the running processes of an image are killed: new ones would be killed too."""
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
                # The image may have been started again meanwhile.
                if not goes_on and look.watched.zygote_pid() is None:
                    self._looks.remove(look)


watch = Watch()


class Usage:
    """The processes of an image: bounded by the watch, reduced with old states, ended at a reset."""

    def __init__(self, present: Present) -> None:
        self._present = present
        # Why the watch killed the evaluating processes.
        self._excess = ""
        self.kept_bytes = 0
        self._group: Group | None = None
        # Bytes that kept states may add before all of them are measured again.
        self._room = 0
        # The times at which the latest inotify instances were allowed.
        self._allowed: deque[float] = deque(maxlen=MOST_WATCHERS)

    def begin(self, family: Family) -> list[str]:
        """Bound the processes of a family from now on. Return a note where they cannot be seen."""
        if family.program.confinement is Confinement.BUBBLEWRAP:
            limit_tasks(family.zygote.pid)
        self._group = Group.of(family.zygote.pid)
        watch.add(self)
        if resident_bytes(family.zygote.pid):
            return []
        return ["Memory and number of its processes have no bound together: /proc does not show them."]

    @property
    def bounds(self) -> Bounds:
        """The limits for all processes of evaluated code together."""
        family = self._present.family
        if family is None:
            return Bounds()
        grants = family.program.grants
        memory = None if grants.memory_mb is None else TIMES_MEMORY * grants.memory_mb << 20
        return Bounds(memory, written_bytes=grants.disk_mb << 20)

    def written(self) -> Written | None:
        """Return the counter of writes to the project since the last call began. None if unheard."""
        files = self._present.files
        return files.written if files is not None and not files.compares else None

    def may_watch(self) -> bool:
        """Return whether one more inotify instance may be created. Called by the listener."""
        zygote, now = self.zygote_pid(), monotonic()
        is_soon = len(self._allowed) == MOST_WATCHERS and now - self._allowed[0] < UNSEEN_SECONDS
        if zygote is None or is_soon or watchers([zygote, *descendants(zygote)]) >= MOST_WATCHERS:
            return False
        self._allowed.append(now)
        return True

    def zygote_pid(self) -> int | None:
        """Return the common ancestor of all processes that evaluated code starts. None when it has ended."""
        family = self._present.family
        return family.zygote.pid if family is not None and family.is_alive else None

    def kept_pids(self) -> set[int]:
        """Return the processes that evaluate nothing: the kept states and moments."""
        kept = {each.connection.pid for each in self._present.timeline.all()}
        return kept | set(self._present.moments.pids().values())

    def is_settled(self) -> bool:
        """Return whether all expected copies have connected."""
        return not self._present.promised

    def workers(self) -> set[int]:
        """Return the evaluating processes, and those that evaluated code has started."""
        zygote = self.zygote_pid()
        return set() if zygote is None else set(descendants(zygote)) - self.kept_pids()

    def exceeded(self, reason: str) -> None:
        """Note that the evaluating processes are being killed."""
        self._excess = reason

    def give_up_all(self) -> None:
        """End every process of the image at once."""
        family = self._present.family
        if family is not None:
            family.end_first()

    def take_excess(self) -> str:
        """Return once why the watch killed the evaluating processes. Empty where it did not."""
        excess, self._excess = self._excess, ""
        self._look_at_group()
        by_kernel, self._present.by_kernel = self._present.by_kernel, ""
        return excess or by_kernel

    def prefer(self, running: list[int], kept: set[int]) -> None:
        """Let the kernel kill evaluating processes before kept ones."""
        zygote = self.zygote_pid()
        if self._group is not None and zygote is not None:
            self._group.prefer(zygote, running, kept)
            self._look_at_group()

    def _look_at_group(self) -> None:
        if self._group is not None and self._group.has_killed():
            told = f"all processes of the image reached {self._group.limit >> 20} MB together"
            self._present.by_kernel = f"{told}, which is what the kernel allows to its control group"

    def wait_for_end(self) -> None:
        """Wait until the watch has finished a pending kill, if any."""
        if self._excess:
            # On a busy machine the check before the kill may take as long as the kill.
            watch.wait_for_end(self, 2 * END_SECONDS)

    def shed(self, pid: int, heavy_bytes: int) -> list[str]:
        """Drop old states if a new one of this size makes them exceed their memory. Return notes."""
        most, size = self.bounds.memory_bytes, resident_bytes(pid)
        # The size comes from the kernel, not from the image. States of a small image never reach the limit.
        if most is None or size < heavy_bytes:
            return []
        # A measurement takes as long as many copies. A state adds at most its whole size.
        self._room -= size
        if self._room >= 0:
            return []
        dropped, used = self._present.timeline.shed(most)
        # Memory that the newest state shares with the live process becomes its own when that process writes.
        self._room = most - used - size
        return _dropped(f"Kept states may use {most >> 20} MB together", dropped)

    def make_room(self, family: Family) -> list[str]:
        """Drop old states if few descriptors are left, or theirs hold much memory. Return notes."""
        most = self.bounds.memory_bytes
        if family.is_scarce:
            reason = "This process has few file descriptors left (see 'ulimit -n')"
        elif most is not None and self.kept_bytes > most:
            reason = (
                f"Kept states hold sockets with {self.kept_bytes >> 20} MB, and {most >> 20} MB are allowed"
            )
            self.kept_bytes = 0
        else:
            return []
        return _dropped(reason, self._present.timeline.halve())

    def end_strays(self, kept: set[int]) -> list[str]:
        """End the processes that evaluated code has left running, except for these. Return notes."""
        zygote, family = self.zygote_pid(), self._present.family
        if zygote is None or family is None:
            return []
        if family.listener is not None:
            family.listener.holds_forks = True
        try:
            # A copy that was just dropped still runs. Evaluated code has not started it.
            ended = end_processes(zygote, kept, frozenset(family.met_pids))
        finally:
            if family.listener is not None:
                family.listener.holds_forks = False
        return [told(ended)] if ended else []


def _dropped(reason: str, dropped: list[Checkpoint]) -> list[str]:
    if not dropped:
        return []
    listed = ", ".join(each.id for each in dropped)
    return [f"{reason}: {listed} {'was' if len(dropped) == 1 else 'were'} dropped for room."]
