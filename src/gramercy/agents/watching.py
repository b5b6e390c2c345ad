"""Observations and spans of runs and of questions to models: which agent, how much, how long.

They never contain messages. Nothing is done until a program observes or has set telemetry up.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from gramercy.execution import telemetry
from gramercy.execution.calls import error_text
from gramercy.journal.texts import without_secrets
from gramercy.providers.base import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from contextvars import Token
    from types import TracebackType
    from typing import Self

    from gramercy.agents.base import TurnEnded
    from gramercy.gram.agents import AgentSpecification, ModelName
    from gramercy.providers.base import Part

log = logging.getLogger("gramercy")
# The length of an error's first sentence on a line of a log.
LONGEST_ERROR = 300
CANCELLED = "cancelled"
# OpenTelemetry's names for providers whose usual names differ.
PROVIDERS = {"google": "gcp.gemini", "bedrock": "aws.bedrock", "mistral": "mistral_ai", "xai": "x_ai"}


class ModelAnswered(msgspec.Struct, frozen=True):
    """A finished question to a model: answered, or failed with `error`. The cost is in US dollars.

    `first_seconds` is the time until the first part of the answer came.
    """

    agent: str
    depth: int
    model: str
    session: str = ""
    stop: str = ""
    calls: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    seconds: float = 0.0
    first_seconds: float | None = None
    error: str = ""


class RunEnded(msgspec.Struct, frozen=True):
    """A finished run of an agent; usage and cost include its nested agents."""

    agent: str
    depth: int
    model: str
    session: str = ""
    turns: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    seconds: float = 0.0
    error: str = ""


Observation: TypeAlias = ModelAnswered | RunEnded
# The observers in this process; plain functions that must not wait.
observers: list[Callable[[Observation], object]] = []


class Unwatched:
    """Used for a run if nothing is observed."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def timed(self, stream: AsyncIterator[Part]) -> AsyncIterator[Part]:
        """Return the stream of an answer; a subclass notes when its first part comes."""
        return stream

    def answered(self, turn: TurnEnded, calls: int) -> None:
        """Take the finished turn, with the number of its calls."""


class Watched(Unwatched):
    """Covers a piece of work: its span is current inside, and observers are notified of its end."""

    __slots__ = ("_began", "_span", "agent", "depth", "error", "session")

    def __init__(self, agent: AgentSpecification, depth: int, session: str) -> None:
        self.agent, self.depth, self.session = agent, depth, session
        self.error = ""
        self._began = 0.0
        self._span = self._make_span()

    def __enter__(self) -> Self:
        self._began = monotonic()
        self._span.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, trace
        if error is not None:
            is_stopped = isinstance(error, asyncio.CancelledError | GeneratorExit)
            self.error = CANCELLED if is_stopped else without_secrets(error_text(error), LONGEST_ERROR)
        observation = self._observation(monotonic() - self._began)
        self._span.end(error, self._attributes(observation))
        for observer in tuple(observers):
            try:
                observer(observation)
            except Exception as fault:  # noqa: BLE001 - an observer changes nothing
                log.warning("an observer of agents failed: %s", error_text(fault))

    def _make_span(self) -> telemetry.Span:
        raise NotImplementedError

    def _observation(self, seconds: float) -> Observation:
        raise NotImplementedError

    def _attributes(self, observation: Any) -> dict[str, Any]:
        usage = observation.usage
        found = {telemetry.INPUT_TOKENS: usage.input, telemetry.OUTPUT_TOKENS: usage.output}
        if usage.cached:
            found[telemetry.CACHED_TOKENS] = usage.cached
        if usage.cache_written:
            found[telemetry.CACHE_WRITTEN] = usage.cache_written
        return found if observation.cost is None else {**found, telemetry.COST: observation.cost}


class WatchedRun(Watched):
    """One run of an agent."""

    __slots__ = ("_outer", "_token", "cost", "is_priced", "turns", "usage")

    def __init__(self, agent: AgentSpecification, depth: int, session: str) -> None:
        super().__init__(agent, depth, session)
        self.usage, self.cost, self.is_priced, self.turns = Usage(), 0.0, True, 0
        self._outer: WatchedRun | None = None
        self._token: Token[WatchedRun | None] | None = None

    def __enter__(self) -> Self:
        self._outer = _run.get()
        self._token = _run.set(self)
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _run.reset(self._token)
        super().__exit__(kind, error, trace)
        if self._outer is not None:
            self._outer.spend(self.usage, self.cost if self.is_priced else None)

    def spend(self, usage: Usage, cost: float | None) -> None:
        """Count the usage of an answer or a nested run; an unknown price makes the sum unknown."""
        self.usage += usage
        self.cost += cost or 0.0
        self.is_priced = self.is_priced and cost is not None

    def _make_span(self) -> telemetry.Span:
        attributes = {
            telemetry.OPERATION: "invoke_agent",
            telemetry.AGENT: self.agent.name,
            **_model_attributes(self.agent.model),
        }
        if self.session:
            attributes[telemetry.CONVERSATION] = self.session
        return telemetry.Span(f"invoke_agent {self.agent.name}", attributes)

    def _observation(self, seconds: float) -> RunEnded:
        return RunEnded(
            self.agent.name,
            self.depth,
            str(self.agent.model),
            self.session,
            self.turns,
            self.usage,
            self.cost if self.is_priced and self.turns else None,
            seconds,
            self.error,
        )


class WatchedQuestion(Watched):
    """One question to a model, until its answer is complete."""

    __slots__ = ("_calls", "_cost", "_first", "_stop", "_usage")

    def __init__(self, agent: AgentSpecification, depth: int, session: str) -> None:
        super().__init__(agent, depth, session)
        self._usage, self._stop, self._calls = Usage(), "", 0
        self._cost: float | None = None
        self._first: float | None = None

    async def timed(self, stream: AsyncIterator[Part]) -> AsyncGenerator[Part, None]:
        """Return the stream of an answer, and note when its first part comes."""
        try:
            async for part in stream:
                if self._first is None:
                    self._first = monotonic() - self._began
                yield part
        finally:
            closing = getattr(stream, "aclose", None)
            if closing is not None:
                await closing()

    def answered(self, turn: TurnEnded, calls: int) -> None:
        """Take the finished turn, with the number of its calls."""
        self._usage, self._stop, self._calls, self._cost = turn.usage, turn.stop, calls, turn.cost
        run = _run.get()
        if run is not None:
            run.turns += 1
            run.spend(turn.usage, turn.cost)

    def _make_span(self) -> telemetry.Span:
        model = self.agent.model
        attributes = {telemetry.OPERATION: "chat", telemetry.AGENT: self.agent.name}
        attributes |= _model_attributes(model)
        return telemetry.Span(f"chat {model.id}", attributes, is_remote=True)

    def _observation(self, seconds: float) -> ModelAnswered:
        return ModelAnswered(
            self.agent.name,
            self.depth,
            str(self.agent.model),
            self.session,
            self._stop,
            self._calls,
            self._usage,
            self._cost,
            seconds,
            self._first,
            self.error,
        )

    def _attributes(self, observation: Any) -> dict[str, Any]:
        found = super()._attributes(observation)
        if self._first is not None:
            found[telemetry.FIRST_PART] = self._first
        return {**found, telemetry.FINISH: (self._stop,)} if self._stop else found


_run: ContextVar[WatchedRun | None] = ContextVar("gramercy_watched_run", default=None)
_UNWATCHED = Unwatched()


def watched_run(agent: AgentSpecification, depth: int = 0, session: str = "") -> Unwatched:
    """Return the object that covers a run of an agent."""
    return WatchedRun(agent, depth, session) if _is_watched() else _UNWATCHED


def watched_question(agent: AgentSpecification, depth: int = 0, session: str = "") -> Unwatched:
    """Return the object that covers a question to a model; its `answered` takes the outcome."""
    return WatchedQuestion(agent, depth, session) if _is_watched() else _UNWATCHED


def _is_watched() -> bool:
    return bool(observers) or telemetry.active_tracer() is not None


def _model_attributes(model: ModelName) -> dict[str, Any]:
    provider = model.provider.casefold()
    return {telemetry.PROVIDER: PROVIDERS.get(provider, provider), telemetry.REQUESTED: model.id}
