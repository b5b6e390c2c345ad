"""The present state of an image: its live process, its past calls, and its kept or promised copies.

A call is recorded here, with the copy that it leaves. `lifecycle` starts processes and restores states.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import ImageError
from gramercy.images.base import FRESH, Span
from gramercy.images.bounds import Usage
from gramercy.images.checkpoints import MOST_LOOKS, Step, Timeline, depth, extended, first_words
from gramercy.images.files.ledger import NOTHING
from gramercy.images.jobs import Jobs
from gramercy.images.moments import Moments
from gramercy.images.thrift import Costs, Thrift

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.images.base import ImageFault, Reply
    from gramercy.images.checkpoints import Past
    from gramercy.images.connection import Connection, Evaluation
    from gramercy.images.files.changes import FileChange
    from gramercy.images.files.ledger import Account, Ledger
    from gramercy.images.files.trails import Trail
    from gramercy.images.processes import Family

# A checkpoint forks after the reply and connects within milliseconds. A stalling machine must not cost a
# state. A copy that cannot connect is noticed at once, by the end of its socket.
MEETING_SECONDS = 10.0
_NUMBER = re.compile(r"\d+")


class Promised(msgspec.Struct):
    """A checkpoint that the live process forks after its reply, until it has connected.

    `past` led to it. `looks` are later calls that were answered in the same state.
    """

    id: str
    tag: str
    code: str
    past: Past | None
    parent: Connection | None
    looks: tuple[Step, ...] = ()
    trail: Trail | None = None


class Present:
    """The present state of one image, and its kept copies.

    Not thread-safe: callers hold the runner's lock.
    """

    def __init__(self, thrift: Thrift | None = None) -> None:
        self.thrift = thrift or Thrift()
        self.costs = Costs()
        # Whether the present state was not kept because it followed another too soon.
        self.is_behind = False
        self._spare_tag: str | None = None
        # The epoch of the state that the program starts with. A saved state has its own name.
        self._first_epoch = FRESH
        self._here = Span()
        # In the order of their calls. The live process forks each before it reads the next request.
        self.promised: deque[Promised] = deque()
        self.timeline = Timeline()
        self.moments = Moments()
        # The name of the copy that the next failing call leaves behind. It is used once.
        self.moment_tag: str | None = None
        self.family: Family | None = None
        self.live: Connection | None = None
        self.past: Past | None = None
        # For the next reply: sentences, and the number of calls lost by a death between two calls.
        self.notes: list[str] = []
        self.lost = 0
        self.jobs = Jobs()
        # Why there is no checkpoint of the present state. Empty where there is one.
        self.unkept_reason = ""
        # The reported reason why states are not kept. A lasting reason is reported once.
        self.told_reason = ""
        self.has_told_thrift = False
        # Why the kernel has killed processes of the image, until that is reported. Empty where it has not.
        self.by_kernel = ""
        # The file changes of the image. None where it has no project, or may not write there.
        self.files: Ledger | None = None
        self.usage = Usage(self)

    @property
    def unkept(self) -> int:
        """The number of calls after the newest checkpoint that may have changed something."""
        checkpoint = self.timeline.standing
        return depth(self.past) - depth(checkpoint.past if checkpoint else None)

    @property
    def epoch(self) -> str:
        """The name of the present state."""
        past = self.past
        return self._first_epoch if past is None else past.epoch

    def kept_id(self) -> str:
        """Return the id of the kept or promised state that is the present one. Else empty."""
        newest = self.promised[-1] if self.promised else self.timeline.standing
        return newest.id if newest is not None and newest.past is self.past else ""

    def span(self) -> Span:
        """Return the state of the image. It is the same object as long as the state is the same."""
        kept, epoch, here = self.kept_id(), self.epoch, self._here
        if here.after == kept and here.epoch == epoch and here.sandbox:
            return here
        sandbox = self.family.program.confinement.value if self.family is not None else ""
        here = self._here = Span(kept, kept, epoch, epoch, sandbox)
        return here

    def hear(self, connection: Connection, *, is_suite: bool = False) -> None:
        """Attribute file changes from now on to a call in this process."""
        if self.files is not None:
            self.files.begin(connection.pid, is_suite=is_suite)

    def heard(self) -> Account:
        """Return the file changes of the finished call."""
        return self.files.finish() if self.files is not None else NOTHING

    @contextlib.contextmanager
    def hear_attempts(self, pid: int) -> Iterator[list[FileChange]]:
        """List the write attempts of a process, which will fail. The list is complete at the end."""
        tried: list[FileChange] = []
        if self.files is not None:
            self.files.begin_preview(pid)
        try:
            yield tried
        finally:
            if self.files is not None:
                tried += self.files.end_preview()

    @property
    def unknown_files(self) -> str:
        """Why not all files of the last switch between states are known. Empty if they are."""
        return self.files.unknown if self.files is not None else ""

    @property
    def trail(self) -> Trail | None:
        """The file changes of calls so far."""
        return self.files.head if self.files is not None else None

    def look_around(self, *, is_dead: bool = False) -> None:
        """Add notes to the reply: new control files of the call, and processes that the kernel killed.

        If the call's own process is dead, its error reports the kill.
        """
        if self.by_kernel and not is_dead:
            self.notes.append(f"Processes that evaluated code had started were ended: {self.by_kernel}.")
            self.by_kernel = ""
        if self.family is not None and self.family.sentry is not None:
            self.notes += self.family.sentry.look()

    def _go_live(self, live: Connection | None) -> None:
        """Make another process the live one, without the reserved ends of the old one."""
        self.jobs.leave(self.live)
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
        """Stop waiting for the checkpoint of this call."""
        if self.family is not None:
            self.family.forget(evaluation.tag)

    def new_tag(self, family: Family) -> str | None:
        """Return a tag for the checkpoint after the next call, None where `thrift` forbids one."""
        if self._spare_tag is not None:
            tag, self._spare_tag = self._spare_tag, None
            return tag
        if not self.costs.may_keep(self.thrift):
            return None
        tag = family.new_tag()
        if family.is_scarce or self.usage.kept_bytes:
            self.notes += self.usage.make_room(family)
        return tag

    def new_moment_tag(self, family: Family) -> str | None:
        """Return a tag for the moment of the next error, None where `thrift` forbids one."""
        self.moment_tag = self.tag_for_attempt(family)
        return self.moment_tag

    def tag_for_attempt(self, family: Family) -> str | None:
        """Return a tag for the moment of an attempt, which is another process than the live one."""
        return family.new_tag() if self.costs.may_keep_moment(self.thrift) else None

    def with_moment(
        self, family: Family, evaluation: Evaluation, fault: ImageFault, parent: Connection
    ) -> ImageFault:
        """Return the fault of a call with the id of its moment, or why there is none."""
        if evaluation.keep == self.moment_tag:
            self.moment_tag = None
        if fault.has_moment and evaluation.keep is not None:
            moment = self.moments.add(family, evaluation, fault, parent)
            self.costs.kept_moment()
            if moment.connection is not None:
                self.costs.measure(moment.connection)
            return msgspec.structs.replace(fault, moment=moment.id)
        # Whatever its process says, it may still have left a copy.
        family.forget(evaluation.keep)
        if evaluation.keep is None and fault.no_moment is None:
            fault = msgspec.structs.replace(fault, no_moment=self.costs.told(self.thrift))
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
        """Note a call that may have changed something. Return why no state is kept after it, if so."""
        self.costs.heap_bytes = reply.state.heap_bytes
        is_kept = reply.unkept is None and evaluation.tag is not None
        # Without a checkpoint after it, a look is not known to have changed nothing, so it counts as a
        # change.
        step = evaluation.as_step(reply, look=reply.look and is_kept)
        self.past = extended(self.past, step, reply.changed)
        if reply.unkept is not None:
            # Neither this tag nor that of its moment is used again: the process may have lost their ends.
            self.lost_tag(evaluation)
            if reply.error is None:
                self._forget_moment()
            self.unkept_reason = reply.unkept
        elif evaluation.tag is None:
            self.unkept_reason = self.costs.told(self.thrift)
            self.is_behind = True
        else:
            self.unkept_reason = ""
            self.is_behind = False
            self.costs.kept()
            promised = Promised(
                self.timeline.new_id(), evaluation.tag, evaluation.code, self.past, self.live, (), self.trail
            )
            self.promised.append(promised)
            return None
        return self.unkept_reason

    def is_news(self, evaluation: Evaluation, reason: str) -> bool:
        """Return whether a reply must say why no state is kept: only if no earlier reply has said it."""
        if evaluation.tag is None:
            is_told, self.has_told_thrift = self.has_told_thrift, True
            return not is_told
        # Numbers of threads and of objects differ from call to call.
        reason = _NUMBER.sub("#", reason)
        is_told, self.told_reason = self.told_reason == reason, reason
        return not is_told

    def settle(self, seconds: float = MEETING_SECONDS) -> None:
        """Accept the checkpoints of the latest calls. Wait for each up to a timeout."""
        while self.promised and self.family is not None:
            promised = self.promised[0]
            try:
                self._take(promised, self.family.meet(promised.tag, seconds, parent=promised.parent))
            except ImageError:
                self._miss(promised)
            # Only now: the watch over the bounds kills processes that are neither promised nor kept.
            self.promised.popleft()

    def collect(self) -> bool:
        """Accept the checkpoints that have connected, without waiting. Return whether none is missing."""
        while self.promised and self.family is not None:
            try:
                connection = self.family.met(self.promised[0].tag)
            except ImageError:
                self.give_up()
                continue
            if connection is None:
                return False
            self._take(self.promised[0], connection)
            self.promised.popleft()
        return True

    def give_up(self) -> None:
        """Stop waiting for the checkpoint that was promised first."""
        self._miss(self.promised.popleft())

    def _take(self, promised: Promised, connection: Connection) -> None:
        connection.parent = promised.parent
        self.costs.measure(connection)
        label = first_words(promised.code)
        checkpoint = self.timeline.add(connection, label, promised.past, known_as=promised.id)
        checkpoint.looks, checkpoint.trail = promised.looks, promised.trail
        if self.files is not None and self.files.head is not None:
            kept = [each.trail for each in self.timeline.all()]
            self.files.tidy([*kept, *(each.trail for each in self.promised)])
        with self.costs.counted():
            self.notes += self.usage.shed(connection.pid, self.thrift.heavy_bytes)

    def _miss(self, promised: Promised) -> None:
        """Report with the next reply that a promised checkpoint is missing."""
        if self.family is not None:
            self.family.forget(promised.tag)
        self.timeline.keys.pop(promised.id, None)
        reason = "no copy of its process came in time"
        is_last = promised.past is self.past
        if is_last:
            self.unkept_reason = reason
        call = "the last call" if is_last else "an earlier call"
        self.notes.append(f"No state was kept after {call} ({first_words(promised.code)}): {reason}.")
