"""Read at the prompt or from a pipe: commands, code form by form, names that Tab completes.

The image reads the code and knows the names; this only decides when a form is whole and can be sent.
"""

from __future__ import annotations

import codeop
import contextlib
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from gramercy.errors import GramercyError, SourceError
from gramercy.ui.cli.terminal import in_background

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from gramercy.images.base import Answer
    from gramercy.images.live import LiveImage

# More than a person types; a pipe without line breaks must not fill the memory.
LONGEST_ENTRY = 4_000_000
# As the history of a shell.
MOST_HISTORY = 1_000
# The one command whose argument may go on over several lines.
PREVIEW = ":preview"
TERMINATING = "\"'(),;`"
CLAUSES = ("else", "elif", "except", "finally")
# What reading can end with when the text is complete but wrong: the image will say what is.
_WRONG = (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError)
# A Tab key that does nothing for longer seems broken.
COMPLETION_SECONDS = 0.5
# When there are more, a part of them would be completed to what only that part has in common.
MOST_NAMES = 1000
DELIMITERS = {"sbcl": " \t\n()'`,\";#|\\", "python": " \t\n()[]{}=+-*/%&|^~<>,;@!\"'\\"}
_LISP_NAME = re.compile(r"(?:([^:]+)(::?))?([^:]+)")


class Entries:
    """Entries one after the other. EOFError says that there are no more."""

    def __init__(self, language: str, line: Callable[[str], str], *, interactive: bool) -> None:
        self._language = language
        self._line = line
        self._interactive = interactive
        self._held: str | None = None

    def read(self, prompt: str = "") -> str:
        """Return the next command or whole form."""
        first = self._next(prompt)
        if not first.strip() or (first.startswith(":") and not first.startswith(f"{PREVIEW} ")):
            return first
        return "\n".join(self._whole(first, " " * (len(prompt) - 1)))

    def _whole(self, first: str, prompt: str) -> list[str]:
        form = new_form(self._language, interactive=self._interactive)
        form.feed(first.removeprefix(f"{PREVIEW} "))
        lines, size = [first], len(first)
        while not form.is_complete:
            try:
                line = self._next(f"{prompt} ")
            except EOFError:
                if self._interactive:
                    raise
                break
            if form.ends_before(line):
                self._held = line
                break
            form.feed(line)
            lines.append(line)
            size += len(line)
            _check(size)
        return lines

    def _next(self, prompt: str) -> str:
        held, self._held = self._held, None
        return self._line(prompt) if held is None else held


def _check(size: int) -> None:
    if size > LONGEST_ENTRY:
        raise SourceError(f"the input is longer than {LONGEST_ENTRY:,} characters: load it from a file")


def typed_line(prompt: str) -> str:
    """Read a line at the terminal, with line editing where it is available."""
    if sys.stdout.isatty():
        return input(prompt)
    click.echo(prompt, nl=False, err=True)
    return input()


def piped_line(prompt: str) -> str:
    """Read a line of a pipe or file."""
    del prompt
    try:
        line = sys.stdin.readline(LONGEST_ENTRY + 1)
    except UnicodeDecodeError as error:
        raise SourceError(f"standard input is not UTF-8: {error.reason}") from None
    if not line:
        raise EOFError
    _check(len(line))
    return line.removesuffix("\n").removesuffix("\r")


@contextlib.contextmanager
def remembered(language: str) -> Iterator[None]:
    """Keep what is typed for the next time; that this is impossible is no reason to complain."""
    try:
        import readline
    except ImportError:
        yield
        return
    path = _history_file(language)
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(MOST_HISTORY)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            readline.write_history_file(path)
            path.chmod(0o600)


def _history_file(language: str) -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return home / "gramercy" / f"{language}-history"


class Form(Protocol):
    """Code that grows line by line."""

    @property
    def is_complete(self) -> bool:
        """Whether the code can be sent without looking at what follows."""

    def feed(self, line: str) -> None:
        """Add a line, without its line break."""

    def ends_before(self, line: str) -> bool:
        """Tell whether this line belongs to what follows."""


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

    def ends_before(self, line: str) -> bool:
        """Lisp shows its own end."""
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
        """Read one thing of code and return where the next begins."""
        here, pair = line[place], line[place : place + 2]
        # Inside a token # is a letter like others.
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


class TypedPython:
    """Python at a prompt: a block ends with an empty line."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def is_complete(self) -> bool:
        """Whether an interactive Python would run it now."""
        return _compiles("\n".join(self._lines), "single")

    def feed(self, line: str) -> None:
        """Add a line."""
        self._lines.append(line)

    def ends_before(self, line: str) -> bool:
        """Whether it ends has been seen by then."""
        del line
        return False


class PipedPython(TypedPython):
    """Python from a file: a statement ends where the next begins."""

    @property
    def is_complete(self) -> bool:
        """Only what follows shows whether a block has ended."""
        return False

    def ends_before(self, line: str) -> bool:
        """Tell whether a new statement begins with this line."""
        if not line.strip() or line[0] in " \t#)]}" or line.startswith(CLAUSES):
            return False
        return _compiles("\n".join([*self._lines, ""]), "exec")


def _compiles(text: str, symbol: str) -> bool:
    try:
        return codeop.compile_command(text, "<input>", symbol) is not None
    except _WRONG:
        return True


def new_form(language: str, *, interactive: bool) -> Form:
    """Return an empty form of a language."""
    if language == "sbcl":
        return LispForm()
    return TypedPython() if interactive else PipedPython()


class Completer:
    """What readline asks: the first, second, … way to complete a text, until there is none."""

    def __init__(self, image: LiveImage, language: str, package: Callable[[], str]) -> None:
        self._image = image
        self._package = package
        self._complete = self._lisp if language == "sbcl" else self._python
        self._asked: Future[Answer] | None = None
        self._found: list[str] = []

    def __call__(self, text: str, state: int) -> str | None:
        """Return one way to complete a text; where there is none yet, the key indents."""
        if state == 0:
            self._found = sorted(set(self._complete(text))) if text else ["\t"]
        return self._found[state] if state < len(self._found) else None

    def _python(self, text: str) -> list[str]:
        module, dot, start = text.rpartition(".")
        places = [module] if dot else ["__main__", "builtins"]
        names = [
            entry["name"].rpartition(".")[2] for place in places for entry in self._entries(start, place)
        ]
        return [f"{module}{dot}{name}" for name in names if name.startswith(start)]

    def _lisp(self, text: str) -> list[str]:
        parts = _LISP_NAME.fullmatch(text)
        if parts is None:
            return []
        package, colons, start = parts[1] or "", parts[2] or "", parts[3]
        names = [entry["name"] for entry in self._entries(start, package or self._package())]
        if package:
            # Only an own symbol is named with its package, and only an external one with a single colon.
            names = [name for name in names if colons in name and (colons == "::" or "::" not in name)]
        leaves = [name.rpartition(":")[2] for name in names]
        leaves = leaves if start != start.lower() else [leaf.lower() for leaf in leaves]
        return [f"{package}{colons}{leaf}" for leaf in leaves if leaf.startswith(start)]

    def _entries(self, pattern: str, place: str) -> list[dict[str, Any]]:
        if self._asked is not None and not self._asked.done():
            return []
        details = {"pattern": pattern, "package": place, "limit": MOST_NAMES}
        self._asked = in_background(lambda: self._image.ask("apropos", **details))
        try:
            data = self._asked.result(COMPLETION_SECONDS).data
        except (TimeoutError, GramercyError):
            return []
        entries: list[dict[str, Any]] = data.get("matches", data.get("symbols", []))
        return entries if data.get("total", 0) <= len(entries) else []


def offer_names(completer: Completer, language: str) -> None:
    """Let the Tab key complete names, where there is line editing."""
    try:
        import readline
    except ImportError:
        return
    readline.set_completer(completer)
    readline.set_completer_delims(DELIMITERS[language])
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
