"""Bad calls as data: what is called, with what, and which faults a good answer must name.

A fault is a path and the JSON Schema keyword that it breaks. What was expected there is read from the
schema, what was received from the call: nothing here is written with anybody's wording in mind.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from typing import Any

from bench.bad_tools import GOOD_CALLS

Path = tuple[str | int, ...]

# Keywords that JSON Schema has no word for.
UNKNOWN_TOOL = "unknown tool"
NOT_JSON = "not JSON"
NOT_FINITE = "not finite"


@dataclass(frozen=True, slots=True)
class BadPlace:
    """One fault: where, the keyword that is broken, and the name that was meant if it was a slip."""

    path: Path
    keyword: str
    meant: str | None = None


@dataclass(frozen=True, slots=True)
class BadCall:
    """A call that must not run, under a title that says what is wrong with it."""

    title: str
    tool: str
    arguments: Any
    faults: tuple[BadPlace, ...]

    @property
    def is_malformed(self) -> bool:
        """Whether the arguments are no JSON object at all."""
        return not isinstance(self.arguments, dict)


def _bad(title: str, tool: str, arguments: Any, *faults: tuple[str, str] | tuple[str, str, str]) -> BadCall:
    return BadCall(title, tool, arguments, tuple(_place(*fault) for fault in faults))


def _place(path: str, keyword: str, meant: str | None = None) -> BadPlace:
    steps = tuple(int(step) if step.isdigit() else step for step in path.split(".")) if path else ()
    return BadPlace(steps, keyword, meant)


def _but(tool: str, **changes: Any) -> dict[str, Any]:
    """Return the good call with some arguments replaced."""
    return {**GOOD_CALLS[tool], **changes}


def _contact(**changes: Any) -> dict[str, Any]:
    return _but("book_table", contact={"name": "Ada", "email": "ada@example.org"} | changes)


def _dishes(*dishes: Any) -> dict[str, Any]:
    return _but("book_table", dishes=list(dishes))


F, B, T, S, A = "get_forecast", "book_table", "transfer_money", "search_notes", "set_alarm"
LYON = {"city": "Lyon", "days": 3}
SOUP = {"name": "soup", "quantity": 1}

BAD_CALLS: tuple[BadCall, ...] = (
    _bad("unknown tool", "launch_rocket", {}, ("launch_rocket", UNKNOWN_TOOL)),
    _bad("misspelled tool", "get_forcast", LYON, ("get_forcast", UNKNOWN_TOOL, F)),
    _bad("tool in camelCase", "getForecast", LYON, ("getForecast", UNKNOWN_TOOL, F)),
    _bad("tool with a plural too much", "search_note", {"query": "tax"}, ("search_note", UNKNOWN_TOOL, S)),
    _bad("required argument missing", F, {"city": "Lyon"}, ("days", "required")),
    _bad("everything missing", F, {}, ("city", "required"), ("days", "required")),
    _bad(
        "several missing",
        B,
        {"restaurant": "Le Bec"},
        *((name, "required") for name in ("guests", "when", "contact")),
    ),
    _bad(
        "misspelled argument",
        F,
        {"cty": "Lyon", "days": 3},
        ("cty", "additionalProperties", "city"),
        ("city", "required"),
    ),
    _bad(
        "argument in camelCase",
        T,
        {"fromAccount": "FR12345678", "amount": 5, "currency": "EUR"},
        ("fromAccount", "additionalProperties", "from_account"),
        ("from_account", "required"),
    ),
    _bad(
        "misspelled optional argument",
        F,
        LYON | {"units": "kelvin"},
        ("units", "additionalProperties", "unit"),
    ),
    _bad("argument that does not exist", F, LYON | {"banana": 1}, ("banana", "additionalProperties")),
    _bad(
        "arguments wrapped once too often",
        F,
        {"arguments": LYON},
        ("arguments", "additionalProperties"),
        ("city", "required"),
        ("days", "required"),
    ),
    _bad("word for integer", F, _but(F, days="three"), ("days", "type")),
    _bad("digits in a string for integer", F, _but(F, days="3"), ("days", "type")),
    _bad("3.5 for integer", F, _but(F, days=3.5), ("days", "type")),
    _bad("boolean for integer", F, _but(F, days=True), ("days", "type")),
    _bad("boolean for number", T, _but(T, amount=True), ("amount", "type")),
    _bad("integer for string", F, _but(F, city=42), ("city", "type")),
    _bad("null for string", F, _but(F, city=None), ("city", "type")),
    _bad("array for string", F, _but(F, city=["Lyon"]), ("city", "type")),
    _bad("object for string", F, _but(F, city={"name": "Lyon"}), ("city", "type")),
    _bad("word for boolean", F, _but(F, detailed="yes"), ("detailed", "type")),
    _bad("1 for boolean", F, _but(F, detailed=1), ("detailed", "type")),
    _bad("object given as a string", B, _but(B, contact="Ada"), ("contact", "type")),
    _bad("array given as a string", S, _but(S, filters={"labels": "home"}), ("filters.labels", "type")),
    _bad("misspelled option", F, _but(F, unit="celcius"), ("unit", "enum", "celsius")),
    _bad("option in other case", T, _but(T, currency="eur"), ("currency", "enum", "EUR")),
    _bad("option that does not exist", F, _but(F, unit="purple"), ("unit", "enum")),
    _bad("empty string", F, _but(F, city=""), ("city", "minLength")),
    _bad("string too long", T, _but(T, memo="rent for November and December"), ("memo", "maxLength")),
    _bad("below the minimum", F, _but(F, days=0), ("days", "minimum")),
    _bad("above the maximum", F, _but(F, days=99), ("days", "maximum")),
    _bad("on an exclusive minimum", T, _but(T, amount=0), ("amount", "exclusiveMinimum")),
    _bad("number above the maximum", A, _but(A, volume=11.5), ("volume", "maximum")),
    _bad("pattern not matched", T, _but(T, from_account="12"), ("from_account", "pattern")),
    _bad("nested pattern not matched", B, _contact(phone="0033"), ("contact.phone", "pattern")),
    _bad("nested argument missing", B, _but(B, contact={"name": "Ada"}), ("contact.email", "required")),
    _bad("nested wrong type", B, _contact(name=7), ("contact.name", "type")),
    _bad(
        "nested misspelled argument",
        B,
        _but(B, contact={"name": "Ada", "emial": "ada@example.org"}),
        ("contact.emial", "additionalProperties", "email"),
        ("contact.email", "required"),
    ),
    _bad("nested argument too much", B, _contact(fax="1"), ("contact.fax", "additionalProperties")),
    _bad(
        "item with a wrong type",
        B,
        _dishes(SOUP, {"name": "fish", "quantity": "two"}),
        ("dishes.1.quantity", "type"),
    ),
    _bad(
        "item that is empty", B, _dishes({}), ("dishes.0.name", "required"), ("dishes.0.quantity", "required")
    ),
    _bad(
        "item below the minimum", B, _dishes(SOUP, SOUP | {"quantity": 0}), ("dishes.1.quantity", "minimum")
    ),
    _bad("item that is no option", A, _but(A, repeat=["monday", "tuesdy"]), ("repeat.1", "enum", "tuesday")),
    _bad("too many items", B, _dishes(SOUP, SOUP, SOUP, SOUP), ("dishes", "maxItems")),
    _bad("too few items", A, _but(A, repeat=[]), ("repeat", "minItems")),
    _bad("no date-time", B, _but(B, when="tomorrow at eight"), ("when", "format")),
    _bad("impossible date", S, _but(S, filters={"since": "2026-13-45"}), ("filters.since", "format")),
    _bad("no e-mail address", B, _contact(email="ada"), ("contact.email", "format")),
    _bad(
        "three faults at once",
        F,
        {"days": "x", "unit": "kelvn"},
        ("city", "required"),
        ("days", "type"),
        ("unit", "enum", "kelvin"),
    ),
    _bad(
        "six faults at two depths",
        B,
        {
            "restaurant": 5,
            "guests": 0,
            "contact": {"name": None},
            "dishes": [{"name": "soup", "quantity": 1.5}],
        },
        ("restaurant", "type"),
        ("guests", "minimum"),
        ("when", "required"),
        ("contact.name", "type"),
        ("contact.email", "required"),
        ("dishes.0.quantity", "type"),
    ),
    _bad("JSON cut off", F, '{"city": "Lyon", "days": 3', ("", NOT_JSON)),
    _bad("JSON with single quotes", F, "{'city': 'Lyon', 'days': 3}", ("", NOT_JSON)),
    _bad("array instead of an object", F, '["Lyon", 3]', ("", "type")),
    _bad("NaN for number", A, _but(A, volume=nan), ("volume", NOT_FINITE)),
    _bad("Infinity for number", T, _but(T, amount=inf), ("amount", NOT_FINITE)),
)
