"""The file changes of a call: states are collected before the writes and compared after them.

The published types hold paths as displayable text: untrusted code chooses the names.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from gramercy.images.files.states import ABSENT, LARGEST_FILE, State
from gramercy.text import reveal_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gramercy.images.files.doubts import Sight
    from gramercy.images.files.store import Snapshot, Store

# The limit of undo for one call. Keeping 5,000 files takes about a second of its time.
MOST_PATHS = 5_000
MOST_BYTES = 256 << 20
# Files whose growth is counted. Each further one counts as much as the smallest.
MOST_COUNTED, LEAST_SPACE = 100_000, 4096
# Characters of a name in an answer. Longer ones are cut in the middle.
LONGEST_NAME = 300

Change = Literal["created", "changed", "deleted", "mode"]
Outcome = Literal["back", "gone", "left alone"]
UNHEARD = State(
    "left_out", reason="it changed without being heard of before, by the call or by another program"
)
OTHER_NAMES = "it has other names (hard links) that are not known"
KINDS = {"file": "a file", "link": "a symbolic link", "directory": "a directory"}


class FileChange(msgspec.Struct, frozen=True):
    """One path that a call changed. It is not certain if it was found by comparison."""

    path: str
    change: Change
    note: str = ""
    certain: bool = True


class FileOutcome(msgspec.Struct, frozen=True):
    """The outcome of restoring one path: it is as before, gone again, or left alone (with the reason)."""

    path: str
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class ChangeSet:
    """The paths that a call changed, each with its state before and after.

    `missing` says why there may be more changes than these. `remarks` are further notes by path. `origin`
    keeps the source of this one alive.
    """

    pairs: Mapping[str, tuple[State, State]]
    certain: bool = True
    missing: str = ""
    origin: ChangeSet | None = None
    remarks: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.pairs or self.missing)

    def digests(self) -> Iterable[str]:
        """Return the digests of all contents in it."""
        return [state.digest for pair in self.pairs.values() for state in pair if state.kind == "file"]

    def turned(self) -> ChangeSet:
        """Return the reverse changes."""
        pairs = {path: (after, before) for path, (before, after) in self.pairs.items()}
        return ChangeSet(pairs, self.certain, self.missing, self, self.remarks)

    def parted(self, is_first: Callable[[str], bool]) -> tuple[ChangeSet, ChangeSet]:
        """Split the changes by a predicate on paths."""
        first = {path: pair for path, pair in self.pairs.items() if is_first(path)}
        if not first:
            return ChangeSet({}), self
        rest = {path: pair for path, pair in self.pairs.items() if path not in first}
        return (
            ChangeSet(first, self.certain, "", self, self.remarks),
            ChangeSet(rest, self.certain, self.missing, self, self.remarks),
        )

    def told(self) -> list[FileChange]:
        """Return the published form, by path."""
        return [
            FileChange(shown(path), _change(*pair), self._said(path, *pair), self.certain)
            for path, pair in sorted(self.pairs.items())
        ]

    def _said(self, path: str, before: State, after: State) -> str:
        return ", ".join(filter(None, (_note(before, after), self.remarks.get(path))))


@dataclass(slots=True)
class Linked:
    """A written file with several names: its state before, the number of names, and the known ones."""

    before: State
    count: int
    names: set[str]


class Collector:
    """The paths that a call is about to change, each with its state before the first change."""

    def __init__(self, store: Store, is_ours: Callable[[str, int], bool] | None = None) -> None:
        self._store = store
        # Tells whether a tool or an undo changed a path at a time in nanoseconds: such a change is known.
        self._is_ours = is_ours
        self._before: dict[str, State] = {}
        # The raw paths that were noted, to skip repeated ones.
        self._noted: set[str | bytes] = set()
        self._linked: dict[tuple[int, int], Linked] = {}
        self._remarks: dict[str, str] = {}
        self._unheard: set[str] = set()
        # Since when a file may have changed before it was noted, in nanoseconds. 0 means never.
        self.doubted_since = 0
        self._bytes = 0
        self.missing = ""
        store.hold(self)

    def digests(self) -> Iterable[str]:
        """Return the digests of all contents that were kept for it."""
        return [state.digest for state in tuple(self._before.values()) if state.kind == "file"]

    def note(self, path: str | bytes, most: int = LARGEST_FILE) -> None:
        """Keep the state of a path, once. Paths outside of the project are not noted."""
        if path in self._noted:
            return
        self._noted.add(path)
        name = self._store.relative(path)
        if name is None or name in self._before:
            return
        if len(self._before) >= MOST_PATHS:
            self.missing = f"more than {MOST_PATHS:,} paths were changed: the rest is not known"
            return
        with self._store.lock:
            state = self._store.keep(name, self._room(most))
            self._before[name] = state
        self._bytes += state.size if state.kind == "file" else 0
        if self.doubted_since:
            changed = changed_at(path)
            if changed >= self.doubted_since and not (self._is_ours and self._is_ours(name, changed)):
                self._unheard.add(name)

    def renew(self, name: str) -> None:
        """Replace the noted state of a path by the one that an undo has restored."""
        if name in self._before:
            with self._store.lock:
                self._before[name] = self._store.keep(name, self._room(LARGEST_FILE))
            self._unheard.discard(name)

    def note_links(self, path: str) -> None:
        """Keep the state of a file with other names, before it is written by this one."""
        try:
            found = os.lstat(path)
        except OSError:
            return
        if found.st_nlink <= 1 or stat.S_ISDIR(found.st_mode):
            return
        name, inode = self._store.relative(path), (found.st_dev, found.st_ino)
        if name is None:
            return
        if inode not in self._linked:
            # Another file may have been noted under this name.
            with self._store.lock:
                self._linked[inode] = Linked(self._store.keep(name), found.st_nlink, set())
        self._linked[inode].names.add(name)

    def find_links(self, sight: Sight) -> None:
        """Count the other names of a written file as changed too. Say so if some are not known."""
        for path, found in sight.files.items():
            if (linked := self._linked.get((found.st_dev, found.st_ino))) is not None:
                linked.names.add(path)
                self._before.setdefault(path, linked.before)
                linked.count = max(linked.count, found.st_nlink)
        for linked in self._linked.values():
            if len(linked.names) < linked.count:
                self._remarks |= dict.fromkeys(linked.names, OTHER_NAMES)

    @property
    def has_links(self) -> bool:
        """Return whether a file with other names was written."""
        return bool(self._linked)

    def has_heard(self, path: str, found: os.stat_result) -> bool:
        """Return whether a changed path is noted, contains a noted one, or is another name of one."""
        if path in self._before or (found.st_dev, found.st_ino) in self._linked:
            return True
        return stat.S_ISDIR(found.st_mode) and any(name.startswith(f"{path}/") for name in self._before)

    def has_noted(self, name: str) -> bool:
        """Return whether a path relative to the project is noted."""
        return name in self._before

    def add_unheard(self, paths: Iterable[str], missing: str) -> None:
        """Add unheard changes, and the reason why there may be more."""
        self._unheard.update(paths)
        self.missing = self.missing or missing

    def note_moved(self, old: str | bytes, new: str | bytes) -> None:
        """Keep the states of both paths of a rename, with everything below them."""
        for one, other in ((old, new), (new, old)):
            for below in self._below(one):
                if self.missing:
                    return
                self.note(f"{_text(one)}{below}")
                self.note(f"{_text(other)}{below}")

    def _below(self, path: str | bytes) -> Iterator[str]:
        name = self._store.relative(path)
        yield ""
        if name is not None:
            yield from (f"/{inner}" for inner in self._store.below(name))

    def _room(self, most: int) -> int:
        return max(0, min(most, MOST_BYTES - self._bytes))

    def finish(self, *, certain: bool = True) -> ChangeSet:
        """Compare all noted paths with their current states, and keep those too: undo must lose nothing."""
        pairs: dict[str, tuple[State, State]] = {}
        made = ChangeSet(pairs, certain, self.missing, remarks=self._remarks)
        self._store.hold(made)
        for path, before in self._before.items():
            # A larger file that a tool has kept is read again with the same limit.
            most = max(LARGEST_FILE, before.size if before.kind == "file" else 0)
            with self._store.lock:
                after = self._store.keep(path, most)
                if after != before:
                    pairs[path] = (before, after)
        pairs.update((path, (UNHEARD, UNHEARD)) for path in self._unheard)
        return made


class Written:
    """The bytes that calls have written into a project: the growth of files opened for writing.

    Paths come from the listener's thread. The watch over the bounds asks for the size.
    """

    def __init__(self, project: str) -> None:
        self.project = project
        # The blocks of each file before. A renamed path continues under its new name.
        self._before: dict[str, int] = {}
        self._uncounted = 0

    def forget(self) -> None:
        """Restart the count."""
        self._before, self._uncounted = {}, 0

    def note(self, path: str) -> None:
        """Note that a file is about to be written."""
        if path in self._before:
            return
        if len(self._before) < MOST_COUNTED:
            self._before[path] = _space(path)
        else:
            self._uncounted += LEAST_SPACE

    def note_moved(self, old: str, new: str) -> None:
        """Note that a file or directory is about to be renamed."""
        if not new.startswith(self.project):
            return
        for path in [path for path in self._before if path == old or path.startswith(f"{old}/")]:
            self._before[new + path[len(old) :]] = self._before[path]

    def size(self) -> int:
        """Return the growth of the files in bytes."""
        grown = sum(max(0, _space(path) - before) for path, before in list(self._before.items()))
        return grown + self._uncounted


def _space(path: str) -> int:
    """Return the disk space of a file: of a sparse one its blocks, and without preallocated space."""
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - of many files, where paths cost more
    except OSError:
        return 0
    blocks = found.st_blocks * 512
    return blocks if blocks <= found.st_size else max(found.st_size, blocks - found.st_size)


def compared(store: Store, before: Snapshot, after: Snapshot) -> ChangeSet:
    """Return the differences between two snapshots. Their cause is not certain."""
    pairs = {}
    for path in before.keys() | after.keys():
        old = before[path].state if path in before else ABSENT
        new = after[path].state if path in after else ABSENT
        if old != new:
            pairs[path] = (old, new)
    made = ChangeSet(pairs, certain=False)
    store.hold(made)
    return made


def shown(path: str) -> str:
    """Return a name on one line with hidden characters escaped. A long one is cut in the middle."""
    text = reveal_line(path)
    half = LONGEST_NAME // 2
    return text if len(text) <= LONGEST_NAME else f"{text[:half]}…{text[-half:]}"


def changed_at(path: str | bytes) -> int:
    """Return the last change of a file in nanoseconds, 0 for a directory or nothing."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    return 0 if stat.S_ISDIR(found.st_mode) else found.st_ctime_ns


def _text(path: str | bytes) -> str:
    return path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")


def _change(before: State, after: State) -> Change:
    if before.kind == "absent":
        return "created"
    if after.kind == "absent":
        return "deleted"
    is_mode = before.kind == after.kind and before.kind != "left_out" and before.digest == after.digest
    return "mode" if is_mode and before.target == after.target else "changed"


def _note(before: State, after: State) -> str:
    for state in (before, after):
        if state.kind == "left_out":
            return f"cannot be taken back: {state.reason}"
    if before.kind == after.kind == "link":
        return f"a symbolic link to {shown(after.target)}"
    if before.kind == after.kind:
        return f"{before.mode:04o} to {after.mode:04o}" if before.mode != after.mode else ""
    if "absent" in (before.kind, after.kind):
        there = after if before.kind == "absent" else before
        return KINDS[there.kind] if there.kind != "file" else ""
    return f"{KINDS[before.kind]} became {KINDS[after.kind]}"
