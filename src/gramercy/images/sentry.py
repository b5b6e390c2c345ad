"""Moves aside new or changed files in a project that the person's programs would run.

Control files that exist at the start are read-only. Later ones are moved aside as soon as they appear, during
a call and between two. The listener reports the path of each call that may write, before the call continues.
That says where to look, but is not trusted, since the image can change the path after it was read. So the
directories of the project are also visited after a while, and at the end. A silent change there is moved
aside if a call that may write came shortly before. Otherwise the person made it.
"""

from __future__ import annotations

import contextlib
import threading
from time import monotonic, time_ns
from typing import TYPE_CHECKING, NamedTuple

from gramercy.images.caches import write_line
from gramercy.images.census import TICK_NS, Entries, Seen, above, joined
from gramercy.images.files.changes import shown
from gramercy.images.guarded import UNKNOWN, Kind, is_unknown_directory, kind_of
from gramercy.images.project import COMMON, has_repository, is_repository
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from gramercy.images.census import Census

# Shorter pauses leave a person no time for a change: one of the two calls has made it.
PAUSE_SECONDS = 0.1
DURING = "during this call, by evaluated code or by you"
BETWEEN = "while no call ran, by you or by a process that evaluated code has left running"
# Files that make a directory a repository, or that tell git what to run in one.
OF_REPOSITORIES = frozenset(("HEAD", "config", "objects", "refs", COMMON))
# A resumed call takes effect at once, except on a busy machine. Its path is checked for this long.
HINT_SECONDS = 5.0
FIRST_TURN_SECONDS, LONGEST_TURN_SECONDS = 0.001, 0.25
SLACK_NS = 1_000_000_000
MOST_HINTS = 1_000
# Sentences that wait for a reply.
MOST_TOLD = 50
# A round through the directories comes some time after a call, and takes at most a twentieth of the time.
ROUND_SECONDS, REST = 0.5, 20
# Times of calls that may write, as intervals. Closer ones are merged.
GAP_NS, MOST_INTERVALS = 200_000_000, 10_000


class Hint(NamedTuple):
    """A name to check: the end of the checks, and files inside of it with their states before."""

    kind: Kind
    until: float
    inner: dict[str, Seen | None]


class Sentry:
    """Moves aside control files that evaluated code creates or changes, and reports it.

    With a listener a change at the top belongs to the person if no call that may write came before it.
    Without one, a change during a call is moved aside, and a change between two is only reported, since the
    person has usually made it.
    """

    def __init__(self, project: Path, found: Census, notes: Iterable[str] = ()) -> None:
        self._top = project
        self._entries = Entries(project, found.folders)
        self._guards_git = not has_repository(project)
        self._special = {**found.loose, **found.held}
        # A mount protects these until the host replaces them.
        self._held = {name: self._entries.identity(name) for name in found.held}
        # If these differ, a protected path was moved away together with its parent.
        self._above = {each: self._entries.identity(each) for name in self._special for each in above(name)}
        self._seen: dict[str, Seen] = {
            name: seen for name in found.loose if (seen := self._entries.state(name)) is not None
        }
        self._hints: dict[str, Hint] = {}
        # Names that were opened for writing. A process that has one open can write it without another call.
        self._touched: dict[str, Kind] = {}
        self._repositories: set[str] = set()
        self._unknown: dict[str, bool] = {}
        # Reported with the first reply.
        self._told = [f"{note}." for note in notes]
        self._told += [f"This project {found.bound}: {_BEYOND}."] if found.bound else []
        self._lock = threading.Lock()
        self._accept_top()
        self.listens = self.has_written = False
        # Whether a call that may write came since the last check, and in the interval before it: such a call
        # may take effect a little after it was resumed.
        self._is_stirred = self._was_stirred = False
        self._is_in_call, self._looked_at = False, 0.0
        self._intervals: list[list[int]] = []
        self._spoken: set[str] = set()
        self._patrol = _Patrol(self._attend_hints, self._patrolled)

    def stopped(self, paths: Iterable[str]) -> None:
        """Note a system call that may write, before it continues. Earlier changes are the person's."""
        if not self._is_stirred:
            with self._lock:
                if not self._was_stirred and not self._patrol.is_over:
                    self._accept_top()
                self._is_stirred = self.has_written = True
        self._patrol.expect_round()
        for path in paths:
            if path.startswith(self._entries.prefix):
                self._hear(path[len(self._entries.prefix) :])
        with self._lock:
            self._note_time(time_ns())

    def _note_time(self, now: int) -> None:
        last = self._intervals[-1] if self._intervals else None
        if last is not None and now - last[1] < GAP_NS:
            last[1] = now
        else:
            if len(self._intervals) >= MOST_INTERVALS:
                self._intervals[:2] = [[self._intervals[0][0], self._intervals[1][1]]]
            self._intervals.append([now, now])

    def _may_be_theirs(self, seen: Seen) -> bool:
        """Return whether evaluated code can have made a change at that time."""
        changed = seen[3]
        return not self.listens or any(
            start - TICK_NS <= changed <= end + SLACK_NS for start, end in list(self._intervals)
        )

    def _hear(self, path: str) -> None:
        """Note where to look after a call with this path."""
        found = self._guarded(path)
        if found is not None:
            self._hint(*found, path)
            return
        folder, _, last = path.rpartition("/")
        if last in OF_REPOSITORIES and folder and len(self._repositories) < MOST_HINTS:
            self._repositories.add(folder)
            self._patrol.wake()
        if path in self._above:
            for name in [each for each in self._special if each.startswith(f"{path}/")]:
                self._hint(name, self._special[name], name)
        for name in (path, *above(path)) if "/." in f"/{path}" else ():
            if is_unknown_directory(name.rpartition("/")[2]) and len(self._unknown) < MOST_HINTS:
                self._unknown.setdefault(name, False)

    def _guarded(self, path: str) -> tuple[str, Kind] | None:
        """Return the outermost part of a path that programs read for something to run."""
        name = before = ""
        for part in path.split("/"):
            name = joined(name, part)
            kind = self._special.get(name) or kind_of(part, before)
            if kind is not None:
                return name, kind
            before = part
        return None

    def _hint(self, name: str, kind: Kind, path: str) -> None:
        if path == name or not self._is_held(name):
            with self._lock:
                self._note_hint(name, kind, path)
            self._patrol.wake()

    def _note_hint(self, name: str, kind: Kind, path: str) -> None:
        known = self._hints.get(name)
        if known is None and len(self._hints) >= MOST_HINTS:
            return  # the round finds it
        inner = known.inner if known is not None else {}
        if known is None and "/" in name and name not in self._seen and name not in self._held:
            self._accept_earlier(name)
        if path != name and path not in inner and len(inner) < MOST_HINTS:
            inner[path] = self._entries.state(path)
        self._hints[name] = Hint(kind, monotonic() + HINT_SECONDS, inner)

    def _is_held(self, name: str) -> bool:
        """Return whether a mount still protects a name.

        Processes inside cannot touch a mount point, only move away a directory above it. Any other change was
        made by the host.
        """
        held = self._held.get(name)
        if held is None or self._entries.identity(name) == held:
            return held is not None
        seen = self._entries.state(name)
        is_in_place = all(self._entries.identity(each) == self._above[each] for each in above(name))
        if seen is not None and is_in_place:
            self._held.pop(name, None)
            self._seen[name] = seen
        return False

    def _accept_earlier(self, name: str) -> None:
        """Attribute a file to the person if it existed before any call that may write."""
        seen = self._entries.state(name)
        if seen is not None and not self._may_be_theirs(seen):
            self._seen[name] = seen

    def begin(self) -> list[str]:
        """Report changes since the last call. Move them aside if evaluated code wrote meanwhile."""
        self._is_in_call = True
        if self.listens:
            if not (self._is_stirred or self._was_stirred or self._told or self._touched):
                return []
        elif monotonic() - self._looked_at < PAUSE_SECONDS:
            return []
        with self._lock:
            return self._all_told(BETWEEN, moves=self._is_stirred)

    def look(self) -> list[str]:
        """Move aside control files created or changed since `begin`, and report them."""
        if self.listens and not (self._is_stirred or self._was_stirred or self._told or self._touched):
            self._is_in_call = False
            return []
        with self._lock:
            told = self._all_told(DURING, moves=self._is_stirred or not self.listens)
            self._is_in_call = False
            self._was_stirred, self._is_stirred = self._is_stirred, False
            self._looked_at = monotonic()
            return told

    def close(self) -> list[str]:
        """Check a last time, as between two calls, through all directories. Always check for a repository."""
        self._patrol.end()
        with self._lock:
            told = self._all_told(BETWEEN, moves=self._is_stirred)
        if self.has_written or not self.listens:
            self._round()
        return [line for line in (*told, *self._told) if line not in self._spoken]

    def _all_told(self, when: str, *, moves: bool) -> list[str]:
        """Check hints, the top, and without a listener everything. Return the reports."""
        for name, hint in list(self._hints.items()):
            self._look_at(name, hint.kind, when, hint.inner)
        for name, kind in list(self._touched.items()):
            if self._entries.state(name) not in (None, self._seen.get(name)):
                self._deal(name, kind, when, moves=False)
        self._look_at_repositories()
        if moves or not self.listens or self._was_stirred:
            for name, kind in self._differing_at_top():
                self._deal(name, kind, when, moves=moves)
            if not self.listens:
                for folder in [each for each in self._entries.folders if each]:
                    self._look_in(folder, when, moves=moves)
        told, self._told = [*self._without_repository(), *self._told, *self._of_unknown(when)], []
        return told

    def _of_unknown(self, when: str) -> list[str]:
        """Report, once for each, directories of unknown programs."""
        new = [name for name, is_told in self._unknown.items() if not is_told]
        self._unknown.update(dict.fromkeys(new, True))
        there = [name for name in new if (self._top / name).is_dir()]
        return [f"{shown(name)}, which {UNKNOWN.reader}, was made or changed {when}." for name in there]

    def _attend_hints(self) -> bool:
        """Check every name that a call was heard to write. Return whether any must be checked again."""
        with self._lock:
            when = DURING if self._is_in_call else BETWEEN
            for name, hint in list(self._hints.items()):
                self._look_at(name, hint.kind, when, hint.inner)
                if monotonic() > hint.until:
                    del self._hints[name]
                    if self._entries.state(name) is not None and len(self._touched) < MOST_HINTS:
                        self._touched[name] = hint.kind
            self._look_at_repositories()
            self._speak()
            return bool(self._hints or self._repositories)

    def _speak(self) -> None:
        """Report at once if no reply can report it soon."""
        for line in self._told if not self._is_in_call else ():
            if line not in self._spoken and len(self._spoken) < MOST_HINTS:
                self._spoken.add(line)
                write_line(line)

    def _look_at(self, name: str, kind: Kind, when: str, inner: dict[str, Seen | None] | None = None) -> None:
        """Handle a name that a call was heard to write, if it differs."""
        if self._is_held(name):
            return
        now = self._entries.state(name)
        changed = [path for path, seen in (inner or {}).items() if self._entries.state(path) != seen]
        if now is not None and (now != self._seen.get(name) or changed):
            self._deal(name, kind, when, moves=True)
            for path in changed:
                (inner or {})[path] = self._entries.state(path)
        elif now is None:
            self._seen.pop(name, None)
            self._touched.pop(name, None)

    def _look_at_repositories(self) -> None:
        """Disarm directories that a call was heard to turn into a repository."""
        for folder in tuple(self._repositories):
            if is_repository(self._top / folder) and not has_repository(self._top / folder):
                self._told += self._disarmed(folder)
        self._repositories = {each for each in self._repositories if (self._top / each / "HEAD").exists()}

    def _patrolled(self) -> None:
        self._round()
        with self._lock:
            self._speak()

    def _round(self) -> None:
        """Visit all changed directories, one at a time, since calls wait for the lock."""
        began = time_ns()
        when = DURING if self._is_in_call else BETWEEN
        with self._lock:
            for name, kind in self._differing_at_top():
                self._look_at_found(name, kind, when, moves=True)
            waiting = [each for each in self._entries.folders if each]
        while waiting:
            with self._lock:
                waiting += self._look_in(waiting.pop(), when, moves=True)
        with self._lock:
            for name in list(self._held):
                seen = self._entries.state(name)
                if not self._is_held(name) and seen is not None and self._may_be_theirs(seen):
                    self._look_at(name, self._special[name], when)
            self._intervals = [each for each in self._intervals if each[1] > began - SLACK_NS]

    def _look_in(self, folder: str, when: str, *, moves: bool) -> list[str]:
        """Handle new names in a directory. Return its new subdirectories."""
        entries = self._entries.changed(folder)
        if entries is None:
            return []
        new = []
        last = folder.rpartition("/")[2]
        for part, is_directory in entries.items():
            name = joined(folder, part)
            kind = self._special.get(name) or kind_of(part, last)
            if kind is not None and name not in self._held:
                self._look_at_found(name, kind, when, moves=moves)
            elif kind is None and is_directory and self._entries.is_new(name):
                new.append(name)
        if "HEAD" in entries and folder and folder not in self._held:
            head = self._entries.state(joined(folder, "HEAD"))
            if head is not None and self._may_be_theirs(head) and is_repository(self._top / folder):
                self._told += self._disarmed(folder)
        return new

    def _look_at_found(self, name: str, kind: Kind, when: str, *, moves: bool) -> None:
        now = self._entries.state(name)
        if now is None or now == self._seen.get(name):
            return
        if self._may_be_theirs(now):
            self._deal(name, kind, when, moves=moves)
        else:
            self._seen[name] = now

    def _accept_top(self) -> None:
        """Attribute differences at the top to the person."""
        for name, _ in self._differing_at_top():
            self._accept(name)

    def _differing_at_top(self) -> Iterator[tuple[str, Kind]]:
        """Yield existing names at the top that differ from when they were last seen."""
        entries = self._entries.changed("")
        for name, is_directory in (entries or {}).items():
            if is_directory and kind_of(name) is None:
                self._entries.is_new(name)
        names = [name for name in self._seen if "/" not in name] if entries is None else list(entries)
        for name in names:
            kind = self._special.get(name) or kind_of(name)
            if kind is None or self._is_held(name):
                continue
            now = self._entries.state(name)
            if now is None:
                self._seen.pop(name, None)
            elif now != self._seen.get(name):
                yield name, kind

    def _accept(self, name: str) -> None:
        seen = self._entries.state(name)
        if seen is None:
            self._seen.pop(name, None)
        else:
            self._seen[name] = seen

    def _deal(self, name: str, kind: Kind, when: str, *, moves: bool) -> None:
        """Move a name aside, or leave it, and report it."""
        verb = "changed" if name in self._seen else "made"
        what = f"{shown(name)}, which {kind.reader}, was {verb} {when}"
        told = self._moved(name, what) if moves else f"{what}."
        self._accept(name)
        if len(self._told) < MOST_TOLD:
            self._told.append(told)
        elif len(self._told) == MOST_TOLD:
            self._told.append("More such names were made, and dealt with likewise: look at the project.")

    def _moved(self, name: str, what: str) -> str:
        try:
            new = self._entries.put_aside(name)
        except OSError as error:
            return f"{what}, and cannot be moved aside ({reason_of(error)}): look at it before you use it."
        return f"{what}: it is {shown(new)} now. If it is yours, rename it back between two calls."

    def _without_repository(self) -> list[str]:
        """Remove HEAD from a bare repository at the top, and report it."""
        if not self._guards_git or not is_repository(self._top) or has_repository(self._top):
            return []
        return self._disarmed("")

    def _disarmed(self, folder: str) -> list[str]:
        where = f"The directory {shown(folder)}" if folder else "The top of the project"
        what = f"{where} was made a git repository, whose config can name programs: {self._top / folder}"
        try:
            new = self._entries.put_aside(joined(folder, "HEAD"))
        except OSError as error:
            return [
                f"{what}. Its HEAD cannot be moved aside ({reason_of(error)}): remove it, do not use git."
            ]
        rest = "remove it with config, objects and refs if they are not yours"
        return [f"{what}. Its HEAD is {shown(new)} now; {rest}."]


_BEYOND = (
    "what lies deeper is not read-only, and is looked after only where evaluated code is heard to write it"
)


class _Patrol:
    """A thread that checks names as soon as a call was heard, and makes a round after a while.

    It starts when evaluated code first writes.
    """

    def __init__(self, attend: Callable[[], bool], go_round: Callable[[], None]) -> None:
        self._attend, self._go_round = attend, go_round
        self._event = threading.Event()
        self._thread: threading.Thread | None = None
        self._round_at: float | None = None
        self._rested_until = 0.0
        self.is_over = False

    def wake(self) -> None:
        """Check names now, and again after growing pauses."""
        if self._thread is None and not self.is_over:
            self._thread = threading.Thread(target=self._run, name="gramercy-sentry", daemon=True)
            self._thread.start()
        self._event.set()

    def expect_round(self) -> None:
        """Make a round after a while."""
        if self._round_at is None:
            self._round_at = max(monotonic() + ROUND_SECONDS, self._rested_until)
            self.wake()

    def end(self) -> None:
        """Stop, and wait for the end of the thread."""
        self.is_over = True
        self._event.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        pause: float | None = None
        while True:
            is_woken = self._event.wait(pause)
            if self.is_over:
                return
            self._event.clear()
            # If this thread ended here, later control files would stay in place.
            with contextlib.suppress(Exception):
                is_needed = self._attend()
                longer = min((pause or FIRST_TURN_SECONDS) * 2, LONGEST_TURN_SECONDS)
                pause = FIRST_TURN_SECONDS if is_woken else longer
                pause = pause if is_needed else None
                pause = self._rounded(pause)

    def _rounded(self, pause: float | None) -> float | None:
        """Make a round if it is due. Return the time to wait after it."""
        if self._round_at is None:
            return pause
        now = monotonic()
        if now >= self._round_at:
            self._round_at = None
            self._go_round()
            self._rested_until = monotonic() + REST * (monotonic() - now)
            return pause
        return self._round_at - now if pause is None else pause
