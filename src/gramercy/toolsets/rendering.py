"""Render the answer of an image as the text for a model. The formats of the session tools are fixed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gramercy.images.files.telling import attempts_text, changes_text
from gramercy.images.pictures import SVG, settled
from gramercy.text import cut, listed
from gramercy.tools.content import ImageBlock, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gramercy.images.base import Answer, Change, Display, ImageFault, Notice, Reply

# The room for all sections of one answer, some 2,000 tokens. read_output gives the rest.
LONGEST_ANSWER = 8_000
# The room of each section for a person at a terminal, who cannot page on.
MOST_OUTPUT = 30_000
# The guaranteed room of each section. Unused room goes to the sections that need more, the first one first.
# There is either an error or values. With headings the total stays below the limit.
SHARES = {
    "notes": 600,
    "error": 3_600,
    "values": 3_600,
    "warnings": 900,
    "stdout": 1_700,
    "stderr": 500,
    "log": 300,
}
ROOM = 7_600
# A note about a cut says which section, how much of how much, and how to read on.
LONGEST_NOTE = 150
MOST_PRINTED = MOST_OUTPUT + LONGEST_NOTE
# The room for all tables of an evaluation, within that of its values. The tables of one value are cut to fit.
MOST_TABLES = 3_000
# A shorter SVG is given as text, since models cannot be shown an SVG.
LONGEST_SVG = 1_500
# The innermost frames show where it failed. Recursion gives thousands.
MOST_FRAMES = 20
LONGEST_FRAME = 300
# Messages can hold whole data structures. The beginning names the problem.
LONGEST_MESSAGE = 2_000
# Restarts of an error. The innermost ones are specific to it, the others exist for every error.
MOST_CHOICES = 6
LONGEST_CHOICE = 100
# Forms with more values than this are rare, and their numbers are consecutive.
MOST_OBJECTS = 8
# They share one descriptor, so the writer of a line, and the call during which it was written, are unknown.
LOG_HEADING = "[output of threads, C code and other processes]"
NO_VALUES = "=> ; No values"
# For a language in which a statement is not an expression.
NO_VALUE = "[ok, no value]"
STREAMS = ("stdout", "stderr")
# Each of the two lists of a preview: definitions that it would change, and effects.
MOST_CHANGES = 1_200
# A file that is loaded again redefines dozens of names. More than these are grouped, in this order.
MOST_SINGLY = 8
CHANGES = {"defined": 0, "removed": 1, "redefined": 2}
LONGEST_GROUP = 250
# The headings of a session, and the image's own words for their entries.
HEADINGS = {
    "functions": ("functions", "generic_functions"),
    "variables": ("variables", "constants", "symbol_macros"),
    "macros": ("macros",),
}
# Without these a session with only a class would be reported as empty.
FURTHER = {
    "classes": ("classes", "structures", "conditions"),
    "types": ("types",),
    "packages": ("packages",),
}


class Section(NamedTuple):
    """A part of an answer. `total` is the length of the whole text. An image may have kept less."""

    name: str
    heading: str
    text: str
    total: int

    def shown(self, most: int, hint: str) -> str:
        """Return at most this much of it, with its heading. A cut is announced with a hint."""
        shown = self.text if len(self.text) <= most else self.text[: max(0, most - LONGEST_NOTE)]
        if len(shown) >= self.total:
            return f"{self.heading}{shown}"
        more = hint.format(offset=len(shown)) if len(shown) < len(self.text) else "the rest was not kept"
        cut = f"{self.name} cut: {len(shown):,} of {self.total:,} characters shown; {more}"
        return f"{self.heading}{shown}\n… [{cut}]"


def sections_of(reply: Reply, *, whole: bool = False) -> list[Section]:
    """Return the sections of a reply, the error first: either complete, or with a shortened error."""
    found = []
    if reply.error is not None:
        error = fault_text(reply.error, whole=whole)
        found.append(Section("error", "", error, len(error)))
    for stream in STREAMS:
        printed = str(getattr(reply, stream))
        if printed:
            text = printed.removesuffix("\n")
            total = max(reply.truncated.get(stream, 0), len(text))
            found.append(Section(stream, f"[{stream}]\n", text, total))
    if log := reply.log.strip():
        found.append(Section("log", f"{LOG_HEADING}\n", log, len(log)))
    if reply.warnings:
        warnings = "\n".join(map(notice_text, reply.warnings))
        found.append(Section("warnings", "[warnings]\n", warnings, len(warnings)))
    return found


def allowances(sizes: dict[str, int], room: int) -> dict[str, int]:
    """Distribute room to sections of these sizes: each gets its share, and the rest is given in order."""
    if sum(sizes.values()) <= room:
        return sizes
    given = {name: min(size, SHARES[name] * room // ROOM) for name, size in sizes.items()}
    left = max(0, room - sum(given.values()))
    for name in sorted(sizes, key=list(SHARES).index):
        more = min(left, sizes[name] - given[name])
        given[name] += more
        left -= more
    return given


def evaluation_text(reply: Reply, *, can_read_on: bool = False, room: int | None = None) -> str:
    """Write an evaluation: output sections, then one `=> value` per value of the last form.

    A failed one begins with its error. All sections share the room. Without a room, as for a person, each
    section may be long. A reader who can page on is told how.
    """
    if not (
        reply.error
        or reply.stdout
        or reply.stderr
        or reply.warnings
        or reply.log
        or reply.notes
        or reply.displays
        or reply.files
    ):
        # Most evaluations have only a short value.
        text = whole_values(reply)
        if len(text) <= (room or MOST_OUTPUT) and not reply.truncated and not reply.lengths:
            return text
    return told(reply, shows_values=reply.error is None, can_read_on=can_read_on, room=room)


def told(
    reply: Reply, *, shows_values: bool = False, can_read_on: bool = True, room: int | None = ROOM
) -> str:
    """Format the sections, the values and the notes of a reply, within limits."""
    parts = parts_of(reply, shows_values=shows_values, can_read_on=can_read_on, room=room)
    return "\n\n".join(text for _, text in parts)


def parts_of(
    reply: Reply, *, shows_values: bool = False, can_read_on: bool = True, room: int | None = ROOM
) -> list[tuple[str, str]]:
    """Return the same as separate parts, each with the name of its section, in reading order."""
    sections = sections_of(reply)
    sizes = {section.name: len(section.text) for section in sections}
    files = [f"[files] {changes_text(reply.files)}"] if reply.files else []
    sizes["notes"] = sum(len(note) + 2 for note in [*files, *reply.notes])
    tables, pictures = displays_text(reply) if reply.displays else ("", "")
    if shows_values:
        cuts = sum(length is not None for length in reply.lengths)
        sizes["values"] = len(whole_values(reply)) + cuts * LONGEST_NOTE + len(tables)
    limits = dict.fromkeys(sizes, MOST_PRINTED) if room is None else allowances(sizes, room)
    texts = [
        (section.name, section.shown(limits[section.name], hint(section.name, can_read_on)))
        for section in sections
    ]
    if shows_values:
        values = values_text(reply, limits["values"] - len(tables), can_read_on=can_read_on)
        texts.append(("values", values + tables))
    if pictures:
        texts.append(("pictures", pictures))
    notes = "\n\n".join([*files, *reply.notes])
    kept = max(limits["notes"], LONGEST_NOTE)
    if notes:
        texts.append(("notes", cut(notes, kept)))
    return texts


def displays_text(reply: Reply) -> tuple[str, str]:
    """Format the tables of a reply, which follow its values, and describe its pictures."""
    lines = [line for each in reply.displays if each.kind == "table" for line in each.text.split("\n")]
    tables = [f"\n{line}" for line in fitting(lines, MOST_TABLES)]
    pictures = [_picture_text(settled(each)) for each in reply.displays if each.kind == "picture"]
    return "".join(tables), "\n".join(pictures)


def _picture_text(display: Display) -> str:
    note = f" ({display.note})" if display.note else ""
    if display.mime == SVG and display.data:
        if len(display.data) > LONGEST_SVG:
            return f"[picture] {display.text}{note}; SVG is not shown to models: give it as PNG"
        return f"[picture] {display.text}{note}; as text:\n{display.data.decode('utf-8', 'replace')}"
    return f"[picture] {display.text}{note}"


def picture_blocks(reply: Reply) -> tuple[ImageBlock, ...]:
    """Return the pictures that a model can be shown: complete, small enough and not SVG."""
    shown = [settled(display) for display in reply.displays if display.kind == "picture"]
    return tuple(ImageBlock(each.data, each.mime) for each in shown if each.data and each.mime != SVG)


def with_pictures(text: str, reply: Reply) -> ToolOutput | str:
    """Return a text as a handler's result, with the pictures of the reply."""
    blocks = picture_blocks(reply) if reply.displays else ()
    return ToolOutput(text, blocks=blocks) if blocks else text


def hint(name: str, can_read_on: bool) -> str:  # noqa: FBT001 - the one question that it answers
    """Return a hint how to see the rest of a section. It may contain a place for an offset."""
    if not can_read_on:
        return "print less of it at a time"
    if name == "error":
        return "read_output with stream error shows all"
    return f"read_output with stream {name} and offset {{offset}} shows more"


def whole_values(reply: Reply) -> str:
    """Format the values of the last form, one line each, as far as the image has printed them."""
    values = reply.values
    if not values:
        return NO_VALUE if reply.statement else NO_VALUES
    return "=> " + "\n=> ".join(values)


def values_text(reply: Reply, most: int, *, can_read_on: bool) -> str:
    """Format the values of the last form within a limit. A cut value is marked."""
    if not any(length is not None for length in reply.lengths) and len(whole_values(reply)) <= most:
        # Some images cannot tell which value they have cut. They at least count the cuts.
        cut = "\n… [a value was cut by the image]" if reply.truncated.get("values") else ""
        return f"{whole_values(reply)}{cut}"
    texts: list[str] = []
    before = 0
    for number, value in enumerate(reply.values):
        left = most - sum(map(len, texts))
        if texts and left <= 2 * LONGEST_NOTE:
            more = hint("values", can_read_on).format(offset=before)
            return "\n".join([*texts, f"… [{len(reply.values) - number} more values; {more}]"])
        before += len("=> ")
        texts.append(f"=> {value_text(reply, number, left, hint('values', can_read_on), before)}")
        before += len(value) + 1
    return "\n".join(texts)


def value_text(reply: Reply, number: int, most: int, more: str, before: int) -> str:
    """Format one value within a limit. `before` is its offset in the text of all values."""
    value = reply.values[number]
    total = reply.lengths[number] if number < len(reply.lengths) else None
    if total is None and len(value) <= most:
        return value
    # Where the image has cut the value, its own mark may stand at the end.
    kept = value if total is None else value.removesuffix("…")
    shown = kept[: max(0, most - LONGEST_NOTE)]
    known = reply.objects[number] if number < len(reply.objects) else None
    if total is not None and known is not None and "{offset}" in more:
        more = f"read_output with object {known} and offset {len(shown)} shows more"
    # Printing that was stopped, or an image that only counts its cuts, does not tell the whole length.
    counted = total is None and reply.truncated.get("values") and kept.endswith("…")
    count = f"{len(shown):,} of {'more than ' if counted or total == 0 else ''}{total or len(kept):,}"
    return f"{shown}\n… [value cut: {count} characters shown; {more.format(offset=before + len(shown))}]"


def notice_text(notice: Notice) -> str:
    """Format a warning with its kind and place."""
    place = f" ({_place(notice.file, notice.line)})" if notice.file or notice.line is not None else ""
    kind = notice.type or notice.kind.upper()
    return f"{kind}{place}: {notice.message}"


def _place(file: str | None, line: int | None) -> str:
    if file is None:
        return f"line {line}"
    return file if line is None else f"{file}:{line}"


def fault_text(fault: ImageFault, *, whole: bool = False) -> str:
    """Format an error: its type, its message, its place, its frames, and its cause.

    In short form, only the innermost frames and the beginnings of messages. As a whole, everything.
    """
    text = f"[ERROR] {fault.type}\n{_message(fault.message, whole=whole)}"
    if fault.text is not None:
        text += f"\n{_source_text(fault)}"
    if fault.suggestions:
        text += f"\nDid you mean {' or '.join(fault.suggestions)}?"
    sections = [text, *_backtrace(fault.backtrace, whole=whole)]
    if fault.choices:
        shown = fault.choices if whole else fault.choices[:MOST_CHOICES]
        lines = [choice_line(msgspec.structs.asdict(each)) for each in shown]
        if len(shown) < len(fault.choices):
            lines.append(f"… {len(fault.choices) - len(shown)} more")
        sections.append("\n".join(["[Restarts]", *lines]))
    # ABORT is available in every evaluation, and has been used here.
    elif restarts := [name for name in fault.restarts if name != "ABORT"]:
        sections.append(f"[Restarts] {', '.join(restarts)}")
    for cause in fault.causes:
        heading = "[Caused by]" if cause.relation == "cause" else "[While handling]"
        sections += [f"{heading} {cause.type}\n{_message(cause.message, whole=whole)}"]
        sections += _backtrace(cause.backtrace, whole=whole)
    return "\n\n".join(sections)


def choice_line(choice: Mapping[str, Any]) -> str:
    """Format a restart: its number and name, its arguments, and its effect."""
    takes = f" ({' '.join(choice['parameters'])})" if choice.get("parameters") else ""
    return f"[{choice['number']}] {choice['name']}{takes}: {choice.get('report', '')[:LONGEST_CHOICE]}"


def moment_text(reply: Reply, tools: Iterable[str]) -> str:
    """Say that the stack of the error is kept, and which of these tools show it. Else return nothing."""
    fault, there = reply.error, list(tools)
    if fault is None or fault.moment is None or not there:
        return ""
    return f"{fault.moment} keeps this moment: {', '.join(there)}"


def _source_text(fault: ImageFault) -> str:
    """Show the wrong line of code, with a caret below the column, counted from 1."""
    lines = [f"{_place(fault.file, fault.line)}:"] if fault.file or fault.line is not None else []
    shown = (fault.text or "").rstrip("\n")
    lines.append(f"    {shown}")
    if fault.column is not None and 0 < fault.column <= len(shown) + 1:
        # Tabs stay tabs, so that the caret follows the reader's own tab width.
        before = "".join("\t" if mark == "\t" else " " for mark in shown[: fault.column - 1])
        lines.append(f"    {before}^")
    return "\n".join(lines)


def _backtrace(frames: list[str], *, whole: bool) -> list[str]:
    if not frames:
        return []
    # The last line of an image counts the frames that it has left out itself.
    most = len(frames) if whole or len(frames) <= MOST_FRAMES + 1 else MOST_FRAMES
    shown = frames if whole else [cut(frame, LONGEST_FRAME) for frame in frames[:most]]
    if len(shown) < len(frames):
        shown.append(f"… {len(frames) - MOST_FRAMES} more frames")
    return ["\n".join(["[Backtrace]", *shown])]


def _message(message: str, *, whole: bool = False) -> str:
    if whole or len(message) <= LONGEST_MESSAGE:
        return message
    return f"{message[:LONGEST_MESSAGE]}… [{LONGEST_MESSAGE:,} of {len(message):,} characters]"


def preview_text(reply: Reply, *, is_answer: bool = False) -> str:
    """Format a preview: like an evaluation, then definitions it would change and effects it attempted.

    As an answer to a model its length is bounded. A preview is not kept, so it cannot be read further.
    """
    room = ROOM - 2 * MOST_CHANGES if is_answer else None
    tried, reply = reply.files, msgspec.structs.replace(reply, files=[])
    sections = ["[preview] nothing was changed", evaluation_text(reply, room=room)]
    changes = change_lines(reply.changed)
    effects = [f"- {effect.kind} {effect.target}: {effect.outcome}" for effect in reply.effects]
    for heading, lines in (("[would change]", changes), ("[attempted effects]", effects)):
        if lines:
            sections.append("\n".join([heading, *(fitting(lines, MOST_CHANGES) if is_answer else lines)]))
    if tried:
        sections.append(f"[files it tried to change, as seen from outside] {attempts_text(tried)}")
    return "\n\n".join(sections)


def change_lines(changes: list[Change]) -> list[str]:
    """List changed definitions: each on a line, or many of a kind grouped, new ones first."""
    if len(changes) <= MOST_SINGLY:
        return [f"- {change.kind} {change.name} {change.change}" for change in changes]
    groups: dict[tuple[str, str], list[str]] = {}
    for change in sorted(changes, key=lambda change: CHANGES.get(change.change, 0)):
        groups.setdefault((change.change, change.kind), []).append(change.name)
    return [_group(*group, names) for group, names in groups.items()]


def _group(change: str, kind: str, names: list[str]) -> str:
    shown = ", ".join(names)
    if len(shown) > LONGEST_GROUP:
        fitting = shown[:LONGEST_GROUP].rpartition(", ")[0]
        shown = f"{fitting}, … ({len(names)} in all)"
    return f"- {change}, {kind}: {shown}"


def fitting(lines: list[str], most: int, hint: str = "") -> list[str]:
    """Return the lines that fit, and the number of those that do not."""
    shown: list[str] = []
    for line in lines:
        most -= len(line) + 1
        if most < 0:
            return [*shown, f"… {len(lines) - len(shown):,} more{hint}"]
        shown.append(line)
    return shown


def fair_share(lengths: list[int], room: int) -> int:
    """Return the length to which texts are cut so that all fit. Long ones get the room of short ones."""
    for number, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - number)
        if length > share:
            return share
        room -= length
    return max(lengths, default=0)


def definitions_text(data: dict[str, Any], kind: str | None = None, *, package: str = "") -> str:
    """List the definitions of a session in order. Names of the current package are shown without it."""
    headings = {kind: HEADINGS[kind]} if kind is not None else {**HEADINGS, **FURTHER}
    found: dict[str, list[str]] = {}
    for heading, words in headings.items():
        entries = [entry for word in words for entry in data.get(word, [])]
        if entries:
            found[heading] = [_definition_line(entry, package) for entry in sorted(entries, key=_order)]
    most = fair_share([sum(map(len, lines)) + len(lines) for lines in found.values()], ROOM)
    sections = [
        "\n".join(
            [f"[{heading.capitalize()}]", *fitting(lines, most, "" if kind else f": give type {heading}")]
        )
        for heading, lines in found.items()
    ]
    return "\n\n".join(sections) or f"No {kind or 'definitions'}."


def _name(entry: dict[str, Any]) -> str:
    return str(entry["name"])


def _order(entry: dict[str, Any]) -> int:
    """Return the position in the order of definition. An image whose lists are in that order gives none."""
    return int(entry.get("place", 0))


def _definition_line(entry: dict[str, Any], package: str) -> str:
    # Also inside of names such as (SETF CL-USER::FOO), but not at the end of another package's name.
    name = re.sub(rf"(^|[ (]){re.escape(package)}::?", r"\1", _name(entry)) if package else _name(entry)
    if entry.get("value") is not None:
        return f"- {name} = {entry['value']}"
    arguments = entry.get("arglist")
    return f"- {name} {arguments}" if arguments is not None else f"- {name}"


def answered(answer: Answer, most: int = LONGEST_ANSWER) -> ToolOutput | str:
    """Return the answer to a question as a handler's result: its text, or its failure."""
    if answer.error is not None:
        return ToolOutput(None, error=fault_text(answer.error))
    if len(answer.text) <= most:
        return answer.text
    # Images bound their answers themselves. This limit is for exceptions.
    shown = answer.text[: most - LONGEST_NOTE]
    return f"{shown}\n… [answer cut: {len(shown):,} of {len(answer.text):,} characters shown; ask for less]"


def evaluated(
    reply: Reply, *, can_read_on: bool = True, shows_objects: bool = False, moment: str = ""
) -> ToolOutput | str:
    """Return an evaluation as a handler's result. A failed one is a failure that carries all its output.

    The numbers of objects are for callers that can inspect them. `moment` describes the kept stack.
    """
    rendered = evaluation_text(reply, can_read_on=can_read_on, room=ROOM)
    if not reply.ok:
        return ToolOutput(None, error=rendered, blocks=picture_blocks(reply), note=moment)
    if shows_objects and any(reply.objects):
        return ToolOutput(rendered, blocks=picture_blocks(reply), note=_objects_text(reply))
    return with_pictures(rendered, reply) if reply.displays else rendered


def _objects_text(reply: Reply) -> str:
    """List the numbers of the values that can be inspected, in few characters."""
    if len(reply.values) == 1:
        return f"[object {reply.objects[0]}]"
    ids = [f"value {n} is object {known}" for n, known in enumerate(reply.objects, 1) if known is not None]
    return f"[objects] {listed(ids, MOST_OBJECTS)}"
