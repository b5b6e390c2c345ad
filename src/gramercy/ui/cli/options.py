"""Options that several commands share."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gramercy.workbench.assembly import Origin

if TYPE_CHECKING:
    from collections.abc import Callable

# As in the images room, which is not imported just to list them.
LANGUAGES = click.Choice(["sbcl", "python"])


def origin_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where tools come from; the command gets them as `origin`."""

    @wraps(command)
    def wrapped(
        *, sources: tuple[str, ...], image: str | None, project: str, sandbox: bool, **rest: Any
    ) -> Any:
        if not sources and image is None:
            raise click.UsageError("say where the tools are: --from FILE.py, --image sbcl|python, or both")
        return command(origin=Origin(sources, image, project, sandbox), **rest)

    return _sources(required=False)(_image_option(place_options(wrapped)))


def sources_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names the files with tools."""
    return _sources(required=True)(command)


def _sources(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--from",
        "sources",
        multiple=True,
        required=required,
        envvar="GRAMERCY_TOOLS",
        metavar="FILE.py|MODULE",
        help="Where the tools are defined; may be given several times (or GRAMERCY_TOOLS).",
    )


def _image_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--image", type=LANGUAGES, help="Also the tools of a live image of this language.")(
        command
    )


def language_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that chooses the language of an image."""
    return click.option(
        "--language", type=LANGUAGES, help="Of the image; by default SBCL where it is installed, else Python."
    )(command)


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where an image works and how it is confined."""
    project = click.option(
        "--project",
        default=".",
        show_default=True,
        type=click.Path(exists=True, file_okay=False),
        help="The directory an image works in, and all it may write.",
    )
    sandbox = click.option(
        "--no-sandbox",
        "sandbox",
        flag_value=False,
        default=True,
        type=bool,
        help="Let evaluated code do all that you may do.",
    )
    return project(sandbox(command))


def timeout_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that bounds each evaluation."""
    return click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="After this an evaluation is interrupted; what it did not change stays.",
    )(command)


def policy_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names a file with rules."""
    return click.option(
        "--policy",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE.toml",
        help="Rules that allow, ask or deny; without any, dangerous tools ask.",
    )(command)


def restore_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names a saved state to begin with."""
    return click.option(
        "--restore",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="Begin with a saved state; the language must be the one it was saved from.",
    )(command)


def save_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names where to save the state."""
    return click.option(
        "--save",
        type=click.Path(dir_okay=False, writable=True),
        callback=_in_a_directory,
        metavar="FILE",
        help="Write the state after the evaluation, unless that failed.",
    )(command)


def _in_a_directory(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Refuse at once what would fail only after the evaluation."""
    if path is not None and not Path(path).parent.is_dir():
        raise click.BadParameter(f"there is no directory {Path(path).parent}", context, parameter)
    return path
