"""An approver that answers from a script and records what it was shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from gramercy.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.execution.approval import ApprovalRequest
    from gramercy.tools.tool import Tool


class ScriptedApprover:
    """Gives one prepared answer for each question, in order.

    An answer is whatever an approval handler may return (`Approved()`, `"denied"`, `("modified", {…})`, …),
    or a function of the request that returns one. A question beyond the script is denied, with a reason that
    says so. As a context manager it fails at the end unless every answer was asked for and no more.
    """

    def __init__(self, *answers: Any) -> None:
        self.requests: list[ApprovalRequest] = []
        self._answers = answers

    def __call__(self, tool: Tool, arguments: Mapping[str, Any], request: ApprovalRequest) -> Any:
        """Record the question and return the next answer."""
        del tool, arguments
        self.requests.append(request)
        if len(self.requests) > len(self._answers):
            raise AssertionError(
                f"the script has {counted(len(self._answers), 'answer')}, but question {len(self.requests)} "
                f"came: {_shown(request)}"
            )
        answer = self._answers[len(self.requests) - 1]
        return answer(request) if callable(answer) else answer

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """What was asked about: the names of the tools, with the arguments that were shown."""
        return [(request.tool.name, request.arguments) for request in self.requests]

    def check(self) -> None:
        """Raise AssertionError unless exactly as many questions came as the script has answers."""
        asked, prepared = len(self.requests), len(self._answers)
        if asked != prepared:
            came = ", ".join(map(_shown, self.requests)) or "none"
            raise AssertionError(
                f"the script has {counted(prepared, 'answer')}, but {asked} were asked for: {came}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # The first failure explains more than what follows from it.
        if kind is None:
            self.check()


def _shown(request: ApprovalRequest) -> str:
    return f"{request.tool.name} {request.arguments!r:.200}"
