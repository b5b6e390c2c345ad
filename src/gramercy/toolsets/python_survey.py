"""Parse Python text and list the places of its definitions. Evaluates nothing.

The interpreter of gramercy runs it, and its source is sent to the interpreter of an image, which may be a
newer one. So it uses the standard library alone.
"""

from __future__ import annotations

import ast
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Blocks without their own scope: their definitions belong to the enclosing scope.
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def survey(text: str, *, is_whole: bool) -> dict[str, Any]:
    """Return the version of the parser, the number of statements and the definitions, or the fault.

    A definition has kind, name, name of the parent, last line of the statement before it, first line with
    decorators, line, last line, the columns (in bytes of UTF-8) where it begins and ends, and whether it has
    a docstring.
    """
    found: dict[str, Any] = {"version": "{}.{}".format(*sys.version_info), "count": 0, "rows": []}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(text).body
            if is_whole:
                # Finds errors that only the compiler reports, such as return outside of a function.
                compile(text, "<text>", "exec", dont_inherit=True)
        _add(found["rows"], body, "", 0)
    except SyntaxError as error:
        kind = "" if type(error) is SyntaxError else f"{type(error).__name__}: "
        found["fault"] = [error.lineno or 1, max(1, error.offset or 1), f"{kind}{error.msg}"]
    except (ValueError, RecursionError, MemoryError) as error:
        found["fault"] = [1, 1, f"the text cannot be parsed: {str(error) or 'it is nested too deeply'}"]
    else:
        found["count"] = len(body)
    return found


def _add(
    rows: list[list[Any]], nodes: Iterable[Any], parent: str, above: int, *, in_function: bool = False
) -> None:
    """Add the definitions among these statements, and those inside of them."""
    for node in nodes:
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            name = f"{parent}.{node.name}" if parent else node.name
            rows.append([_kind(node, parent), name, parent, above, *_place(node)])
            _add(rows, node.body, name, node.lineno, in_function=isinstance(node, _FUNCTIONS))
        else:
            for short in () if in_function else _assigned(node):
                name = f"{parent}.{short}" if parent else short
                rows.append(["variable", name, parent, above, *_place(node)])
            for block in _BLOCKS:
                inner = getattr(node, block, ())
                _add(rows, inner, parent, getattr(node, "lineno", above), in_function=in_function)
        above = getattr(node, "end_lineno", above)


def _kind(node: ast.AST, parent: str) -> str:
    if isinstance(node, ast.ClassDef):
        return "class"
    word = "method" if parent else "function"
    return f"async {word}" if isinstance(node, ast.AsyncFunctionDef) else word


def _place(node: Any) -> list[int]:
    decorators = [decorator.lineno for decorator in getattr(node, "decorator_list", ())]
    first = min([node.lineno, *decorators])
    is_documented = hasattr(node, "name") and hasattr(node, "body") and ast.get_docstring(node) is not None
    return [first, node.lineno, node.end_lineno, node.col_offset, node.end_col_offset, is_documented]


def _assigned(node: Any) -> list[str]:
    """Return the names that a statement assigns to."""
    targets = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    elif type(node).__name__ == "TypeAlias":
        targets = [node.name]
    every = [each for target in targets for each in ast.walk(target)]
    names = [each.id for each in every if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    return list(dict.fromkeys(names))
