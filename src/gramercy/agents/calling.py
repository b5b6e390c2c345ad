"""The calls of one answer on their way through the guard: their caller, their order, and their results.

Consecutive safe calls run concurrently, all others one after the other. Every call gets a result, also a call
that was stopped or never begun: without results a model does not continue the conversation.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.agents.base import CallBegun, CallEnded
from gramercy.errors import GramercyError
from gramercy.execution.callers import is_looping
from gramercy.execution.calls import ToolResult
from gramercy.journal.base import State
from gramercy.tools.context import Call, current_call, enter_call, leave_call
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from gramercy.agents.base import AgentEvent, Talk
    from gramercy.execution.executor import Executor
    from gramercy.journal.base import CallRecord
    from gramercy.providers.base import Message, ModelCall
    from gramercy.tools.context import LogLevel

# As in the executor: enough to overlap their waits, few enough not to flood one service.
SIDE_BY_SIDE = 8
HALF = (
    "{name} was not run: the answer was cut off at the limit of tokens, so that this call may be half of "
    "one. Make it again, shorter, or in several steps."
)
REFUSED = "{name} was not run: the answer was stopped as refused."
NOT_BEGUN = "{name} was not run: {why}."
INTERRUPTED = "{name} was interrupted: {why}. What it had begun may have taken effect."
RESOLVING = (
    "\nIt is not run again before a person has looked, and has said what became of it: "
    "`gramercy approvals resolve {key} done --reason …`, or `failed`."
)
# The text for the model, with its next message, about a call that waited for approval or is in doubt.
LATE = "The call {name} {arguments}{who}, which waited for approval (call {key}), is over:\n{result}"
DOUBTED = "The call {name} {arguments}{who}, which waited for approval (call {key}), is in doubt:\n{result}"
LEFT = "call {key} of {name} is decided and cannot go on here: {why}"
STOPPED = "the run was stopped from outside"
# Results of cautious calls that were begun before the program ended; their answers are not stored.
BEGUN = (
    "{name} was not run again: an earlier run of this conversation has begun it and not ended it. "
    "It may have taken effect: look before you make it again."
)
ENDED = (
    "{name} was not run again: an earlier run of this conversation has {what} it, and the answer was not "
    "kept. Look at what it has done."
)


class AgentCaller(msgspec.Struct, frozen=True):
    """The caller of calls: an agent, `depth` agents deep, in a conversation."""

    agent: str
    depth: int
    project: str
    talk: Talk | None
    # Takes the events of the calls, and those of nested agents that they ask.
    emit: Callable[[AgentEvent], object]


class AgentCall(Call):
    """A call of an agent; questions to a client go to the client for which the agent runs."""

    __slots__ = ("_call", "_identity", "_is_stopped", "_outer", "_stops", "caller")

    def __init__(self, call: ModelCall, caller: AgentCaller) -> None:
        self.caller = caller
        self._call = call
        self._identity: str | None = None
        self._is_stopped = False
        self._stops: list[Callable[[], object]] = []
        self._outer = current_call()

    def nested(self, agent: str) -> tuple[Talk | None, tuple[Message, ...]]:
        """Return the talk of a nested agent, and its earlier messages."""
        talk = self.caller.talk
        return (None, ()) if talk is None else talk.nested(self._call, agent)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run is being stopped."""
        return self.is_called_off or self._outer.is_cancelled

    @property
    def is_called_off(self) -> bool:
        """Whether the run is being stopped: the conversation says so, and no caller returns for the call."""
        if self._is_stopped:
            return True
        # A plain tool runs on a thread without a task.
        task = asyncio.current_task() if is_looping() else None
        return (task is not None and task.cancelling() > 0) or self._outer.is_called_off

    def on_cancel(self, stop: Callable[[], object]) -> None:
        """Have `stop` called when the run is stopped while the handler runs; it must not block."""
        self._stops.append(stop)
        if self._is_stopped:
            stop()

    def call_off(self) -> None:
        """Tell the handler, which may outlive its caller, that the run is stopped."""
        self._is_stopped = True
        for stop in tuple(self._stops):
            with suppress(Exception):  # a handler that cannot stop is left behind, as others are
                stop()

    @property
    def principal(self) -> str:
        """The person or program for whom the agent runs."""
        return self._outer.principal

    @property
    def client(self) -> str:
        """The name of the agent."""
        return f"agent {self.caller.agent}"

    @property
    def session(self) -> str:
        """The conversation in which the agent makes the call."""
        return self._outer.session if self.caller.talk is None else self.caller.talk.session

    @property
    def project(self) -> str:
        """The directory that the agent works on."""
        return self.caller.project or self._outer.project

    @property
    def identity(self) -> str:
        """The identity by which a run that resumes after a kill finds this call."""
        # Looked up once: it is needed several times, and must not change in between.
        if self._identity is None:
            talk = self.caller.talk
            self._identity = "" if talk is None else talk.identity(self._call)
        return self._identity

    @property
    def is_unique(self) -> bool:
        """Whether a call that another process makes from the same message is this call."""
        return bool(self.identity)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the client for which the agent runs."""
        return self._outer.capabilities

    @property
    def version(self) -> str | None:
        """The revision of the protocol that the client speaks."""
        return self._outer.version

    def can(self, capability: str) -> bool:
        """Tell whether the client can be asked."""
        return self._outer.can(capability)

    def log(self, level: LogLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a line to the client's log."""
        self._outer.log(level, data, logger=logger)

    async def ask(self, message: str, schema: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]:
        """Ask the person with a form of flat fields."""
        return await self._outer.ask(message, schema, key=key)

    async def sample(self, params: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]:
        """Have the client's model answer."""
        return await self._outer.sample(params, key=key)

    async def roots(self, *, key: str | None = None) -> list[dict[str, Any]]:
        """Return the folders that the client works in."""
        return await self._outer.roots(key=key)


class Calls:
    """Makes the calls of one agent; `nested` names tools that ask another agent, and whether concurrently.

    Results stay in `results` until they are recorded.
    """

    def __init__(self, executor: Executor, caller: AgentCaller, nested: Mapping[str, bool]) -> None:
        self.results: dict[str, ToolResult] = {}
        self._executor, self._caller, self._nested = executor, caller, nested
        # Messages for the person about calls that were decided and not resumed.
        self.left: list[str] = []
        self._begun: set[str] = set()

    def groups(self, calls: Sequence[ModelCall]) -> Iterator[list[ModelCall]]:
        """Split the calls of an answer, in their order, into groups that may run concurrently."""
        group: list[ModelCall] = []
        for call in calls:
            overlaps = self._may_overlap(call)
            if group and not overlaps:
                yield group
                group = []
            group.append(call)
            if not overlaps or len(group) == SIDE_BY_SIDE:
                yield group
                group = []
        if group:
            yield group

    def _may_overlap(self, call: ModelCall) -> bool:
        """Tell if a call may run concurrently: it is safe, and no person gets two questions at once."""
        tool = self._executor.settings.registry.find(call.name)
        if tool is None or tool.safety_level is not Safety.SAFE or self._executor.policy.may_ask(tool):
            return False
        return self._nested.get(tool.name, True)

    async def make(self, group: Sequence[ModelCall]) -> None:
        """Make the calls of one group, except for those that have a result."""
        for call in group:
            self._begun.add(call.id)
            self._caller.emit(CallBegun(call, self._caller.agent, self._caller.depth))
        if len(group) == 1:
            await self._make(group[0])
            return
        # The guard raises nothing but a cancellation, which ends all of them before it ends this.
        await asyncio.gather(*map(self._make, group))

    async def _make(self, call: ModelCall) -> None:
        """Send one call through the guard."""
        result = self.results.get(call.id)
        if result is None:
            asked = {"id": call.id, "name": call.name, "arguments": call.arguments}
            with _entered(AgentCall(call, self._caller)):
                result = self.results[call.id] = await self._executor.aexecute(asked)
        self._caller.emit(CallEnded(call, result, self._caller.agent, self._caller.depth))

    async def late(
        self, waited: Sequence[tuple[ModelCall, int]], told: Sequence[Message]
    ) -> AsyncIterator[tuple[str, ToolResult]]:
        """Run calls that a person has approved meanwhile, and yield the texts for the model about such calls.

        Ask again about a call that still waits, if there is an approval handler; otherwise leave it. The
        model is told of a doubt once.
        """
        for call, key in waited:
            result = await self._settled(call, key)
            if result is None:
                continue
            form = DOUBTED if "in_doubt" in result.metadata else LATE
            who = f" of the agent {self._caller.agent}" if self._caller.depth else ""
            text = form.format(
                name=call.name, arguments=call.arguments, who=who, key=key, result=result.content
            )
            if form is LATE or not _is_told(text.partition("\n")[0], told):
                yield text, result

    async def _settled(self, call: ModelCall, key: int) -> ToolResult | None:
        """Resume a call that waited; None if there is nothing to tell the model."""
        record = self._executor.journal.record(key)
        if record is None or record.delivered or record.state is State.EXECUTING:
            return None
        if record.state is State.AWAITING and self._executor.approval_handler is None:
            return None
        caller, result = self._caller, _unmade(call, INTERRUPTED, STOPPED)
        caller.emit(CallBegun(call, caller.agent, caller.depth))
        try:
            with _entered(AgentCall(call, caller)):
                result = await self._executor.aresume(key)
        except GramercyError as error:
            # The decision stays: an agent that has this tool, or the process that runs the call, resumes it.
            why = str(error).partition("\n")[0].rstrip(".")
            self.left.append(LEFT.format(key=key, name=call.name, why=why))
            result = _unmade(call, NOT_BEGUN, why)
            return None
        finally:
            caller.emit(CallEnded(call, result, caller.agent, caller.depth))
        return None if "awaiting" in result.metadata else result

    def recall(self, calls: Sequence[ModelCall]) -> None:
        """Give a result to cautious calls that had begun when their run was killed: they are not retried.

        Calls that need approval, such as dangerous ones, are found by their identity.
        """
        talk, executor = self._caller.talk, self._executor
        if talk is None:
            return
        for call in calls:
            tool = executor.settings.registry.find(call.name)
            if tool is None or tool.safety_level is not Safety.CAUTIOUS or tool.idempotent:
                continue
            begun = executor.journal.records(tool=tool.name, session=talk.session, since=talk.called_at())
            for record in begun:
                if record.call.call_id == call.id and not record.call.identity:
                    self.results[call.id] = _recalled(call, record)
                    break

    def taken(self, call: ModelCall) -> None:
        """Forget a call whose result is recorded: a later call may have the same id."""
        self.results.pop(call.id, None)
        self._begun.discard(call.id)

    def refuse(self, calls: Sequence[ModelCall], text: str) -> None:
        """Refuse to make calls: the text is their result."""
        for call in calls:
            self.results[call.id] = _unmade(call, text)

    def give_up(self, calls: Sequence[ModelCall], why: str) -> None:
        """Give a result to calls that were stopped or not begun."""
        for call in calls:
            if call.id not in self.results:
                result = self.results[call.id] = self._given_up(call, why)
                self._caller.emit(CallEnded(call, result, self._caller.agent, self._caller.depth))

    def _given_up(self, call: ModelCall, why: str) -> ToolResult:
        """Return the result of a stopped call; with its journal key, so that no run resumes the call."""
        if call.id not in self._begun:
            return _unmade(call, NOT_BEGUN, why)
        talk = self._caller.talk
        identity = "" if talk is None else talk.identity(call)
        record = self._executor.journal.find(identity, delivered=True) if identity else None
        if record is None:
            return _unmade(call, INTERRUPTED, why)
        # A call that was never claimed has not begun: its question was withdrawn.
        is_withdrawn = record.state is State.FAILED and not record.facts.fence
        text = NOT_BEGUN if is_withdrawn else INTERRUPTED
        if record.state is State.IN_DOUBT:
            text += RESOLVING.replace("{key}", str(record.key))
        return msgspec.structs.replace(_unmade(call, text, why), metadata={"journal_key": record.key})


@contextmanager
def _entered(call: AgentCall) -> Iterator[None]:
    """Set the current call for its handlers, and notify them when it is stopped."""
    token = enter_call(call)
    try:
        yield
    except BaseException:
        call.call_off()
        raise
    finally:
        leave_call(token)


def _is_told(line: str, messages: Sequence[Message]) -> bool:
    return any(message.role == "user" and line in message.text for message in messages)


def _recalled(call: ModelCall, record: CallRecord) -> ToolResult:
    """Return the result of a call that another run has begun."""
    if record.state in {State.DONE, State.FAILED}:
        what = "run" if record.state is State.DONE else "failed at"
        return _unmade(call, ENDED.replace("{what}", what))
    return _unmade(call, BEGUN)


def _unmade(call: ModelCall, text: str, why: str = "") -> ToolResult:
    """Return the result of a call that did not go through the guard, or not to its end."""
    told = text.format(name=call.name, why=why)
    return ToolResult(call.id, False, told, told)  # noqa: FBT003 - the fields have names
