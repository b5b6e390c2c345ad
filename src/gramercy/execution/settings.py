"""What an executor was told: one object that its parts share, so that all of them see a change at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gramercy.errors import ExecutionError
from gramercy.tools.problems import is_duration

if TYPE_CHECKING:
    from gramercy.execution.approval import ApprovalHandler
    from gramercy.execution.journal import Journal
    from gramercy.execution.observers import Hook, Transform
    from gramercy.execution.policy import Policy
    from gramercy.tools.registry import Registry


@dataclass(slots=True)
class Settings:
    """The parts and limits of one executor; deadlines in seconds, None for none."""

    registry: Registry
    policy: Policy
    journal: Journal
    approval_handler: ApprovalHandler | None = None
    hooks: list[Hook] = field(default_factory=list)
    transforms: list[Transform] = field(default_factory=list)
    deadline: float | None = None
    approval_deadline: float | None = None
    hook_deadline: float | None = None
    max_output: int = 100_000

    def __post_init__(self) -> None:
        """Refuse limits that would only show their fault in the middle of a call."""
        for name in ("deadline", "approval_deadline", "hook_deadline"):
            value = getattr(self, name)
            if value is not None and not is_duration(value):
                raise ExecutionError(
                    f"{name} is {value!r:.50}: expected a positive number of seconds or None"
                )
        if not is_duration(self.max_output) or not isinstance(self.max_output, int):
            raise ExecutionError(f"max_output is {self.max_output!r:.50}: expected a number of characters")
        handler = self.approval_handler
        if handler is not None and not callable(handler):
            raise ExecutionError(
                f"the approval handler is {type(handler).__name__}: expected a function or None"
            )
