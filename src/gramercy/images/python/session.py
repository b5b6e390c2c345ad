"""The state of one image process, and the guarded running of user code in it.

Everything that runs user code goes through `perform`: output is captured, signals are delivered, exceptions
become records, definitions are compared. Between evaluations every signal is blocked, so that a user's
handler never runs inside the server. It knows no frames and no forks.
"""

# The wrappers in `signal` turn 64 numbers into enums, at 100 µs a call.
import _signal as c_signal  # type: ignore[import-not-found]  # has no stubs
import builtins
import os
import sys
import time
from _sitebuiltins import Quitter, _Helper
from collections.abc import Callable
from functools import partial
from types import FrameType, ModuleType
from typing import Any

from .anatomy import is_module, raw_space
from .definitions import Definitions
from .diagnostics import CollectedWarnings, Sources, failure
from .displays import Gallery
from .evaluation import Evaluator, Loop, Run
from .objects import Table
from .processes import state
from .reloading import NOTHING, Reloading, SpoiledError
from .streams import Console, Mirror

_mask, _signal, _getsignal = c_signal.pthread_sigmask, c_signal.signal, c_signal.getsignal
_settrace, _setprofile = sys.settrace, sys.setprofile
_gettrace, _getprofile = sys.gettrace, sys.getprofile
_depth, _setdepth = sys.getrecursionlimit, sys.setrecursionlimit
_SETMASK, _INT, _DEFAULT = c_signal.SIG_SETMASK, c_signal.SIGINT, c_signal.SIG_DFL
_POLITE = (c_signal.SIGTERM, c_signal.SIGHUP, c_signal.SIGQUIT)
_ALL = frozenset(c_signal.valid_signals())
hold = partial(_mask, _SETMASK, _ALL)
# Python's default recursion limit: enough for the server, whatever user code has set.
_SERVER_DEPTH = 1000
_monitoring: Any = getattr(sys, "monitoring", None)  # since 3.12
# Ids of tools that sys.monitoring has.
_TOOLS = 6
Reply = dict[str, object]
Work = Callable[[Run], None]
_modules = sys.modules
_real = os.path.realpath
_clock, _time = time.perf_counter, time.time
_SELDOM = ("changed", "warnings", "error", "truncated", "effects")
# A system is loaded again with all its changes.
_BRINGS_ITS_OWN = ("load_system", "undo_definitions", "eval_in_frame")
# Bytes. A reply with outputs of the usual size takes less.
_BALLAST = 8 * 1024 * 1024


class Session:
    """One user's module, streams, sources, definitions and objects."""

    def __init__(self, mirror: Mirror | None) -> None:
        self.main = ModuleType("__main__")
        self.current = "__main__"
        self.console = Console(mirror)
        self.sources = Sources()
        self.warnings = CollectedWarnings(self.sources)
        self.loop = Loop()
        self.evaluator = Evaluator(self.sources, self.loop)
        self.definitions = Definitions(self.main)
        self.table = Table()
        self.gallery = Gallery()
        self.gate = Gate()
        self.reloading = Reloading(mirror)
        self.definitions.origins.at_settling = self.reloading.following.renewed
        self.definitions.origins.at_forgetting = self.reloading.following.forgot
        self._ballast: bytes | None = None
        self._settled: Reply | None = None
        self.is_undisturbed = False
        self.effects: Callable[[], list[dict[str, object]]] | None = None
        # Keeps the moment of an error under a tag. In the copy that it makes, `moment` is the moment itself.
        self.keep: Callable[[BaseException, str], Reply] | None = None
        self.moment: Any = None

    def begin(self) -> None:
        """Make this process one that evaluates."""
        self.gate.leave()
        self.console.install()
        sys.argv = [""]
        sys.breakpointhook = _stop_here
        vars(builtins).update(exit=Quitter("exit", "Ctrl-D"), quit=Quitter("quit", "Ctrl-D"), help=_Helper())
        _modules["__main__"] = self.main
        self.definitions.baseline()

    def module(self, name: str) -> ModuleType | None:
        """Return a loaded module by its name."""
        found = self.main if name == "__main__" else _modules.get(name)
        return found if is_module(found) else None

    def unsettle(self) -> None:
        """Discard the last measurements: this may be another process now, or have other children."""
        self._settled = None
        self.is_undisturbed = False

    def perform(self, work: Work, module: ModuleType, request: Reply) -> tuple[Reply, Run]:
        """Run the work as user code and return the common part of the reply. Empty fields are left out."""
        self._load_ballast()
        run = Run(_size(request, "value_limit", 20_000))
        _modules["__main__"] = self.main
        self.warnings.begin(raw_space(module))
        self.console.begin(_size(request, "limit", 100_000), request.get("id"))
        self.definitions.origins.since = _time()
        # Only our own requests have no id, and no person sees their displays.
        shown = work if request.get("id") is None else partial(self.gallery.follow, work)
        started = _clock()
        error = self._guarded(shown, run, request)
        elapsed = (_clock() - started) * 1000
        reply: Reply = {"ok": error is None, "forms": run.forms}
        truncated: Reply = {"values": run.cut} if run.cut else {}
        self.console.end(reply, truncated)
        reply["package"] = self.current
        reply["elapsed_ms"] = int(elapsed * 1000) / 1000
        if not self.is_undisturbed:
            reply["changed"] = self.definitions.changes(run.bound, self.current)
            # Only our own requests have no id.
            if request.get("id") is not None and (error is not None or not (run.reads or run.pure)):
                self.definitions.journal.add(self.definitions.step)
        reply["warnings"] = self.warnings.end()
        reply["error"] = error
        reply["truncated"] = truncated
        if run.displays:
            reply["displays"] = run.displays
        if self.effects is not None:
            reply["effects"] = self.effects()
        for name in _SELDOM:
            if not reply.get(name, True):
                del reply[name]
        if run.edits:
            reply["edits"] = run.edits
        if run.spoiled:
            reply["spoiled"] = run.spoiled
        reply["state"] = self._state()
        return reply, run

    def _state(self) -> Reply:
        """Return the measurements of this process: new ones, unless they cannot have changed."""
        if self.is_undisturbed and self._settled is not None:
            return self._settled
        figures = state()
        # Other threads, and handlers of signals, may change the measurements at any time.
        self._settled = figures if figures["threads"] == 1 and self.gate.is_ours else None
        return figures

    def _load_ballast(self) -> None:
        """Reserve memory for the reply to an evaluation that runs out of it."""
        if self._ballast is None:
            try:
                self._ballast = bytes(_BALLAST)
            except MemoryError:
                return

    def drop_ballast(self) -> None:
        """Free the reserved memory."""
        self._ballast = None

    def _guarded(self, work: Work, run: Run, request: Reply) -> Reply | None:
        """Run the work. Signal handlers may raise at every call and backward jump until they are blocked.

        Python checks for signals nowhere else, so each handler below is sure to close the gate, and `hold`
        has done its work even when it raises the exception of a user's handler.
        """
        gate = self.gate
        try:
            error = self._reported(work, run, request)
            gate.open = False
        except BaseException:  # noqa: BLE001 - interrupted while the failure was being described
            gate.open = False
            error = None
            run.is_cut_short = True
        # No call here: a user's handler might raise in it.
        well = error is None and not run.is_cut_short
        self.is_undisturbed = well and run.pure and self._settled is not None
        if self.is_undisturbed:
            gate.leave_untouched()
            return None
        try:
            hold()
        except BaseException:  # noqa: BLE001 - a last handler of the user's
            try:  # noqa: SIM105 - a context manager would be a call of its own
                hold()
            except BaseException:  # noqa: BLE001, S110 - and one more; now nothing is pending
                pass
        gate.leave()
        return _cut_short(run) if run.is_cut_short else error

    def _reported(self, work: Work, run: Run, request: Reply) -> Reply | None:
        try:
            self.gate.enter()
            has_changed = request.get("id") is not None and self._freshened(run, request)
            work(run)
            if has_changed:
                run.pure = run.reads = False
        except SpoiledError as error:
            run.spoiled, run.edits = error.marks, error.edits
            return _spoiled(error)
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like end the form, not the image
            if type(error) is MemoryError:
                self.drop_ballast()
                self.definitions.let_go()
            record = failure(error, len(run.forms), self.sources)
            tag = request.get("keep_moment")
            if type(tag) is str and self.keep is not None:
                record.update(self.keep(error, tag))
            return record
        return None

    def _freshened(self, run: Run, request: Reply) -> bool:
        """Apply edited files before code runs. Return whether names may be bound to other values."""
        op = request.get("op")
        # The usual answer comes first: this is done before each call.
        is_idle = op != "take_up" and self.reloading.is_calm()
        if is_idle or op in _BRINGS_ITS_OWN or request.get("follows") is False:
            return False
        marks: Any = request.get("declined")
        if type(marks) is dict:
            self.reloading.decline(marks, is_told=request.get("told") is True)
        is_asked = op == "take_up" and request.get("repeated") is not True
        asked = _real(str(request.get("system"))) if is_asked else ""
        told = self.reloading.freshen(may_run=request.get("back") is True, asked=asked)
        if told is NOTHING:
            return False
        run.edits = told.edits
        return told.has_changed


def _spoiled(error: SpoiledError) -> Reply:
    return {
        "type": "TakeUpFailed",
        "message": f"An edited file could not be taken up, so the call was not run: {error}.",
        "restarts": [],
        "backtrace": [],
        "form_index": 0,
        "interrupted": error.interrupted,
    }


class Breakpoint(BaseException):
    """Stops the code at a breakpoint, past its error handlers, so that the moment is kept there."""

    __module__ = "builtins"


def _stop_here(*_arguments: object, **_options: object) -> None:
    """Take the place of a debugger, for which there is no terminal."""
    raise Breakpoint("breakpoint() ended the evaluation here.")


def _size(request: Reply, key: str, default: int) -> int:
    value = request.get(key)
    return min(value, 16_000_000) if type(value) is int and value >= 0 else default


def _cut_short(run: Run) -> Reply:
    return {
        "type": "KeyboardInterrupt",
        "message": "The evaluation was interrupted.",
        "restarts": [],
        "backtrace": [],
        "form_index": len(run.forms),
        "interrupted": True,
    }


class Gate:
    """The boundary between the server and user code."""

    def __init__(self) -> None:
        self.open = False
        self._depth = _depth()
        self._held = _ALL
        self.is_ours = False

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self.open:
            raise KeyboardInterrupt("The evaluation was interrupted.")

    def enter(self) -> None:
        """Deliver signals. Those blocked so far run first; an old SIGINT does nothing."""
        _signal(_INT, self._on_interrupt)
        if self._depth < _SERVER_DEPTH:
            _setdepth(self._depth)
        _mask(_SETMASK, ())
        self.open = True

    def reopen(self) -> None:
        """Deliver signals again, after a step that they must not interrupt."""
        _mask(_SETMASK, ())
        self.open = True

    def leave(self) -> None:
        """Block signals again and remove the hooks that would run in the server."""
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
        # A user's handler would run as soon as signals are unblocked.
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
