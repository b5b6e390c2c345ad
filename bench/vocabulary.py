"""Which words tell what was expected and what was received. Generous to every wording, written for none."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from bench.bad_calls import NOT_FINITE, NOT_JSON, UNKNOWN_TOOL
from bench.bad_tools import SCHEMAS

if TYPE_CHECKING:
    from bench.bad_calls import BadCall, BadPlace, Path

SHOWN = 12  # so much of a long value must be shown; the rest may be cut

TYPE_WORDS = {
    "string": r"string|\bstr\b|\btext\b",
    "integer": r"integer|\bint\b|whole number",
    "number": r"number|float|decimal",
    "boolean": r"boolean|\bbool\b|true or false",
    "object": r"object|dictionary|\bdict\b|mapping",
    "array": r"array|\blist\b",
    "null": r"\bnull\b|\bNone\b|NoneType|nothing",
}
FORMAT_WORDS = {
    "date-time": r"date-time|datetime|date and time|RFC ?3339|ISO ?8601",
    "date": r"\bdate\b|RFC ?3339|ISO ?8601",
    "email": r"e-?mail",
}
KEYWORD_WORDS = {
    "required": r"required|missing",
    "additionalProperties": (
        r"unexpected|unknown|additional|\bextra\b|no such|not (?:permitted|allowed|expected)|forbidden"
    ),
    UNKNOWN_TOOL: r"unknown|not found|no tool|no such|does not exist",
    NOT_JSON: r"JSON",
    NOT_FINITE: r"finite|number|\bJSON\b|(?:less|greater) than|m(?:in|ax)imum|at (?:least|most)",
}
PYTHON_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
}
LENGTHS = {"minLength", "maxLength", "minItems", "maxItems"}


def expected_words(call: BadCall, fault: BadPlace) -> str:
    """Return a regular expression for what a text must say was expected."""
    if fault.keyword in KEYWORD_WORDS:
        return KEYWORD_WORDS[fault.keyword]
    schema = schema_at(call.tool, fault.path)
    value = schema[fault.keyword]
    if fault.keyword == "type":
        return TYPE_WORDS[value]
    if fault.keyword == "format":
        return FORMAT_WORDS[value]
    if fault.keyword == "enum":
        return "|".join(re.escape(option) for option in value)
    if fault.keyword == "pattern":
        return "|".join(
            re.escape(spelling) for spelling in (value, json.dumps(value)[1:-1], repr(value)[1:-1])
        )
    bound = rf"(?<![\w.]){re.escape(str(value))}(?!\w|\.\d)"
    return rf"{bound}|empty" if (fault.keyword, value) in {("minLength", 1), ("minItems", 1)} else bound


def received_words(call: BadCall, fault: BadPlace) -> str | None:
    """Return a regular expression for what a text must say was received; None where nothing was."""
    if fault.keyword in {"required", "additionalProperties", UNKNOWN_TOOL, NOT_JSON}:
        return None
    if call.is_malformed:
        return TYPE_WORDS["array"] + r"|\["
    value = value_at(call.arguments, fault.path)
    words = [_spelled(value)]
    if fault.keyword == "type":
        words.append(TYPE_WORDS["null" if value is None else PYTHON_TYPES[type(value)]])
    if fault.keyword in LENGTHS:
        words.append(rf"\b{len(value)}\b" if value else r"empty|\b0\b")
    return "|".join(words)


def _spelled(value: Any) -> str:
    """Accept a value as JSON, as Python or bare; a long one may be cut."""
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - only NaN differs from itself
        return r"\bnan\b"
    if value == float("inf"):
        return r"\binf(?:inity)?\b"
    forms = {json.dumps(value), json.dumps(value, separators=(",", ":")), repr(value)} | (
        {value} if isinstance(value, str) and value else set()
    )
    return "|".join(_whole_or_cut(form) for form in sorted(forms))


def _whole_or_cut(form: str) -> str:
    if len(form) > 2 * SHOWN:
        return rf"(?<!\w){re.escape(form[:SHOWN])}"
    return rf"(?<!\w){re.escape(form)}" + (r"(?!\w)" if form[-1:].isalnum() else "")


def schema_at(tool: str, path: Path) -> dict[str, Any]:
    """Return the schema of the place."""
    schema: dict[str, Any] = SCHEMAS[tool]
    for step in path:
        schema = schema["items"] if isinstance(step, int) else schema["properties"][step]
    return schema


def value_at(arguments: Any, path: Path) -> Any:
    """Return what the call gave at the place."""
    for step in path:
        arguments = arguments[step]
    return arguments
