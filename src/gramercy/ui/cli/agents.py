"""Shared parts of the commands that run agents: their options, and the approver that asks a person."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gramercy.agents.base import MOST_CALLS, MOST_COST, MOST_TURNS, Limits
from gramercy.agents.talks import SessionTalk
from gramercy.errors import SpecificationError
from gramercy.execution.approval import Denied
from gramercy.execution.results import Refuser
from gramercy.gram.agents import ModelName
from gramercy.text import reveal_line
from gramercy.ui.cli.approval import LEFT, one_at_a_time
from gramercy.ui.cli.asking import is_confirmed, why_nobody
from gramercy.ui.cli.options import (
    LEVELS,
    a_whole_file,
    approval_options,
    environment_options,
    foreign_options,
    image_option,
    place_options,
    policy_option,
    timeout_limit_option,
    timeout_option,
)
from gramercy.ui.cli.terminal import tell
from gramercy.workbench.agents import Foreign, Plan
from gramercy.workbench.sources import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from gramercy.execution.approval import ApprovalRequest, Decision
    from gramercy.tools.tool import Tool
    from gramercy.workbench.workplace import Workplace

# Each signal writes one byte. This is more than can arrive between two reads.
READ_BYTES = 4096
NOBODY = Denied("nobody can be asked: standard input is not a terminal", Refuser.NOBODY)


def _model(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse a value that names no model."""
    try:
        return value and str(ModelName.parse(value))
    except SpecificationError as error:
        raise click.BadParameter(str(error), ctx, param) from None


_AGENT_OPTIONS = (
    click.option("--agent", "name", metavar="NAME", help="Which agent, where the file holds several."),
    click.option(
        "--model",
        metavar="PROVIDER/ID",
        callback=_model,
        help="The model that answers instead of those that the file names (or GRAMERCY_MODEL).",
    ),
)
_TOOL_OPTIONS = (
    click.option(
        "--tools",
        "--from",
        "sources",
        multiple=True,
        envvar="GRAMERCY_TOOLS",
        metavar="FILE.py|MODULE",
        help="Where the tools are defined; may be given several times. By default the .py file of the same "
        "name beside the agent, if it was used or accepted before.",
    ),
    image_option,
    click.option("--max-safety", type=LEVELS, help="Refuse tools above this level."),
)
_LIMIT_OPTIONS = (
    click.option(
        "--max-turns",
        type=click.IntRange(min=1),
        default=MOST_TURNS,
        show_default=True,
        help="How often the model is asked for one message.",
    ),
    click.option(
        "--max-calls",
        type=click.IntRange(min=1),
        default=MOST_CALLS,
        show_default=True,
        help="How many tool calls one message may take.",
    ),
    click.option(
        "--max-seconds",
        type=click.FloatRange(min=0, min_open=True),
        help="How long one message may take.",
    ),
    click.option("--max-tokens", type=click.IntRange(min=1), help="How many tokens one message may take."),
    click.option(
        "--budget",
        type=click.FloatRange(min=0),
        metavar="DOLLARS",
        help=f"What one message may cost; by default {MOST_COST:g}, 0 is without limit.",
    ),
    click.option(
        "--session-budget",
        type=click.FloatRange(min=0, min_open=True),
        metavar="DOLLARS",
        help="What the whole conversation may cost.",
    ),
)


def agent_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which agent runs with what; the command gets them as `plan`.

    The path of the agent is an argument of the command's own, named `file`.
    """
    return _planned(command, (*_AGENT_OPTIONS, *_TOOL_OPTIONS, *_LIMIT_OPTIONS))


def calling_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same options without the agent, the model and the limits, for a command that asks no model."""
    return _planned(command, _TOOL_OPTIONS)


def _planned(
    command: Callable[..., Any], own: Sequence[Callable[..., Callable[..., Any]]]
) -> Callable[..., Any]:
    @wraps(command)
    def wrapped(**options: Any) -> Any:
        taken = options.pop
        place, times = (taken("project"), taken("sandbox")), (taken("timeout"), taken("timeout_limit"))
        plan = Plan(
            taken("file") or "",
            taken("name", None),
            Origin(taken("sources"), taken("image"), *place, taken("environment"), *times),
            taken("model", None),
            taken("policy"),
            taken("max_safety"),
            taken("recording"),
            _limits(options) if "budget" in options else Limits(),
            Foreign(*(taken(name) for name in ("foreign", "foreign_pins", "foreign_rules", "foreign_env"))),
            taken("trace", None),
            taken("shadow", ()),
        )
        return command(plan=plan, **options)

    made = place_options(environment_options(timeout_limit_option(timeout_option(approval_options(wrapped)))))
    made = foreign_options(policy_option(made))
    for option in reversed(own):
        made = option(made)
    return made


def _limits(options: dict[str, Any]) -> Limits:
    names = {"turns": "max_turns", "calls": "max_calls", "seconds": "max_seconds", "tokens": "max_tokens"}
    names["session_cost"] = "session_budget"
    told = {name: options.pop(option) for name, option in names.items()}
    budget = options.pop("budget")
    if budget is not None:
        told["cost"] = budget or None
    return Limits(**told)


def watching_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that record runs and set other tools beside; they become a part of `plan`."""
    trace = click.option(
        "--trace",
        type=click.Path(dir_okay=False, writable=True),
        callback=a_whole_file,
        metavar="FILE.gram",
        help="Record the runs as traces, for gramercy traces and compare.",
    )
    shadow = click.option(
        "--shadow",
        multiple=True,
        metavar="FILE.py|MODULE",
        help="Other implementations of the tools: safe calls are made with them too, and differences told.",
    )
    return trace(shadow(command))


def debug_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that shows the requests to a model and its answers."""
    return click.option(
        "--debug",
        is_flag=True,
        help="Show requests, answers and tokens on standard error; keys are not in them.",
    )(command)


def talk_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which conversation goes on; the command gets them as `talking`."""

    @wraps(command)
    def wrapped(*, session: str | None, is_continued: bool, fork: bool, title: str, **options: Any) -> Any:
        if session and is_continued:
            raise click.UsageError("say either --session NAME or --continue")
        return command(talking=Talking(session, is_continued, fork, title), **options)

    for option in reversed(
        (
            click.option(
                "--continue", "is_continued", is_flag=True, help="Go on with the last conversation."
            ),
            click.option(
                "--session",
                "--resume",
                metavar="ID|TITLE",
                help="Go on with this conversation (see gramercy sessions).",
            ),
            click.option(
                "--fork", is_flag=True, help="Go on in a copy, and leave the conversation as it is."
            ),
            click.option("--title", default="", help="What the conversation is called in lists."),
        )
    ):
        wrapped = option(wrapped)
    return wrapped


class Talking(NamedTuple):
    """Which conversation was asked for; without a name a new one."""

    session: str | None = None
    is_continued: bool = False
    is_forked: bool = False
    title: str = ""

    def talk(self, place: Workplace) -> SessionTalk:
        """Find the conversation, or begin one."""
        images = place.images
        if self.is_continued:
            found = SessionTalk.latest(place.sessions, project=place.project, images=images)
        elif self.session:
            found = SessionTalk.resume(place.sessions, self.session, project=place.project, images=images)
        else:
            return new_talk(place, self.title)
        found = found.fork(title=self.title) if self.is_forked else found
        if self.title:
            found.rename(self.title)
        return found


def new_talk(place: Workplace, title: str = "") -> SessionTalk:
    """Begin a conversation with an agent."""
    return SessionTalk.begin(
        place.sessions,
        title,
        agent=place.agent.name,
        model=str(place.model),
        project=place.project,
        images=place.images,
    )


def may_run(path: Path) -> bool:
    """Ask whether a file of tools that was not named may run here; without a person it may not."""
    if why_nobody():
        return False
    tell(f"{path} is beside the agent: its tools would run on this machine, outside of any sandbox")
    return is_confirmed(f"run {reveal_line(str(path))}?")


@contextmanager
def stoppable_runner() -> Iterator[asyncio.Runner]:
    """Give a runner whose coroutines Ctrl-C stops at any moment.

    Python handles a signal that arrives just before the loop waits only at the next event, and an answer that
    hangs brings no event. Signals are written to a socket, and the loop reads it: that is the event.
    """
    ours, theirs = socket.socketpair()
    with asyncio.Runner() as runner, ours, theirs:
        # A write to a full socket must not block the code that the signal interrupts.
        ours.settimeout(0)
        theirs.settimeout(0)
        loop = runner.get_loop()
        loop.add_reader(ours, ours.recv, READ_BYTES)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield runner
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(ours)


class Asking:
    """Asks the person at the terminal; without one a question stays open for `gramercy approvals`.

    When the person stops an answer, its open question is withdrawn: the next line that is typed does not
    answer it.
    """

    def __init__(self) -> None:
        self._is_stopped = threading.Event()
        # Handlers are called on other threads. They need this context to know whether colours are allowed.
        self._context = click.get_current_context(silent=True)
        # The context in which a question is asked: it gives the question the keyboard.
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext

    def __call__(self, tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Decision:
        """Ask about one call."""
        if why_nobody():
            return NOBODY
        is_stopped = self._is_stopped

        def is_open() -> bool:
            if is_stopped.is_set():
                raise _StoppedError
            return request.is_open()

        scope = nullcontext() if self._context is None else self._context.scope(cleanup=False)
        try:
            with scope, self.around():
                return one_at_a_time(tool, arguments, replace(request, is_open=is_open))
        except _StoppedError:
            return LEFT

    @contextmanager
    def until_stopped(self) -> Iterator[None]:
        """Allow questions until the block ends, then withdraw an open one."""
        self._is_stopped = stopped = threading.Event()
        try:
            yield
        finally:
            stopped.set()


class _StoppedError(Exception):
    """The person has stopped the run that asked; never leaves this module."""
