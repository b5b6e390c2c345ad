"""Read JSON without the leniencies that hide mistakes: no NaN, no name twice, no endless numbers."""

from __future__ import annotations

import json
from collections import Counter
from math import isfinite
from typing import Any

from gramercy.errors import JsonTextError


def read_json(text: str | bytes, *, what: str = "JSON", overflow: bool = False) -> Any:
    """Return the value of a JSON text, or raise JsonTextError saying that `what` was expected.

    With `overflow` a number too large for a float becomes infinity, for callers that can name its place.
    """
    number = float if overflow else _finite
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=number)
    except json.JSONDecodeError as error:
        found = f"text that stops being JSON at line {error.lineno} column {error.colno} ({error.msg})"
        raise JsonTextError(what, found) from None
    except UnicodeDecodeError:
        raise JsonTextError(f"{what} in UTF-8", "bytes that are not UTF-8") from None
    except RecursionError:
        raise JsonTextError(what, "nesting too deep to read") from None
    except JsonTextError:
        raise
    except ValueError:  # Python refuses integers of more than 4300 digits
        raise JsonTextError("numbers of reasonable length", "a number with thousands of digits") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        name, times = Counter(name for name, _ in pairs).most_common(1)[0]
        raise JsonTextError("each name once", f"the name {times} times", name)
    return found


def _refuse(word: str) -> Any:
    raise JsonTextError("finite numbers", f"{word} (JSON has no such number)")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise JsonTextError("finite numbers", f"{text[:40]}, which is too large")
    return value
