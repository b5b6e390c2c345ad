"""What goes into the executor and what comes out of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gramercy.errors import Fault, InvalidArgumentsError, InvalidCallError

CALL_SHAPE = '{"id": "call_1", "name": "tool_name", "arguments": {…}}'


class ToolCall(msgspec.Struct, frozen=True):
    """One request to run a tool; arguments may also be JSON text, as models send them."""

    id: str
    name: str
    arguments: Any = {}


class ToolResult(msgspec.Struct, frozen=True):
    """What became of a call. Content is the text for the model, also when the call failed."""

    id: str
    success: bool
    content: str
    error: str | None = None
    metadata: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a handler returns to report a value together with an error."""

    value: Any
    error: str | None = None


def id_of(raw: Any) -> str:
    """Return the id under which the result of this call is reported, whatever else is wrong with it."""
    found = raw.id if isinstance(raw, ToolCall) else raw.get("id") if isinstance(raw, Mapping) else None
    return found if isinstance(found, str) else "" if found is None else str(found)[:200]


def read_call(raw: Any) -> ToolCall:
    """Accept a ToolCall or a mapping of its fields, or raise InvalidCallError saying what is missing."""
    if type(raw) is ToolCall:
        return raw
    if type(raw) is not dict and not isinstance(raw, Mapping):
        raise InvalidCallError(f"a call must be an object such as {CALL_SHAPE}, not {type(raw).__name__}")
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidCallError(f"the call names no tool: expected {CALL_SHAPE}")
    call_id = raw.get("id")
    return ToolCall(call_id if type(call_id) is str else id_of(raw), name, raw.get("arguments", {}))


def read_arguments(arguments: Any) -> Any:
    """Return arguments as a dictionary; text is read as JSON, without the leniencies that hide mistakes."""
    if isinstance(arguments, str | bytes):
        return parse_arguments(arguments)
    return dict(arguments) if isinstance(arguments, Mapping) else arguments


def parse_arguments(text: str | bytes) -> Any:
    """Read JSON text; malformed text, duplicate names, NaN and endless digits raise InvalidArgumentsError."""
    try:
        return json.loads(text or "{}", object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        found = f"text that stops being JSON at line {error.lineno} column {error.colno} ({error.msg})"
        fault = Fault("(arguments)", "a JSON object", found)
    except UnicodeDecodeError:
        fault = Fault("(arguments)", "a JSON object in UTF-8", "bytes that are not UTF-8")
    except RecursionError:
        fault = Fault("(arguments)", "a JSON object", "nesting too deep to read")
    except _FaultyJsonError as error:
        fault = error.fault
    except ValueError:  # Python refuses integers of more than 4300 digits
        fault = Fault("(arguments)", "numbers of reasonable length", "a number with thousands of digits")
    raise InvalidArgumentsError([fault])


class _FaultyJsonError(Exception):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _FaultyJsonError(Fault(twice[:100], "each name once", f"{json.dumps(twice[:100])} {names.count(twice)} times"))
    return found


def _refuse_constant(word: str) -> Any:
    raise _FaultyJsonError(Fault("(arguments)", "finite numbers", f"{word} (JSON has no such number)"))
