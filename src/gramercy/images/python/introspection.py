"""Describe a name and its call signature.

Everything here is safe: it reads objects and never runs their code. Each operation returns text for people
and data for programs.
"""

import types
from itertools import islice

from .anatomy import (
    FUNCTIONS,
    class_name,
    class_space,
    function_name,
    function_path,
    instance_space,
    is_class,
    is_kind,
    is_module,
    kinds,
    module_of,
    module_space,
    mro_of,
    own_doc,
    subclasses_of,
)
from .classes import MACHINERY, is_data, own_slots
from .listings import exported_names, submodules
from .names import Found, holders, resolve
from .places import USERS, file_of, is_ours, place_of, shown_file, tier_of, written
from .printing import container_base, preview, shorten
from .protocol import Request, RequestError, optional_text, text
from .session import Reply, Session
from .shapes import view_of
from .signatures import arglist, overloads_of
from .words import Page, abstract_methods, coarse, unwrapped, what_is, with_article

# Characters of a first paragraph, of a signature in a list of members, and of such a list.
_PARAGRAPH = 1500
_MEMBER = 120
_LIST = 2500
# Names of inherited members told for each base.
_INHERITED = 6
# Lines of documentation that give the ways to call a built-in function.
_USAGES = 6
_TOLD = frozenset(("__init__", "__call__", "__enter__", "__aenter__", "__iter__", "__getitem__"))
_ABSENT = "no argument list is known"


def describe(session: Session, request: Request) -> Reply:
    """Say what a name stands for: kind, place, arguments, documentation, members or value."""
    found = resolve(session, text(request, "symbol"), optional_text(request, "package"))
    value, owner = found.value, found.owner
    word = what_is(value, owner)
    doc, source = documentation(value, owner, found.leaf)
    data = {
        "name": found.name,
        "kind": coarse(value, owner),
        "what": word,
        "type": class_name(type(value)),
        "arglist": arglist(value),
        "doc": shorten(doc, 2 * _PARAGRAPH),
        "place": written(place_of(unwrapped(value))),
        "preview": preview(value, 500),
        "object": session.table.number(value),
    }
    page = Page()
    page.add(_headline(found, word, str(data["place"])))
    if data["arglist"] is not None and not is_module(value):
        page.add(f"{found.leaf}{data['arglist']}")
    for overload in overloads_of(value)[:10]:
        page.add(f"overload {found.leaf}{overload}")
    for line in _details(found, word):
        page.add(line)
    _add_doc(page, found.name, doc, source)
    for line in [*_members(value, found.name), *_elsewhere(session, found)]:
        page.add(line)
    return {"ok": True, "text": page.end("lines"), "data": data}


def _headline(found: Found, word: str, place: str) -> str:
    if word in ("variable", "attribute") or (word == "descriptor" and not is_class(found.value)):
        return f"{found.name} is {with_article(word)} of type {class_name(type(found.value))}."
    where = f" at {place}" if place and not is_module(found.value) else ""
    return f"{found.name} is {with_article(word)}{home_of(found)}{where}."


def home_of(found: Found) -> str:
    """Describe from where a name was imported or inherited."""
    value = found.value
    if is_class(found.owner):
        for base in mro_of(found.owner):  # type: ignore[arg-type]  # seen to be a class
            if found.leaf in class_space(base):
                return "" if base is found.owner else f" inherited from {class_name(base)}"
    home = module_of(value)
    real = f"{home}.{_path(value)}"
    if not home or is_module(value) or real == found.name or home == "builtins":
        return ""
    return f" defined as {real}"


def _path(value: object) -> str:
    if is_class(value):
        return class_name(value).removeprefix(module_of(value) + ".")  # type: ignore[arg-type]  # a class
    return function_path(value) if id(type(value)) in FUNCTIONS else ""


def _details(found: Found, word: str) -> list[str]:
    """Return the lines that only this kind of thing has."""
    value = found.value
    if is_module(value):
        return _of_module(value)
    if is_class(value):
        return _of_class(value)  # type: ignore[arg-type]  # seen to be one
    inner = unwrapped(value)
    lines = []
    if inner is not value and "method" not in word and "property" not in word:
        name = f"{module_of(inner)}.{_path(inner)}" if module_of(inner) else preview(inner, 80)
        lines.append(f"Wraps: {name}{arglist(inner) or ''}" if word == "partial" else f"Wraps: {name}")
    if coarse(value, found.owner) in ("variable", "attribute"):
        lines += _of_value(value)
    return lines


def _of_value(value: object) -> list[str]:
    lines = [f"Value: {preview(value, 500)}"]
    fields = instance_space(value) if not is_kind(value, type) and view_of(value) is None else {}
    if fields and container_base(value) is None:
        shown = [f"{name}={preview(each, 60)}" for name, each in islice(fields.items(), 20)]
        more = f", … {len(fields) - 20} more" if len(fields) > len(shown) else ""
        lines.append(f"Attributes: {', '.join(shown)}{more}")
    place = written(place_of(type(value)))
    if place:
        lines.append(f"Its class is at {place}")
    return lines


def _of_module(module: object) -> list[str]:
    space = module_space(module)
    lines = []
    file = file_of(module)
    spec = space.get("__spec__")
    if file:
        lines.append(f"File: {shown_file(file)}")
    elif spec is not None and instance_space(spec).get("origin") in ("built-in", "frozen"):
        lines.append(f"File: none, it is {instance_space(spec)['origin']}")
    version = space.get("__version__")
    if type(version) is str:
        lines.append(f"Version: {version[:100]}")
    return lines


def _of_class(cls: type) -> list[str]:
    above = [class_name(base) for base in mro_of(cls)[1:] if base is not object]
    lines = [f"Bases: {', '.join(above)}"] if above else []
    if type(cls) is not type:
        lines.append(f"Metaclass: {class_name(type(cls))}")
    abstract = abstract_methods(cls)
    if abstract:
        lines.append(f"Abstract: {', '.join(abstract)}")
    return lines


def documentation(value: object, owner: object, leaf: str) -> tuple[str, str]:
    """Return the documentation of a thing, and the class that it is inherited from, if so."""
    doc = own_doc(value) or own_doc(unwrapped(value))
    if doc.strip() or is_module(value):
        return cleaned(doc), ""
    if is_class(value):
        for base in mro_of(value)[1:]:  # type: ignore[arg-type]  # seen to be one
            if base is not object and own_doc(base).strip():
                return cleaned(own_doc(base)), class_name(base)
    if is_class(owner):
        inner = unwrapped(value)
        # A method may have a name that is not its own, as in `__iter__ = keys`.
        names = (leaf, function_name(inner)) if type(inner) is types.FunctionType else (leaf,)
        for name in names:
            for base in mro_of(owner):  # type: ignore[arg-type]  # seen to be one
                inherited = own_doc(unwrapped(class_space(base).get(name)))
                if inherited.strip():
                    return cleaned(inherited), class_name(base)
    return "", ""


def cleaned(doc: str) -> str:
    """Remove the margin of a docstring."""
    lines = doc.expandtabs().splitlines()
    margins = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    margin = min(margins, default=0)
    return "\n".join(
        [line.lstrip() if not place else line[margin:] for place, line in enumerate(lines)]
    ).strip()


def _add_doc(page: Page, name: str, doc: str, source: str) -> None:
    if not doc:
        return
    # Inherited documentation says less about the class itself.
    first, _gap, rest = doc.partition("\n" if source else "\n\n")
    page.add(shorten(first, _PARAGRAPH) + (f" (documented in {source})" if source else ""))
    left = len(rest.strip().splitlines())
    if left:
        way = f"print({(source or name).removeprefix('__main__.')}.__doc__)"
        page.add(f"… {left} more line{'' if left == 1 else 's'} of documentation: {way}")


def _members(value: object, name: str) -> list[str]:
    if is_module(value):
        return _exports(value, name)
    if not is_class(value):
        return []
    cls: type = value  # type: ignore[assignment]  # seen to be one
    lines = []
    own = own_slots(cls)
    fields = [_field(slot) for slot in own.values() if not _is_property(slot)]
    if fields:
        lines.append(_listed("Attributes", fields))
    space = class_space(cls)
    names = [
        key for key in space if _is_method(key, space[key]) and (key not in own or _is_property(own[key]))
    ]
    names.sort(key=lambda key: key.startswith("_") and not key.endswith("__"))
    methods = [_method(key, space[key], cls) for key in names]
    if methods:
        lines.append(_listed("Methods", methods))
    lines += _inherited(cls)
    below = [sub for sub in subclasses_of(cls) if not is_ours(module_of(sub))]
    if below:
        shown = sorted(below, key=lambda sub: (tier_of(module_of(sub)), class_name(sub)))[:5]
        told = ", ".join(map(class_name, shown)) + (", …" if len(below) > len(shown) else "")
        lines.append(f"Direct subclasses ({len(below)}): {told}")
    return lines


def _is_property(slot: dict[str, object]) -> bool:
    return "property" in str(slot["source"])


def _listed(title: str, parts: list[str]) -> str:
    """Format as many parts as there is room for, and count the rest."""
    room = _LIST
    shown = []
    for part in parts:
        room -= len(part) + 2
        if room < 0:
            break
        shown.append(part)
    left = len(parts) - len(shown)
    return f"{title} ({len(parts)}): {'; '.join(shown)}" + (
        f"; … {left} more: apropos_search or dir() shows them" if left else ""
    )


def _field(slot: dict[str, object]) -> str:
    text = str(slot["name"]) + (f": {slot['type']}" if slot["type"] else "")
    return shorten(f"{text} = {slot['default']}" if slot["default"] is not None else text, _MEMBER)


def _is_method(name: str, member: object) -> bool:
    """Return whether to list a member. Of special ones only those that show how a thing is used."""
    if name in MACHINERY or (name.startswith("__") and name not in _TOLD):
        return False
    return not is_data(member) and type(member) is not types.MemberDescriptorType


def _method(name: str, member: object, cls: type) -> str:
    word = what_is(member, cls)
    if "property" in word:
        return f"{name} [{word}]"
    mark = "" if word in ("method", "built-in method") else f" [{word.removesuffix(' method')}]"
    if is_class(member):
        return f"{name} [{word}]"
    return shorten(f"{name}{arglist(member) or '(…)'}", _MEMBER) + mark


def _inherited(cls: type) -> list[str]:
    """Return the additions of each base, by its first names."""
    seen = set(class_space(cls))
    lines = []
    for base in mro_of(cls)[1:]:
        names = [name for name in class_space(base) if not name.startswith("_") and name not in seen]
        seen.update(names)
        if names and base is not object:
            rest = ", …" if len(names) > _INHERITED else ""
            lines.append(f"From {class_name(base)} ({len(names)}): {', '.join(names[:_INHERITED])}{rest}")
    return lines


def _exports(module: object, name: str) -> list[str]:
    space = module_space(module)
    names = sorted(exported_names(space))
    groups: dict[str, list[str]] = {}
    for key in names:
        groups.setdefault(coarse(space[key]), []).append(key)
    lines = [_listed(f"Exports, {kind}", found) for kind, found in sorted(groups.items())]
    inner = submodules(name, module)
    return [*lines, _listed("Submodules", inner)] if inner else lines


def _elsewhere(session: Session, found: Found) -> list[str]:
    """Name the user's other modules that define something else under the same name."""
    if "." in found.leaf or is_class(found.owner) or not is_module(found.owner):
        return []
    users = holders(session, found.leaf, USERS, but_for=found.value)
    return [f"Not to be confused with {', '.join(users[:5])}"] if users else []


def show_arglist(session: Session, request: Request) -> Reply:
    """Return the argument list of a callable, with its overloads."""
    found = resolve(session, text(request, "function"), optional_text(request, "package"))
    value = found.value
    arguments = arglist(value)
    if arguments is None and not is_callable(value):
        kind = with_article(class_name(type(value)))
        raise RequestError("TypeError", f"{found.name} is not callable: it is {kind}.")
    page = Page()
    page.add(f"{found.leaf}{arguments}" if arguments is not None else f"{found.leaf}: {_absent(found)}")
    overloads = overloads_of(value)
    for each in overloads:
        page.add(f"overload {found.leaf}{each}")
    data = {"name": found.name, "arglist": arguments, "overloads": overloads}
    return {"ok": True, "text": page.end("overloads: typing.get_overloads gives them"), "data": data}


def _absent(found: Found) -> str:
    """Say that there is no argument list, with the calls that the documentation shows."""
    doc, _source = documentation(found.value, found.owner, found.leaf)
    lines = [line.strip() for line in doc.splitlines()]
    usages = [line for line in lines if line.startswith(f"{found.leaf}(")][:_USAGES] or lines[:1]
    return "\n".join(
        [
            f"{_ABSENT}. Its documentation says:" if usages else f"{_ABSENT}.",
            *(f"  {line}" for line in usages),
        ]
    )


def is_callable(value: object) -> bool:
    """Say whether the value can be called; `callable` looks at the type only."""
    return callable(value) or id(type(value)) in _CALLED_IN_A_CLASS


_CALLED_IN_A_CLASS = kinds(staticmethod, classmethod, types.ClassMethodDescriptorType)
