"""What a model reads when it makes a bad call through gramercy. Needs no peer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.bad_tools import DESCRIPTIONS, RAN, SCHEMAS
from bench.scoring import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.bad_calls import BadCall


def gramercy_ask() -> Callable[[BadCall], Answer]:
    """Register the tools and return a function that makes one call."""
    from gramercy import Executor, Registry, create_tool

    registry = Registry()
    for name, schema in SCHEMAS.items():
        registry.register(create_tool(name, DESCRIPTIONS[name], schema, lambda _arguments: RAN))
    executor = Executor(registry)

    def ask(call: BadCall) -> Answer:
        request = {"id": "1", "name": call.tool, "arguments": call.arguments}
        try:
            [result] = executor.execute_tool_calls([request])
        except Exception as error:  # noqa: BLE001 - what escapes here would have ended the run
            return Answer(str(error), aborted=True)
        return Answer(result.content)

    return ask
