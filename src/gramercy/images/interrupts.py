"""Ctrl-C that comes while something is done that must not be left half done."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C sets instead of raising, which might happen anywhere.

    Only the main thread is interrupted by it, so elsewhere there is nothing to hold back.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def unbroken() -> Iterator[None]:
    """Let Ctrl-C take effect when the block is over."""
    with interrupts() as pressed:
        yield
    if pressed.is_set():
        signal.raise_signal(signal.SIGINT)
