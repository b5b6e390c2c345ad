"""Make arguments that fit a schema, staying as near as possible to the ones that did not."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gramercy.gram.suggestion import suggest

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.gram.json_schema import Schema

LONGEST_TEXT = 60
DEEPEST = 12
MOST_ITEMS = 3


class _Nothing:
    """The absence of a value, where None would be JSON's null."""


NOTHING = _Nothing()

_SAMPLES_BY_FORMAT = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "name@example.org",
    "hostname": "example.org",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "uri": "urn:example:one",
    "uri-reference": "example",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "json-pointer": "/a",
    "regex": ".*",
}


def corrected_arguments(schema: Schema, arguments: Any, fits: Callable[[Any], bool]) -> Any | None:
    """Return arguments that fit, or None when none could be made."""
    for start in (arguments, NOTHING):
        with suppress(ValueError, TypeError, RecursionError, OverflowError, ArithmeticError):
            candidate = _Fixer(schema).fix(schema, start)
            if isinstance(candidate, dict) and fits(candidate):
                return candidate
    return None


class _Fixer:
    def __init__(self, root: Schema) -> None:
        self.root = root

    def fix(self, schema: Any, value: Any, depth: int = 0) -> Any:
        """Return a value near the given one that fits the schema as far as can be told."""
        schema = self._resolve(schema)
        if depth > DEEPEST or not schema:
            return _shortened(value)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return _choice(schema["enum"], value)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self.fix(self._alternative(schema[keyword], value), value, depth + 1)
        kind = _kind(schema, value)
        if value is NOTHING:
            given = _given_sample(schema)
            if given is not NOTHING:
                return given
        return self._fix_kind(kind, schema, value, depth)

    def _fix_kind(self, kind: str, schema: dict[str, Any], value: Any, depth: int) -> Any:
        if kind == "object":
            return self._object(schema, value if isinstance(value, dict) else {}, depth)
        if kind == "array":
            return self._array(schema, value if isinstance(value, list) else NOTHING, depth)
        return _SCALARS.get(kind, _any)(schema, value)

    def _resolve(self, schema: Any) -> dict[str, Any]:
        for _ in range(DEEPEST):
            if not isinstance(schema, dict):
                return {}
            reference = schema.get("$ref")
            if not isinstance(reference, str) or not reference.startswith("#"):
                return schema
            schema = self._follow(reference)
        return {}

    def _follow(self, reference: str) -> Any:
        here: Any = self.root
        for step in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
            here = here.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(here, dict) else None
        return here

    def _alternative(self, branches: list[Any], value: Any) -> Any:
        resolved = [self._resolve(branch) for branch in branches]
        same = [b for b in resolved if _is_of_type(b.get("type"), value)]
        return (same or resolved)[0]

    def _object(self, schema: dict[str, Any], given: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        values = _renamed(given, properties)
        fixed = {k: self.fix(properties[k], v, depth + 1) for k, v in values.items() if k in properties}
        for name in schema.get("required", ()):
            if name not in fixed:
                fixed[name] = self.fix(properties.get(name, {}), NOTHING, depth + 1)
        if schema.get("additionalProperties", True) is not False:
            fixed |= {k: _shortened(v) for k, v in values.items() if k not in properties}
        return fixed

    def _array(self, schema: dict[str, Any], value: Any, depth: int) -> list[Any]:
        items = schema.get("items", {})
        given = [] if value is NOTHING else value
        least = min(schema.get("minItems", 0), 100)
        most = min(schema.get("maxItems", MOST_ITEMS), max(MOST_ITEMS, least))
        fixed = [self.fix(items, item, depth + 1) for item in given[:most]]
        if schema.get("uniqueItems"):
            fixed = [item for index, item in enumerate(fixed) if item not in fixed[:index]]
        while len(fixed) < max(least, 1 if value is NOTHING else 0):
            fixed.append(self.fix(items, NOTHING, depth + 1))
        return fixed


def _kind(schema: dict[str, Any], value: Any) -> str:
    kinds = schema.get("type") or ("object" if "properties" in schema else "any")
    if isinstance(kinds, str):
        return kinds
    fitting = [kind for kind in kinds if _is_of_type(kind, value)]
    return fitting[0] if fitting else next((kind for kind in kinds if kind != "null"), "null")


def _is_of_type(kind: Any, value: Any) -> bool:
    python = {"string": str, "boolean": bool, "object": dict, "array": list, "integer": int, "number": (int, float)}
    if kind == "null":
        return value is None
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(kind, str) and kind in python and isinstance(value, python[kind])  # type: ignore[arg-type]


def _given_sample(schema: dict[str, Any]) -> Any:
    if schema.get("examples"):
        return schema["examples"][0]
    return schema.get("default", NOTHING)


def _renamed(given: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    """Give misspelled names the spelling they were meant to have, unless that one is taken."""
    renamed = {name: value for name, value in given.items() if name in properties}
    for name, value in given.items():
        if name not in properties:
            close = suggest(name, [p for p in properties if p not in renamed])
            renamed[close[0] if close else name] = value
    return renamed


def _choice(options: list[Any], value: Any) -> Any:
    if value in options:
        return value
    words = [option for option in options if isinstance(option, str)]
    close = suggest(value, words) if isinstance(value, str) else []
    return close[0] if close else options[0]


def _shortened(value: Any) -> Any:
    if value is NOTHING:
        return "…"
    return value[: LONGEST_TEXT - 1] + "…" if isinstance(value, str) and len(value) > LONGEST_TEXT else value


def _any(schema: dict[str, Any], value: Any) -> Any:
    del schema
    return _shortened(value)


def _null(schema: dict[str, Any], value: Any) -> None:
    del schema, value


def _text(schema: dict[str, Any], value: Any) -> str:
    sample = _SAMPLES_BY_FORMAT.get(schema.get("format", ""), "…")
    if isinstance(value, str) and "format" not in schema:
        sample = value
    elif isinstance(value, int | float) and not isinstance(value, bool) and "format" not in schema:
        sample = str(value)
    least, most = schema.get("minLength", 0), schema.get("maxLength", max(LONGEST_TEXT, schema.get("minLength", 0)))
    if len(sample) > most:
        sample = sample[: most - 1] + "…" if most > 1 else sample[:most]
    return sample + "x" * min(least - len(sample), 10_000)


def _number(schema: dict[str, Any], value: Any) -> int | float:
    number = _as_number(value)
    low = schema.get("minimum", schema.get("exclusiveMinimum", number if number is not None else 1))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    number = low if number is None else max(number, low)
    if "exclusiveMinimum" in schema and number <= schema["exclusiveMinimum"]:
        number = schema["exclusiveMinimum"] + 1
    if high is not None and number > high:
        number = high
    if "exclusiveMaximum" in schema and number >= schema["exclusiveMaximum"]:
        number = schema["exclusiveMaximum"] - 1
    step = schema.get("multipleOf")
    return number - number % step if step else number


def _integer(schema: dict[str, Any], value: Any) -> int:
    return int(_number(schema, value))


def _as_number(value: Any) -> int | float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) <= LONGEST_TEXT:
        with suppress(ValueError):
            return int(value)
        with suppress(ValueError):
            return float(value)
    return None


def _boolean(schema: dict[str, Any], value: Any) -> bool:
    del schema
    return value if isinstance(value, bool) else str(value).lower() not in {"false", "no", "0", "off"}


_SCALARS: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "null": _null,
    "any": _any,
}
