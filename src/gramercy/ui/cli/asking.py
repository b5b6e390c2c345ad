"""The one reader of a person's answers: an answer was typed after its question could be read.

What was typed before a question stood on the screen was meant for something else, so it is dropped, and so is
what comes in the first moment, too early to be an answer. A yes is a word alone. Answers come from a terminal
only: what is in a pipe was written before the question. Nothing here knows what is asked about.
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

# A person needs longer to read a question: keys that come sooner were typed for something else.
DEAF_SECONDS = 0.3
# How long a question stands here that was decided elsewhere; a look costs the journal microseconds.
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
    """Draw a prompt below what was shown and read a line; None when there are no more, or nobody is there.

    With `is_open` the question is withdrawn when it is decided elsewhere. What `goes_on` from an answer, such
    as its reason, may have been typed at once.
    """
    if why_nobody():
        return None
    if not goes_on and _forget_typed():
        click.echo(f"({DROPPED})", err=True)
    click.echo(prompt, nl=False, err=True)
    # A terminal gives a line at a time, so that none waits unseen in a buffer.
    has_line = is_open is None
    while not has_line:
        has_line = bool(select.select([sys.stdin], [], [], LOOK_SECONDS)[0])
        # Also where a line has come: it was typed for what comes after the question.
        if is_open is not None and not is_open():
            click.echo("\nit was decided elsewhere", err=True)
            return None
    line = sys.stdin.readline()
    if not line:
        click.echo(err=True)  # what is printed next must not stand behind the prompt
        return None
    return line.removesuffix("\n")


def _forget_typed() -> bool:
    """Drop what was typed until now and what is typed for a moment; tell whether there was anything.

    Meanwhile keys come one by one and unseen: half a line would stand behind the prompt and count as typed.
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
        # Flushes once more: what came between the last look and now.
        termios.tcsetattr(keyboard, termios.TCSAFLUSH, before)
    return is_typed


def _dropped(keyboard: int) -> bool:
    """Read and forget; tell whether the terminal is still there."""
    try:
        return bool(os.read(keyboard, READ_BYTES))
    except OSError:
        return False


def answer_of(typed: str) -> tuple[str, str]:
    """Return the word of an answer, in small letters, and the reason behind it.

    The reason stands behind a colon: a sentence that begins with a word that approves approves nothing. A
    denial takes its reason as it comes.
    """
    denied = _DENIED.fullmatch(typed.strip())
    if denied is not None:
        return denied[1].lower(), denied[2].strip()
    word, _, reason = typed.partition(":")
    return word.strip().lower(), reason.strip()


def is_confirmed(question: str) -> bool:
    """Ask a question until the answer is yes or no; Abort when the person went away."""
    while True:
        typed = read_line(f"{question} [y/N]: ")
        if typed is None:
            raise click.Abort
        word, _ = answer_of(typed)
        if word in YES | NO:
            return word in YES
        click.echo("answer y or n, alone on the line", err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Go on where the person says yes, or has said --yes; else Abort, or UsageError where nobody is there."""
    if yes:
        return
    if why := why_nobody():
        raise click.UsageError(f"nobody can be asked here, since {why}: say --yes")
    if not is_confirmed(question):
        raise click.Abort
