"""The descendants of a process: list them, measure them, and end them, from outside by /proc."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from time import monotonic

from gramercy.text import listed, reveal_line

PAGE = os.sysconf("SC_PAGE_SIZE")
# For 2 MB of used addresses the kernel keeps a table of 4 KB, even where all show one page of zeros. From
# here on it matters.
MANY_ADDRESSES = 64 << 30
# Each turn kills all running processes. Only a fork bomb that is faster survives this many turns.
MOST_TURNS = 10
# The time for killed processes to end: on a busy machine hundreds of them take seconds.
END_SECONDS, END_TURN_SECONDS = 10.0, 0.02
# The position of the thread count in /proc/PID/stat, after the name.
THREADS = 17
# Evaluated code chooses the names of processes: a few short ones are shown.
MOST_TOLD = 5
LONGEST_NAME = 60


def descendants(above: int) -> list[int]:
    """Return the descendants of a process, including those that evaluated code has started."""
    found = [above]
    for process in found:
        # A child belongs to the thread that forked it.
        for task in _entries(f"/proc/{process}/task"):
            found += map(int, _read(f"/proc/{process}/task/{task}/children").split())
    return found[1:]


def living() -> dict[int, tuple[int, int]]:
    """Return the parent and the session of every living process of this machine."""
    found = {}
    for process in numbers():
        fields = _fields(process)
        if _lives(fields):
            found[process] = (int(fields[1]), int(fields[3]))
    return found


def numbers() -> list[int]:
    """Return the number of every process of this machine.

    `Path.glob` would raise for a process that ends meanwhile.
    """
    return [int(name) for name in _entries("/proc") if name.isdecimal()]


def command_line(process: int) -> bytes:
    """Return the command line of a process, each word followed by a zero. Empty where it has ended."""
    return _read(f"/proc/{process}/cmdline")


def _fields(process: int) -> list[bytes]:
    """Return the fields of a process after its name, which may hold spaces and parentheses."""
    return _read(f"/proc/{process}/stat").rpartition(b") ")[2].split()


def _entries(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - in the loop of a look, where paths cost more
    except OSError:
        return []


def _read(path: str, most: int = 1 << 16) -> bytes:
    """Return the beginning of a file below /proc. Empty where the process has ended."""
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
    """Return the resident memory of a process, including shared memory."""
    fields = _read(f"/proc/{process}/statm").split()
    return int(fields[1]) * PAGE if fields else 0


def table_bytes(process: int) -> int:
    """Return the memory of the page tables, where there are enough addresses for it to matter."""
    fields = _read(f"/proc/{process}/statm").split()
    if not fields or int(fields[0]) * PAGE < MANY_ADDRESSES:
        return 0
    for line in _read(f"/proc/{process}/status").splitlines():
        if line.startswith(b"VmPTE:"):
            return int(line.split()[1]) << 10
    return 0


def shared_out_bytes(process: int) -> int:
    """Return the memory with shared parts divided among their users (PSS). Slow."""
    for line in _read(f"/proc/{process}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) << 10
    return resident_bytes(process)


def end_processes(above: int, spared: set[int], untold: frozenset[int] = frozenset()) -> list[str]:
    """Kill the descendants of a process, except for spared ones. Return the names to report.

    Repeats until there are none, or a limit is reached: a child may be forked between the listing and the
    death of its parent. Its own next fork is not answered while the others are ended, so it would hang.
    """
    names: dict[int, str] = {}
    own = command_line(above)
    turns, until = 0, monotonic() + END_SECONDS
    while turns < MOST_TURNS and monotonic() < until:
        running = [each for each in descendants(above) if each not in spared and _runs(each)]
        if not running:
            break
        has_new = any(process not in names for process in running)
        turns += has_new
        # Processes that fork new ones are not awaited.
        _end_all(above, running, names, own, 0.0 if has_new else END_TURN_SECONDS)
    return [name for process, name in names.items() if process not in untold]


def _end_all(above: int, running: list[int], names: dict[int, str], own: bytes, seconds: float) -> None:
    """Kill processes, add the names of new ones, and wait for their end up to a timeout.

    By pidfd, opened before the check that it still is below `above`: numbers are reused.
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
    """Wait until these processes have ended, up to a timeout."""
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
    """Return whether a process has not ended."""
    return _lives(_fields(process))


def _lives(fields: list[bytes]) -> bool:
    """Decide by the fields of the process. A zombie counts as ended.

    A process whose first thread has ended looks like a zombie while its other threads go on.
    """
    return bool(fields) and (fields[0] not in (b"Z", b"X") or int(fields[THREADS]) > 1)


def _name(process: int, own: bytes) -> str:
    """Return the command of a process if it differs from the image's own."""
    line = command_line(process)
    if line == own:
        return "a copy that it forked"
    words = line.replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return reveal_line(words)[:LONGEST_NAME] or "a process without a name"


def told(names: list[str]) -> str:
    """List the ended processes. Empty where there were none."""
    if not names:
        return ""
    count = len(names)
    which = (
        "1 process that evaluated code had started was"
        if count == 1
        else (f"{count} processes that evaluated code had started were")
    )
    verb = "is" if count == 1 else "are"
    return f"{which} still running and {verb} ended: {listed(names, MOST_TOLD)}."


def processor_ticks(process: int) -> int:
    """Return the processor time of a process, to see whether it is active."""
    fields = _fields(process)
    return int(fields[11]) + int(fields[12]) if fields else 0
