"""Images and offers that cost nothing before they are used.

Not a process is started for them, and what they need is not even imported.
"""

from __future__ import annotations

import contextlib
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from gramercy.execution.executor import Executor
    from gramercy.images.asking import Comparison
    from gramercy.images.base import (
        Answer,
        CheckpointInfo,
        HistoryEntry,
        Image,
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
    from gramercy.images.suites import SuiteRun, WantedTests
    from gramercy.images.views import ImageView
    from gramercy.mcp.catalogue import Catalog
    from gramercy.workbench.audit import Audit


class DeferredImage:
    """An image that is opened when it is first used, but not for its name, its language or its end.

    `kind` is the kind of image that a plug-in has added, else the language.
    """

    def __init__(
        self, name: str, language: str, open_image: Callable[[str, str], Image], kind: str | None = None
    ) -> None:
        self.name = name
        self.language = language
        self._kind = kind or language
        self._open = open_image
        self._lock = threading.Lock()
        self._opened: Image | None = None

    def _image(self) -> Image:
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    self._opened = self._open(self.name, self._kind)
        return self._opened

    @property
    def was_used(self) -> bool:
        """Whether a call has used the image."""
        return self._opened is not None

    @property
    def capabilities(self) -> frozenset[str]:
        """What the image can do."""
        return self._image().capabilities

    def evaluate(
        self,
        code: str,
        *,
        package: str | None = None,
        timeout: float | None = None,
        watch: Watcher | None = None,
    ) -> Reply:
        """Evaluate every form of the code."""
        return self._image().evaluate(code, package=package, timeout=timeout, watch=watch)

    def aevaluate(
        self,
        code: str,
        *,
        package: str | None = None,
        timeout: float | None = None,
        watch: Watcher | None = None,
    ) -> Coroutine[Any, Any, Reply]:
        """Evaluate without holding up the event loop."""
        return self._image().aevaluate(code, package=package, timeout=timeout, watch=watch)

    def begin(
        self,
        code: str,
        *,
        package: str | None = None,
        timeout: float | None = None,
        watch: Watcher | None = None,
    ) -> Reply | Awaitable[Reply]:
        """Begin an evaluation on the event loop."""
        return (self._opened or self._image()).begin(code, package=package, timeout=timeout, watch=watch)

    def start_job(self, code: str, *, package: str | None = None) -> Reply:
        """Begin work in the background."""
        return self._image().start_job(code, package=package)

    def begin_job(self, code: str, *, package: str | None = None) -> Reply | Awaitable[Reply]:
        """Begin it on the event loop."""
        return self._image().begin_job(code, package=package)

    def jobs(self) -> list[JobInfo]:
        """List the work in the background."""
        return [] if self._opened is None else self._opened.jobs()

    def read_job(self, number: int) -> JobInfo:
        """Read what is new of a job."""
        return self._image().read_job(number)

    def stop_job(self, number: int) -> JobInfo:
        """Stop a job."""
        return self._image().stop_job(number)

    def compile(self, code: str, *, package: str | None = None, timeout: float | None = None) -> Reply:
        """Compile and load the code."""
        return self._image().compile(code, package=package, timeout=timeout)

    def acompile(
        self,
        code: str,
        *,
        package: str | None = None,
        timeout: float | None = None,
        watch: Watcher | None = None,
    ) -> Coroutine[Any, Any, Reply]:
        """Compile without holding up the event loop."""
        return self._image().acompile(code, package=package, timeout=timeout, watch=watch)

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
        return self._image().profile(code, measure=measure, package=package, timeout=timeout, watch=watch)

    def aprofile(
        self,
        code: str,
        *,
        measure: Measure = "time",
        package: str | None = None,
        timeout: float | None = None,
        watch: Watcher | None = None,
    ) -> Coroutine[Any, Any, Reply]:
        """Measure without holding up the event loop."""
        return self._image().aprofile(code, measure=measure, package=package, timeout=timeout, watch=watch)

    def preview(self, code: str, *, package: str | None = None, timeout: float | None = None) -> Reply:
        """Evaluate in a throw-away copy."""
        return self._image().preview(code, package=package, timeout=timeout)

    def ask(self, question: str, *, at: str | None = None, **details: Any) -> Answer:
        """Look into the image without changing it."""
        return self._image().ask(question, at=at, **details)

    def compare(self, a: str, b: str | None = None) -> Comparison:
        """Tell how a state differs from another."""
        return self._image().compare(a, b)

    def look(self) -> ImageView:
        """Tell how the image is right now; one that was never used is not opened for it."""
        if self._opened is not None:
            return self._opened.look()
        from gramercy.images.views import ImageView

        return ImageView(self.name, self.language, "not started")

    def history(self) -> list[HistoryEntry]:
        """Return the latest evaluations."""
        return self._image().history()

    def load_system(self, system: str, *, timeout: float | None = None, take_up: bool = False) -> Reply:
        """Load a system or import a package."""
        return self._image().load_system(system, timeout=timeout, take_up=take_up)

    def aload_system(
        self, system: str, *, timeout: float | None = None, watch: Watcher | None = None
    ) -> Coroutine[Any, Any, Reply]:
        """Load without holding up the event loop."""
        return self._image().aload_system(system, timeout=timeout, watch=watch)

    def run_tests(
        self,
        wanted: WantedTests,
        *,
        timeout: float | None = None,
        watch: Callable[[SuiteRun], object] | None = None,
    ) -> SuiteRun:
        """Run tests of the project."""
        return self._image().run_tests(wanted, timeout=timeout, watch=watch)

    def arun_tests(
        self,
        wanted: WantedTests,
        *,
        timeout: float | None = None,
        watch: Callable[[SuiteRun], object] | None = None,
    ) -> Coroutine[Any, Any, SuiteRun]:
        """Run tests without holding up the event loop."""
        return self._image().arun_tests(wanted, timeout=timeout, watch=watch)

    def installation(self, packages: Sequence[str]) -> Installation:
        """Return the command that installs packages for the image."""
        return self._image().installation(packages)

    def checkpoint(self, label: str = "") -> CheckpointInfo:
        """Keep the present state under a name."""
        return self._image().checkpoint(label)

    def checkpoints(self) -> list[CheckpointInfo]:
        """List the states that can be gone back to."""
        return self._image().checkpoints()

    def rollback(self, checkpoint: str, *, files: bool = True) -> CheckpointInfo:
        """Go back to a state."""
        return self._image().rollback(checkpoint, files=files)

    def span(self) -> Span:
        """Return the state that the image is in; to ask it starts no image."""
        if self._opened is not None:
            return self._opened.span()
        from gramercy.images.base import Span

        return Span()

    def note_call(self, state: str, key: int) -> None:
        """Take note of the key of the call that led to a state."""
        self._image().note_call(state, key)

    def epoch(self) -> str:
        """Name the present state; to ask it starts no image."""
        if self._opened is not None:
            return self._opened.epoch()
        from gramercy.images.checkpoints import FRESH

        return FRESH

    def changed_at(self) -> float | None:
        """Return when the last call was over that may have changed something; to ask it starts no image."""
        return self._opened.changed_at() if self._opened is not None else None

    def undo(self, by: UndoWay = "state", *, files: bool = True) -> CheckpointInfo:
        """Take back the last call that may have changed something."""
        return self._image().undo(by, files=files)

    def moments(self) -> list[MomentInfo]:
        """List the errors whose stack is kept."""
        return self._image().moments()

    def ask_moment(self, question: MomentQuestion, moment: str | None = None, **details: Any) -> Answer:
        """Look at the stack of an error."""
        return self._image().ask_moment(question, moment, **details)

    def evaluate_in_frame(
        self, code: str, *, frame: int = 0, moment: str | None = None, timeout: float | None = None
    ) -> Reply:
        """Evaluate code with the variables of a frame."""
        return self._image().evaluate_in_frame(code, frame=frame, moment=moment, timeout=timeout)

    def aevaluate_in_frame(
        self, code: str, *, frame: int = 0, moment: str | None = None, timeout: float | None = None
    ) -> Coroutine[Any, Any, Reply]:
        """Evaluate in a frame without holding up the event loop."""
        return self._image().aevaluate_in_frame(code, frame=frame, moment=moment, timeout=timeout)

    def invoke_restart(
        self,
        restart: int | str,
        arguments: Sequence[str] = (),
        *,
        moment: str | None = None,
        timeout: float | None = None,
    ) -> Reply:
        """Go on from an error with a restart, in a copy."""
        return self._image().invoke_restart(restart, arguments, moment=moment, timeout=timeout)

    def ainvoke_restart(
        self,
        restart: int | str,
        arguments: Sequence[str] = (),
        *,
        moment: str | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, Reply]:
        """Go on from an error without holding up the event loop."""
        return self._image().ainvoke_restart(restart, arguments, moment=moment, timeout=timeout)

    def reset(self) -> list[str]:
        """Begin again with a fresh image."""
        return self._image().reset()

    def save(self, path: str) -> str:
        """Write the state to disk."""
        return self._image().save(path)

    def restore(self, path: str) -> str:
        """Take up a state that was written to disk."""
        return self._image().restore(path)

    def interrupt(self) -> bool:
        """Stop the evaluation under way, if any."""
        return self._opened is not None and self._opened.interrupt()

    def close(self) -> None:
        """End every process there is."""
        if self._opened is not None:
            self._opened.interrupt()
            self._opened.close()


def offers_of(
    images: Sequence[Image],
    executor: Executor,
    categories: Sequence[str] = (),
    audit: Callable[[], Audit] | None = None,
) -> Catalog:
    """Return what a server of images offers beside tools."""
    from gramercy.mcp.catalogue import Catalog

    def fill(catalog: Catalog) -> None:
        from gramercy.workbench.offers import add_offers

        add_offers(catalog, images, executor, categories, audit() if audit is not None else None)

    return Catalog(fill)


def close_within(seconds: float, images: Iterable[Image]) -> None:
    """End images side by side and wait for that, at most so long.

    What is still busy then ends with this process, as every process of an image does.
    """
    threads = [threading.Thread(target=_close, args=(image,), daemon=True) for image in images]
    for thread in threads:
        thread.start()
    end = monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - monotonic()))


def _close(image: Image) -> None:
    with contextlib.suppress(Exception):  # the process is about to end
        image.close()
