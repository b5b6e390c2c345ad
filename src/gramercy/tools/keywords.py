"""Say in a few words what the keywords of a JSON Schema want."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.tools.printing import LONGEST_SHOWN, shown
from gramercy.tools.values import MOST_FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_PATTERN = 200

_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "const": lambda d: f"exactly {shown(d['expected_value'])}",
    "minimum": lambda d: f"at least {shown(d['limit'])}",
    "maximum": lambda d: f"at most {shown(d['limit'])}",
    "exclusiveMinimum": lambda d: f"more than {shown(d['limit'])}",
    "exclusiveMaximum": lambda d: f"less than {shown(d['limit'])}",
    "multipleOf": lambda d: f"a multiple of {shown(d['multiple_of'])}",
    "minLength": lambda d: f"at least {d['limit']} characters",
    "maxLength": lambda d: f"at most {d['limit']} characters",
    "pattern": lambda d: f"text that matches {_pattern(d)}",
    "format": lambda d: f"text in the format {d['format'][:LONGEST_SHOWN]}",
    "minItems": lambda d: f"at least {d['limit']} items",
    "maxItems": lambda d: f"at most {d['limit']} items",
    "uniqueItems": lambda _: "items that are all different",
    "contains": lambda _: "another number of items of the kind that the schema asks for",
    "unevaluatedItems": lambda _: "fewer items",
    "minProperties": lambda d: f"at least {d['limit']} names",
    "maxProperties": lambda d: f"at most {d['limit']} names",
    "propertyNames": lambda d: f"other names ({_inner(d['error'].kind)})",
    "not": lambda d: f"something that does not fit {shown(d['schema'])}",
    "falseSchema": lambda _: "nothing here",
    "oneOf": lambda _: "a value that fits exactly one alternative (this one fits several)",
    "type": lambda d: " or ".join(d["types"]),
    "enum": lambda d: expected_of({"enum": d["options"]}),
}


def _pattern(detail: dict[str, Any]) -> str:
    # Where matching took too many steps, the validator gives an error instead of the pattern.
    return str(detail.get("pattern", "the schema's pattern within reasonable time"))[:LONGEST_PATTERN]


def _inner(kind: Any) -> str:
    return expected_text(kind.name, kind.as_dict())


def expected_text(keyword: str, detail: dict[str, Any]) -> str:
    """Say what a keyword wanted that was not met."""
    describe = _WORDS.get(keyword)
    return describe(detail) if describe else f"a value that satisfies {keyword}"


def expected_of(schema: Any) -> str:
    """Say what a schema wants."""
    if not isinstance(schema, dict):
        return "a value"
    if "enum" in schema:
        options = schema["enum"]
        more = f" and {len(options) - MOST_FAULTS} more" if len(options) > MOST_FAULTS else ""
        return f"one of {', '.join(map(shown, options[:MOST_FAULTS]))}{more}"
    kind = schema.get("type", "a value")
    text = kind if isinstance(kind, str) else " or ".join(kind)
    about = schema.get("description")
    return f"{text} ({about[:LONGEST_SHOWN]})" if about else text
