"""Arrays of messages, as 2025-03-26 had them: each is handled, and the answers come back in one array."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gramercy.mcp import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.mcp.base import Answer


def is_batch(frame: bytes) -> bool:
    """Tell whether a frame is an array."""
    return frame.lstrip()[:1] == b"["


def handle_batch(frame: bytes, handle: Callable[[bytes], Answer]) -> Answer:
    """Handle the messages of a batch one by one; those that wait do so side by side."""
    try:
        parts = wire.read_batch(frame)
    except wire.InvalidFrameError as error:
        return wire.failure(error, error.id)
    except wire.SilentFrameError:
        return None
    answers = [_handle_part(bytes(part), handle) for part in parts]
    if any(isinstance(answer, asyncio.Future) for answer in answers):
        return _gathered(answers)
    return _joined(answers)


def _handle_part(frame: bytes, handle: Callable[[bytes], Answer]) -> Answer:
    # An array in an array is no message, so nobody can nest them to exhaust the stack.
    if not is_batch(frame):
        return handle(frame)
    return wire.failure(wire.ProtocolError(wire.INVALID_REQUEST, "Invalid request: expected an object"))


def _joined(answers: list[Any]) -> bytes | None:
    present = [answer for answer in answers if answer is not None]
    return b"[" + b",".join(present) + b"]" if present else None


async def _gathered(answers: list[Any]) -> bytes | None:
    try:
        return _joined([await a if isinstance(a, asyncio.Future) else a for a in answers])
    finally:
        for answer in answers:
            if isinstance(answer, asyncio.Future):
                answer.cancel()
