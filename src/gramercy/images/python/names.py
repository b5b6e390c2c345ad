"""Find what a name means: `name`, `name.attribute`, `module.name`, `module:attribute.path`.

Nothing is imported and no attribute hook runs. A name that is not found comes back as an error with the names
that look like it.
"""

import builtins
import difflib
import sys
from collections.abc import Iterable

from .anatomy import MISSING, attribute, class_space, instance_space, is_class, is_module, module_space, plain
from .protocol import RequestError
from .session import Session

_modules = sys.modules
# Suggestions in an error, and names compared for them: difflib takes some 50 ms for so many.
_NEAR = 5
_CONSIDERED = 20_000
_close_matches = difflib.get_close_matches


def find_module(session: Session, name: str | None) -> object:
    """Return a loaded module, the current one for None."""
    module = session.module(name or session.current)
    if module is None:
        raise unknown_module(str(name))
    return module


def unknown_module(name: str) -> RequestError:
    """Return the error for a module that is not loaded, with those that look like it."""
    known = [key for key in list(_modules) if type(key) is str] + sorted(sys.stdlib_module_names)
    hint = " It is part of the standard library: load it first." if name in sys.stdlib_module_names else ""
    message = f"No module named '{name[:100]}' is loaded.{hint}"
    return RequestError("ModuleNotFoundError", message, near(name, known))


def resolve(session: Session, text: str, package: str | None) -> tuple[str, object]:
    """Return the full name and the object; raise NameError's record when there is none."""
    name = text.strip()
    module = find_module(session, package)
    if not name or any(not part.isidentifier() for part in name.replace(":", ".").split(".")):
        expected = "name, module.name or module:path"
        raise RequestError("NameError", f"'{name[:100]}' is not a name. Expected: {expected}.")
    if ":" in name:
        return _with_colon(session, name)
    found = _in_scope(module, name)
    if found is None:
        found = _in_modules(session, name)
    if found is None:
        raise _unknown(module, name, package or session.current)
    return found


def _with_colon(session: Session, name: str) -> tuple[str, object]:
    head, _colon, path = name.partition(":")
    module = find_module(session, head)
    if ":" in path:
        raise RequestError("NameError", f"'{name[:100]}' has more than one colon. Expected: module:path.")
    value = _follow(module, path.split("."))
    if value is MISSING:
        raise _unknown(module, path, head)
    return f"{head}.{path}", value


def _in_scope(module: object, name: str) -> tuple[str, object] | None:
    first, *rest = name.split(".")
    space = module_space(module)
    home = space.get("__name__")
    for place, where in ((space, home if type(home) is str else "?"), (plain(vars(builtins)), "builtins")):
        value = place.get(first, MISSING)
        found = MISSING if value is MISSING else _follow(value, rest)
        if found is not MISSING:
            return _full_name(where, value, first, rest), found
    return None


def _full_name(where: str, value: object, first: str, rest: list[str]) -> str:
    """Name the thing by the module it was reached through last."""
    path = [where, first]
    for part in ["", *rest]:
        if part:
            value = attribute(value, part)
            path.append(part)
        home = module_space(value).get("__name__") if is_module(value) else None
        if type(home) is str:
            path = [home]
    return ".".join(path)


def _in_modules(session: Session, name: str) -> tuple[str, object] | None:
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        module = session.module(".".join(parts[:size]))
        if module is not None:
            value = _follow(module, parts[size:])
            if value is not MISSING:
                return name, value
    return None


def _follow(value: object, path: list[str]) -> object:
    for part in path:
        value = attribute(value, part)
        if value is MISSING:
            return MISSING
    return value


def _unknown(module: object, name: str, package: str) -> RequestError:
    head, _dot, leaf = name.rpartition(".")
    owner = _follow(module, head.split(".")) if head else module
    if head and owner is MISSING:
        owner = _modules.get(head, MISSING)
    known = list(_members(owner)) if owner is not MISSING else []
    if not head:
        known += plain(vars(builtins))
        known += [key for key in list(_modules) if type(key) is str and "." not in key]
    prefix = f"{head}." if head and owner is not MISSING else ""
    suggestions = [prefix + match for match in near(leaf, known)]
    return RequestError("NameError", f"name '{name}' is not defined in {package}.", suggestions)


def _members(thing: object) -> Iterable[str]:
    if is_module(thing):
        return module_space(thing)
    if is_class(thing):
        return class_space(thing)  # type: ignore[arg-type]  # seen to be one
    return {**class_space(type(thing)), **instance_space(thing)}


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names most like this one."""
    wanted = name[:100].lower()
    folded: dict[str, str] = {}
    for candidate in known:
        if len(folded) >= _CONSIDERED:
            break
        if type(candidate) is str and abs(len(candidate) - len(wanted)) <= max(len(wanted) // 2, 2):
            folded.setdefault(candidate.lower(), candidate)
    return [folded[match] for match in _close_matches(wanted, folded, _NEAR, 0.65)]
