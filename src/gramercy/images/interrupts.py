"""Handle Ctrl-C during operations that must not be interrupted halfway."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets. Raising an exception could interrupt any line.

    Ctrl-C interrupts only the main thread, so on other threads there is nothing to hold back.
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
    """Delay Ctrl-C until the end of the block."""
    with interrupts() as pressed:
        yield
    if pressed.is_set():
        signal.raise_signal(signal.SIGINT)
