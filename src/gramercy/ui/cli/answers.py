"""What a person or a pipe sees of a run: the answer on standard output, calls on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.agents.base import CallBegun, CallEnded, Finished, Response, TurnEnded
from gramercy.providers.base import TextPart, ThoughtPart
from gramercy.ui.cli.terminal import show

if TYPE_CHECKING:
    from gramercy.agents.base import AgentEvent
    from gramercy.execution.calls import ToolResult
    from gramercy.providers.base import ModelCall

# One line of a terminal; the whole call is in the journal and in --json.
LONGEST_LINE = 200


class Answers:
    """Shows the events of a run as they come.

    A terminal gets the text as it streams. A pipe gets the final text alone: what a model says between its
    calls is no part of the answer.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._is_quiet = quiet
        self._streams = sys.stdout.isatty() and not quiet
        self._is_line_open = False

    def take(self, event: AgentEvent) -> None:
        """Show one event."""
        kind = type(event)
        if kind is TextPart:
            self._text(event.text)  # type: ignore[union-attr]
        elif kind is CallBegun:
            self._begun(event)  # type: ignore[arg-type]
        elif kind is CallEnded:
            self._ended(event)  # type: ignore[arg-type]
        elif kind is Finished:
            self._finished(event.response)  # type: ignore[union-attr]
        elif kind is TurnEnded or kind is ThoughtPart:
            self.end_line()

    def _text(self, text: str) -> None:
        if self._streams and text:
            show(text, ends_line=False)
            self._is_line_open = not text.endswith("\n")

    def end_line(self) -> None:
        """Let what follows begin on a line of its own."""
        if self._is_line_open:
            show("")
            self._is_line_open = False

    def _begun(self, event: CallBegun) -> None:
        self.end_line()
        if not self._is_quiet:
            show(f"{'  ' * event.depth}→ {call_line(event.call)}", err=True, fg="cyan")

    def _ended(self, event: CallEnded) -> None:
        if not self._is_quiet:
            color = None if event.result.success else "red"
            show(f"{'  ' * event.depth}← {result_line(event.result)}", err=True, fg=color, dim=color is None)

    def _finished(self, response: Response) -> None:
        self.end_line()
        if not self._streams and not self._is_quiet:
            show(response.content)


def call_line(call: ModelCall) -> str:
    """Write a call on one line."""
    return cut(f"{call.name} {call.arguments}")


def result_line(result: ToolResult) -> str:
    """Write what became of a call on one line; a result of several lines says how many."""
    text = result.content.strip()
    first, _, rest = text.partition("\n")
    more = f" (+ {rest.count(chr(10)) + 1} lines)" if rest else ""
    return cut(f"{first or '(nothing)'}", LONGEST_LINE - len(more)) + more


def cut(text: str, most: int = LONGEST_LINE) -> str:
    """Cut a text that is longer than a line, and say so with dots."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def response_data(response: Response) -> dict[str, Any]:
    """Return the stable shape of a response in --json."""
    calls = [
        {
            "id": made.call.id,
            "name": made.call.name,
            "arguments": made.call.arguments,
            "success": made.result.success,
            "content": made.result.content,
            "metadata": msgspec.to_builtins(made.result.metadata, enc_hook=repr),
        }
        for made in response.calls
    ]
    usage = {name: getattr(response.usage, name) for name in ("input", "output", "cached", "cache_written")}
    return {
        "content": response.content,
        "calls": calls,
        "usage": {**usage, "total": response.usage.total},
        "cost": response.cost,
        "turns": response.turns,
        "elapsed": response.elapsed,
        "conversation": msgspec.to_builtins(response.conversation),
    }
