"""What git leaves out, with git itself as the judge."""

from __future__ import annotations

import os
import shutil
import subprocess
from time import perf_counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gramercy.toolsets.walking import Tally, walk

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

FILES = (
    *(
        "a",
        "b",
        "ab",
        "abc",
        "a.c",
        "b.c",
        "a.pyc",
        ".hidden",
        "#a",
        "!a",
        "a b",
        "a ",
        "[a]",
        "a\\b",
        "ä.txt",
    ),
    *("d/a", "d/b", "d/a.c", "d/ab/a", "d/ab/b.c", "d/e/a", "d/e/f/a", "d/e/f/b.c", "d/e/f/ab/c"),
    *("e/a", "e/d/a", "e/d/b.c", "e/.hidden/a", "ba/a", "ba/d/e/a", "build/a", "d/build/b", "x/y/z/a", "x/a"),
)
# Names, wildcards and slashes of which patterns are made; most of them fit some of the files.
PIECES = (
    *("a", "b", "ab", "d", "e", "f", ".c", "build", "x", "y", "z", "a.c", ".hidden", "ä"),
    *("*", "*", "**", "**", "?", "[ab]", "[!a]", "[^b]", "[a-c]", "[[:alpha:]]", "[]a]", "[a", "[[:no:]]"),
    *("[a-]", "[\\]a]", "[[:alpha:]b]", "[c-a]"),
    *("/", "/", "/", "/**/", "**/", "/**", "\\", "\\a", "\\*", " ", "\\ ", "#", "!", "\\#", "\\!", "\t"),
)
PATTERN = st.builds(
    lambda start, pieces, end: start + "".join(pieces) + end,
    st.sampled_from(["", "", "", "!", "/", "!/", "#"]),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=5),
    st.sampled_from(["", "", "", "/", " ", "  ", "\\ ", "\r"]),
)
RULES = st.lists(PATTERN, max_size=6).map(lambda rows: "\n".join(rows).encode())


def run(folder, *command):
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *command], cwd=folder, env=environment, capture_output=True, check=True, timeout=60
    )
    return done.stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    run(folder, "init", "-q")
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "link").symlink_to("d")
    return folder


def ours(folder, *parts):
    found = []
    for each in walk(folder, parts, Tally()):
        found += [each.path + name for name in [*each.files, *each.links]]
    return {name for name in found if not name.endswith(".gitignore")}


def gits(folder):
    listed = run(folder, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
    names = {os.fsdecode(name) for name in listed if name}
    return {name for name in names if not name.endswith(".gitignore")}


def put(folder, top, nested, deeper, excluded):
    texts = {
        ".gitignore": top,
        "d/.gitignore": nested,
        "d/e/.gitignore": deeper,
        ".git/info/exclude": excluded,
    }
    for name, text in texts.items():
        (folder / name).write_bytes(text)


@pytest.mark.contract("day.files.ignored")
@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(RULES, RULES, RULES, RULES)
@pytest.mark.slow
def test_the_same_files_are_left_out_as_by_git(repository, top, nested, deeper, excluded):
    """Respects .gitignore, nested and negated, and .git/info/exclude."""
    put(repository, top, nested, deeper, excluded)
    assert ours(repository) == gits(repository)


@pytest.mark.contract("day.files.ignored")
@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ("*\n!a\n", {"a"}),
        ("d/\n!d/a\n", set(FILES) - {name for name in FILES if name.startswith("d/") or "/d/" in name}),
        ("/*\n!/d/\n/d/*\n!/d/e/\n", {"d/e/a", "d/e/f/a", "d/e/f/b.c", "d/e/f/ab/c"}),
        ("**/f/**\n", set(FILES) - {"d/e/f/a", "d/e/f/b.c", "d/e/f/ab/c"}),
    ],
)
def test_rules_as_people_write_them(repository, rules, left):
    """As gitignore(5) says; the judge agrees."""
    put(repository, rules.encode(), b"", b"", b"")
    assert ours(repository) - {"link"} == left == gits(repository) - {"link"}


@pytest.mark.parametrize(
    "rule", ["d**/a", "d/**a", "?**/a", "e/*d**/a", "d/[e]**/a", "x/y**", "**d/e/a", "d/e**/a"]
)
def test_two_stars_beside_other_characters_mean_what_git_makes_of_them(repository, rule):
    """After a beginning without wildcards they cross directories; elsewhere they are one star."""
    put(repository, rule.encode(), b"", b"", b"")
    assert ours(repository) == gits(repository)


def test_a_symlink_or_a_directory_in_the_place_of_rules_has_none(tmp_path):
    """Git follows no symlink there either."""
    (tmp_path / "outside").write_text("*\n")
    (tmp_path / "project" / ".gitignore").mkdir(parents=True)
    (tmp_path / "project" / "a").touch()
    (tmp_path / "project" / "d").mkdir()
    (tmp_path / "project" / "d" / "b").touch()
    (tmp_path / "project" / "d" / ".gitignore").symlink_to(tmp_path / "outside")
    assert ours(tmp_path / "project") == {"a", "d/b"}


def test_who_begins_in_a_directory_that_is_left_out_sees_it(repository):
    """A library in an environment that git ignores can be searched by its path."""
    put(repository, b"d/\n*.c\n", b"", b"", b"")
    assert "d/e/f/b.c" in ours(repository, "d", "e")
    assert "e/d/b.c" not in ours(repository, "e")


def test_rules_that_are_made_to_hang_do_not(tmp_path):
    """Evaluated code may write a .gitignore: patterns take linear time."""
    (tmp_path / ".gitignore").write_text("*a" * 60 + "b\n" + "**/a" * 40 + "\n" + "[a-z]*" * 50 + "\n")
    (tmp_path / ("a" * 250)).touch()
    started = perf_counter()
    assert len(ours(tmp_path)) <= 1
    assert perf_counter() - started < 5
