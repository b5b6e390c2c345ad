"""Arrive: read the command line, connect, say hello. Light on purpose, since the parent waits for it.

`python -I -S -X utf8 …/images/python/__main__.py SOCKET TOKEN [OPTION…]`: see `Options`.
"""

import os
import sys
from typing import NamedTuple

from .frames import Connection

PROTOCOL = 1
_USAGE = (
    "Expected: SOCKET TOKEN [--path DIRECTORY]... [--mirror DESCRIPTOR] [--site] [--first DIRECTORY]... "
    "[--outside DIRECTORY]... [--init FILE]"
)
_LISTS = ("--path", "--first", "--outside", "--mirror", "--init")
CAPABILITIES = ("fork", "preview", "compile", "xref", "macroexpand", "inspect", "await", "undo_definitions")


# Not dataclasses: they load `inspect`, 7 ms before the hello.
class Address(NamedTuple):
    """Where the parent listens, and how it knows its children."""

    path: str
    token: str


class Options(NamedTuple):
    """The command line.

    `--path` adds a directory to the import path, `--first` puts one at its beginning; with `--site` the live
    process has the packages of its environment; `--outside` names a directory that the environment leads to
    and that is not granted; `--init` is a file to run first.
    """

    address: Address
    paths: tuple[str, ...]
    mirror: str | None
    site: bool = False
    first: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    init: str | None = None


def read_options(arguments: list[str]) -> Options:
    """Read the command line, or end the program with a message on the log."""
    words: list[str] = []
    site = False
    told: dict[str, list[str]] = {name: [] for name in _LISTS}
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in told:
            told[name].append(value if equals else next(rest, ""))
        elif word == "--site":
            site = True
        elif word.startswith("--"):
            sys.exit(f"Unknown option {word}. {_USAGE}")
        else:
            words.append(word)
    # A mirror that makes no sense is done without; a place that is not there would be missed later.
    empty = any("" in values for name, values in told.items() if name != "--mirror")
    if len(words) != 2 or empty:  # noqa: PLR2004 - socket and token
        sys.exit(_USAGE)
    address = Address(os.path.abspath(words[0]), words[1])  # noqa: PTH100 - pathlib costs 10 ms
    paths, first, outside = (tuple(told[name]) for name in ("--path", "--first", "--outside"))
    mirror, init = (told[name][-1] if told[name] else None for name in ("--mirror", "--init"))
    return Options(address, paths, mirror, site, first, outside, init)


def greet(address: Address, role: str, tag: str | None) -> Connection:
    """Connect to the parent and say who this is."""
    connection = Connection(address.path)
    connection.send(
        {
            "hello": PROTOCOL,
            "role": role,
            "language": "python",
            "version": "{}.{}.{}".format(*sys.version_info),
            "pid": os.getpid(),
            "prefix": sys.prefix,
            "capabilities": list(CAPABILITIES),
            "token": address.token,
            "tag": tag,
        }
    )
    return connection
