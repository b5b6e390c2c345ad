"""`gramercy serve`: give the tools of files and live images to MCP clients, on stdio or over HTTP."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gramercy.ui.cli.display import visible
from gramercy.ui.cli.joining import foreign_options, tell_about_foreign
from gramercy.ui.cli.listening import http_options, http_settings, refuse_http_options, take_http_options
from gramercy.ui.cli.options import environment_options, place_options, policy_option, timeout_option
from gramercy.workbench.serving import FURTHER_TOOLSETS, TOOLSETS, Service, open_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.workbench.serving import Server

# Together with what the transport takes to end, less than a second after the client has left.
CLOSING_SECONDS = 0.25
LEAVING_SECONDS = 0.1
LEVELS = click.Choice(["safe", "cautious", "dangerous"])


def _what_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what is served."""
    for option in (
        click.option("--conformance-fixtures", "fixtures", is_flag=True, hidden=True),
        click.option("--strict", is_flag=True, help="Answer invalid arguments with a protocol error."),
        click.option(
            "--toolset",
            "toolsets",
            multiple=True,
            type=click.Choice([*TOOLSETS, *FURTHER_TOOLSETS]),
            help="Only these sets of the tools of images; may be given several times. With images, callers "
            "can open more of them.",
        ),
        click.option(
            "--categories",
            "--category",
            "categories",
            multiple=True,
            metavar="CATEGORY",
            help="Only tools in one of these categories; may be given several times.",
        ),
        click.option("--max-safety", type=LEVELS, help="Only tools at or below this level."),
        click.option(
            "--from",
            "sources",
            multiple=True,
            envvar="GRAMERCY_TOOLS",
            metavar="FILE.py|MODULE",
            help="Also the tools defined there; may be given several times (or GRAMERCY_TOOLS).",
        ),
        click.option(
            "--image",
            "images",
            multiple=True,
            metavar="LANGUAGE|NAME=LANGUAGE",
            help="A live image of sbcl or python, started when it is first used; may be given several times. "
            "By default one, in the language of the project or else SBCL, but none with --from or --foreign.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.option("--stdio", is_flag=True, help="Serve on standard input and output, which is the default.")
@http_options
@_what_options
@policy_option
@foreign_options
@partial(place_options, exists=False)
@environment_options
@timeout_option
@click.option(
    "--max-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Let callers choose a time limit for each evaluation, up to this; without it they cannot.",
)
def serve(*, stdio: bool, http: tuple[str, int] | None, **options: Any) -> None:
    """Serve the tools of files and live images to MCP clients.

    Where it is not started in a project, images and file tools work in the first folder that a client on
    stdio names (roots), else in an empty directory; the first reply says so.
    """
    about_http = take_http_options(options)
    toolsets = options.pop("toolsets") or TOOLSETS
    service = Service(toolsets=toolsets, **options)
    if http is None:
        refuse_http_options(about_http)
        _serve_stdio(service)
    elif stdio:
        raise click.UsageError("--stdio and --http exclude each other: start two servers")
    else:
        _serve_http(service, http, about_http)


def _serve_stdio(service: Service) -> None:
    from gramercy.mcp.stdio import claim_descriptors

    if sys.stdin is not None and sys.stdin.isatty():
        click.echo("waiting for an MCP client on standard input; Ctrl-C ends, --help tells more", err=True)
    # Before anything of the user's is run, which might print.
    wire = claim_descriptors()
    with _in_haste():
        # A client shows nothing of a server that does not start; what is wrong with a project it can be told.
        server = open_server(replace(service, uses_roots=True))
        from gramercy.mcp.stdio import run_stdio

    try:
        _tell_about_place(server)
        tell_about_foreign(server)
        run_stdio(server.engine, wire)
    finally:
        _close(server)


def _serve_http(service: Service, address: tuple[str, int], about_http: dict[str, Any]) -> None:
    from gramercy.mcp.http import serve_http

    settings = http_settings(about_http, os.environ)
    if sys.stdin is not None and sys.stdin.isatty():
        # Standard input is free here, so a person at this terminal can answer for clients that show nothing.
        from gramercy.ui.cli.approval import one_at_a_time

        service = replace(service, approver=one_at_a_time)
    _check_chosen(service)
    server = open_server(service)
    try:
        _tell_about_place(server)
        tell_about_foreign(server)
        serve_http(server.engine, *address, settings=settings)
    finally:
        _close(server)


def _check_chosen(service: Service) -> None:
    """Refuse a project that cannot be used: over HTTP a person starts the server, and sees why."""
    from gramercy.images.project import check_project, project_directory
    from gramercy.workbench.site import HERE

    if service.project != HERE:
        (check_project if service.sandbox else project_directory)(service.project)


def _tell_about_place(server: Server) -> None:
    if server.images and server.site.trouble:
        click.echo(visible(f"gramercy: {server.site.introduction}"), err=True)


@contextlib.contextmanager
def _in_haste() -> Iterator[None]:
    """Load what lasts: nothing becomes garbage meanwhile, and to look for it takes a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _close(server: Server) -> None:
    """End the images, and see to it that no thread of a tool keeps this process alive."""
    server.close(CLOSING_SECONDS)
    last_resort = threading.Timer(LEAVING_SECONDS, _leave)
    last_resort.daemon = True
    last_resort.start()


def _leave() -> None:
    sys.stderr.flush()
    os._exit(0)
