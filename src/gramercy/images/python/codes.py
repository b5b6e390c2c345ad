"""Read code objects: the names that a piece of code loads, stores and calls, without running it.

The words of the byte code are read here and not with `dis`, which takes thirty times as long. What is the
same in all versions of Python gets the same name; superinstructions are taken apart.
"""

import ast
import dis
import os
import sys
import types
from collections.abc import Callable, Iterator
from importlib.util import cache_from_source as _cache_from_source
from marshal import loads as _loads
from operator import is_
from typing import NamedTuple

from .anatomy import ATOMS, class_space, is_class, module_of, plain, raw_space
from .origins import Origins
from .places import USERS, lines_of, parsed, silently, tier_of
from .words import unwrapped

_open, _stat = open, os.stat
# Bytes of a source that is read for its code: more is data.
_LARGEST = 4 * 1024 * 1024

# Lines of the longest assignment whose text is told, and characters of what it assigns.
_STATEMENT = 12
_LONGEST = 80
# Levels into which registries and closures are followed for functions, and members of a registry.
_DEEPEST = 3
_MEMBERS = 1000
# Methods whose stores are remembered: those of the classes that a person looks at.
_REMEMBERED = 2000
_EXTENDED = dis.EXTENDED_ARG
_OPTIMIZED = 0x01
_SHIFTED = sys.version_info >= (3, 12)
_TYPE_PARAMETERS = "<generic parameters of "
(
    GLOBAL,
    SET_GLOBAL,
    ATTRIBUTE,
    SET_ATTRIBUTE,
    SUPER,
    LOCAL,
    SET_LOCAL,
    CONSTANT,
    IMPORT,
    FROM,
    NULL,
    CALL,
    OTHER,
) = range(13)


class Step(NamedTuple):
    """One instruction: what it does, with which name or constant, whether that is called, and where."""

    kind: int
    name: object
    is_call: bool
    place: int


Rule = tuple[int, Callable[[types.CodeType, int], object], int]


def _rules() -> dict[int, Rule]:
    """Return for each opcode its kind, how to find its name, and the bit that says that a call follows."""
    attribute = _half if _SHIFTED else _plain
    known: dict[str, Rule] = {
        "LOAD_GLOBAL": (GLOBAL, _half, 1),
        "LOAD_METHOD": (ATTRIBUTE, _plain, -1),
        "LOAD_ATTR": (ATTRIBUTE, attribute, 1 if _SHIFTED else 0),
        "LOAD_SUPER_ATTR": (SUPER, _quarter, 1),
        "LOAD_CONST": (CONSTANT, _constant, 0),
        "LOAD_SMALL_INT": (CONSTANT, lambda _code, argument: argument, 0),
        "LOAD_CONST_IMMORTAL": (CONSTANT, _constant, 0),
        "IMPORT_NAME": (IMPORT, _plain, 0),
        "IMPORT_FROM": (FROM, _plain, 0),
        "PUSH_NULL": (NULL, _nothing, 0),
    }
    for name in ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
        known[name] = (GLOBAL, _plain, 0)
    for name in ("STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL", "DELETE_NAME"):
        known[name] = (SET_GLOBAL, _plain, 0)
    for name in ("STORE_ATTR", "DELETE_ATTR"):
        known[name] = (SET_ATTRIBUTE, _plain, 0)
    for name in (
        "LOAD_FAST",
        "LOAD_FAST_CHECK",
        "LOAD_FAST_BORROW",
        "LOAD_DEREF",
        "LOAD_CLASSDEREF",
        "LOAD_FROM_DICT_OR_DEREF",
    ):
        known[name] = (LOCAL, _local, 0)
    for name in ("STORE_FAST", "STORE_DEREF"):
        known[name] = (SET_LOCAL, _local, 0)
    for name in ("CALL", "PRECALL"):
        known[name] = (CALL, lambda _code, argument: argument, 0)
    return {dis.opmap[name]: rule for name, rule in known.items() if name in dis.opmap}


def _plain(code: types.CodeType, argument: int) -> object:
    return code.co_names[argument]


def _half(code: types.CodeType, argument: int) -> object:
    return code.co_names[argument >> 1]


def _quarter(code: types.CodeType, argument: int) -> object:
    return code.co_names[argument >> 2]


def _constant(code: types.CodeType, argument: int) -> object:
    return code.co_consts[argument]


def _nothing(_code: types.CodeType, _argument: int) -> object:
    return None


def _local(code: types.CodeType, argument: int) -> object:
    names = code.co_varnames
    if argument < len(names):
        return names[argument]
    cells = tuple(name for name in code.co_cellvars if name not in names)
    return (*names, *cells, *code.co_freevars)[argument]


_RULES = _rules()
_STORE = dis.opmap["STORE_ATTR"]
_stores: dict[int, tuple[types.CodeType, list["Store"]]] = {}
_PAIRS = {
    dis.opmap[name]: kinds
    for name, kinds in (
        ("LOAD_FAST_LOAD_FAST", (LOCAL, LOCAL)),
        ("LOAD_FAST_BORROW_LOAD_FAST_BORROW", (LOCAL, LOCAL)),
        ("STORE_FAST_LOAD_FAST", (SET_LOCAL, LOCAL)),
        ("STORE_FAST_STORE_FAST", (SET_LOCAL, SET_LOCAL)),
    )
    if name in dis.opmap
}
_IGNORED = frozenset(
    dis.opmap[name] for name in ("CACHE", "EXTENDED_ARG", "NOP", "RESUME", "NOT_TAKEN") if name in dis.opmap
)


def steps(code: types.CodeType) -> Iterator[Step]:
    """Give the instructions of one code object, without those inside of it."""
    words = code.co_code
    above = 0
    for place in range(0, len(words), 2):
        operation = words[place]
        if operation == _EXTENDED:
            above = (above | words[place + 1]) << 8
            continue
        argument, above = above | words[place + 1], 0
        rule = _RULES.get(operation)
        if rule is not None:
            kind, find, bit = rule
            yield Step(kind, find(code, argument), bit < 0 or bool(argument & bit), place)
        elif operation in _PAIRS:
            first, second = _PAIRS[operation]
            yield Step(first, _local(code, argument >> 4), is_call=False, place=place)
            yield Step(second, _local(code, argument & 15), is_call=False, place=place)
        elif operation not in _IGNORED:
            yield Step(OTHER, None, is_call=False, place=place)


def line_at(code: types.CodeType, place: int) -> int:
    """Return the line of an instruction."""
    for start, end, line in code.co_lines():
        if start <= place < end and line is not None:
            return line
    return code.co_firstlineno


class Unit(NamedTuple):
    """A function with all that is inside of it, or the body of a class or module alone."""

    code: types.CodeType
    label: str
    names: frozenset[str]
    is_body: bool


def units_of(code: types.CodeType, label: str) -> Iterator[Unit]:
    """Give the units of a module's code; the label is its name."""
    if code.co_flags & _OPTIMIZED and not code.co_name.startswith(_TYPE_PARAMETERS):
        yield Unit(code, label, _names_in(code), is_body=False)
        return
    yield Unit(code, label, frozenset(code.co_names), is_body=True)
    for part in code.co_consts:
        if type(part) is types.CodeType:
            is_named = not part.co_name.startswith("<")
            yield from units_of(part, f"{label}.{part.co_name}" if is_named else label)


def _names_in(code: types.CodeType) -> frozenset[str]:
    found = set(code.co_names)
    waiting = [code]
    while waiting:
        for part in waiting.pop().co_consts:
            if type(part) is types.CodeType:
                found.update(part.co_names)
                waiting.append(part)
    return frozenset(found)


class Names(NamedTuple):
    """The names of a module, and under which it holds an object or the function inside of it, by id."""

    mark: tuple[list[object], list[object]]
    space: dict[str, object]
    held: dict[int, list[str]]
    renamed: dict[int, set[str]]


class Corpus:
    """The names and the code of the loaded modules; a module is read once, until something in it is new."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, list[Unit], frozenset[str]]] = {}
        self._names: dict[str, Names] = {}

    def names(self, name: str, module: object) -> Names:
        """Return the names of a module."""
        raw = raw_space(module)
        mark: tuple[list[object], list[object]] = (list(raw), list(raw.values()))
        known = self._names.get(name)
        if known is None or tier_of(name) == USERS or not all(map(_is_same, known.mark, mark)):
            space = plain(raw)
            held: dict[int, list[str]] = {}
            for key, value in space.items():
                if id(type(value)) not in ATOMS:
                    held.setdefault(id(value), []).append(key)
                    inner = unwrapped(value)
                    if inner is not value:
                        held.setdefault(id(inner), []).append(key)
            known = self._names[name] = Names(mark, space, held, _renamed(name, space))
        return known

    def units(
        self, name: str, module: object, file: str, origins: Origins
    ) -> tuple[list[Unit], frozenset[str]] | None:
        """Return the units of a module as its file has them, and all names in them.

        None where that is not what was loaded.
        """
        try:
            status = _stat(file) if file.endswith(".py") else None
        except OSError:
            status = None
        if status is None or status.st_size > _LARGEST:
            return None
        mark = (id(module), file, status.st_mtime_ns, status.st_size)
        known = self._known.get(name)
        if known is None or known[0] != mark:
            if origins.is_changed(name):
                return None
            code = _code_of(file, status, trusts_compiled=tier_of(name) != USERS)
            units = list(units_of(code, name)) if code is not None else []
            known = self._known[name] = (mark, units, frozenset().union(*(unit.names for unit in units)))
        return known[1:]


def _is_same(one: list[object], other: list[object]) -> bool:
    """Tell whether the lists hold the same objects; to compare these might run code of the user's."""
    return len(one) == len(other) and all(map(is_, one, other))


def _renamed(module: str, space: dict[str, object]) -> dict[int, set[str]]:
    """Return the names, other than its own, under which classes of a module hold a function, by its id."""
    found: dict[int, set[str]] = {}
    for cls in space.values():
        if is_class(cls) and module_of(cls) == module:
            for name, value in class_space(cls).items():  # type: ignore[arg-type]  # seen to be a class
                inner = unwrapped(value)
                if type(inner) is types.FunctionType and inner.__name__ != name:
                    found.setdefault(id(inner), set()).add(name)
    return found


def _code_of(file: str, status: os.stat_result, *, trusts_compiled: bool) -> types.CodeType | None:
    """Return the code of a module: from what was compiled of this very source, else from the source.

    What was compiled in a directory that evaluated code may write to is not trusted.
    """
    try:
        if trusts_compiled:
            with _open(_cache_from_source(file), "rb") as stream:
                data = stream.read()
            known = (0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
            if tuple(int.from_bytes(data[place : place + 4], "little") for place in (4, 8, 12)) == known:
                found = _loads(data[16:])  # noqa: S302 - of a library, which was imported in the same way
                return found if type(found) is types.CodeType else None
    except (OSError, NotImplementedError, ValueError, EOFError, TypeError):
        pass
    try:
        with _open(file, "rb") as stream:
            code = silently(stream.read(_LARGEST), file, 0)
    except OSError:
        return None
    return code if type(code) is types.CodeType else None


def evaluated_units(module: str, space: dict[str, object]) -> Iterator[Unit]:
    """Give the functions that a module holds, also inside of its classes, closures and registries."""
    seen: set[int] = set()
    for name, value in space.items():
        if is_class(value) and module_of(value) == module:
            yield from _in_class(module, f"{module}.{name}", value, seen)
        else:
            yield from _functions(module, f"{module}.{name}", value, seen)


def _in_class(module: str, label: str, cls: object, seen: set[int]) -> Iterator[Unit]:
    if id(cls) in seen:
        return
    seen.add(id(cls))
    for name, value in class_space(cls).items():  # type: ignore[arg-type]  # seen to be one
        if is_class(value):
            if module_of(value) == module:
                yield from _in_class(module, f"{label}.{name}", value, seen)
        else:
            yield from _functions(module, f"{label}.{name}", value, seen)


def _functions(module: str, label: str, value: object, seen: set[int], depth: int = 0) -> Iterator[Unit]:
    """Give the functions of the module that a value is, wraps, or holds."""
    if depth > _DEEPEST or id(value) in seen or id(type(value)) in ATOMS:
        return
    seen.add(id(value))
    parts: list[object] = []
    if type(value) is types.FunctionType:
        if module_of(value) == module:
            for unit in units_of(value.__code__, label):
                yield unit._replace(label=label)
        cells = value.__closure__ or ()
        parts = [_content(cell) for cell in cells] + [plain(value.__dict__).get("__wrapped__")]
    elif type(value) is property:
        parts = [value.fget, value.fset, value.fdel]
    elif type(value) is dict or type(value) is list or type(value) is tuple:
        parts = list(value.values() if type(value) is dict else value)[:_MEMBERS]
    else:
        inner = unwrapped(value)
        parts = [inner] if inner is not value else []
    for part in parts:
        yield from _functions(module, label, part, seen, depth + 1)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


class Store(NamedTuple):
    """An attribute that a method stores in its object, with the texts of its annotation and value."""

    name: str
    line: int
    note: str
    value: str


def stores_in_self(code: types.CodeType) -> list[Store]:
    """Return what a method stores in its first argument, each attribute once."""
    known = _stores.get(id(code))
    if known is None or known[0] is not code:
        found: dict[str, Store] = {}
        if code.co_argcount:
            _collect(code, code.co_varnames[0], found)
        while len(_stores) >= _REMEMBERED:
            del _stores[next(iter(_stores))]
        known = _stores[id(code)] = (code, list(found.values()))
    return known[1]


def _collect(code: types.CodeType, receiver: str, found: dict[str, Store]) -> None:
    before: Step | None = None
    # The slice holds the operations alone: most methods store nothing.
    for step in steps(code) if _STORE in code.co_code[::2] else ():
        if step.kind == SET_ATTRIBUTE and before is not None and before[:2] == (LOCAL, receiver):
            name = str(step.name)
            line = line_at(code, step.place)
            if name not in found and code.co_code[step.place] == _STORE:
                found[name] = Store(name, line, *_texts(code.co_filename, line, receiver, name))
        before = step
    for part in code.co_consts:
        if type(part) is types.CodeType and receiver in part.co_freevars:
            _collect(part, receiver, found)


def _texts(file: str, line: int, receiver: str, name: str) -> tuple[str, str]:
    """Return the annotation and the value of an assignment as they are written, where that can be found."""
    tree = _statement(lines_of(file)[line - 1 : line - 1 + _STATEMENT])
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.AnnAssign) and _is_target(node.target, receiver, name):
            return _short(node.annotation), _short(node.value)
        if isinstance(node, ast.Assign) and any(_is_target(each, receiver, name) for each in node.targets):
            return "", _short(node.value)
    return "", ""


def _statement(lines: list[str]) -> ast.Module | None:
    if not lines:
        return None
    margin = len(lines[0]) - len(lines[0].lstrip())
    text = ""
    for line in lines:
        text += line[margin:] if line[:margin].isspace() or not margin else line
        tree = parsed(text)
        if tree is not None:
            return tree
    return None


def _is_target(node: ast.expr, receiver: str, name: str) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr != name:
        return False
    return isinstance(node.value, ast.Name) and node.value.id == receiver


def _short(node: ast.expr | None) -> str:
    text = ast.unparse(node) if node is not None else ""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
