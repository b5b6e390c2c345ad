"""Who calls what in the standard library, held against a walk of its syntax trees.

The walk follows names as Python does: locals, imports, globals, `self`, `cls` and `super()`. It knows nothing
of byte code.
"""

import ast
import builtins
import functools
import importlib
import inspect
import sys
import types
import warnings
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.images import children
from tests.images.test_python_answers_oracle import MODULES

MISSING: Any = object()


class Use(NamedTuple):
    label: str
    line: int
    is_call: bool
    module: str


def canonical(thing):
    """Return the function inside of caches, partials, bound methods and decorated functions."""
    for _step in range(10):
        if isinstance(thing, types.FunctionType):
            inner = thing.__dict__.get("__wrapped__", MISSING)
        elif isinstance(thing, types.MethodType | staticmethod | classmethod):
            inner = thing.__func__
        elif isinstance(thing, functools.partial):
            inner = thing.func
        elif isinstance(thing, functools._lru_cache_wrapper):
            inner = thing.__wrapped__
        else:
            inner = MISSING
        if inner is MISSING:
            return thing
        thing = inner
    return thing


class Scope(NamedTuple):
    """A function: its names, what its imports mean, its first argument, and the class if it is a method."""

    locals: set[str]
    known: dict[str, object]
    receiver: str
    cls: Any


class Walk(ast.NodeVisitor):
    """Collect the uses of functions in one module."""

    def __init__(self, module, uses):
        self.module, self.uses = module, uses
        self.space = vars(module)
        self.path: list[str] = []
        self.classes: list[type | None] = []
        self.scopes: list[Scope] = []
        self.called: set[int] = set()
        self.imported: dict[str, object] = {}
        self.lazy_notes = False

    # --- names

    def lookup(self, name):
        name = self.mangled(name)
        for scope in reversed(self.scopes):
            if name in scope.locals:
                return scope.known.get(name, MISSING)
        if (
            self.classes
            and not self.scopes
            and self.classes[-1] is not None
            and name in vars(self.classes[-1])
        ):
            return vars(self.classes[-1])[name]
        found = self.space.get(name, vars(builtins).get(name, MISSING))
        # An import in a branch that was not taken says all the same what the code means.
        return found if found is not MISSING else self.imported.get(name, MISSING)

    def resolve(self, node):
        if isinstance(node, ast.Name):
            return self.lookup(node.id)
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        return MISSING

    def attribute(self, node):
        holder, name = node.value, self.mangled(node.attr)
        scope = next((each for each in reversed(self.scopes) if each.cls is not None), None)
        if scope is not None and isinstance(holder, ast.Name) and holder.id == scope.receiver:
            return self.member(scope.cls.__mro__, name)
        if scope is not None and _is_super(holder) and self.is_own_super(holder, scope):
            return self.member(scope.cls.__mro__[1:], name)
        owner = self.resolve(holder)
        if owner is MISSING:
            return MISSING
        if isinstance(owner, types.ModuleType):
            return vars(owner).get(name, sys.modules.get(f"{owner.__name__}.{name}", MISSING))
        return inspect.getattr_static(owner, name, MISSING)

    def is_own_super(self, node, scope):
        """Tell whether it is `super()`, or `super(Class, self)` of the class that the method is in."""
        if not node.args:
            return True
        names = [each.id if isinstance(each, ast.Name) else "" for each in node.args]
        return len(names) == 2 and self.lookup(names[0]) is scope.cls and names[1] == scope.receiver

    @staticmethod
    def member(bases, name):
        return next((vars(base)[name] for base in bases if name in vars(base)), MISSING)

    def mangled(self, name):
        """Return the name that an attribute with two underscores has inside of a class."""
        if not self.path or not self.classes or not name.startswith("__") or name.endswith("__"):
            return name
        return f"_{self.path[len(self.classes) - 1].lstrip('_')}{name}"

    def note(self, node, found):
        thing = canonical(found)
        if isinstance(thing, types.FunctionType):
            label = ".".join([self.module.__name__, *self.path])
            line = (node.end_lineno or 0) if isinstance(node, ast.Attribute) else node.lineno
            self.uses.setdefault(id(thing), []).append(
                Use(label, line, id(node) in self.called, self.module.__name__)
            )

    # --- nodes

    def visit_Module(self, node):
        for each in node.body:
            if isinstance(each, ast.ImportFrom) and each.module == "__future__":
                self.lazy_notes = any(alias.name == "annotations" for alias in each.names)
        self.generic_visit(node)

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load):
            self.note(node, self.lookup(node.id))

    def visit_Attribute(self, node):
        if isinstance(node.ctx, ast.Load):
            self.note(node, self.attribute(node))
        self.visit(node.value)

    def visit_Call(self, node):
        self.called.add(id(node.func))
        self.generic_visit(node)

    def visit_Import(self, node):
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            self.bind(alias.asname or name, sys.modules.get(name, MISSING))

    def visit_ImportFrom(self, node):
        package = self.module.__package__ or ""
        base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        home = sys.modules.get(".".join([*base, *([node.module] if node.module else [])]))
        for alias in node.names:
            found = vars(home).get(alias.name, MISSING) if home is not None else MISSING
            if found is MISSING and home is not None:
                found = sys.modules.get(f"{home.__name__}.{alias.name}", MISSING)
            self.bind(alias.asname or alias.name, found)

    def bind(self, name, value):
        if self.scopes and name in self.scopes[-1].locals:
            self.scopes[-1].known[name] = value
        elif not self.scopes:
            self.imported[name] = value

    def visit_ClassDef(self, node):
        for each in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(each)
        if self.scopes:
            for each in node.body:
                self.visit(each)
            return
        outer = vars(self.classes[-1]) if self.classes and self.classes[-1] is not None else self.space
        found = outer.get(node.name) if not self.classes or self.classes[-1] is not None else None
        self.path.append(node.name)
        self.classes.append(found if isinstance(found, type) else None)
        for each in node.body:
            self.visit(each)
        self.classes.pop()
        self.path.pop()

    def visit_FunctionDef(self, node):
        for each in [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(each)
        if not self.lazy_notes:
            every = [
                *node.args.posonlyargs,
                *node.args.args,
                *node.args.kwonlyargs,
                node.args.vararg,
                node.args.kwarg,
            ]
            notes = [each.annotation for each in every if each is not None]
            for each in filter(None, [*notes, node.returns]):
                self.visit(each)
        self.enter(node, node.body, node.name)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - as ast names it

    def visit_Lambda(self, node):
        for each in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(each)
        self.enter(node, [node.body], None)

    def visit_AnnAssign(self, node):
        for each in filter(
            None, [node.target, node.value, None if self.scopes or self.lazy_notes else node.annotation]
        ):
            self.visit(each)

    def enter(self, node, body, name):
        is_method = (
            bool(self.classes) and not self.scopes and self.classes[-1] is not None and name is not None
        )
        cls = self.classes[-1] if is_method else None
        held = vars(cls).get(name) if cls is not None else None
        arguments = [*node.args.posonlyargs, *node.args.args]
        is_static = isinstance(held, staticmethod) and name != "__new__"
        receiver = arguments[0].arg if arguments and cls is not None and not is_static else ""
        names = _stored(node, body)
        is_outer = not self.scopes and name is not None
        self.scopes.append(Scope(names, {}, receiver, cls))
        if is_outer:
            self.path.append(name)
        for each in body:
            self.visit(each)
        if is_outer:
            self.path.pop()
        self.scopes.pop()


def _is_super(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _stored(node, body):
    """Return the names that are local to a function."""
    every = [
        *node.args.posonlyargs,
        *node.args.args,
        *node.args.kwonlyargs,
        node.args.vararg,
        node.args.kwarg,
    ]
    names = {each.arg for each in every if each is not None}
    elsewhere: set[str] = set()
    waiting = list(body)
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store | ast.Del):
            names.add(each.id)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name.partition(".")[0] for alias in each.names)
        elif isinstance(each, ast.ExceptHandler) and each.name:
            names.add(each.name)
        elif isinstance(each, ast.Global | ast.Nonlocal):
            elsewhere.update(each.names)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(each.name)
            waiting.extend(each.decorator_list)
        elif not isinstance(each, ast.Lambda):
            waiting.extend(ast.iter_child_nodes(each))
    return names - elsewhere


@functools.cache
def uses_by_function(names):
    """Walk the modules."""
    found: dict[int, list[Use]] = {}
    for name in sorted(names):
        module = sys.modules[name]
        with suppress(SyntaxError, OSError):
            Walk(module, found).visit(ast.parse(Path(module.__file__ or "").read_bytes()))
    return found


@functools.cache
def loaded_by_both():
    """Return the modules of the standard library with a source, under the names they have themselves."""
    with warnings.catch_warnings(action="ignore"):
        for name in MODULES:
            importlib.import_module(name)
    library = inspect.getfile(inspect).rpartition("/")[0] + "/"
    names = []
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        is_own = getattr(module, "__name__", "") == name and "site-packages" not in file
        if is_own and file.startswith(library) and file.endswith(".py"):
            names.append(name)
    return names


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Return a process that has loaded what is asked about."""
    with closing(children.Family(tmp_path_factory.mktemp("python"), "python")) as family:
        process = family.live()
        code = "import importlib, warnings\nwarnings.simplefilter('ignore')\n"
        reply = process.eval(f"{code}for name in {MODULES}: importlib.import_module(name)")
        assert reply["ok"], reply["error"]
        yield process


# The image puts a function of its own in the place of `showwarning`.
REPLACED = {"warnings:showwarning", "warnings:_showwarning_orig"}


def targets(name):
    """Give the functions and methods that a module defines, with the names to ask for."""
    module = sys.modules[name]
    for key, value in sorted(vars(module).items()):
        if isinstance(canonical(value), types.FunctionType) and canonical(value).__module__ == name:
            yield f"{name}:{key}", canonical(value)
        elif isinstance(value, type) and value.__module__ == name:
            for inner, stored in sorted(vars(value).items()):
                is_method = isinstance(stored, types.FunctionType | staticmethod | classmethod)
                if is_method and not inner.startswith("__") and inspect.isfunction(canonical(stored)):
                    yield f"{name}:{key}.{inner}", canonical(stored)


def told_uses(live, name, shared):
    """Return by definition the lines that are told as exact, in modules that both have loaded."""
    reply = live.ask("who_calls", function=name)
    assert reply["ok"], (name, reply)
    data = reply["data"]
    assert len(reply["text"]) <= 8000, name
    if data["total"] > len(data["found"]):
        return None
    rows = [row for row in data["found"] if row["match"] == "exact"]
    return {row["name"]: (row["lines"], row["how"]) for row in rows if _module_of(row["name"]) in shared}


def _module_of(label):
    while label and label not in sys.modules:
        label = label.rpartition(".")[0]
    return label


def faults_of(live, name, function, shared):
    told = told_uses(live, name, shared)
    if told is None:
        return []
    wanted: dict[str, list[Use]] = {}
    for use in uses_by_function(shared).get(id(function), []):
        wanted.setdefault(use.label, []).append(use)
    faults = [f"{name}: {label} is not told" for label in wanted.keys() - told.keys()]
    faults += [f"{name}: {label} is told at {told[label]}" for label in told.keys() - wanted.keys()]
    for label in told.keys() & wanted.keys():
        lines = sorted({use.line for use in wanted[label]})
        if told[label][0] != lines:
            faults.append(f"{name}: {label} at {told[label][0]} instead of {lines}")
        elif (told[label][1] == "calls") != any(use.is_call for use in wanted[label]):
            faults.append(f"{name}: {label} {told[label][1]}")
    return faults


def sweep(live, every, packages=None):
    """Compare the uses of every so many functions; return how many functions and uses, and what differs."""
    loaded = ast.literal_eval(live.value("sorted(__import__('sys').modules)", value_limit=100_000))
    both = frozenset(loaded_by_both()) & frozenset(loaded)
    shared = frozenset(name for name in both if packages is None or name.partition(".")[0] in packages)
    known = [target for name in sorted(shared) for target in targets(name) if target[0] not in REPLACED]
    chosen = known[::every]
    faults = [fault for name, function in chosen for fault in faults_of(live, name, function, shared)]
    return len(chosen), sum(len(uses_by_function(shared).get(id(each), [])) for _name, each in chosen), faults


@pytest.mark.contract("answers.python.callers")
def test_calls_in_some_packages_are_told_as_their_syntax_trees_have_them(live):
    functions, uses, faults = sweep(live, 6, ("csv", "json", "logging", "shlex", "string", "textwrap"))
    assert faults == []
    assert functions > 40
    assert uses > 20


@pytest.mark.contract("answers.python.callers")
@pytest.mark.slow
def test_calls_in_the_standard_library_are_told_as_its_syntax_trees_have_them(live):
    functions, uses, faults = sweep(live, 9)
    assert faults == []
    assert functions > 600
    assert uses > 600
