"""Texts of the journal: values written so that equal ones have equal texts, and what is shown of them.

What is shown of a call outside of the journal goes through `without_secrets`.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

_encode_sorted = msgspec.json.Encoder(order="sorted").encode
# What is looked at of a text that is shown without its secrets, so that megabytes of code cost nothing.
LONGEST_SEARCHED = 4_000
SECRET_NAME = r"(?:passw|passphrase|secret|token|credential|(?:api|private)[-_ ]?key|authori[sz]ation)"  # noqa: S105 - words
# Compiled when first used. The value of a JSON member, or of an assignment in code, whose name sounds like a
# secret; tokens that are known by their form; what follows Bearer; the password in an address.
_SECRETS = (
    rf'("[^"]{{0,60}}{SECRET_NAME}[^"]{{0,60}}"\s*:\s*)("(?:[^"\\]|\\.)*"?|[^\s",{{}}\[\]]+)',
    rf"({SECRET_NAME}[\w-]{{0,40}}\W{{0,2}}\s*(?:[:=]{{1,2}}\s*|\s)\\?[\"'])([^\"'\\]+)",
    r"()(\b(?:sk-[\w-]{16,}|gh[a-z]_\w{20,}|AKIA[0-9A-Z]{16}|xox[a-z]-[\w-]{10,}|eyJ[\w-]{8,}\.[\w.-]{8,}))",
    r"(bearer\s+)([\w.~+/-]{8,}=*)",
    r"(://[^/\s:@\"']{0,80}:)([^/\s@\"']{1,200}(?=@))",
)


def canonical_text(value: Any) -> str:
    """Write JSON values so that equal values have equal texts."""
    try:
        return _encode_sorted(value).decode()
    except (OverflowError, UnicodeError):
        # It cannot write an integer of more than 64 bits, nor half of a surrogate pair.
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def without_secrets(text: str, longest: int) -> str:
    """Return the beginning of a text, with dots for what looks like a secret, on one line."""
    shown = " ".join(masked(text[:LONGEST_SEARCHED]).split())
    return shown if len(shown) <= longest and len(text) <= LONGEST_SEARCHED else f"{shown[:longest]}…"


def masked(text: str) -> str:
    """Return a text with dots for what looks like a secret."""
    for pattern in _SECRETS:
        text = re.sub(pattern, _dotted, text, flags=re.IGNORECASE)
    return text


def _dotted(found: re.Match[str]) -> str:
    return f'{found[1]}"…"' if found[2].startswith('"') else f"{found[1]}…"
