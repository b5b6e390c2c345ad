"""Run a plain function on another thread so that the waiting thread or task can stop waiting on time.

Python cannot kill a thread. An abandoned function is interrupted at its next step of Python code. A function
that blocks inside C continues until it returns, on a daemon thread that does not keep the program alive. A
thread that has finished its work waits a while for more, since starting a thread costs more than most
functions.
"""

from __future__ import annotations

import contextvars
import os
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from gramercy.errors import ExecutionError

if TYPE_CHECKING:
    from collections.abc import Callable


# Longer than the pause between most calls of a working agent, so that these need no new thread.
IDLE_SECONDS = 10.0
# Four batches of SIDE_BY_SIDE calls; further threads end with their work.
MOST_IDLE = 32
BUSY, RESTING = "gramercy-worker", "gramercy-resting"


class _GivenUpError(BaseException):
    """Raised inside a function whose caller has stopped waiting."""


class _Hand:
    """A daemon thread that runs one worker after another."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Worker] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=BUSY, daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def take(self, worker: Worker) -> None:
        self._work.put(worker)

    def _run(self) -> None:
        try:
            while self._one():
                continue
        except _GivenUpError:
            return

    def _one(self) -> bool:
        """Run one worker and keep no reference to it; tell whether to wait for another."""
        worker = self._next()
        self._thread.name = BUSY
        # A thread whose work was abandoned may be interrupted a moment later, so it takes no more work.
        if worker is None or not worker.run():
            return False
        self._thread.name = RESTING
        return _rest(self)

    def _next(self) -> Worker | None:
        while True:
            try:
                return self._work.get(timeout=IDLE_SECONDS)
            except Empty:
                # A worker that took this thread off the idle list just now is about to give it work.
                if _retire(self):
                    return None


_idle: list[_Hand] = []
_idle_lock = threading.Lock()


def _rest(hand: _Hand) -> bool:
    with _idle_lock:
        if len(_idle) >= MOST_IDLE:
            return False
        _idle.append(hand)
        return True


def _retire(hand: _Hand) -> bool:
    with _idle_lock:
        if hand not in _idle:
            return False
        _idle.remove(hand)
        return True


def _hire() -> _Hand:
    with _idle_lock:
        if _idle:
            return _idle.pop()
    return _Hand()


def _forget_hands() -> None:
    """Start over in a fork of this process, which has none of its threads."""
    global _idle_lock  # noqa: PLW0603 - another thread may have held it at the fork
    _idle_lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_hands)


class Worker:
    """One function call on another thread."""

    def __init__(self, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self._function = function
        self._given = given
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._running = self._given_up = False
        self._finished = threading.Event()
        self._on_finish: Callable[[], None] | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        self._hand: _Hand | None = None

    def start(self, on_finish: Callable[[], None] | None = None) -> Worker:
        """Begin; `on_finish` is called on the worker's thread unless the work was abandoned before."""
        self._on_finish = on_finish
        self._hand = _hire()
        self._hand.take(self)
        return self

    def wait(self, seconds: float | None) -> bool:
        """Wait for the end, at most `seconds`; tell whether it came."""
        return self._finished.wait(seconds)

    def result(self) -> Any:
        """Return the result of the function, or raise its exception."""
        if self._error is None:
            return self._value
        error, self._error = self._error, None  # its traceback holds this frame: do not close the circle
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            # Ctrl-C reaches the main thread only, so the function itself has raised this.
            raise ExecutionError(f"the code raised {type(error).__name__}") from None
        raise error

    def give_up(self) -> None:
        """Abandon the result, and interrupt the function if it still runs Python code."""
        import ctypes  # few calls are abandoned, and every start would load it

        with self._lock:
            self._on_finish = None
            self._given_up = True
            ident = self._hand.ident if self._running and self._hand is not None else None
            if ident is not None:
                found = ctypes.c_ulong(ident)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(found, ctypes.py_object(_GivenUpError))

    def run(self) -> bool:
        """Call the function on the thread of a `_Hand`; tell whether that thread may take more work."""
        try:
            with self._lock:
                # From here on an interrupt is caught; after an earlier one the function is not called.
                self._running = not self._given_up
            if self._running:
                self._call()
            self._finish()
        except _GivenUpError:
            self._finished.set()
            return False
        return not self._given_up

    def _call(self) -> None:
        try:
            self._value = self._context.run(self._function, *self._given)
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            self._error = error

    def _finish(self) -> None:
        with self._lock:
            self._running = False
            on_finish = self._on_finish
        self._finished.set()
        if on_finish is not None:
            on_finish()
