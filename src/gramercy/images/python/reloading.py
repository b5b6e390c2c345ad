"""Load changed modules of the user's project again, in place, all of them or none.

What a module holds is replaced by running its new source in the module itself, as `importlib.reload` does;
compiled files are passed over, since they know the second of an edit and no more.
"""

import importlib.util
import os
import sys
import types
from contextlib import suppress
from typing import Any

from .anatomy import is_class, is_module, kinds, module_of, raw_space, short_name
from .origins import Graph, Origins, Source, source_of

_modules = sys.modules
_exec, _compile = exec, compile
_unlink, _cached = os.unlink, importlib.util.cache_from_source
_DEFINED = kinds(types.FunctionType)
_TOLD = 5


class Reload:
    """One loading of everything that a system's changed sources concern."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._before: dict[str, dict[str, object]] = {}
        self.names: list[str] = []
        self._passed_over: list[str] = []

    def run(self, system: str) -> None:
        """Load again what has changed in the system, what it imports, and what imports that."""
        changed = self._origins.changed()
        if not changed:
            return
        names = self._origins.names()
        graph = Graph(names)
        own = [name for name in names if name == system or name.startswith(system + ".")]
        concerned = graph.below(own) & set(changed)
        order = graph.ordered(graph.above(concerned)) if concerned else []
        try:
            for name in order:
                self._load(name, changed.get(name))
        except BaseException:
            self._take_back()
            raise
        self.names = order
        self._passed_over = sorted(set(changed) - set(order))

    def _load(self, name: str, source: Source | None) -> None:
        module: Any = _modules.get(name)
        source = source or source_of(module)
        if source is None or not is_module(module):
            return
        space = raw_space(module)
        code = _compiled(space, source)
        self._before[name] = dict(space)
        space.pop("__warningregistry__", None)
        with suppress(OSError, NotImplementedError):
            _unlink(_cached(source.file))
        _exec(code, space)
        self._origins.settle(name, source)

    def _take_back(self) -> None:
        """Put every module back as it was, marked as not loaded from what its file says now."""
        for name, before in self._before.items():
            space = raw_space(_modules.get(name)) if is_module(_modules.get(name)) else {}
            space.clear()
            space.update(before)
            self._origins.forget(name)

    def notes(self, main: dict[str, object]) -> list[str]:
        """Say what a reload cannot do: objects keep their classes, other names what they were bound to."""
        old, left = self._replaced()
        found = []
        classes = sorted({short_name(value) for value in old.values() if is_class(value)})  # type: ignore[arg-type]  # seen to be classes
        if classes:
            found.append(f"Objects made before keep their old class: {_listed(classes)}.")
        held = sorted(key for key, value in list(main.items()) if type(key) is str and id(value) in old)
        if held:
            found.append(f"Still the old ones in __main__: {_listed(held)}. Import them again.")
        if left:
            found.append(f"No longer in the source, but still defined: {_listed(left)}.")
        if self._passed_over:
            listed = _listed(self._passed_over)
            found.append(f"Not concerned, but their files have changed too: {listed}. Load them by name.")
        return found

    def _replaced(self) -> tuple[dict[int, object], list[str]]:
        """Return the functions and classes that others have taken the place of, and the names of the rest."""
        found, left = {}, []
        for name in self.names:
            now = raw_space(_modules.get(name))
            for key, value in self._before.get(name, {}).items():
                if module_of(value) == name and (id(type(value)) in _DEFINED or is_class(value)):
                    if now.get(key) is value:
                        left.append(f"{name}.{key}")
                    else:
                        found[id(value)] = value
        return found, left


def _compiled(space: dict[str, object], source: Source) -> types.CodeType:
    """Compile the source by the module's own loader, which may have its own way."""
    loader = getattr(space.get("__spec__"), "loader", None)
    make: Any = getattr(loader, "source_to_code", None)
    code: types.CodeType = (make or _compiled_plainly)(source.data, source.file)
    return code


def _compiled_plainly(data: bytes, file: str) -> types.CodeType:
    code: types.CodeType = _compile(data, file, "exec", dont_inherit=True)
    return code


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
    return ", ".join(names[:_TOLD]) + more
