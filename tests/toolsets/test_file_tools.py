"""The file tools through the guard: what a model reads, what a person approves, what is applied."""

from __future__ import annotations

import threading
from time import perf_counter

import pytest

from gramercy.execution.approval import Approved, Denied, Modified
from gramercy.toolsets import files, hunks
from gramercy.toolsets.files import MOST_CHARACTERS
from tests.support import png

ORIGINAL = "one\ntwo\nthree\nfour\nfive\n"
MODIFIED = "one\nTWO\nthree\nfour\nfive\nsix\n"
EVIL = r"(a*)*(?<!a)b\1"


@pytest.fixture
def file(project):
    path = project / "f.txt"
    path.write_text(ORIGINAL)
    return path


def asking(desk, approver):
    return type(desk)(desk.image, desk.workspace, approver=approver)


def proposal(**changes):
    return {"path": "f.txt", "original": ORIGINAL, "modified": MODIFIED, "description": "louder"} | changes


@pytest.mark.usefixtures("file")
def test_a_file_is_read_as_it_is(paper_desk):
    """Decision 2, read_file."""
    assert paper_desk.text("read_file", path="f.txt") == ORIGINAL


@pytest.mark.parametrize("name", ["⚠\ufe0f.md", "a\u202eb", "two\nlines", "de\ufe0fep/inner", "ends \u3164"])
def test_a_file_opens_by_the_name_that_is_listed(paper_desk, project, name):
    """Hidden characters are written out in lists, and who reads a list has no other name."""
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("needle\n")
    rows = paper_desk.text("list_files", path=".").splitlines()
    listed = next(row for row in rows if "\\u{" in row).strip().partition("  ")[0]
    listed = f"{listed}inner" if listed.endswith("/") else listed
    rows = paper_desk.text("search_files", pattern="needle").splitlines()
    found = next(row for row in rows if "\\u{" in row).partition(":")[0]
    for spelling in (listed, found, name):
        assert paper_desk.text("read_file", path=spelling) == "needle\n"


def test_a_name_in_the_letters_of_a_list_comes_first(paper_desk, project):
    """A file may be named like the written-out form of another one."""
    (project / "a\u202e").write_text("hidden\n")
    (project / "a\\u{202e}").write_text("literal\n")
    assert paper_desk.text("read_file", path="a\\u{202e}") == "literal\n"
    assert paper_desk.text("read_file", path="a\u202e") == "hidden\n"


def test_a_listed_name_is_judged_by_its_real_one(paper_desk, project):
    """No spelling leads out of the project or into git."""
    (project / ".git").mkdir()
    (project / ".git" / "c\ufe0f").write_text("x")
    assert "belongs to git" in paper_desk.failure("read_file", path=".git/c\\u{fe0f}")
    for path in ("\\u{0}", "a\\u{d800}", "../\\u{fe0f}"):
        paper_desk.failure("read_file", path=path)


def test_a_long_file_is_shown_in_parts_that_can_be_continued(paper_desk, project):
    """Truncation is announced and can be continued."""
    lines = [f"line {n} {'x' * 90}\n" for n in range(1, 2001)]
    (project / "long").write_text("".join(lines))
    text = paper_desk.text("read_file", path="long")
    assert len(text) < MOST_CHARACTERS + 200
    following = int(text.rsplit("start=", 1)[1].split()[0])
    assert text.startswith("".join(lines[: following - 1]))
    assert f"lines 1 to {following - 1} of 2000 lines shown; read_file with" in text
    assert paper_desk.text("read_file", path="long", start=following).startswith(f"line {following} ")
    assert paper_desk.text("read_buffer", start=following).startswith(f"line {following} ")
    assert "read_buffer with start=" in paper_desk.text("read_buffer", start=following)
    assert paper_desk.text("read_buffer", start=2000) == lines[-1]


def test_an_endless_line_is_shown_in_part(paper_desk, project):
    """Never an unbounded result."""
    (project / "wide").write_text("y" * 500_000)
    text = paper_desk.text("read_file", path="wide")
    assert f"{MOST_CHARACTERS:,} of 500,000 characters of line 1 of 1 lines shown]" in text
    assert len(text) < MOST_CHARACTERS + 200


@pytest.mark.contract("day.files.read-lines")
@pytest.mark.usefixtures("file")
def test_lines_of_a_file_are_read_with_their_numbers(paper_desk):
    """read_file with line numbers on request."""
    assert paper_desk.text("read_file", path="f.txt", start=2, end=3) == "two\nthree\n"
    assert paper_desk.text("read_file", path="f.txt", start=4, numbers=True) == "   4  four\n   5  five\n"
    assert "f.txt has 5 lines" in paper_desk.failure("read_file", path="f.txt", start=6)


@pytest.mark.contract("day.files.read-lines")
@pytest.mark.parametrize("numbers", [False, True])
def test_a_long_file_is_read_to_its_end_in_whole_lines(paper_desk, project, numbers):
    """read_file: at most 8,000 characters, whole lines, true counts, and the way to read on."""
    lines = [f"{n} {'x' * (n % 300)}\n" for n in range(1, 501)]
    (project / "long").write_text("".join(lines))
    start, read = 1, ""
    while start:
        text = paper_desk.text("read_file", path="long", start=start, numbers=numbers)
        assert len(text) <= 8_000
        part, _, note = text.partition("\n… [")
        read += part
        following = int(note.split("start=")[1].split()[0]) if "start=" in note else 0
        assert not note or note.startswith(f"lines {start} to {(following or 501) - 1} of 500 lines shown")
        start = following
    shown = [f"{n:>4}  {line}" for n, line in enumerate(lines, 1)] if numbers else lines
    assert read == "".join(shown)


@pytest.mark.contract("day.files.read-pictures")
def test_a_picture_is_shown(paper_desk, project):
    """read_file: images shown."""
    pictures = {
        "a.png": (png(6, 4), "image/png"),
        "b": (b"GIF89a\x03\0\x02\0\0\0\0\x2c\0;", "image/gif"),
        "c.txt": (png(2, 2), "image/png"),
    }
    for name, (data, mime) in pictures.items():
        (project / name).write_bytes(data)
        result = paper_desk.call("read_file", path=name)
        assert result.success, result.content
        (block,) = result.metadata["blocks"]
        assert (block.data, block.mime_type) == (data, mime)
    assert paper_desk.text("read_file", path="a.png") == f"a.png: 6x4 px, PNG {len(png(6, 4))} bytes"


@pytest.mark.contract("day.files.read-pictures")
def test_a_drawing_in_svg_is_read_as_text(paper_desk, project):
    """read_file: svg as text."""
    (project / "a.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    assert paper_desk.text("read_file", path="a.svg").startswith("<svg")


@pytest.mark.contract("day.files.read-pictures")
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (png(6, 4)[:-20], "cannot be shown: the PNG is broken or cut"),
        (
            png(10_000, 10_000, pixels=b""),
            "10000x10000 px, PNG 65 bytes, is too large to be shown: 3,750,000 bytes",
        ),
        (png(6, 4) + b"\0" * 5_000_000, "is too large to be shown"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "cannot be shown: the JPEG is cut"),
    ],
)
def test_a_picture_that_no_client_could_show_is_refused(paper_desk, project, data, told):
    """Bad input: a picture of 100 megapixels, of many bytes, and a broken one."""
    (project / "a.png").write_bytes(data)
    text = paper_desk.failure("read_file", path="a.png")
    assert told in text
    assert len(text) < 300


@pytest.mark.contract("day.files.read-binary")
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\0\1\2", "binary data, 3 bytes"),
        (b"SQLite format 3\0" + b"\0" * 84, "an SQLite database, 100 bytes"),
        (b"PK\x03\x04\0\0", "a ZIP archive, 6 bytes"),
        (b"\xa7\x0d\x0d\x0a\0\0", "compiled Python (pyc), 6 bytes"),
        (b"x" * 257 + b"ustar\0", "a tar archive, 263 bytes"),
    ],
)
def test_of_a_file_that_is_no_text_it_is_told_what_it_is(paper_desk, project, data, told):
    """Bad input: binary files; what, how big, what to try."""
    (project / "data").write_bytes(data)
    text = paper_desk.failure("read_file", path="data")
    assert f"data is not a text file but {told}: look into it by evaluating code" in text


@pytest.mark.usefixtures("file")
def test_lines_of_a_buffer_are_counted_from_one_and_included(paper_desk):
    """Decision 2, read_buffer(buffer, start, end)."""
    paper_desk.text("read_file", path="f.txt")
    assert paper_desk.text("read_buffer", start=2, end=3) == "two\nthree\n"
    assert paper_desk.text("read_buffer", buffer="f.txt", end=1) == "one\n"
    assert paper_desk.text("read_buffer", end=99) == ORIGINAL


@pytest.mark.parametrize("lines", [{"start": 9}, {"start": 3, "end": 2}, {"start": 0}, {"end": -1}])
@pytest.mark.usefixtures("file")
def test_lines_that_are_not_there_are_refused(paper_desk, lines):
    """Bad input: a clear error."""
    paper_desk.text("read_file", path="f.txt")
    assert paper_desk.failure("read_buffer", **lines)


def test_an_empty_file_is_read_as_nothing(paper_desk, project):
    """Bad input that is none."""
    (project / "empty").touch()
    assert paper_desk.text("read_file", path="empty") == ""
    assert paper_desk.text("read_buffer", buffer="empty") == ""


def test_a_buffer_shows_the_file_as_it_is_now(paper_desk, file):
    """Workspace: files that change under the reader."""
    paper_desk.text("read_file", path="f.txt")
    file.write_text("changed\n")
    assert paper_desk.text("read_buffer") == "changed\n"


@pytest.mark.contract("decision.02.buffer-is-document")
@pytest.mark.usefixtures("file")
def test_a_buffer_shows_unsaved_text(paper_desk):
    """Decision 2: an open document with its unsaved text."""
    paper_desk.workspace.attach("f.txt", "typing", "an editor")
    assert paper_desk.text("read_buffer") == "typing"
    assert paper_desk.text("search_in_buffer", pattern="typ") == "1: typing"


@pytest.mark.usefixtures("file")
def test_matching_lines_come_with_their_numbers(paper_desk):
    """Decision 2, search_in_buffer."""
    assert paper_desk.text("search_in_buffer", pattern="t", buffer="f.txt") == "2: two\n3: three"
    assert paper_desk.text("search_in_buffer", pattern="t", all_matches=False) == "2: two"
    assert paper_desk.text("search_in_buffer", pattern="^f.*e$", regex=True) == "5: five"
    assert "No line of f.txt matches" in paper_desk.text("search_in_buffer", pattern="^f")


@pytest.mark.usefixtures("file")
def test_a_pattern_that_is_none_is_refused(paper_desk):
    """Bad input: a clear error."""
    text = paper_desk.failure("search_in_buffer", pattern="(", regex=True, buffer="f.txt")
    assert "is not a regular expression" in text


def test_a_catastrophic_pattern_does_not_hang(paper_desk, project, monkeypatch):
    """Never a hang: one line costs little, and many are given up together."""
    (project / "evil").write_text("a" * 5000 + "!\n")
    paper_desk.text("search_in_buffer", pattern=EVIL, regex=True, buffer="evil")
    (project / "evil").write_text(("a" * 40 + "!\n") * 100_000)
    monkeypatch.setattr(files, "SEARCH_SECONDS", 0.5)
    started = perf_counter()
    text = paper_desk.failure("search_in_buffer", pattern=EVIL, regex=True, buffer="evil")
    assert "make the pattern simpler" in text
    assert perf_counter() - started < 5


def test_more_matches_than_are_shown_are_counted(paper_desk, project):
    """Truncation is announced."""
    (project / "many").write_text("x\n" * 1000)
    assert paper_desk.text("search_in_buffer", pattern="x", buffer="many").endswith("… 800 more lines match")


def test_a_written_file_is_reported_as_in_the_contract(paper_desk, project):
    """Seed 000, write_file: Wrote N bytes to PATH."""
    assert paper_desk.text("write_file", path="new.txt", content="grüße\n") == "Wrote 8 bytes to new.txt"
    assert (project / "new.txt").read_text("utf-8") == "grüße\n"


@pytest.mark.contract("002.dangerous.examples")
@pytest.mark.parametrize("tool", ["write_file", "propose_file_edit"])
def test_nothing_is_written_without_an_approval(paper_desk, file, tool):
    """Decision 6."""
    arguments = proposal() if tool == "propose_file_edit" else {"path": "f.txt", "content": "x"}
    assert "nobody can be asked" in asking(paper_desk, None).failure(tool, **arguments)
    assert "User denied" in asking(paper_desk, lambda *_: Denied("no")).failure(tool, **arguments)
    assert file.read_text() == ORIGINAL


def test_an_approved_edit_is_applied_and_shown(paper_desk, file):
    """Decision 12."""
    text = paper_desk.text("propose_file_edit", **proposal())
    assert file.read_text() == MODIFIED
    assert text.startswith(
        "Applied 2 hunks to f.txt:\n--- a/f.txt\n+++ b/f.txt\n@@ -1,5 +1,6 @@\n one\n-two\n+TWO\n"
    )


def test_a_proposal_that_changes_nothing_writes_nothing(paper_desk, file):
    """Decision 12."""
    before = file.stat().st_ino
    assert "already has that text" in paper_desk.text("propose_file_edit", **proposal(modified=ORIGINAL))
    assert file.stat().st_ino == before


@pytest.mark.contract("decision.12.stale")
def test_a_stale_proposal_is_refused_before_anybody_is_asked(paper_desk, file):
    """Decision 12: stale is refused, with the difference."""
    asked = []

    def approver(tool, _arguments):
        asked.append(tool)
        return Approved()

    desk = asking(paper_desk, approver)
    file.write_text("one\nzwei\nthree\nfour\nfive\n")
    text = desk.failure("propose_file_edit", **proposal())
    assert "is not what the proposal was made for" in text
    assert "-two\n+zwei\n" in text
    assert asked == []


def test_a_file_that_changes_during_the_approval_is_not_overwritten(paper_desk, file):
    """Approval: void when the target changed."""

    def meddle(_tool, _arguments):
        file.write_text("theirs\n")
        return Approved()

    assert "is not what the proposal was made for" in asking(paper_desk, meddle).failure(
        "propose_file_edit", **proposal()
    )
    assert file.read_text() == "theirs\n"


def test_a_write_is_asked_again_when_the_file_changed_during_the_approval(paper_desk, file):
    """Approval: any drift at dispatch means to ask again, showing what changed."""
    questions = []

    def meddle(_tool, _arguments, request):
        questions.append(request.changes)
        if len(questions) == 1:
            file.write_text("theirs\n")
        return Approved()

    asking(paper_desk, meddle).text("write_file", path="f.txt", content="mine\n")
    assert questions == [(), ("what the call acts on has changed",)]


def choosing(*numbers):
    def approver(_tool, arguments):
        original, modified = arguments["original"], arguments["modified"]
        note = hunks.applied_note(original, modified, numbers)
        if not numbers:
            return Denied(note)
        return Modified(arguments | {"modified": hunks.accepted(original, modified, numbers)}, note=note)

    return approver


@pytest.mark.contract("decision.12.hunks", "decision.12.report", "002.approval.diff-hunks")
def test_only_accepted_hunks_are_applied_and_the_model_is_told(paper_desk, file):
    """Decision 12: which hunks were applied, which rejected, and not to retry these."""
    result = asking(paper_desk, choosing(1)).call("propose_file_edit", **proposal())
    assert result.success
    assert file.read_text() == "one\nTWO\nthree\nfour\nfive\n"
    assert result.content.startswith(
        "[A person accepted hunk 1 of 2 and rejected hunk 2. Do not propose again"
    )
    assert "Applied 1 hunk to f.txt" in result.content
    assert "A person changed the arguments" not in result.content
    assert result.metadata["arguments_edited"] is True


def test_a_proposal_without_an_accepted_hunk_is_denied(paper_desk, file):
    """Decision 12: accepted when at least one hunk was applied."""
    text = asking(paper_desk, choosing()).failure("propose_file_edit", **proposal())
    assert "accepted no hunk of 2" in text
    assert file.read_text() == ORIGINAL


@pytest.mark.usefixtures("file")
def test_an_edit_without_a_note_gets_the_usual_one(paper_desk):
    """The guard tells the model that its call was edited."""
    desk = asking(paper_desk, lambda _, arguments: Modified(arguments | {"content": "b"}))
    text = desk.text("write_file", path="f.txt", content="a")
    assert text.startswith("[A person changed the arguments before approving; the tool ran with ")


@pytest.mark.parametrize("note", [None, 7, b"bytes"])
def test_a_note_that_is_no_text_is_no_approval(paper_desk, file, note):
    """Decision 6: whatever is not clearly a yes is a no."""
    desk = asking(paper_desk, lambda _, arguments: Modified(arguments, note=note))
    assert "the approval handler answered" in desk.failure("write_file", path="f.txt", content="x")
    assert file.read_text() == ORIGINAL


@pytest.mark.usefixtures("file")
def test_a_long_note_is_cut_and_a_broken_one_cleaned(paper_desk):
    """Results are bounded and can be sent."""
    desk = asking(paper_desk, lambda _, arguments: Modified(arguments, note="\ud800" + "n" * 50_000))
    text = desk.text("write_file", path="f.txt", content="x")
    assert len(text) < 9000
    text.encode("utf-8")


def test_an_edited_path_is_sealed_to_its_own_file(paper_desk, file, project):
    """Approval: edited arguments get a seal of their own."""
    desk = asking(paper_desk, lambda _, arguments: Modified(arguments | {"path": "other.txt"}))
    desk.text("write_file", path="f.txt", content="x")
    assert file.read_text() == ORIGINAL
    assert (project / "other.txt").read_text() == "x"


def test_line_ends_that_a_model_has_lost_do_not_make_a_proposal_stale(paper_desk, project):
    """Workspace: CRLF kept."""
    (project / "f.txt").write_bytes(ORIGINAL.replace("\n", "\r\n").encode())
    assert paper_desk.text("read_file", path="f.txt") == ORIGINAL
    paper_desk.text("propose_file_edit", **proposal())
    assert (project / "f.txt").read_bytes() == MODIFIED.replace("\n", "\r\n").encode()


def test_a_proposal_for_a_file_that_is_not_there_is_refused(paper_desk):
    """Decision 12; write_file makes new files."""
    assert "does not exist" in paper_desk.failure("propose_file_edit", **proposal())


def test_an_applied_edit_can_be_taken_back(paper_desk, file):
    """Undo covers files written through tools."""
    paper_desk.text("propose_file_edit", **proposal())
    paper_desk.workspace.undo_last_write()
    assert file.read_text() == ORIGINAL


def test_many_writers_at_once_leave_one_whole_text(paper_desk, project):
    """Writes are whole or not at all, whoever else writes."""
    texts = [str(n) * 10_000 for n in range(8)]

    def write(text):
        paper_desk.call("write_file", path="shared", content=text)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (project / "shared").read_text() in texts
