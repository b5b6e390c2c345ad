"""What comes late: copies, each waited for in its own time, and answers on a machine that stalls."""

import signal
import threading
from types import SimpleNamespace

import pytest

from gramercy.images import connection, runner
from gramercy.images.base import Reply
from gramercy.images.connection import PATIENCE, Wait
from gramercy.images.lifecycle import Lifecycle
from gramercy.images.present import MEETING_SECONDS, Promised
from gramercy.images.runner import Runner

TURN = MEETING_SECONDS / 8


class SlowCopies:
    """A family whose copies connect so many seconds after they were promised, on a clock of its own.

    A real machine is that slow only under a load that a test cannot rely on.
    """

    def __init__(self, lifecycle, seconds, calls):
        self.now = 100.0
        self._lifecycle = lifecycle
        self._seconds = seconds
        self._calls = calls
        self._promised = {}
        self.promise()

    def promise(self):
        tag = f"t{len(self._promised)}"
        self._promised[tag] = self.now
        self._lifecycle.promised.append(Promised("", tag, tag, None, None))

    def met(self, tag):
        return tag if self.now - self._promised[tag] >= self._seconds else None

    def wait_for_child(self, _tag, _seconds):
        self.now += TURN
        if len(self._promised) < self._calls:
            self.promise()


@pytest.mark.parametrize(
    ("seconds", "taken", "missed"),
    [(MEETING_SECONDS * 0.75, 30, 0), (MEETING_SECONDS * 60, 0, 30)],
    ids=["late", "never"],
)
def test_each_copy_has_a_time_of_its_own(monkeypatch, seconds, taken, missed):
    lifecycle = Lifecycle(lambda: pytest.fail("nothing is to be started"))
    family = SlowCopies(lifecycle, seconds, calls=30)
    lifecycle.family = family  # type: ignore[assignment]
    found = SimpleNamespace(taken=[], missed=[])
    monkeypatch.setattr(lifecycle, "_take", lambda promised, _: found.taken.append(promised.tag))
    monkeypatch.setattr(lifecycle, "_miss", lambda promised: found.missed.append(promised.tag))
    monkeypatch.setattr(runner, "monotonic", lambda: family.now)
    Runner(lifecycle)._settle()
    assert (len(found.taken), len(found.missed)) == (taken, missed)
    assert not lifecycle.promised


class Stalling(threading.Event):
    """A process that is interrupted while the machine stands still, on a clock of its own.

    It answers when it has had a whole turn, so many seconds after the machine goes on.
    """

    def __init__(self, stall, answer):
        super().__init__()
        self.now = 100.0
        self._stall = stall
        self._answer = answer
        self.signals = []

    def signal(self, number):
        self.signals.append(number)

    def wait(self, timeout=None):
        """Let time pass; tell whether the answer has come."""
        self.now += timeout + self._stall
        if not self._stall:
            self._answer -= timeout
        self._stall = 0.0
        return self._answer <= 0

    def receive_reply(self, _kind, seconds):
        return Reply(ok=False) if self.wait(seconds) else None


@pytest.mark.parametrize("is_late", [False, True], ids=["by hand", "at the time limit"])
@pytest.mark.parametrize(
    ("stall", "answer", "signals"),
    [
        (3.0, PATIENCE, [signal.SIGINT]),
        (0.0, 2 * PATIENCE, [signal.SIGINT] * 2),
        (0.0, 9 * PATIENCE, [signal.SIGINT] * 2),
    ],
    ids=["stalled", "slow", "never"],
)
def test_a_process_that_had_no_time_to_answer_is_not_killed(monkeypatch, is_late, stall, answer, signals):
    """A machine that stood still for 3 s cost the state of an evaluation that would have ended at once."""
    process = Stalling(stall, answer)
    monkeypatch.setattr(connection, "monotonic", lambda: process.now)
    wait = Wait(process, over=process)  # type: ignore[arg-type]
    if is_late:
        assert (wait._after_interrupts(Reply) is None) == (answer > 2 * PATIENCE)
    else:
        wait.cut_short()
        signals = [*signals, *([signal.SIGKILL] if answer > 2 * PATIENCE else [])]
    assert process.signals == signals
