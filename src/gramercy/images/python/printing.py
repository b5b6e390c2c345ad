"""Print values with a bound on length, depth and items, and write argument lists.

Builtin containers are walked here, so that a list of a million strings costs no more than what is shown; what
is shown whole reads exactly as `repr`. With `safe`, and for argument lists, no user code runs: code objects
are read instead of `inspect.signature`, which asks the object.
"""

import functools
import sys
import types
from collections import deque
from itertools import islice
from typing import Any

from .anatomy import (
    ATOMS,
    MISSING,
    WRAPPERS,
    class_attribute,
    class_name,
    instance_space,
    is_class,
    is_kind,
    is_module,
    kinds,
    module_space,
    mro_of,
    text_signature,
)

# Levels of nesting: far below the recursion limit, and deeper than a reader follows.
_DEEPEST = 40
# Bits of an integer that is printed at once: its twenty digits are below every limit.
_SMALL = 64
_repr = repr
_PLAIN: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}
_BUILTIN = kinds(bytearray, types.BuiltinFunctionType)
_CONTAINERS = kinds(dict, *_PLAIN)
_SIZED = (list, tuple, dict, set, frozenset, deque, str, bytes)
_VARARGS, _VARKEYWORDS = 0x04, 0x08
# Wrappers around a function; a chain of more may be a circle.
_UNWRAPPED = 10
_EAGER_ANNOTATIONS = sys.version_info < (3, 14)


class Printer:
    """One printing of one value, within a budget of characters."""

    def __init__(self, limit: int, *, safe: bool = False, items: int | None = None) -> None:
        self._parts: list[str] = []
        self._left = limit
        self._safe = safe
        self._items = items
        self._open: set[int] = set()
        self.cut = False

    def text(self, value: object) -> str:
        """Return the printed value; it ends in an ellipsis where the budget did."""
        self._print(value, 0)
        text = "".join(self._parts)
        return text + "…" if self.cut and self._left <= 0 else text

    def _put(self, text: str) -> None:
        if len(text) > self._left:
            self.cut = True
            text = text[: max(self._left, 0)]
        self._parts.append(text)
        self._left -= len(text)
        if self.cut:
            self._left = 0

    def _print(self, value: object, depth: int) -> None:
        kind = type(value)
        if id(kind) in ATOMS:
            self._put(self._atom(value))
        elif id(kind) in _CONTAINERS:
            self._container(value, depth)
        else:
            self._put(self._other(value))

    def _atom(self, value: object) -> str:
        if type(value) is int and value.bit_length() > 13000:  # noqa: PLR2004 - below CPython's limit of 4300 digits
            self.cut = True
            digits = int(value.bit_length() * 0.30103) + 1
            return f"<int of about {digits} digits, {value % 10**20:020d} at its end>"
        if type(value) in (str, bytes) and len(value) > self._left:  # type: ignore[arg-type]  # sized, both
            self.cut = True
            return _repr(value[: max(self._left, 0)])  # type: ignore[index]  # sliceable, both
        return _repr(value)

    def _container(self, value: object, depth: int) -> None:
        before, after = _PLAIN.get(type(value), ("{", "}"))
        if not value and type(value) in (set, frozenset):
            self._put(_repr(value))
        elif id(value) in self._open or depth > _DEEPEST:
            self.cut = self.cut or depth > _DEEPEST
            self._put(f"{before}...{after}")
        else:
            self._open.add(id(value))
            self._put(before)
            self._members(value, depth)
            self._put(",)" if type(value) is tuple and len(value) == 1 else after)
            self._open.discard(id(value))

    def _members(self, value: object, depth: int) -> None:
        pairs = type(value) is dict
        # Each member takes a character at least, so no more are copied than there is room for.
        members = list(islice(value.items() if pairs else value, self._left + 1))  # type: ignore[attr-defined,arg-type]  # a container
        for shown, member in enumerate(members):
            if self._left <= 0 or (self._items is not None and shown >= self._items):
                self.cut = True
                self._put(", …" if shown else "…")
                return
            if shown:
                self._put(", ")
            if pairs:
                self._print(member[0], depth + 1)
                self._put(": ")
            self._print(member[1] if pairs else member, depth + 1)

    def _other(self, value: object) -> str:
        if self._safe:
            return outline(value)
        if type(value) is bytearray and len(value) > self._left:
            self.cut = True
            return _repr(value[: max(self._left, 0)])
        try:
            text = _repr(value)
            return text if type(text) is str else str.__str__(text)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a broken __repr__ is shown, never raised
            reason = class_name(type(error))
            return f"<{class_name(type(value))} object at {id(value):#x}, its __repr__ raised {reason}>"


def printed(value: object, limit: int) -> tuple[str, bool]:
    """Return the printed value and whether it was cut; code of its own may run."""
    if type(value) is int and value.bit_length() <= min(limit, _SMALL):
        return _repr(value), False
    printer = Printer(limit)
    return printer.text(value), printer.cut


def outline(value: object) -> str:
    """Describe a value by its type alone; no code of the user's runs."""
    kind = type(value)
    if is_class(value):
        return f"<class '{class_name(value)}'>"  # type: ignore[arg-type]  # seen to be one
    if is_module(value):
        return f"<module {_own_name(value)}>"
    if kind is types.FunctionType:
        return f"<function {value.__qualname__}>"  # type: ignore[attr-defined]  # of functions, always a str
    if id(kind) in _BUILTIN:
        return _short_builtin(value)
    sized = container_base(value)
    count = f" with {sized.__len__(value)} items" if sized is not None else ""
    return f"<{class_name(kind)} object{count}>"


def container_base(value: object) -> Any:
    """Return the builtin container that the value is, or is built upon, or None."""
    for base in mro_of(type(value)):
        if any(base is known for known in _SIZED):
            return base
    return None


def _own_name(module: object) -> str:
    name = module_space(module).get("__name__")
    return name if type(name) is str else "?"


def _short_builtin(value: object) -> str:
    if type(value) is bytearray:
        return f"bytearray({bytes(value[:200])!r}{'…' if len(value) > 200 else ''})"  # noqa: PLR2004 - a preview
    if type(value) is types.BuiltinFunctionType:
        return f"<built-in function {value.__name__}>"
    return f"<{class_name(type(value))} object>"


def preview(value: object, limit: int = 200) -> str:
    """Return a short printed form that runs no code of the user's."""
    return Printer(limit, safe=True, items=20).text(value)


def is_trivial(value: object) -> bool:
    """Say whether looking into the value would show nothing new."""
    return id(type(value)) in ATOMS


def shorten(text: str, limit: int) -> str:
    """Cut the text, marking the cut."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def arglist(thing: object) -> str | None:
    """Return `(a, b=1, *rest)`, or None when it is not a callable or its arguments are not known."""
    thing, skip = _underlying(thing)
    if type(thing) is types.FunctionType:
        return _of_function(thing, skip)
    if is_class(thing):
        return _of_class(thing)  # type: ignore[arg-type]  # seen to be one
    text = text_signature(thing)
    if text is not None:
        return _without_receiver(text) if type(thing) is types.BuiltinFunctionType else text.replace("$", "")
    call = class_attribute(type(thing), "__call__")
    return _of_function(call, 1) if type(call) is types.FunctionType else None


def _without_receiver(text: str) -> str:
    """Drop the `$module` or `$self` that a bound C function has been given already."""
    if not text.startswith("($"):
        return text
    rest = text[1:-1].split(", ")[1:]
    return f"({', '.join(rest[1:] if rest[:1] == ['/'] else rest)})"


def _underlying(thing: object) -> tuple[object, int]:
    """Look through methods, static methods, partials, caches and wrappers."""
    skip = 0
    for _step in range(_UNWRAPPED):
        if type(thing) is types.MethodType:
            thing, skip = thing.__func__, 1
        elif id(type(thing)) in WRAPPERS:
            skip = int(type(thing) is classmethod)
            thing = thing.__func__  # type: ignore[attr-defined]  # both have it
        elif type(thing) is functools.partial:
            skip += len(thing.args)
            thing = thing.func
        elif type(thing) is property and thing.fget is not None:
            thing = thing.fget
        else:
            inner = _wrapped(thing)
            if inner is MISSING:
                break
            thing = inner
    return thing, skip


def _wrapped(thing: object) -> object:
    if type(thing) is types.FunctionType:
        return thing.__dict__.get("__wrapped__", MISSING) if type(thing.__dict__) is dict else MISSING
    if is_kind(thing, functools._lru_cache_wrapper):  # noqa: SLF001 - the type has no public name
        return instance_space(thing).get("__wrapped__", MISSING)
    return MISSING


def _of_class(cls: type) -> str | None:
    for name in ("__init__", "__new__"):
        maker = class_attribute(cls, name)
        if type(maker) is staticmethod:
            maker = maker.__func__
        if type(maker) is types.FunctionType:
            return _of_function(maker, 1)
    plain = all(class_attribute(cls, name) is vars(object)[name] for name in ("__init__", "__new__"))
    return "()" if plain else text_signature(cls)


def _of_function(function: types.FunctionType, skip: int) -> str:
    code = function.__code__
    positional = list(code.co_varnames[: code.co_argcount])
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :]
    written = _positional(function, positional)
    if code.co_posonlyargcount > skip:
        written.insert(code.co_posonlyargcount, "/")
    written = written[skip:]
    if code.co_flags & _VARARGS:
        written.append("*" + _annotated(function, rest[0], ": "))
    elif keywords:
        written.append("*")
    defaults = function.__kwdefaults__ or {}
    written += [_parameter(function, name, defaults.get(name, MISSING)) for name in keywords]
    if code.co_flags & _VARKEYWORDS:
        written.append("**" + _annotated(function, rest[1 if code.co_flags & _VARARGS else 0], ": "))
    returned = _annotation(function, "return")
    return f"({', '.join(written)})" + (f" -> {returned}" if returned else "")


def _positional(function: types.FunctionType, names: list[str]) -> list[str]:
    values = function.__defaults__ or ()
    first = len(names) - len(values)
    return [
        _parameter(function, name, values[index - first] if index >= first else MISSING)
        for index, name in enumerate(names)
    ]


def _parameter(function: types.FunctionType, name: str, default: object) -> str:
    text = _annotated(function, name, ": ")
    if default is MISSING:
        return text
    return f"{text} = {preview(default, 60)}" if text != name else f"{name}={preview(default, 60)}"


def _annotated(function: types.FunctionType, name: str, between: str) -> str:
    annotation = _annotation(function, name)
    return name + between + annotation if annotation else name


def _annotation(function: types.FunctionType, name: str) -> str:
    # From 3.14 on annotations are code that runs when they are asked for.
    if not _EAGER_ANNOTATIONS:
        return ""
    notes = function.__annotations__
    return annotation_text(notes[name]) if type(notes) is dict and name in notes else ""


def annotation_text(note: object) -> str:
    """Write an annotation as it was most likely spelled."""
    if type(note) is str:
        return note[:200]
    if is_class(note):
        return class_name(note)  # type: ignore[arg-type]  # seen to be one
    if type(note) is types.GenericAlias or type(note) is types.UnionType:
        return _generic(note)
    return preview(note, 60)


def _generic(note: object) -> str:
    arguments = [annotation_text(argument) for argument in note.__args__]  # type: ignore[attr-defined]  # both have it
    if type(note) is types.UnionType:
        return " | ".join(arguments).replace("NoneType", "None")
    origin = types.GenericAlias.__origin__.__get__(note)
    return f"{annotation_text(origin)}[{', '.join(arguments)}]"
