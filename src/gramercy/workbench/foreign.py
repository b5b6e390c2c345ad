"""Join other MCP servers to a registry from words of the command line. Nothing is started here by itself."""

from __future__ import annotations

import os
import shlex
import threading
from typing import TYPE_CHECKING

from gramercy.errors import InvalidToolError
from gramercy.mcp.foreign import ForeignError, PinFile, connect_server, register_foreign, registered_name
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gramercy.mcp.foreign import ForeignServer
    from gramercy.tools.registry import Registry

TOKEN = "GRAMERCY_FOREIGN_TOKEN_"  # noqa: S105 - the name of a variable, not a token
# For all servers together, within the quarter of a second that `serve` has to end.
CLOSING_SECONDS = 0.15


def name_server(word: str, *, variables: Iterable[str] = (), timeout: float = 60.0) -> ForeignServer:
    """Make a server from `NAME=COMMAND` or `NAME=URL`. It is not started or contacted before it is needed.

    The program sees only those variables of our environment that are named; a token for an address is taken
    from `GRAMERCY_FOREIGN_TOKEN_NAME`.
    """
    name, equals, place = word.partition("=")
    if not equals or not place.strip():
        raise ForeignError(f"{word!r:.100} names no server: expected NAME=COMMAND or NAME=URL")
    if place.startswith(("http://", "https://")):
        token = os.environ.get(TOKEN + name.upper().replace("-", "_"))
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return connect_server(url=place, name=name, headers=headers, timeout=timeout, defer=True)
    env = {variable: os.environ[variable] for variable in variables if variable in os.environ}
    return connect_server(_words(place), name=name, env=env, timeout=timeout, defer=True)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ForeignError(f"the command {command!r:.100} cannot be read: {error}") from None


class ForeignServers:
    """The other servers of one registry. Their accepted tools are registered before they are started."""

    def __init__(self, servers: Iterable[ForeignServer], pins: str | None, rules: Iterable[str] = ()) -> None:
        self.servers = tuple(servers)
        self._pins = PinFile(pins)
        self._rules = dict(_read_rule(word) for word in rules)
        self._check_names()

    def register(self, registry: Registry) -> None:
        """Register the accepted tools. Their definitions are checked at the first call at the latest."""
        for server in self.servers:
            rules = self._rules_of(server)
            done = register_foreign(registry, server, pins=self._pins, rules=rules, defer=True)
            if done.notices:
                raise ForeignError("; ".join(done.notices))

    def check(self, tell: Callable[[str], None]) -> threading.Thread:
        """Check the tools of the servers on a separate thread, and report differences."""
        thread = threading.Thread(
            target=self._check, args=(tell,), name="gramercy-foreign-check", daemon=True
        )
        thread.start()
        return thread

    def close(self) -> None:
        """End the servers."""
        for server in self.servers:
            server.close(CLOSING_SECONDS / len(self.servers))

    def _check(self, tell: Callable[[str], None]) -> None:
        from gramercy.tools.registry import Registry

        for server in self.servers:
            try:
                lines = register_foreign(Registry(), server, pins=self._pins).lines()
            except Exception as error:  # noqa: BLE001 - told; the calls will fail in the same way
                lines = [str(error)]
            for line in (*lines, *self._idle_rules(server)):
                tell(line)

    def _rules_of(self, server: ForeignServer) -> dict[str, Safety]:
        accepted = self._pins.accepted(server.name)
        names = {registered_name(server.name, tool): tool for tool in accepted}
        return {names[name]: level for name, level in self._rules.items() if name in names}

    def _idle_rules(self, server: ForeignServer) -> list[str]:
        used = {registered_name(server.name, tool) for tool in self._rules_of(server)}
        own = {name for name in self._rules if name.startswith(f"{server.name}__")}
        return [
            f"the rule for {name} has no effect: no such tool was accepted" for name in sorted(own - used)
        ]

    def _check_names(self) -> None:
        names = [server.name for server in self.servers]
        if len(set(names)) < len(names):
            raise ForeignError(f"two servers have the same name: {', '.join(sorted(names))}")
        for name in self._rules:
            if name.partition("__")[0] not in names:
                raise ForeignError(f"the rule for {name!r:.100} fits no server: expected SERVER__TOOL=LEVEL")


def _read_rule(word: str) -> tuple[str, Safety]:
    name, equals, level = word.partition("=")
    if not equals:
        raise ForeignError(f"{word!r:.100} is no rule: expected SERVER__TOOL=LEVEL, such as calc__add=safe")
    try:
        return name, Safety.parse(level)
    except InvalidToolError as error:
        raise ForeignError(f"the rule {word!r:.100} cannot be used: {error}") from None
