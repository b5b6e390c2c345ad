"""The results of a handler: a plain value, or a ToolOutput with blocks of other content beside the text.

Resources and prompts return the same blocks. This module knows no wire format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from typing import Self


class TextBlock(msgspec.Struct, frozen=True):
    """A piece of text."""

    text: str
    annotations: dict[str, Any] = msgspec.field(default_factory=dict)


class ImageBlock(msgspec.Struct, frozen=True):
    """An image as bytes."""

    data: bytes
    mime_type: str
    annotations: dict[str, Any] = msgspec.field(default_factory=dict)


class AudioBlock(msgspec.Struct, frozen=True):
    """A sound as bytes."""

    data: bytes
    mime_type: str
    annotations: dict[str, Any] = msgspec.field(default_factory=dict)


class ResourceBlock(msgspec.Struct, frozen=True):
    """The content of a resource itself: text or bytes."""

    uri: str
    content: str | bytes
    mime_type: str | None = None
    annotations: dict[str, Any] = msgspec.field(default_factory=dict)


class ResourceLink(msgspec.Struct, frozen=True):
    """The address of a resource that can be read later."""

    uri: str
    name: str
    description: str = ""
    mime_type: str | None = None
    annotations: dict[str, Any] = msgspec.field(default_factory=dict)


Block: TypeAlias = TextBlock | ImageBlock | AudioBlock | ResourceBlock | ResourceLink


def blocks_text(blocks: tuple[Block, ...]) -> str:
    """Describe the blocks in text, for callers that can show only text."""
    return "\n".join(map(_block_text, blocks))


def _block_text(block: Block) -> str:
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, ImageBlock | AudioBlock):
        kind = "image" if isinstance(block, ImageBlock) else "audio"
        return f"[{kind}: {block.mime_type}, {len(block.data):,} bytes]"
    if isinstance(block, ResourceLink):
        return f"[resource {block.name}: {block.uri}]"
    if isinstance(block.content, str):
        return f"[resource {block.uri}]\n{block.content}"
    return f"[resource {block.uri}: {len(block.content):,} bytes]"


class RunFacts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where a call ran and what it changed, for the journal; an empty field is unknown or does not apply.

    `image` is the handle of an image, `epoch` names its state at the end of the call; `before` and `after`
    are the stored states before and after it. `sandbox` is the confinement in force, `files` are the changed
    files: `created notes.txt`.
    """

    image: str = ""
    epoch: str = ""
    before: str = ""
    after: str = ""
    sandbox: str = ""
    files: tuple[str, ...] = ()


class ToolOutput(msgspec.Struct, frozen=True):
    """A value together with an error, or with more than text.

    The text of `value` is always there and sufficient. Callers that can show images, sounds and resources
    show `blocks` after it (instead of it if it is None). `structured` is the same as JSON, for programs: give
    it only if it is complete without the text. `facts` go to the journal. `note` comes after the text: over
    MCP as a text block of its own, so that the first block is only the value.
    """

    value: Any
    error: str | None = None
    blocks: tuple[Block, ...] = ()
    structured: Any = None
    facts: RunFacts | None = None
    note: str = ""


class TextWithFacts(str):
    """A text that is a handler's whole result, with facts for the journal; others see only the text."""

    __slots__ = ("facts",)

    facts: RunFacts

    def __new__(cls, text: str, facts: RunFacts) -> Self:
        """Attach facts to a text."""
        made = super().__new__(cls, text)
        made.facts = facts
        return made


class Ended(msgspec.Struct, frozen=True):
    """The result of a cancelled handler whose work is known to have ended.

    A handler puts it into the arguments of the cancellation that it re-raises.
    """

    value: Any


def with_facts(value: Any, facts: RunFacts) -> Any:
    """Return a handler's result with facts, unless it has some; only texts and outputs can have facts."""
    if type(value) is str:
        return TextWithFacts(value, facts)
    if isinstance(value, ToolOutput) and value.facts is None:
        return msgspec.structs.replace(value, facts=facts)
    return value


def facts_of(value: Any) -> RunFacts | None:
    """Return the facts of a handler's result."""
    return value.facts if isinstance(value, ToolOutput | TextWithFacts) else None
