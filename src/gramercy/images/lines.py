"""Lines that a person types for an evaluation that asks for them, on a separate socket pair.

Only the prompt gives an evaluation such a pair, and its other end is sent with the request. The image asks
with one packet and gets its answer in packets; docs/reference/wire.md has the grammar. Evaluated code holds
the other end and may ask at any time: a person sees it wait, and Ctrl-C ends it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from gramercy.errors import ImageError
from gramercy.images.descriptors import told_scarcity

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.connection import Connection

_ASK = struct.Struct(">cI")
_NUMBER = struct.Struct(">I")
# The kinds of requests: a line, or a line without echo.
LINE, SECRET = b"?", b"*"
# The parts of an answer: a part of a line, its last part, or the end of the input.
PART, LAST, END = b"+", b"=", b"."
# Octets of a part: a packet is sent whole or not at all, and the kernel has room for some 200 KB.
LONGEST_PART = 1 << 15
# For a process that asks and does not read the answer.
SEND_SECONDS = 10.0
# Octets of the prompt of a line without echo. Output before it may be longer.
LONGEST_PROMPT = 1_000


class Wanted(NamedTuple):
    """A line that an evaluation waits for. A `secret` one must not be echoed.

    Its `prompt` is shown after the terminal has disabled the echo: a person may be quick. The line is not
    wanted any more once one of `ends`, which are descriptors, can be read.
    """

    secret: bool
    ends: tuple[int, ...]
    prompt: str = ""


if TYPE_CHECKING:
    # Returns a line with its line end. None at the end of the input, or when the line is not wanted any more.
    Typist = Callable[[Wanted], str | None]


class Lines:
    """Our end of the pair. `tag` names the other one until it is sent with a request."""

    def __init__(self, typist: Typist, connection: Connection) -> None:
        self._typist = typist
        self._connection = connection
        try:
            # Packets: an interrupt may come at any moment, and must not leave half an answer behind.
            self._end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise ImageError(told_scarcity(error)) from None
        self._end.settimeout(SEND_SECONDS)
        self.tag = connection.hand_over(theirs)
        self.is_open = True

    def fileno(self) -> int:
        """Return the descriptor on which the image asks."""
        return self._end.fileno()

    def answer(self) -> float:
        """Let the person type the requested line, if there is a request. Return the seconds it took."""
        try:
            # Room for one more octet reveals a longer packet.
            asked = self._end.recv(_ASK.size + LONGEST_PROMPT + 1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0.0
        except OSError:
            asked = b""
        longest = _ASK.size + (LONGEST_PROMPT if asked[:1] == SECRET else 0)
        if not _ASK.size <= len(asked) <= longest or asked[:1] not in (LINE, SECRET):
            self.close()
            return 0.0
        kind, number = _ASK.unpack_from(asked)
        prompt = asked[_ASK.size :].decode("utf-8", "replace")
        began = monotonic()
        ends = (self._connection.fileno(), self.fileno())
        line = self._typist(Wanted(kind == SECRET, ends, prompt))
        # Nothing is sent for a withdrawn request: the image would ignore it.
        if not _can_be_read(ends):
            self._send(number, line)
        return monotonic() - began

    def _send(self, number: int, line: str | None) -> None:
        octets = b"" if line is None else line.encode("utf-8", "replace")
        pieces = [octets[at : at + LONGEST_PART] for at in range(0, len(octets), LONGEST_PART)] or [b""]
        kinds = [PART] * (len(pieces) - 1) + [END if line is None else LAST]
        with contextlib.suppress(OSError):
            for kind, piece in zip(kinds, pieces, strict=True):
                self._end.send(_NUMBER.pack(number) + kind + piece, socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Close the pair: later requests find the end of the input."""
        self.is_open = False
        self._end.close()


def _can_be_read(descriptors: tuple[int, ...]) -> bool:
    poll = select.poll()
    for each in descriptors:
        poll.register(each, select.POLLIN)
    return bool(poll.poll(0))
