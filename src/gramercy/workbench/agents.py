"""Join an agent of a file to tools, an image, other servers, rules and a journal: its workplace.

`run`, `chat`, `acp` and `compare` all open one.
"""

from __future__ import annotations

import shlex
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gramercy.agents.agent import Agent
from gramercy.agents.base import Limits
from gramercy.errors import ModelUnavailableError, SourceError
from gramercy.execution.executor import Executor
from gramercy.gram.agents import ModelName
from gramercy.images.trust import check_file, is_known
from gramercy.text import listed
from gramercy.tools.library import ToolLibrary, specified
from gramercy.tools.registry import Registry
from gramercy.toolsets.planning import PLAN, plan_tool
from gramercy.workbench.agent_files import read_agent
from gramercy.workbench.policies import read_policies
from gramercy.workbench.recording import Recording
from gramercy.workbench.sources import Origin, image_registry, load_tools
from gramercy.workbench.workplace import Tools, Workplace, with_model, with_more

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.execution.approval import ApprovalHandler
    from gramercy.execution.policy import Policy
    from gramercy.images.live import LiveImage
    from gramercy.toolsets.workspace import Workspace

ASSISTANT = (
    "You work with a programmer in their project, with tools in a live image of it. Look before you change "
    "something, try what you claim, and say briefly what you did and what came of it."
)
# Missing tools that are named on one line.
MOST_NAMED = 3
# A library's message about a specification without an implementation.
UNIMPLEMENTED = "implemented nothing of that name"
# Wait as short as possible: an unattended run reports at once that a call waits for a person.
AT_ONCE = 0.001


class Foreign(msgspec.Struct, frozen=True):
    """Other MCP servers whose accepted tools an agent may use, as the command line names them."""

    servers: tuple[str, ...] = ()
    pins: str | None = None
    rules: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """The options about an agent and its surroundings. `name` selects one agent of the file.

    `model` replaces the models that the file names, also those of nested agents. Without a file it is an
    assistant that may use all tools. Runs are recorded in `trace`, and `shadow` runs beside its tools.
    """

    file: str = ""
    name: str | None = None
    origin: Origin = Origin()
    model: str | None = None
    policy: str | None = None
    max_safety: str | None = None
    recording: Recording = Recording()
    limits: Limits = Limits()
    foreign: Foreign = Foreign()
    trace: str | None = None
    shadow: tuple[str, ...] = ()


@contextmanager
def open_workplace(
    plan: Plan,
    approver: ApprovalHandler | None,
    tell: Callable[[str], object],
    *,
    tools: ToolLibrary | None = None,
    may_run: Callable[[Path], bool] = lambda _: False,
) -> Iterator[Workplace]:
    """Yield a workplace with its agent. Images and servers end with the block.

    `approver` is asked about dangerous calls, `may_run` about a file of tools that was not named, and `tell`
    gets lines for the person. `tools` are those of the plan's sources where these are loaded already. The
    caller must close the providers, on the event loop that used them.
    """
    with ExitStack() as stack:
        plan = _with_tools_beside(plan, tell, may_run) if plan.file else _with_default_image(plan)
        plan = _with_usable_project(plan, stack, tell) if plan.origin.language else plan
        rules = read_policies(plan.origin.project, plan.policy)
        for remark in rules.remarks:
            tell(f"warning: {remark}")
        joined = _tools_of(plan, rules.policy, stack, tell, tools)
        agent = _agent_of(plan, joined, tell)
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
        place = Workplace(agent, joined, executor, project=project, limits=_patient(plan))
        if plan.trace is not None:
            from gramercy.agents.tracing import TraceFile

            place.traces = TraceFile(plan.trace)
        if plan.shadow:
            _add_shadow(plan, agent, executor, stack, tell)
        yield place


def _add_shadow(
    plan: Plan, agent: Agent, executor: Executor, stack: ExitStack, tell: Callable[[str], object]
) -> None:
    """Run other implementations beside the tools of an agent, and report the differences at the end."""
    from gramercy.agents.shadow import Shadow
    from gramercy.agents.tracing import tools_of

    library = load_tools(*plan.shadow).library()
    bound = []
    for specification in tools_of(agent.specification).values():
        found = library.bind(specification)
        bound += [found] if found is not None else []
        for mismatch in library.explain_binding(specification):
            tell(f"warning: no shadow of {specification.name}: {mismatch}")
    shadow = Shadow(ToolLibrary.of(bound), executor)
    executor.hooks.append(shadow)

    def end() -> None:
        for line in shadow.close().lines():
            tell(line)

    stack.callback(end)


def _tools_of(
    plan: Plan,
    policy: Policy,
    stack: ExitStack,
    tell: Callable[[str], object],
    loaded: ToolLibrary | None,
) -> Tools:
    """Collect the tools of files, of an image and of other servers."""
    registry = load_tools(*plan.origin.sources) if loaded is None else Registry(loaded.values())
    own = frozenset(registry.names())
    image = workspace = None
    if plan.origin.language is not None:
        from gramercy.toolsets.workspace import Workspace

        workspace = Workspace(plan.origin.project)
        image = _add_image(registry, plan, stack, (policy, workspace))
    of_image = frozenset(registry.names()) - own
    if plan.foreign.servers:
        _add_foreign(registry, plan, stack, tell)
    foreign = frozenset(registry.names()) - own - of_image
    if PLAN not in registry:
        registry.register(plan_tool())
    return Tools(registry.library(), image, workspace, of_image, foreign)


def _agent_of(plan: Plan, tools: Tools, tell: Callable[[str], object]) -> Agent:
    """Read the agent, or make one with all tools. It also gets the tools of servers named at the start."""
    if not plan.file:
        return _assistant(plan, tools)
    try:
        agent = read_agent(plan.file, plan.name, tools.library, tell)
    except SourceError as error:
        raise _without_image(plan, error) or _without_tools(plan, error) from None
    if tools.foreign:
        agent = with_more(agent, [specified(tools.library[name]) for name in sorted(tools.foreign)])
    return with_model(agent, ModelName.parse(plan.model)) if plan.model else agent


def _without_image(plan: Plan, error: SourceError) -> SourceError | None:
    """Return a better error where an agent wants tools of an image and there is no image."""
    if plan.origin.language is not None:
        return None
    from gramercy.workbench.selection import TOOLSETS

    names = sorted(name for name in frozenset().union(*TOOLSETS.values()) if f"tool {name!r}: " in str(error))
    if not names:
        return None
    missed = f"{plan.file} uses tools of a live image ({listed(names, MOST_NAMED)})"
    return SourceError(f"{missed}: say --image sbcl or --image python")


def _without_tools(plan: Plan, error: SourceError) -> SourceError:
    """Add how to name tools, where an agent wants some and none were named."""
    is_unnamed = not plan.origin.sources and not plan.foreign.servers
    if not is_unnamed or UNIMPLEMENTED not in str(error):
        return error
    return SourceError(f"{error}\n--tools FILE.py says where the tools of {plan.file} are defined")


def _assistant(plan: Plan, tools: Tools) -> Agent:
    from gramercy.workbench.selection import TOOLSETS

    if plan.model is None:
        raise ModelUnavailableError(
            "no model is named: say --model PROVIDER/ID or set GRAMERCY_MODEL "
            "(gramercy models list tells which can be had)"
        )
    unused = tools.of_image - TOOLSETS["default"]
    used = [specified(tool) for tool in tools.library.values() if tool.name not in unused]
    return Agent("assistant", ASSISTANT, plan.model, used, description="Works with a person in their project")


def _with_default_image(plan: Plan) -> Plan:
    """Use an image in the language of the project where nothing else was named."""
    if plan.origin.sources or plan.origin.language or plan.foreign.servers:
        return plan
    from gramercy.images.project import default_language

    origin = msgspec.structs.replace(plan.origin, language=default_language(plan.origin.project))
    return msgspec.structs.replace(plan, origin=origin)


def _patient(plan: Plan) -> Limits:
    """Let tools take as long as an image lets them: the image ends its own work, and reports more."""
    seconds = plan.limits.tool_seconds
    if plan.origin.language is None or seconds is None:
        return plan.limits
    patience = plan.origin.patience(max(plan.origin.timeout, plan.origin.timeout_limit or 0))
    return msgspec.structs.replace(plan.limits, tool_seconds=max(seconds, patience))


def _with_usable_project(plan: Plan, stack: ExitStack, tell: Callable[[str], object]) -> Plan:
    """Let the image work in an empty directory where it may not work here."""
    from gramercy.workbench.site import usable_project

    origin = plan.origin
    project = stack.enter_context(usable_project(origin.project, sandbox=origin.sandbox, tell=tell))
    return msgspec.structs.replace(plan, origin=msgspec.structs.replace(origin, project=project))


def _with_tools_beside(plan: Plan, tell: Callable[[str], object], may_run: Callable[[Path], bool]) -> Plan:
    """Use the Python file of the same name beside the agent, where no other tools are named.

    It runs on the host, and the person has only named a description. So the first time they must agree to it.
    """
    beside = Path(plan.file).with_suffix(".py")
    # A Python file that was named as the agent is not an agent. Its reader will report that.
    if plan.origin.sources or beside == Path(plan.file) or not beside.is_file():
        return plan
    if not is_known(beside) and not may_run(beside):
        where = shlex.quote(str(beside))
        raise SourceError(
            f"{beside} beside the agent would run on this machine, outside of any sandbox, and was not "
            f"named: look at it, then say --tools {where}, or accept it with: gramercy trust {where}"
        )
    tell(f"tools of {beside}")
    origin = msgspec.structs.replace(plan.origin, sources=(str(beside),))
    return msgspec.structs.replace(plan, origin=origin)


def _add_image(
    registry: Registry, plan: Plan, stack: ExitStack, about: tuple[Policy, Workspace]
) -> LiveImage:
    """Add the tools of a live image, in which our own files are read-only."""
    from gramercy.workbench.keeping import walled
    from gramercy.workbench.sources import live_image

    origin, project = plan.origin, Path(plan.origin.project).resolve()
    policy, workspace = about
    environment, own = origin.environment, (plan.file, plan.policy, plan.foreign.pins, *origin.sources)
    if origin.sandbox:
        environment = walled(environment, project, own, policy)
    image = stack.enter_context(
        live_image(
            origin.language,
            project=origin.project,
            sandbox=origin.sandbox,
            timeout=origin.timeout,
            environment=environment,
        )
    )
    # A specification names every argument with its bounds: a limit of this machine would not match.
    limit = None if plan.file else origin.timeout_limit
    for tool in image_registry(image, image.language, workspace, limit).library().values():
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
