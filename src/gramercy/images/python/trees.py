"""Find definitions and assignments in the syntax tree of a text, and compare code regardless of lines."""

import ast
import types
from collections.abc import Iterator

DEFINERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def first_line(node: ast.AST) -> int:
    """Return the first line of a statement, its decorators included."""
    above: list[int] = [each.lineno for each in getattr(node, "decorator_list", [])]
    first: int = node.lineno  # type: ignore[attr-defined]  # a statement
    return min([first, *above])


def last_line(node: ast.AST) -> int:
    """Return the last line of a statement."""
    return int(node.end_lineno or node.lineno)  # type: ignore[attr-defined]  # a statement


def last_with_comments(node: ast.AST, lines: list[str]) -> int:
    """Return the last line of a definition. Comments below it that are indented deeper belong to it."""
    last = last_line(node)
    if isinstance(node, DEFINERS):
        for number in range(last + 1, len(lines) + 1):
            line = lines[number - 1]
            is_inside = line[: node.col_offset + 1].isspace() and line.lstrip().startswith("#")
            if line.strip() and not is_inside:
                break
            last = number if is_inside else last
    return last


def node_at(tree: ast.AST, first: int, name: str) -> "ast.AST | None":
    """Return the definition of that name that begins in the line. For a lambda, return its statement."""
    if name != "<lambda>":
        named = (node for node in ast.walk(tree) if isinstance(node, DEFINERS) and node.name == name)
        return next((node for node in named if first in (first_line(node), node.lineno)), None)
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        and not isinstance(node, DEFINERS)
        and first_line(node) <= first <= last_line(node)
    ]
    return min(around, key=lambda node: last_line(node) - first_line(node), default=None)


def node_by_path(tree: ast.AST, path: str) -> "ast.AST | None":
    """Return the definition of a qualified name. Of several, return the last, which counts."""
    node: ast.AST | None = tree
    for part in path.replace(".<locals>", "").split("."):
        inner = [each for each in statements(node) if isinstance(each, DEFINERS) and each.name == part]
        node = inner[-1] if inner else None
        if node is None:
            return None
    return node


def statements(node: "ast.AST | None") -> Iterator[ast.AST]:
    """Yield the statements of a body, also those under conditions, but none of inner definitions."""
    waiting = [node]
    while waiting:
        around = waiting.pop()
        for block in _BLOCKS:
            for inner in getattr(around, block, None) or ():
                if isinstance(inner, ast.stmt):
                    yield inner
                if not isinstance(inner, DEFINERS):
                    waiting.append(inner)


def code_by_path(code: object, path: str) -> "types.CodeType | None":
    """Return the code object of a qualified name inside of another code object."""
    waiting = [code]
    while waiting:
        each = waiting.pop()
        if type(each) is types.CodeType:
            if each.co_qualname == path:
                return each
            waiting += [part for part in each.co_consts if type(part) is types.CodeType]
    return None


def compiled_alike(one: types.CodeType, other: "types.CodeType | None") -> bool:
    """Return whether two code objects do the same, regardless of their lines."""
    if other is None or one.co_code != other.co_code or one.co_names != other.co_names:
        return False
    pairs = list(zip(one.co_consts, other.co_consts, strict=False))
    return len(one.co_consts) == len(other.co_consts) and all(
        compiled_alike(left, right) if type(left) is types.CodeType is type(right) else _same(left, right)
        for left, right in pairs
    )


def _same(left: object, right: object) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)


def last_binding(tree: "ast.AST | None", name: str) -> "ast.AST | None":
    """Return the last statement of a body that binds a name."""
    found = [node for node in statements(tree) if name in _bound_names(node)]
    return max(found, key=first_line, default=None)


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement itself binds, without the statements inside of it."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.decorator_list:
        # The result of a decorator need not be a function, as with commands and tasks.
        yield node.name
        return
    targets: list[ast.AST] = []
    if isinstance(node, ast.Assign):
        targets = list(node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
        targets = [node.target]
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
    elif hasattr(ast, "TypeAlias") and isinstance(node, ast.TypeAlias):
        targets = [node.name]
    elif isinstance(node, ast.Expr):
        targets = [part.target for part in ast.walk(node) if isinstance(part, ast.NamedExpr)]
    for target in targets:
        yield from (
            part.id
            for part in ast.walk(target)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        )
