"""Find a definition in a text by name, and replace or remove it, or insert another one beside it."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from gramercy.errors import GramercyError, ImageError, WorkspaceError
from gramercy.gram.suggestion import suggest
from gramercy.text import listed
from gramercy.toolsets import python_survey, python_text
from gramercy.toolsets.lisp_definitions import LISP
from gramercy.toolsets.lisp_text import ends_in_comment
from gramercy.toolsets.outlines import Lines, shortened
from gramercy.toolsets.python_text import PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gramercy.images.image import Image
    from gramercy.toolsets.outlines import Definition, Fault, Language, Outline

LANGUAGES = {
    **dict.fromkeys((".lisp", ".lsp", ".cl", ".asd", ".l"), LISP),
    **dict.fromkeys((".py", ".pyi", ".pyw"), PYTHON),
}
# Parsing this much Python takes a second or two, and a hostile text a few more.
LARGEST_TEXT = 2_000_000
# Candidates, or names of a file without a match. The rest is counted.
MOST_LISTED = 20
NEAREST = 3
# In a longer line a caret does not help.
LONGEST_LINE = 200
# A Lisp package before a name.
_PREFIX = re.compile(r"([^\s:()]+)::?")
_PLACE = re.compile(r"(.*?)@(\d+)", re.DOTALL)


def language_of(path: str) -> Language:
    """Return the language of a file by its name, or refuse it."""
    found = LANGUAGES.get(PurePath(path).suffix.lower())
    if found is None:
        raise WorkspaceError(
            f"{path} is neither Lisp nor Python by its name ({', '.join(LANGUAGES)}): no other is read"
        )
    return found


def read_by(image: Image) -> Language:
    """Return Python as the interpreter of an image parses it. It may be newer than the one here.

    The image is asked in a preview: a throw-away copy without side effects.
    """

    def asked(source: str, *, is_whole: bool) -> Outline:
        call = f"print(__import__('json').dumps(survey({source!r}, is_whole={is_whole})))"
        reply = image.preview(f"{inspect.getsource(python_survey)}\n{call}")
        try:
            found = json.loads(reply.stdout)
        except ValueError:
            raise ImageError("the interpreter of the image did not answer") from None
        return python_text.outline_of(source, found, "the interpreter of the image")

    return replace(
        PYTHON,
        outline=lambda source: asked(source, is_whole=True),
        part=lambda code: asked(python_text.unindented(code), is_whole=False),
    )


def reader_of(language: Language, image: Image | None, text: str, code: str = "") -> Language:
    """Return the parser for these texts: that of the image, where the one here finds a fault."""
    if language is not PYTHON or image is None or image.language != "python":
        return language
    if not language.outline(text).faults and not (code and language.part(code).faults):
        return language
    other = read_by(image)
    try:
        other.outline("")
    except GramercyError:
        # A preview is not possible, or the image is gone.
        return language
    return other


def find(outline: Outline, language: Language, wanted: str, path: str) -> Definition:
    """Return the one definition of a name, or refuse with all candidates."""
    name, line = wanted.strip(), 0
    if place := _PLACE.fullmatch(name):
        name, line = place[1].strip(), int(place[2])
    shown = shortened(name)
    found = _named(outline, language.key(name)) if name else outline.definitions
    if not found and language.name == "Python":
        found = _named(outline, _without_module(language.key(name), path))
    if len(found) > 1 and (prefix := _PREFIX.match(name)):
        found = [each for each in found if each.package == prefix[1].upper()] or found
    if line:
        at = [each for each in found if each.line == line] or [
            each for each in found if each.line <= line <= each.last_line
        ][-1:]
        if not at:
            raise WorkspaceError(
                f"there is no {shown or 'definition'} on line {line} of {path}. {_there(outline, name)}"
            )
        found = at[-1:]
    if not found:
        raise WorkspaceError(f"{path} has no definition of {shown}. {_there(outline, name)}")
    if len(found) > 1:
        raise WorkspaceError(
            f"{path} has {len(found)} definitions of {shown}: give one of these as name.\n{_listed(found)}"
        )
    return found[0]


def _without_module(key: str, path: str) -> str:
    """Return a name without the module of a file. Images put the module before it."""
    parts = [part for part in PurePath(path).with_suffix("").parts if part != "__init__"]
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[-count:]) + "."
        if key.startswith(module):
            return key.removeprefix(module)
    return key


def _named(outline: Outline, key: str) -> list[Definition]:
    """Return the definitions under a key. If there are none, return those whose name contains it."""
    return [each for each in outline.definitions if key in each.keys] or [
        each for each in outline.definitions if key in each.weak_keys
    ]


def _listed(found: list[Definition]) -> str:
    counts = Counter(each.exact for each in found)
    several = len({each.package for each in found}) > 1
    shown = [
        f"{shortened(each.exact) if counts[each.exact] == 1 else f'{shortened(each.name)}@{each.line}'}  "
        f"(line {each.line}{f', package {each.package}' if several else ''})"
        for each in found[:MOST_LISTED]
    ]
    more = [f"… {len(found) - MOST_LISTED} more"] if len(found) > MOST_LISTED else []
    return "\n".join([*shown, *more])


def _there(outline: Outline, name: str) -> str:
    """List similar names, or else all names."""
    by_name = {each.name: each.line for each in reversed(outline.definitions) if each.keys}
    near = suggest(name, by_name, most=NEAREST) if name else []
    if near:
        return "Did you mean " + " or ".join(f"{shortened(n)} (line {by_name[n]})" for n in near) + "?"
    names = [f"{shortened(each)} ({line})" for each, line in reversed(by_name.items())]
    return f"It has {listed(names, MOST_LISTED, counts=True) or 'no definitions'}."


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A text, its definitions, and the conventions of its language."""

    text: str
    outline: Outline
    language: Language

    def replaced(self, old: Definition, code: str) -> str:
        """Return the text with a definition replaced. Its comments stay unless the code has some."""
        begin = self._begin_of(old, code)
        fitted = self.language.fitted(code, self._indent(begin, old), self.text)
        return self.text[:begin] + self._ended(fitted, old.end) + self.text[old.end :]

    def _ended(self, code: str, place: int) -> str:
        """Return code that ends outside of a comment, so that it does not swallow the rest of its line."""
        follows = self.text[place : place + 1].strip(" \t\r\n")
        return f"{code}\n" if follows and ends_in_comment(code) else code

    def _begin_of(self, old: Definition, code: str) -> int:
        """Return the start of the text that code replaces."""
        lead = code.lstrip()
        if lead.startswith((self.language.comment, "#|")):
            return old.lead
        if old.start != old.outer and (self.language.name == "Python" or lead.startswith(("#+", "#-"))):
            return old.outer
        return old.start

    def _indent(self, begin: int, old: Definition) -> str:
        """Return the indentation at an offset."""
        if self.language.name == "Python":
            line = self.text[old.start : old.end]
            return line[: len(line) - len(line.lstrip(" \t\f"))].replace("\f", "")
        before = self.text[Lines(self.text).start(begin) : begin]
        return "".join(mark if mark in " \t" else " " for mark in before)

    def inserted(self, anchor: Definition, code: str, *, after: bool) -> str:
        """Return the text with code inserted before or after a definition and its comments."""
        place = self._line_end(anchor.end) if after else anchor.lead
        indent = self._indent(anchor.lead, anchor)
        fitted = self.language.fitted(code, indent, self.text)
        inner = "" if self.language.name == "Python" else indent
        gap = "\n" * (self._gap(anchor, code) + 1)
        before, following = self.text[:place], self.text[place:]
        if after:
            more = "\n" * max(0, len(gap) - _newlines(following)) if self._has_next(following) else ""
            return f"{before}{gap}{inner}{self._ended(fitted, place)}{more}{following}"
        return f"{before}{fitted}{gap}{inner}{following}"

    def _has_next(self, following: str) -> bool:
        return bool(following.strip()) and not following.lstrip().startswith(")")

    def _line_end(self, end: int) -> int:
        """Return the end of the line where only a comment follows, else the place itself."""
        line = re.compile(rf"[ \t]*(?:{self.language.comment}[^\n]*)?(?=\n|\Z)").match(self.text, end)
        return line.end() if line else end

    def _gap(self, anchor: Definition, code: str) -> int:
        """Return the number of blank lines between such definitions in the file."""
        kinds = {each.kind for each in self.language.part(code).definitions}
        if {anchor.kind, *kinds} == {"variable"}:
            return 0
        numbers = Lines(self.text)
        level = [each for each in self.outline.definitions if each.parent == anchor.parent]
        gaps = Counter(
            self.text.count("\n", numbers.starts[one.last_line - 1], other.lead) - 1
            for one, other in pairwise(level)
            if other.lead >= one.end
            and {one.kind, other.kind} != {"variable"}
            and not self.text[self._line_end(one.end) : other.lead].strip()
        )
        usual = self.language.gap[bool(anchor.parent)]
        return max(gaps, key=lambda gap: (gaps[gap], gap == usual), default=usual)

    def deleted(self, old: Definition) -> str:
        """Return the text without a definition and its comments. The larger gap around it stays."""
        end = self._line_end(old.end)
        before, following = self.text[: old.lead], self.text[end:]
        kept, rest = before.rstrip(" \t"), following.lstrip("\n")
        if before.strip() and not kept.endswith("\n"):
            # Other code is on its line.
            return kept + self.text[old.end :]
        if not self._has_next(rest):
            return self._closed(before.rstrip(), rest)
        above, below = _newlines(kept[::-1]) - 1, _newlines(following) - 1
        header = kept.rstrip()
        if not header:
            return rest
        blank = above if header.endswith(":") else max(above, below)
        return f"{header}\n" + "\n" * blank + self._own_indent(following) + rest.lstrip(" \t")

    def _own_indent(self, following: str) -> str:
        line = following.lstrip("\n")
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _closed(self, before: str, rest: str) -> str:
        """Join the text before the last definition with the closing parentheses after it."""
        if not rest.strip():
            return before + "\n" if before else ""
        # Only Lisp has closing text after a definition.
        return before + ("\n" if ends_in_comment(before) else "") + rest.lstrip()


def _newlines(text: str) -> int:
    """Count the line ends before the first non-blank character."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def faults_text(faults: Iterable[Fault], text: str, name: str) -> str:
    """Show faults with their places, the line and a caret."""
    numbers = Lines(text)
    shown = []
    for fault in faults:
        line = numbers.text(fault.line)
        column = min(fault.column, len(line) + 1)
        blank = "".join("\t" if mark == "\t" else " " for mark in line[: column - 1])
        parts = [f"{name}:{fault.line}:{fault.column}: {fault.message}", f"    {line[:LONGEST_LINE]}"]
        if column <= LONGEST_LINE:
            parts.append(f"    {blank}^")
        shown.append("\n".join([*parts, *([f"  {fault.hint}"] if fault.hint else [])]))
    return "\n".join(shown)
