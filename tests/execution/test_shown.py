"""What is shown of a call can be read back to the character, or its approval does not count."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy import Approved, Executor, Modified, Registry, tool
from gramercy.execution.results import Recorder
from gramercy.execution.seal import digest_of_text
from gramercy.execution.shown import BAR, folded, read_back, revealed, unshown, written
from gramercy.journal.base import State
from gramercy.journal.memory import MemoryJournal

CHARACTERS = st.text(st.characters(exclude_categories=[]), max_size=300)
NASTY = st.sampled_from(
    ["⟦U+202E⟧", "\u202e", "↪", "| ", "\n", "\r", "\x1b[2J", "\ud800", "a: 1", "\ufe0f", "\u3164"]
)
TEXTS = st.one_of(CHARACTERS, st.lists(NASTY | CHARACTERS).map("".join), st.text("ab\n", max_size=2_000))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def decoded(text):
    """Read the arguments of a text back, by the rules of its writing alone."""
    found, lines = {}, read_back(text).split("\n")
    while lines:
        line = lines.pop(0)
        decoder = json.JSONDecoder()
        name, end = (
            decoder.raw_decode(line)
            if line.startswith('"')
            else (line[: min(map(line.find, _ends(line)))], 0)
        )
        rest = line[end or len(name) :]
        if rest.startswith(": "):
            found[name] = json.loads(rest[2:])
            continue
        value = []
        while lines and lines[0].startswith(BAR):
            value.append(lines.pop(0).removeprefix(BAR))
        found[name] = "\n".join(value) if rest.startswith(", text of ") else json.loads("\n".join(value))
    return found


def _ends(line):
    return [mark for mark in (": ", ", ") if mark in line]


@given(TEXTS)
def test_nothing_hides_in_what_is_shown_and_all_of_it_can_be_read_back(text):
    shown = folded(revealed(text))
    assert read_back(shown) == text
    assert all(c.isprintable() or c in "\n\t\u3000" for c in shown)
    assert max(map(len, shown.split("\n"))) <= 100


@pytest.mark.contract("trust.approval.whole")
@given(st.dictionaries(TEXTS.filter(bool), VALUES, max_size=5))
def test_arguments_are_shown_whole(arguments):
    """Trust, 7: for any arguments the text holds all of them, and a text without the last line does not."""
    text = folded(revealed("\n".join(written(name, value) for name, value in arguments.items())))
    assert unshown(text, "", arguments, ()) is None
    if arguments:
        assert decoded(text) == json.loads(json.dumps(arguments))
        assert unshown(text[:-1], "", arguments, ()) is not None


@tool(safety_level="dangerous")
def pay(amount: int, note: str = "") -> str:
    """Pay an amount."""
    return f"paid {amount} {len(note)}"


def run(handler, tool=pay, **options):
    executor = Executor(Registry([tool]), handler, **options)
    note = "thanks " * 5_000
    return executor.execute({"id": "1", "name": "pay", "arguments": {"amount": 1, "note": note}})


@pytest.mark.contract("trust.approval.whole")
def test_an_approval_of_a_part_does_not_count():
    """Trust, 7: a channel that shows 4,000 characters approves nothing that is longer."""
    whole = run(lambda _tool, _arguments, request: Approved(shown=request.text()))
    assert whole.content == "paid 1 35000"
    part = run(lambda _tool, _arguments, request: Approved(shown=request.text()[:4_000]))
    assert part.error == "pay was not run: the argument note was not shown in full to whoever approved it"
    assert part.metadata["denied_by"] == "guard"


@pytest.mark.contract("trust.approval.sealed")
def test_the_seal_has_the_digest_of_what_was_shown():
    journal, texts = MemoryJournal(), []

    def person(_tool, _arguments, request):
        texts.append((request.seal, request.text()))
        return Approved(shown=request.text())

    run(person, journal=journal)
    (seal, text), ready = texts[0], next(one for one in journal.entries() if one.state is State.READY)
    assert ready.facts.ruling is not None
    assert ready.facts.ruling.seal == seal.digest != seal.with_shown("else").digest
    assert ready.facts.ruling.shown == seal.shown == digest_of_text(text)


@pytest.mark.contract("trust.approval.sealed")
@pytest.mark.parametrize("answer", [Approved(), Modified({"amount": 2})])
def test_nothing_runs_but_the_arguments_that_were_approved(monkeypatch, answer):
    """Trust, 7: looked at once more when the call runs, edits by the person too."""
    begin = Recorder.started

    def started(self, attempt):
        begin(self, attempt)
        attempt.arguments["amount"] = 9999

    monkeypatch.setattr(Recorder, "started", started)
    paid: list[Any] = []
    result = run(lambda *_: answer, dataclasses.replace(pay, handler=paid.append, function=None))
    assert not result.success
    assert "these are not the arguments that were approved" in result.error
    assert paid == []


@pytest.mark.contract("trust.approval.reason")
@pytest.mark.parametrize("answer", [Approved("Ada", "once"), Modified({"amount": 1}, "Ada", reason="once")])
def test_the_reason_beside_an_approval_is_kept_and_told(answer):
    journal = MemoryJournal()
    result = run(lambda *_: answer, journal=journal)
    assert "[The person who approved it says: once]\n" in result.content
    assert result.metadata["approval_reason"] == "once"
    assert next(one for one in journal.entries() if one.state is State.READY).detail == "once"


ODD: list[dict[str, object]] = [{"reason": 1}, {"shown": b"x"}, {"by": None}]


@pytest.mark.parametrize("kind", [Approved, Modified])
@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_text_is_no_approval(kind, odd):
    assert run(lambda *_: kind(**odd)).metadata["denied_by"] == "approver"
