"""Resolve a name: `name`, `name.attribute`, `module.name`, `module:attribute.path`; complete names.

Nothing is imported and no attribute hook runs. An unknown name is an error with similar names.
"""

import ast
import builtins
import difflib
import keyword
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .anatomy import (
    FUNCTIONS,
    MISSING,
    attribute,
    class_attribute,
    class_space,
    instance_space,
    is_class,
    is_module,
    module_of,
    module_space,
    mro_of,
    plain,
    raw_space,
)
from .places import STANDARD, USERS, is_ours, silently, tier_of
from .protocol import Request, RequestError, count, optional_text
from .protocol import text as text_of
from .session import Reply, Session
from .words import coarse

_modules = sys.modules
# Suggestions in an error, and names compared for them: difflib takes some 50 ms for this many.
_NEAR = 5
_CONSIDERED = 20_000
_close_matches = difflib.get_close_matches
# Names offered for one text; characters before the cursor that are read, and that one expression may have,
# since each place in it may be its beginning.
_OFFERED, _READ_BEFORE, _EXPRESSION = 100, 4000, 300
_prefix = re.compile(r"(?:[^\W\d]\w*)?\Z").search
_strings = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*\n""",
    re.DOTALL,
).sub
_import = re.compile(
    r"(?:^|[\n;])\s*(?:import\s+(?:[\w.]+(?:\s+as\s+\w+)?\s*,\s*)*|from\s+)([\w.]*)\Z"
).search
_from = re.compile(r"(?:^|[\n;])\s*from\s+([\w.]+)\s+import\s+\(?[\w\s,]*\Z").search
_PRIMARY = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant, ast.List, ast.Dict, ast.Set)
_DISPLAYS: dict[type, type] = {
    ast.List: list,
    ast.Dict: dict,
    ast.Set: set,
    ast.Tuple: tuple,
    ast.JoinedStr: str,
}
_listdir = os.listdir


def find_module(session: Session, name: str | None) -> object:
    """Return a loaded module, the current one for None."""
    module = session.module(name or session.current)
    if module is None:
        raise unknown_module(str(name))
    return module


def unknown_module(name: str) -> RequestError:
    """Return the error for a module that is not loaded, with similar ones."""
    known = [key for key in list(_modules) if type(key) is str] + sorted(sys.stdlib_module_names)
    hint = " It is part of the standard library: load it first." if name in sys.stdlib_module_names else ""
    message = f"No module named '{name[:100]}' is loaded.{hint}"
    return RequestError("ModuleNotFoundError", message, near(name, known))


class Found(NamedTuple):
    """The meaning of a name: its full name, the object, and its holder."""

    name: str
    value: object
    owner: object
    leaf: str


def resolve(session: Session, text: str, package: str | None) -> Found:
    """Return the meaning of a name. Raise NameError's record for an unknown one."""
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
    """Return the name of the thing in the module through which it was last reached."""
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
    """Return the full names under which modules define a name, the user's first. Imports do not count.

    The object `but_for` itself is left out.
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
    """Return the value that a module holds under a name, or MISSING."""
    space = raw_space(module)
    # A key of a user class might define its own comparison.
    return (
        space.get(name, MISSING)
        if all(type(key) is str for key in space)
        else plain(space).get(name, MISSING)
    )


def _only_one(session: Session, name: str) -> Found | None:
    """Find a name that exactly one user module defines."""
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


def complete(session: Session, request: Request) -> Reply:
    """Return the names that may continue the text before the cursor. No user code runs."""
    before = text_of(request, "text")[-_READ_BEFORE:]
    limit = count(request, "limit", _OFFERED, _OFFERED)
    module = find_module(session, optional_text(request, "package"))
    found = _prefix(before)
    prefix = found.group() if found else ""
    rows: dict[str, str] = {}
    for name, kind in _candidates(module, before, before[: len(before) - len(prefix)]):
        # Names with a leading underscore are offered only if one was typed.
        if name.startswith(prefix) and (prefix or name[:1] != "_"):
            rows.setdefault(name, kind)
    ordered = sorted(rows, key=lambda name: (name.startswith("_"), name.lower(), name))
    matches = [{"name": name, "kind": rows[name]} for name in ordered[:limit]]
    start = len(text_of(request, "text")) - len(prefix)
    data: Reply = {"start": start, "matches": matches, "total": len(rows)}
    return {"ok": True, "text": "\n".join(ordered[:limit]), "data": data}


def _candidates(module: object, before: str, head: str) -> Iterator[tuple[str, str]]:
    """Yield the names that may follow the head, with their kinds."""
    rest = _strings(lambda match: " " if match.group()[0] == "#" else "0" * len(match.group()), before)
    if any(mark in rest for mark in "\"'#"):
        return  # inside of a string or a comment
    imported, taken = _import(before), _from(before)
    if imported is not None:
        yield from _importable(imported.group(1).rpartition(".")[0])
    elif taken is not None:
        owner = _modules.get(taken.group(1))
        yield from _of_value(owner) if is_module(owner) else ()
        yield from _importable(taken.group(1))
    elif head.endswith("."):
        yield from _after_dot(module, head[:-1])
    else:
        yield from _kinds({**plain(vars(builtins)), **module_space(module)}, module)
        yield from ((word, "keyword") for word in [*keyword.kwlist, *keyword.softkwlist])


def _kinds(space: dict[str, object], owner: object) -> Iterator[tuple[str, str]]:
    return ((name, coarse(value, owner)) for name, value in space.items())


def _importable(package: str) -> Iterator[tuple[str, str]]:
    """Give the modules of a package, or those that an import without one finds; nothing is imported."""
    places: object = sys.path
    if package:
        owner = _modules.get(package)
        places = module_space(owner).get("__path__") if is_module(owner) else None
    else:
        yield from ((name, "module") for name in sys.stdlib_module_names)
    dotted = f"{package}." if package else ""
    for key in list(_modules):
        if type(key) is str and key.startswith(dotted) and not is_ours(key):
            yield key[len(dotted) :].partition(".")[0], "module"
    for place in places if type(places) is list else ():
        try:
            names = _listdir(place or ".") if type(place) is str else []
        except OSError:
            continue
        for name in names:
            leaf, _dot, ending = name.partition(".")
            if leaf.isidentifier() and (not ending or ending == "py" or ending.endswith("so")):
                yield leaf, "module"


def _after_dot(module: object, head: str) -> Iterator[tuple[str, str]]:
    """Yield the attributes of the longest expression at the end of the text."""
    head = head[-_EXPRESSION:]
    for place in range(len(head)):
        if place and (head[place - 1].isalnum() or head[place - 1] in "_."):
            continue
        tree = silently(head[place:], "<completion>", ast.PyCF_ONLY_AST)
        node = tree.body[0].value if tree and len(tree.body) == 1 and type(tree.body[0]) is ast.Expr else None
        if isinstance(node, (*_PRIMARY, ast.Tuple, ast.JoinedStr)):
            value, cls = _meant(module, node)
            if cls is not None:
                yield from _of_class(cls)
            elif value is not MISSING:
                yield from _of_value(value)
            return


def _meant(module: object, node: ast.expr) -> tuple[object, type | None]:  # noqa: PLR0911 - one for each kind
    """Return the value of an expression as far as it is stored, or else the class of its value."""
    nothing = (MISSING, None)
    if type(node) is ast.Constant:
        return node.value, None
    if type(node) in _DISPLAYS:
        return MISSING, _DISPLAYS[type(node)]
    if type(node) is ast.Name:
        found = module_space(module).get(node.id, MISSING)
        return (plain(vars(builtins)).get(node.id, MISSING) if found is MISSING else found), None
    if type(node) is ast.Attribute:
        owner, cls = _meant(module, node.value)
        return nothing if cls is not None or owner is MISSING else (_stored(owner, node.attr), None)
    if type(node) is ast.Call:
        called, _cls = _meant(module, node.func)
        return (MISSING, called) if is_class(called) else nothing  # type: ignore[return-value]  # seen to be one
    if type(node) is ast.Subscript and type(node.slice) is ast.Constant:
        owner, _cls = _meant(module, node.value)
        return _item(owner, node.slice.value), None
    return nothing


def _stored(owner: object, name: str) -> object:
    """Return a stored attribute. The result of a property is not known."""
    found = attribute(owner, name)
    is_computed = class_attribute(type(found), "__get__") is not MISSING and id(type(found)) not in FUNCTIONS
    return MISSING if is_computed else found


def _item(owner: object, key: object) -> object:
    if type(owner) is dict and type(key) in (str, int):
        return plain(owner).get(key, MISSING) if type(key) is str else MISSING
    if type(owner) in (list, tuple) and type(key) is int and key < len(owner):  # type: ignore[arg-type]  # sized
        return owner[key]  # type: ignore[index]  # one of the two
    return MISSING


def _of_class(cls: type) -> Iterator[tuple[str, str]]:
    for base in mro_of(cls):
        yield from _kinds(class_space(base), cls)


def _of_value(value: object) -> Iterator[tuple[str, str]]:
    if is_module(value):
        yield from _kinds(module_space(value), value)
        return
    if is_class(value):
        yield from _of_class(value)  # type: ignore[arg-type]  # seen to be one
    else:
        yield from _kinds(instance_space(value), MISSING)
    yield from _of_class(type(value))
