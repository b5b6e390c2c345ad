"""Search the files of a project for a text or a regular expression, except for files that git ignores.

A file is first tested as a whole, usually by its bytes. Only a file that may match is searched line by line.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from gramercy.errors import FileTooLargeError, InvalidSchemaError, WorkspaceError
from gramercy.gram.json_schema import compile_cached
from gramercy.text import counted
from gramercy.tools.definition import create_tool
from gramercy.toolsets import storage
from gramercy.toolsets.documents import decode, lines
from gramercy.toolsets.factory import flag, text, whole
from gramercy.toolsets.listing import (
    GLOB,
    LONGEST_ANSWER,
    Selection,
    list_files,
    shown_name,
    told_environments,
)
from gramercy.toolsets.walking import Tally
from gramercy.toolsets.workspace import LARGEST_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.workspace import Workspace

# Fifty times the duration for a project of 50,000 files. After that it is better to narrow the search.
SEARCH_SECONDS = 20.0
# Enough to recognize a line. Minified code has lines of a megabyte.
LONGEST_LINE = 200
MOST_CONTEXT = 10
# Matches kept of one file, and in all. An answer shows those that fit: some of every file where many match.
MOST_OF_ONE = 200
MOST_KEPT = 2_000
# About the number of lines that fit into an answer, and the least number shown of one file.
SHOWN = 80
FEWEST = 2
# Files that are listed with the number of their lines that are not shown.
MOST_NAMED = 20
# Characters reserved for the text about lines that are not shown.
ROOM = 700
_WIDE = (b"\xff\xfe", b"\xfe\xff")
# Look-around, references and other constructs that depend on more than the matching characters. With them a
# whole file may fail to match although one of its lines alone does.
_FANCY = re.compile(r"\(\?[^:imsx]|\\[1-9kKGAzZ]|[+*?}]\+")
_LOOKS_LIKE_REGEX = re.compile(r"\\[wdsbS.(\[]|\.[*+]|[^\\]\||\[\^?[a-zA-Z0-9]-|[)\]][*+?]|^\^|\$$")


def searching_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the two tools that find files."""
    del workshop
    return [list_files(workspace), _search_files(workspace)]


def _search_files(workspace: Workspace) -> Tool:
    properties = {
        "pattern": text("Text that a line has", minLength=1),
        "regex": flag("Whether it is a regular expression"),
        "ignore_case": flag("Whether case does not matter"),
        "path": text("Directory or file to search"),
        "glob": GLOB,
        "context": whole("Lines to show around each", minimum=0, maximum=MOST_CONTEXT),
    }
    return create_tool(
        "search_files",
        "Find lines in the files of the project, as file:line: text. Use it to find where something is "
        "written. What git ignores is left out unless path is in it.",
        {"type": "object", "properties": properties, "required": ["pattern"], "additionalProperties": False},
        lambda a: _search(workspace, a),
        title="Search files",
        paths=workspace.declared("search_files", walks=True),
        categories=["filesystem"],
        open_world=False,
    )


@dataclass(frozen=True, slots=True)
class Query:
    """The subject of a search: a test of one line, and a test of a whole file.

    Every file with a matching line passes the whole-file test. It uses the bytes of the file, or its text.
    """

    in_line: Callable[[str], bool]
    in_bytes: Callable[[bytes], bool] | None = None
    in_text: Callable[[str], bool] | None = None

    def may_match(self, data: bytes) -> bool:
        """Return whether a file has to be searched line by line."""
        if data[:2] in _WIDE:
            return True
        if self.in_bytes is not None:
            return self.in_bytes(data)
        try:
            return self.in_text is None or self.in_text(data.decode())
        except UnicodeDecodeError:
            # The file has another encoding, or is binary, which does not match.
            return b"\0" not in data


def query_of(pattern: str, *, regex: bool, ignore_case: bool) -> Query:
    """Return the tests for a text or a regular expression."""
    if regex:
        return _expression(pattern, "i" if ignore_case else "")
    if "\n" in pattern or "\r" in pattern:
        raise WorkspaceError("the pattern has a line end in it, and lines are searched: give one line of it")
    if not ignore_case:
        first, *others = _needles(pattern)
        if not others:
            return Query(lambda line: pattern in line, lambda data: first in data)
        (second,) = others
        return Query(lambda line: pattern in line, lambda data: first in data or second in data)
    if pattern.isascii():
        small = pattern.lower().encode()
        # Only ASCII letters fold case, since the bytes decide: the Kelvin sign is not a k here.
        folded = re.compile(re.escape(pattern), re.IGNORECASE | re.ASCII)
        return Query(lambda line: bool(folded.search(line)), lambda data: small in data.lower())
    unfolded = pattern.casefold()
    return Query(lambda line: unfolded in line.casefold(), None, lambda text: unfolded in text.casefold())


def _needles(pattern: str) -> list[bytes]:
    """Return a text in the encodings that a file without a byte order mark may have."""
    needles = [pattern.encode("utf-8", "surrogatepass")]
    if not pattern.isascii():
        with contextlib.suppress(UnicodeEncodeError):
            needles.append(pattern.encode("latin-1"))
    return needles


def _expression(pattern: str, flags: str) -> Query:
    one = _compiled(f"(?{flags}){pattern}" if flags else pattern, pattern)
    if _FANCY.search(pattern):
        return Query(one)
    whole_text = _compiled(f"(?m{flags})(?:{pattern})", pattern)
    # A lone or mixed-in carriage return ends a line for us, but not for the engine.
    return Query(one, None, lambda text: whole_text(text) or "\r" in text)


def _compiled(expression: str, pattern: str) -> Callable[[str], bool]:
    try:
        # The engine of the schema validator is bounded in time. Python's own is not.
        return compile_cached({"type": "string", "pattern": expression}).is_valid
    except InvalidSchemaError:
        raise WorkspaceError(
            f"{pattern!r:.200} is not a regular expression: correct it, or search for the plain text with "
            "regex false"
        ) from None


@dataclass(slots=True)
class Hits:
    """The matching lines of a file. `rows` are those that may be shown: number, text, whether it matches."""

    path: str
    count: int
    rows: list[tuple[int, str, bool]]


@dataclass(slots=True)
class Outcome:
    """The matches of a search, and the files that it skipped."""

    found: list[Hits] = field(default_factory=list)
    files: int = 0
    binary: list[str] = field(default_factory=list)
    huge: list[str] = field(default_factory=list)
    unreadable: int = 0
    tally: Tally = field(default_factory=Tally)
    until: float = 0.0
    kept: int = 0
    stopped_at: str = ""
    withheld: str = ""

    @property
    def count(self) -> int:
        """The number of lines that match."""
        return sum(hits.count for hits in self.found)


def _search(workspace: Workspace, arguments: dict[str, Any]) -> str:
    pattern, context = arguments["pattern"], arguments.get("context", 0)
    is_regex = arguments.get("regex", False)
    query = query_of(pattern, regex=is_regex, ignore_case=arguments.get("ignore_case", False))
    selection = Selection(workspace, arguments.get("path"), arguments.get("glob"))
    outcome = find(selection, query, context)
    outcome.withheld = selection.told_withheld
    if outcome.found:
        return _answer(outcome, has_context=context > 0)
    hint = ""
    if not is_regex and _LOOKS_LIKE_REGEX.search(pattern):
        hint = "\nIt was searched for as plain text: regex true makes it a regular expression."
    return f"No line has {pattern!r:.200}: {_searched(outcome, selection)}{hint}"


def _searched(outcome: Outcome, selection: Selection) -> str:
    """Describe what was searched, when nothing was found."""
    files = f"{counted(outcome.files, 'file')} searched"
    where = f" below {shown_name(selection.path)}" if selection.path else ""
    glob = f" that fit {selection.glob:.200}" if selection.glob else ""
    over = _passed_over(outcome)
    ignored = f"; git ignores {outcome.tally.ignored:,} files or directories" if outcome.tally.ignored else ""
    left = f"; {told_environments(outcome.tally)}" if outcome.tally.environments else ""
    return f"{files}{where}{glob}{ignored}{left}." + (f"\n{over}" if over else "")


def find(selection: Selection, query: Query, context: int = 0) -> Outcome:
    """Search files until all are done or the time is over."""
    outcome = Outcome(until=monotonic() + SEARCH_SECONDS)
    for folder in selection.folders(outcome.tally):
        for number, name in enumerate(selection.fitting(folder)):
            # Checking the clock for every file would cost a tenth of the search.
            if not number % 16 and monotonic() > outcome.until:
                outcome.stopped_at = folder.path + name
            if outcome.stopped_at:
                return outcome
            try:
                data = storage.glance(folder.descriptor, name, LARGEST_FILE)
            except FileTooLargeError:
                outcome.huge.append(folder.path + name)
                continue
            except OSError:
                outcome.unreadable += 1
                continue
            outcome.files += 1
            if query.may_match(data):
                _match(outcome, folder.path + name, data, query, context)
    return outcome


def _match(outcome: Outcome, path: str, data: bytes, query: Query, context: int) -> None:
    """Add the lines of a file that match."""
    decoded = decode(data)
    if decoded is None:
        outcome.binary.append(path)
        return
    every = lines(decoded[0])
    numbers = []
    for number, line in enumerate(every):
        if query.in_line(line.rstrip("\r\n")):
            numbers.append(number)
        # One line with a bad expression takes some milliseconds.
        if not number % 16 and monotonic() > outcome.until:
            outcome.stopped_at = f"{path}:{number + 1}"
            break
    if numbers:
        room = min(MOST_OF_ONE, MOST_KEPT - outcome.kept)
        rows = list(islice(_rows(every, numbers, context), room)) if room > 0 else []
        outcome.kept += len(rows)
        outcome.found.append(Hits(path, len(numbers), rows))


def _rows(every: list[str], numbers: list[int], context: int) -> Iterator[tuple[int, str, bool]]:
    """Yield the lines to show, each once, with their context."""
    shown = -1
    for index, number in enumerate(numbers):
        first = max(number - context, shown + 1)
        coming = numbers[index + 1] if index + 1 < len(numbers) else len(every)
        last = min(number + context, coming - 1, len(every) - 1)
        for place in range(first, last + 1):
            yield place + 1, _shortened(every[place].rstrip("\r\n")), place == number
        shown = last


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}… ({len(line):,} characters)"


def _answer(outcome: Outcome, *, has_context: bool) -> str:
    """Format lines as far as there is room, some of every file, and count the others."""
    count, files = outcome.count, len(outcome.found)
    head = f"{counted(count, 'line')} in {counted(files, 'file')}"
    most = max(FEWEST, SHOWN // files) if files > 1 else MOST_OF_ONE
    over = _passed_over(outcome)
    room = LONGEST_ANSWER - ROOM - len(head) - len(over)
    rows: list[str] = []
    left: list[tuple[str, int]] = []
    for hits in outcome.found:
        taken, size, matched = _taken(hits, most, room, has_context=has_context)
        room -= size
        rows += taken
        if matched < hits.count:
            left.append((hits.path, hits.count - matched))
    return "\n".join([f"{head}:", *rows, *_rest(left), *filter(None, [over])])


def _taken(hits: Hits, most: int, room: int, *, has_context: bool) -> tuple[list[str], int, int]:
    """Return the lines of a file that fit, their size, and the number of matches among them."""
    taken: list[str] = []
    size = matched = last = 0
    name = shown_name(hits.path)
    for number, line, is_match in hits.rows:
        if is_match and matched == most:
            break
        row = f"{name}:{number}{':' if is_match else '-'} {line}".rstrip()
        if has_context and taken and number != last + 1:
            row = f"--\n{row}"
        if size + len(row) + 1 > room:
            break
        taken.append(row)
        size += len(row) + 1
        matched += is_match
        last = number
    return taken, size, matched


def _rest(left: list[tuple[str, int]]) -> list[str]:
    if not left:
        return []
    count = sum(number for _, number in left)
    named, size = [], 0
    for path, number in left[:MOST_NAMED]:
        entry = f"{shown_name(path)} {number:,}"
        size += len(entry) + 2
        if size > ROOM - 200:
            break
        named.append(entry)
    others = len(left) - len(named)
    more = f" and {others:,} more files" if others else ""
    told = f": {', '.join(named)}" if named else ""
    return [f"… {count:,} more lines{told}{more}. Narrow it with path, glob or a longer pattern."]


def _passed_over(outcome: Outcome) -> str:
    """Describe the files that were not searched, or not to their end."""
    parts = []
    if outcome.binary:
        parts.append(f"{_few(outcome.binary)} binary with it")
    if outcome.huge:
        parts.append(f"{_few(outcome.huge)} larger than {LARGEST_FILE >> 20} MB")
    unreadable = outcome.unreadable + outcome.tally.unreadable
    if unreadable:
        parts.append(f"{unreadable:,} unreadable")
    if outcome.withheld:
        parts.append(outcome.withheld)
    told = f"Passed over: {', '.join(parts)}." if parts else ""
    if outcome.stopped_at:
        at = shown_name(outcome.stopped_at)
        told += f" Stopped after {SEARCH_SECONDS:g} s at {at}: the rest was not searched; give path or glob."
    return told.strip()


def _few(paths: list[str]) -> str:
    named = ", ".join(shown_name(path) for path in paths[:3] if len(path) <= LONGEST_LINE) or "long names"
    return f"{len(paths):,} ({named}{', …' if len(paths) > 3 else ''})"  # noqa: PLR2004 - as many as are named
