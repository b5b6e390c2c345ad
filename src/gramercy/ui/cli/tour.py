"""`gramercy tour`: the real parts at work in a scratch directory, told in a minute. Nothing is canned."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gramercy.errors import SandboxError
from gramercy.ui.cli.evaluation import start
from gramercy.ui.cli.live_scenes import play_live_scenes
from gramercy.ui.cli.options import language_option
from gramercy.ui.cli.scenes import play_scenes
from gramercy.ui.cli.stage import title
from gramercy.workbench.assembly import live_image

if TYPE_CHECKING:
    from gramercy.execution.executor import Executor


@click.command()
@language_option
def tour(language: str | None) -> None:
    """Show in under a minute what gramercy does."""
    with tempfile.TemporaryDirectory(prefix="gramercy-tour-") as directory:
        executor = play_scenes(Path(directory))
        executor = _play_live(Path(directory), language) or executor
    title("Every call is counted")
    click.echo(executor.metrics_table())
    click.echo("\nNext: try  gramercy repl  or  gramercy tools list --from my_tools.py", err=True)


def _play_live(directory: Path, language: str | None) -> Executor | None:
    """Play the main act; without a sandbox it is left out, since nobody accepted the risk."""
    try:
        with live_image(language, project=str(directory)) as image:
            start(image)
            return play_live_scenes(image, image.language, directory)
    except SandboxError as error:
        title("The scenes with a live image are left out")
        click.echo(str(error))
        return None
