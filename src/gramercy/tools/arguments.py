"""Check the arguments of a call against a tool's schema: fast when they fit, thorough when they do not."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import InvalidSchemaError
from gramercy.gram.json_schema import compile_schema
from gramercy.tools.copiers import Copier
from gramercy.tools.values import SCALARS, copy_json, copy_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jsonschema_rs import Draft202012Validator

    from gramercy.gram.json_schema import Schema


class ArgumentChecker:
    """The arguments of one tool: validation and defaults. The schema is compiled when first needed."""

    __slots__ = ("_copy", "_defaults", "_fits", "_validator", "flat", "schema", "tool")

    def __init__(
        self, tool: str | None, schema: Schema, validator: Draft202012Validator | None = None
    ) -> None:
        self.tool = tool
        self.schema = schema
        self._validator = validator
        self._defaults = _defaults_of(schema)
        self._copy: Callable[[Any], dict[str, Any] | None] | None = None
        self._fits: Callable[[Any], bool] | None = None
        # Whether what `check_quickly` returns has no inside, so that a shallow copy of it is a whole one.
        self.flat = False

    @property
    def validator(self) -> Draft202012Validator:
        """The compiled schema."""
        if self._validator is None:
            self._validator = compile_schema(self.schema)
        return self._validator

    def check(self, arguments: Any) -> dict[str, Any]:
        """Return a copy of the arguments with defaults filled in, or raise InvalidArgumentsError.

        The copy is made first and shares nothing with the original, which may change after the check.
        """
        quick = self.check_quickly(arguments)
        return self.check_thoroughly(arguments) if quick is None else quick

    def check_quickly(self, arguments: Any) -> dict[str, Any] | None:
        """Do the same for arguments of the usual shape; None says nothing about the others."""
        copied = (self._copy or self._prepared())(arguments)
        if copied is None or (self._fits is not None and not self._fits(copied)):
            return None
        if self._defaults:
            for name, default in self._defaults.items():
                if name not in copied:
                    copied[name] = copy_json(default)
        return copied

    def _prepared(self) -> Callable[[Any], dict[str, Any] | None]:
        copier = Copier(self.schema)
        self._fits = None if copier.decides else self.validator.is_valid
        self.flat = copier.flat and all(type(default) in SCALARS for default in self._defaults.values())
        self._copy = copier.compiled()
        return self._copy

    def check_thoroughly(self, arguments: Any) -> dict[str, Any]:
        """Do the same for any arguments, whatever is in them."""
        plain = copy_plain(arguments)
        if not plain.faults and type(plain.value) is dict and self.validator.is_valid(plain.value):
            for name, default in self._defaults.items():
                plain.value.setdefault(name, copy_json(default))
            return whole_numbers(plain.value, self.schema)  # type: ignore[no-any-return]  # as it came: a dict
        # Imported here: a program whose calls all fit never needs to explain one.
        from gramercy.tools.faults import explain_faults

        raise explain_faults(self.validator, self.schema, plain, tool=self.tool)


def whole_numbers(value: Any, schema: Any) -> Any:
    """Write whole numbers as Python does where a schema asks for them: for JSON 3.0 and 3 are the same.

    Changes the value, which must be a copy of the caller's own, and returns it.
    """
    if type(value) is float:
        wanted = schema.get("type") if isinstance(schema, dict) else None
        return int(value) if wanted == "integer" and value.is_integer() else value
    if not isinstance(schema, dict):
        return value
    if type(value) is dict:
        described = schema.get("properties")
        properties = described if isinstance(described, dict) else {}
        for name in value.keys() & properties.keys():
            value[name] = whole_numbers(value[name], properties[name])
    elif type(value) is list and "items" in schema:
        value[:] = [whole_numbers(item, schema["items"]) for item in value]
    return value


# What a property may say beside its type without asking anything more of the value.
_SILENT = frozenset({"type", "description", "title", "default", "examples"})
_TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool}


def _plain_types_of(schema: Mapping[str, Any]) -> Mapping[str, type] | None:
    """Return the Python type of every property, or None when a type alone does not decide."""
    if not schema.keys() <= {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "description",
        "title",
    }:
        return None
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return None
    if not all(isinstance(name, str) and name in properties for name in required):
        return None  # nothing can fit such a schema, which the types of what is there would not tell
    types = {}
    for name, wanted in properties.items():
        kind = wanted.get("type") if isinstance(wanted, dict) and wanted.keys() <= _SILENT else None
        if not isinstance(kind, str) or kind not in _TYPES:
            return None
        types[name] = _TYPES[kind]
    return types if schema.get("type") == "object" else None


def _defaults_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: s["default"] for name, s in properties.items() if isinstance(s, dict) and "default" in s}


def validate_tool_args(schema: Schema, arguments: Any) -> dict[str, Any]:
    """Return the arguments with defaults filled in, or raise InvalidArgumentsError naming every fault."""
    try:
        text = msgspec.json.encode(schema) if isinstance(schema, dict) else None
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        text = None  # the compiler says what is wrong with it
    if text is None:
        described = schema if isinstance(schema, dict) else {}
        return ArgumentChecker(None, described, compile_schema(schema)).check_thoroughly(arguments)
    return _checker_of(text).check(arguments)


@lru_cache(maxsize=1024)
def _checker_of(text: bytes) -> ArgumentChecker:
    """Return the checker of a schema that may come again; written alike, schemas share one."""
    schema = msgspec.json.decode(text)
    return ArgumentChecker(None, schema, compile_schema(schema))


def check_definition(schema: Schema) -> list[str]:
    """List what is wrong with a tool's schema: not a schema, or a default that does not fit."""
    if _is_plainly_right(schema):
        return []
    try:
        validator = compile_schema(schema)
    except InvalidSchemaError as error:
        return [str(error)]
    return [
        f"the default of {name!r} does not fit its own schema: {default!r:.60}"
        for name, default in _defaults_of(schema).items()
        if not _default_fits(validator, name, default)
    ]


def _is_plainly_right(schema: Schema) -> bool:
    """Tell whether a schema is so plain that nothing can be wrong with it; False says nothing.

    So are the schemas of most functions; a program that has no others starts without loading the validator.
    """
    types = _plain_types_of(schema) if isinstance(schema, dict) else None
    if types is None or not isinstance(schema.get("additionalProperties", False), bool):
        return False
    required, parts = schema.get("required", []), [schema, *schema.get("properties", {}).values()]
    return (
        len(set(required)) == len(required)
        and all(isinstance(part.get(word, ""), str) for part in parts for word in ("description", "title"))
        and all(isinstance(part.get("examples", []), list) for part in parts)
        and all(type(default) is types[name] for name, default in _defaults_of(schema).items())
    )


def _default_fits(validator: Draft202012Validator, name: str, default: Any) -> bool:
    """Tell whether the only faults of the default alone are the arguments that it came without."""
    errors = validator.iter_errors({name: default})
    return not any(error.instance_path and error.instance_path[0] == name for error in errors)
