"""Settings of the HTTP transport, their validation, and the counters that enforce its limits."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gramercy.errors import HttpError, ServingError
from gramercy.mcp.http.auth import CallerGate, TokenGate
from gramercy.mcp.jsonrpc import Code

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTE = 1 << 20
# Callers whose rate is counted; an evicted caller starts again with a full bucket. About 500 kB.
REMEMBERED_CALLERS = 4096
# Requests per second: more than any client needs, less than what keeps a core busy.
PUBLIC_RATE = 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Which callers are admitted, from where, and how much they may ask for; everything is bounded.

    `hosts` and `origins` are allowed besides the names of this machine (localhost, 127.0.0.1, [::1]);
    a host without a port stands for all its ports. `rate` is in requests per second and principal: 0 is no
    limit, None is no limit on the loopback interface and PUBLIC_RATE elsewhere.
    """

    gate: CallerGate = field(default_factory=TokenGate.generate)
    path: str = "/mcp"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    # The largest frame on stdio too: an image in Base64 as an argument fits.
    body_limit: int = 10 * MEGABYTE
    rate: float | None = None
    # A client that starts lists everything at once.
    burst: int = 200
    # Requests at a time of one principal and of all. A stream counts while it is open; a waiting request
    # takes some kilobytes.
    concurrency: int = 256
    total_concurrency: int = 1024
    # Twice the requests, since kept-alive connections are idle most of the time; fewer if the limit on
    # descriptors requires it.
    connections: int = 2048
    # About 5 MB when all are idle.
    sessions: int = 10_000
    # For a model that waits for its person; a session that was ended too early only costs a new handshake.
    session_seconds: float = 1800.0
    # How long a stream is kept for a client that lost its connection: networks recover within that.
    resume_seconds: float = 60.0
    # For a request to arrive completely, and for a stalled reader to continue (slowloris in both directions).
    request_seconds: float = 30.0
    # A head is some hundred bytes, sent at once.
    head_seconds: float = 10.0
    write_seconds: float = 30.0
    # A person who ends the server waits for it.
    shutdown_seconds: float = 2.0
    # A call that is silent for this long is answered as a stream, so that proxies see it alive.
    commit_seconds: float = 2.0
    # Proxies cut connections that are silent for 30 or 60 seconds.
    keepalive_seconds: float = 15.0
    # What may wait for a slow reader of one stream; further messages are dropped, answers never are.
    stream_limit: int = MEGABYTE
    stream_events: int = 512

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or len(self.path) < 2:  # noqa: PLR2004 - a slash and a letter
            raise ServingError(f"the endpoint's path is {self.path!r:.60}: expected something like /mcp")
        for name in ("body_limit", "burst", "concurrency", "total_concurrency", "connections", "sessions"):
            if getattr(self, name) < 1:
                raise ServingError(f"{name} is {getattr(self, name)}: expected at least 1")

    def for_address(self, host: str) -> HttpSettings:
        """Return the settings for an address, with defaults filled in; refuse as check_address does."""
        self.check_address(host)
        rate = self.rate if self.rate is not None else 0.0 if is_loopback(host) else PUBLIC_RATE
        return replace(self, rate=rate)

    def check_address(self, host: str) -> None:
        """Refuse to listen beyond this machine without a token or without configured host names."""
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
    """Tell whether an address can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Rate:
    """A bucket of requests per principal, refilled at a steady rate."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, principal: str) -> None:
        """Count one request; raise HttpError (429) with the time to wait when there were too many."""
        if self._per_second <= 0:
            return
        now = self._clock()
        left, since = self._buckets.get(principal, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        if left < 1.0:
            wait = max(1, round((1.0 - left) / self._per_second + 0.5))
            raise HttpError(
                429,
                f"more than {self._per_second:g} requests per second: wait {wait} s and go slower",
                code=Code.BUSY,
                headers=((b"retry-after", str(wait).encode()),),
            )
        self._buckets[principal] = (left - 1.0, now)
        self._buckets.move_to_end(principal)
        if len(self._buckets) > REMEMBERED_CALLERS:
            self._buckets.popitem(last=False)


class Load:
    """The number of pending requests, of one principal and of all."""

    def __init__(self, each: int, total: int) -> None:
        self._each = each
        self._total = total
        self._running: dict[str, int] = {}
        self.count = 0

    def enter(self, principal: str) -> None:
        """Count a request that begins; raise HttpError when too many are running (429, 503 for all)."""
        mine = self._running.get(principal, 0)
        if mine >= self._each:
            raise _refusal(429, f"{mine} requests of yours are running")
        if self.count >= self._total:
            raise _refusal(503, f"the server is answering {self.count} requests")
        self._running[principal] = mine + 1
        self.count += 1

    def leave(self, principal: str) -> None:
        """Count a request that ended."""
        self.count -= 1
        mine = self._running[principal] - 1
        if mine:
            self._running[principal] = mine
        else:
            del self._running[principal]


def _refusal(status: int, reason: str) -> HttpError:
    return HttpError(
        status,
        f"{reason}, which is the limit: wait for one to end, or end a stream",
        code=Code.BUSY,
        headers=((b"retry-after", b"1"),),
    )
