"""The functions that call a function or use a variable, read from the code objects of loaded functions.

A reference is exact when the global name leads to the very object, by name when only an attribute's name is
the same. Standard library functions are not searched. No code runs.
"""

import builtins
import dis
import sys
import types
from collections.abc import Iterator

from .anatomy import (
    ATOMS,
    FUNCTIONS,
    MISSING,
    WRAPPERS,
    attribute,
    class_name,
    class_space,
    is_class,
    is_module,
    kinds,
    module_of,
    module_space,
    plain,
    qualified_name,
)
from .definitions import is_users
from .names import resolve
from .protocol import Request, RequestError, optional_text, text
from .session import Reply, Session

_modules = sys.modules
# Uses in one answer.
_SHOWN = 200
_WRAPPED = WRAPPERS | kinds(property)
_GLOBAL = frozenset(("LOAD_GLOBAL", "LOAD_NAME"))
_STORE = frozenset(("STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL", "DELETE_NAME"))
_ATTRIBUTE = frozenset(("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR"))
Found = dict[str, object]
Space = dict[str, object]


def who_calls(session: Session, request: Request) -> Reply:
    """List the functions whose code leads to this one."""
    name, value = resolve(session, text(request, "function"), optional_text(request, "package"))
    if not callable(value) and id(type(value)) not in _WRAPPED:
        raise RequestError("TypeError", f"{name} is not callable: it is a {class_name(type(value))}.")
    return _report(name, "called by", _search(session, name, value))


def who_references(session: Session, request: Request) -> Reply:
    """List the functions that read or set this variable."""
    name, value = resolve(session, text(request, "variable"), optional_text(request, "package"))
    return _report(name, "referenced by", _search(session, name, value))


def _report(name: str, verb: str, found: list[Found]) -> Reply:
    found.sort(key=lambda entry: (entry["match"] != "exact", entry["name"]))
    lines = [f"{name} is {verb}:"] if found else [f"{name} is not {verb} any loaded function."]
    lines += map(_line_of, found[:_SHOWN])
    if len(found) > _SHOWN:
        lines.append(f"  … {len(found) - _SHOWN} more")
    data = {"name": name, "found": found[:_SHOWN], "total": len(found)}
    return {"ok": True, "text": "\n".join(lines), "data": data}


def _line_of(entry: Found) -> str:
    return f"  {entry['name']} at {entry['file']}:{entry['line']}  [{entry['match']}, {entry['how']}]"


def _search(session: Session, name: str, target: object) -> list[Found]:
    owner, _dot, leaf = name.rpartition(".")
    wanted = {leaf}
    if type(target) is types.FunctionType:
        wanted.add(target.__name__)
    found = []
    spaces: dict[int, Space] = {}
    for label, function in functions(session):
        space = spaces.setdefault(id(function.__globals__), {}) or plain(function.__globals__)
        spaces[id(function.__globals__)] = space
        for code in _codes(function.__code__):
            if not wanted.isdisjoint(code.co_names) or _has_alias(code, space, target):
                hit = _examine(code, space, target, owner, leaf)
                if hit is not None:
                    found.append({"name": label, "file": code.co_filename, **hit})
    return found


def _has_alias(code: types.CodeType, space: Space, target: object) -> bool:
    """Say whether a global of another name leads to the target."""
    if id(type(target)) not in FUNCTIONS and not is_class(target):
        return False
    return any(space.get(name, MISSING) is target for name in code.co_names)


def _examine(code: types.CodeType, space: Space, target: object, owner: str, leaf: str) -> Found | None:
    """Follow global names and attributes through the code; an exact hit wins over one by name."""
    by_name: Found | None = None
    holder: object = MISSING
    line = code.co_firstlineno
    home = space.get("__name__")
    is_home = type(home) is str and home == owner
    for step in dis.get_instructions(code):
        line = _line(step) or line
        how = "sets" if step.opname in _STORE or step.opname == "STORE_ATTR" else "reads"
        if step.opname in _GLOBAL or step.opname in _STORE:
            holder = space.get(step.argval, vars(builtins).get(step.argval, MISSING))
            same_place = is_home and step.argval == leaf
            if same_place or (holder is target and not _is_common(target)):
                return {"line": line, "match": "exact", "how": how}
        elif step.opname in _ATTRIBUTE:
            known = holder is not MISSING and (is_module(holder) or is_class(holder))
            holder = attribute(holder, step.argval) if known else MISSING
            if holder is target and holder is not MISSING and not _is_common(target):
                return {"line": line, "match": "exact", "how": how}
            if step.argval == leaf and not known:
                by_name = by_name or {"line": line, "match": "by-name", "how": how}
        elif step.opname not in ("PUSH_NULL", "CACHE", "PRECALL", "EXTENDED_ARG"):
            holder = MISSING
    return by_name


def _line(step: dis.Instruction) -> int | None:
    return step.positions.lineno if step.positions is not None else None


def _is_common(value: object) -> bool:
    """Say whether identity proves nothing, as for small numbers and None."""
    return id(type(value)) in ATOMS or type(value) is tuple


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from _codes(constant)


def functions(session: Session) -> Iterator[tuple[str, types.FunctionType]]:
    """Yield every function of the modules outside the standard library, each once."""
    seen: set[int] = set()
    standard = sys.stdlib_module_names
    for name, module in [("__main__", session.main), *list(_modules.items())]:
        if type(name) is not str or not is_module(module):
            continue
        if is_users(module) or name.partition(".")[0] not in standard:
            yield from _in_space(name, name, module_space(module), seen)


def _in_space(
    module: str, label: str, space: dict[str, object], seen: set[int]
) -> Iterator[tuple[str, types.FunctionType]]:
    for name, value in space.items():
        for function in _unwrap(value):
            if id(function) not in seen and module_of(function) == module:
                seen.add(id(function))
                yield f"{label}.{name}", function
        if is_class(value) and id(value) not in seen and _is_home(value, module):
            seen.add(id(value))
            yield from _in_space(module, f"{module}.{qualified_name(value)}", class_space(value), seen)  # type: ignore[arg-type]  # a class


def _is_home(cls: object, module: str) -> bool:
    return module_of(cls) == module


def _unwrap(value: object) -> list[types.FunctionType]:
    if id(type(value)) in WRAPPERS:
        value = value.__func__  # type: ignore[attr-defined]  # both have it
    if type(value) is property:
        parts = (value.fget, value.fset, value.fdel)
        return [part for part in parts if type(part) is types.FunctionType]
    inner = value.__dict__.get("__wrapped__") if type(value) is types.FunctionType else None
    return [part for part in (value, inner) if type(part) is types.FunctionType]
