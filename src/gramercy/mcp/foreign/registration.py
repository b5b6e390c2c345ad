"""Register the accepted tools of another server, guarded like any other tool, and read their results.

The server's statements about itself decide nothing: the safety level is ours, only accepted definitions are
shown, and results are checked, bounded and cannot control a terminal.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import ForeignError, InvalidToolError
from gramercy.images.pictures import raster_format
from gramercy.mcp.foreign.definitions import DEEPEST, Listing, Review, Standing, is_too_deep, review_tools
from gramercy.mcp.foreign.pins import PinFile
from gramercy.mcp.foreign.server import LISTING, STARTING
from gramercy.text import listed, reveal_line, tame
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
from gramercy.tools.context import current_call
from gramercy.tools.definition import create_tool
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gramercy.mcp.foreign.definitions import Definition
    from gramercy.mcp.foreign.server import ForeignServer
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Tool

# The longest name of a tool that providers of models allow.
LONGEST_NAME = 64
CATEGORY = "foreign"
# About 25,000 tokens: a longer result only pushes other content out of a model's context.
LONGEST_TEXT = 100_000
# Images and sounds in one result, decoded: several screenshots.
MOST_BYTES = 8 * 1024 * 1024
MOST_BLOCKS = 100
# Names of tools in one line of a report.
MOST_NAMED = 20
# The length of a name, description or address within a result.
LONGEST_LINE = 2_000
# Structured content repeats the text for programs; it is left out if it is larger.
LARGEST_STRUCTURE = 256 * 1024
_MIME = re.compile(r"[\w.+-]{1,80}/[\w.+-]{1,80}", re.ASCII)


class RemoteHandler:
    """Calls one tool of another server, as long as its definition is the accepted one."""

    def __init__(self, server: ForeignServer, definition: Definition) -> None:
        self.server = server
        self.definition = definition

    async def __call__(self, arguments: dict[str, Any]) -> ToolOutput:
        """Make the call; its progress goes to the caller of this tool."""
        definition = self.definition
        report = current_call().report
        return read_result(
            await self.server.acall(definition.name, arguments, digest=definition.digest, progress=report)
        )

    def state(self, arguments: Mapping[str, Any]) -> str:
        """Return the state that an approval is tied to: the definition that was last seen."""
        del arguments
        return self.server.digest_of(self.definition.name) or self.definition.digest


@dataclass(frozen=True, slots=True)
class Registration:
    """The result of registering a server's tools: the registered names, how each tool stands, notices."""

    server: str
    registered: tuple[str, ...]
    reviews: tuple[Review, ...]
    notices: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return a few lines that say which tools were refused, and why."""
        told = []
        for standing in (Standing.NEW, Standing.CHANGED, Standing.REMOVED, Standing.UNUSABLE):
            names = [reveal_line(review.tool) for review in self.reviews if review.standing is standing]
            if names:
                told.append(f"{self.server}: {_MEANINGS[standing]}: {listed(names, MOST_NAMED, counts=True)}")
        return [*told, *self.notices]


_MEANINGS = {
    Standing.NEW: "refused until you accept them (gramercy foreign accept)",
    Standing.CHANGED: "changed since you accepted them, refused until you accept the change",
    Standing.REMOVED: "accepted, but no longer there",
    Standing.UNUSABLE: "unusable",
}


def register_foreign(  # noqa: PLR0913 - what decides about a server's tools is said at the call, by name
    registry: Registry,
    server: ForeignServer,
    *,
    pins: PinFile | str | Path | None = None,
    level: Safety | str = Safety.DANGEROUS,
    rules: Mapping[str, Safety | str] | None = None,
    defer: bool = False,
) -> Registration:
    """Register the accepted tools of a server as `server__tool`; refuse and report all others.

    `rules` gives single tools, by their exact name at the server, another level. With `defer` the server is
    not asked: the accepted definitions are registered, and checked against the server at the first call.
    """
    accepted = (pins if isinstance(pins, PinFile) else PinFile(pins)).accepted(server.name)
    listing = Listing(accepted, {}) if defer else server.listing()
    reviews = review_tools(server.name, listing, accepted)
    levels = _Levels(Safety.parse(level), {name: Safety.parse(word) for name, word in (rules or {}).items()})
    notices = [
        f"{server.name}: the rule for {reveal_line(name)} has no effect: there is no such tool"
        for name in levels.rules
        if name not in listing.definitions
    ]
    tools = _tools(registry, server, reviews, levels, notices)
    registry.register_all(tools)
    return Registration(server.name, tuple(tool.name for tool in tools), tuple(reviews), tuple(notices))


@dataclass(frozen=True, slots=True)
class _Levels:
    otherwise: Safety
    rules: Mapping[str, Safety]

    def of(self, tool: str) -> Safety:
        return self.rules.get(tool, self.otherwise)


def _tools(
    registry: Registry, server: ForeignServer, reviews: list[Review], levels: _Levels, notices: list[str]
) -> list[Tool]:
    """Make the accepted tools; a tool whose name is taken is refused, with a notice."""
    usable = [review.offered for review in reviews if review.standing is Standing.ACCEPTED and review.offered]
    names = [registered_name(server.name, definition.name) for definition in usable]
    made: list[Tool] = []
    for definition, name in zip(usable, names, strict=True):
        try:
            _check_free(name, names, registry.get(name), server, definition)
            made.append(_tool(name, server, definition, levels.of(definition.name)))
        except (InvalidToolError, ForeignError) as error:
            notices.append(
                f"{server.name}: {reveal_line(definition.name)} is refused: {reveal_line(str(error))}"
            )
    return made


def registered_name(server: str, tool: str) -> str:
    """Return the name under which a remote tool is registered; providers take 64 letters, digits, - and _."""
    name = f"{server}__{re.sub('[^a-zA-Z0-9_-]', '_', tool)}"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def _tool(name: str, server: ForeignServer, definition: Definition, level: Safety) -> Tool:
    handler = RemoteHandler(server, definition)
    return create_tool(
        name,
        definition.description,
        definition.schema,
        handler,
        safety_level=level,
        categories=(CATEGORY, server.name),
        # The server's own limit comes first, and has the better message.
        deadline=server.timeout + 2 * STARTING + LISTING,
        target_state=handler.state,
    )


def _check_free(
    name: str, names: list[str], taken: Tool | None, server: ForeignServer, definition: Definition
) -> None:
    if names.count(name) > 1:
        raise ForeignError(f"several tools would be named {name}")
    if taken is not None and not _is_same(taken, server, definition):
        raise ForeignError(f"{name} is registered already, by another")


def _is_same(tool: Tool, server: ForeignServer, definition: Definition) -> bool:
    handler = tool.handler
    return (
        isinstance(handler, RemoteHandler)
        and handler.server.name == server.name
        and handler.definition.name == definition.name
    )


def read_result(result: Mapping[str, Any]) -> ToolOutput:
    """Return the output of a call; a result that says it is an error becomes an error of ours."""
    reader = _Reader()
    items = result.get("content")
    listed = items if isinstance(items, list) else []
    blocks = [reader.block(item) for item in listed[:MOST_BLOCKS]]
    if len(listed) > MOST_BLOCKS:
        blocks.append(TextBlock(f"… [{len(listed) - MOST_BLOCKS:,} more pieces of content were left out]"))
    structured = _structure(result.get("structuredContent"))
    if is_too_deep(result.get("structuredContent")):
        blocks.append(TextBlock(f"[structured content was left out: it is nested more than {DEEPEST} deep]"))
    if not blocks and structured is not None:
        blocks = [reader.text(msgspec.json.encode(structured).decode())]
    text = blocks_text(tuple(blocks))
    is_rich = any(not isinstance(block, TextBlock) for block in blocks)
    shown = tuple(blocks) if is_rich else ()
    if result.get("isError") is True:
        return ToolOutput(None, error=text or "the remote tool failed and gave no reason", blocks=shown)
    return ToolOutput(None if is_rich else text, blocks=shown, structured=structured)


def _structure(value: object) -> Any:
    """Return structured content unless it is too large; the text says the same."""
    if not isinstance(value, dict) or is_too_deep(value):
        return None
    return value if len(msgspec.json.encode(value)) <= LARGEST_STRUCTURE else None


class _Reader:
    """Reads pieces of content while there is room."""

    def __init__(self) -> None:
        self._characters = LONGEST_TEXT
        self._bytes = MOST_BYTES

    def block(self, item: object) -> Block:
        """Return one piece; an unusable piece becomes a line that says so."""
        if not isinstance(item, dict):
            return TextBlock("[a piece of content that is no object]")
        kind = item.get("type")
        if kind == "text":
            return self.text(item.get("text"))
        if kind in ("image", "audio"):
            return self._picture(item) if kind == "image" else self._sound(item)
        if kind == "resource_link":
            name, description = _line(item.get("name")), _line(item.get("description"))
            return ResourceLink(_line(item.get("uri")), name, description, _mime(item.get("mimeType"), None))
        if kind == "resource" and isinstance(item.get("resource"), dict):
            return self._resource(item["resource"])
        return TextBlock(f"[a piece of content of an unknown kind, {_line(kind)[:60]!r}]")

    def text(self, text: object) -> TextBlock:
        """Return a text, cut to the remaining room."""
        return TextBlock(self._cut(text))

    def _cut(self, text: object) -> str:
        if not isinstance(text, str):
            return "[a text that is no text]"
        kept = text[: self._characters]
        self._characters -= len(kept)
        if len(kept) == len(text):
            return tame(text)
        return f"{tame(kept)}\n… [output cut: {len(kept):,} of {len(text):,} characters shown]"

    def _picture(self, item: Mapping[str, Any]) -> Block:
        """Return a bitmap image, with the type that its bytes show instead of the declared one."""
        data = self._decoded(item.get("data"))
        if isinstance(data, str):
            return TextBlock(f"[{data}]")
        mime = raster_format(data)
        return TextBlock(f"[{_no_pixels(item)}]") if mime is None else ImageBlock(data, mime)

    def _sound(self, item: Mapping[str, Any]) -> Block:
        data = self._decoded(item.get("data"))
        if isinstance(data, str):
            return TextBlock(f"[{data}]")
        mime = _mime(item.get("mimeType"), "application/octet-stream")
        return AudioBlock(data, mime if mime.startswith("audio/") else "application/octet-stream")

    def _resource(self, resource: Mapping[str, Any]) -> Block:
        uri, mime = _line(resource.get("uri")), _mime(resource.get("mimeType"), None)
        claims_picture = mime is not None and mime.lower().startswith("image/")
        if "text" in resource:
            # An image that is text is SVG: as text it can be read, and no program runs its content.
            return ResourceBlock(uri, self._cut(resource["text"]), "text/plain" if claims_picture else mime)
        data = self._decoded(resource.get("blob"))
        if claims_picture and not isinstance(data, str):
            mime = raster_format(data)
            data = data if mime is not None else _no_pixels(resource)
        return (
            TextBlock(f"[resource {uri}: {data}]")
            if isinstance(data, str)
            else ResourceBlock(uri, data, mime)
        )

    def _decoded(self, text: object) -> bytes | str:
        """Return the bytes, or a text that says what is wrong with them."""
        try:
            data = base64.b64decode(text if isinstance(text, str) else "!", validate=True)
        except (binascii.Error, ValueError):
            return "data that is not Base64"
        if len(data) > self._bytes:
            return f"{len(data):,} bytes were left out: a result may have {MOST_BYTES:,}"
        self._bytes -= len(data)
        return data


def _no_pixels(item: Mapping[str, Any]) -> str:
    said = _mime(item.get("mimeType"), "nothing of its type")
    return (
        f"a picture was left out: only PNG, JPEG, GIF and WebP are passed on, since others, such as SVG, can "
        f"hold code; the server said {said}"
    )


def _line(text: object) -> str:
    return tame(text)[:LONGEST_LINE] if isinstance(text, str) else ""


def _mime(text: object, otherwise: Any) -> Any:
    return text if isinstance(text, str) and _MIME.fullmatch(text) else otherwise
