"""Paths and disks that cannot be used: one clear sentence each, and nothing is written."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys

import pytest

from gramercy.toolsets.workspace import Workspace
from tests.toolsets.conftest import Desk

TOOLS = {
    "read_file": {},
    "write_file": {"content": "new\n"},
    "edit_file": {"old": "old", "new": "new"},
    "propose_file_edit": {"original": "old\n", "modified": "new\n", "description": "d"},
    "search_files": {"pattern": "old"},
    "list_files": {},
    "check_syntax": {},
}
# No system call that lists or resolves by /proc may be needed.
WITHOUT_PROC = """
import sys
from gramercy.toolsets.workspace import Workspace
workspace = Workspace(sys.argv[1])
workspace.write("link/f.md", "new\\n")
print(workspace.read("link/f.md").text, workspace.undo_last_write())
"""


def one_sentence(told):
    """Tell whether a text is one short line for a model, without a traceback."""
    head = told.split("\n")[0]
    return "Traceback" not in told and "Errno" not in told and len(head) < 1_000


@pytest.mark.contract("trust.paths.bad-input")
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("loop", "its links lead in a circle, or are too many"),
        ("loop/below.md", "its links lead in a circle, or are too many"),
        ("long/" * 819 + "x", "the path is too long, 4,096 characters"),
        ("n" * 300, "File name too long"),
        ("a\0b", "has a NUL in it"),
        ("", "the path is empty"),
        ("f.md/below.md", "f.md is not a directory"),
        ("broken/below.md", "has a name that is not UTF-8"),
        ("out/x", "is outside the project"),
        ("../../etc/passwd", "is outside the project"),
        (".git/config", "belongs to git"),
    ],
)
def test_a_path_that_cannot_be_used_is_refused_in_one_sentence(paper_desk, project, tool, path, told):
    """Each says what is wrong with which path."""
    (project / "loop").symlink_to("loop")
    (project / "f.md").write_text("old\n")
    (project / "broken").symlink_to(os.fsdecode(b"caf\xe9"))
    (project / "out").symlink_to("/usr")
    if tool in {"search_files", "list_files"} and not path:
        pytest.skip("without a path they begin at the top")
    text = paper_desk.failure(tool, path=path, **TOOLS[tool])
    assert told in text
    assert one_sentence(text)
    assert sorted(entry.name for entry in project.iterdir()) == ["broken", "f.md", "loop", "out"]
    assert (project / "f.md").read_text() == "old\n"


@pytest.mark.contract("trust.paths.bad-input")
@pytest.mark.parametrize("name", ["\udce9", "caf\ud800", "a\udcff/b"])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_text_that_is_no_unicode_is_refused(paper_desk, project, tool, name):
    """A lone surrogate stands for a byte that no question can show."""
    text = paper_desk.failure(tool, path=name, **TOOLS[tool])
    assert one_sentence(text)
    assert "Unicode" in text or "surrogate" in text or "UTF-8" in text
    assert not list(project.iterdir())


def bound(place):
    """Leave a socket in a place."""
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind(str(place))


MAKERS = {"socket": bound, "pipe": os.mkfifo}


@pytest.mark.contract("trust.paths.bad-input")
@pytest.mark.parametrize("tool", [each for each in TOOLS if each not in ("search_files", "list_files")])
@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_no_file_is_told_by_its_kind(paper_desk, project, monkeypatch, tool, kind):
    """To open a socket fails with "No such device or address", which tells nothing."""
    # The address of a socket is shorter than many paths.
    monkeypatch.chdir(project)
    MAKERS[kind]("thing.py")
    text = paper_desk.failure(tool, path="thing.py", **TOOLS[tool])
    assert f"thing.py is a {kind}, not a file" in text
    assert one_sentence(text)


@pytest.mark.contract("trust.paths.bad-input")
def test_directories_that_were_made_for_a_write_that_failed_are_gone_again(project):
    """A limit on the size of files stands for a disk that is full."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from gramercy.errors import WorkspaceError\n"
        "from gramercy.toolsets.workspace import Workspace\n"
        "workspace = Workspace(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "try: workspace.write('a/b/f.md', 'x' * 100)\n"
        "except WorkspaceError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(project)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "a/b/f.md cannot be written: File too large; it is as it was\n"
    assert not list(project.iterdir())


def mounted(place, *options):
    """Mount a small file system in memory, or skip the test where that is not possible."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a file system")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        pytest.skip("mounting is not permitted here")


@pytest.fixture
def small(tmp_path):
    """Return a project on a disk of 64 KB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted(place, "size=64k", "mode=700")
    yield place
    subprocess.run(["umount", "-l", str(place)], timeout=60, check=True)


@pytest.mark.contract("trust.paths.bad-input")
def test_a_full_disk_is_told_and_leaves_the_old_file(paper, small):
    """Nothing half-written."""
    (small / "f.md").write_text("old\n")
    desk = Desk(paper, Workspace(small))
    told = desk.failure("write_file", path="f.md", content="x" * 200_000)
    assert "No space left on device; it is as it was" in told
    told = desk.failure("write_file", path="new/er/f.md", content="x" * 200_000)
    assert "No space left on device" in told
    assert [entry.name for entry in small.iterdir()] == ["f.md"]
    assert (small / "f.md").read_text() == "old\n"


@pytest.mark.contract("trust.paths.bad-input")
def test_a_disk_that_is_read_only_is_told(paper, small):
    """Nothing is tried elsewhere."""
    (small / "f.md").write_text("old\n")
    subprocess.run(["mount", "-o", "remount,ro", str(small)], timeout=60, check=True)
    desk = Desk(paper, Workspace(small))
    for path in ("f.md", "new/f.md"):
        assert "Read-only file system; it is as it was" in desk.failure(
            "write_file", path=path, content="new"
        )
    assert desk.text("read_file", path="f.md") == "old\n"


@pytest.mark.contract("trust.paths.bad-input")
def test_paths_are_found_and_written_without_proc(project):
    """Some containers have none; only the mode of a file that is brought back needs it."""
    if shutil.which("bwrap") is None:
        pytest.skip("bwrap is not installed")
    (project / "real").mkdir()
    (project / "real/f.md").write_text("old\n")
    (project / "link").symlink_to("real")
    inside = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/proc"]
    done = subprocess.run(
        [*inside, sys.executable, "-c", WITHOUT_PROC, str(project)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "bwrap:" in done.stderr:
        pytest.skip("bwrap cannot make a place without /proc here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("new\n")


@pytest.mark.contract("trust.paths.bad-input")
def test_a_project_with_few_descriptors_left_is_told(paper_desk, project):
    """A call that cannot open a directory fails in a sentence."""
    (project / "f.md").write_text("old\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    paper_desk.text("read_file", path="f.md")
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            told = paper_desk.failure("read_file", path="f.md")
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "Too many open files" in told
    assert one_sentence(told)
