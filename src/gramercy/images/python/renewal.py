"""Update living functions and classes to edited files, and run only the statements that changed.

Functions are found by their code, wherever they are held. All files are applied together, or none: after a
failure the bindings are restored. Other effects of a statement cannot be reverted, so the caller learns
whether one had begun to run.
"""

import abc
import ast
import gc
import sys
import weakref
from functools import partial
from importlib.util import resolve_name
from types import CodeType, FunctionType
from typing import Any

from .anatomy import MISSING, class_space, is_class, is_module, raw_space
from .attempts import Attempt
from .evaluation import FUTURE
from .following import File, Following, set_aside
from .journal import Held
from .pairing import Couple, docstring, every, inner, shape, takes
from .revision import Again, CannotChangeError, Classes, Revision, Signature
from .statements import (
    DEFINITIONS,
    IMPORTS,
    copied,
    defaults,
    dump,
    first_line,
    own_scope,
    read_names,
    run_parts,
)

# Set by the compiler in each class body, and not part of the meaning of a statement.
_OF_BODIES = {
    *("__module__", "__qualname__", "__firstlineno__", "__static_attributes__", "__dict__", "__weakref__"),
    *("__classdictcell__", "__classdict__"),
}
_SAME = "__gramercy_same__"
_modules = sys.modules
_exec, _compile = exec, compile
_bind, _unbind = type.__setattr__, type.__delattr__
_referrers, _count = gc.get_referrers, sys.getrefcount
# The variable and the argument by which a function is counted.
_OWN_REFERENCES = 2


class Renewal:
    """The application of one file: its effects, and the remarks."""

    def __init__(self, file: File, revision: Revision, following: Following, attempt: Attempt) -> None:
        self.file, self.revision, self._following = file, revision, following
        self._attempt = attempt
        self.changed: list[str] = []
        self.ran: list[int] = []
        self._undo: list[Any] = []
        self._before = dict(revision.space)
        self._held: dict[int, list[FunctionType]] = {}
        self._left: list[tuple[Any, int, str]] = []
        self._documents: dict[int, str | None] = {}
        self._touched: list[FunctionType] = []

    # Code

    def swap(self, living: list[FunctionType]) -> None:
        """Give every living function its new code. A function that cannot have it keeps the old text."""
        table: dict[tuple[str, int], list[Couple]] = {}
        for couple in self.revision.pairs.couples:
            table.setdefault((couple.old.co_qualname, couple.old.co_firstlineno), []).append(couple)
        new = every(self.revision.new.code)
        for function in living:
            code = function.__code__
            near = table.get((code.co_qualname, code.co_firstlineno), ())
            match = next((each for each in near if each.old == code), None) or self._later(code, new)
            if match is not None:
                self._renew(function, match)
            elif not any(each.co_qualname == code.co_qualname and each == code for each in new):
                # Equal code is new already: a file may be loaded under two names.
                self._set_aside(function)

    def _later(self, code: CodeType, new: list[CodeType]) -> Couple | None:
        """Return the possible new code of a function that stayed old at an earlier edit."""
        if code.co_filename == self.file.path or self._is_stale(code.co_qualname):
            return None
        again = [each for each in new if each.co_qualname == code.co_qualname]
        is_same = len(again) == 1 and again[0].co_freevars == code.co_freevars
        return Couple(code, again[0], is_unsure=True) if is_same and takes(again[0]) == takes(code) else None

    def _is_stale(self, name: str) -> bool:
        return name.partition(".")[0] in {*self.revision.stale, *self.revision.refused}

    def _renew(self, function: FunctionType, match: Couple) -> None:
        old, new, is_unsure = match
        code, text = function.__code__, function.__doc__
        self._undo.append(lambda: _set_code(function, code, text))
        self._held.setdefault(id(old), []).append(function)
        function.__code__ = new
        ran = self._following.at_import.get(code)
        if ran is not None:
            self._following.at_import[new] = ran
        if shape(old) != shape(new):
            self._note_change(function, code.co_qualname, ran)
        if text == docstring(old):
            self._documents[id(function)] = text
            function.__doc__ = docstring(new)
        if is_unsure and (function.__defaults__ or function.__kwdefaults__):
            self._say(new.co_firstlineno, f"a living {code.co_qualname} keeps the defaults it was made with")

    def _note_change(self, function: FunctionType, name: str, ran: str | None) -> None:
        self._touched.append(function)
        if name not in self.changed:
            self.changed.append(name)
        if ran is not None:
            line = function.__code__.co_firstlineno
            self._say(line, f"{name} ran at import ({ran}): what it gave then is not computed again")

    def _set_aside(self, function: FunctionType) -> None:
        code, text = function.__code__, function.__doc__
        if code.co_filename != self.file.path:
            return  # at an earlier edit, which has told of it
        self._undo.append(lambda: _set_code(function, code, text))
        function.__code__ = code.replace(co_filename=set_aside(self.file, code))
        removed = {name for _, name in self.revision.removed}
        if not self._is_stale(code.co_qualname) and not removed & set(code.co_qualname.split(".")):
            self._left.append((weakref.ref(function), code.co_firstlineno, code.co_qualname))

    def _say(self, line: int, text: str) -> None:
        self.revision.say(line, text)

    # Parameters

    def sign(self) -> None:
        """Give functions their new parameters. A default with an unchanged expression keeps its object."""
        for one in self.revision.signatures:
            living = self._held.get(id(one.code), [])
            if living:
                self._attempt.at(self.file, first_line(one.new))
                made = self._bare_function(one)
                for function in living:
                    self._sign(function, made, one)

    def _bare_function(self, one: Signature) -> FunctionType:
        fields: dict[str, Any] = {name: getattr(one.new, name, None) for name in one.new._fields}
        bare = copied(one.new, type(one.new)(**{**fields, "decorator_list": []}))
        if one.classes:
            space = self._in_class(bare, one.classes)[2]
        else:
            space = {}
            _exec(self._compiled(bare), self.revision.space, space)
        made: FunctionType = space[_mangled(one.new.name, one.classes)]
        return made

    def _sign(self, function: FunctionType, made: FunctionType, one: Signature) -> None:
        positional, by_name, notes = function.__defaults__, function.__kwdefaults__, function.__annotations__
        self._undo.append(lambda: _set_parameters(function, positional, by_name, notes))
        before = {name: dump(value) for name, value in defaults(one.old.args)}
        names = [name for name, _ in defaults(one.old.args, by_name=False)]
        old = {**dict(zip(names, positional or (), strict=False)), **(by_name or {})}
        keep = {
            name: old[name]
            for name, value in defaults(one.new.args)
            if name in old and before.get(name) == dump(value)
        }
        names = [name for name, _ in defaults(one.new.args, by_name=False)]
        values = [keep.get(name, value) for name, value in zip(names, made.__defaults__ or (), strict=False)]
        named = {name: keep.get(name, value) for name, value in (made.__kwdefaults__ or {}).items()}
        _set_parameters(function, tuple(values) or None, named or None, made.__annotations__)
        if function.__qualname__ not in self.changed:
            self.changed.append(function.__qualname__)

    # Statements

    def remove(self) -> None:
        """Remove names whose definitions are gone. Names that the session has bound stay."""
        for cls, name in self.revision.removed:
            if cls is None:
                self.revision.space.pop(name, None)
            elif name in class_space(cls):
                old = class_space(cls)[name]
                self._undo.append(partial(_bind, cls, name, old))
                _unbind(cls, name)

    def run(self) -> None:
        """Run the changed statements, in the order of the file."""
        for one in sorted(self.revision.again, key=lambda each: first_line(each.statement)):
            self.ran.append(first_line(one.statement))
            self._attempt.at(self.file, self.ran[-1])
            living = self._held.get(id(one.code), []) if one.code is not None else []
            if len(living) == 1 and isinstance(one.statement, DEFINITIONS):
                self._decorate(one.statement, one, living[0])
            else:
                self._execute(one.statement, one.classes)
        for path, node in self.revision.classes:
            self._move_class(path, node)

    def _decorate(self, statement: Any, one: Again, function: FunctionType) -> None:
        """Apply the decorators to the existing function: a new one would be registered beside it."""
        space, marks = self.revision.space, dict(vars(function))
        self._undo.append(lambda: vars(function).update(marks))
        # The old decorators left these, such as __isabstractmethod__.
        vars(function).clear()
        value = copied(statement, ast.Name(_SAME, ast.Load()))
        for each in reversed(statement.decorator_list):
            value = copied(each, ast.Call(each, [value], []))
        target = copied(statement, ast.Name(statement.name, ast.Store()))
        space[_SAME] = function
        try:
            self._execute(copied(statement, ast.Assign([target], value)), one.classes)
        finally:
            space.pop(_SAME, None)

    def _execute(self, statement: ast.stmt, path: Classes) -> None:
        if not path:
            _exec(self._compiled(statement), self.revision.space)
            return
        cls, known, space = self._in_class(statement, path)
        for name in space.keys() - _OF_BODIES:
            if name not in known or space[name] is not known[name]:
                self._set_member(cls, name, known.get(name, MISSING), space[name])
        abc.update_abstractmethods(cls)

    def _set_member(self, cls: Any, name: str, old: object, value: Any) -> None:
        self._undo.append(lambda: _unbind(cls, name) if old is MISSING else _bind(cls, name, old))
        _bind(cls, name, value)
        if hasattr(type(value), "__set_name__"):
            value.__set_name__(cls, name)

    def _compiled(self, statement: ast.stmt) -> CodeType:
        """Compile one statement to the same code as in its file.

        Since 3.12 a call through an imported name has special code, so the imports stand before it, without
        being run.
        """
        new = self.revision.new
        dead: list[ast.stmt] = []
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
            imports = [node for node in own_scope(new.tree.body) if isinstance(node, IMPORTS)]
            dead = [_dead(node) for node in imports if getattr(node, "module", "") != "__future__"]
        tree = ast.Module([*dead, statement], [])
        flags = new.code.co_flags & FUTURE
        code: CodeType = _compile(tree, self.file.path, "exec", flags, dont_inherit=True)
        return code

    def _in_class(self, statement: ast.stmt, path: Classes) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Run a statement as part of a living class. Return the class, its names before and after."""
        cls, tree = self.revision.living_class(path), statement
        for node in reversed(path):
            fields: dict[str, Any] = {name: [] for name in node._fields}
            tree = copied(node, ast.ClassDef(**{**fields, "name": node.name, "body": [tree]}))
        code = self._compiled(tree)
        for node in path:
            code = next(each for each in inner(code) if each.co_name == node.name)
        known: dict[str, Any] = dict(class_space(cls))
        space = dict(known)
        if "__annotations__" in known:
            space["__annotations__"] = dict(known["__annotations__"])
        _exec(code, self.revision.space, space)
        cell = space.pop("__classcell__", None)
        if cell is not None:
            cell.cell_contents = cls
        return cls, known, space

    def _move_class(self, path: Classes, node: ast.ClassDef) -> None:
        """Update the first line of a class, where the class knows it (3.13)."""
        try:
            cls = self.revision.living_class((*path, node))
        except CannotChangeError:
            return
        old = class_space(cls).get("__firstlineno__", MISSING)
        if old is not MISSING and old != first_line(node):
            self._undo.append(lambda: _bind(cls, "__firstlineno__", old))
            _bind(cls, "__firstlineno__", first_line(node))

    # The end

    def take_back(self) -> None:
        """Restore every name, code and member."""
        while self._undo:
            self._undo.pop()()
        space = self.revision.space
        for name in [name for name in space if name not in self._before]:
            del space[name]
        for name, value in self._before.items():
            if space.get(name, MISSING) is not value:
                space[name] = value

    def finish(self) -> None:
        """Notify other modules and caches, and keep the running text."""
        self._rebind_elsewhere()
        self._clear_caches()
        for one in (self._undo, self._before, self._held, self._touched):
            one.clear()
        self.file.take(self.revision.new.data)

    def tell_left(self) -> None:
        """Report the functions in use that keep the old text. Garbage has been collected before."""
        for alive, line, name in self._left:
            if _is_in_use(alive):
                self._say(line, f"(old line) a living {name} keeps the old code")

    @property
    def leaves(self) -> bool:
        """Whether functions may be left with the old text."""
        return any(alive() is not None for alive, _, _ in self._left)

    def _rebind_elsewhere(self) -> None:
        """Let `from m import x` in other modules mean the new x."""
        space, before = self.revision.space, self._before
        moved = {
            name: (value, space[name])
            for name, value in before.items()
            if name in space and space[name] is not value and not name.startswith("__")
        }
        moved |= self._came_back()
        moved |= self._went()
        if not moved:
            return
        for other in self._following.others(self.file, [name.encode() for name in moved]):
            Elsewhere(self, other, moved).run()

    def _went(self) -> dict[str, tuple[object, object]]:
        """Return the removed names. Other modules keep their imports."""
        names = [name for cls, name in self.revision.removed if cls is None and name in self._before]
        went = {name: self._before[name] for name in names}
        # Data may be large, and is not kept until its name comes back.
        self.file.gone |= {
            name: old for name, old in went.items() if type(old) is FunctionType or is_class(old)
        }
        return {name: (old, MISSING) for name, old in went.items()}

    def _came_back(self) -> dict[str, tuple[object, object]]:
        """Return the definitions that an earlier edit had removed, and their new values."""
        space, gone = self.revision.space, self.file.gone
        return {name: (gone.pop(name), space[name]) for name in list(gone) if name in space}

    def _clear_caches(self) -> None:
        for function in self._touched:
            self._tell_cached(function)
        for each in _referrers(*self._touched) if self._touched else ():
            if type(each) is property and id(each.fget) in self._documents:
                if each.__doc__ == self._documents[id(each.fget)]:
                    each.__doc__ = each.fget.__doc__ if each.fget is not None else None
            elif type(each).__name__ == "_lru_cache_wrapper":
                each.cache_clear()
                name = each.__wrapped__.__qualname__
                self._say(each.__wrapped__.__code__.co_firstlineno, f"the cache of {name} is cleared")

    def _tell_cached(self, function: FunctionType) -> None:
        """Report that the values of a cached property stay: they are state of the program's objects."""
        path, _, name = function.__qualname__.rpartition(".")
        cls: Any = self.revision.space.get(path)
        if is_class(cls) and type(class_space(cls).get(name)).__name__ == "cached_property":
            line = function.__code__.co_firstlineno
            self._say(line, f"objects keep the value of {path}.{name} that they have cached")

    def tell_elsewhere(self, path: str, line: int, text: str) -> None:
        """Note a remark about a line of another file."""
        self._say(0, f"{path}:{line} {text}")


def _is_in_use(alive: Any) -> bool:
    """Return whether the program refers to a function, and not only the journal, which can bind it again."""
    function = alive()
    if function is None:
        return False
    references = _count(function) - _OWN_REFERENCES
    return references > sum(type(each) is Held for each in _referrers(function))


class Elsewhere:
    """Another module that may have imported names from the one that changed."""

    def __init__(self, renewal: Renewal, other: File, moved: dict[str, tuple[object, object]]) -> None:
        self._renewal, self._moved = renewal, moved
        self._path = other.shown
        self._tree = ast.parse(other.data)
        self._module = other.module
        self._space = raw_space(other.module) if is_module(other.module) else {}

    def run(self) -> None:
        """Bind the new values where the import is in the text and the value is still the old one."""
        named: set[str] = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ImportFrom) and self._home(node) == self._renewal.file.name:
                named |= self._rebind(node)
        for statement in self._tree.body:
            if again := (read_names(statement) & named) | self._far(statement):
                told = f"reads {', '.join(sorted(again))} and did not run again"
                self._renewal.tell_elsewhere(self._path, first_line(statement), told)

    def _home(self, node: ast.ImportFrom) -> str:
        package = self._space.get("__package__")
        try:
            return resolve_name(
                "." * node.level + (node.module or ""), package if type(package) is str else ""
            )
        except (ImportError, ValueError):
            return ""

    def _rebind(self, node: ast.ImportFrom) -> set[str]:
        named = set()
        for alias in node.names:
            key = alias.asname or alias.name
            old, new = self._moved.get(alias.name, (MISSING, MISSING))
            if old is MISSING or self._space.get(key, MISSING) is not old:
                continue
            if new is MISSING:
                self._renewal.tell_elsewhere(self._path, node.lineno, f"keeps {alias.name}, which is removed")
            else:
                self._space[key] = new
                named.add(key)
        return named

    def _far(self, statement: ast.stmt) -> set[str]:
        """Return the changed names that a statement reads through the module, when it runs."""
        return {
            node.attr
            for node in run_parts(statement)
            if isinstance(node, ast.Attribute)
            and node.attr in self._moved
            and isinstance(node.value, ast.Name)
            and self._space.get(node.value.id) is self._renewal.file.module
        }


def _dead(node: Any) -> Any:
    """Put a statement where it is compiled and never run."""
    return copied(node, ast.If(copied(node, ast.Constant(False)), [node], []))  # noqa: FBT003 - a node of False


def _mangled(name: str, path: Classes) -> str:
    """Return the name of a private member as the compiler writes it."""
    if not path or not name.startswith("__") or name.endswith("__"):
        return name
    return f"_{path[-1].name.lstrip('_')}{name}"


def _set_code(function: FunctionType, code: CodeType, text: str | None) -> None:
    function.__code__ = code
    function.__doc__ = text


def _set_parameters(function: Any, positional: Any, by_name: Any, notes: Any) -> None:
    function.__defaults__ = positional
    function.__kwdefaults__ = by_name
    function.__annotations__ = notes
