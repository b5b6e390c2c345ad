"""Evaluate source text in a module, form by form.

A form is a top-level statement; an expression has one value, any other statement none. This module runs user
code and lets its exceptions out; who calls it guards, captures and reports.
"""

import __future__

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType

from .coroutines import Loop
from .printing import Printer
from .sources import Sources

_compile, _exec, _eval = compile, exec, eval
_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag
_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_TREE = ast.PyCF_ONLY_AST
_COROUTINE = 0x80


_ALL_VALUES = 8 * 1024 * 1024


@dataclass(slots=True)
class Run:
    """What one evaluation has done so far; whole also when an exception ends it."""

    limit: int
    forms: list[dict[str, object]] = field(default_factory=list)
    last: list[object] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)
    cut: int = 0
    is_cut_short: bool = False
    room: int = _ALL_VALUES
    pure: bool = True

    def add(self, values: list[object]) -> None:
        """Print the values of a finished form; this may run code of theirs."""
        printed = []
        for value in values:
            printer = Printer(max(min(self.limit, self.room), 200))
            printed.append(printer.text(value))
            self.room -= len(printed[-1])
            self.cut += printer.cut
            remember(value)
        self.forms.append({"values": printed})
        self.last = values


class Evaluator:
    """Compile and run forms, remembering `from __future__` imports by module."""

    def __init__(self, sources: Sources, loop: Loop) -> None:
        self._sources = sources
        self._loop = loop
        self._futures: dict[str, int] = {}

    def run(self, code: str, module: str, space: dict[str, object], run: Run) -> None:
        """Evaluate the code in the module's namespace, writing into the run as it goes."""
        space["__builtins__"] = builtins
        for statement, compiled in self._forms(code, module):
            run.pure = run.pure and is_pure(statement)
            run.add(self._form(statement, compiled, space))
            _collect(statement, run.bound)

    def parse(self, code: str, module: str) -> tuple[str, list[ast.stmt]]:
        """Return the file name given to the code and its statements."""
        name = self._sources.add(code)
        flags = _TREE | _AWAIT | self._futures.get(module, 0)
        tree: ast.Module = _compile(code, name, "exec", flags, dont_inherit=True)
        return name, tree.body

    def _forms(self, code: str, module: str) -> Iterator[tuple[ast.stmt, CodeType]]:
        name, statements = self.parse(code, module)
        for statement in statements:
            flags = _AWAIT | self._futures.get(module, 0)
            if type(statement) is ast.Expr:
                compiled = _compile(ast.Expression(statement.value), name, "eval", flags, dont_inherit=True)
            else:
                tree = ast.Module([statement], [])
                compiled = _compile(tree, name, "exec", flags, dont_inherit=True)
            yield statement, compiled
            if compiled.co_flags & _FUTURE:
                self._futures[module] = self._futures.get(module, 0) | (compiled.co_flags & _FUTURE)

    def _form(self, statement: ast.stmt, compiled: CodeType, space: dict[str, object]) -> list[object]:
        if compiled.co_flags & _COROUTINE:
            value = self._loop.run(_eval(compiled, space))
        elif type(statement) is ast.Expr:
            value = _eval(compiled, space)
        else:
            _exec(compiled, space)
            return []
        return [value] if type(statement) is ast.Expr else []


def is_pure(statement: ast.stmt) -> bool:
    """Tell whether a statement only computes with constants, so that nothing can have changed after it."""
    return type(statement) is ast.Expr and _computes(statement.value)


def _computes(node: ast.expr) -> bool:
    # Not by ast.walk: it imports, and imports are the user's to break.
    kind = type(node)
    if kind is ast.Constant:
        return True
    if kind is ast.BinOp:
        return _computes(node.left) and _computes(node.right)  # type: ignore[attr-defined]
    return kind is ast.UnaryOp and _computes(node.operand)  # type: ignore[attr-defined]


def _collect(statement: ast.stmt, bound: set[str]) -> None:
    """Add the names that a finished statement is certain to have bound."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        bound.add(statement.name)
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            bound.update(_stored(target))
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign) and isinstance(statement.target, ast.Name):
        bound.update([statement.target.id] if statement.value is not None else [])


def _stored(target: ast.expr) -> list[str]:
    nodes = [node for node in ast.walk(target) if isinstance(node, ast.Name)]
    return [node.id for node in nodes if isinstance(node.ctx, ast.Store)]


def remember(value: object) -> None:
    """Make the value available as `_`, and the one before it as `__`, as an interactive Python does."""
    if value is not None:
        space = vars(builtins)
        space["__"], space["_"] = space.get("_"), value
