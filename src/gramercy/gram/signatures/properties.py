"""Read the properties of a parameter: gram values become JSON, and each is refused where it makes no sense.

Both places where properties stand are served: the record of a node, and the map of one field in `fields`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from gramercy.errors import TypeSignatureError
from gramercy.gram.json_text import read_json
from gramercy.gram.signatures.parameters import CONSTRAINTS
from gramercy.gram.suggestion import suggest
from gramercy.gram.syntax.tree import Measurement, Property, Range, Record, Symbol, Tagged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.gram.syntax.tree import Value

KNOWN: Final = (*CONSTRAINTS, "range", "default", "optional", "fields", "elementType", "schema")
_NUMERIC: Final = frozenset({"integer", "number"})
_APPLIES_TO: Final = {
    "minimum": _NUMERIC,
    "maximum": _NUMERIC,
    "range": _NUMERIC,
    "minLength": frozenset({"string"}),
    "maxLength": frozenset({"string"}),
    "pattern": frozenset({"string"}),
}
_PAIRS: Final = (("minimum", "maximum"), ("minLength", "maxLength"))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands, so that errors can point at it."""

    source: str
    offset: int

    def fault(self, reason: str, hint: str | None = None) -> TypeSignatureError:
        """Make the error for this place."""
        return TypeSignatureError(reason, self.source, max(0, self.offset), hint=hint)


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of one parameter, under the parameter's name for messages."""

    values: Mapping[str, Value]
    owner: str
    place: Place

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def place_of(self, key: str) -> Place:
        """Return where the value of a key stands; inside a map only the map's own place is known."""
        found = self._property(key)
        return self.place if found is None else Place(self.place.source, found.value_span[0])

    def span_of(self, key: str) -> tuple[int, int]:
        """Return the span of a value, or that of the owner."""
        found = self._property(key)
        return (self.place.offset, self.place.offset) if found is None else found.value_span

    def fault(self, key: str, reason: str, hint: str | None = None) -> TypeSignatureError:
        """Make the error for the value of a key."""
        return self.place_of(key).fault(f"{key} of {self.owner!r} {reason}", hint)

    def json(self, key: str) -> Any:
        """Return a value as JSON."""
        try:
            return to_json(self.values[key])
        except ValueError as error:
            raise self.fault(key, f"cannot be used: {error}") from None

    def text(self, key: str) -> str:
        """Return a value that must be text; a bare word is text too."""
        value = self.values[key]
        if isinstance(value, Symbol):
            return value.name
        if not isinstance(value, str):
            raise self.fault(key, "must be text", f'put it in quotes: {key}:"…"')
        return value

    def flag(self, key: str) -> bool | None:
        """Return true, false, or None when the key is missing."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.fault(key, "must be true or false", f"write {key}:true, without quotes")
        return value

    def refuse_unknown(self, *also: str) -> None:
        """Refuse a key that would silently mean nothing."""
        for key in self.values:
            if key not in KNOWN and key not in also:
                close = suggest(key, (*also, *KNOWN))
                guess = f"did you mean {close[0]}? " if close else ""
                found = self._property(key)
                place = self.place if found is None else Place(self.place.source, found.span[0])
                hint = f"{guess}known are {', '.join((*also, *KNOWN))}"
                raise place.fault(f"unknown property {key!r} of {self.owner!r}", hint)

    def _property(self, key: str) -> Property | None:
        return self.values.property(key) if isinstance(self.values, Record) else None


def to_json(value: Value) -> Any:
    """Return a gram value as JSON; raise ValueError with a reason when it has no counterpart."""
    match value:
        case Symbol(name):
            return None if name == "null" else name
        case Tagged("json", text):
            return read_json(text)
        case Tagged(_, text):
            return text
        case Measurement(number, unit):
            raise ValueError(f"{number}{unit} is a measurement; write the number alone or put it in quotes")
        case Range():
            raise ValueError("a range is not a value; use range: or minimum: and maximum:")
        case list():
            return [to_json(item) for item in value]
        case dict():
            return {key: to_json(item) for key, item in value.items()}
        case _:
            return value


def read_constraints(properties: Properties, json_type: str) -> dict[str, Any]:
    """Return the constraints in the order of the schema, each checked against the kind of value it limits."""
    for key, types in _APPLIES_TO.items():
        if key in properties and json_type not in types:
            hint = f"{key} limits {' or '.join(sorted(types))} values"
            raise properties.fault(key, f"has no meaning for {json_type}", hint)
    found = {key: _constraint(properties, key) for key in CONSTRAINTS if key in properties}
    if "range" in properties:
        found |= _range(properties)
    for low, high in _PAIRS:
        if low in found and high in found and found[low] > found[high]:
            at = "range" if "range" in properties else low
            raise properties.fault(at, f"allows nothing: {found[low]} is greater than {found[high]}")
    return {key: found[key] for key in CONSTRAINTS if key in found}


def _constraint(properties: Properties, key: str) -> Any:
    if key in {"description", "pattern", "format"}:
        return properties.text(key)
    value = properties.json(key)
    if key in {"minimum", "maximum"} and not is_number(value):
        raise properties.fault(key, "must be a number")
    if key in {"minLength", "maxLength"} and not (type(value) is int and value >= 0):
        raise properties.fault(key, "must be a whole number that is not negative")
    if key in {"enum", "examples"} and (not isinstance(value, list) or not value):
        raise properties.fault(key, "must be a list with at least one value", f"write {key}:[…]")
    return value


def _range(properties: Properties) -> dict[str, Any]:
    value = properties.values["range"]
    if "minimum" in properties or "maximum" in properties:
        raise properties.fault("range", "says the same as minimum and maximum", "keep one of the two")
    if not isinstance(value, Range):
        raise properties.fault("range", "must be a range", "write range:1..10, range:1... or range:...10")
    bounds = {"minimum": value.lower, "maximum": value.upper}
    for bound in bounds.values():
        if bound is not None and not is_number(bound):
            raise properties.fault("range", "must have plain numbers as bounds", "leave the unit out")
    return {key: bound for key, bound in bounds.items() if bound is not None}


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite JSON number; booleans are not numbers."""
    return isfinite(value) if isinstance(value, float) else type(value) is int
