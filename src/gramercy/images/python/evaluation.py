"""Evaluate source text in a module, form by form; forms that await run on an event loop that is kept.

A form is a top-level statement; an expression has one value, any other statement none. This module runs user
code and lets its exceptions out; the session guards, captures and reports.
"""

import __future__

import ast
import builtins
import os
import re
import sys
import time
from collections.abc import Coroutine, Iterable, Iterator
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

from .anatomy import ATOMS, MISSING
from .diagnostics import Sources
from .looks import Look
from .printing import Printed, is_trivial, printed
from .purity import is_plain
from .tables import summary_of

_exists, _clock, _sleep = os.path.exists, time.monotonic, time.sleep
# Names that only work inside a running loop, and those that only work outside of one.
NEEDS_LOOP = frozenset(("create_task", "get_running_loop", "current_task"))
_STARTS_LOOP = frozenset(("run", "run_until_complete", "run_forever", "Runner"))
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_AWAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith)
_find = re.compile("|".join(("await", "async", *sorted(NEEDS_LOOP)))).search
# Seconds that a call waits at its end for idle threads of `to_thread`: they end within a few milliseconds.
_PATIENCE = 0.2
_compile, _exec, _eval = compile, exec, eval
_references = sys.getrefcount
FUTURE = 0
for _name in __future__.all_feature_names:
    FUTURE |= getattr(__future__, _name).compiler_flag
_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_TREE = ast.PyCF_ONLY_AST
_COROUTINE = 0x80
_STATEMENTS = frozenset(
    ("import", "from", "del", "pass", "raise", "assert", "if", "for", "while", "with", "async", "global")
)
# Characters of all values of a call: escaped in JSON they still fit a frame of 64 MB.
_ALL_VALUES = 8 * 1024 * 1024
# Placeholder for the expression of a call that is one expression, compiled without a tree.
_EXPRESSION = ast.Expr(ast.Constant(None))
# Placeholder for the value of an expression that only prints.
_PRINTS = object()
Forms = Iterator[tuple[ast.stmt, CodeType]]


class Loop:
    """A private event loop. Its remaining tasks continue during the next awaiting evaluation."""

    def __init__(self) -> None:
        self._loop: Any = None
        self._abandoned: list[Any] = []
        self.is_stopping = False

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> object:
        """Run the coroutine to its end. An interrupt cancels it."""
        loop = self._ready()
        context = copy_context()
        self.is_stopping = False
        task = loop.create_task(coroutine, context=context)
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                self.is_stopping = True
                self._cancel(loop, task)
            raise
        finally:
            _take_over(context)
            _end_idle_threads(loop)

    def _ready(self) -> Any:
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        return self._loop

    @staticmethod
    def _cancel(loop: Any, task: Any) -> None:
        # A task that swallows its cancellation gets half a second, then stays behind.
        task.cancel()
        task.add_done_callback(lambda _task: loop.stop())
        limit = loop.call_later(0.5, loop.stop)
        loop.run_forever()
        limit.cancel()

    def forget(self) -> None:
        """Leave the loop to the original of this copy."""
        if self._loop is not None:
            self._abandoned.append(self._loop)
            self._loop = None


def belongs_in_loop(code: str, statements: list[ast.stmt]) -> bool:
    """Return whether the statements await, or use the running loop without starting their own."""
    if _find(code) is None:
        return False
    names: set[str] = set()
    for node in at_top_level(statements):
        if isinstance(node, _AWAITS) or (isinstance(node, ast.comprehension) and node.is_async):
            return True
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return wants_loop(names)


def wants_loop(names: Iterable[str]) -> bool:
    """Tell whether code that reaches these names needs a running loop."""
    return not NEEDS_LOOP.isdisjoint(names) and _STARTS_LOOP.isdisjoint(names)


def at_top_level(statements: list[ast.stmt]) -> Iterable[ast.AST]:
    """Walk the nodes that run with the statements: not the bodies of functions."""
    waiting: list[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _SCOPES):
            waiting.extend(getattr(node, "decorator_list", ()))
        else:
            waiting.extend(ast.iter_child_nodes(node))


def _take_over(context: Context) -> None:
    """Keep the context variables that the forms have set, as without a loop."""
    for variable, value in context.items():
        if variable.get(MISSING) is not value:
            variable.set(value)


def _end_idle_threads(loop: Any) -> None:
    """End the idle threads of `asyncio.to_thread`: with them no copy could be made.

    A thread that is still working ends after its work.
    """
    executor: Any = getattr(loop, "_default_executor", None)
    if getattr(executor, "_thread_name_prefix", None) != "asyncio":
        return  # none, or one that the user has chosen
    loop._default_executor = None  # noqa: SLF001 - shutdown_default_executor() would refuse any further one
    executor.shutdown(wait=False)
    deadline = _clock() + _PATIENCE
    for thread in list(executor._threads):  # noqa: SLF001 - there is no other way to wait with a limit
        thread.join(max(deadline - _clock(), 0))
        # After join() the kernel may list the thread for a moment longer.
        while (
            not thread.is_alive() and _exists(f"/proc/self/task/{thread.native_id}") and _clock() < deadline
        ):
            _sleep(0.0002)


class Form(NamedTuple):
    """An expression: its text where that is the whole code, else its tree, and its code."""

    text: str
    node: ast.expr | None
    compiled: CodeType


@dataclass(slots=True)
class Run:
    """The progress of one evaluation. It is complete even when an exception ends it."""

    limit: int
    forms: list[dict[str, object]] = field(default_factory=list)
    last: list[object] = field(default_factory=list)
    printed: list[Printed] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)
    cut: int = 0
    is_cut_short: bool = False
    room: int = _ALL_VALUES
    pure: bool = False
    # The code consists of reading expressions only, though their values may have run user code.
    reads: bool = False
    # The messages about edited files, and those whose new text has failed while it ran, by path.
    edits: dict[str, str] | None = None
    spoiled: dict[str, str] | None = None
    # Pictures and tables, made at the end: see `displays`.
    displays: list[dict[str, object]] | None = None
    # Whether `_` is set to its values.
    remembers: bool = True

    def add(self, values: list[object]) -> None:
        """Print the values of a finished form. This may run their code."""
        found = []
        for value in values:
            one = self._printed(value)
            found.append(one)
            self.room -= len(one.text)
            self.cut += one.cut
            self.pure = self.remembers and remember(value) and self.pure
        self.forms.append({"values": [one.text for one in found]})
        self.last, self.printed = values, found

    def _printed(self, value: object) -> Printed:
        """Print a value. One that is shown as a table is printed in one line."""
        if id(type(value)) not in ATOMS:
            try:
                summary = summary_of(value)
            except Exception:  # noqa: BLE001 - a library that is broken, or not what it seems
                summary = None
            if summary is not None:
                return Printed(summary)
        return printed(value, max(min(self.limit, self.room), 200))


class Evaluator:
    """Compile and run forms, remembering `from __future__` imports by module."""

    def __init__(self, sources: Sources, loop: Loop) -> None:
        self._sources = sources
        self._loop = loop
        self._futures: dict[str, int] = {}

    def run(self, code: str, module: str, space: dict[str, object], run: Run) -> None:
        """Evaluate the code in the module's namespace, writing into the run as it goes."""
        space["__builtins__"] = builtins
        run.pure = True
        name = self._sources.add(code)
        expression = self._expression(code, name, module)
        if expression is not None:
            self._evaluate(Form(code, None, expression), space, run)
            return
        statements = self.parse(code, name, module)
        forms = self._forms(statements, name, module)
        if belongs_in_loop(code, statements):
            run.pure = False
            self._loop.run(self._in_loop(forms, space, run))
            return
        for statement, compiled in forms:
            if type(statement) is ast.Expr:
                self._evaluate(Form("", statement.value, compiled), space, run)
            else:
                run.pure = False
                _exec(compiled, space)
                run.add([])
                _collect(statement, run.bound)

    async def _in_loop(self, forms: Forms, space: dict[str, object], run: Run) -> None:
        """Run every form inside the running loop, until the evaluation is interrupted."""
        for statement, compiled in forms:
            value = _eval(compiled, space)
            if compiled.co_flags & _COROUTINE:
                value = await value
            if self._loop.is_stopping:
                return
            if type(statement) is ast.Expr:
                run.add([value])
            else:
                run.add([])
                _collect(statement, run.bound)

    def parse(self, code: str, name: str, module: str) -> list[ast.stmt]:
        """Return the statements of the code, which goes by that file name."""
        flags = _TREE | _AWAIT | self._futures.get(module, 0)
        tree: ast.Module = _compile(code, name, "exec", flags, dont_inherit=True)
        return tree.body

    def _expression(self, code: str, name: str, module: str) -> CodeType | None:
        """Compile the code if it is one expression on one line: three times as fast as statements."""
        # A failed attempt costs time, and might issue warnings that the next one repeats.
        if "=" in code or "\n" in code or ";" in code or "\\" in code:
            return None
        if code.partition(" ")[0] in _STATEMENTS:
            return None
        flags = _AWAIT | self._futures.get(module, 0)
        try:
            compiled: CodeType = _compile(code, name, "eval", flags, dont_inherit=True)
        except (SyntaxError, ValueError):
            return None
        return compiled

    def _forms(self, statements: list[ast.stmt], name: str, module: str) -> Forms:
        for statement in statements:
            flags = _AWAIT | self._futures.get(module, 0)
            if type(statement) is ast.Expr:
                compiled = _compile(ast.Expression(statement.value), name, "eval", flags, dont_inherit=True)
            else:
                tree = ast.Module([statement], [])
                compiled = _compile(tree, name, "exec", flags, dont_inherit=True)
            yield statement, compiled
            if compiled.co_flags & FUTURE:
                self._futures[module] = self._futures.get(module, 0) | (compiled.co_flags & FUTURE)

    def _evaluate(self, form: Form, space: dict[str, object], run: Run) -> None:
        compiled = form.compiled
        if compiled.co_flags & _COROUTINE or wants_loop(compiled.co_names):
            run.pure = False
            self._loop.run(self._in_loop(iter([(_EXPRESSION, compiled)]), space, run))
        elif not run.pure:
            run.add([_eval(compiled, space)])
        elif names_nothing(compiled):
            value = _eval(compiled, space)
            run.pure = is_trivial(value) or is_plain(value)
            run.add([value])
        else:
            value = _looked(form, space)
            run.pure = value is not MISSING
            run.add([_eval(compiled, space) if value is MISSING or value is _PRINTS else value])


def _looked(form: Form, space: dict[str, object]) -> object:
    """Return the value if that needs no user code, else MISSING. In that case nothing was done.

    An error appears again when the expression is evaluated in the ordinary way, which reports it.
    """
    compiled = form.compiled
    if any(type(constant) is CodeType for constant in compiled.co_consts):
        return MISSING
    look = Look(space)
    try:
        if form.text in compiled.co_names:
            value = look.name(form.text)
            return value if is_plain(value, shown=True) else MISSING
        node = form.node
        if node is None:
            node = _compile(form.text, compiled.co_filename, "eval", _TREE, dont_inherit=True).body
        return _PRINTS if look.only_prints(node) else look.value(node)
    except Exception:  # noqa: BLE001 - a doubt, or an error of the expression
        return MISSING


def names_nothing(compiled: CodeType) -> bool:
    """Return whether an expression uses no names, so that it cannot have changed anything."""
    constants = compiled.co_consts
    return not compiled.co_names and all(type(constant) is not CodeType for constant in constants)


def _collect(statement: ast.stmt, bound: set[str]) -> None:
    """Add the names that a finished statement has certainly bound."""
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


def remember(value: object) -> bool:
    """Make the value available as `_`, and the previous one as `__`, as an interactive Python does.

    Return whether no released value may run code at its end.
    """
    if value is None:
        return True
    space = vars(builtins)
    gone = space.get("__")
    space["__"], space["_"] = space.get("_"), value
    # Two references are ours: the variable and the argument.
    return is_trivial(gone) or _references(gone) > 2 or is_plain(gone)  # noqa: PLR2004 - see above
