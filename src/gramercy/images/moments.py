"""The moments of an image: errors whose stack is kept in a sleeping process, and attempts to continue.

A moment is a copy of the live process that was forked before the error unwound. An attempt is a copy of a
moment that continued with a restart. It is a whole image, and can become the live one. All functions work on
a lifecycle that the caller has locked.
"""

from __future__ import annotations

import contextlib
from time import time
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import ImageError, ImageGoneError
from gramercy.images import deaths
from gramercy.images.base import Answer, ImageFault, MomentInfo, Reply
from gramercy.images.checkpoints import first_words, private_bytes
from gramercy.images.connection import Wait, with_output

if TYPE_CHECKING:
    from typing import Any

    from gramercy.images.connection import Connection, Evaluation
    from gramercy.images.processes import Family
    from gramercy.images.requests import GoOn, InFrame
    from gramercy.images.runner import Runner

# Each is a process with one to ten MB of its own. A person who debugs looks at the last errors only.
MOST_MOMENTS = 4
MOST_ATTEMPTS = 4
# The copy is forked before the reply is written, so it has connected or is about to. The rest is for a
# machine that stalls.
MEETING_SECONDS = 10.0
# Inspecting a stack runs no user code.
ANSWER_SECONDS = 20.0
# Characters of the log in the note about a death: the last lines give the cause.
LOG_SHOWN = 1000
# Characters of a message in a list of moments.
LONGEST_MESSAGE = 200


class Attempt(msgspec.Struct, eq=False):
    """A copy of a moment that continued with a restart. `code` is the evaluation that it continued."""

    id: str
    connection: Connection
    code: str
    restart: str
    reply: Reply


class Moment(msgspec.Struct, eq=False):
    """One error whose stack is kept, in a process that connects under `tag`."""

    id: str
    tag: str
    evaluation: Evaluation
    fault: ImageFault
    parent: Connection | None
    connection: Connection | None = None
    count: int = 0
    at: float = msgspec.field(default_factory=time)

    def info(self, attempts: list[Attempt]) -> MomentInfo:
        """Describe it."""
        processes = [each.connection for each in attempts]
        if self.connection is not None:
            processes.append(self.connection)
        known = [size for size in (private_bytes(each.pid) for each in processes) if size is not None]
        fault = self.fault
        return MomentInfo(
            self.id,
            first_words(self.evaluation.code),
            fault.type,
            fault.message[:LONGEST_MESSAGE],
            self.at,
            [each.id for each in attempts],
            sum(known) if known else None,
        )


class Moments:
    """The moments of one image by id, oldest first, and their attempts."""

    def __init__(self) -> None:
        self._moments: dict[str, Moment] = {}
        self._attempts: dict[str, Attempt] = {}
        self._count = 0
        # Why the last error left no moment, for a caller that asks for one.
        self.why_not = ""

    def add(self, family: Family, evaluation: Evaluation, fault: ImageFault, parent: Connection) -> Moment:
        """Keep a moment whose process has been forked. The oldest is evicted for it."""
        self._count += 1
        assert evaluation.keep is not None, "a moment was kept that was not asked for"  # noqa: S101
        moment = Moment(f"m{self._count}", evaluation.keep, evaluation, fault, parent)
        self._moments[moment.id] = moment
        self.why_not = ""
        self.tidy(family)
        for oldest in list(self._moments.values())[:-MOST_MOMENTS]:
            self.drop(family, oldest)
        return moment

    def tidy(self, family: Family) -> None:
        """Accept the processes that have connected."""
        for moment in self._moments.values():
            if moment.connection is None:
                with contextlib.suppress(ImageError):  # `connected` raises it for its caller
                    moment.connection = family.met(moment.tag)

    def settle(self, family: Family) -> None:
        """Wait for the processes that have not connected. Drop those that do not, or have ended."""
        self.tidy(family)
        for moment in list(self._moments.values()):
            try:
                self.connected(family, moment)
            except ImageError:
                self.drop(family, moment)
        for attempt in list(self._attempts.values()):
            if attempt.connection.has_ended():
                self.take(attempt).close()

    def connected(self, family: Family, moment: Moment) -> Connection:
        """Return the connection of a moment. Raise ImageGoneError where its process has ended."""
        if moment.connection is None:
            moment.connection = family.meet(moment.tag, MEETING_SECONDS, parent=moment.parent)
        if moment.connection.has_ended():
            raise ImageGoneError("its process has ended")
        return moment.connection

    def find(self, word: str | None) -> Moment:
        """Return a moment by its id, or that of the last error. ImageError lists the existing ones."""
        if word is None and self._moments and not self.why_not:
            return next(reversed(self._moments.values()))
        found = self._moments.get(word or "")
        if found is not None:
            return found
        if word is None and self._moments:
            older = ", ".join(self._moments)
            raise ImageError(
                f"the last error left no moment: {self.why_not}; of earlier ones there are {older}"
            )
        if not self._moments:
            why = f" (the last error left none: {self.why_not})" if self.why_not else ""
            raise ImageError(f"no moment of an error is kept{why}")
        raise ImageError(f"there is no moment {word!r} (any more): there are {', '.join(self._moments)}")

    def add_attempt(self, moment: Moment, connection: Connection, restart: str, reply: Reply) -> Attempt:
        """Keep an attempt. The oldest is evicted for it."""
        moment.count += 1
        name = f"{moment.id}.a{moment.count}"
        attempt = Attempt(name, connection, moment.evaluation.code, restart, reply)
        self._attempts[name] = attempt
        for oldest in list(self._attempts.values())[:-MOST_ATTEMPTS]:
            oldest.connection.close()
            del self._attempts[oldest.id]
        return attempt

    def attempt(self, word: str) -> Attempt | None:
        """Return an attempt by its id, if there is one."""
        return self._attempts.get(word)

    def take(self, attempt: Attempt) -> Connection:
        """Release the process of an attempt, which becomes the live one."""
        del self._attempts[attempt.id]
        return attempt.connection

    def attempts_of(self, moment: Moment) -> list[Attempt]:
        """Return the attempts from a moment."""
        return [each for each in self._attempts.values() if each.id.startswith(f"{moment.id}.")]

    def drop(self, family: Family | None, moment: Moment) -> None:
        """End the process of a moment, and its attempts."""
        self._moments.pop(moment.id, None)
        for attempt in self.attempts_of(moment):
            self.take(attempt).close()
        if family is not None:
            family.forget(moment.tag)
        if moment.connection is not None:
            moment.connection.close()

    def clear(self, family: Family | None) -> None:
        """Drop all."""
        for moment in list(self._moments.values()):
            self.drop(family, moment)
        self.why_not = ""

    def infos(self) -> list[MomentInfo]:
        """Describe the moments, oldest first."""
        return [moment.info(self.attempts_of(moment)) for moment in self._moments.values()]

    def pids(self) -> dict[str, int]:
        """Return the pids of the processes of moments and attempts by their ids."""
        found = {each.id: each.connection.pid for each in self._moments.values() if each.connection}
        return found | {each.id: each.connection.pid for each in self._attempts.values()}


def ask(runner: Runner, question: str, word: str | None, details: dict[str, Any]) -> Answer:
    """Ask a moment about its stack."""
    lifecycle = runner.lifecycle
    try:
        family, moment, connection = _found(runner, word)
    except ImageError as error:
        return Answer(ok=False, error=_gone(error))
    connection.send(question, **details)
    runner.wait = Wait(connection, op=question)
    try:
        answer = runner.wait.for_reply(Answer, ANSWER_SECONDS)
    except ImageError:
        answer = None
    finally:
        runner.wait = None
    if answer is None:
        family.kill(connection)
        lifecycle.moments.drop(family, moment)
        return Answer(ok=False, error=ImageFault("MOMENT-GONE", f"{moment.id} ended while it was asked."))
    return msgspec.structs.replace(answer, data={**answer.data, "moment": moment.id})


def evaluate_in_frame(runner: Runner, wanted: InFrame, evaluation: Evaluation) -> Reply:
    """Evaluate code in a frame of a moment."""
    try:
        family, moment, connection = _found(runner, wanted.moment)
        runner.lifecycle.hear(connection)
        connection.send(wanted.op, code=wanted.code, frame=wanted.frame)
    except ImageError as error:
        return Reply(ok=False, error=_gone(error))
    reply = _answered(runner, family, evaluation, connection)
    if reply is None:
        family.kill(connection)
        runner.lifecycle.moments.drop(family, moment)
        message = f"The code ended {moment.id}, or would not stop when told to: that moment is gone."
        printed = evaluation.wait.printed() if evaluation.wait else None
        failed = Reply(ok=False, error=ImageFault("MOMENT-GONE", message), elapsed_ms=evaluation.elapsed_ms())
        reply = with_output(failed, printed) if printed else failed
    return _explained(evaluation, deaths.hinted(reply, family.program))


def go_on(runner: Runner, wanted: GoOn, evaluation: Evaluation) -> Reply:
    """Continue from a moment with a restart, in a copy. Return the reply of the evaluation."""
    lifecycle = runner.lifecycle
    try:
        if lifecycle.started().program.language == "python":
            return Reply(ok=False, error=NO_RESTARTS)
        family, moment, connection = _found(runner, wanted.moment)
        copy = family.fork(connection, "attempt")
    except ImageError as error:
        return Reply(ok=False, error=_gone(error))
    lifecycle.hear(copy)
    evaluation.keep = lifecycle.tag_for_attempt(family)
    arguments = list(wanted.arguments)
    copy.send(wanted.op, restart=wanted.restart, arguments=arguments, keep_moment=evaluation.keep)
    reply = _answered(runner, family, evaluation, copy)
    if reply is None:
        return _lost(family, evaluation, moment, copy)
    if reply.error is not None and reply.unchanged:
        # It did not continue: there is no such restart, or its arguments could not be computed.
        family.kill(copy)
        family.forget(evaluation.keep)
        return _explained(evaluation, reply)
    attempt = lifecycle.moments.add_attempt(moment, copy, str(wanted.restart), reply)
    if reply.error is not None:
        # It has failed again, elsewhere: the next moment is a copy of the attempt.
        again = msgspec.structs.replace(moment.evaluation, keep=evaluation.keep)
        fault = lifecycle.with_moment(family, again, reply.error, copy)
        reply = msgspec.structs.replace(reply, error=fault)
    else:
        family.forget(evaluation.keep)
    told = f"{attempt.id} is the copy of {moment.id} that went on. The image is as it was."
    notes = [*reply.notes, told]
    return _explained(evaluation, msgspec.structs.replace(reply, notes=notes))


def _found(runner: Runner, word: str | None) -> tuple[Family, Moment, Connection]:
    """Return a moment and the connection to its process. Raise ImageError where there is none."""
    lifecycle = runner.lifecycle
    moment = lifecycle.moments.find(word)
    family = lifecycle.started()
    try:
        return family, moment, lifecycle.moments.connected(family, moment)
    except ImageGoneError as error:
        lifecycle.moments.drop(family, moment)
        raise ImageGoneError(f"{moment.id} is gone: {error}") from None


def _gone(error: ImageError) -> ImageFault:
    told = str(error)
    return ImageFault("NO-MOMENT", f"{told[:1].upper()}{told[1:]}.")


def _answered(runner: Runner, family: Family, evaluation: Evaluation, connection: Connection) -> Reply | None:
    """Wait for the reply of a moment or an attempt. None where its process died or has to be killed."""
    wait = Wait(connection, family.mirror, evaluation.watch, evaluation.op, evaluation.code)
    evaluation.wait = runner.wait = wait
    try:
        return evaluation.wait.for_reply(Reply, evaluation.seconds)
    except ImageError:
        return None
    finally:
        runner.wait = None


def _lost(family: Family, evaluation: Evaluation, moment: Moment, copy: Connection) -> Reply:
    """Describe an attempt whose process died, or had to be killed."""
    wait = evaluation.wait
    has_died = copy.has_ended()
    fate = family.fate(copy) if has_died else deaths.Fate()
    family.kill(copy)
    family.forget(evaluation.keep)
    log = family.log.news(clean=False)
    fault = deaths.died(log, fate) if has_died else deaths.killed(evaluation.seconds)
    if has_died:
        message = fault.message.replace("The image ended during this call", "The attempt ended")
        fault = msgspec.structs.replace(fault, type="ATTEMPT-DIED", message=message)
    notes = [f"{moment.id} and the image are as they were."]
    if has_died and log.strip():
        notes.append(f"The last of its log: {log.strip()[-LOG_SHOWN:]}")
    reply = Reply(ok=False, error=fault, elapsed_ms=evaluation.elapsed_ms(), notes=notes)
    return with_output(reply, wait.printed()) if wait is not None else reply


def _explained(evaluation: Evaluation, reply: Reply) -> Reply:
    """Name the timeout if the code ran into it. The image does not know the numbers of objects."""
    fault, wait = reply.error, evaluation.wait
    if reply.objects:
        reply = msgspec.structs.replace(reply, objects=[])
    if fault is None or wait is None or not wait.is_late or not fault.interrupted:
        return reply
    return msgspec.structs.replace(reply, error=deaths.late(fault, evaluation.seconds))


NO_RESTARTS = ImageFault(
    "NO-RESTARTS",
    "Python has no restarts: an exception has left the frames that it passed. Look at the frames, try code "
    "in one of them, correct the definition, and evaluate the failed code again.",
)
