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
from gramercy.images.deaths import with_memory_hint
from gramercy.images.evaluations import EndedByForceError, Wait, with_output
from gramercy.images.output import Printed

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.evaluations import Evaluation
    from gramercy.images.lifecycle import Lifecycle
    from gramercy.images.processes import Family

# How long an event loop may be held up in the hope that a thread is not needed.
MOMENT = 0.001
MOST_HISTORY = 50
LONGEST_CODE = 100_000
LOG_SHOWN = 1000


class Runner:
    """Runs what changes the state of an image; `lock` lets in one call at a time."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        # Not reentrant, since a call may be begun by one thread and ended by another.
        self.lock = threading.Lock()
        # The wait for what runs at this moment, in the live process or in the throw-away copy of a preview.
        self.wait: Wait | None = None
        self.history: deque[HistoryEntry] = deque(maxlen=MOST_HISTORY)

    async def arun(self, evaluation: Evaluation) -> Reply:
        """Run a call without holding up the event loop for longer than a moment."""
        if not self.lock.acquire(blocking=False):
            return await on_a_thread(partial(self.run, evaluation), evaluation.cancel)
        reply = None
        try:
            # On a busy server a thread is cheaper than a loop that stands still for a moment again and again.
            if waiting_threads() == 0 and self._lifecycle.is_ready_at_once():
                reply = self._briefly(evaluation)
        finally:
            if reply is not None or evaluation.wait is None:
                self.lock.release()
        if reply is not None:
            return reply
        rest = (
            partial(self.run, evaluation)
            if evaluation.wait is None
            else partial(self._finish_and_release, evaluation)
        )
        return await on_a_thread(rest, evaluation.cancel)

    def run(self, evaluation: Evaluation) -> Reply:
        """Run a call and wait for it."""
        with self.lock:
            if evaluation.is_cancelled:
                return Reply(ok=False, error=ImageFault("CANCELLED", "The call was taken back."))
            return self._begin(evaluation) or self._finish(evaluation)

    def _briefly(self, evaluation: Evaluation) -> Reply | None:
        """Begin a call, and end it too if that takes but a moment."""
        refused = self._begin(evaluation)
        if refused is not None or evaluation.wait is None:
            return refused
        try:
            reply = evaluation.wait.for_a_moment(Reply, MOMENT)
        except ImageError:
            return None  # the way back takes longer, and whoever waits for the call sees the same again
        return None if reply is None else self._finished(evaluation, reply)

    def _finish_and_release(self, evaluation: Evaluation) -> Reply:
        try:
            return self._finish(evaluation)
        finally:
            self.lock.release()

    def _begin(self, evaluation: Evaluation) -> Reply | None:
        """Send a call off; return a reply only when that is not possible."""
        lifecycle = self._lifecycle
        for _attempt in range(2):
            try:
                family, live = lifecycle.ready()
                evaluation.tag = lifecycle.new_tag(family)
                live.post(evaluation.fields())
            except ImageGoneError:
                # It must have ended after the last call: this one has not reached it.
                lifecycle.ended_between_calls()
                continue
            except ImageProtocolError as error:
                return Reply(ok=False, error=ImageFault("INVALID-CODE", str(error)))
            except ImageError as error:
                return Reply(ok=False, error=ImageFault("IMAGE-NOT-STARTED", str(error)))
            evaluation.wait = self.wait = Wait(live, family.mirror, evaluation.watch)
            if evaluation.is_cancelled:
                # Cancelled while it was being sent, when there was nothing yet to cut short.
                threading.Thread(target=evaluation.cancel, name="gramercy-cancel", daemon=True).start()
            return None
        return Reply(ok=False, error=ImageFault("IMAGE-NOT-STARTED", "the image ends whenever it starts"))

    def _finish(self, evaluation: Evaluation) -> Reply:
        wait, family = evaluation.wait, self._lifecycle.family
        assert wait is not None and family is not None, "a call is finished that was never begun"  # noqa: S101, PT018
        try:
            reply = wait.for_reply(Reply, evaluation.seconds)
        except ImageProtocolError as error:
            self.wait = None
            return Reply(ok=False, error=ImageFault("INVALID-REPLY", str(error)))
        except (ImageGoneError, EndedByForceError) as error:
            return self._remember(evaluation, self._after_death(family, error, evaluation))
        return self._finished(evaluation, reply)

    def _finished(self, evaluation: Evaluation, reply: Reply) -> Reply:
        lifecycle = self._lifecycle
        self.wait = None
        if reply.unchanged and reply.error is None and not lifecycle.notes:
            # Nearly all that is asked again and again, and nothing is to be said about it.
            lifecycle.looked(evaluation)
            return self._remember(evaluation, reply)
        more: dict[str, Any] = {}
        if lifecycle.notes:
            more["notes"], lifecycle.notes = [*lifecycle.notes, *reply.notes], []
            more["lost"], lifecycle.lost = lifecycle.lost, 0
        if reply.unchanged:
            lifecycle.looked(evaluation)
        else:
            unkept = lifecycle.changed(evaluation, reply)
            if unkept is None:
                housekeeper.later(self._tidy)
            else:
                more["unkept"] = unkept
                more["notes"] = [*more.get("notes", reply.notes), self._untaken(unkept)]
            self._add_log(more, reply)
        if reply.error is not None:
            more["error"] = self._explained(evaluation, reply.error)
        elif evaluation.wait is not None and evaluation.wait.is_late:
            more["notes"] = [*more.get("notes", reply.notes), deaths.caught(evaluation.seconds)]
        return self._remember(evaluation, msgspec.structs.replace(reply, **more) if more else reply)

    def _explained(self, evaluation: Evaluation, fault: ImageFault) -> ImageFault:
        """Say of a fault which limit it ran into, where it did."""
        if evaluation.wait is not None and evaluation.wait.is_late and fault.interrupted:
            return deaths.late(fault, evaluation.seconds)
        family = self._lifecycle.family
        return fault if family is None else with_memory_hint(fault, family.program)

    def _untaken(self, reason: str) -> str:
        """Say that no state was kept, and where that leaves an undo."""
        lifecycle = self._lifecycle
        standing = lifecycle.timeline.standing()
        if standing is None:
            return f"No state was kept after this call: {reason}."
        count = lifecycle.unkept
        if count == 1:
            return f"No state was kept after this call: {reason}. Undo goes back to {standing.shown()}."
        newest = f"The newest one is {standing.shown()}, {count} calls ago"
        return f"No state was kept after this call: {reason}. {newest}."

    def _add_log(self, more: dict[str, Any], reply: Reply) -> None:
        """Add what was printed past the streams of the evaluation."""
        family = self._lifecycle.family
        printed = family.log.news() if family is not None else ""
        if printed:
            more["log"] = reply.log + printed

    def _remember(self, evaluation: Evaluation, reply: Reply) -> Reply:
        if evaluation.op != "load_system":
            self.history.append(HistoryEntry(evaluation.code[:LONGEST_CODE], reply, time()))
        return reply

    def _after_death(self, family: Family, error: Exception, evaluation: Evaluation) -> Reply:
        """Bring the state before back, and say what happened."""
        lifecycle = self._lifecycle
        self.wait = None
        fate = deaths.Fate()
        if lifecycle.live is not None:
            if isinstance(error, ImageGoneError):
                fate = family.fate(lifecycle.live)
            family.kill(lifecycle.live)
        printed = evaluation.wait.printed() if evaluation.wait is not None else Printed()
        log = family.log.news(clean=False)
        restored = lifecycle.restore(family)
        notes, lost = [*lifecycle.notes, *restored.notes], lifecycle.lost + restored.lost
        lifecycle.notes, lifecycle.lost = [], 0
        if log.strip():
            notes.append(f"The last of its log: {log.strip()[-LOG_SHOWN:]}")
        fault = (
            deaths.died(log, fate) if isinstance(error, ImageGoneError) else deaths.killed(evaluation.seconds)
        )
        fault = with_memory_hint(fault, family.program)
        reply = Reply(ok=False, error=fault, elapsed_ms=evaluation.elapsed_ms(), notes=notes, lost=lost)
        return with_output(reply, printed)

    def _tidy(self) -> None:
        """Meet the checkpoint of the last call while nobody waits."""
        with self.lock:
            self._lifecycle.settle()


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
