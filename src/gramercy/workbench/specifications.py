"""Write a tool as the specification in gram that it would satisfy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.gram.signatures.derivation import json_schema_to_signature
from gramercy.gram.specification import create_tool_specification
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from gramercy.tools.tool import Tool


def specification_text(tool: Tool) -> str:
    """Return the text of the specification; what gram cannot say raises a GramercyError."""
    schema = {key: value for key, value in tool.schema.items() if key != "additionalProperties"}
    level = None if tool.safety_level is Safety.SAFE else tool.level_word
    return create_tool_specification(
        tool.name,
        tool.description,
        json_schema_to_signature(schema),
        safety=level,
        categories=tool.categories,
    ).to_gram()
