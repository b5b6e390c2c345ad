"""Recognize idle threads of Python code, and restore their function in a copy.

A copy has only the thread that forks. That is enough if each other thread stands at the one known place in
code at which it waits for work: all frames of its stack are compared, its name never. The threads themselves
are not changed. In the copy a pool starts new threads when it needs them, and a serving thread (the monitor
of tqdm, a listener of logging) is restarted before code runs there.
"""

import ctypes
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any, NamedTuple

_frames = sys._current_frames  # noqa: SLF001 - the only way to the stacks of other threads
_modules, _enumerate, _main = sys.modules, threading.enumerate, threading.main_thread
_Thread, _Semaphore = threading.Thread, threading.Semaphore
# The first frames of every thread. They say nothing about its work.
_BEGINNING = {getattr(_Thread, name).__code__ for name in ("_bootstrap", "_bootstrap_inner", "run")}
_CONDITION_WAIT, _EVENT_WAIT = threading.Condition.wait.__code__, threading.Event.wait.__code__
_QUEUE_GET = queue.Queue.get.__code__
# The record of the interpreter, in which a thread waits for its turn to run, and more than its size.
_RUNTIME = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
_RUNTIME_SIZE = 1 << 20


class Rest(NamedTuple):
    """An idle thread: what to fix in a copy at once, and what to do there before code runs."""

    task: int
    mend: Callable[[], object]
    revive: Callable[[], object] | None = None


class Others(NamedTuple):
    """The other threads of Python code: idle ones, those that may soon be, and the names of the rest."""

    resting: list[Rest]
    stirring: list[str]
    busy: list[str]


def look() -> Others:
    """Examine the other threads, without letting them run meanwhile."""
    others = Others([], [], [])
    frames = _frames()
    for thread in _enumerate():
        if thread is _main():
            continue
        frame = frames.get(thread.ident or 0)
        rest = _at_rest(thread, frame) if frame is not None else None
        if rest is not None:
            others.resting.append(rest)
        elif frame is None or _may_rest(frame):
            others.stirring.append(str(thread.name))
        else:
            others.busy.append(str(thread.name))
    return others


def stacks() -> list[tuple[threading.Thread, list[tuple[FrameType, int]], bool]]:
    """Return the other threads, with the frames and lines of each, innermost first, and whether it rests."""
    found = []
    frames = _frames()
    for thread in _enumerate():
        frame = frames.get(thread.ident or 0)
        if thread is not _main() and frame is not None:
            stack = [(each, each.f_lineno) for each in reversed(_stack(frame))]
            found.append((thread, stack, _at_rest(thread, frame) is not None))
    return found


def waits_for_its_turn(syscall: bytes) -> bool:
    """Return whether a thread has work and waits to run it, by the system call that it waits in."""
    words = syscall.split()
    # "running" has one word only.
    return len(words) < 3 or 0 <= int(words[1], 16) - _RUNTIME < _RUNTIME_SIZE  # noqa: PLR2004


def _stack(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of a thread except for those that every thread begins with, the outermost first."""
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    found.reverse()
    while found and found[0].f_code in _BEGINNING:
        del found[0]
    return found


def _may_rest(frame: FrameType) -> bool:
    """Return whether a thread is of a kind that is idle between two tasks."""
    stack = _stack(frame)
    return not stack or any(stack[0].f_code is known for known in map(_code, _KINDS))


def _at_rest(thread: threading.Thread, frame: FrameType) -> Rest | None:
    stack = _stack(frame)
    for kind, judge in _KINDS.items():
        if stack and stack[0].f_code is _code(kind):
            with suppress(Exception):  # user code owns these objects
                return judge(thread, stack)
    return None


def _code(kind: tuple[str, str]) -> CodeType | None:
    """Return the code of a function, by its module and name, where that is loaded."""
    found: Any = _modules.get(kind[0])
    for name in kind[1].split("."):
        found = getattr(found, name, None)
    return getattr(found, "__code__", None)


def _worker(thread: threading.Thread, stack: list[FrameType]) -> Rest | None:
    """Judge a thread of an executor: an idle one waits in compiled code for work, and there is none."""
    seen = stack[0].f_locals
    executor = seen["executor_reference"]()
    is_idle = len(stack) == 1 and seen.get("work_item") is None and seen["work_queue"].empty()
    if not is_idle or executor is None or thread not in executor._threads:  # noqa: SLF001 - no other way
        return None
    return Rest(thread.native_id or 0, lambda: _empty(executor))


def _empty(executor: Any) -> None:
    """Tell an executor, in a copy, that it has no threads: it starts new ones for the next task."""
    executor._threads.clear()  # noqa: SLF001 - as above
    executor._idle_semaphore = _Semaphore(0)  # noqa: SLF001


def _monitor(thread: threading.Thread, stack: list[FrameType]) -> Rest | None:
    """Judge the monitor of tqdm: an idle one waits for the time of its next check of the bars."""
    if [frame.f_code for frame in stack[1:]] != [_EVENT_WAIT, _CONDITION_WAIT]:
        return None
    return _waiting(thread, stack[-1])


def _listener(thread: threading.Thread, stack: list[FrameType]) -> Rest | None:
    """Judge a listener of logging: an idle one waits for a record, on a queue of this process."""
    wanted = [_code(("logging.handlers", "QueueListener.dequeue"))]
    if isinstance(stack[0].f_locals["self"].queue, queue.Queue):
        wanted += [_QUEUE_GET, _CONDITION_WAIT]
        waits = _waiting
    else:
        waits = _waiting_in_c
    return waits(thread, stack[-1]) if [frame.f_code for frame in stack[1:]] == wanted else None


def _waiting(thread: threading.Thread, frame: FrameType) -> Rest | None:
    """Return a thread that waits for a condition, unless that has come true."""
    condition, waiter = frame.f_locals["self"], frame.f_locals["waiter"]
    waiters = condition._waiters  # noqa: SLF001 - there is no other way
    if waiter not in waiters:
        return None
    # A thread that waits no longer must not be woken instead of one that does.
    return Rest(thread.native_id or 0, lambda: waiters.remove(waiter), lambda: revive(thread))


def _waiting_in_c(thread: threading.Thread, frame: FrameType) -> Rest | None:
    source = frame.f_locals["self"].queue
    if not isinstance(source, queue.SimpleQueue) or not source.empty():
        return None
    return Rest(thread.native_id or 0, lambda: None, lambda: revive(thread))


def revive(thread: Any) -> None:
    """Restart a thread that a copy lacks: the same object, so that its owner finds it."""
    names = ("_target", "_name", "_args", "_kwargs", "_daemonic")
    function, name, arguments, named, is_daemon = (getattr(thread, each, None) for each in names)
    _Thread.__init__(thread, None, function, name, arguments or (), named, daemon=is_daemon)
    _Thread.start(thread)


_KINDS: dict[tuple[str, str], Callable[[threading.Thread, list[FrameType]], Rest | None]] = {
    ("concurrent.futures.thread", "_worker"): _worker,
    ("tqdm._monitor", "TMonitor.run"): _monitor,
    ("logging.handlers", "QueueListener._monitor"): _listener,
}
