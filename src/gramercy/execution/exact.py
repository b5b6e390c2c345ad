"""The one call that a rule with `exactly` allows: all of its arguments, by type and value.

The set is closed: an argument that the rule does not name must be absent or have its default. Types are those
of JSON: the number 3 and the text "3" differ, 3 and 3.0 do not. This module knows nothing of policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gramercy.errors import InvalidPolicyError
from gramercy.tools.values import copy_plain

EXAMPLE = '{ command = "ls", sudo = false }'


def read_exact(value: Any) -> Mapping[str, Any]:
    """Return the arguments of a rule with `exactly`, made immutable, or say what is wrong with them."""
    plain = copy_plain(_thawed(value), tuples=True)
    if not isinstance(value, Mapping) or plain.faults:
        fault = f": {plain.faults[0].path}" if isinstance(value, Mapping) and plain.faults[0].path else ""
        raise InvalidPolicyError(
            f"exactly in a rule must map names to values of JSON, such as {EXAMPLE}, not {value!r:.60}{fault}"
        )
    frozen: Mapping[str, Any] = _frozen(plain.value)
    return frozen


def plain_arguments(exactly: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as plain data, as a file has them."""
    thawed: dict[str, Any] = _thawed(exactly)
    return thawed


def is_same_call(
    exactly: Mapping[str, Any], arguments: Mapping[str, Any], defaults: Mapping[str, Any]
) -> bool:
    """Tell whether a call has these arguments and no others; a default value counts as absent."""
    wanted, given = {**defaults, **exactly}, {**defaults, **arguments}
    return _is_same(wanted, given)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        is_alike = isinstance(other, Mapping) and one.keys() == other.keys()
        return is_alike and all(_is_same(each, other[name]) for name, each in one.items())
    if isinstance(one, list | tuple):
        is_alike = isinstance(other, list | tuple) and len(one) == len(other)
        return is_alike and all(map(_is_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float):
        return isinstance(other, int | float) and one == other
    return type(one) is type(other) and one == other


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType({name: _frozen(each) for name, each in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _thawed(each) for name, each in value.items()}
    return [_thawed(each) for each in value] if isinstance(value, list | tuple) else value
