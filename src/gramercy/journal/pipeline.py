"""A connection to a PostgreSQL server on which statements go together: one trip there and back for all.

The trip is most of what a statement costs, to both sides. What comes often is prepared. A statement has `?`
for parameters. What a transaction is, and what to do about a lost connection, is not known here.
"""

from __future__ import annotations

import itertools
import select
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg.pq.abc import PGconn, PGresult

    from gramercy.journal.tables import Statement

# A statement is prepared after these; more than so many are not, lists of keys have many lengths.
FEW_USES, MOST_PREPARED = 2, 200
_FINE = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.PIPELINE_SYNC})
_IDLE, _BROKEN = TransactionStatus.IDLE, ConnStatus.BAD


class _GoneError(psycopg.OperationalError):
    """The connection has ended in the middle of a statement."""


class Pipeline:
    """One connection, for one thread at a time."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._wire: PGconn = connection.pgconn
        self._loader = Transformer(connection)
        # How often a statement came, or under which name the server knows it.
        self._prepared: dict[str, int | bytes] = {}
        self._names = itertools.count(1)
        self._readable, self._ready = select.poll(), select.poll()
        self._readable.register(connection.fileno(), select.POLLIN)
        self._ready.register(connection.fileno(), select.POLLIN | select.POLLOUT)

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended, as far as this side knows."""
        return bool(self._connection.closed)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""
        return self._wire.transaction_status == _IDLE

    def close(self) -> None:
        """End the connection, and what the server still does for it."""
        self._connection.close()

    def run(self, statements: Sequence[Statement]) -> list[PGresult]:
        """Run statements one after the other; raise the error of one that fails, behind which none is run.

        A cursor of psycopg would cost the client more than the statement. The connection is closed where it
        was lost.
        """
        try:
            return self._answered(statements)
        except _GoneError:
            self.close()
            raise

    def _answered(self, statements: Sequence[Statement]) -> list[PGresult]:
        asked: list[tuple[str, list[Any]]] = [(text, _dumped(values)) for text, values in statements]
        if len(asked) == 1:
            return [checked(self._run_alone(*asked[0]))]
        named = [(self._name(text) if texts else b"", text, texts) for text, texts in asked]
        try:
            self._send(named)
            results = self._received(len(named))
        except BaseException:
            # Broken off, by the person or by the network: later nobody could tell which answer is whose.
            self.close()
            raise
        self._wire.exit_pipeline_mode()
        return [checked(result) for result in results]

    def rows(self, result: PGresult) -> list[Sequence[Any]]:
        """Return the rows of a result."""
        if not result.ntuples:
            return []
        self._loader.set_pgresult(result)
        found: list[Sequence[Any]] = self._loader.load_rows(0, result.ntuples, tuple)
        return found

    def _run_alone(self, text: str, texts: list[Any]) -> PGresult:
        if not texts:
            return self._wire.exec_(text.encode())
        if name := self._name(text):
            return self._wire.exec_prepared(name, texts)
        return self._wire.exec_params(_numbered(text), texts)

    def _send(self, named: Sequence[tuple[bytes, str, list[Any]]]) -> None:
        wire = self._wire
        wire.enter_pipeline_mode()
        for name, text, texts in named:
            if name:
                wire.send_query_prepared(name, texts)
            else:
                wire.send_query_params(_numbered(text), texts)
        wire.pipeline_sync()
        while wire.flush():
            # It may have to be read from before the server takes more.
            for _, event in self._ready.poll():
                if event & ~select.POLLOUT:
                    wire.consume_input()

    def _received(self, many: int) -> list[PGresult]:
        """Wait for the answers of so many statements, with the interpreter's lock free for other threads."""
        wire = self._wire
        found: list[PGresult] = []
        # The last one says that this is all.
        while len(found) <= many:
            while wire.is_busy():
                self._readable.poll()
                wire.consume_input()
            result = wire.get_result()
            if result is not None:
                found.append(result)
            elif wire.status == _BROKEN:
                raise _GoneError("the connection has ended")
        return found[:-1]

    def _name(self, text: str) -> bytes:
        """Return the name under which the server knows a statement; empty before it has come a few times."""
        known = self._prepared.get(text, 0)
        if isinstance(known, bytes):
            return known
        if known < FEW_USES:
            if len(self._prepared) < MOST_PREPARED:
                self._prepared[text] = known + 1
            return b""
        name = b"gramercy_%d" % next(self._names)
        checked(self._wire.prepare(name, _numbered(text)))
        self._prepared[text] = name
        return name


@lru_cache(512)
def _numbered(statement: str) -> bytes:
    """Return a statement with `$1`, `$2`… for each `?`, as the server takes it."""
    first, *rest = statement.split("?")
    return "".join([first, *(f"${number}{part}" for number, part in enumerate(rest, 1))]).encode()


def _dumped(values: Sequence[Any]) -> list[bytes | None]:
    """Return values as the server reads them; it finds out itself of which type each must be."""
    texts: list[bytes | None] = []
    for value in values:
        if type(value) is not str:
            texts.append(None if value is None else str(value).encode())
        elif "\0" in value:
            raise psycopg.DataError("a text with a NUL cannot be written")
        else:
            texts.append(value.encode())
    return texts


def checked(result: PGresult) -> PGresult:
    """Return a result, or raise what the server says instead."""
    if result.status not in _FINE:
        error = psycopg.errors.error_from_result(result)
        if error.sqlstate is None:
            # No word of the server: the way to it is gone, which the connection may notice later only.
            raise _GoneError(str(error))
        raise error
    return result
