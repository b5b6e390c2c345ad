"""The interface of an image: a few members that each kind of image implements, and conveniences made of them.

Nothing here assumes that the image runs on this machine. Every request has a documented answer, and "not
supported" is one of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from gramercy.errors import ImageError
from gramercy.images import requests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from gramercy.images.asking import Comparison
    from gramercy.images.base import (
        Answer,
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
    from gramercy.images.installing import Installation
    from gramercy.images.jobs import JobInfo
    from gramercy.images.lines import Typist
    from gramercy.images.requests import Move, Question, Request, Work
    from gramercy.images.suites import SuiteRun, WantedTests
    from gramercy.images.views import ImageView

R = TypeVar("R")


class Image(ABC):
    """A running program that keeps its state between calls and can go back to an earlier one.

    A kind of image implements the abstract members; the other methods are made of these, once for all kinds.
    """

    # For kinds that have a method for each kind of request.
    handlers: ClassVar[Mapping[type, Callable[[Any, Any], Any]]] = {}

    @property
    @abstractmethod
    def name(self) -> str:
        """The handle under which callers address this image."""

    @property
    @abstractmethod
    def language(self) -> str:
        """`sbcl` or `python`."""

    @property
    @abstractmethod
    def capabilities(self) -> frozenset[str]:
        """What this image can do: fork, preview, save, xref, …; starts the image when it has not been."""

    @abstractmethod
    def run(
        self,
        work: Work[R],
        *,
        timeout: float | None = None,
        watch: Callable[[Any], object] | None = None,
        typist: Typist | None = None,
    ) -> R:
        """Run work and wait for its reply; code that fails is a reply, never an exception.

        `watch` is called several times a second while it runs, with what it has printed since. `typist` types
        the lines that an evaluation asks for.
        """

    @abstractmethod
    def arun(
        self,
        work: Work[R],
        *,
        timeout: float | None = None,
        watch: Callable[[Any], object] | None = None,
    ) -> Coroutine[Any, Any, R]:
        """Run work without holding up the event loop; to cancel it is to interrupt the work.

        `watch` is called from another thread.
        """

    @abstractmethod
    def begin(
        self,
        work: Work[R],
        *,
        timeout: float | None = None,
        watch: Callable[[Any], object] | None = None,
    ) -> R | Awaitable[R]:
        """Begin work on the event loop; return its reply where that comes within a moment."""

    @abstractmethod
    def answer(self, question: Question[R]) -> R:
        """Answer a question, which changes nothing in the image."""

    @abstractmethod
    def go(self, move: Move[R]) -> R:
        """Keep the present state, or go to another one."""

    @abstractmethod
    def look(self) -> ImageView:
        """Tell how the image is right now: what runs and since when, memory, states, latest output.

        Never waits, not for a running evaluation either, and never starts the image.
        """

    @abstractmethod
    def span(self) -> Span:
        """Return the state that the image is in, without waiting: while a call runs, that before it."""

    @abstractmethod
    def note_call(self, state: str, key: int) -> None:
        """Take note of the key under which a journal has the call that led to a state; never waits."""

    @abstractmethod
    def interrupt(self) -> bool:
        """Stop the evaluation that is under way, if any; tell whether there was one."""

    @abstractmethod
    def close(self) -> None:
        """End every process of the image."""

    def handle(self, request: Request[R]) -> R:
        """Return what the method for this kind of request answers; say so where there is none."""
        handler = self.handlers.get(type(request))
        if handler is None:
            raise ImageError(f"the image {self.name} does not know {request.op}")
        answer: R = handler(self, request)
        return answer

    # Work

    def evaluate(
        self,
        code: str,
        *,
        package: str | None = None,
        timeout: float | None = None,
        watch: Watcher | None = None,
        typist: Typist | None = None,
    ) -> Reply:
        """Evaluate every form of the code, in order; a failure is a reply, never an exception.

        `watch` is called several times a second while the evaluation runs, with what it has printed since;
        `typist` types the lines that it asks for.
        """
        return self.run(requests.Evaluate(code, package), timeout=timeout, watch=watch, typist=typist)

    async def aevaluate(
        self,
        code: str,
        *,
        package: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - enforced where the work is
        watch: Watcher | None = None,
    ) -> Reply:
        """Evaluate without holding up the event loop; to cancel it is to interrupt the evaluation."""
        return await self.arun(requests.Evaluate(code, package), timeout=timeout, watch=watch)

    def start_job(self, code: str, *, package: str | None = None) -> Reply:
        """Begin work in the background, beside other calls; the reply has its number."""
        return self.run(requests.StartJob(code, package))

    def compile(self, code: str, *, package: str | None = None, timeout: float | None = None) -> Reply:
        """Compile and load the code; warnings have positions, values are not returned."""
        return self.run(requests.Compile(code, package), timeout=timeout)

    def profile(
        self,
        code: str,
        *,
        measure: Measure = "time",
        package: str | None = None,
        timeout: float | None = None,
        watch: Watcher | None = None,
    ) -> Reply:
        """Evaluate and measure; `profile` of the reply tells what the code took, and where.

        A language that cannot measure something answers with an error that says what it can.
        """
        return self.run(requests.Profile(code, measure, package), timeout=timeout, watch=watch)

    def preview(self, code: str, *, package: str | None = None, timeout: float | None = None) -> Reply:
        """Evaluate in a throw-away copy that can touch nothing, and tell what would happen."""
        return self.run(requests.Preview(code, package), timeout=timeout)

    def load_system(self, system: str, *, timeout: float | None = None, take_up: bool = False) -> Reply:
        """Load a system (SBCL) or import a package (Python).

        In place of a name Python takes the path of a file, which is run anew; with `take_up` it keeps its
        state where a module came from it before, and only what was edited is changed in place.
        """
        return self.run(requests.TakeUp(system) if take_up else requests.Load(system), timeout=timeout)

    def run_tests(
        self,
        wanted: WantedTests,
        *,
        timeout: float | None = None,
        watch: Callable[[SuiteRun], object] | None = None,
    ) -> SuiteRun:
        """Run tests of the project in a process of their own; `watch` is told several times a second."""
        return self.run(requests.Suite(wanted), timeout=timeout, watch=watch)

    def evaluate_in_frame(
        self, code: str, *, frame: int = 0, moment: str | None = None, timeout: float | None = None
    ) -> Reply:
        """Evaluate code with the variables of a frame of a moment; what it changes, it changes there only."""
        return self.run(requests.InFrame(code, frame, moment), timeout=timeout)

    def invoke_restart(
        self,
        restart: int | str,
        arguments: Sequence[str] = (),
        *,
        moment: str | None = None,
        timeout: float | None = None,
    ) -> Reply:
        """Go on from an error with a restart, by number or name, in a copy of the moment: an attempt.

        The arguments are code. The reply is that of the whole evaluation; its notes name the attempt, and a
        `rollback` to that name makes it the image. A language without restarts says so.
        """
        return self.run(requests.GoOn(restart, arguments, moment), timeout=timeout)

    # Questions

    def ask(self, question: str, *, at: str | None = None, **details: Any) -> Answer:
        """Look into the image without changing it: describe, apropos, arglist, who_calls, inspect, …

        With `at`, the id or name of a kept state, a copy of that answers, and the image stays where it is.

        `print_value` takes the number of an object, an `offset` and a `limit`: the text of the answer is so
        much of what an evaluation prints for it, and `total` in its data is the length of the whole, or None
        where that is not known. It runs no code of the user's.
        """
        return self.answer(requests.About(question, details, at))

    def ask_moment(self, question: MomentQuestion, moment: str | None = None, **details: Any) -> Answer:
        """Look at the stack of an error, the latest one by default, without running code of the user's.

        `frames` may be given a `limit`; `data` of the answer has them numbered, 0 is where it failed.
        """
        return self.answer(requests.AboutMoment(question, moment, details))

    def compare(self, a: str, b: str | None = None) -> Comparison:
        """Tell how a kept state differs from another, or from the present one; both are asked in copies.

        Definitions are compared by what is shown of them and by what calls on the way have redefined; so a
        change inside of a long value is not seen.
        """
        return self.answer(requests.Compare(a, b))

    def history(self) -> list[HistoryEntry]:
        """Return the latest evaluations, oldest first; those that are not in the present state are marked."""
        return self.answer(requests.History())

    def checkpoints(self) -> list[CheckpointInfo]:
        """List the states that can be gone back to, oldest first; parents make it a tree."""
        return self.answer(requests.Checkpoints())

    def moments(self) -> list[MomentInfo]:
        """List the errors whose stack is kept, oldest first; only the latest few are."""
        return self.answer(requests.Moments())

    def jobs(self) -> list[JobInfo]:
        """List the work in the background, the oldest first."""
        return self.answer(requests.Jobs())

    def read_job(self, number: int) -> JobInfo:
        """Return what a job has printed since it was last read, and its reply once it is over."""
        return self.answer(requests.ReadJob(number))

    def epoch(self) -> str:
        """Name the present state, once no call runs; does not start the image.

        What threads and other processes of the image change between calls is not seen.
        """
        return self.answer(requests.Epoch())

    def changed_at(self) -> float | None:
        """Return when the last call was over that may have changed something, in seconds since 1970."""
        return self.answer(requests.ChangedAt())

    def installation(self, packages: Sequence[str]) -> Installation:
        """Return the command that installs packages into the environment of the image's project.

        Raise ImageError where the project has none, or where a name is not that of a package.
        """
        return self.answer(requests.HowToInstall(packages))

    # Moves

    def checkpoint(self, label: str = "") -> CheckpointInfo:
        """Keep the present state under a name, or raise CheckpointError where that is not possible."""
        return self.go(requests.Keep(label))

    def rollback(self, checkpoint: str, *, files: bool = True) -> CheckpointInfo:
        """Go back to a state, by its id or name; what came after it stays reachable where it was kept.

        The files that calls have changed since go back too, but for those that were changed by others as
        well; `files=False` leaves all as they are.
        """
        return self.go(requests.Rollback(checkpoint, files))

    def undo(self, by: UndoWay = "state", *, files: bool = True) -> CheckpointInfo:
        """Take back the last call that may have changed something, with the files that it changed.

        By `state`, the image is exactly as before it, or nothing happens. Where that state was not kept there
        are two lesser ways: by `replay` the calls between the last kept state and the last call are run
        again, with all their effects; by `definitions` what the last call defined is put back, and no more.
        """
        return self.go(requests.Undo(by, files))

    def reset(self) -> list[str]:
        """Begin again with a fresh image; checkpoints are gone.

        Return sentences about it, such as which processes of evaluated code were ended.
        """
        return self.go(requests.Reset())

    def save(self, path: str) -> str:
        """Write the state to disk; return a sentence that says what was written."""
        return self.go(requests.Save(path))

    def restore(self, path: str) -> str:
        """Take up a state that was written to disk; return a sentence that says how that went."""
        return self.go(requests.Restore(path))

    def stop_job(self, number: int) -> JobInfo:
        """Interrupt a job, and wait a moment for its end."""
        return self.go(requests.StopJob(number))
