"""The definitions of evaluations: functions, classes, variables, imports, methods, seen in the modules.

Namespaces are compared before and after, so it does not matter which form made the change. Old values go to
the journal, so that they can be restored. No user code runs.
"""

import math
import sys
import types
from typing import Any
from weakref import ref

from .anatomy import (
    FUNCTIONS,
    class_space,
    is_class,
    is_module,
    kinds,
    module_of,
    module_space,
    qualified_name,
    raw_space,
)
from .journal import Binding, Held, Journal, Step
from .origins import Origins, is_left_by_a_hook

_SKIPPED = frozenset(
    ("__builtins__", "__warningregistry__", "__annotations__", "__annotate__", "__conditional_annotations__")
)
_CLASS_SKIPPED = {
    *("__dict__", "__weakref__", "__doc__", "__abstractmethods__", "_abc_impl"),
    *("__annotations__", "__annotations_cache__", "__annotate_func__"),
}
# Modules in which Cython keeps data that its extension modules share.
_SHARED_BY_COMPILED = ("_cython_", "cython_runtime")
_METHODS = kinds(types.FunctionType, staticmethod, classmethod, property)
_modules = sys.modules
Change = dict[str, object]


class Attributes:
    """The content of a class: the identities, to see a change, and the values, to restore them."""

    __slots__ = ("held", "ids")

    def __init__(self, cls: type) -> None:
        space = class_space(cls)
        self.held = {key: Held(value) for key, value in space.items() if key not in _CLASS_SKIPPED}
        self.ids = _attributes(cls)


class Definitions:
    """A record of every followed module as it was after the last look."""

    def __init__(self, main: types.ModuleType) -> None:
        self._main = main
        self._seen: dict[str, dict[str, int]] = {}
        self._held: dict[str, dict[str, Held]] = {}
        self._classes: dict[int, Attributes] = {}
        self._before: dict[int, Attributes] = {}
        self._user: dict[str, dict[str, str]] = {}
        self._loaded: dict[str, int] = {}
        self.origins = Origins()
        self.journal = Journal()
        self.step = Step()
        self.baseline()

    def baseline(self) -> None:
        """Mark the current names as not defined by the user."""
        self._loaded = {name: id(module) for name, module in list(_modules.items()) if type(name) is str}
        self.origins.since = math.inf
        for name in self._loaded:
            if name != "__main__" and is_module(_modules.get(name)) and is_users(_modules[name]):
                self.origins.note(name, _modules[name])
        self.follow("__main__", self._main)

    def follow(self, name: str, module: object) -> None:
        """Watch a module from now on. Its current names are not news."""
        if name not in self._seen:
            self._seen[name] = {key: id(value) for key, value in _names(module).items()}
            self._held[name] = {key: Held(value) for key, value in _names(module).items()}
            self._user.setdefault(name, {})
            for value in _names(module).values():
                self._look_into(name, value)

    def changes(self, bound: set[str], current: str) -> list[Change]:
        """Return the changes since the last look. `bound` names count even when bound to the same value."""
        found: list[Change] = []
        self.step = Step()
        self.step.reloaded = self.origins.take_reloaded()
        self._before, self._classes = self._classes, {}
        self._new_modules(found)
        for name in list(self._seen):
            module = self._main if name == "__main__" else _modules.get(name)
            if not is_module(module):
                self._gone(name, found)
            else:
                known = self._seen[name].get("__spec__")
                self._compare(name, module, bound if name == current else set(), found)
                if known is not None and known != self._seen[name].get("__spec__"):
                    # importlib.reload gives a module a new one.
                    self.origins.note(name, module)
        return found

    def _new_modules(self, found: list[Change]) -> None:
        if len(_modules) == len(self._loaded):
            return
        for name, module in list(_modules.items()):
            if type(name) is str and self._loaded.get(name) != id(module):
                if is_module(module) and is_users(module) and is_left_by_a_hook(module):
                    # The next run of the tests imports them again, from their files and through the hook.
                    del _modules[name]
                    continue
                self._loaded[name] = id(module)
                # multiprocessing has another name for the module that is __main__.
                is_main = name == "__main__" or module is self._main
                if is_module(module) and not is_main and is_users(module):
                    found.append({"kind": "module", "name": name, "change": "defined"})
                    self.step.modules.append(name)
                    self.origins.note(name, module)
                    if _is_made_by_hand(module):
                        self._seen.setdefault(name, {})
                        self._held.setdefault(name, {})
                        self._user.setdefault(name, {})
                    else:
                        self.follow(name, module)
        for name in [name for name in self._loaded if name not in _modules]:
            del self._loaded[name]

    def _gone(self, name: str, found: list[Change]) -> None:
        found.append({"kind": "module", "name": name, "change": "removed"})
        del self._seen[name], self._held[name]
        self._user.pop(name, None)

    def _compare(self, name: str, module: object, bound: set[str], found: list[Change]) -> None:
        now, before, held = _names(module), self._seen[name], self._held[name]
        for key, value in now.items():
            old = before.get(key)
            if old != id(value) or key in bound:
                kind, change = kind_of(value), "redefined" if key in before else "defined"
                found.append(_change(kind, f"{name}.{key}", change))
                self._user[name][key] = kind
                if old != id(value):
                    self._note(Binding(name, f"{name}.{key}", key, kind, held.get(key), id(value)))
                    before[key], held[key] = id(value), Held(value)
                self._look_into(name, value)
            elif is_class(value) and module_of(value) == name:
                self._methods(value, name, found)
        for key in [key for key in before if key not in now]:
            del before[key]
            kind = self._user[name].pop(key, "variable")
            found.append(_change(kind, f"{name}.{key}", "removed"))
            self._note(Binding(name, f"{name}.{key}", key, kind, held.pop(key, None), None))

    def _note(self, binding: Binding) -> None:
        self.step.bindings.append(binding)

    def _look_into(self, name: str, value: object) -> None:
        if is_class(value) and module_of(value) == name:
            self._classes[id(value)] = Attributes(value)  # type: ignore[arg-type]  # seen to be a class

    def _methods(self, cls: Any, name: str, found: list[Change]) -> None:
        before = self._before.get(id(cls))
        if before is None:
            self._classes[id(cls)] = Attributes(cls)
            return
        ids = _attributes(cls)
        self._classes[id(cls)] = before
        if ids == before.ids:
            return
        path, space = f"{name}.{qualified_name(cls)}", class_space(cls)
        for key in {**before.ids, **ids}:
            old, now = before.ids.get(key), ids.get(key)
            if old != now:
                change = "removed" if now is None else "redefined" if old is not None else "defined"
                kind = _member_kind(space.get(key))
                found.append(_change(kind, f"{path}.{key}", change))
                self._note(Binding(ref(cls), f"{path}.{key}", key, kind, before.held.get(key), now))
        self._classes[id(cls)] = Attributes(cls)

    def listing(self) -> dict[str, list[tuple[str, object]]]:
        """Return the user's existing definitions by kind, in order, with the objects."""
        found: dict[str, list[tuple[str, object]]] = {}
        for name, known in self._user.items():
            module = self._main if name == "__main__" else _modules.get(name)
            space = module_space(module) if is_module(module) else {}
            for key in known:
                if key in space:
                    label = key if name == "__main__" else f"{name}.{key}"
                    found.setdefault(kind_of(space[key]), []).append((label, space[key]))
        return found

    def let_go(self) -> None:
        """Release old values: memory is needed."""
        self.journal.let_go()
        for held in [held for known in self._held.values() for held in known.values()]:
            held.let_go("memory was needed")

    def followed(self) -> list[str]:
        """Return the names of the modules that are watched."""
        return list(self._seen)


def _change(kind: str, name: str, change: str) -> Change:
    return {"kind": kind, "name": name, "change": change}


def _names(module: object) -> dict[str, object]:
    items = list(raw_space(module).items())
    return {key: value for key, value in items if type(key) is str and key not in _SKIPPED}


def _attributes(cls: type) -> dict[str, int]:
    return {key: id(value) for key, value in class_space(cls).items() if key not in _CLASS_SKIPPED}


def _member_kind(value: object) -> str:
    return "method" if id(type(value)) in _METHODS else "attribute"


def kind_of(value: object) -> str:
    """Return the kind of definition an object in a module is."""
    if is_module(value):
        return "import"
    if is_class(value):
        return "class"
    if id(type(value)) in FUNCTIONS:
        return "function"
    return "variable"


def is_users(module: object) -> bool:
    """Say whether a module is the user's own: made by hand, or from a file outside the installed packages."""
    space = module_space(module)
    file = space.get("__file__")
    if type(file) is str:
        return not is_installed(file)
    return _is_made_by_hand(module)


def is_installed(file: str) -> bool:
    """Say whether a file belongs to Python or to a package that was installed."""
    is_package = "/site-packages/" in file or "/dist-packages/" in file
    return is_package or file.startswith((sys.base_prefix + "/lib", sys.prefix + "/lib"))


def _is_made_by_hand(module: object) -> bool:
    """Say whether a module came from no file, and not from compiled code, which makes such ones too."""
    name = module_space(module).get("__name__")
    if not _is_bare(module) or (type(name) is str and name.startswith(_SHARED_BY_COMPILED)):
        return False
    top = _modules.get(name.partition(".")[0]) if type(name) is str else None
    return not is_module(top) or _is_bare(top) or is_users(top)


def _is_bare(module: object) -> bool:
    space = module_space(module)
    return type(space.get("__file__")) is not str and space.get("__spec__") is None
