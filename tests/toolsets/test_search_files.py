"""search_files and list_files: what they find, with grep as the judge, and what they never do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from time import perf_counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gramercy.toolsets import listing, searching
from gramercy.toolsets.listing import Selection
from gramercy.toolsets.searching import find, query_of
from gramercy.toolsets.walking import Tally
from gramercy.toolsets.workspace import Workspace

ROOT = Path(__file__).parents[2]
EVIL = r"(a*)*(?<!a)b\1"


def write(project, texts):
    for name, content in texts.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def garden(project):
    write(
        project,
        {
            "beds.py": "rose = 1\nlily = 2\nROSE = rose\n",
            "src/tools/rake.py": "def rake():\n    return rose\n",
            "src/tools/rake.lisp": "(defun rake () 'rose)\n",
            "build/out.py": "rose\n",
            ".gitignore": "build/\n*.log\n",
            "notes.log": "rose\n",
            ".hidden/plan.txt": "a rose\n",
        },
    )
    return project


@pytest.mark.contract("day.files.search")
def test_lines_are_found_with_their_places(paper_desk, garden):
    """search_files: places as file:line: text, without what git ignores."""
    del garden
    assert paper_desk.text("search_files", pattern="rose") == (
        "5 lines in 4 files:\n"
        "beds.py:1: rose = 1\n"
        "beds.py:3: ROSE = rose\n"
        ".hidden/plan.txt:1: a rose\n"
        "src/tools/rake.lisp:1: (defun rake () 'rose)\n"
        "src/tools/rake.py:2:     return rose"
    )
    assert paper_desk.text("search_files", pattern="Rose = ", ignore_case=True) == (
        "2 lines in 1 file:\nbeds.py:1: rose = 1\nbeds.py:3: ROSE = rose"
    )


@pytest.mark.contract("day.files.search")
@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        ({"pattern": "^[a-z]+ =", "regex": True}, ["beds.py:1", "beds.py:2"]),
        (
            {"pattern": "^[a-z]+ =", "regex": True, "ignore_case": True},
            ["beds.py:1", "beds.py:2", "beds.py:3"],
        ),
        ({"pattern": "rose$", "regex": True, "glob": "*.py"}, ["beds.py:3", "src/tools/rake.py:2"]),
        ({"pattern": "rose", "glob": "src/**/*.{lisp,cl}"}, ["src/tools/rake.lisp:1"]),
        ({"pattern": "rose", "glob": "tools/*.py", "path": "src"}, ["src/tools/rake.py:2"]),
        ({"pattern": "rose", "glob": "src/tools/*.py", "path": "src"}, ["src/tools/rake.py:2"]),
        ({"pattern": "rose", "glob": "src"}, ["src/tools/rake.lisp:1", "src/tools/rake.py:2"]),
        ({"pattern": "rose", "glob": "!*.py"}, [".hidden/plan.txt:1", "src/tools/rake.lisp:1"]),
        ({"pattern": "rose", "path": "src/tools/rake.py"}, ["src/tools/rake.py:2"]),
        ({"pattern": "rose", "path": "build"}, ["build/out.py:1"]),
        ({"pattern": "rose", "path": "notes.log"}, ["notes.log:1"]),
        ({"pattern": r"(?<=a )rose", "regex": True}, [".hidden/plan.txt:1"]),
    ],
)
@pytest.mark.usefixtures("garden")
def test_a_search_is_narrowed(paper_desk, arguments, places):
    """search_files: text or regex, glob, path, upper and lower case."""
    found = paper_desk.text("search_files", **arguments)
    assert re.findall(r"^(\S+:\d+):", found, re.MULTILINE) == places


@pytest.mark.contract("clients.files.environment")
def test_an_environment_is_left_out_without_a_rule(paper_desk, garden):
    """Before Python 3.13 a new environment has no .gitignore; its files would hide those of the project."""
    library = "lib/python3.11/site-packages/flower.py"
    write(garden, {".venv/pyvenv.cfg": "home = /usr/bin\n", f".venv/{library}": "rose = 0\ntulip = 1\n"})
    assert ".venv" not in paper_desk.text("search_files", pattern="rose")
    told = "without the Python environment .venv: name it as path to look into it"
    assert told in paper_desk.text("search_files", pattern="tulip")
    listed = paper_desk.text("list_files")
    assert told in listed
    assert "flower" not in listed
    for path in (".venv", ".venv/lib"):
        assert f".venv/{library}:2: tulip = 1" in paper_desk.text("search_files", pattern="tulip", path=path)
        assert "flower.py" in paper_desk.text("list_files", path=path)


def test_lines_around_a_match_are_shown_once(paper_desk, project):
    """search_files: context lines."""
    write(project, {"f": "".join(f"{n}\n" for n in range(1, 21))})
    found = paper_desk.text("search_files", pattern="^(3|5|12)$", regex=True, context=2)
    rows = [row.split(" ")[0] for row in found.splitlines()[1:]]
    assert rows == [
        *("f:1-", "f:2-", "f:3:", "f:4-", "f:5:", "f:6-", "f:7-"),
        *("--", "f:10-", "f:11-", "f:12:", "f:13-", "f:14-"),
    ]


@pytest.mark.contract("day.files.search-nothing")
@pytest.mark.usefixtures("garden")
def test_of_nothing_found_it_is_told_what_was_searched(paper_desk):
    """What, which, what to try."""
    text = paper_desk.text("search_files", pattern="tulip", glob="*.py")
    assert text == "No line has 'tulip': 2 files searched that fit *.py; git ignores 2 files or directories."
    assert "regex true" in paper_desk.text("search_files", pattern="rose|lily")
    assert "0 files searched" in paper_desk.text("search_files", pattern="rose", glob="*.rs")


@pytest.mark.contract("day.files.search-bounded")
def test_more_matches_than_fit_are_counted_by_file(paper_desk, project):
    """search_files: bounded, with counts per file of the rest."""
    write(project, {f"d/f{n}": "needle\n" * 50 for n in range(60)})
    write(project, {"a": f"{'x' * 5_000}needle\n" * 3_000})
    text = paper_desk.text("search_files", pattern="needle")
    assert len(text) <= 8_000
    assert text.startswith("6,000 lines in 61 files:\na:1: xxx")
    assert "xxx… (5,006 characters)\n" in text
    shown = len(re.findall(r"^\S+:\d+:", text, re.MULTILINE))
    assert f"… {6_000 - shown:,} more lines: a 2,998, d/f0 48, " in text
    one = paper_desk.text("search_files", pattern="needle", path="d/f1")
    assert one.count("d/f1:") == 50


@pytest.mark.contract("day.files.search-odd-files")
def test_encodings_and_line_ends_are_read_as_read_file_does(paper_desk, project):
    """Latin-1, UTF-16, a byte order mark, CRLF, a lone CR, no newline at the end."""
    write(
        project,
        {
            "latin": "a\ngrün\n".encode("latin-1"),
            "utf8": "grün",
            "utf16": b"\xff\xfe" + "x\r\ngrün\r\n".encode("utf-16-le"),
            "mark": b"\xef\xbb\xbf" + "grün\r\n".encode(),
            "cr": "one\rgrün\rtwo\n",
        },
    )
    places = ["cr:2", "latin:2", "mark:1", "utf16:2", "utf8:1"]
    for arguments in (
        {"pattern": "grün"},
        {"pattern": "GRÜN", "ignore_case": True},
        {"pattern": "^gr.n$", "regex": True},
    ):
        found = paper_desk.text("search_files", **arguments)
        assert re.findall(r"^(\S+:\d+): grün$", found, re.MULTILINE) == places


@pytest.mark.contract("day.files.search-odd-files")
def test_binary_and_huge_files_are_passed_over_and_counted(paper_desk, project):
    """search_files: binary and huge files passed over and counted."""
    write(project, {"data": b"needle\0\n", "other": b"\0", "text": "needle\n"})
    with (project / "huge").open("wb") as file:
        file.truncate(21 * 1024 * 1024)
    found = paper_desk.text("search_files", pattern="needle")
    assert found == (
        "1 line in 1 file:\ntext:1: needle\nPassed over: 1 (data) binary with it, 1 (huge) larger than 20 MB."
    )
    assert "data" not in paper_desk.text("search_files", pattern="needle$", regex=True).split("\n")[1]


@pytest.mark.contract("day.files.search-confined")
def test_no_symlink_is_followed_and_nothing_special_is_opened(paper_desk, project, tmp_path):
    """Security as workspace and storage: never leaves the project."""
    outside = tmp_path / "outside"
    write(outside, {"secret": "needle\n"})
    write(project, {"in/f": "needle\n"})
    (project / "link").symlink_to(outside)
    (project / "file").symlink_to(outside / "secret")
    (project / "round").symlink_to(project)
    os.mkfifo(project / "pipe")
    assert paper_desk.text("search_files", pattern="needle") == "1 line in 1 file:\nin/f:1: needle"
    listed = paper_desk.text("list_files")
    assert f"link -> {outside}  symlink" in listed
    assert "outside/secret\n" not in listed.replace(f"file -> {outside}/secret  symlink\n", "")
    for path in ("link", "file", "../outside", str(outside), ".git"):
        for tool, more in (("search_files", {"pattern": "needle"}), ("list_files", {})):
            assert paper_desk.failure(tool, path=path, **more)
    assert "is a pipe, not a file" in paper_desk.failure("search_files", pattern="x", path="pipe")
    assert "does not exist" in paper_desk.failure("search_files", pattern="x", path="nowhere")
    assert "does not exist" in paper_desk.failure("list_files", path="nowhere")


def test_a_directory_that_becomes_a_symlink_under_way_is_not_entered(project, tmp_path):
    """Code in an image may swap directories between a look and its use."""
    write(tmp_path / "outside", {"secret": "needle\n"})
    write(project, {"a/f": "x\n", "b/f": "needle\n"})
    selection = Selection(Workspace(project), None, None)
    walked = selection.folders(tally := Tally())
    assert next(walked).path == ""
    shutil.rmtree(project / "b")
    (project / "b").symlink_to(tmp_path / "outside")
    assert [folder.path for folder in walked] == ["a/"]
    assert tally.unreadable == 1


def test_no_descriptor_is_left_open(project):
    """A search that ends early closes what it has opened."""
    write(project, {f"{'d/' * depth}f": "needle\n" for depth in range(30)})
    before = len(list(Path("/proc/self/fd").iterdir()))
    walked = Selection(Workspace(project), None, None).folders(Tally())
    for _ in range(20):
        next(walked)
    walked.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_tree_that_is_too_deep_is_told(paper_desk, project):
    """One descriptor for each level: the depth is bounded."""
    deep = project
    for _ in range(210):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "f").write_text("needle")
    assert "1 unreadable" in paper_desk.text("search_files", pattern="needle")


@pytest.mark.contract("day.files.search-time")
def test_a_bad_expression_does_not_hang(paper_desk, project, monkeypatch):
    """search_files: regular expressions and the whole search are bounded in time."""
    monkeypatch.setattr(searching, "SEARCH_SECONDS", 0.5)
    write(project, {f"f{n}": ("a" * 40 + "!\n") * 20_000 for n in range(5)})
    started = perf_counter()
    text = paper_desk.text("search_files", pattern=EVIL, regex=True)
    assert perf_counter() - started < 5
    assert "Stopped after 0.5 s at f" in text


def test_a_list_that_takes_too_long_says_so(paper_desk, project, monkeypatch):
    monkeypatch.setattr(listing, "LIST_SECONDS", 0.0)
    write(project, {f"d{n}/f": "x" for n in range(50)} | {"f": "x"})
    assert "stopped after 0 s: there are more" in paper_desk.text("list_files")


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "a{99999999}", "(?P<", "\\"])
def test_a_pattern_that_is_none_is_refused(paper_desk, pattern):
    assert "is not a regular expression" in paper_desk.failure("search_files", pattern=pattern, regex=True)


def test_a_pattern_of_several_lines_is_refused(paper_desk):
    assert "give one line" in paper_desk.failure("search_files", pattern="a\nb")


def test_a_glob_that_multiplies_is_refused(paper_desk):
    assert "make it simpler" in paper_desk.failure("search_files", pattern="a", glob="{a,b,c,d}" * 9)


@pytest.mark.contract("day.files.list")
@pytest.mark.usefixtures("garden")
def test_files_are_listed_with_their_sizes(paper_desk):
    """list_files: sizes, a stable order, without what git ignores."""
    assert paper_desk.text("list_files") == (
        "5 files in 3 directories, 100 B (git ignores 2 more entries)\n"
        ".gitignore  13 B\n"
        "beds.py  30 B\n"
        ".hidden/plan.txt  7 B\n"
        "src/tools/rake.lisp  22 B\n"
        "src/tools/rake.py  28 B"
    )
    assert paper_desk.text("list_files", glob="*.py", path="src") == (
        "1 file in 1 directory below src, 28 B\nsrc/tools/rake.py  28 B"
    )
    assert paper_desk.text("list_files", glob="*.rs") == "No file fits *.rs (git ignores 2 more entries)."
    assert "build/out.py" in paper_desk.text("list_files", path="build")


@pytest.mark.contract("day.files.list")
def test_of_too_many_files_directories_are_counted(paper_desk, project):
    """list_files: counts per directory when there are too many; depth; bounded."""
    write(project, {f"d{n % 7}/e{n % 3}/f{n:04}": "x" * n for n in range(1_000)} | {"top": ""})
    text = paper_desk.text("list_files")
    assert len(text) <= 8_000
    assert text.startswith("1,001 files in 22 directories, 499.5 KB\ntop  0 B\nd0/e0/  48 files, ")
    assert text.endswith("Directories with counts have more: give one as path, or a glob.")
    shallow = paper_desk.text("list_files", depth=1).splitlines()
    assert shallow[1:3] == ["top  0 B", "d0/  143 files, 71.1 KB"]
    assert sum(int(row.split()[1]) for row in shallow[2:]) == 1_000


def test_of_a_directory_with_too_many_files_some_are_shown(paper_desk, project):
    write(project, {f"f{n:05}": "" for n in range(3_000)} | {"d/f": ""})
    rows = paper_desk.text("list_files").splitlines()
    assert rows[1] == "d/  1 file, 0 B"
    assert rows[-1] == f"… {3_001 - (len(rows) - 2):,} more here: give a glob, or a path below."


def test_names_that_would_hide_something_are_shown_as_they_are(paper_desk, project):
    """A newline in a name does not make two lines of one."""
    write(project, {"a\nb": "needle\n"})
    (project / os.fsdecode(b"b\xff")).write_text("needle")
    text = paper_desk.text("search_files", pattern="needle")
    assert "\na\\u{a}b:1: needle\n" in text
    text.encode()
    paper_desk.text("list_files").encode()


def test_long_names_stay_within_an_answer(paper_desk, project):
    """Answers are bounded, whatever evaluated code names its files."""
    long = "/".join("n" * 200 for _ in range(8))
    write(
        project,
        {f"{long}/{n}": "needle\n" for n in range(50)} | {f"{long}/b{n}": b"needle\0" for n in range(9)},
    )
    for tool, arguments in (("search_files", {"pattern": "needle"}), ("list_files", {})):
        assert len(paper_desk.text(tool, **arguments)) <= 8_000
    text = paper_desk.text("search_files", pattern="x" * 9_000, glob="{" + "a" * 9_000 + "}", path=long)
    assert len(text) < 2_000


def test_a_file_with_unsaved_changes_is_searched_as_it_is_on_disk(paper_desk, project):
    write(project, {"f": "needle\n"})
    paper_desk.workspace.attach("f", "typing", "an editor")
    assert "f:1: needle" in paper_desk.text("search_files", pattern="needle", path="f")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_may_not_be_read_is_told(paper_desk, project):
    write(project, {"d/f": "needle\n"})
    (project / "d").chmod(0)
    assert "1 unreadable" in paper_desk.text("search_files", pattern="needle")
    assert "cannot be read" in paper_desk.failure("search_files", pattern="needle", path="d")
    (project / "d").chmod(0o700)


def test_an_empty_project_has_no_files(paper_desk):
    assert paper_desk.text("list_files") == "No file is there."
    assert paper_desk.text("search_files", pattern="x").startswith("No line has 'x': 0 files searched")


def greps(folder, *options):
    """Return the places that grep finds."""
    command = ["grep", "-rnI", *options, "--exclude-dir=.git", "."]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=60)
    assert done.returncode < 2, done.stderr
    rows = done.stdout.decode("utf-8", "replace").splitlines()
    return {":".join(row.split(":", 2)[:2]).removeprefix("./") for row in rows}


def ours(folder, pattern, **options):
    """Return the places that a search finds, all of them."""
    query = query_of(pattern, **{"regex": False, "ignore_case": False, **options})
    outcome = find(Selection(Workspace(folder), None, None), query)
    places = {f"{hits.path}:{row[0]}" for hits in outcome.found for row in hits.rows}
    assert len(places) == outcome.count
    return places


LINE = st.text(st.sampled_from("abcAB .()*äÄß_0"), max_size=8)
TEXT = st.text(st.sampled_from("abcAB.(*äß_0"), min_size=1, max_size=3)
EXPRESSION = st.lists(
    st.sampled_from(["a", "b", "A", "ä", ".", "a*", "b+", "[ab]", "[^a]", "(a|b)", "^", "$", "0?", "_"]),
    min_size=1,
    max_size=4,
).map("".join)


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    return tmp_path_factory.mktemp("searched")


@pytest.mark.skipif(shutil.which("grep") is None, reason="needs grep")
@pytest.mark.contract("day.files.search-grep")
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.lists(LINE, max_size=6), min_size=3, max_size=3), TEXT, EXPRESSION, st.booleans())
def test_the_same_lines_are_found_as_by_grep(searched, texts, plain, expression, ignore_case):
    """search_files against real grep."""
    for name, rows in zip(("a", "b", "d/c"), texts, strict=True):
        write(searched, {name: "\n".join(rows)})
    fold = ["-i"] if ignore_case else []
    if not (ignore_case and "ß" in plain):
        # Grep knows no case for it, which Unicode spells ss.
        assert ours(searched, plain, ignore_case=ignore_case) == greps(searched, "-F", *fold, "-e", plain)
    found = ours(searched, expression, regex=True, ignore_case=ignore_case)
    assert found == greps(searched, "-E", *fold, "-e", expression)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.contract("day.files.search-grep")
@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        ("def test_", {}),
        ("workspace", {"ignore_case": True}),
        ("^class [A-Z][a-z]+:", {"regex": True}),
        ("Lösung", {}),
    ],
)
def test_the_same_lines_of_this_project_are_found_as_by_git_grep(pattern, options, monkeypatch):
    """search_files against real git grep over a real tree."""
    monkeypatch.setattr(searching, "MOST_OF_ONE", 10**6)
    monkeypatch.setattr(searching, "MOST_KEPT", 10**6)
    flags = [*(["-i"] if options.get("ignore_case") else []), "-E" if options.get("regex") else "-F"]
    command = ["git", "grep", "-nI", "--untracked", *flags, "-e", pattern, "--", "src", "tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    theirs = {":".join(row.split(":", 2)[:2]) for row in done.stdout.splitlines()}
    found = {place for place in ours(ROOT, pattern, **options) if place.startswith(("src/", "tests/"))}
    assert found == theirs
