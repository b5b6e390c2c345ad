"""Run evaluations in the live process, one at a time, and restore a checkpoint when the process dies.

Called from plain code or from an event loop; in the second case a thread waits for whatever takes longer than
a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from time import monotonic, perf_counter, time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import force_setattr

from gramercy.errors import ImageError, ImageGoneError, ImageProtocolError
from gramercy.images import deaths
from gramercy.images.attempts import Declined, attempt_of, joined, printed_by
from gramercy.images.base import HistoryEntry, ImageFault, Reply, Span
from gramercy.images.checkpoints import epochs
from gramercy.images.connection import Wait, with_output
from gramercy.images.descriptors import Turn, told_scarcity
from gramercy.images.files.ledger import NOTHING, Call
from gramercy.images.lines import Lines
from gramercy.images.output import Printed
from gramercy.images.pictures import without_pictures
from gramercy.images.present import MEETING_SECONDS
from gramercy.images.processes import TURN_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.connection import Connection, Evaluation
    from gramercy.images.lifecycle import Lifecycle, Restored
    from gramercy.images.processes import Family

T = TypeVar("T")

# How long the event loop may block for a reply: most come within it, and a thread would cost more.
MOMENT = 0.001
# The same for a call that follows a change at once: its process forks first, which takes 1 to 2 ms.
FORK_MOMENT = 0.004
# How long after a reply its checkpoint is accepted: the client has read it by then, and the copy has come.
SETTLE_SECONDS = 0.005
# The history is shown to people and models: what is longer is not read.
MOST_HISTORY = 50
LONGEST_CODE = 100_000
# Characters of the log in the note about a death: the last lines say why, the whole is not for a model.
LOG_SHOWN = 1000
KEPT_AGAIN = "States are kept again."
# The type of the fault of an image whose call was not run, as an edited file failed.
TAKE_UP_FAILED = "TakeUpFailed"


class Runner:
    """Runs evaluations in one image; `lock` is held during each of them."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.lifecycle = lifecycle
        # Not reentrant: `arun` acquires it on the event loop and may release it on another thread.
        self.lock = Turn()
        # For `interrupt`: the wait for what runs now, in the live process or in the copy of a preview.
        self.wait: Wait | None = None
        # For `look`: the lock is held for a moment, and nothing runs.
        self.is_settling = False
        # Edits that failed while they were taken up: no process tries them again.
        self.declined = Declined()
        self.history: deque[HistoryEntry] = deque(maxlen=MOST_HISTORY)

    async def arun(self, evaluation: Evaluation) -> Reply:
        """Run an evaluation from a task."""
        begun = self.begin(evaluation)
        return begun if type(begun) is Reply else await begun  # type: ignore[misc]

    def begin(self, evaluation: Evaluation) -> Reply | asyncio.Future[Reply]:
        """Begin an evaluation on the event loop, which blocks for a moment at most; a thread does the rest.

        The reply itself saves a call that is over by then the layers of coroutines that a wait needs.
        """
        if not self.lock.acquire(blocking=False):
            return on_a_thread(partial(self.run, evaluation), evaluation.cancel)
        reply = None
        try:
            # While other evaluations wait on threads, a blocked loop would delay their replies.
            if not _waiting and self.lifecycle.is_ready_at_once():
                reply = self._begin(evaluation) or self._within_a_moment(evaluation)
        finally:
            if reply is not None or evaluation.wait is None:
                self.lock.release()
        if reply is not None:
            if self.lifecycle.promised:
                # A timer costs as much as the rest of this function: it is set when the reply is written.
                asyncio.get_running_loop().call_soon(self._settle_later)
            return reply
        rest = (
            partial(self.run, evaluation)
            if evaluation.wait is None
            else partial(self._finish_and_release, evaluation)
        )
        return on_a_thread(rest, evaluation.cancel)

    def run(self, evaluation: Evaluation) -> Reply:
        """Run an evaluation and wait for its reply."""
        with self.lock:
            if evaluation.is_cancelled:
                return Reply(ok=False, error=ImageFault("CANCELLED", "The call was taken back."))
            try:
                reply = self._begin(evaluation) or self._finish(evaluation)
            finally:
                evaluation.hang_up()
        if self.lifecycle.promised:
            background.later(self._settle)
        return reply

    def _within_a_moment(self, evaluation: Evaluation) -> Reply | None:
        """Return the reply to an evaluation that was sent, if it comes within a moment."""
        wait = evaluation.wait
        assert wait is not None, "a call is waited for that was never begun"  # noqa: S101
        try:
            reply = wait.connection.receive_reply(Reply, FORK_MOMENT if self.lifecycle.promised else MOMENT)
        except ImageError:
            return None  # restoring takes longer: `_finish`, on a thread, gets the same error again
        if reply is None:
            return None
        wait.end()
        return self._settled(evaluation, reply)

    def _finish_and_release(self, evaluation: Evaluation) -> Reply:
        try:
            reply = self._finish(evaluation)
        finally:
            self.lock.release()
        if self.lifecycle.promised:
            background.later(self._settle)
        return reply

    def _begin(self, evaluation: Evaluation) -> Reply | None:
        """Send an evaluation; return a reply only where that is not possible."""
        lifecycle = self.lifecycle
        for _attempt in range(2):
            try:
                if lifecycle.is_behind and lifecycle.is_due():
                    lifecycle.catch_up()
                family, live = lifecycle.ready_to_run()
                if family.sentry is not None:
                    lifecycle.notes += family.sentry.begin()
                self._provide(evaluation, family, live)
                files = lifecycle.files
                if files is not None and files.is_stirred:
                    files.begin(live.pid)
                elif files is not None:
                    files.call = Call(perf_counter(), live.pid)
                live.post(evaluation.fields())
            except ImageGoneError:
                # The process ended after its last reply, so this request has not run.
                lifecycle.lost_tag(evaluation)
                lifecycle.jobs.forget(evaluation.job)
                lifecycle.ended_between_calls()
                continue
            except ImageProtocolError as error:
                lifecycle.lost_tag(evaluation)
                return Reply(ok=False, error=ImageFault("INVALID-CODE", str(error)))
            except (ImageError, OSError) as error:
                lifecycle.lost_tag(evaluation)
                return Reply(ok=False, error=ImageFault("IMAGE-NOT-STARTED", told_scarcity(error)))
            evaluation.wait = self.wait = Wait(
                live, family.mirror, evaluation.watch, evaluation.op, evaluation.code, evaluation.lines
            )
            if evaluation.is_cancelled:
                # Cancelled while it was being sent, when there was no wait to cut short yet.
                threading.Thread(target=evaluation.cancel, name="gramercy-cancel", daemon=True).start()
            return None
        return Reply(ok=False, error=ImageFault("IMAGE-NOT-STARTED", "the image ends whenever it starts"))

    def _provide(self, evaluation: Evaluation, family: Family, live: Connection) -> None:
        """Give an evaluation what it takes along: names for copies of its process, a place for a job."""
        lifecycle = self.lifecycle
        evaluation.tag = lifecycle.new_tag(family)
        evaluation.keep = lifecycle.moment_tag or lifecycle.new_moment_tag(family)
        evaluation.began = lifecycle.span()
        if self.declined.marks:
            self.declined.tell(evaluation, live)
        evaluation.back = family.program.language == "python" and bool(evaluation.began.after)
        if evaluation.typist is not None:
            evaluation.hang_up()
            evaluation.lines = Lines(evaluation.typist, live)
        if evaluation.op == "start_job":
            evaluation.job = lifecycle.jobs.begin(evaluation.code, family.mirror, live)

    def _finish(self, evaluation: Evaluation) -> Reply:
        wait, family = evaluation.wait, self.lifecycle.family
        assert wait is not None and family is not None, "a call is finished that was never begun"  # noqa: S101, PT018
        try:
            reply = self._soon(wait, evaluation.seconds) if self.lifecycle.promised else None
            if reply is None:
                reply = wait.for_reply(Reply, evaluation.seconds)
        except ImageProtocolError as error:
            return self._restored(family, evaluation, deaths.broken(error))
        except ImageGoneError:
            return self._restored(family, evaluation)
        except OSError as error:
            raise ImageError(told_scarcity(error)) from error
        if reply is None:
            return self._restored(family, evaluation, deaths.killed(evaluation.seconds))
        return self._settled(evaluation, reply)

    def _settled(self, evaluation: Evaluation, reply: Reply) -> Reply:
        if reply.spoiled:
            return self._without_edits(evaluation, reply)
        return self._finished(evaluation, reply)

    def _soon(self, wait: Wait, seconds: float) -> Reply | None:
        """Return a reply that comes soon; else accept the copies that were promised before.

        A call that takes long may be ended by the watch over the bounds, which spares only copies it knows.
        """
        deadline = min(monotonic() + MEETING_SECONDS, wait.started + seconds)
        while monotonic() < deadline:
            reply = wait.connection.receive_reply(Reply, TURN_SECONDS)
            if reply is not None:
                wait.end()
                return reply
            if self.lifecycle.collect():
                break
        return None

    def _finished(self, evaluation: Evaluation, reply: Reply) -> Reply:
        lifecycle = self.lifecycle
        self.wait = None
        lifecycle.look_around()
        reply = self._with_jobs(evaluation, reply) if lifecycle.jobs.runs else reply
        account, files = NOTHING, lifecycle.files
        if files is not None and files.is_stirred:
            account = files.finish()
        elif files is not None:
            files.call = None
        is_plain = reply.unchanged and reply.error is None and not lifecycle.notes and account is NOTHING
        if is_plain and not lifecycle.told_reason:
            # The short way for what only looks, and no threads run: nothing to keep and nothing to add.
            lifecycle.looked(evaluation)
            return self._remember(evaluation, reply)
        more: dict[str, Any] = {"files": account.files} if account.files or reply.files else {}
        if account.notes:
            lifecycle.notes = [*lifecycle.notes, *account.notes]
            more["unknown_files"] = account.unknown_text
        if lifecycle.notes:
            more["notes"], lifecycle.notes = [*lifecycle.notes, *reply.notes], []
            more["lost"], lifecycle.lost = lifecycle.lost, 0
        if reply.unchanged:
            lifecycle.looked(evaluation)
        else:
            self._note_change(evaluation, reply, more)
        self._add_log(more, reply)
        if reply.error is not None:
            more["error"] = self._with_moment(evaluation, self._explained(evaluation, reply.error))
        elif evaluation.wait is not None and evaluation.wait.is_late:
            more["notes"] = [*more.get("notes", reply.notes), deaths.caught(evaluation.seconds)]
        return self._remember(evaluation, msgspec.structs.replace(reply, **more) if more else reply)

    def _with_jobs(self, evaluation: Evaluation, reply: Reply) -> Reply:
        """Return the reply with the number of the job that it has begun; say which others are over."""
        jobs = self.lifecycle.jobs
        if evaluation.job is not None and reply.ok:
            reply = msgspec.structs.replace(reply, job=evaluation.job[0])
        elif evaluation.job is not None:
            jobs.forget(evaluation.job)
        ended = jobs.told(but=reply.job)
        self.lifecycle.notes += ended
        if ended and reply.unchanged and not jobs.runs:
            # What the job has changed is kept by no call of its own.
            with contextlib.suppress(ImageError):
                self.lifecycle.keep_now()
        return reply

    def _note_change(self, evaluation: Evaluation, reply: Reply, more: dict[str, Any]) -> None:
        """Note a call that may have changed something; add to its reply what has to be said of its state."""
        lifecycle, told = self.lifecycle, ""
        unkept = lifecycle.changed(evaluation, reply)
        if unkept is not None:
            # What is said of the newest state must count those that have not come yet.
            lifecycle.settle()
            more["unkept"] = unkept
            told = self._untaken(unkept) if lifecycle.is_news(evaluation, unkept) else ""
        elif lifecycle.told_reason:
            lifecycle.told_reason, told = "", KEPT_AGAIN
        if told:
            more["notes"] = [*more.get("notes", reply.notes), told]

    def _explained(self, evaluation: Evaluation, fault: ImageFault) -> ImageFault:
        """Name the limit that a fault ran into, if it did: time or memory."""
        if evaluation.wait is not None and evaluation.wait.is_late and fault.interrupted:
            if fault.type == TAKE_UP_FAILED:
                return deaths.not_run(deaths.late(fault, evaluation.seconds, "Taking up edited files"))
            return deaths.late(fault, evaluation.seconds)
        family = self.lifecycle.family
        if family is None:
            return fault
        return deaths.with_hint(fault, family.program, has_input=evaluation.typist is not None)

    def _with_moment(self, evaluation: Evaluation, fault: ImageFault) -> ImageFault:
        """Name the moment that the failed call has left."""
        family, live = self.lifecycle.family, self.lifecycle.live
        if family is None or live is None:
            return fault
        return self.lifecycle.with_moment(family, evaluation, fault, live)

    def _untaken(self, reason: str) -> str:
        """Say that no state was kept, and which one an undo would go to."""
        lifecycle = self.lifecycle
        standing = lifecycle.timeline.standing
        if standing is None:
            return f"No state was kept after this call: {reason}."
        count = lifecycle.unkept
        # Threads may last, and then there is another way.
        more = "" if lifecycle.is_behind else "; later, undo by replay runs the calls since then again"
        if count == 1:
            return f"No state was kept after this call: {reason}. Undo goes back to {standing.shown()}{more}."
        newest = f"The newest one is {standing.shown()}, {count} calls ago{more}"
        return f"No state was kept after this call: {reason}. {newest}."

    def _add_log(self, more: dict[str, Any], reply: Reply) -> None:
        """Add what threads, C code and child processes have printed."""
        family = self.lifecycle.family
        printed = family.log.news() if family is not None else ""
        if printed:
            more["log"] = reply.log + printed

    def attend(self, evaluation: Evaluation, work: Callable[[Evaluation], Reply]) -> Reply:
        """Run code beside the live process, in a moment; it can be read on like an evaluation."""
        with self.lock:
            if evaluation.is_cancelled:
                return Reply(ok=False, error=ImageFault("CANCELLED", "The call was taken back."))
            reply = work(evaluation)
            self.lifecycle.look_around()
            account = self.lifecycle.heard()
            if account.files or account.notes:
                notes = [*reply.notes, *account.notes]
                reply = msgspec.structs.replace(
                    reply, files=account.files, notes=notes, unknown_files=account.unknown_text
                )
            return self._remember(evaluation, reply)

    def _remember(self, evaluation: Evaluation, reply: Reply) -> Reply:
        if evaluation.printed is not None:
            reply = joined(reply, evaluation.printed)
        began, span = evaluation.began, self.lifecycle.span()
        if began is not None and began is not span:
            span = Span(began.after, span.after, began.epoch, span.epoch, span.sandbox)
        # Not by a copy of the reply, which would cost more than all the rest of this function.
        force_setattr(reply, "span", span)
        if evaluation.op != "load_system":
            kept = without_pictures(reply) if reply.displays else reply
            self.history.append(HistoryEntry(evaluation.code[:LONGEST_CODE], kept, time()))
        return reply

    def told_history(self) -> list[HistoryEntry]:
        """Return the latest evaluations, oldest first, with what is not in the present state marked."""
        # Where the beginning of the way was dropped, all that came before it is taken to be there.
        there, since = epochs(self.lifecycle.past)

        def is_undone(entry: HistoryEntry) -> bool:
            span = entry.reply.span
            return span.began != span.epoch and entry.at >= since and span.epoch not in there

        return [
            msgspec.structs.replace(entry, undone=True) if is_undone(entry) else entry
            for entry in list(self.history)
        ]

    def _restored(self, family: Family, evaluation: Evaluation, fault: ImageFault | None = None) -> Reply:
        """Kill the process, restore the newest checkpoint, and say what happened; without a fault it died."""
        lifecycle = self.lifecycle
        self.wait = None
        fate = deaths.Fate()
        if lifecycle.live is not None:
            if fault is None:
                fate = family.fate(lifecycle.live)
            family.kill(lifecycle.live)
        lifecycle.look_around(is_dead=True)
        # It may have left a copy before it died, of which no reply tells.
        family.forget(evaluation.keep)
        lifecycle.lost_tag(evaluation)
        printed = evaluation.wait.printed() if evaluation.wait is not None else Printed()
        attempt = attempt_of(evaluation.wait)
        log = family.log.news(clean=False)
        account = lifecycle.heard()
        has_died, fault = fault is None, fault or deaths.died(log, fate)
        restored = lifecycle.restore(family, doubts=deaths.is_about_memory(fault))
        last = [f"The last of its log: {log.strip()[-LOG_SHOWN:]}"] if log.strip() else []
        excess = lifecycle.usage.take_excess()
        if excess:
            fault = deaths.exceeded(excess)
        told = []
        if attempt is not None:
            self.declined.add(attempt.marks)
            why = excess or (deaths.cause(log, fate) if has_died else fault.message)
            is_late = fault.interrupted
            told = [attempt.stayed() if is_late else attempt.ended(why)]
            if self._may_repeat(evaluation, restored) and not is_late:
                return self._again(evaluation, [*told, *last], printed.folded())
            late = deaths.not_run(deaths.killed(evaluation.seconds, f"Taking up {attempt.at}"))
            fault = late if is_late else deaths.unready(attempt.at, why)
        fault = deaths.with_memory_hint(fault, family.program)
        notes, lost = [*lifecycle.notes, *told, *restored.notes], lifecycle.lost + restored.lost
        notes += [*lifecycle.jobs.told(), *last]
        lifecycle.notes, lifecycle.lost = [], 0
        elapsed, notes = evaluation.elapsed_ms(), [*notes, *account.notes]
        reply = Reply(ok=False, error=fault, elapsed_ms=elapsed, notes=notes, lost=lost, files=account.files)
        if account.unknown:
            reply = msgspec.structs.replace(reply, unknown_files=account.unknown_text)
        return self._remember(evaluation, with_output(reply, printed))

    @staticmethod
    def _may_repeat(evaluation: Evaluation, restored: Restored) -> bool:
        """Tell whether a call can run after an edit has failed, in the state that it was sent to."""
        wait = evaluation.wait
        is_stopped = evaluation.is_cancelled or (wait is not None and (wait.is_late or wait.over is not None))
        return evaluation.back and not evaluation.is_repeated and not is_stopped and not restored.lost

    def _again(self, evaluation: Evaluation, notes: list[str], printed: Printed) -> Reply:
        """Run a call with the code that there was before an edit which has failed."""
        self.lifecycle.notes += notes
        self.lifecycle.jobs.forget(evaluation.job)
        evaluation.job = evaluation.wait = None
        evaluation.is_repeated, evaluation.printed = True, printed
        return self._begin(evaluation) or self._finish(evaluation)

    def _without_edits(self, evaluation: Evaluation, reply: Reply) -> Reply:
        """Go back to the state before an edit that has failed, and run the call with the code there was."""
        lifecycle, family = self.lifecycle, self.lifecycle.family
        assert family is not None, "a reply came from no process"  # noqa: S101 - for the type checker
        if lifecycle.live is not None:
            family.kill(lifecycle.live)
        lifecycle.look_around(is_dead=True)
        family.forget(evaluation.keep)
        lifecycle.lost_tag(evaluation)
        lifecycle.heard()
        restored = lifecycle.restore(family)
        self.declined.add(reply.spoiled)
        fault, notes = reply.error, restored.notes if restored.lost else []
        if fault is None or fault.interrupted or not self._may_repeat(evaluation, restored):
            fault = fault and self._explained(evaluation, fault)
            reply = msgspec.structs.replace(
                reply, notes=[*reply.notes, *notes], lost=restored.lost, error=fault
            )
            return self._remember(evaluation, reply)
        return self._again(evaluation, reply.notes, printed_by(reply))

    def _settle_later(self) -> None:
        asyncio.get_running_loop().call_later(SETTLE_SECONDS, background.later, self._settle)

    def _settle(self) -> None:
        """Accept the checkpoints of the latest calls, unless a call runs: that sees to it when it ends."""
        awaited, deadline = None, 0.0
        while self.lock.acquire(blocking=False):
            self.is_settling = True
            try:
                lifecycle = self.lifecycle
                if lifecycle.collect():
                    return
                family = lifecycle.family
                # Each copy has its own time: other calls may have promised theirs meanwhile.
                if lifecycle.promised[0] is not awaited:
                    awaited, deadline = lifecycle.promised[0], monotonic() + MEETING_SECONDS
                if family is None or monotonic() > deadline:
                    lifecycle.give_up()
                    continue
            finally:
                self.is_settling = False
                self.lock.release()
            family.wait_for_child(awaited.tag, TURN_SECONDS)


# One entry for each thread of `on_a_thread` at work: append and pop are atomic, += on a number is not.
_waiting: list[None] = []


class Work(asyncio.Future[T]):
    """The result of work on a thread; after a cancellation `end` still gets it, when the work has stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.end: asyncio.Future[T] = loop.create_future()


def on_a_thread(work: Callable[[], T], cancel: Callable[[], object]) -> Work[T]:
    """Run blocking work on a thread of its own; when the future is cancelled, call `cancel` on another one.

    Not on a pool: evaluations that take hours would use up its threads.
    """
    loop = asyncio.get_running_loop()
    future: Work[T] = Work(loop)

    def run() -> None:
        _waiting.append(None)
        try:
            value = work()
        except Exception as error:  # noqa: BLE001 - raised in the task that waits
            _tell(loop, future, error=error)
        else:
            _tell(loop, future, value=value)
        finally:
            _waiting.pop()

    # With the context variables of the task, through which the work reports progress.
    threading.Thread(target=copy_context().run, args=(run,), name="gramercy-image", daemon=True).start()
    future.add_done_callback(partial(_heed_cancellation, cancel))
    return future


def _heed_cancellation(cancel: Callable[[], object], future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        threading.Thread(target=cancel, name="gramercy-cancel", daemon=True).start()


def _tell(
    loop: asyncio.AbstractEventLoop,
    future: Work[T],
    *,
    value: T | None = None,
    error: Exception | None = None,
) -> None:
    def settle() -> None:
        if error is not None:
            future.end.cancel()
            if not future.done():
                future.set_exception(error)
            return
        for each in (future, future.end):
            if not each.done():
                each.set_result(value)  # type: ignore[arg-type]  # None only where T has it

    # A loop that was stopped while the thread worked is closed by now.
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)


class Background:
    """A daemon thread, started with the first job, that does after a reply what would delay the next call."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = False

    def later(self, job: Callable[[], None]) -> None:
        """Queue a job; it must not raise and must not take long."""
        if not self._started:
            self._start()
        self._jobs.put(job)

    def _start(self) -> None:
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="gramercy-background", daemon=True).start()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            # One thread serves every image of this process: what one job fails at must not end it.
            try:
                job()
            except Exception:
                import logging

                logging.getLogger("gramercy").warning("a job after a reply failed", exc_info=True)


background = Background()
