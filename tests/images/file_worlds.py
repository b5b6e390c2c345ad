"""A small project, what an evaluation does to it, and a restore of that which is killed at a place.

As a program: make for each place a directory below the first argument in which a restore was killed there.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
from itertools import count
from pathlib import Path
from typing import Any

from gramercy.images.files import places, replacing
from gramercy.images.files.changes import ChangeSet, compared
from gramercy.images.files.restoring import restore
from gramercy.images.files.store import Store
from tests.support import reap


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
            found[name] = f"file {mode:o} {place.read_bytes()[:100]!r}"
    return found


def prepare(root):
    """Make a project."""
    for number in range(4):
        put(root, f"f{number}", f"old {number}")
    put(root, "gone/x", "old")
    put(root, "log", b"old log " * 20)
    (root / "empty").mkdir()
    (root / "closed").mkdir()
    put(root, "closed/in", "old")
    (root / "closed").chmod(0o500)
    (root / "link").symlink_to("f0")


def change(root):
    """Change it in all ways."""
    put(root, "f0", "new")
    (root / "f1").unlink()
    (root / "f2").rename(root / "r2")
    (root / "f3").chmod(0o700)
    shutil.rmtree(root / "gone")
    (root / "empty").rmdir()
    (root / "link").unlink()
    put(root, "link", "a file now")
    put(root, "made/deep/z", "new")
    put(root, "log", b"a longer log " * 30)
    (root / "closed").chmod(0o700)
    (root / "closed/in").unlink()


def by_comparison(store: Any, work: Any) -> ChangeSet:
    """Let something change the project, and return what it changed."""
    before = store.snapshot()
    work(store.root)
    return compared(store, before, store.snapshot(before))


def changed(base):
    """Return the project below a directory, its store, what changed, and the file that is held open."""
    root = base / "project"
    prepare(root)
    store = Store(base / "state", root)
    changes = by_comparison(store, change)
    found = (root / "log").stat()
    return root, store, changes, [(found.st_dev, found.st_ino)]


def killed_at(base, place):
    """Restore in a process that is killed at a place; False if it came to its end before."""
    process = os.fork()
    if not process:
        _, store, changes, held = changed(base)
        places = count(1)

        def at(_):
            if next(places) == place:
                os.kill(os.getpid(), signal.SIGKILL)

        restore(store, changes, held_open=held, at=at)
        os._exit(0)
    return reap(process) == -signal.SIGKILL


if __name__ == "__main__":
    # So that a file is written over in several steps.
    replacing.STEP = 40
    if "without-exchange" in sys.argv:
        setattr(places, "exchange", lambda *_: False)  # noqa: B010 - mypy knows its type
    for number in count(1):
        if not killed_at(Path(sys.argv[1]) / f"{number:03}", number):
            break
