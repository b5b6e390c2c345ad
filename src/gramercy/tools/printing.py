"""Show JSON values in messages: named by type, cut when long, whatever they are."""

from __future__ import annotations

import json
from typing import Any

LONGEST_SHOWN = 60
_encoder = json.JSONEncoder(ensure_ascii=False)


def describe_value(value: Any) -> str:
    """Name the JSON type of a value and show the value, cut when long."""
    return "null" if value is None else f"{json_type(value)} {shown(value)}"


def shown(value: Any) -> str:
    """Write a value as JSON, cut when long; costs what is shown, and never fails."""
    if isinstance(value, str):
        value = value[: LONGEST_SHOWN + 1]
    elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4 * LONGEST_SHOWN:
        return f"of about {value.bit_length() * 3 // 10} digits"
    text = ""
    try:
        for piece in _encoder.iterencode(value):
            text += piece[: LONGEST_SHOWN + 1]
            if len(text) > LONGEST_SHOWN:
                return text[:LONGEST_SHOWN] + "…"
    except (TypeError, ValueError, RecursionError):
        return f"(a {type(value).__name__} that JSON cannot show)"
    return text


def json_type(value: Any) -> str:
    """Name the JSON type of a Python value."""
    for kinds, name in _JSON_TYPES:
        if isinstance(value, kinds):
            return name
    return f"Python {type(value).__name__}"


# bool before int: Python's True is an int, JSON's true is not.
_JSON_TYPES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"),
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    ((list, tuple), "array"),
    (dict, "object"),
)
