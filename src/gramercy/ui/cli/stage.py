"""How the scenes of the tour are told: titles, calls with their results, and what a person sees and does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from gramercy.execution.calls import ToolCall
from gramercy.ui.cli.display import visible

if TYPE_CHECKING:
    from gramercy.execution.calls import ToolResult
    from gramercy.execution.executor import Executor

WIDTH = 14


def title(text: str) -> None:
    """Begin a scene."""
    click.secho(f"\n── {text}", bold=True)


def tell(who: str, text: str) -> None:
    """Say who does what; further lines are indented under the first."""
    lines = visible(text).splitlines() or [""]
    click.echo("\n".join(f"{'' if i else who:<{WIDTH}}{line}".rstrip() for i, line in enumerate(lines)))


def call(executor: Executor, name: str, arguments: dict[str, Any], *, told: str | None = None) -> ToolResult:
    """Make a call as a model would, and show both sides; `told` stands for arguments hard to read."""
    tell("model calls", f"{name}({json.dumps(arguments)})" if told is None else f"{name}  {told}")
    result = executor.execute(ToolCall("call_1", name, arguments))
    tell("result" if result.success else "error", result.content)
    return result
