"""Find what a name means: `name`, `name.attribute`, `module.name`, `module:attribute.path`.

Nothing is imported and no attribute hook runs. A name that is not found comes back as an error with the names
that look like it.
"""

import builtins
import difflib
import keyword
import sys
from collections.abc import Iterable
from itertools import chain
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


class Loaded(NamedTuple):
    """A loaded module: under which name, its own dictionary, whose it is, and the last part of the name."""

    name: str
    module: object
    space: dict[str, object]
    tier: int
    leaf: str


class Shelf:
    """The loaded modules; whose each is gets found out once, until something else is loaded."""

    def __init__(self) -> None:
        self._mark: tuple[int, ...] = ()
        # Keys and modules of others are held, so that their ids stay theirs; the user's modules are not.
        self._keys: list[object] = []
        self._modules: list[Loaded | str] = []

    def modules(self, session: Session) -> list[Loaded]:
        """Return the modules, but for ours, that of the session first; the user's are looked up anew."""
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
    """The names of all modules in one text, which is searched at once: most modules have nothing to tell.

    The text is made for each question, which shows whether a name has come or gone; only its small letters
    are kept. Values are taken from the modules as they are.
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
        """Return which of the names contain the pattern; None where they are no texts of one line."""
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
    return f"name '{name}' is not defined in {package}."


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
