"""The public interface of an agent: read from gram or made in Python, bound to a library, run.

The loop combines the agent with its tools, the models that answer and the executor that guards calls.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict

from gramercy.agents.base import Finished, Limits, history_of
from gramercy.agents.binding import bind_agent
from gramercy.agents.limits import Meter
from gramercy.agents.prices import user_prices
from gramercy.agents.turns import Run, Shared, checked_message
from gramercy.errors import AgentError, InvalidToolError, SpecificationError, UnreadableFileError
from gramercy.execution.executor import Executor
from gramercy.gram.agents import AgentSpecification, ModelName, read_agents
from gramercy.gram.specification import ToolSpecification
from gramercy.gram.suggestion import did_you_mean
from gramercy.text import reason_of
from gramercy.tools.definition import tool as as_tool
from gramercy.tools.library import ToolLibrary, specified
from gramercy.tools.registry import Registry
from gramercy.tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
    from typing import Unpack

    from gramercy.agents.base import AgentEvent, Response, Talk
    from gramercy.agents.prices import Prices
    from gramercy.execution.approval import ApprovalHandler
    from gramercy.providers.base import Message, Provider


class Agent:
    """An instruction, a model, and tools by their specifications; a library has the implementations.

    Tools that are given as functions or Tool objects bring their own implementation.
    """

    library: ToolLibrary
    specification: AgentSpecification

    def __init__(  # noqa: PLR0913 - the parts of an agent are its arguments
        self,
        name: str,
        instruction: str,
        model: str | ModelName,
        tools: Iterable[ToolSpecification | Tool | Callable[..., Any]] = (),
        agents: Iterable[Agent | AgentSpecification] = (),
        *,
        description: str = "",
    ) -> None:
        given = [_tool_of(each) for each in tools]
        nested = list(agents)
        own = [each for each in given if isinstance(each, Tool)]
        own += [tool for each in nested if isinstance(each, Agent) for tool in each.library.values()]
        self.library = ToolLibrary.of(own)
        self.specification = AgentSpecification(
            name,
            instruction,
            ModelName.parse(model),
            description,
            tuple(specified(each) if isinstance(each, Tool) else each for each in given),
            tuple(each.specification if isinstance(each, Agent) else each for each in nested),
        )

    @classmethod
    def from_specification(cls, specification: AgentSpecification) -> Self:
        """Return the agent that is specified."""
        made = cls.__new__(cls)
        made.library, made.specification = ToolLibrary(), specification
        return made

    @classmethod
    def from_gram(cls, text: str, name: str | None = None) -> Self:
        """Read an agent from gram: the one of that name, else the first that is not nested in another."""
        return cls.from_specification(_chosen(read_agents(text), name))

    @classmethod
    def load(cls, path: str | Path, name: str | None = None) -> Self:
        """Read an agent from a file; UnreadableFileError says why it cannot be read."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise UnreadableFileError(f"{path} cannot be read: {reason_of(error)}") from None
        except UnicodeDecodeError as error:
            raise UnreadableFileError(
                f"{path} is not UTF-8 at byte {error.start}: an agent is text"
            ) from None
        return cls.from_gram(text, name)

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self.specification.name

    @property
    def model(self) -> ModelName:
        """The model that answers."""
        return self.specification.model

    def to_gram(self) -> str:
        """Write the agent with everything it uses."""
        return self.specification.to_gram()

    def __repr__(self) -> str:
        return f"<Agent {self.name} of {self.model} with {len(self.specification.elements)} tools>"

    def stream(
        self,
        message: str | None,
        library: ToolLibrary | Mapping[str, Tool] | Iterable[Tool] | None = None,
        *,
        conversation: Sequence[Message] | Response | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[AgentEvent, None]:
        """Run the agent on a message and yield its events as they happen; the last event is Finished.

        Without a message it resumes the conversation, after the calls that have no result. `provider` answers
        for every model, `providers` finds one for the name of a model; without both the provider is found by
        the name. `executor` provides policy, journal and hooks; its tools are not used.
        """
        loop = Loop(self.specification, _joined(self.library, library), **options)
        return loop.run(message, conversation)

    async def arun(
        self,
        message: str | None,
        library: ToolLibrary | Mapping[str, Tool] | Iterable[Tool] | None = None,
        *,
        conversation: Sequence[Message] | Response | None = None,
        **options: Unpack[RunOptions],
    ) -> Response:
        """Run the agent on a message; takes the arguments of `stream`."""
        loop = Loop(self.specification, _joined(self.library, library), **options)
        return await loop.answer(message, conversation)

    def run(self, message: str | None, library: Any = None, **options: Any) -> Response:
        """Run the agent on a message and wait for the answer; takes the arguments of `stream`.

        Inside of an event loop, as in a notebook, it runs on another thread while the loop waits.
        """
        return _finished(self.arun(message, library, **options))


def _finished(main: Coroutine[Any, Any, Response]) -> Response:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main)
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []

    async def noted() -> Response:
        running.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await main

    with ThreadPoolExecutor(1, "gramercy-agent") as pool:
        future = pool.submit(copy_context().run, asyncio.run, noted())
        try:
            return future.result()
        except KeyboardInterrupt:
            # Wait for the thread: it leaves the conversation in a consistent state.
            for loop, task in running:
                if task is not None and not future.done():
                    loop.call_soon_threadsafe(task.cancel)
            raise


def _tool_of(given: Any) -> ToolSpecification | Tool:
    if isinstance(given, ToolSpecification | Tool):
        return given
    if callable(given):
        made = as_tool(given)
        if isinstance(made, Tool):
            return made
    raise InvalidToolError(
        f"an agent's tool is a specification, a Tool or a function, not {type(given).__name__}"
    )


def _joined(own: ToolLibrary, given: Any) -> ToolLibrary:
    """Return the implementations to use: the given ones take precedence over the agent's own."""
    if given is None:
        return own
    library = (
        given
        if isinstance(given, ToolLibrary)
        else ToolLibrary.of(given.values() if hasattr(given, "values") else given)
    )
    return ToolLibrary.of({**own, **library}.values()) if own else library


def _chosen(found: tuple[AgentSpecification, ...], name: str | None) -> AgentSpecification:
    if not found:
        raise SpecificationError(
            'there is no agent in this text: write [name:Agent {instruction: "…", model: "…"} | …]'
        )
    if name is None:
        used = {each.name for agent in found for each in agent.agents}
        return next((agent for agent in found if agent.name not in used), found[0])
    for agent in found:
        if agent.name == name:
            return agent
    names = [agent.name for agent in found]
    hint = did_you_mean(name, names, f"there are {', '.join(names)}")
    raise SpecificationError(f"there is no agent named {name!r:.100}: {hint}")


def ignore(event: AgentEvent) -> None:
    """Ignore an event."""
    del event


class RunOptions(TypedDict, total=False):
    """The options of a run besides its message."""

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
        """Answer one message and yield events; None resumes a conversation.

        Closing the generator stops the run, and returns once the conversation is consistent.
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
                task.exception()  # no caller awaits a cancelled run, so its exception is retrieved here

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
                    with suppress(Exception):  # the outcome of the run says more
                        await provider.aclose()


# The conversations that runs of this process continue.
_going_on: dict[int, object] = {}


@contextmanager
def _alone(talk: Talk | None) -> Iterator[None]:
    """Refuse a second run on the same conversation: their messages would be mixed."""
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
