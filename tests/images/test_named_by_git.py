"""What git's config names in a project is held from evaluated code."""

from __future__ import annotations

import pytest

from gramercy.images.environment import Environment
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.project import named_by_git
from gramercy.images.sandbox import Confinement, why_not

BOTH = [
    pytest.param(each, marks=pytest.mark.skipif(why_not(each) is not None, reason=f"{why_not(each)}"))
    for each in (Confinement.BUBBLEWRAP, Confinement.LANDLOCK)
]
CONFIG = """\
[core]
	hooksPath = tools/hooks
[include]
	path = ../team.gitconfig
[filter "x"]
	clean = ./scripts/clean.sh %f
"""
NAMED = ("tools/hooks/pre-commit", "team.gitconfig", "scripts/clean.sh")


@pytest.fixture
def project(tmp_path):
    """Return a project with a repository whose config names hooks, a config and a filter."""
    path = (tmp_path / "project").resolve()
    (path / ".git").mkdir(parents=True)
    (path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (path / ".git/config").write_text(CONFIG)
    return path


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.contract("trust.beyond.git-names")
def test_what_git_runs_is_read_only_inside(project, confinement):
    """The next commit of the person would run it outside of the sandbox."""
    (project / "src").mkdir()
    for name in NAMED:
        (project / name).parent.mkdir(exist_ok=True, parents=True)
        (project / name).write_text("mine")
    image = LiveImage(
        "test", ImageSettings("python", project, confinement, Environment()).program, timeout=60
    )
    try:
        for name in NAMED:
            assert image.evaluate(f"open({name!r}, 'w').write('evil')").error is not None
        assert image.evaluate("open('src/other.py', 'w').write('mine')").error is None
    finally:
        image.close()
    assert [(project / name).read_text() for name in NAMED] == ["mine"] * 3


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.contract("trust.beyond.git-names")
def test_what_git_would_run_is_moved_aside_when_it_is_made(project, confinement):
    """A config may name hooks that are not there yet."""
    (project / "tools").mkdir()
    image = LiveImage(
        "test", ImageSettings("python", project, confinement, Environment()).program, timeout=60
    )
    try:
        code = "import os; os.makedirs('tools/hooks'); open('tools/hooks/pre-commit', 'w').write('evil')"
        image.evaluate(code)
        image.evaluate("open('team.gitconfig', 'w').write('evil')")
    finally:
        image.close()
    assert not (project / "tools/hooks/pre-commit").exists()
    assert not (project / "team.gitconfig").exists()


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.contract("trust.later.links")
def test_what_links_in_control_directories_lead_to_is_read_only_inside(project, confinement):
    """Many keep their hooks in a directory of the project, and link them from where git looks for them."""
    links = {
        ".git/hooks/pre-commit": "../../scripts/hook.sh",
        ".git/hooks/pre-push": "../../scripts/current",
        ".claude/settings.json": "../scripts/claude.json",
        ".husky/_/commit-msg": "../../scripts/message.sh",
    }
    (project / "scripts").mkdir()
    (project / "src").mkdir()
    ends = [project / "scripts" / name for name in ("hook.sh", "push.sh", "claude.json", "message.sh")]
    for end in ends:
        end.write_text("mine")
    (project / "scripts/current").symlink_to("push.sh")
    for name, target in links.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).symlink_to(target)
    image = LiveImage(
        "test", ImageSettings("python", project, confinement, Environment()).program, timeout=60
    )
    try:
        for end in ends:
            assert image.evaluate(f"open('scripts/{end.name}', 'w').write('evil')").error is not None
        swap = "import os; os.unlink('scripts/current'); open('scripts/current', 'w').write('evil')"
        image.evaluate(swap)
        assert image.evaluate("open('src/other.py', 'w').write('mine')").error is None
    finally:
        image.close()
    assert [end.read_text() for end in ends] == ["mine"] * 4
    current = project / "scripts/current"
    assert not current.exists() or current.is_symlink()


def test_configs_that_include_each_other_are_read_once(project):
    """And a word that means the project itself is none of its files."""
    (project / "team.gitconfig").write_text("[include]\n\tpath = team.gitconfig\n\tpath = ..\n[a]\n\tb = .\n")
    assert named_by_git(project) == {"tools/hooks", "team.gitconfig"}
