"""The methods of a class with inherited ones, overrides of a method, and the targets of a dispatcher.

Everything is read from the namespaces of the classes: no attribute is looked up on an instance, no hook runs.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .anatomy import class_name, class_space, is_class, is_module, module_of, mro_of, subclasses_of
from .classes import MACHINERY
from .introspection import is_callable
from .names import Found, resolve
from .places import USERS, is_ours, place_of, shown_file, tier_of, written
from .printing import shorten
from .protocol import Request, RequestError, optional_text, text
from .session import Reply, Session
from .signatures import arglist
from .sourcing import registered
from .words import Page, coarse, unwrapped, what_is, with_article

# Subclasses that are searched for overriding methods, and named beside a method.
_LOOKED_AT = 2000
_NAMED = 3
# Characters of a signature.
_LONGEST = 140
# Special methods that are listed like others: they show how to make and to call an instance.
_TOLD = frozenset(("__init__", "__new__", "__call__", "__post_init__"))
_MEMBERS = ("method", "property", "function")


class Member(NamedTuple):
    """A method or property, its defining class, and its relations above and below."""

    name: str
    value: object
    cls: type

    @property
    def word(self) -> str:
        """What it is."""
        return what_is(self.value, self.cls)

    @property
    def call(self) -> str:
        """The name with the parameters, where it is called."""
        is_called = is_callable(self.value) and "property" not in self.word
        return shorten(f"{self.name}{(arglist(self.value) or '(…)') if is_called else ''}", _LONGEST)


def find_methods(session: Session, request: Request) -> Reply:
    """List the methods of a class, the classes that define a method, or what a dispatcher has by type."""
    found = resolve(session, text(request, "name"), optional_text(request, "package"))
    page = Page()
    if is_class(found.value):
        rows = _of_class(page, found.name, found.value)  # type: ignore[arg-type]  # seen to be one
        hint = "lines: find_methods of a base shows its own"
    elif is_class(found.owner):
        rows = _of_method(page, found)
        hint = "classes"
    else:
        rows = _of_dispatcher(page, found)
        hint = "types"
    return {"ok": True, "text": page.end(hint), "data": {"name": found.name, "methods": rows}}


def _of_class(page: Page, name: str, cls: type) -> list[dict[str, str]]:
    below = list(_below(cls))
    shadowed: set[str] = set()
    rows: list[dict[str, str]] = []
    above = [base for base in mro_of(cls) if base is not object]
    counts = {id(base): list(_members(base)) for base in above}
    total = len({member.name for members in counts.values() for member in members})
    place = written(place_of(cls))
    page.add(
        f"{name}, {with_article(what_is(cls))}{' at ' + place if place else ''}: "
        f"{len(counts[id(cls)])} of its own, {total} with inherited ones"
    )
    for base in above:
        members = counts[id(base)]
        if base is not cls and members:
            where = written(place_of(base))
            page.add(f"From {class_name(base)}{' at ' + where if where else ''}:")
        if not _is_detailed(cls, base):
            plain = (member.name for member in members if not _is_special(member.name))
            hidden = sorted(plain, key=lambda each: (each.startswith("_"), each))
            page.add(f"  {shorten(', '.join(hidden), 600)}")
            shadowed.update(member.name for member in members)
            continue
        rows += [{"name": member.name, "class": class_name(base), "what": member.word} for member in members]
        for line in _lines(members, base, shadowed, below):
            page.add(line)
        shadowed.update(member.name for member in members)
    return rows


def _is_detailed(cls: type, base: type) -> bool:
    """Return whether the methods of a base are listed one by one. For user classes, a library's are not."""
    return base is cls or tier_of(module_of(base)) <= tier_of(module_of(cls))


def _members(cls: type) -> Iterator[Member]:
    for name, value in class_space(cls).items():
        is_member = coarse(value, cls) in _MEMBERS and not is_class(value)
        if is_member and name not in MACHINERY:
            yield Member(name, value, cls)


def _lines(members: list[Member], base: type, shadowed: set[str], below: list[type]) -> Iterator[str]:
    file = (place_of(base) or ("", 0))[0]
    folded = []
    for member in members:
        if _is_special(member.name) and member.name not in _TOLD:
            folded.append(member.name)
            continue
        place = place_of(unwrapped(member.value))
        where = ""
        if place is not None:
            where = f", line {place[1]}" if place[0] == file else f", {shown_file(place[0])}:{place[1]}"
        yield f"  {member.call}  [{member.word}{where}]{_relations(member, shadowed, below)}"
    if folded:
        yield f"  special: {', '.join(folded)}"


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _relations(member: Member, shadowed: set[str], below: list[type]) -> str:
    """Describe which method this one overrides, and which classes override it."""
    if member.name in shadowed:
        return "  overridden"
    told = []
    above = next((base for base in mro_of(member.cls)[1:] if member.name in class_space(base)), None)
    if above is not None and above is not object:
        told.append(f"overrides {class_name(above)}")
    replaced = [class_name(sub) for sub in below if member.name in class_space(sub)]
    if replaced and not _is_special(member.name):
        more = f" and {len(replaced) - _NAMED} more" if len(replaced) > _NAMED else ""
        told.append(f"overridden in {', '.join(replaced[:_NAMED])}{more}")
    return f"  {'; '.join(told)}" if told else ""


def _below(cls: type) -> Iterator[type]:
    """Give the classes below a class, the nearest first; not those of this program."""
    waiting, seen = [cls], {id(cls)}
    while waiting and len(seen) < _LOOKED_AT:
        for sub in subclasses_of(waiting.pop(0)):
            if id(sub) not in seen and not is_ours(module_of(sub)):
                seen.add(id(sub))
                waiting.append(sub)
                yield sub


def _of_method(page: Page, found: Found) -> list[dict[str, str]]:
    """List the classes that define a method, from the most general to those below."""
    cls: type = found.owner  # type: ignore[assignment]  # seen to be a class
    above = [base for base in mro_of(cls) if found.leaf in class_space(base)]
    top = above[-1] if above else cls
    known = set(map(id, above))
    holders = [*above, *(s for s in _below(top) if found.leaf in class_space(s) and id(s) not in known)]
    page.add(f"{found.leaf} is defined by {len(holders)} class{'' if len(holders) == 1 else 'es'}:")
    rows = []
    for holder in sorted(holders, key=lambda each: (tier_of(module_of(each)) != USERS, len(mro_of(each)))):
        member = Member(found.leaf, class_space(holder)[found.leaf], holder)
        place = written(place_of(unwrapped(member.value)))
        used = "  used here" if above and holder is above[0] else ""
        page.add(
            f"  {class_name(holder)}.{member.call}  [{member.word}{', ' + place if place else ''}]{used}"
        )
        rows.append({"name": found.leaf, "class": class_name(holder), "place": place})
    return rows


def _of_dispatcher(page: Page, found: Found) -> list[dict[str, str]]:
    """List what `functools.singledispatch` has for each type."""
    implementations = registered(found.value)
    if not implementations:
        kind = with_article("module" if is_module(found.value) else what_is(found.value, found.owner))
        raise RequestError(
            "TypeError",
            f"{found.name} is {kind}: only classes, their methods and singledispatch functions have methods.",
        )
    page.add(f"{found.name}{arglist(found.value) or ''} dispatches on the type of its first argument:")
    rows = []
    for label, function in [(" for object", unwrapped(found.value)), *implementations]:
        place = written(place_of(function))
        page.add(f"  {label.removeprefix(' for ')}{'  ' + place if place else ''}")
        rows.append({"name": found.name, "class": label.removeprefix(" for "), "place": place})
    return rows
