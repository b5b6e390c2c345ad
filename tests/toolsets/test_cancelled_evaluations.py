"""Evaluations that a caller cancels: what the journal says of them afterwards."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from gramercy.images.opening import open_image
from gramercy.journal.base import State
from gramercy.toolsets import factory
from tests.support import until
from tests.toolsets.conftest import SANDBOX, Desk

SECONDS = 60.0
LOOP = "x = 1\nopen('begun.txt', 'w').close()\nimport time\nwhile True: {}"
DEAF = "\n    try: time.sleep(60)\n    except BaseException: pass"


@pytest.fixture
def desk(project, workspace):
    with closing(open_image("python", project=project, sandbox=SANDBOX)) as image:
        yield Desk(image, workspace, "python")


def cancelled(desk, project, form):
    """Cancel an evaluation when it has begun, and return its record."""

    async def main():
        call = {"id": "1", "name": "eval_form", "arguments": {"form": form}}
        task = asyncio.create_task(desk.executor.aexecute(call))
        async with asyncio.timeout(SECONDS):
            await asyncio.to_thread(until, (project / "begun.txt").exists)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    return desk.executor.journal.records()[0]


@pytest.mark.contract("day.points.cancelled")
def test_a_cancelled_evaluation_that_has_stopped_is_not_in_doubt(desk, project, monkeypatch):
    """Calls that a person had stopped were in doubt for ever."""
    monkeypatch.setattr(factory, "STOP_SECONDS", SECONDS)
    record = cancelled(desk, project, LOOP.format("time.sleep(0.01)"))
    assert record.state is State.FAILED
    assert record.facts.failure == "cancelled"
    assert record.facts.detail.startswith("cancelled by the caller: ")
    assert "created begun.txt" in record.facts.files
    assert desk.text("eval_form", form="x").startswith("=> 1")


@pytest.mark.contract("day.points.cancelled")
def test_a_cancelled_evaluation_that_does_not_stop_is_in_doubt(desk, project, monkeypatch):
    """Code that heeds no interrupt runs on when its record is written."""
    monkeypatch.setattr(factory, "STOP_SECONDS", 0.0)
    record = cancelled(desk, project, LOOP.format(DEAF))
    assert record.state is State.IN_DOUBT
    assert record.facts.detail == "cancelled by the caller"
