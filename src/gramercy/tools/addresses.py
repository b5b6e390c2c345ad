"""Keep secrets in addresses out of the log of httpx, which writes every address whole."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

# As many hosts as one program talks to; a bound for a program that never stops.
MOST_HOSTS = 1_000
_hosts: set[str] = set()


class _WithoutQuery(logging.Filter):
    """Cuts query, name and password off the addresses of our hosts; other addresses stay unchanged."""

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
    """Have httpx log addresses of this host without the parts that may hold a key."""
    try:
        host = urlsplit(address).hostname
    except ValueError:
        # Nothing is sent to an invalid address.
        return
    if host is None:
        return
    if len(_hosts) >= MOST_HOSTS:
        _hosts.clear()
    _hosts.add(host)
    # Adding it twice does nothing.
    logging.getLogger("httpx").addFilter(_FILTER)
