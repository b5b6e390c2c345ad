"""The fields of a class, where each comes from, and the classes above and below it.

Fields are read from annotations, `__slots__`, dataclass and tuple fields, properties, and from the code of
the methods: their assignments to `self`. No user code runs.
"""

import dataclasses
import functools
import types
from collections.abc import Iterator
from typing import Any

from .anatomy import (
    MISSING,
    WRAPPERS,
    class_attribute,
    class_name,
    class_space,
    code_file,
    function_name,
    instance_space,
    is_class,
    is_heap,
    is_kind,
    kinds,
    module_of,
    mro_of,
    plain,
    subclasses_of,
)
from .codes import stores_in_self
from .names import resolve
from .places import USERS, is_known, is_ours, place_of, shown_file, tier_of, written
from .printing import preview
from .protocol import Request, RequestError, optional_text, text
from .session import Reply, Session
from .signatures import Signature, annotation_text, annotations_of, signature_of
from .words import Page, class_word, folded, with_article

# Subclasses listed by name, the user's and others; levels of them; subclasses visited.
_SHOWN, _OTHERS = 100, 25
_DEEPEST = 8
# Slots in the data of an answer.
_LISTED = 1000
_LOOKED_AT = 20_000
_HIDDEN = kinds(
    types.FunctionType, types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType
)
MACHINERY = frozenset(
    (
        *(
            "_abc_impl",
            "_fields",
            "_field_defaults",
            "_is_protocol",
            "_is_runtime_protocol",
            "_member_names_",
        ),
        *(
            "_member_map_",
            "_value2member_map_",
            "_member_type_",
            "_new_member_",
            "_use_args_",
            "_generate_next_value_",
        ),
        *(
            "_unhashable_values_",
            "_value_repr_",
            "_hashable_values_",
            "_unhashable_values_map_",
            "_sort_order_",
        ),
        *("_boundary_", "_flag_mask_", "_all_bits_", "_inverted_", "_singles_mask_", "_use_args_"),
    )
)
Slot = dict[str, object]
_getter = vars(property)["fget"].__get__


def class_slots(session: Session, request: Request) -> Reply:
    """List the fields of instances and of the class: its own first, then those of each base."""
    name, cls = _class(session, request)
    fields = slots_of(cls)
    page = Page()
    noun = "member" if class_word(cls) == "enum" else "slot"
    page.add(f"{name} has {len(fields)} {noun}{'' if len(fields) == 1 else 's'}.")
    by_class: dict[object, list[Slot]] = {}
    for field in fields:
        by_class.setdefault(field["class"], []).append(field)
    for base in mro_of(cls):
        owner = class_name(base)
        rows = by_class.pop(owner, [])
        place = place_of(base) if rows else None
        if rows and (base is not cls or place is not None):
            page.add(f"From {owner}{' at ' + written(place) if place is not None else ''}:")
        for field in rows:
            page.add(_line(field, shown_file(place[0]) if place is not None else ""))
    shown = page.end("slots: class_slots of a base shows its own")
    return {
        "ok": True,
        "text": shown,
        "data": {"class": name, "slots": fields[:_LISTED], "total": len(fields)},
    }


def _line(field: Slot, file: str) -> str:
    line = f"  {field['name']}" + (f": {field['type']}" if field["type"] else "")
    line += f" = {field['default']}" if field["default"] is not None else ""
    place = str(field["place"])
    if file and place.startswith(file + ":"):
        place = f"line {place.rpartition(':')[2]}"
    return f"{line}  [{field['source']}{', ' + place if place else ''}]"


def _class(session: Session, request: Request) -> tuple[str, type]:
    found = resolve(session, text(request, "class"), optional_text(request, "package"))
    value = found.value
    if not is_class(value):
        kind = class_name(type(value))
        hint = f" Its class is {kind}." if kind not in ("function", "module") else ""
        raise RequestError(
            "TypeError",
            f"{found.name} is not a class: it is {with_article(kind)}.{hint}",
            [kind] if hint else [],
        )
    return found.name, value  # type: ignore[return-value]  # seen to be one


def slots_of(cls: type) -> list[Slot]:
    """Return the fields of the class and its bases, the most general class first."""
    found: dict[str, Slot] = {}
    for base in reversed(mro_of(cls)):
        if base is not object:
            for name, slot in own_slots(base).items():
                before = found.pop(name, None)
                found[name] = (
                    before if before is not None and _only_sets(slot) and not _only_sets(before) else slot
                )
    return list(found.values())


def _only_sets(slot: Slot) -> bool:
    """Return whether a slot is known by an assignment alone. A declaration in a base says more."""
    return str(slot["source"]).startswith("set")


def own_slots(cls: type) -> dict[str, Slot]:
    """Return the fields that the class itself declares or stores."""
    space = class_space(cls)
    owner = class_name(cls)
    notes = annotations_of(cls)
    found: dict[str, Slot] = {}
    for maker in (_members, _fields, _declared, _computed):
        for name, slot in maker(cls, space, notes):
            if name not in found:
                found[name] = {"name": name, "class": owner, "place": "", "type": "", "default": None, **slot}
    for name, slot in _stored(cls, space):
        known = found.get(name)
        if known is None:
            found[name] = {"name": name, "class": owner, **slot}
        elif not known["place"] and known["source"] in ("annotation", "__slots__"):
            known["place"] = slot["place"]
            known["default"] = known["default"] if known["default"] is not None else slot["default"]
    return found


Space = dict[str, object]
Notes = dict[str, str]
Slots = Iterator[tuple[str, Slot]]


def _members(cls: type, space: Space, _notes: Notes) -> Slots:
    """Yield the members of an enum. An alias comes with its target."""
    if class_word(cls) != "enum":
        return
    for name, member in plain(space.get("_member_map_")).items():
        value = instance_space(member)
        canonical = value.get("_name_")
        shown = preview(value.get("_value_"), 100)
        if type(canonical) is str and canonical != name:
            shown += f", an alias of {canonical}"
        yield name, {"source": "member", "default": shown}


def _fields(cls: type, space: Space, notes: Notes) -> Slots:
    """Give the fields of dataclasses, named tuples and typed dictionaries."""
    fields = space.get("__dataclass_fields__")
    for name, field in plain(fields).items():
        if type(field) is dataclasses.Field and _is_own(cls, name, field):
            note = notes.get(name) or annotation_text(field.type)
            yield name, {"source": _field_words(field), "type": note, "default": _field_default(field)}
    names = space.get("_fields")
    if type(names) is tuple and any(base is tuple for base in mro_of(cls)):
        defaults = plain(space.get("_field_defaults"))
        for name in names:
            if type(name) is str:
                default = preview(defaults[name], 100) if name in defaults else None
                yield name, {"source": "field", "type": notes.get(name, ""), "default": default}
    if class_word(cls) == "typed dict":
        required, optional = (space.get(f"__{word}_keys__") for word in ("required", "optional"))
        keys = sorted(key for part in (required, optional) if type(part) is frozenset for key in part)
        for name in dict.fromkeys([*notes, *keys]):
            needed = type(required) is frozenset and name in required
            yield name, {"source": "key" if needed else "key, not required", "type": notes.get(name, "")}


def _is_own(cls: type, name: str, field: object) -> bool:
    """Return whether a field is declared in the class itself: a subclass also has those of its bases."""
    above = (plain(class_space(base).get("__dataclass_fields__")).get(name) for base in mro_of(cls)[1:])
    return all(each is not field for each in above)


def _field_words(field: "dataclasses.Field[object]") -> str:
    """Name the unusual properties of a field."""
    words = ["field"]
    if (field._field_type is not None) and field._field_type is not dataclasses._FIELD:  # type: ignore[attr-defined]  # noqa: SLF001 - no public name
        words = ["class variable" if field._field_type is dataclasses._FIELD_CLASSVAR else "init only"]  # type: ignore[attr-defined]  # noqa: SLF001
    words += [f"no {name}" for name in ("init", "repr", "compare") if getattr(field, name) is False]
    if field.kw_only is True:
        words.append("keyword only")
    return ", ".join(words)


def _field_default(field: "dataclasses.Field[object]") -> str | None:
    if field.default is not dataclasses.MISSING:
        return preview(field.default, 100)
    factory = field.default_factory
    if factory is dataclasses.MISSING:
        return None
    made_by: Any = factory
    return f"{class_name(made_by) if is_class(factory) else preview(factory, 60)}()"


def _declared(cls: type, space: Space, notes: Notes) -> Slots:
    """Give annotations, `__slots__` and what is assigned in the body of the class."""
    for name, note in notes.items():
        value = space.get(name, MISSING)
        is_slot = type(value) is types.MemberDescriptorType
        default = None if value is MISSING or is_slot else preview(value, 100)
        yield name, {"source": "__slots__" if is_slot else "annotation", "type": note, "default": default}
    for name, value in space.items():
        if type(value) is types.MemberDescriptorType and not _is_special(name):
            yield name, {"source": "__slots__" if is_heap(cls) else "built-in attribute"}
        elif type(value) is types.GetSetDescriptorType and not _is_special(name):
            yield name, {"source": "built-in attribute"}


def _computed(_cls: type, space: Space, _notes: Notes) -> Slots:
    """Give properties, cached properties and plain class attributes."""
    for name, value in space.items():
        if is_kind(value, property):
            getter = _getter(value)
            found = signature_of(getter) if type(getter) is types.FunctionType else None
            note = found.returned if type(found) is Signature else ""
            settable = vars(property)["fset"].__get__(value) is not None
            yield (
                name,
                {
                    "source": "property, can be set" if settable else "property",
                    "type": note,
                    "place": written(place_of(getter)),
                },
            )
        elif is_kind(value, functools.cached_property):
            func = instance_space(value).get("func")
            found = signature_of(func)
            note = found.returned if type(found) is Signature else ""
            yield name, {"source": "cached property", "type": note, "place": written(place_of(func))}
        elif not _is_special(name) and name not in MACHINERY and is_data(value):
            yield name, {"source": "class attribute", "default": preview(value, 100)}


def is_data(value: object) -> bool:
    """Return whether a value in a class is data, and not a method, class or descriptor."""
    if id(type(value)) in _HIDDEN or id(type(value)) in WRAPPERS or is_class(value):
        return False
    return class_attribute(type(value), "__get__") is MISSING


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _stored(cls: type, space: Space) -> Slots:
    """Yield the attributes that methods store in `self`: those of `__init__` first, each once."""
    methods = sorted(
        (value for value in space.values() if type(value) is types.FunctionType),
        key=lambda each: (
            function_name(each) not in ("__init__", "__new__", "__post_init__"),
            each.__code__.co_firstlineno,
        ),
    )
    home = module_of(cls)
    for method in methods:
        file = code_file(method.__code__)
        if module_of(method) == home and is_known(file):
            for store in stores_in_self(method.__code__):
                place = f"{shown_file(file)}:{store.line}"
                name = function_name(method)
                where = "set" if name == "__init__" else f"set in {name}"
                yield (
                    store.name,
                    {"source": where, "type": store.note, "default": store.value or None, "place": place},
                )


def class_hierarchy(session: Session, request: Request) -> Reply:
    """Show the bases of a class and its subclasses."""
    name, cls = _class(session, request)
    above = [class_name(base) for base in mro_of(cls)]
    below = Below(cls)
    page = Page()
    metaclass = type(cls)
    head = f"{name}, {with_article(class_word(cls))}"
    page.add(head + (f" with metaclass {class_name(metaclass)}" if metaclass is not type else ""))
    page.add("Superclasses, in the order of look-up:" if len(above) > 1 else "Superclasses: (none)")
    for base in above[1:]:
        page.add(f"  {base}")
    page.add(f"Subclasses: {below.total}" if below.total else "Subclasses: (none)")
    for entry in below.found:
        page.add("  " * int(str(entry["depth"])) + str(entry["name"]))
    if below.counts:
        left = sum(below.counts.values())
        page.add(
            f"  … {left} more ({folded(below.counts)}): class_hierarchy of one of these shows those below it"
        )
    data = {
        "class": name,
        "superclasses": above[1:],
        "mro": above,
        "subclasses": below.found,
        "total": below.total,
    }
    return {"ok": True, "text": page.end("lines"), "data": data}


class Below:
    """The subclasses of a class, the user's first. Those that are not listed are counted by module."""

    def __init__(self, cls: type) -> None:
        self.found: list[dict[str, object]] = []
        self.counts: dict[str, int] = {}
        self.total = 0
        self._seen = {id(cls)}
        self._others = 0
        self._walk(cls, 1)

    def _walk(self, cls: type, depth: int) -> None:
        for sub in self._direct(cls):
            if id(sub) in self._seen or self.total >= _LOOKED_AT:
                continue
            self._seen.add(id(sub))
            self.total += 1
            self._tell(sub, depth)
            if depth < _DEEPEST:
                self._walk(sub, depth + 1)

    def _direct(self, cls: type) -> list[type]:
        """Return the classes one level below, the user's first, without those of this program."""
        named = [(module_of(sub), sub) for sub in subclasses_of(cls)]
        keyed = [(tier_of(home), class_name(sub), sub) for home, sub in named if not is_ours(home)]
        return [sub for _tier, _name, sub in sorted(keyed, key=lambda entry: entry[:2])]

    def _tell(self, sub: type, depth: int) -> None:
        home = module_of(sub)
        is_users = tier_of(home) == USERS
        has_room = len(self.found) < _SHOWN and (is_users or self._others < _OTHERS)
        if has_room:
            self._others += not is_users
            self.found.append({"name": class_name(sub), "depth": depth})
        else:
            top = home.partition(".")[0]
            self.counts[top] = self.counts.get(top, 0) + 1
