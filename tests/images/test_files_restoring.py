"""Files go back to an earlier state: what changed is taken back, what a person did since is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gramercy.images.files.restoring import recover, restore
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
