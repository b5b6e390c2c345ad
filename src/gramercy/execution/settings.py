"""What an executor was told: one object that its parts share, so that a change is seen by all of them at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
