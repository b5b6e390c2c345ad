"""One real path: what is judged, asked about, sealed and recorded is the file that is written."""

from __future__ import annotations

import pytest

from gramercy.execution.approval import Approved


class Person:
    """Somebody who is asked and says yes, after doing what the test wants meanwhile."""

    def __init__(self, *meanwhile):
        self.requests = []
        self._meanwhile = list(meanwhile)

    def __call__(self, tool, arguments, request):
        """Approve what is shown."""
        del tool, arguments
        self.requests.append(request)
        if self._meanwhile:
            self._meanwhile.pop(0)()
        return Approved(shown=request.text())

    @property
    def texts(self):
        """The questions, as they were shown."""
        return [request.text() for request in self.requests]


@pytest.fixture
def person(paper_desk):
    """Ask a person who says yes."""
    asked = Person()
    paper_desk.executor = paper_desk.executor.with_approver(asked)
    return asked


def asking(desk, *meanwhile):
    """Ask a person who does something before each yes."""
    asked = Person(*meanwhile)
    desk.executor = desk.executor.with_approver(asked)
    return asked


def recorded_files(desk):
    """Return the files that the journal says were changed."""
    return [file for record in desk.executor.journal.records() for file in record.facts.files]


EDITS = {
    "write_file": {"content": "new\n"},
    "edit_file": {"old": "old", "new": "new"},
    "propose_file_edit": {"original": "old\n", "modified": "new\n", "description": "d"},
}


@pytest.mark.contract("trust.paths.real")
@pytest.mark.parametrize("tool", EDITS)
def test_the_question_about_a_link_names_the_file_that_is_written(paper_desk, project, person, tool):
    """Evaluated code plants a link; a person must see what is behind it."""
    (project / "real.md").write_text("old\n")
    (project / "notes").mkdir()
    (project / "notes/todo.md").symlink_to("../real.md")
    paper_desk.text(tool, path="notes/todo.md", **EDITS[tool])
    assert "path leads through a link to real.md" in person.texts[0]
    assert "+++ b/real.md" in person.texts[0]
    assert recorded_files(paper_desk) == ["changed real.md"]
    assert (project / "real.md").read_text() == "new\n"
    assert (project / "notes/todo.md").is_symlink()


@pytest.mark.contract("trust.paths.guarded")
@pytest.mark.parametrize("name", [".envrc", ".mcp.json", ".vscode/tasks.json", ".venv/bin/python"])
@pytest.mark.parametrize("tool", EDITS)
def test_a_control_file_is_not_written_through_a_link(paper_desk, project, person, tool, name):
    """A link with a harmless name must not be the way to a file that a program of the person runs."""
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text("old\n")
    (project / "todo.md").symlink_to(name)
    told = paper_desk.failure(tool, path="todo.md", **EDITS[tool])
    assert f"todo.md is a link to {name}, which" in told
    assert (project / name).read_text() == "old\n"
    assert not person.requests


@pytest.mark.contract("trust.paths.drift")
def test_a_new_file_that_becomes_a_link_is_not_what_was_approved(paper_desk, project):
    """The link is planted between the question and the yes."""
    person = asking(paper_desk, lambda: (project / "new.md").symlink_to(".envrc"))
    told = paper_desk.failure("write_file", path="new.md", content="x")
    assert "link to .envrc" in told
    assert len(person.requests) == 1
    assert not (project / ".envrc").exists()


@pytest.mark.contract("trust.paths.drift")
@pytest.mark.parametrize("tool", EDITS)
def test_a_file_that_becomes_a_link_to_an_equal_one_is_asked_about_again(paper_desk, project, tool):
    """The same text elsewhere is another file."""
    (project / "a.md").write_text("old\n")
    (project / "b.md").write_text("old\n")

    def swap():
        (project / "a.md").unlink()
        (project / "a.md").symlink_to("b.md")

    person = asking(paper_desk, swap)
    paper_desk.text(tool, path="a.md", **EDITS[tool])
    assert len(person.requests) == 2
    assert "leads through a link to b.md" in person.texts[1]
    assert "what the call acts on has changed" in person.texts[1]


@pytest.mark.contract("trust.paths.real")
@pytest.mark.parametrize("tool", EDITS)
def test_a_name_with_a_line_end_in_it_cannot_write_lines_of_the_question(paper_desk, project, person, tool):
    """A file can be called anything; what stands above a difference is one line."""
    (project / "real\n+++ b\u2028fine.md").write_text("old\n")
    (project / "link.md").symlink_to("real\n+++ b\u2028fine.md")
    paper_desk.text(tool, path="link.md", **EDITS[tool])
    shown = "real\\u{a}+++ b\\u{2028}fine.md"
    assert f"path leads through a link to {shown}." in person.texts[0]
    assert f"+++ b/{shown}" in person.texts[0]
