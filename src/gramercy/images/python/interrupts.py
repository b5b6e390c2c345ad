"""Signals: SIGINT reaches user code while it runs and nothing at any other moment.

Between evaluations every signal is held back, so that a handler of the user's never runs inside the server.
"""

# The wrappers in `signal` turn 64 numbers into enums, at 100 µs a call.
import _signal as c_signal  # type: ignore[import-not-found]  # has no stubs
import sys
from functools import partial
from types import FrameType
from typing import Any

_mask, _signal, _getsignal = c_signal.pthread_sigmask, c_signal.signal, c_signal.getsignal
_settrace, _setprofile = sys.settrace, sys.setprofile
_gettrace, _getprofile = sys.gettrace, sys.getprofile
_depth, _setdepth = sys.getrecursionlimit, sys.setrecursionlimit
_SETMASK, _INT, _DEFAULT = c_signal.SIG_SETMASK, c_signal.SIGINT, c_signal.SIG_DFL
_POLITE = (c_signal.SIGTERM, c_signal.SIGHUP, c_signal.SIGQUIT)
_ALL = frozenset(c_signal.valid_signals())
hold = partial(_mask, _SETMASK, _ALL)
_SERVER_DEPTH = 1000
_monitoring: Any = getattr(sys, "monitoring", None)  # since 3.12
_TOOLS = 6


class Gate:
    """The door between the server and user code."""

    def __init__(self) -> None:
        self.open = False
        self._depth = _depth()
        self._held = _ALL
        self.is_ours = False

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self.open:
            raise KeyboardInterrupt("The evaluation was interrupted.")

    def enter(self) -> None:
        """Let signals through; those held back so far run first, an old SIGINT does nothing."""
        _signal(_INT, self._on_interrupt)
        if self._depth < _SERVER_DEPTH:
            _setdepth(self._depth)
        _mask(_SETMASK, ())
        self.open = True

    def leave(self) -> None:
        """Hold signals back again and take away the hooks that would run in the server."""
        self.open = False
        for step in (self._quiet, self._silence, self._deepen):
            for _attempt in range(3):
                try:
                    step()
                    break
                except BaseException:  # noqa: BLE001, S112 - a handler or tracer of the user's raised here
                    continue

    def leave_untouched(self) -> None:
        """Leave after a run in which no user code can have changed signals, hooks or limits."""
        self.open = False
        _mask(_SETMASK, self._held)
        if self._depth < _SERVER_DEPTH:
            _setdepth(_SERVER_DEPTH)

    def _silence(self) -> None:
        self._held = _ALL.difference(number for number in _POLITE if _getsignal(number) is _DEFAULT)
        _mask(_SETMASK, self._held)
        _signal(_INT, self._on_interrupt)
        # A handler of the user's would run as soon as the gate is opened.
        self.is_ours = all(type(_getsignal(number)) is int for number in _ALL if number != _INT)

    @staticmethod
    def _quiet() -> None:
        if _gettrace() is not None:
            _settrace(None)
        if _getprofile() is not None:
            _setprofile(None)
        if _monitoring is not None:
            for tool in range(_TOOLS):
                if _monitoring.get_tool(tool) is not None:
                    _monitoring.set_events(tool, 0)

    def _deepen(self) -> None:
        self._depth = _depth()
        if self._depth < _SERVER_DEPTH:
            _setdepth(_SERVER_DEPTH)


def ignore_interrupts() -> None:
    """Ignore SIGINT for good: the zygote has nothing to interrupt."""
    _signal(_INT, c_signal.SIG_IGN)
