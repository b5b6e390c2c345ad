"""Run the tests of a project, by pytest or unittest, and tell of each test when it begins and ends.

The framework is that of the project's environment; nothing is installed or written for it. What is told goes
out as events, so that the parent knows what ran also when the process does not live to reply.
"""

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from .evaluation import Run
from .protocol import Request, RequestError, optional_text
from .session import Reply, Session

Event = dict[str, object]
Tell = Callable[[Event], None]
FRAMEWORKS = ("pytest", "unittest")
# Characters of a failure and of an output that are told: the answer shows less of each.
_LONGEST = 6_000
_OUTPUT = 4_000
# Of the files of a project, so many are asked whether they want pytest; the first say it nearly always.
_MOST_FILES = 200
_INNER = ("/_pytest/", "/pluggy/")
_HOME = __file__.rpartition("/")[0] + "/"
# Frames of a test that was stopped: where it hangs is in the innermost.
_MOST_FRAMES = 6
_getcwd = os.getcwd
_exists, _isfile, _isdir, _sep = os.path.exists, os.path.isfile, os.path.isdir, os.sep
_OUTCOMES = {"subtests passed": "", "rerun": "", "deselected": "", "warnings": ""}
_NO_TESTS, _USAGE, _INTERNAL = 5, 4, 3


class Wanted:
    """What is to be run: names of tests, files or directories; none means all."""

    def __init__(self, request: Request) -> None:
        names = request.get("names")
        if type(names) is not list or not all(type(name) is str for name in names):
            raise RequestError("INVALID-REQUEST", '"names" must be a list of strings.')
        self.names: list[str] = names
        self.framework = optional_text(request, "framework")
        self.cache = optional_text(request, "cache")

    def check(self) -> None:
        """Refuse a file that is not there: pytest would say so after its own header."""
        for name in self.names:
            file = name.partition("::")[0]
            if (file.endswith(".py") or "/" in file) and not _exists(file):
                raise RequestError("UNKNOWN-TEST", f"There is no file {file[:200]} in the project.")


class Outcome:
    """What is said about a run as a whole."""

    def __init__(self) -> None:
        self.framework = ""
        self.trouble = ""


def run_tests(session: Session, request: Request, tell: Tell) -> Reply:
    """Run what is wanted; each test is told of by `tell`, and the reply is about the run as a whole."""
    wanted, outcome = Wanted(request), Outcome()
    wanted.check()
    framework = wanted.framework or _found_framework()
    _check(framework)
    outcome.framework = framework

    def work(_run: Run) -> None:
        run = _run_pytest if framework == "pytest" else _run_unittest
        run(wanted, outcome, tell)

    reply, _run = session.perform(work, session.main, request)
    reply.pop("forms")
    reply.pop("changed", None)
    reply["framework"], reply["trouble"] = outcome.framework, outcome.trouble
    return reply


def _check(framework: str) -> None:
    if framework not in FRAMEWORKS:
        raise RequestError(
            "UnknownFramework",
            f"There is no framework '{framework[:100]}' for Python: pytest and unittest are known.",
        )
    if framework == "pytest" and find_spec("pytest") is None:
        raise RequestError(
            "NoPytest",
            f"pytest is not installed in the environment of this image ({sys.prefix}).",
        )


def _found_framework() -> str:
    """Return pytest where it is installed or where the project wants it, else unittest."""
    if find_spec("pytest") is not None or _exists("pytest.ini") or any(_wanting_pytest()):
        return "pytest"
    return "unittest"


def _wanting_pytest() -> Iterator[bool]:
    count = 0
    for home in ("tests", "test", "."):
        for folder, inner, files in os.walk(home):
            inner[:] = [name for name in inner if not name.startswith((".", "_")) and name != "node_modules"]
            for name in files:
                if not name.endswith(".py") or "test" not in name:
                    continue
                count += 1
                if count > _MOST_FILES:
                    return
                yield name == "conftest.py" or _imports_pytest(f"{folder}{_sep}{name}")


def _imports_pytest(file: str) -> bool:
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - os.walk gives plain names
            return b"import pytest" in opened.read(100_000)
    except OSError:
        return False


def cut(text: str, most: int) -> str:
    """Return the text, or its beginning and its end: the first frame says where, the last lines say what."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… [{len(text) - 2 * half:,} characters]\n{text[-half:]}"


def _tail(text: str) -> str:
    if len(text) <= _OUTPUT:
        return text
    return f"… [{len(text) - _OUTPUT:,} characters before this]\n{text[-_OUTPUT:]}"


# pytest


def _run_pytest(wanted: Wanted, outcome: Outcome, tell: Tell) -> None:
    import pytest  # type: ignore[import-not-found,unused-ignore]  # of the project's environment

    outcome.framework = f"pytest {pytest.__version__}"
    reporter = Reporter(tell)
    arguments = ["--tb=short", "--color=no", "-q", *_cache_option(wanted), *_selected(wanted.names)]
    sys.argv = ["pytest", *arguments]
    status = int(pytest.main(arguments, plugins=[reporter]))
    if status in (_USAGE, _INTERNAL):
        outcome.trouble = "usage" if status == _USAGE else "internal"
    elif status == _NO_TESTS:
        outcome.trouble = "nothing"


def _cache_option(wanted: Wanted) -> list[str]:
    """Keep what pytest remembers out of the project: `--lf` at a person's prompt means their own last run."""
    return ["-o", f"cache_dir={wanted.cache}"] if wanted.cache else []


def _selected(names: list[str]) -> list[str]:
    """Return arguments for node ids and files, and a filter for what can only be the name of a test."""
    places, words = [], []
    for name in names:
        if "::" in name or _exists(name.partition("::")[0]):
            places.append(name)
        else:
            place = _place_of(name)
            if place is None:
                words.append(name)
            else:
                places.append(place)
    # In one word, and behind --, so that a name that begins like an option is none.
    filters = ["-k" + " or ".join(words)] if words else []
    return [*filters, "--", *places]


def _place_of(dotted: str) -> str | None:
    """Return the node id of a dotted name such as tests.test_sums.SumTest.test_one, as unittest writes it."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        file = _sep.join(parts[:count]) + ".py"
        if _isfile(file):
            return "::".join([file, *parts[count:]])
    return None


class Reporter:
    """A plugin for one run of pytest: it tells, and changes nothing."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._config: Any = None

    def pytest_configure(self, config: Any) -> None:
        """Keep what decides how an outcome is called."""
        self._config = config

    def pytest_collection_finish(self, session: Any) -> None:
        """Tell how many tests there are."""
        self._tell({"kind": "found", "total": len(session.items)})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Tell which test begins."""
        self._tell({"kind": "begin", "name": nodeid})

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Tell how a test ended, in the words of pytest, or that its setup or teardown failed."""
        category, _, _ = self._config.hook.pytest_report_teststatus(report=report, config=self._config)
        category = _OUTCOMES.get(category, category)
        if category:
            self._tell(_told(report, category))
        if report.when == "teardown":
            self._tell({"kind": "end", "name": report.nodeid})

    def pytest_collectreport(self, report: Any) -> None:
        """Tell of a file that cannot be collected."""
        if report.failed:
            self._tell(_told(report, "error"))

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        """Tell where the tests were stopped."""
        self._tell({"kind": "stopped", "text": _frames(excinfo.tb)})


def _told(report: Any, category: str) -> Event:
    event: Event = {"kind": "result", "name": report.nodeid, "outcome": category}
    if category in ("failed", "error"):
        event["text"] = cut(str(report.longreprtext or report.longrepr or ""), _LONGEST)
        printed = "".join(content for _, content in report.sections if content)
        event["output"] = _tail(printed)
    return event


def _frames(trace: Any) -> str:
    """Return the innermost frames of the tests and of what they called, without those of pytest and us."""
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not any(part in code.co_filename for part in _INNER) and not code.co_filename.startswith(_HOME):
            file = code.co_filename.removeprefix(_getcwd() + _sep)
            found.append(f"{file}:{trace.tb_lineno}: in {code.co_name}")
        trace = trace.tb_next
    return "\n".join(found[-_MOST_FRAMES:])


# unittest

_HOMES = ("tests", "test")


def _run_unittest(wanted: Wanted, outcome: Outcome, tell: Tell) -> None:
    import unittest

    loader = unittest.TestLoader()
    suite = _loaded(loader, wanted.names) if wanted.names else _discovered(loader)
    tell({"kind": "found", "total": suite.countTestCases()})
    if not suite.countTestCases():
        outcome.trouble = "nothing"
        return
    result = _recorder(tell)
    result.buffer = True
    suite.run(result)


def _discovered(loader: Any) -> Any:
    """Discover as `python -m unittest` does; where that finds nothing, in the usual directories."""
    suite = loader.discover(".")
    for home in _HOMES:
        if not suite.countTestCases() and _isdir(home):
            suite = _in_directory(loader, home)
    return suite


def _in_directory(loader: Any, directory: str) -> Any:
    """Discover in a directory; one that is no package is not imported as a part of the project."""
    # A loader would keep the first directory for all that follow.
    return loader.discover(
        directory, top_level_dir=None if _isfile(f"{directory}/__init__.py") else directory
    )


def _loaded(loader: Any, names: list[str]) -> Any:
    suite = loader.suiteClass()
    for name in names:
        suite.addTest(_by_name(loader, name))
    return suite


def _by_name(loader: Any, name: str) -> Any:
    file, _, inner = name.partition("::")
    if _isdir(file):
        return _in_directory(loader, file)
    if _isfile(file):
        module = file.removeprefix("./").removesuffix(".py").replace("/", ".")
        return loader.loadTestsFromName(".".join([module, *inner.split("::")] if inner else [module]))
    if "." in name:
        # What was discovered in a directory that is no package is named without it.
        first = name.partition(".")[0]
        sys.path[:0] = [home for home in _HOMES if _isfile(f"{home}/{first}.py")]
        return loader.loadTestsFromName(name)
    loader.testNamePatterns = [f"*{name}*"]
    try:
        return _discovered(loader)
    finally:
        loader.testNamePatterns = None


def _recorder(tell: Tell) -> Any:  # noqa: C901 - a class, which has to be made here
    """Return a result that tells; unittest is not loaded before a run asks for it."""
    import unittest

    class Recorder(unittest.TestResult):
        def startTest(self, test: Any) -> None:  # noqa: N802 - unittest's name
            super().startTest(test)
            tell({"kind": "begin", "name": test.id()})

        def stopTest(self, test: Any) -> None:  # noqa: N802
            super().stopTest(test)
            tell({"kind": "end", "name": test.id()})

        def addSuccess(self, test: Any) -> None:  # noqa: N802
            super().addSuccess(test)
            self._result(test, "passed")

        def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802
            super().addFailure(test, err)
            self._result(test, "failed", self.failures[-1][1])

        def addError(self, test: Any, err: Any) -> None:  # noqa: N802
            super().addError(test, err)
            self._result(test, "error", self.errors[-1][1])

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
            super().addSubTest(test, subtest, err)
            if err is not None:
                kept = self.failures if issubclass(err[0], test.failureException) else self.errors
                self._result(subtest, "failed" if kept is self.failures else "error", kept[-1][1])

        def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
            super().addSkip(test, reason)
            self._result(test, "skipped")

        def addExpectedFailure(self, test: Any, err: Any) -> None:  # noqa: N802
            super().addExpectedFailure(test, err)
            self._result(test, "xfailed")

        def addUnexpectedSuccess(self, test: Any) -> None:  # noqa: N802
            super().addUnexpectedSuccess(test)
            self._result(test, "failed", "The test passed, but is marked as an expected failure.")

        def _result(self, test: Any, outcome: str, trace: str = "") -> None:
            event: Event = {"kind": "result", "name": test.id(), "outcome": outcome}
            if trace:
                text, _, output = trace.partition("\nStdout:\n")
                event["text"], event["output"] = cut(text.rstrip(), _LONGEST), _tail(output)
            tell(event)

    return Recorder()
