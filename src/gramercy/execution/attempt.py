"""One call on its way through the guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.tools.values import copy_json

if TYPE_CHECKING:
    from gramercy.execution.policy import Verdict
    from gramercy.tools.tool import Tool


class Attempt(msgspec.Struct):
    """What is known about a call between its look-up and its result; approval may still change it.

    Nobody else holds `arguments`: whoever is shown them gets a copy. `flat` says that they have no inside.
    A struct because one is made for every call.
    """

    call_id: str
    tool: Tool
    arguments: dict[str, Any]
    verdict: Verdict
    flat: bool = False
    key: int = 0
    approved: bool | None = None
    approved_by: str | None = None
    edited: bool = False
    edit_note: str = ""
    wait_ms: float = 0.0

    def given(self) -> dict[str, Any]:
        """Return a copy of the arguments through which nobody can change them."""
        return self.arguments.copy() if self.flat else copy_json(self.arguments)

    def take(self, arguments: dict[str, Any]) -> None:
        """Go on with other arguments."""
        self.arguments, self.flat = arguments, False

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
