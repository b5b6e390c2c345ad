"""A connection to PostgreSQL that is cut at a chosen moment: it stands between client and server."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

NAME = ".s.PGSQL.5432"
BOUND = 30.0


class Cut(StrEnum):
    """What is left of a commit when the connection is lost."""

    BEFORE = "the server has not got it, and knows that the client is gone"
    UNNOTICED = "the server has not got it, and waits for it"
    DURING = "the server gets it, and the client is gone at once"
    AFTER = "the server has committed, and its answer is lost"


class CuttingProxy:
    """Passes on what client and server say, but for those commits that are chosen."""

    def __init__(self, directory: Path, server: Path) -> None:
        self.directory = directory
        self._server = str(server / NAME)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / NAME))
        self._listener.listen()
        self._wanted: dict[int, Cut] = {}
        self.commits = 0
        # Kept open where the server is not to notice.
        self._left: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, how: Cut, number: int) -> None:
        """Cut the connection at a commit, counted from the next one, which is 1."""
        self._wanted[self.commits + number] = how

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        passed = threading.Event()
        answers = threading.Thread(target=self._pass_answers, args=(server, client, passed), daemon=True)
        answers.start()
        with suppress(OSError):
            while said := client.recv(65_536):
                if b"COMMIT" in said:
                    self.commits += 1
                    how = self._wanted.pop(self.commits, None)
                    if how is not None:
                        self._end(how, said, client, server, passed)
                        return
                server.sendall(said)
        _close(server)
        _close(client)

    def _end(
        self,
        how: Cut,
        said: bytes,
        client: socket.socket,
        server: socket.socket,
        passed: threading.Event,
    ) -> None:
        if how is Cut.UNNOTICED:
            self._left.append(server)
            _close(client)
            return
        if how is Cut.AFTER:
            passed.set()
            server.sendall(said)
            # The thread that passes answers on keeps this one, and ends.
            while passed.is_set():
                threading.Event().wait(0.001)
        elif how is Cut.DURING:
            server.sendall(said)
        _close(client)
        _close(server)

    def _pass_answers(self, server: socket.socket, client: socket.socket, keep: threading.Event) -> None:
        with suppress(OSError):
            while said := server.recv(65_536):
                if keep.is_set():
                    keep.clear()
                    return
                client.sendall(said)
        keep.clear()
        if server not in self._left:
            _close(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._left):
            _close(each)


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
