"""Argument validation alone: jsonschema-rs as gramercy uses it beside msgspec, pydantic and jsonschema."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

from bench.measure import Contender, repeat_call, take_turns
from bench.report import Section, Target, at_most, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort, Reading

SMALL: dict[str, Any] = {"city": "Lyon", "days": 3}
LARGE: dict[str, Any] = {
    "restaurant": "Le Bec",
    "guests": 4,
    "outside": True,
    "budget": 120.5,
    "contact": {"name": "Ada", "email": "ada@example.org", "phone": "+33123456", "city": "Lyon"},
    "dishes": [{"name": "soup", "quantity": 2}, {"name": "fish", "quantity": 1}],
    "address": {"street": "Rue 1", "zip": "69001", "floor": 3},
}
TEXT, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SMALL_SCHEMA = _object(city=TEXT, days=INTEGER)
LARGE_SCHEMA = _object(
    restaurant=TEXT,
    guests=INTEGER,
    outside={"type": "boolean"},
    budget=NUMBER,
    contact=_object(name=TEXT, email=TEXT, phone=TEXT, city=TEXT),
    dishes={"type": "array", "items": _object(name=TEXT, quantity=INTEGER)},
    address=_object(street=TEXT, zip=TEXT, floor=INTEGER),
)


def measure(effort: Effort) -> Section:
    """Validate the same two sets of arguments with each library that is here."""
    makers = {"gramercy checker": _ours, "jsonschema-rs": _jsonschema_rs, "msgspec": _msgspec}
    makers |= {"pydantic": _pydantic} if find_spec("pydantic") else {}
    makers |= {"jsonschema": _jsonschema} if find_spec("jsonschema") else {}
    contenders = []
    for name, make in makers.items():
        small, large = make()
        contenders += [
            Contender(f"{name} small", repeat_call(small)),
            Contender(f"{name} large", repeat_call(large)),
        ]
    readings = take_turns(contenders, effort)
    rows = [(n, *(show(readings[f"{n} {size}"].median * 1e6) for size in ("small", "large"))) for n in makers]
    return Section(
        name="validation",
        title="Validating arguments alone",
        intro="Valid arguments, schema compiled beforehand, µs of CPU time.",
        columns=("library", "2 fields", "15 nested fields"),
        rows=tuple(rows),
        targets=(_beside_pydantic(readings),),
        notes=(
            (
                "gramercy's checker also looks for values that are not JSON (NaN, cycles, foreign objects), "
                "fills in defaults and copies; msgspec and pydantic convert into their own objects; the "
                "others only decide."
            ),
            (
                'pydantic reads leniently here ("3" is taken for 3), gramercy refuses it; '
                "the ratio is the median of the rounds' own ratios."
            ),
        ),
    )


def _beside_pydantic(readings: dict[str, Reading]) -> Target:
    what, theirs = "15 nested fields, beside pydantic", readings.get("pydantic large")
    if theirs is None:
        return Target(f"{what}: at most 1x", "pydantic is not installed", met=None)
    return at_most(what, readings["gramercy checker large"].ratio_to(theirs), 1, "x")


def _ours() -> tuple[Callable[[], Any], Callable[[], Any]]:
    from gramercy import create_tool

    small = create_tool("small", "Small.", SMALL_SCHEMA, lambda arguments: arguments).checker.check
    large = create_tool("large", "Large.", LARGE_SCHEMA, lambda arguments: arguments).checker.check
    return (lambda: small(SMALL)), (lambda: large(LARGE))


def _jsonschema_rs() -> tuple[Callable[[], Any], Callable[[], Any]]:
    import jsonschema_rs

    small = jsonschema_rs.Draft202012Validator(SMALL_SCHEMA).is_valid
    large = jsonschema_rs.Draft202012Validator(LARGE_SCHEMA).is_valid
    assert small(SMALL)
    assert large(LARGE)
    return (lambda: small(SMALL)), (lambda: large(LARGE))


def _jsonschema() -> tuple[Callable[[], Any], Callable[[], Any]]:
    import jsonschema

    small = jsonschema.Draft202012Validator(SMALL_SCHEMA).is_valid
    large = jsonschema.Draft202012Validator(LARGE_SCHEMA).is_valid
    return (lambda: small(SMALL)), (lambda: large(LARGE))


def _msgspec() -> tuple[Callable[[], Any], Callable[[], Any]]:
    import msgspec

    def struct(title: str, /, **fields: Any) -> Any:
        return msgspec.defstruct(title, list(fields.items()), forbid_unknown_fields=True)

    contact = struct("Contact", name=str, email=str, phone=str, city=str)
    dish = struct("Dish", name=str, quantity=int)
    address = struct("Address", street=str, zip=str, floor=int)
    kinds = {"restaurant": str, "guests": int, "outside": bool, "budget": float}
    large = struct("Large", **kinds, contact=contact, dishes=list[dish], address=address)
    small = struct("Small", city=str, days=int)
    convert = msgspec.convert
    return (lambda: convert(SMALL, small)), (lambda: convert(LARGE, large))


def _pydantic() -> tuple[Callable[[], Any], Callable[[], Any]]:
    from pydantic import ConfigDict, Field, create_model

    def model(title: str, /, **fields: Any) -> Any:
        typed = {key: (Annotated[kind, Field()], ...) for key, kind in fields.items()}
        return create_model(title, __config__=ConfigDict(extra="forbid"), **typed)

    contact = model("Contact", name=str, email=str, phone=str, city=str)
    dish = model("Dish", name=str, quantity=int)
    address = model("Address", street=str, zip=str, floor=int)
    kinds = {"restaurant": str, "guests": int, "outside": bool, "budget": float}
    large = model("Large", **kinds, contact=contact, dishes=list[dish], address=address)
    small = model("Small", city=str, days=int)
    return (lambda: small.model_validate(SMALL)), (lambda: large.model_validate(LARGE))
