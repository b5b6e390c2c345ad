"""`gramercy acp`: an agent of a gram file in editors, by the Agent Client Protocol on stdin and stdout."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from gramercy.agents.agent import Agent
from gramercy.errors import GramError, SourceError
from gramercy.journal.sessions import sessions_of
from gramercy.ui.cli.agents import agent_options
from gramercy.ui.cli.options import told_settings
from gramercy.ui.cli.terminal import tell
from gramercy.workbench.agents import Plan, open_workplace
from gramercy.workbench.configuration import read_configuration
from gramercy.workbench.modes import Mode
from gramercy.workbench.rewinding import Rewinding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.execution.approval import ApprovalHandler
    from gramercy.journal.base import Journal
    from gramercy.workbench.settings import Settings
    from gramercy.workbench.workplace import Workplace

# Editors kill an agent that still runs a few seconds after they closed its input.
LEAVING_SECONDS = 1.0
# The name of an agent that no file describes.
ASSISTANT = "assistant"


class EditorHost:
    """Opens a workplace in the directory of each editor session. All of them share one journal."""

    def __init__(self, plan: Plan, told: Settings, journal: Journal, agent: str) -> None:
        self._plan = plan
        self._told = told
        self.agent = agent
        self.sessions = sessions_of(journal)
        self.modes = tuple(Mode)

    def rewinding(self, place: Workplace) -> Rewinding:
        """Return the object that undoes the work done in a workplace."""
        return Rewinding(place)

    @contextmanager
    def open(
        self, project: str, approver: ApprovalHandler, tell: Callable[[str], object]
    ) -> Iterator[Workplace]:
        """Open a workplace in this directory."""

        def told(line: str) -> None:
            _tell(line)
            # The lines that name the sources of the tools go to the editor's log only.
            if not line.startswith("tools of "):
                tell(line)

        with open_workplace(self._plan_in(project, told), approver, told) as place:
            yield place

    def _plan_in(self, project: str, tell: Callable[[str], object]) -> Plan:
        """Return the plan for a directory that an editor named, with that directory's own configuration."""
        configuration = read_configuration(project, self._told)
        for remark in configuration.remarks:
            tell(f"warning: {remark}")
        origin = msgspec.structs.replace(
            self._plan.origin,
            project=project,
            environment=msgspec.structs.replace(configuration.environment, notes=()),
            timeout=configuration.timeout,
            timeout_limit=configuration.timeout_limit,
        )
        return msgspec.structs.replace(self._plan, origin=origin)


@click.command()
@click.argument("file", metavar="[AGENT.gram]", required=False, type=click.Path(exists=True, dir_okay=False))
@agent_options
def acp(plan: Plan) -> None:
    """Let an editor talk with an agent of a gram file (Zed, Emacs, Neovim, JetBrains).

    It speaks the Agent Client Protocol on standard input and output, and works in the directory that the
    editor names for each session. Dangerous calls are asked about in the editor. Without a file it is an
    assistant that works in a live image of the project; that needs --model.
    """
    from gramercy.mcp.stdio import claim_descriptors

    if sys.stdin is not None and sys.stdin.isatty():
        click.echo("waiting for an editor on standard input; Ctrl-C ends, --help tells more", err=True)
    # Claim the wire before any user code runs: user code might print to it.
    wire = claim_descriptors()
    if plan.file:
        plan = msgspec.structs.replace(plan, file=str(Path(plan.file).resolve()))
    # The journal must lie outside of the project. That is checked later, for the directory of each session.
    with closing(plan.recording.open(os.devnull, _tell)) as journal:
        told = told_settings(dict(click.get_current_context().params))
        host = EditorHost(plan, told, journal, _name(plan))
        from gramercy.acp.engine import AcpEngine
        from gramercy.mcp.stdio import run_stdio

        engine = AcpEngine(host)
        try:
            run_stdio(engine, wire)
        finally:
            # A tool on a thread that cannot be stopped must not keep this process alive.
            last_resort = threading.Timer(LEAVING_SECONDS, partial(os._exit, 0))
            last_resort.daemon = True
            last_resort.start()
            engine.end()


def _name(plan: Plan) -> str:
    """Return the agent's name. Its tools are checked later, in the directory of a session."""
    try:
        return Agent.load(plan.file, plan.name).name if plan.file else ASSISTANT
    except (GramError, UnicodeDecodeError) as error:
        raise SourceError(f"{plan.file}: {error}") from None


def _tell(line: str) -> None:
    tell(f"gramercy: {line}")
