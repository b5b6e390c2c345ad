"""Texts of the journal: canonical encodings of values, and the texts that are shown.

Every text about a call that is shown outside of the journal goes through `without_secrets`.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gramercy.journal.forms import Runs, compiled, places, secret_at

_encode_sorted = msgspec.json.Encoder(order="sorted").encode
# How much of a shown text is searched for secrets, so that megabytes of code cost nothing.
LONGEST_SEARCHED = 4_000
DOTS = "…"
# Replaces the rest of a text with more places that look like secrets than are checked.
CUT = "… (the rest, {:,} characters, is not kept: too many places look like secrets)"


def canonical_text(value: Any) -> str:
    """Encode JSON values so that equal values have equal texts."""
    try:
        return _encode_sorted(value).decode()
    except (OverflowError, UnicodeError):
        # msgspec cannot encode an integer of more than 64 bits, nor half of a surrogate pair.
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def without_secrets(text: str, longest: int) -> str:
    """Return the beginning of a text, with dots for what looks like a secret, on one line."""
    shown = " ".join(masked(text[:LONGEST_SEARCHED]).split())
    return shown if len(shown) <= longest and len(text) <= LONGEST_SEARCHED else f"{shown[:longest]}…"


def masked(text: str) -> str:
    """Return a text with dots for what looks like a secret."""
    # The lower case of this one letter has two characters, which would shift all later places.
    found, last = places(text, text.replace("\u0130", "I").lower())
    if not found:
        return text
    forms = compiled()
    parts, done = [], 0
    runs: Runs = {}
    for place, kind in found:
        secret = secret_at(text, place, forms[kind], runs) if place >= done else None
        if secret is not None:
            start, end = secret
            parts += [text[done:start], f'"{DOTS}"' if text.startswith('"', start) else DOTS]
            done = end
    rest = text[done:last] if last == len(text) else text[done:last] + CUT.format(len(text) - max(done, last))
    return "".join([*parts, rest])
