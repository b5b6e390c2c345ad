"""Do work on another thread, so that the one that has the terminal can go on waiting for its person."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

RETRY_SECONDS = 0.05


def in_background(work: Callable[[], T]) -> Future[T]:
    """Start work on a thread that does not keep the program from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is taken
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def stoppable(work: Callable[[], T], stop: Callable[[], object]) -> T:
    """Return what the work returns; Ctrl-C stops it, again and again, and nothing of it is lost."""
    with _interrupts() as is_unwanted:
        future = in_background(work)
        while not wait([future], RETRY_SECONDS).done:
            if is_unwanted.is_set():
                stop()
    return future.result()


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C sets instead of raising, which might happen anywhere."""
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
