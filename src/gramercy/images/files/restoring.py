"""Restore paths of a project to an earlier state, without losing later changes of a person.

A path is restored only if it is still as the call left it. Anything else is left alone and reported. A save
cannot come between a check and the change after it: the old content is swapped with the current file, and the
swapped-out file is checked. A journal of intents is written first. `recover` uses it to finish an interrupted
restore.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gramercy.errors import FileStoreError
from gramercy.images.files import places
from gramercy.images.files.changes import FileOutcome, shown
from gramercy.images.files.replacing import OPEN, Way
from gramercy.images.files.states import State, is_repository, state_at
from gramercy.images.files.store import abandoned, read_pack
from gramercy.images.interrupts import unbroken
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from gramercy.images.files.changes import ChangeSet, Outcome
    from gramercy.images.files.store import Store

JOURNAL = "journal"
# Up to this number each restored file is flushed to the disk separately. Beyond it, all at once.
MOST_FLUSHED = 16


def _nowhere(place: str) -> None:
    """Do nothing. Tests stop or kill the process at a place."""


class Step(NamedTuple):
    """One path, with the state it was left in and the wanted state."""

    path: str
    want: State
    left: State
    in_place: bool = False


def restore(
    store: Store,
    changes: ChangeSet,
    *,
    held_open: Collection[tuple[int, int]] = (),
    at: Callable[[str], None] = _nowhere,
) -> list[FileOutcome]:
    """Undo changes and return the outcome for each path.

    `held_open` are device and inode of files that the image has open: they keep their inode. `at` is called
    at every place where the process could be killed.
    """
    with unbroken(), store.turn:
        if store.is_pinned:
            # An earlier restore ended in an exception.
            _recovered(store.directory, store.root)
            store.is_pinned = False
        steps = _ordered(store, changes, held_open)
        if not steps:
            return []
        few = len(steps) <= MOST_FLUSHED
        token, stranded = secrets.token_hex(4), _stranded(steps)
        run = _Run(store.root, token, store.content, at, flush_each=few, stranded=stranded)
        store.is_pinned = True
        if any(step.in_place for step in steps):
            # Only there a power cut can leave a partial file that needs the kept content.
            store.sync()
        _write_journal(store.directory, _journal(store, run.token, steps))
        at("journal written")
        outcomes = run.all(steps)
        (store.directory / JOURNAL).unlink()
        store.is_pinned = False
        return outcomes


def recover(directory: Path, root: Path) -> list[FileOutcome]:
    """Finish the restores of killed processes, and remove their kept contents. Called at the start."""
    told: list[FileOutcome] = []
    for own in abandoned(directory):
        told += _recovered(own, root.resolve())
    return told


def _recovered(own: Path, root: Path) -> list[FileOutcome]:
    """Finish the restore of a journal. Without a journal nothing was begun."""
    if not (own / JOURNAL).exists():
        return []
    read = json.loads((own / JOURNAL).read_text(encoding="ascii"))
    steps = [Step(path, _state(want), _state(left), held) for path, want, left, held in read["steps"]]
    pack = os.open(own / "pack", os.O_RDONLY | os.O_CLOEXEC)

    def content(digest: str) -> bytes:
        if read["places"][digest] is None:
            raise FileStoreError("its content was kept in memory only, since its name is that of a secret")
        start, size = read["places"][digest]
        return read_pack(pack, start, size, digest)

    try:
        few = len(steps) <= MOST_FLUSHED
        run = _Run(root, read["token"], content, is_resumed=True, flush_each=few, stranded=_stranded(steps))
        told = run.all(steps)
    finally:
        os.close(pack)
    (own / JOURNAL).unlink()
    return told


def _ordered(store: Store, changes: ChangeSet, held: Collection[tuple[int, int]]) -> list[Step]:
    """Return the removals, deepest first, and then the rest, directories before their contents."""
    steps = [
        Step(path, want, left, bool(held) and _is_held(store, path, held))
        for path, (want, left) in sorted(changes.pairs.items())
    ]
    away = [step for step in reversed(steps) if step.want.kind == "absent"]
    return away + [step for step in steps if step.want.kind != "absent"]


def _stranded(steps: Iterable[Step]) -> frozenset[str]:
    return frozenset(step.want.digest for step in steps if step.left.kind == "left_out" and step.want.digest)


def _is_held(store: Store, path: str, held: Collection[tuple[int, int]]) -> bool:
    *folders, name = path.split("/")
    try:
        with places.directory(store.root, folders) as folder:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) in held


def _journal(store: Store, token: str, steps: list[Step]) -> dict[str, Any]:
    states = [state for step in steps for state in (step.want, step.left) if state.kind == "file"]
    return {
        "token": token,
        "steps": [[step.path, asdict(step.want), asdict(step.left), step.in_place] for step in steps],
        "places": {state.digest: store.place(state.digest) for state in states},
    }


def _state(fields: dict[str, Any]) -> State:
    owner = fields.pop("owner")
    return State(**fields, owner=tuple(owner) if owner else None)


def _write_journal(directory: Path, journal: dict[str, Any]) -> None:
    new = directory / f"{JOURNAL}.new"
    # Names need not be UTF-8. This notation has an escape for every code.
    with new.open("w", encoding="ascii") as file:
        json.dump(journal, file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(directory / JOURNAL)


@dataclass(frozen=True, slots=True)
class _Run:
    """One restore, from its journal to its end."""

    root: Path
    token: str
    content: Callable[[str], bytes]
    at: Callable[[str], None] = _nowhere
    is_resumed: bool = False
    flush_each: bool = True
    # Digests of contents whose path now holds something unkept: their copies elsewhere stay.
    stranded: frozenset[str] = frozenset()

    def all(self, steps: list[Step]) -> list[FileOutcome]:
        """Restore all paths."""
        self._open_directories(steps)
        outcomes = []
        for number, step in enumerate(steps):
            outcomes.append(self._one(number, step))
            self.at("step done")
        self._close_directories(zip(steps, outcomes, strict=True))
        if not self.flush_each:
            os.sync()
        self.at("all done")
        return outcomes

    def _one(self, number: int, step: Step) -> FileOutcome:
        try:
            outcome, reason = self._done(number, step)
        except (FileNotFoundError, NotADirectoryError):
            outcome, reason = "left alone", "its directory is gone, or no directory any more"
            if step.want.kind == "absent":
                outcome, reason = "gone", "it was gone already"
        except OSError as error:
            outcome, reason = "left alone", reason_of(error)
        except FileStoreError as error:
            outcome, reason = "left alone", str(error)
        return FileOutcome(shown(step.path), outcome, reason)

    def _done(self, number: int, step: Step) -> tuple[Outcome, str]:
        for state in (step.want, step.left):
            if state.kind == "left_out":
                return "left alone", f"it was not kept: {state.reason}"
        if is_repository(step.path):
            return "left alone", "it belongs to version control"
        if step.want.kind == "absent" and step.left.kind == "file" and step.left.digest in self.stranded:
            return "left alone", "it has the content of a file that cannot be put back"
        *folders, name = step.path.split("/")
        with places.directory(self.root, folders) as folder:
            done = Way(self, number, step, folder, name).go()
            if self.flush_each:
                os.fsync(folder)
        return done

    def _open_directories(self, steps: list[Step]) -> None:
        """Restore permissions in directories that the call removed them from."""
        for step in steps:
            left = step.left
            if left.kind == "directory" and left.mode & OPEN != OPEN:
                self._set_mode(step.path, left.mode, left.mode | OPEN)

    def _close_directories(self, done: Iterable[tuple[Step, FileOutcome]]) -> None:
        """Remove permissions from directories that should not have them, the deepest first."""
        for step, outcome in sorted(done, key=lambda each: each[0].path, reverse=True):
            end = step.left if outcome.outcome == "left alone" else step.want
            if end.kind == "directory" and end.mode & OPEN != OPEN:
                self._set_mode(step.path, end.mode | OPEN, end.mode)

    def _set_mode(self, path: str, old: int, new: int) -> None:
        *folders, name = path.split("/")
        with contextlib.suppress(OSError), places.directory(self.root, folders) as folder:
            if state_at(folder, name, 0) == State("directory", old):
                places.set_mode(folder, name, new, stat.S_IFDIR)
