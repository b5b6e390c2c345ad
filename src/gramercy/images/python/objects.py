"""The objects that a person may inspect, by number, and the memory of a value.

The table is bounded in objects and in bytes: the oldest are evicted first, and a large object is kept alive
only as the latest one of its kind. Inspecting an object, and printing it piece by piece, is here too. No user
code runs.
"""

import sys
import types
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any
from weakref import ref

from .anatomy import (
    ATOMS,
    FUNCTIONS,
    class_attribute,
    class_name,
    class_space,
    instance_space,
    is_class,
    is_heap,
    is_module,
    kinds,
    module_space,
)
from .arrays import View
from .printing import container_base, is_trivial, preview, printed_again
from .protocol import Request, RequestError, count
from .purity import is_plain
from .shapes import view_of
from .words import Page

if TYPE_CHECKING:
    from .session import Reply, Session

# A larger value is never kept alive only for its number or for an undo.
BIG = 1024 * 1024
# The limit of all values that are kept alive.
BUDGET = 32 * BIG
# Objects visited to measure one value: a value is measured whenever it gets a number.
_NODES = 500
# A smaller size is only the header of an object of C code, whose buffers are elsewhere.
_SMALLEST = 256
_size = sys.getsizeof
_CONTAINERS = kinds(list, tuple, set, frozenset, deque)
_SIZED = ATOMS | _CONTAINERS | kinds(dict, bytearray, range, slice)
_COMPUTED = kinds(types.GetSetDescriptorType, types.MemberDescriptorType)
# Objects with a number: a person inspects the latest ones.
_KEPT = 1000
# Texts of 200,000 characters at most: a reader pages through the latest ones.
_TEXTS = 4
# Characters of a printed text: of one piece, of the longest piece, of the part printed to know its length,
# and the furthest place in it.
_PIECE, _LONGEST_PIECE, _WHOLE, _FURTHEST = 20_000, 100_000, 1_000_000, 16_000_000
# Parts of an object in one answer.
_SHOWN = 100
# Characters of the object itself: a table of a dozen columns fits.
_PREVIEW = 800
_SEQUENCES = kinds(list, tuple, deque)
Child = tuple[str, object]
_AGAIN = "evaluate the expression again, or bind its value to a name"


class Weight:
    """The measured size of a value and its content, bounded in steps."""

    def __init__(self, value: object) -> None:
        self.bytes = 0
        # False when it holds objects of C code, which may own any amount of memory.
        self.is_known = True
        self._seen: set[int] = set()
        waiting = [value]
        while waiting and len(self._seen) < _NODES and self.bytes <= BIG:
            thing = waiting.pop()
            if id(thing) not in self._seen:
                self._seen.add(id(thing))
                waiting.extend(self._add(thing))

    @property
    def is_big(self) -> bool:
        """Return whether it exceeds the limit for keeping."""
        return self.bytes > BIG

    def _add(self, thing: Any) -> list[object]:
        kind = type(thing)
        if id(kind) in _SIZED:
            self.bytes += _size(thing)
            return members_of(thing, kind)
        if id(kind) in FUNCTIONS or is_class(thing) or is_module(thing):
            return []  # these are held by the program itself
        base = container_base(thing)
        if base is not None:
            self.bytes += base.__sizeof__(thing)
            return members_of(thing, base)
        owned = max(_called(thing, "__sizeof__"), _read(thing, "nbytes"))
        self.bytes += owned
        if is_heap(kind):
            return list(islice(instance_space(thing).values(), _NODES))
        self.is_known = self.is_known and owned > _SMALLEST
        # A view keeps the whole array alive.
        whole = _reached(thing, "base")
        return [] if whole is None else [whole]


def members_of(thing: Any, base: Any) -> list[object]:
    """Return the first members of a container with this base. Empty for anything else."""
    if base is dict:
        return [part for pair in islice(dict.items(thing), _NODES) for part in pair]
    return list(islice(base.__iter__(thing), _NODES)) if id(base) in _CONTAINERS else []


def _called(thing: object, name: str) -> int:
    """Call a method without arguments if it is C code."""
    method: Any = class_attribute(type(thing), name)
    if type(method) is not types.MethodDescriptorType:
        return 0
    try:
        found = method(thing)
    except Exception:  # noqa: BLE001 - an object of C code in no good state
        return 0
    return found if type(found) is int and found > 0 else 0


def _read(thing: object, name: str) -> int:
    found = _reached(thing, name)
    return found if type(found) is int and found > 0 else 0


def _reached(thing: object, name: str) -> object:
    """Read an attribute that C code computes. None where there is none."""
    slot: Any = class_attribute(type(thing), name)
    if id(type(slot)) not in _COMPUTED:
        return None
    try:
        return slot.__get__(thing)
    except Exception:  # noqa: BLE001 - a released buffer, or a slot that was never filled
        return None


class Entry:
    """An object that is held, or only referenced weakly while the program itself holds it."""

    __slots__ = ("_held", "_weak", "bytes", "is_big")

    def __init__(self, thing: object) -> None:
        weight = Weight(thing)
        self.bytes, self.is_big = weight.bytes, weight.is_big
        self._held: object = thing
        self._weak: ref[object] | None = None
        if self.is_big or not weight.is_known:
            try:
                self._weak = ref(thing)
            except TypeError:
                return
            self.let_go()

    def let_go(self) -> None:
        """Release the object."""
        self._held, self.bytes = None, 0

    def object(self) -> object:
        """Return the object, or None when it is gone. None itself is never in the table."""
        return self._held if self._weak is None or self._held is not None else self._weak()


class Table:
    """Objects by number. An object that is met again keeps its number."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._numbers: dict[int, int] = {}
        self._last = 0
        self._bytes = 0
        self._big: Entry | None = None
        # The texts of cut values, with their whole length where it is known.
        self.texts: dict[int, tuple[str, int | None]] = {}

    def number(self, thing: object, *, always: bool = False) -> int | None:
        """Return the object's number, a new one when needed. None when there is nothing to inspect."""
        if is_trivial(thing) and (not always or thing is None):
            return None
        known = self._numbers.get(id(thing), 0)
        met = self._entries.get(known)
        # Another object may have the address, and so the id, of a freed one.
        if met is not None and met.object() is thing:
            return known
        self._last += 1
        entry = Entry(thing)
        self._entries[self._last] = entry
        self._numbers[id(thing)] = self._last
        if entry.is_big:
            self._keep_only(entry)
        else:
            self._bytes += entry.bytes
        self._make_room()
        return self._last

    def _keep_only(self, entry: Entry) -> None:
        """Hold this large object instead of the previous one."""
        if self._big is not None:
            self._big.let_go()
        self._big = entry

    def _make_room(self) -> None:
        while len(self._entries) > _KEPT or (self._bytes > BUDGET and len(self._entries) > 1):
            number = next(iter(self._entries))
            entry = self._entries.pop(number)
            self._bytes -= 0 if entry.is_big else entry.bytes
        if len(self._numbers) > 2 * _KEPT:
            self._numbers = {
                place: number for place, number in self._numbers.items() if number in self._entries
            }

    def is_big(self, thing: object) -> bool:
        """Return whether the object has a number and is too large to be kept."""
        entry = self._entries.get(self._numbers.get(id(thing), 0))
        return entry is not None and entry.is_big and entry.object() is thing

    def keep_text(self, number: int, text: str, length: int | None) -> None:
        """Keep the printed text of an object. The oldest one is evicted."""
        self.texts.pop(number, None)
        self.texts[number] = (text, length or None)
        while len(self.texts) > _TEXTS:
            del self.texts[next(iter(self.texts))]

    def find(self, number: object) -> object:
        """Return the object, or raise KeyError with advice."""
        if type(number) is not int or not 0 < number <= self._last:
            raise KeyError(f"There is no object {str(number)[:40]}: evaluate something to get a number.")
        entry = self._entries.get(number)
        if entry is None:
            raise KeyError(f"Object {number} is no longer kept, later ones took its room: {_AGAIN}.")
        thing = entry.object()
        if thing is None:
            reason = "it was too big to be kept" if entry.is_big else "nothing in the program holds it"
            raise KeyError(f"Object {number} has gone, {reason}: {_AGAIN}.")
        return thing


def children(thing: object) -> tuple[list[Child], int]:
    """Return the first children with their labels, and the number of all."""
    found: list[Child] = []
    total = 0
    view = view_of(thing)
    if view is not None and view.is_data and container_base(thing) is None:
        # The first values. Other attributes of an array or a table are meaningless.
        found = [
            (f"[{place}]", part) for place, (_label, part) in enumerate(view.parts) if type(part) is not View
        ]
        return found, len(found) + view.left if found else 0
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
    """Follow a path of child positions or labels. Raise LookupError where it ends."""
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
        "preview": preview(thing, _PREVIEW),
        "children": rows,
        "total": total,
    }
    page = Page()
    page.add(f"{data['type']}: {data['preview']}")
    for row in rows:
        number = f"  #{row['object']}" if row["object"] else ""
        page.add(f"  {row['label']} = {row['value']}{number}")
    return page.end("parts: evaluate a part of it to see them", more=total - len(rows)), data


def inspect_object(session: "Session", request: Request) -> "Reply":
    """Look into an object by its number, or into one of its children."""
    try:
        thing = walk(session.table.find(request.get("object")), request.get("path"))
    except KeyError as error:
        raise RequestError("NO-SUCH-OBJECT", str(error.args[0])) from None
    except LookupError as error:
        raise RequestError("NO-SUCH-CHILD", str(error)) from None
    shown, data = look(thing, session.table)
    return {"ok": True, "text": shown, "data": data}


def print_value(session: "Session", request: Request) -> "Reply":
    """Return a piece of the printed text of an object.

    A text that user code printed is kept from then. Text that is printed now shows the types of such objects
    instead.
    """
    number = request.get("object")
    offset = count(request, "offset", 0, _FURTHEST)
    limit = count(request, "limit", _PIECE, _LONGEST_PIECE)
    kept = session.table.texts.get(number) if type(number) is int else None
    if kept is not None:
        shown, total = kept
    else:
        try:
            thing = session.table.find(number)
        except KeyError as error:
            raise RequestError("NO-SUCH-OBJECT", str(error.args[0])) from None
        shown, is_cut = printed_again(thing, max(offset + limit, _WHOLE), _shown_safely)
        total = None if is_cut else len(shown)
    data = {"object": number, "offset": offset, "total": total, "kept": len(shown)}
    return {"ok": True, "text": shown[offset : offset + limit], "data": data}


def _shown_safely(value: object) -> str:
    return repr(value) if is_plain(value, shown=True) else preview(value, _PREVIEW)
