"""Restore one path to an earlier state, in steps. The process may be killed after any of them.

Nothing is removed before it was checked under a temporary name, and is in the store as well.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, Protocol

from gramercy.images.files import places
from gramercy.images.files.changes import shown
from gramercy.images.files.states import ABSENT, TEMPORARY, State, pread, pwrite, state_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.files.changes import Outcome

# A file that the image holds open is overwritten in steps of this size, with a check between them.
STEP = 1 << 20
# Exchanges of one path that is saved repeatedly in that instant.
TRIES = 4
# The permissions that the owner needs to work in a directory.
OPEN = stat.S_IRWXU
CHANGED = "it was changed since"
NO_EXCHANGE = "this file system cannot exchange files: a save in that instant could be lost"
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


class Run(Protocol):
    """The restore of which the path is a part."""

    @property
    def token(self) -> str:
        """The prefix of its temporary files."""

    @property
    def content(self) -> Callable[[str], bytes]:
        """Return a content by its digest."""

    @property
    def at(self) -> Callable[[str], None]:
        """Report a place where the process could be killed."""

    @property
    def is_resumed(self) -> bool:
        """Whether it resumes after its process was killed."""

    @property
    def flush_each(self) -> bool:
        """Whether each file is flushed separately."""


class Aim(Protocol):
    """The goal for the path."""

    @property
    def want(self) -> State:
        """The wanted state."""

    @property
    def left(self) -> State:
        """The state in which the call left it."""

    @property
    def in_place(self) -> bool:
        """Whether the image holds the file open."""


class Way:
    """The restore of one path. Its directory is open, and no step leaves it."""

    def __init__(self, run: Run, number: int, aim: Aim, folder: int, name: str) -> None:
        self._run, self._aim = run, aim
        self._want, self._left = aim.want, aim.left
        self._folder, self._name = folder, name
        start = f"{TEMPORARY}{run.token}-{number}"
        # Temporary names: being written; complete, or swapped out; moved aside.
        self._staged, self._ready, self._aside = (f"{start}{letter}" for letter in "sra")
        # A file that is larger than both is neither of them.
        self._most = max(self._want.size, self._left.size)

    def go(self) -> tuple[Outcome, str]:
        """Restore the path, and return the outcome."""
        if self._run.is_resumed and (told := self._resumed()) is not None:
            return told
        now = self._look(self._name)
        if _is_like(now, self._want):
            return ("gone" if self._want == ABSENT else "back"), "it was so already"
        if self._aim.in_place and self._want.kind == self._left.kind == now.kind == "file":
            return self._over()
        if not _is_like(now, self._left):
            return "left alone", CHANGED
        self._run.at("looked")
        return self._taken_away() if self._want == ABSENT else self._placed()

    def _placed(self) -> tuple[Outcome, str]:
        if self._set_mode():
            return "back", ""
        self._stage()
        return self._created() if self._left == ABSENT else self._exchanged()

    def _look(self, name: str) -> State:
        return state_at(self._folder, name, self._most)

    def _remove(self, name: str) -> None:
        places.remove(self._folder, name)

    def _exists(self, name: str) -> bool:
        return places.exists(self._folder, name)

    def _set_mode(self) -> bool:
        """Change the mode if only that differs."""
        want, left = self._want, self._left
        if want.kind == left.kind == "directory":
            mode = want.mode if want.mode & OPEN == OPEN else want.mode | OPEN
            places.set_mode(self._folder, self._name, mode, stat.S_IFDIR)
        elif want.kind == left.kind == "file" and want.digest == left.digest:
            places.set_mode(self._folder, self._name, want.mode, stat.S_IFREG)
        else:
            return False
        return True

    def _stage(self) -> None:
        """Create the wanted state under a temporary name. Under the second name it is complete."""
        want = self._want
        if want.kind == "file":
            self._stage_file(self._run.content(want.digest))
        elif want.kind == "link":
            os.symlink(want.target, self._staged, dir_fd=self._folder)
        else:
            os.mkdir(self._staged, OPEN, dir_fd=self._folder)
        if want.kind != "file" and want.owner is not None:
            with contextlib.suppress(OSError):
                os.chown(self._staged, *want.owner, dir_fd=self._folder, follow_symlinks=False)
        if want.kind == "directory":
            places.set_mode(self._folder, self._staged, want.mode | OPEN, stat.S_IFDIR)
        places.move(self._folder, self._staged, self._ready)
        self._run.at("staged")

    def _stage_file(self, data: bytes) -> None:
        descriptor = os.open(self._staged, places.MAKING, 0o600, dir_fd=self._folder)
        try:
            pwrite(descriptor, data, 0)
            self._run.at("half staged")
            mode, found = self._want.mode, os.fstat(descriptor)
            owner = self._want.owner
            if owner is not None and owner != (found.st_uid, found.st_gid):
                try:
                    os.fchown(descriptor, *owner)
                except OSError:
                    # It would run with the rights of another owner than before.
                    mode &= ~(stat.S_ISUID | stat.S_ISGID)
            os.fchmod(descriptor, mode)
            if self._run.flush_each:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _created(self) -> tuple[Outcome, str]:
        try:
            places.move(self._folder, self._ready, self._name)
        except FileExistsError:
            self._remove(self._ready)
            return "left alone", "it was made anew since"
        self._run.at("created")
        return "back", ""

    def _exchanged(self) -> tuple[Outcome, str]:
        try:
            links = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False).st_nlink
            if not places.exchange(self._folder, self._ready, self._name):
                places.move(self._folder, self._name, self._aside)
                self._run.at("moved aside")
                return self._after_aside()
        except FileNotFoundError:
            self._remove(self._ready)
            return "left alone", "it was deleted since"
        self._run.at("exchanged")
        outcome, reason = self._settled()
        if outcome == "back" and links > 1 and self._left.kind == "file":
            reason = (
                "a file of its own now; its other names (hard links) that are not told of stay as they are"
            )
        return outcome, reason

    def _settled(self) -> tuple[Outcome, str]:
        """Check the file that was swapped out. If it is not the expected one, swap it back."""
        placed, expected = self._want, self._left
        for _ in range(TRIES):
            out = self._look(self._ready)
            self._run.at("looked at what came out")
            if _is_like(out, expected) and self._dropped(out):
                return ("back", "") if placed is self._want else ("left alone", CHANGED)
            try:
                places.exchange(self._folder, self._ready, self._name)
            except FileNotFoundError:
                return self._put_back(self._ready)
            self._run.at("exchanged back")
            placed, expected = out, placed
        return self._kept_beside(self._ready)

    def _dropped(self, out: State) -> bool:
        """Remove a file that is in the store as well. Give another one a name under which it can be found."""
        if not (_is_like(out, self._want) or _is_like(out, self._left)):
            self._kept_beside(self._ready)
            return True
        try:
            self._remove(self._ready)
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
            # Files were put into the directory.
            return False
        return True

    def _taken_away(self) -> tuple[Outcome, str]:
        if self._left.kind == "directory":
            try:
                os.rmdir(self._name, dir_fd=self._folder)
            except OSError as error:
                if error.errno not in _NOT_EMPTY:
                    raise
                return "left alone", "other files are in it"
            return "gone", ""
        places.move(self._folder, self._name, self._aside)
        self._run.at("moved aside")
        if self._look(self._aside) == self._left:
            self._remove(self._aside)
            return "gone", ""
        return self._put_back(self._aside)

    def _put_back(self, temporary: str) -> tuple[Outcome, str]:
        try:
            places.move(self._folder, temporary, self._name)
        except FileExistsError:
            return self._kept_beside(temporary)
        return "left alone", CHANGED

    def _kept_beside(self, temporary: str) -> tuple[Outcome, str]:
        # 255 bytes are the most that a name may have.
        name = f"{os.fsdecode(os.fsencode(self._name)[:200])}.kept-{self._run.token}"
        places.move(self._folder, temporary, name)
        return "left alone", f"{CHANGED}, twice; the earlier content is in {shown(name)}"

    def _after_aside(self) -> tuple[Outcome, str]:
        """Use two steps where the file system cannot swap: for an instant the name does not exist."""
        if self._look(self._aside) != self._left or self._has_entries(self._aside):
            if self._exists(self._ready):
                self._remove(self._ready)
            return self._put_back(self._aside)
        if not self._exists(self._ready):
            self._stage()
        outcome, reason = self._created()
        self._remove(self._aside)
        return outcome, reason or NO_EXCHANGE

    def _has_entries(self, name: str) -> bool:
        if self._left.kind != "directory":
            return False
        inner = os.open(name, places.DIRECTORY | os.O_NOFOLLOW, dir_fd=self._folder)
        try:
            with os.scandir(inner) as entries:
                return next(entries, None) is not None
        finally:
            os.close(inner)

    def _resumed(self) -> tuple[Outcome, str] | None:
        """Resume where the process was killed. None if the path is to be restored as any other."""
        if self._exists(self._staged):
            self._remove(self._staged)
        if self._exists(self._aside):
            return self._resumed_aside()
        if not self._exists(self._ready):
            return None
        out = self._look(self._ready)
        if _is_like(out, self._want):
            # Never exchanged, or exchanged back.
            self._remove(self._ready)
            return None
        if _is_like(self._look(self._name), self._want):
            return self._settled()
        if _is_like(out, self._left) and self._dropped(out):
            return "left alone", CHANGED
        return self._put_back(self._ready)

    def _resumed_aside(self) -> tuple[Outcome, str]:
        now = self._look(self._name)
        if self._want != ABSENT and now == ABSENT:
            return self._after_aside()
        if self._look(self._aside) != self._left:
            if self._exists(self._ready):
                self._remove(self._ready)
            return self._put_back(self._aside)
        for name in (self._aside, self._ready):
            if self._exists(name):
                self._remove(name)
        if now == ABSENT:
            return "gone", ""
        return ("back", NO_EXCHANGE) if _is_like(now, self._want) else ("left alone", CHANGED)

    def _over(self) -> tuple[Outcome, str]:
        """Overwrite a file that the image holds open: a new one would not get the image's later writes."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self._name, flags, dir_fd=self._folder)
        try:
            found = os.fstat(descriptor)
            # Another name could lie outside of the project.
            if found.st_nlink > 1:
                return "left alone", "the image has it open, and it has other names (hard links)"
            if not self._written_over(descriptor):
                return "left alone", CHANGED
            os.fchmod(descriptor, self._want.mode)
            os.fsync(descriptor)
            now = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            if not os.path.samestat(found, now):
                return "left alone", CHANGED
        finally:
            os.close(descriptor)
        return "back", "in place, since the image has it open"

    def _written_over(self, descriptor: int) -> bool:
        """Write from the start and truncate. At each step the file must be as the previous step left it."""
        want, left = self._run.content(self._want.digest), self._run.content(self._left.digest)
        now = pread(descriptor, 0, self._most + 1)
        if now != left and not (self._run.is_resumed and is_half_done(now, want, left)):
            return False
        if stat.S_IMODE(os.fstat(descriptor).st_mode) not in (self._left.mode, self._want.mode):
            return False
        for start in range(0, len(want), STEP):
            if pread(descriptor, 0, self._most + 1) != now:
                return False
            end = min(start + STEP, len(want))
            pwrite(descriptor, want[start:end], start)
            now = want[:end] + now[end:]
            self._run.at("written over")
        if pread(descriptor, 0, self._most + 1) != now:
            return False
        os.ftruncate(descriptor, len(want))
        self._run.at("cut")
        return True


def is_half_done(now: bytes, want: bytes, left: bytes) -> bool:
    """Return whether a content is the start of one and the rest of the other, as after a cut-off write."""
    low, high = 0, min(len(now), len(want))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if now[low:middle] == want[low:middle] else (low, middle - 1)
    return now == want or now[low:] == left[low:]


def _is_like(now: State, state: State) -> bool:
    """Return whether a path is in a state, or is a directory that was opened for work in it."""
    is_opened = now.kind == state.kind == "directory" and now.mode == state.mode | OPEN
    return now == state or is_opened
