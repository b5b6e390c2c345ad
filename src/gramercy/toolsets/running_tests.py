"""The tool that runs a project's tests and reports the failures, so that the next step is clear."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gramercy.errors import ImageError
from gramercy.images.requests import Suite
from gramercy.tools.content import ToolOutput
from gramercy.tools.context import current_call
from gramercy.toolsets.factory import Quiet, as_evaluation, flag, text, time_limit
from gramercy.toolsets.rendering import LONGEST_ANSWER, fair_share, fault_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gramercy.images.image import Image
    from gramercy.images.suites import CaseFailure, SuiteRun, WantedTests
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.workspace import Workspace

# A run without a verdict: neither a framework nor an exit status gives one.
UNKNOWN = "unknown"
# The order of counts in the verdict: failures come first.
OUTCOMES = ("failed", "error", UNKNOWN, "passed", "skipped", "xfailed", "xpassed")
PLURAL = {"error": "errors"}
# Failures shown with their texts: about as many as a model fixes before it runs the tests again.
MOST_SHOWN = 8
# Further failures that are listed by name.
MOST_NAMED = 20
# Characters of one failure, and of its test's output.
LONGEST_FAILURE = 2_400
LONGEST_OUTPUT = 800
# If this many lines at the end of a failure also end another one, they are not shown again.
LEAST_SHARED = 4
# The path of installed packages is long, and the same for all.
INSTALLED = re.compile(r"(?m)^/\S*/(?:site|dist)-packages/")
# Frames of an error outside of the tests, which is nearly always an import error.
MOST_FRAMES = 6
# Characters of the output, where there is nothing else to show.
LONGEST_TAIL = 2_500
# The room of the failures, without the verdict, the names and the notes.
ROOM = LONGEST_ANSWER - 2_000
OF_PYTHON = ("pytest", "unittest", "django", "doctest")
OF_LISP = ("fiveam", "rove", "parachute", "prove", "lisp-unit2", "rt", "asdf")
FRAMEWORKS = (*OF_PYTHON, *OF_LISP)
NOTHING = {
    "python": "No tests were found. Name a file, a directory or a test; pytest takes files test_*.py.",
    "sbcl": "No tests were found. Name an ASDF system, a file, a suite or a test.",
}
DESELECTED = "Tests found: {count}, selected: none, by what or by options of the project."
# Reported for a run whose exit status its tests do not explain.
STATUS = "status"
LEADS_ON = "To look closer, evaluate the failing call; error_frames then shows the frames of its error."
NO_PYTEST = "pytest is not installed in the environment of this image"
# The directories of environments that tox and nox make, and the files that show their use.
MADE = {".tox": "tox.ini", ".nox": "noxfile.py"}


def running_test_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tool."""
    return [_run_tests(workshop, _Memory(), workspace)]


class _Memory:
    """The tests that failed in the last run of each image, and any run without a verdict."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[str, ...]] = {}
        self._unknown: dict[str, tuple[str, ...]] = {}

    def failed(self, image: Image) -> tuple[str, ...] | None:
        return self._failed.get(image.name)

    def nothing_failed(self, image: Image) -> str:
        """Return the text for a request to repeat failed tests when there are none."""
        unknown = self._unknown.get(image.name, ())
        but = f", but {', '.join(unknown[:MOST_NAMED])} has no verdict" if unknown else ""
        return f"Nothing failed in the last run{but}."

    def note(self, image: Image, run: SuiteRun) -> None:
        # If a run ended early during a test, that test is repeated too.
        names = [*run.failed, run.current] if run.current and run.fault is not None else run.failed
        self._failed[image.name] = tuple(dict.fromkeys(names))
        self._unknown[image.name] = tuple(each.name for each in run.failures if each.outcome == UNKNOWN)


def _run_tests(workshop: Workshop, memory: _Memory, workspace: Workspace) -> Tool:
    def blocking(image: Image, arguments: dict[str, Any]) -> Any:
        wanted = _wanted(image, arguments, memory)
        if isinstance(wanted, str):
            return wanted
        return telling(image, image.run_tests(wanted, timeout=arguments.get("timeout")))

    async def waiting(image: Image, arguments: dict[str, Any]) -> Any:
        wanted = _wanted(image, arguments, memory)
        if isinstance(wanted, str):
            return wanted
        run = await image.arun(Suite(wanted), timeout=arguments.get("timeout"), watch=_reporter())
        return telling(image, run)

    def telling(image: Image, run: SuiteRun) -> Any:
        if run.fault is not None and run.fault.type == "NoPytest":
            return ToolOutput(None, error=_without_pytest(workshop, image, workspace))
        return told(workshop, image, memory, run)

    return workshop.make(
        "run_tests",
        "Run the project's tests and show what failed, with values, place and output. Lisp (fiveam, rove, "
        "parachute, prove, lisp-unit2, rt, any ASDF test-op): in a copy of the image, so definitions made "
        "there are tested. Python (pytest, unittest, Django): in a fresh process from the files. The image "
        "stays as it is.",
        {
            "what": text("A file, test name or id, ASDF system or suite, pytest's -k or -m; by default all"),
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
        judged_as=as_evaluation(),
        destructive=workshop.writes_files,
        open_world=workshop.open_world,
    )


def _timeout(workshop: Workshop) -> dict[str, Any]:
    longest = workshop.longest_timeout
    return {} if longest is None else {"timeout": time_limit(longest)}


def _wanted(image: Image, arguments: dict[str, Any], memory: _Memory) -> WantedTests | str:
    names = tuple(filter(None, [arguments.get("what", "").strip()]))
    if arguments.get("last_failed"):
        failed = memory.failed(image)
        if failed is None:
            return "No tests have run in this session: run_tests without last_failed runs all."
        if not failed:
            return memory.nothing_failed(image)
        names = failed
    from gramercy.images.suites import WantedTests

    return WantedTests(names, arguments.get("framework"), arguments.get("in_image"))


def _reporter() -> Callable[[SuiteRun], None]:
    """Return a function that reports the progress of the tests to the caller."""
    report, quiet = current_call().report, Quiet()

    def tell(run: SuiteRun) -> None:
        of = f" of {run.total}" if run.total else ""
        failed = f", {run.bad} failed" if run.bad else ""
        now = f"; {run.current}" if run.current else ""
        # Progress must be reported also while one test runs long.
        words = f"{run.done}{of}{failed}{now}"
        if quiet.is_news(words, run.seconds):
            report(run.done + min(run.seconds / 1e4, 0.9), run.total or None, words)

    return tell


def told(workshop: Workshop, image: Image, memory: _Memory, run: SuiteRun) -> Any:
    """Return the answer: the verdict, the failures, the notes."""
    if run.fault is not None and run.fault.type == "UNKNOWN-TEST":
        near = ", ".join(run.fault.suggestions)
        return ToolOutput(None, error=f"{run.fault.message}{f' Did you mean {near}?' if near else ''}")
    memory.note(image, run)
    leads_on = [LEADS_ON] if run.bad and run.fault is None and workshop.has("error_frames") else []
    parts = [verdict(run), *_early_end(run), *_failures(run), *_trouble(image, run), *run.notes, *leads_on]
    answer = "\n\n".join(filter(None, parts))
    return ToolOutput(None, error=answer) if run.fault is not None and not run.done else answer


def _without_pytest(workshop: Workshop, image: Image, workspace: Workspace) -> str:
    """Describe where pytest is missing, how to install it, and where else it is installed."""
    try:
        command = image.installation(["pytest"])
    except ImageError as error:
        advice = f"{NO_PYTEST}, and {error}."
    else:
        how = f"install_packages pytest (into {command.place})" if workshop.has("install_packages") else ""
        advice = (
            f"{NO_PYTEST}. Install it there with {how or f'`{command.typed}`'}, or say framework unittest."
        )
    return "\n".join([advice, *_elsewhere(workspace)])


def _elsewhere(workspace: Workspace) -> list[str]:
    """List the environments of tox or nox that have pytest, or say that these programs would make some."""
    root = workspace.root
    made = [each.parents[1] for home in MADE for each in sorted(root.glob(f"{home}/*/bin/pytest"))]
    if made:
        names = ", ".join(str(each.relative_to(root)) for each in made[:MOST_NAMED])
        return [f"Environments with pytest: {names}. A person can give one to the image with --python."]
    files = [file for file in MADE.values() if (root / file).is_file()]
    return [f"{' and '.join(files)} would make environments, outside of the image."] if files else []


def verdict(run: SuiteRun) -> str:
    """Return the line with the counts."""
    known = [name for name in OUTCOMES if run.counts.get(name)]
    others = [name for name in run.counts if name not in OUTCOMES]
    counts = [f"{run.counts[name]} {_word(name, run.counts[name])}" for name in [*known, *others]]
    checks = f" ({run.checks} check{'s' * (run.checks > 1)})" if run.checks else ""
    listed = (", ".join(counts) or "No test has run") + checks
    if list(run.counts) == [UNKNOWN]:
        listed = "Ran, verdict unknown"
    if run.deselected and run.done:
        listed += f", {run.deselected} deselected"
    if run.counts and not run.bad and _early_end(run):
        # The passed tests must not come first.
        listed = f"Ended early: {listed}"
    if run.trouble.startswith(STATUS):
        listed = f"Ended with {run.trouble}: {listed[0].lower()}{listed[1:]}"
    place = ", ".join(filter(None, [run.framework, run.where]))
    return f"{listed} in {run.seconds:.1f} s ({place})"


def _word(outcome: str, count: int) -> str:
    if outcome == UNKNOWN:
        return "without a verdict"
    return PLURAL.get(outcome, outcome) if count > 1 else outcome


def _early_end(run: SuiteRun) -> list[str]:
    """Describe why not all tests have run, and the test in which the run ended."""
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
    if not run.fault.interrupted and run.fault.type not in {"TESTS-ENDED", "INVALID-REPLY"}:
        # The process has ended, so its restarts cannot be used.
        fault = replace(run.fault, restarts=[], backtrace=run.fault.backtrace[:MOST_FRAMES])
        message = f"{_shortened(fault_text(fault), LONGEST_FAILURE)}{during}{missing}"
    printed = (
        f"\nIt had printed:\n{_end_of(run.stdout.strip(), LONGEST_OUTPUT)}" if _died_silently(run) else ""
    )
    log = f"\nThe last of its log: {run.log.strip()[-LONGEST_OUTPUT:]}" if run.log.strip() else ""
    return [message + where + printed + log]


def _died_silently(run: SuiteRun) -> bool:
    """Return whether the output says more about a death than the tests do."""
    return (
        run.fault is not None
        and run.fault.type == "TESTS-ENDED"
        and not run.done
        and bool(run.stdout.strip())
    )


def _failures(run: SuiteRun) -> list[str]:
    shown = run.failures[:MOST_SHOWN]
    told: dict[str, list[str]] = {}
    texts = [_failure(failure, told) for failure in shown]
    share = fair_share([len(text) for text in texts], ROOM) if texts else 0
    parts = [_shortened(text, share) for text in texts]
    rest = [name for name in run.failed if name not in {failure.name for failure in shown}]
    if rest:
        more = f"\n… and {len(rest) - MOST_NAMED} more" if len(rest) > MOST_NAMED else ""
        names = "\n".join(rest[:MOST_NAMED])
        parts.append(f"Failed too (run_tests with one of them shows it):\n{names}{more}")
    return parts


def _failure(failure: CaseFailure, told: dict[str, list[str]]) -> str:
    """Format a failure. Trailing frames that also end another failure in `told` are not repeated."""
    head = f"{failure.outcome.upper()} {failure.name}"
    printed = failure.output.strip("\n")
    output = f"[printed]\n{_end_of(printed, LONGEST_OUTPUT)}" if printed.strip() else ""
    lines = INSTALLED.sub("", failure.text.strip("\n")).split("\n")
    ends = ((_shared_end(lines, each), name) for name, each in told.items())
    shared, name = max(ends, default=(0, ""))
    told[failure.name] = lines
    if shared >= LEAST_SHARED:
        # The last line says what happened, and stays.
        lines = [*lines[:-shared], f"… {shared - 1} lines as in {name.rpartition('::')[2]}", lines[-1]]
    return "\n".join(filter(None, [head, _shortened("\n".join(lines), LONGEST_FAILURE), output]))


def _shared_end(lines: Sequence[str], others: Sequence[str]) -> int:
    """Return the number of equal lines at their ends. The first line, which names the place, is excluded."""
    pairs = zip(reversed(lines[1:]), reversed(others[1:]), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _trouble(image: Image, run: SuiteRun) -> list[str]:
    """Show the framework's output where it says more than the counts."""
    if run.trouble == "nothing" and run.deselected:
        return [DESELECTED.format(count=run.deselected)]
    if run.trouble == "nothing":
        return [NOTHING.get(image.language, NOTHING["python"])]
    printed = f"{run.stdout.rstrip()}\n{run.stderr.rstrip()}".strip()
    if run.trouble and printed:
        return [_end_of(printed, LONGEST_TAIL)]
    return []


def _shortened(text: str, most: int) -> str:
    """Return a text, or its beginning and end: the first line says where it failed, the last ones why."""
    if len(text) <= most:
        return text
    half = max(most // 2, 1)
    return f"{text[:half]}\n… [{len(text) - 2 * half:,} characters]\n{text[-half:]}"


def _end_of(text: str, most: int) -> str:
    return text if len(text) <= most else f"… [{len(text) - most:,} characters before this]\n{text[-most:]}"
