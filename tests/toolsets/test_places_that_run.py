"""File tools ask before they write what only its place makes dangerous."""

from __future__ import annotations

from pathlib import Path

import pytest

import gramercy
from gramercy.execution.approval import Denied
from gramercy.execution.policy import Policy
from gramercy.images.census import reader_in
from gramercy.images.guarded import reader_of


def asked(desk, path):
    """Write a file where a rule allows all writes; return whether a person was asked, who says no."""
    questions = []

    def person(tool, arguments, request):
        del tool, arguments
        questions.append(request)
        return Denied("no")

    desk.executor = desk.executor.with_approver(person)
    desk.executor.policy = Policy([{"action": "allow", "tools": ["write_file"]}])
    desk.call("write_file", path=path, content="evil\n")
    return bool(questions)


def put(project, name, text="mine\n"):
    """Make a file."""
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text(text)


@pytest.mark.contract("trust.beyond.file-tools")
def test_an_environment_of_any_name_is_asked_about(paper_desk, project):
    """Its programs run outside of the sandbox."""
    put(project, "envs/main/pyvenv.cfg")
    put(project, "envs/main/bin/python")
    assert asked(paper_desk, "envs/main/bin/python")
    assert (project / "envs/main/bin/python").read_text() == "mine\n"


@pytest.mark.contract("trust.beyond.file-tools")
@pytest.mark.parametrize(
    ("link", "target", "written"),
    [
        (".envrc", "etc/envrc", "etc/envrc"),
        (".vscode", "settings", "settings/tasks.json"),
        (".git/hooks/pre-commit", "../../scripts/hook.sh", "scripts/hook.sh"),
        (".husky/pre-commit", "../scripts/hook.sh", "scripts/hook.sh"),
        (".claude/hooks/check.sh", "../../scripts/check.sh", "scripts/check.sh"),
        (".claude/commands", "../ours", "ours/ship.md"),
    ],
)
def test_what_a_linked_control_file_leads_to_is_asked_about(paper_desk, project, link, target, written):
    """The shell, the editor, git and agents follow the link."""
    put(project, ".git/HEAD", "ref: refs/heads/main\n")
    put(project, written)
    (project / link).parent.mkdir(parents=True, exist_ok=True)
    (project / link).symlink_to(target)
    assert asked(paper_desk, written)
    assert (project / written).read_text() == "mine\n"


@pytest.mark.contract("trust.beyond.file-tools")
def test_a_link_back_to_where_a_control_directory_lies_holds_nothing(paper_desk, project):
    """Else all sources beside it would be asked about."""
    put(project, "backend/.claude/x")
    (project / "backend/.claude/here").symlink_to("..")
    assert not asked(paper_desk, "backend/main.py")


@pytest.mark.contract("trust.beyond.file-tools")
@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("[core]\n\thooksPath = tools/hooks\n", "tools/hooks/pre-commit"),
        ("[core] hookspath = ./tools/hooks/ ; ours\n", "tools/hooks/pre-commit"),
        ('[include]\n\tpath = "../settings/git config"\n', "settings/git config"),
        ('[filter "x"]\n\tclean = python clean.py %f\n', "clean.py"),
        ('[alias]\n\tship = "!sh scripts/ship.sh"\n', "scripts/ship.sh"),
    ],
)
def test_what_git_is_told_to_run_is_asked_about(paper_desk, project, line, written):
    """A commit or a status runs it."""
    put(project, ".git/config", line)
    put(project, ".git/HEAD", "ref: refs/heads/main\n")
    put(project, written)
    assert asked(paper_desk, written)
    assert (project / written).read_text() == "mine\n"


@pytest.mark.contract("trust.beyond.file-tools")
def test_a_repository_without_a_work_tree_is_asked_about(paper_desk, project):
    """Git takes the config of one for its own where a person stands in it."""
    assert asked(paper_desk, "docs/HEAD")
    put(project, "mirror/HEAD")
    put(project, "mirror/objects/x")
    put(project, "mirror/refs/x")
    assert asked(paper_desk, "mirror/config")
    assert not (project / "mirror/config").exists()


@pytest.mark.contract("trust.beyond.file-tools")
def test_the_source_of_gramercy_is_known_by_its_place():
    """Who works on gramercy itself edits it with the file tools, which ask."""
    package = Path(gramercy.__file__).resolve().parent
    assert reader_in(package.parent, f"{package.name}/errors.py") == "gramercy itself runs from"


@pytest.mark.contract("trust.beyond.file-tools")
def test_other_files_are_not_asked_about(paper_desk, project):
    """A rule that allows writes is for them."""
    put(project, ".git/config", '[branch "src/app.py"]\n\tremote = origin\n[core]\n\tbare = false\n')
    put(project, "src/app.py")
    assert not asked(paper_desk, "src/app.py")
    assert not asked(paper_desk, "false")
    assert (project / "src/app.py").read_text() == "evil\n"


@pytest.mark.contract("trust.beyond.aside")
def test_a_mark_in_the_middle_of_a_name_hides_no_control_file():
    """An editor offers to open a workspace file by its ending."""
    assert reader_of("evil.untrusted.code-workspace")
    assert not reader_of(".envrc.untrusted")
    assert not reader_of(".envrc.untrusted-0a1b2c3d")
