"""What the commands that run agents share: their options, and who is asked about a call."""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from gramercy.agents.base import MOST_CALLS, MOST_TURNS, Limits
from gramercy.errors import SpecificationError
from gramercy.execution.approval import Denied
from gramercy.execution.results import Refuser
from gramercy.gram.agents import ModelName
from gramercy.ui.cli.approval import one_at_a_time
from gramercy.ui.cli.options import (
    LANGUAGE,
    LEVELS,
    approval_options,
    environment_options,
    foreign_options,
    place_options,
    policy_option,
    timeout_option,
)
from gramercy.workbench.agents import Foreign, Plan
from gramercy.workbench.sources import Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.execution.approval import ApprovalRequest, Decision
    from gramercy.tools.tool import Tool

NOBODY = Denied("nobody can be asked: standard input is not a terminal", Refuser.NOBODY)


def _model(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse at once what names no model."""
    try:
        return value and str(ModelName.parse(value))
    except SpecificationError as error:
        raise click.BadParameter(str(error), ctx, param) from None


_AGENT_OPTIONS = (
    click.option("--agent", "name", metavar="NAME", help="Which agent, where the file holds several."),
    click.option(
        "--model",
        envvar="GRAMERCY_MODEL",
        metavar="PROVIDER/ID",
        callback=_model,
        help="The model that answers instead of those that the file names (or GRAMERCY_MODEL).",
    ),
    click.option(
        "--tools",
        "--from",
        "sources",
        multiple=True,
        envvar="GRAMERCY_TOOLS",
        metavar="FILE.py|MODULE",
        help="Where the tools are defined; may be given several times. By default the .py file of the same "
        "name beside the agent, if there is one.",
    ),
    click.option("--image", type=LANGUAGE, help="Also the tools of a live image of this language."),
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
        type=click.IntRange(min=0),
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
        help="What one message may cost; a model without a known price is warned about.",
    ),
)


def agent_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which agent runs with what; the command gets them as `plan`.

    The path of the agent is an argument of the command's own, named `file`.
    """

    @wraps(command)
    def wrapped(**options: Any) -> Any:
        taken = options.pop
        environment, timeout, project = taken("environment"), taken("timeout"), taken("project")
        plan = Plan(
            taken("file"),
            taken("name"),
            Origin(taken("sources"), taken("image"), project, taken("sandbox"), environment, timeout),
            taken("model"),
            taken("policy"),
            taken("max_safety"),
            taken("recording"),
            _limits(options),
            Foreign(*(taken(name) for name in ("foreign", "foreign_pins", "foreign_rules", "foreign_env"))),
        )
        return command(plan=plan, **options)

    made = place_options(environment_options(timeout_option(approval_options(wrapped))))
    made = foreign_options(policy_option(made))
    for option in reversed((*_AGENT_OPTIONS, *_LIMIT_OPTIONS)):
        made = option(made)
    return made


def _limits(options: dict[str, Any]) -> Limits:
    names = {"turns": "max_turns", "calls": "max_calls", "seconds": "max_seconds", "tokens": "max_tokens"}
    told = {name: options.pop(option) for name, option in names.items()}
    return Limits(**told, cost=options.pop("budget"))


def ask_person(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Decision:
    """Ask the person at the terminal; without one the question stays open for `gramercy approvals`."""
    return one_at_a_time(tool, arguments, request) if sys.stdin.isatty() else NOBODY
