"""Connect to the processes of an image. They cannot connect themselves: each gets one end of a pair.

The end of the socket pair is sent with the request for a copy. The copy says hello on it, with its pidfd.
Evaluated code holds such ends too and may send anything on them, so a hello is bounded, and its pidfd must be
that of the process which the kernel names as the sender. No other process is ever signalled.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from io import FileIO
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from gramercy.errors import ImageError, ImageGoneError, ImageProtocolError
from gramercy.images.descriptors import is_scarce, told_scarcity
from gramercy.images.wire import HEADER, LARGEST_HELLO

# A call needs two, one for its checkpoint and one for its moment. The others are copies that have not
# connected yet.
MOST_AWAITED = 16
# Linux 6.5: the kernel attaches a pidfd of the sender to a message, and the image need not send one.
SO_PASSPIDFD, SCM_PIDFD = 76, 4
_CREDENTIALS = struct.Struct("3i")
_ROOM = socket.CMSG_SPACE(4) + socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4)
# The names are unique in this process, so that processes of several families cannot be confused.
_names = count(1)


class Arrival(NamedTuple):
    """A process that has said hello: its pidfd, its pid here and its pid inside, according to the kernel."""

    channel: socket.socket
    frame: bytes
    handle: int
    pid: int
    inner_pid: int


class Ends:
    """Our ends of the pairs on whose other end a copy will say hello, by the tag of the copy."""

    def __init__(self) -> None:
        self._awaited: dict[str, socket.socket] = {}
        # The other ends, and files, until they are sent with the request that names their tag.
        self.fresh: dict[str, socket.socket | FileIO] = {}
        # Whether few descriptors were left when the latest pair was made.
        self.is_scarce = False

    def new(self) -> str:
        """Make a pair and return the tag of the future copy."""
        for oldest in list(self._awaited)[: 1 - MOST_AWAITED]:
            self.forget(oldest)
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise ImageError(told_scarcity(error)) from None
        self.is_scarce = is_scarce(theirs.fileno())
        tag = f"c{next(_names)}"
        self._awaited[tag], self.fresh[tag] = ours, theirs
        # Before the other end is sent: earlier messages would carry no sender.
        _name_senders(ours, wanted=True)
        return tag

    def lend(self, descriptor: int) -> str:
        """Return the tag under which a file is sent with a request."""
        tag = f"f{next(_names)}"
        self.fresh[tag] = FileIO(os.dup(descriptor))
        return tag

    def hand_over(self, end: socket.socket) -> str:
        """Return the tag under which an end is sent with a request. No copy says hello on it."""
        tag = f"i{next(_names)}"
        self.fresh[tag] = end
        return tag

    def given(self, fields: dict[str, Any]) -> dict[str, socket.socket | FileIO]:
        """Return the descriptors to send with a request: the ends of its copies, a file, an input."""
        named = (fields.get(name) for name in ("tag", "then_fork", "keep_moment", "input"))
        return {tag: self.fresh[tag] for tag in named if tag in self.fresh}

    def forget(self, tag: str) -> None:
        """Stop waiting for a copy. If it still connects, it finds its end closed, and ends."""
        for end in (self._awaited.pop(tag, None), self.fresh.pop(tag, None)):
            if end is not None:
                end.close()

    def __contains__(self, tag: str) -> bool:
        """Return whether a copy may still connect."""
        return tag in self._awaited

    def wait(self, tag: str, seconds: float) -> bool:
        """Wait, on any thread, until a copy has sent something or cannot connect any more."""
        end = self._awaited.get(tag)
        if end is None:
            return True
        poll = select.poll()
        try:
            poll.register(end, select.POLLIN)
        except (OSError, ValueError):  # closed meanwhile
            return True
        return bool(poll.poll(seconds * 1000))

    def take(self, tag: str) -> Arrival | None:
        """Return the copy that has said hello, None while it may still connect. Raise where it will not."""
        end = self._awaited.get(tag)
        if end is None:
            raise ImageGoneError("a process of the image did not come")
        try:
            arrival = read_hello(end)
        except BlockingIOError:
            return None
        except ImageError:
            self.forget(tag)
            raise
        del self._awaited[tag]
        return arrival

    def close(self) -> None:
        """Stop waiting for all copies."""
        for tag in [*self._awaited, *self.fresh]:
            self.forget(tag)


PROC = "/proc/self"
NO_PROC = (
    "/proc is not mounted here, by which the processes of an image are known: "
    "mount it (mount -t proc proc /proc)"
)


def read_hello(end: socket.socket) -> Arrival:
    """Return the process that has said hello on an end, without blocking. The end stays open."""
    flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    try:
        said, found, told, _ = end.recvmsg(HEADER + LARGEST_HELLO, _ROOM, flags)
    except BlockingIOError:
        raise
    except OSError as error:
        raise ImageGoneError(f"a process of the image ended before it said hello ({error})") from None
    sent, attached, sender = _sorted_out(found)
    try:
        if not said:
            raise ImageGoneError("a process of the image ended before it said hello")
        if told & socket.MSG_CTRUNC or len(sent) > 1 or int.from_bytes(said[:HEADER]) != len(said) - HEADER:
            raise ImageProtocolError("a process of the image said something else than hello")
        handle = (attached or sent or [-1])[0]
        pid, inner_pid = _pids(handle)
        if pid <= 0 and not os.path.exists(PROC):  # noqa: PTH110 - a text
            raise ImageProtocolError(NO_PROC)
        if pid <= 0 or pid != sender:
            raise ImageProtocolError("a process of the image said hello with the handle of another one")
    except ImageError:
        _close(*sent, *attached)
        raise
    _close(*(each for each in (*sent, *attached) if each != handle))
    _name_senders(end, wanted=False)
    return Arrival(end, said[HEADER:], handle, pid, inner_pid)


def _name_senders(end: socket.socket, *, wanted: bool) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, wanted)
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, SO_PASSPIDFD, wanted)


def _sorted_out(found: list[tuple[int, int, bytes]]) -> tuple[list[int], list[int], int]:
    """Return the descriptors from the sender, those that the kernel attached, and the sender's pid."""
    sent: list[int] = []
    attached: list[int] = []
    sender = 0
    for level, kind, data in found:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_CREDENTIALS:
            sender = _CREDENTIALS.unpack(data)[0]
        elif kind in (socket.SCM_RIGHTS, SCM_PIDFD):
            numbers = struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
            # For a sender that has ended the kernel attaches an error instead, a negative number.
            (sent if kind == socket.SCM_RIGHTS else attached).extend(each for each in numbers if each >= 0)
    return sent, attached, sender


def _pids(handle: int) -> tuple[int, int]:
    """Return the pid behind a pidfd here and in its own namespace. Zeros for any other descriptor."""
    try:
        told = Path(f"/proc/self/fdinfo/{handle}").read_bytes()
    except OSError:
        return 0, 0
    words = {name: value.split() for name, _, value in (line.partition(b":") for line in told.split(b"\n"))}
    if not words.get(b"Pid") or not words.get(b"NSpid"):
        return 0, 0
    return int(words[b"Pid"][0]), int(words[b"NSpid"][-1])


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
