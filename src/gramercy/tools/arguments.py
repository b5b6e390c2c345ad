"""Check the arguments of a call against a tool's schema: fast when they fit, thorough when they do not."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from gramercy.errors import InvalidSchemaError
from gramercy.gram.json_schema import compile_cached, compile_schema
from gramercy.tools.foreign import HUGE, find_foreign_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jsonschema_rs import Draft202012Validator

    from gramercy.gram.json_schema import Schema


class ArgumentChecker:
    """The arguments of one tool: validation and defaults. The schema is compiled when first needed."""

    __slots__ = ("_defaults", "_is_valid", "_shared_defaults", "_validator", "schema", "tool")

    def __init__(self, tool: str | None, schema: Schema) -> None:
        self.tool = tool
        self.schema = schema
        self._validator: Draft202012Validator | None = None
        self._is_valid: Callable[[Any], bool] | None = None
        self._defaults = _defaults_of(schema)
        self._shared_defaults = all(isinstance(v, str | int | float | None) for v in self._defaults.values())

    @property
    def validator(self) -> Draft202012Validator:
        """The compiled schema."""
        if self._validator is None:
            self._validator = compile_schema(self.schema)
            self._is_valid = self._validator.is_valid
        return self._validator

    def check(self, arguments: Any) -> dict[str, Any]:
        """Return a new dictionary with defaults filled in, or raise InvalidArgumentsError with every fault."""
        is_valid = self._is_valid or self.validator.is_valid
        if type(arguments) is dict:
            for value in arguments.values():
                kind = type(value)
                if kind is str:
                    if not value.isascii():
                        break
                elif kind is int:
                    if not -HUGE < value < HUGE:
                        break
                elif kind is not bool:
                    break
            else:
                # Nothing here can hide a stray NaN, a cycle or a foreign object: the validator alone decides.
                if is_valid(arguments):
                    return self._complete(arguments)
        return self._check_thoroughly(arguments)

    def _check_thoroughly(self, arguments: Any) -> dict[str, Any]:
        foreign = find_foreign_values(arguments)
        if not foreign and type(arguments) is dict and self.validator.is_valid(arguments):
            return self._complete(arguments)
        # Imported here: a program whose calls all fit never needs to explain one.
        from gramercy.tools.faults import explain_faults

        raise explain_faults(self.validator, self.schema, arguments, foreign=foreign, tool=self.tool)

    def _complete(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self._defaults:
            return arguments.copy()
        defaults = self._defaults if self._shared_defaults else deepcopy(self._defaults)
        return {**defaults, **arguments}


def _defaults_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: s["default"] for name, s in properties.items() if isinstance(s, dict) and "default" in s}


def validate_tool_args(schema: Schema, arguments: Any) -> dict[str, Any]:
    """Return the arguments with defaults filled in, or raise InvalidArgumentsError naming every fault."""
    checker = ArgumentChecker(None, schema if isinstance(schema, dict) else {})
    checker._validator = compile_cached(schema)  # noqa: SLF001 - share the compiled form across calls
    return checker.check(arguments)


def check_definition(schema: Mapping[str, Any]) -> list[str]:
    """List what is wrong with a tool's schema: not a schema, or a default that does not fit."""
    try:
        compile_schema(schema)
    except InvalidSchemaError as error:
        return [str(error)]
    return [
        f"the default of {name!r} does not fit its own schema: {default!r:.60}"
        for name, default in _defaults_of(schema).items()
        if not _default_fits(schema, name, default)
    ]


def _default_fits(schema: Mapping[str, Any], name: str, default: Any) -> bool:
    # The definitions come along, since the property may refer to them.
    alone = {"$defs": schema.get("$defs", {}), "properties": {name: schema["properties"][name]}}
    return bool(compile_schema(alone).is_valid({name: default}))
