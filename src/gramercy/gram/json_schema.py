"""Compile JSON Schemas (2020-12) without ever touching the network, and compare them.

The validator library is imported on first use: it costs more than the rest of the core together.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from gramercy.errors import InvalidSchemaError

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

Schema: TypeAlias = dict[str, Any]

# Schemas of other programs can hold patterns of exponential time (ReDoS): past this many steps a match counts
# as failed.
BACKTRACK_LIMIT = 100_000


def compile_schema(schema: Any) -> Draft202012Validator:
    """Compile a schema, or raise InvalidSchemaError saying what is wrong and where."""
    import jsonschema_rs

    try:
        return jsonschema_rs.Draft202012Validator(
            schema,
            offline=True,
            validate_formats=True,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT),
        )
    except jsonschema_rs.ValidationError as error:
        raise InvalidSchemaError(_explain(error)) from None
    except (ValueError, TypeError) as error:
        raise InvalidSchemaError(f"the schema is not JSON: {error}") from None


def _explain(error: Any) -> str:
    where = "/".join(str(step) for step in error.instance_path)
    place = f" at {where}" if where else ""
    message = error.message
    if "Retrieval is disabled" in message:
        return (
            f"the schema{place} refers to another document ({message.split('cannot fetch ')[-1]}); "
            "nothing is fetched: put the definition into $defs and refer to '#/$defs/…'"
        )
    return f"not a valid JSON Schema{place}: {message}"


@lru_cache(maxsize=1024)
def _compile_text(text: bytes) -> Draft202012Validator:
    return compile_schema(msgspec.json.decode(text))


def compile_cached(schema: Any) -> Draft202012Validator:
    """Compile a schema that may come again; equal schemas share one validator."""
    try:
        text = msgspec.json.encode(schema, order="deterministic")
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return compile_schema(schema)
    return _compile_text(text)


def canonical_schema(schema: Any) -> Any:
    """Return a form in which equal schemas are equal: key order is ignored, `required` is a set."""
    if isinstance(schema, dict):
        canonical = {key: canonical_schema(value) for key, value in schema.items()}
        required = canonical.get("required")
        if isinstance(required, list) and all(isinstance(name, str) for name in required):
            canonical["required"] = sorted(set(required))
        return canonical
    if isinstance(schema, list):
        return [canonical_schema(item) for item in schema]
    return schema


def nullable(schema: Schema) -> Schema:
    """Return a schema that also takes null."""
    kind = schema.get("type")
    if isinstance(kind, str) and not schema.keys() & {"enum", "const"}:
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}
