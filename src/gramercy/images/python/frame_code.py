"""Code in a frame that has ended: it runs as the body of a function with the frame's locals as parameters.

Unlike code with two dictionaries, this lets lambdas and comprehensions see the locals, and `global` reach the
module.
"""

import ast
import dis
import keyword
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FrameType, ModuleType
from typing import Any

from .anatomy import MISSING, class_space, is_class, mro_of, short_name
from .evaluation import FUTURE, Run, at_top_level, belongs_in_loop
from .moments import kept
from .operations import add_objects
from .protocol import Request, text
from .session import Reply, Session
from .words import unwrapped

_GLOBALS = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL"))
_compile, _exec, _locals = compile, exec, locals
_instructions = dis.get_instructions


def evaluate_in_frame(session: Session, request: Request) -> Reply:
    """Evaluate code with the locals of a frame. Its assignments are kept in this copy of the moment."""
    code, moment = text(request, "code"), kept(session)
    number: Any = request.get("frame", 0)
    frame = moment.place(number).frame
    home = frame.f_globals.get("__name__")
    module: ModuleType = (session.module(home) if type(home) is str else None) or session.main

    def work(run: Run) -> None:
        if frame.f_locals is frame.f_globals:
            session.evaluator.run(code, session.current, frame.f_globals, run)
        else:
            FrameCode(session, frame, moment.space(number)).run(code, run)

    reply, run = session.perform(work, module, request)
    add_objects(session, reply, run)
    return reply


class FrameCode:
    """Runs code statement by statement, so that each value is reported. Its assignments go to the space."""

    def __init__(self, session: Session, frame: FrameType, space: dict[str, object]) -> None:
        self._session = session
        self._frame = frame
        self._space = space
        self._flags = frame.f_code.co_flags & FUTURE
        self._class = _class_of(frame.f_code, space)

    def run(self, code: str, run: Run) -> None:
        """Evaluate the code, writing into the run as it goes."""
        name = self._session.sources.add(code)
        tree = _parsed(code, name, self._flags)
        in_loop = belongs_in_loop(code, tree.body)
        self._check(tree, name)
        steps = self._steps(tree, name, in_loop=in_loop)
        if in_loop:
            self._session.loop.run(_awaited(steps, run))
            return
        for call, is_expression in steps:
            value = call()
            run.add([value] if is_expression else [])

    def _check(self, tree: ast.Module, name: str) -> None:
        """Refuse invalid statements of an evaluation, such as `return`. A `nonlocal` is a local here."""
        for node in at_top_level(tree.body):
            body = getattr(node, "body", None)
            if type(body) is list:
                body[:] = [_without_nonlocal(part) for part in body]
        tree.body = [_without_nonlocal(part) for part in tree.body]
        _compile(tree, name, "exec", self._flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)

    def _steps(
        self, tree: ast.Module, name: str, *, in_loop: bool
    ) -> Iterator[tuple[Callable[[], Any], bool]]:
        declared = _declared(tree)
        stored = {node.id for node in at_top_level(tree.body) if isinstance(node, ast.Name)}
        # The function of the frame may have declared names as global, for its whole body.
        own = {each.argval for each in _instructions(self._frame.f_code) if each.opname in _GLOBALS}
        declared |= own & stored
        if self._class is not None:
            _Mangler(self._class).visit(tree)
        for statement in tree.body:
            if type(statement) is ast.Global:
                continue
            function, names = self._function(statement, name, declared, in_loop=in_loop)
            values = [self._space[each] for each in names]
            yield partial(function, *values), type(statement) is ast.Expr

    def _function(
        self, statement: ast.stmt, file: str, declared: set[str], *, in_loop: bool
    ) -> tuple[Callable[..., Any], list[str]]:
        names = [each for each in self._space if _is_parameter(each) and each not in declared]
        body = [statement]
        if type(statement) is ast.Expr:
            body = [ast.copy_location(ast.Return(statement.value), statement)]
        if declared:
            body.insert(0, ast.Global(sorted(declared)))
        tree = _template(names, body, in_loop=in_loop, in_class=self._class is not None)
        made: dict[str, Any] = {}
        compiled = _compile(tree, file, "exec", self._flags, dont_inherit=True)
        _exec(compiled, self._frame.f_globals, made)
        around = () if self._class is None else (self._class,)
        function = made["around"](partial(self._keep, names), _locals, *around)
        function.__code__ = _named(function.__code__, self._frame.f_code)
        return function, names

    def _keep(self, names: list[str], found: dict[str, object]) -> None:
        """Write the locals back after the code."""
        for name in names:
            if name not in found:
                self._space.pop(name, None)
        self._space.update({name: found[name] for name in found if name[:1] != "." and name != "__class__"})


async def _awaited(steps: Iterator[tuple[Callable[[], Any], bool]], run: Run) -> None:
    for call, is_expression in steps:
        value = await call()
        run.add([value] if is_expression else [])


def _parsed(code: str, name: str, flags: int) -> ast.Module:
    wanted = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | flags
    tree: ast.Module = _compile(code, name, "exec", wanted, dont_inherit=True)
    return tree


def _without_nonlocal(node: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Pass(), node) if type(node) is ast.Nonlocal else node


def _declared(tree: ast.Module) -> set[str]:
    return {name for node in at_top_level(tree.body) if type(node) is ast.Global for name in node.names}


def _is_parameter(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and name != "__class__"


def _template(names: list[str], body: list[ast.stmt], *, in_loop: bool, in_class: bool) -> ast.Module:
    """Format the function. Its own names begin with a dot, so that user code cannot spell them."""
    word = "async def" if in_loop else "def"
    tree = ast.parse(f"def around(a, b):\n {word} code():\n  try: pass\n  finally: a(b())\n return code")
    outer: Any = tree.body[0]
    inner = outer.body[0]
    inner.args.args = [ast.arg(name) for name in names]
    guard = inner.body[0]
    guard.body = body
    call = guard.finalbody[0].value
    call.func.id, call.args[0].func.id = ".keep", ".locals"
    outer.args.args = [ast.arg(".keep"), ast.arg(".locals"), *([ast.arg("__class__")] if in_class else [])]
    return ast.fix_missing_locations(tree)


def _named(code: CodeType, frame: CodeType) -> CodeType:
    """Give the code the name of the frame's function, for tracebacks."""
    if not hasattr(frame, "co_qualname"):
        return code.replace(co_name=frame.co_name)
    return code.replace(co_name=frame.co_name, co_qualname=frame.co_qualname)


def _class_of(code: CodeType, space: dict[str, object]) -> type | None:
    """Return the class of the frame's method: `super()` and names with two underscores depend on it."""
    told = space.get("__class__", MISSING)
    if is_class(told):
        return told  # type: ignore[return-value]  # seen to be one
    first: Any = space.get(code.co_varnames[0], MISSING) if code.co_argcount and code.co_varnames else MISSING
    if first is MISSING:
        return None
    for cls in mro_of(first) if is_class(first) else mro_of(type(first)):
        held = class_space(cls).get(code.co_name, MISSING)
        if getattr(unwrapped(held), "__code__", None) is code:
            return cls
    return None


class _Mangler(ast.NodeTransformer):
    """Spell private names as the compiler does in the body of a class."""

    def __init__(self, cls: type) -> None:
        self._prefix = "_" + short_name(cls).lstrip("_")

    def _spelled(self, name: str) -> str:
        is_private = name.startswith("__") and not name.endswith("__") and "." not in name
        return self._prefix + name if is_private and len(self._prefix) > 1 else name

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._spelled(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = self._spelled(node.attr)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node  # it has its own private names
