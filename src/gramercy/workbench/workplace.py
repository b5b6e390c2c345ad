"""An agent with its tools: the object that `run`, `chat`, `acp` and `compare` hold while it runs.

`agents` assembles the parts. The user interfaces decide how to show them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gramercy.agents.agent import Agent
from gramercy.errors import GramercyError
from gramercy.gram.agents import ModelName
from gramercy.journal.sessions import sessions_of
from gramercy.tools.library import ToolLibrary, specified
from gramercy.workbench.modes import PLANNING, Mode, approver_in, policy_in

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from gramercy.agents.base import AgentEvent, Limits, Response, Talk
    from gramercy.agents.mentions import Mentions
    from gramercy.agents.tracing import TraceFile
    from gramercy.execution.executor import Executor
    from gramercy.gram.agents import AgentSpecification
    from gramercy.gram.specification import ToolSpecification
    from gramercy.images.live import LiveImage
    from gramercy.journal.base import Journal
    from gramercy.providers.base import Message, Provider
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.workspace import Workspace


class Tools(NamedTuple):
    """The tools and their workspace, and the names of those of the image and of servers."""

    library: ToolLibrary
    image: LiveImage | None = None
    workspace: Workspace | None = None
    of_image: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()


class Workplace:
    """An agent with everything that it works with, until the end of the block that opened it.

    Providers are opened once for each name, on first use. All of it lives on one event loop.
    """

    def __init__(
        self,
        agent: Agent,
        tools: Tools,
        executor: Executor,
        *,
        project: str,
        limits: Limits,
    ) -> None:
        self._agent = agent
        self.tools = tools
        self.executor = executor
        self.project = project
        self.limits = limits
        self.sessions = sessions_of(executor.journal)
        self.open_provider: Callable[[ModelName], Provider] = _open_provider
        self._providers: dict[str, Provider] = {}
        self._policy, self._approver = executor.policy, executor.approval_handler
        self.mode = Mode.ASK
        # Texts that follow the agent's own instruction, such as a role.
        self.additions: dict[str, str] = {}
        self.traces: TraceFile | None = None

    @property
    def agent(self) -> Agent:
        """The agent with the chosen model, role and mode."""
        planning = (PLANNING,) if self.mode is Mode.PLAN else ()
        added = [text for text in (*self.additions.values(), *planning) if text.strip()]
        if not added:
            return self._agent
        own = self._agent.specification
        made = Agent.from_specification(replace(own, instruction="\n\n".join([own.instruction, *added])))
        made.library = self._agent.library
        return made

    def use_mode(self, mode: Mode) -> None:
        """Switch to a mode."""
        self.mode = mode
        self.executor = self.executor.with_approver(approver_in(mode, self._approver, self.tools.of_image))
        self.executor.policy = policy_in(mode, self._policy)

    @property
    def library(self) -> ToolLibrary:
        """The implementations of tools."""
        return self.tools.library

    @property
    def workspace(self) -> Workspace | None:
        """The files that the tools of the image work on, if any."""
        return self.tools.workspace

    def add_tools(self, tools: Iterable[Tool]) -> list[str]:
        """Let the agent use tools of other servers too. Return the unusable ones with the reason."""
        found, told = [], []
        for tool in tools:
            try:
                found.append((tool, specified(tool)))
            except GramercyError as error:
                told.append(f"{tool.name} is left out: {error}")
        library = ToolLibrary.of([*self.library.values(), *(tool for tool, _ in found)])
        names = frozenset(tool.name for tool, _ in found)
        self.tools = self.tools._replace(library=library, foreign=self.tools.foreign | names)
        self._agent = with_more(self._agent, [specification for _, specification in found])
        return told

    @property
    def image(self) -> LiveImage | None:
        """The live image of the tools, if there is one."""
        return self.tools.image

    @property
    def images(self) -> tuple[LiveImage, ...]:
        """The live images: one or none."""
        return () if self.tools.image is None else (self.tools.image,)

    @property
    def journal(self) -> Journal:
        """The journal of the calls."""
        return self.executor.journal

    @property
    def model(self) -> ModelName:
        """The current model."""
        return self._agent.model

    def use_model(self, name: str | ModelName) -> None:
        """Switch to another model, for nested agents too. ProviderError if it is unavailable."""
        model = ModelName.parse(name)
        self.provider(model)
        self._agent = with_model(self._agent, model)

    def provider(self, model: ModelName) -> Provider:
        """Return the provider of a model. The same name gives the same provider."""
        # Some providers, such as those in this process, have one model each.
        key = f"{model.provider.casefold()}/{model.id}"
        found = self._providers.get(key)
        if found is None:
            found = self._providers[key] = self.open_provider(model)
        return found

    def mentions(self, conversation: Callable[[], Sequence[Message]] = tuple) -> Mentions:
        """Return the resolver for mentions in a message: files of the project, things of the image."""
        from gramercy.agents.mentions import Mentions
        from gramercy.toolsets.workspace import Workspace

        workspace = self.tools.workspace or Workspace(self.project)
        return Mentions(workspace, self.images, self.journal, conversation)

    def stream(
        self,
        message: str | None,
        conversation: Sequence[Message] | Response | None = None,
        *,
        talk: Talk | None = None,
        limits: Limits | None = None,
    ) -> AsyncGenerator[AgentEvent, None]:
        """Run the agent on a message. The last event is Finished.

        Without a message it resumes the conversation, after the calls that have no result.
        """
        agent = self.agent
        start = partial(
            agent.stream,
            message,
            self.library,
            conversation=conversation,
            executor=self.executor,
            limits=limits or self.limits,
            talk=talk,
            project=self.project,
        )
        if self.traces is None:
            return start(providers=self.provider)
        return self.traces.stream(agent.specification, message or "", self.provider, start)

    async def aclose(self) -> None:
        """Close the providers."""
        for provider in self._providers.values():
            await provider.aclose()
        self._providers.clear()


def _open_provider(model: ModelName) -> Provider:
    from gramercy.providers.opening import open_provider
    from gramercy.workbench.plugins import load_plugins

    load_plugins()
    return open_provider(model)


def with_more(agent: Agent, tools: Iterable[ToolSpecification]) -> Agent:
    """Return an agent that uses these tools besides its own."""
    own = agent.specification
    known = {each.name for each in own.elements}
    more = (each for each in tools if each.name not in known)
    made = Agent.from_specification(replace(own, tools=(*own.tools, *more)))
    made.library = agent.library
    return made


def with_model(agent: Agent, model: ModelName) -> Agent:
    """Return the agent with another model, also for its nested agents."""
    made = Agent.from_specification(_with_model(agent.specification, model))
    made.library = agent.library
    return made


def _with_model(agent: AgentSpecification, model: ModelName) -> AgentSpecification:
    return replace(agent, model=model, agents=tuple(_with_model(each, model) for each in agent.agents))
