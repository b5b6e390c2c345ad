"""The live image: one evaluating process, a checkpoint after every call, and a way back from every death."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, cast

import msgspec

from gramercy.errors import ImageGoneError
from gramercy.images import asking, previews, requests
from gramercy.images.base import Answer
from gramercy.images.checkpoints import LEFT_OUT
from gramercy.images.connection import Evaluation
from gramercy.images.deaths import hinted
from gramercy.images.image import Image
from gramercy.images.lifecycle import Lifecycle
from gramercy.images.moments import ask, evaluate_in_frame, go_on
from gramercy.images.runner import Runner, on_a_thread
from gramercy.images.states import (
    go_back,
    keep_state,
    prepare_replay,
    restore_image,
    save_image,
    told_of_definitions,
    told_of_replay,
    undo_exactly,
)
from gramercy.images.views import view_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from gramercy.images.asking import Comparison
    from gramercy.images.base import CheckpointInfo, HistoryEntry, MomentInfo, Reply, Span
    from gramercy.images.checkpoints import Step
    from gramercy.images.installing import Installation
    from gramercy.images.jobs import JobInfo
    from gramercy.images.lines import Typist
    from gramercy.images.processes import Program
    from gramercy.images.requests import Move, Question, Work
    from gramercy.images.thrift import Thrift
    from gramercy.images.views import ImageView

R = TypeVar("R")

# Long enough for a test suite of a small project, short enough that a client has not given up before.
DEFAULT_TIMEOUT = 60.0
# A first compilation of a big library takes minutes.
LOADING_SECONDS = 600.0
# How long to wait for a job to take notice that it is to stop.
STOPPING_SECONDS = 2.0
# Work that another process than the live one does.
BESIDE = frozenset((requests.InFrame, requests.GoOn, requests.Preview, requests.Suite))


class _Beside(NamedTuple):
    """How to run work beside the live process, and how to stop it."""

    run: Callable[[], Any]
    cancel: Callable[[], object]


class LiveImage(Image):
    """An image of processes on this machine. Starts when first used; one call at a time, in order."""

    name = ""

    def __init__(
        self,
        name: str,
        program: Callable[[], Program],
        *,
        timeout: float = DEFAULT_TIMEOUT,
        language: str | None = None,
        thrift: Thrift | None = None,
    ) -> None:
        self.name = name
        self.timeout = timeout
        self._language = language
        self._lifecycle = Lifecycle(program, thrift)
        self._runner = Runner(self._lifecycle)
        self._lock = self._runner.lock

    @property
    def language(self) -> str:
        """The language of the image; where it was not told, the image is started to find out."""
        if self._language is None:
            with self._lock:
                self._language = self._lifecycle.started().program.language
        return self._language

    @property
    def capabilities(self) -> frozenset[str]:
        """What the image can do; starts it when it has not been."""
        with self._lock:
            hello = self._lifecycle.started().zygote.hello
            return frozenset(hello.capabilities if hello else ())

    def run(
        self,
        work: Work[R],
        *,
        timeout: float | None = None,
        watch: Callable[[Any], object] | None = None,
        typist: Typist | None = None,
    ) -> R:
        """Run work and wait for its reply."""
        if type(work) in BESIDE:
            return cast("R", self._beside(work, timeout, watch).run())
        evaluation = self._evaluation(work, timeout, watch)
        evaluation.typist = typist
        return cast("R", self._runner.run(evaluation))

    async def arun(
        self,
        work: Work[R],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - enforced where the work is
        watch: Callable[[Any], object] | None = None,
    ) -> R:
        """Run work without holding up the event loop; `watch` is called from another thread."""
        begun = self.begin(work, timeout=timeout, watch=watch)
        return await begun if isinstance(begun, asyncio.Future) else cast("R", begun)

    def begin(
        self,
        work: Work[R],
        *,
        timeout: float | None = None,
        watch: Callable[[Any], object] | None = None,
    ) -> R | Awaitable[R]:
        """Begin work on the event loop; return its reply where that comes within a moment."""
        if type(work) in BESIDE:
            call = self._beside(work, timeout, watch)
            return on_a_thread(call.run, call.cancel)
        return cast("R | Awaitable[R]", self._runner.begin(self._evaluation(work, timeout, watch)))

    def _evaluation(
        self, work: Work[Any], timeout: float | None, watch: Callable[[Any], object] | None
    ) -> Evaluation:
        seconds = self.timeout if timeout is None else timeout
        if type(work) is requests.Evaluate:
            # The most frequent kind, and nothing to ask about it.
            return Evaluation(work, seconds, watch)
        if isinstance(work, requests.Load):
            seconds = self._loading_seconds(timeout, work.system)
        elif isinstance(work, requests.StartJob):
            self._lifecycle.jobs.free_place()
        return Evaluation(work, seconds, watch)

    def _beside(
        self, work: Work[Any], timeout: float | None, watch: Callable[[Any], object] | None
    ) -> _Beside:
        """Return how to run work that is not the live process's, and how to stop it."""
        runner, seconds = self._runner, self._seconds(timeout)
        if isinstance(work, requests.Suite):
            from gramercy.images.suites import SuiteCall

            call = SuiteCall(self._lifecycle, runner, work.wanted, self._loading_seconds(timeout), watch)
            return _Beside(call.run, call.cancel)
        if isinstance(work, requests.Preview):
            return _Beside(partial(self._previewed, work, seconds), self.interrupt)
        evaluation = Evaluation(work, seconds, watch)
        run: Callable[[Runner, Any, Evaluation], Reply] = (
            evaluate_in_frame if isinstance(work, requests.InFrame) else go_on
        )
        return _Beside(partial(runner.attend, evaluation, partial(run, runner, work)), evaluation.cancel)

    def _previewed(self, work: requests.Preview, seconds: float) -> Reply:
        with self._lock:
            return previews.preview(self._runner, work.code, work.package, seconds)

    def answer(self, question: Question[R]) -> R:
        """Answer a question, which changes nothing in the image."""
        return self.handle(question)

    def go(self, move: Move[R]) -> R:
        """Keep the present state, or go to another one."""
        return self.handle(move)

    def _about(self, question: requests.About) -> Answer:
        with self._lock:
            return asking.ask(self._runner, question.question, question.at, question.details)

    def _about_moment(self, question: requests.AboutMoment) -> Answer:
        with self._lock:
            return ask(self._runner, question.question, question.moment, question.details)

    def _compare(self, question: requests.Compare) -> Comparison:
        with self._lock:
            return asking.compare(self._runner, question.a, question.b)

    def _history(self, _question: requests.History) -> list[HistoryEntry]:
        return self._runner.told_history()

    def _checkpoints(self, _question: requests.Checkpoints) -> list[CheckpointInfo]:
        with self._lock:
            self._lifecycle.surely_ready()
            return self._lifecycle.timeline.infos(is_present=self._lifecycle.unkept == 0)

    def _moments(self, _question: requests.Moments) -> list[MomentInfo]:
        with self._lock:
            if self._lifecycle.family is not None:
                self._lifecycle.moments.settle(self._lifecycle.family)
            return self._lifecycle.moments.infos()

    def _jobs(self, _question: requests.Jobs) -> list[JobInfo]:
        return self._lifecycle.jobs.all()

    def _read_job(self, question: requests.ReadJob) -> JobInfo:
        info, family = self._lifecycle.jobs.read(question.number), self._lifecycle.family
        if info.reply is None or family is None:
            return info
        return msgspec.structs.replace(info, reply=hinted(info.reply, family.program))

    def _epoch(self, _question: requests.Epoch) -> str:
        with self._lock:
            if self._lifecycle.live is not None:
                # One that has died meanwhile is replaced by its last state, which may be another one.
                self._lifecycle.surely_ready()
            return self._lifecycle.epoch

    def _changed_at(self, _question: requests.ChangedAt) -> float | None:
        past = self._lifecycle.past
        return past.at if past is not None and past.depth else None

    def _installation(self, question: requests.HowToInstall) -> Installation:
        from gramercy.images.installing import installation_for

        program = self.program()
        return installation_for(program, program.grants.project, question.packages)

    def _keep(self, move: requests.Keep) -> CheckpointInfo:
        with self._lock:
            return keep_state(self._lifecycle, move.label)

    def _rollback(self, move: requests.Rollback) -> CheckpointInfo:
        with self._lock:
            return go_back(self._lifecycle, move.checkpoint, files=move.files)

    def _undo(self, move: requests.Undo) -> CheckpointInfo:
        if move.by == "definitions":
            reply = self._runner.run(
                Evaluation(requests.UndoDefinitions("undo by definitions"), self.timeout)
            )
            with self._lock:
                return told_of_definitions(self._lifecycle, reply)
        with self._lock:
            self._lifecycle.surely_ready()
            if move.by == "state":
                return undo_exactly(self._lifecycle, files=move.files)
            replay = prepare_replay(self._lifecycle, files=move.files)
        replies = self._repeated_all(replay.steps)
        with self._lock:
            return told_of_replay(self._lifecycle, replay, replies)

    def _reset(self, _move: requests.Reset) -> list[str]:
        with self._lock:
            self._runner.history.clear()
            return self._lifecycle.reset()

    def _save(self, move: requests.Save) -> str:
        """Write the state to a file: a core for SBCL, the steps that led to it for Python."""
        with self._lock:
            family, live = self._lifecycle.surely_ready()
            return save_image(Path(move.path), family, live, self._lifecycle.past)

    def _restore(self, move: requests.Restore) -> str:
        return restore_image(Path(move.path), self)

    def _stop_job(self, move: requests.StopJob) -> JobInfo:
        """Interrupt a job where it next runs code of its language; wait a moment for its end."""
        jobs = self._lifecycle.jobs
        owner = jobs.stopping(move.number)
        if owner is not None:
            with self._lock, contextlib.suppress(ImageGoneError):
                owner.request(Answer, STOPPING_SECONDS, "stop_job", job=move.number)
            deadline = monotonic() + STOPPING_SECONDS
            while jobs.stopping(move.number) is not None and monotonic() < deadline:
                sleep(STOPPING_SECONDS / 100)
        return self.read_job(move.number)

    def _seconds(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else timeout

    def _loading_seconds(self, timeout: float | None, system: str = "") -> float:
        if timeout is not None:
            return timeout
        # A file of the user's, named by its path, is run as any code is.
        return self.timeout if system.startswith("/") else max(self.timeout, LOADING_SECONDS)

    def look(self) -> ImageView:
        """Tell how the image is right now."""
        return view_of(self.name, self._language or "", self._runner)

    def span(self) -> Span:
        """Return the state that the image is in, without waiting."""
        # Without the lock, the newest state may be accepted between two looks at the queue: once.
        with contextlib.suppress(IndexError):
            return self._lifecycle.span()
        return self._lifecycle.span()

    def note_call(self, state: str, key: int) -> None:
        """Take note of the key under which a journal has the call that led to a state."""
        self._lifecycle.timeline.keys[state] = key

    def interrupt(self) -> bool:
        """Stop what is under way: SIGINT, SIGINT, and SIGKILL if it resists."""
        wait = self._runner.wait
        if wait is None:
            return False
        wait.cut_short()
        return True

    def program(self) -> Program:
        """Return how the image was started."""
        with self._lock:
            return self._lifecycle.started().program

    def adopt(self, program: Callable[[], Program]) -> None:
        """Begin again with another program, until the next reset."""
        with self._lock:
            self._lifecycle.adopt(program)
            self._runner.history.clear()

    def repeat(self, steps: list[Step]) -> list[Reply | None]:
        """Begin with a fresh process, keep the checkpoints, and run the steps.

        Steps that had been interrupted are left out: they might never end.
        """
        with self._lock:
            self._lifecycle.start_over()
        return self._repeated_all(steps)

    def _repeated_all(self, steps: list[Step]) -> list[Reply | None]:
        return [None if step.interrupted or step.op in LEFT_OUT else self._repeated(step) for step in steps]

    def _repeated(self, step: Step) -> Reply:
        return self._runner.run(Evaluation(requests.repeated(step.op, step.code, step.package), self.timeout))

    def processes(self) -> dict[str, int]:
        """Return the pids of the processes by what they are: zygote, live, and the ids of what is kept."""
        with self._lock:
            family, live = self._lifecycle.surely_ready()
            self._lifecycle.moments.settle(family)
            pids = {"zygote": family.zygote.pid, "live": live.pid}
            pids |= {each.id: each.connection.pid for each in self._lifecycle.timeline.all()}
            return pids | self._lifecycle.moments.pids()

    def close(self) -> None:
        """End every process of the image."""
        with self._lock:
            # For good: a call that is still queued must not start processes that nothing would end.
            self._lifecycle.is_closed = True
            self._lifecycle.close()

    handlers: ClassVar[Mapping[type, Callable[[Any, Any], Any]]] = {
        requests.About: _about,
        requests.AboutMoment: _about_moment,
        requests.Compare: _compare,
        requests.History: _history,
        requests.Checkpoints: _checkpoints,
        requests.Moments: _moments,
        requests.Jobs: _jobs,
        requests.ReadJob: _read_job,
        requests.Epoch: _epoch,
        requests.ChangedAt: _changed_at,
        requests.HowToInstall: _installation,
        requests.Keep: _keep,
        requests.Rollback: _rollback,
        requests.Undo: _undo,
        requests.Reset: _reset,
        requests.Save: _save,
        requests.Restore: _restore,
        requests.StopJob: _stop_job,
    }
