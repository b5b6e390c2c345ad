"""Read at the prompt or from a pipe: commands, code form by form, names that Tab completes.

The image reads the code and knows the names; `forms` decides when a form is whole and can be sent.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gramercy.errors import GramercyError, SourceError
from gramercy.ui.cli.forms import new_form
from gramercy.ui.cli.main import may_color
from gramercy.ui.cli.terminal import in_background

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from gramercy.images.base import Answer
    from gramercy.images.live import LiveImage
    from gramercy.ui.cli.forms import Form

# More than a person types; a pipe without line breaks must not fill the memory.
LONGEST_ENTRY = 4_000_000
# As the history of a shell.
MOST_HISTORY = 1_000
# The one command whose argument may go on over several lines.
PREVIEW = ":preview"
# A Tab key that does nothing for longer seems broken.
COMPLETION_SECONDS = 0.5
# When there are more, a part of them would be completed to what only that part has in common.
MOST_NAMES = 1000
DELIMITERS = {"sbcl": " \t\n()'`,\";#|\\", "python": " \t\n()[]{}=+-*/%&|^~<>,;@!\"'\\"}
_LISP_NAME = re.compile(r"(?:([^:]+)(::?))?([^:]+)")


class Entries:
    """Entries one after the other. EOFError says that there are no more.

    A paste comes as one text with line breaks where the terminal brackets it, else as lines that wait
    already. Either is read as a file is: blocks may have empty lines, and each statement is an entry.
    """

    def __init__(self, language: str, line: Callable[[str], str], *, interactive: bool) -> None:
        self._language = language
        self._line = line
        self._interactive = interactive
        # Lines that were read and belong to the next entries.
        self._waiting: deque[str] = deque()
        self._is_pasted = False
        self._is_over = False

    def read(self, prompt: str = "") -> str:
        """Return the next command or whole form."""
        first = self._next(prompt)
        if not first.strip() or (first.startswith(":") and not first.startswith(f"{PREVIEW} ")):
            return first
        return "\n".join(self._whole(first, prompt))

    def forget(self) -> None:
        """Give up what was pasted and not yet evaluated."""
        self._waiting.clear()

    def _whole(self, first: str, prompt: str) -> list[str]:
        form, lines, size = new_form(self._language), [first], len(first)
        form.feed(first.removeprefix(f"{PREVIEW} "))
        while not self._is_whole(form):
            try:
                line = self._next(" " * len(prompt))
            except EOFError:
                if self._interactive and not form.may_end:
                    raise
                self._is_over = True
                break
            if form.ends_before(line):
                self._waiting.appendleft(line)
                break
            form.feed(line)
            lines.append(line)
            size += len(line)
            _check(size)
        return lines

    def _is_whole(self, form: Form) -> bool:
        if not self._interactive or self._waiting or _input_waits():
            return form.is_complete
        return form.is_entered or (self._is_pasted and form.may_end)

    def _next(self, prompt: str) -> str:
        if self._is_over:
            raise EOFError
        if not self._waiting:
            self._waiting.extend(self._line(prompt).split("\n"))
            self._is_pasted = len(self._waiting) > 1
        return self._waiting.popleft()


def _input_waits() -> bool:
    """Tell whether a line can be read at once, as when a text was pasted."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _check(size: int) -> None:
    if size > LONGEST_ENTRY:
        raise SourceError(f"the input is longer than {LONGEST_ENTRY:,} characters: load it from a file")


def typed_line(prompt: str) -> str:
    """Read a line at the terminal, with line editing where it is available."""
    if sys.stdout.isatty():
        return input(_colored(prompt) if "readline" in sys.modules and may_color() else prompt)
    click.echo(prompt, nl=False, err=True)
    return input()


def _colored(prompt: str) -> str:
    """Write a prompt in colour; the line editor must not count what does not move the cursor."""
    return f"\1\x1b[1;36m\2{prompt}\1\x1b[0m\2" if prompt.strip() else prompt


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
