"""The life of an image: started, live, restored after a death, taken to another state, closed.

Decides which checkpoint a death falls back to. What a call leaves, and what is kept of it, is noted in
`present`.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import CheckpointError, ImageError, ImageGoneError, ImageStartError
from gramercy.images.base import Reply
from gramercy.images.bounds import Forks
from gramercy.images.checkpoints import (
    FRESH,
    Checkpoint,
    Step,
    depth,
    extended,
    new_epoch,
    steps_since,
)
from gramercy.images.deaths import Breaker
from gramercy.images.files.ledger import watch
from gramercy.images.files.telling import outcomes_text
from gramercy.images.present import Present, Thrift
from gramercy.images.processes import Family, Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.checkpoints import Past
    from gramercy.images.connection import Connection
    from gramercy.images.files.changes import FileOutcome
    from gramercy.images.files.ledger import Trail
    from gramercy.images.moments import Attempt

# Forks that a call does not wait for: calls may come faster than the machine forks, and each is a process.
MOST_PROMISED = 2
# A look has been answered before, and was brief.
LOOK_SECONDS = 5.0
# Of the calls that a death loses, the latest are listed.
MOST_LISTED = 5


class Restored(msgspec.Struct, frozen=True):
    """What a restore came to: how many earlier calls are lost, and the sentences that say so."""

    lost: int
    notes: list[str]


class Lifecycle(Present):
    """The processes of one image, from its start to its end."""

    def __init__(self, program: Callable[[], Program], thrift: Thrift | None = None) -> None:
        super().__init__(thrift)
        self._first_program = self._program = program
        self._breaker = Breaker()
        self.is_closed = False

    def started(self) -> Family:
        """Return the family, with its zygote running."""
        if self.family is None:
            if self.is_closed:
                raise ImageError("the image is closed")
            self._breaker.check()
            try:
                self.family = Family(self._program())
            except ImageStartError as error:
                self._breaker.record(str(error))
                raise
            self.notes += self.family.notes
            self.usage.begin(self.family)
            self._watch(self.family)
        return self.family

    def _watch(self, family: Family) -> None:
        """Hear of the files that the processes of a family change, before any of them runs user code."""
        self.files, notes = watch(family, self.files, Forks(self.usage))
        self.notes += notes

    def ready(self) -> tuple[Family, Connection]:
        """Return the family and the live process, started if needed, with the last checkpoint accepted."""
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
        """Return the same for a call, which need not wait until the latest checkpoints have come."""
        if self.live is None or self.family is None or len(self.promised) > MOST_PROMISED:
            return self.ready()
        return self.family, self.live

    def _keep_start(self, family: Family, live: Connection) -> None:
        """Make the checkpoint of a fresh image; not possible where the init file has left threads running."""
        try:
            kept = self.timeline.add(family.fork(live, "checkpoint"), "start", self.past)
            kept.trail, kept.epoch = self._settled_trail(live), self.epoch
        except ImageGoneError:
            raise
        except ImageError as error:
            self.unkept_reason = str(error)
            self.notes.append(f"No state was kept at the start: {error}.")

    def _settled_trail(self, live: Connection) -> Trail | None:
        """Return the trail of a process that has begun: what its init file wrote belongs to its state."""
        if self.files is not None:
            self.files.finish(live.pid)
        return self.trail

    def surely_ready(self) -> tuple[Family, Connection]:
        """Return the same, after a check that the live process has not ended meanwhile."""
        family, live = self.ready()
        if not live.has_ended():
            return family, live
        self.ended_between_calls()
        return self.ready()

    def ended_between_calls(self) -> None:
        """Restore the newest checkpoint after the live process has died between two calls."""
        if self.live is not None and self.family is not None:
            self.family.kill(self.live)
            restored = self.restore(self.family)
            excess = self.usage.take_excess()
            ended = f"The image was ended between two calls: {excess}." if excess else ""
            self.notes += [ended or "The image had ended between two calls.", *restored.notes]
            self.lost += restored.lost

    @staticmethod
    def _come_alive(family: Family, source: Connection, looks: tuple[Step, ...] = ()) -> Connection:
        """Fork a live process, and evaluate the last looks again, for `*` or `_` to be as before."""
        live = family.fork(source, "live")
        try:
            for look in looks:
                live.request(Reply, LOOK_SECONDS, look.op, code=look.code, package=look.package)
        except ImageError:
            # The state itself is worth more than the variables with the last values.
            family.kill(live)
            live = family.fork(source, "live")
        return live

    def is_ready_at_once(self) -> bool:
        """Tell whether a call can begin without waiting for a process to start or to come."""
        if self.live is None or (self.files is not None and self.files.compares):
            return False
        return not self.promised or self.collect() or len(self.promised) <= MOST_PROMISED

    def keep_now(self, goal: Checkpoint | None = None) -> Checkpoint:
        """Return the checkpoint of the present state, made now where there is none; raise if it cannot be."""
        family, live = self.surely_ready()
        standing = self.timeline.standing
        if standing is not None and self.unkept == 0:
            return standing
        code = self.past.step.shown() if self.past is not None else "start"
        kept = self.timeline.add(family.fork(live, "checkpoint"), code, self.past, goal=goal)
        kept.trail = self.trail
        self._kept_at = monotonic()
        if goal is None:
            self.notes += self.usage.shed(kept.connection.pid, self.thrift.heavy_bytes)
        return kept

    def restore(self, family: Family) -> Restored:
        """Restore the newest checkpoint that still runs, and tell what is lost with the dead process.

        Without any the image begins again, and with a new zygote where that has died too.
        """
        self.usage.wait_for_end()
        self.settle()
        reached = self.past
        for checkpoint in self.timeline.newest_first():
            try:
                live = self._come_alive(family, checkpoint.connection, checkpoint.looks)
            except ImageError:
                self.timeline.forget(checkpoint)
                continue
            reason = self.unkept_reason
            self._stand_on(checkpoint, live)
            told = self._told(checkpoint, reached, reason)
            if self.files is not None and (outcomes := self.files.go(checkpoint.trail, live.pid)):
                told.notes.append(f"Files that were changed since: {outcomes_text(outcomes)}.")
            return told
        self._begin_again()
        if not family.is_alive:
            self.family = None
            family.close()
        lost = depth(reached)
        calls = f": all {lost} calls since the start are lost" if lost else ""
        files = "; the files that calls have changed stay as they are" if self.trail is not None else ""
        return Restored(lost, [f"No earlier state was kept: the image begins again, empty{calls}{files}."])

    def _told(self, checkpoint: Checkpoint, reached: Past | None, reason: str) -> Restored:
        lost = depth(reached) - depth(checkpoint.past)
        if not lost:
            return Restored(0, [f"The state before is back (checkpoint {checkpoint.id})."])
        steps = steps_since(reached, checkpoint.past) or []
        listed = "".join(f"\n- {step.shown()}" for step in steps[-MOST_LISTED:])
        why = f", of which no state was kept ({reason})" if reason else ""
        calls = "1 call" if lost == 1 else f"{lost} calls"
        verb = "is" if lost == 1 else "are"
        sentence = f"The state of {checkpoint.shown()} is back. Also lost {verb} {calls} after it{why}"
        return Restored(lost, [f"{sentence}{':' if listed else '.'}{listed}"])

    def target(self) -> Checkpoint:
        """Return the newest checkpoint from before the last call that may have changed something."""
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
        self._heap_bytes = 0
        self.timeline.standing = checkpoint

    def _begin_again(self) -> None:
        self._go_live(None)
        self.past = None
        for promised in self.promised:
            if self.family is not None:
                self.family.forget(promised.tag)
        self.promised.clear()
        self.unkept_reason = ""
        self._heap_bytes = 0
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
        """Replace the live process by a fork of a checkpoint, with the values of what was looked at there.

        `waits` for the end of the one that is left. Return what became of the files that go along, if any do.
        """
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
        """Let an attempt to go on from an error be the live process; return its checkpoint if one is made.

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
        self._kept_at = monotonic()
        return kept

    def start_over(self) -> None:
        """Go on with a fresh live process; the checkpoints stay."""
        family, before = self.surely_ready()
        family.kill(before)
        self.moments.clear(family)
        self._go_live(None)
        self.past = self.timeline.standing = None
        self.ready()

    def reset(self) -> list[str]:
        """Begin again with a fresh image, not with a saved one; return what there is to say about it."""
        self._breaker.reset()
        if self._program is not self._first_program:
            self.close()
            self._program, self._first_epoch = self._first_program, FRESH
        self.settle()
        if self.live is not None and self.family is not None:
            self.family.kill(self.live, waits=True)
        # The processes of kept states end by themselves, and are not what evaluated code has left behind.
        kept = self.usage.kept_pids()
        self._begin_again()
        ended = self.usage.end_strays(kept)
        stay = ["Files that calls have changed stay as they are."] if self.trail is not None else []
        if self.files is not None:
            self.files.head = None
        return [*ended, *stay]

    def adopt(self, program: Callable[[], Program]) -> None:
        """Begin again with another program, once that has started."""
        family = Family(program(), heir_of=self.family)
        self.close()
        self._program, self.family, self._first_epoch = program, family, new_epoch()
        self.notes += family.notes
        self._watch(family)
        self.usage.begin(family)

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
