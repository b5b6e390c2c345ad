"""The part of `gramercy serve` that is about HTTP: where to listen, and whom to let in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gramercy.mcp.http import HttpSettings

HIGHEST_PORT = 65_535
OAUTH = ("oauth_issuer", "oauth_keys", "oauth_resource")


def read_address(_context: click.Context, _option: click.Parameter, value: str | None) -> Any:
    """Read `HOST:PORT`, `:PORT` or `PORT`; without a host only this machine can reach it."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= HIGHEST_PORT):
        raise click.BadParameter(f"{value!r:.80} is not HOST:PORT: expected something like 127.0.0.1:8000")
    return host.strip("[]") or "127.0.0.1", int(port)


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


HTTP_OPTIONS = ("no_auth", "token_file", "allow_host", "allow_origin", *OAUTH)


def take_http_options(options: dict[str, Any]) -> dict[str, Any]:
    """Take what concerns HTTP out of the options of a command."""
    return {name: options.pop(name) for name in HTTP_OPTIONS}


def refuse_http_options(options: Mapping[str, Any]) -> None:
    """Refuse what would have no effect on standard input and output."""
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
    """Return who lets callers in; None means a new token."""
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
        token = Path(options["token_file"]).read_text("utf-8").strip()
        return TokenGate.of(token, source=f"the token in {options['token_file']}")
    if environment.get("GRAMERCY_TOKEN"):
        return TokenGate.of(environment["GRAMERCY_TOKEN"], source="the token in GRAMERCY_TOKEN")
    return None


def _oauth_words(options: Mapping[str, Any]) -> list[str]:
    missing = [f"--{name.replace('_', '-')}" for name in OAUTH if not options[name]]
    if missing:
        raise click.UsageError(f"OAuth also needs {' and '.join(missing)}")
    return [options[name] for name in OAUTH]
