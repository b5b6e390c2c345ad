"""Run a plain function on a thread of its own so that whoever waits can stop waiting on time.

Python cannot kill a thread. A function that is given up is interrupted at its next step of Python code; one
that blocks inside C goes on until it returns, on a daemon thread that keeps no program alive.
"""

from __future__ import annotations

import contextvars
import ctypes
import threading
from typing import TYPE_CHECKING, Any

from gramercy.errors import ExecutionError

if TYPE_CHECKING:
    from collections.abc import Callable


class _GivenUpError(BaseException):
    """Raised inside a function that nobody waits for any more."""


class Worker:
    """One function call on one daemon thread."""

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
        self._thread = threading.Thread(target=self._run, name="gramercy-worker", daemon=True)

    def start(self, on_finish: Callable[[], None] | None = None) -> Worker:
        """Begin; `on_finish` is called on the worker's thread unless it was given up before."""
        self._on_finish = on_finish
        self._thread.start()
        return self

    def wait(self, seconds: float | None) -> bool:
        """Wait for the end, at most so long; tell whether it came."""
        return self._finished.wait(seconds)

    def result(self) -> Any:
        """Return what the function returned, or raise what it raised."""
        if self._error is None:
            return self._value
        error, self._error = self._error, None  # its traceback holds this frame: do not close the circle
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            # Ctrl-C reaches the main thread only, so the function raised it by itself.
            raise ExecutionError(f"the code raised {type(error).__name__}") from None
        raise error

    def give_up(self) -> None:
        """Stop caring, and interrupt the function if it still runs Python code."""
        with self._lock:
            self._on_finish = None
            self._given_up = True
            if self._running and self._thread.ident is not None:
                ident = ctypes.c_ulong(self._thread.ident)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_GivenUpError))

    def _run(self) -> None:
        try:
            with self._lock:
                # Interrupted from here on, where it is caught; before, the function is simply not called.
                self._running = not self._given_up
            if self._running:
                self._call()
                self._finish()
        except _GivenUpError:
            self._finished.set()

    def _call(self) -> None:
        try:
            self._value = self._context.run(self._function, *self._given)
        except BaseException as error:  # noqa: BLE001 - carried over to whoever waits
            self._error = error

    def _finish(self) -> None:
        with self._lock:
            self._running = False
            on_finish = self._on_finish
        self._finished.set()
        if on_finish is not None:
            on_finish()
