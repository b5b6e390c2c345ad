"""What a handler may return beside a plain value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A value together with an error."""

    value: Any
    error: str | None = None
