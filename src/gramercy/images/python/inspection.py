"""Show what is inside an object: items, fields, slots, each with a number of its own.

Children are found without running code of the user's.
"""

from collections import deque
from itertools import islice
from typing import Any

from .anatomy import class_name, class_space, instance_space, is_class, is_module, kinds, module_space
from .printing import container_base, preview
from .requests import Request, RequestError
from .session import Reply, Session
from .table import Table

_SHOWN = 100
_SEQUENCES = kinds(list, tuple, deque)
Child = tuple[str, object]


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
