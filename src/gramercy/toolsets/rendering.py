"""Turn what an image answered into the text a model reads. The formats of the session tools are fixed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gramercy.tools.content import ToolOutput

if TYPE_CHECKING:
    from gramercy.images.base import Answer, Change, ImageFault, Notice, Reply

# The innermost frames tell where it went wrong; recursion gives thousands.
MOST_FRAMES = 20
# Both streams and the values together stay below the executor's 100,000 characters: it never cuts the end.
MOST_OUTPUT = 30_000
MOST_VALUES = 30_000
# A system that is compiled for the first time gives hundreds, mostly of one kind.
MOST_WARNINGS = 50
# Messages can hold whole data structures; the beginning names what is wrong.
LONGEST_MESSAGE = 8_000
# They share one descriptor: which of them wrote a line, and during which call, cannot be told.
LOG_HEADING = "[output of threads, C code and other processes]"
NO_VALUES = "=> ; No values"
STREAMS = ("stdout", "stderr")
# What a session shows under each heading, and under which of an image's own words it is found.
HEADINGS = {
    "functions": ("functions", "generic_functions"),
    "variables": ("variables", "constants", "symbol_macros"),
    "macros": ("macros",),
}
# Without these a session that only has a class would be said to have nothing.
FURTHER = {
    "classes": ("classes", "structures", "conditions"),
    "types": ("types",),
    "packages": ("packages",),
}


def evaluation_text(reply: Reply, *, can_read_on: bool = False) -> str:
    """Write an evaluation: output sections, then one `=> value` per value of the last form.

    A failed one begins with its error, so that a text cut at its end keeps it. A reader who can read on is
    told how.
    """
    if reply.error is not None:
        sections = [fault_text(reply.error), *output_sections(reply, can_read_on=can_read_on)]
    else:
        sections = [*output_sections(reply, can_read_on=can_read_on), values_text(reply)]
    return "\n\n".join([*sections, *reply.notes])


def values_text(reply: Reply) -> str:
    """Write the values of the last form, one line each."""
    values = reply.values
    text = "=> " + "\n=> ".join(values) if values else NO_VALUES
    if len(text) <= MOST_VALUES:
        return text
    return f"{text[:MOST_VALUES]}\n… [values cut: {MOST_VALUES:,} of {len(text):,} characters shown]"


def output_sections(reply: Reply, *, can_read_on: bool = False) -> list[str]:
    """Return the sections for output and warnings; empty ones are left out."""
    if not (reply.stdout or reply.stderr or reply.log or reply.warnings):
        return []  # as most evaluations
    sections = [
        f"[{stream}]\n{output_text(reply, stream, can_read_on=can_read_on)}"
        for stream in STREAMS
        if getattr(reply, stream)
    ]
    if reply.log:
        sections.append(f"{LOG_HEADING}\n{_bounded(reply.log.strip())}")
    if reply.warnings:
        sections.append("[warnings]\n" + "\n".join(_warnings(reply.warnings)))
    return sections


def output_text(reply: Reply, stream: str, *, can_read_on: bool = False) -> str:
    """Return what was printed to one stream, cut where it is long, without its last line end."""
    text = str(getattr(reply, stream)).removesuffix("\n")
    total = max(reply.truncated.get(stream, 0), len(text))
    shown = text[:MOST_OUTPUT]
    if len(shown) == total or (len(shown) == len(text) and stream not in reply.truncated):
        return shown
    more = "print less of it at a time"
    if can_read_on and len(shown) < len(text):
        more = f"read_output with stream {stream} and offset {len(shown)} shows more"
    return f"{shown}\n… [{stream} cut: {len(shown):,} of {total:,} characters shown; {more}]"


def _warnings(notices: list[Notice]) -> list[str]:
    texts = [notice_text(notice) for notice in notices[:MOST_WARNINGS]]
    rest = len(notices) - MOST_WARNINGS
    return [*texts, f"… {rest} more warnings"] if rest > 0 else texts


def notice_text(notice: Notice) -> str:
    """Write a warning with its kind and place."""
    place = f" ({_place(notice.file, notice.line)})" if notice.file or notice.line is not None else ""
    kind = notice.type or notice.kind.upper()
    return f"{kind}{place}: {_bounded(notice.message)}"


def _place(file: str | None, line: int | None) -> str:
    if file is None:
        return f"line {line}"
    return file if line is None else f"{file}:{line}"


def fault_text(fault: ImageFault) -> str:
    """Write an error: its type, its message, its place, the frames that led to it, and what caused it."""
    text = f"[ERROR] {fault.type}\n{_bounded(fault.message)}"
    if fault.text is not None:
        text += f"\n{_source_text(fault)}"
    if fault.suggestions:
        text += f"\nDid you mean {' or '.join(fault.suggestions)}?"
    sections = [text, *_backtrace("[Backtrace]", fault.backtrace)]
    # Every evaluation can be left by ABORT: that is what has happened.
    if restarts := [name for name in fault.restarts if name != "ABORT"]:
        sections.append(f"[Restarts] {', '.join(restarts)}")
    for cause in fault.causes:
        heading = "[Caused by]" if cause.relation == "cause" else "[While handling]"
        sections += [f"{heading} {cause.type}\n{_bounded(cause.message)}"]
        sections += _backtrace("[Backtrace]", cause.backtrace)
    return "\n\n".join(sections)


def _source_text(fault: ImageFault) -> str:
    """Show the line of code that is wrong, with a caret below the column, counted from 1."""
    lines = [f"{_place(fault.file, fault.line)}:"] if fault.file or fault.line is not None else []
    shown = (fault.text or "").rstrip("\n")
    lines.append(f"    {shown}")
    if fault.column is not None and 0 < fault.column <= len(shown) + 1:
        # Tabs stay tabs, so that the caret stands where the reader's own tabs put it.
        before = "".join("\t" if mark == "\t" else " " for mark in shown[: fault.column - 1])
        lines.append(f"    {before}^")
    return "\n".join(lines)


def _backtrace(heading: str, frames: list[str]) -> list[str]:
    if not frames:
        return []
    shown = frames[:MOST_FRAMES]
    if len(frames) > MOST_FRAMES:
        shown.append(f"… {len(frames) - MOST_FRAMES} more frames")
    return ["\n".join([heading, *shown])]


def _bounded(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"


def preview_text(reply: Reply) -> str:
    """Write what an evaluation would do: as an evaluation, then what it would change and has attempted."""
    sections = ["[preview] nothing was changed", evaluation_text(reply)]
    if reply.changed:
        sections.append(f"[would change]\n{_changes_text(reply.changed)}")
    if reply.effects:
        lines = (f"- {effect.kind} {effect.target}: {effect.outcome}" for effect in reply.effects)
        sections.append("[attempted effects]\n" + "\n".join(lines))
    return "\n\n".join(sections)


def _changes_text(changes: list[Change]) -> str:
    return "\n".join(f"- {change.kind} {change.name} {change.change}" for change in changes)


def definitions_text(data: dict[str, Any], kind: str | None = None, *, package: str = "") -> str:
    """List the definitions of a session; names of the current package stand without it."""
    headings = {kind: HEADINGS[kind]} if kind is not None else {**HEADINGS, **FURTHER}
    sections = []
    for heading, words in headings.items():
        entries = [entry for word in words for entry in data.get(word, [])]
        if entries:
            lines = (_definition_line(entry, package) for entry in sorted(entries, key=_name))
            sections.append(f"[{heading.capitalize()}]\n" + "\n".join(lines))
    return "\n\n".join(sections) or f"No {kind or 'definitions'}."


def _name(entry: dict[str, Any]) -> str:
    return str(entry["name"])


def _definition_line(entry: dict[str, Any], package: str) -> str:
    # Also inside of names such as (SETF CL-USER::FOO), but not at the end of another package's name.
    name = re.sub(rf"(^|[ (]){re.escape(package)}::?", r"\1", _name(entry)) if package else _name(entry)
    if entry.get("value") is not None:
        return f"- {name} = {entry['value']}"
    arguments = entry.get("arglist")
    return f"- {name} {arguments}" if arguments is not None else f"- {name}"


def answered(answer: Answer) -> ToolOutput | str:
    """Return the answer to a question as a handler's result: its text, or its failure."""
    if answer.error is not None:
        return ToolOutput(None, error=fault_text(answer.error))
    return answer.text


def evaluated(reply: Reply, *, shows_objects: bool = False) -> ToolOutput | str:
    """Return an evaluation as a handler's result; a failed one is a failure that carries all its output.

    The numbers of objects are for callers that can look into them.
    """
    rendered = evaluation_text(reply, can_read_on=True)
    if not reply.ok:
        return ToolOutput(None, error=rendered)
    return f"{rendered}\n\n{_objects_text(reply)}" if shows_objects and any(reply.objects) else rendered


def _objects_text(reply: Reply) -> str:
    """Give the numbers of the values that can be looked into, in as few characters as can be."""
    if len(reply.values) == 1:
        return f"[object {reply.objects[0]}]"
    ids = (f"value {n} is object {known}" for n, known in enumerate(reply.objects, 1) if known is not None)
    return f"[objects] {', '.join(ids)}"
