"""Describe a thing in a word: an async function, a cached property, a dataclass, a package.

It reads flags and types only, and runs no user code. The limit of a page of such words is here too.
"""

import enum
import functools
import types

from .anatomy import (
    FUNCTIONS,
    MISSING,
    class_attribute,
    class_space,
    instance_space,
    is_class,
    is_heap,
    is_kind,
    is_module,
    kinds,
    module_space,
    mro_of,
    plain,
    short_name,
)

# Characters of one answer: what a model reads without losing track, some 2,000 tokens.
PAGE = 8000
# Room for the line about omitted entries.
_LAST = 300
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200
_BUILT_IN = {
    id(types.BuiltinFunctionType): "built-in function",
    id(types.MethodDescriptorType): "built-in method",
    id(types.ClassMethodDescriptorType): "built-in class method",
    id(types.WrapperDescriptorType): "built-in method",
    id(types.MethodWrapperType): "built-in bound method",
    id(types.GetSetDescriptorType): "built-in attribute",
    id(types.MemberDescriptorType): "slot",
}
_CACHED = functools._lru_cache_wrapper  # noqa: SLF001 - the type has no public name
_SPECIAL: tuple[tuple[type, str], ...] = (
    (functools.partial, "partial"),
    (functools.partialmethod, "partial method"),
    (_CACHED, "cached function"),
    (functools.cached_property, "cached property"),
    (property, "property"),
)
_HOLDING = kinds(*(cls for cls, _word in _SPECIAL))
_EMPTY = kinds(types.FunctionType, staticmethod, classmethod)
_is_kind_of_enum = enum.EnumMeta


def what_is(value: object, owner: object = MISSING) -> str:  # noqa: PLR0911 - one for each kind
    """Return the kind of a value that the owner holds."""
    if is_module(value):
        return "package" if "__path__" in module_space(value) else "module"
    if is_class(value):
        return class_word(value)  # type: ignore[arg-type]  # seen to be one
    in_class = is_class(owner)
    if type(value) is types.FunctionType:
        return function_word(value, in_class=in_class)
    if type(value) is staticmethod or type(value) is classmethod:
        head = "static" if type(value) is staticmethod else "class"
        inner = value.__func__
        return (
            f"{head} {function_word(inner, in_class=True)}"
            if type(inner) is types.FunctionType
            else f"{head} method"
        )
    if type(value) is types.MethodType:
        return "bound method"
    for cls, word in _SPECIAL:
        if is_kind(value, cls):
            return word
    if id(type(value)) in _BUILT_IN:
        return _BUILT_IN[id(type(value))]
    if in_class and any(class_attribute(type(value), name) is not MISSING for name in ("__get__", "__set__")):
        return "descriptor"
    return "attribute" if in_class else "variable"


def function_word(function: types.FunctionType, *, in_class: bool) -> str:
    """Return the kind of a function by the flags of its code."""
    flags = function.__code__.co_flags
    noun = "method" if in_class else "function"
    space = plain(function.__dict__)
    inner = space.get("__wrapped__", MISSING)
    if type(space.get("registry")) is types.MappingProxyType and "dispatch" in space:
        return f"singledispatch {noun}"
    if type(inner) is types.FunctionType and not flags & (_COROUTINE | _GENERATOR | _ASYNC_GENERATOR):
        # A decorator's wrapper returns the result of the inner function.
        flags = inner.__code__.co_flags
    if flags & _ASYNC_GENERATOR:
        return f"async generator {noun}"
    if flags & _COROUTINE:
        return f"async {noun}"
    return f"generator {noun}" if flags & _GENERATOR else noun


def class_word(cls: type) -> str:  # noqa: PLR0911 - one for each kind
    """Return what sort of class it is."""
    space = class_space(cls)
    above = set(map(id, mro_of(cls)))
    if id(type) in above:
        return "metaclass"
    if is_kind(cls, _is_kind_of_enum):
        return "enum"
    if type(space.get("__dataclass_fields__")) is dict:
        return "dataclass"
    if id(tuple) in above and type(class_attribute(cls, "_fields")) is tuple:
        return "named tuple"
    if short_name(type(cls)) == "_TypedDictMeta":
        return "typed dict"
    if space.get("_is_protocol") is True:
        return "protocol"
    if id(BaseException) in above:
        return "exception"
    return "abstract class" if _abstract(space) else "class"


def abstract_methods(cls: type) -> list[str]:
    """Return the names of the methods that a subclass must define."""
    return _abstract(class_space(cls))


def _abstract(space: dict[str, object]) -> list[str]:
    found = space.get("__abstractmethods__")
    return sorted(name for name in found if type(name) is str) if type(found) is frozenset else []


def coarse(value: object, owner: object = MISSING, word: str = "") -> str:
    """Return the kind by which programs group names: function, class, module, method, property, variable.

    The word is the result of `what_is`, if that is known already.
    """
    word = word or what_is(value, owner)
    if is_class(value):
        return "class"
    if word in ("package", "module"):
        return "module"
    for kind in ("function", "method", "property"):
        if word.endswith(kind):
            return kind
    return "function" if word == "partial" else "attribute" if is_class(owner) else "variable"


def with_article(word: str) -> str:
    """Put `a` or `an` before a word."""
    return f"{'an' if word[:1] in 'aeiou' else 'a'} {word}"


def unwrapped(value: object) -> object:
    """Return the function inside of caches, partials, methods, properties and wrappers; else the value.

    A wrapper may lead through an object to the function. A wrapper that leads only to an object is returned
    itself.
    """
    function, found = value, value
    for _step in range(10):
        inner = _inner(found)
        if inner is MISSING and found is not value and is_heap(type(found)) and not is_class(found):
            inner = instance_space(found).get("__wrapped__", MISSING)
        if inner is MISSING:
            break
        found = inner
        if type(function) is not types.FunctionType or id(type(found)) in FUNCTIONS or is_class(found):
            function = found
    return function


def _inner(value: object) -> object:  # noqa: PLR0911 - one for each kind
    kind = type(value)
    if kind is types.FunctionType:
        return plain(value.__dict__).get("__wrapped__", MISSING)
    if kind is types.MethodType or id(kind) in _EMPTY:
        return value.__func__  # type: ignore[attr-defined]  # all have it
    if all(id(base) not in _HOLDING for base in mro_of(kind)):
        return MISSING
    if is_kind(value, property):
        getter = vars(property)["fget"].__get__(value)
        return MISSING if getter is None else getter
    if is_kind(value, functools.partial):
        inner: object = vars(functools.partial)["func"].__get__(value)
        return inner
    if is_kind(value, _CACHED):
        return instance_space(value).get("__wrapped__", MISSING)
    if is_kind(value, functools.cached_property) or is_kind(value, functools.partialmethod):
        return instance_space(value).get("func", MISSING)
    return MISSING


class Page:
    """Lines of an answer up to its limit. The rest is counted."""

    def __init__(self, most: int = PAGE) -> None:
        self._lines: list[str] = []
        self._left = most - _LAST
        self.left_out = 0

    def add(self, line: str) -> bool:
        """Add a line if there is room for it. Return whether there was."""
        if self.left_out or len(line) + 1 > self._left:
            self.left_out += 1
            return False
        self._lines.append(line)
        self._left -= len(line) + 1
        return True

    def end(self, hint: str = "", *, more: int = 0) -> str:
        """Return the text. `hint` describes the lines and how to see the omitted ones."""
        total = self.left_out + more
        lines = [*self._lines, f"… {total} more{' ' + hint if hint else ''}"] if total else self._lines
        return "\n".join(lines)


def folded(counts: dict[str, int], most: int = 8) -> str:
    """Format the number of each name, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{name} {count}" for name, count in ordered[:most]]
    return ", ".join([*shown, "…"] if len(ordered) > most else shown)
