"""Answers that left something out: ways of use, attributes of exceptions, calls that were lost."""

from contextlib import closing

import pytest

from gramercy.images.opening import open_image
from tests.images import children

PROGRAM = """
limit = 3
def raise_limit():
    global limit
    if limit < 9:
        limit = limit + 1
def show(): return limit
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Return a Python process with the program."""
    with closing(children.Family(tmp_path_factory.mktemp("whole"), "python")) as family:
        live = family.live()
        assert live.eval(PROGRAM)["ok"]
        yield live


@pytest.mark.contract("day.eyes.ways")
def test_a_definition_that_sets_and_reads_a_variable_is_told_with_both(live):
    """Answers: it was told as if it only set it."""
    told = live.ask("who_references", variable="limit")
    rows = {row["name"].rpartition(".")[2]: row["ways"] for row in told["data"]["found"]}
    assert rows == {"raise_limit": ["sets", "reads"], "show": ["reads"]}
    assert "raise_limit at <image 1>:5, 6  [sets, reads]" in told["text"]


@pytest.mark.contract("day.eyes.slots")
@pytest.mark.parametrize(
    ("name", "slots"), [("Exception", {"args"}), ("OSError", {"args", "errno", "filename"})]
)
def test_the_slots_of_an_exception_are_those_of_c_code_too(live, name, slots):
    """Answers: Exception was said to have none."""
    rows = live.ask("class_slots", **{"class": name})["data"]["slots"]
    assert {row["name"] for row in rows} >= slots
    assert {row["source"] for row in rows} == {"built-in attribute"}


@pytest.mark.contract("day.eyes.lost")
@pytest.mark.parametrize(("calls", "first"), [(6, "stop = threading.Event()"), (8, "… 3 earlier ones")])
def test_every_call_that_is_lost_is_listed_or_counted(tmp_path, calls, first):
    """A day's work: of six lost calls five were listed, and nothing said that there was another one."""
    with closing(open_image("python", project=tmp_path)) as image:
        image.evaluate("import os, threading; kept = 1")
        image.evaluate(
            "stop = threading.Event()\nthreading.Thread(target=stop.wait, daemon=True).start()\nx = 0"
        )
        for number in range(1, calls):
            image.evaluate(f"x = {number}")
        died = image.evaluate("os._exit(3)")
    assert died.lost == calls
    lines = died.notes[0].split("\n- ")[1:]
    assert first in lines[0]
    assert f"x = {calls - 1}" in lines[-1]
