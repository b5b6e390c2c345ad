"""Run evaluations in the live process, one at a time, and restore a checkpoint when the process dies.

Called from plain code or from an event loop; in the second case a thread waits for whatever takes longer than
a moment.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from time import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gramercy.errors import ImageError, ImageGoneError, ImageProtocolError
from gramercy.images import deaths
from gramercy.images.base import HistoryEntry, ImageFault, Reply
from gramercy.images.evaluations import EndedByForceError, Wait, with_output
from gramercy.images.limits import with_memory_hint
from gramercy.images.output import Printed

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.evaluations import Call
    from gramercy.images.lineage import Lineage
    from gramercy.images.processes import Family

# How long an event loop may be held up in the hope that a thread is not needed.
MOMENT = 0.001
MOST_HISTORY = 50
LONGEST_CODE = 100_000
LOG_SHOWN = 1000


class Runner:
    """Runs what changes the state of an image; `lock` lets in one call at a time."""

    def __init__(self, lineage: Lineage) -> None:
        self._lineage = lineage
        # Not reentrant, since a call may be begun by one thread and ended by another.
        self.lock = threading.Lock()
        # The wait for what runs at this moment, in the live process or in the throw-away copy of a preview.
        self.wait: Wait | None = None
        self.history: deque[HistoryEntry] = deque(maxlen=MOST_HISTORY)

    async def arun(self, call: Call) -> Reply:
        """Run a call without holding up the event loop for longer than a moment."""
        if not self.lock.acquire(blocking=False):
            return await on_a_thread(partial(self.run, call), call.cancel)
        reply = None
        try:
            # On a busy server a thread is cheaper than a loop that stands still for a moment again and again.
            if waiting_threads() == 0 and self._lineage.is_ready_at_once():
                reply = self._briefly(call)
        finally:
            if reply is not None or call.wait is None:
                self.lock.release()
        if reply is not None:
            return reply
        rest = partial(self.run, call) if call.wait is None else partial(self._finish_and_release, call)
        return await on_a_thread(rest, call.cancel)

    def run(self, call: Call) -> Reply:
        """Run a call and wait for it."""
        with self.lock:
            if call.is_cancelled:
                return Reply(ok=False, error=ImageFault("CANCELLED", "The call was taken back."))
            return self._begin(call) or self._finish(call)

    def _briefly(self, call: Call) -> Reply | None:
        """Begin a call, and end it too if that takes but a moment."""
        refused = self._begin(call)
        if refused is not None or call.wait is None:
            return refused
        try:
            reply = call.wait.for_a_moment(Reply, MOMENT)
        except ImageError:
            return None  # the way back takes longer, and whoever waits for the call sees the same again
        return None if reply is None else self._finished(call, reply)

    def _finish_and_release(self, call: Call) -> Reply:
        try:
            return self._finish(call)
        finally:
            self.lock.release()

    def _begin(self, call: Call) -> Reply | None:
        """Send a call off; return a reply only when that is not possible."""
        lineage = self._lineage
        for _attempt in range(2):
            try:
                family, live = lineage.ready()
                call.tag = lineage.new_tag(family)
                live.post(call.fields())
            except ImageGoneError:
                # It must have ended after the last call: this one has not reached it.
                lineage.ended_between_calls()
                continue
            except ImageProtocolError as error:
                return Reply(ok=False, error=ImageFault("INVALID-CODE", str(error)))
            except ImageError as error:
                return Reply(ok=False, error=ImageFault("IMAGE-NOT-STARTED", str(error)))
            call.wait = self.wait = Wait(live, family.mirror, call.watch)
            if call.is_cancelled:
                # Cancelled while it was being sent, when there was nothing yet to cut short.
                threading.Thread(target=call.cancel, name="gramercy-cancel", daemon=True).start()
            return None
        return Reply(ok=False, error=ImageFault("IMAGE-NOT-STARTED", "the image ends whenever it starts"))

    def _finish(self, call: Call) -> Reply:
        wait, family = call.wait, self._lineage.family
        assert wait is not None and family is not None, "a call is finished that was never begun"  # noqa: S101, PT018
        try:
            reply = wait.for_reply(Reply, call.seconds)
        except ImageProtocolError as error:
            self.wait = None
            return Reply(ok=False, error=ImageFault("INVALID-REPLY", str(error)))
        except (ImageGoneError, EndedByForceError) as error:
            return self._remember(call, self._after_death(family, error, call))
        return self._finished(call, reply)

    def _finished(self, call: Call, reply: Reply) -> Reply:
        lineage = self._lineage
        self.wait = None
        if reply.unchanged and reply.error is None and not lineage.notes:
            # Nearly all that is asked again and again, and nothing is to be said about it.
            lineage.looked(call)
            return self._remember(call, reply)
        more: dict[str, Any] = {}
        if lineage.notes:
            more["notes"], lineage.notes = [*lineage.notes, *reply.notes], []
            more["lost"], lineage.lost = lineage.lost, 0
        if reply.unchanged:
            lineage.looked(call)
        else:
            unkept = lineage.changed(call, reply)
            if unkept is None:
                housekeeper.later(self._tidy)
            else:
                more["unkept"] = unkept
                more["notes"] = [*more.get("notes", reply.notes), self._untaken(unkept)]
            self._add_log(more, reply)
        if reply.error is not None:
            more["error"] = self._explained(call, reply.error)
        elif call.wait is not None and call.wait.is_late:
            more["notes"] = [*more.get("notes", reply.notes), deaths.caught(call.seconds)]
        return self._remember(call, msgspec.structs.replace(reply, **more) if more else reply)

    def _explained(self, call: Call, fault: ImageFault) -> ImageFault:
        """Say of a fault which limit it ran into, where it did."""
        if call.wait is not None and call.wait.is_late and fault.interrupted:
            return deaths.late(fault, call.seconds)
        family = self._lineage.family
        return fault if family is None else with_memory_hint(fault, family.program)

    def _untaken(self, reason: str) -> str:
        """Say that no state was kept, and where that leaves an undo."""
        lineage = self._lineage
        standing = lineage.timeline.standing()
        if standing is None:
            return f"No state was kept after this call: {reason}."
        count = lineage.unkept
        if count == 1:
            return f"No state was kept after this call: {reason}. Undo goes back to {standing.shown()}."
        newest = f"The newest one is {standing.shown()}, {count} calls ago"
        return f"No state was kept after this call: {reason}. {newest}."

    def _add_log(self, more: dict[str, Any], reply: Reply) -> None:
        """Add what was printed past the streams of the evaluation."""
        family = self._lineage.family
        printed = family.log.news() if family is not None else ""
        if printed:
            more["log"] = reply.log + printed

    def _remember(self, call: Call, reply: Reply) -> Reply:
        if call.op != "load_system":
            self.history.append(HistoryEntry(call.code[:LONGEST_CODE], reply, time()))
        return reply

    def _after_death(self, family: Family, error: Exception, call: Call) -> Reply:
        """Bring the state before back, and say what happened."""
        lineage = self._lineage
        self.wait = None
        fate = deaths.Fate()
        if lineage.live is not None:
            if isinstance(error, ImageGoneError):
                fate = family.fate(lineage.live)
            family.kill(lineage.live)
        printed = call.wait.printed() if call.wait is not None else Printed()
        log = family.log.news(clean=False)
        restored = lineage.restore(family)
        notes, lost = [*lineage.notes, *restored.notes], lineage.lost + restored.lost
        lineage.notes, lineage.lost = [], 0
        if log.strip():
            notes.append(f"The last of its log: {log.strip()[-LOG_SHOWN:]}")
        fault = deaths.died(log, fate) if isinstance(error, ImageGoneError) else deaths.killed(call.seconds)
        fault = with_memory_hint(fault, family.program)
        reply = Reply(ok=False, error=fault, elapsed_ms=call.elapsed_ms(), notes=notes, lost=lost)
        return with_output(reply, printed)

    def _tidy(self) -> None:
        """Meet the checkpoint of the last call while nobody waits."""
        with self.lock:
            self._lineage.settle()


T = TypeVar("T")


# As many as there are threads at work; adding and taking away one is a single step of the interpreter.
_waiting: list[None] = []


def waiting_threads() -> int:
    """Return how many threads are waiting for something at this moment."""
    return len(_waiting)


async def on_a_thread(work: Callable[[], T], cancel: Callable[[], object]) -> T:
    """Return what the work returns; when the waiting is cancelled, `cancel` is called on a thread too.

    Not on a pool: evaluations that take hours would hold up the rest of it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        _waiting.append(None)
        try:
            value = work()
        except Exception as error:  # noqa: BLE001 - carried over to whoever waits
            _tell(loop, future, error=error)
        else:
            _tell(loop, future, value=value)
        finally:
            _waiting.pop()

    # In the context of the call, so that the work can report to its caller.
    threading.Thread(target=copy_context().run, args=(run,), name="gramercy-image", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        threading.Thread(target=cancel, name="gramercy-cancel", daemon=True).start()
        raise


def _tell(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[T],
    *,
    value: T | None = None,
    error: Exception | None = None,
) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)  # type: ignore[arg-type]  # None only where T has it

    # The loop may have been closed by somebody who no longer waits.
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)


class Housekeeper:
    """Runs small chores in order, on a daemon thread that starts with the first one."""

    def __init__(self) -> None:
        self._chores: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = False

    def later(self, chore: Callable[[], None]) -> None:
        """Do something soon; it must not raise and must not take long."""
        if not self._started:
            self._start()
        self._chores.put(chore)

    def _start(self) -> None:
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="gramercy-housekeeping", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._chores.get()()


housekeeper = Housekeeper()
