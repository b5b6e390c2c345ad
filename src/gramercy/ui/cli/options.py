"""Options that several commands share."""

from __future__ import annotations

import os
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gramercy.workbench.assembly import Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.environment import Environment, PublishedPort

# As in the images room, which is not imported just to list them.
LANGUAGES = click.Choice(["sbcl", "python"])
LAST_PORT = 65535


def origin_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where tools come from; the command gets them as `origin`."""

    @wraps(command)
    def wrapped(
        *,
        sources: tuple[str, ...],
        image: str | None,
        project: str,
        sandbox: bool,
        environment: Environment,
        **rest: Any,
    ) -> Any:
        if not sources and image is None:
            raise click.UsageError("say where the tools are: --from FILE.py, --image sbcl|python, or both")
        return command(origin=Origin(sources, image, project, sandbox, environment), **rest)

    return _sources(required=False)(_image_option(place_options(environment_options(wrapped))))


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


def place_options(command: Callable[..., Any], *, exists: bool = True) -> Callable[..., Any]:
    """Add the options that say where an image works and how it is confined.

    Without `exists` the command itself says what is wrong with a project that is not there.
    """
    project = click.option(
        "--project",
        default=".",
        show_default=True,
        type=click.Path(exists=exists, file_okay=False),
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


def environment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what an image has beside its project, for the command's `environment`."""

    @wraps(command)
    def wrapped(**options: Any) -> Any:
        names = ("python", "paths", "registries", "init", "memory_mb", "variables", "publish", "network")
        told = {name: value for name in names if (value := options.pop(name)) not in (None, ())}
        return command(environment=_environment(told), **options)

    for option in _ENVIRONMENT_OPTIONS:
        wrapped = option(wrapped)
    return wrapped


def _environment(told: dict[str, Any]) -> Environment:
    """Make the user's own word out of the options that were given."""
    from gramercy.images.environment import Environment, Network

    for name in ("paths", "registries"):
        if name in told:
            told[name] = tuple(Path(path).resolve() for path in told[name])
    if "init" in told:
        told["init"] = Path(told["init"]).resolve()
    if "network" in told:
        told["network"] = Network(told["network"])
    if "variables" in told:
        told["variables"] = _variables(told["variables"])
    if "publish" in told:
        told["publish"] = tuple(map(_port, told["publish"]))
    return Environment(**told)


def _variables(words: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name.isidentifier():
            raise click.BadParameter(f"{word!r:.60} is not NAME or NAME=VALUE", param_hint="--env")
        if not equals and name not in os.environ:
            raise click.BadParameter(f"{name} is not set here: give it as {name}=VALUE", param_hint="--env")
        found[name] = value if equals else os.environ[name]
    return found


def _port(word: str) -> PublishedPort:
    from gramercy.images.environment import PublishedPort

    outer, _, inner = word.partition(":")
    ports = [int(part) if part.isdecimal() else 0 for part in (outer, inner or outer)]
    if not all(1 <= port <= LAST_PORT for port in ports):
        raise click.BadParameter(f"{word!r:.40} is not PORT or OUTER:INNER", param_hint="--publish")
    return PublishedPort(*ports)


_ENVIRONMENT_OPTIONS = (
    click.option(
        "--network",
        type=click.Choice(["none", "open"]),
        help="What evaluated code may connect to; by default nothing.",
    ),
    click.option(
        "--publish",
        multiple=True,
        metavar="PORT|OUTER:INNER",
        help="Let programs of this machine reach a port inside the image; may be given several times.",
    ),
    click.option(
        "--env",
        "variables",
        multiple=True,
        metavar="NAME|NAME=VALUE",
        help="An environment variable for the image; may be given several times.",
    ),
    click.option(
        "--memory", "memory_mb", type=click.IntRange(min=64), metavar="MB", help="What each process may use."
    ),
    click.option(
        "--init",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="A file to load when the image starts.",
    ),
    click.option(
        "--registry",
        "registries",
        multiple=True,
        type=click.Path(exists=True, file_okay=False),
        help="A tree of Lisp systems outside of the project, to be read; may be given several times.",
    ),
    click.option(
        "--path",
        "paths",
        multiple=True,
        type=click.Path(exists=True, file_okay=False),
        help="A directory outside of the project to import from; may be given several times.",
    ),
    click.option(
        "--python",
        metavar="PROGRAM|DIRECTORY",
        help="The interpreter or virtual environment of a Python image; by default that of the project.",
    ),
)


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
