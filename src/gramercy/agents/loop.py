"""The loop: an agent, bound to its tools and joined to who answers and who guards, runs on a message."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypedDict

from gramercy.agents.base import Finished, Limits, history_of
from gramercy.agents.binding import bind_agent
from gramercy.agents.limits import Meter
from gramercy.agents.prices import user_prices
from gramercy.agents.turns import Run, Shared, checked_message
from gramercy.errors import AgentError
from gramercy.execution.executor import Executor
from gramercy.tools.registry import Registry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from gramercy.agents.base import AgentEvent, Response, Talk
    from gramercy.agents.prices import Prices
    from gramercy.execution.approval import ApprovalHandler
    from gramercy.gram.agents import AgentSpecification, ModelName
    from gramercy.providers.base import Message, Provider
    from gramercy.tools.library import ToolLibrary


def ignore(event: AgentEvent) -> None:
    """Take an event and do nothing with it."""
    del event


class RunOptions(TypedDict, total=False):
    """What a run may be given besides its message."""

    provider: Provider | None
    providers: Callable[[ModelName], Provider] | None
    executor: Executor | None
    approval_handler: ApprovalHandler | None
    limits: Limits | None
    talk: Talk | None
    project: str
    prices: Prices | None
    windows: Callable[[ModelName], int | None] | None


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
        project: str = "",
        prices: Prices | None = None,
        windows: Callable[[ModelName], int | None] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.bound = bind_agent(agent, library)
        self.talk = talk
        self._executor = _executor(executor, approval_handler)
        self._project = project
        self._prices = user_prices() if prices is None else prices
        self._windows = windows or _window
        self._providers: dict[ModelName, Provider] = {}
        self._is_own = provider is None and providers is None
        for each in self.bound.all_agents():
            if each.model not in self._providers:
                self._providers[each.model] = provider or _opened(each.model, providers)

    async def run(
        self, message: str | None, conversation: Sequence[Message] | Response | None
    ) -> AsyncGenerator[AgentEvent, None]:
        """Answer one message and tell what happens; None goes on where a conversation was left.

        Closing the generator stops the run, and returns once the conversation is in order.
        """
        events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        task = asyncio.create_task(self.answer(message, conversation, events.put_nowait))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield Finished(task.result())
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            if task.done() and not task.cancelled():
                task.exception()  # of a run that was given up nobody else asks

    async def answer(
        self,
        message: str | None,
        conversation: Sequence[Message] | Response | None,
        emit: Callable[[AgentEvent], object] = ignore,
    ) -> Response:
        """Answer one message; every event but the last goes to `emit`.

        Calls of the conversation that have no result are finished first, under the identity that they had.
        """
        with _alone(self.talk):
            return await self._answer(message, conversation, emit)

    async def _answer(
        self,
        message: str | None,
        conversation: Sequence[Message] | Response | None,
        emit: Callable[[AgentEvent], object],
    ) -> Response:
        said = None if message is None else checked_message(message)
        is_kept = self.talk is not None and self.limits.session_cost is not None
        meter = Meter(self.limits, self.talk.spent() if self.talk is not None and is_kept else 0.0)
        shared = Shared(self._executor, self._providers, self._prices, self._windows, meter, self._project)
        run = Run(self.bound, shared, emit, talk=self.talk)
        try:
            async with asyncio.timeout(self.limits.seconds) as timeout:
                return await run.answer(said, history_of(conversation))
        except TimeoutError:
            if timeout.expired():
                error = shared.meter.out_of_time()
                error.response = run.response(run.said)
                raise error from None
            raise
        finally:
            if self._is_own:
                for provider in self._providers.values():
                    with suppress(Exception):  # what came of the run says more
                        await provider.aclose()


# The talks that runs of this process go on with.
_going_on: dict[int, object] = {}


@contextmanager
def _alone(talk: Talk | None) -> Iterator[None]:
    """Refuse a second run beside one that goes on with the same talk: their messages would be mixed."""
    mine = object()
    if talk is not None and _going_on.setdefault(id(talk), mine) is not mine:
        raise AgentError(
            f"another run goes on with session {talk.session} at the moment: wait for its answer, or fork it"
        )
    try:
        yield
    finally:
        if talk is not None:
            del _going_on[id(talk)]


def _executor(given: Executor | None, approval_handler: ApprovalHandler | None) -> Executor:
    if given is None:
        return Executor(Registry(), approval_handler)
    return given if approval_handler is None else given.with_approver(approval_handler)


def _window(model: ModelName) -> int | None:
    from gramercy.providers.models import context_window

    return context_window(model)


def _opened(model: ModelName, providers: Callable[[ModelName], Provider] | None) -> Provider:
    if providers is None:
        from gramercy.providers.opening import open_provider

        providers = open_provider
    return providers(model)
