"""The source of each loaded module of the user's project, and the imports between them.

Sources are compared by content: an edit within the same second is an edit too. Nothing here runs or imports
user code.
"""

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.util import cache_from_source, source_hash
from typing import NamedTuple

from .anatomy import is_module, mro_of, raw_space

_modules = sys.modules
_open, _stat, _unlink = open, os.stat, os.unlink
# Bytes of the kept sources as they were loaded, the latest ones: as much as a large project has.
_KEPT = 8 * 1024 * 1024
# The loaded texts of the project's modules, by file: the file may be edited later.
loaded: dict[str, bytes] = {}
# Older texts of those files, oldest first. Frames of earlier calls may belong to them.
older: dict[str, list[bytes]] = {}
# The applied edits, by module: the text, and the classes that stayed at an older one.
taken_up: dict[str, tuple[bytes, dict[str, bytes]]] = {}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Source(NamedTuple):
    """A file and its content."""

    file: str
    data: bytes

    @property
    def mark(self) -> bytes:
        """The digest of this content."""
        return source_hash(self.data)


class Origins:
    """The marks of the sources that the loaded modules came from."""

    def __init__(self) -> None:
        self._marks: dict[str, bytes | None] = {}
        self._reloaded: list[str] = []
        self.since = 0.0
        # Called when a module was loaded again, or restored.
        self.at_settling: Callable[[str, Source], object] | None = None
        self.at_forgetting: Callable[[str], object] | None = None

    def note(self, name: str, module: object) -> bool:
        """Remember the source of a module that was loaded during the call that began at `since`.

        Return whether it was loaded from a compiled file of an older source instead.
        """
        source = source_of(module)
        if source is None:
            return False
        is_old = _is_compiled_from_older(source)
        # A file written during the call may have been imported before or after the write.
        is_sure = _written(source.file) < self.since and not is_old
        self._marks[name] = source.mark if is_sure else None
        if is_sure:
            _keep(source)
        return is_old

    def settle(self, name: str, source: Source) -> None:
        """Remember the source that a module was loaded from again."""
        self._marks[name] = source.mark
        self._reloaded.append(name)
        _keep(source)
        if self.at_settling is not None:
            self.at_settling(name, source)

    def take_reloaded(self) -> list[str]:
        """Return the modules that were loaded again since the last call of this."""
        found, self._reloaded = self._reloaded, []
        return found

    def forget(self, name: str) -> None:
        """Treat the source of the module as changed."""
        self._marks[name] = None
        if self.at_forgetting is not None:
            self.at_forgetting(name)

    def changed(self) -> dict[str, Source]:
        """Return the modules whose file has changed, with its new source."""
        found = {}
        for name, mark in list(self._marks.items()):
            source = source_of(_modules.get(name))
            if source is not None and source.mark != mark:
                found[name] = source
        return found

    def is_changed(self, name: str, definition: str = "") -> bool:
        """Return whether the file of a module, or a definition in it, differs from the running code."""
        if name not in self._marks:
            return False
        source = source_of(_modules.get(name))
        if source is None or source.mark == self._marks[name]:
            return False
        data, stale = taken_up.get(name, (None, {}))
        if data != source.data:
            return True
        return definition.partition(".")[0] in stale if definition else bool(stale)

    def names(self) -> list[str]:
        """Return the modules of the project that are loaded."""
        return [name for name in self._marks if is_module(_modules.get(name))]


def _keep(source: Source) -> None:
    loaded.pop(source.file, None)
    loaded[source.file] = source.data
    while sum(map(len, loaded.values())) > _KEPT:
        del loaded[next(iter(loaded))]


def source_of(module: object) -> Source | None:
    """Return the current source file of a module, or None where it has none."""
    file = raw_space(module).get("__file__") if is_module(module) else None
    if type(file) is not str or not file.endswith(".py"):
        return None
    try:
        with _open(file, "rb") as stream:
            return Source(file, stream.read())
    except OSError:
        return None


def is_left_by_a_hook(module: object) -> bool:
    """Return whether a module was made by an import hook that is gone, as that of pytest is after its run.

    Such a module cannot be loaded again in its own way: pytest rewrites each `assert`.
    """
    spec, kinds = raw_space(module).get("__spec__"), _modules.get("importlib.abc")
    if type(spec) is not ModuleSpec or not is_module(kinds):
        return False
    loader, finder = vars(spec).get("loader"), raw_space(kinds).get("MetaPathFinder")
    is_hook = any(base is finder for base in mro_of(type(loader)))
    return is_hook and not any(loader is each for each in list(sys.meta_path))


def _written(file: str) -> float:
    try:
        return _stat(file).st_mtime
    except OSError:
        return 0.0


def _is_compiled_from_older(source: Source) -> bool:
    """Return whether the import system would accept a compiled file that is older than the source.

    It compares the second and the size of the source: an edit within the same second may escape it.
    """
    try:
        cached = cache_from_source(source.file)
        with _open(cached, "rb") as stream:
            header = stream.read(16)
        written = _stat(source.file).st_mtime_ns
        is_older = _stat(cached).st_mtime_ns < written
    except (OSError, NotImplementedError):
        return False
    known = (0, written // 1_000_000_000 & 0xFFFFFFFF, len(source.data) & 0xFFFFFFFF)
    numbers = tuple(int.from_bytes(header[place : place + 4], "little") for place in (4, 8, 12))
    return is_older and numbers == known


def drop_older(source: Source) -> None:
    """Prevent the import system from using a compiled file that is older than the source."""
    if _is_compiled_from_older(source):
        with suppress(OSError, NotImplementedError):
            _unlink(cache_from_source(source.file))


class Graph:
    """The imports between the project's modules. Files are read on demand."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._wanted: dict[str, list[str]] = {}
        self._sources: dict[str, Source | None] = {}

    def _source(self, name: str) -> Source | None:
        if name not in self._sources:
            self._sources[name] = source_of(_modules.get(name))
        return self._sources[name]

    def wanted_by(self, name: str) -> list[str]:
        """Return the project's modules that a module imports, in order."""
        if name not in self._wanted:
            source, package = self._source(name), _package(name, _modules.get(name))
            found = [] if source is None else list(_imports(source.data, package))
            self._wanted[name] = [
                other for other in dict.fromkeys(found) if other in self._names and other != name
            ]
        return self._wanted[name]

    def below(self, names: Iterable[str]) -> set[str]:
        """Return the modules and everything of the project that they import, directly or not."""
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(self.wanted_by(name))
        return found

    def above(self, names: set[str]) -> set[str]:
        """Return the modules and everything of the project that imports them, directly or not."""
        found = set(names)
        while True:
            candidates = [name for name in self._names - found if self._mentions(name, found)]
            more = {name for name in candidates if not found.isdisjoint(self.wanted_by(name))}
            if not more:
                return found
            found |= more

    def _mentions(self, name: str, others: set[str]) -> bool:
        """Return whether a file mentions one of the names, before it is parsed for that."""
        source = self._source(name)
        return source is not None and any(
            other.rpartition(".")[2].encode() in source.data for other in others
        )

    def ordered(self, names: set[str]) -> list[str]:
        """Return the modules, imported ones first."""
        done: dict[str, None] = {}
        seen: set[str] = set()

        def visit(name: str) -> None:
            if name not in seen:
                seen.add(name)
                for other in self.wanted_by(name):
                    visit(other)
                done[name] = None

        for name in sorted(names):
            visit(name)
        return [name for name in done if name in names]


def _package(name: str, module: object) -> str:
    is_package = is_module(module) and "__path__" in raw_space(module)
    return name if is_package else name.rpartition(".")[0]


def _imports(data: bytes, package: str) -> Iterator[str]:
    """Yield the names that a module imports when it is loaded. An unreadable file imports nothing."""
    try:
        waiting: list[ast.AST] = [ast.parse(data)]
    except (SyntaxError, ValueError, RecursionError):
        return
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = _home(node, package)
            yield home
            yield from (f"{home}.{alias.name}" for alias in node.names)
        elif not isinstance(node, _FUNCTIONS):
            waiting.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


def _home(node: ast.ImportFrom, package: str) -> str:
    parts = package.split(".") if package else []
    base = parts[: len(parts) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])
