"""What the terminal of a person needs: text that cannot move the cursor, and work that Ctrl-C can stop.

Text of tools, files and images is untrusted: what does not print is escaped before it is shown.
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
# An evaluation may swallow one interrupt; the next comes before a person presses Ctrl-C again.
RETRY_SECONDS = 0.05
# A start takes a tenth of that; a person who waits longer is told why. What is built once says so itself.
UNHURRIED_SECONDS = 1.0
SLOW_START = "starting the image …"


def visible(text: str) -> str:
    """Write out everything hidden but what lines, emoji and plots are made of."""
    return reveal(text, PROSE)


def json_text(value: Any) -> str:
    """Write a value as indented JSON that is safe to show."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=repr)
    return "".join(json.dumps(c)[1:-1] if c != "\n" and is_hidden(c) else c for c in text)


def show(text: str, *, ends_line: bool = True, err: bool = False, **style: Any) -> None:
    """Write to standard output or standard error; a terminal is protected from what evaluated code prints.

    The style is dropped where there are no colours: in a pipe, with NO_COLOR, on a terminal without them.
    """
    is_terminal = (sys.stderr if err else sys.stdout).isatty()
    # Threads of ours do not have the context in which click keeps whether there may be colours.
    is_colored = is_terminal and may_color() and any(style.values()) and bool(text)
    shown = visible(text) if is_terminal else text
    click.echo(click.style(shown, **style) if is_colored else shown, nl=ends_line, err=err, color=is_colored)


def tell(text: str) -> None:
    """Write to standard error what is about the work, not its result."""
    click.echo(visible(text), err=True)


@contextmanager
def prints_aside() -> Iterator[None]:
    """Send what tools print to standard error, where it cannot be taken for the output of the command."""
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
    """Write a tool on one line: name, level and the first sentence of what it does."""
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
    """Return what the work returns; Ctrl-C stops it, again and again, and nothing of it is lost."""
    from concurrent.futures import wait

    with interrupts() as is_unwanted:
        future = in_background(work)
        while not wait([future], RETRY_SECONDS).done:
            if is_unwanted.is_set():
                stop()
    return future.result()


def start(image: LiveImage, restore: str | None = None) -> None:
    """Start an image, from a saved state where one is given; raise what goes wrong and tell what is slow."""
    with _told_if_slow(SLOW_START):
        # Unlike an evaluation this raises when the image does not start.
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
