"""From a type signature to JSON Schema, as one step; the way back is in `derivation`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.gram.signatures.signature import parse_type_signature

if TYPE_CHECKING:
    from gramercy.gram.json_schema import Schema


def type_signature_to_json_schema(text: str) -> Schema:
    """Return the JSON Schema that a type signature stands for, or raise TypeSignatureError."""
    return parse_type_signature(text).to_schema()
