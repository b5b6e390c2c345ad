"""The states of a project's paths, and the contents of its files, kept in one place outside of the project.

Contents are appended to one file, the pack, since making a file for each took ten times as long. A pack lives
as long as the process that fills it: what it is kept for, states of images and writes of tools, ends with it
too. Nothing here changes the project.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import hashlib
import os
import secrets
import stat
import threading
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from gramercy.errors import FileStoreError
from gramercy.images.files import places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Larger files are data, which a program makes again; to copy one takes 10 ms before the write may go on.
LARGEST_FILE = 5 << 20
# Four evaluations at their limit (changes.py).
LARGEST_PACK = 1 << 30
# A pack is not looked through for what nobody needs before it has this size, and twice that of the last time.
SMALLEST_TIDIED = 64 << 20
# Looking at 10,000 files takes up to 0.2 s, before and after every call.
MOST_FILES = 10_000
# Of a project that is looked at as a whole; what is beyond is told as not kept.
LARGEST_SNAPSHOT = 256 << 20
# Each level of a walk keeps a descriptor open, of which a process has 1,024 on many systems.
DEEPEST = 200
# Clocks of older file systems tick every 10 ms: a file may change again within a tick.
RACY = 30_000_000
# A file that changes three times while it is read is being written all the time.
TRIES = 3
# Never read, never brought back: a file in there can name a program that git runs.
REPOSITORIES = frozenset((".git", ".hg", ".svn", ".jj"))
# Not looked at as a whole: what tools make again. A write into them that is seen is kept as any other.
MADE_AGAIN = frozenset(("node_modules", "__pycache__", ".tox", ".mypy_cache", ".ruff_cache", ".pytest_cache"))
SIGNS_OF_ENVIRONMENTS = frozenset(("pyvenv.cfg", "conda-meta"))
SECRET = (
    *(".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "*.jks", "id_rsa*", "id_ed25519*"),
    *("id_ecdsa*", ".netrc", ".npmrc", ".pypirc", ".pgpass", ".git-credentials", "credentials.json"),
)
NO_ROOM = "too much was to be kept at once"
Kind = Literal["absent", "file", "link", "directory", "left_out"]
# Names that stand beside a file for an instant while it goes back.
TEMPORARY = ".gramercy-"


@dataclass(frozen=True, slots=True)
class State:
    """What one path was at one moment.

    `digest` is that of a file's content; of what is left out, inode and times, so that a change can be told.
    """

    kind: Kind
    mode: int = 0
    digest: str = ""
    target: str = ""
    size: int = 0
    reason: str = ""
    # Not compared: only root can bring it back.
    owner: tuple[int, int] | None = field(default=None, compare=False)


ABSENT = State("absent")


def digest_of(data: bytes) -> str:
    """Return the name of a content."""
    return hashlib.blake2b(data, digest_size=20).hexdigest()


class Seen(NamedTuple):
    """A path in a snapshot: its state, and the stat key by which it is known again; None if that is racy."""

    key: tuple[int, ...] | None
    state: State


class Holder(Protocol):
    """What needs contents for as long as it lives."""

    def digests(self) -> Iterable[str]:
        """Return the digests of all contents that it needs."""
        ...


class Snapshot(dict[str, Seen]):
    """All paths of a project at one moment."""

    def digests(self) -> Iterable[str]:
        """Return the digests of all files."""
        return [seen.state.digest for seen in self.values() if seen.state.kind == "file"]


class Store:
    """The contents kept for one project by this process, in a directory of its own below `directory`."""

    def __init__(self, directory: Path, root: Path) -> None:
        self.root = root.resolve()
        self.lock = threading.RLock()
        # One restore at a time.
        self.turn = threading.Lock()
        self._is_pinned = False
        self._index: dict[str, tuple[int, int]] = {}
        self._holders: list[weakref.ref[Holder]] = []
        self._size = 0
        self._tidied = SMALLEST_TIDIED
        self.directory, self._lock_file = _own_directory(directory, self.root)
        self._pack = os.open(self.directory / "pack", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.close = weakref.finalize(self, _end, self.directory, self._lock_file, [self._pack])

    def relative(self, path: str | bytes | Path) -> str | None:
        """Return a path as seen from the project; None for one outside, or in a repository's own directory."""
        name = os.path.normpath(os.path.join(self.root, os.fsdecode(path)))  # noqa: PTH118 - names need not be UTF-8
        start = f"{self.root}/".replace("//", "/")
        if not name.startswith(start) or is_repository(name[len(start) :]):
            return None
        return name[len(start) :]

    def keep(self, path: str | bytes | Path, most: int = LARGEST_FILE) -> State:
        """Return the present state of a path; the content of a file is in the store then."""
        return self._look(path, most, keep=True)

    def look(self, path: str | bytes | Path, most: int = LARGEST_FILE) -> State:
        """Return the present state of a path, and keep nothing."""
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
            return _unreadable(error)

    def at(self, folder: int, name: str, most: int = LARGEST_FILE, *, keep: bool = False) -> State:
        """Return the state of a name in an open directory."""
        return state_at(folder, name, most, self._add if keep else digest_of)

    def _add(self, data: bytes) -> str:
        digest = digest_of(data)
        with self.lock:
            if digest not in self._index:
                if self._size + len(data) > min(self._tidied, LARGEST_PACK):
                    self.tidy()
                if self._size + len(data) > LARGEST_PACK:
                    raise FileStoreError(f"the store has {LARGEST_PACK >> 20:,} MB of older contents")
                try:
                    pwrite(self._pack, data, self._size)
                except OSError as error:
                    raise FileStoreError(f"it cannot be copied: {error.strerror}") from None
                self._index[digest] = (self._size, len(data))
                self._size += len(data)
        return digest

    def hold(self, holder: Holder) -> None:
        """Keep what an object needs for as long as it lives."""
        with self.lock:
            self._holders.append(weakref.ref(holder))

    def place(self, digest: str) -> tuple[int, int]:
        """Return where in the pack a content is, and its size."""
        return self._index[digest]

    def content(self, digest: str) -> bytes:
        """Return a kept content."""
        with self.lock:
            if digest not in self._index:
                raise FileStoreError("its content is no longer kept")
            return read_pack(self._pack, *self._index[digest], digest)

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """Leave every content where it is, while a journal names its place."""
        self._is_pinned = True
        try:
            yield
        finally:
            self._is_pinned = False

    def sync(self) -> None:
        """Have all contents on the disk, before a journal names them."""
        os.fdatasync(self._pack)

    def tidy(self) -> None:
        """Drop the contents that no living object needs."""
        with self.lock:
            if self._is_pinned:
                return
            living = [(ref, holder) for ref in self._holders if (holder := ref()) is not None]
            self._holders = [ref for ref, _ in living]
            needed = {digest for _, holder in living for digest in holder.digests()}
            if len(needed) < len(self._index):
                self._rewrite(needed)
            self._tidied = max(SMALLEST_TIDIED, 2 * self._size)

    def _rewrite(self, needed: set[str]) -> None:
        """Write a new pack with these contents only, and put it in the place of the old one."""
        name = self.directory / "pack.new"
        pack = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        index, size = {}, 0
        for digest, (at, length) in self._index.items():
            if digest in needed:
                pwrite(pack, pread(self._pack, at, length), size)
                index[digest] = (size, length)
                size += length
        name.rename(self.directory / "pack")
        # The number stays the same, so that whoever closes the store need not know of this.
        os.dup2(pack, self._pack, inheritable=False)
        os.close(pack)
        self._index, self._size = index, size

    def below(self, path: str) -> Iterator[str]:
        """Go through all names below a directory, as seen from it; symlinks are not followed."""
        with contextlib.suppress(OSError), places.directory(self.root, path.split("/")) as folder:
            yield from _names_below(folder, "", DEEPEST)

    def snapshot(self, old: Snapshot | None = None) -> Snapshot | None:
        """Return all paths of the project; files are read whose stat key is not that of `old`.

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
            return True  # It went away meanwhile.
        if not stat.S_ISDIR(found.st_mode):
            self._files += 1
            self._new[path + name] = self._seen(folder, name, path + name, found)
            return self._files <= MOST_FILES
        self._new[path + name] = Seen(None, _plain(folder, name, found))
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
        key, was = _key(found), self._old.get(path)
        if was is not None and was.key == key:
            return was
        # The room that is left; at 0 every file with a content is too large.
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


def state_at(folder: int, name: str, most: int, add: Callable[[bytes], str] = digest_of) -> State:
    """Return the state of a name in an open directory; `add` takes a content and returns its digest."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            return _plain(folder, name, found)
        try:
            return _file_at(folder, name, most, add)
        except FileStoreError as error:
            return _left_out(found, str(error))
    except FileNotFoundError:
        return ABSENT
    except OSError as error:
        return _unreadable(error)


def _file_at(folder: int, name: str, most: int, add: Callable[[bytes], str]) -> State:
    # Whether a name is secret is asked only before a copy is made; to be compared, a file may be read.
    asked = "" if add is digest_of else name
    for _ in range(TRIES):
        descriptor = os.open(name, places.READING, dir_fd=folder)
        try:
            found = os.fstat(descriptor)
            if why := _why_not(asked, found, most):
                return _left_out(found, why)
            data = pread(descriptor, 0, most + 1)
            if _key(found) == _key(os.fstat(descriptor)) and len(data) == found.st_size:
                return _file_state(found, add(data))
        finally:
            os.close(descriptor)
    return _left_out(found, "it changes while it is read")


def is_repository(path: str) -> bool:
    """Tell whether a path belongs to a version control system's own directory."""
    return any(part.casefold() in REPOSITORIES for part in path.split("/"))


def is_secret(name: str) -> bool:
    """Tell whether a file's name is one that keys and passwords are kept under."""
    return any(fnmatch.fnmatchcase(name.casefold(), pattern) for pattern in SECRET)


def read_pack(pack: int, at: int, size: int, digest: str) -> bytes:
    """Read a content, and refuse what is not the one that was kept."""
    data = pread(pack, at, size)
    if digest_of(data) != digest:
        raise FileStoreError("its copy in the store is damaged")
    return data


def pread(descriptor: int, at: int, size: int) -> bytes:
    """Read so many bytes, or up to the end."""
    parts, end = [], at + size
    while at < end and (part := os.pread(descriptor, end - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def pwrite(descriptor: int, data: bytes, at: int) -> None:
    """Write all bytes."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, at)
        rest, at = rest[written:], at + written


def _plain(folder: int, name: str, found: os.stat_result) -> State:
    """Return the state of what has no content."""
    owner = (found.st_uid, found.st_gid)
    if stat.S_ISDIR(found.st_mode):
        return State("directory", stat.S_IMODE(found.st_mode), owner=owner)
    if stat.S_ISLNK(found.st_mode):
        return State("link", target=os.readlink(name, dir_fd=folder), owner=owner)
    return _left_out(found, "it is a pipe, socket or device")


def _left_out(found: os.stat_result, why: str) -> State:
    return State("left_out", digest=_mark(found), size=found.st_size, reason=why)


def _file_state(found: os.stat_result, digest: str) -> State:
    mode, owner = stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid)
    return State("file", mode, digest, size=found.st_size, owner=owner)


def _why_not(name: str, found: os.stat_result, most: int) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "it is a pipe, socket or device"
    if found.st_size > most:
        return f"it is larger than {most >> 20} MB" if most >= LARGEST_FILE else NO_ROOM
    return "its name is that of a secret, which is never copied" if is_secret(name) else ""


def _unreadable(error: OSError) -> State:
    return State("left_out", reason=f"it cannot be read: {error.strerror or error}")


def _key(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)


def _mark(found: os.stat_result) -> str:
    return "-".join(map(str, _key(found)))


def _own_directory(directory: Path, root: Path) -> tuple[Path, int]:
    """Make a directory for this process alone, with a lock that tells others that it lives."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = directory.resolve()
        if directory == root or root in directory.parents:
            raise FileStoreError(f"{directory} is in the project, where evaluated code could change it")
        while True:
            own = directory / secrets.token_hex(8)
            own.mkdir(mode=0o700)
            lock = os.open(own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (own / "lock").exists():  # Else a cleaner came between.
                return own, lock
            os.close(lock)
    except OSError as error:
        raise FileStoreError(f"{directory} cannot be used: {error.strerror}") from None


def _end(directory: Path, lock: int, descriptors: list[int]) -> None:
    rmtree(directory, ignore_errors=True)
    for descriptor in (*descriptors, lock):
        os.close(descriptor)


def abandoned(directory: Path) -> Iterator[Path]:
    """Go through the directories of processes that have ended without removing them; each is removed after."""
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
