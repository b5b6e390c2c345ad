"""The slots of a class and its place among other classes, read without running class or metaclass code."""

import dataclasses
import sys
import types

from .anatomy import MISSING, class_name, class_space, is_class, mro_of, subclasses_of
from .names import resolve
from .printing import preview
from .requests import Request, RequestError, optional_text, text
from .session import Reply, Session
from .signatures import annotation_text

_SHOWN = 100
_DEEPEST = 6
_EAGER_ANNOTATIONS = sys.version_info < (3, 14)
Slot = dict[str, object]


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
