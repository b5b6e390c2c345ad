"""The live image: one evaluating process, a checkpoint after every call, and a way back from every death."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import ImageGoneError
from gramercy.images import asking, previews
from gramercy.images.base import Answer
from gramercy.images.checkpoints import LEFT_OUT
from gramercy.images.connection import Evaluation
from gramercy.images.deaths import hinted
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
    from collections.abc import Awaitable, Callable, Sequence

    from gramercy.images.asking import Comparison
    from gramercy.images.base import (
        CheckpointInfo,
        HistoryEntry,
        Measure,
        MomentInfo,
        MomentQuestion,
        Reply,
        Span,
        UndoWay,
        Watcher,
    )
    from gramercy.images.checkpoints import Step
    from gramercy.images.installing import Installation
    from gramercy.images.jobs import JobInfo
    from gramercy.images.lines import Typist
    from gramercy.images.processes import Program
    from gramercy.images.suites import SuiteCall, SuiteRun, WantedTests
    from gramercy.images.thrift import Thrift
    from gramercy.images.views import ImageView

# Long enough for a test suite of a small project, short enough that a client has not given up before.
DEFAULT_TIMEOUT = 60.0
# A first compilation of a big library takes minutes.
LOADING_SECONDS = 600.0
# How long to wait for a job to take notice that it is to stop.
STOPPING_SECONDS = 2.0


class LiveImage:
    """An image of processes on this machine. Starts when first used; one call at a time, in order."""

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

    def evaluate(
        self,
        code: str,
        *,
        package: str | None = None,
        timeout: float | None = None,
        watch: Watcher | None = None,
        typist: Typist | None = None,
    ) -> Reply:
        """Evaluate every form of the code, in order; `typist` types the lines that it asks for."""
        seconds = self._seconds(timeout)
        return self._runner.run(Evaluation("eval", code, seconds, package, watch, typist=typist))

    async def aevaluate(
        self,
        code: str,
        *,
        package: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - enforced where the work is
        watch: Watcher | None = None,
    ) -> Reply:
        """Evaluate without holding up the event loop; `watch` is called from another thread."""
        return await self._runner.arun(Evaluation("eval", code, self._seconds(timeout), package, watch))

    def begin(
        self,
        code: str,
        *,
        package: str | None = None,
        timeout: float | None = None,
        watch: Watcher | None = None,
    ) -> Reply | Awaitable[Reply]:
        """Begin an evaluation on the event loop; return its reply where that comes within a moment."""
        return self._runner.begin(
            Evaluation("eval", code, self.timeout if timeout is None else timeout, package, watch)
        )

    def start_job(self, code: str, *, package: str | None = None) -> Reply:
        """Begin work in the background, beside other calls; the reply has its number."""
        self._lifecycle.jobs.free_place()
        return self._runner.run(Evaluation("start_job", code, self.timeout, package))

    def begin_job(self, code: str, *, package: str | None = None) -> Reply | Awaitable[Reply]:
        """Begin it on the event loop."""
        self._lifecycle.jobs.free_place()
        return self._runner.begin(Evaluation("start_job", code, self.timeout, package))

    def jobs(self) -> list[JobInfo]:
        """List the work in the background, the oldest first."""
        return self._lifecycle.jobs.all()

    def read_job(self, number: int) -> JobInfo:
        """Return what a job has printed since it was last read, and its reply once it is over."""
        info, family = self._lifecycle.jobs.read(number), self._lifecycle.family
        if info.reply is None or family is None:
            return info
        return msgspec.structs.replace(info, reply=hinted(info.reply, family.program))

    def stop_job(self, number: int) -> JobInfo:
        """Interrupt a job where it next runs code of its language; wait a moment for its end."""
        jobs = self._lifecycle.jobs
        owner = jobs.stopping(number)
        if owner is not None:
            with self._lock, contextlib.suppress(ImageGoneError):
                owner.request(Answer, STOPPING_SECONDS, "stop_job", job=number)
            deadline = monotonic() + STOPPING_SECONDS
            while jobs.stopping(number) is not None and monotonic() < deadline:
                sleep(STOPPING_SECONDS / 100)
        return self.read_job(number)

    def compile(self, code: str, *, package: str | None = None, timeout: float | None = None) -> Reply:
        """Compile and load the code."""
        return self._runner.run(Evaluation("compile", code, self._seconds(timeout), package))

    def load_system(self, system: str, *, timeout: float | None = None, take_up: bool = False) -> Reply:
        """Load a system or import a package; `take_up` what was edited, where the file was loaded before."""
        op = "take_up" if take_up else "load_system"
        return self._runner.run(Evaluation(op, system, self._loading_seconds(timeout, system)))

    async def acompile(
        self,
        code: str,
        *,
        package: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - enforced where the work is
        watch: Watcher | None = None,
    ) -> Reply:
        """Compile without holding up the event loop."""
        return await self._runner.arun(Evaluation("compile", code, self._seconds(timeout), package, watch))

    async def aload_system(
        self,
        system: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - enforced where the work is
        watch: Watcher | None = None,
    ) -> Reply:
        """Load without holding up the event loop."""
        return await self._runner.arun(
            Evaluation("load_system", system, self._loading_seconds(timeout, system), None, watch)
        )

    def profile(
        self,
        code: str,
        *,
        measure: Measure = "time",
        package: str | None = None,
        timeout: float | None = None,
        watch: Watcher | None = None,
    ) -> Reply:
        """Evaluate and measure."""
        evaluation = Evaluation("profile", code, self._seconds(timeout), package, watch, measure=measure)
        return self._runner.run(evaluation)

    async def aprofile(
        self,
        code: str,
        *,
        measure: Measure = "time",
        package: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - enforced where the work is
        watch: Watcher | None = None,
    ) -> Reply:
        """Measure without holding up the event loop."""
        evaluation = Evaluation("profile", code, self._seconds(timeout), package, watch, measure=measure)
        return await self._runner.arun(evaluation)

    def history(self) -> list[HistoryEntry]:
        """Return the latest evaluations, oldest first."""
        return self._runner.told_history()

    def _seconds(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else timeout

    def _loading_seconds(self, timeout: float | None, system: str = "") -> float:
        if timeout is not None:
            return timeout
        # A file of the user's, named by its path, is run as any code is.
        return self.timeout if system.startswith("/") else max(self.timeout, LOADING_SECONDS)

    def preview(self, code: str, *, package: str | None = None, timeout: float | None = None) -> Reply:
        """Evaluate in a forked copy that gives up all its rights first and is killed afterwards."""
        with self._lock:
            return previews.preview(self._runner, code, package, self._seconds(timeout))

    def ask(self, question: str, *, at: str | None = None, **details: Any) -> Answer:
        """Look into the image as it is, or as it was in a kept state."""
        with self._lock:
            return asking.ask(self._runner, question, at, details)

    def compare(self, a: str, b: str | None = None) -> Comparison:
        """Tell how one state differs from another."""
        with self._lock:
            return asking.compare(self._runner, a, b)

    def look(self) -> ImageView:
        """Tell how the image is right now."""
        return view_of(self.name, self._language or "", self._runner)

    def run_tests(
        self,
        wanted: WantedTests,
        *,
        timeout: float | None = None,
        watch: Callable[[SuiteRun], object] | None = None,
    ) -> SuiteRun:
        """Run tests of the project in a process that is thrown away."""
        return self._suite_call(wanted, timeout, watch).run()

    async def arun_tests(
        self,
        wanted: WantedTests,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - enforced where the work is
        watch: Callable[[SuiteRun], object] | None = None,
    ) -> SuiteRun:
        """Run tests without holding up the event loop; `watch` is called from another thread."""
        call = self._suite_call(wanted, timeout, watch)
        return await on_a_thread(call.run, call.cancel)

    def _suite_call(
        self, wanted: WantedTests, timeout: float | None, watch: Callable[[SuiteRun], object] | None
    ) -> SuiteCall:
        from gramercy.images.suites import SuiteCall

        return SuiteCall(self._lifecycle, self._runner, wanted, self._loading_seconds(timeout), watch)

    def installation(self, packages: Sequence[str]) -> Installation:
        """Return the command that installs packages for the image, into the environment of its project."""
        from gramercy.images.installing import installation_for

        program = self.program()
        return installation_for(program, program.grants.project, packages)

    def checkpoint(self, label: str = "") -> CheckpointInfo:
        """Keep the present state under a name, or say why it cannot be kept."""
        with self._lock:
            return keep_state(self._lifecycle, label)

    def checkpoints(self) -> list[CheckpointInfo]:
        """List the states that can be gone back to."""
        with self._lock:
            self._lifecycle.surely_ready()
            return self._lifecycle.timeline.infos(is_present=self._lifecycle.unkept == 0)

    def rollback(self, checkpoint: str, *, files: bool = True) -> CheckpointInfo:
        """Go back to a state, by its id or by a name that only it has."""
        with self._lock:
            return go_back(self._lifecycle, checkpoint, files=files)

    def span(self) -> Span:
        """Return the state that the image is in, without waiting."""
        # Without the lock, the newest state may be accepted between two looks at the queue: once.
        with contextlib.suppress(IndexError):
            return self._lifecycle.span()
        return self._lifecycle.span()

    def note_call(self, state: str, key: int) -> None:
        """Take note of the key under which a journal has the call that led to a state."""
        self._lifecycle.timeline.keys[state] = key

    def epoch(self) -> str:
        """Name the present state, once no call runs."""
        with self._lock:
            if self._lifecycle.live is not None:
                # One that has died meanwhile is replaced by its last state, which may be another one.
                self._lifecycle.surely_ready()
            return self._lifecycle.epoch

    def changed_at(self) -> float | None:
        """Return when the last call was over that may have changed something."""
        past = self._lifecycle.past
        return past.at if past is not None and past.depth else None

    def undo(self, by: UndoWay = "state", *, files: bool = True) -> CheckpointInfo:
        """Take back the last call that may have changed something."""
        if by == "definitions":
            reply = self._runner.run(Evaluation("undo_definitions", "undo by definitions", self.timeout))
            with self._lock:
                return told_of_definitions(self._lifecycle, reply)
        with self._lock:
            self._lifecycle.surely_ready()
            if by == "state":
                return undo_exactly(self._lifecycle, files=files)
            replay = prepare_replay(self._lifecycle, files=files)
        replies = self._repeated_all(replay.steps)
        with self._lock:
            return told_of_replay(self._lifecycle, replay, replies)

    def moments(self) -> list[MomentInfo]:
        """List the errors whose stack is kept, oldest first."""
        with self._lock:
            if self._lifecycle.family is not None:
                self._lifecycle.moments.settle(self._lifecycle.family)
            return self._lifecycle.moments.infos()

    def ask_moment(self, question: MomentQuestion, moment: str | None = None, **details: Any) -> Answer:
        """Look at the stack of an error."""
        with self._lock:
            return ask(self._runner, question, moment, details)

    def evaluate_in_frame(
        self, code: str, *, frame: int = 0, moment: str | None = None, timeout: float | None = None
    ) -> Reply:
        """Evaluate code with the variables of a frame."""
        evaluation = Evaluation("eval_in_frame", code, self._seconds(timeout))
        return self._runner.attend(evaluation, partial(evaluate_in_frame, self._runner, moment, frame))

    async def aevaluate_in_frame(
        self,
        code: str,
        *,
        frame: int = 0,
        moment: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - enforced where the work is
    ) -> Reply:
        """Evaluate in a frame without holding up the event loop."""
        evaluation = Evaluation("eval_in_frame", code, self._seconds(timeout))
        work = partial(evaluate_in_frame, self._runner, moment, frame)
        return await on_a_thread(partial(self._runner.attend, evaluation, work), evaluation.cancel)

    def invoke_restart(
        self,
        restart: int | str,
        arguments: Sequence[str] = (),
        *,
        moment: str | None = None,
        timeout: float | None = None,
    ) -> Reply:
        """Go on from an error with a restart, in a copy of its moment."""
        evaluation = _restarting(restart, arguments, self._seconds(timeout))
        return self._runner.attend(evaluation, partial(go_on, self._runner, moment, restart, arguments))

    async def ainvoke_restart(
        self,
        restart: int | str,
        arguments: Sequence[str] = (),
        *,
        moment: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - enforced where the work is
    ) -> Reply:
        """Go on from an error without holding up the event loop."""
        evaluation = _restarting(restart, arguments, self._seconds(timeout))
        work = partial(go_on, self._runner, moment, restart, arguments)
        return await on_a_thread(partial(self._runner.attend, evaluation, work), evaluation.cancel)

    def reset(self) -> list[str]:
        """Begin again with a fresh image; return what there is to say, such as which processes it left."""
        with self._lock:
            self._runner.history.clear()
            return self._lifecycle.reset()

    def interrupt(self) -> bool:
        """Stop what is under way: SIGINT, SIGINT, and SIGKILL if it resists."""
        wait = self._runner.wait
        if wait is None:
            return False
        wait.cut_short()
        return True

    def save(self, path: str) -> str:
        """Write the state to a file: a core for SBCL, the steps that led to it for Python."""
        with self._lock:
            family, live = self._lifecycle.surely_ready()
            return save_image(Path(path), family, live, self._lifecycle.past)

    def restore(self, path: str) -> str:
        """Take up a state that was written to a file."""
        return restore_image(Path(path), self)

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
        return self._runner.run(Evaluation(step.op, step.code, self.timeout, step.package))

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


def _restarting(restart: int | str, arguments: Sequence[str], seconds: float) -> Evaluation:
    """Return the call that goes on with a restart; its text is for the history."""
    told = " ".join(["; restart", str(restart), *arguments])
    return Evaluation("invoke", told, seconds)
