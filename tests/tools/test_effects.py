"""What a call would do, in parts and as text."""

from __future__ import annotations

import json

import pytest

from gramercy.tools.effects import Effect, read_effect

DIFFERENCE = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-one\n+One\n two\n@@ -9 +9 @@\n-nine\n+@@ Nine\n"


@pytest.mark.contract("journal.images.effect.parts")
def test_all_parts_are_in_the_text():
    effect = Effect(
        note="tried in a copy",
        error="[ERROR] NOPE",
        would_change=("function f defined",),
        would_touch=("write /tmp/x: refused", "connect 1.2.3.4: refused"),
        output="[stdout]\nhello",
        value="=> 9",
    )
    assert effect.text().split("\n\n") == [
        "tried in a copy",
        "[ERROR] NOPE",
        "[would change]\n- function f defined",
        "[would touch]\n- write /tmp/x: refused\n- connect 1.2.3.4: refused",
        "[stdout]\nhello",
        "=> 9",
    ]


def test_a_difference_is_told_as_it_is_so_that_its_lines_can_be_compared():
    assert str(Effect(difference=DIFFERENCE)) == DIFFERENCE
    assert Effect(note="x is a new file.", difference=DIFFERENCE).text() == f"x is a new file.\n{DIFFERENCE}"


def test_a_difference_has_its_hunks():
    effect = Effect(difference=DIFFERENCE)
    assert effect.hunks == (
        "@@ -1,2 +1,2 @@\n-one\n+One\n two\n",
        "@@ -9 +9 @@\n-nine\n+@@ Nine\n",
    )
    assert Effect(value="=> 1").hunks == ()


@pytest.mark.parametrize("effect", [Effect(), Effect(would_change=("a", "b"), state="e1", value="=> 1")])
@pytest.mark.contract("journal.images.effect.data")
def test_plain_data_gives_the_effect_back(effect):
    """The journal keeps it as JSON, and another process shows it."""
    assert read_effect(json.loads(json.dumps(effect.as_data()))) == effect


def test_what_is_empty_is_not_in_the_data():
    assert Effect(value="=> 1").as_data() == {"value": "=> 1"}


@pytest.mark.parametrize("text", [DIFFERENCE, "sends 3 letters", ""])
def test_a_text_that_a_tool_tells_stays_the_same_text(text):
    assert read_effect(text).text() == text


def test_a_text_that_is_a_difference_is_known_as_one():
    assert read_effect(DIFFERENCE).difference == DIFFERENCE
    assert read_effect("sends 3 letters").note == "sends 3 letters"
