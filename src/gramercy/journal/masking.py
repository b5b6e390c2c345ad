"""Replace secrets by dots in the kept contents of a call that is over.

A secret is recognised by its form, by the name of its argument, or by a setting for a tool. Its value is
masked wherever it occurs in the same call: in the question, the answer, an error.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import InvalidSettingError
from gramercy.journal.forms import DISCORD, HINTS, MORE_HINTS, SECRET_NAME, SHORTEST_DOTTED, TWILIO
from gramercy.journal.texts import DOTS, masked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Shorter values occur in any text by chance. Masking each "on" would hide what happened.
SHORTEST_SECRET = 6
# An option that already has its value, is a whole text, or names the place of the secret.
_NO_VALUE = re.compile(r"[=\s]|-(?:file|stdin|path|env)\Z")
# The fields of the contents that hold the arguments of a call.
_ARGUMENTS = frozenset({"arguments", "changed", "approved"})


class Masking:
    """What counts as a secret: `names` are globs for TOOL.ARGUMENT, `patterns` regular expressions."""

    def __init__(self, names: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._names = tuple(names)
        try:
            self._patterns = tuple(re.compile(pattern) for pattern in patterns)
        except re.error as error:
            raise InvalidSettingError(f"{error.pattern!r} is no regular expression: {error}") from None

    def __call__(self, tool: str, texts: Sequence[str]) -> list[str]:
        """Return the contents of one call without secrets; a text without secrets is returned unchanged."""
        if not any(map(self._is_suspect, texts)) and not self._is_named(tool):
            return list(texts)
        secrets: set[str] = set()
        walked = [self._walk(_parsed(text), tool, secrets) if text else None for text in texts]
        known = sorted(secrets, key=len, reverse=True)
        return [
            _written(text, _without(value, known)) if text else text
            for text, value in zip(texts, walked, strict=True)
        ]

    def _is_named(self, tool: str) -> bool:
        return any(fnmatchcase(tool, name.rpartition(".")[0]) for name in self._names)

    def _is_suspect(self, text: str) -> bool:
        lowered = text.lower()
        for hint in HINTS:
            if hint in lowered:
                return True
        for sign, hints in MORE_HINTS:
            if sign in lowered:
                for hint in hints:
                    if hint in lowered:
                        return True
        if ("SK" in text and TWILIO.search(text)) or (len(text) >= SHORTEST_DOTTED and DISCORD.search(text)):
            return True
        return any(each.search(text) for each in self._patterns)

    def _walk(self, kept: dict[str, Any], tool: str, secrets: set[str]) -> dict[str, Any]:
        """Return contents with dots for secrets, and add the secrets to `secrets`."""
        found = {}
        for part, value in kept.items():
            if part in _ARGUMENTS and isinstance(value, dict):
                found[part] = {
                    name: self._argument(tool, name, each, secrets) for name, each in value.items()
                }
            else:
                found[part] = self._value(value, secrets)
        return found

    def _argument(self, tool: str, name: str, value: Any, secrets: set[str]) -> Any:
        if any(fnmatchcase(f"{tool}.{name}", glob) for glob in self._names):
            return _hidden(value, secrets)
        return self._member(name, value, secrets)

    def _member(self, name: str, value: Any, secrets: set[str]) -> Any:
        if isinstance(value, dict) or not re.search(SECRET_NAME, name, re.IGNORECASE):
            return self._value(value, secrets)
        return _hidden(value, secrets)

    def _value(self, value: Any, secrets: set[str]) -> Any:
        if isinstance(value, str):
            for pattern in self._patterns:
                value = pattern.sub(DOTS, value)
            return masked(value)
        if isinstance(value, list):
            before = [None, *value]
            return [
                self._member(option, each, secrets) if _is_option(option) else self._value(each, secrets)
                for option, each in zip(before, value, strict=False)
            ]
        if isinstance(value, dict):
            return {name: self._member(name, each, secrets) for name, each in value.items()}
        return value


def _is_option(word: Any) -> bool:
    """Tell whether a word of a command is an option whose value may be the next word."""
    return isinstance(word, str) and word.startswith("-") and _NO_VALUE.search(word) is None


def without(kept: str, texts: Sequence[str]) -> str:
    """Return contents with dots for each of these texts, wherever they occur in a value."""
    return _written(kept, _without(_parsed(kept), texts)) if kept else kept


def _hidden(value: Any, secrets: set[str]) -> Any:
    """Return dots for a value, and add its texts to `secrets`."""
    if isinstance(value, list):
        return [_hidden(each, secrets) for each in value]
    if isinstance(value, dict):
        return {name: _hidden(each, secrets) for name, each in value.items()}
    if value is None or value == "" or isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) >= SHORTEST_SECRET:
        secrets.add(value)
    return DOTS


def _without(value: Any, secrets: Sequence[str]) -> Any:
    """Return a value with dots for each of these texts."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, DOTS)
        return value
    if isinstance(value, list):
        return [_without(each, secrets) for each in value]
    if isinstance(value, dict):
        return {_without(name, secrets): _without(each, secrets) for name, each in value.items()}
    return value


def _parsed(text: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = json.loads(text)
    return found


def _written(before: str, value: Any) -> str:
    """Encode contents again; return the original text if nothing has changed."""
    if value == _parsed(before):
        return before
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeError:
        return json.dumps(value, separators=(",", ":"))
