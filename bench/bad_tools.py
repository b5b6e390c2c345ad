"""The tools that the bad calls are aimed at, as JSON Schemas, and one good call of each."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

# What every handler answers. Reading it where an error text was due means that the bad call was carried out.
RAN = "the handler ran"

TEXT: Schema = {"type": "string"}
UNITS = ("celsius", "fahrenheit", "kelvin")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _object(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


SCHEMAS: dict[str, Schema] = {
    "get_forecast": _object(
        ["city", "days"],
        city={"type": "string", "minLength": 1},
        days={"type": "integer", "minimum": 1, "maximum": 14},
        unit={"type": "string", "enum": list(UNITS)},
        detailed={"type": "boolean"},
    ),
    "book_table": _object(
        ["restaurant", "guests", "when", "contact"],
        restaurant=TEXT,
        guests={"type": "integer", "minimum": 1, "maximum": 20},
        when={"type": "string", "format": "date-time"},
        contact=_object(
            ["name", "email"],
            name=TEXT,
            email={"type": "string", "format": "email"},
            phone={"type": "string", "pattern": "^\\+[0-9]{6,15}$"},
        ),
        dishes={
            "type": "array",
            "maxItems": 3,
            "items": _object(["name", "quantity"], name=TEXT, quantity={"type": "integer", "minimum": 1}),
        },
    ),
    "transfer_money": _object(
        ["from_account", "amount", "currency"],
        from_account={"type": "string", "pattern": "^[A-Z]{2}[0-9]{8}$"},
        amount={"type": "number", "exclusiveMinimum": 0, "maximum": 10000},
        currency={"type": "string", "enum": ["EUR", "USD", "GBP"]},
        memo={"type": "string", "maxLength": 20},
    ),
    "search_notes": _object(
        ["query"],
        query=TEXT,
        limit={"type": "integer", "minimum": 1, "maximum": 50},
        filters=_object(
            [],
            author=TEXT,
            since={"type": "string", "format": "date"},
            labels={"type": "array", "items": TEXT},
            archived={"type": "boolean"},
        ),
    ),
    "set_alarm": _object(
        ["label", "repeat"],
        label=TEXT,
        repeat={"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(WEEKDAYS)}},
        volume={"type": "number", "minimum": 0, "maximum": 1},
    ),
}

GOOD_CALLS: dict[str, dict[str, Any]] = {
    "get_forecast": {"city": "Lyon", "days": 3, "unit": "celsius", "detailed": True},
    "book_table": {
        "restaurant": "Le Bec",
        "guests": 4,
        "when": "2026-11-20T19:30:00Z",
        "contact": {"name": "Ada", "email": "ada@example.org", "phone": "+33123456"},
        "dishes": [{"name": "soup", "quantity": 2}],
    },
    "transfer_money": {"from_account": "FR12345678", "amount": 12.5, "currency": "EUR", "memo": "rent"},
    "search_notes": {
        "query": "tax",
        "limit": 10,
        "filters": {"author": "ada", "since": "2026-01-31", "labels": ["home"], "archived": False},
    },
    "set_alarm": {"label": "work", "repeat": ["monday", "friday"], "volume": 0.5},
}

DESCRIPTIONS = {
    "get_forecast": "Tell the weather of the coming days.",
    "book_table": "Book a table in a restaurant.",
    "transfer_money": "Send money from an account.",
    "search_notes": "Search the notes.",
    "set_alarm": "Set an alarm.",
}
