"""The live image: one evaluating process, a checkpoint after every call, and a way back from every death."""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic, perf_counter, time
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import CheckpointError, ImageError, ImageGoneError, ImageProtocolError, ImageStartError
from gramercy.images import deaths
from gramercy.images.base import Answer, CheckpointInfo, HistoryEntry, ImageFault, Reply
from gramercy.images.breaker import Breaker
from gramercy.images.connection import Connection, decode
from gramercy.images.family import Family, Program
from gramercy.images.housekeeping import housekeeper
from gramercy.images.timeline import Checkpoint, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_TIMEOUT = 60.0
ANSWER_SECONDS = 20.0
# From the first interrupt to the second, and from the second to the end of the process.
PATIENCE = 1.0
LONGEST_LABEL = 60
MOST_HISTORY = 50


class _KilledError(Exception):
    """The evaluation had to be ended with its process."""


class LiveImage:
    """An image of processes on this machine. Starts when first used; one call at a time, in order."""

    def __init__(
        self, name: str, program: Callable[[], Program], *, timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        self.name = name
        self.timeout = timeout
        self._program = program
        self._lock = threading.RLock()
        self._breaker = Breaker()
        self._timeline = Timeline()
        self._family: Family | None = None
        self._live: Connection | None = None
        self._pending: tuple[str, str] | None = None
        # The process that evaluates at this moment: the live one, or the throw-away copy of a preview.
        self._running: Connection | None = None
        self._notes: list[str] = []
        self._history: deque[HistoryEntry] = deque(maxlen=MOST_HISTORY)

    @property
    def language(self) -> str:
        """The language of the image."""
        return self._started().program.language

    @property
    def capabilities(self) -> frozenset[str]:
        """What the image can do; starts it when it has not been."""
        with self._lock:
            hello = self._started().zygote.hello
            return frozenset(hello.capabilities if hello else ())

    def evaluate(self, code: str, *, package: str | None = None, timeout: float | None = None) -> Reply:
        """Evaluate every form of the code, in order."""
        return self._remember(code, self._call("eval", code, timeout, package=package))

    def compile(self, code: str, *, package: str | None = None, timeout: float | None = None) -> Reply:
        """Compile and load the code."""
        return self._remember(code, self._call("compile", code, timeout, package=package))

    def history(self) -> list[HistoryEntry]:
        """Return the latest evaluations, oldest first."""
        return list(self._history)

    def _remember(self, code: str, reply: Reply) -> Reply:
        self._history.append(HistoryEntry(code, reply, time()))
        return reply

    def load_system(self, system: str, *, timeout: float | None = None) -> Reply:
        """Load a system or import a package."""
        return self._call("load_system", system, timeout, field="system")

    def preview(self, code: str, *, package: str | None = None, timeout: float | None = None) -> Reply:
        """Evaluate in a throw-away copy that gave up all rights first."""
        with self._lock:
            family, live = self._ready()
            copy = family.fork(live, "preview")
            try:
                confined = copy.request(dict, ANSWER_SECONDS, "confine")
                if not confined.get("confined"):
                    reason = confined.get("reason", "Landlock is not available")
                    raise ImageError(f"a preview is not possible: the copy cannot be confined ({reason})")
                copy.send("eval", code=code, package=package)
                return self._preview_reply(copy, self.timeout if timeout is None else timeout)
            finally:
                family.kill(copy)

    def _preview_reply(self, copy: Connection, seconds: float) -> Reply:
        try:
            frame = self._receive(copy, seconds)
        except (ImageGoneError, _KilledError):
            message = "The code would end the image, or would not stop when told to."
            return Reply(ok=False, error=ImageFault("PREVIEW-DIED", message))
        return decode(frame, Reply)

    def ask(self, question: str, **details: Any) -> Answer:
        """Look into the image."""
        with self._lock:
            family, live = self._ready()
            live.send(question, **details)
            try:
                return decode(self._receive(live, ANSWER_SECONDS), Answer)
            except (ImageGoneError, _KilledError):
                self._restore(family)
                return Answer(
                    ok=False,
                    error=ImageFault("IMAGE-DIED", "The image ended while it was asked; its state is back."),
                )

    def _call(
        self, op: str, code: str, timeout: float | None, *, field: str = "code", **details: Any
    ) -> Reply:
        with self._lock:
            try:
                family, live = self._ready()
            except ImageError as error:
                return Reply(ok=False, error=ImageFault("IMAGE-NOT-STARTED", str(error)))
            seconds = self.timeout if timeout is None else timeout
            tag = family.new_tag()
            started = perf_counter()
            try:
                live.send(op, then_fork=tag, **{field: code}, **details)
                reply = decode(self._receive(live, seconds), Reply)
            except ImageProtocolError as error:
                return Reply(ok=False, error=ImageFault("INVALID-CODE", str(error)))
            except (ImageGoneError, _KilledError) as error:
                return self._after_death(family, error, code, seconds, started)
            return self._finished(reply, tag, code)

    def _finished(self, reply: Reply, tag: str, code: str) -> Reply:
        label = " ".join(code.split())[:LONGEST_LABEL]
        notes, self._notes = self._notes, []
        if reply.state.threads > 1 or reply.checkpoint_skipped:
            reason = reply.checkpoint_skipped or f"{reply.state.threads} threads are running"
            notes.append(f"No checkpoint was taken after this call: {reason}.")
        elif not reply.unchanged:
            self._pending = (tag, label)
            housekeeper.later(self._tidy)
        return msgspec.structs.replace(reply, notes=notes) if notes else reply

    def _receive(self, connection: Connection, seconds: float) -> bytes:
        """Wait for a reply; on time-out interrupt twice, then end the process."""
        self._running = connection
        try:
            for patience in (seconds, PATIENCE, PATIENCE):
                frame = connection.receive_reply(patience)
                if frame is not None:
                    return frame
                if self._family is not None:
                    self._family.interrupt(connection)
            raise _KilledError
        finally:
            self._running = None

    def _after_death(
        self, family: Family, error: Exception, code: str, seconds: float, started: float
    ) -> Reply:
        if self._live is not None:
            family.kill(self._live)
        log = family.log.tail()
        notes = self._restore(family)
        fault = deaths.killed(seconds) if isinstance(error, _KilledError) else deaths.died(log, code)
        elapsed_ms = (perf_counter() - started) * 1000.0
        return Reply(ok=False, error=fault, elapsed_ms=elapsed_ms, notes=notes)

    def _restore(self, family: Family) -> list[str]:
        """Bring back the newest state that can be had; return what to tell the caller about it."""
        self._pending = None
        skipped = 0
        for checkpoint in self._timeline.newest_first():
            try:
                self._live = family.fork(checkpoint.connection, "live")
            except ImageError:
                self._timeline.forget(checkpoint)
                skipped += 1
                continue
            self._timeline.current = checkpoint.id
            lost = f", and {skipped} later ones are lost" if skipped else ""
            return [f"The state before is back (checkpoint {checkpoint.id}{lost})."]
        self._live = None
        self._timeline.clear()
        if not family.is_alive:
            self._family = None
            family.close()
        return ["No earlier state was kept: the image begins again, empty."]

    def _ready(self) -> tuple[Family, Connection]:
        """Return the processes, started and with the checkpoint of the last call in place."""
        family = self._started()
        self._settle(family)
        if self._live is not None and self._live.has_ended():
            self._live.close()
            self._notes += ["The image had ended between two calls.", *self._restore(family)]
            family = self._started()
        if self._live is None:
            self._live = family.fork(family.zygote, "live")
            self._timeline.add(family.fork(self._live, "checkpoint"), "start")
        return family, self._live

    def _started(self) -> Family:
        if self._family is None:
            self._breaker.check()
            try:
                self._family = Family(self._program())
            except ImageStartError as error:
                self._breaker.record(str(error))
                raise
        return self._family

    def _tidy(self) -> None:
        """Meet the checkpoint of the last call while nobody waits."""
        with self._lock:
            if self._family is not None:
                self._settle(self._family)

    def _settle(self, family: Family) -> None:
        """Meet the checkpoint that the last call left behind."""
        if self._pending is None:
            return
        (tag, label), self._pending = self._pending, None
        try:
            self._timeline.add(family.meet(tag, PATIENCE * 2, parent=self._live), label)
        except ImageError:
            self._notes.append(f"No checkpoint was taken after the last call ({label}): it may be lost.")

    def checkpoint(self, label: str = "") -> CheckpointInfo:
        """Name the present state so that it is kept."""
        with self._lock:
            family, live = self._ready()
            line = self._timeline.newest_first()
            if not line:
                self._timeline.add(family.fork(live, "checkpoint"), label)
                line = self._timeline.newest_first()
            line[0].label, line[0].pinned = label or line[0].label, True
            return self._timeline.info(line[0])

    def checkpoints(self) -> list[CheckpointInfo]:
        """List the states that can be gone back to."""
        with self._lock:
            self._ready()
            return self._timeline.infos()

    def rollback(self, checkpoint: str) -> CheckpointInfo:
        """Go back to a state."""
        with self._lock:
            family, _ = self._ready()
            return self._go_to(family, self._timeline.get(checkpoint))

    def undo(self) -> CheckpointInfo:
        """Go back to the state before the last call."""
        with self._lock:
            family, _ = self._ready()
            return self._go_to(family, self._timeline.before_current())

    def _go_to(self, family: Family, checkpoint: Checkpoint) -> CheckpointInfo:
        try:
            live = family.fork(checkpoint.connection, "live")
        except ImageError as error:
            self._timeline.forget(checkpoint)
            raise CheckpointError(f"checkpoint {checkpoint.id} is lost: {error}") from None
        if self._live is not None:
            family.kill(self._live)
        self._live = live
        self._timeline.current = checkpoint.id
        return self._timeline.info(checkpoint)

    def reset(self) -> None:
        """Begin again with a fresh image."""
        with self._lock:
            self._breaker.reset()
            self._history.clear()
            self._timeline.clear()
            self._pending = None
            if self._live is not None and self._family is not None:
                self._family.kill(self._live)
            self._live = None

    def interrupt(self) -> bool:
        """Stop the evaluation under way, by interrupts, and by the end of its process if it resists."""
        family, running = self._family, self._running
        if family is None or running is None:
            return False
        for _ in range(2):
            family.interrupt(running)
            deadline = monotonic() + PATIENCE
            while monotonic() < deadline and self._running is running:
                threading.Event().wait(0.005)
            if self._running is not running:
                return True
        family.kill_process(running)
        return True

    def save(self, path: str) -> str:
        """Write the state to disk."""
        with self._lock:
            _, live = self._ready()
            answer = live.request(dict, DEFAULT_TIMEOUT, "save", path=path)
            if not answer.get("ok"):
                raise ImageError(str((answer.get("error") or {}).get("message", "the image cannot be saved")))
            return f"saved {answer.get('bytes', 0):,} bytes to {path}"

    def processes(self) -> dict[str, int]:
        """Return the pids of the processes by what they are: zygote, live, and the ids of the checkpoints."""
        with self._lock:
            family, live = self._ready()
            pids = {"zygote": family.zygote.pid, "live": live.pid}
            return pids | {checkpoint.id: checkpoint.connection.pid for checkpoint in self._timeline.all()}

    def close(self) -> None:
        """End every process of the image."""
        with self._lock:
            self._timeline.clear()
            if self._live is not None:
                self._live.close()
            if self._family is not None:
                self._family.close()
            self._live = self._family = None
