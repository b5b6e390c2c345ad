"""A connection to a PostgreSQL server that sends statements together: one round trip for all.

The round trip is most of the cost of a statement, for both sides. Frequent statements are prepared. A
statement has `?` for parameters. A connection is kept only if the server's answers leave no doubt about its
state; otherwise it is closed. This module knows nothing of transactions, or of what to do about a lost
connection.
"""

from __future__ import annotations

import itertools
import select
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus, TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg.pq.abc import PGconn, PGresult

    from gramercy.journal.tables import Statement

# Prepare a statement after two uses. Keep at most 200: IN lists of different lengths are different
# statements.
FEW_USES, MOST_PREPARED = 2, 200
# After these seconds without an answer, the server counts as unreachable. A proxy may accept data and pass
# nothing on, so that no keepalive of the network fails. A lock is waited for up to ten seconds; reading or
# cleaning a whole journal takes minutes.
SILENCE_SECONDS, LONG_SILENCE_SECONDS = 60.0, 900.0
_FINE = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.PIPELINE_SYNC})
_IDLE, _SOUND = TransactionStatus.IDLE, ConnStatus.OK
_OUTSIDE = PipelineStatus.OFF
_FREE = frozenset({_IDLE, TransactionStatus.INTRANS, TransactionStatus.INERROR})
# A prepared statement that is missing, exists twice, or belongs to a table that has changed since: only a new
# connection is free of them.
_STALE = frozenset({"26000", "42P05", "0A000"})


class _GoneError(psycopg.OperationalError):
    """The connection has ended in the middle of a statement."""


class Pipeline:
    """One connection, for one thread at a time. `silence` is how long an answer may take to begin."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.silence = SILENCE_SECONDS
        self._connection = connection
        self._wire: PGconn = connection.pgconn
        self._loader = Transformer(connection)
        # How often a statement was used, or the name under which the server knows it.
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
        """Close the connection, and cancel what the server still does for it."""
        self._connection.close()

    def run(self, statements: Sequence[Statement]) -> list[PGresult]:
        """Run statements in order. If one fails, raise its error; the statements after it are not run.

        A cursor of psycopg would cost the client more than the statement. After an error the connection is
        closed, unless the server itself has refused a statement and waits for the next one: otherwise a later
        answer could not be matched to its statement.
        """
        asked: list[tuple[str, list[Any]]] = [(text, _dumped(values)) for text, values in statements]
        try:
            results = [self._run_alone(*asked[0])] if len(asked) == 1 else self._run_together(asked)
            return [checked(result) for result in results]
        except BaseException as error:
            if not self._is_sound_after(error):
                self.close()
            raise

    def _is_sound_after(self, error: BaseException) -> bool:
        """Tell whether the connection is usable after a round trip that ended with an error."""
        if type(error) is _GoneError or not isinstance(error, psycopg.Error) or error.sqlstate is None:
            return False
        if error.sqlstate in _STALE:
            return False
        wire = self._wire
        # If the state cannot be read, the connection is not sound.
        with suppress(Exception):
            is_free = wire.transaction_status in _FREE and wire.pipeline_status == _OUTSIDE
            return is_free and wire.status == _SOUND
        return False

    def _run_together(self, asked: Sequence[tuple[str, list[Any]]]) -> list[PGresult]:
        named = [(self._name(text) if texts else b"", text, texts) for text, texts in asked]
        self._send(named)
        results = self._received(len(named))
        self._wire.exit_pipeline_mode()
        return results

    def rows(self, result: PGresult) -> list[Sequence[Any]]:
        """Return the rows of a result."""
        if not result.ntuples:
            return []
        self._loader.set_pgresult(result)
        found: list[Sequence[Any]] = self._loader.load_rows(0, result.ntuples, tuple)
        return found

    def _run_alone(self, text: str, texts: list[Any]) -> PGresult:
        if not texts:
            self._wire.send_query(text.encode())
        elif name := self._name(text):
            self._wire.send_query_prepared(name, texts)
        else:
            self._wire.send_query_params(_numbered(text), texts)
        return self._answer()

    def _answer(self) -> PGresult:
        """Wait for the answer to the last statement, which was sent outside of a pipeline."""
        self._flush()
        # Take all results, so that the next statement finds none of this one.
        found = list(iter(self._next, None))
        if not found:
            raise _GoneError("the connection has ended without an answer")
        return [checked(result) for result in found][-1]

    def _send(self, named: Sequence[tuple[bytes, str, list[Any]]]) -> None:
        wire = self._wire
        wire.enter_pipeline_mode()
        for name, text, texts in named:
            if name:
                wire.send_query_prepared(name, texts)
            else:
                wire.send_query_params(_numbered(text), texts)
        wire.pipeline_sync()
        self._flush()

    def _flush(self) -> None:
        wire = self._wire
        while wire.flush():
            # The server may take more only after this side has read from the connection.
            for _, event in self._waited(self._ready):
                if event & ~select.POLLOUT:
                    wire.consume_input()

    def _received(self, many: int) -> list[PGresult]:
        """Wait for the answers of `many` statements; meanwhile other threads have the interpreter's lock."""
        found: list[PGresult] = []
        gaps = 0
        # The last result says that the pipeline is complete. There is one gap behind each answer.
        while len(found) <= many:
            result = self._next()
            if result is not None:
                found.append(result)
            elif (gaps := gaps + 1) > many + 1 or self._wire.status != _SOUND:
                raise _GoneError("the connection has ended")
        return found[:-1]

    def _next(self) -> PGresult | None:
        wire = self._wire
        while wire.is_busy():
            self._waited(self._readable)
            wire.consume_input()
        return wire.get_result()

    def _waited(self, poll: select.poll) -> list[tuple[int, int]]:
        found = poll.poll(self.silence * 1_000)
        if not found:
            raise _GoneError(f"the server has said nothing for {self.silence:g} s")
        return found

    def _name(self, text: str) -> bytes:
        """Return the name of a prepared statement; empty until the statement has come a few times."""
        known = self._prepared.get(text, 0)
        if isinstance(known, bytes):
            return known
        if known < FEW_USES:
            if len(self._prepared) < MOST_PREPARED:
                self._prepared[text] = known + 1
            return b""
        name = b"gramercy_%d" % next(self._names)
        self._wire.send_prepare(name, _numbered(text))
        self._answer()
        self._prepared[text] = name
        return name


@lru_cache(512)
def _numbered(statement: str) -> bytes:
    """Return a statement with `$1`, `$2`… for each `?`, as the server takes it."""
    first, *rest = statement.split("?")
    return "".join([first, *(f"${number}{part}" for number, part in enumerate(rest, 1))]).encode()


def _dumped(values: Sequence[Any]) -> list[bytes | None]:
    """Encode values for the server, which infers the type of each."""
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
    """Return a result, or raise the error that the server reports."""
    if result.status not in _FINE:
        error = psycopg.errors.error_from_result(result)
        if error.sqlstate is None or error.diag.severity_nonlocalized != "ERROR":
            # Without a SQLSTATE the server has not answered. FATAL and PANIC end the connection, which this
            # side may notice only later.
            raise _GoneError(str(error))
        raise error
    return result
