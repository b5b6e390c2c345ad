"""Look at objects without running a line of their code.

No `isinstance`, no attribute access through the object, no comparison: each of them can be a hook of the
class or the metaclass. Everything is read through the C slots of `type`, functions and modules.
"""

import types
from typing import Any

_HEAP = 1 << 9
# The flag of `type` and its subclasses. C code relies on it in the same way.
_OF_CLASSES = 1 << 31
_mro = type.__dict__["__mro__"].__get__
_name = type.__dict__["__name__"].__get__
_qualname = type.__dict__["__qualname__"].__get__
_space = type.__dict__["__dict__"].__get__
_flags = type.__dict__["__flags__"].__get__
_doc = type.__dict__["__doc__"].__get__
_module = type.__dict__["__module__"].__get__
_text_signature = type.__dict__["__text_signature__"].__get__
_module_space = vars(types.ModuleType)["__dict__"].__get__
_subclasses = type.__subclasses__
MISSING = object()


def kinds(*classes: type) -> frozenset[int]:
    """Return types to test against, by identity: a metaclass may hash and compare in its own way."""
    return frozenset(map(id, classes))


ATOMS = kinds(int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented))
FUNCTIONS = kinds(types.FunctionType, types.BuiltinFunctionType)
WRAPPERS = kinds(staticmethod, classmethod)
_BUILT_IN = kinds(
    *(types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.ClassMethodDescriptorType, types.MethodWrapperType),
)
_DOCUMENTED = FUNCTIONS | _BUILT_IN | kinds(types.GetSetDescriptorType, property)


def mro_of(cls: type) -> tuple[type, ...]:
    """Return the method resolution order."""
    found: tuple[type, ...] = _mro(cls)
    return found


def is_kind(thing: object, cls: type) -> bool:
    """Say whether the real type of the thing is the class or below it."""
    if type(thing) is cls:
        return True
    for base in _mro(type(thing)):  # noqa: SIM110 - a third of the time of a generator, and asked very often
        if base is cls:
            return True
    return False


def is_class(thing: object) -> bool:
    """Say whether the thing is a class."""
    return bool(_flags(type(thing)) & _OF_CLASSES)


def is_heap(cls: type) -> bool:
    """Say whether the class was made by a class statement, or in the same way by C code."""
    return bool(_flags(cls) & _HEAP)


def is_module(thing: object) -> bool:
    """Say whether the thing is a module."""
    return is_kind(thing, types.ModuleType)


def plain(space: object) -> dict[str, object]:
    """Copy the entries of a dictionary (or mapping proxy) whose keys are real strings."""
    if type(space) is types.MappingProxyType:
        items = list(space.items())
    elif is_kind(space, dict):
        items = list(dict.items(space))  # type: ignore[arg-type]  # seen to be one
    else:
        return {}
    return {key: value for key, value in items if type(key) is str}


def class_space(cls: type) -> dict[str, object]:
    """Return the class's own attributes."""
    return plain(_space(cls))


def module_space(module: object) -> dict[str, object]:
    """Return the names of a module."""
    return plain(_module_space(module))


def raw_space(module: object) -> dict[str, object]:
    """Return the dictionary of a module itself, also where user code has changed the module's class."""
    found: dict[str, object] = _module_space(module)
    return found


def instance_space(thing: object) -> dict[str, object]:
    """Return the instance's own attributes: its dictionary and its filled slots."""
    found: dict[str, object] = {}
    for cls in reversed(_mro(type(thing))):
        for name, slot in class_space(cls).items():
            if type(slot) is types.MemberDescriptorType and _flags(cls) & _HEAP:
                value = _filled(slot, thing)
                if value is not MISSING:
                    found[name] = value
            elif name == "__dict__" and type(slot) is types.GetSetDescriptorType:
                found.update(plain(slot.__get__(thing)))
    return found


def _filled(slot: types.MemberDescriptorType, thing: object) -> object:
    try:
        return slot.__get__(thing)
    except AttributeError:
        return MISSING


def class_name(cls: type) -> str:
    """Return the class's name with its module, where the module says more than `builtins` or `__main__`."""
    name = str.__str__(_qualname(cls))
    module = module_of(cls)
    return name if module in ("", "builtins", "__main__") else f"{module}.{name}"


def short_name(cls: type) -> str:
    """Return the bare name of a class."""
    return str.__str__(_name(cls))


def qualified_name(cls: type) -> str:
    """Return the name of a class with the classes around it."""
    return str.__str__(_qualname(cls))


def function_name(function: Any) -> str:
    """Return the name of a function. It can be a subclass of str with methods of the user."""
    return str.__str__(function.__name__)


def function_path(function: Any) -> str:
    """Return the name of a function with the classes and functions around it."""
    return str.__str__(function.__qualname__)


def code_name(code: types.CodeType) -> str:
    """Return the name in a code object. `replace` accepts any subclass of str, as with functions."""
    return str.__str__(code.co_name)


def code_path(code: types.CodeType) -> str:
    """Return the qualified name in a code object, where it has one."""
    return str.__str__(getattr(code, "co_qualname", code.co_name))


def code_file(code: types.CodeType) -> str:
    """Return the name of the file in a code object."""
    return str.__str__(code.co_filename)


def module_of(thing: object) -> str:
    """Return the module that a class or function names as its own, or nothing."""
    found: object = ""
    if is_class(thing):
        cls: type = thing  # type: ignore[assignment]  # seen to be one
        # The module of a class of C code is part of its name.
        found = class_space(cls).get("__module__", "builtins") if _flags(cls) & _HEAP else _module(cls)
    elif id(type(thing)) in FUNCTIONS:
        found = thing.__module__
    return found if type(found) is str else ""


def own_doc(thing: object) -> str:
    """Return the documentation kept with the thing itself, or nothing."""
    found: object = None
    if is_class(thing):
        cls: type = thing  # type: ignore[assignment]  # seen to be one
        found = class_space(cls).get("__doc__") if _flags(cls) & _HEAP else _doc(cls)
    elif is_module(thing):
        found = module_space(thing).get("__doc__")
    elif id(type(thing)) in _DOCUMENTED:
        found = thing.__doc__
    return found if type(found) is str else ""


def class_attribute(cls: type, name: str) -> object:
    """Return the value that the class or one of its bases holds under the name, or MISSING."""
    for base in _mro(cls):
        found = class_space(base).get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def fixed_attribute(cls: type, name: str) -> object:
    """Return the class's own value under the name, or MISSING. A class of C code is read without a copy."""
    # Only C code has filled such a class, so its keys are plain strings.
    space = class_space(cls) if _flags(cls) & _HEAP else _space(cls)
    return space.get(name, MISSING)


def attribute(thing: object, name: str) -> object:
    """Return the attribute as it is stored, or MISSING; a property comes back as the property."""
    if is_module(thing):
        return module_space(thing).get(name, MISSING)
    if is_class(thing):
        own = class_attribute(thing, name)  # type: ignore[arg-type]  # seen to be one
        return class_attribute(type(thing), name) if own is MISSING else own
    found = instance_space(thing).get(name, MISSING)
    return class_attribute(type(thing), name) if found is MISSING else found


def subclasses_of(cls: type) -> list[type]:
    """Return the direct subclasses that are alive."""
    return list(_subclasses(cls)) if cls is not type else list(_subclasses(type))


def text_signature(thing: object) -> str | None:
    """Return the signature a C function or class was documented with."""
    if is_class(thing):
        found = _text_signature(thing)
    elif id(type(thing)) in _BUILT_IN:
        found = thing.__text_signature__  # type: ignore[attr-defined]  # all have it
    else:
        return None
    return found if type(found) is str else None
