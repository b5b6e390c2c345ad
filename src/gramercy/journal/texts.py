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
_SECRET = r"(?:passw|passphrase|secret|token|credential|(?:api|private)[-_ ]?key|authori[sz]ation)"  # noqa: S105 - words
# Compiled when first used. The value of a JSON member, or of an assignment in code, whose name sounds like a
# secret; tokens that are known by their form; what follows Bearer; the password in an address.
_SECRETS = (
    rf'("[^"]{{0,60}}{_SECRET}[^"]{{0,60}}"\s*:\s*)("(?:[^"\\]|\\.)*"?|[^\s",{{}}\[\]]+)',
    rf"({_SECRET}[\w-]{{0,40}}\W{{0,2}}\s*(?:[:=]{{1,2}}\s*|\s)\\?[\"'])([^\"'\\]+)",
    r"()(\b(?:sk-[\w-]{16,}|gh[a-z]_\w{20,}|AKIA[0-9A-Z]{16}|xox[a-z]-[\w-]{10,}|eyJ[\w-]{8,}\.[\w.-]{8,}))",
    r"(bearer\s+)([\w.~+/-]{8,}=*)",
    r"(://[^/\s:@\"']{0,80}:)([^/\s@\"']{1,200}(?=@))",
)
# One of these is in every text in which the patterns find something; to look for them costs microseconds.
_SIGNS = re.compile("pass|secret|token|credential|api|private|authori|sk-|gh|akia|xox|eyj|bearer|://")


def canonical_text(value: Any) -> str:
    """Write JSON values so that equal values have equal texts."""
    try:
        return _encode_sorted(value).decode()
    except (OverflowError, UnicodeError):
        # It cannot write an integer of more than 64 bits, nor half of a surrogate pair.
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def without_secrets(text: str, longest: int) -> str:
    """Return the beginning of a text, with dots for what looks like a secret, on one line."""
    shown = text[:LONGEST_SEARCHED]
    for pattern in _SECRETS:
        shown = re.sub(pattern, _dotted, shown, flags=re.IGNORECASE)
    shown = " ".join(shown.split())
    return shown if len(shown) <= longest and len(text) <= LONGEST_SEARCHED else f"{shown[:longest]}…"


def masked_text(text: str) -> str:
    """Return a JSON text with dots for what looks like a secret, as JSON; mostly the text it was given."""
    if not _SIGNS.search(text.lower()):
        return text
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        # It cannot read half of a surrogate pair.
        value = json.loads(text)
    masked = _masked(value)
    return text if masked == value else canonical_text(masked)


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        for pattern in _SECRETS:
            value = re.sub(pattern, _dotted, value, flags=re.IGNORECASE)
        return value
    if isinstance(value, list):
        return [_masked(item) for item in value]
    if isinstance(value, dict):
        return {name: _masked_member(name, item) for name, item in value.items()}
    return value


def _masked_member(name: str, value: Any) -> Any:
    # A number whose name has "token" in it counts them.
    is_secret = (isinstance(value, str) and value) or (type(value) is int and "token" not in name.lower())
    if is_secret and re.search(_SECRET, name, re.IGNORECASE):
        return "…"
    return _masked(value)


def _dotted(found: re.Match[str]) -> str:
    return f'{found[1]}"…"' if found[2].startswith('"') else f"{found[1]}…"
