"""`gramercy config`: the effective settings for the images of a project, and the origin of each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gramercy.images.environment import PublishedPort
from gramercy.ui.cli.options import (
    add_environment_options,
    approval_options,
    json_option,
    place_options,
    timeout_limit_option,
    timeout_option,
    told_settings,
)
from gramercy.ui.cli.terminal import json_text, show, visible
from gramercy.workbench.configuration import read_configuration
from gramercy.workbench.settings import KEYS, Settings, spelling, variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.workbench.configuration import Configuration, Source

DEFAULT = "default"
BORROWED = "(from your environment)"
REFUSED = " is refused, since "


@click.group()
def group() -> None:
    """Show the settings of images, and where each comes from."""


@group.command("show")
@click.option("--origin", is_flag=True, help="Tell where each value comes from, and what was refused.")
@json_option("Print values, origins, refusals and remarks as JSON.")
@place_options
@add_environment_options
@approval_options
@timeout_option
@timeout_limit_option
def show_settings(*, origin: bool, as_json: bool, project: str, sandbox: bool, **options: Any) -> None:
    """Show what holds for the images of a project, as TOML.

    The options of images are taken into account, so that you see what a command with them would use.
    """
    del sandbox  # not a setting: each command takes its own flag
    found = read_configuration(project, told_settings(options))
    if as_json:
        click.echo(json_text(_report(project, found)))
        return
    for key in KEYS:
        for line in _lines(key, found, with_origin=origin):
            show(line)
    if origin:
        for refusal in found.refused:
            said = f"{refusal.key} = {_toml(refusal.value)}"
            show(f"# refused in {refusal.where}: {said}, since {refusal.reason}")
    for remark in found.remarks:
        if not (origin and REFUSED in remark):
            click.echo(visible(f"warning: {remark}"), err=True)


def _lines(key: str, found: Configuration, *, with_origin: bool) -> Iterator[str]:
    """Format a setting as a line of TOML. An unset one becomes a comment with the default."""
    about = _origin(key, found)
    origin = f"  # from {'; '.join(about)}" if with_origin else ""
    if about == [DEFAULT]:
        yield f"# {key}: {KEYS[key].default.replace('`', '')}{'  (default)' if with_origin else ''}"
    else:
        yield f"{key} = {_toml(_value(key, found))}{origin}"


def _report(project: str, found: Configuration) -> dict[str, Any]:
    settings = [{"key": key, "value": _value(key, found), "origin": _origin(key, found)} for key in KEYS]
    refused = [
        {"key": each.key, "value": each.value, "where": each.where, "reason": each.reason}
        for each in found.refused
    ]
    return {
        "project": str(Path(project).resolve()),
        "files": [str(file) for file in found.files],
        "settings": settings,
        "refused": refused,
        "remarks": list(found.remarks),
    }


def _origin(key: str, found: Configuration) -> list[str]:
    """Name the origin of a value, or of its parts. Of several sources with one value, name the nearest."""
    value = getattr(found.settings, key)
    names: list[str] = []
    for part in _parts(value):
        for source in found.sources:
            if part in _parts(getattr(source.settings, key)):
                names.append(_named(source, key))
                break
    if value == () != getattr(Settings(), key):
        # That there are none has been said.
        names = [_named(source, key) for source in found.sources if getattr(source.settings, key) == ()][:1]
    return list(dict.fromkeys(names)) or [DEFAULT]


def _parts(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, tuple):
        return list(value)
    return list(value.items()) if isinstance(value, dict) else [value]


def _named(source: Source, key: str) -> str:
    """Name the option, the variable or the file."""
    if source.name == "the command line":
        return spelling(key)
    return variable(key) if source.name == "the environment" else source.name


def _value(key: str, found: Configuration) -> Any:
    """Return the effective value, in the form that a file would have."""
    if key == "timeout_limit":
        return found.timeout_limit
    value = getattr(found.settings, key)
    return _plain(KEYS[key].otherwise if value is None else value)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        # Values taken from the environment may be secrets. They must not be shown on a screen or in a report.
        return {name: BORROWED if os.environ.get(name) == each else each for name, each in value.items()}
    if isinstance(value, PublishedPort):
        return value.inner if value.inner == value.outer else f"{value.outer}:{value.inner}"
    return str(value) if isinstance(value, Path) else value


def _toml(value: Any) -> str:
    """Format a value as TOML. Its strings, numbers and lists are those of JSON."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False, default=str)
