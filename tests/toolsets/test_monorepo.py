"""A project below the top of a repository: the rules of the repository hold in it, as git has them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from gramercy.toolsets.walking import Tally, walk

FILES = (
    *("a.py", "a.pyc", "dist/out.js", "deep/dist/out.js", "deep/keep.log", "deep/lose.log", "built.txt"),
    *("only/here.txt", "local.txt", "node_modules/x/index.js"),
)
TOP = "*.pyc\nnode_modules/\n*.log\n/packages/shop/built.txt\npackages/*/only\nbuilt\n"
MIDDLE = "dist\n!keep.log\n"
OWN = "local.txt\n"


@pytest.fixture
def shop(tmp_path):
    """Return a package of a repository that has rules at its top, between, and in the package."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    top = tmp_path / "repository"
    place = top / "packages" / "shop"
    for name in FILES:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("text\n")
    subprocess.run(["git", "init", "-q", str(top)], check=True, timeout=60, capture_output=True)
    (top / ".gitignore").write_text(TOP)
    (top / "packages" / ".gitignore").write_text(MIDDLE)
    (place / ".gitignore").write_text(OWN)
    return place


def ours(place, *parts):
    return sorted(f"{folder.path}{name}" for folder in walk(place, parts, Tally()) for name in folder.files)


def gits(place):
    words = ["git", "-C", str(place), "ls-files", "-co", "--exclude-standard"]
    return sorted(
        subprocess.run(words, check=True, timeout=60, capture_output=True, text=True).stdout.split()
    )


@pytest.mark.contract("clients.monorepo.ignored")
def test_a_package_leaves_out_what_its_repository_leaves_out(shop):
    """A day's real work: the .gitignore above the project was not heeded."""
    assert ours(shop) == gits(shop)
    assert "a.pyc" not in ours(shop)
    assert ours(shop, "deep") == ["deep/keep.log"]


@pytest.mark.contract("clients.monorepo.ignored")
def test_the_placeholder_of_an_image_is_no_repository(shop):
    """An empty .git at the top of the package ends no search for rules."""
    (shop / ".git").mkdir()
    assert "a.pyc" not in ours(shop)


def test_rules_beside_the_repository_hold_in_a_package(shop):
    """.git/info/exclude is for the whole repository."""
    (shop.parents[1] / ".git" / "info").mkdir(exist_ok=True)
    (shop.parents[1] / ".git" / "info" / "exclude").write_text("a.py\n")
    assert ours(shop) == gits(shop)
    assert "a.py" not in ours(shop)


def test_who_works_in_a_package_that_is_left_out_sees_it(shop):
    """The person chose it: the rules that leave it out, and all above it, do not count."""
    (shop.parents[1] / ".gitignore").write_text("packages/shop\n*.pyc\n")
    assert "a.pyc" in ours(shop)
    assert "local.txt" not in ours(shop)


def test_a_repository_of_its_own_has_its_own_rules(shop):
    """Git does not look above the top of a repository."""
    subprocess.run(["git", "init", "-q", str(shop)], check=True, timeout=60, capture_output=True)
    assert ours(shop) == gits(shop)
    assert "a.pyc" in ours(shop)
