"""Print values with a bound on length, depth and items.

Builtin containers are walked here, so that a list of a million strings costs no more than the part that is
shown. A value that is shown completely reads exactly as `repr`. With `safe` no user code runs.
"""

import enum
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from .anatomy import (
    ATOMS,
    class_name,
    function_path,
    instance_space,
    is_class,
    is_kind,
    is_module,
    kinds,
    module_space,
    mro_of,
)
from .arrays import View
from .shapes import view_of

# Levels of nesting: far below the recursion limit, and deeper than a reader follows.
_DEEPEST = 40
# Records inside of records: each level says less about the requested value.
_RECORDS = 3
# Bits of an integer that is printed directly: its twenty digits are below every limit.
_SMALL = 64
# Characters that are kept of a value printed by its own code, and characters of a text that is measured.
_KEPT = 200_000
_MEASURED = 4_000_000
_repr = repr
Show = Callable[[object], str]
_PLAIN: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}
# Containers of the standard library. Where user code must not run, they are printed without their own code.
_STANDARD: dict[type, tuple[str, str]] = {
    OrderedDict: ("OrderedDict({", "})"),
    Counter: ("Counter({", "})"),
    defaultdict: ("defaultdict({}, {{", "})"),
    deque: ("deque([", "])"),
}
_factory = vars(defaultdict)["default_factory"].__get__
_builtin_name = vars(types.BuiltinFunctionType)["__name__"].__get__
_CONTAINERS = kinds(dict, *_PLAIN)
_ALL_CONTAINERS = _CONTAINERS | kinds(*_STANDARD)
_SIZED = (list, tuple, dict, set, frozenset, deque, str, bytes)
_NO_DEFAULT = "dataclasses._HAS_DEFAULT_FACTORY_CLASS"


class Printer:
    """One printing of one value, within a budget of characters."""

    def __init__(
        self,
        limit: int,
        *,
        safe: bool = False,
        items: int | None = None,
        show: Show | None = None,
        keep: int = 0,
    ) -> None:
        self._keep = max(keep - limit, 0)
        self._parts: list[str] = []
        self._left = limit
        self._limit = limit
        self._is_safe = safe
        self._containers = _ALL_CONTAINERS if safe else _CONTAINERS
        self._show = outline if safe else show or self._shown
        # Whether user code was run to print: printing again might give another text.
        self._is_foreign = False
        self._items = items
        self._open: set[int] = set()
        self._records = 0
        self.cut = False

    def text(self, value: object) -> str:
        """Return the printed value. It ends in an ellipsis if the budget ran out."""
        whole = self.whole(value)
        if len(whole) > self._limit:
            self.cut = True
            return whole[: self._limit] + "…"
        return whole + "…" if self.is_exhausted else whole

    def whole(self, value: object) -> str:
        """Return the whole printed text, which may be longer than the limit."""
        self._print(value, 0)
        self._parts = ["".join(self._parts)]
        return self._parts[0]

    @property
    def is_exhausted(self) -> bool:
        """Return whether the budget ran out before the end of the value."""
        return self.cut and self._left <= 0

    def _put(self, text: str) -> None:
        if len(text) > self._left and self._is_foreign and self._keep > 0:
            self._left, self._keep = self._left + self._keep, 0
        if len(text) > self._left:
            self.cut = True
            text, self._left = text[: max(self._left, 0)], 0
        else:
            self._left -= len(text)
        self._parts.append(text)

    def _print(self, value: object, depth: int) -> None:
        kind = type(value)
        if id(kind) in ATOMS:
            self._put(self._atom(value))
        elif id(kind) in self._containers:
            self._container(value, depth)
        elif kind is View:
            self._view(value, depth)  # type: ignore[arg-type]  # it is one
        elif self._is_safe and id(value) not in self._open and (view := view_of(value)) is not None:
            self._record(view, value, depth)
        else:
            self._put(self._other(value))

    def _record(self, view: View, value: object, depth: int) -> None:
        if view.parts and self._records >= _RECORDS:
            self._put(self._other(value))
            return
        self._open.add(id(value))
        self._records += 1
        self._view(view, depth)
        self._records -= 1
        self._open.discard(id(value))

    def _view(self, view: View, depth: int) -> None:
        """Print a view. Its parts are values or views again."""
        self._put(view.head)
        for shown, (label, part) in enumerate(view.parts):
            if self._left <= 0 or (self._items is not None and shown >= self._items):
                self._stop(len(view.parts) - shown + view.left, shown)
                break
            self._put(f", {label}" if shown else label)
            self._print(part, depth + 1)
        else:
            if view.left:
                self._stop(view.left, len(view.parts))
        self._put(view.tail)

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
        before, after = _PLAIN.get(type(value)) or _STANDARD.get(type(value), ("{", "}"))
        if type(value) is defaultdict:
            before = before.format(outline(_factory(value)))
        if type(value) in (set, frozenset) and not value:
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
        base: Any = type(value) if id(type(value)) in _CONTAINERS else container_base(value)
        pairs = base is dict
        # Each member takes at least one character, so only as many are copied as there is room for.
        members = list(islice(dict.items(value) if pairs else base.__iter__(value), self._left + 1))  # type: ignore[arg-type]  # a dict
        for shown, member in enumerate(members):
            if self._left <= 0 or (self._items is not None and shown >= self._items):
                self._stop(base.__len__(value) - shown, shown)
                return
            if shown:
                self._put(", ")
            if pairs:
                self._print(member[0], depth + 1)
                self._put(": ")
            self._print(member[1] if pairs else member, depth + 1)

    def _stop(self, left: int, shown: int) -> None:
        """End a container early, and count the rest where there is room for that."""
        self.cut = True
        if self._left > 0:
            self._put(f", … {left} more" if shown else f"… {left} more")

    def _other(self, value: object) -> str:
        return self._show(value)

    def _shown(self, value: object) -> str:
        """Print a value in its own way. Its errors are reported, not raised."""
        if type(value) is bytearray and len(value) > self._left:
            self.cut = True
            return _repr(value[: max(self._left, 0)])
        try:
            self._is_foreign = True
            text = _repr(value)
            return text if type(text) is str else str.__str__(text)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a broken __repr__ is shown, never raised
            reason = class_name(type(error))
            return f"<{class_name(type(value))} object at {id(value):#x}, its __repr__ raised {reason}>"


class Printed(NamedTuple):
    """A printed value: the shown part, whether that was cut, its length, and the kept text.

    The length is None where the budget was enough, and 0 where it is not known.
    """

    text: str
    cut: bool = False
    length: int | None = None
    kept: str = ""


def printed(value: object, limit: int) -> Printed:
    """Print a value within a limit. Its own code may run.

    If it has, and there is more, a further part is printed and kept: printing it again later might give
    another text, and would run that code again.
    """
    if type(value) is int and value.bit_length() <= min(limit, _SMALL):
        return Printed(_repr(value))
    printer = Printer(limit, keep=_KEPT)
    whole = printer.whole(value)
    if len(whole) <= limit and not printer.is_exhausted:
        return Printed(whole, printer.cut)
    is_whole = not printer.is_exhausted
    length = len(whole) if is_whole else _length(value)
    kept = whole if len(whole) > limit else ""
    return Printed(whole[:limit] + "…", cut=True, length=length, kept=kept)


def _length(value: object) -> int:
    """Return the length of a printed text or of bytes, 0 for anything else."""
    if (type(value) is str or type(value) is bytes) and len(value) <= _MEASURED:
        return len(_repr(value))
    return 0


def printed_again(value: object, limit: int, show: Show) -> tuple[str, bool]:
    """Print a value with another function for values that print themselves. Return whether it was cut."""
    printer = Printer(limit, show=show)
    return printer.whole(value), printer.is_exhausted


def outline(value: object) -> str:  # noqa: PLR0911 - one for each kind
    """Describe a value by its type alone. No user code runs."""
    kind = type(value)
    if is_class(value):
        return f"<class '{class_name(value)}'>"  # type: ignore[arg-type]  # seen to be one
    if is_module(value):
        return f"<module {_own_name(value)}>"
    if kind is types.FunctionType:
        return f"<function {function_path(value)}>"
    if type(value) is bytearray:
        return f"bytearray({bytes(value[:200])!r}{'…' if len(value) > 200 else ''})"  # noqa: PLR2004 - a preview
    if is_kind(value, types.BuiltinFunctionType):
        return f"<built-in function {_builtin_name(value)}>"
    if is_kind(kind, enum.EnumMeta):
        member = instance_space(value).get("_name_")
        return f"{class_name(kind)}.{member}" if type(member) is str else f"<{class_name(kind)} object>"
    if class_name(kind) == _NO_DEFAULT:
        return "<factory>"
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


def preview(value: object, limit: int = 200) -> str:
    """Return a short printed form that runs no code of the user's."""
    return Printer(limit, safe=True, items=20).text(value)


def is_trivial(value: object) -> bool:
    """Say whether looking into the value would show nothing new."""
    return id(type(value)) in ATOMS


def shorten(text: str, limit: int) -> str:
    """Cut the text, marking the cut."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"
