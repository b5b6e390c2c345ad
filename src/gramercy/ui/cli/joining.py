"""The part of `gramercy serve` that is about other MCP servers whose tools it passes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.workbench.serving import Server


def foreign_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of other servers; the command gets them under the names of the service."""
    for option in reversed(
        (
            click.option(
                "--foreign",
                multiple=True,
                metavar="NAME=COMMAND|URL",
                help="Also the accepted tools of another MCP server, as NAME__TOOL; may be given "
                "several times. They are dangerous unless a rule says otherwise.",
            ),
            click.option(
                "--foreign-pins",
                type=click.Path(dir_okay=False),
                metavar="FILE",
                help="Where their accepted definitions are kept (see gramercy foreign).",
            ),
            click.option(
                "--foreign-rule",
                "foreign_rules",
                multiple=True,
                metavar="NAME__TOOL=LEVEL",
                help="The level of one of their tools; may be given several times.",
            ),
            click.option(
                "--foreign-env",
                multiple=True,
                metavar="VARIABLE",
                help="A variable of the environment that they may see; may be given several times.",
            ),
        )
    ):
        command = option(command)
    return command


def tell_about_foreign(server: Server) -> None:
    """Have the person told, while the server already serves, which tools of others are refused and why."""
    if server.foreign is not None:
        server.foreign.check(lambda line: click.echo(f"gramercy: {line}", err=True))
