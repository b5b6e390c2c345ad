"""Find what a name means: `name`, `name.attribute`, `module.name`, `module:attribute.path`.

Nothing is imported and no attribute hook runs. A name that is not found comes back as an error with the names
that look like it.
"""

import builtins
import difflib
import keyword
import sys
from collections.abc import Iterable
from typing import NamedTuple

from .anatomy import (
    MISSING,
    attribute,
    class_space,
    instance_space,
    is_class,
    is_module,
    module_of,
    module_space,
    plain,
    raw_space,
)
from .places import STANDARD, USERS, is_ours, tier_of
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


class Found(NamedTuple):
    """What a name means: its full name, the object, and what holds it."""

    name: str
    value: object
    owner: object
    leaf: str


def resolve(session: Session, text: str, package: str | None) -> Found:
    """Return what a name means; raise NameError's record when it means nothing."""
    name = text.strip()
    module = find_module(session, package)
    if not name or any(not part.isidentifier() for part in name.replace(":", ".").split(".")):
        raise RequestError("NameError", f"'{name[:100]}' is not a name. Expected: {_expected(name)}.")
    if ":" in name:
        return _with_colon(session, name)
    found = _in_scope(module, name) or _in_modules(session, name)
    if found is None and package is None:
        found = _only_one(session, name)
    if found is None:
        raise _unknown(session, module, name, package or session.current)
    return found


def _expected(name: str) -> str:
    if "<locals>" in name:
        return "a name that can be reached from a module; what is inside of a function cannot"
    return "name, module.name or module:path"


def _with_colon(session: Session, name: str) -> Found:
    head, _colon, path = name.partition(":")
    module = find_module(session, head)
    if ":" in path:
        raise RequestError("NameError", f"'{name[:100]}' has more than one colon. Expected: module:path.")
    found = _follow(module, path.split("."))
    if found is None:
        raise _unknown(session, module, path, head)
    return Found(f"{head}.{path}", *found)


def _in_scope(module: object, name: str) -> Found | None:
    first, *rest = name.split(".")
    space = module_space(module)
    home = space.get("__name__")
    for place, where in ((space, home if type(home) is str else "?"), (plain(vars(builtins)), "builtins")):
        value = place.get(first, MISSING)
        owner = module if place is space else builtins
        found = None if value is MISSING else _follow(value, rest) if rest else (value, owner, first)
        if found is not None:
            return Found(_full_name(where, value, first, rest), *found)
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


def _in_modules(session: Session, name: str) -> Found | None:
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        module = session.module(".".join(parts[:size]))
        if module is not None:
            found = _follow(module, parts[size:])
            if found is not None:
                return Found(name, *found)
    return None


def holders(session: Session, name: str, furthest: int = STANDARD, *, but_for: object = MISSING) -> list[str]:
    """Return the full names under which modules define a name, the user's first; imports do not count.

    What is the object `but_for` itself is left out.
    """
    first, *rest = name.split(".")
    found = []
    for key, module in [("__main__", session.main), *list(_modules.items())]:
        if type(key) is str and tier_of(key) <= furthest and is_module(module) and not is_ours(key):
            value = raw_get(module, first)
            home = module_of(value)
            is_home = home in ("", key) or home.startswith((key + ".", "_"))
            if (
                value is not MISSING
                and value is not but_for
                and is_home
                and not is_module(value)
                and (not rest or _follow(value, rest))
            ):
                found.append((tier_of(key), any(part[:1] == "_" for part in key.split(".")), f"{key}.{name}"))
    return [each for _tier, _hidden, each in sorted(set(found))]


def raw_get(module: object, name: str) -> object:
    """Return what a module holds under a name, or MISSING."""
    space = raw_space(module)
    # A key of a class of its own might compare in its own way.
    return (
        space.get(name, MISSING)
        if all(type(key) is str for key in space)
        else plain(space).get(name, MISSING)
    )


def _only_one(session: Session, name: str) -> Found | None:
    """Find a name that one module of the user's defines and no other does."""
    users = holders(session, name, USERS)
    return _in_modules(session, users[0]) if len(users) == 1 else None


def _follow(value: object, path: list[str]) -> tuple[object, object, str] | None:
    owner: object = MISSING
    part = ""
    for part in path:
        owner, value = value, attribute(value, part)
        if value is MISSING:
            return None
    return value, owner, part


def _unknown(session: Session, module: object, name: str, package: str) -> RequestError:
    head, _dot, leaf = name.rpartition(".")
    followed = _follow(module, head.split(".")) if head else (module, MISSING, "")
    owner = followed[0] if followed is not None else _modules.get(head, MISSING)
    known = list(_members(owner)) if owner is not MISSING else []
    elsewhere: list[str] = []
    if not head:
        known += plain(vars(builtins))
        known += [key for key in list(_modules) if type(key) is str and "." not in key and not is_ours(key)]
        elsewhere = holders(session, name)
    prefix = f"{head}." if head and owner is not MISSING else ""
    suggestions = elsewhere[:_NEAR] or [prefix + match for match in near(leaf, known)]
    return RequestError("NameError", _not_defined(name, package, elsewhere), suggestions)


def _not_defined(name: str, package: str, elsewhere: list[str]) -> str:
    if keyword.iskeyword(name):
        return f"'{name}' is a keyword of Python, not a name."
    if elsewhere:
        rest = f" and {len(elsewhere) - _NEAR} more" if len(elsewhere) > _NEAR else ""
        return (
            f"name '{name}' is not defined in {package}, but there is {', '.join(elsewhere[:_NEAR])}{rest}."
        )
    return f"name '{name[:100]}' is not defined in {package}."


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
