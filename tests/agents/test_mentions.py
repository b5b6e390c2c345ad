"""Mentions: what an @ in a message stands for, resolved when it is sent."""

from __future__ import annotations

import pytest

from gramercy.agents.mentions import LONGEST, Mentions, found_mentions
from gramercy.errors import InvalidMessageError
from gramercy.images.base import Answer, ImageFault
from gramercy.journal.base import Facts, NewCall, State
from gramercy.journal.opening import open_journal
from gramercy.providers.base import Message
from gramercy.testing.image import MemoryImage
from gramercy.toolsets.workspace import Workspace


@pytest.fixture(name="project")
def project_fixture(tmp_path):
    """Return a project with some files."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    (tmp_path / "two words.txt").write_text("spaced\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    return tmp_path


@pytest.fixture(name="mentions")
def mentions_fixture(project):
    """Return mentions of files alone."""
    return Mentions(Workspace(project))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see @src/main.py.", [("@src/main.py", "", "src/main.py")]),
        ("(@file:src/main.py:1-2)", [("@file:src/main.py:1-2", "file", "src/main.py:1-2")]),
        ('@file:"two words.txt" and @"two words.txt"!', None),
        ("@error, @result:42; @image?", None),
        ("@symbol:evenp? @symbol:*x*,", None),
        ("mail ann@garden.org or @@x", []),
        ("`@error` and\n```python\n@file:x\n```", []),
        ("@errors @file.py", [("@errors", "", "errors"), ("@file.py", "", "file.py")]),
        ("@", []),
        ("@!", []),
    ],
)
def test_mentions_are_found_as_people_write_them(text, found):
    told = {
        '@file:"two words.txt" and @"two words.txt"!': [
            ('@file:"two words.txt"', "file", "two words.txt"),
            ('@"two words.txt"', "", "two words.txt"),
        ],
        "@error, @result:42; @image?": [
            ("@error", "error", ""),
            ("@result:42", "result", "42"),
            ("@image", "image", ""),
        ],
        "@symbol:evenp? @symbol:*x*,": [
            ("@symbol:evenp?", "symbol", "evenp?"),
            ("@symbol:*x*", "symbol", "*x*"),
        ],
    }
    assert found_mentions(text) == (told[text] if found is None else found)


@pytest.mark.contract("agents.memory.mentions")
def test_a_file_is_told_along_with_the_message(mentions):
    resolved = mentions.resolve("Look at @src/main.py, twice: @src/main.py")
    assert resolved.message == (
        "Look at @src/main.py, twice: @src/main.py\n\n"
        "### @src/main.py: src/main.py\n\n```python\none = 1\ntwo = 2\nthree = 3\n```"
    )
    assert resolved.notes == ()
    lines = mentions.resolve("@file:src/main.py:2-3 and @src/main.py:1")
    assert [each.text for each in lines.attached] == ["two = 2\nthree = 3\n", "one = 1\n"]
    assert "src/main.py, lines 2-3" in lines.message


def test_what_is_in_the_editor_counts_and_not_what_is_on_the_disk(project):
    """Seed 002: a mention of a buffer; unsaved text is what the person sees."""
    workspace = Workspace(project)
    workspace.attach("src/main.py", "unsaved = True\n", "editor")
    assert "unsaved = True" in Mentions(workspace).resolve("@src/main.py").message


def test_a_file_is_read_when_the_message_is_sent(mentions, project):
    mentions.resolve("@src/main.py")
    (project / "src" / "main.py").write_text("changed\n")
    assert "changed" in mentions.resolve("@src/main.py").message


@pytest.mark.contract("agents.memory.mentions-bounds")
def test_what_is_long_is_cut_and_that_is_said(mentions, project):
    """Agents, sessions and context: 50 KB each, truncation marked."""
    (project / "long.txt").write_text("ä line of text\n" * 10_000)
    resolved = mentions.resolve("@long.txt")
    (attached,) = resolved.attached
    assert attached.is_cut
    assert len(attached.text.encode()) <= LONGEST
    assert attached.text.endswith("text\n")
    assert resolved.message.endswith("of 160,000 bytes are shown]")
    assert resolved.notes[0].startswith("@long.txt was cut: the first 51,")


@pytest.mark.contract("agents.memory.mentions-bounds")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("@picture.png", "PNG"),
        ("@file:missing.txt", "missing.txt"),
        ("@file:../secret", "outside the project"),
        ("@file", "say which"),
        ("@src", "directory"),
        ("@file:src/main.py:7-9", "has lines 1 to 3"),
        ("@symbol:car", "there is no image here"),
        ("@result", "no tool has given a result yet"),
        ("@result:x", "a result has the number of its call"),
        ("@error", "there was no error yet"),
    ],
)
def test_what_cannot_be_told_holds_the_message_back(mentions, text, why):
    """Bad input: a binary file that is mentioned gives one clear line."""
    with pytest.raises(InvalidMessageError, match=why) as raised:
        mentions.resolve(f"Look at {text}")
    assert str(raised.value).startswith(f"{text}: ")
    assert "\n" not in str(raised.value)


def test_a_file_of_keys_is_told_only_by_its_kind(mentions, project):
    """Pasted text may have an @ in front of anything."""
    (project / ".env").write_text("KEY=abc\n")
    with pytest.raises(InvalidMessageError, match=r"@\.env: keys are kept .* say @file:\.env"):
        mentions.resolve("look at @.env")
    assert "KEY=abc" in mentions.resolve("look at @file:.env").message


def test_every_fault_is_named_at_once(mentions):
    with pytest.raises(InvalidMessageError) as raised:
        mentions.resolve("@picture.png and @error")
    assert len(str(raised.value).splitlines()) == 2


def test_a_bare_word_that_is_no_file_is_text(mentions):
    resolved = mentions.resolve("ask @ann about @src/mian.py")
    assert resolved.message == "ask @ann about @src/mian.py"
    assert resolved.notes == (
        "@ann is no file of the project, and was sent as text",
        "@src/mian.py is no file of the project, and was sent as text: did you mean @src/main.py?",
    )


def test_a_message_mentions_only_so_much(mentions, project):
    for number in range(21):
        (project / f"f{number}.txt").write_text("x")
    with pytest.raises(InvalidMessageError, match="can mention 20 things, and this one has 21"):
        mentions.resolve(" ".join(f"@f{number}.txt" for number in range(21)))


@pytest.mark.contract("agents.memory.mentions")
def test_names_states_and_errors_of_the_image_are_told(project):
    """Agents: ours also mentions images, checkpoints, results, errors."""
    fault = ImageFault("NameError", "there is no x")
    image = MemoryImage(
        name="python",
        answers={
            "describe": Answer(ok=True, text="a function"),
            "definitions": Answer(ok=True, data={"functions": []}),
        },
    )
    image.evaluate("x = 1")
    mentions = Mentions(Workspace(project), [image])
    assert "### @symbol:json.loads: json.loads in python\n\n```\na function\n```" in (
        mentions.resolve("@symbol:json.loads").message
    )
    assert "x = 1" in mentions.resolve("@image").message
    assert "the image python" in mentions.resolve("@image:python").message
    assert "x" in mentions.resolve("@checkpoint:c1").message
    assert "c1 start" in mentions.resolve("@checkpoint").message
    image.evaluate("1 / 0")
    assert "ZeroDivisionError" in mentions.resolve("@error").message
    with pytest.raises(InvalidMessageError, match="@image:lisp: there is no image 'lisp': there are python"):
        mentions.resolve("@image:lisp")
    with pytest.raises(InvalidMessageError, match="@checkpoint:c77"):
        mentions.resolve("@checkpoint:c77")
    image.answers = {"describe": Answer(ok=False, error=fault)}
    with pytest.raises(InvalidMessageError, match="@symbol:x: there is no x"):
        mentions.resolve("@symbol:x")
    assert mentions.completions("@checkpoint:")[0] == "@checkpoint:c1"
    assert mentions.completions("@im") == ["@image"]


def test_results_of_tools_are_told(mentions, tmp_path):
    journal = open_journal(str(tmp_path / "journal.db"))
    journal.note(NewCall("1", "read_file", "safe", {}), State.DONE, Facts(content="the whole text"))
    key = journal.records()[0].key
    said = [Message("tool", "short", call_id="1"), Message("tool", "it broke", call_id="2", is_error=True)]
    mentions = Mentions(journal=journal, conversation=lambda: said)
    assert "it broke" in mentions.resolve("@result").message
    assert "the last failed call" in mentions.resolve("@error").message
    assert (
        f"result of call {key}, read_file\n\n```\nthe whole text"
        in mentions.resolve(f"@result:{key}").message
    )
    with pytest.raises(InvalidMessageError, match="the journal has no call 99"):
        mentions.resolve("@result:99")
    journal.close()


def test_lines_are_those_of_an_editor(project, mentions):
    """Lisp files have form feeds between their sections, which Python takes for ends of lines."""
    (project / "a.lisp").write_text("(one)\n\f\n(three)\u2028; still\n(four)")
    found = mentions.resolve("@a.lisp:3 @a.lisp:2-4")
    assert [each.text for each in found.attached] == [
        "(three)\u2028; still\n",
        "\f\n(three)\u2028; still\n(four)",
    ]


@pytest.mark.parametrize("digits", ["9" * 20, "9" * 5_000])
def test_numbers_that_nothing_has_are_answered(project, mentions, digits):
    journal = open_journal(str(project.parent / f"numbers-{len(digits)}.db"))
    with pytest.raises(InvalidMessageError, match="a result has the number of its call"):
        Mentions(journal=journal).resolve(f"@result:{digits}")
    journal.close()
    told = mentions.resolve(f"@src/main.py:{digits}")
    assert told.attached == ()
    assert "was sent as text" in told.notes[0]
    assert len(told.notes[0]) < 200


def test_a_file_outside_of_the_project_is_not_suggested_for_itself(project, mentions):
    (project / "out").symlink_to("/etc/hostname")
    assert mentions.resolve("@out").notes == ("@out is no file of the project, and was sent as text",)
