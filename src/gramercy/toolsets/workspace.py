"""Files of a project and the documents that are open in it.

Paths cannot leave the project, writes are whole or not at all, and what the latest of them replaced is kept
outside of it, in a bounded number of bytes, so that it can be brought back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from gramercy.errors import FileStoreError, FileTooLargeError, NotAFileError, WorkspaceError
from gramercy.gram.suggestion import suggest
from gramercy.images.files import places
from gramercy.images.files.changes import ChangeSet, FileOutcome, shown
from gramercy.images.files.replacing import CHANGED
from gramercy.images.files.restoring import recover, restore
from gramercy.images.files.states import ABSENT, State, is_secret
from gramercy.images.files.store import Store, files_directory
from gramercy.toolsets import storage
from gramercy.toolsets.documents import Document, Documents, Script, decode, format_of, plain, unwritable

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.toolsets.documents import OpenFiles
    from gramercy.toolsets.storage import Content

# A file passes through the model's context whole; what is larger is data, which evaluated code reads better.
LARGEST_FILE = 20 * 1024 * 1024
# Well below PATH_MAX (4096 bytes), which the project's own path takes a part of.
LONGEST_PATH = 2_000
# Names shown of a directory that was taken for a file.
MOST_LISTED = 20
# An editor notices within a second that a file has changed on disk.
RELOAD_SECONDS = 5.0
# What is kept for undo: more writes than a person would take back one by one, and a bound on the disk.
MOST_WRITES = 100
MOST_BYTES = 256 * 1024 * 1024


class Workspace:
    """One project directory. A function in its place is asked for it when the workspace is first used."""

    def __init__(self, root: str | Path | Callable[[], Path]) -> None:
        if callable(root):
            self._find_root = root
        else:
            self.root = _directory(root)
        self.documents = Documents()
        # The editor that a person has files of the project open in, where it can be asked for their texts.
        self.editor: OpenFiles | None = None
        # When we wrote a file, and what it held before: an editor may not have read the new text yet.
        self._latest: dict[str, tuple[float, str]] = {}
        self._past = Past(lambda: self.root)
        self._lock = threading.RLock()

    @cached_property
    def root(self) -> Path:
        """The real path of the directory."""
        return _directory(self._find_root())

    def resolve(self, path: str) -> Path:
        """Return the real place of a path; refuse one that leads out of the project, by a symlink too."""
        if not path or "\0" in path or len(path) > LONGEST_PATH:
            raise WorkspaceError(
                "the path is empty, too long or has a NUL in it: give a path inside the project"
            )
        try:
            real = Path(os.path.realpath(self.root / path))
        except (OSError, ValueError):
            raise WorkspaceError(f"{path!r:.200} is not a usable path") from None
        if real != self.root and self.root not in real.parents:
            raise WorkspaceError(f"{path} is outside the project: only files below its directory can be used")
        if ".git" in (part.casefold() for part in real.relative_to(self.root).parts):
            raise WorkspaceError(f"{path} belongs to git: its files are neither read nor written")
        return real

    def name_of(self, path: str) -> str:
        """Return the one name of a file among many ways to write its path."""
        return str(self.resolve(path).relative_to(self.root))

    def read(self, path: str) -> Document:
        """Read a file and keep it open."""
        return self.opened(path, self.data(path))

    def data(self, path: str) -> bytes:
        """Return the bytes of a file, whatever they mean."""
        content = self._content(path)
        if content is None:
            raise self._missing(path)
        return content.data

    def opened(self, path: str, data: bytes) -> Document:
        """Keep a file open whose bytes were just read, and return it as a text."""
        name = self.name_of(path)
        document = _document(name, data, path)
        self.documents.opened(name)
        return document

    def document(self, name: str | None = None) -> Document:
        """Return an open document, unsaved text included; without a name the one that was opened last."""
        name = self.documents.latest() if name is None else name
        if name is None:
            raise WorkspaceError("no document is open: read a file first, or name one")
        known = self.documents.attached(name) if self.editor is None else None
        attached = known or self._attached(name)
        return attached if attached is not None else self.read(name)

    def attach(self, name: str, text: str, owner: str) -> Document:
        """Take in the unsaved text of a document that a terminal, page or editor has open."""
        # What an editor has open need not be a file of the project, nor a file at all.
        with contextlib.suppress(WorkspaceError):
            name = self.name_of(name)
        return self.documents.attach(Document(name, text, owner=owner))

    def _attached(self, path: str) -> Document | None:
        name = self.name_of(path)
        if self.editor is not None:
            self._look_into(self.editor, name)
        return self.documents.attached(name)

    def _look_into(self, editor: OpenFiles, name: str) -> None:
        """Take in what the editor has of a file; what it has saved is the file's own text."""
        found = editor.text(self.root / name)
        if found is None:
            return
        text, content = plain(found), self._content(name)
        is_saved = content is not None and _document(name, content.data, name).text == text
        written, replaced = self._latest.get(name, (0.0, ""))
        if is_saved or (text == replaced and time() - written < RELOAD_SECONDS):
            self.documents.detach(name)
        else:
            self.documents.attach(Document(name, text, owner=editor.name))

    def state(self, path: str) -> str:
        """Tell the state of a file, for an approval to be sealed to."""
        self._refuse_unsaved(path)
        content = self._content(path)
        return "no such file" if content is None else digest_of(content.data)

    def write(self, path: str, text: str, *, expected: str | None = None) -> int:
        """Replace a file as a whole and return how many bytes it has; on any failure the old one stays.

        `expected` is the digest the old one must still have in the moment before it is replaced.
        """
        with self._lock:
            self._refuse_unsaved(path)
            old = self._content(path)
            script = Script() if old is None else _script(old, path)
            data = encoded(script, text, path)
            before = None if old is None else digest_of(old.data)
            name = self.name_of(path)
            missing = self._past.missing_above(name)
            new = self._replace(path, data, old, before if expected is None else expected)
            self._past.add(name, old, new, missing)
            if self.editor is not None:
                self._latest[name] = (time(), "" if old is None else _document(name, old.data, path).text)
            self.documents.opened(name)
            return len(data)

    @property
    def changed_at(self) -> float | None:
        """When the last write was that can be taken back, in seconds since 1970."""
        return self._past.changed_at

    def take_back(self) -> list[FileOutcome]:
        """Bring back what the last write replaced, and tell what became of each path."""
        with self._lock:
            name = self._past.last().name
            # Not resolved again: it may be a symlink by now, which is then left alone.
            if self.documents.attached(name) is not None:
                self._refuse_unsaved(name)
            return self._past.take_back()

    def undo_last_write(self) -> str:
        """Bring back what the last write replaced and say so; a file that was changed since is left alone."""
        with self._lock:
            name = self._past.last().name
            outcome = next(each for each in self.take_back() if each.path == shown(name))
        if outcome.outcome == "left alone":
            if outcome.reason == CHANGED:
                raise WorkspaceError(f"{name} was changed after it was written here; it is left as it is")
            raise WorkspaceError(f"{name} is left as it is: {outcome.reason}")
        return f"{name} is " + ("gone again" if outcome.outcome == "gone" else "as it was before")

    def _replace(self, path: str, data: bytes, old: Content | None, expected: str | None) -> Content:
        def check() -> None:
            now = self._content(path)
            if (None if now is None else digest_of(now.data)) != expected:
                raise WorkspaceError(f"{path} was changed by somebody else meanwhile; it is left as it is")

        *folders, name = self._parts(path)
        try:
            with places.directory(self.root, folders, create=True) as folder:
                return storage.replace(folder, name, data, old, check)
        except OSError as error:
            raise WorkspaceError(f"{path} cannot be written: {_reason(error)}; it is as it was") from None

    def _content(self, path: str) -> Content | None:
        """Return what a file holds, or None when there is none."""
        *folders, name = self._parts(path)
        try:
            with places.directory(self.root, folders) as folder:
                return storage.read(folder, name, LARGEST_FILE)
        except FileNotFoundError:
            return None
        except (NotAFileError, IsADirectoryError):
            raise self._missing(path) from None
        except FileTooLargeError as error:
            raise WorkspaceError(
                f"{path} is too large: {error}; work on a part of it by evaluation"
            ) from None
        except OSError as error:
            raise WorkspaceError(f"{path} cannot be read: {_reason(error)}") from None

    def _parts(self, path: str) -> tuple[str, ...]:
        parts = self.resolve(path).relative_to(self.root).parts
        if not parts:
            raise self._missing(path)
        return parts

    def _missing(self, path: str) -> WorkspaceError:
        """Make the error of a path that is no file."""
        try:
            return WorkspaceError(_instead(self.resolve(path), path))
        except OSError as error:
            return WorkspaceError(f"{path} cannot be read: {_reason(error)}")

    def _refuse_unsaved(self, path: str) -> None:
        document = self._attached(path)
        if document is None:
            return
        content = self._content(path)
        if content is None or _document(document.name, content.data, path).text != document.text:
            raise WorkspaceError(
                f"{path} has unsaved changes in {document.owner}: have them saved or discarded first"
            )


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def _document(name: str, data: bytes, path: str) -> Document:
    decoded = decode(data)
    if decoded is None:
        raise WorkspaceError(
            f"{path} is not a text file but {format_of(data)}, {len(data):,} bytes: look into it by "
            "evaluating code"
        )
    text, script = decoded
    return Document(name, text, script, digest_of(data))


def _script(content: Content, path: str) -> Script:
    return _document(path, content.data, path).script


def encoded(script: Script, text: str, path: str) -> bytes:
    """Return the bytes of a text as a file holds it; refuse what it cannot hold."""
    try:
        data = script.encode(text)
    except UnicodeEncodeError as error:
        raise WorkspaceError(
            f"{path} is written in {script.encoding}, which does not have {unwritable(error)}: leave it out"
        ) from None
    if len(data) > LARGEST_FILE:
        raise WorkspaceError(f"{path} would have {len(data):,} bytes: {LARGEST_FILE:,} are the most")
    return data


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _instead(real: Path, path: str) -> str:
    """Say what is there instead of a file."""
    if real.is_dir():
        names = sorted(entry.name for entry in real.iterdir())
        more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
        return f"{path} is a directory: it has {', '.join(names[:MOST_LISTED]) or 'no files'}{more}"
    if real.exists():
        return f"{path} is not a regular file"
    there = [entry.name for entry in real.parent.iterdir()] if real.parent.is_dir() else []
    close = suggest(real.name, there)
    return f"{path} does not exist" + (f": did you mean {close[0]}?" if close else "")


@dataclass(frozen=True, slots=True)
class Write:
    """One write: what the file, and the directories made for it, were before and are now, and when it was."""

    name: str
    changes: ChangeSet
    at: float

    @property
    def size(self) -> int:
        """The bytes of what it replaced."""
        return self.changes.pairs[self.name][0].size


class Past:
    """The latest writes, oldest first. What they replaced is in a store outside of the project."""

    def __init__(self, find_root: Callable[[], Path]) -> None:
        self._find_root = find_root
        self._writes: deque[Write] = deque()

    @cached_property
    def store(self) -> Store:
        """The store, made when a file is first written."""
        root = self._find_root()
        directory = files_directory(root)
        try:
            recover(directory, root)
            return Store(directory, root)
        except (FileStoreError, OSError):
            # No such directory can be had, or it is in the project: then one that ends with this program.
            return Store(Path(tempfile.mkdtemp(prefix="gramercy-")), root)

    def missing_above(self, name: str) -> list[str]:
        """Return the directories above a file that are not there yet."""
        parts = name.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        return [folder for folder in above if not os.path.lexists(self._find_root() / folder)]

    def add(self, name: str, old: Content | None, new: Content, made: list[str]) -> None:
        """Remember a write; the oldest make room for it."""
        pairs = {name: (ABSENT if old is None else self._kept(name, old), self._kept(name, new))}
        with contextlib.suppress(FileStoreError):
            pairs |= {folder: (ABSENT, self.store.look(folder)) for folder in made}
        changes = ChangeSet(pairs)
        with contextlib.suppress(FileStoreError):
            self.store.hold(changes)
        self._writes.append(Write(name, changes, time()))
        while len(self._writes) > MOST_WRITES or sum(kept.size for kept in self._writes) > MOST_BYTES:
            self._writes.popleft()

    def _kept(self, name: str, content: Content) -> State:
        try:
            digest = self.store.add(content.data, in_memory=is_secret(name.rpartition("/")[2]))
        except FileStoreError as error:
            return State("left_out", reason=str(error))
        return State("file", content.mode, digest, size=len(content.data), owner=content.owner)

    @property
    def changed_at(self) -> float | None:
        """When the latest write was."""
        return self._writes[-1].at if self._writes else None

    def last(self) -> Write:
        """Return the latest write."""
        if not self._writes:
            raise WorkspaceError("there is no write to take back")
        return self._writes[-1]

    def take_back(self) -> list[FileOutcome]:
        """Take the latest write back; what is left alone now is not tried again."""
        write = self._writes.pop()
        try:
            return restore(self.store, write.changes)
        except (FileStoreError, OSError) as error:
            return [FileOutcome(shown(write.name), "left alone", str(error))]


def _directory(root: str | Path) -> Path:
    try:
        found = Path(root).resolve(strict=True)
    except OSError as error:
        raise WorkspaceError(f"the project {root} cannot be used: {error.strerror}") from None
    if not found.is_dir():
        raise WorkspaceError(f"the project {root} is not a directory")
    return found
