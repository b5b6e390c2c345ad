"""Write the argument list of a callable from what the interpreter keeps, without calling anything.

`inspect.signature` asks the object (`__signature__`, `__wrapped__`, `__text_signature__`, metaclasses); this
reads code objects and the C documentation only.
"""

import functools
import sys
import types

from .anatomy import (
    MISSING,
    WRAPPERS,
    class_attribute,
    class_name,
    instance_space,
    is_class,
    is_kind,
    text_signature,
)
from .printing import preview

_VARARGS, _VARKEYWORDS = 0x04, 0x08
_UNWRAPPED = 10
_EAGER_ANNOTATIONS = sys.version_info < (3, 14)


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
