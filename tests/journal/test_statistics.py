"""Figures come from the journal, whichever process has made the calls."""

from time import mktime

import pytest

from gramercy.journal.base import Facts, NewCall, Ruling, State
from gramercy.journal.opening import open_journal
from gramercy.journal.statistics import tool_figures
from tests.journal.books import ASKED, LOOK, NO, PAY, YES

MONDAY = mktime((2026, 5, 4, 12, 0, 0, 0, 0, -1))
DAY = 86_400.0


@pytest.fixture
def journal(place):
    opened = open_journal(place)
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    return (
        tmp_path / "journal.db" if request.param == "sqlite" else request.getfixturevalue("postgres_address")
    )


class Clock:
    """Sets the time of a journal."""

    def __init__(self, journal, monkeypatch):
        self.now = MONDAY
        monkeypatch.setattr(journal, "_now", lambda: self.now)


def decided(journal, clock, seconds, ruling):
    clock.now += 1.0
    key = journal.begin(PAY, State.AWAITING, ASKED)
    clock.now += seconds
    journal.move(key, State.READY if ruling is YES else State.DENIED, ruling)
    if ruling is YES:
        journal.move(key, State.DONE, Facts(fence=journal.claim(key), elapsed_ms=seconds * 10, size=8))


@pytest.mark.contract("journal.audit.figures")
def test_times_waits_sizes_and_classes_are_counted_by_tool(journal, monkeypatch):
    clock = Clock(journal, monkeypatch)
    for seconds in range(1, 21):
        decided(journal, clock, float(seconds), YES)
    decided(journal, clock, 100.0, NO)
    expired = Facts(ruling=Ruling(approved=False, by="", seal="5ea1", refuser="timeout"))
    decided(journal, clock, 9_000.0, expired)
    for failure in ("ValueError", "timeout", "ValueError", ""):
        journal.note(LOOK, State.FAILED, Facts(elapsed_ms=1.0, failure=failure))
    journal.note(LOOK, State.DONE, Facts(elapsed_ms=2.0, size=30))
    journal.move(journal.begin(PAY, State.EXECUTING), State.IN_DOUBT)
    journal.begin(PAY)
    look, pay = tool_figures(journal)
    assert (look.tool, look.calls, look.done, look.failed, look.success_rate) == ("look", 5, 1, 4, 0.2)
    assert (look.failures, look.mean_size, look.approvals) == (
        {"ValueError": 2, "timeout": 1, "unknown": 1},
        30.0,
        0,
    )
    assert (pay.calls, pay.done, pay.denied, pay.in_doubt, pay.open) == (24, 20, 2, 1, 1)
    assert (pay.p50_ms, pay.p95_ms) == (100.0, 190.0)
    # What ended by itself is nobody's decision.
    assert (pay.approvals, pay.wait_p50, pay.wait_p95) == (21, 11.0, 20.0)
    assert pay.refusals == {"person": 1, "timeout": 1}


@pytest.mark.contract("journal.audit.figures-by-day")
def test_figures_come_day_by_day_and_since_a_time(journal, monkeypatch):
    clock = Clock(journal, monkeypatch)
    for day in range(3):
        clock.now = MONDAY + day * DAY
        for _ in range(day + 1):
            journal.note(LOOK, State.DONE)
    found = tool_figures(journal, by_day=True)
    assert [(each.day, each.calls) for each in found] == [
        ("2026-05-04", 1),
        ("2026-05-05", 2),
        ("2026-05-06", 3),
    ]
    assert [each.calls for each in tool_figures(journal, since=MONDAY + DAY)] == [5]
    assert tool_figures(journal, since=MONDAY + 3 * DAY) == []
    assert tool_figures(journal, tools=["other"]) == []


def test_more_calls_than_a_page_are_counted_whole(journal, monkeypatch):
    monkeypatch.setattr("gramercy.journal.statistics.PAGE", 7)
    for number in range(30):
        journal.note(NewCall(str(number), f"tool_{number % 3}", "safe", {}), State.DONE)
        journal.move(journal.begin(LOOK, State.EXECUTING), State.DONE)
    assert [each.calls for each in tool_figures(journal)] == [30, 10, 10, 10]
