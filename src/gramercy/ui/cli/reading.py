"""Read at the prompt or from a pipe: commands, code form by form, names that Tab completes.

The image parses the code and knows the names. `forms` decides when a form is complete and can be sent.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gramercy.directories import state_home
from gramercy.errors import GramercyError, SourceError
from gramercy.ui.cli.forms import new_form
from gramercy.ui.cli.main import may_color
from gramercy.ui.cli.terminal import in_background, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from gramercy.images.base import Answer
    from gramercy.images.lines import Wanted
    from gramercy.images.live import LiveImage
    from gramercy.ui.cli.forms import Form

# More than a person types. A pipe without line breaks must not fill the memory.
LONGEST_ENTRY = 4_000_000
# A usual size for the history of a shell.
MOST_HISTORY = 1_000
# The one command whose argument may go on over several lines.
PREVIEW = ":preview"
# A Tab key that does nothing for longer seems broken.
COMPLETION_SECONDS = 0.5
# The limits of an image: names in an answer, and characters of code read before the cursor.
MOST_NAMES = 100
MOST_READ = 4_000
# Commands that take a path. Saved states are looked up in the current directory, others in the project.
OF_STATES = (":save", ":restore")
OF_FILES = (*OF_STATES, ":load", ":edit", ":files", ":tests")
# A line pasted before the terminal read by lines ends in a carriage return.
_LINE_ENDS = (b"\n", b"\r")
# Quotes are not delimiters: the line editor would close them after a completed word, even in 'foo.
DELIMITERS = {
    "sbcl": " \t\n()`,;#|\\",
    "python": " \t\n()[]{}=+-*/%&|^~<>,;@!\\",
    "chat": " \t\n",
}


class Entries:
    """Entries one after the other. EOFError marks the end of the input.

    A paste comes as one text with line breaks where the terminal brackets it. Elsewhere its lines are waiting
    already. Either is read like a file: blocks may have empty lines, and each statement is an entry.
    """

    def __init__(self, language: str, line: Callable[[str], str], *, interactive: bool) -> None:
        self._language = language
        self._line = line
        self._interactive = interactive
        # Lines that were read and belong to later entries.
        self._waiting: deque[str] = deque()
        self._is_pasted = False
        self._is_over = False
        # The lines so far of the entry that is being read, with their line ends.
        self.begun = ""

    def read(self, prompt: str = "") -> str:
        """Return the next command or whole form."""
        self.begun = ""
        first = self._next(prompt)
        if not first.strip() or (first.startswith(":") and not first.startswith(f"{PREVIEW} ")):
            return first
        return "\n".join(self._whole(first, prompt))

    def line(self) -> str | None:
        """Return the next raw line, for code that reads its input. None at the end."""
        try:
            return f"{self._next('')}\n"
        except EOFError:
            return None

    def forget(self) -> None:
        """Discard the pasted lines that were not evaluated yet."""
        self._waiting.clear()

    def _whole(self, first: str, prompt: str) -> list[str]:
        form, lines, size = new_form(self._language), [first], len(first)
        form.feed(first.removeprefix(f"{PREVIEW} "))
        while not self._is_whole(form):
            self.begun = "\n".join([*lines, ""]).removeprefix(f"{PREVIEW} ")
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
        if not self._interactive or self._waiting or input_waits():
            return form.is_complete
        return form.is_entered or (self._is_pasted and form.may_end)

    def _next(self, prompt: str) -> str:
        if self._is_over:
            raise EOFError
        if not self._waiting:
            self._waiting.extend(self._line(prompt).split("\n"))
            self._is_pasted = len(self._waiting) > 1
        return self._waiting.popleft()


def input_waits() -> bool:
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
    """Colour a prompt. The line editor must not count the characters that do not move the cursor."""
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


def terminal_line(wanted: Wanted) -> str | None:
    """Read a line for code that asks, with the terminal's own line editing: it must not enter any history.

    None means Ctrl-D, or that the code does not want the line any more.
    """
    keyboard = sys.stdin.fileno()
    with _unseen(keyboard) if wanted.secret else contextlib.nullcontext():
        show_prompt(wanted)
        typed = _typed(keyboard, wanted.ends)
    return None if typed is None else typed.decode(sys.stdin.encoding, "replace")


def show_prompt(wanted: Wanted) -> None:
    """Show the text that came with the request for a line."""
    if wanted.prompt:
        click.echo(visible(wanted.prompt), nl=False, err=not sys.stdout.isatty())


def _typed(keyboard: int, ends: tuple[int, ...]) -> bytes | None:
    typed, poll = b"", select.poll()
    for each in (keyboard, *ends):
        poll.register(each, select.POLLIN)
    while True:
        if any(ready in ends for ready, _ in poll.poll()):
            return None
        try:
            # Read byte by byte: the input after the line end is for the prompt.
            key = os.read(keyboard, 1)
        except OSError:
            key = b""
        if key in _LINE_ENDS:
            return typed + b"\n"
        if not key:
            return typed or None
        typed += key


@contextlib.contextmanager
def _unseen(keyboard: int) -> Iterator[None]:
    """Disable the echo, except for the end of the line."""
    before = termios.tcgetattr(keyboard)
    hidden = list(before)
    hidden[3] = (hidden[3] & ~termios.ECHO) | termios.ECHONL
    termios.tcsetattr(keyboard, termios.TCSADRAIN, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


@contextlib.contextmanager
def remembered(language: str) -> Iterator[None]:
    """Keep the typed entries for the next run. A failure to do so is not reported."""
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
    return state_home() / "gramercy" / f"{language}-history"


class Completer:
    """The completer for readline: the first, second, … way to complete a text, until there are no more.

    Names come from the image, which runs no code for them. Files, inside of strings and after some commands,
    come from the project. The commands come from the session.
    """

    def __init__(self, image: LiveImage, project: Path, commands: Sequence[str] = ()) -> None:
        self._image = image
        self._project = project
        self._commands = commands
        self._asked: Future[Answer] | None = None
        self._found: list[str] = []
        # The earlier lines of the entry that is being typed.
        self.begun: Callable[[], str] = str

    def __call__(self, text: str, state: int) -> str | None:
        """Return one way to complete a text. At the beginning of a line, the key indents."""
        if state == 0:
            line = before_cursor() or text
            self._found = sorted(set(self._ways(line, text))) if line.strip() else ["\t"]
        return self._found[state] if state < len(self._found) else None

    def _ways(self, line: str, text: str) -> list[str]:
        begun = self.begun()
        if line.startswith(":") and not begun:
            word, space, rest = line.partition(" ")
            if not space:
                return [name for name in self._commands if name.startswith(word)]
            if word in OF_FILES:
                place = Path() if word in OF_STATES else self._project
                return self._tails(line, len(word) + 1, files_from(place, rest), text)
            line = rest
        code = f"{begun}{line}"[-MOST_READ:]
        start = string_start(code, self._image.language)
        if start is not None:
            return self._tails(code, start, files_from(self._project, code[start:]), text)
        data = self._answer(code)
        names = [match["name"] for match in data.get("matches", [])]
        found = self._tails(code, data.get("start", 0), names, text)
        # The list is cut. Its common prefix must not be completed: the name that was meant may be missing.
        return found if data.get("total", 0) <= len(names) else [*found, f"{text}…"]

    @staticmethod
    def _tails(code: str, start: int, names: list[str], text: str) -> list[str]:
        """Return the completed code for each name, without the part before the editor's current word."""
        return [f"{code[:start]}{name}"[len(code) - len(text) :] for name in names]

    def _answer(self, code: str) -> dict[str, Any]:
        if self._asked is not None and not self._asked.done():
            return {}
        self._asked = in_background(lambda: self._image.ask("complete", text=code, limit=MOST_NAMES))
        try:
            return self._asked.result(COMPLETION_SECONDS).data
        except (TimeoutError, GramercyError):
            return {}


def before_cursor() -> str:
    """Return the text before the cursor in the line that is being typed."""
    readline = sys.modules.get("readline")
    return readline.get_line_buffer()[: readline.get_endidx()] if readline else ""


def string_start(code: str, language: str) -> int | None:
    """Return the start of the string that the code ends inside of, None outside of strings."""
    quotes, comment = ('"', ";") if language == "sbcl" else ("\"'", "#")
    place, start, quote = 0, 0, ""
    while place < len(code):
        here = code[place]
        if here == "\\":
            place += 1
        elif quote:
            quote = "" if here == quote else quote
        elif here in quotes:
            quote, start = here, place + 1
        elif here == comment:
            place = code.find("\n", place)
            if place < 0:
                return None
        place += 1
    return start if quote else None


def files_from(directory: Path, typed: str) -> list[str]:
    """Return the paths that start with the typed text. Directories end in /. A lone directory is entered."""
    above, _, start = typed.rpartition("/")
    place = directory / Path(f"{above}/" if "/" in typed else "").expanduser()
    try:
        with os.scandir(place) as entries:
            names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]
    except (OSError, ValueError):
        return []
    fitting = [name for name in names if name.startswith(start) and name.isprintable()]
    before = typed[: len(typed) - len(start)]
    found = [f"{before}{name}" for name in fitting if start or not name.startswith(".")]
    if len(found) == 1 and found[0].endswith("/"):
        return files_from(directory, found[0]) or found
    return found


def offer_names(completer: Callable[[str, int], str | None], language: str) -> None:
    """Let the Tab key complete names, where there is line editing."""
    try:
        import readline
    except ImportError:
        return
    readline.set_completer(completer)
    readline.set_completer_delims(DELIMITERS[language])
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    if not is_libedit and os.environ.get("TERM", "dumb") != "dumb":
        # The default since readline 8.1: a paste comes as one text, and a Tab in it does not complete.
        readline.parse_and_bind("set enable-bracketed-paste on")
