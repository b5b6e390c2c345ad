"""Hooks: observers watch and can change nothing, transforms may rewrite arguments before anybody decides."""

from __future__ import annotations

import logging
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gramercy.errors import ExecutionError
from gramercy.execution.calls import ToolResult
from gramercy.execution.output import error_text
from gramercy.execution.waiting import BLOCKING, drive, is_async, must_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gramercy.tools.tool import Tool

    Hook: TypeAlias = Callable[["Phase", Tool, dict[str, Any], ToolResult | None], Any]
    Transform: TypeAlias = Callable[[Tool, dict[str, Any]], Mapping[str, Any] | None]

Phase: TypeAlias = Literal["before", "after", "error"]
log = logging.getLogger("gramercy")
_FLAT = frozenset({str, int, float, bool, type(None)})


def check_hooks(kind: str, hooks: Iterable[Any]) -> list[Any]:
    """Return the hooks as a list, or refuse what cannot be called without waiting."""
    listed = list(hooks)
    for hook in listed:
        if not callable(hook) or is_async(hook):
            raise ExecutionError(f"a {kind} must be a plain function, not {_name(hook)}")
    return listed


def copy_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Copy arguments so that nobody can change the originals through the copy."""
    for value in arguments.values():
        if type(value) not in _FLAT:
            return deepcopy(arguments)
    return arguments.copy()


def notify(
    hooks: Iterable[Hook],
    phase: Phase,
    tool: Tool,
    arguments: dict[str, Any],
    result: ToolResult | None,
    *,
    seconds: float | None = None,
) -> None:
    """Tell every observer, each with copies of its own; one that fails or hangs is logged and passed over."""
    for hook in hooks:
        seen = result and ToolResult(result.id, result.success, result.content, result.error, {**result.metadata})
        try:
            if seconds is None:
                hook(phase, tool, copy_arguments(arguments), seen)
            else:
                what = f"observer {_name(hook)}"
                call = BLOCKING.call(hook, phase, tool, copy_arguments(arguments), seen, what=what, seconds=seconds)
                drive(call)
        except BaseException as error:
            if must_pass(error):
                raise
            log.warning("observer %s failed in phase %s: %s", _name(hook), phase, error_text(error))


def transformed(
    transforms: Iterable[Transform], tool: Tool, arguments: dict[str, Any], *, seconds: float | None = None
) -> dict[str, Any]:
    """Pass arguments through every transform and check them again; a failing transform fails the call."""
    for transform in transforms:
        what = f"transform {_name(transform)}"
        try:
            call = BLOCKING.call(transform, tool, copy_arguments(arguments), what=what, seconds=seconds)
            changed = drive(call)
        except BaseException as error:
            if must_pass(error):
                raise
            raise ExecutionError(f"{what} failed: {error_text(error)}; the tool was not run") from None
        if changed is not None:
            arguments = tool.checker.check(dict(changed) if hasattr(changed, "keys") else changed)
    return arguments


def _name(hook: Any) -> str:
    return str(getattr(hook, "__qualname__", None) or type(hook).__name__)
