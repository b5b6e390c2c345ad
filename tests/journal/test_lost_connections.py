"""A journal on a server whose connections are lost, at every point and in every way: no process is wedged."""

from __future__ import annotations

import random
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
import pytest

from gramercy.journal import pipeline, postgres
from gramercy.journal.audit import verify_journal
from gramercy.journal.base import Facts, State
from gramercy.journal.pipeline import Pipeline
from gramercy.journal.postgres import PostgresJournal
from tests.journal.stores import ASKED, READ, WRITE, YES
from tests.postgres import PostgresServer, why_none

if TYPE_CHECKING:
    from pathlib import Path

# More than a busy machine needs; no test waits for it to pass.
ENOUGH = 120.0
WORKERS = 3


def live(journal):
    """Lead one call through its whole life; return its key."""
    key = journal.begin(WRITE, State.AWAITING, ASKED)
    journal.move(key, State.READY, YES, expected=[State.AWAITING])
    journal.move(key, State.DONE, Facts(fence=journal.claim(key), content="written"))
    return key


def check(journal, keys):
    """Look whether each call was recorded once, with all of its moves, in chains that hold."""
    done = journal.records([State.DONE], tool="write_file", most=100_000)
    assert sorted(record.key for record in done) == sorted(keys)
    assert {record.step for record in done} == {5}
    assert verify_journal(journal).flaws == ()


@dataclass
class Fault:
    """Raises at the n-th use of libpq, before it is made or after."""

    number: int
    make: type[BaseException]
    is_after: bool
    uses: int = 0
    is_armed: bool = False
    met: list[str] = field(default_factory=list)

    def strikes(self, name):
        # Threads have connections of their own, which are not those of calls.
        if self.is_armed and threading.current_thread() is threading.main_thread():
            self.uses += 1
            if self.uses == self.number:
                self.met.append(name)
                return True
        return False


class FaultyWire:
    """The connection of libpq, with a fault."""

    def __init__(self, wire, fault):
        self._wire, self._fault = wire, fault

    def __getattr__(self, name):
        found, fault = getattr(self._wire, name), self._fault
        if not callable(found):
            if fault.strikes(name):
                raise fault.make("injected")
            return found

        def called(*arguments):
            strikes = fault.strikes(name)
            if strikes and not fault.is_after:
                raise fault.make("injected")
            value = found(*arguments)
            if strikes:
                raise fault.make("injected")
            return value

        return called


def with_fault(fault):
    class FaultyPipeline(Pipeline):
        def __init__(self, connection):
            super().__init__(connection)
            self._wire = FaultyWire(self._wire, fault)  # type: ignore[assignment]

    return FaultyPipeline


KINDS = {
    "lost": (psycopg.OperationalError, False),
    "lost after": (psycopg.OperationalError, True),
    "system": (OSError, False),
    "broken off": (KeyboardInterrupt, True),
}


@pytest.mark.contract("journal.faults.libpq")
@pytest.mark.parametrize(
    "kind",
    [
        "lost",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("broken off", "lost after", "system")),
    ],
)
def test_a_fault_at_any_call_of_libpq_leaves_a_journal_that_works(postgres_address, monkeypatch, kind):
    """Each use of libpq in the life of a call fails once: nothing is refused for good, lost or made twice."""
    make, is_after = KINDS[kind]
    keys, number, seen = [], 0, set()
    while True:
        number += 1
        fault = Fault(number, make, is_after)
        monkeypatch.setattr(postgres, "Pipeline", with_fault(fault))
        journal = PostgresJournal(postgres_address)
        # Statements are prepared when they come for the third time.
        keys += [live(journal) for _ in range(2)]
        fault.is_armed = True
        with suppress(KeyboardInterrupt):
            keys.append(live(journal))
        fault.is_armed = False
        keys.append(live(journal))
        assert len(journal.records(most=2)) == 2
        journal.close()
        seen.update(fault.met)
        if not fault.met:
            break
    assert number > 50
    assert {"send_prepare", "pipeline_sync", "exit_pipeline_mode", "get_result", "consume_input"} <= seen
    with_all = PostgresJournal(postgres_address)
    if make is KeyboardInterrupt:
        # What a person has broken off may stand anywhere; all that came later is whole.
        assert verify_journal(with_all).flaws == ()
    else:
        check(with_all, keys)
    with_all.close()


class Cutter:
    """Passes TCP on to the socket of a server, and cuts: closes, closes one half, or swallows what comes."""

    def __init__(self, server: Path) -> None:
        self._server = str(server / ".s.PGSQL.5432")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket, threading.Event]] = []
        # How many were cut. They are kept: the server must not see those end whose words are swallowed.
        self._cut = 0
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._server)
                except OSError:
                    client.close()
                    continue
                swallows = threading.Event()
                self._pairs.append((client, server, swallows))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(*ends, swallows), daemon=True).start()

    @staticmethod
    def _pass(source, sink, swallows):
        with suppress(OSError):
            while said := source.recv(65_536):
                if not swallows.is_set():
                    sink.sendall(said)
        for each in () if swallows.is_set() else (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self, how: str) -> None:
        pairs = self._pairs[self._cut :]
        self._cut += len(pairs)
        for client, server, swallows in pairs:
            with suppress(OSError):
                if how == "swallow":
                    swallows.set()
                elif how == "half":
                    client.shutdown(socket.SHUT_WR)
                elif how == "other half":
                    server.shutdown(socket.SHUT_WR)
                else:
                    client.shutdown(socket.SHUT_RDWR)
                    server.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(ENOUGH)
        self._listener.close()
        for client, server, _ in self._pairs:
            for each in (client, server):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()


@pytest.fixture
def own_server():
    """Return a server that a test may stop."""
    if reason := why_none():
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server


def under_load(address, harm, rounds):
    """Have calls made while harm is done; return the journals and the keys of the calls."""
    journals = [PostgresJournal(address, patience=ENOUGH / 2) for _ in range(WORKERS)]
    stopped = threading.Event()
    made: list[list[int]] = [[] for _ in journals]

    def work(number):
        while not stopped.is_set():
            made[number].append(live(journals[number]))
            journals[number].note(READ, State.DONE)

    with ThreadPoolExecutor(WORKERS) as pool:
        works = [pool.submit(work, number) for number in range(WORKERS)]
        try:
            for each in range(rounds):
                # Every worker has come further since the last one.
                before = [len(keys) for keys in made]
                wait = threading.Event()
                while any(len(keys) <= was for keys, was in zip(made, before, strict=True)):
                    for one in works:
                        assert not one.done(), one.exception()
                    wait.wait(0.001)
                harm(each)
        finally:
            stopped.set()
        for one in works:
            one.result(ENOUGH)
    return journals, [key for keys in made for key in keys]


def finish(journals, keys):
    keys += [live(journal) for journal in journals]
    check(journals[0], keys)
    for journal in journals:
        journal.close()


@pytest.mark.contract("journal.faults.terminated")
def test_no_call_is_refused_when_connections_are_terminated_under_load(own_server):
    """An administrator, or a server that sheds load, ends connections at any moment of a call."""
    address = own_server.create()
    chance = random.Random(7)
    with psycopg.connect(own_server.address("postgres"), autocommit=True) as other:

        def terminate(_number):
            threading.Event().wait(chance.random() * 0.02)
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname LIKE 'journal_%' AND random() < 0.7"
            )

        finish(*under_load(address, terminate, 25))


@pytest.mark.contract("journal.faults.terminated")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
@pytest.mark.slow
def test_no_call_is_refused_when_the_server_is_restarted_under_load(own_server, how):
    """Ordinary restarts and immediate stops, one after the other."""
    finish(*under_load(own_server.create(), lambda _number: own_server.restart(how), 5))


@pytest.mark.contract("journal.faults.network")
@pytest.mark.parametrize("how", ["close", "half", "other half", "swallow"])
@pytest.mark.slow
def test_no_call_is_refused_when_the_network_is_cut_under_load(own_server, monkeypatch, how):
    """A proxy between client and server closes connections, closes one half, or swallows what is said."""
    # A server that answers takes milliseconds; a minute would be waited for each cut.
    monkeypatch.setattr(pipeline, "SILENCE_SECONDS", 1.0)
    monkeypatch.setattr(postgres, "SILENCE_SECONDS", 1.0)
    cutter = Cutter(own_server.directory)
    try:
        name = own_server.create().partition("@/")[2].partition("?")[0]
        address = f"postgresql://gramercy@127.0.0.1:{cutter.port}/{name}?sslmode=disable&gssencmode=disable"
        finish(*under_load(address, lambda _number: cutter.cut(how), 4))
    finally:
        cutter.close()


@pytest.mark.contract("journal.faults.stale")
def test_statements_that_the_server_has_forgotten_refuse_no_call(postgres_address):
    """A pool of connections, or a change of the tables, takes prepared statements away."""
    journal = PostgresJournal(postgres_address)
    keys = [live(journal) for _ in range(4)]
    journal._run("DEALLOCATE ALL", ())
    keys.append(live(journal))
    check(journal, keys)
    journal.close()
