"""Schemas so plain that the validator need not be loaded to see that they are right."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gramercy.errors import InvalidSchemaError
from gramercy.gram.json_schema import compile_schema
from gramercy.tools.arguments import _default_fits, check_definition

NAMES = st.sampled_from(["city", "count", "flag", "ß"])
VALUES = st.one_of(
    st.booleans(), st.integers(-5, 5), st.text(max_size=3), st.none(), st.just([]), st.just({})
)
PROPERTIES = st.fixed_dictionaries(
    {"type": st.one_of(st.sampled_from(["string", "integer", "boolean", "number", "text"]), VALUES)},
    optional={"description": VALUES, "title": VALUES, "default": VALUES, "examples": VALUES},
)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(NAMES, PROPERTIES, max_size=3)},
    optional={
        "required": st.one_of(st.lists(NAMES, max_size=3), VALUES),
        "additionalProperties": VALUES,
        "description": VALUES,
        "title": VALUES,
    },
)


@given(SCHEMAS)
def test_what_is_plainly_right_is_right_for_the_validator_too(schema: dict[str, Any]) -> None:
    """Speed: the validator is loaded only for schemas that it could say something about."""
    try:
        validator = compile_schema(schema)
    except InvalidSchemaError:
        assert check_definition(schema)
        return
    defaults = {name: part["default"] for name, part in schema["properties"].items() if "default" in part}
    wrong = [name for name, value in defaults.items() if not _default_fits(validator, name, value)]
    assert len(check_definition(schema)) == len(wrong)


def test_a_file_of_plain_tools_is_ready_without_the_validator() -> None:
    """Speed: MCP start to first reply; the validator and what it imports cost a tenth of that."""
    program = """
import sys
from gramercy import tool
@tool
def echo(text: str, times: int = 1) -> str:
    "Return the text."
    return text * times
print("jsonschema_rs" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60)
    assert done.stdout == b"False\n"
