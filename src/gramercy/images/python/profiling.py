"""Evaluate and measure: where the time goes, which calls there are, what is allocated where.

Time is sampled by a signal, so that the code runs at nearly its own speed. Calls are counted exactly, which
slows down code with many small ones. Allocations are traced, which slows down code that makes many objects.
The overhead of the measurement is left out.
"""

import _lsprof
import _tracemalloc
import gc
import signal
import sys
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from .definitions import is_installed
from .operations import evaluate
from .places import is_known, lines_of, shown_file, texts
from .processes import state
from .protocol import Request, RequestError
from .session import Reply, Session

_clock, _processor, _getframe = time.perf_counter, time.process_time, sys._getframe  # noqa: SLF001 - public enough
_signal, _timer, _getsignal = signal.signal, signal.setitimer, signal.getsignal
_PROFILE, _VIRTUAL, _IGNORE = signal.SIGPROF, signal.ITIMER_PROF, signal.SIG_IGN
_HOME = __file__.rpartition("/")[0] + "/"
# Seconds of processor time between two samples, which most kernels round up to 4 ms, and between two
# measurements of the memory.
_INTERVAL, _SELDOM = 0.001, 0.02
# Frames of one sample: below that a recursion repeats itself.
_DEEPEST = 200
# Frames of an allocation that are kept, to find the user's line that led to it.
_TRACED = 6
# Rows of lines and of functions in an answer.
_ROWS = 40
# The heap is examined when it has grown this much since the last examination, and when that took at most this
# part of the time since.
_GROWN, _EFFORT = 1.2, 0.3
Line = tuple[str, int]


class Probe:
    """One measurement: the totals of the code, and the parts."""

    name = "time"

    def __init__(self) -> None:
        self.facts: Reply = {"measure": self.name}
        self._spent = self._collected = 0.0
        self._collections = 0

    def around(self, work: Callable[[], None]) -> None:
        """Run the work and measure it, also where it fails."""
        before = state()["heap_bytes"]
        gc.callbacks.append(self._on_collection)
        self.begin()
        wall, processor = _clock(), _processor()
        try:
            work()
        finally:
            seconds, used = _clock() - wall, _processor() - processor
            self.end()
            if self._on_collection in gc.callbacks:
                gc.callbacks.remove(self._on_collection)
            self.facts.update(
                microseconds=_whole(seconds),
                cpu_microseconds=_whole(used),
                gc_microseconds=_whole(self._collected),
                collections=self._collections,
                grown_bytes=int(str(state()["heap_bytes"])) - int(str(before)),
            )

    def begin(self) -> None:
        """Start to measure."""

    def end(self) -> None:
        """Stop, and add the findings to the facts."""

    def _on_collection(self, phase: str, _info: object) -> None:
        if phase == "start":
            self._spent = _clock()
        else:
            self._collected += _clock() - self._spent
            self._collections += 1


class Samples(Probe):
    """The processor time by line and by function, from samples of the main thread."""

    interval = _INTERVAL

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._lines: dict[tuple[CodeType, int], int] = {}
        self._own: dict[CodeType, int] = {}
        self._total: dict[CodeType, int] = {}
        self._modules: dict[CodeType, object] = {}
        self._before: Any = None

    def begin(self) -> None:
        """Let the timer run."""
        self._before = _getsignal(_PROFILE)
        _signal(_PROFILE, self.sample)
        _timer(_VIRTUAL, self.interval, self.interval)

    def end(self) -> None:
        """Stop the timer. A pending signal must not meet the default action, which ends the process."""
        _timer(_VIRTUAL, 0)
        _signal(_PROFILE, _IGNORE)
        if self._before is not None:
            _signal(_PROFILE, self._before)
        self.facts.update(samples=self._count, lines=self._line_rows(), functions=self._function_rows())

    def sample(self, _number: int, frame: FrameType | None) -> None:
        """Note the current place of the code."""
        if frame is None or frame.f_code.co_filename.startswith(_HOME):
            return  # values are being printed
        self._count += 1
        is_first, is_line_found = True, False
        seen: set[CodeType] = set()
        for _step in range(_DEEPEST):
            if frame is None or frame.f_code.co_filename.startswith(_HOME):
                return
            code = frame.f_code
            if is_first:
                self._own[code] = self._own.get(code, 0) + 1
                is_first = False
            if not is_line_found and _is_users(code.co_filename):
                key = (code, frame.f_lineno or code.co_firstlineno)
                self._lines[key] = self._lines.get(key, 0) + 1
                is_line_found = True
            if code not in seen:
                seen.add(code)
                self._total[code] = self._total.get(code, 0) + 1
            frame = frame.f_back

    def _line_rows(self) -> list[Reply]:
        return [
            {"count": count, "name": code.co_qualname, **_place(code.co_filename, line)}
            for (code, line), count in _largest(self._lines)
        ]

    def _function_rows(self) -> list[Reply]:
        return [
            {"self": self._own.get(code, 0), "total": total, **_function(code)}
            for code, total in _largest(
                {code: (self._own.get(code, 0), total) for code, total in self._total.items()}, whole=True
            )
        ]


class Calls(Probe):
    """How often each function is called, and the time in it, waiting included."""

    name = "calls"

    def __init__(self) -> None:
        super().__init__()
        self._profiler = _lsprof.Profiler()

    def begin(self) -> None:
        """Count from now on."""
        self._profiler.enable()

    def end(self) -> None:
        """Stop counting."""
        self._profiler.disable()
        entries = self._profiler.getstats()
        found = [entry for entry in entries if _is_theirs(entry.code)]
        rows = {entry.code: [entry.callcount, entry.inlinetime, entry.totaltime] for entry in found}
        for entry in entries:
            # Calls of this program itself, to print values, do not count.
            for call in () if _is_theirs(entry.code) else entry.calls or ():
                if type(call.code) is str and call.code in rows:
                    counts = (call.callcount, call.inlinetime, call.totaltime)
                    rows[call.code] = [a - b for a, b in zip(rows[call.code], counts, strict=True)]
        self.facts["calls"] = sum(row[0] for row in rows.values())
        ordered = sorted(rows.items(), key=lambda item: -item[1][1])
        self.facts["functions"] = [_call_row(code, *row) for code, row in ordered[:_ROWS] if row[0] > 0]


def _call_row(code: CodeType | str, count: float, own: float, total: float) -> Reply:
    about = _function(code) if type(code) is CodeType else {"name": str(code), "own": False}
    return {"calls": count, "self": _whole(own), "total": _whole(total), **about}


class Allocations(Samples):
    """Allocations: the peak, by line near that, and the memory still held afterwards."""

    name = "allocation"
    interval = _SELDOM

    def __init__(self) -> None:
        super().__init__()
        self._is_ours = self._is_looking = False
        self._first = self._largest = 0
        self._at_largest: dict[Line, int] = {}
        self._looked, self._effort = 0.0, 0.0

    def begin(self) -> None:
        """Start tracing. The user's own tracing continues afterwards."""
        self._is_ours = not _tracemalloc.is_tracing()
        if self._is_ours:
            _tracemalloc.start(_TRACED)
        self._before_lines = {} if self._is_ours else _by_line()
        self._first = _tracemalloc.get_traced_memory()[0]
        _tracemalloc.reset_peak()
        super().begin()

    def sample(self, number: int, frame: FrameType | None) -> None:
        """Examine the heap when it has grown: the trace alone only knows the rest at the end."""
        del number, frame
        begun, now = _clock(), _tracemalloc.get_traced_memory()[0] - self._first
        is_due = self._effort <= (begun - self._looked) * _EFFORT
        # The next signal may come before a long examination is over.
        if not self._is_looking and is_due and now > self._largest * _GROWN:
            self._is_looking = True
            self._at_largest, self._largest = _by_line(), now
            self._looked = _clock()
            self._effort = self._looked - begun
            self._is_looking = False

    def end(self) -> None:
        """Stop tracing."""
        held, peak = _tracemalloc.get_traced_memory()
        held, peak = held - self._first, peak - self._first
        super().end()
        left = _by_line()
        if self._is_ours:
            _tracemalloc.stop()
        if held >= self._largest:
            self._at_largest, self._largest = left, held
        for name in ("samples", "functions"):
            self.facts.pop(name, None)
        self.facts.update(
            peak_bytes=peak,
            held_bytes=held,
            seen_bytes=self._largest,
            lines=self._byte_rows(self._at_largest),
            held_lines=self._byte_rows(left),
        )

    def _byte_rows(self, lines: dict[Line, int]) -> list[Reply]:
        grown = {line: size - self._before_lines.get(line, 0) for line, size in lines.items()}
        found = [(line, size) for line, size in _largest(grown) if size > 0]
        return [{"bytes": size, **_place(*line)} for line, size in found]


def _by_line() -> dict[Line, int]:
    """Return the held bytes, by the user's line that led to each allocation, or any other."""
    found: dict[Line, int] = {}
    for trace in _tracemalloc._get_traces():  # noqa: SLF001 - the module around it loads pickle
        frames = [frame for frame in trace[2] if is_known(frame[0])]
        if frames:
            line = next((frame for frame in frames if _is_users(frame[0])), frames[0])
            found[line] = found.get(line, 0) + trace[1]
    return found


def _largest(counts: dict[Any, Any], *, whole: bool = False) -> list[tuple[Any, Any]]:
    """Return the largest counts first. For pairs return the second, ordered by the first."""
    ordered = sorted(counts.items(), key=lambda item: item[1], reverse=True)[:_ROWS]
    return [(key, value[1]) for key, value in ordered] if whole else ordered


def _whole(seconds: float) -> int:
    """Return the seconds in microseconds, as both image programs tell them."""
    return int(seconds * 1_000_000)


def _is_users(file: str) -> bool:
    return file in texts or (is_known(file) and not is_installed(file))


def _is_theirs(code: object) -> bool:
    if type(code) is CodeType:
        return not code.co_filename.startswith(_HOME)
    return "_lsprof.Profiler" not in str(code)


def _function(code: CodeType) -> Reply:
    own = _is_users(code.co_filename)
    file = shown_file(code.co_filename)
    return {"name": code.co_qualname, "file": file, "line": code.co_firstlineno, "own": own}


def _place(file: str, line: int) -> Reply:
    lines = lines_of(file)
    source = lines[line - 1].strip()[:200] if 0 < line <= len(lines) else ""
    return {"file": shown_file(file), "line": line, "source": source, "own": _is_users(file)}


PROBES: dict[str, type[Probe]] = {probe.name: probe for probe in (Samples, Calls, Allocations)}


def profile(session: Session, request: Request) -> Reply:
    """Evaluate code, and return its cost by place."""
    measure = request.get("measure")
    kind = PROBES.get(measure if type(measure) is str else "time")
    if kind is None or measure not in (None, *PROBES):
        raise RequestError("INVALID-REQUEST", f'"measure" must be one of {", ".join(PROBES)}.')
    probe = kind()
    reply = evaluate(session, request, probe)
    reply["profile"] = probe.facts
    return reply
