"""The state of a path of a project at one moment: a file, a link, a directory, nothing, or unkept.

States are read in open directories. No step follows a symlink, and nothing is changed.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gramercy.errors import FileStoreError
from gramercy.images.files import places
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable

# Larger files are data that a program can make again. Copying one takes 10 ms before the write may continue.
LARGEST_FILE = 5 << 20
# A file that changes three times while it is read is being written constantly.
TRIES = 3
# Never read, never restored: a file in there can name a program that git runs.
REPOSITORIES = frozenset((".git", ".hg", ".svn", ".jj"))
SECRET = (
    *(".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "*.jks", "id_rsa*", "id_ed25519*"),
    *("id_ecdsa*", ".netrc", ".npmrc", ".pypirc", ".pgpass", ".git-credentials", "credentials.json"),
)
# Types other than file, directory and link, by the kind in the mode.
NO_FILES = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
NO_ROOM = "too much was to be kept at once"
Kind = Literal["absent", "file", "link", "directory", "left_out"]
# The prefix of temporary names beside a file that is being restored.
TEMPORARY = ".gramercy-"


@dataclass(frozen=True, slots=True)
class State:
    """The state of one path at one moment.

    `digest` is that of a file's content. For an unkept file it has inode and times, so that a change is
    detected.
    """

    kind: Kind
    mode: int = 0
    digest: str = ""
    target: str = ""
    size: int = 0
    reason: str = ""
    # Not compared: only root can restore it.
    owner: tuple[int, int] | None = field(default=None, compare=False)


ABSENT = State("absent")


def digest_of(data: bytes) -> str:
    """Return the digest of a content."""
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def state_at(folder: int, name: str, most: int, add: Callable[[bytes], str] = digest_of) -> State:
    """Return the state of a name in an open directory. `add` takes a content and returns its digest."""
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
    # The check for secret names is only needed before a copy is made. For a comparison, a file may be read.
    asked = "" if add is digest_of else name
    for _ in range(TRIES):
        descriptor = os.open(name, places.READING, dir_fd=folder)
        try:
            found = os.fstat(descriptor)
            if why := _why_not(asked, found, most):
                return _left_out(found, why)
            data = pread(descriptor, 0, most + 1)
            if key_of(found) == key_of(os.fstat(descriptor)) and len(data) == found.st_size:
                return _file_state(found, add(data))
        finally:
            os.close(descriptor)
    return _left_out(found, "it changes while it is read")


def _plain(folder: int, name: str, found: os.stat_result) -> State:
    """Return the state of a path without content."""
    owner = (found.st_uid, found.st_gid)
    if stat.S_ISDIR(found.st_mode):
        return State("directory", stat.S_IMODE(found.st_mode), owner=owner)
    if stat.S_ISLNK(found.st_mode):
        return State("link", target=os.readlink(name, dir_fd=folder), owner=owner)
    return _left_out(found, "it is a pipe, socket or device")


def _file_state(found: os.stat_result, digest: str) -> State:
    mode, owner = stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid)
    return State("file", mode, digest, size=found.st_size, owner=owner)


def _left_out(found: os.stat_result, why: str) -> State:
    return State("left_out", digest=_mark(found), size=found.st_size, reason=why)


def _unreadable(error: OSError) -> State:
    return State("left_out", reason=f"it cannot be read: {reason_of(error)}")


def _why_not(name: str, found: os.stat_result, most: int) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "it is a pipe, socket or device"
    if found.st_size > most:
        return f"it is larger than {most >> 20} MB" if most >= LARGEST_FILE else NO_ROOM
    return "its name is that of a secret, which is never copied" if is_secret(name) else ""


def is_repository(path: str) -> bool:
    """Return whether a path belongs to a version control system's own directory."""
    return any(part.casefold() in REPOSITORIES for part in path.split("/"))


def is_secret(name: str) -> bool:
    """Return whether a file's name is a usual one for keys and passwords."""
    return any(fnmatch.fnmatchcase(name.casefold(), pattern) for pattern in SECRET)


def key_of(found: os.stat_result) -> tuple[int, ...]:
    """Return the values that identify an unchanged file, if it is not too young."""
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)


def _mark(found: os.stat_result) -> str:
    return "-".join(map(str, key_of(found)))


def pread(descriptor: int, at: int, size: int) -> bytes:
    """Read this many bytes, or up to the end."""
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
