"""One agent in conversation: ask the model, send its calls through the guard, return the results, repeat.

An error in a call becomes a result that the model reads. Only limits, a failing provider and the caller's own
cancellation end a run before its answer. However it ends, every call has a result.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.agents.base import CallMade, Response, TurnEnded, Warned, awaited, unanswered
from gramercy.agents.binding import agent_tool
from gramercy.agents.calling import HALF, REFUSED, STOPPED, AgentCall, AgentCaller, Calls
from gramercy.agents.limits import Meter, about_tokens, dollars, size_of
from gramercy.agents.prices import FILE, Prices
from gramercy.agents.watching import watched_question, watched_run
from gramercy.errors import (
    AgentError,
    CutStreamError,
    GramercyError,
    InvalidMessageError,
    JournalError,
    LimitReachedError,
    ProviderError,
)
from gramercy.execution.calls import clean, error_text
from gramercy.providers.base import (
    CallPart,
    Message,
    ModelCall,
    OfferedTool,
    Request,
    StopPart,
    TextPart,
    ThoughtPart,
    Usage,
    UsagePart,
)
from gramercy.tools.context import current_call
from gramercy.tools.registry import Registry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from gramercy.agents.base import AgentEvent, Talk
    from gramercy.agents.binding import BoundAgent
    from gramercy.agents.watching import Unwatched
    from gramercy.execution.calls import ToolResult
    from gramercy.execution.executor import Executor
    from gramercy.gram.agents import ModelName
    from gramercy.providers.base import Provider, StopReason

# More than a million tokens: no model reads that much at once.
LONGEST_MESSAGE = 4_000_000
# The share of a model's window at which the person is warned, while there is room to act.
WARNED_SHARE = 0.8


class Shared(msgspec.Struct):
    """The state that the run of an agent shares with its nested agents."""

    executor: Executor
    providers: dict[ModelName, Provider]
    prices: Prices
    windows: Callable[[ModelName], int | None]
    meter: Meter
    project: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)
    # Why a nested conversation cannot be recorded, so that no outer run may continue either.
    broken: list[JournalError] = msgspec.field(default_factory=list)


class Answer:
    """The answer to one question so far."""

    __slots__ = ("_taken", "began", "calls", "is_whole", "stop", "text", "usage")

    def __init__(self, taken: Iterable[str]) -> None:
        self.began = monotonic()
        self._taken = set(taken)
        self.text: list[str] = []
        self.calls: list[ModelCall] = []
        self.usage = Usage()
        self.stop: StopReason = "other"
        # Without its end mark an answer may end in the middle of a call.
        self.is_whole = False

    def take(self, part: Any) -> None:
        """Add the next part."""
        kind = type(part)
        if kind is TextPart:
            self.text.append(part.text)
        elif kind is CallPart:
            self.calls.append(self._named(part.call))
        elif kind is UsagePart:
            self.usage = part.usage
        elif kind is StopPart:
            self.stop, self.is_whole = part.reason, True

    @property
    def said(self) -> str:
        """The text so far; halves of one character that came in two parts are joined."""
        return clean("".join(self.text))

    def _named(self, call: ModelCall) -> ModelCall:
        """Return a call with an id that is unique in the conversation: its result is found by it."""
        given, number = clean(call.id), len(self.calls)
        name = given
        while not name or name in self._taken:
            number += 1
            name = f"{given or 'call'}_{number}"
        self._taken.add(name)
        return ModelCall(name, clean(call.name), clean(call.arguments))


class Run:
    """One agent in conversation, `depth` agents deep."""

    def __init__(
        self,
        bound: BoundAgent,
        shared: Shared,
        emit: Callable[[AgentEvent], object],
        *,
        talk: Talk | None = None,
        depth: int = 0,
    ) -> None:
        self.agent = bound.agent
        self.messages: list[Message] = []
        self._shared, self._emit, self._talk, self._depth = shared, emit, talk, depth
        if talk is not None:
            talk.model, talk.prices = str(bound.agent.model), shared.prices
        self._provider = shared.providers[bound.agent.model]
        self._nested = {each.agent.name: _Nested(each, shared, depth + 1) for each in bound.agents}
        nested = [agent_tool(each.agent, self._nested[each.agent.name]) for each in bound.agents]
        deadline = shared.executor.settings.deadline or shared.meter.limits.tool_seconds
        self._executor = shared.executor.with_tools(Registry([*bound.tools, *nested]), deadline=deadline)
        caller = AgentCaller(bound.agent.name, depth, shared.project, talk, emit)
        self._calls = Calls(self._executor, caller, {each.agent.name: each.is_safe for each in bound.agents})
        known = {tool.name for tool in self._executor.tools()}
        self._offered = tuple(
            OfferedTool(each.name, each.description, each.schema)
            for each in (*bound.tools, *nested)
            if each.name in known
        )
        self._made: list[CallMade] = []
        self._turns = 0
        self._answer: Answer | None = None
        # The text of an incomplete answer.
        self.said = ""
        self._price = shared.prices.find(bound.agent.model)
        self._window, self._is_near = shared.windows(bound.agent.model), False
        # The size of a question: the provider's last count, and the characters since then.
        self._last = Usage()
        self._characters = len(self.agent.instruction) + len(msgspec.json.encode(self._offered))

    async def answer(self, message: str | None, history: tuple[Message, ...]) -> Response:
        """Run to the answer; if the run ends before, the conversation can still be resumed."""
        with watched_run(self.agent, self._depth, self._session):
            return await self._run(message, history)

    async def _run(self, message: str | None, history: tuple[Message, ...]) -> Response:
        self.messages = list(history)
        self._characters += sum(map(size_of, history))
        try:
            left = unanswered(history)
            self._calls.recall(left)
            await self._call(left)
            late = [each async for each in self.late(history)]
            said = [told for told, _ in late] + ([] if message is None else [message])
            if said:
                self._keep(Message("user", "\n\n".join(said)))
            for _, result in late:
                self._executor.delivered(result)
            return await self._converse()
        except BaseException as error:
            # If another program has continued a nested conversation, that one and this one belong to it: add
            # nothing to it here.
            if not self._shared.broken:
                with suppress(Exception):  # the journal of the conversation may be what has failed
                    self._close(error)
            if isinstance(error, AgentError | ProviderError) and error.response is None:
                error.response = self.response(self.said)
            raise

    async def late(self, told: Sequence[Message]) -> AsyncIterator[tuple[str, ToolResult]]:
        """Yield the outcomes of calls that waited for a person when a run ended, also of nested agents."""
        talk = self._talk
        async for each in self._calls.late(awaited(told) if talk is None else talk.waited(), told):
            yield each
        for text in self._calls.left:
            self._warn(text)
        for name, inner in talk.asked() if talk is not None and self._nested else ():
            if name in self._nested:
                async for each in self._nested[name].run(self._emit, inner).late(told):
                    yield each

    async def _converse(self) -> Response:
        """Take turns until the model answers in text."""
        last = self.messages[-1] if self.messages else None
        if last is None:
            raise InvalidMessageError("there is nothing to answer: say what you want")
        if last.role == "assistant":
            return self.response(last.text)
        limit = self._shared.meter.limits.turns
        while self._turns < limit:
            answer = await self._ask()
            if answer.stop == "length":
                self._warn(f"the answer of {self.agent.model} was cut off at its limit of tokens")
            elif answer.stop == "refused":
                self._warn(
                    f"{self.agent.model} refused or was broken off by its filter: this is no whole answer"
                )
            elif not answer.calls and not answer.said.strip():
                self._warn(f"the answer of {self.agent.model} is empty")
            await self._call(answer.calls, answer.stop)
            if not answer.calls or answer.stop == "refused":
                return self.response(answer.said, answer.stop)
        raise LimitReachedError(f"the agent {self.agent.name} has used its {limit} turns without an answer")

    async def _ask(self) -> Answer:
        """Ask the model, pass its answer on as it comes, and record the answer before its calls run."""
        about = self._about()
        self._shared.meter.check(about, self._price)
        self._warn_of_limits(about)
        answer = self._answer = Answer(call.id for message in self.messages for call in message.calls)
        with watched_question(self.agent, self._depth, self._session) as question:
            await self._listen(answer, question)
            self._answer = None
            question.answered(self._take(answer), len(answer.calls))
        return answer

    async def _listen(self, answer: Answer, question: Unwatched) -> None:
        request = Request(self.agent.model.id, tuple(self.messages), self.agent.instruction, self._offered)
        task, stream = asyncio.current_task(), None
        before = 0 if task is None else task.cancelling()
        try:
            stream = question.timed(self._provider.chat(request))
            async for part in stream:
                answer.take(part)
                if (type(part) is TextPart or type(part) is ThoughtPart) and self._depth == 0:
                    self._emit(part)
                if task is not None and task.cancelling() > before:
                    break
        except GramercyError:
            raise
        except Exception as error:
            # Providers may come from a plug-in: their exceptions are no reason to lose the work done.
            raise ProviderError(f"{self.agent.model} cannot be asked: {error_text(error)}") from error
        finally:
            with suppress(Exception):  # the answer is whole, or an error is on its way that says more
                await _close_stream(stream)
        if task is not None and task.cancelling() > before:
            # A provider that ignores its cancellation must not keep a run from being stopped.
            raise asyncio.CancelledError
        if not answer.is_whole:
            raise CutStreamError("the answer ended without saying why: none of its calls was run")

    def _take(self, answer: Answer) -> TurnEnded:
        """Record a complete answer, and count its cost."""
        self._turns += 1
        about = self._about()
        message = Message("assistant", answer.said, tuple(answer.calls))
        self._keep(message, answer.usage)
        about = msgspec.structs.replace(about, output=about_tokens(size_of(message)))
        cost = self._shared.meter.spend(answer.usage, about, self._price)
        if answer.usage.total:
            self._last, self._characters = answer.usage, 0
        turn = TurnEnded(
            self._turns,
            answer.usage,
            self.agent.name,
            self._depth,
            str(self.agent.model),
            answer.stop,
            monotonic() - answer.began,
            cost,
        )
        self._emit(turn)
        return turn

    async def _call(self, calls: Sequence[ModelCall], stop: StopReason = "calls") -> None:
        """Make the calls of an answer and record their results; calls that may be incomplete are not made."""
        meter = self._shared.meter
        if stop == "refused":
            self._calls.refuse(calls, REFUSED)
        elif stop == "length":
            self._calls.refuse(calls[-1:], HALF)
        for group in self._calls.groups(calls):
            meter.check()
            admitted = group if meter.calls_left is None else group[: meter.calls_left]
            meter.calls += len(admitted)
            await self._calls.make(admitted)
            if self._shared.broken:
                raise self._shared.broken[0]
            self._keep_results(group)
            if len(admitted) < len(group):
                raise meter.out_of_calls()

    def _keep_results(self, calls: Sequence[ModelCall]) -> None:
        """Record the available results, in the order of the calls."""
        for call in calls:
            result = self._calls.results.get(call.id)
            if result is None:
                continue
            key = result.metadata["journal_key"] if "awaiting" in result.metadata else 0
            told = Message("tool", result.content, call_id=call.id, is_error=not result.success, awaiting=key)
            self._keep(told)
            self._calls.taken(call)
            self._made.append(CallMade(call, result))
            if "journal_key" in result.metadata:
                self._executor.delivered(result)

    def _close(self, error: BaseException) -> None:
        """Leave a conversation that can be resumed: every call has a result.

        An incomplete answer is recorded if a person stopped it, since they have read it; otherwise the
        question is asked again.
        """
        why = self._reason(error)
        if self._answer is not None:
            answer, self._answer = self._answer, None
            self.said = answer.said
            if answer.usage.total:
                self._shared.meter.spend(answer.usage, answer.usage, self._price)
            if why == STOPPED and self.said.strip():
                self._keep(Message("assistant", self.said), answer.usage)
        left = unanswered(self.messages)
        self._calls.give_up(left, why)
        self._keep_results(left)

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, GramercyError):
            return str(error).partition("\n")[0]
        return str(self._shared.meter.out_of_time()) if self._shared.meter.left == 0.0 else STOPPED

    def _warn(self, text: str) -> None:
        if text in self._shared.warnings:
            return
        self._shared.warnings.append(text)
        self._emit(Warned(text, self.agent.name, self._depth))

    def _warn_of_limits(self, about: Usage) -> None:
        """Warn in time that the context gets full, and that a budget is not enforced; each once per run."""
        window, cost, model = self._window, self._shared.meter.limits.cost, self.agent.model
        if window is not None and about.input > WARNED_SHARE * window and not self._is_near:
            self._is_near = True
            self._warn(
                f"the conversation has about {about.input:,} of the {window:,} tokens that {model} reads "
                f"({about.input / window:.0%}): shorten it, or begin a new one"
            )
        if self._turns == 0 and self._price is None and cost is not None:
            self._warn(
                f"the price of {model} is not known: the budget of {dollars(cost)} does not hold for it; "
                f"name a file of prices in {FILE}"
            )

    def _about(self) -> Usage:
        """Estimate the tokens of the next question; tokens that were cached the last time will be again."""
        return Usage(self._last.total + about_tokens(self._characters), cached=self._last.cached)

    def _keep(self, message: Message, usage: Usage | None = None) -> None:
        if self._talk is not None:
            self._talk.add(message, usage)
        self.messages.append(message)
        self._characters += size_of(message)

    @property
    def _session(self) -> str:
        return "" if self._talk is None else self._talk.session

    def response(self, content: str, stop: StopReason = "end") -> Response:
        """Return the response of the run so far."""
        shared = self._shared
        return Response(
            content,
            tuple(self._made),
            shared.meter.usage,
            tuple(self.messages),
            self._turns,
            shared.meter.elapsed,
            shared.meter.cost,
            session=self._session,
            stop=stop,
            warnings=tuple(shared.warnings),
        )


async def _close_stream(stream: object) -> None:
    closing = getattr(stream, "aclose", None)
    if closing is not None:
        await closing()


class _Nested:
    """Asks a nested agent on behalf of its caller."""

    def __init__(self, bound: BoundAgent, shared: Shared, depth: int) -> None:
        self._bound, self._shared, self._depth = bound, shared, depth

    async def __call__(self, message: str) -> str:
        call = current_call()
        if not isinstance(call, AgentCall):
            raise AgentError(f"the agent {self._bound.agent.name} is asked by another one, not by itself")
        try:
            talk, history = call.nested(self._bound.agent.name)
            run = self.run(call.caller.emit, talk)
            response = await run.answer(None if history else checked_message(message), history)
        except JournalError as error:
            # As the result of this call it would be taken for the agent's answer.
            self._shared.broken.append(error)
            raise
        return response.content

    def run(self, emit: Callable[[AgentEvent], object], talk: Talk | None) -> Run:
        """Return a run of the nested agent."""
        return Run(self._bound, self._shared, emit, talk=talk, depth=self._depth)


def checked_message(message: object) -> str:
    """Return a message in sendable form, or raise InvalidMessageError."""
    if not isinstance(message, str):
        raise InvalidMessageError(f"a message is text, not {type(message).__name__}")
    if not message.strip():
        raise InvalidMessageError("the message is empty: say what you want")
    if "\0" in message:
        raise InvalidMessageError("the message has NUL characters: it is no text")
    if len(message) > LONGEST_MESSAGE:
        raise InvalidMessageError(
            f"the message has {len(message):,} characters, more than the {LONGEST_MESSAGE:,} that can be sent"
        )
    return clean(message)
