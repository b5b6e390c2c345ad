"""Turn what the guard returns into the result of tools/call, in the words of the client's revision."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType, field

from gramercy.tools.content import (
    AudioBlock,
    Block,
    ImageBlock,
    ResourceBlock,
    ResourceLink,
    TextBlock,
    blocks_text,
)

if TYPE_CHECKING:
    from gramercy.execution.calls import ToolResult
    from gramercy.mcp.eras import Request

# Whole sequences first, so that no harmless-looking rest of one stays.
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
AUDIO_SINCE = "2025-03-26"
LINKS_SINCE = STRUCTURED_SINCE = "2025-06-18"


class TextContent(msgspec.Struct):
    """A text block on the wire."""

    type: str
    text: str


class CallResult(msgspec.Struct):
    """The result of tools/call on the wire."""

    content: list[Any]
    is_error: bool = field(name="isError")
    structured: Any = field(default=UNSET, name="structuredContent")
    result_type: str | UnsetType = field(default=UNSET, name="resultType")
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


def call_result(result: ToolResult, request: Request, meta: dict[str, Any]) -> CallResult:
    """Shape the result of a call; `meta` is what the newer era wants with every result."""
    found = result.metadata
    # Nearly every result is plain text; what has more than that has been put beside it by the guard.
    content = (
        contents(result.content, found["blocks"], request.version)
        if "blocks" in found
        else [TextContent("text", without_controls(result.content))]
    )
    shaped = CallResult(content, not result.success)
    if "structured" in found and _may_be_structured(found["structured"], request):
        shaped.structured = found["structured"]
    if request.modern:
        shaped.result_type, shaped.meta = "complete", meta
    return shaped


def _may_be_structured(value: Any, request: Request) -> bool:
    return request.modern or (request.version >= STRUCTURED_SINCE and isinstance(value, dict))


def contents(text: str, blocks: tuple[Block, ...], version: str) -> list[Any]:
    """Return the text and the blocks as the client knows them; the text once, if the blocks say the same."""
    shown = [as_content(block, version) for block in blocks]
    if text == blocks_text(blocks):
        return shown
    return [TextContent("text", without_controls(text)), *shown]


def without_controls(text: str) -> str:
    """Take out what could steer a terminal; tabs, line ends and form feeds are text."""
    return text if _CONTROLS.search(text) is None else _CONTROLS.sub("", text)


def as_content(block: Block, version: str) -> Any:
    """Return one block on the wire; kinds that the client's revision lacks become text."""
    if (isinstance(block, AudioBlock) and version < AUDIO_SINCE) or (
        isinstance(block, ResourceLink) and version < LINKS_SINCE
    ):
        return TextContent("text", blocks_text((block,)))
    content = _content(block)
    if block.annotations:
        content["annotations"] = block.annotations
    return content


def _content(block: Block) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": without_controls(block.text)}
    if isinstance(block, ImageBlock | AudioBlock):
        kind = "image" if isinstance(block, ImageBlock) else "audio"
        return {"type": kind, "data": b64encode(block.data).decode(), "mimeType": block.mime_type}
    if isinstance(block, ResourceBlock):
        return {"type": "resource", "resource": resource_content(block.uri, block.content, block.mime_type)}
    link = {"type": "resource_link", "uri": block.uri, "name": block.name}
    if block.description:
        link["description"] = block.description
    return link if block.mime_type is None else {**link, "mimeType": block.mime_type}


def resource_content(uri: str, content: str | bytes, mime_type: str | None) -> dict[str, Any]:
    """Return the content of a resource on the wire."""
    named = {"uri": uri} if mime_type is None else {"uri": uri, "mimeType": mime_type}
    if isinstance(content, str):
        return {**named, "text": content}
    return {**named, "blob": b64encode(content).decode()}
