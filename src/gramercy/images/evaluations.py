"""One evaluation under way: its request, and the wait for its reply.

The timeout is enforced here: at the deadline the process gets SIGINT, a second later SIGINT again, and one
more second later it is killed.
"""

from __future__ import annotations

import signal
import threading
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gramercy.images.base import Progress, Reply
from gramercy.images.checkpoints import Step, digest
from gramercy.images.output import Printed

if TYPE_CHECKING:
    from gramercy.images.base import Watcher
    from gramercy.images.connection import Connection
    from gramercy.images.output import OutputMirror

T = TypeVar("T")

# The field of a request that holds the text, where that is not `code`.
TEXT_FIELDS = {"load_system": "system"}
# Seconds between the first SIGINT and the second, and from the second to SIGKILL: long enough for a handler
# to clean up, short enough that a person still waits.
PATIENCE = 1.0
# How often a watcher is told of new output: four times a second looks continuous to a person.
WATCH_SECONDS = 0.25


class Evaluation(msgspec.Struct, eq=False):
    """A request that runs the user's code: evaluate, compile, load a system, undo definitions.

    `seconds` is its timeout; `tag` names the checkpoint that the process makes of itself after the reply.
    """

    op: str
    code: str
    seconds: float
    package: str | None = None
    watch: Watcher | None = None
    tag: str | None = None
    wait: Wait | None = None
    is_cancelled: bool = False
    started: float = msgspec.field(default_factory=perf_counter)

    def fields(self) -> dict[str, Any]:
        """Return the fields of the request, without its number."""
        fields: dict[str, Any] = {"op": self.op, TEXT_FIELDS.get(self.op, "code"): self.code}
        if self.tag is not None:
            fields["then_fork"] = self.tag
        if self.package is not None:
            fields["package"] = self.package
        return fields

    def elapsed_ms(self) -> float:
        """Return the milliseconds since it was asked for."""
        return (perf_counter() - self.started) * 1000.0

    def as_step(self, reply: Reply, *, look: bool = False) -> Step:
        """Return the record from which it can be run again."""
        interrupted = reply.error is not None and reply.error.interrupted
        return Step(self.op, self.code, self.package, reply.ok, interrupted, digest(reply), look)

    def cancel(self) -> None:
        """Interrupt it, or keep it from being sent."""
        self.is_cancelled = True
        if self.wait is not None:
            self.wait.cut_short()


class Wait(msgspec.Struct, eq=False):
    """The wait for the reply of one process. Another thread may cut it short."""

    connection: Connection
    mirror: OutputMirror | None = None
    watch: Watcher | None = None
    seen: Printed = Printed()
    started: float = msgspec.field(default_factory=monotonic)
    is_over: bool = False
    # The timeout has passed: an interrupt after that is not the person's.
    is_late: bool = False
    # Made by `cut_short` only: an event for every evaluation would cost 2 µs.
    over: threading.Event | None = None

    def for_reply(self, kind: type[T], seconds: float) -> T | None:
        """Return the reply; after the timeout interrupt twice.

        None means that the process ignored both interrupts and has to be killed.
        """
        try:
            reply = self._within(kind, seconds)
            return self._after_interrupts(kind) if reply is None else reply
        finally:
            self._end()

    def _after_interrupts(self, kind: type[T]) -> T | None:
        self.is_late = True
        for _ in range(2):
            self.connection.signal(signal.SIGINT)
            reply = self._within(kind, PATIENCE)
            if reply is not None:
                return reply
        return None

    def _end(self) -> None:
        self.is_over = True
        if self.over is not None:
            self.over.set()

    def for_a_moment(self, kind: type[T], seconds: float) -> T | None:
        """Return the reply if it comes within so short a time; else `for_reply` is still to be called."""
        reply = self.connection.receive_reply(kind, seconds)
        if reply is not None:
            self._end()
        return reply

    def _within(self, kind: type[T], seconds: float) -> T | None:
        if self.watch is None:
            return self.connection.receive_reply(kind, seconds)
        deadline = monotonic() + seconds
        while (left := deadline - monotonic()) > 0:
            reply = self.connection.receive_reply(kind, min(left, WATCH_SECONDS))
            if reply is not None:
                return reply
            self._tell()
        return None

    def _tell(self) -> None:
        """Tell the watcher what was printed; one that raises is not called again."""
        printed, seen = self.printed(), self.seen
        self.seen = printed
        news = (printed.stdout[len(seen.stdout) :], printed.stderr[len(seen.stderr) :])
        if self.watch is not None:
            try:
                self.watch(Progress(monotonic() - self.started, *news))
            except Exception:  # noqa: BLE001 - a watcher's fault must not fail the evaluation
                self.watch = None

    def printed(self) -> Printed:
        """Return what the evaluation has printed so far."""
        return Printed() if self.mirror is None else self.mirror.read(self.connection.last_id)

    def cut_short(self) -> None:
        """Stop the evaluation: SIGINT, SIGINT, and SIGKILL if it resists."""
        over = self.over = self.over or threading.Event()
        for _ in range(2):
            if self.is_over:
                return
            self.connection.signal(signal.SIGINT)
            if over.wait(PATIENCE):
                return
        self.connection.signal(signal.SIGKILL)


def with_output(reply: Reply, printed: Printed) -> Reply:
    """Return a reply that was made on this side, with what the evaluation itself had printed."""
    return msgspec.structs.replace(
        reply, stdout=printed.stdout, stderr=printed.stderr, truncated=printed.truncated
    )
