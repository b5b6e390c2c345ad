"""How the HTTP transport is set up, and what it refuses to be set up as."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace

from gramercy.errors import ServingError
from gramercy.mcp.http.auth import Gate, TokenGate

MEGABYTE = 1 << 20
# Requests per second: more than any client needs, less than what keeps a core busy.
PUBLIC_RATE = 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Which callers are admitted, from where, and how much they may ask for; everything is bounded.

    `hosts` and `origins` are allowed besides the names of this machine (localhost, 127.0.0.1, [::1]);
    a host without a port stands for all its ports. `rate` is in requests per second and principal: 0 is no
    limit, None is no limit on the loopback interface and PUBLIC_RATE elsewhere.
    """

    gate: Gate = field(default_factory=TokenGate.generate)
    path: str = "/mcp"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    # The largest frame on stdio too: an image in Base64 as an argument fits.
    body_limit: int = 10 * MEGABYTE
    rate: float | None = None
    # A client that starts lists everything at once.
    burst: int = 200
    # Requests at a time of one principal and of all. A stream counts as long as it is open; a waiting
    # request takes some kilobytes.
    concurrency: int = 256
    total_concurrency: int = 1024
    # Twice the requests, since kept-alive connections are idle most of the time.
    connections: int = 2048
    # About 5 MB when all are idle.
    sessions: int = 10_000
    # A model that waits for its person; a session that was ended too early only costs a new handshake.
    session_seconds: float = 1800.0
    # How long a stream is kept for a client that lost its connection: networks come back within that.
    resume_seconds: float = 60.0
    # For a request to arrive whole, and for a reader that stalls to read on (slowloris in both directions).
    request_seconds: float = 30.0
    write_seconds: float = 30.0
    # A person who ends the server waits for it.
    shutdown_seconds: float = 2.0
    # A call that says nothing for this long is answered as a stream, so that proxies see it alive.
    commit_seconds: float = 2.0
    # Proxies cut connections that are silent for 30 or 60 seconds.
    keepalive_seconds: float = 15.0
    # What may wait for a slow reader of one stream; what comes on top is dropped, answers never are.
    stream_limit: int = MEGABYTE
    stream_events: int = 512

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or len(self.path) < 2:  # noqa: PLR2004 - a slash and a letter
            raise ServingError(f"the endpoint's path is {self.path!r:.60}: expected something like /mcp")
        for name in ("body_limit", "burst", "concurrency", "total_concurrency", "connections", "sessions"):
            if getattr(self, name) < 1:
                raise ServingError(f"{name} is {getattr(self, name)}: expected at least 1")

    def for_address(self, host: str) -> HttpSettings:
        """Return the settings for an address, with what is not decided decided; refuse as check_address."""
        self.check_address(host)
        rate = self.rate if self.rate is not None else 0.0 if is_loopback(host) else PUBLIC_RATE
        return replace(self, rate=rate)

    def check_address(self, host: str) -> None:
        """Refuse to listen beyond this machine without a token and without knowing under which names."""
        if is_loopback(host):
            return
        if self.gate.is_open:
            raise ServingError(
                f"refused to listen on {host} for everybody: without a token anybody on the network could "
                "run the tools. Set a token or OAuth, or listen on 127.0.0.1"
            )
        if not self.hosts:
            raise ServingError(
                f"refused to listen on {host} without an allow-list of hosts: name the hosts (as in "
                "tools.example.com) under which callers reach this server, or listen on 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Tell whether an address is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
