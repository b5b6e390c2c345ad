"""Read the rules of the guard from a file of TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from gramercy.errors import InvalidPolicyError
from gramercy.execution.policy import Policy
from gramercy.gram.suggestion import suggest

KEYS = ("rules", "max_safety_level")


def load_policy(path: str) -> Policy:
    """Return the policy in a file, or say what is wrong with it and where."""
    data = _data(path)
    unknown = [key for key in data if key not in KEYS]
    if unknown:
        close = suggest(unknown[0], KEYS)
        hint = f"did you mean {close[0]!r}?" if close else f"expected {' and '.join(KEYS)}"
        raise InvalidPolicyError(f"{path}: there is no {unknown[0]!r:.60} in a policy: {hint}")
    rules = data.get("rules", [])
    if not isinstance(rules, list):
        raise InvalidPolicyError(f"{path}: rules must be a list: write [[rules]] before each of them")
    try:
        return Policy(rules, data.get("max_safety_level", "dangerous"))
    except InvalidPolicyError as error:
        raise InvalidPolicyError(f"{path}: {error}") from None


def _data(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidPolicyError(f"the policy {path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidPolicyError(f"the policy {path} is not TOML: {error}") from None
