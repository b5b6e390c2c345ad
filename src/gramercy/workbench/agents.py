"""Agents at their place of work: an agent of a file joined to tools, an image, a provider, rules, a journal.

`run`, `chat`, `acp` and `compare` all open one; what a person sees of it is their own business.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.agents.agent import Agent
from gramercy.agents.base import Limits, Response
from gramercy.errors import GramError, SourceError
from gramercy.execution.executor import Executor
from gramercy.gram.agents import ModelName
from gramercy.images.trust import check_file
from gramercy.journal.sessions import sessions_of
from gramercy.tools.registry import Registry
from gramercy.workbench.policies import read_policies
from gramercy.workbench.recording import Recording
from gramercy.workbench.sources import Origin, image_registry, load_tools

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from gramercy.agents.base import AgentEvent, Talk
    from gramercy.execution.approval import ApprovalHandler
    from gramercy.gram.agents import AgentSpecification
    from gramercy.images.live import LiveImage
    from gramercy.journal.base import Journal
    from gramercy.providers.base import Message, Provider
    from gramercy.tools.library import ToolLibrary

# As short as can be: a run that nobody attends says at once that a call waits for a person.
AT_ONCE = 0.001
# More than people write; a file of this size is something else.
LARGEST_FILE = 4_000_000


class Foreign(msgspec.Struct, frozen=True):
    """Other MCP servers whose accepted tools an agent may use, as the command line names them."""

    servers: tuple[str, ...] = ()
    pins: str | None = None
    rules: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """What was said about an agent and what it works with; `name` chooses one agent of the file.

    `model` stands in for the models that the file names, of nested agents too.
    """

    file: str
    name: str | None = None
    origin: Origin = Origin()
    model: str | None = None
    policy: str | None = None
    max_safety: str | None = None
    recording: Recording = Recording()
    limits: Limits = Limits()
    foreign: Foreign = Foreign()


class Workplace:
    """An agent with all that it works with, until the block ends that opened it.

    Providers are opened once for each name, when they are first asked. All of it lives on one event loop.
    """

    def __init__(  # noqa: PLR0913 - what is joined here
        self,
        agent: Agent,
        library: ToolLibrary,
        executor: Executor,
        *,
        project: str,
        limits: Limits,
        image: LiveImage | None = None,
    ) -> None:
        self.agent = agent
        self.library = library
        self.executor = executor
        self.project = project
        self.limits = limits
        self.image = image
        self.sessions = sessions_of(executor.settings.journal)
        self.open_provider: Callable[[ModelName], Provider] = _open_provider
        self._providers: dict[str, Provider] = {}

    @property
    def journal(self) -> Journal:
        """Where the calls are recorded."""
        return self.executor.settings.journal

    @property
    def model(self) -> ModelName:
        """The model that answers."""
        return self.agent.model

    def use_model(self, name: str | ModelName) -> None:
        """Let another model answer from now on, for nested agents too; ProviderError if it cannot be had."""
        model = ModelName.parse(name)
        self.provider(model)
        self.agent = with_model(self.agent, model)

    def provider(self, model: ModelName) -> Provider:
        """Return the provider of a model; the same one for the same name."""
        # A scripted model is known by its script; of all others one provider answers for every id.
        key = str(model).casefold() if model.provider.casefold() == "scripted" else model.provider.casefold()
        found = self._providers.get(key)
        if found is None:
            found = self._providers[key] = self.open_provider(model)
        return found

    def stream(
        self,
        message: str,
        conversation: Sequence[Message] | Response | None = None,
        *,
        talk: Talk | None = None,
        limits: Limits | None = None,
    ) -> AsyncIterator[AgentEvent]:
        """Run the agent on a message; the last event is Finished."""
        return self.agent.stream(
            message,
            self.library,
            providers=self.provider,
            conversation=conversation,
            executor=self.executor,
            limits=limits or self.limits,
            talk=talk,
        )

    async def aclose(self) -> None:
        """Let the providers go."""
        for provider in self._providers.values():
            await provider.aclose()
        self._providers.clear()


def _open_provider(model: ModelName) -> Provider:
    from gramercy.providers.opening import open_provider
    from gramercy.workbench.plugins import load_plugins

    load_plugins()
    return open_provider(model)


@contextmanager
def open_workplace(
    plan: Plan,
    approver: ApprovalHandler | None,
    tell: Callable[[str], object],
    *,
    tools: ToolLibrary | None = None,
) -> Iterator[Workplace]:
    """Give an agent with all that it works with; images and servers end with the block.

    `approver` is asked about dangerous calls, `tell` gets lines for the person; `tools` are those of the
    plan's sources where these are loaded already. The providers are the caller's to close, on the event loop
    that used them.
    """
    with ExitStack() as stack:
        plan = _with_tools_beside(plan, tell)
        rules = read_policies(plan.origin.project, plan.policy)
        for remark in rules.remarks:
            tell(f"warning: {remark}")
        registry = load_tools(*plan.origin.sources) if tools is None else Registry(tools.values())
        image = _add_image(registry, plan, stack, rules.policy) if plan.origin.language else None
        if plan.foreign.servers:
            _add_foreign(registry, plan, stack, tell)
        library = registry.library()
        agent = read_agent(plan.file, plan.name, library, tell)
        if plan.model:
            agent = with_model(agent, ModelName.parse(plan.model))
        journal = plan.recording.open(plan.origin.project, tell)
        stack.callback(journal.close)
        executor = Executor(
            Registry(),
            approver,
            policy=rules.policy,
            journal=journal,
            max_safety_level=plan.max_safety,
            approval_wait=plan.recording.wait or AT_ONCE,
            approval_expiry=plan.recording.expiry,
        )
        project = str(Path(plan.origin.project).resolve())
        yield Workplace(agent, library, executor, project=project, limits=_patient(plan), image=image)


def _patient(plan: Plan) -> Limits:
    """Let tools take as long as an image lets them: it ends its work by itself, and tells more."""
    seconds = plan.limits.tool_seconds
    if plan.origin.language is None or seconds is None:
        return plan.limits
    patience = plan.origin.patience(plan.origin.timeout)
    return msgspec.structs.replace(plan.limits, tool_seconds=max(seconds, patience))


def _with_tools_beside(plan: Plan, tell: Callable[[str], object]) -> Plan:
    """Take the Python file of the same name beside the agent, where no other tools are named."""
    beside = Path(plan.file).with_suffix(".py")
    if plan.origin.sources or not beside.is_file():
        return plan
    tell(f"tools of {beside}")
    origin = msgspec.structs.replace(plan.origin, sources=(str(beside),))
    return msgspec.structs.replace(plan, origin=origin)


def _add_image(registry: Registry, plan: Plan, stack: ExitStack, policy: Any) -> LiveImage:
    """Add the tools of a live image, in which our own files are read-only."""
    from gramercy.workbench.keeping import walled
    from gramercy.workbench.sources import live_image

    origin, project = plan.origin, Path(plan.origin.project).resolve()
    environment, own = origin.environment, (plan.file, plan.policy, plan.foreign.pins, *origin.sources)
    if origin.sandbox:
        environment = walled(environment, project, own, policy, registry.library().values())
    image = stack.enter_context(
        live_image(
            origin.language,
            project=origin.project,
            sandbox=origin.sandbox,
            timeout=origin.timeout,
            environment=environment,
        )
    )
    for tool in image_registry(image, image.language, origin.project).library().values():
        if tool.name in registry:
            raise SourceError(
                f"{', '.join(origin.sources)} defines {tool.name}, which the image has too: rename it"
            )
        registry.register(tool)
    return image


def _add_foreign(registry: Registry, plan: Plan, stack: ExitStack, tell: Callable[[str], object]) -> None:
    from gramercy.workbench.foreign import ForeignServers, name_server

    said = plan.foreign
    if said.pins and Path(said.pins).is_file():
        check_file(said.pins)
    named = [
        name_server(word, variables=said.variables, timeout=plan.origin.timeout) for word in said.servers
    ]
    servers = ForeignServers(named, said.pins, said.rules)
    stack.callback(servers.close)
    servers.register(registry)

    def told(line: str) -> None:
        tell(line)

    servers.check(told)


def read_agent(
    file: str, name: str | None, library: ToolLibrary, tell: Callable[[str], object] = lambda _: None
) -> Agent:
    """Read an agent of a file, or raise SourceError with every fault of it by line and column.

    What is only a warning is told.
    """
    text = _text(file)
    _check(text, file, (), tell)
    try:
        agent = Agent.from_gram(text, name)
    except GramError as error:
        raise SourceError(f"{file}: {error}") from None
    _check(text, file, _used(agent.specification), tell, library)
    return agent


def _text(file: str) -> str:
    path = Path(file)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise SourceError(f"{file} is larger than {LARGEST_FILE:,} bytes: it is no agent")
        return check_file(path, path.read_bytes()).decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"{file} is not UTF-8 at byte {error.start}: an agent is a text in gram") from None
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror}") from None


def _check(
    text: str,
    file: str,
    used: Sequence[str],
    tell: Callable[[str], object],
    library: ToolLibrary | None = None,
) -> None:
    """Raise what makes an agent unusable; with a library, what of the tools that it uses has no match."""
    from gramercy.gram.lint.diagnostics import Severity
    from gramercy.gram.lint.linter import lint

    def explain(specification: Any) -> Any:
        return () if library is None else library.explain_binding(specification)

    found = lint(text, explain=lambda each: explain(each) if each.name in used else ())
    wrong = []
    for each in found:
        line = f"{file}:{each.start.line + 1}:{each.start.character + 1}: {each.code} {each.message}"
        if each.severity is Severity.ERROR:
            wrong.append(line)
        elif each.severity is Severity.WARNING and library is None:
            tell(f"warning: {line}")
    if wrong:
        raise SourceError("\n".join(wrong))


def _used(agent: AgentSpecification) -> tuple[str, ...]:
    """Return the names of all tools that an agent and the agents in it use."""
    return (*(tool.name for tool in agent.tools), *(name for each in agent.agents for name in _used(each)))


def with_model(agent: Agent, model: ModelName) -> Agent:
    """Return the agent with another model, and the agents in it too."""
    made = Agent.from_specification(_with_model(agent.specification, model))
    made.library = agent.library
    return made


def _with_model(agent: AgentSpecification, model: ModelName) -> AgentSpecification:
    return replace(agent, model=model, agents=tuple(_with_model(each, model) for each in agent.agents))
