"""What a call changed in the files of a project: collected before the writes, compared after them.

The types that are published name paths as text that can be shown: names come from untrusted code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from gramercy.images.files.states import ABSENT, LARGEST_FILE, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gramercy.images.files.store import Snapshot, Store

# What one call may change and have taken back. To keep 5,000 files takes about a second of its time.
MOST_PATHS = 5_000
MOST_BYTES = 256 << 20
# Of a name in an answer; longer ones are cut in the middle.
LONGEST_NAME = 300

Change = Literal["created", "changed", "deleted", "mode"]
Outcome = Literal["back", "gone", "left alone"]
KINDS = {"file": "a file", "link": "a symbolic link", "directory": "a directory"}


class FileChange(msgspec.Struct, frozen=True):
    """One path that a call changed. It is not certain where it was found by comparison."""

    path: str
    change: Change
    note: str = ""
    certain: bool = True


class FileOutcome(msgspec.Struct, frozen=True):
    """What became of one path when it was to go back: it is as before, gone again, or left alone (why)."""

    path: str
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class ChangeSet:
    """The paths that a call changed, each with its state before and after.

    `missing` says why there are more changes than these; `origin` keeps what this one was made from alive.
    """

    pairs: Mapping[str, tuple[State, State]]
    certain: bool = True
    missing: str = ""
    origin: ChangeSet | None = None

    def __bool__(self) -> bool:
        return bool(self.pairs or self.missing)

    def digests(self) -> Iterable[str]:
        """Return the digests of all contents in it."""
        return [state.digest for pair in self.pairs.values() for state in pair if state.kind == "file"]

    def turned(self) -> ChangeSet:
        """Return the changes that lead the other way."""
        pairs = {path: (after, before) for path, (before, after) in self.pairs.items()}
        return ChangeSet(pairs, self.certain, self.missing, self)

    def told(self) -> list[FileChange]:
        """Return what is published of it, by path."""
        return [
            FileChange(shown(path), _change(*pair), _note(*pair), self.certain)
            for path, pair in sorted(self.pairs.items())
        ]


class Collector:
    """The paths that a call is about to change, each with its state before the first change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._before: dict[str, State] = {}
        self._bytes = 0
        self.missing = ""
        store.hold(self)

    def digests(self) -> Iterable[str]:
        """Return the digests of all contents that were kept for it."""
        return [state.digest for state in tuple(self._before.values()) if state.kind == "file"]

    def note(self, path: str | bytes, most: int = LARGEST_FILE) -> None:
        """Keep the state of a path, once; paths that are not the project's are not noted."""
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

    def note_moved(self, old: str | bytes, new: str | bytes) -> None:
        """Keep the states of two paths of which one will become the other, with all that is below them."""
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
        """Compare all noted paths with what they are now, and keep that too, so that undo loses nothing."""
        pairs: dict[str, tuple[State, State]] = {}
        made = ChangeSet(pairs, certain, self.missing)
        self._store.hold(made)
        for path, before in self._before.items():
            # What was kept as a larger file by a tool is read again by the same measure.
            most = max(LARGEST_FILE, before.size if before.kind == "file" else 0)
            with self._store.lock:
                after = self._store.keep(path, most)
                if after != before:
                    pairs[path] = (before, after)
        return made


def compared(store: Store, before: Snapshot, after: Snapshot) -> ChangeSet:
    """Return what differs between two snapshots: by the time between them, so it is not certain."""
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
    """Return a name as one line of printable text."""
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in path)
    half = LONGEST_NAME // 2
    return text if len(text) <= LONGEST_NAME else f"{text[:half]}…{text[-half:]}"


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
