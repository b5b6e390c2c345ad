"""Run calls in the live process, one at a time, and find the way back when it dies."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import ImageError, ImageGoneError, ImageProtocolError
from gramercy.images import deaths
from gramercy.images.awaiting import EndedByForceError, Wait, with_output
from gramercy.images.base import HistoryEntry, ImageFault, Reply
from gramercy.images.handover import on_a_thread, waiting_threads
from gramercy.images.housekeeping import housekeeper
from gramercy.images.limits import with_memory_hint
from gramercy.images.mirror import Printed

if TYPE_CHECKING:
    from gramercy.images.calls import Call
    from gramercy.images.family import Family
    from gramercy.images.lineage import Lineage

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
