"""The one reader of a person's answers: it accepts only text typed after the question was shown.

Text typed before a question appeared was meant for something else, so it is dropped. So is text typed in the
first moment, which is too early for an answer. A yes is a word alone. Answers come from a terminal only: text
in a pipe was written before the question. This module does not know the subject of a question.
"""

from __future__ import annotations

import os
import re
import select
import sys
import termios
from time import monotonic
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

# A person needs longer than this to read a question. Earlier keys were meant for something else.
DEAF_SECONDS = 0.3
# The interval of checks whether the question was decided elsewhere. A check costs the journal microseconds.
LOOK_SECONDS = 0.3
READ_BYTES = 4096
YES = frozenset({"a", "approve", "y", "yes"})
NO = frozenset({"", "d", "deny", "n", "no"})
_DENIED = re.compile(r"(d|deny|n|no)\b[\s:,]*(.*)", re.IGNORECASE | re.DOTALL)
DROPPED = "what was typed before the question was there is no answer to it"


def why_nobody() -> str:
    """Say why no person can be asked here; nothing where one can."""
    if sys.stdin is None or not sys.stdin.isatty():
        return "standard input is not a terminal"
    if sys.stderr is None or not sys.stderr.isatty():
        return "standard error, where questions are shown, is not a terminal"
    return ""


def read_line(prompt: str, is_open: Callable[[], bool] | None = None, *, goes_on: bool = False) -> str | None:
    """Draw a prompt and read a line. None at the end of the input, or without a terminal.

    With `is_open` the question is withdrawn when it is decided elsewhere. With `goes_on` the line continues
    an answer, such as its reason, and may have been typed together with it.
    """
    if why_nobody():
        return None
    if not goes_on and _forget_typed():
        click.echo(f"({DROPPED})", err=True)
    click.echo(prompt, nl=False, err=True)
    # A terminal delivers one line at a time, so no line waits unseen in a buffer.
    has_line = is_open is None
    while not has_line:
        has_line = bool(select.select([sys.stdin], [], [], LOOK_SECONDS)[0])
        # Check this even when a line has arrived: it was typed for whatever follows the question.
        if is_open is not None and not is_open():
            click.echo("\nit was decided elsewhere", err=True)
            return None
    line = sys.stdin.readline()
    if not line:
        click.echo(err=True)  # the next output must not stand behind the prompt
        return None
    return line.removesuffix("\n")


def _forget_typed() -> bool:
    """Drop the text typed so far and during a short moment. Return whether there was any.

    Meanwhile the terminal delivers single keys without echo. Otherwise half a line would stand behind the
    prompt and become part of the answer.
    """
    keyboard, is_typed = sys.stdin.fileno(), False
    before = termios.tcgetattr(keyboard)
    quiet = list(before)
    quiet[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(keyboard, termios.TCSANOW, quiet)
    try:
        until = monotonic() + DEAF_SECONDS
        while (left := until - monotonic()) > 0:
            if select.select([keyboard], [], [], left)[0]:
                if not _dropped(keyboard):
                    break
                is_typed = True
    finally:
        # TCSAFLUSH also drops the keys that came after the last read.
        termios.tcsetattr(keyboard, termios.TCSAFLUSH, before)
    return is_typed


def _dropped(keyboard: int) -> bool:
    """Read and drop input. Return whether the terminal is still open."""
    try:
        return bool(os.read(keyboard, READ_BYTES))
    except OSError:
        return False


def answer_of(typed: str) -> tuple[str, str]:
    """Return the word of an answer in lower case, and its reason.

    The reason follows a colon: a sentence that starts with an approving word must not approve. A denial takes
    its reason in any form.
    """
    denied = _DENIED.fullmatch(typed.strip())
    if denied is not None:
        return denied[1].lower(), denied[2].strip()
    word, _, reason = typed.partition(":")
    return word.strip().lower(), reason.strip()


def is_confirmed(question: str) -> bool:
    """Ask a question until the answer is yes or no. Abort when the person leaves."""
    while True:
        typed = read_line(f"{question} [y/N]: ")
        if typed is None:
            raise click.Abort
        word, _ = answer_of(typed)
        if word in YES | NO:
            return word in YES
        click.echo("answer y or n, alone on the line", err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Return if the person says yes or gave --yes. Else raise Abort, or UsageError without a terminal."""
    if yes:
        return
    if why := why_nobody():
        raise click.UsageError(f"nobody can be asked here, since {why}: say --yes")
    if not is_confirmed(question):
        raise click.Abort
