"""The states of a project's paths, and the contents of its files, kept in one place outside of the project.

Contents are appended to one file, the pack, since making a file for each took ten times as long. A pack lives
as long as the process that fills it: states of images and writes of tools, for which it is kept, end with the
process too. Nothing here changes the project.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
import threading
import time
import weakref
from shutil import rmtree
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gramercy.directories import state_home
from gramercy.errors import FileStoreError
from gramercy.images.files import places
from gramercy.images.files.states import (
    ABSENT,
    LARGEST_FILE,
    REPOSITORIES,
    TEMPORARY,
    State,
    digest_of,
    is_repository,
    key_of,
    pread,
    pwrite,
    state_at,
)
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

# Four evaluations at their limit (changes.py).
LARGEST_PACK = 1 << 30
# The limit of contents that are not copied to a disk: files with keys and passwords are small.
LARGEST_MEMORY = 16 << 20
# A pack is searched for unneeded contents from this size on, and from twice the size after the last search.
SMALLEST_TIDIED = 64 << 20
# Reading the states of 10,000 files takes up to 0.2 s, before and after every call.
MOST_FILES = 10_000
# The limit for a snapshot of a project. Files beyond it are reported as not kept.
LARGEST_SNAPSHOT = 256 << 20
# An attempt fails only if another process of the same project starts or ends at that moment.
TRIES = 50
# Each level of a walk keeps a descriptor open, and many systems allow a process 1,024.
DEEPEST = 200
# Clocks of older file systems tick every 10 ms: a file may change again within a tick.
RACY = 30_000_000
# Generated directories that a snapshot skips. A write into them that is seen is kept as any other.
MADE_AGAIN = frozenset(("node_modules", "__pycache__", ".tox", ".mypy_cache", ".ruff_cache", ".pytest_cache"))
SIGNS_OF_ENVIRONMENTS = frozenset(("pyvenv.cfg", "conda-meta"))


class Seen(NamedTuple):
    """A path in a snapshot: its state, and the stat key that identifies it. The key is None if it is racy."""

    key: tuple[int, ...] | None
    state: State


class Holder(Protocol):
    """An object that needs contents for as long as it lives."""

    def digests(self) -> Iterable[str]:
        """Return the digests of all contents that it needs."""
        ...


class Snapshot(dict[str, Seen]):
    """All paths of a project at one moment."""

    def digests(self) -> Iterable[str]:
        """Return the digests of all files."""
        return [seen.state.digest for seen in self.values() if seen.state.kind == "file"]


class Store:
    """The contents kept for one project by this process, in its own directory below `directory`."""

    def __init__(self, directory: Path, root: Path) -> None:
        self.root = root.resolve()
        self.lock = threading.RLock()
        # One restore at a time.
        self.turn = threading.Lock()
        # While a journal names the places of contents, they must not move.
        self.is_pinned = False
        self._index: dict[str, tuple[int, int]] = {}
        self._memory: dict[str, bytes] = {}
        self._holders: list[weakref.ref[Holder]] = []
        self._size = 0
        self._tidied = SMALLEST_TIDIED
        self.directory, self._lock_file = _own_directory(directory, self.root)
        self._pack = os.open(self.directory / "pack", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.close = weakref.finalize(self, _end, os.getpid(), self.directory, self._lock_file, self._pack)

    def relative(self, path: str | bytes | Path) -> str | None:
        """Return a path relative to the project. None for one outside, or of version control."""
        name = os.path.normpath(os.path.join(self.root, os.fsdecode(path)))  # noqa: PTH118 - it may be bytes
        start = f"{self.root}/".replace("//", "/")
        if not name.startswith(start) or is_repository(name[len(start) :]):
            return None
        return name[len(start) :]

    def keep(self, path: str | bytes | Path, most: int = LARGEST_FILE) -> State:
        """Return the current state of a path. The content of a file is then in the store."""
        return self._look(path, most, keep=True)

    def look(self, path: str | bytes | Path, most: int = LARGEST_FILE) -> State:
        """Return the current state of a path, without keeping it."""
        return self._look(path, most, keep=False)

    def _look(self, path: str | bytes | Path, most: int, *, keep: bool) -> State:
        name = self.relative(path)
        if name is None:
            return State("left_out", reason="it is outside of the project or belongs to version control")
        *folders, last = name.split("/")
        try:
            with places.directory(self.root, folders) as folder:
                return self.at(folder, last, most, keep=keep)
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError as error:
            return State("left_out", reason=f"it cannot be read: {reason_of(error)}")

    def at(self, folder: int, name: str, most: int = LARGEST_FILE, *, keep: bool = False) -> State:
        """Return the state of a name in an open directory."""
        return state_at(folder, name, most, self.add if keep else digest_of)

    def add(self, data: bytes, *, in_memory: bool = False) -> str:
        """Keep a content and return its digest. With `in_memory` it is not copied to a disk."""
        digest = digest_of(data)
        with self.lock:
            if in_memory:
                self._remember(digest, data)
            elif digest not in self._index:
                if self._size + len(data) > min(self._tidied, LARGEST_PACK):
                    self.tidy()
                if self._size + len(data) > LARGEST_PACK:
                    raise FileStoreError(f"the store has {LARGEST_PACK >> 20:,} MB of older contents")
                try:
                    pwrite(self._pack, data, self._size)
                except OSError as error:
                    raise FileStoreError(f"it cannot be copied: {reason_of(error)}") from None
                self._index[digest] = (self._size, len(data))
                self._size += len(data)
        return digest

    def _remember(self, digest: str, data: bytes) -> None:
        if sum(map(len, self._memory.values())) + len(data) > LARGEST_MEMORY:
            self.tidy()
        if sum(map(len, self._memory.values())) + len(data) > LARGEST_MEMORY:
            raise FileStoreError(f"{LARGEST_MEMORY >> 20} MB of secret contents are kept already")
        self._memory[digest] = data

    def hold(self, holder: Holder) -> None:
        """Keep the contents that an object needs for as long as it lives."""
        with self.lock:
            self._holders.append(weakref.ref(holder))

    def place(self, digest: str) -> tuple[int, int] | None:
        """Return the place of a content in the pack, and its size. None if it is in memory only."""
        return self._index.get(digest)

    def content(self, digest: str) -> bytes:
        """Return a kept content."""
        with self.lock:
            if digest in self._memory:
                return self._memory[digest]
            if digest not in self._index:
                raise FileStoreError("its content is no longer kept")
            return read_pack(self._pack, *self._index[digest], digest)

    def sync(self) -> None:
        """Flush all contents to the disk, before a journal names them."""
        os.fdatasync(self._pack)

    def tidy(self) -> None:
        """Drop the contents that no living object needs."""
        with self.lock:
            if self.is_pinned:
                return
            living = [(ref, holder) for ref in self._holders if (holder := ref()) is not None]
            self._holders = [ref for ref, _ in living]
            needed = {digest for _, holder in living for digest in holder.digests()}
            self._memory = {digest: data for digest, data in self._memory.items() if digest in needed}
            if len(needed) < len(self._index):
                self._rewrite(needed)
            self._tidied = max(SMALLEST_TIDIED, 2 * self._size)

    def _rewrite(self, needed: set[str]) -> None:
        """Write a new pack with these contents only, and replace the old one."""
        name = self.directory / "pack.new"
        pack = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        index, size = {}, 0
        for digest, (at, length) in self._index.items():
            if digest in needed:
                pwrite(pack, pread(self._pack, at, length), size)
                index[digest] = (size, length)
                size += length
        name.rename(self.directory / "pack")
        # The number stays the same, so that the code that closes the store need not know of this.
        os.dup2(pack, self._pack, inheritable=False)
        os.close(pack)
        self._index, self._size = index, size

    def below(self, path: str) -> Iterator[str]:
        """Yield all names below a directory, relative to it. Symlinks are not followed."""
        with contextlib.suppress(OSError), places.directory(self.root, path.split("/")) as folder:
            yield from _names_below(folder, "", DEEPEST)

    def snapshot(self, old: Snapshot | None = None) -> Snapshot | None:
        """Return all paths of the project. Files whose stat key differs from `old` are read.

        None if there are too many.
        """
        return _Survey(self, old or Snapshot()).run()


class _Survey:
    """One walk through the whole project."""

    def __init__(self, store: Store, old: Snapshot) -> None:
        self._store = store
        self._old = old
        self._new = Snapshot()
        self._files = 0
        self._bytes = 0
        self._racy = time.time_ns() - RACY

    def run(self) -> Snapshot | None:
        self._store.hold(self._new)
        with places.directory(self._store.root, ()) as folder:
            complete = self._folder(folder, "")
        return self._new if complete else None

    def _folder(self, folder: int, path: str) -> bool:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
        if path and not SIGNS_OF_ENVIRONMENTS.isdisjoint(names):
            return True
        return all(self._entry(folder, path, name) for name in names)

    def _entry(self, folder: int, path: str, name: str) -> bool:
        if name.casefold() in REPOSITORIES or name in MADE_AGAIN or name.startswith(TEMPORARY):
            return True
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return True  # It was removed meanwhile.
        if not stat.S_ISDIR(found.st_mode):
            self._files += 1
            self._new[path + name] = self._seen(folder, name, path + name, found)
            return self._files <= MOST_FILES
        self._new[path + name] = Seen(None, state_at(folder, name, 0))
        if path.count("/") >= DEEPEST:
            return True
        with contextlib.suppress(OSError):
            inner = os.open(name, places.DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            try:
                return self._folder(inner, f"{path}{name}/")
            finally:
                os.close(inner)
        return True

    def _seen(self, folder: int, name: str, path: str, found: os.stat_result) -> Seen:
        key, was = key_of(found), self._old.get(path)
        if was is not None and was.key == key:
            return was
        # The remaining room. At 0 every file with a content is too large.
        room = min(LARGEST_FILE, LARGEST_SNAPSHOT - self._bytes)
        with self._store.lock:
            seen = Seen(
                key if found.st_ctime_ns < self._racy else None,
                self._store.at(folder, name, room, keep=True),
            )
            self._new[path] = seen
        self._bytes += seen.state.size if seen.state.kind == "file" else 0
        return seen


def _names_below(folder: int, path: str, deepest: int) -> Iterator[str]:
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if name.casefold() in REPOSITORIES:
            continue
        yield path + name
        if is_folder and deepest:
            with contextlib.suppress(OSError):
                inner = os.open(name, places.DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                try:
                    yield from _names_below(inner, f"{path}{name}/", deepest - 1)
                finally:
                    os.close(inner)


def read_pack(pack: int, at: int, size: int, digest: str) -> bytes:
    """Read a content, and refuse one that differs from the kept one."""
    data = pread(pack, at, size)
    if digest_of(data) != digest:
        raise FileStoreError("its copy in the store is damaged")
    return data


def _own_directory(directory: Path, root: Path) -> tuple[Path, int]:
    """Make a directory for this process alone, with a lock that tells other processes that it lives."""
    directory = directory.resolve()
    if directory == root or root in directory.parents:
        raise FileStoreError(f"{directory} is in the project, where evaluated code could change it")
    try:
        for _ in range(TRIES):
            # The last process that ends removes the directory of the project, perhaps in this moment.
            with contextlib.suppress(FileNotFoundError):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                own = directory / secrets.token_hex(8)
                own.mkdir(mode=0o700)
                lock = os.open(own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(lock, fcntl.LOCK_EX)
                if (own / "lock").exists():
                    return own, lock
                # A starting process has taken it for abandoned.
                os.close(lock)
    except OSError as error:
        raise FileStoreError(f"{directory} cannot be used: {reason_of(error)}") from None
    raise FileStoreError(f"{directory} cannot be used: it is removed again and again")


def _end(owner: int, directory: Path, *descriptors: int) -> None:
    # A forked process has the same objects, and ends before.
    if os.getpid() == owner:
        rmtree(directory, ignore_errors=True)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            directory.parent.rmdir()


def abandoned(directory: Path) -> Iterator[Path]:
    """Yield the directories of killed processes. Each is removed after."""
    with contextlib.suppress(FileNotFoundError):
        for own in sorted(directory.iterdir()):
            with contextlib.suppress(OSError):
                lock = os.open(own / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    yield own
                    rmtree(own, ignore_errors=True)
                finally:
                    os.close(lock)


def files_directory(project: Path) -> Path:
    """Return the directory for the contents of a project's files: below the user's state directory."""
    mark = hashlib.sha256(os.fsencode(project)).hexdigest()[:12]
    return state_home() / "gramercy" / "files" / f"{project.name or 'root'}-{mark}"
