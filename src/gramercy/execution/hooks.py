"""Hooks observe and cannot change anything; transforms may rewrite arguments before the policy sees them."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import WeakValueDictionary

from gramercy.errors import ExecutionError, InvalidArgumentsError
from gramercy.execution.callers import BLOCKING, Limit, drive, is_async, must_pass
from gramercy.execution.calls import ToolResult, error_text
from gramercy.tools.values import copy_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gramercy.execution.results import Attempt
    from gramercy.tools.tool import Tool

    Hook: TypeAlias = Callable[["Phase", Tool, dict[str, Any], ToolResult | None], Any]
    Observer: TypeAlias = Callable[["Phase | Literal['refused']", Tool | None, ToolResult | None], Any]
    Transform: TypeAlias = Callable[[Tool, dict[str, Any]], Mapping[str, Any] | None]

Phase: TypeAlias = Literal["before", "after", "error"]
log = logging.getLogger("gramercy")
# The observers of the calls of every executor in this process.
observers: list[Observer] = []


class HookList(list["Hook"]):
    """The hooks of one executor; a type of its own, since a plain list cannot be referenced weakly."""

    __slots__ = ("__weakref__",)


_living: WeakValueDictionary[int, HookList] = WeakValueDictionary()


def _tell_observers(phase: Phase, tool: Tool, arguments: dict[str, Any], result: ToolResult | None) -> None:
    del arguments
    told(phase, tool, result)


def told(phase: Phase | Literal["refused"], tool: Tool | None, result: ToolResult | None) -> None:
    """Notify the observers of every executor; `tool` is None if the call names an unknown tool."""
    for observer in tuple(observers):
        try:
            observer(phase, tool, result)
        except Exception as error:  # noqa: BLE001 - an observer changes nothing
            log.warning("an observer of calls failed: %s", error_text(error))


def observe(observer: Observer) -> Callable[[], None]:
    """Notify an observer of the calls of every executor, present and future; return a function that ends it.

    Unlike hooks, an observer is also told of refused calls, and gets no arguments. An executor only checks
    its own hooks, so observation costs nothing while there is no observer.
    """
    observers.append(observer)
    for hooks in list(_living.values()):
        if _tell_observers not in hooks:
            hooks.append(_tell_observers)
    return lambda: _stop_observing(observer)


def _stop_observing(observer: Observer) -> None:
    if observer in observers:
        observers.remove(observer)
    for hooks in [] if observers else list(_living.values()):
        if _tell_observers in hooks:
            hooks.remove(_tell_observers)


def hook_list(hooks: Iterable[Hook]) -> HookList:
    """Return the hooks of an executor, with one that notifies the observers of every executor."""
    made = HookList(check_hooks("hook", hooks))
    if observers:
        made.append(_tell_observers)
    _living[id(made)] = made
    return made


def check_hooks(kind: str, hooks: Iterable[Any]) -> list[Any]:
    """Return the hooks as a list, or refuse hooks that cannot be called without awaiting."""
    listed = list(hooks)
    for hook in listed:
        if not callable(hook) or is_async(hook):
            raise ExecutionError(f"a {kind} must be a plain function, not {_name(hook)}")
    return listed


def notify(
    hooks: Iterable[Hook],
    phase: Phase,
    attempt: Attempt,
    result: ToolResult | None,
    seconds: float | None = None,
) -> None:
    """Call every hook with copies of its own; a hook that fails or hangs is logged and skipped."""
    tool, arguments, seen = attempt.tool, attempt.arguments, result
    for hook in hooks:
        if result is not None:
            seen = ToolResult(result.id, result.success, result.content, result.error, result.metadata.copy())
        try:
            given = attempt.copied(arguments)
            if seconds is None:
                answer = hook(phase, tool, given, seen)
            else:
                limit = Limit(f"observer {_name(hook)}", seconds)
                answer = drive(BLOCKING.call(hook, phase, tool, given, seen, limit=limit))
            if answer is not None:
                refuse_answer(hook, answer)
        except BaseException as error:  # noqa: BLE001 - passed on by hook_failed if it is the caller's
            hook_failed(hook, phase, error)


def refuse_answer(hook: Hook, answer: Any) -> None:
    """Ignore the return value of a hook; warn about a coroutine, since its code has not run."""
    if inspect.iscoroutine(answer):
        answer.close()
        log.warning("observer %s is async and was not run: hooks must be plain functions", _name(hook))


def hook_failed(hook: Hook, phase: Phase, error: BaseException) -> None:
    """Log the failure of a hook, unless it is the caller's own interruption."""
    if must_pass(error):
        raise error
    log.warning("observer %s failed in phase %s: %s", _name(hook), phase, error_text(error))


def transformed(
    transforms: Iterable[Transform], tool: Tool, arguments: dict[str, Any], *, seconds: float | None = None
) -> dict[str, Any]:
    """Pass arguments through every transform and validate them again; a failing transform fails the call."""
    for transform in transforms:
        what = f"transform {_name(transform)}"
        try:
            call = BLOCKING.call(transform, tool, copy_json(arguments), limit=Limit(what, seconds))
            changed = drive(call)
            if changed is not None:
                arguments = tool.checker.check(dict(changed) if hasattr(changed, "keys") else changed)
        except InvalidArgumentsError as error:
            raise ExecutionError(
                f"{what} gave arguments that do not fit; the tool was not run. {error}"
            ) from None
        except BaseException as error:
            if must_pass(error):
                raise
            raise ExecutionError(f"{what} failed: {error_text(error)}; the tool was not run") from None
    return arguments


def _name(hook: Any) -> str:
    try:
        return str(getattr(hook, "__qualname__", None) or type(hook).__name__)[:100]
    except Exception:  # noqa: BLE001 - an attribute may raise anything; the name is only for the log
        return "of unknown name"
