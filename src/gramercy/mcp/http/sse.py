"""Server-sent events as bytes."""

from __future__ import annotations

HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
KEEPALIVE = b": still here\n\n"


def encode_event(message: bytes, event_id: str | None = None) -> bytes:
    """Return a message as one event."""
    head = f"id: {event_id}\n".encode() if event_id is not None else b""
    if b"\n" in message or b"\r" in message:
        # JSON needs no line breaks, so those that are there are spaces between tokens.
        message = message.replace(b"\r", b" ").replace(b"\n", b" ")
    return head + b"data: " + message + b"\n\n"


def encode_priming(event_id: str, retry_ms: int) -> bytes:
    """Return the empty event that tells a client from where, and how soon, to resume."""
    return f"id: {event_id}\nretry: {retry_ms}\ndata: \n\n".encode()


def encode_retry(retry_ms: int) -> bytes:
    """Return the field that tells a client how soon to come back."""
    return f"retry: {retry_ms}\n\n".encode()


def split_event_id(text: bytes) -> tuple[int, int] | None:
    """Return stream and place of an event id, or None for one that was never given."""
    stream, dash, place = text.partition(b"-")
    if not (dash and stream.isdigit() and place.isdigit() and len(text) <= 40):  # noqa: PLR2004 - two numbers
        return None
    return int(stream), int(place)
