"""`gramercy tools`: list, show and call the tools that Python files define and those of a live image."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from gramercy.execution.approval import Approved
from gramercy.execution.calls import ToolCall, ToolResult
from gramercy.execution.executor import Executor
from gramercy.text import reason_of, table
from gramercy.tools.context import enter_call, leave_call
from gramercy.tools.tool import SchemaStyle, tools_to_schema
from gramercy.ui.cli.approval import BY, ask_at_terminal
from gramercy.ui.cli.main import DENIED, FAILED
from gramercy.ui.cli.options import (
    LEVELS,
    MOMENT,
    approval_options,
    json_option,
    origin_options,
    policy_option,
    read_words,
    seen_journal_option,
)
from gramercy.ui.cli.pictures import show_blocks
from gramercy.ui.cli.terminal import json_text, prints_aside, show, summary_line, tell, visible
from gramercy.workbench.policies import read_policies
from gramercy.workbench.recording import TypedCall
from gramercy.workbench.sources import assembled, place_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.execution.policy import Policy
    from gramercy.journal.sql import SqlJournal
    from gramercy.journal.statistics import ToolFigures
    from gramercy.tools.tool import Tool
    from gramercy.workbench.recording import Recording
    from gramercy.workbench.sources import Origin

# Wait as short as possible: when the person repeats the command, it reports the decision.
AT_ONCE = 0.001
_FIGURES = ("tool", "calls", "ok", "failed", "denied", "in doubt", "open", "success", "p50 ms", "p95 ms")
_WAITS = ("size", "approvals", "wait p50", "wait p95")
# The limits up to which a duration is shown in seconds, and in minutes.
MINUTE, HOUR = 60, 3_600
STYLES = click.Choice(get_args(SchemaStyle))


@click.group()
def group() -> None:
    """List, show and call the tools of Python files and of a live image."""


@group.command("list")
@origin_options
@click.option("--max-safety", type=LEVELS, help="Only tools at or below this level.")
@click.option("--category", "categories", multiple=True, help="Only tools in one of these categories.")
@click.option("--style", type=STYLES, default="openai", help="The shape of --json.")
@json_option("Print the schemas as a model provider gets them.")
def list_tools(
    origin: Origin, max_safety: str | None, categories: Sequence[str], style: Any, *, as_json: bool
) -> None:
    """List tools in alphabetical order."""
    with assembled(origin) as registry:
        tools = registry.select(max_safety_level=max_safety, categories=categories or None)
    if as_json:
        click.echo(json.dumps(tools_to_schema(tools, style), indent=2, ensure_ascii=False))
        return
    for tool in tools:
        click.echo(visible(summary_line(tool)))
    if not tools:
        tell("no tool is so safe, or in such a category")


@group.command("export")
@origin_options
@click.option(
    "--format",
    "style",
    type=click.Choice([*get_args(SchemaStyle), "gram"]),
    default="openai",
    show_default=True,
    help="Who reads it; gram is for the specifications of agents.",
)
@click.option("--max-safety", type=LEVELS, help="Only tools at or below this level.")
@click.option("--category", "categories", multiple=True, help="Only tools in one of these categories.")
@click.option("--output", type=click.Path(dir_okay=False, writable=True), help="Write this file instead.")
def export_tools(
    origin: Origin, style: Any, max_safety: str | None, categories: Sequence[str], output: str | None
) -> None:
    """Write what a model provider or another agent library needs to know of the tools."""
    with assembled(origin) as registry:
        tools = registry.select(max_safety_level=max_safety, categories=categories or None)
    if style == "gram":
        from gramercy.tools.library import specified

        text = "\n\n".join(specified(each).to_gram() for each in tools)
    else:
        text = json.dumps(tools_to_schema(tools, style), indent=2, ensure_ascii=False)
    if output is None:
        click.echo(text)
        return
    from gramercy.errors import UnreadableFileError
    from gramercy.images.files.whole import write_whole

    try:
        write_whole(Path(output), f"{text}\n")
    except OSError as error:
        raise UnreadableFileError(f"{output} cannot be written: {reason_of(error)}") from None


@group.command("show")
@origin_options
@click.argument("name")
@click.option("--style", type=STYLES, help="Print the schema alone, in the shape of this provider.")
@click.option("--gram", "as_gram", is_flag=True, help="Print the tool as a gram specification.")
@json_option("Print all that is known about the tool as JSON.")
def show_tool(origin: Origin, name: str, style: Any, *, as_gram: bool, as_json: bool) -> None:
    """Show what a tool does and which arguments it takes."""
    if sum((as_json, as_gram, style is not None)) > 1:
        raise click.UsageError("say one of --json, --gram and --style")
    with assembled(origin) as registry:
        tool = registry.resolve(name)
    if as_json:
        click.echo(json_text(_facts(tool)))
    elif style is not None:
        click.echo(json.dumps(tool.to_schema(style), indent=2, ensure_ascii=False))
    elif as_gram:
        from gramercy.tools.library import specified

        click.echo(specified(tool).to_gram())
    else:
        click.echo(visible(_description(tool)))


def _facts(tool: Tool) -> dict[str, Any]:
    """Return the stable shape of --json."""
    return {
        "name": tool.name,
        "description": tool.description,
        "safety_level": tool.safety_level.value,
        "categories": list(tool.categories),
        "schema": tool.schema,
    }


def _description(tool: Tool) -> str:
    lines = [f"{tool.name} ({tool.safety_level.value})", "", tool.description]
    if tool.categories:
        lines += ["", f"categories: {', '.join(tool.categories)}"]
    lines += ["", "arguments:" if tool.parameters else "takes no arguments"]
    for parameter in tool.parameters:
        need = "required" if parameter.required else "optional"
        about = f"  {parameter.description}" if parameter.description else ""
        lines.append(f"  {parameter.name}: {parameter.type}, {need}{about}")
    return "\n".join(lines)


@group.command("call")
@origin_options
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[JSON | - | key=value ...]")
@click.option("--approve", is_flag=True, help="Approve this very call, as the person who types it.")
@click.option("--max-safety", type=LEVELS, help="Refuse tools above this level.")
@policy_option
@approval_options
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    show_default="60, or the timeout of a configuration file",
    help="Seconds.",
)
@json_option("Print the whole result as JSON.")
def call_tool(  # noqa: PLR0913 - one parameter per option
    origin: Origin,
    name: str,
    arguments: Sequence[str],
    *,
    approve: bool,
    max_safety: str | None,
    policy: str | None,
    deadline: float | None,
    as_json: bool,
    recording: Recording,
) -> int:
    """Call a tool through the guard, with one JSON object, - for standard input, or key=value pairs."""
    handler = (lambda _tool, _arguments: Approved(by=BY)) if approve else ask_at_terminal
    seconds = deadline or origin.timeout
    rules = layered(origin.project, policy)
    with (
        closing(recording.open(origin.project, tell)) as journal,
        assembled(origin, timeout=seconds, policy=rules, own=(policy,)) as registry,
    ):
        tool = registry.resolve(name)
        limits: dict[str, Any] = {"max_safety_level": max_safety, "deadline": origin.patience(seconds)}
        # An unattended command reports at once that it waits for a person, unless it is told to wait.
        limits |= {"approval_wait": recording.wait or AT_ONCE, "approval_expiry": recording.expiry}
        places: list[str] = []
        hooks = [partial(_note_place, places)]
        executor = Executor(registry, handler, hooks, policy=rules, journal=journal, **limits)
        given = read_words(tool, arguments)
        token = enter_call(TypedCall(tool.name, given, origin.project))
        try:
            with prints_aside():
                result = executor.execute(ToolCall("cli", tool.name, given))
        finally:
            leave_call(token)
        executor.delivered(result)
    code = _report(result, as_json=as_json)
    if not as_json and code == FAILED and places:
        tell("".join(places).removeprefix("\n"))
    return code


@group.command("why")
@origin_options
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[JSON | - | key=value ...]")
@click.option("--max-safety", type=LEVELS, help="Refuse tools above this level.")
@policy_option
@json_option("Print the decision, its rule and the explanation as JSON.")
def why(  # noqa: PLR0913 - one parameter per option
    origin: Origin,
    name: str,
    arguments: Sequence[str],
    *,
    max_safety: str | None,
    policy: str | None,
    as_json: bool,
) -> None:
    """Tell what the guard would say to a call, and by which rule, without running it."""
    with assembled(origin) as registry:
        tool = registry.resolve(name)
        rules = layered(origin.project, policy)
        executor = Executor(registry, policy=rules, max_safety_level=max_safety)
        verdict = executor.why(tool.name, read_words(tool, arguments))
    decision = {"tool": tool.name, "action": verdict.action.value, "explanation": verdict.explanation}
    if as_json:
        click.echo(json_text(decision))
    else:
        click.echo(visible(f"{verdict.action.value}: {verdict.explanation}"))


def layered(project: str, given: str | None) -> Policy:
    """Return the rules for a project. Rules that have less effect than they say are reported."""
    found = read_policies(project, given)
    for remark in found.remarks:
        tell(f"warning: {remark}")
    return found.policy


def _note_place(places: list[str], phase: str, *_: Any) -> None:
    """Note the line of the user's file where a tool failed. Hooks run while the exception is handled."""
    error = sys.exc_info()[1]
    if phase == "error" and error is not None:
        places.append(place_of(error))


def _report(result: ToolResult, *, as_json: bool) -> int:
    # A call that waits for a person was refused for now. Its text says how to approve it.
    is_open = "awaiting" in result.metadata
    is_denied = is_open or bool(result.metadata.get("denied"))
    if as_json:
        fields = {
            "id": result.id,
            "success": result.success,
            "content": result.content,
            "error": result.error,
        }
        metadata = msgspec.to_builtins(result.metadata, enc_hook=repr)
        click.echo(json.dumps({**fields, "metadata": metadata}, indent=2, ensure_ascii=False))
    elif result.success:
        click.echo(result.content if not sys.stdout.isatty() else visible(result.content))
    else:
        # The rest of a refusal, beyond its error, is for a model.
        click.echo(visible((is_denied and not is_open and result.error) or result.content), err=True)
    if not as_json:
        show_blocks(result.metadata.get("blocks", ()))
    if result.success:
        return 0
    return DENIED if is_denied else FAILED


@group.command("stats")
@click.argument("tools", nargs=-1, metavar="[TOOL]...")
@seen_journal_option
@click.option("--since", type=MOMENT, metavar="TIME", help="Only calls made since: 12h, 7d, 2026-05-01.")
@click.option("--by-day", is_flag=True, help="Day by day.")
@json_option("Print a list of objects, with failures and refusals by class.")
def stats(
    journal: SqlJournal, tools: Sequence[str], *, since: float | None, by_day: bool, as_json: bool
) -> None:
    """Tell how often tools were called, how it went, how long it took, and how long people took to decide.

    Of all processes that record in this journal. What failed is counted by class, what was refused by who
    refused it.
    """
    # The other commands do not need a journal.
    from gramercy.journal.statistics import tool_figures

    found = tool_figures(journal, since=since or 0.0, tools=tools, by_day=by_day)
    if as_json:
        click.echo(json_text(msgspec.to_builtins(found)))
    elif found:
        show(_table(found, by_day=by_day))
        for line in _classes(found):
            show(line)
    else:
        tell("no such call was recorded")


def _table(found: Sequence[ToolFigures], *, by_day: bool) -> str:
    head = (("day",) if by_day else ()) + _FIGURES + _WAITS
    rows = [head, *(((each.day,) if by_day else ()) + _figures_row(each) for each in found)]
    return table(rows, rights=range(2 if by_day else 1, len(head)))


def _figures_row(f: ToolFigures) -> tuple[str, ...]:
    counts = (f.calls, f.done, f.failed, f.denied, f.in_doubt, f.open)
    ran = bool(f.done + f.failed)
    times = (f"{f.p50_ms:.1f}", f"{f.p95_ms:.1f}") if f.p50_ms else ("", "")
    waits = (_span(f.wait_p50), _span(f.wait_p95)) if f.approvals else ("", "")
    success = f"{f.success_rate:.0%}" if ran else ""
    size = f"{f.mean_size:,.0f}" if f.done else ""
    return (f.tool, *map(str, counts), success, *times, size, str(f.approvals or ""), *waits)


def _span(seconds: float) -> str:
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    return f"{seconds / MINUTE:.1f} min" if seconds < HOUR else f"{seconds / HOUR:.1f} h"


def _classes(found: Sequence[ToolFigures]) -> list[str]:
    """List failed calls by class and refused calls by refuser, one line for each tool that has any."""
    lines = []
    for figures in found:
        name = f"{figures.day} {figures.tool}".strip()
        for what, classes in (("failed by", figures.failures), ("refused by", figures.refusals)):
            if classes:
                counted = ", ".join(f"{word} ({number})" for word, number in classes.items())
                lines.append(f"{name} {what}: {counted}")
    return lines
