"""Decide which values and attributes can be read without running user code.

At the first doubt `DoubtError` is raised, or the answer is no.
"""

import types
from abc import ABCMeta
from importlib.machinery import ModuleSpec
from typing import Any

from .anatomy import (
    ATOMS,
    FUNCTIONS,
    MISSING,
    class_attribute,
    class_space,
    instance_space,
    is_class,
    kinds,
    mro_of,
    raw_space,
)

# Members of a value: checking more costs more than the checkpoint that it saves.
_MOST = 100_000
# Containers inside of a value. Each costs a call here.
_CONTAINERS = 2000
_id, _type = id, type
_VIEWS = kinds(type({}.keys()), type({}.values()), type({}.items()))
_MANY = _VIEWS | kinds(list, tuple, set, frozenset)
_SINGLE = ATOMS | kinds(range, bytearray)
_METACLASSES = kinds(type, ABCMeta)
_object_repr = object.__dict__["__repr__"]
_object_getattribute = object.__dict__["__getattribute__"]
_MODULE_NAMES = frozenset(("__name__", "__doc__", "__file__", "__version__"))
_object_class = object.__dict__["__class__"]


class DoubtError(Exception):
    """It is not certain that no user code would run."""


def is_plain(value: object, *, shown: bool = False) -> bool:
    """Return whether the value consists of builtin types throughout.

    With `shown` it may also hold values that print without user code: functions, classes, modules, instances
    of classes without their own `__repr__`.
    """
    if id(type(value)) in _SINGLE:
        return True
    waiting: list[Any] = [value]
    seen: set[int] = set()
    left = _MOST
    while waiting:
        thing = waiting.pop()
        if id(type(thing)) in _SINGLE or id(thing) in seen:
            continue
        seen.add(id(thing))
        parts = _parts(thing, shown=shown)
        if parts is None or len(seen) > _CONTAINERS:
            return False
        left -= sum(map(len, parts))
        if left < 0:
            return False
        for part in parts:
            if not _all_single(part):
                waiting.extend(part)
    return True


def _parts(thing: Any, *, shown: bool) -> list[Any] | None:
    """Return the collections whose members have to be plain too, or None when the thing itself is not."""
    kind = id(type(thing))
    if kind in _MANY:
        return [thing]
    if type(thing) is dict:
        return [thing.keys(), thing.values()]
    if shown and type(thing) is types.MethodType and type(thing.__func__) is types.FunctionType:
        return [(thing.__self__,)]
    return [] if shown and _is_printed_by_python(thing) else None


def _all_single(part: Any) -> bool:
    """Return whether no member needs a separate check. The loop is in C."""
    return {*map(_id, map(_type, part))} <= _SINGLE


def has_plain_keys(space: dict[Any, object]) -> bool:
    """Return whether looking up a plain key compares with no key of a user class."""
    return len(space) <= _MOST and (_all_single(space) or is_plain(list(space)))


def has_plain_attributes(cls: type) -> bool:
    """Return whether attributes of instances are read as those of `object`."""
    return class_attribute(cls, "__getattribute__") is _object_getattribute


def _is_printed_by_python(thing: object) -> bool:
    if id(type(thing)) in FUNCTIONS:
        return True
    if is_class(thing):
        return id(type(thing)) in _METACLASSES
    if type(thing) is types.ModuleType:
        return _is_ordinary(thing)
    return class_attribute(type(thing), "__repr__") is _object_repr


def _is_ordinary(module: types.ModuleType) -> bool:
    """Return whether a module prints as its name and file, without a loader of the user."""
    space = raw_space(module)
    if not has_plain_keys(space) or type(space.get("__name__")) is not str or "__loader__" not in space:
        return False
    spec = space.get("__spec__")
    if spec is not None:
        return type(spec) is ModuleSpec and type(instance_space(spec).get("origin")) is str
    # Its repr then reads `__file__`, and a missing name comes from its `__getattr__`.
    is_bare = space["__loader__"] is None and "__spec__" in space and "__getattr__" not in space
    return is_bare and type(space.get("__file__", "")) is str


def has_hook(value: object, *names: str) -> bool:
    """Tell whether the class of the value has one of the methods."""
    return any(class_attribute(type(value), name) is not MISSING for name in names)


def is_instance(value: object, wanted: object) -> bool:
    """Return the result of `isinstance`."""
    classes = wanted if type(wanted) is tuple else (wanted,)
    if not all(type(cls) is type for cls in classes):
        raise DoubtError
    if any(base is cls for base in mro_of(type(value)) for cls in classes):
        return True
    # Only then Python reads `__class__`, which may be a property of the user.
    if class_attribute(type(value), "__class__") is _object_class and has_plain_attributes(type(value)):
        return False
    raise DoubtError


def of_module(module: types.ModuleType, name: str) -> object:
    """Return a name of a module."""
    space = raw_space(module)
    if (name.startswith("__") and name not in _MODULE_NAMES) or not has_plain_keys(space):
        raise DoubtError
    if name not in space:
        raise DoubtError
    return space[name]


def of_class(cls: object, name: str) -> object:
    """Return an attribute of a class that has no metaclass of its own."""
    if type(cls) is not type:
        raise DoubtError
    found = class_attribute(cls, name)
    if type(found) is types.FunctionType or (found is not MISSING and not has_hook(found, "__get__")):
        return found
    raise DoubtError


def of_instance(owner: Any, name: str) -> object:
    """Return an attribute of an instance: its own, that of a slot, or one of its class that binds nothing."""
    if not has_plain_attributes(type(owner)):
        raise DoubtError
    held = class_attribute(type(owner), name)
    if type(held) is types.MemberDescriptorType:
        return held.__get__(owner)
    if held is not MISSING and has_hook(held, "__set__", "__delete__"):
        raise DoubtError
    own = _own_space(owner)
    if name in own:
        return own[name]
    if type(held) is types.FunctionType:
        return types.MethodType(held, owner)
    if held is MISSING or has_hook(held, "__get__"):
        raise DoubtError
    return held


def _own_space(owner: object) -> dict[str, object]:
    """Return the dictionary of an instance itself, or an empty one."""
    for base in mro_of(type(owner)):
        slot = class_space(base).get("__dict__")
        if type(slot) is types.GetSetDescriptorType:
            space: dict[str, object] = slot.__get__(owner)
            if type(space) is dict and has_plain_keys(space):
                return space
            raise DoubtError
    return {}
