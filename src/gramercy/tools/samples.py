"""Make text, numbers and truth values that fit a schema, near the ones that did not."""

from __future__ import annotations

from contextlib import suppress
from math import ceil, floor, isfinite
from typing import TYPE_CHECKING, Any

from gramercy.gram.json_schema import compile_cached
from gramercy.tools.matching import text_matching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST_TEXT = 60
MOST_ITEMS = 3
MOST_NAMES = 20


class _Nothing:
    """The absence of a value, where None would be JSON's null."""


NOTHING = _Nothing()

_BY_FORMAT = {
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


def shortened(value: Any, depth: int = 2) -> Any:
    """Return a value that nothing is known about, small enough to be shown."""
    if value is NOTHING:
        return "…"
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return value[: LONGEST_TEXT - 1] + "…"
    if isinstance(value, list):
        return [shortened(item, depth - 1) for item in value[:MOST_ITEMS]] if depth else []
    if isinstance(value, dict):
        few = list(value.items())[:MOST_NAMES] if depth else ()
        return {name: shortened(item, depth - 1) for name, item in few}
    return value


def _any(schema: dict[str, Any], value: Any) -> Any:
    del schema
    return shortened(value)


def _null(schema: dict[str, Any], value: Any) -> None:
    del schema, value


def _text(schema: dict[str, Any], value: Any) -> str:
    sample: str = _BY_FORMAT.get(schema.get("format", ""), "…")
    if "format" not in schema and isinstance(value, str | int | float) and not isinstance(value, bool):
        sample = str(value)
    if "pattern" in schema and not compile_cached({"pattern": schema["pattern"]}).is_valid(sample):
        return text_matching(schema["pattern"])
    least: int = schema.get("minLength", 0)
    most: int = schema.get("maxLength", max(LONGEST_TEXT, least))
    if len(sample) > most:
        sample = sample[: most - 1] + "…" if most > 1 else sample[:most]
    return sample + "x" * min(least - len(sample), 10_000)


def _number(schema: dict[str, Any], value: Any) -> int | float:
    for candidate in _numbers_near(schema, value):
        if _is_allowed(schema, candidate):
            return candidate
    raise ValueError("no number near it fits")


def _integer(schema: dict[str, Any], value: Any) -> int:
    for candidate in _numbers_near(schema, value):
        for whole in (floor(candidate), ceil(candidate)):
            if _is_allowed(schema, whole):
                return whole
    raise ValueError("no whole number near it fits")


def _numbers_near(schema: dict[str, Any], value: Any) -> Iterator[int | float]:
    """Yield numbers that may do: the given one, the limits and what lies beside them."""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    limits = [limit for limit in (low, high) if limit is not None]
    beside = [limit + by for limit in limits for by in (1, -1)]
    middle = [sum(limits) / 2] if len(limits) > 1 else []
    step = schema.get("multipleOf")
    given = _as_numbers(value)
    near = sorted(limits, key=lambda limit: abs(limit - given[0])) if given else limits
    for candidate in (*given, *near, *beside, *middle, 1):
        if not step:
            yield candidate
        else:
            yield from (floor(candidate / step) * step, ceil(candidate / step) * step)


def _is_allowed(schema: dict[str, Any], number: float) -> bool:
    return (
        schema.get("minimum", number) <= number <= schema.get("maximum", number)
        and ("exclusiveMinimum" not in schema or number > schema["exclusiveMinimum"])
        and ("exclusiveMaximum" not in schema or number < schema["exclusiveMaximum"])
    )


def _as_numbers(value: Any) -> list[int | float]:
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float):
        return [value]
    if isinstance(value, str) and len(value) <= LONGEST_TEXT:
        for read in (int, float):
            with suppress(ValueError):
                number = read(value)
                return [number] if isfinite(number) else []
    return []


def _boolean(schema: dict[str, Any], value: Any) -> bool:
    del schema
    return value if isinstance(value, bool) else str(value)[:10].lower() not in {"false", "no", "0", "off"}


SAMPLERS: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "null": _null,
    "any": _any,
}
