"""Messages as they are written: lines, blocks, pastes; what is too long is said before it is sent."""

from __future__ import annotations

import pytest

from gramercy.errors import InvalidMessageError
from gramercy.ui.cli import composing
from gramercy.ui.cli.composing import LONGEST_MESSAGE, Composer, MessageCompleter


@pytest.fixture(autouse=True)
def typed_by_hand(monkeypatch):
    """No line waits: everything is typed."""
    monkeypatch.setattr(composing, "input_waits", lambda: False)


def composer(*lines):
    waiting = iter(lines)

    def read(_prompt):
        line = next(waiting, None)
        if line is None:
            raise EOFError
        return line

    return Composer(read)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["one line"], "one line"),
        (["one \\", "two \\", "three"], "one \ntwo \nthree"),
        (['"""', "a", "", "b", '"""'], "a\n\nb"),
        (['"""begins', 'ends"""'], "begins\nends"),
        (['say """this""" now'], 'say """this""" now'),
        (["pasted\nas one"], "pasted\nas one"),
    ],
)
def test_a_message_is_what_was_written(lines, message):
    assert composer(*lines).read("> ") == message


def test_lines_of_a_paste_that_wait_belong_to_one_message(monkeypatch):
    waits = iter([True, True, False])
    monkeypatch.setattr(composing, "input_waits", lambda: next(waits))
    monkeypatch.setenv("TERM", "dumb")
    assert composer("one", "two", "three", "four").read("> ") == "one\ntwo\nthree"


def test_lines_that_wait_after_a_command_are_entries_of_their_own(monkeypatch):
    monkeypatch.setattr(composing, "input_waits", lambda: True)
    assert composer("/undo", "next").read("> ") == "/undo"


@pytest.mark.contract("agents.chat.writing")
@pytest.mark.parametrize(
    "lines", [["x" * 4_000_001], ['"""', *["x" * 1_000_000] * 5], ["x" * 3_999_999 + "\\", "yy"]]
)
def test_an_enormous_paste_is_refused_with_a_way_out(lines):
    """Bad input: enormous pasted text."""
    with pytest.raises(InvalidMessageError, match="longer than 4,000,000 characters: save it as a file"):
        composer(*lines).read("> ")


def test_mentions_of_all_kinds_are_completed(tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "beds.py").write_text("")
    monkeypatch.setattr(composing, "before_cursor", str)
    completer = MessageCompleter(
        tmp_path,
        ("/mode", "/model"),
        lambda command: {"/mode": ["ask", "plan"]}.get(command, []),
        lambda text: [each for each in ("@symbol:", "@error") if each.startswith(text)],
    )

    def ways(text, line=None):
        monkeypatch.setattr(composing, "before_cursor", lambda: line or text)
        return [way for number in range(5) if (way := completer(text, number)) is not None]

    assert ways("@sr") == ["@src/beds.py"]
    assert ways("@file:sr") == ["@file:src/beds.py"]
    assert ways("@e") == ["@error"]
    assert ways("/mo") == ["/mode", "/model"]
    assert ways("p", "/mode p") == ["plan"]
    assert ways("src/b", "/add src/b") == ["src/beds.py"]
    assert ways("word") == []


def test_the_rest_of_a_paste_that_is_too_long_is_not_said(monkeypatch):
    """On a terminal that does not bracket pastes, its lines wait one by one."""
    waiting = ["x" * (LONGEST_MESSAGE // 2)] * 3 + ["the rest", "and its end"]
    monkeypatch.setattr(composing, "_is_pasted", lambda: bool(waiting))
    composer = Composer(lambda _: waiting.pop(0))
    with pytest.raises(InvalidMessageError, match="longer than"):
        composer.read("> ")
    assert waiting == []
