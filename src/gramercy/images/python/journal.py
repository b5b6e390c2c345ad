"""The bindings of the last calls, and the values before: enough to undo their definitions.

Old values are held where that does no harm. A value with a finalizer, with resources, or a large one is only
referenced weakly, so that it is freed when the program releases it, as in a plain Python. No user code runs
here.
"""

import sys
from _weakref import getweakrefcount
from collections import deque
from typing import Any, NamedTuple
from weakref import ref

from .anatomy import (
    ATOMS,
    FUNCTIONS,
    MISSING,
    WRAPPERS,
    class_attribute,
    instance_space,
    is_class,
    is_heap,
    is_module,
    kinds,
    mro_of,
    raw_space,
)
from .objects import BIG, BUDGET, Weight, members_of
from .printing import container_base

# Calls that can be undone: their old values stay in memory that long.
CALLS = 20
# Objects that are visited to decide whether a value can be held: every bound name is checked in every call.
_NODES = 500
_modules = sys.modules
_size = sys.getsizeof
_SIMPLE = FUNCTIONS | WRAPPERS | kinds(property)
_CONTAINERS = kinds(list, tuple, dict, set, frozenset, deque)
_QUIET = ATOMS | kinds(range, slice, bytearray)
# Types of C code whose objects hold memory and nothing else.
_VALUES = {
    "numpy": ("ndarray", "float64", "int64", "dtype"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
}


class Held:
    """The old value of a name: held, only referenced weakly, or gone."""

    __slots__ = ("_value", "_weak", "bytes", "reason")

    def __init__(self, value: object) -> None:
        self.bytes = 0
        self.reason = ""
        self._weak: ref[object] | None = None
        self._value = value
        kind = id(type(value))
        if kind in ATOMS:
            self.bytes = _size(value)
            if self.bytes > BIG:
                self.let_go("it was too big to be kept")
        elif kind not in _SIMPLE and not is_class(value) and not is_module(value):
            self._weigh(value)

    def _weigh(self, value: object) -> None:
        weight = Weight(value)
        self.bytes = weight.bytes
        if weight.is_big:
            self.let_go("it was too big to be kept")
        elif not is_inert(value):
            self.let_go("nothing else held it")

    def let_go(self, reason: str) -> None:
        """Only reference the value weakly from now on."""
        if self._value is MISSING:
            return
        try:
            self._weak = ref(self._value)
        except TypeError:
            self._weak = None
        self._value, self.bytes, self.reason = MISSING, 0, reason

    def refresh(self) -> None:
        """Check again a value that may have grown since it was bound."""
        if self._value is not MISSING and id(type(self._value)) not in ATOMS:
            self.__init__(self._value)  # type: ignore[misc]  # the same questions as at first

    def value(self) -> object:
        """Return the value, or MISSING when it is gone."""
        if self._value is not MISSING or self._weak is None:
            return self._value
        found = self._weak()
        return MISSING if found is None else found


def is_inert(value: object) -> bool:
    """Return whether freeing the value, and everything that it holds, only frees memory."""
    waiting: list[Any] = [value]
    seen: set[int] = set()
    while waiting:
        thing = waiting.pop()
        kind = id(type(thing))
        if kind in _QUIET or kind in _SIMPLE or id(thing) in seen:
            continue
        seen.add(id(thing))
        if len(seen) > _NODES:
            return False
        if kind in _CONTAINERS:
            waiting.extend(members_of(thing, type(thing)))
        elif is_class(thing) or is_module(thing):
            continue
        elif _is_users(thing):
            waiting.extend(instance_space(thing).values())
            waiting.extend(members_of(thing, container_base(thing)))
        elif not _is_value(type(thing)):
            return False
    return True


def _is_users(thing: object) -> bool:
    """Return whether it is an instance of a user class without a finalizer and without a base in C."""
    cls = type(thing)
    bases = [base for base in mro_of(cls) if not is_heap(base)]
    is_ordinary = all(base is object or id(base) in _CONTAINERS for base in bases)
    return is_ordinary and class_attribute(cls, "__del__") is MISSING and not getweakrefcount(thing)


def _is_value(cls: type) -> bool:
    for name, known in _VALUES.items():
        module = _modules.get(name)
        if is_module(module) and any(raw_space(module).get(key) is cls for key in known):
            return True
    return False


class Binding(NamedTuple):
    """One name of a module or class that a call bound: what it meant before, None if nothing, and after."""

    owner: object
    path: str
    key: str
    kind: str
    old: Held | None
    now: int | None


class Step:
    """Everything that one call bound."""

    def __init__(self) -> None:
        self.bindings: list[Binding] = []
        self.modules: list[str] = []
        self.reloaded: list[str] = []
        self.bytes = 0

    def held(self) -> list[Held]:
        """Return the old values."""
        return [binding.old for binding in self.bindings if binding.old is not None]


class Journal:
    """The steps of the last calls."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque(maxlen=CALLS)

    def add(self, step: Step) -> None:
        """Remember one more step. The oldest values are released when there is no room for all."""
        self._steps.append(step)
        for held in step.held() if step.bindings else ():
            held.refresh()
            step.bytes += held.bytes
        if step.bytes and sum([known.bytes for known in self._steps]) > BUDGET:
            self._make_room()

    def _make_room(self) -> None:
        room = BUDGET
        for step in reversed(self._steps):
            step.bytes = 0
            for held in step.held():
                room -= held.bytes
                if room < 0:
                    held.let_go("later ones took its room")
                step.bytes += held.bytes

    def pop(self) -> Step | None:
        """Return the last step and forget it."""
        return self._steps.pop() if self._steps else None

    def let_go(self) -> None:
        """Release everything: memory is needed."""
        for step in self._steps:
            for held in step.held():
                held.let_go("memory was needed")
