"""`gramercy serve`: give the tools of files and live images to MCP clients, on stdio or over HTTP.

First the options (what is served, HTTP, other servers), then the command, which chooses the transport.
"""

from __future__ import annotations

import contextlib
import gc
import os
import stat
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gramercy.errors import ServingError
from gramercy.ui.cli.asking import why_nobody
from gramercy.ui.cli.options import (
    LEVELS,
    approval_options,
    environment_options,
    foreign_options,
    mode_option,
    place_options,
    policy_option,
    timeout_limit_option,
    timeout_option,
)
from gramercy.ui.cli.terminal import tell, visible
from gramercy.workbench.selection import DEFAULT_TOOLSETS, TOOLSETS
from gramercy.workbench.serving import Service, open_server
from gramercy.workbench.settings import LAST_PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gramercy.mcp.http import HttpSettings, TokenGate
    from gramercy.workbench.serving import Server

# Clients kill a server that still runs some two seconds after they closed its input. Together with the end of
# the transport, these stay below one second.
CLOSING_SECONDS = 0.25
LEAVING_SECONDS = 0.1
OAUTH = ("oauth_issuer", "oauth_keys", "oauth_resource")
HTTP_OPTIONS = ("no_auth", "token_file", "allow_host", "allow_origin", *OAUTH)


def _what_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select the tools."""
    for option in (
        click.option("--conformance-fixtures", "fixtures", is_flag=True, hidden=True),
        click.option("--strict", is_flag=True, help="Answer invalid arguments with a protocol error."),
        click.option(
            "--toolset",
            "toolsets",
            multiple=True,
            type=click.Choice(list(TOOLSETS)),
            help="These sets of the tools of images instead of the default one; may be given several times. "
            "With images, callers can open more of them.",
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


def http_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of HTTP; the command gets them under their own names."""
    for option in reversed(
        (
            click.option(
                "--http",
                callback=read_address,
                metavar="HOST:PORT",
                help="Serve over HTTP instead, at /mcp; port 0 takes a free one.",
            ),
            click.option("--no-auth", is_flag=True, help="Over HTTP: ask for no token."),
            click.option(
                "--token-file",
                type=click.Path(exists=True, dir_okay=False),
                help="Over HTTP: the file with the token that callers need (or GRAMERCY_TOKEN); by default a "
                "new one is made and told.",
            ),
            click.option(
                "--allow-host",
                multiple=True,
                metavar="NAME",
                help="Over HTTP: a name under which callers reach this server, besides localhost.",
            ),
            click.option(
                "--allow-origin",
                multiple=True,
                metavar="URL",
                help="Over HTTP: an origin whose web pages may call.",
            ),
            click.option(
                "--oauth-issuer",
                metavar="URL",
                help="Over HTTP: whose tokens are taken instead of one token.",
            ),
            click.option("--oauth-keys", metavar="URL|FILE", help="The issuer's key set (JWKS)."),
            click.option("--oauth-resource", metavar="URL", help="The address that the tokens are made for."),
        )
    ):
        command = option(command)
    return command


def read_address(_context: click.Context, _option: click.Parameter, value: str | None) -> Any:
    """Parse `HOST:PORT`, `:PORT` or `PORT`. Without a host only this machine can reach the server."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= LAST_PORT):
        raise click.BadParameter(f"{value!r:.80} is not HOST:PORT: expected something like 127.0.0.1:8000")
    return host.strip("[]") or "127.0.0.1", int(port)


@click.command()
@click.option("--stdio", is_flag=True, help="Serve on standard input and output, which is the default.")
@http_options
@_what_options
@policy_option
@mode_option
@approval_options
@foreign_options
@partial(place_options, exists=False)
@environment_options
@timeout_option
@timeout_limit_option
def serve(*, stdio: bool, http: tuple[str, int] | None, **options: Any) -> None:
    """Serve the tools of files and live images to MCP clients.

    Where it is not started in a project, images and file tools work in the first folder that a client on
    stdio names (roots), else in an empty directory; the first reply says so.
    """
    about_http = take_http_options(options)
    toolsets = options.pop("toolsets") or DEFAULT_TOOLSETS
    service = Service(toolsets=toolsets, mode=options.pop("mode") or "ask", **options)
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
    # Claim the wire before any user code runs: user code might print to it.
    wire = claim_descriptors()
    with _in_haste():
        # A client shows nothing of a server that does not start. Problems of a project can be reported by a
        # running server.
        server = open_server(msgspec.structs.replace(service, uses_roots=True, nearby=True))
        from gramercy.mcp.stdio import run_stdio

    try:
        _tell_about_place(server)
        tell_about_foreign(server)
        run_stdio(server.engine, wire)
    finally:
        _close(server)


def _serve_http(service: Service, address: tuple[str, int], about_http: dict[str, Any]) -> None:
    from gramercy.mcp.http import serve_http
    from gramercy.mcp.http.settings import is_loopback

    settings = http_settings(about_http, os.environ)
    service = msgspec.structs.replace(service, nearby=is_loopback(address[0]))
    if not why_nobody():
        # Standard input is free here, so a person at this terminal can answer for clients without questions.
        from gramercy.ui.cli.approval import one_at_a_time

        service = msgspec.structs.replace(service, approver=one_at_a_time)
    _check_chosen(service)
    server = open_server(service)
    try:
        _tell_about_place(server)
        tell_about_foreign(server)
        serve_http(server.engine, *address, settings=settings)
    finally:
        _close(server)


def _check_chosen(service: Service) -> None:
    """Refuse a project that cannot be used. Over HTTP a person starts the server, and sees the reason."""
    from gramercy.images.project import check_project, project_directory
    from gramercy.workbench.site import HERE

    if service.project != HERE:
        (check_project if service.sandbox else project_directory)(service.project)


def _tell_about_place(server: Server) -> None:
    if server.sandbox:
        click.echo(visible(f"gramercy: {server.sandbox}"), err=True)
    for line in server.ledger.told:
        click.echo(visible(f"gramercy: {line}"), err=True)
    if server.images and server.site.trouble:
        click.echo(visible(f"gramercy: {server.site.introduction}"), err=True)


@contextlib.contextmanager
def _in_haste() -> Iterator[None]:
    """Disable garbage collection during imports. Modules last, and the search takes a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _close(server: Server) -> None:
    """End the images. No thread of a tool may keep this process alive."""
    server.close(CLOSING_SECONDS)
    last_resort = threading.Timer(LEAVING_SECONDS, _leave)
    last_resort.daemon = True
    last_resort.start()


def _leave() -> None:
    sys.stderr.flush()
    os._exit(0)


def take_http_options(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options about HTTP out of the options of a command."""
    return {name: options.pop(name) for name in HTTP_OPTIONS}


def refuse_http_options(options: Mapping[str, Any]) -> None:
    """Refuse options that would have no effect on standard input and output."""
    for name, value in options.items():
        if value:
            raise click.UsageError(f"--{name.replace('_', '-')} is about HTTP: add --http HOST:PORT")


def http_settings(options: Mapping[str, Any], environment: Mapping[str, str]) -> HttpSettings:
    """Make the settings of the transport from the options."""
    from gramercy.mcp.http import HttpSettings

    hosts, origins = tuple(options["allow_host"]), tuple(options["allow_origin"])
    gate = _gate(options, environment)
    if gate is None:
        return HttpSettings(hosts=hosts, origins=origins)
    return HttpSettings(gate=gate, hosts=hosts, origins=origins)


def _gate(options: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
    """Return the gate that checks callers. None means a new token."""
    from gramercy.mcp.http import OAuthGate, OAuthSettings, OpenGate, TokenGate

    chosen = [name for name in ("no_auth", "token_file", "oauth_issuer") if options[name]]
    if len(chosen) > 1:
        words = " and ".join(f"--{name.replace('_', '-')}" for name in chosen)
        raise click.UsageError(f"{words} exclude each other: choose one way to let callers in")
    if any(options[name] for name in OAUTH):
        issuer, keys, resource = _oauth_words(options)
        return OAuthGate(OAuthSettings(issuer=issuer, keys=keys, resource=resource))
    if options["no_auth"]:
        return OpenGate()
    if options["token_file"]:
        return _file_gate(Path(options["token_file"]))
    if environment.get("GRAMERCY_TOKEN"):
        return TokenGate.of(environment["GRAMERCY_TOKEN"], source="the token in GRAMERCY_TOKEN")
    return None


def _file_gate(path: Path) -> TokenGate:
    """Use the token in a file. If other users can read the file, make it private."""
    from gramercy.mcp.http import TokenGate

    with path.open(encoding="utf-8") as file:
        # A file without a token was named by mistake. Leave it unchanged.
        gate = TokenGate.of(file.read().strip(), source=f"the token in {path}")
        found = os.fstat(file.fileno())
        # A secret that the system mounts belongs to another user, and may be readable for our group.
        others = 0o077 if found.st_uid == os.getuid() else 0o007
        if stat.S_ISREG(found.st_mode) and found.st_mode & others:
            _make_unreadable(file.fileno(), path, found.st_mode)
        return gate


def _make_unreadable(descriptor: int, path: Path, mode: int) -> None:
    exposed = f"the token file {path} can be read or written by others (mode {stat.S_IMODE(mode):04o})"
    try:
        os.fchmod(descriptor, 0o600)
    except OSError:
        raise ServingError(
            f"{exposed} and belongs to another user: let its owner run chmod 600, or give the token in "
            "GRAMERCY_TOKEN"
        ) from None
    tell(f"gramercy: {exposed}: now only you can. If anybody may have seen it, take a new token")


def _oauth_words(options: Mapping[str, Any]) -> list[str]:
    missing = [f"--{name.replace('_', '-')}" for name in OAUTH if not options[name]]
    if missing:
        raise click.UsageError(f"OAuth also needs {' and '.join(missing)}")
    return [options[name] for name in OAUTH]


def tell_about_foreign(server: Server) -> None:
    """Report which tools of other servers are refused and why, while the server already serves."""
    if server.foreign is not None:
        server.foreign.check(lambda line: click.echo(f"gramercy: {line}", err=True))
