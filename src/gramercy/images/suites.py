"""A run of a project's tests in a separate process, which is discarded afterwards.

The process is either a copy of the live one, with everything defined in it, or a fresh one with the contents
of the files. An event marks the beginning and the end of each test, so a run whose process dies or hangs
still shows the earlier results, and the test in which it ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import ImageError, ImageGoneError, ImageProtocolError
from gramercy.images import deaths
from gramercy.images.attempts import attempt_of
from gramercy.images.base import ImageFault
from gramercy.images.connection import WATCH_SECONDS, Wait
from gramercy.images.files.telling import changes_text
from gramercy.images.files.trails import changed_between
from gramercy.images.wire import SuiteFrame

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.connection import Connection
    from gramercy.images.lifecycle import Lifecycle
    from gramercy.images.processes import Family
    from gramercy.images.runner import Runner
    from gramercy.images.wire import SuiteEvent

# Outcomes that count as failures. The others are passed, skipped, and expected failures.
BAD = ("failed", "error")
# Failures whose texts are kept: an answer has room for fewer. Names are kept of more, to run them again.
MOST_TEXTS = 50
MOST_NAMES = 5_000
# Outcomes with their own name: pytest has seven, its plugins add some.
MOST_OUTCOMES = 30
THE_TESTS = "The tests"
IN_COPY = "a copy of the image"
NO_COPY = (
    "The image cannot be copied ({reason}), so the tests ran in a fresh process, from the files: what was "
    "defined in the image only was not tested."
)


class WantedTests(msgspec.Struct, frozen=True):
    """The tests to run: names, files, systems or suites. Empty means all of the project.

    `in_image` selects a copy of the live process over a fresh one. None leaves that to the language: Lisp
    works in the image, Python on files.
    """

    names: tuple[str, ...] = ()
    framework: str | None = None
    in_image: bool | None = None


class CaseFailure(msgspec.Struct, frozen=True):
    """A test that failed or proves little: its name for another run, the reason, its output."""

    name: str
    outcome: str
    text: str = ""
    output: str = ""


class SuiteRun(msgspec.Struct, eq=False):
    """The state of a run. `current` is the running test; after the end, the one it ended in.

    `trouble` says that nothing was found, or the status with which the framework ended where the tests do not
    explain it. `fault` is an error outside of the tests, or the death or timeout that ended them.
    """

    where: str = ""
    framework: str = ""
    total: int = 0
    counts: dict[str, int] = {}
    checks: int = 0
    deselected: int = 0
    failures: list[CaseFailure] = []
    failed: list[str] = []
    current: str = ""
    stopped: str = ""
    seconds: float = 0.0
    trouble: str = ""
    fault: ImageFault | None = None
    stdout: str = ""
    stderr: str = ""
    log: str = ""
    notes: list[str] = []

    @property
    def done(self) -> int:
        """The number of finished tests."""
        return sum(self.counts.values())

    @property
    def bad(self) -> int:
        """The number of failed tests."""
        return sum(self.counts.get(outcome, 0) for outcome in BAD)

    def note(self, event: SuiteEvent) -> None:
        """Process an event."""
        if event.kind == "found":
            self.total += event.total
        elif event.kind == "begin":
            self.current = event.name
        elif event.kind == "end":
            self.current = ""
        elif event.kind == "deselected":
            self.deselected += event.total
        elif event.kind == "stopped":
            self.stopped = event.text
        else:
            self._note_result(event)

    def _note_result(self, event: SuiteEvent) -> None:
        known = event.outcome in self.counts or len(self.counts) < MOST_OUTCOMES
        outcome = event.outcome if known else "other"
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        self.checks += event.checks
        # A passed test has a text if only its exit status says that it passed.
        if event.outcome not in BAD and not event.text:
            return
        if len(self.failures) < MOST_TEXTS:
            self.failures.append(CaseFailure(event.name, event.outcome, event.text, event.output))
        if event.outcome in BAD and len(self.failed) < MOST_NAMES and event.name not in self.failed[-1:]:
            self.failed.append(event.name)

    def conclude(self, frame: SuiteFrame) -> None:
        """Process the reply at the end."""
        self.framework = frame.framework or self.framework
        self.trouble, self.fault = frame.trouble, frame.error
        self.stdout, self.stderr = frame.stdout, frame.stderr
        self.notes += frame.notes


class _SuiteWait(Wait):
    """The wait for a run: processes its events, and reports them."""

    run: SuiteRun = msgspec.field(default_factory=SuiteRun)
    observe: Any = None
    told_at: float = 0.0

    def _within(self, kind: type[Any], seconds: float) -> Any:
        del kind  # always a SuiteFrame
        deadline = monotonic() + seconds
        while (left := deadline - monotonic()) > 0:
            told = self.connection.receive_of_suite(min(left, WATCH_SECONDS))
            if told is not None:
                if told.event is None:
                    return told
                self.run.note(told.event)
            self._tell_in_time()
        return None

    def _tell_in_time(self) -> None:
        if self.observe is None or monotonic() - self.told_at < WATCH_SECONDS:
            return
        self.told_at = monotonic()
        self.run.seconds = self.told_at - self.started
        try:
            self.observe(self.run)
        except Exception:  # noqa: BLE001 - a watcher's fault must not fail the tests
            self.observe = None


class SuiteCall:
    """One call that runs tests. Another thread may cancel it."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        runner: Runner,
        wanted: WantedTests,
        seconds: float,
        observe: Callable[[SuiteRun], object] | None = None,
    ) -> None:
        self._lifecycle = lifecycle
        self._runner = runner
        self._wanted = wanted
        self._seconds = seconds
        self._observe = observe
        self._wait: Wait | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """Interrupt the tests, or prevent their start."""
        self._is_cancelled = True
        if self._wait is not None:
            self._wait.cut_short()

    def run(self) -> SuiteRun:
        """Run the tests and wait for the end."""
        run = SuiteRun(counts={}, failures=[], failed=[], notes=[])
        with self._runner.lock:
            # The live process must be ready too: file changes of the tests are undone relative to its state.
            family, _ = self._lifecycle.surely_ready()
            copy = self._copy(family, run)
            before = self._lifecycle.trail
            self._lifecycle.hear(copy, is_suite=True)
            try:
                self._run_in(copy, family, run)
            finally:
                self._runner.wait = None
                _end(copy, family)
                account = self._lifecycle.heard()
            run.notes += account.notes
            if account.files:
                run.notes.append(f"[files] {changes_text(account.files)}")
            if changed_between(self._lifecycle.trail, before):
                self._lifecycle.note_tests(" ".join(["run_tests", *self._wanted.names]), before)
        return run

    def _copy(self, family: Family, run: SuiteRun) -> Connection:
        in_image = self._wanted.in_image
        if in_image if in_image is not None else family.program.language != "python":
            _, live = self._lifecycle.surely_ready()
            try:
                run.where = IN_COPY
                return family.fork(live, "preview")
            except ImageGoneError:
                raise
            except ImageError as error:
                # Not in the live process: a test that hangs or dies would destroy its state.
                run.notes.append(NO_COPY.format(reason=error))
        run.where = "a fresh process"
        return family.fork(family.zygote, "live", plain=True)

    def _run_in(self, copy: Connection, family: Family, run: SuiteRun) -> None:
        family.log.news()
        wait = _SuiteWait(copy, family.mirror, run=run, observe=self._observe)
        self._wait = self._runner.wait = wait
        copy.send(
            "run_tests",
            names=list(self._wanted.names),
            framework=self._wanted.framework,
            cache=str(family.directory.path / "tmp" / "tests"),
            # The copy is discarded, so it may load edited files even if that fails.
            back=True if family.program.language == "python" else None,
            copy=run.where == IN_COPY,
        )
        if self._is_cancelled:
            wait.cut_short()
        try:
            frame = wait.for_reply(SuiteFrame, self._seconds)
        except ImageGoneError:
            attempt = attempt_of(wait)
            at = attempt.at if attempt is not None else ""
            run.fault = deaths.tests_ended(family.log.tail(), family.fate(copy), at)
            printed = wait.printed()
            run.stdout, run.stderr = printed.stdout, printed.stderr
        except ImageProtocolError as error:
            run.fault = ImageFault("INVALID-REPLY", str(error))
        else:
            self._conclude(run, frame, wait)
        run.seconds = monotonic() - wait.started
        run.log = family.log.news()

    def _conclude(self, run: SuiteRun, frame: SuiteFrame | None, wait: Wait) -> None:
        if frame is None:
            run.fault = deaths.killed(self._seconds, THE_TESTS)
            return
        run.conclude(frame)
        if wait.is_late:
            fault = run.fault or ImageFault("TIMEOUT", "", interrupted=True)
            run.fault = deaths.late(fault, self._seconds, THE_TESTS)
        elif self._is_cancelled:
            run.fault = ImageFault("CANCELLED", "The call was taken back.", interrupted=True)


def _end(copy: Connection, family: Family) -> None:
    """End the process, with all processes that tests have left in its group."""
    if not copy.has_ended():
        with contextlib.suppress(OSError, ImageError):
            os.killpg(copy.pid, signal.SIGKILL)
    family.kill(copy)
