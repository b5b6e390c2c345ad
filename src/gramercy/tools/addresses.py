"""Keep what is secret in an address out of the log of httpx, which writes every address whole."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

# As many hosts as one program talks to; a bound for one that never stops.
MOST_HOSTS = 1_000
_hosts: set[str] = set()


class _WithoutQuery(logging.Filter):
    """Cuts the query, name and password off the addresses of our hosts; others are not ours to change."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, with shorter addresses."""
        if isinstance(record.args, tuple):
            record.args = tuple(map(_shown, record.args))
        return True


def _shown(value: Any) -> Any:
    if type(value).__name__ != "URL" or not {value.host, value.raw_host.decode("ascii")} & _hosts:
        return value
    if not value.query and not value.userinfo:
        return value
    return f"{value.copy_with(query=None, userinfo=b'')}{'?…' if value.query else ''}"


_FILTER = _WithoutQuery()


def hide_query_of(address: str) -> None:
    """Have the log of httpx write addresses of this host without what may be a key in them."""
    try:
        host = urlsplit(address).hostname
    except ValueError:
        # Nothing is sent to what is no address.
        return
    if host is None:
        return
    if len(_hosts) >= MOST_HOSTS:
        _hosts.clear()
    _hosts.add(host)
    # Adding it twice does nothing.
    logging.getLogger("httpx").addFilter(_FILTER)
