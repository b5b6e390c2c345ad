"""The workspace against everything that files can be and that can happen to them."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from gramercy.errors import WorkspaceError
from gramercy.images.files import places
from gramercy.toolsets import workspace as workspace_module
from gramercy.toolsets.workspace import LARGEST_FILE, Workspace


def left_behind(project):
    return [entry.name for entry in project.rglob(".gramercy-*")]


def test_a_file_is_read_and_stays_open(workspace, project):
    """Decision 2: a buffer is a file that was read."""
    (project / "a.txt").write_text("text\n")
    assert workspace.read("a.txt").text == "text\n"
    assert workspace.documents.names() == ["a.txt"]


@pytest.mark.parametrize("path", ["a.txt", "./a.txt", "sub/../a.txt", "link.txt"])
def test_one_file_has_one_name_however_its_path_is_written(workspace, project, path):
    """Workspace: paths through symlinks inside the project."""
    (project / "a.txt").write_text("text\n")
    (project / "sub").mkdir()
    (project / "link.txt").symlink_to("a.txt")
    assert workspace.read(path).name == "a.txt"
    assert workspace.read(str(project / path)).name == "a.txt"


@pytest.fixture
def outside(project):
    directory = project.parent / "outside"
    directory.mkdir()
    (directory / "secret.txt").write_text("secret")
    return directory


def test_symlinks_that_lead_out_are_refused_for_reading_and_writing(workspace, project, outside):
    """Workspace: paths through symlinks."""
    (project / "file").symlink_to(outside / "secret.txt")
    (project / "dir").symlink_to(outside)
    (project / "chain").symlink_to("dir")
    for path in ("file", "dir/secret.txt", "chain/secret.txt", "dir/new.txt"):
        with pytest.raises(WorkspaceError, match="outside the project"):
            workspace.read(path)
        with pytest.raises(WorkspaceError, match="outside the project"):
            workspace.write(path, "x")
    assert [entry.name for entry in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == "secret"


def test_a_dangling_symlink_is_followed_only_inside(workspace, project, outside):
    """Workspace: dangling symlinks."""
    (project / "out").symlink_to(outside / "not-yet")
    (project / "in").symlink_to("not-yet")
    with pytest.raises(WorkspaceError, match="outside the project"):
        workspace.write("out", "x")
    with pytest.raises(WorkspaceError, match="does not exist"):
        workspace.read("in")
    workspace.write("in", "x")
    assert (project / "in").is_symlink()
    assert (project / "not-yet").read_text() == "x"
    assert not (outside / "not-yet").exists()


def test_a_loop_of_symlinks_is_an_error(workspace, project):
    """Workspace: paths through symlinks."""
    (project / "a").symlink_to("b")
    (project / "b").symlink_to("a")
    with pytest.raises(WorkspaceError):
        workspace.read("a")
    with pytest.raises(WorkspaceError):
        workspace.write("a", "x")


def test_a_sibling_whose_name_begins_like_the_project_is_outside(workspace, project):
    """Workspace: no prefix surprise."""
    twin = project.with_name(project.name + "-twin")
    twin.mkdir()
    (twin / "f").write_text("x")
    with pytest.raises(WorkspaceError, match="outside the project"):
        workspace.read(f"../{twin.name}/f")


def test_a_directory_swapped_for_a_symlink_after_the_check_does_not_lead_out(project, outside):
    """Sandbox: code in an image may write to the project and must not widen what tools may touch."""
    (project / "dir").mkdir()
    (project / "dir").rmdir()
    (project / "dir").symlink_to(outside)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"), places.directory(project, ["dir"]):
        pytest.fail("the symlink was followed")


def test_no_race_of_a_swapping_directory_writes_outside(workspace, project, outside):
    """Sandbox: the same, with somebody who really swaps while we write."""
    real, aside = project / "dir", project / "aside"
    real.mkdir()
    (project / "link").symlink_to(outside)
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            with contextlib.suppress(OSError):
                real.rename(aside)
                (project / "link").rename(real)
                real.rename(project / "link")
                aside.rename(real)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for number in range(300):
            with contextlib.suppress(WorkspaceError):
                workspace.write("dir/f", str(number))
    finally:
        stop.set()
        swapper.join(10)
    assert [entry.name for entry in outside.iterdir()] == ["secret.txt"]


@pytest.mark.parametrize(
    "path", [".git/config", "sub/.git/hooks/pre-commit", ".GIT/config", "hooks/x", ".git"]
)
def test_what_belongs_to_git_is_neither_read_nor_written(workspace, project, path):
    """Workspace: .git refusal."""
    (project / ".git" / "hooks").mkdir(parents=True)
    (project / "hooks").symlink_to(".git/hooks")
    with pytest.raises(WorkspaceError, match="belongs to git"):
        workspace.read(path)
    with pytest.raises(WorkspaceError, match="belongs to git"):
        workspace.write(path, "x")


def test_names_that_only_look_like_git_are_files(workspace):
    """Workspace: no prefix surprise."""
    assert workspace.write(".gitignore", "x\n") == 2
    assert workspace.write("a.git", "x\n") == 2


@pytest.mark.parametrize("path", ["", "\0", "a\0b", "x" * 300, "\ud800", "x/" * 3000])
def test_paths_that_no_system_takes_are_refused(workspace, path):
    """Bad input: a clear error."""
    with pytest.raises(WorkspaceError):
        workspace.read(path)
    with pytest.raises(WorkspaceError):
        workspace.write(path, "x")


def test_a_directory_is_listed_in_the_error(workspace, project):
    """Errors say what to try."""
    for number in range(30):
        (project / f"f{number:02}").touch()
    with pytest.raises(WorkspaceError, match=r"is a directory: it has f00, .*f19 and 10 more"):
        workspace.read(".")
    with pytest.raises(WorkspaceError, match="is a directory"):
        workspace.write(".", "x")


def test_a_misspelt_name_is_answered_with_the_right_one(workspace, project):
    """Errors say what to try."""
    (project / "README.md").touch()
    with pytest.raises(WorkspaceError, match=r"did you mean README\.md\?"):
        workspace.read("REDME.md")


def test_pipes_sockets_and_devices_are_refused_without_waiting(workspace, project):
    """Never a hang."""
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        # The name of a socket is short by law; that of a test's directory is not.
        with contextlib.chdir(project):
            listener.bind("socket")
        for path in ("pipe", "socket"):
            with pytest.raises(WorkspaceError):
                workspace.read(path)
            with pytest.raises(WorkspaceError):
                workspace.write(path, "x")


def test_a_binary_file_is_neither_read_nor_overwritten(workspace, project):
    """Workspace: binary files."""
    (project / "program").write_bytes(b"\x7fELF\x00\x01")
    for action in (lambda: workspace.read("program"), lambda: workspace.write("program", "x")):
        with pytest.raises(WorkspaceError, match="not a text file"):
            action()
    assert (project / "program").read_bytes() == b"\x7fELF\x00\x01"


def test_a_huge_file_is_refused_before_it_fills_the_memory(workspace, project):
    """Workspace: huge files."""
    with (project / "huge").open("wb") as file:
        file.truncate(50 * 1024**3)
    for action in (lambda: workspace.read("huge"), lambda: workspace.write("huge", "x")):
        with pytest.raises(WorkspaceError, match="too large"):
            action()
    with pytest.raises(WorkspaceError, match="are the most"):
        workspace.write("new", "x" * (LARGEST_FILE + 1))


WRITING_IN_PLACE = """
import itertools, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
for number in itertools.count(10**9):
    os.pwrite(file, b"%d" % number, 0)
    os.pwrite(file, b"%d" % number, 1_000_000)
    if number == 10**9 + 10:
        print("ready", flush=True)
"""


def test_what_is_read_of_a_file_under_change_is_what_it_held_at_one_moment(workspace, project):
    """Workspace: files that change under the reader; the two numbers in it never differ by more than one."""
    path = project / "log"
    path.write_text("1000000000" + " " * 999_990 + "1000000000")
    command = [sys.executable, "-c", WRITING_IN_PLACE, str(path)]
    gaps = []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            for _ in range(100):
                with contextlib.suppress(WorkspaceError):
                    first, last = workspace.read("log").text.split()
                    gaps.append(int(first) - int(last))
        finally:
            writer.kill()
    assert set(gaps) <= {0, 1}
    writer.wait(10)
    assert workspace.read("log").text


def read_often(workspace, path):
    for _ in range(1000):
        workspace.read(path)


def test_a_file_that_never_rests_is_refused_in_the_end(workspace, project):
    """Workspace: files that change under the reader; never a hang."""
    path = project / "log"
    path.write_text("1000000000" + " " * 999_990 + "1000000000")
    command = [sys.executable, "-c", WRITING_IN_PLACE, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            with pytest.raises(WorkspaceError, match="log cannot be read: it changes while it is read"):
                read_often(workspace, "log")
        finally:
            writer.kill()


def test_a_file_that_is_removed_between_calls_does_not_exist(workspace, project):
    """Workspace: files that change under the reader."""
    (project / "a").write_text("x")
    workspace.read("a")
    (project / "a").unlink()
    with pytest.raises(WorkspaceError, match="does not exist"):
        workspace.document("a")


def test_missing_directories_are_made(workspace, project):
    """Decision 2, write_file."""
    workspace.write("a/b/c.txt", "x")
    assert (project / "a/b/c.txt").read_text() == "x"


def test_mode_and_owner_are_kept(workspace, project):
    """Workspace: mode kept."""
    path = project / "script"
    path.write_text("old")
    path.chmod(0o750)
    before = path.stat()
    workspace.write("script", "new")
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == 0o750
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino


def test_a_new_file_has_the_mode_that_the_process_gives(workspace, project):
    """Workspace: as any program would make it."""
    before = os.umask(0o027)
    try:
        workspace.write("new", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((project / "new").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        (b"a\r\nb\r\n", "a\nc\n", b"a\r\nc\r\n"),
        ("ä\n".encode("latin-1"), "ö\n", "ö\n".encode("latin-1")),
        (b"\xef\xbb\xbfa", "b", b"\xef\xbb\xbfb"),
        (b"\xfe\xff\x00a", "b", b"\xfe\xff\x00b"),
        (b"a\nb\r\n", "a\nb\r\nc\n", b"a\nb\r\nc\n"),
    ],
)
def test_a_rewritten_file_keeps_its_encoding_and_line_ends(workspace, project, before, text, after):
    """Workspace: encodings kept, CRLF kept."""
    (project / "f").write_bytes(before)
    workspace.write("f", text)
    assert (project / "f").read_bytes() == after


def test_a_character_that_the_encoding_lacks_is_refused_and_named(workspace, project):
    """Workspace: nothing is silently changed."""
    (project / "f").write_bytes(b"\xe4")
    with pytest.raises(
        WorkspaceError, match=r"latin-1, which does not have the character '\\u2192' at position 1"
    ):
        workspace.write("f", "ä→")
    with pytest.raises(WorkspaceError, match="utf-8"):
        workspace.write("new", "\ud800")
    assert (project / "f").read_bytes() == b"\xe4"
    assert not (project / "new").exists()


@pytest.fixture
def as_nobody():
    """Return a directory of an ordinary user, whose rights the test has for a while."""
    directory = Path(tempfile.mkdtemp())
    if os.geteuid() == 0:
        os.chown(directory, 65534, 65534)
    try:
        if os.geteuid() == 0:
            os.seteuid(65534)
        yield directory
    finally:
        os.seteuid(os.getuid())
        shutil.rmtree(directory)


def test_a_read_only_directory_gives_a_clear_error(as_nobody):
    """Workspace: read-only directories."""
    (as_nobody / "f").write_text("old")
    as_nobody.chmod(0o555)
    workspace = Workspace(as_nobody)
    try:
        for path in ("f", "new", "sub/new"):
            with pytest.raises(WorkspaceError, match="cannot be written: Permission denied; it is as it was"):
                workspace.write(path, "x")
        assert (as_nobody / "f").read_text() == "old"
    finally:
        as_nobody.chmod(0o755)


def test_an_unreadable_file_gives_a_clear_error(as_nobody):
    """Workspace: rights."""
    (as_nobody / "f").write_text("old")
    (as_nobody / "f").chmod(0)
    with pytest.raises(WorkspaceError, match="cannot be read: Permission denied"):
        Workspace(as_nobody).read("f")


WRITER = """
import sys
from gramercy.toolsets.workspace import Workspace
workspace = Workspace(sys.argv[1])
print("ready", flush=True)
for number in range(10**9):
    workspace.write("f", str(number % 10) * 3_000_000)
"""


def test_a_killed_writer_leaves_a_whole_file(project):
    """Workspace: atomic writes; a crash in the middle leaves the old file."""
    (project / "f").write_text("x" * 3_000_000)
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(project)], stdout=subprocess.PIPE, env={**os.environ}
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            with contextlib.suppress(subprocess.TimeoutExpired):
                writer.wait(0.03)
            writer.send_signal(signal.SIGKILL)
        text = (project / "f").read_text()
        assert len(text) == 3_000_000
        assert len(set(text)) == 1


LIMITED = """
import resource, signal, sys
from gramercy.errors import WorkspaceError
from gramercy.toolsets.workspace import Workspace
workspace = Workspace(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    workspace.write("f", "y" * 5000)
except WorkspaceError as error:
    print(error)
"""


def test_a_write_that_runs_out_of_room_leaves_the_old_file(project):
    """Workspace: atomic writes."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] > 5000 or resource.RLIM_INFINITY == -1
    (project / "f").write_text("old")
    command = [sys.executable, "-c", LIMITED, str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "f cannot be written: File too large; it is as it was\n"
    assert (project / "f").read_text() == "old"
    assert left_behind(project) == []


def test_a_file_changed_in_the_last_moment_is_left_alone(workspace, project):
    """Terminal approval: a second check of the file before it is replaced."""
    (project / "f").write_text("old")
    digest = workspace.state("f")
    (project / "f").write_text("theirs")
    with pytest.raises(WorkspaceError, match="changed by somebody else meanwhile"):
        workspace.write("f", "mine", expected=digest)
    assert (project / "f").read_text() == "theirs"
    assert left_behind(project) == []


def test_writes_are_taken_back_one_by_one(workspace, project):
    """Undo covers files written through tools."""
    path = project / "f"
    path.write_bytes(b"\xe4 old\r\n")
    path.chmod(0o700)
    workspace.write("f", "one\n")
    workspace.write("f", "two\n")
    assert workspace.undo_last_write() == "f is as it was before"
    assert path.read_bytes() == b"one\r\n"
    workspace.undo_last_write()
    assert path.read_bytes() == b"\xe4 old\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    with pytest.raises(WorkspaceError, match="no write to take back"):
        workspace.undo_last_write()


def test_a_file_that_was_new_is_gone_again(workspace, project):
    """Undo covers files written through tools."""
    workspace.write("new", "x")
    assert workspace.undo_last_write() == "new is gone again"
    assert not (project / "new").exists()


def test_a_file_that_somebody_changed_since_is_not_taken_back(workspace, project):
    """Undo never loses the work of others."""
    (project / "f").write_text("old")
    workspace.write("f", "mine")
    (project / "f").write_text("theirs")
    with pytest.raises(WorkspaceError, match="changed after it was written here"):
        workspace.undo_last_write()
    assert (project / "f").read_text() == "theirs"


def test_what_is_kept_for_undo_is_bounded(workspace, project, monkeypatch):
    """Never unbounded memory."""
    monkeypatch.setattr(workspace_module, "MOST_BYTES", 10)
    (project / "f").write_text("12345678")
    workspace.write("f", "abcdefgh")
    workspace.write("f", "ABCDEFGH")
    workspace.undo_last_write()
    assert (project / "f").read_text() == "abcdefgh"
    with pytest.raises(WorkspaceError, match="no write to take back"):
        workspace.undo_last_write()


def kept_on_disk():
    """Return all that the stores of running programs have on the disk."""
    base = Path(os.environ["XDG_STATE_HOME"])
    return b"".join(place.read_bytes() for place in base.rglob("pack"))


@pytest.mark.contract("trust.store.outside")
def test_what_a_write_replaced_is_kept_outside_and_not_in_memory(workspace, project, tmp_path, monkeypatch):
    """The file tools use the store of the images, below the user's directory for state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (project / "f").write_text("what was there before")
    (project / ".env").write_text("TOKEN=before")
    workspace.write("f", "new")
    workspace.write(".env", "TOKEN=after")
    assert b"what was there before" in kept_on_disk()
    assert b"TOKEN" not in kept_on_disk()
    assert {stat.S_IMODE(place.stat().st_mode) for place in tmp_path.glob("state/gramercy/files/*/*")} == {
        0o700
    }
    assert workspace.undo_last_write() == ".env is as it was before"
    assert (project / ".env").read_text() == "TOKEN=before"
    workspace.undo_last_write()


@pytest.mark.contract("trust.store.outside")
def test_without_a_directory_for_state_writes_are_taken_back_all_the_same(workspace, project, monkeypatch):
    """A state directory in the project could be changed by evaluated code."""
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    (project / "f").write_text("old")
    workspace.write("f", "new")
    assert workspace.undo_last_write() == "f is as it was before"
    assert not (project / "state").exists()


def test_unsaved_text_is_what_a_document_shows(workspace, project):
    """Decision 2: an open document with its unsaved text."""
    (project / "f").write_text("saved\n")
    workspace.attach(str(project / "f"), "unsaved\n", "an editor")
    assert workspace.document("f").text == "unsaved\n"
    assert workspace.document().owner == "an editor"
    assert workspace.read("f").text == "saved\n"
    workspace.documents.detach("f")
    assert workspace.document("f").text == "saved\n"


def test_a_file_with_unsaved_text_is_not_overwritten(workspace, project):
    """Nothing is lost: the owner of a document has the first right to its file."""
    (project / "f").write_text("saved\n")
    workspace.attach("f", "unsaved\n", "an editor")
    with pytest.raises(WorkspaceError, match="unsaved changes in an editor"):
        workspace.write("f", "mine")
    workspace.attach("f", "saved\n", "an editor")
    assert workspace.write("f", "mine") == 4


def test_a_document_need_not_be_a_file(workspace):
    """Decision 2: the terminal, the page or an editor can be the owner."""
    workspace.attach("*scratch*", "notes\n", "the terminal")
    assert workspace.document("*scratch*").text == "notes\n"


def test_without_an_open_document_one_must_be_named(workspace):
    """Errors say what to try."""
    with pytest.raises(WorkspaceError, match="no document is open"):
        workspace.document()


def test_many_open_files_push_the_oldest_out_but_no_unsaved_text(workspace):
    """Never unbounded memory."""
    workspace.attach("kept", "unsaved", "an editor")
    for number in range(700):
        workspace.documents.opened(f"f{number}")
    assert len(workspace.documents.names()) == 500
    assert workspace.documents.attached("kept") is not None
    assert workspace.documents.latest() == "f699"


@pytest.mark.parametrize("root", ["missing", "file"])
def test_a_project_that_is_no_directory_is_refused(tmp_path, root):
    """Errors say what is wrong."""
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match="the project"):
        Workspace(tmp_path / root)
