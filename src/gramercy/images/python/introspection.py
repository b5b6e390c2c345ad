"""Describe names, list symbols and definitions, show classes, look into objects by number.

Everything here is safe: it reads objects and never runs their code. Each operation returns text for people
and data for programs.
"""

import dataclasses
import inspect
import sys
import types
from collections import deque
from itertools import islice
from typing import Any

from .anatomy import (
    MISSING,
    class_name,
    class_space,
    instance_space,
    is_class,
    is_module,
    kinds,
    module_space,
    mro_of,
    own_doc,
    subclasses_of,
)
from .definitions import is_users, kind_of
from .names import find_module, resolve
from .objects import Table
from .printing import annotation_text, arglist, container_base, preview, shorten
from .protocol import Request, RequestError, count, flag, optional_text, text
from .session import Reply, Session

_modules = sys.modules
# What one answer shows, so that it fits the reader's context: matches unless more are asked for, matches or
# symbols at most, and characters of documentation.
_MATCHES = 50
_MOST = 1000
_DOC = 3000
_ABSENT = "no argument list is known"
_PLURAL = {"function": "functions", "variable": "variables", "class": "classes", "import": "imports"}
# Levels of subclasses, parts of an object, subclasses in all.
_DEEPEST = 6
_EAGER_ANNOTATIONS = sys.version_info < (3, 14)
Slot = dict[str, object]
_SHOWN = 100
_SEQUENCES = kinds(list, tuple, deque)
Child = tuple[str, object]


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


def class_slots(session: Session, request: Request) -> Reply:
    """List the fields that the class and its bases declare."""
    name, cls = _class(session, request)
    fields = slots_of(cls)
    lines = [f"{name} has {len(fields)} slots."]
    for field in fields:
        line = f"  {field['name']}" + (f": {field['type']}" if field["type"] else "")
        line += f" = {field['default']}" if field["default"] is not None else ""
        lines.append(f"{line}  [{field['source']}, from {field['class']}]")
    return {"ok": True, "text": "\n".join(lines), "data": {"class": name, "slots": fields}}


def _class(session: Session, request: Request) -> tuple[str, type]:
    name, value = resolve(session, text(request, "class"), optional_text(request, "package"))
    if not is_class(value):
        raise RequestError("TypeError", f"{name} is not a class: it is a {class_name(type(value))}.")
    return name, value  # type: ignore[return-value]  # seen to be one


def slots_of(cls: type) -> list[Slot]:
    """Return annotations, `__slots__`, dataclass fields and properties, most general class first."""
    found: dict[str, Slot] = {}
    for base in reversed(mro_of(cls)):
        if base is not object:
            found.update(_own(base))
    return list(found.values())


def _own(cls: type) -> dict[str, Slot]:
    space = class_space(cls)
    owner = class_name(cls)
    found: dict[str, Slot] = {}
    fields = space.get("__dataclass_fields__")
    notes = annotations_of(space)
    for name, note in notes.items():
        found[name] = _slot(name, owner, "annotation", annotation_text(note), space.get(name, MISSING))
    for name, value in space.items():
        if type(value) is types.MemberDescriptorType and not name.startswith("__"):
            known = annotation_text(notes[name]) if name in notes else ""
            found[name] = _slot(name, owner, "__slots__", known, MISSING)
        elif type(value) is property:
            found[name] = _slot(name, owner, "property", "", MISSING)
    if type(fields) is dict:
        for name, field in fields.items():
            if type(name) is str and type(field) is dataclasses.Field and name in notes:
                found[name] = _slot(name, owner, "field", annotation_text(notes[name]), _default(field))
    return found


def _default(field: "dataclasses.Field[object]") -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    return MISSING


def _slot(name: str, owner: str, source: str, note: str, default: object) -> Slot:
    shown = None
    if default is not MISSING and type(default) is not types.MemberDescriptorType:
        shown = preview(default, 100)
    return {"name": name, "class": owner, "source": source, "type": note, "default": shown}


def annotations_of(space: dict[str, object]) -> dict[str, object]:
    """Return the annotations a class holds; from 3.14 on only those that have been computed already."""
    notes = space.get("__annotations__" if _EAGER_ANNOTATIONS else "__annotations_cache__")
    return {key: note for key, note in notes.items() if type(key) is str} if type(notes) is dict else {}


def class_hierarchy(session: Session, request: Request) -> Reply:
    """Show what the class is built upon and what is built upon it."""
    name, cls = _class(session, request)
    above = [class_name(base) for base in mro_of(cls)]
    below: list[dict[str, object]] = []
    _below(cls, 1, below, {id(cls)})
    lines = [f"{name}", "Superclasses:", *(f"  {base}" for base in above[1:]), "Subclasses:"]
    lines += ["  " * int(str(entry["depth"])) + str(entry["name"]) for entry in below] or ["  (none)"]
    data = {"class": name, "superclasses": above[1:], "mro": above, "subclasses": below}
    return {"ok": True, "text": "\n".join(lines), "data": data}


def _below(cls: type, depth: int, found: list[dict[str, object]], seen: set[int]) -> None:
    for sub in sorted(subclasses_of(cls), key=class_name):
        if len(found) >= _SHOWN or depth > _DEEPEST:
            return
        if id(sub) not in seen:
            seen.add(id(sub))
            found.append({"name": class_name(sub), "depth": depth})
            _below(sub, depth + 1, found, seen)


def children(thing: object) -> tuple[list[Child], int]:
    """Return the first children with their labels, and how many there are."""
    found: list[Child] = []
    total = 0
    base = container_base(thing)
    if base is not None and base is not str and base is not bytes:
        found, total = _items(thing, base)
    fields = _fields(thing)
    total += len(fields)
    found.extend(islice(fields.items(), max(_SHOWN - len(found), 0)))
    return found, total


def _items(thing: Any, base: Any) -> tuple[list[Child], int]:
    total = base.__len__(thing)
    if base is dict:
        pairs = islice(dict.items(thing), _SHOWN)
        return [(f"[{preview(key, 80)}]", value) for key, value in pairs], total
    if id(base) in _SEQUENCES:
        members = list(islice(base.__iter__(thing), _SHOWN))
        return [(f"[{index}]", value) for index, value in enumerate(members)], total
    return [("{}", value) for value in islice(base.__iter__(thing), _SHOWN)], total


def _fields(thing: object) -> dict[str, object]:
    if is_module(thing):
        return module_space(thing)
    if is_class(thing):
        return class_space(thing)  # type: ignore[arg-type]  # seen to be one
    return {f".{name}": value for name, value in instance_space(thing).items()}


def walk(thing: object, path: object) -> object:
    """Follow a path of child positions or labels; raise LookupError where it leads nowhere."""
    for step in path if type(path) is list else [] if path is None else [path]:
        found, _total = children(thing)
        labels = dict(reversed(found))
        if type(step) is int and 0 <= step < len(found):
            thing = found[step][1]
        elif type(step) is str and (step in labels or "." + step in labels):
            thing = labels[step] if step in labels else labels["." + step]
        else:
            known = ", ".join(list(labels)[:20]) or "none"
            raise LookupError(f"No child {step!r} in {preview(thing, 60)}: it has {known}.")
    return thing


def _row(label: str, child: object, table: Table) -> dict[str, object]:
    kind = class_name(type(child))
    return {"label": label, "value": preview(child, 120), "type": kind, "object": table.number(child)}


def look(thing: object, table: Table) -> tuple[str, dict[str, object]]:
    """Return the text and the data of one object: its type, a preview, its children with numbers."""
    found, total = children(thing)
    rows = [_row(label, child, table) for label, child in found]
    data: dict[str, object] = {
        "object": table.number(thing),
        "type": class_name(type(thing)),
        "preview": preview(thing, 400),
        "children": rows,
        "total": total,
    }
    lines = [f"{data['type']}: {data['preview']}"]
    for row in rows:
        number = f"  #{row['object']}" if row["object"] else ""
        lines.append(f"  {row['label']} = {row['value']}{number}")
    if total > len(rows):
        lines.append(f"  … {total - len(rows)} more")
    return "\n".join(lines), data


def inspect_object(session: Session, request: Request) -> Reply:
    """Look into an object by its number, or into one of its children."""
    try:
        thing = walk(session.table.find(request.get("object")), request.get("path"))
    except KeyError as error:
        raise RequestError("NO-SUCH-OBJECT", str(error.args[0])) from None
    except LookupError as error:
        raise RequestError("NO-SUCH-CHILD", str(error)) from None
    shown, data = look(thing, session.table)
    return {"ok": True, "text": shown, "data": data}
