"""Four tools on files and open documents, and one that proposes an edit hunk by hunk."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from gramercy.errors import InvalidSchemaError, WorkspaceError
from gramercy.gram.json_schema import compile_cached
from gramercy.images.pictures import examine, is_picture
from gramercy.text import counted
from gramercy.tools.content import ImageBlock, RunFacts, ToolOutput, with_facts
from gramercy.tools.definition import create_tool
from gramercy.tools.effects import Effect
from gramercy.tools.tool import Edits
from gramercy.toolsets import hunks
from gramercy.toolsets.documents import is_notebook, lines
from gramercy.toolsets.factory import as_evaluation, flag, text, whole
from gramercy.toolsets.loading import LOAD, after_writing, check_loadable, state_for_load, with_load
from gramercy.toolsets.notebooks import VIEWED, cells_of, view

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gramercy.tools.tool import Tool
    from gramercy.toolsets.documents import Document
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.workspace import Workspace

# 200 lines of 500 characters are as much as the executor lets through (100,000 characters).
MOST_MATCHES = 200
LONGEST_LINE = 500
# The regular expression is bounded in steps for each line. This bounds all lines together.
SEARCH_SECONDS = 5.0
# An answer has at most 8,000 characters, as for every tool here. One line of it says how to read on.
MOST_CHARACTERS = 7_900
# The model services accept pictures of 5 MB as base64 and of 8,000 px.
LARGEST_PICTURE = 3_750_000
LONGEST_SIDE = 8_000
# Enough to see the changes since the file was read. The model is told to read it again.
LONGEST_DIFFERENCE = 4_000

PATH = text("Path of the file, relative to the project directory")
BUFFER = text("Name of the open document, as a path relative to the project; by default the one opened last")


def file_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the five tools of a workspace."""
    return [
        _read_file(workshop, workspace),
        _read_buffer(workspace),
        _search_in_buffer(workspace),
        _write_file(workshop, workspace),
        _propose_file_edit(workspace),
    ]


def _make(  # noqa: PLR0913 - a tool is described by this many things
    name: str,
    description: str,
    properties: dict[str, Any],
    handler: Callable[[dict[str, Any]], Any],
    *,
    required: Sequence[str] = (),
    categories: Sequence[str] = ("buffer",),
    **options: Any,
) -> Tool:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    # The files of a project are a closed world, and writing the same text again changes nothing.
    options = {"open_world": False, "idempotent": True, **options}
    return create_tool(name, description, schema, handler, categories=categories, **options)


def _read_file(workshop: Workshop, workspace: Workspace) -> Tool:
    return _make(
        "read_file",
        "Read a file of the project as it is on disk; a picture is shown, a notebook as cells. Use it before "
        "you change a file, and again when an edit was refused. Of a long file a part is shown, with the way "
        "to read on.",
        {
            "path": PATH,
            "start": whole("First line to show", minimum=1),
            "end": whole("Last line to show", minimum=1),
            "numbers": flag("Whether to number the lines"),
        },
        lambda a: _read(workshop, workspace, a),
        required=["path"],
        title="Read a file",
        paths=workspace.declared("read_file"),
    )


def _read(workshop: Workshop, workspace: Workspace, arguments: dict[str, Any]) -> Any:
    path = workspace.place(arguments["path"])
    data = workspace.data(path)
    if is_picture(data):
        return _picture(path, data)
    document = workspace.opened(path, data)
    if is_notebook(path.name):
        return _notebook(workshop, document, arguments)
    return _part(document, arguments, "read_file")


def _notebook(workshop: Workshop, document: Document, arguments: dict[str, Any]) -> str:
    """Show the cells of a notebook. A text that is not a notebook is shown unchanged."""
    cells = cells_of(document.text)
    if cells is None:
        return _part(document, arguments, "read_file")
    exact = ", which read_buffer shows" if workshop.has("read_buffer") else ""
    return _part(replace(document, text=view(cells, exact)), arguments, "read_file")


def _picture(path: str, data: bytes) -> ToolOutput:
    """Show a picture. Refuse one that is too large for clients or model services."""
    try:
        picture = examine(data)
    except ValueError as error:
        raise WorkspaceError(f"{path} cannot be shown: {error}") from None
    told = f"{path}: {picture.told(len(data))}"
    if len(data) > LARGEST_PICTURE or max(picture.width, picture.height) > LONGEST_SIDE:
        raise WorkspaceError(
            f"{told}, is too large to be shown: {LARGEST_PICTURE:,} bytes and {LONGEST_SIDE:,} px on a side "
            "are the most. Write a smaller copy by evaluating code, or read its pixels there"
        )
    return ToolOutput(told, blocks=(ImageBlock(data, picture.mime),))


def _read_buffer(workspace: Workspace) -> Tool:
    return _make(
        "read_buffer",
        "Read an open document or some lines of it, with changes that its owner has not saved yet. Use it "
        "to go through a long file in parts, or to see what a person has in the editor right now.",
        {
            "buffer": BUFFER,
            "start": whole("First line to show, counted from 1; by default the first", minimum=1),
            "end": whole("Last line to show, included; by default the last", minimum=1),
        },
        lambda a: _part(workspace.document(a.get("buffer")), a, "read_buffer"),
        title="Read lines of an open document",
        paths=workspace.declared_buffer("read_buffer"),
    )


def _part(document: Document, arguments: dict[str, Any], tool: str) -> str:
    """Return lines of a document unchanged. Omitted lines are announced."""
    every = lines(document.text)
    first, end = arguments.get("start") or 1, arguments.get("end")
    if (end is not None and end < first) or (first > len(every) and first > 1):
        asked = f"{first} to {end}" if end is not None else f"from {first} on"
        raise WorkspaceError(f"there are no lines {asked}: {document.name} has {len(every)} lines")
    part = every[first - 1 : end]
    if arguments.get("numbers"):
        part = [f"{number:>4}  {line}" for number, line in enumerate(part, first)]
    shown, count = _fitting(part)
    if count == len(part):
        return shown
    last = first + count - 1
    where = (
        f"lines {first} to {last}"
        if count
        else f"{len(shown):,} of {len(part[0]):,} characters of line {first}"
    )
    more = f"; {tool} with start={max(last, first) + 1} shows more" if max(last, first) < len(every) else ""
    return f"{shown}\n… [{where} of {len(every)} lines shown{more}]"


def _fitting(part: list[str]) -> tuple[str, int]:
    """Return as many whole lines as fit and their number. If even the first does not fit, return a part."""
    size = 0
    for count, line in enumerate(part):
        size += len(line)
        if size > MOST_CHARACTERS:
            return ("".join(part[:count]) if count else line[:MOST_CHARACTERS]), count
    return "".join(part), len(part)


def _search_in_buffer(workspace: Workspace) -> Tool:
    return _make(
        "search_in_buffer",
        "Find the lines of an open document that contain a text or match a regular expression; returns them "
        "with their line numbers. Use it to find a place in a long file before you read lines around it.",
        {
            "pattern": text("Text to find, or a regular expression when regex is true", minLength=1),
            "buffer": BUFFER,
            "regex": flag("Whether the pattern is a regular expression", default=False),
            "all_matches": flag("Whether to return all matching lines or only the first", default=True),
        },
        lambda a: _search(workspace.document(a.get("buffer")), a),
        required=["pattern"],
        title="Search an open document",
        paths=workspace.declared_buffer("search_in_buffer"),
    )


def _search(document: Document, arguments: dict[str, Any]) -> str:
    pattern = arguments["pattern"]
    matches = _matcher(pattern, regex=arguments.get("regex", False))
    found = _matching(document, matches)
    if not found:
        return f"No line of {document.name} matches {pattern!r:.200}."
    if not arguments.get("all_matches", True):
        return found[0]
    rest = len(found) - MOST_MATCHES
    return "\n".join(found[:MOST_MATCHES]) + (f"\n… {rest} more lines match" if rest > 0 else "")


def _matching(document: Document, matches: Callable[[str], bool]) -> list[str]:
    """Return the matching lines with their numbers. A pattern that takes too long is refused."""
    until = monotonic() + SEARCH_SECONDS
    found = []
    for number, line in enumerate(lines(document.text), 1):
        text = line.rstrip("\r\n")
        if matches(text):
            found.append(f"{number}: {_shortened(text)}")
        if monotonic() > until:
            raise WorkspaceError(f"the search was given up at line {number}: make the pattern simpler")
    return found


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}… ({len(line):,} characters)"


def _matcher(pattern: str, *, regex: bool) -> Callable[[str], bool]:
    if not regex:
        return lambda line: pattern in line
    try:
        # The engine of the schema validator is bounded in time. Python's own is not.
        validator = compile_cached({"type": "string", "pattern": pattern})
    except InvalidSchemaError:
        raise WorkspaceError(
            f"{pattern!r:.200} is not a regular expression: correct it, or search for the plain text with "
            "regex false"
        ) from None
    return validator.is_valid


def _write_file(workshop: Workshop, workspace: Workspace) -> Tool:
    other = "edit_file" if workshop.has("edit_file") else "propose_file_edit"
    return _make(
        "write_file",
        workshop.told(
            "Write a file of the project as a whole: a new one, or in place of what is there. DESTRUCTIVE, a "
            "person approves each call. Encoding and line ends of an existing file are kept; missing "
            "directories are made.",
            (other, f"To change a part of a file use {other}."),
        ),
        {"path": PATH, "content": text("The whole new text of the file"), "load": LOAD},
        lambda a: _write(workshop, workspace, a),
        required=["path", "content"],
        title="Write a file",
        safety_level="dangerous",
        categories=["buffer", "filesystem"],
        target_state=lambda a: _with_load(workshop, a, workspace.state(a["path"])),
        effect=lambda a: _difference(workshop, workspace, a),
        judged_as=as_evaluation(load=True),
        open_world=workshop.open_world,
        # A new file has no old text, so there are no hunks to choose from.
        edits=Edits(
            lambda a: _texts(workspace, a), lambda a, _, after: {**a, "content": after}, ("content",)
        ),
        paths=workspace.declared("write_file"),
    )


def _texts(workspace: Workspace, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """Return the current text of the file, and its replacement."""
    document = workspace.read(workspace.place(arguments["path"]))
    return document.text, document.script.shown(arguments["content"])


def _write(workshop: Workshop, workspace: Workspace, arguments: dict[str, Any]) -> Any:
    check_loadable(arguments)
    place = workspace.place(arguments["path"])
    change = "changed" if place.found is not None else "created"
    told = f"Wrote {workspace.write(place, arguments['content'])} bytes to {place.told}"
    more = after_writing(workshop, workspace, {**arguments, "path": place})
    return with_load(told, more, f"{change} {place.name}")


def _with_load(workshop: Workshop, arguments: dict[str, Any], state: str | None) -> str:
    """Name the targets of a call: the file, and the image that loads it."""
    return " ".join(filter(None, [state, state_for_load(workshop, arguments)]))


def _difference(workshop: Workshop, workspace: Workspace, arguments: dict[str, Any]) -> Effect:
    """Show a person the change of a file."""
    check_loadable(arguments)
    place, content = workspace.place(arguments["path"]), arguments["content"]
    if place.found is None:
        change = hunks.diff("", content, place.shown)
        state = _with_load(workshop, arguments, workspace.state(place))
        return Effect(note=f"{place.shown} is a new file.", difference=change, state=state)
    document = workspace.read(place)
    change = hunks.diff(document.text, document.script.shown(content), place.shown)
    state = _with_load(workshop, arguments, document.digest)
    return _as_effect(change, f"{place.shown} already has that text.", state)


def _as_effect(difference: str, otherwise: str, state: str) -> Effect:
    return Effect("" if difference else otherwise, difference, state=state)


def _propose_file_edit(workspace: Workspace) -> Tool:
    return _make(
        "propose_file_edit",
        "Propose a change of an existing file. A person sees the difference and accepts or rejects it "
        "hunk by hunk; the answer says which hunks were applied. Read the file first: the proposal is "
        "refused when the file no longer is as you say. Do not propose rejected hunks again.",
        {
            "path": PATH,
            "original": text("The whole present text of the file, exactly as read_file gave it"),
            "modified": text("The whole new text of the file"),
            "description": text("What the change does and why, for the person who decides"),
        },
        lambda a: _apply_edit(workspace, a),
        required=["path", "original", "modified", "description"],
        title="Propose an edit",
        safety_level="dangerous",
        categories=["diff"],
        target_state=lambda a: _fresh(workspace, a).digest,
        effect=lambda a: _as_effect(
            hunks.diff(a["original"], a["modified"], workspace.place(a["path"]).shown),
            "Nothing would change.",
            _fresh(workspace, a).digest or "",
        ),
        edits=("original", "modified"),
        paths=workspace.declared("propose_file_edit"),
    )


def _fresh(workspace: Workspace, arguments: Any) -> Document:
    """Return the document of a proposal. Refuse a proposal that was made for another text."""
    path, original = workspace.place(arguments["path"]), arguments["original"]
    workspace.state(path)
    document = workspace.read(path)
    if not document.script.same(document.text, original):
        change = hunks.diff(original, document.text, document.name)
        shown = change[:LONGEST_DIFFERENCE] + ("…\n" if len(change) > LONGEST_DIFFERENCE else "")
        raise WorkspaceError(
            f"{path} is not what the proposal was made for: read it again and make the proposal anew. "
            f"{VIEWED if is_notebook(path.name) else ''}What differs:\n{shown}"
        )
    return document


def _apply_edit(workspace: Workspace, arguments: dict[str, Any]) -> Any:
    path, modified = workspace.place(arguments["path"]), arguments["modified"]
    document = _fresh(workspace, {**arguments, "path": path})
    if document.script.same(document.text, modified):
        return f"{path.told} already has that text; nothing was written."
    workspace.write(path, modified, expected=document.digest)
    shown = document.script.shown(modified)
    count = counted(len(hunks.split(document.text, shown)), "hunk")
    change = hunks.diff(document.text, shown, document.name)
    told = f"Applied {count} to {path.told}:\n{change}"
    return with_facts(told, RunFacts(files=(f"changed {path.name}",)))
