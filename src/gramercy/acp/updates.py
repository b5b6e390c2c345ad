"""The events of a run in the form of an editor: chunks of text, calls with their places, diffs.

Pure functions: nothing here is sent or asked.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gramercy.errors import GramercyError
from gramercy.execution.calls import read_arguments
from gramercy.execution.shown import revealed
from gramercy.text import cut_line
from gramercy.tools.content import ImageBlock
from gramercy.tools.safety import Safety
from gramercy.toolsets.documents import lines
from gramercy.toolsets.planning import plan_steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gramercy.execution.calls import ToolResult
    from gramercy.providers.base import ModelCall
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.hunks import Hunk

# The length of one result in the panel of an editor; the model gets all of it.
LONGEST_SHOWN = 20_000
# A title is one line of the panel: 120 characters with the ellipsis.
LONGEST_TITLE = 119
# Unchanged lines around a hunk, as in every unified diff.
CONTEXT = 3
_RANGES = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_FENCES = re.compile("`{3,}")
_NO_NEWLINE = "\\ No newline"
# Words in the names of tools, by which editors choose a symbol; the first match counts.
_KINDS = (
    ("read", ("read", "describe", "inspect", "list", "get", "show")),
    ("search", ("search", "find", "apropos", "who")),
    ("delete", ("delete", "remove")),
    ("move", ("move", "rename")),
    ("fetch", ("fetch", "download")),
    ("execute", ("evaluate", "eval", "run", "compile", "load", "invoke", "execute", "install", "preview")),
)


def chunk(kind: str, text: str) -> dict[str, Any]:
    """Return the next piece of a message; `kind` is `agent_message`, `agent_thought` or `user_message`."""
    return {"sessionUpdate": f"{kind}_chunk", "content": {"type": "text", "text": text}}


def text_content(text: str) -> dict[str, Any]:
    """Return a text as a part of a call, in a fence, since editors render Markdown in it."""
    return {"type": "content", "content": {"type": "text", "text": fenced(text)}}


def fenced(text: str) -> str:
    """Put a text between fences that no line of it can close."""
    longest = max((len(found) for found in _FENCES.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def plan_update(call: ModelCall) -> dict[str, Any]:
    """Return the plan of a call; the whole plan each time."""
    entries = [
        {"content": step, "priority": "medium", "status": state}
        for step, state in plan_steps(read_arguments(call.arguments))
    ]
    return {"sessionUpdate": "plan", "entries": entries}


@dataclass
class CallView:
    """One call as an editor shows it; `id` is unique in its session, while the ids of models are not."""

    id: str
    title: str
    name: str = ""
    kind: str = "other"
    arguments: Any = None
    locations: list[dict[str, Any]] = field(default_factory=list)
    diffs: list[dict[str, Any]] = field(default_factory=list)
    is_over: bool = False

    def begun(self, status: str = "in_progress") -> dict[str, Any]:
        """Return the first update that shows it."""
        shown: dict[str, Any] = {
            "sessionUpdate": "tool_call",
            "toolCallId": self.id,
            "title": self.title,
            "kind": self.kind,
            "status": status,
            "content": self.diffs,
            "locations": self.locations,
        }
        shown |= {"name": self.name} if self.name else {}
        return shown | ({"rawInput": self.arguments} if self.arguments is not None else {})

    def changed(self, status: str, content: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
        """Return the update to another status; without content, the shown content stays."""
        shown: dict[str, Any] = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": self.id,
            "status": status,
        }
        return shown if content is None else {**shown, "content": list(content)}

    def asked(self, content: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return it as the subject of a permission request, with everything that the person has to see."""
        return {
            "toolCallId": self.id,
            "title": self.title,
            "kind": self.kind,
            "status": "pending",
            "content": list(content),
            "locations": self.locations,
            "rawInput": self.arguments,
        }

    def ended(self, result: ToolResult) -> dict[str, Any]:
        """Return the update with the result; the diff of an applied edit stays visible."""
        self.is_over = True
        content = [*(self.diffs if result.success else ()), *_result_content(result)]
        return self.changed("completed" if result.success else "failed", content)


def view_of(number: str, call: ModelCall, tool: Tool | None, project: str, agent: str = "") -> CallView:
    """Return the view of a model's call; the view of a nested agent's call names the agent."""
    try:
        arguments = read_arguments(call.arguments)
    except GramercyError:
        # The model's text is not JSON; the result tells it so, and the person sees the text.
        arguments = call.arguments
    given = arguments if isinstance(arguments, dict) else {}
    place = given.get("path") or given.get("file")
    named = place if isinstance(place, str) else _first_text(given)
    title = " ".join(filter(None, [f"{agent}:" if agent else "", call.name, named]))
    return CallView(
        number,
        one_line(title),
        call.name,
        kind_of(tool, call.name),
        arguments,
        [location(project, place, given.get("start"))] if isinstance(place, str) else [],
    )


def _first_text(arguments: dict[str, Any]) -> str:
    return next((value for value in arguments.values() if isinstance(value, str)), "")


def one_line(text: str) -> str:
    """Return a text as a line of a panel, with nothing hidden in it."""
    return cut_line(revealed(text), LONGEST_TITLE)


def kind_of(tool: Tool | None, name: str) -> str:
    """Return the protocol's word for what a tool does; editors show a symbol for it."""
    is_change = tool is not None and tool.safety_level is not Safety.SAFE
    if tool is not None and is_change and (tool.edits is not None or "filesystem" in tool.categories):
        return "edit"
    words = re.split(r"[_\W]+", name.casefold())
    return next((kind for kind, known in _KINDS if any(word in known for word in words)), "other")


def location(project: str, path: str, line: Any = None) -> dict[str, Any]:
    """Return a place in a file that an editor can open; lines count from 1."""
    found: dict[str, Any] = {"path": str(Path(project, path))}
    return {**found, "line": line} if isinstance(line, int) else found


def _result_content(result: ToolResult) -> Iterator[dict[str, Any]]:
    text = result.content
    if len(text) > LONGEST_SHOWN:
        text = f"{text[:LONGEST_SHOWN]}\n… [{LONGEST_SHOWN:,} of {len(text):,} characters shown here]"
    if text.strip():
        yield text_content(text)
    for block in result.metadata.get("blocks", ()):
        if isinstance(block, ImageBlock):
            data = b64encode(block.data).decode()
            yield {
                "type": "content",
                "content": {"type": "image", "data": data, "mimeType": block.mime_type},
            }


def difference_of(path: Path, old: str | None, new: str) -> dict[str, Any]:
    """Return a change of a text in the form of an editor."""
    return {"type": "diff", "path": str(path), "oldText": old, "newText": new}


def hunk_view(view: CallView, before: Sequence[str], hunk: Hunk, count: int) -> CallView:
    """Return one hunk of an edit as a call of its own; `before` are the lines of the file."""
    low = max(0, hunk.start - CONTEXT)
    end = hunk.start + len(hunk.removed)
    head, tail = before[low : hunk.start], before[end : end + CONTEXT]
    path = Path(view.locations[0]["path"]) if view.locations else Path(view.name)
    old, new = "".join([*head, *hunk.removed, *tail]), "".join([*head, *hunk.added, *tail])
    return CallView(
        f"{view.id}.{hunk.number}",
        one_line(f"Hunk {hunk.number} of {count}: {path.name} line {hunk.start + 1}"),
        kind="edit",
        arguments={"path": str(path), "hunk": hunk.number, "of": count},
        locations=[location("", str(path), hunk.start + 1)],
        diffs=[difference_of(path, old if before else None, new)],
    )


def differences(unified: str, project: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the hunks of a unified diff in the form of an editor, and their places."""
    diffs, places = [], []
    found = lines(unified)
    path, at = Path(project), 0
    while at < len(found):
        line, at = found[at], at + 1
        ranges = _RANGES.match(line)
        if line.startswith("+++ "):
            path = Path(project, line[4:].strip().removeprefix("b/"))
        elif ranges is not None:
            sizes = [int(ranges[number] or 1) for number in (2, 4)]
            old, new, at = _sides(found, at, sizes)
            is_new = sizes[0] == 0 and ranges[1] == "0"
            diffs.append(difference_of(path, None if is_new else old, new))
            places.append(location("", str(path), max(1, int(ranges[3]))))
    return diffs, places


def _sides(found: Sequence[str], at: int, sizes: list[int]) -> tuple[str, str, int]:
    """Read the lines of one hunk by their number: a line of the text may look like a header."""
    old: list[str] = []
    new: list[str] = []
    left = list(sizes)
    while at < len(found) and (any(left) or found[at].startswith(_NO_NEWLINE)):
        line, at = found[at], at + 1
        if line.startswith(_NO_NEWLINE):
            last = found[at - 2][:1]
            for side in [old] if last == "-" else [new] if last == "+" else [old, new]:
                side[-1] = side[-1].removesuffix("\n")
            continue
        mark, text = line[:1], line[1:]
        if mark in {" ", "-"}:
            old.append(text)
            left[0] -= 1
        if mark in {" ", "+"}:
            new.append(text)
            left[1] -= 1
    return "".join(old), "".join(new), at
