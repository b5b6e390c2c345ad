"""The life of an image: started, live, kept after each call, restored after a death, closed.

Holds the processes, the one that evaluates, and the checkpoints; decides which checkpoint a death falls back
to.
"""

from __future__ import annotations

import contextlib
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import CheckpointError, ImageError, ImageGoneError, ImageStartError
from gramercy.images.base import Reply, Span
from gramercy.images.bounds import Forks, Usage
from gramercy.images.checkpoints import (
    FRESH,
    MOST_LOOKS,
    Checkpoint,
    Step,
    Timeline,
    depth,
    extended,
    first_words,
    new_epoch,
    steps_since,
)
from gramercy.images.deaths import Breaker
from gramercy.images.files.ledger import NOTHING, watch
from gramercy.images.files.telling import outcomes_text
from gramercy.images.moments import Moments
from gramercy.images.processes import Family, Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.images.base import ImageFault
    from gramercy.images.checkpoints import Past
    from gramercy.images.connection import Connection, Evaluation
    from gramercy.images.files.changes import FileChange, FileOutcome
    from gramercy.images.files.ledger import Account, Ledger, Trail
    from gramercy.images.moments import Attempt

# A checkpoint forks after the reply and says hello within milliseconds; this is for a loaded machine.
MEETING_SECONDS = 2.0
# Forks that a call does not wait for: calls may come faster than the machine forks, and each is a process.
MOST_PROMISED = 2
# A look has been answered before, and was brief.
LOOK_SECONDS = 5.0
# Of the calls that a death loses, the latest are listed.
MOST_LISTED = 5


class Thrift(msgspec.Struct, frozen=True):
    """When to make fewer checkpoints: the fork of a big heap takes long, and the next call waits for it.

    From `heavy_bytes` of heap on, one in `seconds`.
    """

    heavy_bytes: int = 256 * 1024 * 1024
    seconds: float = 2.0


class Restored(msgspec.Struct, frozen=True):
    """What a restore came to: how many earlier calls are lost, and the sentences that say so."""

    lost: int
    notes: list[str]


class Promised(msgspec.Struct):
    """A checkpoint that the live process forks after its reply, until that has said hello.

    `past` led to it; `looks` are later calls that were answered in the same state.
    """

    id: str
    tag: str
    code: str
    past: Past | None
    parent: Connection | None
    looks: tuple[Step, ...] = ()
    trail: Trail | None = None


class Lifecycle:
    """The live process of one image and its checkpoints. Not thread-safe: callers hold the runner's lock."""

    def __init__(self, program: Callable[[], Program], thrift: Thrift | None = None) -> None:
        self.thrift = thrift or Thrift()
        self._heap_bytes = 0
        self._kept_at = 0.0
        self._spare_tag: str | None = None
        self._first_program = self._program = program
        # The epoch of the state that the program begins with: that of a saved one has a name of its own.
        self._first_epoch = FRESH
        self._here = Span()
        self._breaker = Breaker()
        self.is_closed = False
        # In the order of their calls; the live process forks each before it reads the next request.
        self.promised: deque[Promised] = deque()
        self.timeline = Timeline()
        self.moments = Moments()
        # The name of the copy that the next call that fails leaves behind; used once.
        self.moment_tag: str | None = None
        self.family: Family | None = None
        self.live: Connection | None = None
        self.past: Past | None = None
        # For the next reply: sentences, and how many calls a death between two calls has lost.
        self.notes: list[str] = []
        self.lost = 0
        # Why there is no checkpoint of the present state; empty where there is one.
        self.unkept_reason = ""
        # What the image changes in its project; None where it has none, or may not write there.
        self.files: Ledger | None = None
        self.usage = Usage(self)

    @property
    def unkept(self) -> int:
        """How many calls that may have changed something came after the newest checkpoint."""
        checkpoint = self.timeline.standing
        return depth(self.past) - depth(checkpoint.past if checkpoint else None)

    @property
    def epoch(self) -> str:
        """The name of the present state."""
        past = self.past
        return self._first_epoch if past is None else past.epoch

    def kept_id(self) -> str:
        """Return the id of the kept state that is the present one, or has been promised; else nothing."""
        newest = self.promised[-1] if self.promised else self.timeline.standing
        return newest.id if newest is not None and newest.past is self.past else ""

    def span(self) -> Span:
        """Return the state that the image is in; the same object as long as it is the same state."""
        kept, epoch, here = self.kept_id(), self.epoch, self._here
        if here.after == kept and here.epoch == epoch and here.sandbox:
            return here
        sandbox = self.family.program.confinement.value if self.family is not None else ""
        here = self._here = Span(kept, kept, epoch, epoch, sandbox)
        return here

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

    def hear(self, connection: Connection, why_left: str = "") -> None:
        """Take what is changed in files from now on for the deed of a call in this process."""
        if self.files is not None:
            self.files.begin(connection.pid, why_left)

    def heard(self) -> Account:
        """Return what the call that is over has changed in files."""
        return self.files.finish() if self.files is not None else NOTHING

    @contextlib.contextmanager
    def hear_attempts(self, pid: int) -> Iterator[list[FileChange]]:
        """Have what a process tries to write listed, which will not happen; the list is whole at the end."""
        tried: list[FileChange] = []
        if self.files is not None:
            self.files.begin_preview(pid)
        try:
            yield tried
        finally:
            if self.files is not None:
                tried += self.files.end_preview()

    @property
    def trail(self) -> Trail | None:
        """What calls have changed in files so far."""
        return self.files.head if self.files is not None else None

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

    def look_around(self) -> None:
        """Note for the reply what the call has made that programs of the person would run."""
        if self.family is not None and self.family.sentry is not None:
            self.notes += self.family.sentry.look()

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

    def _go_live(self, live: Connection | None) -> None:
        """Let another process be the live one, without the ends that the last one had in reserve."""
        self.live = live
        if self.family is not None:
            self.family.forget(self._spare_tag)
        self._spare_tag = None
        self._forget_moment()

    def _forget_moment(self) -> None:
        if self.family is not None:
            self.family.forget(self.moment_tag)
        self.moment_tag = None

    def lost_tag(self, evaluation: Evaluation) -> None:
        """Wait for no checkpoint of this call."""
        if self.family is not None:
            self.family.forget(evaluation.tag)

    def new_tag(self, family: Family) -> str | None:
        """Return a tag for the checkpoint after the next call; None where `thrift` forbids one."""
        if self._spare_tag is not None:
            tag, self._spare_tag = self._spare_tag, None
            return tag
        heavy = self._heap_bytes >= self.thrift.heavy_bytes
        if heavy and monotonic() - self._kept_at < self.thrift.seconds:
            return None
        return family.new_tag()

    def new_moment_tag(self, family: Family) -> str | None:
        """Return a tag for the moment of the next error; None where the heap is too big to keep one."""
        self.moment_tag = self.tag_for_attempt(family)
        return self.moment_tag

    def tag_for_attempt(self, family: Family) -> str | None:
        """Return a tag for the moment of an attempt, which is another process than the live one."""
        return None if self._heap_bytes >= self.thrift.heavy_bytes else family.new_tag()

    def with_moment(
        self, family: Family, evaluation: Evaluation, fault: ImageFault, parent: Connection
    ) -> ImageFault:
        """Return the fault of a call with the id of the moment that its process has left, or why not."""
        if evaluation.keep == self.moment_tag:
            self.moment_tag = None
        if fault.has_moment and evaluation.keep is not None:
            moment = self.moments.add(family, evaluation, fault, parent)
            return msgspec.structs.replace(fault, moment=moment.id)
        # Whatever its process says, it may have left a copy all the same.
        family.forget(evaluation.keep)
        if evaluation.keep is None and fault.no_moment is None:
            reason = f"the image has {self._heap_bytes >> 20} MB, and moments are kept below "
            fault = msgspec.structs.replace(
                fault, no_moment=f"{reason}{self.thrift.heavy_bytes >> 20} MB of heap"
            )
        self.moments.why_not = fault.no_moment or ""
        return fault

    def looked(self, evaluation: Evaluation) -> None:
        """Note a call that changed nothing: the tag of its checkpoint was not used."""
        self._spare_tag = evaluation.tag
        newest = self.promised[-1] if self.promised else self.timeline.standing
        if newest is not None and newest.past is self.past and evaluation.op == "eval":
            step = Step(evaluation.op, evaluation.code, evaluation.package)
            newest.looks = (*newest.looks[1 - MOST_LOOKS :], step)

    def changed(self, evaluation: Evaluation, reply: Reply) -> str | None:
        """Note a call that may have changed something; return why no state is kept after it, if none is."""
        self._heap_bytes = reply.state.heap_bytes
        if self._heap_bytes >= self.thrift.heavy_bytes and reply.error is None:
            self._forget_moment()
        is_kept = reply.unkept is None and evaluation.tag is not None
        # Without a checkpoint after it, a look is not known to have changed nothing: it counts as a change.
        step = evaluation.as_step(reply, look=reply.look and is_kept)
        self.past = extended(self.past, step, reply.changed)
        if reply.unkept is not None:
            # Not used again, nor that of its moment: the process may have lost the ends that belong to them.
            self.lost_tag(evaluation)
            if reply.error is None:
                self._forget_moment()
            self.unkept_reason = reply.unkept
        elif evaluation.tag is None:
            size, seconds = f"{self._heap_bytes >> 20} MB", f"{self.thrift.seconds:g} s"
            self.unkept_reason = f"the image has {size}, so a state is kept once in {seconds}"
        else:
            self.unkept_reason = ""
            self._kept_at = monotonic()
            promised = Promised(
                self.timeline.new_id(), evaluation.tag, evaluation.code, self.past, self.live, (), self.trail
            )
            self.promised.append(promised)
            return None
        return self.unkept_reason

    def settle(self, seconds: float = MEETING_SECONDS) -> None:
        """Accept the checkpoints that the latest calls have made; wait for each at most so long."""
        while self.promised and self.family is not None:
            promised = self.promised.popleft()
            try:
                self._take(promised, self.family.meet(promised.tag, seconds, parent=promised.parent))
            except ImageError:
                self._miss(promised)

    def collect(self) -> bool:
        """Accept the checkpoints that have said hello, without waiting; tell whether none is missing."""
        while self.promised and self.family is not None:
            try:
                connection = self.family.met(self.promised[0].tag)
            except ImageError:
                self.give_up()
                continue
            if connection is None:
                return False
            self._take(self.promised.popleft(), connection)
        return True

    def give_up(self) -> None:
        """Wait no longer for the checkpoint that was promised first."""
        self._miss(self.promised.popleft())

    def is_ready_at_once(self) -> bool:
        """Tell whether a call can begin without waiting for a process to start or to come."""
        if self.live is None or (self.files is not None and self.files.compares):
            return False
        return not self.promised or self.collect() or len(self.promised) <= MOST_PROMISED

    def _take(self, promised: Promised, connection: Connection) -> None:
        connection.parent = promised.parent
        label = first_words(promised.code)
        checkpoint = self.timeline.add(connection, label, promised.past, known_as=promised.id)
        checkpoint.looks, checkpoint.trail = promised.looks, promised.trail
        if self.files is not None and self.files.head is not None:
            kept = [each.trail for each in self.timeline.all()]
            self.files.tidy([*kept, *(each.trail for each in self.promised)])
        self.notes += self.usage.shed(connection.pid, self.thrift.heavy_bytes)

    def _miss(self, promised: Promised) -> None:
        """Say with the next reply that there is no checkpoint, although one was to be."""
        if self.family is not None:
            self.family.forget(promised.tag)
        self.timeline.keys.pop(promised.id, None)
        reason = "no copy of its process came in time"
        is_last = promised.past is self.past
        if is_last:
            self.unkept_reason = reason
        call = "the last call" if is_last else "an earlier call"
        self.notes.append(f"No state was kept after {call} ({first_words(promised.code)}): {reason}.")

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
