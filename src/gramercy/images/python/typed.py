"""The standard input of an evaluation for which a person types: each line is requested when code reads it.

The prompt sends an end of a socket for that with its request. An answer is one packet or several, each with
the number of the question. An answer to a question that an interrupt has ended is skipped. This module knows
no requests.
"""

import _socket
import _thread
import functools
import io
import os
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

from .anatomy import raw_space
from .streams import Console, rings

_getpid, _ident = os.getpid, _thread.get_ident
_LINE, _SECRET, _MORE = b"?", b"*", b"+"
# Of an answer: its number, its kind, and at most this much of a line.
_NUMBER, _HEAD, _PACKET = 4, 5, 1 << 16
_MOST = 1 << 32
# Octets of a prompt that is sent with a question.
_LONGEST_PROMPT = 1_000
PASSWORDS = "getpass"
# The message of `input`, so that the same help is given.
_NO_LINE = "EOF when reading a line"


class TypedBytes(io.RawIOBase):
    """Lines that a person types, as bytes, until the evaluation is over. Then there are none."""

    name = "<stdin>"
    mode = "rb"

    def __init__(self, fd: int) -> None:
        self._plug: _socket.socket | None = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, fd)
        self._plug.settimeout(None)
        self._owner = _getpid()
        self._number = 0
        self._rest = b""
        self._lock = _thread.allocate_lock()

    def readable(self) -> bool:
        """Return True: it is an input stream."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of the null device: child processes cannot ask."""
        return 0

    def readinto(self, buffer: Any) -> int:
        """Read the rest of a line, or the next one. Empty at the end."""
        rest = self._rest or self.ask()
        size = min(len(buffer), len(rest))
        buffer[:size], self._rest = rest[:size], rest[size:]
        return size

    def ask(self, *, secret: bool = False, prompt: bytes = b"") -> bytes:
        """Return the next line with its end. Empty at the end of the input, or where none can be requested.

        The `prompt` of a secret is sent with the question: it is shown when the echo is disabled.
        """
        # A job runs beside the evaluation that the person has entered.
        if _getpid() != self._owner or _ident() in rings:
            return b""
        with self._lock:
            plug = self._plug
            if plug is None:
                return b""
            try:
                return self._answer(plug, _SECRET if secret else _LINE, prompt)
            except OSError:
                return b""

    def _answer(self, plug: _socket.socket, kind: bytes, prompt: bytes) -> bytes:
        self._number = (self._number + 1) % _MOST
        number = self._number.to_bytes(_NUMBER, "big")
        plug.send(kind + number + prompt, _socket.MSG_NOSIGNAL)
        parts = []
        while packet := plug.recv(_PACKET):
            if packet[:_NUMBER] == number:
                parts.append(packet[_HEAD:])
                if packet[_NUMBER:_HEAD] != _MORE:
                    break
        return b"".join(parts)

    def hang_up(self) -> None:
        """Request no more lines."""
        plug, self._plug = self._plug, None
        if plug is None:
            return
        if _getpid() == self._owner:
            # A thread that waits for a line continues. A copy only closes its descriptor.
            with suppress(OSError):
                plug.shutdown(_socket.SHUT_RDWR)
        plug.close()


def hide_passwords(module: ModuleType, console: Console) -> None:
    """Replace `getpass.getpass`, which needs a terminal, by a request for a line without echo."""
    plain: Any = raw_space(module).get("getpass")
    if plain is None:
        return

    @functools.wraps(plain)
    def getpass(prompt: str = "Password: ", stream: Any = None, **options: object) -> object:
        if sys.stdin is not console.stdin:
            return plain(prompt, stream, **options)
        typed, shown = console.typed, str(prompt).encode("utf-8", "replace")
        if typed is None or stream is not None or len(shown) > _LONGEST_PROMPT:
            print(prompt, end="", file=stream or sys.stderr, flush=True)
            shown = b""
        line = typed.ask(secret=True, prompt=shown) if typed is not None else b""
        if not line:
            raise EOFError(_NO_LINE)
        return line.decode("utf-8", "surrogateescape").removesuffix("\n")

    raw_space(module)["getpass"] = getpass
