"""Doorbells between threads, event loops and processes; every wait is bounded."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from gramercy.journal import bells
from gramercy.journal.base import NewCall, State
from gramercy.journal.bells import Bells, Doorbell, run_directory
from gramercy.journal.memory import MemoryJournal
from gramercy.journal.opening import open_journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# More than a loaded machine needs for a thread or a process; nobody waits for it to pass.
ENOUGH = 20.0
SHIPPED_POLL_SECONDS = bells.POLL_SECONDS
# Well below the poll of these tests, so that it cannot be what rings.
AT_ONCE, POLL = 10.0, 30.0

LISTENER = """
import sys
from pathlib import Path
from gramercy.journal.bells import Doorbell
door = Doorbell(Path(sys.argv[1]), version=lambda: 1)
bell = door.bell()
while bell.wait(0.3): pass
print("listening", flush=True)
rung = bell.wait(20)
print("rung" if rung else "silence", flush=True)
sys.stdin.read()
"""
RINGER = """
import sys
from pathlib import Path
from gramercy.journal.bells import Doorbell
Doorbell(Path(sys.argv[1])).ring()
"""


def quiet(bell: bells.Bell) -> None:
    """Wait for the ring at the start of a listener to be over."""
    deadline = time.monotonic() + ENOUGH
    while bell.wait(0.3):
        assert time.monotonic() < deadline


def holds(condition: Callable[[], bool]) -> bool:
    """Tell whether a condition comes true in time."""
    deadline = time.monotonic() + ENOUGH
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@pytest.fixture(autouse=True)
def _seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll so seldom that a busy machine cannot take a ring for a poll, nor a poll for a ring."""
    monkeypatch.setattr(bells, "POLL_SECONDS", POLL)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return run_directory(tmp_path / "journal.db")


@pytest.fixture
def door(directory: Path) -> Iterator[Doorbell]:
    # A version that never changes: only a ring can be heard.
    opened = Doorbell(directory, version=lambda: 1)
    yield opened
    opened.close()


@pytest.fixture
def other(directory: Path) -> Iterator[Doorbell]:
    """Return a doorbell of the same journal that knows nothing of the first, as in another process."""
    opened = Doorbell(directory, version=lambda: 1)
    yield opened
    opened.close()


@pytest.mark.contract("journal.desk.doorbell")
def test_a_thread_that_waits_is_woken_by_another_writer(door: Doorbell, other: Doorbell) -> None:
    with door.bell() as bell:
        quiet(bell)
        threading.Timer(0.05, other.ring).start()
        began = time.monotonic()
        assert bell.wait(ENOUGH)
        assert time.monotonic() - began < AT_ONCE


def test_an_event_loop_that_waits_is_woken_by_another_writer(door: Doorbell, other: Doorbell) -> None:
    async def main() -> tuple[bool, float]:
        with door.bell() as bell:
            while await bell.wait_async(0.3):
                pass
            asyncio.get_running_loop().call_later(0.05, other.ring)
            began = time.monotonic()
            return await bell.wait_async(ENOUGH), time.monotonic() - began

    rung, took = asyncio.run(main())
    assert rung
    assert took < AT_ONCE


def test_a_ring_before_the_wait_is_not_lost(door: Doorbell, other: Doorbell) -> None:
    with door.bell() as bell:
        quiet(bell)
        other.ring()
        assert bell.wait(AT_ONCE)
        assert not bell.wait(0.05)

        async def waits() -> list[bool]:
            door.ring()
            return [await bell.wait_async(AT_ONCE), await bell.wait_async(0.05)]

        assert asyncio.run(waits()) == [True, False]


def test_one_ring_wakes_all_who_wait_in_a_process_through_one_socket(
    door: Doorbell, other: Doorbell, directory: Path
) -> None:
    held = [door.bell() for _ in range(50)]
    quiet(held[0])
    for bell in held:
        bell.wait(0)
    assert len(list(directory.iterdir())) == 1
    other.ring()
    assert all(bell.wait(AT_ONCE) for bell in held)


def test_a_writer_wakes_those_of_its_own_process_without_a_socket(door: Doorbell) -> None:
    with door.bell() as bell:
        quiet(bell)
        door.ring()
        assert bell.wait(0)


@pytest.mark.contract("journal.desk.doorbell-stale")
def test_a_listener_that_was_killed_leaves_a_socket_that_the_next_ring_removes(directory: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER, str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        assert len(list(directory.iterdir())) == 1
        process.send_signal(signal.SIGKILL)
    assert len(list(directory.iterdir())) == 1
    Doorbell(directory).ring()
    assert list(directory.iterdir()) == []


def test_a_ring_reaches_another_process(directory: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER, str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "listening\n"
        subprocess.run([sys.executable, "-c", RINGER, str(directory)], check=True, timeout=ENOUGH)
        assert process.stdout.readline() == "rung\n"
        process.stdin.close()


@pytest.mark.contract("journal.desk.doorbell-net")
def test_a_change_that_nobody_rang_for_is_found_by_the_poll(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SHIPPED_POLL_SECONDS <= 1.0
    monkeypatch.setattr(bells, "POLL_SECONDS", 0.02)
    version = [1]
    door = Doorbell(directory, version=lambda: version[0])
    with door.bell() as bell:
        quiet(bell)
        version[0] = 2
        assert bell.wait(ENOUGH)
        assert not bell.wait(0.1)


@pytest.mark.contract("journal.desk.doorbell-never-fails")
def test_where_no_socket_can_be_made_the_bell_rings_with_every_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "POLL_SECONDS", 0.02)
    (tmp_path / "file").write_text("")
    door = Doorbell(tmp_path / "file" / "run")
    door.ring()
    with door.bell() as bell:
        assert bell.wait(ENOUGH)
        assert bell.wait(ENOUGH)


def test_a_socket_that_was_removed_is_made_again(
    door: Doorbell, other: Doorbell, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "POLL_SECONDS", 0.02)
    with door.bell() as bell:
        quiet(bell)
        before = set(directory.iterdir())
        for path in before:
            path.unlink()
        assert holds(lambda: bool(set(directory.iterdir()) - before))
        quiet(bell)
        other.ring()
        assert bell.wait(ENOUGH)


def test_a_listener_whose_queue_is_full_holds_up_nobody(door: Doorbell, directory: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER, str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        for _ in range(5_000):
            door.ring()
        assert time.monotonic() - began < ENOUGH
        assert len(list(directory.iterdir())) == 1
        process.kill()


def test_the_run_directory_is_for_its_user_alone(door: Doorbell, directory: Path) -> None:
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    with door.bell() as bell:
        quiet(bell)
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_the_directory_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(PermissionError, match="belongs to another user"):
        bells.own_directory(tmp_path / "run")


def test_a_path_that_is_too_long_for_an_address_is_reached_all_the_same(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120) / "run"
    door, other = Doorbell(directory, version=lambda: 1), Doorbell(directory)
    with door.bell() as bell:
        quiet(bell)
        assert len(list(directory.iterdir())) == 1
        other.ring()
        assert bell.wait(AT_ONCE)


def test_the_last_bell_takes_thread_and_socket_away(door: Doorbell, directory: Path) -> None:
    first, second = door.bell(), door.bell()
    first.close()
    assert len(list(directory.iterdir())) == 1
    second.close()
    assert holds(lambda: not list(directory.iterdir()))
    assert holds(lambda: all(thread.name != "gramercy-bells" for thread in threading.enumerate()))


def test_a_bell_taken_while_the_last_one_closes_is_heard(door: Doorbell, other: Doorbell) -> None:
    for _ in range(5):
        door.bell().close()
        with door.bell() as bell:
            quiet(bell)
            other.ring()
            assert bell.wait(AT_ONCE)


def test_closing_wakes_who_waits(door: Doorbell) -> None:
    bell = door.bell()
    quiet(bell)
    threading.Timer(0.05, door.close).start()
    began = time.monotonic()
    assert bell.wait(ENOUGH)
    assert time.monotonic() - began < AT_ONCE


def test_a_wait_in_a_loop_that_is_cancelled_leaves_the_bell_usable(door: Doorbell) -> None:
    async def main() -> bool:
        with door.bell() as bell:
            while await bell.wait_async(0.3):
                pass
            waiting = asyncio.ensure_future(bell.wait_async(ENOUGH))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            door.ring()
            return await bell.wait_async(AT_ONCE)

    assert asyncio.run(main())


def test_bells_without_an_ear_ring_within_the_process() -> None:
    own = Bells()
    before = set(threading.enumerate())
    with own.bell() as bell:
        assert not bell.wait(0)
        own.strike()
        assert bell.wait(0)
        assert set(threading.enumerate()) <= before


def test_who_waits_for_a_call_in_memory_is_woken_by_its_moves() -> None:
    journal = MemoryJournal()
    key = journal.begin(NewCall("1", "launch", "dangerous", {}))
    with journal.bell() as bell:
        assert not bell.wait(0)
        journal.move(key, State.AWAITING)
        assert bell.wait(0)
    assert journal.run_directory is None


@pytest.mark.contract("journal.desk.doorbell")
def test_a_move_in_a_file_wakes_who_waits_with_another_journal_on_it(tmp_path: Path) -> None:
    waiting, deciding = open_journal(tmp_path / "journal.db"), open_journal(tmp_path / "journal.db")
    key = waiting.begin(NewCall("1", "launch", "dangerous", {}), State.AWAITING)
    with waiting.bell() as bell:
        quiet(bell)
        began = time.monotonic()
        deciding.move(key, State.DENIED)
        assert bell.wait(ENOUGH)
        assert time.monotonic() - began < AT_ONCE
        found = waiting.record(key)
        assert found is not None
        assert found.state is State.DENIED
    for journal in (waiting, deciding):
        journal.close()


def test_a_commit_whose_ring_was_lost_is_found_by_the_version_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "POLL_SECONDS", 0.05)
    waiting, deciding = open_journal(tmp_path / "journal.db"), open_journal(tmp_path / "journal.db")
    key = waiting.begin(NewCall("1", "launch", "dangerous", {}), State.AWAITING)
    with waiting.bell() as bell:
        quiet(bell)
        monkeypatch.setattr(Doorbell, "ring", lambda _: None)
        deciding.move(key, State.DENIED)
        assert bell.wait(ENOUGH)
        assert not bell.wait(0.3)
    for journal in (waiting, deciding):
        journal.close()


def test_an_ear_that_breaks_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bells, "POLL_SECONDS", 0.02)
    opened: list[BrokenEar] = []

    class BrokenEar:
        def __init__(self) -> None:
            opened.append(self)
            self.closed = False

        def hear(self) -> bool:
            raise OSError("the server went away")

        def wake(self) -> None:
            raise OSError("the server went away")

        def close(self) -> None:
            self.closed = True

    own = Bells(BrokenEar)
    with own.bell() as bell:
        assert bell.wait(ENOUGH)
        assert holds(lambda: len(opened) > 2)
        assert opened[0].closed
