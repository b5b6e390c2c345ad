"""Record runs of agents as traces, and replay traces in place of a model or of tools.

A tracer is between the loop and its provider and gets the events of the run. The model's answers are recorded
where they arrive, also those of nested agents, and also if the run fails.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from gramercy.agents.base import CallEnded, Finished
from gramercy.agents.traces import Trace, TracedCall, TracedTurn, save_traces
from gramercy.errors import (
    ExecutionError,
    GramercyError,
    InvalidArgumentsError,
    LimitReachedError,
    ModelUnavailableError,
    ProviderError,
)
from gramercy.execution.calls import error_text, read_arguments
from gramercy.execution.executor import Executor
from gramercy.execution.policy import Action, Policy, Rule
from gramercy.journal.texts import canonical_text
from gramercy.providers.base import (
    CallPart,
    ModelCall,
    StopPart,
    TextPart,
    Usage,
    UsagePart,
)
from gramercy.tools.content import ToolOutput
from gramercy.tools.definition import create_tool
from gramercy.tools.library import ToolLibrary
from gramercy.tools.registry import Registry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence

    from gramercy.agents.agent import Agent
    from gramercy.agents.base import AgentEvent, Response
    from gramercy.agents.traces import CallOutcome, RunOutcome
    from gramercy.execution.calls import ToolResult
    from gramercy.gram.agents import AgentSpecification, ModelName
    from gramercy.gram.specification import ToolSpecification
    from gramercy.providers.base import Part, Provider, Request, StopReason
    from gramercy.tools.tool import Tool

# A clock measures a call no finer than in microseconds.
DIGITS = 6


class Tracer:
    """Records one run: wrap its provider with `provider` or `providers`, and give every event to `take`."""

    def __init__(self, agent: AgentSpecification, message: str) -> None:
        self.agent, self.message = agent, message
        self.started, self._began = datetime.now(UTC), perf_counter()
        self._names = AgentNames(agent)
        self._turns: list[_Turn] = []
        self._response: Response | None = None

    def provider(self, inner: Provider) -> Provider:
        """Return a provider that answers as `inner` does and is recorded."""
        return _Recorded(self, inner)

    def providers(self, find: Callable[[ModelName], Provider]) -> Callable[[ModelName], Provider]:
        """Return a function that finds the same providers, recorded."""
        return lambda model: self.provider(find(model))

    def take(self, event: AgentEvent) -> None:
        """Record an event of the run."""
        if isinstance(event, CallEnded):
            self._ended(event)
        elif isinstance(event, Finished):
            self._response = event.response

    def trace(self, error: BaseException | None = None) -> Trace:
        """Return the recorded trace; `error` is the exception that the run ended with, if it failed."""
        partial: Response | None = getattr(error, "response", None)
        response = self._response or partial
        turns = tuple(turn.done() for turn in self._turns)
        return Trace(
            self.agent,
            self.message,
            response.content if response else "",
            _outcome(error),
            error_text(error) if isinstance(error, Exception) else "",
            self.started.isoformat(timespec="seconds"),
            round(response.elapsed if response else perf_counter() - self._began, DIGITS),
            response.usage if response else sum((turn.usage for turn in turns), Usage()),
            response.cost if response else None,
            response.session if response else "",
            turns,
        )

    @property
    def has_begun(self) -> bool:
        """Whether a model was asked."""
        return bool(self._turns)

    def begin(self, request: Request) -> _Turn:
        """Note a question to the model."""
        asked = _asked(request)
        turn = _Turn(self._names.of(request), "" if asked == self.message else asked)
        self._turns.append(turn)
        return turn

    def _ended(self, event: CallEnded) -> None:
        # Events come after the fact: the model may have been asked again in between.
        for turn in self._turns:
            if turn.answer(event):
                return
        # The call was made before this run began, and this run has finished it.
        turn = _Turn(event.agent or self.agent.name)
        turn.calls.append(event.call)
        turn.answer(event)
        self._turns.insert(0, turn)


async def traced(
    agent: Agent,
    message: str,
    library: Any = None,
    *,
    provider: Provider | None = None,
    providers: Callable[[ModelName], Provider] | None = None,
    **options: Any,
) -> tuple[Trace, Response | None]:
    """Run an agent and return the trace, also of a run that fails; cancellation passes.

    Takes the arguments of `Agent.stream`. Errors that fail every run, such as an unbound tool or a missing
    model, are raised.
    """
    from gramercy.providers.opening import open_provider

    tracer = Tracer(agent.specification, message)
    one = None if provider is None else tracer.provider(provider)
    find = tracer.providers(providers or open_provider)
    response = None
    try:
        async for event in agent.stream(message, library, provider=one, providers=find, **options):
            tracer.take(event)
            response = event.response if isinstance(event, Finished) else None
    except GramercyError as error:
        if not tracer.has_begun or isinstance(error, ModelUnavailableError):
            raise
        return tracer.trace(error), getattr(error, "response", None)
    return tracer.trace(), response


class TraceFile:
    """Writes the runs of a command to a file, each as it ends.

    One file holds the runs of one agent: when another agent runs, a file with the next number is begun.
    """

    def __init__(self, path: str | Path) -> None:
        self._path, self._number = Path(path), 1
        self._traces: list[Trace] = []

    async def stream(
        self,
        agent: AgentSpecification,
        message: str,
        find: Callable[[ModelName], Provider],
        start: Callable[..., AsyncGenerator[AgentEvent, None]],
    ) -> AsyncGenerator[AgentEvent, None]:
        """Pass on the events of the run that `start` begins with `providers`, and write the trace."""
        tracer, problem = Tracer(agent, message), None
        try:
            async with aclosing(start(providers=tracer.providers(find))) as events:
                async for event in events:
                    tracer.take(event)
                    yield event
        except BaseException as error:
            problem = error
            raise
        finally:
            if tracer.has_begun:
                self._add(tracer.trace(problem))

    def _add(self, trace: Trace) -> None:
        if self._traces and self._traces[0].agent != trace.agent:
            self._traces, self._number = [], self._number + 1
        self._traces.append(trace)
        number = f"-{self._number}" if self._number > 1 else ""
        save_traces(self._path.with_stem(f"{self._path.stem}{number}"), self._traces)


class _Turn:
    """A turn while it is being recorded."""

    def __init__(self, agent: str, message: str = "") -> None:
        self.agent, self.message = agent, message
        self.text: list[str] = []
        self.stop: StopReason | Literal[""] = ""
        self.usage = Usage()
        self.calls: list[ModelCall] = []
        self.results: dict[int, ToolResult] = {}
        self.began, self.seconds = perf_counter(), 0.0

    def take(self, part: Part) -> None:
        if isinstance(part, TextPart):
            self.text.append(part.text)
        elif isinstance(part, CallPart):
            self.calls.append(part.call)
        elif isinstance(part, UsagePart):
            self.usage = part.usage
        elif isinstance(part, StopPart):
            self.stop = part.reason

    def answer(self, event: CallEnded) -> bool:
        """Store the result of a call if the call is one of this turn and has none yet."""
        if event.agent not in ("", self.agent):
            return False
        asked = (event.call.name, event.call.arguments)
        places = [
            place
            for place, call in enumerate(self.calls)
            if place not in self.results and (call.name, call.arguments) == asked
        ]
        if not places:
            return False
        # The loop replaces ids that are empty or repeated.
        same = (place for place in places if self.calls[place].id == event.call.id)
        self.results[next(same, places[0])] = event.result
        return True

    def done(self) -> TracedTurn:
        calls = tuple(_call(call, self.results.get(place)) for place, call in enumerate(self.calls))
        text = "".join(self.text)
        return TracedTurn(self.agent, text, self.stop, self.usage, self.seconds, calls, self.message)


def _call(call: ModelCall, result: ToolResult | None) -> TracedCall:
    if result is None:
        return TracedCall(call.id, call.name, call.arguments)
    seconds = round(float(result.metadata.get("execution_time_ms", 0.0)) / 1000.0, DIGITS)
    return TracedCall(call.id, call.name, call.arguments, outcome_of(result), result.content, seconds)


def outcome_of(result: ToolResult) -> CallOutcome:
    """Return one word for the outcome of a call."""
    if result.success:
        return "done"
    if "awaiting" in result.metadata:
        return "waiting"
    return "denied" if result.metadata.get("denied") else "failed"


def _outcome(error: BaseException | None) -> RunOutcome:
    if error is None:
        return "answered"
    if isinstance(error, LimitReachedError):
        return "limit"
    return "failed" if isinstance(error, Exception) else "cancelled"


class _Recorded:
    """A provider whose answers are recorded as they pass."""

    def __init__(self, tracer: Tracer, inner: Provider) -> None:
        self._tracer, self._inner = tracer, inner

    @property
    def name(self) -> str:
        return self._inner.name

    async def chat(self, request: Request) -> AsyncIterator[Part]:
        turn = self._tracer.begin(request)
        try:
            async for part in self._inner.chat(request):
                turn.take(part)
                yield part
        finally:
            turn.seconds = round(perf_counter() - turn.began, DIGITS)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _asked(request: Request) -> str:
    """Return the message that a run is about: the last one of the user."""
    return next((each.text for each in reversed(request.messages) if each.role == "user"), "")


class AgentNames:
    """Tells which agent asks a question: nested agents have different instructions."""

    def __init__(self, agent: AgentSpecification) -> None:
        self._outer = agent.name
        self._by_instruction = dict(_instructions(agent))

    def of(self, request: Request) -> str:
        """Return the name of the agent that asks."""
        found = self._by_instruction.get(request.instruction)
        if found is None:
            # A context may have been appended. Of two instructions in it, the longer one contains the other.
            near = [text for text in self._by_instruction if text in request.instruction]
            found = self._by_instruction[max(near, key=len)] if near else self._outer
        return found


def _instructions(agent: AgentSpecification) -> Iterator[tuple[str, str]]:
    for nested in agent.agents:
        yield from _instructions(nested)
    yield agent.instruction, agent.name


class ReplayProvider:
    """Answers as the model did in a trace: each agent gets its own answers, in their order."""

    def __init__(self, trace: Trace, name: str = "replay") -> None:
        self.name = name
        self._names = AgentNames(trace.agent)
        self._trace = trace
        # Nested agents may run concurrently: each gets the answers to its own question.
        self._turns: dict[tuple[str, str], deque[TracedTurn]] = defaultdict(deque)
        for turn in trace.turns:
            # A turn without a stop in the middle holds calls of an earlier run, which this run has finished.
            if turn.stop or turn is trace.turns[-1]:
                self._turns[turn.agent, turn.message or trace.message].append(turn)

    async def chat(self, request: Request) -> AsyncIterator[Part]:
        """Stream the next answer of the agent that asks."""
        turn = self._next(self._names.of(request), _asked(request))
        if turn.text:
            yield TextPart(turn.text)
        for call in turn.calls:
            yield CallPart(ModelCall(call.id, call.tool, call.arguments))
        yield UsagePart(turn.usage)
        if not turn.stop:
            raise ProviderError(self._trace.error or "the recorded answer was cut off")
        yield StopPart(turn.stop)

    def _next(self, agent: str, message: str) -> TracedTurn:
        left = [each for (name, _), each in self._turns.items() if name == agent and each]
        turns = self._turns.get((agent, message)) or next(iter(left), None)
        if not turns:
            raise ProviderError(f"the trace has no further answer for {agent}: the recorded run ended before")
        return turns.popleft()

    async def aclose(self) -> None:
        """Do nothing."""


def recorded_tools(trace: Trace) -> ToolLibrary:
    """Return tools that only return the recorded results, call by call."""
    return ToolLibrary.of(_recorded_tool(each, trace.calls) for each in tools_of(trace.agent).values())


def tools_of(agent: AgentSpecification) -> dict[str, ToolSpecification]:
    """Return the tools of an agent and of its nested agents, by name."""
    found = {tool.name: tool for tool in agent.tools}
    for nested in agent.agents:
        found |= tools_of(nested)
    return found


def _recorded_tool(specification: ToolSpecification, calls: Sequence[TracedCall]) -> Tool:
    results: dict[str, deque[TracedCall]] = defaultdict(deque)

    def give(arguments: dict[str, Any]) -> ToolOutput:
        said = canonical_text(arguments)
        if not results[said]:
            raise ExecutionError("the trace has no such call: the run has left the recorded one")
        # The last result is used for all later calls: a loop may ask once more.
        found = results[said].popleft() if len(results[said]) > 1 else results[said][0]
        return ToolOutput(found.result) if found.outcome == "done" else ToolOutput(None, error=found.result)

    tool = create_tool(specification.name, specification.description, specification.schema, give, inline=True)
    for call in calls:
        # As the guard passes them to a tool, with the defaults; arguments that it refuses, it refuses again.
        with suppress(InvalidArgumentsError):
            if call.tool == tool.name:
                results[canonical_text(tool.checker.check(read_arguments(call.arguments)))].append(call)
    return tool


def replay_executor() -> Executor:
    """Return an executor that asks for no approval: its tools only return recorded results."""
    # Long results were cut when they were recorded, and say so.
    return Executor(Registry(), policy=Policy([Rule(Action.ALLOW)]), max_output=sys.maxsize)
