"""The loaded modules, their names and their code, cached from one question to the next.

User modules are read anew for each question. For other modules one check of all values shows whether anything
has changed, and only those are read whose code has one of the wanted names.
"""

import os
import sys
import types
from collections.abc import Iterator
from importlib.util import cache_from_source as _cache_from_source
from itertools import chain
from marshal import loads as _loads
from operator import is_
from typing import NamedTuple

from .anatomy import (
    ATOMS,
    class_space,
    function_name,
    is_class,
    is_module,
    kinds,
    module_of,
    plain,
    raw_space,
)
from .codes import Unit, units_of
from .origins import Origins
from .places import USERS, is_ours, silently, tier_of
from .session import Session
from .words import unwrapped

_modules = sys.modules
_open, _stat = open, os.stat
# Bytes of a source that is read for its code: more is data.
_LARGEST = 4 * 1024 * 1024
# Levels of registries and closures that are searched for functions, and members of a registry.
_DEEPEST = 3
_MEMBERS = 1000
# Types that hold no function of Python code.
_SIMPLE = ATOMS | kinds(types.BuiltinFunctionType, type)
_NOTHING: tuple[None, frozenset[str]] = (None, frozenset())


class Loaded(NamedTuple):
    """A loaded module: its name, its own dictionary, its owner, and the last part of the name."""

    name: str
    module: object
    space: dict[str, object]
    tier: int
    leaf: str


class Shelf:
    """The loaded modules. Their owners are determined once, until something else is loaded."""

    def __init__(self) -> None:
        self._mark: tuple[int, ...] = ()
        # References to keys and foreign modules keep their ids valid. The user's modules are not referenced.
        self._keys: list[object] = []
        self._modules: list[Loaded | str] = []

    def modules(self, session: Session) -> list[Loaded]:
        """Return the modules, except for ours, that of the session first. The user's are looked up anew."""
        items = list(_modules.items())
        mark = tuple(map(id, chain.from_iterable(items)))
        if mark != self._mark:
            self._keys = [key for key, _module in items]
            names = ["__main__", *(key for key in self._keys if type(key) is str and not is_ours(key))]
            self._modules = [_others(name) or name for name in dict.fromkeys(names)]
            self._mark = mark
        found = [_users(session, each) if type(each) is str else each for each in self._modules]
        return [each for each in found if type(each) is Loaded]


def _others(name: str) -> Loaded | None:
    module, tier = _modules.get(name), tier_of(name)
    return _entry(name, module, tier) if tier != USERS and is_module(module) else None


def _users(session: Session, name: str) -> Loaded | None:
    module = _modules.get(name)
    if name == "__main__" and not is_module(module):
        module = session.main
    return _entry(name, module, tier_of(name)) if is_module(module) else None


def _entry(name: str, module: object, tier: int) -> Loaded:
    return Loaded(name, module, raw_space(module), tier, name.rpartition(".")[2].lower())


shelf = Shelf()
Held = list[tuple[str, object]]


class Texts:
    """The names of all modules in one text, which is searched at once: most modules have no match.

    The text is made for each question, to see whether a name has come or gone. Only its lower-case form is
    kept. Values are taken from the modules directly.
    """

    def __init__(self) -> None:
        self._text = ""
        self._small = ""
        self._breaks = 0

    def holding(self, pattern: str, modules: list[Loaded]) -> dict[str, Held]:
        """Return the names that contain the pattern, which is in small letters, and their values."""
        names = [list(module.space) for module in modules]
        lines = self._lines(pattern, list(chain.from_iterable(names)))
        if lines is None:
            return {module.name: _holding(pattern, module) for module in modules}
        found: dict[str, Held] = {}
        module, first, last = -1, 0, 0
        values: list[object] = []
        for line in lines:
            if line >= last:
                while line >= last:
                    module += 1
                    first, last = last, last + len(names[module])
                values = list(modules[module].space.values())
                held = found[modules[module].name] = []
                if len(values) != last - first:  # a thread of the user's has changed it in between
                    held += _holding(pattern, modules[module])
            name = names[module][line - first]
            if type(name) is str and len(values) == last - first:
                held.append((name, values[line - first]))
        return found

    def _lines(self, pattern: str, names: list[str]) -> list[int] | None:
        """Return which of the names contain the pattern. None where they are not single-line strings."""
        try:
            text = "\n".join(names)
        except TypeError:
            return None
        if text != self._text:
            self._text, self._small, self._breaks = text, text.lower(), text.count("\n")
        if "\n" in pattern or self._breaks != len(names) - 1:
            return None
        if not pattern:
            return list(range(len(names)))
        found: list[int] = []
        line = 0
        for part in self._small.split(pattern)[:-1]:
            line += part.count("\n")
            found.append(line)
        return list(dict.fromkeys(found))


def _holding(pattern: str, module: Loaded) -> Held:
    return [(name, value) for name, value in plain(module.space).items() if pattern in name.lower()]


class Names(NamedTuple):
    """The names of a module, and those under which it holds an object or the function inside of it, by id."""

    mark: tuple[list[object], list[object]]
    space: dict[str, object]
    held: dict[int, list[str]]
    renamed: dict[int, set[str]]


class Corpus:
    """The names and the code of the loaded modules. A module is read once, until something in it is new."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, list[Unit], frozenset[str]]] = {}
        self._names: dict[str, Names] = {}
        # For modules of others: all their values, their names, and the names in their code.
        self._mark: tuple[list[object], list[object]] = ([], [])
        self._others: dict[str, Names] = {}
        self._used: dict[str, tuple[Names | None, frozenset[str]]] = {}

    def read(self, modules: list[Loaded]) -> list[tuple[str, object, Names]]:
        """Return the modules with their names. One check of all values shows whether any of them is new.

        Where only a name may have changed, `sure` decides.
        """
        others = [module for module in modules if module.tier != USERS]
        try:
            # No other thread runs in between: none of this is written in Python.
            values = list(chain.from_iterable(map(dict.values, [module.space for module in others])))
        except RuntimeError:  # a finalizer of the user's has changed one
            values = [object()]
        mark: tuple[list[object], list[object]] = ([*others], values)
        if not all(map(_is_same, mark, self._mark)):
            self._others = {module.name: self._read(module.name, module.module) for module in others}
            self._mark = mark
        known = self._others.get
        return [
            (each.name, each.module, known(each.name) or self._read(each.name, each.module))
            for each in modules
        ]

    def sure(self, name: str, module: object, known: Names) -> Names:
        """Return the names, read again if one of them has changed."""
        if name in self._others:
            known = self._others[name] = self._read(name, module)
        return known

    def is_without(self, name: str, known: Names, wanted: set[str]) -> bool:
        """Return whether the code of a foreign module is known to have none of the names."""
        noted, names = self._used.get(name, _NOTHING)
        return noted is known and wanted.isdisjoint(names)

    def note(self, name: str, known: Names, names: frozenset[str]) -> None:
        """Remember all names in the code of a module."""
        if name in self._others:
            self._used[name] = (known, names)

    def _read(self, name: str, module: object) -> Names:
        """Return the names of a module, those read before where they are still the same."""
        raw = raw_space(module)
        mark: tuple[list[object], list[object]] = (list(raw), list(raw.values()))
        known = self._names.get(name)
        if known is None or tier_of(name) == USERS or not all(map(_is_same, known.mark, mark)):
            space = plain(raw)
            held: dict[int, list[str]] = {}
            for key, value in space.items():
                if id(type(value)) not in ATOMS:
                    held.setdefault(id(value), []).append(key)
                    inner = unwrapped(value)
                    if inner is not value:
                        held.setdefault(id(inner), []).append(key)
            known = self._names[name] = Names(mark, space, held, _renamed(name, space))
        return known

    def units(
        self, name: str, module: object, file: str, origins: Origins
    ) -> tuple[list[Unit], frozenset[str]] | None:
        """Return the units of a module as its file has them, and all names in them.

        None where that is not what was loaded.
        """
        try:
            status = _stat(file) if file.endswith(".py") else None
        except OSError:
            status = None
        if status is None or status.st_size > _LARGEST:
            return None
        mark = (id(module), file, status.st_mtime_ns, status.st_size)
        known = self._known.get(name)
        if known is None or known[0] != mark:
            if origins.is_changed(name):
                return None
            code = _code_of(file, status, trusts_compiled=tier_of(name) != USERS)
            units = list(units_of(code, name)) if code is not None else []
            known = self._known[name] = (mark, units, frozenset().union(*(unit.names for unit in units)))
        return known[1:]


def _is_same(one: list[object], other: list[object]) -> bool:
    """Return whether the lists hold the same objects. Comparing these might run user code."""
    return len(one) == len(other) and all(map(is_, one, other))


def _renamed(module: str, space: dict[str, object]) -> dict[int, set[str]]:
    """Return the names, other than its own, under which classes of a module hold a function, by its id."""
    found: dict[int, set[str]] = {}
    for cls in space.values():
        if is_class(cls) and module_of(cls) == module:
            for name, value in class_space(cls).items():  # type: ignore[arg-type]  # seen to be a class
                inner = unwrapped(value)
                if type(inner) is types.FunctionType and function_name(inner) != name:
                    found.setdefault(id(inner), set()).add(name)
    return found


def _code_of(file: str, status: os.stat_result, *, trusts_compiled: bool) -> types.CodeType | None:
    """Return the code of a module: from the compiled file of this very source, else from the source.

    A compiled file in a directory that evaluated code may write is not trusted.
    """
    try:
        if trusts_compiled:
            with _open(_cache_from_source(file), "rb") as stream:
                data = stream.read()
            known = (0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
            if tuple(int.from_bytes(data[place : place + 4], "little") for place in (4, 8, 12)) == known:
                found = _loads(data[16:])  # noqa: S302 - of a library, which was imported in the same way
                return found if type(found) is types.CodeType else None
    except (OSError, NotImplementedError, ValueError, EOFError, TypeError):
        pass
    try:
        with _open(file, "rb") as stream:
            code = silently(stream.read(_LARGEST), file, 0)
    except OSError:
        return None
    return code if type(code) is types.CodeType else None


def evaluated_units(module: str, space: dict[str, object]) -> Iterator[Unit]:
    """Yield the functions that a module holds, also inside of its classes, closures and registries."""
    seen: set[int] = set()
    for name, value in space.items():
        if is_class(value) and module_of(value) == module:
            yield from _in_class(module, f"{module}.{name}", value, seen)
        else:
            yield from _functions(module, f"{module}.{name}", value, seen)


def _in_class(module: str, label: str, cls: object, seen: set[int]) -> Iterator[Unit]:
    if id(cls) in seen:
        return
    seen.add(id(cls))
    for name, value in class_space(cls).items():  # type: ignore[arg-type]  # seen to be one
        if is_class(value):
            if module_of(value) == module:
                yield from _in_class(module, f"{label}.{name}", value, seen)
        else:
            yield from _functions(module, f"{label}.{name}", value, seen)


def _functions(module: str, label: str, value: object, seen: set[int], depth: int = 0) -> Iterator[Unit]:
    """Give the functions of the module that a value is, wraps, or holds."""
    # A class is visited under its own name. Being held by a registry as well does not count as a visit.
    if depth > _DEEPEST or id(value) in seen or id(type(value)) in _SIMPLE or is_class(value):
        return
    seen.add(id(value))
    parts: list[object] = []
    if type(value) is types.FunctionType:
        if module_of(value) == module:
            for unit in units_of(value.__code__, label):
                yield unit._replace(label=label)
        cells = value.__closure__ or ()
        parts = [_content(cell) for cell in cells] + [plain(value.__dict__).get("__wrapped__")]
    elif type(value) is property:
        parts = [value.fget, value.fset, value.fdel]
    elif type(value) is dict or type(value) is list or type(value) is tuple:
        parts = list(value.values() if type(value) is dict else value)[:_MEMBERS]
    else:
        inner = unwrapped(value)
        parts = [inner] if inner is not value else []
    for part in parts:
        if id(type(part)) not in _SIMPLE:
            yield from _functions(module, label, part, seen, depth + 1)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None
