"""Make arguments that fit a schema, as close as possible to the ones that did not.

Regular expressions may have literals, classes, groups, alternatives and counts, but no look-around and no
back-references; the caller checks the text with a real matcher.
"""

from __future__ import annotations

import re
from contextlib import suppress
from math import ceil, floor, isfinite
from typing import TYPE_CHECKING, Any

from gramercy.gram.json_schema import compile_cached
from gramercy.gram.suggestion import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.gram.json_schema import Schema

# The example is one line for a model to read, and making it must end even if the schema refers to itself.
# These bound the levels of nesting, the number of values made, the items added for minItems, and the unknown
# names examined.
DEEPEST = 12
MOST_PARTS = 500
MOST_ADDED = 100
MOST_UNKNOWN = 50
# How much is kept of the given values, enough to recognise them.
LONGEST_TEXT = 60
MOST_ITEMS = 3
MOST_NAMES = 20
# minLength can require more text than a message can hold; beyond this there is no example.
MOST_PADDING = 10_000


def corrected_arguments(schema: Schema, arguments: Any, fits: Callable[[Any], bool]) -> dict[str, Any] | None:
    """Return arguments that fit, or None if none could be made."""
    for start in (arguments, NOTHING):
        try:
            candidate = _Fixer(schema).fix(schema, start)
            if isinstance(candidate, dict) and fits(candidate):
                return candidate
        except Exception:  # noqa: BLE001, S112 - any schema comes here; without an example the faults still say what is wrong
            continue
    return None


class _Fixer:
    def __init__(self, root: Schema) -> None:
        self.root = root
        self.left = MOST_PARTS

    def fix(self, schema: Any, value: Any, depth: int = 0) -> Any:
        """Return a value close to the given one that fits the schema as far as can be told."""
        self.left -= 1
        if self.left < 0:
            raise ValueError("the example would have too many parts")
        schema = self._merged(self._resolve(schema))
        if depth > DEEPEST or not schema:
            return shortened(value)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return _choice(schema["enum"], value)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self.fix(self._alternative(schema[keyword], value), value, depth + 1)
        if value is NOTHING and (schema.get("examples") or "default" in schema):
            return schema["examples"][0] if schema.get("examples") else schema["default"]
        return self._fix_kind(_kind(schema, value), schema, value, depth)

    def _fix_kind(self, kind: str, schema: dict[str, Any], value: Any, depth: int) -> Any:
        if kind == "object":
            return self._object(schema, value if isinstance(value, dict) else {}, depth)
        if kind == "array":
            return self._array(schema, value, depth)
        return SAMPLERS[kind](schema, value)

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
        for step in reference.removeprefix("#/").split("/") if reference != "#" else ():
            here = here.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(here, dict) else None
        return here

    def _merged(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Merge `allOf` into one schema; if its parts contradict each other, the last one counts."""
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for part in map(self._resolve, schema.get("allOf", ())):
            properties = {**merged.get("properties", {}), **part.get("properties", {})}
            required = [*merged.get("required", ()), *part.get("required", ())]
            merged |= part
            merged |= {"properties": properties} if properties else {}
            merged |= {"required": required} if required else {}
        return merged

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
        others = schema.get("additionalProperties", True)
        if others is not False:
            strange = [name for name in values if name not in properties][:MOST_UNKNOWN]
            fixed |= {name: self.fix(others, values[name], depth + 1) for name in strange}
        return fixed

    def _array(self, schema: dict[str, Any], value: Any, depth: int) -> list[Any]:
        places, others = schema.get("prefixItems", ()), schema.get("items", {})
        given = value if isinstance(value, list) else []
        least = min(schema.get("minItems", 0 if isinstance(value, list) else 1), MOST_ADDED)
        most = min(schema.get("maxItems", MOST_ITEMS), max(MOST_ITEMS, least, len(places)))
        wanted = [*given[:most], *[NOTHING] * (least - len(given))]
        fixed = [
            self.fix(places[index] if index < len(places) else others, item, depth + 1)
            for index, item in enumerate(wanted)
        ]
        if schema.get("uniqueItems"):
            fixed = [item for index, item in enumerate(fixed) if item not in fixed[:index]]
        return fixed


def _kind(schema: dict[str, Any], value: Any) -> str:
    kinds = schema.get("type") or ("object" if "properties" in schema else "any")
    if isinstance(kinds, str):
        return kinds
    fitting = [kind for kind in kinds if _is_of_type(kind, value)]
    return fitting[0] if fitting else next((kind for kind in kinds if kind != "null"), "null")


_PYTHON_TYPES: dict[Any, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "object": dict,
    "array": list,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def _is_of_type(kind: Any, value: Any) -> bool:
    if not isinstance(kind, str) or (isinstance(value, bool) and kind != "boolean"):
        return False
    return kind in _PYTHON_TYPES and isinstance(value, _PYTHON_TYPES[kind])


def _renamed(given: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    """Correct misspelled names, unless the correct name is taken."""
    renamed = {name: value for name, value in given.items() if name in properties}
    for name in [name for name in given if name not in properties][:MOST_UNKNOWN]:
        close = suggest(name, [p for p in properties if p not in renamed])
        renamed[close[0] if close else name] = given[name]
    return renamed


def _choice(options: list[Any], value: Any) -> Any:
    if value in options:
        return value
    words = [option for option in options if isinstance(option, str)]
    close = suggest(value[:LONGEST_TEXT], words) if isinstance(value, str) else []
    return close[0] if close else options[0]


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
    """Shorten a value of unknown schema so that it can be shown."""
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
    return sample + "x" * min(least - len(sample), MOST_PADDING)


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
    """Yield candidate numbers: the given one, the limits and their neighbours."""
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


# Longer patterns are not simple ones, and longer texts (from counts such as {1000}) teach a model nothing.
LONGEST_PATTERN = 200
LONGEST_SAMPLE = 1_000
_ESCAPES = {"d": "0", "D": "a", "w": "a", "W": "-", "s": " ", "S": "a", "t": "\t", "n": "\n", "r": "\r"}
_EDGES = frozenset("bBAZz")
_COUNT = re.compile(r"\{(\d+)(?:,\d*)?\}")
# Tried in this order if a class only says what is not allowed.
_CANDIDATES = "aA0_- .x@"


def text_matching(pattern: str) -> str:
    """Return a text that should match the pattern, or raise ValueError if it is not understood."""
    if len(pattern) > LONGEST_PATTERN:
        raise ValueError("the pattern is too long")
    reader = _Reader(pattern)
    text = reader.alternatives()
    if reader.place != len(pattern):
        raise ValueError("the pattern is not understood")
    return text


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.place = 0

    def peek(self) -> str:
        return self.pattern[self.place : self.place + 1]

    def take(self) -> str:
        taken = self.peek()
        self.place += 1
        return taken

    def alternatives(self) -> str:
        first = self.sequence()
        while self.peek() == "|":
            self.take()
            self.sequence()
        return first

    def sequence(self) -> str:
        text = ""
        while self.peek() not in {"", "|", ")"}:
            part, times = self.part(), self.repeats()
            if len(text) + len(part) * times > LONGEST_SAMPLE:
                raise ValueError("the text would be too long")
            text += part * times
        return text

    def part(self) -> str:
        character = self.take()
        if character == "(":
            return self.group()
        if character == "[":
            return self.choice()
        if character == "\\":
            return self.escape()
        return {"^": "", "$": "", ".": "a"}.get(character, character)

    def group(self) -> str:
        if self.peek() == "?":
            self.take()
            if self.take() != ":":
                raise ValueError("look-around is not understood")
        text = self.alternatives()
        if self.take() != ")":
            raise ValueError("a group is not closed")
        return text

    def escape(self) -> str:
        character = self.take()
        if character in _EDGES:
            return ""
        if character in _ESCAPES:
            return _ESCAPES[character]
        if not character or character.isalnum():
            raise ValueError("the escape is not understood")
        return character

    def choice(self) -> str:
        """Parse a class such as [a-z_]; return its first character, or one that it does not exclude."""
        negated = self.peek() == "^" and bool(self.take())
        ranges: list[tuple[str, str]] = []
        while not ranges or self.peek() != "]":
            low = self.escape() if self.take() == "\\" else self.pattern[self.place - 1 : self.place]
            if not low:
                raise ValueError("a class is not closed")
            high = low
            if self.peek() == "-" and self.pattern[self.place + 1 : self.place + 2] not in {"]", ""}:
                self.take()
                high = self.take()
            ranges.append((low, high))
        self.take()
        if not negated:
            return ranges[0][0]
        allowed = [c for c in _CANDIDATES if not any(low <= c <= high for low, high in ranges)]
        if not allowed:
            raise ValueError("the class excludes too much")
        return allowed[0]

    def repeats(self) -> int:
        """Parse a count and return its minimum."""
        least = 1
        count = _COUNT.match(self.pattern, self.place)
        if count:
            self.place = count.end()
            least = int(count[1])
        elif self.peek() in {"*", "?", "+"}:
            least = 1 if self.take() == "+" else 0
        else:
            return least
        if self.peek() == "?":
            self.take()
        return least
