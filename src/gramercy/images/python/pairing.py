"""Pair code objects of an older text with those of a newer one. Uncertain ones are not paired.

Code objects are compared by what they do. Their equality in Python covers lines and columns too, so one that
is equal to the code of a living function proves which text the function came from.
"""

import ast
import sys
from collections.abc import Iterable
from types import CodeType
from typing import NamedTuple

from .statements import DEFINITIONS, Definition, first_line

_ANONYMOUS = ("<lambda>", "<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")
_NEW_LOCALS, _VARIADIC = 0x2, 0xC
# Set for functions with a docstring since 3.14; before, it is the first constant.
_HAS_DOCSTRING = 0x4000000
Shape = tuple[object, ...]


class Couple(NamedTuple):
    """A code object and its successor. `is_unsure`: it is in a function whose own code changed."""

    old: CodeType
    new: CodeType
    is_unsure: bool = False

    @property
    def is_function(self) -> bool:
        """Whether it is the code of a function, not of a class body."""
        return bool(self.old.co_flags & _NEW_LOCALS)


def inner(code: CodeType) -> list[CodeType]:
    """Return the code objects that a code object makes into functions and classes."""
    return [each for each in code.co_consts if type(each) is CodeType]


def every(code: CodeType) -> list[CodeType]:
    """Return a code object and all that are in it."""
    found = [code]
    for each in found:
        found += inner(each)
    return found


def inside(code: CodeType, statement: ast.stmt) -> list[CodeType]:
    """Return the code objects in a scope that come from one of its statements."""
    start, end = first_line(statement), statement.end_lineno or 0
    found = [each for each in inner(code) if start <= each.co_firstlineno <= end]
    if statement.lineno != statement.end_lineno or isinstance(statement, DEFINITIONS):
        return found
    return [each for each in found if _is_between(each, statement)]


def _is_between(code: CodeType, statement: ast.stmt) -> bool:
    column = max((place[2] or 0 for place in code.co_positions()), default=0)
    return not column or statement.col_offset <= column < (statement.end_col_offset or 0)


def code_of(whole: CodeType, path: Iterable[Definition]) -> CodeType:
    """Return the code of a definition, found through the classes around it."""
    code = whole
    for node in path:
        found = inside(code, node)
        while not any(each.co_name == node.name for each in found):
            # `def f[T]` has its own scope around it.
            found = [one for each in found if each.co_name.startswith("<generic") for one in inner(each)]
            if not found:
                raise LookupError(f"there is no code of {node.name} (line {node.lineno})")
        code = next(each for each in found if each.co_name == node.name)
    return code


def _constants(code: CodeType) -> list[object]:
    """Return the constants, less the line that a class body of 3.13 has among them."""
    line = code.co_firstlineno if not code.co_flags & _NEW_LOCALS else None
    return [None if type(each) is int and each == line else each for each in code.co_consts]


def shape(code: CodeType) -> Shape:
    """Return the behaviour of a code object, without its place."""
    constants = tuple(
        shape(each) if isinstance(each, CodeType) else (type(each), repr(each)) for each in _constants(code)
    )
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return (code.co_name, code.co_code, constants, names, code.co_flags, takes(code))


def bare(code: CodeType) -> Shape:
    """Return the behaviour of a code object itself, without that of the functions in it."""
    constants = tuple(0 if type(each) is CodeType else repr(each) for each in _constants(code))
    return (code.co_code, code.co_names, code.co_varnames, code.co_cellvars, constants)


def takes(code: CodeType) -> Shape:
    """Return the parameters."""
    flags = code.co_flags & _VARIADIC
    count = code.co_argcount + code.co_kwonlyargcount + flags.bit_count()
    return (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        flags,
        code.co_varnames[:count],
    )


def docstring(code: CodeType) -> str | None:
    """Return the docstring in the code of a function."""
    may_have = code.co_flags & _HAS_DOCSTRING if sys.version_info >= (3, 14) else code.co_consts
    first = code.co_consts[0] if may_have else None
    return first if type(first) is str else None


class Pairs:
    """The pairs that were found, and remarks about the unpaired ones."""

    def __init__(self) -> None:
        self.couples: list[Couple] = []
        self.notes: list[tuple[int, str]] = []
        # A function outside of all others that cannot have its new code, since its cells differ.
        self.is_odd = False

    def match(
        self,
        left: list[CodeType],
        right: list[CodeType],
        *,
        same: bool = True,
        nested: bool = False,
        alike: bool = False,
    ) -> None:
        """Pair code objects of one scope. `same`: the scope itself did not change, so the order counts."""
        for name in dict.fromkeys(each.co_name for each in left):
            olds = [each for each in left if each.co_name == name]
            news = [each for each in right if each.co_name == name]
            if len(olds) == len(news) and (same or (len(olds) == 1 and name not in _ANONYMOUS)):
                couples = list(zip(olds, news, strict=True))
            else:
                # Lambdas may have changed places: only equal ones are certainly the same.
                shapes = [shape(each) for each in news]
                couples = [
                    (each, news[shapes.index(shape(each))]) for each in olds if shapes.count(shape(each)) == 1
                ]
            for a, b in couples:
                self.couple(a, b, nested=nested, same=same, alike=alike)

    def couple(
        self, a: CodeType, b: CodeType, *, nested: bool = False, same: bool = True, alike: bool = False
    ) -> None:
        """Pair two code objects and their inner ones, as far as a living function can have the new one."""
        # If the bytecode of their makers is the same, so are the cells, under any names.
        is_renamed = alike and len(a.co_freevars) == len(b.co_freevars)
        if (a.co_freevars == b.co_freevars or is_renamed) and (not nested or takes(a) == takes(b)):
            self.couples.append(Couple(a, b, nested and not same))
        elif not nested:
            self.is_odd = True
        is_same = bare(a) == bare(b)
        is_class = not a.co_flags & _NEW_LOCALS
        if nested and is_class and not is_same:
            what = f"classes {a.co_qualname} that were made keep what their body gave them"
            self.notes.append((b.co_firstlineno, what))
        self.match(
            inner(a), inner(b), same=is_same, nested=nested or not is_class, alike=a.co_code == b.co_code
        )
