"""Show a run to a person or a pipe: the answer on standard output, calls on standard error.

On a terminal Markdown is styled while it streams: headings, emphasis, code and lists, as models write them.
Only the few characters that may still become a mark are held back.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.agents.base import CallBegun, CallEnded, Finished, Response, TurnEnded, Warned
from gramercy.providers.base import TextPart, ThoughtPart
from gramercy.text import cut_line
from gramercy.ui.cli.main import may_color
from gramercy.ui.cli.terminal import json_text, show, visible

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gramercy.agents.base import AgentEvent
    from gramercy.execution.calls import ToolResult
    from gramercy.gram.agents import ModelName
    from gramercy.providers.base import ModelCall, Part, Provider, Request

# With the ellipsis a line has 200 characters. The whole call is in the journal and in --json.
LONGEST_LINE = 199


class Answers:
    """Shows the events of a run as they come.

    A terminal gets the text as it streams. A pipe gets the final text alone: the text between calls is not
    part of the answer.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._is_quiet = quiet
        self._streams = sys.stdout.isatty() and not quiet
        self._markdown = Markdown() if self._streams and may_color() else None
        self._is_line_open = False
        self._thinks = False
        # The calls that run now. With several of them, a result names its call.
        self._running: set[str] = set()

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
        elif kind is Warned:
            self._warned(event.text)  # type: ignore[union-attr]
        elif kind is ThoughtPart:
            self._thought(event.text)  # type: ignore[union-attr]
        elif kind is TurnEnded:
            self.end_line()

    def _text(self, text: str) -> None:
        if not self._streams or not text:
            return
        if self._thinks:
            self.end_line()
        if self._markdown is None:
            show(text, ends_line=False)
        else:
            _write(self._markdown.feed(text))
        self._is_line_open = not text.endswith("\n")

    def _thought(self, text: str) -> None:
        """Show the model's reasoning, apart from its answer."""
        if self._streams and text:
            show(text, ends_line=False, err=True, dim=True)
            self._is_line_open = not text.endswith("\n")
            self._thinks = True

    def end_line(self) -> None:
        """End an unfinished line, so that the next text starts on its own line."""
        if self._markdown is not None:
            _write(self._markdown.end())
            self._markdown = Markdown()
        if self._is_line_open:
            show("", err=self._thinks)
        self._is_line_open = self._thinks = False

    def _begun(self, event: CallBegun) -> None:
        self.end_line()
        self._running.add(event.call.id)
        if not self._is_quiet:
            show(f"{'  ' * event.depth}→ {call_line(event.call)}", err=True, fg="cyan")

    def _ended(self, event: CallEnded) -> None:
        whose = f"{event.call.name}: " if len(self._running) > 1 else ""
        self._running.discard(event.call.id)
        if not self._is_quiet:
            color = None if event.result.success else "red"
            line = f"{'  ' * event.depth}← {whose}{result_line(event.result)}"
            show(line, err=True, fg=color, dim=color is None)

    def _warned(self, text: str) -> None:
        self.end_line()
        show(f"warning: {text}", err=True, fg="yellow")

    def _finished(self, response: Response) -> None:
        self.end_line()
        if not self._streams and not self._is_quiet:
            show(response.content)


def _write(text: str) -> None:
    """Write text that is already escaped and styled."""
    sys.stdout.write(text)
    sys.stdout.flush()


def figures_line(response: Response, model: str) -> str:
    """Format the tokens, time and cost of an answer on one line."""
    usage = response.usage
    tokens = f"{usage.input:,} tokens in, {usage.output:,} out" if usage.total else "tokens unknown"
    return f"({model}, {tokens}, {cost_text(response.cost)}, {response.elapsed:.1f} s)"


def cost_text(cost: float | None) -> str:
    """Format a cost."""
    return "cost N/A" if cost is None else f"${cost:.4f}"


class Watched:
    """A provider that shows what it is asked and what it answers."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.name = provider.name

    async def chat(self, request: Request) -> AsyncIterator[Part]:
        """Stream the answer, and show the request and the answer."""
        show(f"request: {json_text(msgspec.to_builtins(request))}", err=True, dim=True)
        async for part in self._provider.chat(request):
            show(f"{type(part).__name__}: {msgspec.json.encode(part).decode()}", err=True, dim=True)
            yield part

    async def aclose(self) -> None:
        """Close the provider's connections."""
        await self._provider.aclose()


def watched(opening: Callable[[ModelName], Provider]) -> Callable[[ModelName], Provider]:
    """Return a function that opens providers and shows their requests."""
    return lambda model: Watched(opening(model))


def call_line(call: ModelCall) -> str:
    """Format a call on one line."""
    return cut_line(f"{call.name} {call.arguments}", LONGEST_LINE)


def result_line(result: ToolResult) -> str:
    """Format the result of a call on one line. For a result of several lines it says how many there are."""
    text = result.content.strip()
    first, _, rest = text.partition("\n")
    more = f" (+ {rest.count(chr(10)) + 1} lines)" if rest else ""
    return cut_line(first or "(nothing)", LONGEST_LINE - len(more)) + more


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
        "stop": response.stop,
        "warnings": list(response.warnings),
        "conversation": msgspec.to_builtins(response.conversation),
    }


BOLD, DIM, CODE, HEADING = "1", "2", "36", "1;35"
_END = "\x1b[0m"
# Text that may stand before the first word of a line: indentation, then a mark.
_LEAD = re.compile(r"[ \t]*(#{1,6} |[-*+] |> ?|```|~~~)?")
# The beginning of a line that may still become a mark.
_OPEN = re.compile(r"[ \t]*(#{0,6}|[-*+>]|`{0,2}|~{0,2})")
_FENCES = ("```", "~~~")


class Markdown:
    """Turns the pieces of one answer into styled text, in the order in which they arrive."""

    def __init__(self) -> None:
        self._waiting = ""
        self._is_at_start = True
        # The style of the rest of the line, and the marks that are open within it.
        self._line_style = ""
        self._is_bold = False
        self._is_code = False
        # The fence that ends the current code block.
        self._fence = ""

    def feed(self, text: str) -> str:
        """Return the text that can be shown now. The text of a model is escaped for the terminal first."""
        self._waiting += visible(text)
        made: list[str] = []
        while (step := self._step()) is not None:
            made.append(step)
        return "".join(made)

    def end(self) -> str:
        """Return the rest, at the end of an answer."""
        text, self._waiting = self._waiting, ""
        return self._styled(text)

    def _step(self) -> str | None:
        """Take the next part whose meaning is clear. Return None when more input is needed first."""
        if not self._waiting:
            return None
        if self._fence:
            return self._in_fence()
        return self._lead() if self._is_at_start else self._inline()

    def _in_fence(self) -> str | None:
        """Show code unchanged. Only the beginning of a line may be the closing fence."""
        line, newline, rest = self._waiting.partition("\n")
        begun = line.lstrip(" ")
        if self._is_at_start and self._fence.startswith(begun) and not newline and begun != self._fence:
            return None
        if self._is_at_start and begun.rstrip() == self._fence:
            if not newline:
                return None
            self._waiting, self._fence = rest, ""
            return f"{_painted(line, DIM)}\n"
        self._waiting, self._is_at_start = rest, bool(newline)
        return _painted(line, CODE) + newline

    def _lead(self) -> str | None:
        """Read the mark at the beginning of a line."""
        if _OPEN.fullmatch(self._waiting):
            return None
        found = _LEAD.match(self._waiting)
        mark = found[1] if found else None
        if mark in _FENCES:
            return self._open_fence(mark)
        lead = found[0] if found else ""
        self._waiting, self._is_at_start = self._waiting[len(lead) :], False
        space = lead[: len(lead) - len(mark or "")]
        if mark is None:
            return space
        if mark.startswith("#"):
            self._line_style = HEADING
            return space
        return f"{space}{_painted('│ ', DIM)}" if mark.startswith(">") else f"{space}• "

    def _open_fence(self, mark: str) -> str | None:
        line, newline, rest = self._waiting.partition("\n")
        if not newline:
            return None
        self._waiting, self._fence = rest, mark
        return f"{_painted(line, DIM)}\n"

    def _inline(self) -> str | None:
        """Show text up to the next mark or line end."""
        place = next((n for n, c in enumerate(self._waiting) if c in "*`\n"), len(self._waiting))
        if place:
            text, self._waiting = self._waiting[:place], self._waiting[place:]
            return self._styled(text)
        return self._mark()

    def _mark(self) -> str | None:
        mark, rest = self._waiting[0], self._waiting[1:]
        if mark == "\n":
            self._waiting, self._is_at_start = rest, True
            self._line_style, self._is_bold, self._is_code = "", False, False
            return mark
        if mark == "`":
            self._waiting, self._is_code = rest, not self._is_code
            return ""
        if self._is_code:
            self._waiting = rest
            return self._styled(mark)
        if not rest:
            return None
        if rest[0] == "*":
            self._waiting, self._is_bold = rest[1:], not self._is_bold
            return ""
        self._waiting = rest
        return self._styled(mark)

    def _styled(self, text: str) -> str:
        styles = (self._line_style, BOLD if self._is_bold else "", CODE if self._is_code else "")
        return _painted(text, ";".join(filter(None, styles)))


def _painted(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}{_END}" if style and text else text
