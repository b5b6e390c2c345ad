"""An image without a process: Python code runs in a namespace of this process, everything else by a table.

For tests of what is built on images. There is no confinement: what evaluated code does to files and other
modules is done for real and stays, only the namespace can be taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from gramercy.errors import CheckpointError, ImageError
from gramercy.images import requests
from gramercy.images.asking import Comparison, Difference
from gramercy.images.base import FRESH, Answer, CheckpointInfo, Form, HistoryEntry, ImageFault, Reply, Span
from gramercy.images.checkpoints import new_epoch
from gramercy.images.files.whole import write_whole
from gramercy.images.image import Image
from gramercy.images.jobs import JobInfo
from gramercy.images.views import ImageView
from gramercy.testing.namespace import copy_namespace, evaluated, fresh_namespace, imported

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from gramercy.images.base import MomentInfo
    from gramercy.images.installing import Installation
    from gramercy.images.jobs import JobState
    from gramercy.images.lines import Typist
    from gramercy.images.requests import Move, Question, Work
    from gramercy.images.suites import SuiteRun

R = TypeVar("R")

# Of a value in a comparison: the beginning tells it from another.
LONGEST_VALUE = 200
NO_MOMENTS = ImageFault("NO-MOMENT", "An image in memory keeps no moment of an error.")


class MemoryImage(Image):
    """An `Image` in memory, with checkpoints, rollback and undo.

    `replies` are looked up first, by the exact code or name of a system; a text stands for one printed value.
    Without one, an image of Python evaluates the code, and any other answers with an error. `answers` are
    what `ask` returns, by the question. Both may be any mapping: a `defaultdict` answers everything.
    Timeouts, packages and watchers have no effect: a call runs until it ends.
    """

    language = ""
    name = ""
    capabilities: frozenset[str] = frozenset()

    def __init__(
        self,
        language: str = "python",
        *,
        name: str = "memory",
        replies: Mapping[str, Reply | str] | None = None,
        answers: Mapping[str, Answer | str] | None = None,
        capabilities: frozenset[str] = frozenset({"compile", "fork", "preview"}),
    ) -> None:
        self.language = language
        self.name = name
        self.capabilities = capabilities
        self.replies: Mapping[str, Reply | str] = {} if replies is None else replies
        self.answers: Mapping[str, Answer | str] = {} if answers is None else answers
        self._lock = threading.RLock()
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        self.namespace: dict[str, Any] = fresh_namespace()
        self._history: list[HistoryEntry] = []
        self._jobs: list[JobInfo] = []
        self._states: dict[str, _State] = {}
        self._count = 0
        self._past: tuple[_Step, ...] = ()
        self._epoch = FRESH
        self._unkept_reason = ""
        self._standing = self._keep("start")

    def run(
        self,
        work: Work[R],
        *,
        timeout: float | None = None,
        watch: Callable[[Any], object] | None = None,
        typist: Typist | None = None,
    ) -> R:
        """Run work at once."""
        del timeout, watch, typist
        return self.handle(work)

    async def arun(
        self,
        work: Work[R],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in the interface
        watch: Callable[[Any], object] | None = None,
    ) -> R:
        """Run work on a thread; it cannot be cancelled."""
        del timeout, watch
        return await asyncio.to_thread(self.run, work)

    def begin(
        self,
        work: Work[R],
        *,
        timeout: float | None = None,
        watch: Callable[[Any], object] | None = None,
    ) -> Awaitable[R]:
        """Run work on a thread, also what takes but a moment."""
        return self.arun(work, timeout=timeout, watch=watch)

    def answer(self, question: Question[R]) -> R:
        """Answer a question."""
        return self.handle(question)

    def go(self, move: Move[R]) -> R:
        """Keep the present state, or go to another one."""
        return self.handle(move)

    # Work

    def _worked(self, work: requests.Evaluate | requests.Load) -> Reply:
        return self._run(_Step(work.op, work.text))

    def _start_job(self, work: requests.StartJob) -> Reply:
        """Evaluate at once: the job is over when it has begun."""
        reply = self.evaluate(work.code, package=work.package)
        number = len(self._jobs) + 1
        state: JobState = "done" if reply.ok else "failed"
        told = msgspec.structs.replace(reply, stdout="", stderr="")
        seconds, printed = reply.elapsed_ms / 1000, reply.stdout + reply.stderr
        self._jobs.append(JobInfo(number, work.code, state, time(), seconds, printed, 0, told))
        return Reply(ok=True, job=number)

    def _profile(self, work: requests.Profile) -> Reply:
        """Evaluate and tell how long it took; what it did in that time is not looked at."""
        reply = self.evaluate(work.code)
        facts = {"measure": work.measure, "microseconds": int(reply.elapsed_ms * 1000), **reply.profile}
        return msgspec.structs.replace(reply, profile=facts)

    def _load(self, work: requests.Load) -> Reply:
        """Import a module into this process; the module itself stays loaded after an undo."""
        return self._run(_Step("load_system", work.system))

    def _suite(self, _work: requests.Suite) -> SuiteRun:
        raise ImageError("an image in memory has no process in which tests could run")

    def _preview(self, work: requests.Preview) -> Reply:
        """Evaluate and take it back; raise ImageError where the state cannot be copied."""
        with self._open():
            if "preview" not in self.capabilities:
                raise ImageError("a preview is not possible: this image has no capability 'preview'")
            try:
                before = copy_namespace(self.namespace)
            except CheckpointError as error:
                raise ImageError(f"a preview is not possible: {error}") from None
            try:
                return msgspec.structs.replace(self._reply(_Step("eval", work.code)), span=self.span())
            finally:
                self._become(before)

    def _in_moment(self, _work: requests.InFrame | requests.GoOn) -> Reply:
        """Say that no moment is kept: the stack of an error is unwound in this process."""
        return Reply(ok=False, error=NO_MOMENTS)

    # Questions

    def _listed_jobs(self, _question: requests.Jobs) -> list[JobInfo]:
        return list(self._jobs)

    def _read_job(self, question: requests.ReadJob | requests.StopJob) -> JobInfo:
        """Return a job, which is over, with all that it has printed."""
        if not 1 <= question.number <= len(self._jobs):
            raise ImageError(f"there is no job {question.number}")
        return self._jobs[question.number - 1]

    def _installation(self, question: requests.HowToInstall) -> Installation:
        packages = ", ".join(question.packages)
        raise ImageError(f"an image in memory has no environment to install {packages} into")

    def _about(self, question: requests.About) -> Answer:
        """Return the prepared answer to a question, the same for every state, or one that there is none."""
        with self._open():
            if question.at is not None:
                self._found(question.at)
            try:
                found = self.answers[question.question]
            except KeyError:
                message = f"There is no answer to {question.question!r}: give one in `answers`."
                return Answer(ok=False, error=ImageFault("UNKNOWN-OP", message))
            return Answer(ok=True, text=found) if isinstance(found, str) else found

    def _about_moment(self, question: requests.AboutMoment) -> Answer:
        """Return the prepared answer to a question, or one that says that no moment is kept."""
        if question.question in self.answers:
            return self._about(requests.About(question.question))
        return Answer(ok=False, error=NO_MOMENTS)

    def _moments(self, _question: requests.Moments) -> list[MomentInfo]:
        return []

    def _compare(self, question: requests.Compare) -> Comparison:
        """Tell which names have other values in another state, and which calls led to only one of them."""
        with self._open():
            one = self._found(question.a)
            other = self._found(question.b) if question.b is not None else None
            past = self._past if other is None else other.past
            after = self.namespace if other is None else other.namespace
            common = sum(x is y for x, y in zip(one.past, past, strict=False))
            return Comparison(
                one.id,
                "now" if other is None else other.id,
                _differences(one.namespace, after),
                [step.shown() for step in one.past[common:]],
                [step.shown() for step in past[common:]],
            )

    def _present(self, _question: requests.Epoch) -> str:
        return self._epoch

    def _changed_at(self, _question: requests.ChangedAt) -> float | None:
        return self._past[-1].at if self._past else None

    def _checkpoints(self, _question: requests.Checkpoints) -> list[CheckpointInfo]:
        """List the kept states, oldest first; none is ever dropped."""
        with self._open():
            return [self._info(state) for state in self._states.values()]

    def _told_history(self, _question: requests.History) -> list[HistoryEntry]:
        """Return all evaluations since the start, oldest first; those that were taken back are marked."""
        there = {step.epoch for step in self._past}
        return [
            msgspec.structs.replace(entry, undone=True)
            if entry.reply.span.began != entry.reply.span.epoch and entry.reply.span.epoch not in there
            else entry
            for entry in self._history
        ]

    def look(self) -> ImageView:
        """Tell how the image is; what runs is not told."""
        latest = self._history[-1] if self._history else None
        return ImageView(
            self.name,
            self.language,
            "closed" if self._is_closed else "idle",
            epoch=self._epoch,
            checkpoints=[self._info(state) for state in list(self._states.values())],
            unkept=self._unkept_reason if self._unkept else "",
            latest=latest,
            calls=len(self._history),
        )

    def span(self) -> Span:
        """Return the state that the image is in."""
        kept = "" if self._unkept else self._standing.id
        return Span(kept, kept, self._epoch, self._epoch)

    def note_call(self, state: str, key: int) -> None:
        """Take note of the key of the call that led to a state."""
        if state in self._states:
            self._states[state].key = key

    def _run(self, step: _Step) -> Reply:
        with self._open():
            began, reply = self.span(), self._reply(step)
            if not reply.unchanged:
                self._epoch = new_epoch()
                self._past = (*self._past, replace(step, at=time(), epoch=self._epoch))
                try:
                    self._standing = self._keep(step.shown())
                except CheckpointError as error:
                    self._unkept_reason = str(error)
                    reply = msgspec.structs.replace(reply, unkept=str(error))
            span = msgspec.structs.replace(self.span(), before=began.after, began=began.epoch)
            reply = msgspec.structs.replace(reply, span=span)
            self._history.append(HistoryEntry(step.code, reply, time()))
            return reply

    def _reply(self, step: _Step) -> Reply:
        started = perf_counter()
        try:
            found: Reply | str = self.replies[step.code]
        except KeyError:
            found = self._computed(step)
        if isinstance(found, str):
            found = Reply(ok=True, forms=[Form([found])])
        return msgspec.structs.replace(found, elapsed_ms=(perf_counter() - started) * 1000.0)

    def _computed(self, step: _Step) -> Reply:
        if self.language != "python":
            message = f"There is no reply to {step.shown()!r}: give one in `replies`."
            return Reply(ok=False, error=ImageFault("NO-REPLY", message))
        if step.op == "load_system":
            return imported(step.code)
        reply = evaluated(step.code, self.namespace)
        return msgspec.structs.replace(reply, forms=[]) if step.op == "compile" else reply

    # Moves

    def _keep_named(self, move: requests.Keep) -> CheckpointInfo:
        with self._open():
            if self._unkept:
                raise CheckpointError(f"the present state cannot be kept: {self._unkept_reason}")
            name = move.label or self._standing.label
            if name not in self._standing.names:
                self._standing.names.append(name)
            return self._info(self._standing)

    def _rollback(self, move: requests.Rollback) -> CheckpointInfo:
        """Go back to a state; files stay, since what evaluated code writes in this process is not watched."""
        with self._open():
            state = self._found(move.checkpoint)
            lost = self._unkept
            self._go_to(state)
            notes = [f"The state that was left could not be kept: calls lost: {lost}."] if lost else []
            return self._info(state, notes=notes)

    def _undo(self, move: requests.Undo) -> CheckpointInfo:
        """Take back the last call that may have changed something, by `state` or by `replay`."""
        with self._open():
            if move.by == "definitions":
                raise CheckpointError(
                    "an image in memory cannot undo by definitions: undo by state or replay"
                )
            if not self._past:
                raise CheckpointError("there is nothing to undo")
            target, goal = self._before_last(), self._past[:-1]
            again = goal[len(target.past) :]
            if again and move.by == "state":
                raise CheckpointError(
                    f"the state before the last call was not kept ({self._unkept_reason}), so nothing was "
                    f"taken back: rollback to {target.id}, or undo by replay"
                )
            self._go_to(target)
            for step in again:
                self._run(step)
            return self._info(self._standing, taken_back=1)

    def _reset(self, _move: requests.Reset) -> list[str]:
        with self._open():
            self._begin()
        return []

    def _save(self, move: requests.Save) -> str:
        """Write the calls that led to the present state as JSON."""
        with self._open():
            steps = [[step.op, step.code] for step in self._past]
            write_whole(Path(move.path), json.dumps(steps))
            return f"The {len(steps)} calls that led to this state were written to {move.path}."

    def _restore(self, move: requests.Restore) -> str:
        """Begin again and run the calls that were written by `save`."""
        steps = [_Step(op, code) for op, code in json.loads(Path(move.path).read_text(encoding="utf-8"))]
        with self._open():
            self._begin()
            for step in steps:
                self._run(step)
            return f"The {len(steps)} calls in {move.path} were run again."

    def interrupt(self) -> bool:
        """Return False: a call cannot be stopped."""
        return False

    def close(self) -> None:
        """Refuse every further call."""
        self._is_closed = True

    @property
    def _unkept(self) -> int:
        """How many calls came after the newest kept state."""
        return len(self._past) - len(self._standing.past)

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._is_closed:
                raise ImageError("the image is closed")
            yield

    def _keep(self, label: str) -> _State:
        content = copy_namespace(self.namespace)
        self._count += 1
        parent = self._standing.id if self._count > 1 else None
        state = _State(f"c{self._count}", parent, label, time(), content, self._past)
        self._states[state.id] = state
        return state

    def _before_last(self) -> _State:
        """Return the newest kept state before the last call, on the way that led here."""
        state = self._standing
        while len(state.past) >= len(self._past):
            state = self._states[state.parent or ""]
        return state

    def _found(self, word: str) -> _State:
        named = [state for state in self._states.values() if word in state.names]
        if word in self._states or len(named) == 1:
            return self._states.get(word) or named[0]
        if named:
            raise CheckpointError(
                f"several states are named {word!r}: give one of the ids {', '.join(s.id for s in named)}"
            )
        raise CheckpointError(
            f"there is no checkpoint {word!r} (any more): there are {', '.join(self._states)}"
        )

    def _go_to(self, state: _State) -> None:
        self._become(copy_namespace(state.namespace))
        self._standing, self._past = state, state.past
        self._epoch = state.past[-1].epoch if state.past else FRESH

    def _become(self, content: dict[str, Any]) -> None:
        # The dictionary stays the same one: functions refer to it as their globals.
        self.namespace.clear()
        self.namespace.update(content)

    def _info(self, state: _State, *, taken_back: int = 0, notes: list[str] | None = None) -> CheckpointInfo:
        is_current = state is self._standing and not self._unkept
        return CheckpointInfo(
            state.id,
            state.parent,
            ", ".join(state.names) or state.label,
            state.at,
            is_current,
            names=list(state.names),
            taken_back=taken_back,
            notes=notes or [],
            epoch=state.past[-1].epoch if state.past else FRESH,
            pinned=bool(state.names),
            key=state.key,
        )

    handlers: ClassVar[Mapping[type, Callable[[Any, Any], Any]]] = {
        requests.Evaluate: _worked,
        requests.Compile: _worked,
        requests.StartJob: _start_job,
        requests.Profile: _profile,
        requests.Preview: _preview,
        requests.Load: _load,
        requests.TakeUp: _load,
        requests.InFrame: _in_moment,
        requests.GoOn: _in_moment,
        requests.Suite: _suite,
        requests.About: _about,
        requests.AboutMoment: _about_moment,
        requests.Compare: _compare,
        requests.History: _told_history,
        requests.Checkpoints: _checkpoints,
        requests.Moments: _moments,
        requests.Jobs: _listed_jobs,
        requests.ReadJob: _read_job,
        requests.Epoch: _present,
        requests.ChangedAt: _changed_at,
        requests.HowToInstall: _installation,
        requests.Keep: _keep_named,
        requests.Rollback: _rollback,
        requests.Undo: _undo,
        requests.Reset: _reset,
        requests.Save: _save,
        requests.Restore: _restore,
        requests.StopJob: _read_job,
    }


def _differences(before: dict[str, Any], after: dict[str, Any]) -> list[Difference]:
    """Compare two namespaces by how their values print."""
    found: list[Difference] = []
    for name in sorted({*before, *after} - {"__builtins__"}):
        one, other = repr(before.get(name))[:LONGEST_VALUE], repr(after.get(name))[:LONGEST_VALUE]
        if name not in before:
            found.append(Difference("variable", name, "defined", "", other))
        elif name not in after:
            found.append(Difference("variable", name, "removed", one, ""))
        elif one != other:
            found.append(Difference("variable", name, "changed", one, other))
    return found


@dataclass(frozen=True, slots=True)
class _Step:
    """One call that may have changed the state."""

    op: str
    code: str
    at: float = 0.0
    epoch: str = ""

    def shown(self) -> str:
        return " ".join(self.code.split())[:60]


@dataclass(slots=True, eq=False)
class _State:
    """A kept state: a copy of the namespace, and the calls that led to it."""

    id: str
    parent: str | None
    label: str
    at: float
    namespace: dict[str, Any]
    past: tuple[_Step, ...]
    names: list[str] = field(default_factory=list)
    key: int = 0
