"""An agent as its users have it: read from gram or made in Python, bound to a library, run."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gramercy.agents.loop import Loop
from gramercy.errors import InvalidToolError, SpecificationError, UnreadableFileError
from gramercy.gram.agents import AgentSpecification, ModelName, read_agents
from gramercy.gram.specification import ToolSpecification
from gramercy.gram.suggestion import suggest
from gramercy.tools.definition import tool as as_tool
from gramercy.tools.library import ToolLibrary, specified
from gramercy.tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
    from typing import Unpack

    from gramercy.agents.base import AgentEvent, Response
    from gramercy.agents.loop import RunOptions
    from gramercy.providers.base import Message


class Agent:
    """An instruction, a model, and tools by their specifications; implementations come with a library.

    Tools that are given as functions or Tool objects bring their implementation with them.
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
        """Read an agent from gram: the one of that name, else the first that no other one uses."""
        return cls.from_specification(_chosen(read_agents(text), name))

    @classmethod
    def load(cls, path: str | Path, name: str | None = None) -> Self:
        """Read an agent from a file; UnreadableFileError says why it cannot be read."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise UnreadableFileError(f"{path} cannot be read: {error.strerror}") from None
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
        """Run the agent on a message and tell what happens as it happens; the last event is Finished.

        Without a message it goes on where the conversation was left, after the calls that have no result.
        `provider` answers for every model, `providers` finds one for the name of a model; without both the
        provider is found by the name. `executor` brings policy, journal and hooks; its tools are not used.
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
        """Run the agent on a message; takes what `stream` takes."""
        loop = Loop(self.specification, _joined(self.library, library), **options)
        return await loop.answer(message, conversation)

    def run(self, message: str | None, library: Any = None, **options: Any) -> Response:
        """Run the agent on a message and wait for the answer; takes what `stream` takes.

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
            # The thread is waited for: it leaves the conversation in order.
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
    """Return the implementations that count: those that are given come before the agent's own."""
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
    close = suggest(name, [agent.name for agent in found])
    hint = f"did you mean {close[0]!r}?" if close else "there are " + ", ".join(agent.name for agent in found)
    raise SpecificationError(f"there is no agent named {name!r:.100}: {hint}")
