"""Describe names, search for them, list a module's symbols, and list what evaluations defined.

Everything here is safe: it looks at objects and never runs their code. Each operation returns text for people
and data for programs.
"""

import inspect
import sys

from .anatomy import class_name, is_class, is_module, module_space, own_doc
from .classes import slots_of
from .definitions import is_users, kind_of
from .names import find_module, resolve
from .printing import preview, shorten
from .requests import Request, RequestError, count, flag, optional_text, text
from .session import Reply, Session
from .signatures import arglist

_modules = sys.modules
_MATCHES = 50
_MOST = 1000
_DOC = 3000
_ABSENT = "no argument list is known"


def describe(session: Session, request: Request) -> Reply:
    """Say what a name stands for: kind, type, arguments, documentation, preview."""
    name, value = resolve(session, text(request, "symbol"), optional_text(request, "package"))
    doc = own_doc(value) or own_doc(type(value))
    data = {
        "name": name,
        "kind": kind_of(value),
        "type": class_name(type(value)),
        "arglist": arglist(value),
        "doc": shorten(inspect.cleandoc(doc), _DOC),
        "preview": preview(value, 500),
        "object": session.table.number(value),
    }
    lines = [f"{name} is a {data['kind']} of type {data['type']}."]
    if data["arglist"] is not None:
        lines.append(f"  Arguments: {data['arglist']}")
    lines.append(f"  Value: {data['preview']}")
    if is_class(value):
        fields = slots_of(value)  # type: ignore[arg-type]  # seen to be a class
        lines += ["  Slots: " + ", ".join(str(field["name"]) for field in fields)] if fields else []
    if own_doc(value) and doc.strip():
        lines.append("  Documentation:\n    " + str(data["doc"]).replace("\n", "\n    "))
    return {"ok": True, "text": "\n".join(lines), "data": data}


def show_arglist(session: Session, request: Request) -> Reply:
    """Return the argument list of a callable."""
    name, value = resolve(session, text(request, "function"), optional_text(request, "package"))
    arguments = arglist(value)
    if arguments is None and not is_callable(value):
        raise RequestError("TypeError", f"{name} is not callable: it is a {class_name(type(value))}.")
    leaf = name.rpartition(".")[2]
    written = f"{leaf}{arguments}" if arguments is not None else f"{leaf}: {_ABSENT}"
    return {"ok": True, "text": written, "data": {"name": name, "arglist": arguments}}


def is_callable(value: object) -> bool:
    """Say whether the value can be called; `callable` looks at the type only."""
    return callable(value)


def apropos(session: Session, request: Request) -> Reply:
    """Find the names that contain the pattern, in one module or in all that are loaded."""
    pattern = text(request, "pattern")
    limit = count(request, "limit", _MATCHES, _MOST)
    package = optional_text(request, "package")
    found: list[dict[str, str]] = []
    total = 0
    for module_name, space in _places(session, package):
        for name, value in space.items():
            if pattern.lower() in name.lower():
                total += 1
                if len(found) < limit:
                    found.append({"name": f"{module_name}.{name}", "kind": kind_of(value)})
    found.sort(key=lambda entry: (not entry["name"].startswith("__main__."), entry["name"]))
    lines = [f"{entry['name']}  [{entry['kind']}]" for entry in found] or [f"No names contain '{pattern}'."]
    if total > len(found):
        lines.append(f"… {total - len(found)} more; narrow the pattern or name a package")
    return {"ok": True, "text": "\n".join(lines), "data": {"matches": found, "total": total}}


def _places(session: Session, package: str | None) -> list[tuple[str, dict[str, object]]]:
    """Return the namespaces to search, the user's first."""
    if package is not None:
        return [(package, module_space(find_module(session, package)))]
    loaded = list(_modules.items())
    named = [(key, module) for key, module in loaded if type(key) is str and is_module(module)]
    named.sort(key=_nearness)
    return [(key, module_space(module)) for key, module in named]


def _nearness(entry: tuple[str, object]) -> tuple[bool, bool, bool, str]:
    name, module = entry
    return name != "__main__", not is_users(module), name.startswith("_"), name


def package_symbols(session: Session, request: Request) -> Reply:
    """List a module's names: those it exports, or all of them."""
    name = text(request, "package")
    space = module_space(find_module(session, name))
    shown = sorted(space if flag(request, "include_internal") else _exported(space))
    entries = [{"name": key, "kind": kind_of(space[key])} for key in shown[:_MOST]]
    lines = [f"{name}: {len(shown)} symbols", *(f"  {entry['name']}  [{entry['kind']}]" for entry in entries)]
    if len(shown) > _MOST:
        lines.append(f"  … {len(shown) - _MOST} more")
    data = {"package": name, "symbols": entries, "total": len(shown)}
    return {"ok": True, "text": "\n".join(lines), "data": data}


def _exported(space: dict[str, object]) -> list[str]:
    declared = space.get("__all__")
    if type(declared) is list or type(declared) is tuple:
        return [key for key in declared if type(key) is str and key in space]
    return [key for key, value in space.items() if not key.startswith("_") and not is_module(value)]


_PLURAL = {"function": "functions", "variable": "variables", "class": "classes", "import": "imports"}


def definitions(session: Session, request: Request) -> Reply:
    """List what the user's evaluations have defined and what is still there."""
    wanted = optional_text(request, "kind")
    data: dict[str, list[dict[str, str]]] = {plural: [] for plural in (*_PLURAL.values(), "macros")}
    for kind, entries in session.definitions.listing().items():
        data[_PLURAL[kind]] = [_entry(kind, name, value) for name, value in entries]
    if wanted is not None:
        plural = wanted if wanted in data else _PLURAL.get(wanted, "")
        if plural not in data:
            known = ", ".join(data)
            raise RequestError("INVALID-REQUEST", f"No kind '{wanted}'. Expected one of {known}.", list(data))
        data = {plural: data[plural]}
    return {"ok": True, "text": _listing(data), "data": data}


def _entry(kind: str, name: str, value: object) -> dict[str, str]:
    if kind in ("function", "class"):
        return {"name": name, "arglist": arglist(value) or "(…)"}
    return {"name": name, "value": preview(value, 100)}


def _listing(data: dict[str, list[dict[str, str]]]) -> str:
    lines = []
    for plural, entries in data.items():
        lines += [f"{plural}:"] if entries else []
        lines += [f"  {entry['name']}{entry.get('arglist') or ' = ' + entry['value']}" for entry in entries]
    return "\n".join(lines) or "Nothing has been defined."
