"""The tool that changes a part of a file: a text that is in it once, for another.

A person sees the difference in the whole file and takes it hunk by hunk, as with propose_file_edit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import structs

from gramercy.errors import WorkspaceError
from gramercy.tools.content import RunFacts, facts_of, with_facts
from gramercy.tools.definition import create_tool
from gramercy.tools.effects import Effect
from gramercy.tools.tool import Edits
from gramercy.toolsets import hunks, snippets
from gramercy.toolsets.documents import lines
from gramercy.toolsets.factory import flag, text, whole
from gramercy.toolsets.workspace import encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gramercy.tools.tool import Tool
    from gramercy.toolsets.documents import Document
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.workspace import Workspace

KNOWN = {
    **dict.fromkeys(("file_path", "file", "filename"), "path"),
    **dict.fromkeys(("old_string", "old_str", "old_text"), "old"),
    **dict.fromkeys(("new_string", "new_str", "new_text"), "new"),
    "replace_all": "all",
}
# Numbers of the lines of a change in many places; the rest is counted.
MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class Change:
    """What a call would make of a file."""

    document: Document
    after: str

    def difference(self, path: str) -> str:
        """Show the change to a person."""
        return hunks.diff(self.document.text, self.after, path)

    def told(self, path: str) -> str:
        """Tell in short where lines have changed, in the numbers that they have now."""
        found = hunks.split(self.document.text, self.after)
        moved, places = 0, []
        for hunk in found:
            first, last = hunk.start + moved + 1, hunk.start + moved + len(hunk.added)
            places.append(f"{first}-{last}" if last > first else f"{first}")
            moved += len(hunk.added) - len(hunk.removed)
        removed, added = sum(len(h.removed) for h in found), sum(len(h.added) for h in found)
        count = f"-{removed} +{added} line{'s' if max(removed, added) > 1 else ''}"
        if len(places) == 1:
            return f"Edited {path}:{places[0]} ({count})"
        rest = f" and {len(places) - MOST_LINES} more" if len(places) > MOST_LINES else ""
        return f"Edited {len(places)} places in {path} ({count}): {', '.join(places[:MOST_LINES])}{rest}"


def editing_tool(  # noqa: PLR0913 - a tool is described by this many things
    workspace: Workspace,
    name: str,
    description: str,
    properties: dict[str, Any],
    *,
    change: Callable[[Mapping[str, Any]], Change],
    narrowed: Callable[[Mapping[str, Any], str, str], dict[str, Any]],
    required: Sequence[str],
    hidden: tuple[str, ...],
    then: Callable[[dict[str, Any]], str] | None = None,
    also: Callable[[Mapping[str, Any]], str] | None = None,
    **options: Any,
) -> Tool:
    """Make a dangerous tool that changes a part of the file under `path`.

    `change` works out what a call would do, or refuses it; it is asked for the question to a person and
    again when the call runs. `narrowed` writes the hunks that a person took as arguments of such a call, and
    `hidden` are the arguments that the difference shows better. `then` is called after the file is written,
    and what it returns is told, with its facts. `also` names what else a call acts on, beside the file.
    """

    def run(arguments: dict[str, Any]) -> Any:
        made, path = change(arguments), arguments["path"]
        workspace.write(path, made.after, expected=made.document.digest)
        more = then(arguments) if then is not None else ""
        facts = facts_of(more) or RunFacts()
        told = "\n".join(filter(None, [made.told(path), more]))
        return with_facts(told, structs.replace(facts, files=(f"changed {path}", *facts.files)))

    def state(arguments: Mapping[str, Any], made: Change) -> str:
        return " ".join(filter(None, [made.document.digest, also(arguments) if also is not None else ""]))

    def effect(arguments: dict[str, Any]) -> Effect:
        made = change(arguments)
        return Effect(difference=made.difference(arguments["path"]), state=state(arguments, made))

    def texts(arguments: Mapping[str, Any]) -> tuple[str, str]:
        made = change(arguments)
        return made.document.text, made.after

    return create_tool(
        name,
        description,
        {
            "type": "object",
            "properties": properties,
            "required": list(required),
            "additionalProperties": False,
        },
        run,
        safety_level="dangerous",
        target_state=lambda a: state(a, change(a)),
        effect=effect,
        edits=Edits(texts, narrowed, hidden),
        **{"open_world": False, **options},
    )


def edit_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tool that puts one text for another."""
    del workshop
    return [_edit_file(workspace)]


def _edit_file(workspace: Workspace) -> Tool:
    return editing_tool(
        workspace,
        "edit_file",
        "Change a part of a file: old, which must be there exactly once, becomes new. Use it for changes of "
        "existing files. A person sees the difference and decides hunk by hunk.",
        {
            "path": text("File, from the project directory"),
            "old": text("Text to replace, exactly as in the file, enough of it to be unique"),
            "new": text("Text in its place"),
            "near_line": whole("Take the place nearest to this line", minimum=1),
            "all": flag("Whether to replace it everywhere"),
            "description": text("What the change is for"),
        },
        change=lambda a: _change(workspace, a),
        narrowed=_narrowed,
        required=["path", "old", "new"],
        hidden=("old", "new"),
        title="Edit a part of a file",
        categories=["filesystem"],
        aliases=_renamed,
    )


def _renamed(arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Take the names that the editing tools of clients have, which models know by heart."""
    known = {name: KNOWN[name] for name in arguments if name in KNOWN and KNOWN[name] not in arguments}
    taken = ", ".join(f"{name} as {ours}" for name, ours in known.items())
    renamed = {known.get(name, name): value for name, value in arguments.items()}
    return renamed, f"Taken: {taken}." if taken else ""


def _change(workspace: Workspace, arguments: Mapping[str, Any]) -> Change:
    path, old, new = arguments["path"], arguments["old"], arguments["new"]
    if not old:
        raise WorkspaceError(
            "old is empty: give the text to replace. A new file, or all of a file, is written with write_file"
        )
    workspace.state(path)
    document = workspace.read(path)
    old, new = document.script.shown(old), document.script.shown(new)
    if old == new:
        raise WorkspaceError("old and new are the same: nothing would change")
    after = snippets.replaced(document.text, _places(document, old, arguments), new)
    encoded(document.script, after, path)
    return Change(document, after)


def _places(document: Document, old: str, arguments: Mapping[str, Any]) -> list[snippets.Match]:
    """Return the places to change: one, or all when that is asked for."""
    found = snippets.matches(document.text, old)
    if not found:
        raise WorkspaceError(f"old is not in {document.name}. {snippets.closest(document.text, old)}")
    near = arguments.get("near_line")
    if near is not None and len(found) > 1:
        found.sort(key=lambda place: abs(place.line - near))
        is_clear = abs(found[0].line - near) < abs(found[1].line - near)
        found = found[:1] if is_clear else sorted(found, key=lambda place: place.start)
    if len(found) > 1 and not arguments.get("all"):
        raise WorkspaceError(
            f"old is in {document.name} {len(found)} times: give more of the lines around it, near_line, or "
            f"all true to change every one.\n{snippets.places_listed(document.text, found)}"
        )
    return found


def _narrowed(arguments: Mapping[str, Any], before: str, after: str) -> dict[str, Any]:
    """Write a part of a change as a call: whole lines from the first that changes to the last."""
    found, every, changed = hunks.split(before, after), lines(before), lines(after)
    first, last = found[0].start, found[-1].start + len(found[-1].removed)
    if first == last:
        # Lines that are only added need one beside them to be put to.
        first, last = (first - 1, last) if first else (first, last + 1)
    rest = len(every) - last
    kept = {name: arguments[name] for name in ("path", "description") if name in arguments}
    old, new = "".join(every[first:last]), "".join(changed[first : len(changed) - rest])
    return {**kept, "old": old, "new": new, "near_line": first + 1}
