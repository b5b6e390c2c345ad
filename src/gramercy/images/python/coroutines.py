"""Run `await` at the top level of evaluated code on a loop that lives between evaluations.

All forms of a call that awaits run inside one running loop, so that a task made in one form can be awaited in
the next. The loop is made at the first need and given up after a fork, since its selector is shared with the
original.
"""

import ast
import os
import re
import time
from collections.abc import Coroutine, Iterable
from contextvars import Context, copy_context
from typing import Any

_exists, _clock, _sleep = os.path.exists, time.monotonic, time.sleep
_MISSING = object()
# What only works inside a running loop, and what only works outside of one.
NEEDS_LOOP = frozenset(("create_task", "get_running_loop", "current_task"))
_STARTS_LOOP = frozenset(("run", "run_until_complete", "run_forever", "Runner"))
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_AWAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith)
_find = re.compile("|".join(("await", "async", *sorted(NEEDS_LOOP)))).search
# How long a call waits at its end for the threads of `to_thread` that have nothing to do.
_PATIENCE = 0.2


class Loop:
    """A private event loop; tasks left in it go on during the next awaiting evaluation."""

    def __init__(self) -> None:
        self._loop: Any = None
        self._abandoned: list[Any] = []
        self.is_stopping = False

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> object:
        """Run the coroutine to its end; an interrupt cancels it."""
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
        """Leave the loop to the process this one was copied from."""
        if self._loop is not None:
            self._abandoned.append(self._loop)
            self._loop = None


def belongs_in_loop(code: str, statements: list[ast.stmt]) -> bool:
    """Tell whether the statements await, or ask for the running loop without starting one of their own."""
    if _find(code) is None:
        return False
    names: set[str] = set()
    for node in _at_top_level(statements):
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


def _at_top_level(statements: list[ast.stmt]) -> Iterable[ast.AST]:
    """Walk what runs when the statements do: not the bodies of functions."""
    waiting: list[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _SCOPES):
            waiting.extend(getattr(node, "decorator_list", ()))
        else:
            waiting.extend(ast.iter_child_nodes(node))


def _take_over(context: Context) -> None:
    """Let context variables that the forms have set hold afterwards, as they do without a loop."""
    for variable, value in context.items():
        if variable.get(_MISSING) is not value:
            variable.set(value)


def _end_idle_threads(loop: Any) -> None:
    """End the threads that `asyncio.to_thread` leaves waiting: with them no copy could be made.

    A thread that still works on something ends when that is done.
    """
    executor: Any = getattr(loop, "_default_executor", None)
    if getattr(executor, "_thread_name_prefix", None) != "asyncio":
        return  # none, or one that the user has chosen
    loop._default_executor = None  # noqa: SLF001 - shutdown_default_executor() would refuse any further one
    executor.shutdown(wait=False)
    deadline = _clock() + _PATIENCE
    for thread in list(executor._threads):  # noqa: SLF001 - there is no other way to wait with a limit
        thread.join(max(deadline - _clock(), 0))
        # A joined thread may be a moment from its end.
        while (
            not thread.is_alive() and _exists(f"/proc/self/task/{thread.native_id}") and _clock() < deadline
        ):
            _sleep(0.0002)
