"""One call on its way through the guard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gramercy.execution.policy import Verdict
    from gramercy.tools.tool import Tool


@dataclass
class Attempt:
    """What is known about a call between its look-up and its result; approval may still change it.

    Made for every call: fields that most calls never touch are class attributes until they are set.
    """

    call_id: str
    tool: Tool
    arguments: dict[str, Any]
    verdict: Verdict
    key: int = field(init=False, default=0)
    approved: bool | None = field(init=False, default=None)
    approved_by: str | None = field(init=False, default=None)
    edited: bool = field(init=False, default=False)
    wait_ms: float = field(init=False, default=0.0)

    def metadata(self, elapsed_ms: float | None) -> dict[str, Any]:
        """Describe the attempt for its result."""
        metadata: dict[str, Any] = {"safety_level": self.tool.level_word}
        if elapsed_ms is not None:
            metadata["execution_time_ms"] = elapsed_ms
        if self.approved is not None:
            metadata["approved"] = self.approved
            metadata["approval_wait_ms"] = self.wait_ms
        if self.approved_by:
            metadata["approved_by"] = self.approved_by
        if self.edited:
            metadata["arguments_edited"] = True
        return metadata
