"""`setup_observability`: with one call a program reports what its agents, models and tools do and cost.

It reports as lines of the logger `gramercy.observed`, as objects in a file, and as sums. None of them contain
messages, arguments or results.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.agents import watching
from gramercy.agents.limits import dollars
from gramercy.agents.watching import CANCELLED, ModelAnswered
from gramercy.errors import InvalidSettingError
from gramercy.execution import hooks
from gramercy.execution.metrics import SAMPLES, Metrics, ToolMetrics, metrics_table
from gramercy.execution.results import Refuser
from gramercy.journal.texts import without_secrets
from gramercy.providers.base import Usage
from gramercy.text import counted, reason_of, table
from gramercy.tools.context import current_call

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from gramercy.agents.watching import Observation, RunEnded
    from gramercy.execution.calls import ToolResult
    from gramercy.tools.tool import Tool

log = logging.getLogger("gramercy.observed")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
# The length of an error on one line of a log.
LONGEST_ERROR = 300
LINE = "%(asctime)s %(levelname)s %(message)s"
_COLUMNS = ("model", "questions", "failed", "in", "out", "cached", "cost", "p50 s", "p95 s")


class ModelFigures(msgspec.Struct, frozen=True):
    """The figures of one model; the cost is in US dollars, None if a price is unknown."""

    model: str
    questions: int
    failed: int
    usage: Usage
    cost: float | None
    p50_seconds: float
    p95_seconds: float


class Figures(msgspec.Struct, frozen=True):
    """The figures so far: runs of agents, models and tools by name."""

    runs: int
    failed_runs: int
    models: dict[str, ModelFigures]
    tools: dict[str, ToolMetrics]


class Observability:
    """The result of `setup_observability`: the sums so far. Closing it ends the lines and the file."""

    def __init__(self, handlers: list[logging.Handler], level: int, *, propagate: bool) -> None:
        self._lock = Lock()
        self._runs, self._failed_runs = 0, 0
        self._models: dict[str, _ModelTally] = {}
        self._metrics = Metrics()
        self._handlers = handlers
        for handler in handlers:
            log.addHandler(handler)
        self._before = log.level, log.propagate
        log.setLevel(level)
        log.propagate = propagate
        watching.observers.append(self._observe)
        self._stop_observing = hooks.observe(self._observe_call)

    def figures(self) -> Figures:
        """Return the figures so far."""
        with self._lock:
            models = {name: tally.figures(name) for name, tally in sorted(self._models.items())}
            return Figures(self._runs, self._failed_runs, models, self._metrics.snapshot())

    def summary(self) -> str:
        """Return the figures so far as text: runs, then a table of models and one of tools."""
        found = self.figures()
        failed = f", {found.failed_runs} of them failed" if found.failed_runs else ""
        parts = [f"{counted(found.runs, 'run')} of agents{failed}"]
        if found.models:
            parts.append(_model_table(found.models))
        if found.tools:
            parts.append(metrics_table(found.tools))
        return "\n\n".join(parts)

    def close(self) -> None:
        """Stop observing; the sums stay."""
        if self._observe not in watching.observers:
            return
        watching.observers.remove(self._observe)
        self._stop_observing()
        for handler in self._handlers:
            log.removeHandler(handler)
            handler.close()
        self._handlers = []
        level, log.propagate = self._before
        log.setLevel(level)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _observe(self, seen: Observation) -> None:
        """Count and log the end of a run or of a question to a model."""
        with self._lock:
            if isinstance(seen, ModelAnswered):
                self._models.setdefault(seen.model, _ModelTally()).count(seen)
            else:
                self._runs += 1
                self._failed_runs += bool(seen.error)
        if isinstance(seen, ModelAnswered):
            level = logging.WARNING if seen.error else logging.INFO
            _log(level, _model_line(seen), {"event": "model", **msgspec.structs.asdict(seen)})
        else:
            _log(_run_level(seen), _run_line(seen), {"event": "run", **msgspec.structs.asdict(seen)})

    def _observe_call(self, phase: str, tool: Tool | None, result: ToolResult | None) -> None:
        """Count and log the beginning or the end of a call."""
        call, name = current_call(), "" if tool is None else tool.name
        fields: dict[str, Any] = {
            "event": "call",
            "tool": name,
            "client": call.client,
            "session": call.session,
        }
        if result is None:
            _log(logging.DEBUG, f"tool {name} begins{_by(call.client)}", {**fields, "outcome": "begins"})
            return
        outcome, elapsed = _outcome(result), result.metadata.get("execution_time_ms", 0.0)
        self._count_call(name, outcome, result)
        fields |= {"outcome": outcome, "seconds": elapsed / 1000.0, "size": len(result.content)}
        shown = f"tool {name or '?'} {outcome}"
        if phase != "refused":
            shown += f" in {elapsed:.1f} ms, {len(result.content):,} characters"
        if result.error:
            fields["error"] = without_secrets(result.error, LONGEST_ERROR)
            shown += f": {fields['error']}"
        level = logging.INFO if result.success or outcome == "waits" else logging.WARNING
        _log(level, shown + _by(call.client), fields)

    def _count_call(self, name: str, outcome: str, result: ToolResult) -> None:
        if not name or outcome == "waits":
            return
        facts = result.metadata
        if "approval_wait_ms" in facts:
            self._metrics.record_approval(name, facts["approval_wait_ms"])
        if outcome in {"denied", "refused"}:
            self._metrics.record_refusal(name, Refuser(facts["denied_by"]) if "denied_by" in facts else None)
        else:
            size = len(result.content) if result.success else None
            self._metrics.record(name, facts["execution_time_ms"], size)


def setup_observability(level: str | int | None = "INFO", file: str | Path | None = None) -> Observability:
    """Log what agents, models and tools of this program do from now on; return an object with the sums.

    Lines of `level` and above go to the handlers of the program, else to standard error: INFO for every run,
    question and call, WARNING for those that failed or were refused, ERROR for failed runs alone, None for no
    lines. With `file` they are also appended there, each as a JSON object; if `level` is None, those of INFO
    and above. A second call replaces the first.
    """
    global _current  # noqa: PLW0603 - logging is one for a process, and so is this
    number = logging.INFO if level is None else _number(level)
    handlers = [] if file is None else [_file_handler(Path(file))]
    has_own = bool(logging.getLogger().handlers)
    if level is not None and not has_own:
        handlers.append(_stream_handler())
    if _current is not None:
        _current.close()
    _current = Observability(handlers, number, propagate=level is not None and has_own)
    return _current


_current: Observability | None = None


def _number(level: str | int) -> int:
    if isinstance(level, int):
        return level
    if level.upper() not in LEVELS:
        raise InvalidSettingError(f"{level!r:.60} is no level of observability: {', '.join(LEVELS)} or None")
    number: int = getattr(logging, level.upper())
    return number


def _stream_handler() -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(LINE))
    return handler


def _file_handler(path: Path) -> logging.Handler:
    try:
        # The times and errors of a person's work are private to that person.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise InvalidSettingError(f"{path} cannot be written: {reason_of(error)}") from None
    handler.setFormatter(_JsonLines())
    return handler


class _JsonLines(logging.Formatter):
    """Formats a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        observed = record.__dict__["observed"]
        return msgspec.json.encode({"time": time, "level": record.levelname, **observed}).decode()


def _log(level: int, text: str, observed: dict[str, Any]) -> None:
    log.log(level, "%s", text, extra={"observed": observed})


class _ModelTally:
    """The sums of one model; only its latest times, so that memory is bounded."""

    def __init__(self) -> None:
        self.questions, self.failed = 0, 0
        self.usage, self.cost = Usage(), 0.0
        self.is_priced = True
        self.seconds: deque[float] = deque(maxlen=SAMPLES)

    def count(self, seen: ModelAnswered) -> None:
        """Count one question."""
        self.questions += 1
        if seen.error:
            self.failed += 1
            return
        self.usage += seen.usage
        self.is_priced = self.is_priced and seen.cost is not None
        self.cost += seen.cost or 0.0
        self.seconds.append(seen.seconds)

    def figures(self, name: str) -> ModelFigures:
        """Return the sums."""
        from gramercy.journal.statistics import percentile

        times = sorted(self.seconds)
        return ModelFigures(
            name,
            self.questions,
            self.failed,
            self.usage,
            self.cost if self.is_priced and times else None,
            percentile(times, 0.50),
            percentile(times, 0.95),
        )


def _model_table(models: Mapping[str, ModelFigures]) -> str:
    return table([_COLUMNS, *map(_row, models.values())], rights=range(1, len(_COLUMNS)))


def _row(m: ModelFigures) -> tuple[str, ...]:
    counts = (m.questions, m.failed, m.usage.input, m.usage.output, m.usage.cached)
    cost = "N/A" if m.cost is None else dollars(m.cost)
    return (
        m.model,
        *(f"{count:,}" for count in counts),
        cost,
        f"{m.p50_seconds:.2f}",
        f"{m.p95_seconds:.2f}",
    )


def _model_line(seen: ModelAnswered) -> str:
    if seen.error:
        return (
            f"model {seen.model} failed after {seen.seconds:.1f} s: {seen.error}{_by(f'agent {seen.agent}')}"
        )
    calls = f" with {counted(seen.calls, 'call')}" if seen.calls else ""
    used = f"{seen.usage.input:,} tokens in, {seen.usage.output:,} out, {_money(seen.cost)}"
    return f"model {seen.model} answered in {seen.seconds:.1f} s{calls}: {used}{_by(f'agent {seen.agent}')}"


def _run_level(seen: RunEnded) -> int:
    """Return the log level for the end of a run; a nested agent's end is only a result for another."""
    if not seen.error:
        return logging.INFO
    return logging.WARNING if seen.depth or seen.error == CANCELLED else logging.ERROR


def _run_line(seen: RunEnded) -> str:
    ended = f"failed: {seen.error}" if seen.error else "is done"
    turns = f"{counted(seen.turns, 'turn')} in {seen.seconds:.1f} s"
    return f"agent {seen.agent} {ended} ({turns}, {seen.usage.total:,} tokens, {_money(seen.cost)})"


def _by(who: str) -> str:
    return f" (for {who})" if who else ""


def _money(cost: float | None) -> str:
    return "cost N/A" if cost is None else dollars(cost)


def _outcome(result: ToolResult) -> str:
    """Return one word for the outcome of a call."""
    if result.success:
        return "done"
    if "awaiting" in result.metadata:
        return "waits"
    if result.metadata.get("denied"):
        return "denied"
    return "failed" if "execution_time_ms" in result.metadata else "refused"
