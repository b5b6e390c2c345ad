"""The allowed output of a local model as one JSON Schema: a call of an offered tool, or an answer in text.

Small models do not call tools by themselves. With this schema as their grammar they can only write a call
with arguments of the right types, or an answer. Measured with 135 million parameters: a prompt without
examples, the key `answer` beside the tools, and results told as "Result of NAME: …" work best; one example of
a call is enough to have it copied.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gramercy.providers.base import ModelCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gramercy.providers.base import Message, OfferedTool, Request

ANSWER, TOOL, ARGUMENTS = "answer", "tool", "arguments"
HOW_TO_WRITE: Final = (
    'Answer with JSON only: {"tool": NAME, "arguments": {...}} calls a tool, '
    '{"answer": TEXT} answers without one.'
)
ANSWERING: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": [ANSWER],
    "properties": {ANSWER: {"type": "string"}},
}
# The types of JSON; the library rejects a schema with any other.
_TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
# A grammar has a rule for every value, and more values make it slow.
_MOST_VALUES = 500
# The rules for ranges of integers fail above 15 digits, and then use up all memory.
_GREATEST = 10**12
# Schemas that refer to themselves are endless.
_DEEPEST = 8
# The library lets a model put its JSON between the marks of a code block.
_OPENING = re.compile(r'\s*(?:```json\s*)?\{\s*"answer"\s*:\s*"')
_CALL = re.compile(r'\s*(?:```json\s*)?\{\s*"tool"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*')
# A piece of a JSON string that can be decoded by itself: without half an escape or half a pair at its end.
_WHOLE = re.compile(
    r"""(?: [^"\\] | \\[^u]
          | \\u(?![dD][89abAB])[0-9a-fA-F]{4}
          | \\u[dD][89abAB].. (?: \\u[dD][c-fC-F].. | (?= [^\\] | \\[^u] | \\u(?![dD][c-fC-F]).{4} ) )
        )*""",
    re.VERBOSE,
)


def grammar_of(tools: Sequence[OfferedTool]) -> dict[str, Any]:
    """Return a JSON Schema for the allowed output: a call of one of the tools, or an answer."""
    calls = [
        {
            "type": "object",
            "additionalProperties": False,
            "required": [TOOL, ARGUMENTS],
            "properties": {TOOL: {"const": each.name}, ARGUMENTS: plain_schema(each.parameters)},
        }
        for each in tools
    ]
    return {"anyOf": [*calls, ANSWERING]}


def plain_schema(schema: Any, root: Any = None, depth: int = 0) -> dict[str, Any]:
    """Return the part of a schema that a grammar can enforce, with its references resolved.

    The rest, such as patterns and lengths, is checked when the call arrives. Counts of items are left out as
    well: the library writes a rule for each item, and with some numbers it uses up all memory.
    """
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return {}
    if "$ref" in schema:
        return plain_schema(_referred(schema["$ref"], root), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list) and choices:
            return {"anyOf": [plain_schema(each, root, depth + 1) for each in choices]}
    kept = _plain_values(schema)
    if kept.get("type") == "object" or "properties" in schema:
        kept |= _plain_object(schema, root, depth)
    if isinstance(schema.get("items"), dict):
        kept["items"] = plain_schema(schema["items"], root, depth + 1)
    return kept


def _plain_values(schema: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    kinds = schema.get("type")
    named = kinds if isinstance(kinds, list) else [kinds]
    if named and all(isinstance(each, str) and each in _TYPES for each in named):
        kept["type"] = kinds
    values = schema.get("enum")
    if isinstance(values, list) and 0 < len(values) <= _MOST_VALUES and all(map(_is_written, values)):
        kept["enum"] = values
    if "const" in schema and _is_written(schema["const"]):
        kept["const"] = schema["const"]
    for key in ("minimum", "maximum"):
        if type(bound := schema.get(key)) is int and abs(bound) <= _GREATEST:
            kept[key] = bound
    return kept


def _is_written(value: Any) -> bool:
    """Whether the library can parse a value: no integers above 64 bits, no halves of surrogate pairs."""
    if isinstance(value, list | tuple):
        return all(map(_is_written, value))
    if isinstance(value, dict):
        return all(map(_is_written, [*value, *value.values()]))
    if isinstance(value, int):
        return abs(value) < 1 << 63
    return not isinstance(value, str) or _sendable(value) == value


def _plain_object(schema: dict[str, Any], root: Any, depth: int) -> dict[str, Any]:
    """Return an object with the described properties; others are only allowed if there are none."""
    told = schema.get("properties")
    required = schema.get("required")
    names = [each for each in required if isinstance(each, str)] if isinstance(required, list) else []
    properties = {**dict.fromkeys(names, True), **(told if isinstance(told, dict) else {})}
    kept: dict[str, Any] = {"required": names} if names else {}
    if properties:
        kept["properties"] = {key: plain_schema(each, root, depth + 1) for key, each in properties.items()}
    is_open = not properties and depth > 0 and schema.get("additionalProperties") is not False
    return {**kept, "additionalProperties": is_open}


def _referred(reference: Any, root: Any) -> Any:
    found = root
    for part in str(reference).removeprefix("#/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def chat_messages(request: Request) -> list[dict[str, str]]:
    """Write a request as alternating messages with the roles that every chat template knows."""
    found = [{"role": "system", "content": _system(request)}] if request.instruction or request.tools else []
    names = {call.id: call.name for message in request.messages for call in message.calls}
    for place, message in enumerate(request.messages):
        if place and message.role == "assistant" and _repeats(message, request.messages[place - 1]):
            continue
        role, text = _written(message, names, has_tools=bool(request.tools))
        if found and found[-1]["role"] == role:
            found[-1]["content"] += f"\n{text}"
        else:
            found.append({"role": role, "content": text})
    return [{**each, "content": _sendable(each["content"])} for each in found]


def _repeats(answer: Message, result: Message) -> bool:
    """Whether an answer only repeats a result; a small model would copy that instead of calling the tool."""
    return result.role == "tool" and not answer.calls and answer.text.strip() == result.text.strip()


def _system(request: Request) -> str:
    if not request.tools:
        return request.instruction
    listed = [f"- {each.name}: {each.description}; arguments: {_arguments(each)}" for each in request.tools]
    return "\n".join([request.instruction, "", "Tools:", *listed, HOW_TO_WRITE]).strip()


def _arguments(tool: OfferedTool) -> str:
    named = tool.parameters.get("properties", {}).items()
    return "{" + ", ".join(f'"{name}": {_kind(schema)}' for name, schema in named) + "}"


def _kind(schema: Any) -> str:
    kind = schema.get("type", "any") if isinstance(schema, dict) else "any"
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _written(message: Message, names: dict[str, str], *, has_tools: bool) -> tuple[str, str]:
    if message.role == "user":
        return "user", message.text
    if message.role == "tool":
        word = "Error" if message.is_error else "Result"
        return "user", f"{word} of {names.get(message.call_id, 'the tool')}: {message.text}"
    lines = [f'{{"tool": {json.dumps(each.name)}, "arguments": {each.arguments}}}' for each in message.calls]
    if message.text and not message.calls:
        lines = [json.dumps({ANSWER: message.text}, ensure_ascii=False) if has_tools else message.text]
    return "assistant", "\n".join(lines)


def _sendable(text: str) -> str:
    """Replace halves of surrogate pairs, which cannot be encoded."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Writing:
    """The output of a model so far, by its grammar; the text of an answer is yielded as it comes."""

    def __init__(self) -> None:
        self._text = ""
        self._given: int | None = None

    def take(self, text: str) -> Iterator[str]:
        """Add a piece of output, and yield the text that it adds to the answer."""
        self._text += text
        if self._given is None and (opening := _OPENING.match(self._text)):
            self._given = opening.end()
        if self._given is not None and (piece := _WHOLE.match(self._text, self._given)) and piece[0]:
            self._given = piece.end()
            said: str = json.loads(f'"{piece[0]}"', strict=False)
            yield _sendable(said)

    def call(self, name: str) -> ModelCall | None:
        """Return the call in the output, with this name as its id; its arguments may be cut off."""
        opening = _CALL.match(self._text)
        if opening is None:
            return None
        rest = self._text[opening.end() :]
        try:
            value, _ = json.JSONDecoder().raw_decode(rest)
            rest = msgspec.json.encode(value).decode()
        except ValueError:
            pass
        return ModelCall(name, json.loads(opening[1]), rest)
