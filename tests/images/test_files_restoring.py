"""Files go back to an earlier state: what changed is taken back, what a person did since is not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gramercy.images.files import changes as changes_module
from gramercy.images.files import store as store_module
from gramercy.images.files.changes import ChangeSet, Collector
from gramercy.images.files.restoring import recover, restore
from gramercy.images.files.states import ABSENT, LARGEST_FILE
from gramercy.images.files.store import Store
from tests.images.file_worlds import by_comparison, changed, put, world


def told(outcomes):
    return {outcome.path: (outcome.outcome, outcome.reason) for outcome in outcomes}


ROOT = Path(__file__).parents[2]


@pytest.fixture
def many(tmp_path):
    """Return a directory for hundreds of restores: in memory, where to flush a file takes no time."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    put(root, "a", "1")
    put(root, "d/b", "2")
    return root


@pytest.fixture
def store(tmp_path, project):
    made = Store(tmp_path / "state", project)
    yield made
    made.close()


def to_link(root):
    (root / "a").unlink()
    (root / "a").symlink_to("/etc/passwd")


def to_directory(root):
    (root / "a").unlink()
    put(root, "a/x/y")


def to_file(root):
    shutil.rmtree(root / "d")
    put(root, "d", "file")


def to_link_outwards(root):
    shutil.rmtree(root / "d")
    (root / "d").symlink_to("/tmp")


def forged_time(root):
    was = (root / "a").stat()
    put(root, "a", "X")
    os.utime(root / "a", ns=(was.st_atime_ns, was.st_mtime_ns))


def closed_directory(root):
    put(root, "d/new")
    (root / "d/b").unlink()
    (root / "d").chmod(0o500)


CHANGES = {
    "write": lambda root: put(root, "a", "new"),
    "rename a file": lambda root: (root / "a").rename(root / "d/c"),
    "rename a directory": lambda root: (root / "d").rename(root / "e"),
    "delete a tree": lambda root: shutil.rmtree(root / "d"),
    "make a tree": lambda root: put(root, "n/m/x"),
    "mode": lambda root: (root / "a").chmod(0o4755),
    "mode of a directory": lambda root: (root / "d").chmod(0o700),
    "closed directory": closed_directory,
    "file to link": to_link,
    "file to directory": to_directory,
    "directory to file": to_file,
    "directory to link outwards": to_link_outwards,
    "bytes": lambda root: put(root, "a", b"\r\n\0\xff \n"),
    "name that is not UTF-8": lambda root: put(root, os.fsdecode(b"\xff\xfe"), "2"),
    "name with a line in it": lambda root: put(root, "one\ntwo", "2"),
    "time forged back": forged_time,
}


@pytest.mark.parametrize("work", CHANGES.values(), ids=CHANGES)
def test_what_changed_goes_back_and_forward_again(store, project, work):
    before = world(project)
    changes = by_comparison(store, work)
    after = world(project)
    assert after != before
    restore(store, changes)
    assert world(project) == before
    restore(store, changes.turned())
    assert world(project) == after


def person_edits(root):
    """Save two files that the evaluation changed, one of them by rename, and one that it did not touch."""
    put(root, "f0", "person")
    put(root, "f1~", "person")
    (root / "f1~").rename(root / "f1")
    put(root, "mine", "person")


def kept_in(root, name):
    place = root / name
    return place.is_file() and place.read_bytes() == b"person"


@pytest.mark.contract("trust.store.killed-restore")
@pytest.mark.parametrize("way", ["", "without-exchange"])
@pytest.mark.parametrize("person", [None, person_edits])
@pytest.mark.slow
def test_a_restore_that_is_killed_at_any_place_is_finished_at_the_next_start(many, person, way):
    """Issue: kill -9 in the middle of a restore, no half state; what a person saved after it is kept."""
    program = [sys.executable, "-m", "tests.images.file_worlds", many / "bases", way]
    subprocess.run(program, check=True, timeout=120, cwd=ROOT)
    bases = sorted((many / "bases").iterdir())
    *killed, whole = bases
    assert len(killed) > 40
    want = world(whole / "project")
    for base in killed:
        root = base / "project"
        if person is not None:
            person(root)
        recover(base / "state", root)
        if person is not None:
            assert all(kept_in(root, name) for name in ("f0", "f1", "mine")), base.name
            (root / "mine").unlink()
            put(root, "f0", "old 0")
            put(root, "f1", "old 1")
        assert world(root) == want, base.name
        assert not list((base / "state").iterdir())


def saves(root, name, *, by_rename):
    if by_rename:
        put(root, "other~", "person")
        (root / "other~").rename(root / name)
    else:
        put(root, name, "person")


@pytest.mark.contract("trust.store.saves")
@pytest.mark.parametrize("by_rename", [False, True])
@pytest.mark.parametrize("name", ["f0", "f1", "f2", "f3", "r2", "link", "log"])
@pytest.mark.slow
def test_what_a_person_saves_in_the_middle_of_a_restore_is_never_lost(many, name, by_rename):
    """At every place where another process can come between."""
    place, reached = 0, 1
    while reached >= place:
        place, reached = place + 1, 0
        root, store, changes, held = changed(many / str(place))

        def at(_, root=root, place=place):
            nonlocal reached
            reached += 1
            if reached == place:
                saves(root, name, by_rename=by_rename)

        outcomes = restore(store, changes, held_open=held, at=at)
        store.close()
        # A link is written through.
        assert reached < place or kept_in(root, name) or kept_in(root, "f0"), (place, outcomes)
        assert not [left for left in world(root) if ".gramercy-" in left or ".kept-" in left], place
    assert place > 40


def collected(store, work, *paths):
    """Let something change these paths, and return what it changed."""
    collector = Collector(store)
    for path in paths:
        collector.note(path)
    work(store.root)
    return collector.finish()


@pytest.mark.contract("trust.store.limits")
def test_what_is_large_secret_or_too_much_is_told_and_left_alone(store, project, monkeypatch):
    """Limits on size and number are told; secret-like names are never copied."""
    monkeypatch.setattr(changes_module, "MOST_PATHS", 3)

    def work(root):
        put(root, "big", b"0" * (LARGEST_FILE + 1))
        put(root, ".env", "KEY=1")
        put(root, "a", "new")
        put(root, "more", "x")

    changes = collected(store, work, "big", ".env", "a", "more")
    notes = {change.path: change.note for change in changes.told()}
    assert "larger than 5 MB" in notes["big"]
    assert "that of a secret" in notes[".env"]
    assert "more than 3 paths" in changes.missing
    outcomes = told(restore(store, changes))
    assert outcomes["a"] == ("back", "")
    assert outcomes["big"][0] == outcomes[".env"][0] == "left alone"
    assert b"KEY=1" not in (store.directory / "pack").read_bytes()
    assert (project / "more").exists()


@pytest.mark.contract("trust.store.links")
@pytest.mark.parametrize("held", [False, True])
def test_no_planted_link_leads_a_restore_out_of_the_project(store, project, tmp_path, held):
    """Evaluated code can put a link in the place of a directory or a file at any time."""
    outside = tmp_path / "outside"
    put(outside, "b", "of the user")
    put(outside, "new", "of the user")
    before = world(outside)

    def work(root):
        put(root, "d/b", "changed")
        put(root, "d/new", "made")

    changes = collected(store, work, "d/b", "d/new")
    shutil.rmtree(project / "d")
    (project / "d").symlink_to(outside)
    found = (outside / "b").stat()
    restore(store, changes, held_open=[(found.st_dev, found.st_ino)] if held else ())
    assert world(outside) == before
    (project / "d").unlink()
    put(project, "d/new", "made")
    (project / "d/b").symlink_to(outside / "b")
    restore(store, changes, held_open=[(found.st_dev, found.st_ino)] if held else ())
    assert world(outside) == before
    assert store.keep("d/b").kind == "link"


def test_a_hard_link_is_told_and_never_written_through(store, project, tmp_path):
    """Another name could lie outside of the project."""
    changes = collected(store, lambda root: put(root, "a", "new"), "a")
    os.link(project / "a", tmp_path / "other")
    found = (project / "a").stat()
    outcomes = told(restore(store, changes, held_open=[(found.st_dev, found.st_ino)]))
    assert outcomes["a"] == ("left alone", "the image has it open, and it has other names (hard links)")
    assert "hard links" in told(restore(store, changes))["a"][1]
    assert (tmp_path / "other").read_text() == "new"
    assert (project / "a").read_text() == "1"


def test_what_belongs_to_git_is_neither_kept_nor_brought_back(store, project):
    """Control files are never touched, whatever a change set says."""
    put(project, ".git/config", "old")
    state = store.keep("a")
    changes = ChangeSet({".git/config": (state, store.keep("d/b")), "d/.GIT/x": (state, ABSENT)})
    assert {outcome for outcome, _ in told(restore(store, changes)).values()} == {"left alone"}
    assert (project / ".git/config").read_text() == "old"
    assert not [path for path in store.snapshot() if ".git" in path]


def test_what_nothing_needs_any_more_leaves_the_store(store, project, monkeypatch):
    """The store is bounded: a content goes with the last change set that names it."""
    kept = collected(store, lambda root: put(root, "a", "x" * 1000), "a")
    dropped = collected(store, lambda root: put(root, "d/b", "y" * 5000), "d/b")
    del dropped
    store.tidy()
    assert (store.directory / "pack").stat().st_size == 1001
    restore(store, kept)
    assert (project / "a").read_text() == "1"
    monkeypatch.setattr(store_module, "LARGEST_PACK", 10)
    put(project, "a", "z" * 500)
    assert "older contents" in store.keep("a").reason


def test_above_ten_thousand_files_nothing_is_compared(store, monkeypatch):
    """The fallback is off in a large project, instead of slow."""
    monkeypatch.setattr(store_module, "MOST_FILES", 1)
    assert store.snapshot() is None


KEEPING = """
import os, signal, sys
from pathlib import Path
from gramercy.images.files.store import Store
store = Store(Path(sys.argv[1]), Path(sys.argv[2]))
add, left = store.add, [int(sys.argv[3])]
def cut(data, **options):
    left[0] -= 1
    if not left[0]:
        os.pwrite(store._pack, data[: len(data) // 2], store._size)
        os.kill(os.getpid(), signal.SIGKILL)
    return add(data, **options)
store.add = cut
store.snapshot()
"""


@pytest.mark.contract("trust.store.killed-keep")
def test_a_process_that_is_killed_while_it_keeps_leaves_no_half_state(tmp_path, project):
    """Kill -9 in the middle of a snapshot: the project is untouched, and the next start begins anew."""
    before = world(project)
    for place in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", KEEPING, tmp_path / "state", project, str(place)], check=False, timeout=60
        )
        assert done.returncode == -signal.SIGKILL
    assert recover(tmp_path / "state", project) == []
    assert not list((tmp_path / "state").iterdir())
    assert world(project) == before
    store = Store(tmp_path / "state", project)
    states = [seen.state for seen in (store.snapshot() or {}).values() if seen.state.kind == "file"]
    assert sorted(store.content(state.digest) for state in states) == [b"1", b"2"]
    store.close()
