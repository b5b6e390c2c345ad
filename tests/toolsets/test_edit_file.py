"""edit_file through the guard: one place is changed or nothing is, and the answer says where or why not."""

from __future__ import annotations

import json
import os
import sys

import pytest

from gramercy.execution.approval import Approved, Modified
from gramercy.toolsets import editing, hunks

POEM = "".join(f"line {number}\n" for number in range(1, 31))
CODE = """\
def first(x):
    y = x + 1
    return y


def second(x):
    y = x + 1
    return y * 2
"""


@pytest.fixture
def file(project):
    path = project / "f.py"
    path.write_text(CODE)
    return path


def asking(desk, approver):
    return type(desk)(desk.image, desk.workspace, approver=approver)


def edit(desk, old, new, path="f.py", **more):
    return desk.text("edit_file", path=path, old=old, new=new, **more)


def refused(desk, old, new="x", path="f.py", **more):
    """Return why an edit was refused; nobody must have been asked."""
    asked = []
    text = asking(desk, lambda *_: asked.append(1)).failure("edit_file", path=path, old=old, new=new, **more)
    assert not asked, text
    return text


@pytest.mark.contract("day.files.edit-once")
def test_a_text_that_is_there_once_is_replaced_and_the_place_told(paper_desk, file):
    """edit_file: old text to new text, exactly one match."""
    assert edit(paper_desk, "y * 2", "y * 3") == "Edited f.py:8 (-1 +1 line)"
    assert file.read_text() == CODE.replace("y * 2", "y * 3")
    answer = edit(paper_desk, "    return y\n\n", "    y += 1\n    return y\n\n")
    assert answer == "Edited f.py:3 (-0 +1 line)"
    assert (
        edit(paper_desk, "def first(x):\n    y = x + 1\n", "def first(y):\n") == "Edited f.py:1 (-2 +1 lines)"
    )


@pytest.mark.contract("day.files.edit-cost")
def test_a_line_of_a_long_file_costs_a_few_hundred_characters(paper_desk, project):
    """Working day: a one-line change of a 30 KB file costs a few hundred characters, not 58,000."""
    text = "".join(f"def function_{n}(argument):\n    return argument + {n}\n\n\n" for n in range(550))
    (project / "long.py").write_text(text)
    assert len(text) > 30_000
    arguments = {"path": "long.py", "old": "return argument + 417\n", "new": "return argument + 418\n"}
    answer = paper_desk.text("edit_file", **arguments)
    assert len(json.dumps({"name": "edit_file", "arguments": arguments})) + len(answer) <= 300
    assert (project / "long.py").read_text() == text.replace("+ 417", "+ 418")


@pytest.mark.contract("day.files.edit-ambiguous")
def test_every_candidate_is_listed_with_its_line(paper_desk, file):
    """edit_file: exactly one match, else every candidate with its line."""
    text = refused(paper_desk, "y = x + 1")
    assert "old is in f.py 2 times" in text
    assert "2:     y = x + 1   (in: def first(x):)\n7:     y = x + 1   (in: def second(x):)" in text
    assert "near_line" in text
    assert file.read_text() == CODE
    assert edit(paper_desk, "y = x + 1", "y = x", near_line=6) == "Edited f.py:7 (-1 +1 line)"
    assert file.read_text() == "y = x".join(CODE.rsplit("y = x + 1", 1))


def test_candidates_with_lines_of_their_own_are_told_apart_by_these(paper_desk, file):
    del file
    assert "3:     return y\n8:     return y * 2" in refused(paper_desk, "return y")


def test_a_line_between_two_candidates_does_not_decide(paper_desk, project):
    (project / "f.py").write_text("a\nb\na\n")
    assert "2 times" in refused(paper_desk, "a", near_line=2)


def test_many_candidates_are_counted(paper_desk, project):
    """Answers are bounded."""
    (project / "f.py").write_text("same " * 100 + "\n" + "same\n" * 5_000)
    text = refused(paper_desk, "same")
    assert "5100 times" in text
    assert "… 5080 more" in text
    assert len(text) < 4_000


def test_a_text_that_overlaps_itself_is_not_unique(paper_desk, project):
    (project / "f.py").write_text("aaa\n")
    assert "2 times" in refused(paper_desk, "aa")


def test_all_places_are_changed_when_that_is_asked_for(paper_desk, file):
    answer = edit(paper_desk, "y = x + 1", "y = 1", all=True)
    assert answer == "Edited 2 places in f.py (-2 +2 lines): 2, 7"
    assert file.read_text() == CODE.replace("y = x + 1", "y = 1")


@pytest.mark.contract("day.files.edit-missing")
@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("def first(x):\n\ty = x + 1\n", "line 2 is indented by 4 spaces, in old by 1 tab"),
        ("      return y * 2\n", "line 8 is indented by 4 spaces, in old by 6 spaces"),
        (
            "    return y  \n\n",
            "Only white space differs on lines 3 to 4: line 3 does not have spaces or tabs",
        ),
        ("   2      y = x + 1\n   3      return y\n", "Without the line numbers it is on line 2"),
        ("def second(x):\n    y = x + 2\n", "The closest is lines 6 to 7; what differs is on line 7:"),
        ("    return z * 2", "The closest is line 8; what differs is on line 8:\n   8      return y * 2"),
        ("nothing of the kind", "None of its 8 lines is like it"),
    ],
)
def test_of_a_text_that_is_not_there_the_closest_is_shown(paper_desk, file, old, hint):
    """edit_file: no match says so with the closest place, so that the next try succeeds."""
    text = refused(paper_desk, old)
    assert text.startswith("edit_file was not run: old is not in f.py.")
    assert hint in text
    assert file.read_text() == CODE


def test_lines_that_are_everywhere_do_not_decide_what_is_closest(paper_desk, project):
    """A closing bracket says little about where."""
    block = "begin\n{\n}\n"
    (project / "f.py").write_text(f"{block * 5}first\nrare line\n{{\n}}\n{block * 5}")
    assert "The closest is lines 17 to 20" in refused(paper_desk, "rare line\nother\n{\n}\n")


def test_a_last_line_without_a_newline_is_told(paper_desk, project):
    (project / "f.py").write_text("one\ntwo")
    assert "line 2 ends without a newline, old with one" in refused(paper_desk, "two\n")
    assert edit(paper_desk, "two", "three") == "Edited f.py:2 (-1 +1 line)"
    assert (project / "f.py").read_bytes() == b"one\nthree"


def test_the_closest_place_in_a_huge_file_is_found_soon(paper_desk, project):
    """Never a hang: the look for similar lines is bounded."""
    (project / "f.py").write_text("".join(f"value_{n} = {n * 7919 % 1000003}\n" for n in range(200_000)))
    assert len(refused(paper_desk, "value_7 == 55433\nvalue_9 == 3")) < 2_000


def steps_of(text, old):
    """Count the lines of our own code that run to tell what is closest: a measure that no clock disturbs."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename != editing.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assert not editing.matches(text, old)
        editing.closest(text, old)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.contract("trust.paths.linear")
@pytest.mark.parametrize(
    "line", ["x = 1\n", "item {kind}\n", "line {number}\n", "x = 1\r\nx = 1\n"], ids=repr
)
def test_to_tell_what_is_closest_to_a_long_text_takes_bounded_work(line):
    """A text of 2,000 lines that is not in a file of 5,000: where lines are alike it took half a minute."""
    every = [line.format(kind=number % 7, number=number) for number in range(5_000)]
    text, old = "".join(every), "".join(every[:2_000])
    # Without a bound every line of the one meets every line of the other: ten million.
    assert steps_of(text, f"{old}other\n") < 4 * editing.MOST_PAIRS


def test_an_empty_text_is_refused_with_what_to_do(paper_desk, file):
    """edit_file: a new file is for write_file."""
    assert "write_file" in refused(paper_desk, "", path="new.py")
    assert "write_file" in refused(paper_desk, "")
    assert "are the same" in refused(paper_desk, "y * 2", "y * 2")
    assert not (file.parent / "new.py").exists()


@pytest.mark.contract("day.files.edit-script")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"one\r\ntwo\r\n", b"one\r\nzwei\r\ndrei\r\n"),
        ("grün\ntwo\n".encode("latin-1"), "grün\nzwei\ndrei\n".encode("latin-1")),
        (b"\xef\xbb\xbfone\ntwo\n", b"\xef\xbb\xbfone\nzwei\ndrei\n"),
        (
            b"\xff\xfe" + "one\ntwo\n".encode("utf-16-le"),
            b"\xff\xfe" + "one\nzwei\ndrei\n".encode("utf-16-le"),
        ),
        (b"one\ntwo\r\nthree\n", b"one\nzwei\r\ndrei\r\nthree\n"),
        (b"one\ntwo", b"one\nzwei\ndrei"),
    ],
)
def test_encoding_and_line_ends_are_kept(paper_desk, project, before, after):
    """Paths and encodings as the file tools do."""
    (project / "f.py").write_bytes(before)
    edit(paper_desk, "two", "zwei\ndrei")
    assert (project / "f.py").read_bytes() == after


def test_lines_with_both_kinds_of_ends_are_found_by_plain_newlines(paper_desk, project):
    """A model does not see which lines end in CRLF."""
    (project / "f.py").write_bytes(b"one\ntwo\r\nthree\r\nfour\n")
    edit(paper_desk, "two\nthree\n", "2\n3\n")
    assert (project / "f.py").read_bytes() == b"one\n2\r\n3\r\nfour\n"


def test_a_character_that_the_file_cannot_hold_is_refused_before_anybody_is_asked(paper_desk, project):
    (project / "f.py").write_bytes("grün\n".encode("latin-1"))
    assert "is written in latin-1" in refused(paper_desk, "gr", "€")


@pytest.mark.contract("day.files.edit-bad-files")
def test_what_is_no_text_file_of_the_project_is_refused(paper_desk, project):
    """Bad input: what, which, what to try."""
    (project / "data").write_bytes(b"\0\1\2")
    (project / "folder").mkdir()
    os.mkfifo(project / "pipe")
    (project / "huge").write_bytes(b"x" * (21 * 1024 * 1024))
    (project / "f.py").write_text("x")
    assert "not a text file" in refused(paper_desk, "a", path="data")
    assert "is a directory" in refused(paper_desk, "a", path="folder")
    assert "is a pipe, not a file" in refused(paper_desk, "a", path="pipe")
    assert "too large" in refused(paper_desk, "a", path="huge")
    assert "did you mean f.py?" in refused(paper_desk, "a", path="g.py")
    assert "outside the project" in refused(paper_desk, "a", path="../other")
    assert "belongs to git" in refused(paper_desk, "a", path=".git/config")
    paper_desk.workspace.attach("f.py", "typing", "an editor")
    assert "unsaved changes" in refused(paper_desk, "x", "y")


@pytest.mark.contract("day.files.edit-stale")
def test_a_file_that_changes_elsewhere_during_the_approval_is_asked_about_again(paper_desk, file):
    """The same seal and stale check as propose_file_edit."""
    questions = []

    def meddle(_tool, _arguments, request):
        questions.append((request.changes, request.effect))
        if len(questions) == 1:
            file.write_text(f"# more\n{CODE}")
        return Approved()

    answer = asking(paper_desk, meddle).text("edit_file", path="f.py", old="y * 2", new="y * 3")
    assert [changes for changes, _ in questions] == [(), ("what the call acts on has changed",)]
    assert "@@ -6,4 +6,4 @@" in questions[1][1]
    assert answer == "Edited f.py:9 (-1 +1 line)"
    assert file.read_text() == f"# more\n{CODE}".replace("y * 2", "y * 3")


def test_a_text_that_goes_away_during_the_approval_is_not_replaced(paper_desk, file):
    def meddle(_tool, _arguments):
        file.write_text("theirs\n")
        return Approved()

    desk = asking(paper_desk, meddle)
    assert "old is not in f.py" in desk.failure("edit_file", path="f.py", old="y * 2", new="y * 3")
    assert file.read_text() == "theirs\n"


def test_a_file_that_changes_before_the_write_is_left_alone(paper_desk, file, monkeypatch):
    """Between approval and write: nothing of somebody else is lost."""
    write = paper_desk.workspace.write

    def late(path, text, **more):
        file.write_text("theirs\n")
        return write(path, text, **more)

    monkeypatch.setattr(paper_desk.workspace, "write", late)
    text = paper_desk.failure("edit_file", path="f.py", old="y * 2", new="y * 3")
    assert "was changed by somebody else meanwhile" in text
    assert file.read_text() == "theirs\n"
    assert [entry.name for entry in file.parent.iterdir()] == ["f.py"]


def taking(*numbers):
    """Return a person who takes these hunks."""

    def approver(tool, arguments):
        before, after = tool.proposed_edit(arguments)
        note = hunks.applied_note(before, after, numbers)
        taken = hunks.accepted(before, after, numbers)
        return Modified(tool.with_edit(arguments, before, taken), note=note)

    return approver


@pytest.mark.contract("day.files.edit-hunks")
@pytest.mark.parametrize("chosen", [(1,), (2,), (3,), (1, 3), (2, 3), (1, 2), (1, 2, 3)])
def test_a_person_takes_some_hunks_of_an_edit(paper_desk, project, chosen):
    """All edits through the same hunk approval: changed, removed and added lines."""
    (project / "f.py").write_text(POEM)
    old = "".join(f"line {number}\n" for number in range(3, 21))
    new = old.replace("line 5\n", "FIVE\n").replace("line 10\n", "").replace("line 15\n", "line 15\nmore\n")
    result = asking(paper_desk, taking(*chosen)).call("edit_file", path="f.py", old=old, new=new)
    assert result.success, result.content
    expected = hunks.accepted(POEM, POEM.replace(old, new), chosen)
    assert (project / "f.py").read_text() == expected
    assert "A person accepted hunk" in result.content


@pytest.mark.parametrize("chosen", [(1,), (3,), (2, 5)])
def test_a_person_takes_some_places_of_a_change_everywhere(paper_desk, project, chosen):
    (project / "f.py").write_text("same\nother\n" * 5)
    desk = asking(paper_desk, taking(*chosen))
    result = desk.call("edit_file", path="f.py", old="same\n", new="new\n", all=True)
    assert result.success, result.content
    rows = ["new\nother\n" if number in chosen else "same\nother\n" for number in range(1, 6)]
    assert (project / "f.py").read_text() == "".join(rows)


def test_lines_added_to_the_beginning_can_be_taken(paper_desk, project):
    (project / "f.py").write_text("a\nb\nc\nd\n")
    desk = asking(paper_desk, taking(1))
    assert desk.call("edit_file", path="f.py", old="a\nb\nc\n", new="0\na\nb\nC\n").success
    assert (project / "f.py").read_text() == "0\na\nb\nc\nd\n"


def test_the_names_that_models_know_from_other_tools_are_taken(paper_desk, file):
    """A refusal for a name would cost a turn."""
    call = {"file_path": "f.py", "old_string": "y = x + 1", "new_string": "y = 1", "replace_all": True}
    text = paper_desk.text("edit_file", **call)
    assert "file_path as path" in text
    assert file.read_text() == CODE.replace("y = x + 1", "y = 1")
    assert "old_string" in paper_desk.failure("edit_file", path="f.py", old="a", old_string="b", new="c")


def test_an_edit_can_be_taken_back(paper_desk, file):
    """Undo covers files written through tools."""
    edit(paper_desk, "y * 2", "y * 3")
    paper_desk.workspace.undo_last_write()
    assert file.read_text() == CODE


def test_nothing_is_changed_without_an_approval(paper_desk, file):
    """Decision 6."""
    desk = asking(paper_desk, None)
    assert "nobody can be asked" in desk.failure("edit_file", path="f.py", old="y * 2", new="y")
    assert file.read_text() == CODE
