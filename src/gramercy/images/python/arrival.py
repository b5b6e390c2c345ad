"""Arrive: read the command line, connect, say hello. Light on purpose, since the parent waits for it.

`python -I -S -X utf8 …/images/python/__main__.py SOCKET TOKEN [--path DIRECTORY]… [--mirror DESCRIPTOR]`
"""

import os
import sys
from typing import NamedTuple

from .frames import Connection

PROTOCOL = 1
_USAGE = "Expected: SOCKET TOKEN [--path DIRECTORY]... [--mirror DESCRIPTOR]"
CAPABILITIES = ("fork", "preview", "compile", "xref", "macroexpand", "inspect", "await")


# Not dataclasses: they load `inspect`, 7 ms before the hello.
class Address(NamedTuple):
    """Where the parent listens, and how it knows its children."""

    path: str
    token: str


class Options(NamedTuple):
    """The command line."""

    address: Address
    paths: tuple[str, ...]
    mirror: str | None


def read_options(arguments: list[str]) -> Options:
    """Read the command line, or end the program with a message on the log."""
    words, paths = [], []
    mirror = None
    rest = iter(arguments)
    for word in rest:
        if word == "--path":
            paths.append(next(rest, ""))
        elif word.startswith("--path="):
            paths.append(word.partition("=")[2])
        elif word == "--mirror":
            mirror = next(rest, "")
        elif word.startswith("--"):
            sys.exit(f"Unknown option {word}. {_USAGE}")
        else:
            words.append(word)
    if len(words) != 2 or "" in paths:  # noqa: PLR2004 - the socket and the token
        sys.exit(_USAGE)
    address = Address(os.path.abspath(words[0]), words[1])  # noqa: PTH100 - pathlib costs 10 ms
    return Options(address, tuple(paths), mirror)


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
            "capabilities": list(CAPABILITIES),
            "token": address.token,
            "tag": tag,
        }
    )
    return connection
