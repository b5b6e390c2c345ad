"""Say where another server is, in words that are checked before anything is started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, get_args

from gramercy.mcp.foreign.failures import ForeignError
from gramercy.mcp.foreign.server import ForeignServer
from gramercy.mcp.foreign.session import Era

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gramercy.mcp.foreign.link import Link

SERVER_NAME = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")
LONGEST_NAME = 24


def connect_server(  # noqa: PLR0913 - the ways to reach a server are its arguments
    command: Sequence[str] | None = None,
    url: str | None = None,
    *,
    name: str,
    env: Mapping[str, str] | None = None,
    folder: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    restarts: int = 3,
    era: Era = "auto",
    defer: bool = False,
) -> ForeignServer:
    """Connect to another MCP server: a program of this machine, or an address.

    The program gets `env` and hardly more of our own environment. `timeout` bounds each call, in seconds;
    `restarts` how often the program is started again after it has ended. With `defer` the server is not
    touched before it is needed.
    """
    _check_name(name)
    if era not in get_args(Era):
        raise ForeignError(f"there is no era {era!r:.60}: expected {', '.join(get_args(Era))}")
    link = _link_maker(command, url, dict(env or {}), folder, dict(headers or {}))
    server = ForeignServer(name, link, timeout=timeout, restarts=restarts if command else None, era=era)
    if not defer:
        try:
            server.listing()
        except BaseException:
            server.close()
            raise
    return server


def _check_name(name: str) -> None:
    if not SERVER_NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ForeignError(
            f"{name!r:.60} cannot name a server: expected small letters and digits in words joined by "
            f"single - or _, at most {LONGEST_NAME} characters, such as 'files'"
        )


def _link_maker(
    command: Sequence[str] | None,
    url: str | None,
    env: dict[str, str],
    folder: str | None,
    headers: dict[str, str],
) -> Callable[[], Link]:
    if (command is None) is (url is None):
        raise ForeignError("say how to reach the server: either command=[…] or url=…")
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise ForeignError(f"{url!r:.100} is no address: expected http://… or https://…")
        from gramercy.mcp.foreign.web import WebLink

        return lambda: WebLink(url, headers)
    if isinstance(command, str) or not command or not all(isinstance(word, str) for word in command):
        raise ForeignError('a command is a list of words, such as ["python", "server.py"]')
    from gramercy.mcp.foreign.pipe import PipeLink

    return lambda: PipeLink(command, env, folder)
