"""Wait until another process moves a call in the journal: woken by a doorbell, or by a poll if it is lost."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from gramercy.errors import JournalError
from gramercy.execution.callers import BLOCKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.execution.callers import Caller
    from gramercy.journal.base import CallRecord, Journal

# How long a lost doorbell can delay an answer.
POLL_SECONDS = 1.0


async def wait_for(  # noqa: PLR0913 - what to wait for, for whom, and until when
    journal: Journal,
    key: int,
    is_there: Callable[[CallRecord | None], bool],
    caller: Caller,
    *,
    seconds: float | None = None,
    look_at: float = 0.0,
) -> bool:
    """Wait until the record of a call satisfies `is_there`; False after a timeout.

    `look_at` is a time at which to look in any case. A failed read is retried: the database may restart, or a
    full disk may have room again.
    """
    until = None if seconds is None else monotonic() + seconds
    bells: Any = journal
    with bells.bell() as bell:
        while True:
            with suppress(JournalError):
                if is_there(journal.record(key)):
                    return True
            pause = POLL_SECONDS
            if look_at:
                pause = min(pause, max(0.001, look_at - time() + 0.001))
            if until is not None:
                pause = min(pause, until - monotonic())
            if pause <= 0:
                return False
            if caller is BLOCKING:
                bell.wait(pause)
            else:
                await bell.wait_async(pause)
