"""The sliding window of what a person lays beside a conversation."""

from __future__ import annotations

import pytest

from gramercy.agents.context import ContextWindow, fenced, rendered
from gramercy.errors import InvalidMessageError


@pytest.mark.contract("agents.memory.context")
def test_the_oldest_goes_when_a_new_one_does_not_fit():
    """Agents, sessions and context: a sliding window of 50 items, first in, first out, monotonic ids."""
    window = ContextWindow()
    items = [window.add("text", f"piece {number}") for number in range(53)]
    assert [item.id for item in items[:2]] == ["ctx-1", "ctx-2"]
    assert len(window) == 50
    assert next(item.id for item in window) == "ctx-4"
    assert [item.id for item in window.dropped] == ["ctx-1", "ctx-2", "ctx-3"]
    window.remove("ctx-53")
    assert window.add("text", "next").id == "ctx-54"


@pytest.mark.contract("agents.memory.context")
def test_what_is_pinned_stays():
    window = ContextWindow(3)
    first = window.add("code", "keep", is_pinned=True)
    for number in range(5):
        window.add("text", f"{number}")
    assert [item.text for item in window] == ["keep", "3", "4"]
    for item in list(window)[1:]:
        window.pin(item.id)
    with pytest.raises(InvalidMessageError, match="full of what is pinned"):
        window.add("text", "no room")
    assert len(window) == 3
    window.pin(first.id, is_pinned=False)
    window.add("text", "room")
    assert [item.text for item in window] == ["3", "4", "room"]


@pytest.mark.contract("agents.memory.context")
def test_the_pieces_keep_to_a_budget_of_tokens():
    window = ContextWindow(tokens=100)
    window.add("text", "a" * 150)
    window.add("text", "b" * 150)
    window.add("text", "c" * 150)
    assert [item.text[0] for item in window] == ["b", "c"]
    assert window.tokens <= 100
    with pytest.raises(InvalidMessageError, match=r"takes about 313 tokens, and .* a budget of 100"):
        window.add("text", "x" * 1_000)
    assert [item.text[0] for item in window] == ["b", "c"]


@pytest.mark.parametrize("size", [0, 1_001, -1, "5", True])
def test_a_window_has_one_to_a_thousand_items(size):
    with pytest.raises(InvalidMessageError, match="1 to 1,000 items"):
        ContextWindow(size)


def test_only_texts_of_known_kinds_are_laid_out():
    window = ContextWindow()
    with pytest.raises(InvalidMessageError, match="no kind of context: there are code, text, file"):
        window.add("novel", "x")  # type: ignore[arg-type]
    with pytest.raises(InvalidMessageError, match="there is nothing in it"):
        window.add("text", " \n")
    with pytest.raises(InvalidMessageError, match="there is no 'ctx-1' in the context: there are none"):
        window.remove("ctx-1")


def test_pieces_are_told_once_and_again_after_a_summary():
    window = ContextWindow()
    window.add("file", "x = 1\n", source="a.py", line=10)
    first = window.with_message("Look")
    assert first == "Look\n\n## Context\n\n### ctx-1: file a.py, line 10\n\n```python\nx = 1\n```"
    assert window.with_message("And now?") == "And now?"
    window.add("error", "ValueError\n  at f", source="python")
    assert "ctx-2: error python" in window.with_message("Why?")
    window.tell_again()
    told = window.with_message("So?")
    assert ("ctx-1" in told, "ctx-2" in told) == (True, True)


def test_kinds_are_listed_and_cleared_apart():
    window = ContextWindow()
    window.add("code", "(f)", is_pinned=True)
    window.add("text", "prose")
    window.add("repl-history", "> (f)\n1")
    assert [item.text for item in window.items("text")] == ["prose"]
    assert window.clear("code") == 1
    window.add("code", "(g)", is_pinned=True)
    assert window.clear() == 2
    assert rendered(window) == "## Context\n\n### ctx-4: code\n\n```\n(g)\n```"


def test_lines_are_told_and_a_fence_is_longer_than_those_inside():
    window = ContextWindow()
    item = window.add("file", "a\n```\nb", source="notes.md", line=3)
    assert item.title == "file notes.md, lines 3-5"
    assert fenced("a\n````\nb") == "`````\na\n````\nb\n`````"
    assert window.add("text", "x" * 320).tokens == 101
