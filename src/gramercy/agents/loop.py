"""The loop: ask the model, send its calls through the guard, give it the results, until it answers in text.

Whatever goes wrong with a call becomes a result that the model reads; only limits, a provider that fails and
the caller's own cancellation end a run before its answer.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from gramercy.agents.base import (
    CallBegun,
    CallEnded,
    CallMade,
    Finished,
    Limits,
    Response,
    TurnEnded,
    history_of,
)
from gramercy.errors import CutStreamError, InvalidMessageError, LimitReachedError
from gramercy.execution.executor import Executor
from gramercy.providers.base import (
    CallPart,
    Message,
    OfferedTool,
    Request,
    StopPart,
    TextPart,
    ThoughtPart,
    Usage,
    UsagePart,
)
from gramercy.tools.registry import Registry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from gramercy.agents.base import AgentEvent, Talk
    from gramercy.execution.approval import ApprovalHandler
    from gramercy.gram.agents import AgentSpecification, ModelName
    from gramercy.providers.base import Provider
    from gramercy.tools.library import ToolLibrary


class Answer:
    """What one question to the model has brought so far."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.calls: list[Any] = []
        self.usage = Usage()
        self.stop: str | None = None

    def take(self, part: Any) -> None:
        """Add a part of the stream."""
        kind = type(part)
        if kind is TextPart:
            self.text.append(part.text)
        elif kind is CallPart:
            self.calls.append(part.call)
        elif kind is UsagePart:
            self.usage = part.usage
        elif kind is StopPart:
            self.stop = part.reason


class Loop:
    """One agent, bound to its tools, ready to run."""

    def __init__(  # noqa: PLR0913 - what a run may be given
        self,
        agent: AgentSpecification,
        library: ToolLibrary,
        *,
        provider: Provider | None = None,
        providers: Callable[[ModelName], Provider] | None = None,
        executor: Executor | None = None,
        approval_handler: ApprovalHandler | None = None,
        limits: Limits | None = None,
        talk: Talk | None = None,
    ) -> None:
        self.agent = agent
        self.limits = limits or Limits()
        self.talk = talk
        tools = Registry(library.bind_all(agent.tools))
        self.executor = _executor(executor, tools, approval_handler)
        self.offered = tuple(
            OfferedTool(each.name, each.description, each.schema) for each in tools.library().values()
        )
        self.provider = _provider(agent.model, provider, providers)

    async def run(
        self, message: str, conversation: Sequence[Message] | Response | None
    ) -> AsyncIterator[AgentEvent]:
        """Answer one message."""
        if not isinstance(message, str) or not message.strip():
            raise InvalidMessageError("the message is empty: say what you want")
        began, usage = monotonic(), Usage()
        made: list[CallMade] = []
        messages = [*history_of(conversation)]
        self._keep(messages, Message("user", message))
        for turn in range(1, self.limits.turns + 1):
            answer = Answer()
            async for part in self.provider.chat(self._request(messages)):
                answer.take(part)
                if type(part) is TextPart or type(part) is ThoughtPart:
                    yield part
            if answer.stop is None:
                raise CutStreamError("the answer ended without saying why: none of its calls was run")
            usage += answer.usage
            text = "".join(answer.text)
            self._keep(messages, Message("assistant", text, tuple(answer.calls)), answer.usage)
            yield TurnEnded(turn, answer.usage, self.agent.name)
            if not answer.calls:
                yield Finished(Response(text, tuple(made), usage, tuple(messages), turn, monotonic() - began))
                return
            for call in answer.calls:
                yield CallBegun(call, self.agent.name)
                asked = {"id": call.id, "name": call.name, "arguments": call.arguments}
                result = await self.executor.aexecute(asked)
                made.append(CallMade(call, result))
                text = result.content
                self._keep(messages, Message("tool", text, call_id=call.id, is_error=not result.success))
                yield CallEnded(call, result, self.agent.name)
        response = Response("", tuple(made), usage, tuple(messages), turn, monotonic() - began)
        raise LimitReachedError(
            f"the agent {self.agent.name} has used its {turn} turns without an answer", response
        )

    def _request(self, messages: list[Message]) -> Request:
        return Request(self.agent.model.id, tuple(messages), self.agent.instruction, self.offered)

    def _keep(self, messages: list[Message], message: Message, usage: Usage | None = None) -> None:
        messages.append(message)
        if self.talk is not None:
            self.talk.add(message, usage)


def _executor(given: Executor | None, tools: Registry, approval_handler: ApprovalHandler | None) -> Executor:
    if given is None:
        return Executor(tools, approval_handler)
    made = given.with_tools(tools)
    return made if approval_handler is None else made.with_approver(approval_handler)


def _provider(
    model: ModelName, provider: Provider | None, providers: Callable[[ModelName], Provider] | None
) -> Provider:
    if provider is not None:
        return provider
    if providers is None:
        from gramercy.providers.opening import open_provider

        providers = open_provider
    return providers(model)
