"""Markdown as it streams: the same in the end, whatever the pieces were; nothing can move the cursor."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.ui.cli.answers import Markdown

TEXT = (
    "# Title\nSome **bold** and `code * x`, 2 * 3.\n\n- one\n* two **b**\n  - sub\n1. num\n> quote\n"
    "```python\ndef f(x):\n    return x ** 2  # no *mark*\n```\nend **bold"
)
SHOWN = (
    "Title\nSome bold and code * x, 2 * 3.\n\n• one\n• two b\n  • sub\n1. num\n│ quote\n"
    "```python\ndef f(x):\n    return x ** 2  # no *mark*\n```\nend bold"
)


def shown(pieces):
    markdown = Markdown()
    return "".join([*map(markdown.feed, pieces), markdown.end()])


def bare(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.contract("agents.chat.streaming")
@given(st.lists(st.integers(1, 12), min_size=len(TEXT)))
def test_the_pieces_make_no_difference(sizes):
    pieces, place = [], 0
    for size in sizes:
        pieces.append(TEXT[place : place + size])
        place += size
    assert bare(shown(pieces)) == SHOWN


@given(st.lists(st.text("ab*`#->~ \n\t", max_size=6)))
def test_whatever_is_written_nothing_of_its_words_is_lost(pieces):
    """Only marks go; letters, blanks between words and line ends stay, in their order."""
    whole = "".join(pieces)
    assert re.sub(r"[^ab\n]", "", bare(shown(pieces))) == re.sub(r"[^ab\n]", "", whole)


def test_text_is_shown_before_its_line_ends():
    assert Markdown().feed("Hello, wor") == "Hello, wor"


def test_styles_are_those_of_the_marks():
    assert shown(["## A *b*\n", "x **y** `z`"]) == (
        "\x1b[1;35mA \x1b[0m\x1b[1;35m*\x1b[0m\x1b[1;35mb\x1b[0m\x1b[1;35m*\x1b[0m\n"
        "x \x1b[1my\x1b[0m \x1b[36mz\x1b[0m"
    )


def test_a_model_cannot_move_the_cursor():
    assert "\x1b[2J" not in shown(["\x1b[2J\x1b]52;c;eA==\x07"])
