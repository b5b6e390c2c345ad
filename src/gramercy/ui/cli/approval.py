"""Ask the person at the terminal: what would run, with what, why it asks, and what changed meanwhile."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from gramercy.errors import InvalidArgumentsError
from gramercy.execution.approval import ApprovalRequest, Approved, Decision, Denied, Modified
from gramercy.execution.calls import parse_arguments
from gramercy.ui.cli.display import json_text, visible
from gramercy.ui.cli.review import review_edit

if TYPE_CHECKING:
    from gramercy.tools.tool import Tool

BY = "person at the terminal"


def ask_at_terminal(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Decision:
    """Show the call and read a decision; where nobody can type, refuse."""
    if not sys.stdin.isatty():
        return Denied(
            "nobody can be asked: standard input is not a terminal (use --approve to approve this call)"
        )
    if _is_edit(tool, arguments):
        _show(tool, {key: arguments[key] for key in ("path", "description") if key in arguments}, request)
        decision = review_edit(arguments, BY)
        if decision is not None:
            return decision
    _show(tool, arguments, request)
    while True:
        answer = (
            click.prompt("approve, deny or edit? [a/d/e]", err=True, default="d", show_default=False)
            .strip()
            .lower()
        )
        if answer in {"a", "approve"}:
            return Approved(by=BY)
        if answer in {"d", "deny"}:
            return Denied(click.prompt("reason", default="", show_default=False, err=True))
        if answer in {"e", "edit"}:
            edited = _edit(arguments)
            if edited is not None:
                return Modified(edited, by=BY)


_at_the_terminal = threading.Lock()


def one_at_a_time(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Decision:
    """Do the same for calls that come side by side: each question waits for the one before."""
    with _at_the_terminal:
        return ask_at_terminal(tool, arguments, request)


def _is_edit(tool: Tool, arguments: dict[str, Any]) -> bool:
    texts = (arguments.get("original"), arguments.get("modified"))
    return tool.name == "propose_file_edit" and all(isinstance(text, str) for text in texts)


def _show(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> None:
    for change in request.changes:
        click.secho(f"asked again: {change}", err=True, bold=True)
    click.secho(f"{tool.name} ({tool.safety_level.value})", err=True, bold=True)
    click.echo(visible(tool.description), err=True)
    click.echo(json_text(arguments), err=True)
    if request.effect:
        click.echo(visible(request.effect), err=True)
    click.echo(f"asks because {visible(request.verdict.explanation)}", err=True)


def _edit(arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Let the person rewrite the arguments in an editor; None sends them back to the question."""
    try:
        text = click.edit(json.dumps(arguments, indent=2, ensure_ascii=False), extension=".json")
        if text is None:
            return None
        edited = parse_arguments(text)
    except (click.ClickException, InvalidArgumentsError) as error:
        click.echo(str(error), err=True)
        return None
    if not isinstance(edited, dict):
        click.echo("the arguments must stay a JSON object", err=True)
        return None
    return edited
