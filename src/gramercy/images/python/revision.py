"""The plan for an edited file: which living code gets which new code, and which statements run again.

Nothing is changed here, and no user code runs. A change that a living class or function cannot make is
refused for that definition alone, with a reason that names the line.
"""

import abc
import ast
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from .anatomy import class_space, is_class, is_module, module_of, mro_of, raw_space, short_name
from .pairing import Pairs, code_of, inside, shape
from .statements import (
    BLOCKS,
    DEFINITIONS,
    FUNCTIONS,
    IMPORTS,
    Definition,
    Function,
    Pairing,
    Text,
    bound,
    dump,
    first_line,
    is_clear,
    is_generator,
    read_names,
    simple_parts,
    skeleton,
)

Classes = tuple[ast.ClassDef, ...]
_PLAIN = (type, abc.ABCMeta)
# The nodes of a default or a value whose evaluation has no side effects.
_STILL = (
    *(
        ast.Constant,
        ast.Name,
        ast.Attribute,
        ast.Subscript,
        ast.Slice,
        ast.Tuple,
        ast.List,
        ast.Set,
        ast.Dict,
    ),
    *(ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr, ast.FormattedValue),
    *(ast.Lambda, ast.expr_context, ast.unaryop, ast.operator, ast.boolop, ast.cmpop),
)


class CannotChangeError(Exception):
    """One definition stays as it was."""


class Place(NamedTuple):
    """The classes around a definition, in the old text and in the new one."""

    old: Classes = ()
    new: Classes = ()


class Again(NamedTuple):
    """A statement to run. `code` is that of the function to which decorators are applied again."""

    statement: ast.stmt
    classes: Classes
    code: CodeType | None = None


class Signature(NamedTuple):
    """A function whose parameters or annotations changed, and the code that it had."""

    old: Function
    new: Function
    classes: Classes
    code: CodeType


class Revision:
    """The plan for one file of one module."""

    def __init__(self, module: Any, old: Text, new: Text, stale: dict[str, bytes]) -> None:
        self.module = module
        # Classes that stayed as they were at an earlier edit, with their text.
        self.stale = stale
        self.space = raw_space(module) if is_module(module) else {}
        self.old, self.new = old, new
        self.pairs = Pairs()
        self.again: list[Again] = []
        self.removed: list[tuple[Any, str]] = []
        self.signatures: list[Signature] = []
        self.refused: dict[str, str] = {}
        self.notes: list[tuple[int, str]] = []
        # Classes that exist before and after, for their first line.
        self.classes: list[tuple[Classes, ast.ClassDef]] = []

    def say(self, line: int, text: str) -> None:
        """Note a difference from a new process."""
        if (line, text) not in self.notes:
            self.notes.append((line, text))

    def plan(self) -> "Revision":
        """Compare the texts."""
        bodies = self.old.tree.body, self.new.tree.body
        both, gone, fresh = Pairing(*bodies).run((self.old, self.new))
        for s, t in list(both):
            if isinstance(t, BLOCKS) and not self._is_same(s, t):
                both += zip(simple_parts(s), simple_parts(t), strict=True)
        for s, t in both:
            self._plan(s, t)
        self._plan_rest(gone, fresh, self.new.tree.body, (), None)
        self._tell_readers([t for _, t in both])
        return self

    def names(self) -> list[str]:
        """Return the changed definitions and variables, for a report only."""
        couples = [each for each in self.pairs.couples if each.is_function]
        changed = [old.co_qualname for old, new, _ in couples if shape(old) != shape(new)]
        found = [name.partition(".<locals>")[0] for name in changed]
        found += [".".join([*(each.name for each in one.classes), one.new.name]) for one in self.signatures]
        found += [name for one in self.again if not one.classes for name in sorted(bound([one.statement]))]
        found += [one.classes[0].name for one in self.again if one.classes]
        found += [*self.refused, *(name for _, name in self.removed)]
        return list(dict.fromkeys(name for name in found if not name.startswith("<")))

    def risk(self) -> int | None:
        """Return the first line with possible effects beyond names. None where there is none."""
        lines = [first_line(one.statement) for one in self.again if not _is_harmless(one.statement)]
        lines += [first_line(one.new) for one in self.signatures if not _is_still_function(one.new)]
        return min(lines, default=None)

    def _is_same(self, s: ast.stmt, t: ast.stmt) -> bool:
        return self.old.of(s) == self.new.of(t)

    def _plan(self, s: ast.stmt, t: ast.stmt) -> None:
        is_same = self._is_same(s, t)
        if isinstance(t, ast.ClassDef) and t.name in self.stale:
            self._plan_stale(t, is_same=is_same)
        elif isinstance(t, DEFINITIONS) and not is_same and skeleton(s) != skeleton(t):
            self._plan_definition(s, t)
        elif is_same or not isinstance(t, BLOCKS):
            self._plan_bodies(s, t)

    def _plan_stale(self, t: ast.ClassDef, *, is_same: bool) -> None:
        """Leave a class of an older text alone, until its text is that one again."""
        if self.new.of(t) == self.stale[t.name]:
            del self.stale[t.name]
        elif not is_same:
            self.refused[t.name] = "it is still of an older text"

    def _plan_definition(self, s: Any, t: Definition) -> None:
        try:
            if isinstance(t, ast.ClassDef):
                self._plan_class(s, t, Place())
            else:
                self._plan_function(s, t, Place())
        except CannotChangeError as why:
            self.refused[t.name] = str(why)
            if isinstance(t, ast.ClassDef):
                self.stale[t.name] = self.old.of(s)

    def _plan_bodies(self, s: ast.stmt, t: ast.stmt) -> None:
        """Plan for a statement that differs at most in function bodies."""
        pairs, size = self.pairs, len(self.pairs.couples)
        pairs.is_odd = False
        self._tell_unseen(s, t)
        pairs.match(inside(self.old.code, s), inside(self.new.code, t))
        if isinstance(t, ast.ClassDef):
            self.classes.append(((), t))
            if pairs.is_odd:
                del pairs.couples[size:]
                self._plan_definition(s, t)

    def _plan_function(self, s: Function, t: Function, place: Place) -> None:
        a, b = code_of(self.old.code, (*place.old, s)), code_of(self.new.code, (*place.new, t))
        if a.co_freevars != b.co_freevars:
            self.again.append(Again(t, place.new))
            why = "a new object, as it begins or ends to use super() or __class__"
            self.say(first_line(t), f"{t.name} is {why}: what holds the old one keeps it")
            return
        self.pairs.couple(a, b)
        if dump(s.args) != dump(t.args) or dump(s.returns) != dump(t.returns):
            self.signatures.append(Signature(s, t, place.new, a))
        if dump(s.decorator_list) != dump(t.decorator_list):
            self.again.append(Again(t, place.new, a))
            if s.decorator_list:
                told = f"the decorators of {t.name} ran again on the same function"
                self.say(first_line(t), f"{told}: what the old ones did is not undone")
        else:
            self._tell_seen(t, "parameters" if dump(s.args) != dump(t.args) else "annotations or kind")

    def _tell_seen(self, t: Definition, what: str) -> None:
        if not is_clear(t):
            self.say(first_line(t), f"the decorators of {t.name} did not run again: they saw the old {what}")

    def _tell_unseen(self, s: ast.stmt, t: ast.stmt) -> None:
        """Report what decorators may have read of a function beside its parameters."""
        if not isinstance(s, FUNCTIONS) or not isinstance(t, FUNCTIONS) or self._is_same(s, t):
            return
        if ast.get_docstring(s) != ast.get_docstring(t):
            self._tell_seen(t, "docstring")
        elif is_generator(s) != is_generator(t):
            self._tell_seen(t, "kind")

    def living_class(self, path: Classes) -> Any:
        """Return the class of a definition. Refuse where its name means something else."""
        holder: dict[str, Any] = self.space
        cls: Any = None
        for node in path:
            cls = holder.get(node.name)
            holder = class_space(cls) if is_class(cls) else {}
        name = raw_space(self.module).get("__name__")
        if not is_class(cls) or module_of(cls) != name or short_name(cls) != path[-1].name:
            raise CannotChangeError("its name means something else by now")
        return cls

    def _plan_class(self, s: ast.ClassDef, t: ast.ClassDef, place: Place) -> None:
        here = Place((*place.old, s), (*place.new, t))
        cls = self.living_class(here.new)
        for field, told in (("bases", "bases"), ("keywords", "keywords"), ("decorator_list", "decorators")):
            if dump(getattr(s, field)) != dump(getattr(t, field)):
                raise CannotChangeError(f"its {told} changed, which only a new class can have")
        both, gone, fresh = Pairing(s.body, t.body).run((self.old, self.new))
        _check_members(cls, t, [*gone, *fresh])
        saved = self._sizes()
        try:
            self._plan_members(both, here)
            self._plan_rest(gone, fresh, t.body, here.new, cls)
        except CannotChangeError:
            for found, size in saved:
                del found[size:]
            raise
        self.classes.append((place.new, t))
        for _, each in both:
            if again := read_names(each) & bound(fresh):
                self.say(first_line(each), f"reads {_listed(again)} and did not run again")

    def _sizes(self) -> list[tuple[list[Any], int]]:
        lists: list[list[Any]] = [self.pairs.couples, self.again, self.signatures, self.notes, self.removed]
        return [(each, len(each)) for each in lists]

    def _plan_members(self, both: list[tuple[ast.stmt, ast.stmt]], here: Place) -> None:
        olds, news = code_of(self.old.code, here.old), code_of(self.new.code, here.new)
        for s, t in both:
            if isinstance(s, ast.ClassDef) and isinstance(t, ast.ClassDef) and not self._is_same(s, t):
                self._plan_class(s, t, here)
            elif isinstance(s, FUNCTIONS) and isinstance(t, FUNCTIONS) and self._is_other(s, t, here):
                self._plan_function(s, t, here)
            else:
                self._tell_unseen(s, t)
                self.pairs.match(inside(olds, s), inside(news, t))

    def _is_other(self, s: Function, t: Function, here: Place) -> bool:
        """Return whether more than the body of a method changed, or its needs of the class around it."""
        if self._is_same(s, t):
            return False
        a, b = code_of(self.old.code, (*here.old, s)), code_of(self.new.code, (*here.new, t))
        return skeleton(s) != skeleton(t) or a.co_freevars != b.co_freevars

    def _plan_rest(
        self, gone: list[ast.stmt], fresh: list[ast.stmt], body: list[ast.stmt], path: Classes, cls: Any
    ) -> None:
        self.again += [Again(each, path) for each in fresh]
        still = bound(body)
        for each in gone:
            names = bound([each]) - still
            self.removed += [(cls, name) for name in sorted(names)]
            is_loose = not names and not bound([each]) & bound(fresh) and not _is_silent(each)
            if is_loose or (isinstance(each, DEFINITIONS) and not is_clear(each)):
                told = ast.unparse(each).splitlines()[0][:60]
                self.say(first_line(each), f"(old line) removed, but what it did is not undone: {told}")

    def _tell_readers(self, kept: list[ast.stmt]) -> None:
        """Report the statements that did not run again though they read changed names."""
        ran = [one for one in self.again if not one.classes and not isinstance(one.statement, IMPORTS)]
        names = bound([one.statement for one in ran])
        names |= {
            one.classes[0].name
            for one in self.again
            if one.classes and not isinstance(one.statement, FUNCTIONS)
        }
        for each in kept:
            if (read := read_names(each) & names) and not isinstance(each, IMPORTS):
                self.say(first_line(each), f"reads {_listed(read)} and did not run again")
            twice = bound([each]) & names
            above = [one for one in ran if bound([one.statement]) & twice]
            if twice and any(first_line(each) > first_line(one.statement) for one in above):
                self.say(first_line(each), f"binds {_listed(twice)} too, and did not run again")


def _check_members(cls: Any, t: ast.ClassDef, changed: list[ast.stmt]) -> None:
    """Refuse a change of values that were read when the class was made."""
    reader = _reader(cls, t)
    for each in changed:
        is_method = isinstance(each, FUNCTIONS) and is_clear(each)
        if reader and not is_method and not isinstance(each, ast.Expr | ast.Pass):
            raise CannotChangeError(f"line {first_line(each)} is read by {reader} when the class is made")
        if "__slots__" in bound([each]):
            raise CannotChangeError("__slots__ changed, which only a new class can have")


def _reader(cls: Any, t: ast.ClassDef) -> str:
    """Return the reader of a class body when the class is made. Empty where that is Python itself."""
    meta, space = type(cls), class_space(cls)
    originals = space.get("__orig_bases__", ())
    if type(originals) is tuple and any(type(base) is FunctionType for base in originals):
        return "NamedTuple"  # it is a function, and what it makes has no metaclass
    if t.decorator_list:
        return "its decorators"
    if meta not in _PLAIN:
        return short_name(meta)
    maker = next(base for base in mro_of(cls)[1:] if "__init_subclass__" in class_space(base))
    return "" if maker is object else f"{short_name(maker)}.__init_subclass__"


def _is_silent(statement: ast.stmt) -> bool:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, (ast.Pass, *DEFINITIONS))


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _is_still(node: ast.AST | None) -> bool:
    """Return whether an expression, by its form, calls nothing."""
    if node is None or isinstance(node, ast.Lambda):
        return True
    return isinstance(node, _STILL) and all(map(_is_still, ast.iter_child_nodes(node)))


def _is_still_function(node: Function) -> bool:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    parts = [*arguments.defaults, *arguments.kw_defaults, *(each.annotation for each in every), node.returns]
    return all(map(_is_still, parts))


def _is_harmless(statement: ast.stmt) -> bool:
    """Return whether a statement only binds names, which can be restored."""
    if isinstance(statement, FUNCTIONS):
        return is_clear(statement) and _is_still_function(statement)
    if isinstance(statement, ast.Assign):
        return all(isinstance(each, ast.Name) for each in statement.targets) and _is_still(statement.value)
    if isinstance(statement, ast.AnnAssign):
        is_name = isinstance(statement.target, ast.Name)
        return is_name and _is_still(statement.value) and _is_still(statement.annotation)
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Pass)
