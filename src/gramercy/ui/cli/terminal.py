"""Helpers for a person's terminal: text that cannot move the cursor, and work that Ctrl-C can stop.

Text of tools, files and images is untrusted: unprintable characters are escaped before it is shown.
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import click

from gramercy.images.interrupts import interrupts
from gramercy.text import PROSE, is_hidden, reveal
from gramercy.ui.cli.main import may_color

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from gramercy.images.live import LiveImage
    from gramercy.tools.tool import Tool

T = TypeVar("T")
# An evaluation may swallow one interrupt. The next is sent before a person presses Ctrl-C again.
RETRY_SECONDS = 0.05
# A start takes a tenth of that. After a longer wait the person is told why. A build reports itself.
UNHURRIED_SECONDS = 1.0
SLOW_START = "starting the image …"


def visible(text: str) -> str:
    """Escape all hidden characters except those that lines, emoji and plots are made of."""
    return reveal(text, PROSE)


def json_text(value: Any) -> str:
    """Format a value as indented JSON that is safe to show."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=repr)
    return "".join(json.dumps(c)[1:-1] if c != "\n" and is_hidden(c) else c for c in text)


def show(text: str, *, ends_line: bool = True, err: bool = False, **style: Any) -> None:
    """Write to standard output or standard error. A terminal is protected from the output of evaluated code.

    The style is dropped where there are no colours: in a pipe, with NO_COLOR, on a terminal without them.
    """
    is_terminal = (sys.stderr if err else sys.stdout).isatty()
    # Other threads lack the context in which click keeps whether colours are allowed.
    is_colored = is_terminal and may_color() and any(style.values()) and bool(text)
    shown = visible(text) if is_terminal else text
    click.echo(click.style(shown, **style) if is_colored else shown, nl=ends_line, err=err, color=is_colored)


def tell(text: str) -> None:
    """Write a message about the work, not its result, to standard error."""
    click.echo(visible(text), err=True)


@contextmanager
def prints_aside() -> Iterator[None]:
    """Send output of tools to standard error: it must not mix with the output of the command."""
    from gramercy.tools.context import NO_CONVERSATION, find_call

    out = sys.stdout

    class Aside:
        def write(self, text: str) -> int:
            return (out if find_call() is NO_CONVERSATION else sys.stderr).write(text)

        def __getattr__(self, name: str) -> Any:
            return getattr(out, name)

    with redirect_stdout(cast("TextIO", Aside())):
        yield


def summary_line(tool: Tool) -> str:
    """Format a tool on one line: name, level and the first sentence of its description."""
    sentence, stop, _ = tool.description.partition("\n")[0].partition(". ")
    return f"{tool.name:<24} {tool.safety_level.value:<10} {sentence}{stop.strip()}"


def in_background(work: Callable[[], T]) -> Future[T]:
    """Start work on a thread that does not keep the program from ending."""
    # Loads the logging package, which no other command needs.
    from concurrent.futures import Future

    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is taken
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def stoppable(work: Callable[[], T], stop: Callable[[], object]) -> T:
    """Return the result of the work. Ctrl-C stops it, repeatedly if needed, and no result is lost."""
    from concurrent.futures import wait

    with interrupts() as is_unwanted:
        future = in_background(work)
        while not wait([future], RETRY_SECONDS).done:
            if is_unwanted.is_set():
                stop()
    return future.result()


def start(image: LiveImage, restore: str | None = None) -> None:
    """Start an image, from a saved state if one is given. Raise on failure, and report a slow start."""
    with _told_if_slow(SLOW_START):
        # Unlike an evaluation, this raises when the image does not start.
        image.checkpoints()
    if restore is not None:
        with _told_if_slow("restoring the state …"):
            told = image.restore(restore)
        click.echo(visible(told), err=True)


@contextmanager
def _told_if_slow(words: str) -> Iterator[None]:
    timer = threading.Timer(UNHURRIED_SECONDS, click.echo, [words], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
