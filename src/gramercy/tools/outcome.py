"""What a handler may return beside a plain value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gramercy.tools.content import Block


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A value together with an error, or with more than text.

    The text of `value` is always there and sufficient. `blocks` are shown after it (instead of it when it is
    None) by callers who can show pictures, sounds and resources; `structured` is the same as JSON, for those
    who compute with it: give it only when it is complete without the text.
    """

    value: Any
    error: str | None = None
    blocks: tuple[Block, ...] = ()
    structured: Any = None
