"""Compile code, warn about what looks wrong, and let the definitions take effect.

The compiler's own warnings are collected as they come; names that nothing defines are found in the
instructions. It returns warnings, never values.
"""

import ast
import builtins
import dis
from collections.abc import Iterator
from types import CodeType

from .cautions import Cautions
from .sources import Sources

_LOADS = frozenset(("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"))
_STORES = frozenset(("STORE_NAME", "STORE_GLOBAL", "DELETE_NAME", "DELETE_GLOBAL"))
_IMPLICIT = {
    *("__name__", "__file__", "__doc__", "__module__", "__qualname__", "__class__"),
    *("__annotations__", "__builtins__", "__spec__", "__loader__", "__package__"),
}


def check(code: str, name: str, sources: Sources, cautions: Cautions, known: dict[str, object]) -> None:
    """Warn about names that neither the code, the module nor Python defines."""
    compiled = compile(code, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if _has_star_import(code, name):
        return
    stored = {step.argval for unit in _units(compiled) for step in _steps(unit) if step.opname in _STORES}
    defined = stored | _IMPLICIT | set(known) | set(vars(builtins))
    for missing, line in _missing(compiled, defined):
        cautions.add(
            "warning",
            "UndefinedName",
            f"undefined name '{missing}'",
            line=line,
            form=sources.line(name, line),
        )


def _has_star_import(code: str, name: str) -> bool:
    tree = compile(code, name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    imports = [node for node in ast.walk(tree) if type(node) is ast.ImportFrom]
    return any(alias.name == "*" for node in imports for alias in node.names)


def _missing(compiled: CodeType, defined: set[str]) -> Iterator[tuple[str, int | None]]:
    seen = set()
    for unit in _units(compiled):
        for step in _steps(unit):
            if step.opname in _LOADS and step.argval not in defined and step.argval not in seen:
                seen.add(step.argval)
                yield step.argval, step.positions.lineno if step.positions is not None else None


def _steps(code: CodeType) -> Iterator[dis.Instruction]:
    return dis.get_instructions(code)


def _units(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _units(constant)
