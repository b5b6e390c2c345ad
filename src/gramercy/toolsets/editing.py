"""The tool that changes a part of a file: it replaces a text that occurs once.

A person sees the difference in the whole file and accepts it hunk by hunk, as with propose_file_edit. If the
text is not in the file, the answer shows the closest match. Lines count from 1.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from gramercy.errors import WorkspaceError
from gramercy.text import counted, cut, listed, reveal_line
from gramercy.tools.definition import create_tool
from gramercy.tools.effects import Effect
from gramercy.tools.tool import Edits
from gramercy.toolsets import hunks
from gramercy.toolsets.documents import CRLF, is_notebook, lines, plain
from gramercy.toolsets.factory import as_evaluation, flag, text, whole
from gramercy.toolsets.loading import LOAD, after_writing, check_loadable, state_for_load, with_load
from gramercy.toolsets.notebooks import VIEWED
from gramercy.toolsets.workspace import encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gramercy.tools.content import ToolOutput
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
# Line numbers listed for a change in many places. The rest is counted.
MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class Change:
    """The change of a file that a call would make."""

    document: Document
    after: str

    def difference(self, path: str) -> str:
        """Show the change to a person."""
        return hunks.diff(self.document.text, self.after, path)

    def told(self, path: str) -> str:
        """Describe which lines have changed, by their new numbers."""
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
        some = listed(places, MOST_LINES, counts=True)
        return f"Edited {len(places)} places in {path} ({count}): {some}"


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
    then: Callable[[dict[str, Any]], str | ToolOutput] | None = None,
    also: Callable[[Mapping[str, Any]], str] | None = None,
    **options: Any,
) -> Tool:
    """Make a dangerous tool that changes a part of the file under `path`.

    `change` computes the result of a call, or refuses it. It is called for the question to a person and again
    when the call runs. `narrowed` writes the accepted hunks as arguments of such a call. `hidden` are the
    arguments that the difference shows better. `then` is called after the file is written, and its result is
    reported with its facts. `also` names other things that a call acts on, beside the file.
    """

    def placed(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {**arguments, "path": workspace.place(arguments["path"])}

    def run(arguments: dict[str, Any]) -> Any:
        arguments = placed(arguments)
        made, path = change(arguments), arguments["path"]
        workspace.write(path, made.after, expected=made.document.digest)
        more = then(arguments) if then is not None else ""
        return with_load(made.told(path.told), more, f"changed {path.name}")

    def state(arguments: Mapping[str, Any], made: Change) -> str:
        return " ".join(filter(None, [made.document.digest, also(arguments) if also is not None else ""]))

    def effect(arguments: dict[str, Any]) -> Effect:
        made = change(placed(arguments))
        return Effect(
            difference=made.difference(reveal_line(made.document.name)), state=state(arguments, made)
        )

    def texts(arguments: Mapping[str, Any]) -> tuple[str, str]:
        made = change(placed(arguments))
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
        target_state=lambda a: state(a, change(placed(a))),
        effect=effect,
        paths=workspace.declared(name),
        edits=Edits(texts, narrowed, hidden),
        **{"open_world": False, **options},
    )


def edit_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tool that replaces one text by another."""
    return [_edit_file(workshop, workspace)]


def _edit_file(workshop: Workshop, workspace: Workspace) -> Tool:
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
            "load": LOAD,
        },
        change=lambda a: _change(workspace, a),
        narrowed=_narrowed,
        then=lambda a: after_writing(workshop, workspace, a),
        also=lambda a: state_for_load(workshop, a),
        required=["path", "old", "new"],
        hidden=("old", "new"),
        open_world=workshop.open_world,
        title="Edit a part of a file",
        judged_as=as_evaluation(load=True),
        categories=["filesystem"],
        aliases=_renamed,
    )


def _renamed(arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Accept the argument names of other clients' editing tools, which models know by heart."""
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
    check_loadable(arguments)
    workspace.state(path)
    document = workspace.read(path)
    old, new = document.script.shown(old), document.script.shown(new)
    if old == new:
        raise WorkspaceError("old and new are the same: nothing would change")
    after = replaced(document.text, _places(document, old, arguments), new)
    encoded(document.script, after, path)
    return Change(document, after)


def _places(document: Document, old: str, arguments: Mapping[str, Any]) -> list[Match]:
    """Return the places to change: one, or all on request."""
    found = matches(document.text, old)
    if not found:
        viewed = VIEWED if is_notebook(document.name) else ""
        raise WorkspaceError(f"old is not in {document.name}. {viewed}{closest(document.text, old)}")
    near = arguments.get("near_line")
    if near is not None and len(found) > 1:
        found.sort(key=lambda place: abs(place.line - near))
        is_clear = abs(found[0].line - near) < abs(found[1].line - near)
        found = found[:1] if is_clear else sorted(found, key=lambda place: place.start)
    if len(found) > 1 and not arguments.get("all"):
        raise WorkspaceError(
            f"old is in {document.name} {len(found)} times: give more of the lines around it, near_line, or "
            f"all true to change every one.\n{places_listed(document.text, found)}"
        )
    return found


def _narrowed(arguments: Mapping[str, Any], before: str, after: str) -> dict[str, Any]:
    """Write a part of a change as a call: whole lines from the first to the last that changes."""
    found, every, changed = hunks.split(before, after), lines(before), lines(after)
    first, last = found[0].start, found[-1].start + len(found[-1].removed)
    if first == last:
        # Lines that are only added need an existing line beside them to anchor to.
        first, last = (first - 1, last) if first else (first, last + 1)
    rest = len(every) - last
    kept = {name: arguments[name] for name in ("path", "description", "load") if name in arguments}
    old, new = "".join(every[first:last]), "".join(changed[first : len(changed) - rest])
    return {**kept, "old": old, "new": new, "near_line": first + 1}


# As many places as a model compares at a glance. The rest is counted.
MOST_PLACES = 20
# Enough to recognize a line.
LONGEST_LINE = 120
# Lines shown of the closest match: a model copies it into its next attempt.
MOST_SHOWN = 30
# Comparing characters takes about 20 microseconds a line: 0.2 s. The rest of a long file is left out.
MOST_COMPARED = 10_000
# Pairs of equal lines that vote for a place: 0.1 s. A repetitive text has too many of them.
MOST_PAIRS = 200_000
# Below this ratio lines have little more in common than letters.
ALIKE = 0.6
# Lines as read_file numbers them.
_NUMBERED = re.compile(r" *\d+  ")


@dataclass(frozen=True, slots=True)
class Match:
    """A piece of a text, by its characters and by the line where it begins."""

    start: int
    end: int
    line: int


def matches(text: str, piece: str) -> list[Match]:
    """Return all matches of a text, also overlapping ones. Without a match, CRLF counts as newline."""
    spans = _spans(text, piece)
    if not spans and CRLF in text:
        # The offsets of newlines in the plain text where a carriage return was removed.
        left = [found.start() - number for number, found in enumerate(re.finditer(CRLF, text))]
        found = _spans(plain(text), plain(piece))
        spans = [(start + bisect_left(left, start), end + bisect_left(left, end)) for start, end in found]
    starts = list(accumulate(map(len, lines(text)), initial=0)) if spans else []
    return [Match(start, end, bisect_right(starts, start)) for start, end in spans]


def _spans(text: str, piece: str) -> list[tuple[int, int]]:
    found, start = [], text.find(piece)
    while start >= 0:
        found.append((start, start + len(piece)))
        start = text.find(piece, start + 1)
    return found


def replaced(text: str, places: list[Match], new: str) -> str:
    """Return the text with all matches replaced. A match that overlaps the previous one is left alone."""
    parts, end = [], 0
    for place in places:
        if place.start >= end:
            parts += [text[end : place.start], _ended_as(text, place, new)]
            end = place.end
    return "".join([*parts, text[end:]])


def _ended_as(text: str, place: Match, new: str) -> str:
    """Return the new text with the line ends of its place: a file may have both kinds."""
    there = text[place.start : place.end]
    if "\n" not in there:
        there = text[place.end : text.find("\n", place.end) + 1]
    is_crlf = there.count("\n") == there.count(CRLF) > 0
    return plain(new).replace("\n", CRLF) if is_crlf else new


def places_listed(text: str, found: list[Match]) -> str:
    """List places with their lines. Where the lines are equal, add the block that each is in."""
    every = lines(text)
    shown = [f"{place.line}: {_line(every[place.line - 1])}" for place in found[:MOST_PLACES]]
    if len({every[place.line - 1] for place in found}) == 1:
        shown = [
            f"{row}{_within(every, place.line)}"
            for row, place in zip(shown, found[:MOST_PLACES], strict=True)
        ]
    rest = len(found) - MOST_PLACES
    return "\n".join([*shown, *([f"… {rest} more"] if rest > 0 else [])])


def _within(every: list[str], line: int) -> str:
    """Name the nearest line above with less indentation: the head of the definition or block, usually."""
    own = _indentation(every[line - 1])
    for above in reversed(every[: line - 1]):
        if above.strip() and len(_indentation(above)) < len(own):
            return f"   (in: {_line(above).strip()})"
    return f"   (after: {_line(every[line - 2]).strip()})" if line > 1 else ""


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _line(line: str) -> str:
    return cut(line.rstrip("\r\n"), LONGEST_LINE)


def closest(text: str, piece: str) -> str:
    """Describe the closest match for a text that is missing, so that the next attempt fits."""
    every, wanted = lines(text), lines(piece)
    if all(_NUMBERED.match(line) for line in wanted if line.strip()):
        bare = "".join(_NUMBERED.sub("", line, count=1) for line in wanted)
        if found := matches(text, bare):
            return f"Without the line numbers it is on line {found[0].line}: leave them out."
    first = _same_but_for_space(every, wanted)
    if first is not None:
        there = every[first : first + len(wanted)]
        return f"Only white space differs on {_range(first, there)}: {_space(there, wanted, first)}.\n" + (
            _shown(there, first)
        )
    first = _most_alike(every, wanted)
    if first is None:
        return f"None of its {len(every)} lines is like it: read the file again."
    there = every[first : first + len(wanted)]
    differing = [first + n + 1 for n, line in enumerate(there) if line.rstrip() != wanted[n].rstrip()]
    where = f"; what differs is on line {', '.join(map(str, differing[:MOST_PLACES]))}" if differing else ""
    return f"The closest is {_range(first, there)}{where}:\n{_shown(there, first)}"


def _range(first: int, there: list[str]) -> str:
    return f"line {first + 1}" if len(there) == 1 else f"lines {first + 1} to {first + len(there)}"


def _shown(there: list[str], first: int) -> str:
    """Show lines with their numbers, as read_file does."""
    rows = [f"{number:>4}  {_line(line)}" for number, line in enumerate(there[:MOST_SHOWN], first + 1)]
    rest = len(there) - MOST_SHOWN
    return "\n".join([*rows, *([f"… {rest} more lines"] if rest > 0 else [])])


def _same_but_for_space(every: list[str], wanted: list[str]) -> int | None:
    """Return the index where all lines are equal except for space at either end."""
    bare, sought = [line.strip() for line in every], [line.strip() for line in wanted]
    if not any(sought):
        return None
    # One search in a text of all lines: comparing them at every place would take quadratic time.
    joined = "\n".join(["", *bare, ""])
    start = joined.find("\n".join(["", *sought, ""]))
    return None if start < 0 else joined.count("\n", 0, start)


def _space(there: list[str], wanted: list[str], first: int) -> str:
    """Describe the white space of the first line that differs."""
    for number, (line, want) in enumerate(zip(there, wanted, strict=True), first + 1):
        if _indentation(line) != _indentation(want):
            return f"line {number} is indented by {_named(line)}, in old by {_named(want)}"
        if line.rstrip("\r\n") != want.rstrip("\r\n"):
            ends = line.rstrip("\r\n")
            extra = "has" if ends != ends.rstrip() else "does not have"
            return f"line {number} {extra} spaces or tabs at its end"
    return f"line {first + len(there)} ends without a newline, old with one"


def _named(line: str) -> str:
    spaces = Counter(_indentation(line.rstrip("\r\n")))
    known = {" ": "space", "\t": "tab"}
    return " and ".join(counted(n, known.get(c, repr(c))) for c, n in spaces.items()) or "nothing"


def _most_alike(every: list[str], wanted: list[str]) -> int | None:
    """Return the index where most lines are equal, else where one line is very similar."""
    bare = [line.strip() for line in every]
    places: dict[str, list[int]] = {}
    for n, line in enumerate(bare):
        places.setdefault(line, []).append(n)
    votes: defaultdict[int, float] = defaultdict(float)
    for index, found in _voters(places, wanted):
        for n in found:
            # A line that occurs everywhere, such as a closing bracket, says little about the place.
            votes[max(0, n - index)] += 1 / len(found)
    if votes:
        return max(votes, key=votes.__getitem__)
    index = max(range(len(wanted)), key=lambda n: len(wanted[n].strip()))
    alike = _alike(bare[:MOST_COMPARED], wanted[index].strip())
    return None if alike is None else max(0, alike - index)


def _voters(places: dict[str, list[int]], wanted: list[str]) -> list[tuple[int, list[int]]]:
    """Return the lines that vote for a place, each with its places. Of too many, keep the rarest."""
    bare = [line.strip() for line in wanted]
    found = [(index, places[line]) for index, line in enumerate(bare) if line and line in places]
    if sum(len(there) for _, there in found) <= MOST_PAIRS:
        return found
    found.sort(key=lambda each: len(each[1]))
    counts = accumulate(len(there) for _, there in found)
    most = sum(count <= MOST_PAIRS for count in counts)
    return sorted(found[: max(1, most)])


def _alike(bare: list[str], want: str) -> int | None:
    compared = SequenceMatcher(None, autojunk=False)
    compared.set_seq2(want[:LONGEST_LINE])
    best, place = ALIKE, None
    for n, line in enumerate(bare):
        compared.set_seq1(line[:LONGEST_LINE])
        # Each of these is an upper bound of the next and much cheaper.
        if (
            compared.real_quick_ratio() > best
            and compared.quick_ratio() > best
            and (ratio := compared.ratio()) > best
        ):
            best, place = ratio, n
    return place
