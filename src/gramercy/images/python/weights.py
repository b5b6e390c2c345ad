"""How much memory a value takes, as far as it can be seen without running a line of the user's code."""

import sys
import types
from collections import deque
from itertools import islice
from typing import Any

from .anatomy import ATOMS, FUNCTIONS, class_attribute, instance_space, is_class, is_heap, is_module, kinds
from .printing import container_base

# A value above this is never kept alive for the sake of its number or of an undo.
BIG = 1024 * 1024
# All the values that are kept alive together.
BUDGET = 32 * BIG
_NODES = 500
# Less is the bare head of an object of C code, which says nothing of what it owns.
_SMALLEST = 256
_size = sys.getsizeof
_CONTAINERS = kinds(list, tuple, set, frozenset, deque)
_SIZED = ATOMS | _CONTAINERS | kinds(dict, bytearray, range, slice)
_COMPUTED = kinds(types.GetSetDescriptorType, types.MemberDescriptorType)


class Weight:
    """A look at a value and what it holds, bounded in steps."""

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
        """Tell whether it is more than may be kept."""
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
        # A view of a part keeps the whole.
        whole = _reached(thing, "base")
        return [] if whole is None else [whole]


def members_of(thing: Any, base: Any) -> list[object]:
    """Return the first members of a container that is built upon this base; none of anything else."""
    if base is dict:
        return [part for pair in islice(dict.items(thing), _NODES) for part in pair]
    return list(islice(base.__iter__(thing), _NODES)) if id(base) in _CONTAINERS else []


def _called(thing: object, name: str) -> int:
    """Call a method without arguments if it is one of C code."""
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
    """Read an attribute that C code computes; None where there is none."""
    slot: Any = class_attribute(type(thing), name)
    if id(type(slot)) not in _COMPUTED:
        return None
    try:
        return slot.__get__(thing)
    except Exception:  # noqa: BLE001 - a released buffer, or a slot that was never filled
        return None
