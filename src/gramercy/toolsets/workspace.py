"""Files of a project and the documents that are open in it.

Paths cannot leave the project, and writes are atomic. The replaced contents of the latest writes are kept
outside of the project, in a bounded number of bytes, so that they can be restored.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import tempfile
import threading
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any

from gramercy.errors import FileStoreError, FileTooLargeError, NotAFileError, WorkspaceError
from gramercy.gram.suggestion import suggest
from gramercy.images.files import places
from gramercy.images.files.changes import ChangeSet, FileOutcome, shown
from gramercy.images.files.replacing import CHANGED
from gramercy.images.files.restoring import recover, restore
from gramercy.images.files.states import ABSENT, NO_FILES, State, is_secret
from gramercy.images.files.store import Store, files_directory
from gramercy.images.files.whole import OwnWrites, own_writes
from gramercy.text import reason_of, reveal_line
from gramercy.toolsets import storage
from gramercy.toolsets.documents import Document, Documents, Script, decode, format_of, plain, unwritable
from gramercy.toolsets.paths import TOP, RealPlace, declared, find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.tools.tool import Paths
    from gramercy.toolsets.documents import OpenFiles
    from gramercy.toolsets.storage import Content

# A file passes through the model's context whole. A larger one is data, which evaluated code reads better.
LARGEST_FILE = 20 * 1024 * 1024
# Names shown for a directory that was given as a file.
MOST_LISTED = 20
# An editor notices within a second that a file has changed on disk.
RELOAD_SECONDS = 5.0
# The state of a missing file.
ABSENT_FILE = "no such file"
# A write takes milliseconds. A longer wait means that another program hangs.
TURN_SECONDS = 10.0
LOOK_SECONDS = 0.005
# Limits of the undo: more writes than a person would undo one by one, and a bound on the disk.
MOST_WRITES = 100
MOST_BYTES = 256 * 1024 * 1024


class Workspace:
    """One project directory. A function in its place is called when the workspace is first used."""

    def __init__(self, root: str | Path | Callable[[], Path]) -> None:
        if callable(root):
            self._find_root = root
        else:
            self.root = _directory(root)
        self.documents = Documents()
        # The editor in which a person has files of the project open, if it can be asked for their texts.
        self.editor: OpenFiles | None = None
        # The time of our write to a file, and its old text: an editor may not have read the new text yet.
        self._latest: dict[str, tuple[float, str]] = {}
        self._past = Past(lambda: self.root)
        self._lock = threading.RLock()

    @cached_property
    def root(self) -> Path:
        """The real path of the directory."""
        return _directory(self._find_root())

    def place(self, path: str) -> RealPlace:
        """Resolve a path, unless it is a place already. Refuse one that leads out of the project."""
        if isinstance(path, RealPlace):
            if path.trouble:
                raise WorkspaceError(path.trouble)
            if path.folder is not None:
                return path
        return find(self.root, path)

    def declared(self, tool: str, **options: Any) -> Paths:
        """Declare the path argument of a tool of this workspace."""
        return declared(tool, self.place, **options)

    def declared_buffer(self, tool: str) -> Paths:
        """Declare the document that a tool reads. Without a name it is the one that was opened last."""
        return self.declared(tool, argument="buffer", default=self.documents.latest)

    def resolve(self, path: str) -> Path:
        """Return the real path of a path. Refuse one that leads out of the project, also by a symlink."""
        return Path(self.place(path).absolute)

    def name_of(self, path: str) -> str:
        """Return the one name of a file among the many spellings of its path."""
        return self.place(path).name

    def read(self, path: str) -> Document:
        """Read a file and keep it open."""
        path = self.place(path)
        return self.opened(path, self.data(path))

    def data(self, path: str) -> bytes:
        """Return the bytes of a file in any format."""
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
        """Return an open document with its unsaved text. Without a name it is the one opened last."""
        name = self.documents.latest() if name is None else name
        if name is None:
            raise WorkspaceError("no document is open: read a file first, or name one")
        known = self.documents.attached(name) if self.editor is None else None
        attached = known or self._attached(name)
        return attached if attached is not None else self.read(name)

    def attach(self, name: str, text: str, owner: str) -> Document:
        """Add the unsaved text of a document that a terminal, page or editor has open."""
        # A document of an editor need not be a file of the project, or a file at all.
        with contextlib.suppress(WorkspaceError):
            name = self.name_of(name)
        return self.documents.attach(Document(name, text, owner=owner))

    def _attached(self, path: str) -> Document | None:
        name = self.name_of(path)
        if self.editor is not None:
            self._look_into(self.editor, name)
        return self.documents.attached(name)

    def _look_into(self, editor: OpenFiles, name: str) -> None:
        """Take the editor's text of a file. If it equals the saved text, the file's own text counts."""
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
        """Return the state of a file, so that an approval can be sealed to it."""
        place = self.place(path)
        self._refuse_unsaved(place)
        found = _state(self._content(place))
        if place.sealed is None:
            place.sealed = found
        return found

    def write(self, path: str, text: str, *, expected: str | None = None) -> int:
        """Replace a whole file and return its size in bytes. On any failure the old file stays.

        `expected` is the digest that the old one must still have right before it is replaced.
        """
        place = self.place(path)
        with self._lock, self._turn():
            self._refuse_unsaved(place)
            old = self._content(place)
            self.check_sealed(place, None if old is None else digest_of(old.data))
            script = Script() if old is None else _script(old, path)
            data = encoded(script, text, path)
            before = None if old is None else digest_of(old.data)
            with self._past.own.under_way():
                new = self._replace(place, data, old, before if expected is None else expected)
                self._past.add(place.name, old, new, _above(place))
            if self.editor is not None:
                replaced = "" if old is None else _document(place.name, old.data, path).text
                self._latest[place.name] = (time(), replaced)
            self.documents.opened(place.name)
            return len(data)

    def check_sealed(self, path: RealPlace, digest: str | None) -> None:
        """Refuse a file that is not the approved one. `digest` is the current one, None for no file."""
        if path.sealed is not None and (digest or ABSENT_FILE) != path.sealed:
            raise WorkspaceError(
                f"{path} was changed by somebody else meanwhile, after it was shown; it is left as it is"
            )

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Let one process at a time compare and replace files of the project, with a timeout."""
        descriptor = _lock_of(self.root)
        try:
            until = monotonic() + TURN_SECONDS
            while not _is_locked(descriptor):
                if monotonic() > until:
                    raise WorkspaceError(
                        f"another program has been writing files of this project for {TURN_SECONDS:g} s, "
                        "and nothing was written: try again"
                    )
                sleep(LOOK_SECONDS)
            yield
        finally:
            os.close(descriptor)

    @property
    def changed_at(self) -> float | None:
        """The time of the last write that can be undone, in seconds since 1970."""
        return self._past.changed_at

    def note_load(self, image: str, at: float | None) -> None:
        """Note that the last written file was loaded into an image, by a call that ended at `at`."""
        with self._lock:
            self._past.note_load(image, at)

    def loaded_after(self, image: str, at: float) -> bool:
        """Return whether the last write was loaded into an image after a time. Then both are one change."""
        loaded = self._past.loaded
        return loaded is not None and loaded[0] == image and loaded[1] > at

    def take_back(self) -> list[FileOutcome]:
        """Restore the content that the last write replaced. Return the outcome for each path."""
        with self._lock:
            name = self._past.last().name
            # Not resolved again: it may have become a symlink, which is then left alone.
            if self.documents.attached(name) is not None:
                self._refuse_unsaved(name)
            return self._past.take_back()

    def undo_last_write(self) -> str:
        """Restore the content that the last write replaced, and say so. A file changed since is kept."""
        with self._lock:
            name = self._past.last().name
            outcome = next(each for each in self.take_back() if each.path == shown(name))
        if outcome.outcome == "left alone":
            if outcome.reason == CHANGED:
                raise WorkspaceError(f"{name} was changed after it was written here; it is left as it is")
            raise WorkspaceError(f"{name} is left as it is: {outcome.reason}")
        return f"{name} is " + ("gone again" if outcome.outcome == "gone" else "as it was before")

    def _replace(self, place: RealPlace, data: bytes, old: Content | None, expected: str | None) -> Content:
        try:
            with place.opened(create=True) as folder:

                def check() -> None:
                    now = self._content_in(folder, place)
                    if (None if now is None else digest_of(now.data)) != expected:
                        raise WorkspaceError(
                            f"{place} was changed by somebody else meanwhile; it is left as it is"
                        )

                return storage.replace(folder, place.last, data, old, check)
        except OSError as error:
            raise WorkspaceError(f"{place} cannot be written: {reason_of(error)}; it is as it was") from None

    def _content(self, path: str) -> Content | None:
        """Return the content of a file, or None when there is no file."""
        place = self.place(path)
        if not place.last:
            raise self._missing(place)
        try:
            with place.opened() as folder:
                return self._content_in(folder, place)
        except FileNotFoundError:
            return None

    def _content_in(self, folder: int, place: RealPlace) -> Content | None:
        try:
            return storage.read(folder, place.last, LARGEST_FILE)
        except FileNotFoundError:
            return None
        except (NotAFileError, IsADirectoryError):
            raise self._missing(place) from None
        except FileTooLargeError as error:
            told = f"{place} is too large: {error}; work on a part of it by evaluation"
            raise WorkspaceError(told) from None
        except OSError as error:
            if error.errno == errno.ENXIO:
                # A socket, or a device without a driver: opening these fails.
                raise self._missing(place) from None
            if error.errno == errno.ELOOP:
                raise WorkspaceError(f"{place} has become a link meanwhile: call it again") from None
            raise WorkspaceError(f"{place} cannot be read: {reason_of(error)}") from None

    def _missing(self, path: str) -> WorkspaceError:
        """Make the error for a path that is not a file."""
        try:
            return WorkspaceError(_instead(self.place(path)))
        except OSError as error:
            return WorkspaceError(f"{path} cannot be read: {reason_of(error)}")

    def _refuse_unsaved(self, path: str) -> None:
        document = self._attached(path)
        if document is None:
            return
        content = self._content(path)
        if content is None or _document(document.name, content.data, path).text != document.text:
            raise WorkspaceError(
                f"{path} has unsaved changes in {document.owner}: have them saved or discarded first"
            )


def _state(content: Content | None) -> str:
    return ABSENT_FILE if content is None else digest_of(content.data)


def _above(place: RealPlace) -> list[str]:
    """Return the directories that a write creates."""
    parts = place.parts
    first = len(parts) - len(place.missing)
    return ["/".join(parts[:count]) for count in range(first, len(parts))]


def _lock_of(root: Path) -> int:
    """Open the lock for writes: a file of our own, or the project where that cannot be created."""
    kept = files_directory(root)
    lock = kept.with_name(f"{kept.name}.lock")
    if lock.is_relative_to(root):
        return os.open(root, places.DIRECTORY)
    try:
        lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return os.open(root, places.DIRECTORY)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
    """Return the bytes of a text as its file holds it. Refuse characters that it cannot hold."""
    try:
        data = script.encode(text)
    except UnicodeEncodeError as error:
        raise WorkspaceError(
            f"{path} is written in {script.encoding}, which does not have {unwritable(error)}: leave it out"
        ) from None
    if len(data) > LARGEST_FILE:
        raise WorkspaceError(f"{path} would have {len(data):,} bytes: {LARGEST_FILE:,} are the most")
    return data


def _instead(place: RealPlace) -> str:
    """Describe what is there instead of a file. Names that rules withhold are only counted."""
    try:
        with place.opened() as folder:
            names = place.names_in(folder)
            kind = stat.S_IFMT(os.stat(place.last or TOP, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return f"{place} does not exist{_suggestion(place)}"
    if names is None:
        instead = NO_FILES.get(kind)
        return f"{place} is {instead}, not a file" if instead else f"{place} is not a regular file"
    shown_names = place.without_withheld(names, "" if not place.last else f"{place.name}/")
    listed = ", ".join(map(reveal_line, shown_names[:MOST_LISTED])) or ("no files" if not names else "")
    more = f" and {len(shown_names) - MOST_LISTED} more" if len(shown_names) > MOST_LISTED else ""
    left = len(names) - len(shown_names)
    withheld = f"{' and ' if shown_names else ''}{left} withheld by rules" if left else ""
    return f"{place} is a directory: it has {listed}{more}{withheld}"


def _suggestion(place: RealPlace) -> str:
    """Return the name beside a place that is most similar to its own."""
    if place.missing or place.folder is None:
        return ""
    beside = os.listdir(place.folder.descriptor)  # noqa: PTH208 - of a descriptor
    close = suggest(place.last, place.without_withheld(beside, place.name[: -len(place.last)]))
    return f": did you mean {reveal_line(close[0])}?" if close else ""


@dataclass(frozen=True, slots=True)
class Write:
    """One write: the file and the created directories before and after, and its time.

    `loaded` is the image into which the same call has loaded the file, and the time of that.
    """

    name: str
    changes: ChangeSet
    at: float
    loaded: tuple[str, float] | None = None

    @property
    def size(self) -> int:
        """The size of the replaced content."""
        return self.changes.pairs[self.name][0].size


class Past:
    """The latest writes, oldest first. Their replaced contents are in a store outside of the project."""

    def __init__(self, find_root: Callable[[], Path]) -> None:
        self._find_root = find_root
        self._writes: deque[Write] = deque()

    @cached_property
    def store(self) -> Store:
        """The store, created when a file is first written."""
        root = self._find_root()
        directory = files_directory(root)
        try:
            recover(directory, root)
            return Store(directory, root)
        except (FileStoreError, OSError):
            # The directory cannot be created, or lies in the project: use a temporary one of this process.
            return Store(Path(tempfile.mkdtemp(prefix="gramercy-")), root)

    @cached_property
    def own(self) -> OwnWrites:
        """The images' knowledge about the writes of tools."""
        return own_writes(self.store.root)

    def add(self, name: str, old: Content | None, new: Content, made: list[str]) -> None:
        """Remember a write. The oldest ones are evicted for it."""
        pairs = {name: (ABSENT if old is None else self._kept(name, old), self._kept(name, new))}
        with contextlib.suppress(FileStoreError):
            pairs |= {folder: (ABSENT, self.store.look(folder)) for folder in made}
        self.own.note(self.store.root, name, pairs[name][1])
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
        """The time of the latest write."""
        return self._writes[-1].at if self._writes else None

    @property
    def loaded(self) -> tuple[str, float] | None:
        """The image into which the latest write was loaded, and the time of that."""
        return self._writes[-1].loaded if self._writes else None

    def note_load(self, image: str, at: float | None) -> None:
        """Remember that the latest write was loaded. A load without a change or an end does not count."""
        if self._writes and at is not None and at > self._writes[-1].at:
            self._writes[-1] = replace(self._writes[-1], loaded=(image, at))

    def last(self) -> Write:
        """Return the latest write."""
        if not self._writes:
            raise WorkspaceError("there is no write to take back")
        return self._writes[-1]

    def take_back(self) -> list[FileOutcome]:
        """Undo the latest write. Files that are left alone now are not tried again."""
        write = self._writes.pop()
        with self.own.under_way():
            try:
                outcomes = restore(self.store, write.changes)
            except (FileStoreError, OSError) as error:
                return [FileOutcome(shown(write.name), "left alone", str(error))]
            left = {each.path for each in outcomes if each.outcome == "left alone"}
            for name, (before, _) in write.changes.pairs.items():
                if shown(name) not in left:
                    self.own.note(self.store.root, name, before)
        return outcomes


def _directory(root: str | Path) -> Path:
    try:
        found = Path(root).resolve(strict=True)
    except OSError as error:
        raise WorkspaceError(f"the project {root} cannot be used: {reason_of(error)}") from None
    if not found.is_dir():
        raise WorkspaceError(f"the project {root} is not a directory")
    return found
