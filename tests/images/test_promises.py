"""Copies that come late: each is waited for in its own time, however many calls follow each other."""

from types import SimpleNamespace

import pytest

from gramercy.images import runner
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
