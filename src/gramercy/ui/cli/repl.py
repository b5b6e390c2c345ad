"""`gramercy repl`: a prompt on a live image, where every evaluation can be previewed and taken back.

What a person types is read in `reading`; what it does is in `session`.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from gramercy.ui.cli.options import (
    environment_options,
    language_option,
    place_options,
    restore_option,
    timeout_option,
)
from gramercy.ui.cli.reading import Completer, Entries, offer_names, piped_line, remembered, typed_line
from gramercy.ui.cli.session import Session
from gramercy.ui.cli.terminal import start, tell
from gramercy.workbench.site import usable_project
from gramercy.workbench.sources import image_registry, live_image

if TYPE_CHECKING:
    from gramercy.images.environment import Environment


@click.command()
@language_option
@place_options
@environment_options
@timeout_option
@restore_option
def repl(  # noqa: PLR0913 - one parameter per option
    language: str | None,
    project: str,
    timeout: float,
    restore: str | None,
    *,
    sandbox: bool,
    environment: Environment,
) -> int:
    """Work in a live image: evaluate, preview, undo."""
    is_interactive = sys.stdin.isatty()
    with (
        usable_project(project, sandbox=sandbox, tell=tell) as place,
        live_image(
            language, project=place, sandbox=sandbox, timeout=timeout, environment=environment
        ) as image,
    ):
        start(image, restore)
        chosen = image.language
        session = Session(image, chosen, image_registry(image, chosen, place), interactive=is_interactive)
        line = typed_line if is_interactive else piped_line
        entries = Entries(chosen, line, interactive=is_interactive)
        if not is_interactive:
            _converse(session, entries)
            return int(session.has_failed)
        click.echo(f"{chosen} image; :help lists the commands, Ctrl-D leaves", err=True)
        offer_names(Completer(image, chosen, lambda: session.package), chosen)
        with remembered(chosen):
            _chat(session, entries)
    return 0


def _converse(session: Session, entries: Entries) -> None:
    """Take entries to their end."""
    with contextlib.suppress(EOFError):
        while True:
            entry = entries.read(session.prompt)
            if entry.strip() and not session.handle(entry):
                return


def _chat(session: Session, entries: Entries) -> None:
    """Do the same with a person, whose Ctrl-C only gives up what is being typed."""
    while True:
        try:
            _converse(session, entries)
        except KeyboardInterrupt:
            entries.forget()
            click.echo("", err=True)
            continue
        click.echo("", err=True)
        return
