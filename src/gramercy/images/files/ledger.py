"""The files that an image changes, call by call, and the way from one of its states to another.

Stops of the listener arrive on its thread. Calls begin and end on others. The changes of a call are a link of
a trail, and every kept state of the image knows its place on the trail. To go to another state, undo the
links up to the common one, and redo those that lead to the goal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from pathlib import Path, PurePath
from time import CLOCK_BOOTTIME, clock_gettime, perf_counter, time_ns
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gramercy.errors import FileStoreError
from gramercy.images.environment import Files
from gramercy.images.files.changes import (
    UNHEARD,
    ChangeSet,
    Collector,
    FileChange,
    FileOutcome,
    Written,
    changed_at,
    compared,
    shown,
)
from gramercy.images.files.doubts import TICK_NS, Doubts, look_through, settled
from gramercy.images.files.holding import (
    MOST_PROCESSES,
    Held,
    Positions,
    inodes,
    leader_of,
    positions,
    set_positions,
)
from gramercy.images.files.listener import LINKS, RENAMES, WRITERS, Host, Listener, listen
from gramercy.images.files.others import Others
from gramercy.images.files.restoring import recover, restore
from gramercy.images.files.states import State
from gramercy.images.files.store import Store, files_directory
from gramercy.images.files.telling import outcomes_text
from gramercy.images.files.trails import Trail, common_of, depth_of, left_alone, way
from gramercy.images.files.whole import own_writes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gramercy.images.files.changes import Change
    from gramercy.images.files.doubts import Doubt
    from gramercy.images.files.listener import Stop
    from gramercy.images.files.store import Snapshot
    from gramercy.images.processes import Family
    from gramercy.images.sentry import Sentry

# Written at every import and checked against its source, so reporting it is of no use.
UNTOLD = "/__pycache__/"
CALL, BACKGROUND, PREVIEW = "call", "in the background", "preview"
STAYS = "stays"
SAVED_TOO = "another program saved it during the call"
IN_BACKGROUND = "it was written in the background"
BY_PRODUCT = "test runners keep it for themselves"
# By-products of test runners. A change of them alone is not worth an undo.
BY_PRODUCTS = frozenset({".pytest_cache", ".hypothesis", ".benchmarks", ".tox", ".nox", "htmlcov"})
COVERAGE = ".coverage"
# Attempted writes of a preview that are listed: as many as a person reads.
MOST_ATTEMPTS = 50
# The start time of a process is known in ticks of 10 ms.
TICK_SECONDS = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")
# Threads of an image's process. SBCL has one for finalizers.
USUAL_THREADS = {"sbcl": 2}
UNKNOWN = "Not all files that changed are known"
OFF = "the project has too many files to be compared before and after every call"


class Account(msgspec.Struct, frozen=True):
    """The file changes of a call, for its reply, and sentences about unknown ones."""

    files: list[FileChange] = []
    notes: list[str] = []
    unknown: list[str] = []

    @property
    def unknown_text(self) -> str:
        """Why not all changes are known. Empty if they are."""
        return "; ".join(self.unknown)


NOTHING = Account()


class Call(NamedTuple):
    """When the call under way began, and in which process."""

    started: float
    pid: int
    # Whether it runs tests, whose by-products stay.
    is_suite: bool = False


class Ledger:
    """The file changes of an image's processes in its project.

    Without a listener the whole project is compared before and after each call.
    """

    def __init__(self, store: Store, *, compares: bool = False, threads: int = 1) -> None:
        self.store = store
        self._doubts = Doubts(threads)
        self.head: Trail | None = None
        self.compares = compares
        self._prefix = f"{store.root}/".replace("//", "/")
        self.written = Written(self._prefix)
        self._lock = threading.Lock()
        # Set without calling `begin` or `finish` while there is no activity, as in most calls.
        self.call: Call | None = None
        self.is_stirred = compares
        self._kinds: dict[int, str] = {}
        self._collectors: dict[str, Collector] = {}
        self._preview = 0
        self._attempts: dict[str, FileChange] = {}
        # Why not all changes of the last switch between states are known.
        self.unknown = ""
        self._held = Held(self._prefix)
        self._positions: Positions = {}
        self._others = Others()
        self._before: Snapshot | None = None
        # When the last switch between states changed paths and their parents, in nanoseconds.
        self._ours: dict[str, int] = {}
        self._tools = own_writes(store.root)

    def follow(self, workers: Callable[[], set[int]]) -> None:
        """Use the processes that evaluated code has started to find open files."""
        self._held.workers = workers

    def stopping(self, pid: int) -> None:
        """Check who could change the paths of a stop. The listener calls it before reading them."""
        with self._lock:
            self._doubts.expect(pid, self.call)

    def heard(self, stop: Stop) -> None:
        """Keep the states of the paths that a call is about to change. Called by the listener."""
        inside = [path for path in stop.paths if path.startswith(self._prefix)]
        self._count(stop, inside)
        paths = [path for path in inside if UNTOLD not in f"{path}/"]
        with self._lock:
            if not self._preview:
                self._doubts.hear(stop)
                if self._doubts.since:
                    self.is_stirred = True
            if paths:
                self._take(stop, paths)

    def _count(self, stop: Stop, paths: list[str]) -> None:
        """Count the written bytes, also of files that are not reported."""
        if stop.opens:
            for path in paths:
                self.written.note(path)
        elif stop.call in RENAMES and len(paths) == 2:  # noqa: PLR2004 - old and new
            self.written.note_moved(*paths)

    def _take(self, stop: Stop, paths: list[str]) -> None:
        if len(self._kinds) > MOST_PROCESSES:
            self._kinds.clear()
        kind = self._kinds.get(stop.pid) or self._kind(stop.pid)
        if kind is PREVIEW:
            self._attempted(stop, paths)
            return
        self.is_stirred = True
        if stop.opens:
            self._held.note(stop.pid, paths[-1])
        self._expect(stop, paths)
        self._note(stop, paths, self._collector(kind))

    def _note(self, stop: Stop, paths: list[str], collector: Collector) -> None:
        collector.doubted_since = self._doubts.since
        if stop.call in RENAMES and len(stop.paths) == 2:  # noqa: PLR2004 - old and new
            collector.note_moved(*stop.paths)
        for path in paths:
            collector.note(path)
            if stop.call in WRITERS:
                collector.note_links(path)

    def _expect(self, stop: Stop, paths: list[str]) -> None:
        """Count a save, so that saves by others can be distinguished."""
        if not self._collectors:
            self._others.begin()
        if stop.opens:
            self._others.expect(paths[-1], is_rename=False)
        elif stop.call in RENAMES:
            for path in stop.paths if stop.exchanges else stop.paths[1:]:
                if path in paths:
                    self._others.expect(path, is_rename=True)

    def _collector(self, kind: str) -> Collector:
        found = self._collectors.get(kind)
        if found is None:
            found = self._collectors[kind] = Collector(self.store, self._is_ours)
        return found

    def _kind(self, pid: int) -> str:
        """Return the origin of a thread: the current call, an earlier one, or a preview."""
        leader = leader_of(pid)
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

    def begin(self, pid: int, *, is_suite: bool = False) -> None:
        """Note that a call begins in this process. Open files can be written without a stop."""
        with self._lock:
            self._kinds.clear()
            if not self._collectors:
                # Open files create collectors below, so no first stop would discard events before the call.
                self._others.begin()
            for path, is_live in self._held.files.items():
                collector = self._collector(CALL if is_live else BACKGROUND)
                collector.note(path)
                collector.note_links(path)
                self.written.note(path)
            held = {path for path, is_live in self._held.files.items() if is_live}
            self._positions = positions(pid, held) if held else {}
            self.call = Call(perf_counter(), pid, is_suite)
            if self._held.is_nameless:
                self._doubts.suspect()
        if self.compares:
            self._before = self.store.snapshot(self._before)

    def finish(self, pid: int = 0) -> Account:
        """Return the changes of the finished call, and of the background since the call before it.

        `pid` is the live process where no call was running.
        """
        self.written.forget()
        with self._lock:
            call, self.call = self.call, None
            self._kinds.clear()
            collectors, self._collectors = self._collectors, {}
            doubt = self._doubts.take()
            self.is_stirred = self._rests_on
        self._settle(doubt, collectors, call)
        if not collectors and not self._rests_on:
            return NOTHING
        account = Account([], [], [])
        self._look_at_held(call.pid if call is not None else pid)
        saved = self._others.savers(self._held.files) if self._others.is_sure else None
        first = self.head
        if BACKGROUND in collectors:
            self._add(self._finished(collectors[BACKGROUND]), account, IN_BACKGROUND)
        if CALL in collectors:
            why = UNHEARD.reason if collectors[CALL].doubted_since else SAVED_TOO
            changes = self._without_saves(self._finished(collectors[CALL]), saved, why)
            if call is not None and call.is_suite:
                by_products, changes = changes.parted(_is_by_product)
                self._add(by_products, account, BY_PRODUCT)
            self._add(changes, account)
        if self._positions and call is not None:
            self._note_positions(call.pid, first)
        if self.compares and call is not None:
            self._compare(account)
        return account

    def _settle(self, doubt: Doubt | None, collectors: dict[str, Collector], call: Call | None) -> None:
        """Find unheard changes, and attribute them to the call or to the background."""
        known = tuple(collectors.values())

        def is_heard(path: str, found: os.stat_result) -> bool:
            is_heard = any(one.has_heard(path, found) for one in known)
            return is_heard or self._is_ours(path, found.st_ctime_ns)

        found = settled(doubt, self.store.root, is_heard)
        adrift = self._held.adrift
        since = time_ns() - TICK_NS - int((perf_counter() - call.started) * 1e9) if adrift and call else 0
        names = {path[len(self._prefix) :] for path in adrift if since and changed_at(path) >= since}
        names = {name for name in names if not any(one.has_noted(name) for one in known)}
        if found.paths or found.reason or names:
            kind = CALL if call is not None else BACKGROUND
            made = collectors.get(kind) or collectors.setdefault(kind, Collector(self.store))
            made.add_unheard((*found.paths, *names), found.reason)

    def _finished(self, collector: Collector) -> ChangeSet:
        if collector.has_links:
            collector.find_links(look_through(self.store.root))
        return collector.finish()

    def _without_saves(self, changes: ChangeSet, saved: set[str] | None, why: str) -> ChangeSet:
        """Return the changes, with paths that others have saved too marked as not to be touched."""
        if saved is None:
            return dataclasses.replace(changes, certain=False)
        names = {path[len(self._prefix) :] for path in saved} & changes.pairs.keys()
        if not names:
            return changes
        pairs = {
            path: (before, State("left_out", reason=why) if path in names else after)
            for path, (before, after) in changes.pairs.items()
        }
        return dataclasses.replace(changes, pairs=pairs, origin=changes)

    def _add(self, changes: ChangeSet, account: Account, why_left: str = "") -> None:
        if not changes:
            return
        self.head = Trail(changes, self.head, depth_of(self.head) + 1, why_left)
        if changes.missing:
            account.unknown.append(changes.missing)
            account.notes.append(f"{UNKNOWN}: {changes.missing}.")
        for change in changes.told():
            if why_left:
                why = BACKGROUND if why_left is IN_BACKGROUND else STAYS
                note = f"{why}, {change.note}" if change.note else why
                change = msgspec.structs.replace(change, note=note)  # noqa: PLW2901 - the same with a note
            account.files.append(change)

    def _note_positions(self, pid: int, first: Trail | None) -> None:
        """Record the positions of open files in the link of a call, if it has made one."""
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
            account.unknown.append(OFF)
            account.notes.append(f"From here on the files that calls change are not known: {OFF}.")

    def _look_at_held(self, own: int) -> None:
        self._held.look(own)
        with self._lock:
            self.is_stirred = bool(self._rests_on or self._collectors)

    @property
    def _rests_on(self) -> bool:
        """Whether files can be written without another stop, so that every call must be checked."""
        return bool(self._held or self._doubts or self.compares)

    def begin_preview(self, pid: int) -> None:
        """List the write attempts of this process, which will fail."""
        with self._lock:
            self._preview, self._attempts = pid, {}
            self._kinds.clear()

    def refuses(self, thread: int) -> bool:
        """Return whether a thread belongs to the current preview, which may not change any file."""
        if not self._preview:
            return False
        with self._lock:
            return (self._kinds.get(thread) or self._kind(thread)) is PREVIEW

    def end_preview(self) -> list[FileChange]:
        """Return the attempted changes of the preview."""
        with self._lock:
            self._preview = 0
            self._kinds.clear()
            attempts, self._attempts = self._attempts, {}
        return list(attempts.values())

    def _attempted(self, stop: Stop, paths: list[str]) -> None:
        # A link does not change its source.
        made = paths[-1:] if stop.call in LINKS else paths
        for path in made[: MOST_ATTEMPTS - len(self._attempts)]:
            name = path[len(self._prefix) :]
            change: Change = "changed" if os.path.lexists(path) else "created"
            if stop.call.startswith(("unlink", "rmdir")):
                change = "deleted"
            self._attempts.setdefault(name, FileChange(shown(name), change))

    def go(self, goal: Trail | None, pid: int, *, moves: bool = True) -> list[FileOutcome]:
        """Restore files to their contents at a state, whose live process is `pid`. Return the outcomes.

        Without `moves`, report that they are left.
        """
        self.finish(pid)
        if self._held.is_known:
            # The restored process may have files open that were closed since.
            self._held.files.clear()
            self._held.add(pid)
            self.is_stirred = self.is_stirred or bool(self._held)
        outcomes: dict[str, FileOutcome] = {}
        self._ours.clear()
        back, again = way(self.head, goal)
        self.unknown = next((link.changes.missing for link in [*back, *again] if link.changes.missing), "")
        if not moves:
            paths = {path for link in [*back, *again] for path in link.changes.pairs}
            return [FileOutcome(shown(path), "left alone", "as asked") for path in sorted(paths)]
        held = inodes(pid) if back or again else set()
        places: Positions = {}
        for link in back:
            outcomes |= left_alone(link) if link.why_left else self._restored(link.changes, held)
            places |= link.before
        for link in again:
            outcomes |= {} if link.why_left else self._restored(link.changes.turned(), held)
            places |= link.after
        if places:
            set_positions(pid, places)
        self.head = goal
        return list(outcomes.values())

    def _restored(self, changes: ChangeSet, held: set[tuple[int, int]]) -> dict[str, FileOutcome]:
        outcomes = {each.path: each for each in restore(self.store, changes, held_open=held)}
        for path in changes.pairs:
            if outcomes[shown(path)].outcome != "left alone":
                self._note_own(path)
        return outcomes

    def _is_ours(self, path: str, changed: int) -> bool:
        """Return whether a path that changed at a time in nanoseconds is as an undo or a tool left it."""
        return self._ours.get(path) == changed or self._tools.has_left(path, changed, self.store.look)

    def _note_own(self, path: str) -> None:
        """Record the state of a path after the undo as known: a background process may have it open."""
        for place in (path, *map(str, PurePath(path).parents[:-1])):
            with contextlib.suppress(OSError):
                self._ours[place] = os.lstat(f"{self._prefix}{place}").st_ctime_ns
        with self._lock:
            for collector in self._collectors.values():
                collector.renew(path)

    def tidy(self, kept: Iterable[Trail | None]) -> None:
        """Drop the links before all kept states: no switch leads there any more."""
        common = self.head
        for trail in kept:
            common = common_of(common, trail)
        if common is not None:
            common.previous = None

    def close(self) -> None:
        """Drop the kept contents."""
        self._others.close()
        self.store.close()


def watch(
    family: Family,
    ledger: Ledger | None,
    may_fork: Callable[[int], bool],
    may_watch: Callable[[], bool],
    workers: Callable[[], set[int]],
) -> tuple[Ledger | None, list[str]]:
    """Return the ledger for the processes of a family, and notes for the user.

    `may_fork` is called with a process id before that process forks, `may_watch` before one creates an
    inotify instance. `workers` returns the processes that evaluated code has started.
    """
    grants = family.program.grants
    if grants.project is None or grants.files is Files.READ:
        heard = listen(family.zygote, Host(may_fork, may_watch))
        family.listener = heard if isinstance(heard, Listener) else None
        return None, []
    notes: list[str] = []
    try:
        ledger = ledger or _opened(family, grants.project, notes)
    except FileStoreError as error:
        return None, [f"Files that calls change will not be known, and undo leaves them: {error}."]
    told = _heard_by(ledger, family.sentry)
    heard = listen(family.zygote, Host(may_fork, may_watch, ledger.stopping, told, ledger.refuses))
    if isinstance(heard, Listener):
        family.listener = heard
        if family.sentry is not None:
            family.sentry.listens = True
        ledger.compares = False
        ledger.follow(workers)
        return ledger, notes
    ledger.compares = ledger.is_stirred = True
    notes.append(f"Which files a call changes is found by comparison, which is not certain: {heard}.")
    return ledger, notes


def _heard_by(ledger: Ledger, sentry: Sentry | None) -> Callable[[Stop], None]:
    """Return the handler of stops: the sentry over control files comes first, if there is one."""
    if sentry is None:
        return ledger.heard

    def heard(stop: Stop) -> None:
        sentry.stopped(stop.paths)
        ledger.heard(stop)

    return heard


def _opened(family: Family, project: Path, notes: list[str]) -> Ledger:
    """Return a new ledger, after finishing an undo that was interrupted by the death of this program."""
    directory = files_directory(project)
    outcomes = recover(directory, project)
    if outcomes:
        notes.append(f"An undo that had been cut off is finished. Files: {outcomes_text(outcomes)}.")
    return Ledger(Store(directory, project), threads=USUAL_THREADS.get(family.program.language, 1))


def _is_by_product(path: str) -> bool:
    """Return whether a path of the project is a by-product of test runners."""
    parts = path.split("/")
    return not BY_PRODUCTS.isdisjoint(parts) or parts[-1].startswith(COVERAGE)


def _age(pid: int) -> float:
    """Return the age of a process in seconds."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return clock_gettime(CLOCK_BOOTTIME) - int(fields[19]) / _TICKS
    return 0.0
