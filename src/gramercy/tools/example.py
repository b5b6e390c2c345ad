"""Make arguments that fit a schema, staying as near as possible to the ones that did not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.gram.suggestion import suggest
from gramercy.tools.samples import LONGEST_TEXT, MOST_ITEMS, NOTHING, SAMPLERS, shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.gram.json_schema import Schema

DEEPEST = 12
# Schemas can ask for trees that nobody could read, or that would never be finished.
MOST_PARTS = 500
MOST_STRANGERS = 50
MOST_ADDED = 100


def corrected_arguments(schema: Schema, arguments: Any, fits: Callable[[Any], bool]) -> dict[str, Any] | None:
    """Return arguments that fit, or None when none could be made."""
    for start in (arguments, NOTHING):
        try:
            candidate = _Fixer(schema).fix(schema, start)
            if isinstance(candidate, dict) and fits(candidate):
                return candidate
        except Exception:  # noqa: BLE001, S112 - a stranger's schema; an example is a courtesy, its lack no failure
            continue
    return None


class _TooManyPartsError(Exception):
    pass


class _Fixer:
    def __init__(self, root: Schema) -> None:
        self.root = root
        self.left = MOST_PARTS

    def fix(self, schema: Any, value: Any, depth: int = 0) -> Any:
        """Return a value near the given one that fits the schema as far as can be told."""
        self.left -= 1
        if self.left < 0:
            raise _TooManyPartsError
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
        """Read `allOf` as one schema; where its parts contradict each other, the last one counts."""
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
            strange = [name for name in values if name not in properties][:MOST_STRANGERS]
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
    """Give misspelled names the spelling they were meant to have, unless that one is taken."""
    renamed = {name: value for name, value in given.items() if name in properties}
    for name in [name for name in given if name not in properties][:MOST_STRANGERS]:
        close = suggest(name, [p for p in properties if p not in renamed])
        renamed[close[0] if close else name] = given[name]
    return renamed


def _choice(options: list[Any], value: Any) -> Any:
    if value in options:
        return value
    words = [option for option in options if isinstance(option, str)]
    close = suggest(value[:LONGEST_TEXT], words) if isinstance(value, str) else []
    return close[0] if close else options[0]
