"""`gramercy foreign`: look at the tools of other MCP servers, and say which of them may be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gramercy.images.trust import accept_file
from gramercy.mcp.foreign import ForeignError, Listing, PinFile, Review, Standing, review_tools
from gramercy.text import reveal, reveal_line
from gramercy.ui.cli.asking import is_confirmed, why_nobody
from gramercy.ui.cli.main import DENIED
from gramercy.ui.cli.options import json_option
from gramercy.ui.cli.terminal import json_text, tell
from gramercy.workbench.foreign import name_server

if TYPE_CHECKING:
    from collections.abc import Callable

_OPEN = (Standing.NEW, Standing.CHANGED)


def _server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every command about servers takes."""
    pins = click.option(
        "--pins",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Where accepted definitions are kept; by default foreign.json in your configuration.",
    )
    env = click.option(
        "--env",
        "variables",
        multiple=True,
        metavar="VARIABLE",
        help="A variable of the environment that the server may see; may be given several times.",
    )
    return pins(env(command))


@click.group()
def group() -> None:
    """Look at the tools of other MCP servers, and say which may be used.

    A server is NAME=COMMAND or NAME=URL. None of its tools is used before you have accepted its definition,
    and a changed definition must be accepted again.
    """


@group.command("list")
@click.argument("servers", nargs=-1, metavar="[NAME=COMMAND|URL]...")
@_server_options
@json_option("Print a list of the tools and how they stand as JSON.")
def list_tools(
    *, servers: tuple[str, ...], pins: str | None, variables: tuple[str, ...], as_json: bool
) -> None:
    """List how the tools of servers stand; without servers, what was accepted."""
    file = PinFile(pins)
    found = [review for word in servers for review in _reviews(word, file, variables)]
    if not servers:
        found = [r for name in file.servers() for r in _accepted(name, file)]
    if as_json:
        click.echo(json_text([_facts(review) for review in found]))
        return
    for review in found:
        flag = "  ! hidden characters" if review.hidden else ""
        problem = f"  ({reveal_line(review.problem)[:200]})" if review.problem else ""
        click.echo(f"{review.standing:<10} {review.server} {reveal_line(review.tool)}{flag}{problem}")
    if not found:
        tell(
            "there are no tools"
            if servers
            else "nothing was accepted yet: gramercy foreign accept NAME=COMMAND|URL"
        )


@group.command("show")
@click.argument("server", metavar="NAME=COMMAND|URL")
@click.argument("tools", nargs=-1, metavar="[TOOL]...")
@_server_options
@json_option("Print a list of the tools with their definitions as JSON.")
def show_tools(
    *, server: str, tools: tuple[str, ...], pins: str | None, variables: tuple[str, ...], as_json: bool
) -> None:
    """Show definitions, and what has changed in them since you accepted them."""
    reviews = _chosen(_reviews(server, PinFile(pins), variables), tools)
    if as_json:
        click.echo(json_text([{**_facts(review), "text": review.text()} for review in reviews]))
        return
    for review in reviews:
        click.echo(review.text())


def _facts(review: Review) -> dict[str, Any]:
    """Return the stable shape of --json, with hidden characters written out."""
    return {
        "server": review.server,
        "tool": reveal_line(review.tool),
        "standing": str(review.standing),
        "hidden": review.hidden,
        "problem": reveal(review.problem),
    }


@group.command("accept")
@click.argument("server", metavar="NAME=COMMAND|URL")
@click.argument("tools", nargs=-1, metavar="[TOOL]...")
@click.option("--yes", is_flag=True, help="Accept without asking, what is shown.")
@_server_options
def accept_tools(
    *, server: str, tools: tuple[str, ...], yes: bool, pins: str | None, variables: tuple[str, ...]
) -> int:
    """Show new and changed definitions and accept them; accepted tools that are gone are forgotten."""
    file = PinFile(pins)
    reviews = _chosen(_reviews(server, file, variables), tools)
    asked = [review for review in reviews if review.standing in _OPEN]
    gone = [review for review in reviews if review.standing is Standing.REMOVED]
    if not asked and not gone:
        click.echo("there is nothing to accept", err=True)
        return 0
    if not yes and (why := why_nobody()):
        raise click.UsageError(
            f"nobody can be asked here, since {why}: look at the tools with show, then accept with --yes"
        )
    refused = _settle(file, asked, gone, yes=yes)
    return DENIED if refused else 0


def _settle(file: PinFile, asked: list[Review], gone: list[Review], *, yes: bool) -> int:
    """Ask about one tool after the other. Return the number of refused tools."""
    refused = 0
    for review in asked:
        click.echo(review.text())
        # The definition that was shown is accepted, even if the server changes it meanwhile.
        if review.offered and (yes or is_confirmed("accept it?")):
            file.accept(review.server, [review.offered])
            accept_file(file.path)
            click.echo(f"accepted {review.server} {reveal_line(review.tool)}", err=True)
        else:
            refused += 1
    for review in gone:
        file.forget(review.server, [review.tool])
        accept_file(file.path)
        click.echo(f"forgot {review.server} {reveal_line(review.tool)}, which is no longer there", err=True)
    return refused


def _reviews(word: str, file: PinFile, variables: tuple[str, ...]) -> list[Review]:
    with name_server(word, variables=variables) as server:
        return review_tools(server.name, server.listing(), file.accepted(server.name))


def _accepted(name: str, file: PinFile) -> list[Review]:
    accepted = file.accepted(name)
    return review_tools(name, Listing(accepted, {}), accepted)


def _chosen(reviews: list[Review], tools: tuple[str, ...]) -> list[Review]:
    known = {review.tool for review in reviews}
    for tool in tools:
        if tool not in known:
            there = ", ".join(map(reveal_line, sorted(known))) or "none"
            raise ForeignError(f"the server has no tool {tool!r:.100}; there are: {there}")
    return [review for review in reviews if not tools or review.tool in tools]
