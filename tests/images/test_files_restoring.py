"""Files go back to an earlier state: what changed is taken back, what a person did since is not."""

from __future__ import annotations

import os
import shutil
import stat

import pytest

from gramercy.images.files.changes import compared
from gramercy.images.files.restoring import restore
from gramercy.images.files.store import Store


def put(root, path, content="x", mode=0o644):
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    place.chmod(mode)


def world(root):
    """Return all that is below a directory: names, modes, contents and targets."""
    found = {}
    for place in sorted(root.rglob("*")):
        name = str(place.relative_to(root))
        mode = stat.S_IMODE(place.lstat().st_mode)
        if place.is_symlink():
            found[name] = f"link to {place.readlink()}"
        elif place.is_dir():
            found[name] = f"directory {mode:o}"
        else:
            found[name] = f"file {mode:o} {place.read_bytes()!r}"
    return found


def told(outcomes):
    return {outcome.path: (outcome.outcome, outcome.reason) for outcome in outcomes}


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


def by_comparison(store, work):
    """Let something change the project, and return what it changed."""
    before = store.snapshot()
    work(store.root)
    return compared(store, before, store.snapshot(before))


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
