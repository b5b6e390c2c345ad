"""Read code objects: the names that a piece of code loads, stores and calls, without running it.

The bytecode is read here and not with `dis`, which takes thirty times as long. Equal instructions of all
Python versions get the same name. Superinstructions are split.
"""

import ast
import dis
import sys
import types
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .anatomy import code_file, code_name
from .places import lines_of, parsed

# Lines of the longest assignment whose text is shown, and characters of its value.
_STATEMENT = 12
_LONGEST = 80
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
    """One instruction: its action, its name or constant, whether that is called, and its place."""

    kind: int
    name: object
    is_call: bool
    place: int


Rule = tuple[int, Callable[[types.CodeType, int], object], int]


def _rules() -> dict[int, Rule]:
    """Return for each opcode its kind, how to find its name, and the bit for a following call."""
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
    """A function with everything inside of it, or the body of a class or module alone."""

    code: types.CodeType
    label: str
    names: frozenset[str]
    is_body: bool


def units_of(code: types.CodeType, label: str) -> Iterator[Unit]:
    """Give the units of a module's code; the label is its name."""
    if code.co_flags & _OPTIMIZED and not code_name(code).startswith(_TYPE_PARAMETERS):
        yield Unit(code, label, _names_in(code), is_body=False)
        return
    yield Unit(code, label, frozenset(code.co_names), is_body=True)
    for part in code.co_consts:
        if type(part) is types.CodeType:
            is_named = not code_name(part).startswith("<")
            yield from units_of(part, f"{label}.{code_name(part)}" if is_named else label)


def _names_in(code: types.CodeType) -> frozenset[str]:
    found = set(code.co_names)
    waiting = [code]
    while waiting:
        for part in waiting.pop().co_consts:
            if type(part) is types.CodeType:
                found.update(part.co_names)
                waiting.append(part)
    return frozenset(found)


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
    # The slice holds the opcodes alone: most methods store nothing.
    for step in steps(code) if _STORE in code.co_code[::2] else ():
        if step.kind == SET_ATTRIBUTE and before is not None and before[:2] == (LOCAL, receiver):
            name = str(step.name)
            line = line_at(code, step.place)
            if name not in found and code.co_code[step.place] == _STORE:
                found[name] = Store(name, line, *_texts(code_file(code), line, receiver, name))
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
