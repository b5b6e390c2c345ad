"""What a server does not do before it lists its tools: a client may send its first turn without them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.errors import InvalidSchemaError
from gramercy.gram.json_schema import compile_schema
from gramercy.tools.arguments import _default_fits, _defaults_of, _is_plainly_right

OPENED = """
import os, sys
from gramercy.workbench.serving import Service, open_server
server = open_server(Service(images=("python", "sbcl")))
print(len(server.engine.executor.tools()), "jsonschema_rs" in sys.modules, flush=True)
os._exit(0)
"""
NUMBER = st.one_of(st.integers(-3, 5), st.booleans(), st.floats(-2, 2), st.text(max_size=2), st.none())
WORDS = st.one_of(
    st.lists(st.one_of(st.text(max_size=2), st.integers(0, 2)), max_size=3), st.text(max_size=2)
)
PROPERTY = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "boolean", "number"])},
    optional={
        **dict.fromkeys(("minLength", "maxLength", "minimum", "maximum"), NUMBER),
        "enum": WORDS,
        "default": st.one_of(st.text(max_size=4), st.integers(-4, 6), st.booleans(), st.none()),
    },
)


@pytest.mark.contract("clients.start.validator")
def test_a_server_starts_without_the_validator(tmp_path):
    """A day's real work: `claude -p` and `codex exec` may send the first turn before our tools are there."""
    done = subprocess.run(
        [sys.executable, "-c", OPENED], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    count, is_loaded = done.stdout.split()
    assert int(count) > 20
    assert is_loaded == "False"


@pytest.mark.contract("clients.start.validator")
@given(st.dictionaries(st.sampled_from("abc"), PROPERTY, max_size=2))
def test_what_is_taken_for_right_without_the_validator_is_right(properties):
    """The validator is asked about every schema that a look does not settle."""
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if not _is_plainly_right(schema):
        return
    try:
        validator = compile_schema(schema)
    except InvalidSchemaError as error:
        pytest.fail(f"{schema} is no schema: {error}")
    assert all(_default_fits(validator, name, value) for name, value in _defaults_of(schema).items())


def test_the_schemas_of_tools_are_taken_for_right():
    """Else the look would be for nothing."""
    for bounded in (
        {"type": "string", "minLength": 1, "maxLength": 100, "default": "x"},
        {"type": "integer", "minimum": 1, "maximum": 3, "default": 3},
        {"type": "string", "enum": ["a", "b"], "default": "b"},
    ):
        assert _is_plainly_right({"type": "object", "properties": {"it": bounded}})
    for wrong in ({"type": "integer", "minimum": 4, "default": 3}, {"type": "string", "enum": []}):
        assert not _is_plainly_right({"type": "object", "properties": {"it": wrong}})
