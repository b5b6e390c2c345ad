"""`gramercy repl`: a prompt on a live image, where every evaluation can be previewed and taken back.

`session` handles the entries.
"""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

import click

from gramercy.images.sandbox import told_confinement
from gramercy.ui.cli.main import FAILED
from gramercy.ui.cli.options import (
    environment_options,
    journal_option,
    language_option,
    place_options,
    restore_option,
    timeout_option,
)
from gramercy.ui.cli.pictures import pictures_option
from gramercy.ui.cli.session import at_terminal, from_pipe
from gramercy.ui.cli.terminal import start, tell
from gramercy.workbench.site import usable_project
from gramercy.workbench.sources import image_registry, live_image

if TYPE_CHECKING:
    from gramercy.images.environment import Environment
    from gramercy.workbench.recording import Recording


@click.command()
@language_option
@place_options
@environment_options
@timeout_option
@journal_option
@pictures_option
@restore_option
def repl(  # noqa: PLR0913 - one parameter per option
    language: str | None,
    project: str,
    timeout: float,
    restore: str | None,
    *,
    sandbox: bool,
    environment: Environment,
    recording: Recording,
) -> int:
    """Work in a live image: evaluate, preview, undo."""
    is_interactive = sys.stdin.isatty()
    with (
        usable_project(project, sandbox=sandbox, tell=tell) as place,
        closing(recording.open(place, tell)) as journal,
        live_image(
            language, project=place, sandbox=sandbox, timeout=timeout, environment=environment
        ) as image,
    ):
        start(image, restore)
        registry = image_registry(image, image.language, place)
        if not is_interactive:
            return FAILED if from_pipe(image, registry, place, journal) else 0
        confined = told_confinement(image.program().confinement)
        click.echo(f"{image.language} image, {confined}; :help lists the commands, Ctrl-D leaves", err=True)
        at_terminal(image, registry, place, journal)
    return 0
