"""The statements of a source text: their bindings and reads, and their pairing with an older text.

Trees are compared without their places, so that a moved statement is the same one. Nothing is run.
"""

import ast
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from .places import without_warnings

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
# Statements around others that run as a whole.
BLOCKS = (ast.If, ast.Try, ast.TryStar, ast.With)
_SCOPES = (*DEFINITIONS, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Decorators that pass all arguments on and do not depend on the function's text.
CLEAR = frozenset(
    (
        *("property", "staticmethod", "classmethod", "setter", "getter", "deleter", "lru_cache", "cache"),
        *("wraps", "override", "cached_property", "abstractmethod", "overload", "contextmanager"),
        *("asynccontextmanager", "final"),
    )
)
# The compared part of a tree: all of it; without the code that runs only when a function is called; of
# definitions only their names.
_WHOLE, _SKELETON, _NAMES = range(3)
_compile, _parse = compile, ast.parse
Key = Callable[[ast.stmt], object]


class Text:
    """A source text with its tree and its code. The constructor raises SyntaxError or ValueError."""

    def __init__(self, data: bytes, file: str) -> None:
        self.data = data
        self.file = file
        with without_warnings():
            self.tree = _parse(data, file)
            # As a whole: since 3.12 a statement compiled by itself differs from the code of its file.
            self.code = _compile(data, file, "exec", dont_inherit=True)
        self._lines = data.splitlines(keepends=True)
        self._known: dict[int, bytes] = {}

    def of(self, node: ast.stmt) -> bytes:
        """Return the text of a statement, to skip unchanged ones quickly."""
        known = self._known.get(id(node))
        if known is None:
            part = self._lines[first_line(node) - 1 : node.end_lineno]
            part[-1] = part[-1][: node.end_col_offset]
            part[0] = part[0][node.col_offset :]
            known = self._known[id(node)] = b"".join(part)
        return known


class Paired(NamedTuple):
    """The statements of two texts: those that belong together, and those that are only in one."""

    both: list[tuple[ast.stmt, ast.stmt]]
    gone: list[ast.stmt]
    fresh: list[ast.stmt]


def first_line(node: ast.stmt) -> int:
    """Return the line on which a statement begins, its decorators included."""
    decorated: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorated)])


def dump(node: object, depth: int = _WHOLE) -> str:
    """Write a tree without positions."""
    if isinstance(node, list):
        return "[" + ",".join([dump(each, depth) for each in node]) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if depth == _NAMES and isinstance(node, DEFINITIONS):
        return node.name
    skipped = "body" if depth and isinstance(node, (*FUNCTIONS, ast.Lambda)) else ""
    parts = [dump(getattr(node, each, None), depth) for each in node._fields if each != skipped]
    return f"{type(node).__name__}({','.join(parts)})"


def skeleton(node: ast.AST) -> str:
    """Format a tree without the code that runs only when a function in it is called."""
    return dump(node, _SKELETON)


def _block_key(node: ast.stmt) -> object:
    return dump(node, _NAMES) if isinstance(node, BLOCKS) else None


def _name_key(node: ast.stmt) -> object:
    return (type(node) is ast.ClassDef, node.name) if isinstance(node, DEFINITIONS) else None


def _moved_key(node: ast.stmt) -> object:
    """Return a whole definition, so that among several of one shape the equal ones are paired first."""
    return dump(node) if isinstance(node, DEFINITIONS) else None


class Pairing:
    """The pairing of two lists of statements, from certain pairs to those with only the same name."""

    def __init__(self, old: list[ast.stmt], new: list[ast.stmt]) -> None:
        self._old, self._new = old, new
        self._left, self._right = list(range(len(old))), list(range(len(new)))
        self._found: dict[int, int] = {}

    def run(self, texts: tuple[Text, Text]) -> Paired:
        """Pair equal statements, those that differ in function bodies only, and definitions of one name."""
        words = [texts[0].of(each) for each in self._old], [texts[1].of(each) for each in self._new]
        for a, b, size in SequenceMatcher(None, *words, autojunk=False).get_matching_blocks():
            for step in range(size):
                self._take(a + step, b + step)
        for key in (_moved_key, skeleton, _block_key, _name_key):
            self._by(key)
        both = [(self._old[self._found[j]], self._new[j]) for j in sorted(self._found)]
        return Paired(both, [self._old[i] for i in self._left], [self._new[j] for j in self._right])

    def _take(self, i: int, j: int) -> None:
        self._found[j] = i
        self._left.remove(i)
        self._right.remove(j)

    def _by(self, key: Key) -> None:
        if not (self._left and self._right):
            return
        before, after = _grouped(key, self._old, self._left), _grouped(key, self._new, self._right)
        for word, places in after.items():
            if word is not None and len(before.get(word, ())) == len(places):
                for i, j in zip(before[word], places, strict=True):
                    self._take(i, j)


def _grouped(key: Key, statements: list[ast.stmt], places: list[int]) -> dict[object, list[int]]:
    found: dict[object, list[int]] = {}
    for place in places:
        found.setdefault(key(statements[place]), []).append(place)
    return found


def own_scope(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Give the nodes of a scope, without those of the scopes in it."""
    waiting = list(statements)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting.extend(ast.iter_child_nodes(node))


def simple_parts(block: ast.stmt) -> list[ast.stmt]:
    """Return the statements in a block that have no others in them, but for definitions."""
    return [
        node
        for node in own_scope([block])
        if isinstance(node, ast.stmt) and not hasattr(node, "orelse") and not isinstance(node, ast.With)
    ]


def bound(statements: Iterable[ast.AST]) -> set[str]:
    """Return the names that statements bind in their own scope."""
    found: set[str] = set()
    for node in own_scope(statements):
        if isinstance(node, DEFINITIONS) or (isinstance(node, ast.ExceptHandler) and node.name):
            found.add(str(node.name))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return found


def run_parts(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a statement that run with it, not when functions in it are called."""
    waiting = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if not (name == "body" and isinstance(node, (*FUNCTIONS, ast.Lambda))):
                values = value if isinstance(value, list) else [value]
                waiting.extend(each for each in values if isinstance(each, ast.AST))


def read_names(statement: ast.AST) -> set[str]:
    """Return the names that a statement reads when it is run."""
    return {
        node.id
        for node in run_parts(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def decorators(statement: Definition) -> set[str]:
    """Return the last words of the decorators: `route` of `app.route(...)`."""
    called = [each.func if isinstance(each, ast.Call) else each for each in statement.decorator_list]
    return {getattr(each, "attr", getattr(each, "id", "?")) for each in called}


def is_clear(statement: Definition) -> bool:
    """Return whether no decorator of a definition has read its parameters or its text."""
    return decorators(statement) <= CLEAR


def is_generator(function: Function) -> bool:
    """Tell whether calling the function makes a generator."""
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_scope(function.body))


def defaults(arguments: ast.arguments, *, by_name: bool = True) -> list[tuple[str, ast.expr]]:
    """Return the parameters that have a default, with its expression; `by_name`: keyword-only ones too."""
    positional = [*arguments.posonlyargs, *arguments.args]
    start = len(positional) - len(arguments.defaults)
    found = [(each.arg, value) for each, value in zip(positional[start:], arguments.defaults, strict=True)]
    if by_name:
        pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        found += [(each.arg, value) for each, value in pairs if value is not None]
    return found


def copied(like: ast.AST, made: Any) -> Any:
    """Give a new node the place of another one."""
    return ast.copy_location(made, like)
