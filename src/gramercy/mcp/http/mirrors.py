"""Arguments of tools that clients repeat in headers (`x-mcp-header` in a tool's schema, `Mcp-Param-*`)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.mcp.http.headers import decode_value, mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    SchemaSource = Callable[[str], "Mapping[str, Any] | None"]

MARK = "x-mcp-header"
REMEMBERED = 256
DEEPEST = 16


class Mirror(msgspec.Struct, frozen=True):
    """One argument, by its path in the arguments, and the header that repeats it."""

    header: bytes
    path: tuple[str, ...]


class _Arguments(msgspec.Struct):
    arguments: Any = None


class _Call(msgspec.Struct):
    params: _Arguments | None = None


_calls = msgspec.json.Decoder(_Call)


class Mirrors:
    """Checks calls against the schemas of the tools they call."""

    def __init__(self, schema_of: SchemaSource | None) -> None:
        self._schema_of = schema_of
        # By name; the schema is kept with it, so that a replaced tool is seen by identity.
        self._known: OrderedDict[str, tuple[Mapping[str, Any], tuple[Mirror, ...]]] = OrderedDict()

    def check(self, tool: object, headers: Mapping[bytes, bytes], frame: bytes) -> None:
        """Raise RefusedError (400) when a mirrored argument and its header do not agree."""
        if self._schema_of is None or not isinstance(tool, str):
            return
        schema = self._schema_of(tool)
        if schema is None:
            return
        mirrors = self._of(tool, schema)
        if mirrors:
            _compare(mirrors, headers, frame)

    def _of(self, tool: str, schema: Mapping[str, Any]) -> tuple[Mirror, ...]:
        known = self._known.get(tool)
        if known is not None and known[0] is schema:
            return known[1]
        mirrors = tuple(find_mirrors(schema))
        self._known[tool] = (schema, mirrors)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return mirrors


def find_mirrors(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[Mirror]:
    """Find the marked properties that are reached by `properties` alone."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or len(path) >= DEEPEST:
        return
    for name, part in properties.items():
        if not isinstance(part, dict):
            continue
        title = part.get(MARK)
        if isinstance(title, str) and title:
            yield Mirror(b"mcp-param-" + title.lower().encode("latin-1", "replace"), (*path, name))
        yield from find_mirrors(part, (*path, name))


def _compare(mirrors: tuple[Mirror, ...], headers: Mapping[bytes, bytes], frame: bytes) -> None:
    try:
        call = _calls.decode(frame)
    except msgspec.DecodeError:
        # The engine says what is wrong with such a call.
        return
    arguments = None if call.params is None else call.params.arguments
    for mirror in mirrors:
        _compare_one(mirror, headers.get(mirror.header), _value_at(arguments, mirror.path))


def _compare_one(mirror: Mirror, header: bytes | None, value: object) -> None:
    title = mirror.header.decode("latin-1")
    argument = ".".join(mirror.path)
    if header is None:
        if value is not None:
            raise mismatch(f"the header {title} is missing, which repeats the argument {argument}")
        return
    found = decode_value(header.strip(b" \t"))
    if value is None:
        raise mismatch(f"the header {title} is there, but the argument {argument} is not")
    if not _is_same(found, value):
        raise mismatch(f"the header {title} is {found!r:.80}, the argument {argument} is {value!r:.80}")


def _value_at(arguments: Any, path: tuple[str, ...]) -> Any:
    value = arguments
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _is_same(text: str, value: object) -> bool:
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            # 42 and 42.0 are one number.
            return float(text) == float(value)
        except (ValueError, OverflowError):
            return False
    return text == value
