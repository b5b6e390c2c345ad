"""The files of the project that modules were loaded from: their text, and whether it has changed.

The text is read when the import system asks for the time of a file, which is right before it loads it. It
also notes which functions ran while a module was loaded: an edit does not compute their results again.
"""

import linecache
import os
import sys
import time
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from io import BytesIO, TextIOWrapper
from tokenize import detect_encoding
from types import CodeType, FrameType
from typing import Any

from .anatomy import is_module, raw_space
from .definitions import is_installed
from .origins import Source, drop_older, loaded, older, taken_up
from .places import asides, project, shown_file, text_with
from .stirring import Folders

_open, _stat, _real = open, os.stat, os.path.realpath
_modules = sys.modules
_clock = time.time_ns
_getprofile, _setprofile, _frame = sys.getprofile, sys.setprofile, sys._getframe  # noqa: SLF001 - there is no other way
_monitoring: Any = getattr(sys, "monitoring", None)  # since 3.12
# Nanoseconds. The clock of a file system may stand still that long.
_GRAIN = 20_000_000
# A flag of functions: the code creates its own variables.
_NEW_LOCALS = 0x2
# Tool ids of sys.monitoring, those without a dedicated purpose first.
_TOOLS = (4, 3)
# Old texts of one file, for the frames of errors before an edit.
_VERSIONS = 8
# The names of old texts that living code still belongs to, by file and text.
_aside_names: dict[tuple[str, bytes], str] = {}
Key = tuple[int, int, int, int]


def stat_key(path: str) -> Key | None:
    """Return a value that distinguishes states of a file. None where there is no file."""
    try:
        status = _stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


class File:
    """A file and the text of it that a module runs."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path
        self.module: Any = None
        # Classes of an older text, with that text.
        self.stale: dict[str, bytes] = {}
        # Functions and classes that an edit removed: other modules keep them until they come back.
        self.gone: dict[str, object] = {}
        # The new text of the file, until it is applied; its text when it could not be applied; and the text
        # that was reported last.
        self.pending: bytes | None = None
        self.declined: bytes | None = None
        # The files that failed together with it. They are retried when one of them changes.
        self.together: list[File] = []
        self.told: bytes | None = None
        # Whether the file does not exist any more.
        self.is_gone = False
        self.key: Key | None = None
        self.data = self.before = b""
        self.is_racy = False
        # A change in one of these folders may be a change of the file.
        self.folders: set[str] = set()

    @property
    def shown(self) -> str:
        """The displayed path."""
        return shown_file(self.path)

    def read(self) -> bytes | None:
        """Return the current text of the file and note its state. None where it is gone."""
        key = stat_key(self.path)
        try:
            with _open(self.path, "rb") as stream:
                data = stream.read()
        except OSError:
            self.key, self.is_racy = key, False
            return None
        self.is_racy = key is None or stat_key(self.path) != key or _clock() - max(key[0], key[3]) < _GRAIN
        self.key, self.folders = key, _folders_of(self.path)
        return data

    def take(self, data: bytes) -> None:
        """Note that the module runs another text now."""
        _note_text(self.path, data)
        self.before, self.data, self.pending, self.declined = self.data, data, None, None
        taken_up[self.name] = data, self.stale
        pin(self.path, data)


def decline(files: list[File]) -> None:
    """Note that these texts failed together: none of them is retried before one changes."""
    for file in files:
        file.declined, file.pending, file.together = file.pending, None, files
        pin(file.path, file.data)


def _release(file: File) -> None:
    """Retry the texts that failed together with the text of a file, since that has changed."""
    for each in file.together:
        if each.declined is not None:
            each.pending, each.declined = each.declined, None
        each.together = []


def _is_there(path: str) -> bool:
    """Return whether a path leads to something, also where that cannot be read."""
    try:
        _stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _folders_of(path: str) -> set[str]:
    """Return the folders up to the project, since each may be replaced, and the one where a link leads."""
    folder = path.rpartition("/")[0] or "/"
    found = {folder, _real(path).rpartition("/")[0] or "/"}
    for top in [each for each in project if folder.startswith(each + "/")]:
        while folder != top:
            folder = folder.rpartition("/")[0]
            found.add(folder)
    return found


def _note_text(path: str, data: bytes) -> None:
    """Note the text that a file was loaded from, and keep the previous one for code that belongs to it."""
    before = loaded.get(path)
    if before is not None and before != data:
        older.setdefault(path, []).append(before)
        del older[path][:-_VERSIONS]
    loaded[path] = data


def pin(path: str, data: bytes) -> None:
    """Let tracebacks and `inspect` read the running text: an entry without a time is never checked."""
    cache = getattr(linecache, "cache", None)
    if type(cache) is dict:
        cache[path] = (len(data), None, _lines(data), path)


def _lines(data: bytes) -> list[str]:
    """Return the lines as linecache has them: decoded as the text declares, in universal newlines."""
    try:
        encoding = detect_encoding(BytesIO(data).readline)[0]
    except SyntaxError:
        encoding = "utf-8"
    return list(TextIOWrapper(BytesIO(data), encoding, "replace"))


def set_aside(file: File, code: CodeType) -> str:
    """Return the name under which old code of a file keeps its text."""
    data = text_with(code) or file.data
    name = _aside_names.get((file.path, data))
    if name is None:
        count = sum(path == file.path for path, _ in _aside_names)
        name = _aside_names[file.path, data] = f"{file.path}@{count}"
        asides[name] = _lines(data)
        pin(name, data)
    return name


class Following:
    """The files of the project's modules, by module."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.at_import: dict[CodeType, str] = {}
        self.folders = Folders()
        # Files that were removed or renamed since the last check, to be reported once.
        self.gone: list[File] = []
        self._coming: dict[str, File] = {}
        # Whether a file was written so shortly before it was read that its times do not show a change.
        self._has_racy = self._has_pending = False
        self._known: dict[str, bool] = {}
        self._trace = ImportTrace(self)

    def begin(self) -> None:
        """Note every source file that is loaded from now on."""
        plain, follow = SourceFileLoader.path_stats, self._follow

        def path_stats(loader: SourceFileLoader, path: str) -> Any:
            found = plain(loader, path)
            with suppress(Exception):  # a file that is not followed must still be imported
                follow(loader.name, path)
            return found

        hooked: Any = SourceFileLoader
        # Not a loading function: its frame would appear in the tracebacks of the user's modules.
        hooked.path_stats = path_stats

    def _follow(self, name: str, path: str) -> None:
        is_source = type(path) is str and path.startswith("/") and path.endswith(".py")
        if is_source and type(name) is str and not is_installed(path):
            file = File(name, path)
            data = file.read()
            if data is not None:
                file.data = data
                drop_older(Source(path, data))
                self._coming[name] = file
                self._trace.begin()

    def is_of_project(self, path: str) -> bool:
        """Return whether code of this file is followed, or is about to be."""
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = path.startswith("/") and not is_installed(path)
        return known

    def settle(self) -> None:
        """Follow the modules that were loaded since the last call of this."""
        if not self._coming:
            return
        coming, self._coming = self._coming, {}
        for name, file in coming.items():
            module = _modules.get(name)
            if is_module(module) and raw_space(module).get("__file__") == file.path and name != "__main__":
                file.module = module
                _note_text(file.path, file.data)
                self.files[name] = file
        self._has_racy = True
        self._watch()

    def _watch(self) -> None:
        self.folders.add({folder for file in self.files.values() for folder in file.folders})

    def renewed(self, name: str, source: Source) -> None:
        """Note that a module was loaded again, from this text."""
        self.settle()
        file = self.files.get(name)
        if file is not None:
            _release(file)
            # Released files are due at the next check, even if no file has changed since the last.
            self._has_pending = True
            file.take(source.data)
            file.stale.clear()

    def forgot(self, name: str) -> None:
        """Note that a module was restored to its state before its file was loaded again."""
        self.settle()
        file = self.files.get(name)
        if file is not None:
            now = file.read()
            file.data = file.before if file.data == now else file.data
            # Running it again by ourselves would fail again, or undo an undo.
            file.declined, file.pending = now, None
            taken_up[name] = file.data, file.stale
            pin(file.path, file.data)

    def forget_queue(self) -> None:
        """Start listening anew, in a copy of the process."""
        self.folders.forget()

    def doubt_queue(self) -> None:
        """Note that user code may have run."""
        self.folders.doubt()

    def is_calm(self) -> bool:
        """Return whether a check would find nothing, by one system call; without modules by none."""
        if self._coming or self._has_racy or self._has_pending or self.gone:
            return False
        return not self.files or self.folders.is_still()

    def look(self, again: str = "") -> list[File]:
        """Return the files with a new text.

        `again`: also the file of this path, if its text could not be applied before.
        """
        self.settle()
        if not self.files:
            return []
        for file in [each for each in self.files.values() if each.path == again] if again else ():
            _release(file)
            file.is_racy, file.declined = True, None
        if self.folders.stirred() or again:
            self._sweep(list(self.files.values()))
            self._watch()
        elif self._has_racy:
            self._sweep([file for file in self.files.values() if file.is_racy])
        elif not self._has_pending:
            return []
        found = [file for file in self.files.values() if file.pending is not None]
        self._has_pending = bool(found)
        return found

    def _sweep(self, files: list[File]) -> None:
        for file in files:
            if file.is_racy or stat_key(file.path) != file.key:
                is_loaded = _modules.get(file.name) is file.module
                data = file.read() if is_loaded else None
                self._note_gone(file, is_gone=is_loaded and data is None and not _is_there(file.path))
                if data is not None and file.declined not in (None, data):
                    _release(file)
                # A missing file is not an edit: editors remove a file and write it anew.
                is_edit = data is not None and data not in (file.data, file.declined)
                file.pending = data if is_edit else None
        self._has_racy = any(file.is_racy for file in self.files.values())
        self._has_pending = True

    def _note_gone(self, file: File, *, is_gone: bool) -> None:
        if is_gone and not file.is_gone:
            self.gone.append(file)
            # Tracebacks and `inspect` find no other text.
            pin(file.path, file.data)
        elif file in self.gone and not is_gone:
            self.gone.remove(file)
        file.is_gone = is_gone

    def others(self, file: File, words: list[bytes]) -> list[File]:
        """Return the other files that contain one of the words."""
        return [
            each
            for each in list(self.files.values())
            if each is not file and any(word in each.data for word in words)
        ]


class ImportTrace:
    """Notes which functions run while modules of the project are loaded, and from which line."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._depth = 0
        self._tool: int | None = None

    def begin(self) -> None:
        """Start to note, unless that is running already or the user has a tracer."""
        if _monitoring is None:
            if _getprofile() is None:
                _setprofile(self._profile)
                self._depth = 0
            return
        if self._tool is not None and _monitoring.get_events(self._tool):
            return
        self._depth = 0
        if self._tool is None:
            self._tool = next((each for each in _TOOLS if _monitoring.get_tool(each) is None), None)
            if self._tool is None:
                return
            _monitoring.use_tool_id(self._tool, "gramercy")
        events = _monitoring.events
        _monitoring.register_callback(self._tool, events.PY_START, self._started)
        _monitoring.register_callback(self._tool, events.PY_RETURN, self._returned)
        _monitoring.register_callback(self._tool, events.PY_UNWIND, self._unwound)
        _monitoring.set_events(self._tool, events.PY_START | events.PY_UNWIND)
        _monitoring.restart_events()

    def _is_module(self, code: CodeType) -> bool:
        return code.co_name == "<module>" and self._following.is_of_project(code.co_filename)

    def _started(self, code: CodeType, _offset: int) -> object:
        if self._is_module(code):
            self._depth += 1
            _monitoring.set_local_events(self._tool, code, _monitoring.events.PY_RETURN)
        elif self._depth and code.co_flags & _NEW_LOCALS and self._following.is_of_project(code.co_filename):
            self._note(code, _frame(1))
        return _monitoring.DISABLE

    def _returned(self, code: CodeType, _offset: int, _value: object) -> object:
        self._left(code)
        return None

    def _unwound(self, code: CodeType, _offset: int, _error: object) -> object:
        self._left(code)
        return None

    def _left(self, code: CodeType) -> None:
        if self._is_module(code):
            self._depth -= 1
            if self._depth <= 0 and self._tool is not None:
                _monitoring.set_events(self._tool, 0)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call":
            if self._is_module(code):
                self._depth += 1
            elif code.co_flags & _NEW_LOCALS and self._following.is_of_project(code.co_filename):
                self._note(code, frame)
        elif event == "return" and self._is_module(code):
            self._depth -= 1
            if self._depth <= 0:
                _setprofile(None)

    def _note(self, code: CodeType, frame: FrameType | None) -> None:
        if code in self._following.at_import:
            return
        while frame is not None and not self._is_module(frame.f_code):
            frame = frame.f_back
        if frame is not None:
            place = f"{shown_file(frame.f_code.co_filename)}:{frame.f_lineno}"
            self._following.at_import[code] = place
