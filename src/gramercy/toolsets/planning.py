"""The tool with which an agent shows the steps of a longer task and its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gramercy.errors import ExecutionError
from gramercy.tools.definition import create_tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.tools.tool import Tool

PLAN = "update_plan"
# A person does not read a longer plan.
MOST_STEPS = 30
StepState: TypeAlias = Literal["completed", "in_progress", "pending"]


def plan_tool() -> Tool:
    """Make the tool. It changes nothing: clients that can show a plan take it from the call."""
    # The schema has no limits, so that an agent's file can write it in one short line.
    steps = {"type": "array", "items": {"type": "string"}, "description": "All steps in their order"}
    done = {"type": "integer", "description": "How many of them are done"}
    schema = {
        "type": "object",
        "properties": {"steps": steps, "done": done},
        "required": ["steps", "done"],
        "additionalProperties": False,
    }
    return create_tool(
        PLAN,
        "Show the person the steps of a longer task, and again after each of them how many are done",
        schema,
        _told,
        title="Show the plan",
        categories=["plan"],
        inline=True,
        open_world=False,
    )


def plan_steps(arguments: Mapping[str, Any]) -> list[tuple[str, StepState]]:
    """Return the steps of a call with the state of each."""
    done = arguments["done"]

    def state(place: int) -> StepState:
        return "completed" if place < done else "in_progress" if place == done else "pending"

    return [(step, state(place)) for place, step in enumerate(arguments["steps"])]


def _told(arguments: dict[str, Any]) -> str:
    count = len(arguments["steps"])
    if not 0 < count <= MOST_STEPS:
        raise ExecutionError(f"a plan has 1 to {MOST_STEPS} steps, not {count}")
    return f"The plan is shown: {max(0, min(arguments['done'], count))} of {count} steps are done."
