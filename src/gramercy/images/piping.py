"""Copy bytes between pairs of sockets, as far as each side takes them, without ever waiting for one."""

from __future__ import annotations

import contextlib
import selectors
import socket
from dataclasses import dataclass, field

CHUNK = 256 * 1024
# The flag of the socket itself is shared with the process that made it, which can change it at any time.
AT_ONCE = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


@dataclass(eq=False, slots=True)
class End:
    """One socket of a pair, with what is still to be written to it."""

    channel: socket.socket
    waiting: memoryview = field(default_factory=lambda: memoryview(b""))
    has_ended: bool = False
    is_shut: bool = False
    deadline: float | None = None
    other: End = field(init=False, repr=False)


class Pipes:
    """Pairs of sockets that are served by the loop that owns the selector."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._ends: set[End] = set()
        self._connecting: set[End] = set()

    def __len__(self) -> int:
        """Return how many pairs are joined."""
        return len(self._ends) // 2

    @property
    def is_connecting(self) -> bool:
        """Whether a connection has not been answered yet."""
        return bool(self._connecting)

    def join(self, near: socket.socket, far: socket.socket, deadline: float) -> None:
        """Copy between two sockets; the far one may be connecting still, but not beyond the deadline."""
        left, right = End(near), End(far, deadline=deadline)
        left.other, right.other = right, left
        self._ends |= {left, right}
        self._connecting.add(right)
        self._watch(right)

    def serve(self, end: End, events: int) -> None:
        """Do what a socket is ready for."""
        if end not in self._ends:
            return  # closed in the same turn
        try:
            if end.deadline is not None:
                self._connected(end)
            if events & selectors.EVENT_WRITE:
                _write(end)
            if events & selectors.EVENT_READ:
                _read(end)
        except OSError:
            self._close(end)
            return
        if end.is_shut and end.other.is_shut:
            self._close(end)
            return
        self._watch(end)
        self._watch(end.other)

    def _connected(self, end: End) -> None:
        code = end.channel.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, "nothing listens there")
        end.channel.getpeername()
        end.deadline = None
        self._connecting.discard(end)

    def give_up_the_late(self, now: float) -> None:
        """Close what has not been connected in time."""
        for end in [end for end in self._connecting if end.deadline is not None and end.deadline < now]:
            self._close(end)

    def close(self) -> None:
        """Close every pair."""
        for end in list(self._ends):
            self._close(end)

    def _close(self, end: End) -> None:
        for each in (end, end.other):
            if each in self._ends:
                self._ends.discard(each)
                self._connecting.discard(each)
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(each.channel)
                each.channel.close()

    def _watch(self, end: End) -> None:
        """Look out for what the socket shall do next: no more is read than the other side has taken."""
        events = selectors.EVENT_WRITE if end.waiting or end.deadline is not None else 0
        if not (end.has_ended or end.other.waiting or end.deadline or end.other.deadline):
            events |= selectors.EVENT_READ
        known = self._selector.get_map().get(end.channel)
        if known is None and events:
            self._selector.register(end.channel, events, end)
        elif known is not None and not events:
            self._selector.unregister(end.channel)
        elif known is not None and known.events != events:
            self._selector.modify(end.channel, events, end)


def _read(end: End) -> None:
    try:
        found = end.channel.recv(CHUNK, AT_ONCE)
    except BlockingIOError:
        return
    if found:
        end.other.waiting = memoryview(found)
    else:
        end.has_ended = True
    _write(end.other)


def _write(end: End) -> None:
    try:
        while end.waiting:
            end.waiting = end.waiting[end.channel.send(end.waiting, AT_ONCE) :]
    except BlockingIOError:
        return
    if end.other.has_ended and not end.is_shut:
        end.is_shut = True
        end.channel.shutdown(socket.SHUT_WR)
