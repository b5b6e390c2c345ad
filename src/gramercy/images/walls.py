"""Names that evaluated code must not leave in a project for programs of the person to run.

Git, editors, agents and shells read files at the top of a project that name programs. A directory is held by
a read-only mount, an absent one by an empty placeholder. A file cannot be held for good: its mount ends when
the host replaces it, and an absent name has none. Such names are looked at after each call instead. Only
names at the top of the project are known here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import threading
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING

from gramercy.images.files.changes import shown
from gramercy.images.project import COMMON, GIT, HELD, INSTRUCTIONS, LOOKED_AT, is_repository, protected_paths
from gramercy.images.trust import Witness

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


# Each try fails only if another image removes the directory at that moment.
TRIES = 50
# The time that a placeholder gets (2001-09-09), by which it is known from an empty directory of the person.
MARK_NS = 1_000_000_000 * 10**9
# Times of files tick every 4 to 10 ms on older kernels: a change within a tick of the last look is not seen.
TICK_NS = 30_000_000
# Calls that follow each other faster leave a person no time: what changes between them is one of theirs.
PAUSE_SECONDS = 0.1
UNTRUSTED = ".untrusted"
DURING = "during this call, by evaluated code or by you"
BETWEEN = "while no call ran, by you or by a process that evaluated code has left running"
# Files by which a directory becomes a repository, or by which git is told what to run in one.
OF_REPOSITORIES = (f"/{GIT}", "/HEAD", "/config", f"/{COMMON}")
# Places that a reply names, and that are looked at for it.
MOST_NAMED = 20


class Placeholders:
    """Empty directories in the place of absent ones, shared by all images of a project, removed by the last.

    Two of them stop git where the project has no repository of its own: it passes an empty .git, and gives up
    at a `commondir` that is a directory wherever HEAD was planted.
    """

    def __init__(self, project: Path) -> None:
        names = HELD if _has_repository(project) else (GIT, COMMON, *HELD)
        self._held: dict[Path, int] = {}
        for path in (project / name for name in names):
            if _is_empty(path) or (not os.path.lexists(path) and os.access(project, os.W_OK)):
                descriptor = _hold(path)
                if descriptor is not None:
                    self._held[path] = descriptor

    def close(self) -> None:
        """Remove each that is still empty and that no other image holds, and unlock it."""
        for path, descriptor in self._held.items():
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # An empty .git is nobody's repository; of the others only those are removed that were made.
                if path.name == GIT or os.fstat(descriptor).st_mtime_ns == MARK_NS:
                    path.rmdir()
            os.close(descriptor)
        self._held.clear()


def _has_repository(project: Path) -> bool:
    """Tell whether git finds a repository in the project itself, and so looks for none at its top."""
    return os.path.lexists(project / GIT) and not _is_empty(project / GIT)


def _is_empty(path: Path) -> bool:
    try:
        return not path.is_symlink() and next(path.iterdir(), None) is None
    except OSError:
        return False


def _hold(path: Path) -> int | None:
    """Take a shared lock on a directory, made if needed; again if another image has removed it meanwhile."""
    for _ in range(TRIES):
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                os.utime(path, ns=(MARK_NS, MARK_NS))
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    return descriptor
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)
    return None


Seen = tuple[int, int, int, int]


class Sentry:
    """Looks after each call whether names at the top of a project were made or changed that run programs.

    What is made while evaluated code can have made it is moved aside. Without a listener that is during a
    call; what changes between two calls is told, since it is most often the person's. With one it is told at
    each system call that may write, before that goes on: without such a call a change is the person's. The
    path of the call is not believed, which the image could change after it was read.
    """

    def __init__(self, project: Path) -> None:
        self._top = project
        self._guards_git = not _has_repository(project)
        # A mount holds these until the host replaces the file.
        self._bound = {path.name for path in protected_paths(project) if path.parent == project}
        self._seen: dict[str, Seen | None] = {name: self._find(name) for name in (*LOOKED_AT, *INSTRUCTIONS)}
        self._descriptor = os.open(project, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._changed_ns, self._is_young, self._looked_at = 0, False, 0.0
        # Files that are there and not bound: a change of their content does not touch the directory.
        self._loose: set[str] = {
            name for name, seen in self._seen.items() if seen is not None and name not in self._bound
        }
        self._lock = threading.Lock()
        self.listens = False
        self.has_written = False
        # Whether a system call that may write came since the last look, and in the time before it: such a
        # call may take effect a little after it was let go.
        self._is_stirred = self._was_stirred = False
        self._nested: set[str] = set()

    def stopped(self, paths: Iterable[str]) -> None:
        """Hear of a system call that may write, before it goes on; what differs by now is the person's."""
        for path in paths:
            if path.endswith(OF_REPOSITORIES) or f"/{GIT}/" in path:
                self._note_repository(path)
        if self._is_stirred:
            return
        with self._lock:
            if not self._was_stirred and self._descriptor >= 0:
                for name in self._differing(self._to_check()):
                    self._accept(name)
            self._is_stirred = self.has_written = True

    def _note_repository(self, path: str) -> None:
        place = path.partition(f"/{GIT}/")[0] if f"/{GIT}/" in path else os.path.dirname(path)  # noqa: PTH120
        if place.startswith(f"{self._top}/") and len(self._nested) < MOST_NAMED:
            self._nested.add(place)

    def _told_of_nested(self) -> list[str]:
        """Tell of repositories below the top, which no mount can hold."""
        places, self._nested = self._nested, set()
        made = [place for place in places if _has_repository(Path(place)) or is_repository(Path(place))]
        if not made:
            return []
        named = ", ".join(sorted(shown(place.removeprefix(f"{self._top}/")) for place in made))
        what = f"Evaluated code made or changed a git repository in {named}: its config can name programs"
        return [f"{what}, which run when you use git there. Look at it first."]

    def begin(self) -> list[str]:
        """Tell what has changed since the last call; move it aside if evaluated code wrote meanwhile."""
        if self.listens:
            if not (self._is_stirred or self._was_stirred):
                return []
        elif monotonic() - self._looked_at < PAUSE_SECONDS:
            return []
        with self._lock:
            return self._told(BETWEEN, moves=self._is_stirred)

    def look(self) -> list[str]:
        """Move aside what was made or changed since `begin`, and tell it."""
        if self.listens and not (self._is_stirred or self._was_stirred):
            return []
        with self._lock:
            told = self._told(DURING, moves=self._is_stirred or not self.listens)
            self._was_stirred, self._is_stirred = self._is_stirred, False
            self._looked_at = monotonic()
            return told

    def close(self) -> list[str]:
        """Look a last time, as between two calls; for a repository in any case."""
        with self._lock:
            self._changed_ns = 0
            is_theirs = self.listens and not (self._is_stirred or self._was_stirred)
            told = self._without_repository() if is_theirs else self._told(BETWEEN, moves=self._is_stirred)
            os.close(self._descriptor)
            self._descriptor = -1
            return told

    def _told(self, when: str, *, moves: bool) -> list[str]:
        told = self._told_of_nested() if self._nested else []
        for name in self._differing(self._to_check()):
            what = f"{name}, which {_reader(name)}, was {'changed' if name in self._loose else 'made'} {when}"
            told.append(self._moved(name, what) if moves and name not in INSTRUCTIONS else f"{what}.")
            self._accept(name)
        return [*self._without_repository(), *told]

    def _to_check(self) -> Collection[str]:
        """Return the names that may differ: all, after a change of the directory, else the loose ones."""
        # Not the time of modification, which evaluated code can set.
        changed = os.fstat(self._descriptor).st_ctime_ns
        if changed == self._changed_ns and not self._is_young:
            return self._loose
        was_seen, self._changed_ns = changed == self._changed_ns, changed
        self._is_young = time_ns() - changed < TICK_NS
        # Of a change within the tick of the last look the time says nothing: all are checked once it is over.
        return self._loose if was_seen and self._is_young else self._seen

    def _differing(self, names: Collection[str]) -> list[str]:
        """Return those that are there and not as they were last seen; accept the rest as they are."""
        found = []
        for name in tuple(names):
            before = self._seen[name]
            now = self._find(name)
            if now == before:
                continue
            if name in self._bound:
                # Nothing inside can touch a mount point: this change came from the host, and ended the mount.
                if now is None or before is None or now[:2] != before[:2]:
                    self._bound.discard(name)
                self._accept(name)
            elif now is not None:
                found.append(name)
            else:
                self._accept(name)
        return found

    def _find(self, name: str) -> Seen | None:
        try:
            status = os.lstat(f"{self._top}/{name}")
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns

    def _accept(self, name: str) -> None:
        seen = self._seen[name] = self._find(name)
        if seen is None or name in self._bound:
            self._loose.discard(name)
        else:
            self._loose.add(name)

    def _moved(self, name: str, what: str) -> str:
        try:
            new = self._aside(name)
        except OSError as error:
            return f"{what}, and cannot be moved aside ({error.strerror}): look at it before you use it."
        return f"{what}: it is {new} now. If it is yours, rename it back between two calls."

    def _aside(self, name: str) -> str:
        """Rename an entry of the top to a name that is free; a link is renamed, not followed."""
        new = f"{name}{UNTRUSTED}"
        while os.path.lexists(self._top / new):
            new = f"{name}{UNTRUSTED}-{secrets.token_hex(4)}"
        (self._top / name).rename(self._top / new)
        return new

    def _without_repository(self) -> list[str]:
        """Take HEAD away from what git would take for a repository at the top, and tell it."""
        if not self._guards_git or not is_repository(self._top) or _has_repository(self._top):
            return []
        what = (
            f"The top of the project was made a git repository, whose config can name programs: {self._top}"
        )
        try:
            new = self._aside("HEAD")
        except OSError as error:
            return [f"{what}. Its HEAD cannot be moved aside ({error.strerror}): remove it, do not use git."]
        return [
            f"{what}. Its HEAD is {new} now; remove it with config, objects and refs if they are not yours."
        ]


def _reader(name: str) -> str:
    return "agents read as instructions" if name in INSTRUCTIONS else LOOKED_AT[name]


class Walls:
    """The placeholders and the sentry of one image, from its start until all its processes have ended."""

    def __init__(self, project: Path, kept: tuple[Path, ...] = (), *, holds: bool) -> None:
        # Without mounts a placeholder would hold nothing.
        self._placeholders = Placeholders(project) if holds else None
        self.sentry = Sentry(project)
        self._witness = Witness(project, kept if holds else ())

    def leave(self) -> list[str]:
        """Look a last time, after the end of every process, and let the placeholders go."""
        told = self.sentry.close()
        self._witness.close(could_write=self.sentry.has_written or not self.sentry.listens)
        if self._placeholders is not None:
            self._placeholders.close()
        return told
