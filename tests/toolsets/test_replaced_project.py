"""A project directory that is replaced by a link leads no tool and no undo elsewhere."""

from __future__ import annotations

import pytest

from gramercy.toolsets.workspace import Workspace
from tests.toolsets.conftest import Desk


@pytest.mark.contract("trust.beyond.root")
@pytest.mark.parametrize("replaced", ["app", "app/backend"])
def test_nothing_is_read_written_or_taken_back_through_a_replaced_project(tmp_path, paper, replaced):
    """Code of an image on a directory above can put a link there."""
    project = tmp_path / "app/backend"
    project.mkdir(parents=True)
    (project / "f.md").write_text("old\n")
    desk = Desk(paper, Workspace(project))
    desk.text("write_file", path="f.md", content="new\n")
    (tmp_path / replaced).rename(tmp_path / "aside")
    victim = tmp_path / "home"
    (victim / "backend").mkdir(parents=True)
    for folder in (victim, victim / "backend"):
        (folder / "f.md").write_text("new\n")
    (tmp_path / replaced).symlink_to(victim)
    for tool, more in {"write_file": {"content": "evil\n"}, "read_file": {}, "list_files": {}}.items():
        path = "." if tool == "list_files" else "f.md"
        assert "the project directory leads elsewhere by now" in desk.failure(tool, path=path, **more)
    outcome = desk.workspace.take_back()
    assert {each.outcome for each in outcome} == {"left alone"}
    assert {(folder / "f.md").read_text() for folder in (victim, victim / "backend")} == {"new\n"}
