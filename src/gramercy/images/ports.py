"""Published ports: programs of this machine reach ports of an image whose network has no other way in.

This process listens on the machine's loopback. For each connection a process inside the sandbox (`dialer`)
connects to the image's port and passes the socket over (SCM_RIGHTS), and one thread here copies the bytes.
The dialer shares its sandbox with evaluated code, so every descriptor is checked and no operation on one
blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import threading
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from gramercy.images.confine import dialer
from gramercy.images.sandbox import inner_command

if TYPE_CHECKING:
    from gramercy.images.environment import PublishedPort

DIALER = Path(dialer.__file__)
LOOPBACK = "127.0.0.1"
# Each takes two descriptors of the 1024 that a process commonly has. More connections wait in the backlog.
MOST_CONNECTIONS = 128
# A connect on the loopback is answered at once, unless the dialer or the server hangs.
DIAL_SECONDS = 5.0
# The pause of accepting after EMFILE and the like.
PAUSE_SECONDS = 0.5
# The thread never blocks in anything but select, which can be woken.
STOP_SECONDS = 2.0


class Relay:
    """The published ports of one image, from before its start until after its end.

    `notes` list the ports that could not be bound.
    """

    def __init__(self, ports: tuple[PublishedPort, ...], heir_of: Relay | None = None) -> None:
        self.notes: list[str] = []
        self._listeners: dict[socket.socket, PublishedPort] = {}
        self._line, self._inner_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._waker, self._wake = socket.socketpair()
        for each in (self._line, self._waker):
            each.settimeout(0)
        for port in ports:
            self._listen(port, heir_of)
        self._selector = selectors.DefaultSelector()
        self._pipes = Pipes(self._selector)
        self._numbers = count(1)
        self._dialed: dict[int, tuple[socket.socket, float]] = {}
        self._is_accepting = False
        self._paused_until = 0.0
        self._thread: threading.Thread | None = None

    def _listen(self, port: PublishedPort, heir_of: Relay | None) -> None:
        inherited = heir_of.listener(port) if heir_of is not None else None
        if inherited is not None:
            self._listeners[inherited] = port
            return
        try:
            listener = socket.create_server((LOOPBACK, port.outer), backlog=MOST_CONNECTIONS)
        except OSError as error:
            is_own = any(known.outer == port.outer for known in self._listeners.values())
            self.notes.append(_why_not(port, error, by="this image" if is_own else "another program"))
            return
        listener.settimeout(0)
        self._listeners[listener] = port

    def listener(self, port: PublishedPort) -> socket.socket | None:
        """Return a duplicate of the socket that listens for a port, if there is one."""
        return next(
            (each.dup() for each, known in self._listeners.items() if known.outer == port.outer), None
        )

    @property
    def descriptor(self) -> int:
        """The end of the socket pair to the dialer. The first process of the image inherits it."""
        return self._inner_line.fileno()

    def command(self, command: list[str]) -> list[str]:
        """Return the command that forks the dialer and then execs another one."""
        return [*inner_command(DIALER), str(self.descriptor), *command]

    def start(self) -> None:
        """Start to relay, once the image has inherited its end of the socket pair."""
        self._inner_line.close()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._selector.register(self._line, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="gramercy-ports", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the ports and every connection through them."""
        self._wake.close()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
        else:
            self._selector.close()
        for each in (*self._listeners, self._line, self._inner_line, self._waker):
            each.close()

    def _run(self) -> None:
        try:
            while True:
                self._accept_if_there_is_room()
                for key, events in self._selector.select(self._patience()):
                    if key.fileobj is self._waker:
                        return
                    self._serve(key, events)
                self._give_up_the_late()
        finally:
            for near, _ in self._dialed.values():
                near.close()
            self._pipes.close()
            self._selector.close()

    def _serve(self, key: selectors.SelectorKey, events: int) -> None:
        if key.fileobj is self._line:
            self._take_answer()
        elif isinstance(key.data, int):
            self._accept(key.fileobj, key.data)  # type: ignore[arg-type]
        else:
            self._pipes.serve(key.data, events)

    def _patience(self) -> float | None:
        is_waiting = self._dialed or self._pipes.is_connecting or self._paused_until > monotonic()
        return PAUSE_SECONDS if is_waiting else None

    def _accept_if_there_is_room(self) -> None:
        has_room = len(self._dialed) + len(self._pipes) < MOST_CONNECTIONS
        accepts = has_room and monotonic() >= self._paused_until
        if accepts is self._is_accepting:
            return
        self._is_accepting = accepts
        for listener, port in self._listeners.items():
            if accepts:
                self._selector.register(listener, selectors.EVENT_READ, port.inner)
            else:
                self._selector.unregister(listener)

    def _accept(self, listener: socket.socket, inner: int) -> None:
        try:
            near, _ = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                self._paused_until = monotonic() + PAUSE_SECONDS
            return
        number = next(self._numbers) & 0xFFFFFFFF
        try:
            self._line.send(dialer.REQUEST.pack(number, inner))
        except OSError:
            # EPIPE or EAGAIN: evaluated code can kill or stop the dialer.
            near.close()
            return
        self._dialed[number] = (near, monotonic() + DIAL_SECONDS)

    def _take_answer(self) -> None:
        flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        try:
            said, descriptors, _, _ = socket.recv_fds(self._line, dialer.ANSWER.size, 1, flags)
        except BlockingIOError:
            return
        except OSError:
            said, descriptors = b"", []
        if not said and not descriptors:
            self._selector.unregister(self._line)  # the dialer has ended
            self._give_up(list(self._dialed))
            return
        far = _checked(descriptors)
        number = dialer.ANSWER.unpack(said)[0] if len(said) == dialer.ANSWER.size else 0
        near, _ = self._dialed.pop(number, (None, 0.0))
        if near is not None and far is not None:
            self._pipes.join(near, far, monotonic() + DIAL_SECONDS)
            return
        for each in (near, far):
            if each is not None:
                each.close()

    def _give_up_the_late(self) -> None:
        now = monotonic()
        self._give_up([number for number, (_, deadline) in self._dialed.items() if deadline < now])
        self._pipes.give_up_the_late(now)

    def _give_up(self, numbers: list[int]) -> None:
        for number in numbers:
            self._dialed.pop(number)[0].close()


def _checked(descriptors: list[int]) -> socket.socket | None:
    """Return the dialer's descriptor as a socket if it is TCP. Anything else is closed."""
    for descriptor in descriptors:
        try:
            found = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            continue
        if found.family == socket.AF_INET and found.type == socket.SOCK_STREAM:
            return found
        found.close()
    return None


def _why_not(port: PublishedPort, error: OSError, *, by: str) -> str:
    told = f"Port {port.inner} of the image is not published: "
    if error.errno == errno.EADDRINUSE:
        told += f"port {port.outer} of this machine is taken by {by}"
    else:
        told += f"port {port.outer} of this machine cannot be had ({os.strerror(error.errno or 0)})"
    return f"{told}. Choose another with --publish OUTER:{port.inner}."


# Large reads keep the copying thread off the interpreter's lock. A socket buffer holds no more.
CHUNK = 256 * 1024
# Not O_NONBLOCK: file status flags are shared with the dialer, where evaluated code could change them.
AT_ONCE = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


@dataclass(eq=False, slots=True)
class End:
    """One socket of a pair, with the bytes that are still to be written to it."""

    channel: socket.socket
    waiting: memoryview = field(default_factory=lambda: memoryview(b""))
    has_ended: bool = False
    is_shut: bool = False
    deadline: float | None = None
    other: End = field(init=False, repr=False)


class Pipes:
    """Pairs of connected sockets. The loop of the relay copies bytes both ways, with backpressure."""

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
        """Copy between two sockets. The far one may still be connecting, until the deadline."""
        left, right = End(near), End(far, deadline=deadline)
        left.other, right.other = right, left
        self._ends |= {left, right}
        self._connecting.add(right)
        self._watch(right)

    def serve(self, end: End, events: int) -> None:
        """Read or write, as a socket is ready."""
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
        """Close connections that were not established in time."""
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
        """Register for the next operation. Nothing is read until the other side has taken the last bytes."""
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
