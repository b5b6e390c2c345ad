"""Two servers on one project: an edit runs on the text that its person was shown, or not at all."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gramercy.errors import WorkspaceError
from gramercy.toolsets import workspace as workspace_module
from gramercy.toolsets.workspace import Workspace
from tests.toolsets.conftest import Desk

ROUNDS = 8
# One of two processes that were both shown the same text, and both get a yes at the same moment.
WRITER = """
import sys
from pathlib import Path
from gramercy.errors import WorkspaceError
from gramercy.toolsets.workspace import Workspace
workspace = Workspace(sys.argv[1])
for line in sys.stdin:
    place = workspace.place("f.md")
    if line == "look\\n":
        sealed = place
        workspace.state(sealed)
        print("seen", flush=True)
        continue
    try:
        workspace.write(sealed, sys.argv[2])
        print("wrote", flush=True)
    except WorkspaceError as error:
        print(error, flush=True)
"""


def say(writers, words):
    """Say the same to all at once, and return what each answers."""
    for writer in writers:
        writer.stdin.write(words)
        writer.stdin.flush()
    return [writer.stdout.readline() for writer in writers]


@pytest.fixture
def other(paper, project):
    """Return the desk of another server on the same project."""
    return Desk(paper, Workspace(project))


@pytest.mark.contract("trust.paths.two-writers")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("edit_file", {"old": "one", "new": "three"}),
        ("write_file", {"content": "three\n"}),
        ("edit_file", {"old": "\n", "new": "!\n", "all": True}),
    ],
)
def test_an_edit_does_not_run_on_a_text_that_was_not_shown(paper_desk, other, project, tool, arguments):
    """The other server writes after the last look at the target and before the tool runs."""
    (project / "f.md").write_text("one\ntwo\n")

    def meanwhile(phase, *_):
        if phase == "before":
            other.text("edit_file", path="f.md", old="two", new="2")

    paper_desk.executor.hooks.append(meanwhile)
    told = paper_desk.failure(tool, path="f.md", **arguments)
    assert "was changed by somebody else meanwhile" in told
    assert (project / "f.md").read_text() == "one\n2\n"


@pytest.mark.contract("trust.paths.two-writers")
def test_a_new_file_that_another_server_has_made_is_not_overwritten(paper_desk, other, project):
    """The person was told that it is a new file."""
    meanwhile = [lambda: other.text("write_file", path="deep/er/new.md", content="theirs")]
    paper_desk.executor.hooks.append(lambda phase, *_: phase == "before" and meanwhile and meanwhile.pop()())
    told = paper_desk.failure("write_file", path="deep/er/new.md", content="ours")
    assert "meanwhile" in told
    assert (project / "deep/er/new.md").read_text() == "theirs"


@pytest.mark.contract("trust.paths.two-writers")
def test_of_two_processes_that_were_shown_the_same_text_one_writes(project):
    """Both are approved at the same moment; comparing and replacing is one step for all processes."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(project), f"text of {name}\n" * 5_000],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    try:
        for _ in range(ROUNDS):
            (project / "f.md").write_text("as it was shown\n")
            for said in ("look\n", "write\n"):
                told = say(writers, said)
            assert sorted(line == "wrote\n" for line in told) == [False, True], told
    finally:
        for writer in writers:
            writer.communicate(timeout=60)


@pytest.mark.contract("trust.paths.two-writers")
def test_a_writer_that_hangs_does_not_hang_others(workspace, project, monkeypatch):
    """The wait is bounded and ends in a sentence; nothing is written."""
    monkeypatch.setattr(workspace_module, "TURN_SECONDS", 0.1)
    (project / "f.md").write_text("old")
    workspace.write("f.md", "new")
    lock = workspace_module._lock_of(workspace.root)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(WorkspaceError, match="another program has been writing files of this project"):
            workspace.write("f.md", "newer")
    finally:
        os.close(lock)
    assert (project / "f.md").read_text() == "new"
    workspace.write("f.md", "newest")


@pytest.mark.contract("trust.paths.drift")
def test_a_name_that_becomes_a_link_after_the_last_look_is_not_followed(paper_desk, project):
    """Between the last look and the write nothing is walked by name again."""
    (project / "a.md").write_text("old\n")
    (project / ".envrc").write_text("old\n")

    def swap(phase, *_):
        if phase == "before":
            (project / "a.md").unlink()
            (project / "a.md").symlink_to(".envrc")

    paper_desk.executor.hooks.append(swap)
    told = paper_desk.failure("write_file", path="a.md", content="new\n")
    assert "has become a link" in told
    assert (project / ".envrc").read_text() == "old\n"


@pytest.mark.contract("trust.paths.drift")
def test_a_directory_that_becomes_a_link_after_the_last_look_is_not_followed(paper_desk, project):
    """The open directory is the one that was judged, wherever its name leads now."""
    for name in ("notes", ".vscode"):
        (project / name).mkdir()

    def swap(phase, *_):
        if phase == "before":
            (project / "notes").rename(project / "aside")
            (project / "notes").symlink_to(".vscode")

    paper_desk.executor.hooks.append(swap)
    result = paper_desk.call("write_file", path="notes/tasks.json", content="{}")
    assert not list((project / ".vscode").iterdir())
    assert result.success is (project / "aside/tasks.json").exists()


@pytest.mark.contract("trust.paths.drift")
@pytest.mark.parametrize("what", ["file", "directory"])
def test_another_file_or_directory_of_the_same_name_is_asked_about_again(paper_desk, project, what):
    """The text is the same, but it is not what was there at the question."""
    (project / "d").mkdir()
    (project / "d/f.md").write_text("old\n")
    asked = []

    def person(tool, arguments, request):
        del tool, arguments
        asked.append(request)
        if len(asked) == 1:
            kept = project / "d" if what == "directory" else project / "d/f.md"
            kept.rename(project / "aside")
            (project / "d").mkdir(exist_ok=True)
            (project / "d/f.md").write_text("old\n")
        return "approved"

    paper_desk.executor = paper_desk.executor.with_approver(person)
    paper_desk.text("edit_file", path="d/f.md", old="old", new="new")
    assert len(asked) == 2
    assert "what the call acts on has changed" in asked[1].text()


@pytest.mark.contract("trust.paths.drift")
def test_nothing_stays_open_while_a_person_thinks(paper_desk, project):
    """A question may stay open for a day, and a process has few descriptors."""
    (project / "f.md").write_text("old\n")
    counts = []

    def person(tool, arguments, request):
        del tool, arguments, request
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
        return "approved"

    paper_desk.executor = paper_desk.executor.with_approver(person)
    paper_desk.text("write_file", path="f.md", content="first\n")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(3):
        paper_desk.text("write_file", path="f.md", content=f"{number}\n")
    assert counts[1:] == [before] * 3
    assert len(list(Path("/proc/self/fd").iterdir())) == before
