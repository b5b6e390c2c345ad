"""Doorbells: wake every process of this machine that waits for a move in the journal, after its commit.

A writer sends one empty datagram to each unix socket in the journal's run directory. It carries no data: the
woken process reads the journal. A datagram can be lost, so waiters also poll. A bell may ring without a
change, but every change rings it. Nothing here blocks a writer or fails a call.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import threading
from contextlib import suppress
from time import time_ns
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

# A lost datagram delays an answer at most this long. A person does not notice; one look costs microseconds.
POLL_SECONDS = 1.0
SUFFIX = ".bell"
# The address of a unix socket has 108 bytes on Linux and 104 elsewhere, including the final zero.
LONGEST_ADDRESS = 100
# The kernel sets the time stamp of a directory from its last tick, at most 10 ms ago. If the stamp is as new
# as the listing, a later change may have the same stamp.
TICK_NS = 20_000_000
DATAGRAM = socket.SOCK_DGRAM | getattr(socket, "SOCK_NONBLOCK", 0)


class Bell:
    """The bell of one waiter: take it, then look into the journal, then wait, and look again.

    A ring between the look and the wait is not lost: the wait returns at once. Only one thread or task may
    wait on it at a time.
    """

    def __init__(self, let_go: Callable[[Bell], None]) -> None:
        self._let_go = let_go
        self._lock = threading.Lock()
        self._rung = threading.Event()
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    def ring(self) -> None:
        """Wake the waiter, or let the next wait return at once; from any thread."""
        with self._lock:
            self._rung.set()
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            # If the loop was closed meanwhile, there is no waiter left to wake.
            with suppress(RuntimeError):
                waiting[0].call_soon_threadsafe(_settle, waiting[1])

    def wait(self, seconds: float | None = None) -> bool:
        """Wait on a thread until the bell rings; False after a timeout."""
        rung = self._rung.wait(seconds)
        self._rung.clear()
        return rung

    async def wait_async(self, seconds: float | None = None) -> bool:
        """Wait in an event loop until the bell rings; False after a timeout."""
        # A blocking caller never needs asyncio, which takes longer to import than this module.
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            if self._rung.is_set():
                self._rung.clear()
                return True
            self._waiting = loop, future
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            with self._lock:
                self._waiting = None
                rung = self._rung.is_set()
                self._rung.clear()
        return rung

    def close(self) -> None:
        """Stop listening; a pending wait returns."""
        self._let_go(self)
        self.ring()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Ear(Protocol):
    """A channel for signals of other processes: datagrams here, notifications of the server with PostgreSQL.

    The first waiter opens it. One thread uses and closes it.
    """

    def hear(self) -> bool:
        """Wait at most POLL_SECONDS; tell whether the journal may have changed."""

    def wake(self) -> None:
        """Make a waiting `hear` return, from another thread."""

    def close(self) -> None:
        """Release the resources."""


class Bells:
    """The bells of one journal in this process, and a thread that listens to other processes.

    The thread runs while there are bells. Without `open_ear` only changes of this process ring. An ear that
    cannot be opened or that fails is opened again later. Until then the bells ring every POLL_SECONDS.
    """

    def __init__(self, open_ear: Callable[[], Ear] | None = None) -> None:
        self._open_ear = open_ear
        self._lock = threading.Lock()
        self._bells: frozenset[Bell] = frozenset()
        self._listener: _Listener | None = None

    def bell(self) -> Bell:
        """Return a bell that rings from now on."""
        bell = Bell(self._remove)
        with self._lock:
            self._bells |= {bell}
            if self._listener is None and self._open_ear is not None:
                self._listener = _Listener(self._open_ear, self.strike)
        return bell

    def strike(self) -> None:
        """Ring all bells of this process."""
        for bell in self._bells:
            bell.ring()

    def close(self) -> None:
        """Wake all waiters for the last time."""
        for bell in self._bells:
            bell.close()

    def _remove(self, bell: Bell) -> None:
        with self._lock:
            self._bells -= {bell}
            if self._bells or self._listener is None:
                return
            listener, self._listener = self._listener, None
        listener.stop()


class _Listener:
    """The thread behind the bells, with an ear of its own."""

    def __init__(self, open_ear: Callable[[], Ear], strike: Callable[[], None]) -> None:
        self._open_ear, self._strike = open_ear, strike
        self._stopped = threading.Event()
        # Open it before the waiter looks into the journal, so that it hears all later changes.
        self._ear = self._opened()
        threading.Thread(target=self._listen, name="gramercy-bells", daemon=True).start()

    def stop(self) -> None:
        """Let the thread end; do not wait for it."""
        self._stopped.set()
        ear = self._ear
        if ear is not None:
            with suppress(Exception):
                ear.wake()

    def _opened(self) -> Ear | None:
        # Suppress every error: a call must not fail because other processes cannot be heard.
        with suppress(Exception):
            return self._open_ear()
        return None

    def _listen(self) -> None:
        while not self._stopped.is_set():
            if self._heard():
                self._strike()
        self._drop()

    def _heard(self) -> bool:
        if self._ear is None:
            self._stopped.wait(POLL_SECONDS)
            self._ear = self._opened()
            return True
        try:
            return self._ear.hear()
        except Exception:  # noqa: BLE001 - a broken ear is replaced, and the bells ring until it is
            self._drop()
            return True

    def _drop(self) -> None:
        ear, self._ear = self._ear, None
        if ear is not None:
            with suppress(Exception):
                ear.close()


class Doorbell:
    """The bells of a journal on this machine, and the means to ring those of other processes.

    `directory` is the journal's run directory. `version` returns a value that differs after each change by
    another process (PRAGMA data_version of a connection that never writes); it is called on one thread.
    """

    def __init__(self, directory: Path, version: Callable[[], object] | None = None) -> None:
        self._directory = directory
        self._version = version
        # Each ear has its own name: an old ear that closes late must not remove the socket of the next one.
        self._own = f"{os.getpid()}-{os.urandom(4).hex()}-"
        self._bells = Bells(self._open_ear)
        # The listing of the directory and its time stamp; zero if the stamp cannot be relied on.
        self._known: tuple[int, tuple[str, ...]] = (0, ())

    def bell(self) -> Bell:
        """Return a bell that rings after every commit of any process from now on."""
        return self._bells.bell()

    def ring(self) -> None:
        """Wake all waiters, here and in other processes; call it after the commit. It never raises."""
        self._bells.strike()
        with suppress(OSError):
            names = self._others()
            if names:
                # The socket is not kept open: opening one costs no more, and a journal that is never closed
                # then holds none.
                with socket.socket(socket.AF_UNIX, DATAGRAM) as sender:
                    for name in names:
                        _send(sender, self._directory / name)

    def close(self) -> None:
        """Wake all waiters for the last time, and close the socket."""
        self._bells.close()

    def _open_ear(self) -> Ear:
        name = f"{self._own}{os.urandom(4).hex()}{SUFFIX}"
        return _DatagramEar(self._directory, name, self._version)

    def _others(self) -> tuple[str, ...]:
        """Return the socket names of other processes, cached while the directory is unchanged."""
        stamp = self._directory.stat().st_mtime_ns
        known, names = self._known
        if stamp != known:
            found = (path.name for path in self._directory.iterdir())
            names = tuple(name for name in found if name.endswith(SUFFIX) and not name.startswith(self._own))
            self._known = (stamp if time_ns() - stamp > TICK_NS else 0), names
        return names


def _send(sender: socket.socket, path: Path) -> None:
    try:
        with Address(path) as address:
            sender.sendto(b"", address)
    except ConnectionRefusedError:
        # Its process was killed: a process that ends removes its socket.
        path.unlink(missing_ok=True)
    except OSError:
        # Its queue is full, so it rings anyway; or the socket was removed just now.
        return


class _DatagramEar:
    """A socket in the run directory to which writers send."""

    def __init__(self, directory: Path, name: str, version: Callable[[], object] | None) -> None:
        own_directory(directory)
        self._path = directory / name
        self._version = version
        self._seen: object = None
        self._wake_reader, self._wake_writer = socket.socketpair(socket.AF_UNIX, DATAGRAM)
        self._socket = socket.socket(socket.AF_UNIX, DATAGRAM)
        try:
            with Address(self._path) as address:
                self._socket.bind(address)
        except OSError:
            self.close()
            raise
        # select() handles only the first 1,024 descriptors of a process.
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._wake_reader, select.POLLIN)

    def hear(self) -> bool:
        """Wait for a datagram and drain the queue, since one look at the journal answers all of them."""
        if self._seen is None and self._version is not None:
            self._seen = self._version()
            # A commit between the waiter's look and this one would not show as a change.
            return True
        ready = self._poll.poll(POLL_SECONDS * 1_000)
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(1)
        # Without the socket file no datagrams arrive: lstat raises, and the listener makes a new socket.
        self._path.lstat()
        return self._has_changed() or bool(ready)

    def _has_changed(self) -> bool:
        if self._version is None:
            # Without a version a change cannot be detected, so the waiter must look.
            return True
        before, self._seen = self._seen, self._version()
        return self._seen != before

    def wake(self) -> None:
        """Make `hear` return."""
        self._wake_writer.send(b"")

    def close(self) -> None:
        """Remove the socket."""
        self._path.unlink(missing_ok=True)
        for each in (self._socket, self._wake_reader, self._wake_writer):
            each.close()


class Address:
    """The address of a unix socket, also for a path that is longer than an address may be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= LONGEST_ADDRESS:
            return str(self._path)
        self._descriptor = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._descriptor}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def own_directory(directory: Path) -> None:
    """Make a directory that only this user can enter; PermissionError if it belongs to another user."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to another user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        directory.chmod(0o700)


def run_directory(journal: Path) -> Path:
    """Return the directory for the sockets of a journal in a file.

    It is beside the file and not in XDG_RUNTIME_DIR: a server that an MCP client starts often lacks that
    variable, and would then use another directory than the person's terminal.
    """
    return journal.with_name(f"{journal.name}.run")
