"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


def sources_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names the files with tools."""
    return click.option(
        "--from",
        "sources",
        multiple=True,
        required=True,
        envvar="GRAMERCY_TOOLS",
        metavar="FILE.py|MODULE",
        help="Where the tools are defined; may be given several times (or GRAMERCY_TOOLS).",
    )(command)
