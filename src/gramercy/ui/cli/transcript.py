"""Show one evaluation to a person or a pipe: its output as it is, then its values, errors apart.

Models get the same facts as one text, under headings: see `toolsets.rendering`.
"""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

import click

from gramercy.images.output import folded
from gramercy.toolsets.rendering import MOST_OUTPUT, MOST_PRINTED, STREAMS, hint, sections_of, value_text
from gramercy.ui.cli.forms import LispForm
from gramercy.ui.cli.pictures import show_displays
from gramercy.ui.cli.terminal import show, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.images.base import Progress, Reply

# The parts beside output and values, in the order in which they are shown.
_COLORS = {"log": "cyan", "warnings": "yellow", "error": "red"}
# Moves to the beginning of the line and erases it.
ERASED = "\r\x1b[K"
# By the language of the image.
_OTHER = {
    "sbcl": 'this looks like Python, but the image runs Lisp: say --language python, or put image = "python" '
    "into gramercy.toml",
    "python": 'this looks like Lisp, but the image runs Python: say --language sbcl, or put image = "sbcl" '
    "into gramercy.toml",
}


class Transcript:
    """One evaluation on the screen, or in a pipe; `mark` stands before each value.

    A pipe gets all output that the image has kept. Its standard output has only that and the values.
    """

    def __init__(self, language: str, mark: str = "") -> None:
        self._language = language
        self._mark = mark
        # Characters of complete lines on the screen, per stream. `_rest` holds the unfinished line of each.
        self._shown = dict.fromkeys(STREAMS, 0)
        # Characters received in all, and those received when the person last typed: that output was read.
        self._come = dict.fromkeys(STREAMS, 0)
        self._read = dict.fromkeys(STREAMS, 0)
        self._rest = dict.fromkeys(STREAMS, "")
        # The stream and the text of the line with the cursor.
        self._drawn = ("", "")

    def watch(self, progress: Progress) -> None:
        """Show new output, up to the amount that would be shown at the end."""
        for stream in STREAMS:
            if news := getattr(progress, stream):
                head, newline, rest = (self._rest[stream] + news).rpartition("\n")
                self._rest[stream] = rest
                self._write(stream, folded(head) + newline, folded(rest))

    def pause(self) -> None:
        """Show the unfinished line, even in a pipe: it is the question that a person answers."""
        for stream in STREAMS:
            rest, self._rest[stream] = folded(self._rest[stream]), ""
            if left_out := self._come[stream] - self._shown[stream]:
                self._end_line()
                tell(f"… [{stream} cut: {left_out:,} characters are not shown]")
            self._shown[stream] = self._read[stream] = self._come[stream]
            if rest:
                self._write(stream, rest)
        self._drawn = ("", "")

    def close(self, reply: Reply) -> None:
        """Show the rest."""
        for stream in STREAMS:
            rest = getattr(reply, stream)[self._shown[stream] :]
            if rest or self._drawn[0] == stream:
                self._write(stream, rest)
        values = [] if reply.error else list(self._values(reply))
        if values or sys.stdout.isatty():
            self._end_line()
        for stream in STREAMS:
            self._tell_cut(stream, max(reply.truncated.get(stream, 0), len(getattr(reply, stream))))
        told = {section.name: section for section in sections_of(reply)}
        for name, color in _COLORS.items():
            if name in told:
                self._tell(told[name].shown(MOST_PRINTED, hint(name, can_read_on=False)), color)
        for value in values:
            show(self._mark, ends_line=False, dim=True)
            show(value, bold=True)
        if reply.displays:
            show_displays(reply)
        for note in reply.notes:
            tell(note)

    def _values(self, reply: Reply) -> Iterator[str]:
        """Yield the text of each value. As everywhere in Python, None shows nothing."""
        if self._language == "python" and reply.values == ["None"]:
            return
        for number in range(len(reply.values)):
            yield value_text(reply, number, MOST_PRINTED, hint("values", can_read_on=False), 0)
        if not reply.values and self._mark and not reply.statement:
            yield "; No values"

    def _write(self, stream: str, text: str, rest: str = "") -> None:
        """Write lines, and on a terminal the unfinished line, which may still be overwritten."""
        is_error = stream == "stderr"
        self._come[stream] += len(text)
        is_terminal = (sys.stderr if is_error else sys.stdout).isatty()
        if is_terminal:
            room = max(0, MOST_OUTPUT + self._read[stream] - self._shown[stream])
            text, rest = text[:room], rest[: max(0, room - len(text))]
        else:
            rest = ""
        self._shown[stream] += len(text)
        line = self._over_drawn(stream, text + rest)
        if line:
            # A terminal does not show a bell character.
            line = line.replace("\a", "") if is_terminal else line
            show(line, ends_line=False, err=is_error, fg="yellow" if is_error else None)
        self._drawn = (stream, (text + rest).rpartition("\n")[2])

    def _over_drawn(self, stream: str, text: str) -> str:
        """Return the text to write so that it replaces the line with the cursor."""
        owner, drawn = self._drawn
        if owner == stream and text.startswith(drawn):
            return text[len(drawn) :]
        if drawn and owner != stream and "\r" not in self._rest[owner]:
            # Not a progress bar: the new text follows it.
            self._shown[owner] += len(drawn)
            self._rest[owner] = ""
        elif drawn and (sys.stderr if owner == "stderr" else sys.stdout).isatty():
            click.echo(ERASED, nl=False, err=owner == "stderr", color=True)
        return text

    def _end_line(self) -> None:
        if self._drawn[1]:
            click.echo()
            self._drawn = ("", "")

    def _tell_cut(self, stream: str, total: int) -> None:
        if self._shown[stream] < total:
            shown = f"{self._shown[stream]:,} of {total:,} characters shown"
            tell(f"… [{stream} cut: {shown}; {hint(stream, can_read_on=False)}]")

    def _tell(self, text: str, color: str) -> None:
        """Show a part beside the result. Its first line is coloured, and so is a caret."""
        first, *rest = text.split("\n")
        show(first, err=True, fg=color, bold=True)
        for line in rest:
            is_caret = line.strip() == "^"
            show(line, err=True, fg=color if is_caret else None, bold=is_caret)


def other_language(code: str, language: str, reply: Reply) -> str:
    """Return a hint for failed code that seems to be written in the other language."""
    if reply.error is None:
        return ""
    seems = _seems_python(code) if language == "sbcl" else _seems_lisp(code, reply.error.type)
    return _OTHER[language] if seems else ""


def _seems_python(code: str) -> bool:
    """Return whether it is Python, and more than a name or a number, which Lisp has too."""
    if code.lstrip()[:1] in {"(", "'", "`", "#", ":", ""}:
        return False
    try:
        statements = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    plain = (ast.Name, ast.Constant)
    return any(not (isinstance(one, ast.Expr) and isinstance(one.value, plain)) for one in statements)


def _seems_lisp(code: str, kind: str) -> bool:
    if kind != "SyntaxError" or code.lstrip()[:1] != "(":
        return False
    form = LispForm()
    for line in code.split("\n"):
        form.feed(line)
    return form.is_complete
