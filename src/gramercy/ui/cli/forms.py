"""Decide when code that comes line by line is complete. Only the image parses it; this module counts."""

from __future__ import annotations

import codeop
import re
from typing import Protocol

TERMINATING = "\"'(),;`"
_CLAUSE = re.compile(r"(else|elif|except|finally)\b")
# Exceptions for a text that is complete but wrong. The image reports what is wrong.
_WRONG = (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError)


class Form(Protocol):
    """Code that grows line by line."""

    @property
    def is_complete(self) -> bool:
        """Whether the code can be sent without looking at the next line."""

    @property
    def is_entered(self) -> bool:
        """Whether a person who types it means it to be sent."""

    @property
    def may_end(self) -> bool:
        """Whether the code is whole if nothing follows."""

    def feed(self, line: str) -> None:
        """Add a line, without its line break."""

    def ends_before(self, line: str) -> bool:
        """Return whether this line belongs to the next form."""


class LispForm:
    """Counts parentheses outside of strings, comments, |symbols| and characters."""

    def __init__(self) -> None:
        self._depth = 0
        self._mode = ""
        self._nesting = 0
        self._is_dangling = False
        self._is_in_token = False

    @property
    def is_complete(self) -> bool:
        """Whether everything opened is closed."""
        return not self._mode and self._depth <= 0 and not self._is_dangling

    @property
    def is_entered(self) -> bool:
        """The same as `is_complete`: the end of a Lisp form is unambiguous."""
        return self.is_complete

    @property
    def may_end(self) -> bool:
        """The same as `is_complete`: the end of a Lisp form is unambiguous."""
        return self.is_complete

    def ends_before(self, line: str) -> bool:
        """Never by this line: the end of a Lisp form is unambiguous."""
        del line
        return False

    def feed(self, line: str) -> None:
        """Read a line."""
        line, place = f"{line}\n", 0
        while place < len(line):
            if self._mode == "#|":
                place += self._comment(line[place : place + 2])
            elif self._mode:
                place += self._quoted(line[place])
            else:
                place = self._code(line, place)

    def _code(self, line: str, place: int) -> int:
        """Read one token of code. Return the position of the next one."""
        here, pair = line[place], line[place : place + 2]
        # Inside a token, # is an ordinary character.
        is_dispatch = here == "#" and not self._is_in_token
        if here == ";":
            self._is_in_token = False
            return len(line)
        if is_dispatch and pair == "#|":
            self._mode, self._nesting = pair, 1
            return place + 2
        self._notice(here, is_dispatch=is_dispatch and pair != "#\\")
        if is_dispatch and pair == "#\\":
            return place + 3
        return place + (2 if here == "\\" else 1)

    def _notice(self, here: str, *, is_dispatch: bool) -> None:
        if not here.isspace():
            self._is_dangling = here in "'`,"
        self._is_in_token = not (is_dispatch or here.isspace() or here in TERMINATING)
        if here in '"|':
            self._mode = here
        self._depth += (here == "(") - (here == ")")

    def _quoted(self, here: str) -> int:
        if here == self._mode:
            self._mode = ""
        return 2 if here == "\\" else 1

    def _comment(self, pair: str) -> int:
        if pair not in {"#|", "|#"}:
            return 1
        self._nesting += 1 if pair == "#|" else -1
        if not self._nesting:
            self._mode = ""
        return 2


class PythonForm:
    """Python that comes line by line: a statement ends where the next begins.

    Only the next line shows whether a block has ended, so code from a pipe or a paste may have empty lines in
    its blocks.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def is_complete(self) -> bool:
        """Never certain: only the next line can tell."""
        return False

    @property
    def is_entered(self) -> bool:
        """Whether an interactive Python would run it now: a block ends with an empty line."""
        return _compiles("\n".join(self._lines), "single")

    @property
    def may_end(self) -> bool:
        """Whether it parses as a whole. More lines may still follow."""
        return _compiles("\n".join([*self._lines, ""]), "exec")

    def feed(self, line: str) -> None:
        """Add a line."""
        self._lines.append(line)

    def ends_before(self, line: str) -> bool:
        """Tell whether a new statement begins with this line."""
        if not line.strip() or line[0] in " \t#)]}" or _CLAUSE.match(line):
            return False
        return self.may_end


def _compiles(text: str, symbol: str) -> bool:
    try:
        return codeop.compile_command(text, "<input>", symbol) is not None
    except _WRONG:
        return True


def new_form(language: str) -> Form:
    """Return an empty form of a language."""
    return LispForm() if language == "sbcl" else PythonForm()


def split_forms(text: str) -> list[str]:
    """Return the Lisp forms of a line one by one. An incomplete form is left for the reader to refuse."""
    found: list[str] = []
    begun = ""
    for word in re.findall(r"\S+\s*", text):
        begun += word
        form = LispForm()
        form.feed(begun)
        if form.is_complete:
            found.append(begun.strip())
            begun = ""
    return [*found, *filter(None, [begun])]
