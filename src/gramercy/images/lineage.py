"""Who is alive of an image, and the way back: its family, the process that evaluates, the states before."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from gramercy.errors import CheckpointError, ImageError, ImageStartError
from gramercy.images.breaker import Breaker
from gramercy.images.family import Family, Program
from gramercy.images.timeline import Checkpoint, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.connection import Connection
    from gramercy.images.replay import Past

MEETING_SECONDS = 2.0
LONGEST_LABEL = 60


@dataclass(frozen=True, slots=True)
class Thrift:
    """When to keep fewer states: copies of a big image take long, and the next call would wait for them."""

    heavy_bytes: int = 256 * 1024 * 1024
    seconds: float = 2.0


class Lineage:
    """The processes of one image. Not safe for threads: its owner lets in one at a time."""

    def __init__(self, program: Callable[[], Program], thrift: Thrift | None = None) -> None:
        self.thrift = thrift or Thrift()
        self._heap_bytes = 0
        self._kept_at = 0.0
        self._unkept = 0
        self._spare_tag: str | None = None
        self._first_program = self._program = program
        self._breaker = Breaker()
        self.is_closed = False
        self._pending: tuple[str, str] | None = None
        self.timeline = Timeline()
        self.family: Family | None = None
        self.live: Connection | None = None
        self.past: Past | None = None
        self.notes: list[str] = []

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
        return self.family

    def ready(self) -> tuple[Family, Connection]:
        """Return the processes, with the checkpoint of the last call in place."""
        if self._pending is None and self.live is not None and self.family is not None:
            return self.family, self.live
        family = self.started()
        if self._pending is not None:
            self.settle()
        if self.live is None:
            self.live = self._come_alive(family, family.zygote)
            self.timeline.add(family.fork(self.live, "checkpoint"), "start", self.past)
        return family, self.live

    def surely_ready(self) -> tuple[Family, Connection]:
        """Return the same, after a look whether the process is really there."""
        family, live = self.ready()
        if not live.has_ended():
            return family, live
        self.ended_between_calls()
        return self.ready()

    def ended_between_calls(self) -> None:
        """Take up the state before the death of a process that nobody was waiting for."""
        if self.live is not None and self.family is not None:
            self.family.kill(self.live)
            self.notes += ["The image had ended between two calls.", *self.restore(self.family)]

    def _come_alive(self, family: Family, source: Connection) -> Connection:
        live = family.fork(source, "live")
        live.hold()
        return live

    def new_tag(self, family: Family) -> str | None:
        """Return a name for the checkpoint after the next call, or None when the image is too big for one."""
        if self._spare_tag is not None:
            tag, self._spare_tag = self._spare_tag, None
            return tag
        heavy = self._heap_bytes >= self.thrift.heavy_bytes
        if heavy and monotonic() - self._kept_at < self.thrift.seconds:
            return None
        return family.new_tag()

    def spare(self, tag: str | None) -> None:
        """Take back a name that no checkpoint got, since the call has changed nothing."""
        self._spare_tag = tag

    def expect(self, tag: str | None, code: str, heap_bytes: int) -> str | None:
        """Note that the live process forks a checkpoint by itself; where it does not, return why."""
        self._heap_bytes = heap_bytes
        if tag is None:
            self._unkept += 1
            line = self.timeline.newest_first()
            back = f"; undo goes back to {line[0].id} ({line[0].label})" if line else ""
            size, seconds = f"{heap_bytes >> 20} MB", f"{self.thrift.seconds:g} s"
            return f"the image has {size}, so a state is kept once in {seconds}{back}"
        self._unkept = 0
        self._kept_at = monotonic()
        self._pending = (tag, " ".join(code[: 4 * LONGEST_LABEL].split())[:LONGEST_LABEL])
        return None

    def settle(self) -> None:
        """Meet the checkpoint that the last call left behind."""
        if self._pending is None or self.family is None:
            return
        (tag, label), self._pending = self._pending, None
        try:
            self._keep(self.family.meet(tag, MEETING_SECONDS, parent=self.live), label)
        except ImageError:
            self.notes.append(f"No checkpoint was taken after the last call ({label}): it may be lost.")

    def is_ready_at_once(self) -> bool:
        """Tell whether a call can begin without waiting for a process to start or to fork."""
        if self.live is None or self.family is None:
            return False
        if self._pending is not None:
            tag, label = self._pending
            checkpoint = self.family.met(tag)
            if checkpoint is None:
                return False
            self._pending = None
            self._keep(checkpoint, label)
        return True

    def _keep(self, checkpoint: Connection, label: str) -> None:
        checkpoint.parent = self.live
        self.timeline.add(checkpoint, label, self.past)

    def restore(self, family: Family) -> list[str]:
        """Bring back the newest state that can be had; return what to tell the caller about it."""
        self._pending = None
        calls, self._unkept = self._unkept, 0
        skipped = 0
        for checkpoint in self.timeline.newest_first():
            try:
                self._stand_on(checkpoint, self._come_alive(family, checkpoint.connection))
            except ImageError:
                self.timeline.forget(checkpoint)
                skipped += 1
                continue
            lost = f", and {skipped} later ones are lost" if skipped else ""
            missed = f" {calls} calls after it, of which no state was kept, are lost." if calls else ""
            return [f"The state before is back (checkpoint {checkpoint.id}{lost}).{missed}"]
        self._begin_again()
        if not family.is_alive:
            self.family = None
            family.close()
        return ["No earlier state was kept: the image begins again, empty."]

    def before(self) -> Checkpoint:
        """Return the state that an undo goes back to."""
        if self._unkept:
            line = self.timeline.newest_first()
            if line:
                return line[0]
        return self.timeline.before_current()

    def _stand_on(self, checkpoint: Checkpoint, live: Connection) -> None:
        self.live = live
        self._unkept = 0
        self.past = checkpoint.past
        self.timeline.current = checkpoint.id

    def _begin_again(self) -> None:
        self.live = self.past = self._pending = None
        self.timeline.clear()

    def go_to(self, checkpoint: Checkpoint) -> None:
        """Let the live process be a copy of a checkpoint."""
        family, before = self.ready()
        try:
            live = self._come_alive(family, checkpoint.connection)
        except ImageError as error:
            self.timeline.forget(checkpoint)
            raise CheckpointError(f"checkpoint {checkpoint.id} is lost: {error}") from None
        family.kill(before)
        self._stand_on(checkpoint, live)

    def start_over(self) -> None:
        """Go on with a fresh process; the states before stay within reach."""
        family, before = self.surely_ready()
        family.kill(before)
        self.live = self.past = self.timeline.current = None
        self.ready()

    def reset(self) -> None:
        """Begin again with a fresh image, also where a saved one had been taken up."""
        self._breaker.reset()
        if self._program is not self._first_program:
            self.close()
            self._program = self._first_program
        if self.live is not None and self.family is not None:
            self.family.kill(self.live)
        self._begin_again()

    def adopt(self, program: Callable[[], Program]) -> None:
        """Begin again with another program, once that has started."""
        family = Family(program())
        self.close()
        self._program, self.family = program, family

    def close(self) -> None:
        """End every process."""
        live, family = self.live, self.family
        self._begin_again()
        self.family = None
        if live is not None:
            live.close()
        if family is not None:
            family.close()
