"""Turn the result of a remote tool into an output of ours: checked, bounded, unable to steer a terminal."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.mcp.foreign.invisibles import tame
from gramercy.tools.content import (
    AudioBlock,
    Block,
    ImageBlock,
    ResourceBlock,
    ResourceLink,
    TextBlock,
    ToolOutput,
    blocks_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_TEXT = 100_000
MOST_BYTES = 8 * 1024 * 1024
MOST_BLOCKS = 100
LONGEST_LINE = 2_000
LARGEST_STRUCTURE = 256 * 1024
_MIME = re.compile(r"[\w.+-]{1,80}/[\w.+-]{1,80}", re.ASCII)


def read_result(result: Mapping[str, Any]) -> ToolOutput:
    """Return the output of a call; a result that says it is an error becomes one of ours."""
    reader = _Reader()
    items = result.get("content")
    listed = items if isinstance(items, list) else []
    blocks = [reader.block(item) for item in listed[:MOST_BLOCKS]]
    if len(listed) > MOST_BLOCKS:
        blocks.append(TextBlock(f"… [{len(listed) - MOST_BLOCKS:,} more pieces of content were left out]"))
    structured = _structure(result.get("structuredContent"))
    if not blocks and structured is not None:
        blocks = [reader.text(msgspec.json.encode(structured).decode())]
    text = blocks_text(tuple(blocks))
    is_rich = any(not isinstance(block, TextBlock) for block in blocks)
    shown = tuple(blocks) if is_rich else ()
    if result.get("isError") is True:
        return ToolOutput(None, error=text or "the remote tool failed and gave no reason", blocks=shown)
    return ToolOutput(None if is_rich else text, blocks=shown, structured=structured)


def _structure(value: object) -> Any:
    """Return structured content that is not too large; the text says the same."""
    if not isinstance(value, dict) or len(msgspec.json.encode(value)) > LARGEST_STRUCTURE:
        return None
    return value


class _Reader:
    """Reads pieces of content as long as there is room."""

    def __init__(self) -> None:
        self._characters = LONGEST_TEXT
        self._bytes = MOST_BYTES

    def block(self, item: object) -> Block:
        """Return one piece; what cannot be used becomes a line that says so."""
        if not isinstance(item, dict):
            return TextBlock("[a piece of content that is no object]")
        kind = item.get("type")
        if kind == "text":
            return self.text(item.get("text"))
        if kind in ("image", "audio"):
            return self._media(item, ImageBlock if kind == "image" else AudioBlock)
        if kind == "resource_link":
            name, description = _line(item.get("name")), _line(item.get("description"))
            return ResourceLink(_line(item.get("uri")), name, description, _mime(item.get("mimeType"), None))
        if kind == "resource" and isinstance(item.get("resource"), dict):
            return self._resource(item["resource"])
        return TextBlock(f"[a piece of content of an unknown kind, {_line(kind)[:60]!r}]")

    def text(self, text: object) -> TextBlock:
        """Return a text, cut where there is no more room."""
        return TextBlock(self._cut(text))

    def _cut(self, text: object) -> str:
        if not isinstance(text, str):
            return "[a text that is no text]"
        kept = text[: self._characters]
        self._characters -= len(kept)
        if len(kept) == len(text):
            return tame(text)
        return f"{tame(kept)}\n… [output cut: {len(kept):,} of {len(text):,} characters shown]"

    def _media(self, item: Mapping[str, Any], block: type[ImageBlock | AudioBlock]) -> Block:
        data = self._decoded(item.get("data"))
        if isinstance(data, str):
            return TextBlock(f"[{data}]")
        return block(data, _mime(item.get("mimeType"), "application/octet-stream"))

    def _resource(self, resource: Mapping[str, Any]) -> Block:
        uri, mime = _line(resource.get("uri")), _mime(resource.get("mimeType"), None)
        if "text" in resource:
            return ResourceBlock(uri, self._cut(resource["text"]), mime)
        data = self._decoded(resource.get("blob"))
        return (
            TextBlock(f"[resource {uri}: {data}]")
            if isinstance(data, str)
            else ResourceBlock(uri, data, mime)
        )

    def _decoded(self, text: object) -> bytes | str:
        """Return bytes, or what is wrong with them."""
        try:
            data = base64.b64decode(text if isinstance(text, str) else "!", validate=True)
        except (binascii.Error, ValueError):
            return "data that is not Base64"
        if len(data) > self._bytes:
            return f"{len(data):,} bytes were left out: a result may have {MOST_BYTES:,}"
        self._bytes -= len(data)
        return data


def _line(text: object) -> str:
    return tame(text)[:LONGEST_LINE] if isinstance(text, str) else ""


def _mime(text: object, otherwise: Any) -> Any:
    return text if isinstance(text, str) and _MIME.fullmatch(text) else otherwise
