"""`gramercy eval`: evaluate code in a fresh live image, or show what that would do."""

from __future__ import annotations

import sys
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import click
import msgspec

from gramercy.toolsets.rendering import preview_text
from gramercy.ui.cli.main import FAILED
from gramercy.ui.cli.options import (
    environment_options,
    journal_option,
    json_option,
    language_option,
    place_options,
    restore_option,
    save_option,
    timeout_option,
)
from gramercy.ui.cli.pictures import pictures_option, show_pictures
from gramercy.ui.cli.terminal import json_text, show, start, tell, visible
from gramercy.ui.cli.transcript import Transcript, other_language
from gramercy.workbench.recording import recorded, typed_call
from gramercy.workbench.site import usable_project
from gramercy.workbench.sources import image_registry, live_image

if TYPE_CHECKING:
    from gramercy.images.base import Reply
    from gramercy.images.environment import Environment
    from gramercy.images.live import LiveImage
    from gramercy.journal.base import Journal
    from gramercy.workbench.recording import Recording

# A frame to an image holds 64 MiB, and JSON can take several bytes for one. Load a larger file instead.
LARGEST_CODE = 16 * 1024 * 1024


@click.command("eval")
@click.argument("code", metavar="CODE|-")
@language_option
@place_options
@environment_options
@timeout_option
@journal_option
@pictures_option
@click.option("--package", help="Package (Lisp) or module (Python) to evaluate in.")
@click.option("--preview", is_flag=True, help="Only show what would happen.")
@restore_option
@save_option
@click.option("--debug", is_flag=True, help="Where it fails, open the prompt in the image.")
@json_option("Print all that is known about the evaluation as JSON.")
def evaluate(  # noqa: PLR0913 - one parameter per option
    code: str,
    language: str | None,
    project: str,
    timeout: float,
    *,
    package: str | None,
    restore: str | None,
    save: str | None,
    sandbox: bool,
    environment: Environment,
    recording: Recording,
    preview: bool,
    debug: bool,
    as_json: bool,
) -> int:
    """Evaluate code in a fresh live image; - is standard input."""
    if preview and save is not None:
        raise click.UsageError("a preview changes nothing that could be saved: leave out --preview or --save")
    if debug and (preview or as_json or not sys.stdin.isatty()):
        raise click.UsageError("--debug needs a terminal to talk at, without --preview and --json")
    text = _standard_input() if code == "-" else code
    with (
        usable_project(project, sandbox=sandbox, tell=tell) as place,
        closing(recording.open(place, tell)) as journal,
        live_image(
            language, project=place, sandbox=sandbox, timeout=timeout, environment=environment
        ) as image,
    ):
        start(image, restore)
        if preview:
            work = partial(image.preview, text, package=package)
        elif as_json:
            work = partial(image.evaluate, text, package=package)
        else:
            work = partial(_shown, image, text, package, hints=not debug)
        reply = recorded(journal, typed_call("preview" if preview else "eval", text, place), work)
        if as_json:
            click.echo(json_text(msgspec.to_builtins(reply)))
        elif preview:
            show(preview_text(reply))
            show_pictures(reply.displays)
        if hint := other_language(text, image.language, reply):
            tell(hint)
        if debug and not reply.ok:
            _debug(image, place, journal)
        if save is not None:
            _save(image, save, reply)
    return 0 if reply.ok else FAILED


def _shown(image: LiveImage, code: str, package: str | None, *, hints: bool) -> Reply:
    """Evaluate, and show the output as it comes, then the values unchanged."""
    transcript = Transcript(image.language)
    reply = image.evaluate(code, package=package, watch=transcript.watch)
    transcript.close(reply)
    if hints and reply.error is not None and sys.stdin.isatty() and sys.stderr.isatty():
        show("(with --debug the prompt opens where it failed)", err=True, dim=True)
    return reply


def _debug(image: LiveImage, project: str, journal: Journal) -> None:
    # The modules of the prompt would delay the start of every evaluation.
    from gramercy.ui.cli.session import at_terminal

    tell("the image is as the error left it: :help lists the commands, Ctrl-D leaves")
    at_terminal(image, image_registry(image, image.language, project), project, journal)


def _save(image: LiveImage, path: str, reply: Reply) -> None:
    told = image.save(path) if reply.ok else f"nothing was saved to {path}: the evaluation failed"
    click.echo(visible(told), err=True)


def _standard_input() -> str:
    data = sys.stdin.buffer.read(LARGEST_CODE + 1)
    if len(data) > LARGEST_CODE:
        raise click.UsageError(f"standard input has more than {LARGEST_CODE:,} bytes: load a file instead")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"standard input is not UTF-8: byte {error.start} is wrong") from None
