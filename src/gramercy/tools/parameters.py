"""Turn the parameter list of a tool definition into the properties of a JSON Schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gramercy.tools.problems import hint

if TYPE_CHECKING:
    from gramercy.tools.problems import Problems

PARAMETER_TYPES = ("string", "boolean", "number", "integer", "object", "array")
PARAMETER_KEYS = frozenset({
    *("name", "type", "description", "default", "enum", "examples", "title"),
    *("items", "minItems", "maxItems", "uniqueItems"),
    *("properties", "required", "additionalProperties"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format"),
})  # fmt: skip


def read_parameters(parameters: object, problems: Problems) -> dict[str, Any]:
    """Return the properties that a list of parameters describes."""
    if isinstance(parameters, str | bytes | Mapping) or not isinstance(parameters, Iterable):
        problems.append('parameters must be a list such as [{"name": "path", "type": "string"}]')
        return {}
    properties: dict[str, Any] = {}
    for position, parameter in enumerate(parameters, 1):
        name = parameter.get("name") if isinstance(parameter, Mapping) else None
        if not isinstance(name, str) or not name:
            problems.append(f'parameter {position} has no name: expected an object with "name" and "type"')
        elif name in properties:
            problems.append(f"parameter {name!r} is there twice: remove or rename one")
        else:
            properties[name] = _property(name, parameter, problems)
    return properties


def _property(name: str, parameter: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    for key in parameter:
        if key not in PARAMETER_KEYS:
            problems.append(f"parameter {name!r} has an unknown key {key!r}{hint(key, PARAMETER_KEYS)}")
    if isinstance(parameter.get("required"), bool):
        problems.append(
            f"parameter {name!r} says 'required' itself: pass required=[{name!r}] to the tool instead"
        )
    kind = parameter.get("type")
    word = kind.removeprefix(":").lower() if isinstance(kind, str) else kind
    if word not in PARAMETER_TYPES:
        listed = f"expected {', '.join(PARAMETER_TYPES)}{hint(word, PARAMETER_TYPES)}"
        problems.append(f"parameter {name!r} has the unknown type {kind!r:.50}: {listed}")
    return {**{key: value for key, value in parameter.items() if key != "name"}, "type": word}


def read_required(required: object, properties: Mapping[str, Any], problems: Problems) -> list[str]:
    """Return the names of required parameters, each once; all must be parameters."""
    if isinstance(required, str | Mapping) or not isinstance(required, Iterable):
        problems.append(f'required must be a list of names, such as ["path"], not {required!r:.50}')
        return []
    names: list[str] = []
    for name in required:
        if not isinstance(name, str):
            problems.append(f"required names {name!r:.50}, which is no text")
        elif name not in properties:
            known = f"; the parameters are {', '.join(properties) or 'none'}"
            problems.append(f"required names {name!r}, which is no parameter{hint(name, properties, known)}")
        elif name not in names:
            names.append(name)
    return names
