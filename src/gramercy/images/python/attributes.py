"""Read attributes as Python does where that runs no code of the user's; raise `DoubtError` otherwise."""

import types
from typing import Any

from .anatomy import MISSING, class_attribute, class_space, mro_of, raw_space
from .plainness import DoubtError, has_hook, has_plain_attributes, has_plain_keys

_MODULE_NAMES = frozenset(("__name__", "__doc__", "__file__", "__version__"))
_object_class = object.__dict__["__class__"]


def is_instance(value: object, wanted: object) -> bool:
    """Tell what `isinstance` tells."""
    classes = wanted if type(wanted) is tuple else (wanted,)
    if not all(type(cls) is type for cls in classes):
        raise DoubtError
    if any(base is cls for base in mro_of(type(value)) for cls in classes):
        return True
    # Only then Python asks for `__class__`, which may lie.
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
    """Return the very dictionary of an instance, or an empty one."""
    for base in mro_of(type(owner)):
        slot = class_space(base).get("__dict__")
        if type(slot) is types.GetSetDescriptorType:
            space: dict[str, object] = slot.__get__(owner)
            if type(space) is dict and has_plain_keys(space):
                return space
            raise DoubtError
    return {}
