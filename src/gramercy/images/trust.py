"""Files that run or rule on the host: the accepted versions, recorded outside of every project.

A file with tools, a policy or pins may lie in a project, where evaluated code can change it or put a module
beside it that is imported instead. Each is identified by its digest. A change counts as the person's, and is
accepted without a question, unless an image of that project ran at the time and could have made it. Then the
file is in doubt, and refused until a person has looked at it. First use is trusted.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gramercy.directories import state_home
from gramercy.errors import UntrustedFileError
from gramercy.images.files.whole import write_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

# Files of tools and rules are smaller. Of a larger one no content is kept to show the changes.
LARGEST_KEPT = 1 << 20
# Files that one machine has used. Deleted ones are forgotten first.
MOST_FILES = 2_000
MOST_DOUBTS = 2_000
FORMAT = 1
RECORD = "record.json"


class Session(msgspec.Struct):
    """One image in a project, by its keeper: the states of the files there at its start."""

    pid: int
    started: str
    project: str
    digests: dict[str, str]
    names: dict[str, list[str]]
    inodes: dict[str, int] = {}


class Record(msgspec.Struct):
    """The record: digests of accepted files, files and new names in doubt, and running images."""

    version: int = FORMAT
    files: dict[str, str] = {}
    doubts: list[str] = []
    sessions: dict[str, Session] = {}


def trust_directory() -> Path:
    """Return the directory of the record."""
    return state_home() / "gramercy" / "trust"


def check_file(path: str | Path, content: bytes | None = None) -> bytes:
    """Return the content of a file that runs or rules here. Raise if it is in doubt."""
    place = Path(path).resolve()
    data = place.read_bytes() if content is None else content
    digest = _digest(data)
    with contextlib.suppress(OSError):
        record = _read()
        if record.files.get(str(place)) == digest and str(place) not in record.doubts:
            return data
        with _changing() as record:
            _settle_others(record)
            if record.files.get(str(place)) != digest and _is_doubted(record, place):
                raise UntrustedFileError(place)
            _accept(record, place, data)
    return data


def is_known(path: str | Path) -> bool:
    """Return whether a file was used before, because a person has named or accepted it."""
    return str(Path(path).resolve()) in _read().files


def check_absent(path: str | Path) -> None:
    """Raise if a file that ruled here is gone, and an image that ran can have removed it."""
    place = Path(path).resolve()
    with contextlib.suppress(OSError):
        if str(place) not in _read().files:
            return
        with _changing() as record:
            _settle_others(record)
            if str(place) in record.doubts:
                raise UntrustedFileError(place)


def accept_file(path: str | Path) -> None:
    """Accept the current state of a file as the person's, also its absence."""
    place = Path(path).resolve()
    with contextlib.suppress(OSError), _changing() as record:
        if place.exists():
            _accept(record, place, place.read_bytes())
        else:
            record.files.pop(str(place), None)
            record.doubts = [name for name in record.doubts if name != str(place)]


def doubtful_files() -> list[Path]:
    """List the existing files that are in doubt."""
    with contextlib.suppress(OSError), _changing() as record:
        _settle_others(record)
        return [path for path in map(Path, record.doubts) if path.exists()]
    return []


def accepted_content(path: Path) -> bytes | None:
    """Return the content of a file when it was accepted, if that is kept."""
    digest = _read().files.get(str(path.resolve()))
    try:
        return (trust_directory() / digest).read_bytes() if digest else None
    except OSError:
        return None


class Witness:
    """Remembers the states of a project's accepted files at the start of an image."""

    def __init__(self, project: Path, bound: Collection[Path] = ()) -> None:
        self._bound = {str(path) for path in bound}
        self._id = ""
        with contextlib.suppress(OSError):
            if not _below(_read().files, project):
                return
            with _changing() as record:
                self._id = secrets.token_hex(8)
                record.sessions[self._id] = _session(record, project)

    def close(self, *, could_write: bool = True) -> None:
        """Mark files as doubtful that differ, if the image can have changed them."""
        if not self._id:
            return
        with contextlib.suppress(OSError), _changing() as record:
            session = record.sessions.pop(self._id, None)
            if session is not None and could_write:
                _settle(record, session, self._bound)
        self._id = ""


def _session(record: Record, project: Path) -> Session:
    files = _below(record.files, project)
    digests = {name: _digest_of(name) for name in files}
    folders = {str(Path(name).parent) for name in files if name.endswith(".py")}
    names = {folder: _names(folder) for folder in folders}
    inodes = {name: inode for name in files if (inode := _inode(name))}
    return Session(os.getpid(), _started(os.getpid()), str(project), digests, names, inodes)


def _settle_others(record: Record) -> None:
    """Process changes beside running images, and beside those whose keeper was killed."""
    for name, session in list(record.sessions.items()):
        is_own = session.pid == os.getpid()
        if not is_own:
            _settle(record, session, ())
        if _started(session.pid) != session.started:
            del record.sessions[name]


def _settle(record: Record, session: Session, bound: Collection[str]) -> None:
    """Doubt files that differ from the start of a session, unless a mount protected them all the time."""
    doubts = dict.fromkeys(record.doubts)
    for name, digest in session.digests.items():
        is_held = name in bound and _inode(name) == session.inodes.get(name)
        if _digest_of(name) not in (digest, record.files.get(name)) and not is_held:
            doubts[name] = None
    for folder, names in session.names.items():
        for new in set(_names(folder)) - set(names) - {"__pycache__"}:
            doubts.setdefault(f"{folder}/{new}")
    record.doubts = list(doubts)[-MOST_DOUBTS:]


def _is_doubted(record: Record, place: Path) -> bool:
    doubts = set(record.doubts)
    return any(str(each) in doubts for each in (place, *place.parents))


def _accept(record: Record, place: Path, data: bytes) -> None:
    digest = _digest(data)
    record.files[str(place)] = digest
    record.doubts = [name for name in record.doubts if name != str(place)]
    if len(record.files) > MOST_FILES:
        there = {name: each for name, each in record.files.items() if os.path.exists(name)}  # noqa: PTH110
        record.files = dict(list(there.items())[-MOST_FILES:])
        _forget_contents({RECORD, *record.files.values()})
    if len(data) <= LARGEST_KEPT:
        write_whole(trust_directory() / digest, data, mode=0o600)


def _forget_contents(kept: Collection[str]) -> None:
    for path in trust_directory().iterdir():
        if path.name not in kept:
            path.unlink(missing_ok=True)


def _below(names: Iterable[str], project: Path) -> list[str]:
    prefix = f"{project}/"
    return [name for name in names if name.startswith(prefix)]


def _read() -> Record:
    try:
        record = msgspec.json.decode((trust_directory() / RECORD).read_bytes(), type=Record)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return Record()
    return record if record.version == FORMAT else Record()


@contextlib.contextmanager
def _changing() -> Iterator[Record]:
    """Yield the record for a change, to one process at a time. It is written atomically."""
    directory = trust_directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = _read()
        before = msgspec.json.encode(record)
        try:
            yield record
        finally:
            after = msgspec.json.encode(record)
            if after != before:
                write_whole(directory / RECORD, after, mode=0o600)
    finally:
        os.close(lock)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def _digest_of(name: str) -> str:
    try:
        return _digest(Path(name).read_bytes())
    except OSError:
        return ""


def _inode(name: str) -> int:
    try:
        return Path(name).stat().st_ino
    except OSError:
        return 0


def _names(folder: str) -> list[str]:
    try:
        return sorted(path.name for path in Path(folder).iterdir())
    except OSError:
        return []


def _started(pid: int) -> str:
    """Return the start time of a process. It distinguishes it from a later one with the same number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(") ")[2].split()[19]
    except (OSError, IndexError):
        return ""
