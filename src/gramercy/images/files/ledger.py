"""The files that an image changes, call by call, and the way from one of its states to another.

Stops of the listener come in on its thread; calls begin and end on others. What a call changed is a link of a
trail, and every kept state of the image knows where on the trail it stands. To go to another state is to take
back the links up to the common one, and to do again those that lead to the goal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime, perf_counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gramercy.errors import FileStoreError
from gramercy.images.environment import Files
from gramercy.images.files.changes import ChangeSet, Collector, FileChange, FileOutcome, compared, shown
from gramercy.images.files.listener import RENAMES, Listener, listen
from gramercy.images.files.others import (
    Others,
    Positions,
    inodes,
    positions,
    set_positions,
    written_by,
)
from gramercy.images.files.restoring import recover, restore
from gramercy.images.files.states import State
from gramercy.images.files.store import Store, files_directory
from gramercy.images.files.telling import outcomes_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gramercy.images.files.changes import Change
    from gramercy.images.files.listener import Stop
    from gramercy.images.files.store import Snapshot
    from gramercy.images.processes import Family
    from gramercy.images.walls import Sentry

# Written whenever a module is imported, and checked against its source: it tells nobody anything.
UNTOLD = "/__pycache__/"
CALL, BACKGROUND, PREVIEW = "call", "in the background", "preview"
SAVED_TOO = "another program saved it during the call"
IN_BACKGROUND = "it was written in the background"
# What a preview tried to write: as many as a person reads.
MOST_ATTEMPTS = 50
# Processes of one call that are remembered at a time: more live ones than a sandbox allows.
MOST_PROCESSES = 2_000
# The start of a process is known in ticks of 10 ms.
TICK_SECONDS = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")
OFF = "the project has too many files to be compared before and after every call"


@dataclass(eq=False, slots=True)
class Trail:
    """What one call changed, and the changes before it; `why_left` says why it is never taken back, if so.

    `before` and `after` are the positions in files that were open then, which copies of a process share.
    """

    changes: ChangeSet
    previous: Trail | None = None
    depth: int = 1
    why_left: str = ""
    before: Positions = field(default_factory=dict)
    after: Positions = field(default_factory=dict)


class Account(msgspec.Struct, frozen=True):
    """What a call changed, for its reply, and sentences about what is not known of it."""

    files: list[FileChange] = []
    notes: list[str] = []


NOTHING = Account()


class Call(NamedTuple):
    """When the call under way began, and in which process."""

    started: float
    pid: int
    # Why what it changes is only told of; empty for an evaluation.
    why_left: str = ""


class Ledger:
    """What the processes of one image change in its project.

    Without a listener the whole project is compared before and after each call.
    """

    def __init__(self, store: Store, *, compares: bool = False) -> None:
        self.store = store
        self.head: Trail | None = None
        self.compares = compares
        self._prefix = f"{store.root}/".replace("//", "/")
        self._lock = threading.Lock()
        # Set without a call of `begin` or `finish` as long as nothing stirs, which is the way of most calls.
        self.call: Call | None = None
        self.is_stirred = compares
        self._kinds: dict[int, str] = {}
        self._collectors: dict[str, Collector] = {}
        self._preview = 0
        self._attempts: dict[str, FileChange] = {}
        self._unread = ""
        # Files that a process may write without another stop, and whether that is the live process.
        self._held: dict[str, bool] = {}
        self._positions: Positions = {}
        self._writers: set[int] = set()
        self._has_held = False
        self._others = Others()
        self._before: Snapshot | None = None

    def heard(self, stop: Stop | None) -> None:
        """Keep the states of the paths that a call is about to change; called by the listener."""
        if stop is None:
            self._unread, self.is_stirred = "some of its system calls could not be read", True
            return
        if stop.call == "io_uring_setup":
            self._unread, self.is_stirred = "it used io_uring, whose writes are not seen", True
        paths = [path for path in stop.paths if path.startswith(self._prefix) and UNTOLD not in f"{path}/"]
        if not paths:
            return
        with self._lock:
            kind = self._kinds.get(stop.pid) or self._kind(stop.pid)
            if kind is PREVIEW:
                self._attempted(stop, paths)
                return
            self.is_stirred = True
            if stop.opens:
                self._note_writer(stop.pid)
            self._expect(stop, paths)
            collector = self._collector(kind)
            if stop.call in RENAMES and len(stop.paths) == 2:  # noqa: PLR2004 - old and new
                collector.note_moved(*stop.paths)
            for path in paths:
                collector.note(path)

    def _note_writer(self, pid: int) -> None:
        """Remember who may have a file open; of a call that starts very many processes, those that live."""
        self._writers.add(pid)
        if len(self._writers) > MOST_PROCESSES or len(self._kinds) > MOST_PROCESSES:
            self._writers = {each for each in self._writers if os.path.exists(f"/proc/{each}")}
            self._kinds.clear()

    def _expect(self, stop: Stop, paths: list[str]) -> None:
        """Count a save, so that those of others can be told from it."""
        if not self._collectors:
            self._others.begin()
        if stop.opens or stop.call in RENAMES:
            self._others.expect(paths[-1], is_rename=not stop.opens)

    def _collector(self, kind: str) -> Collector:
        found = self._collectors.get(kind)
        if found is None:
            found = self._collectors[kind] = Collector(self.store)
        return found

    def _kind(self, pid: int) -> str:
        """Tell for whom a thread acts: for the call under way, for an earlier one, or for a preview."""
        leader = _leader(pid)
        if leader == self._preview:
            kind = PREVIEW
        elif self.call is None:
            kind = BACKGROUND
        elif leader == self.call.pid or _age(leader) <= perf_counter() - self.call.started + TICK_SECONDS:
            kind = CALL
        else:
            kind = BACKGROUND
        self._kinds[pid] = kind
        return kind

    def begin(self, pid: int, why_left: str = "") -> None:
        """Note that a call begins, in this process; what is held open can be written without a stop.

        `why_left` says why its changes are not to be taken back.
        """
        with self._lock:
            self._kinds.clear()
            for path, is_live in self._held.items():
                self._collector(CALL if is_live else BACKGROUND).note(path)
            held = {path for path, is_live in self._held.items() if is_live}
            self._positions = positions(pid, held) if held else {}
            self.call = Call(perf_counter(), pid, why_left)
        if self.compares:
            self._before = self.store.snapshot(self._before)

    def finish(self, pid: int = 0) -> Account:
        """Return what the call that is over has changed, and the background since the call before it.

        `pid` is the live process where no call was under way.
        """
        with self._lock:
            call, self.call = self.call, None
            self._kinds.clear()
            collectors, self._collectors = self._collectors, {}
            unread, self._unread = self._unread, ""
            self.is_stirred = bool(self._held or self.compares)
        if not collectors and not unread and not self.compares:
            return NOTHING
        account = Account([], [f"Not all files that changed are known: {unread}."] if unread else [])
        self._look_at_held(call.pid if call is not None else pid)
        saved = self._others.savers(self._held) if self._others.is_sure else None
        first = self.head
        if BACKGROUND in collectors:
            changes = collectors[BACKGROUND].finish(certain=not unread)
            self._add(changes, account, IN_BACKGROUND)
        if CALL in collectors:
            changes = self._without_saves(collectors[CALL].finish(certain=not unread), saved)
            self._add(changes, account, call.why_left if call is not None else "")
        if self._positions and call is not None:
            self._note_positions(call.pid, first)
        if self.compares and call is not None:
            self._compare(account)
        return account

    def _without_saves(self, changes: ChangeSet, saved: set[str] | None) -> ChangeSet:
        """Return the changes, with what others have saved too marked as not to be touched."""
        if saved is None:
            return dataclasses.replace(changes, certain=False)
        names = {path[len(self._prefix) :] for path in saved} & changes.pairs.keys()
        if not names:
            return changes
        pairs = {
            path: (before, State("left_out", reason=SAVED_TOO) if path in names else after)
            for path, (before, after) in changes.pairs.items()
        }
        return ChangeSet(pairs, changes.certain, changes.missing, changes)

    def _add(self, changes: ChangeSet, account: Account, why_left: str = "") -> None:
        if not changes:
            return
        self.head = Trail(changes, self.head, _depth(self.head) + 1, why_left)
        if changes.missing:
            account.notes.append(f"Not all files that changed are known: {changes.missing}.")
        for change in changes.told():
            if why_left is IN_BACKGROUND:
                note = f"{BACKGROUND}, {change.note}" if change.note else BACKGROUND
                change = msgspec.structs.replace(change, note=note)  # noqa: PLW2901 - the same with a note
            account.files.append(change)

    def _note_positions(self, pid: int, first: Trail | None) -> None:
        """Let the link of a call, if it has made one, know where its open files were read and written."""
        before, self._positions = self._positions, {}
        if self.head is not None and self.head is not first and not self.head.why_left:
            self.head.before, self.head.after = before, positions(pid, {path for _, path in before})

    def _compare(self, account: Account) -> None:
        before = self._before
        after = self._before = self.store.snapshot(before) if before is not None else None
        if before is not None and after is not None:
            self._add(compared(self.store, before, after), account)
        else:
            self.compares = False
            account.notes.append(f"From here on the files that calls change are not known: {OFF}.")

    def _look_at_held(self, own: int) -> None:
        """Find the files that are still open for writing, where any was opened since they were looked for."""
        if not self._writers and not self._held:
            return
        others = {leader for leader in map(_leader, self._writers) if leader not in (0, own)}
        self._held = {path: False for pid in others for path in self._open_in(pid)}
        if own:
            self._held |= dict.fromkeys(self._open_in(own), True)
        self._writers = others if self._held else set()
        self._has_held = self._has_held or bool(self._held)
        with self._lock:
            self.is_stirred = bool(self._held or self._collectors or self.compares)

    def _open_in(self, pid: int) -> set[str]:
        return {path for path in written_by(pid) if path.startswith(self._prefix)}

    def begin_preview(self, pid: int) -> None:
        """Note that what this process tries to write is to be listed, and will not happen."""
        with self._lock:
            self._preview, self._attempts = pid, {}
            self._kinds.clear()

    def refuses(self, thread: int) -> bool:
        """Tell whether a thread is of the preview under way, which may change no file anywhere."""
        if not self._preview:
            return False
        with self._lock:
            return (self._kinds.get(thread) or self._kind(thread)) is PREVIEW

    def end_preview(self) -> list[FileChange]:
        """Return what the preview has tried to change."""
        with self._lock:
            self._preview = 0
            self._kinds.clear()
            attempts, self._attempts = self._attempts, {}
        return list(attempts.values())

    def _attempted(self, stop: Stop, paths: list[str]) -> None:
        for path in paths[: MOST_ATTEMPTS - len(self._attempts)]:
            name = path[len(self._prefix) :]
            change: Change = "changed" if os.path.lexists(path) else "created"
            if stop.call.startswith(("unlink", "rmdir")):
                change = "deleted"
            self._attempts.setdefault(name, FileChange(shown(name), change))

    def go(self, goal: Trail | None, pid: int, *, moves: bool = True) -> list[FileOutcome]:
        """Bring files to where they were at a state, whose live process is `pid`; tell it path by path.

        Unless it `moves` them, say that they are left.
        """
        self.finish(pid)
        if self._has_held:
            # A state may have files open that were closed since.
            self._held = dict.fromkeys(self._open_in(pid), True)
            self.is_stirred = self.is_stirred or bool(self._held)
        outcomes: dict[str, FileOutcome] = {}
        back, again = self._way(goal)
        if not moves:
            paths = {path for link in [*back, *again] for path in link.changes.pairs}
            return [FileOutcome(shown(path), "left alone", "as asked") for path in sorted(paths)]
        held = inodes(pid) if back or again else set()
        places: Positions = {}
        for link in back:
            outcomes |= _left(link) if link.why_left else self._restored(link.changes, held)
            places |= link.before
        for link in again:
            outcomes |= {} if link.why_left else self._restored(link.changes.turned(), held)
            places |= link.after
        if places:
            set_positions(pid, places)
        self.head = goal
        return list(outcomes.values())

    def _restored(self, changes: ChangeSet, held: set[tuple[int, int]]) -> dict[str, FileOutcome]:
        return {each.path: each for each in restore(self.store, changes, held_open=held)}

    def _way(self, goal: Trail | None) -> tuple[list[Trail], list[Trail]]:
        """Return the links to take back, newest first, and those to do again after that."""
        back, again, here = [], [], self.head
        while here is not goal:
            if here is not None and _depth(here) >= _depth(goal):
                back.append(here)
                here = here.previous
            elif goal is not None:
                again.append(goal)
                goal = goal.previous
        return back, again[::-1]

    def tidy(self, kept: Iterable[Trail | None]) -> None:
        """Forget what came before all kept states: no way leads there any more."""
        common = self.head
        for trail in kept:
            common = _common(common, trail)
        if common is not None:
            common.previous = None

    def close(self) -> None:
        """Give up what was kept."""
        self._others.close()
        self.store.close()


def changed_between(trail: Trail | None, earlier: Trail | None) -> list[FileChange]:
    """Return what calls changed from one state to a later one."""
    found: dict[str, FileChange] = {}
    while trail is not None and trail is not earlier and trail.depth > _depth(earlier):
        if not trail.why_left:
            found = {change.path: change for change in trail.changes.told()} | found
        trail = trail.previous
    return list(found.values())


def watch(
    family: Family, ledger: Ledger | None, may_fork: Callable[[int], bool]
) -> tuple[Ledger | None, list[str]]:
    """Return the ledger of what the processes of a family change, and notes for the user.

    `may_fork` is asked, with its number, before one of them makes another one.
    """
    grants = family.program.grants
    if grants.project is None or grants.files is Files.READ:
        heard = listen(family.zygote, lambda _stop: None, lambda _pid: False, may_fork)
        family.listener = heard if isinstance(heard, Listener) else None
        return None, []
    notes: list[str] = []
    try:
        ledger = ledger or _opened(grants.project, notes)
    except FileStoreError as error:
        return None, [f"Files that calls change will not be known, and undo leaves them: {error}."]
    heard = listen(family.zygote, _heard_by(ledger, family.sentry), ledger.refuses, may_fork)
    if isinstance(heard, Listener):
        family.listener = heard
        if family.sentry is not None:
            family.sentry.listens = True
        ledger.compares = False
        return ledger, notes
    ledger.compares = ledger.is_stirred = True
    notes.append(f"Which files a call changes is found by comparison, which is not certain: {heard}.")
    return ledger, notes


def _heard_by(ledger: Ledger, sentry: Sentry | None) -> Callable[[Stop | None], None]:
    """Return what hears of a stop: the sentry over control files first, if there is one."""
    if sentry is None:
        return ledger.heard

    def heard(stop: Stop | None) -> None:
        sentry.stopped(stop.paths if stop is not None else ())
        ledger.heard(stop)

    return heard


def _opened(project: Path, notes: list[str]) -> Ledger:
    """Return a new ledger, after an undo that was cut off by a death of this program is finished."""
    directory = files_directory(project)
    outcomes = recover(directory, project)
    if outcomes:
        notes.append(f"An undo that had been cut off is finished. Files: {outcomes_text(outcomes)}.")
    return Ledger(Store(directory, project))


def _depth(trail: Trail | None) -> int:
    return 0 if trail is None else trail.depth


def _common(one: Trail | None, other: Trail | None) -> Trail | None:
    """Return the newest link that two trails have in common."""
    while one is not other:
        if one is not None and one.depth >= _depth(other):
            one = one.previous
        elif other is not None:
            other = other.previous
    return one


def _left(link: Trail) -> dict[str, FileOutcome]:
    return {path: FileOutcome(shown(path), "left alone", link.why_left) for path in link.changes.pairs}


def _leader(pid: int) -> int:
    """Return the process that a thread belongs to; 0 where it has ended."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
            if line.startswith(b"Tgid:"):
                return int(line[5:])
    return 0


def _age(pid: int) -> float:
    """Return the seconds since a process has started."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return clock_gettime(CLOCK_BOOTTIME) - int(fields[19]) / _TICKS
    return 0.0
