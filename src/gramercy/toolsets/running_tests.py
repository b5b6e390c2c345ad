"""The tool that runs a project's tests and tells what failed, so that the next step is clear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gramercy.tools.content import ToolOutput
from gramercy.tools.context import current_call
from gramercy.toolsets.factory import flag, text
from gramercy.toolsets.rendering import LONGEST_ANSWER, fair_share, fault_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.base import Image
    from gramercy.images.suites import CaseFailure, SuiteRun, WantedTests
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.workspace import Workspace

# The order of counts in the verdict: what needs work comes first.
OUTCOMES = ("failed", "error", "passed", "skipped", "xfailed", "xpassed")
PLURAL = {"error": "errors"}
# Failures shown with their texts: about what a model works on before it runs the tests again.
MOST_SHOWN = 8
# Names listed of the others.
MOST_NAMED = 20
# Characters of one failure, and of what its test printed.
LONGEST_FAILURE = 2_400
LONGEST_OUTPUT = 800
# Frames of an error outside of the tests, which is nearly always one of loading.
MOST_FRAMES = 6
# Of an output that is all there is to see.
LONGEST_TAIL = 2_500
# Left of an answer for the verdict, the names and the notes.
ROOM = LONGEST_ANSWER - 2_000
FRAMEWORKS = ("pytest", "unittest", "fiveam", "rove", "parachute", "asdf")
NOTHING = {
    "python": "No tests were found. Name a file, a directory or a test; pytest takes files test_*.py.",
    "sbcl": "No tests were found. Name an ASDF system, a file, a suite or a test.",
}
UNSEEN = "No test of a known framework was seen: the test-op ended without an error. It printed:"
LEADS_ON = "To look closer, evaluate the failing call; error_frames then shows the frames of its error."
NO_PYTEST = (
    "pytest is not installed in the environment of this image. Install it there with {install}, or say "
    "framework unittest."
)


def running_test_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tool."""
    del workspace
    return [_run_tests(workshop, _Memory())]


class _Memory:
    """The tests that failed in the last run of each image."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[str, ...]] = {}

    def failed(self, image: Image) -> tuple[str, ...] | None:
        return self._failed.get(image.name)

    def note(self, image: Image, run: SuiteRun) -> None:
        # A run that ended early in a test has that one to run again too.
        names = [*run.failed, run.current] if run.current and run.fault is not None else run.failed
        self._failed[image.name] = tuple(dict.fromkeys(names))


def _run_tests(workshop: Workshop, memory: _Memory) -> Tool:
    def blocking(image: Image, arguments: dict[str, Any]) -> Any:
        wanted = _wanted(image, arguments, memory)
        if isinstance(wanted, str):
            return wanted
        return told(workshop, image, memory, image.run_tests(wanted, timeout=arguments.get("timeout")))

    async def waiting(image: Image, arguments: dict[str, Any]) -> Any:
        wanted = _wanted(image, arguments, memory)
        if isinstance(wanted, str):
            return wanted
        run = await image.arun_tests(wanted, timeout=arguments.get("timeout"), watch=_reporter())
        return told(workshop, image, memory, run)

    return workshop.make(
        "run_tests",
        "Run the project's tests and show what failed, with values, place and output. Lisp (fiveam, rove, "
        "parachute, any ASDF test-op): in a copy of the image, so definitions made there are tested. Python "
        "(pytest, unittest): in a fresh process from the files. The image itself stays as it is.",
        {
            "what": text("A file, test name or id, ASDF system or suite; by default all"),
            "last_failed": flag("Only those that failed the last time"),
            "framework": text("By default found out", enum=list(FRAMEWORKS)),
            "in_image": flag("Python: true tests a copy of the image. Lisp: false a fresh process"),
            **_timeout(workshop),
        },
        blocking,
        run_async=waiting,
        level="cautious",
        categories=["execution"],
        title="Run tests",
        destructive=workshop.writes_files,
        open_world=workshop.open_world,
    )


def _timeout(workshop: Workshop) -> dict[str, Any]:
    longest = workshop.longest_timeout
    if longest is None:
        return {}
    described = f"Seconds after which the tests are interrupted, at most {longest:g}"
    return {
        "timeout": {"type": "number", "description": described, "exclusiveMinimum": 0, "maximum": longest}
    }


def _wanted(image: Image, arguments: dict[str, Any], memory: _Memory) -> WantedTests | str:
    names = tuple(filter(None, [arguments.get("what", "").strip()]))
    if arguments.get("last_failed"):
        failed = memory.failed(image)
        if failed is None:
            return "No tests have run in this session: run_tests without last_failed runs all."
        if not failed:
            return "Nothing failed in the last run."
        names = failed
    from gramercy.images.suites import WantedTests

    return WantedTests(names, arguments.get("framework"), arguments.get("in_image"))


def _reporter() -> Callable[[SuiteRun], None]:
    """Return what tells the caller of the present call how far the tests are."""
    report = current_call().report

    def tell(run: SuiteRun) -> None:
        of = f" of {run.total}" if run.total else ""
        failed = f", {run.bad} failed" if run.bad else ""
        now = f"; {run.current}" if run.current else ""
        # Progress must go on also while one test runs long.
        report(run.done + min(run.seconds / 1e4, 0.9), run.total or None, f"{run.done}{of}{failed}{now}")

    return tell


def told(workshop: Workshop, image: Image, memory: _Memory, run: SuiteRun) -> Any:
    """Return the answer: the verdict, the failures, what else there is to say."""
    if run.fault is not None and run.fault.type == "UNKNOWN-TEST":
        near = ", ".join(run.fault.suggestions)
        return ToolOutput(None, error=f"{run.fault.message}{f' Did you mean {near}?' if near else ''}")
    if run.fault is not None and run.fault.type == "NoPytest":
        install = "install_packages" if workshop.has("install_packages") else "pip"
        return ToolOutput(None, error=NO_PYTEST.format(install=f"{install} pytest"))
    memory.note(image, run)
    leads_on = [LEADS_ON] if run.failures and run.fault is None and workshop.has("error_frames") else []
    parts = [verdict(run), *_early_end(run), *_failures(run), *_trouble(image, run), *run.notes, *leads_on]
    answer = "\n\n".join(filter(None, parts))
    return ToolOutput(None, error=answer) if run.fault is not None and not run.done else answer


def verdict(run: SuiteRun) -> str:
    """Return the line with the counts."""
    known = [name for name in OUTCOMES if run.counts.get(name)]
    others = [name for name in run.counts if name not in OUTCOMES]
    counts = [f"{run.counts[name]} {_word(name, run.counts[name])}" for name in [*known, *others]]
    checks = f" ({run.checks} check{'s' * (run.checks > 1)})" if run.checks else ""
    listed = (", ".join(counts) or "No test has run") + checks
    place = ", ".join(filter(None, [run.framework, run.where]))
    return f"{listed} in {run.seconds:.1f} s ({place})"


def _word(outcome: str, count: int) -> str:
    return PLURAL.get(outcome, outcome) if count > 1 else outcome


def _early_end(run: SuiteRun) -> list[str]:
    """Say why not all tests have run, and in which one it ended."""
    left = run.total - run.done
    missing = f" {left} of {run.total} tests have no result." if run.total and left > 0 else ""
    during = f" It ended in {run.current}." if run.current else ""
    if run.fault is None:
        # Stopped by its own code, or by an option of the project such as --maxfail.
        stopped = f"\n{_shortened(run.stopped, LONGEST_FAILURE)}" if run.stopped else ""
        return (
            [f"The run ended early.{during}{missing}{stopped}"] if stopped or (missing and run.done) else []
        )
    message = f"[{run.fault.type}] {run.fault.message}{during}{missing}"
    where = f"\n{_shortened(run.stopped, LONGEST_FAILURE)}" if run.stopped else ""
    if not run.fault.interrupted and run.fault.type not in {"IMAGE-DIED", "INVALID-REPLY"}:
        # Nothing stands at its restarts: the process has ended.
        fault = replace(run.fault, restarts=[], backtrace=run.fault.backtrace[:MOST_FRAMES])
        message = f"{_shortened(fault_text(fault), LONGEST_FAILURE)}{during}{missing}"
    log = f"\nThe last of its log: {run.log.strip()[-LONGEST_OUTPUT:]}" if run.log.strip() else ""
    return [message + where + log]


def _failures(run: SuiteRun) -> list[str]:
    shown = run.failures[:MOST_SHOWN]
    texts = [_failure(failure) for failure in shown]
    share = fair_share([len(text) for text in texts], ROOM) if texts else 0
    parts = [_shortened(text, share) for text in texts]
    rest = [name for name in run.failed if name not in {failure.name for failure in shown}]
    if rest:
        more = f"\n… and {len(rest) - MOST_NAMED} more" if len(rest) > MOST_NAMED else ""
        names = "\n".join(rest[:MOST_NAMED])
        parts.append(f"Failed too (run_tests with one of them shows it):\n{names}{more}")
    return parts


def _failure(failure: CaseFailure) -> str:
    head = f"{failure.outcome.upper()} {failure.name}"
    printed = failure.output.strip("\n")
    output = f"[printed]\n{_end_of(printed, LONGEST_OUTPUT)}" if printed.strip() else ""
    return "\n".join(filter(None, [head, _shortened(failure.text.strip("\n"), LONGEST_FAILURE), output]))


def _trouble(image: Image, run: SuiteRun) -> list[str]:
    """Show what the framework printed where it says more than the counts."""
    if run.trouble == "nothing":
        return [NOTHING.get(image.language, NOTHING["python"])]
    if run.trouble == "unseen" and not run.bad:
        return [f"{UNSEEN}\n{_end_of(run.stdout.strip(), LONGEST_TAIL) or '(nothing)'}"]
    printed = f"{run.stdout.rstrip()}\n{run.stderr.rstrip()}".strip()
    if run.trouble and printed:
        return [_end_of(printed, LONGEST_TAIL)]
    return []


def _shortened(text: str, most: int) -> str:
    """Return a text, or its beginning and end: the first line says where, the last ones say what."""
    if len(text) <= most:
        return text
    half = max(most // 2, 1)
    return f"{text[:half]}\n… [{len(text) - 2 * half:,} characters]\n{text[-half:]}"


def _end_of(text: str, most: int) -> str:
    return text if len(text) <= most else f"… [{len(text) - most:,} characters before this]\n{text[-most:]}"
