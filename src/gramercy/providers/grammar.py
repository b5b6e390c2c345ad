"""What a local model may write, as one JSON Schema: a call of an offered tool, or an answer in text.

Small models do not call tools by themselves; with this schema as their grammar they can write nothing else
than a call with arguments of the right form, or an answer. Measured with a model of 135 million parameters: a
prompt without examples, the key `answer` beside the tools, and results told as "Result of NAME: …" work best;
one example of a call is enough to have it copied.
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
FORM: Final = (
    'Answer with JSON only: {"tool": NAME, "arguments": {...}} calls a tool, '
    '{"answer": TEXT} answers without one.'
)
ANSWERING: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": [ANSWER],
    "properties": {ANSWER: {"type": "string"}},
}
# What a grammar can keep; the rest of a schema is checked when the call arrives.
_KEPT = {"type", "enum", "const", "required", "minimum", "maximum", "minItems", "maxItems"}
# A grammar repeats its rules for every item: more of them make it slow and do not help a small model.
_MOST_ITEMS = 100
# Schemas that refer to themselves have no end.
_DEEPEST = 8
_OPENING = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_CALL = re.compile(r'\s*\{\s*"tool"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*')
# A piece of a JSON string that can be decoded by itself: no half escape and no half pair at its end.
_WHOLE = re.compile(
    r"""(?: [^"\\] | \\[^u]
          | \\u(?![dD][89abAB])[0-9a-fA-F]{4}
          | \\u[dD][89abAB].. (?: \\u[dD][c-fC-F].. | (?= [^\\] | \\[^u] | \\u(?![dD][c-fC-F]).{4} ) )
        )*""",
    re.VERBOSE,
)


def written_form(tools: Sequence[OfferedTool]) -> dict[str, Any]:
    """Return the schema of what may be written: a call of one of the tools, or an answer."""
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
    """Return what a grammar can keep of a schema, with its references resolved."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return {}
    if reference := schema.get("$ref"):
        return plain_schema(_referred(reference, root), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list):
            return {"anyOf": [plain_schema(each, root, depth + 1) for each in choices]}
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    for key in ("minItems", "maxItems"):
        if kept.get(key, 0) > _MOST_ITEMS:
            del kept[key]
    if isinstance(properties := schema.get("properties"), dict):
        kept["properties"] = {name: plain_schema(each, root, depth + 1) for name, each in properties.items()}
    if schema.get("type") == "object" and not isinstance(schema.get("additionalProperties"), dict):
        # What nobody has described is not offered, even where it would be accepted.
        kept["additionalProperties"] = not properties and depth > 0
    if "items" in schema:
        kept["items"] = plain_schema(schema["items"], root, depth + 1)
    return kept


def _referred(reference: Any, root: Any) -> Any:
    found = root
    for part in str(reference).removeprefix("#/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def chat_messages(request: Request) -> list[dict[str, str]]:
    """Write a request as messages of the roles that every chat template knows, taking turns."""
    found = [{"role": "system", "content": _system(request)}] if request.instruction or request.tools else []
    names = {call.id: call.name for message in request.messages for call in message.calls}
    for message in request.messages:
        role, text = _written(message, names, is_form=bool(request.tools))
        if found and found[-1]["role"] == role:
            found[-1]["content"] += f"\n{text}"
        else:
            found.append({"role": role, "content": text})
    return [{**each, "content": _sendable(each["content"])} for each in found]


def _system(request: Request) -> str:
    if not request.tools:
        return request.instruction
    listed = [f"- {each.name}: {each.description}; arguments: {_arguments(each)}" for each in request.tools]
    return "\n".join([request.instruction, "", "Tools:", *listed, FORM]).strip()


def _arguments(tool: OfferedTool) -> str:
    named = tool.parameters.get("properties", {}).items()
    return "{" + ", ".join(f'"{name}": {_kind(schema)}' for name, schema in named) + "}"


def _kind(schema: Any) -> str:
    kind = schema.get("type", "any") if isinstance(schema, dict) else "any"
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _written(message: Message, names: dict[str, str], *, is_form: bool) -> tuple[str, str]:
    if message.role == "user":
        return "user", message.text
    if message.role == "tool":
        word = "Error" if message.is_error else "Result"
        return "user", f"{word} of {names.get(message.call_id, 'the tool')}: {message.text}"
    lines = [f'{{"tool": {json.dumps(each.name)}, "arguments": {each.arguments}}}' for each in message.calls]
    if message.text and not message.calls:
        lines = [json.dumps({ANSWER: message.text}, ensure_ascii=False) if is_form else message.text]
    return "assistant", "\n".join(lines)


def _sendable(text: str) -> str:
    """Replace halves of surrogate pairs, which no encoding has."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Writing:
    """What a model has written so far in that form; the text of an answer is given out as it comes."""

    def __init__(self) -> None:
        self._text = ""
        self._given: int | None = None

    def take(self, text: str) -> Iterator[str]:
        """Add what came, and yield what it adds to the answer."""
        self._text += text
        if self._given is None and (opening := _OPENING.match(self._text)):
            self._given = opening.end()
        if self._given is not None and (piece := _WHOLE.match(self._text, self._given)) and piece[0]:
            self._given = piece.end()
            said: str = json.loads(f'"{piece[0]}"', strict=False)
            yield _sendable(said)

    def call(self, name: str) -> ModelCall | None:
        """Return the call that was written, under that name for its result; its arguments may be cut off."""
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
