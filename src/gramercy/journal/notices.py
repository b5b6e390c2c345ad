"""Notices between the processes that share a journal on a PostgreSQL server: NOTIFY and LISTEN.

A notice only says that something was committed. Polling makes up for a lost notice.
"""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

from gramercy.journal.bells import POLL_SECONDS
from gramercy.journal.pipeline import checked

if TYPE_CHECKING:
    from collections.abc import Callable

NOTIFY, LISTEN = b"NOTIFY gramercy", "LISTEN gramercy"
# The first statement on a connection for notices: a notice need not be on disk.
UNHURRIED = "SET synchronous_commit = off"
# All moves within this time share one notice: a process that receives it reads all of them.
PAUSE_SECONDS = 0.05
# A process that ends waits at most this long for its last notice.
LAST_SECONDS = 1.0


class Messenger:
    """A thread with a connection of its own that tells other processes of commits.

    NOTIFY takes a lock that all transactions with notices share until they are on disk. So it is sent after
    the commit, in a transaction that does not wait for the disk, and no caller waits for it.
    """

    def __init__(self, open_connection: Callable[[], psycopg.Connection[Any]]) -> None:
        self._open_connection = open_connection
        self._thread: threading.Thread | None = None
        self._has_news = threading.Event()
        self._closing = threading.Event()

    def notify(self) -> None:
        """Tell other processes soon that something was committed; it never raises."""
        self._has_news.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="gramercy-notices", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread, after its last notice."""
        self._closing.set()
        waiting, self._thread = self._thread, None
        if waiting is not None:
            self._has_news.set()
            waiting.join(LAST_SECONDS)

    def _work(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        is_last = False
        while not is_last:
            self._has_news.wait()
            is_last = self._closing.is_set()
            self._has_news.clear()
            try:
                connection = connection or self._open_connection()
                # Bypass the cursor, which would cost many times as much; a busy writer sends many notices.
                checked(connection.pgconn.exec_(NOTIFY))
                self._closing.wait(PAUSE_SECONDS)
            except Exception:  # noqa: BLE001 - the thread must outlive every kind of loss
                # The other processes poll meanwhile. The next notice also covers the commits of this one.
                _close(connection)
                connection = None
                self._closing.wait(POLL_SECONDS)
        _close(connection)


def _close(connection: psycopg.Connection[Any] | None) -> None:
    if connection is not None:
        with suppress(psycopg.Error):
            connection.close()


class Ear:
    """Listen to the notices of other processes on a connection of its own."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)
        self._poll.register(self._wake_reader, select.POLLIN)

    def hear(self) -> bool:
        """Wait for a notice. After a timeout it is time to look anyway, since the sender may have died."""
        if not self._poll.poll(POLL_SECONDS * 1_000):
            return True
        wire = self._connection.pgconn
        wire.consume_input()
        is_told = False
        while wire.notifies() is not None:
            is_told = True
        return is_told

    def wake(self) -> None:
        """Make a waiting `hear` return."""
        self._wake_writer.send(b"!")

    def close(self) -> None:
        """Close the connection."""
        _close(self._connection)
        self._wake_reader.close()
        self._wake_writer.close()
