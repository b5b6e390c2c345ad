"""`gramercy eval`: evaluate code in a fresh live image, or show what that would do."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import msgspec

from gramercy.toolsets.rendering import changes_text, evaluation_text
from gramercy.ui.cli.display import json_text, visible
from gramercy.ui.cli.options import language_option, place_options, timeout_option
from gramercy.workbench.assembly import live_image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.images.base import Reply
    from gramercy.images.live import LiveImage

FAILED = 1
LARGEST_CODE = 16 * 1024 * 1024
UNHURRIED_SECONDS = 1.0


@click.command("eval")
@click.argument("code", metavar="CODE|-")
@language_option
@place_options
@timeout_option
@click.option("--package", help="Package (Lisp) or module (Python) to evaluate in.")
@click.option("--preview", is_flag=True, help="Only show what would happen.")
@click.option("--json", "as_json", is_flag=True, help="Print all that is known about the evaluation as JSON.")
def evaluate(  # noqa: PLR0913 - one parameter per option
    code: str,
    language: str | None,
    project: str,
    timeout: float,
    package: str | None,
    *,
    sandbox: bool,
    preview: bool,
    as_json: bool,
) -> int:
    """Evaluate code in a fresh live image; - is standard input."""
    text = _standard_input() if code == "-" else code
    with live_image(language, project=project, sandbox=sandbox, timeout=timeout) as image:
        start(image)
        reply = (image.preview if preview else image.evaluate)(text, package=package)
    if as_json:
        click.echo(json_text(msgspec.to_builtins(reply)))
    else:
        show(preview_text(reply) if preview else evaluation_text(reply))
    return 0 if reply.ok else FAILED


def _standard_input() -> str:
    data = sys.stdin.buffer.read(LARGEST_CODE + 1)
    if len(data) > LARGEST_CODE:
        raise click.UsageError(f"standard input has more than {LARGEST_CODE:,} bytes: load a file instead")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"standard input is not UTF-8: byte {error.start} is wrong") from None


def start(image: LiveImage) -> None:
    """Start an image; one that cannot start raises, and one that takes its time says so."""
    with _told_if_slow("starting the image; the very first time this takes a few seconds …"):
        # Unlike an evaluation this raises when the image does not start.
        image.checkpoints()


@contextmanager
def _told_if_slow(words: str) -> Iterator[None]:
    timer = threading.Timer(UNHURRIED_SECONDS, click.echo, [words], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def show(text: str) -> None:
    """Write to standard output; a terminal is protected from what evaluated code prints."""
    click.echo(visible(text) if sys.stdout.isatty() else text)


def preview_text(reply: Reply) -> str:
    """Write what an evaluation would do."""
    sections = ["[preview] nothing was changed", evaluation_text(reply)]
    if reply.changed:
        sections.append(f"[would change]\n{changes_text(reply.changed)}")
    if reply.effects:
        lines = (f"- {effect.kind} {effect.target}: {effect.outcome}" for effect in reply.effects)
        sections.append("[attempted effects]\n" + "\n".join(lines))
    return "\n\n".join(sections)
