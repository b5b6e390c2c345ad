"""Text for people and models: nothing hides in it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.errors import TextPosition
from gramercy.execution.shown import read_back, revealed
from gramercy.images.files.changes import shown
from gramercy.images.wire import line
from gramercy.mcp.foreign.definitions import hidden_in
from gramercy.providers.bodies import plain_line
from gramercy.text import (
    LINES,
    PROSE,
    counted,
    cut,
    cut_line,
    hide,
    is_hidden,
    listed,
    reason_of,
    reveal,
    reveal_line,
    table,
    tame,
)
from gramercy.toolsets.listing import shown_name
from gramercy.ui.cli.terminal import json_text, visible
from gramercy.workbench.policies import written_text

HIDDEN = {
    "escape": "\x1b",
    "control of C1": "\x9b",
    "zero width space": "\u200b",
    "zero width joiner": "\u200d",
    "byte order mark": "\ufeff",
    "soft hyphen": "\u00ad",
    "right-to-left override": "\u202e",
    "right-to-left isolate": "\u2067",
    "arabic letter mark": "\u061c",
    "line separator": "\u2028",
    "tag": "\U000e0041",
    "hangul filler": "\u3164",
    "halfwidth hangul filler": "\uffa0",
    "hangul choseong filler": "\u115f",
    "combining grapheme joiner": "\u034f",
    "khmer inherent vowel": "\u17b4",
    "mongolian selector": "\u180b",
    "braille blank": "\u2800",
    "variation selector": "\ufe0f",
    "variation selector 17": "\U000e0100",
    "lone surrogate": "\ud800",
    "private use": "\ue000",
}
WRITERS = {
    "questions": revealed,
    "messages of images": line,
    "names of files in time": shown,
    "names of files in lists": shown_name,
    "answers of services": plain_line,
    "names": reveal_line,
    "texts of strangers": reveal,
    "rules": written_text,
    "JSON": json_text,
    "places in a text": lambda text: TextPosition.at(text, 0).caret().partition("\n")[0],
}


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer_reveals_the_same_characters(writer, hidden):
    """One alphabet: what one channel shows, no other hides."""
    written = WRITERS[writer](f"a{HIDDEN[hidden]}b")
    assert HIDDEN[hidden] not in written
    assert "a" in written
    assert "b" in written


@pytest.mark.parametrize(
    "text", ["Grüße, Ελλάδα, 東京\u3000駅, ไทย, עברית, “ok”", "\n\ttabs too", "", "plain"]
)
def test_ordinary_texts_are_left_alone(text):
    assert reveal(text) == tame(text) == revealed(text) == visible(text) == text


@given(st.text())
def test_nothing_hidden_is_left(text):
    assert not any(map(is_hidden, reveal_line(text)))
    assert not any(c not in LINES and is_hidden(c) for c in reveal(text))
    assert not any(c not in LINES and is_hidden(c) for c in revealed(text))


@given(st.text(st.sampled_from("a\\u{}⟦⟧U+↪\n\u202e\u3164\u0000")))
def test_a_question_can_be_read_back(text):
    assert read_back(revealed(text)) == text


@given(st.text(st.characters(exclude_characters="\\")))
def test_a_listed_name_can_be_given_back(text):
    assert hide(reveal_line(text)) == text


def test_only_hidden_characters_are_given_back():
    """What was never written out stays: a path of these letters may exist."""
    assert hide("\\u{61}\\u{2e}\\u{110000}\\u{202e") == "\\u{61}\\u{2e}\\u{110000}\\u{202e"


def test_a_code_point_has_an_end():
    assert reveal("\x1b0\u200bf\U000e0041") == "\\u{1b}0\\u{200b}f\\u{e0041}"
    assert reveal("a\n\tb") == "a\n\tb"
    assert reveal_line("a\n\tb") == "a\\u{a}\\u{9}b"


def test_a_terminal_shows_emoji_and_plots_as_they_are():
    """Models write ⚠️ with a variation selector, and plots of braille have blanks."""
    assert visible("⚠\ufe0f ⠁\u2800⠂ ⟦x⟧") == "⚠\ufe0f ⠁\u2800⠂ ⟦x⟧"
    assert visible("a\x1b[2J\u3164") == "a\\u{1b}[2J\\u{3164}"
    assert reveal("\u2800", PROSE) == "\u2800"


def test_what_was_revealed_stays_as_it_is():
    """A question is shown through the terminal, and its text stands in tables."""
    question = revealed("a\u202e\nb")
    assert visible(question) == question
    assert reveal_line(reveal_line("a\u202e\nb")) == reveal_line("a\u202e\nb")


def test_json_keeps_its_value():
    value = {"a\u3164": "\u202e\n\ufe0f"}
    assert json.loads(json_text(value)) == value


def test_line_breaks_are_not_reported_as_hidden():
    assert hidden_in("a\n\tb") == []


def test_the_reason_of_an_error_is_never_empty():
    """Some errors of the system have no words of it, and some have no words at all."""
    assert (
        reason_of(FileNotFoundError(2, "No such file or directory", "a.txt")) == "No such file or directory"
    )
    assert reason_of(OSError("the archive is cut")) == "the archive is cut"
    assert reason_of(TimeoutError()) == "TimeoutError"
    assert reason_of(ValueError("odd")) == "odd"


def test_a_text_is_cut_to_its_beginning():
    assert cut("abcd", 4) == "abcd"
    assert cut("abcde", 4) == "abcd…"
    assert cut(cut("abcde", 4), 4) == "abcd…"
    assert cut_line(" a\n\tb  c d", 5) == "a b c…"


def test_words_are_listed_as_far_as_they_are_read():
    assert listed([], 2) == ""
    assert listed(["a", "b"], 2) == "a, b"
    assert listed({"a": 1, "b": 2, "c": 3}, 2) == "a, b, …"
    assert listed(["a", "b", "c", "d"], 2, counts=True) == "a, b and 2 more"
    assert listed(["a", "b"], 2, counts=True) == "a, b"


def test_one_thing_is_not_several():
    assert counted(1, "call") == "1 call"
    assert counted(0, "call") == "0 calls"
    assert counted(1, "more entry") == "1 more entry"
    assert counted(1_234, "directory") == "1,234 directories"
    assert counted(2, "copy") == "2 copies"
    assert counted(2, "day") == "2 days"


def test_a_table_has_straight_columns_and_one_line_for_each_row():
    rows = [("name", "size"), ("a\nb", "7"), ("long name", "1,000")]
    assert table(rows, rights={1}).split("\n") == [
        "name        size",
        "a\\u{a}b        7",
        "long name  1,000",
    ]
    assert table([("a", "b"), ("ccc", "")]) == "a    b\nccc"
