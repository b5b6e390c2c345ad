"""Write argument lists as `inspect.signature` would, without asking the object.

Code objects, defaults and text signatures are read through C slots. A signature that was stored by hand is
used only if its type is `inspect.Signature` itself. No user code runs.
"""

import ast
import enum
import functools
import inspect
import sys
import types
import typing
from collections.abc import Iterable
from typing import Any, NamedTuple

from .anatomy import (
    MISSING,
    WRAPPERS,
    class_attribute,
    class_name,
    class_space,
    code_file,
    code_name,
    function_path,
    instance_space,
    is_class,
    is_kind,
    kinds,
    module_of,
    mro_of,
    plain,
    short_name,
    text_signature,
)
from .places import lines_of, parsed, place_of
from .printing import preview, shorten

_VARARGS, _VARKEYWORDS = 0x04, 0x08
# Wrappers around a function. A longer chain may be circular.
_UNWRAPPED = 10
# Characters of a default and of an annotation; levels of brackets in one.
_DEFAULT, _ANNOTATION, _NESTED = 60, 200, 8
# Characters of a whole list: the longest that people write by hand have some 2,000.
_LONGEST = 4000
# Lines of the longest function head that is read for its annotations.
_HEAD = 80
# Lines of the longest class that is read for them.
_BODY = 1000
_EAGER_ANNOTATIONS = sys.version_info < (3, 14)
_CACHED = functools._lru_cache_wrapper  # noqa: SLF001 - the type has no public name
_PARTIAL = {name: vars(functools.partial)[name].__get__ for name in ("func", "args", "keywords")}
_PARAMETER = {
    name: vars(inspect.Parameter)[f"_{name}"].__get__ for name in ("name", "kind", "default", "annotation")
}
_EMPTY = inspect.Parameter.empty
_SIZED = (list, tuple, dict, set, frozenset)
_ONLY, _EITHER, _REST, _KEYWORD, _MORE = range(5)
_BOUND = kinds(types.BuiltinFunctionType, types.MethodWrapperType, types.ClassMethodDescriptorType)
_PLAIN_MAKERS = (vars(object)["__init__"], vars(object)["__new__"])
_TYPE_CALL = vars(type)["__call__"]
_overloads: Any = getattr(typing, "_overload_registry", {})


class Parameter(NamedTuple):
    """One parameter. The texts are empty where there is no annotation or default."""

    name: str
    kind: int
    note: str = ""
    default: str = ""

    def written(self) -> str:
        """Write it as in the head of a function."""
        text = {_REST: "*", _MORE: "**"}.get(self.kind, "") + self.name
        text += f": {self.note}" if self.note else ""
        if not self.default:
            return text
        return f"{text} = {self.default}" if self.note else f"{text}={self.default}"


class Signature(NamedTuple):
    """Parameters in their order, and the annotation of what is returned."""

    parameters: list[Parameter]
    returned: str = ""

    def written(self) -> str:
        """Write it with the marks between the kinds of parameters."""
        texts: list[str] = []
        kind = _ONLY
        for place, parameter in enumerate(self.parameters):
            if place and kind == _ONLY and parameter.kind != _ONLY:
                texts.append("/")
            if parameter.kind == _KEYWORD and kind < _REST:
                texts.append("*")
            kind = parameter.kind
            texts.append(parameter.written())
        if self.parameters and kind == _ONLY:
            texts.append("/")
        inside = ", ".join(texts)
        if len(inside) > _LONGEST:
            inside = inside[:_LONGEST].rpartition(", ")[0] + f", … of {len(self.parameters)} parameters"
        return f"({inside})" + (f" -> {self.returned}" if self.returned else "")

    def without_first(self) -> "Signature":
        """Remove the argument that a bound method already has."""
        first = self.parameters[:1]
        is_taken = bool(first) and first[0].kind <= _EITHER
        return Signature(self.parameters[1:] if is_taken else self.parameters, self.returned)


def arglist(thing: object) -> str | None:
    """Return `(a, b=1, *rest)`, or None when it is not a callable or its arguments are not known."""
    found = signature_of(thing)
    return found if found is None or type(found) is str else found.written()


def signature_of(thing: object, depth: int = 0) -> Any:  # noqa: PLR0911 - one for each kind
    """Return the signature; a text where it can only be quoted, None where it is not known."""
    if depth > _UNWRAPPED:
        return None
    kind = type(thing)
    if kind is types.MethodType:
        return _shifted(signature_of(thing.__func__, depth + 1))  # type: ignore[attr-defined]  # a method
    if id(kind) in WRAPPERS:
        inner = signature_of(thing.__func__, depth + 1)  # type: ignore[attr-defined]  # both have it
        return _shifted(inner) if kind is classmethod else inner
    if kind is types.FunctionType:
        return _of_function(thing, depth)
    if is_class(thing):
        return _of_class(thing, depth)  # type: ignore[arg-type]  # seen to be one
    for inner, rule in _RULES:
        if is_kind(thing, inner):
            return rule(thing, depth)
    text = text_signature(thing)
    if text is not None:
        return _from_text(text, is_bound=id(kind) in _BOUND)
    return _of_instance(thing, depth)


def _shifted(found: Any) -> Any:
    return found.without_first() if type(found) is Signature else found


def _of_function(function: Any, depth: int) -> Any:
    space = plain(function.__dict__)
    given = space.get("__signature__", MISSING)
    if type(given) is inspect.Signature:
        return _of_given(given)
    if type(space.get("__text_signature__")) is str:
        return _from_text(str(space["__text_signature__"]), is_bound=False)
    inner = space.get("__wrapped__", MISSING)
    if inner is not MISSING:
        found = signature_of(inner, depth + 1)
        if found is not None:
            return found
    return from_code(function)


def from_code(function: types.FunctionType) -> Signature:
    """Read the signature of a function from its own code object."""
    code = function.__code__
    count, only = code.co_argcount, code.co_posonlyargcount
    names = code.co_varnames
    notes = notes_of(function)
    values = function.__defaults__ or ()
    given: dict[str, object] = dict(zip(names[count - len(values) : count], values, strict=False))
    found = [(name, _ONLY if place < only else _EITHER) for place, name in enumerate(names[:count])]
    end = count + code.co_kwonlyargcount
    keywords = [(name, _KEYWORD) for name in names[count:end]]
    if code.co_flags & _VARARGS:
        found.append((names[end], _REST))
        end += 1
    found += keywords
    if code.co_flags & _VARKEYWORDS:
        found.append((names[end], _MORE))
    given.update(plain(function.__kwdefaults__))
    written = [Parameter(name, kind, notes.get(name, ""), _default(given, name)) for name, kind in found]
    return Signature(written, notes.get("return", ""))


def _default(given: dict[str, object], name: str) -> str:
    return default_text(given[name]) if name in given else ""


def default_text(value: object) -> str:
    """Format a default. A long one is cut so that its quotes and brackets stay closed."""
    text = preview(value, _DEFAULT)
    if not text.endswith("…"):
        return text
    if type(value) is str or type(value) is bytes:
        return f"{text[:-1]}…{repr(value)[-1]}"
    return f"<{class_name(type(value))} with {len(value)} items>" if type(value) in _SIZED else text  # type: ignore[arg-type]  # sized


def notes_of(function: types.FunctionType) -> dict[str, str]:
    """Return the annotations of a function as texts; from 3.14 on as they are written in its source."""
    if _EAGER_ANNOTATIONS:
        return {name: annotation_text(note) for name, note in plain(function.__annotations__).items()}
    return notes_in_source(function.__code__)


def notes_in_source(code: types.CodeType) -> dict[str, str]:
    """Read the annotations in the head of a function: computing them would run code."""
    lines = lines_of(code_file(code))
    first = code.co_firstlineno
    head = lines[first - 1 : first - 1 + _HEAD]
    if not head:
        return {}
    margin = len(head[0]) - len(head[0].lstrip())
    text = ""
    for line in head:
        text += line[margin:] if line[:margin].isspace() or not margin else line
        if ":" in line:
            tree = parsed(text) or parsed(text.rstrip() + " pass")
            found = tree.body[0] if tree is not None and tree.body else None
            if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
                return _notes_in(found) if found.name == code_name(code) else {}
    return {}


def _notes_in(node: "ast.FunctionDef | ast.AsyncFunctionDef") -> dict[str, str]:
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    found = {each.arg: ast.unparse(each.annotation) for each in every if each is not None and each.annotation}
    if node.returns is not None:
        found["return"] = ast.unparse(node.returns)
    return {name: _unquoted(note) for name, note in found.items()}


def _unquoted(note: str) -> str:
    return shorten(note[1:-1] if note[:1] in "'\"" and note[1:-1].count(note[0]) == 0 else note, _ANNOTATION)


def _of_class(cls: type, depth: int) -> Any:
    given = class_space(cls).get("__signature__", MISSING)
    if type(given) is inspect.Signature:
        return _of_given(given)
    if is_kind(cls, enum.EnumMeta) and plain(class_space(cls).get("_member_map_")):
        # Its metaclass also takes the arguments for a new enum, which one with members refuses.
        return Signature([Parameter("value", _EITHER)])
    call = class_attribute(type(cls), "__call__")
    if call is not _TYPE_CALL and type(call) is types.FunctionType:
        return _shifted(_of_function(call, depth + 1))
    for base in mro_of(cls):
        space = class_space(base)
        for name in ("__new__", "__init__"):
            maker = space.get(name)
            maker = maker.__func__ if type(maker) is staticmethod else maker
            if type(maker) is types.FunctionType or type(maker) is functools.partialmethod:
                return _shifted(signature_of(maker, depth + 1))
        text = text_signature(base) if base is not object else None
        if text is not None:
            return _from_text(text, is_bound=True)
    makers = (class_attribute(cls, "__init__"), class_attribute(cls, "__new__"))
    is_plain = all(one is other for one, other in zip(makers, _PLAIN_MAKERS, strict=True))
    return Signature([]) if is_plain else None


def _of_given(given: inspect.Signature) -> Signature:
    """Copy a signature that was stored by hand."""
    space = instance_space(given)
    parameters = space.get("_parameters")
    values = list(parameters.values()) if type(parameters) is types.MappingProxyType else []
    found = []
    for each in values:
        if type(each) is inspect.Parameter:
            note, default = _PARAMETER["annotation"](each), _PARAMETER["default"](each)
            texts = (
                "" if note is _EMPTY else annotation_text(note),
                "" if default is _EMPTY else default_text(default),
            )
            found.append(Parameter(str(_PARAMETER["name"](each)), int(_PARAMETER["kind"](each)), *texts))
    returned = space.get("_return_annotation", _EMPTY)
    return Signature(found, "" if returned is _EMPTY else annotation_text(returned))


def _of_partial(thing: Any, depth: int) -> Any:
    func, args, keywords = (_PARTIAL[name](thing) for name in ("func", "args", "keywords"))
    return _narrowed(signature_of(func, depth + 1), len(args), plain(keywords))


def _of_partial_method(thing: Any, depth: int) -> Any:
    space = instance_space(thing)
    found, args = signature_of(space.get("func"), depth + 1), space.get("args")
    if type(found) is not Signature:
        return found
    rest = _narrowed(
        found.without_first(), len(args) if type(args) is tuple else 0, plain(space.get("keywords"))
    )
    return Signature([*found.parameters[:1], *rest.parameters], found.returned)


def _narrowed(found: Any, taken: int, given: dict[str, object]) -> Any:
    """Remove the arguments that a partial has filled by position. Those given by name become defaults."""
    if type(found) is not Signature:
        return found
    left: list[Parameter] = []
    is_named = False
    for parameter in found.parameters:
        if taken and parameter.kind <= _EITHER:
            taken -= 1
            continue
        is_named = is_named or (parameter.name in given and parameter.kind == _EITHER)
        if is_named and parameter.kind == _REST:
            continue
        default = default_text(given[parameter.name]) if parameter.name in given else parameter.default
        kind = _KEYWORD if is_named and parameter.kind == _EITHER else parameter.kind
        left.append(parameter._replace(default=default, kind=kind))
    return Signature(left, found.returned)


def _of_cached(thing: object, depth: int) -> Any:
    return signature_of(instance_space(thing).get("__wrapped__"), depth + 1)


def _of_getter(thing: Any, depth: int) -> Any:
    getter = vars(property)["fget"].__get__(thing)
    return signature_of(getter, depth + 1) if type(getter) is types.FunctionType else None


def _of_cached_property(thing: object, depth: int) -> Any:
    return signature_of(instance_space(thing).get("func"), depth + 1)


_RULES: tuple[tuple[Any, Any], ...] = (
    (functools.partial, _of_partial),
    (functools.partialmethod, _of_partial_method),
    (_CACHED, _of_cached),
    (property, _of_getter),
    (functools.cached_property, _of_cached_property),
)


def _of_instance(thing: object, depth: int) -> Any:
    call = class_attribute(type(thing), "__call__")
    if type(call) is types.FunctionType or id(type(call)) in WRAPPERS:
        found = signature_of(call, depth + 1)
        return found if type(call) is staticmethod else _shifted(found)
    return None


def _from_text(text: str, *, is_bound: bool) -> "Signature | str":
    """Parse the documented signature of a C function. `$` marks the bound argument."""
    tree = parsed(f"def f{text.replace('$', '')}: pass")
    node = tree.body[0] if tree is not None else None
    if not isinstance(node, ast.FunctionDef):
        return text.replace("$", "")
    found = Signature(_parameters(node.args))
    is_marked = text.startswith("($")
    return found.without_first() if is_bound and is_marked else found


def _parameters(given: ast.arguments) -> list[Parameter]:
    positional = [
        *((each.arg, _ONLY) for each in given.posonlyargs),
        *((each.arg, _EITHER) for each in given.args),
    ]
    defaults = ["" for _each in positional]
    if given.defaults:
        defaults[-len(given.defaults) :] = map(ast.unparse, given.defaults)
    found = [
        Parameter(name, kind, "", default) for (name, kind), default in zip(positional, defaults, strict=True)
    ]
    found += [Parameter(given.vararg.arg, _REST)] if given.vararg else []
    for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append(Parameter(each.arg, _KEYWORD, "", ast.unparse(value) if value is not None else ""))
    return [*found, Parameter(given.kwarg.arg, _MORE)] if given.kwarg else found


def overloads_of(thing: object) -> list[str]:
    """Return the signatures that `typing.overload` has for a function, in the order of its source."""
    for _step in range(_UNWRAPPED):
        if id(type(thing)) in WRAPPERS or type(thing) is types.MethodType:
            thing = thing.__func__  # type: ignore[attr-defined]  # all have it
        elif is_kind(thing, _CACHED):
            thing = instance_space(thing).get("__wrapped__")
    if type(thing) is not types.FunctionType or not is_kind(_overloads, dict):
        return []
    module: Any = dict.get(_overloads, module_of(thing))
    by_line: Any = dict.get(module, function_path(thing)) if is_kind(module, dict) else None
    functions = list(dict.values(by_line)) if is_kind(by_line, dict) else []
    return [from_code(each).written() for each in functions if type(each) is types.FunctionType]


def annotation_text(note: object, depth: int = 0) -> str:  # noqa: PLR0911 - one for each kind
    """Format an annotation as it was most likely spelled."""
    if type(note) is str:
        return note[:_ANNOTATION]
    if depth > _NESTED:
        return "…"
    if note is None or note is type(None):
        return "None"
    if note is ...:
        return "..."
    if type(note) is types.GenericAlias or type(note) is types.UnionType:
        return shorten(_generic(note, depth + 1), _ANNOTATION)
    if is_class(note):
        return class_name(note).removeprefix("typing.")  # type: ignore[arg-type]  # seen to be one
    if type(note) is list or type(note) is tuple:
        return f"[{_listed(note, depth)}]" if type(note) is list else f"({_listed(note, depth)})"
    return (
        _of_typing(note, depth)
        if module_of(type(note)) in ("typing", "typing_extensions")
        else preview(note, _DEFAULT)
    )


def _listed(notes: Iterable[object], depth: int) -> str:
    return ", ".join(annotation_text(note, depth + 1) for note in notes)


def _generic(note: Any, depth: int) -> str:
    arguments = [annotation_text(argument, depth) for argument in note.__args__]
    if type(note) is types.UnionType:
        return " | ".join(arguments)
    origin = types.GenericAlias.__origin__.__get__(note)
    return f"{annotation_text(origin, depth)}[{', '.join(arguments) or '()'}]"


def _of_typing(note: object, depth: int) -> str:  # noqa: PLR0911 - one for each kind
    """Format a value of `typing` from its attributes: its own printing asks the arguments."""
    if short_name(type(note)) in ("TypeVar", "ParamSpec", "TypeVarTuple"):
        return _variable_name(note)
    space = instance_space(note)
    name = next(
        (space[key] for key in ("_name", "__name__", "__forward_arg__") if type(space.get(key)) is str), ""
    )
    arguments = space.get("__args__")
    if type(arguments) is not tuple:
        return str(name) or class_name(type(note))
    origin = space.get("__origin__")
    if short_name(type(note)) == "_LiteralGenericAlias":
        return f"Literal[{', '.join(preview(each, _DEFAULT) for each in arguments)}]"
    if origin is typing.Union or name in ("Optional", "Union"):
        return _union(arguments, depth)
    if short_name(type(note)) == "_CallableGenericAlias":
        head = "..." if arguments[:-1] == (...,) else f"[{_listed(arguments[:-1], depth)}]"
        return f"{name or 'Callable'}[{head}, {annotation_text(arguments[-1], depth + 1)}]"
    metadata = space.get("__metadata__")
    if type(metadata) is tuple:
        extra = ", ".join(preview(each, _DEFAULT) for each in metadata)
        return f"Annotated[{annotation_text(origin, depth + 1)}, {extra}]"
    return shorten(f"{name or annotation_text(origin, depth + 1)}[{_listed(arguments, depth)}]", _ANNOTATION)


def _variable_name(note: object) -> str:
    slot = class_attribute(type(note), "__name__")
    found: object = (
        slot.__get__(note)
        if type(slot) is types.MemberDescriptorType
        else instance_space(note).get("__name__")
    )
    return found if type(found) is str else class_name(type(note))


def _union(arguments: tuple[object, ...], depth: int) -> str:
    texts = [annotation_text(each, depth + 1) for each in arguments]
    if len(texts) == 2 and "None" in texts:  # noqa: PLR2004 - the other one is optional
        texts.remove("None")
        return f"Optional[{texts[0]}]"
    return f"Union[{', '.join(texts)}]"


def annotations_of(cls: type) -> dict[str, str]:
    """Return the annotations of a class as texts; from 3.14 on as written, unless computed already."""
    notes = class_space(cls).get("__annotations__" if _EAGER_ANNOTATIONS else "__annotations_cache__")
    if type(notes) is not dict and not _EAGER_ANNOTATIONS:
        place = place_of(cls)
        return class_notes_in_source(*place) if place is not None else {}
    return {key: annotation_text(note) for key, note in plain(notes).items()}


def class_notes_in_source(file: str, first: int) -> dict[str, str]:
    """Read the annotations in the body of a class that begins on this line, with its decorators."""
    lines = lines_of(file)[first - 1 :][:_BODY]
    margin = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    is_inside = False
    text = ""
    for line in lines:
        bare = line.lstrip()
        if (
            is_inside
            and bare
            and len(line) - len(bare) <= margin
            and not bare.startswith((")", "]", "}", "#"))
        ):
            break
        is_inside = is_inside or bare.startswith("class ")
        text += line[margin:] if line[:margin].isspace() or not margin else line
    tree = parsed(text)
    node = tree.body[0] if tree is not None and tree.body else None
    body = node.body if isinstance(node, ast.ClassDef) else []
    found = [each for each in body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
    return {each.target.id: _unquoted(ast.unparse(each.annotation)) for each in found}  # type: ignore[union-attr]  # a name
