"""The life of an image: started, live, restored after a death, switched to another state, closed.

This module decides which checkpoint a death falls back to. `present` records the calls and their kept copies.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import CheckpointError, ImageError, ImageGoneError, ImageStartError
from gramercy.images.base import FRESH, Reply
from gramercy.images.bounds import Forks
from gramercy.images.checkpoints import (
    MOST_LISTED,
    TESTS,
    Checkpoint,
    Step,
    depth,
    extended,
    new_epoch,
    steps_since,
)
from gramercy.images.deaths import Breaker
from gramercy.images.descriptors import check_room
from gramercy.images.files.ledger import UNKNOWN, watch
from gramercy.images.files.telling import outcomes_text
from gramercy.images.interrupts import unbroken
from gramercy.images.present import Present
from gramercy.images.processes import Program, start_family
from gramercy.images.wire import Done
from gramercy.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.images.checkpoints import Past
    from gramercy.images.connection import Connection
    from gramercy.images.files.changes import FileOutcome
    from gramercy.images.files.trails import Trail
    from gramercy.images.moments import Attempt
    from gramercy.images.processes import Family
    from gramercy.images.thrift import Thrift

# Forks that a call does not wait for: calls may come faster than the machine forks, and each is a process.
MOST_PROMISED = 2
# The look was answered before, and was brief.
LOOK_SECONDS = 5.0
# Enough to collect gigabytes of garbage on a slow machine.
REHEARSAL_SECONDS = 20.0


class Restored(msgspec.Struct, frozen=True):
    """The result of a restore: the number of lost calls, and sentences about them."""

    lost: int
    notes: list[str]


class Lifecycle(Present):
    """The processes of one image, from its start to its end."""

    def __init__(self, program: Callable[[], Program], thrift: Thrift | None = None) -> None:
        super().__init__(thrift)
        self._first_program = self._program = program
        self._breaker = Breaker()
        # The checkpoint that the last death fell back to.
        self._restored: Checkpoint | None = None
        self.is_closed = False

    def started(self) -> Family:
        """Return the family, with its zygote running."""
        if self.family is None:
            if self.is_closed:
                raise ImageError("the image is closed")
            self._breaker.check()
            check_room()
            try:
                self.family = family = start_family(self._program())
                self.notes += family.notes
                self.notes += self.usage.begin(family)
                self._watch(family)
            except ImageStartError as error:
                self._breaker.record(str(error))
                raise
            except OSError as error:
                raise ImageStartError(f"the image does not start: {error}") from None
            return family
        return self.family

    def _watch(self, family: Family) -> None:
        """Listen to file changes of a family's processes, before any of them runs user code."""
        usage = self.usage
        try:
            self.files, notes = watch(family, self.files, Forks(usage), usage.may_watch, usage.workers)
        except ImageError as error:
            # Its filter has no listener, so nothing works in it. The next call starts another family.
            self.family = None
            family.close()
            told = f"{error}\n{family.log.tail().strip()}".rstrip()
            raise ImageStartError(f"the {family.program.language} image does not start: {told}") from None
        self.notes += notes

    def ready(self) -> tuple[Family, Connection]:
        """Return the family and the live process, started if needed, after accepting the last checkpoint."""
        if not self.promised and self.live is not None and self.family is not None:
            return self.family, self.live
        family = self.started()
        self.settle()
        if self.live is None:
            live = self._come_alive(family, family.zygote)
            self._go_live(live)
            self.notes += live.hello.notes if live.hello else []
            self._keep_start(family, live)
            return family, live
        return family, self.live

    def ready_to_run(self) -> tuple[Family, Connection]:
        """Return the same for a call, which need not wait until the latest checkpoints have connected."""
        if self.live is None or self.family is None or len(self.promised) > MOST_PROMISED:
            return self.ready()
        return self.family, self.live

    def _keep_start(self, family: Family, live: Connection) -> None:
        """Make the checkpoint of a fresh image. Impossible where the init file has left threads running."""
        try:
            kept = self.timeline.add(family.fork(live, "checkpoint"), "start", self.past)
            kept.trail, kept.epoch = self._settled_trail(live), self.epoch
        except ImageGoneError:
            raise
        except ImageError as error:
            self.unkept_reason = str(error)
            self.notes.append(f"No state was kept at the start: {error}.")

    def _settled_trail(self, live: Connection) -> Trail | None:
        """Return the trail of a started process: the writes of its init file belong to its state."""
        if self.files is not None:
            self.files.finish(live.pid)
        return self.trail

    def surely_ready(self) -> tuple[Family, Connection]:
        """Return the same, after a check that the live process has not ended."""
        family, live = self.ready()
        if not live.has_ended():
            return family, live
        self.ended_between_calls()
        return self.ready()

    def ended_between_calls(self) -> None:
        """Restore the newest checkpoint after the live process has died between two calls."""
        if self.live is not None and self.family is not None:
            self.family.kill(self.live)
            restored = self.restore(self.family, doubts=True)
            excess = self.usage.take_excess()
            ended = f"The image was ended between two calls: {excess}." if excess else ""
            self.notes += [ended or "The image had ended between two calls.", *restored.notes]
            self.lost += restored.lost

    @staticmethod
    def _come_alive(family: Family, source: Connection, looks: tuple[Step, ...] = ()) -> Connection:
        """Fork a live process, and evaluate the last looks again, to restore `*` or `_`.

        Edited files are left to the next call, which reports them: the state's files are not restored yet.
        """
        live = family.fork(source, "live")
        fields = {"follows": False} if family.program.language == "python" else {}
        try:
            for look in looks:
                live.request(Reply, LOOK_SECONDS, look.op, code=look.code, package=look.package, **fields)
        except ImageError:
            # The state itself is more important than the variables with the last values.
            family.kill(live)
            live = family.fork(source, "live")
        return live

    def is_ready_at_once(self) -> bool:
        """Return whether a call can begin without waiting for a process to start or to connect."""
        if self.live is None or self.is_due() or (self.files is not None and self.files.compares):
            return False
        return not self.promised or self.collect() or len(self.promised) <= MOST_PROMISED

    def keep_now(self, goal: Checkpoint | None = None) -> Checkpoint:
        """Return the checkpoint of the present state, made now if missing. Raise if that is impossible."""
        family, live = self.surely_ready()
        standing = self.timeline.standing
        if standing is not None and self.unkept == 0:
            return standing
        code = self.past.step.shown() if self.past is not None else "start"
        kept = self.timeline.add(family.fork(live, "checkpoint"), code, self.past, goal=goal)
        kept.trail = self.trail
        self._note_kept(kept)
        if goal is None:
            with self.costs.counted():
                self.notes += self.usage.shed(kept.connection.pid, self.thrift.heavy_bytes)
        return kept

    def _note_kept(self, kept: Checkpoint) -> None:
        self.is_behind = False
        self.costs.measure(kept.connection)
        self.costs.kept()

    def is_due(self) -> bool:
        """Return whether the present state, which followed another too soon to be kept, can be kept now."""
        return self.is_behind and self.costs.may_keep(self.thrift)

    def catch_up(self) -> None:
        """Keep the present state before a call, so that undo reverts only that call."""
        self.is_behind = False
        try:
            self.keep_now()
        except ImageGoneError:
            raise
        except ImageError as error:
            self.unkept_reason = str(error)

    def restore(self, family: Family, *, doubts: bool = False) -> Restored:
        """Restore the newest checkpoint that still runs, and describe the losses.

        With `doubts` a process has to collect garbage first: a state without memory for that would die at
        every call. Without a usable checkpoint the image starts again, with a new zygote if that died.
        """
        self.usage.wait_for_end()
        self.settle()
        reached, dropped = self.past, []
        # A second death in a row in the same state may be caused by the state.
        doubts = doubts or (self._restored is not None and self._restored is self.timeline.standing)
        for checkpoint in self.timeline.newest_first():
            try:
                live = self._come_alive(family, checkpoint.connection, checkpoint.looks)
            except ImageError:
                self.timeline.forget(checkpoint)
                continue
            if doubts and not self._runs(family, live):
                dropped.append(f"{checkpoint.shown()} was dropped: it has no room to run in.")
                self.timeline.forget(checkpoint)
                continue
            reason = self.unkept_reason
            self._stand_on(checkpoint, live)
            self._restored = checkpoint
            told = self._told(checkpoint, reached, reason)
            told.notes[:0] = dropped
            if self.files is not None and (outcomes := self.files.go(checkpoint.trail, live.pid)):
                told.notes.append(f"Files that were changed since: {outcomes_text(outcomes)}.")
            if self.unknown_files:
                told.notes.append(f"{UNKNOWN}: {self.unknown_files}.")
            return told
        self._begin_again()
        if not family.is_alive:
            self.family = None
            family.close()
        lost = depth(reached)
        calls = f": all {lost} calls since the start are lost" if lost else ""
        files = "; the files that calls have changed stay as they are" if self.trail is not None else ""
        begins = f"No earlier state was kept: the image begins again, empty{calls}{files}."
        return Restored(lost, [*dropped, begins])

    @staticmethod
    def _runs(family: Family, live: Connection) -> bool:
        """Return whether a process survives a garbage collection."""
        try:
            live.request(Done, REHEARSAL_SECONDS, "rehearse")
        except ImageError:
            family.kill(live, waits=True)
            # Its last output is about this trial, not about a call.
            family.log.news()
            return False
        return True

    def _told(self, checkpoint: Checkpoint, reached: Past | None, reason: str) -> Restored:
        lost = depth(reached) - depth(checkpoint.past)
        if not lost:
            return Restored(0, [f"The state before is back (checkpoint {checkpoint.id})."])
        steps = steps_since(reached, checkpoint.past) or []
        # A line that counts one call would be as long as the call itself.
        left = len(steps) - MOST_LISTED if len(steps) > MOST_LISTED + 1 else 0
        rows = [f"… {left} earlier ones", *(step.shown() for step in steps[left:])][0 if left else 1 :]
        listed = "".join(f"\n- {row}" for row in rows)
        why = f", of which no state was kept ({reason})" if reason else ""
        calls = f"{'is' if lost == 1 else 'are'} {counted(lost, 'call')}"
        sentence = f"The state of {checkpoint.shown()} is back. Also lost {calls} after it{why}"
        return Restored(lost, [f"{sentence}{':' if listed else '.'}{listed}"])

    def target(self) -> Checkpoint:
        """Return the newest checkpoint before the last call that may have changed something."""
        for checkpoint in self.timeline.newest_first():
            if depth(checkpoint.past) < depth(self.past):
                return checkpoint
        raise CheckpointError("there is nothing to undo: no earlier state is kept")

    def steps_from(self, checkpoint: Checkpoint) -> list[Step]:
        """Return the steps from a checkpoint to the present state."""
        steps = steps_since(self.past, checkpoint.past)
        if steps is None:
            raise CheckpointError(
                f"what was run since {checkpoint.id} is not known whole, so it cannot be run again"
            )
        return steps

    def _stand_on(self, checkpoint: Checkpoint, live: Connection) -> None:
        self._go_live(live)
        self.past = checkpoint.past
        self.unkept_reason = ""
        self.is_behind, self.costs.heap_bytes = False, 0
        self.timeline.standing = checkpoint

    def _begin_again(self) -> None:
        self._go_live(None)
        self.past = None
        for promised in self.promised:
            if self.family is not None:
                self.family.forget(promised.tag)
        self.promised.clear()
        self.unkept_reason = self.told_reason = ""
        self.has_told_thrift = False
        self.is_behind, self.costs.heap_bytes = False, 0
        self.timeline.clear()
        self.moments.clear(self.family)

    def go_to(
        self,
        checkpoint: Checkpoint,
        looks: tuple[Step, ...] | None = None,
        *,
        waits: bool = False,
        files: bool = True,
    ) -> list[FileOutcome]:
        """Replace the live process by a fork of a checkpoint, with the values of its looks.

        With `waits`, wait for the end of the old process. Return the outcomes for the files that are
        restored, if any.
        """
        with unbroken():
            family, before = self.ready()
            looks = checkpoint.looks if looks is None else looks
            try:
                live = self._come_alive(family, checkpoint.connection, looks)
            except ImageError as error:
                self.timeline.forget(checkpoint)
                raise CheckpointError(f"checkpoint {checkpoint.id} is lost: {error}") from None
            family.kill(before, waits=waits)
            checkpoint.looks = looks
            self._stand_on(checkpoint, live)
            if self.files is None:
                return []
            return self.files.go(checkpoint.trail, live.pid, moves=files)

    def take_up(self, attempt: Attempt) -> Checkpoint | None:
        """Make an attempt to continue from an error the live process. Return its checkpoint, if one is made.

        It counts as one call after the present state, so that undo leads back here.
        """
        family, before = self.ready()
        step = Step("restart", attempt.code, ok=attempt.reply.ok, told="")
        live = self.moments.take(attempt)
        family.kill(before)
        self._go_live(live)
        self.past = extended(self.past, step, attempt.reply.changed)
        self.unkept_reason = ""
        try:
            kept = self.timeline.add(family.fork(live, "checkpoint"), step.shown(), self.past)
            kept.trail = self.trail
        except ImageGoneError as error:
            raise CheckpointError(f"{attempt.id} is lost: {error}") from None
        except ImageError as error:
            self.unkept_reason = str(error)
            return None
        self._note_kept(kept)
        return kept

    def note_tests(self, code: str, before: Trail | None) -> None:
        """Record tests that changed files since `before` as a call, so that an undo reverts these alone."""
        family, live = self.surely_ready()
        with self._or_unkept():
            if self.unkept:
                self.keep_now().trail = before
        self.past = extended(self.past, Step(TESTS, code))
        with self._or_unkept():
            kept = self.timeline.add(family.fork(live, "checkpoint"), code, self.past)
            kept.trail = self.trail
            self._note_kept(kept)

    @contextlib.contextmanager
    def _or_unkept(self) -> Iterator[None]:
        """Keep a state in the block, or note why that is impossible."""
        try:
            yield
        except ImageError as error:
            self.unkept_reason = str(error)

    def start_over(self) -> None:
        """Continue with a fresh live process. The checkpoints stay."""
        family, before = self.surely_ready()
        family.kill(before)
        self.moments.clear(family)
        self._go_live(None)
        self.past = self.timeline.standing = None
        self.ready()

    def reset(self) -> list[str]:
        """Start again with a fresh image, not with a saved one. Return notes about it."""
        self._breaker.reset()
        if self._program is not self._first_program:
            self.close()
            self._program, self._first_epoch = self._first_program, FRESH
        self.settle()
        if self.family is not None:
            # The copy of an error that has not connected yet would be taken for a process of the user.
            self.moments.settle(self.family)
        if self.live is not None and self.family is not None:
            self.family.kill(self.live, waits=True)
        # The processes of kept states end by themselves. Evaluated code has not left them behind.
        kept = self.usage.kept_pids()
        jobs = self.jobs.clear()
        self._begin_again()
        ended = self.usage.end_strays(kept)
        stay = ["Files that calls have changed stay as they are."] if self.trail is not None else []
        if self.files is not None:
            self.files.head = None
        return [*ended, *jobs, *stay]

    def adopt(self, program: Callable[[], Program]) -> None:
        """Start again with another program, once that has started."""
        family = start_family(program(), self.family)
        self.close()
        self._program, self.family, self._first_epoch = program, family, new_epoch()
        self.notes += family.notes
        self._watch(family)
        self.notes += self.usage.begin(family)

    def close(self) -> None:
        """End every process."""
        live, family = self.live, self.family
        self._begin_again()
        self.family = None
        if live is not None:
            live.close()
        if family is not None:
            family.close()
        if self.files is not None:
            self.files.close()
            self.files = None
