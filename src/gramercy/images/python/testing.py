"""Run the tests of a project, by pytest or by what stands on unittest, and tell of each test.

The framework is that of the project's environment; nothing is installed or written for it. What is told goes
out as events, so that the parent knows what ran also when the process does not live to reply. A verdict is
what the framework reports, or its exit status.
"""

import os
import re
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from . import suites
from .evaluation import Run
from .protocol import Request, RequestError, optional_text
from .session import Reply, Session
from .suites import LONGEST, Event, Outcome, Tell, cut, holds, tail

FRAMEWORKS = ("pytest", "unittest", "django", "doctest")
# Of the files of a project, so many are asked whether they want pytest; the first say it nearly always.
_MOST_FILES = 200
_INNER = ("/_pytest/", "/pluggy/")
# The first line of a frame as pytest writes it, and that of one which imports and compiles a test file.
_HEAD = re.compile(r"\S.*:\d+: in ")
_IMPORTER = re.compile(
    r"(\S*/)?(_pytest/(python|pathlib|assertion/rewrite)|importlib/__init__|python3[.\d]*/ast)\.py:"
    r"|<frozen importlib"
)
_HOME = __file__.rpartition("/")[0] + "/"
# Frames of a test that was stopped: where it hangs is in the innermost.
_MOST_FRAMES = 6
# Threads that tests have left, by name.
_MOST_THREADS = 5
_getcwd = os.getcwd
_exists, _isfile, _sep = os.path.exists, os.path.isfile, os.sep
_OUTCOMES = {"subtests passed": "", "rerun": "", "deselected": "", "warnings": ""}
_FINE, _FAILED, _STOPPED, _NO_TESTS = 0, 1, 2, 5
# A filter of pytest by words or by marks, with its expression.
_FILTER = re.compile(r"-([km])\s*(\S.*)", re.DOTALL)
# Where pytest-django is told which settings to use.
_CONFIGURATIONS = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "conftest.py", "tests/conftest.py")


class Wanted:
    """What is to be run: names of tests, files or directories; none means all."""

    def __init__(self, request: Request) -> None:
        names = request.get("names")
        if type(names) is not list or not all(type(name) is str for name in names):
            raise RequestError("INVALID-REQUEST", '"names" must be a list of strings.')
        self.names: list[str] = names
        self.framework = optional_text(request, "framework")
        self.cache = optional_text(request, "cache")
        # A copy of the image has imported modules whose asserts pytest cannot rewrite any more.
        self.is_copy = request.get("copy") is True

    def check(self) -> None:
        """Refuse a file that is not there: pytest would say so after its own header."""
        for name in self.names:
            file = name.partition("::")[0]
            if _FILTER.fullmatch(name) or _exists(file) or _several(name):
                continue
            if file.endswith(".py") or "/" in file:
                raise RequestError("UNKNOWN-TEST", f"There is no file {file[:200]} in the project.")


def _several(name: str) -> list[str]:
    """Return the places in a text that has several, with blanks between them; else nothing."""
    parts = name.split()
    is_list = len(parts) > 1 and all(_exists(part.partition("::")[0]) for part in parts)
    return parts if is_list else []


def run_tests(session: Session, request: Request, tell: Tell) -> Reply:
    """Run what is wanted; each test is told of by `tell`, and the reply is about the run as a whole."""
    wanted, outcome = Wanted(request), Outcome()
    wanted.check()
    framework = _chosen(wanted.framework)
    _check(framework, wanted.names)
    outcome.framework = framework

    def work(_run: Run) -> None:
        if framework == "pytest":
            _run_pytest(wanted, outcome, tell)
        else:
            suites.RUNS[framework](wanted.names, outcome, tell)

    suites.drop_older_compiled(_getcwd())
    before = set(threading.enumerate())
    reply, _run = session.perform(work, session.main, request)
    reply.pop("forms")
    reply.pop("changed", None)
    reply["framework"], reply["trouble"] = outcome.framework, outcome.trouble
    left = [each.name for each in threading.enumerate() if each not in before and not each.daemon]
    notes = [_told_threads(left)] if left else []
    if framework == "pytest" and suites.has_django() and find_spec("pytest_django") is None:
        notes.append("pytest-django is not installed, so tests use the database of the settings")
    if notes:
        reply["notes"] = notes
    return reply


def _told_threads(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_THREADS} more" if len(names) > _MOST_THREADS else ""
    listed = ", ".join(name[:50] for name in names[:_MOST_THREADS])
    return f"the tests left threads running, for which Python would wait at its end: {listed}{more}"


def _check(framework: str, names: list[str]) -> None:
    if framework not in FRAMEWORKS:
        raise RequestError(
            "UnknownFramework",
            f"There is no framework '{framework[:100]}' for Python: {', '.join(FRAMEWORKS)} are known.",
        )
    if framework == "pytest" and find_spec("pytest") is None:
        raise RequestError(
            "NoPytest",
            f"pytest is not installed in the environment of this image ({sys.prefix}).",
        )
    if framework == "django":
        if not suites.has_django():
            raise RequestError(
                "NoDjango",
                "There is no manage.py in the project, or no Django in the environment of this image.",
            )
        suites.check_django()
    missing = [name for name in names if framework == "doctest" and not _exists(name)]
    if missing:
        raise RequestError("UNKNOWN-TEST", f"There is no file {missing[0][:200]} in the project.")


def _chosen(wanted: str | None) -> str:
    """Return the framework to use; tests of Django get its own runner, which makes them a database."""
    if wanted not in (None, "unittest") or not suites.has_django():
        return wanted or _found_framework()
    return "pytest" if wanted is None and _has_pytest_django() else "django"


def _has_pytest_django() -> bool:
    """Tell whether pytest can run tests of Django here: by a plug-in that knows the settings."""
    if find_spec("pytest") is None or find_spec("pytest_django") is None:
        return False
    return any(holds(file, b"DJANGO_SETTINGS_MODULE") for file in _CONFIGURATIONS)


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
                yield name == "conftest.py" or holds(f"{folder}{_sep}{name}", b"import pytest")


def _run_pytest(wanted: Wanted, outcome: Outcome, tell: Tell) -> None:
    import pytest  # type: ignore[import-not-found,unused-ignore]  # of the project's environment

    outcome.framework = f"pytest {pytest.__version__}"
    reporter = Reporter(tell)
    options = ["--tb=short", "--color=no", "-q", *_cache_option(wanted)]
    if wanted.is_copy and hasattr(pytest, "PytestAssertRewriteWarning"):
        # Else `filterwarnings = error` of the project would end the run before its first test.
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    arguments = [*options, *_selected(wanted.names)]
    sys.argv = ["pytest", *arguments]
    status = int(pytest.main(arguments, plugins=[reporter]))
    if reporter.deselected and (status == _NO_TESTS or not wanted.names):
        tell({"kind": "deselected", "total": reporter.deselected})
    if status == _NO_TESTS:
        outcome.trouble = "nothing"
    elif not reporter.explains(status):
        outcome.trouble = f"status {status}"


def _cache_option(wanted: Wanted) -> list[str]:
    """Keep what pytest remembers out of the project: `--lf` at a person's prompt means their own last run."""
    return ["-o", f"cache_dir={wanted.cache}"] if wanted.cache else []


def _selected(names: list[str]) -> list[str]:
    """Return arguments for node ids and files, and a filter for what can only be the name of a test."""
    filters, places, words = [], [], []
    for name in names:
        given = _FILTER.fullmatch(name)
        if given is not None:
            # In one word, so that no expression is an option.
            filters.append(f"-{given[1]}{given[2]}")
        elif "::" in name or _exists(name) or _several(name):
            places += _several(name) or [name]
        elif (place := _place_of(name)) is not None:
            places.append(place)
        else:
            words.append(name)
    if words:
        filters.append("-k" + " or ".join(words))
    # Behind --, so that a name that begins like an option is none.
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
        self.deselected = 0
        self._bad = 0
        self._is_stopped = False

    def explains(self, status: int) -> bool:
        """Tell whether what was told says why pytest ends with a status; plug-ins set one too."""
        if status == _FAILED:
            return self._bad > 0
        return status == _FINE or (status == _STOPPED and (self._is_stopped or self._bad > 0))

    def pytest_configure(self, config: Any) -> None:
        """Keep what decides how an outcome is called."""
        self._config = config

    def pytest_deselected(self, items: Any) -> None:
        """Count the tests that a filter leaves out."""
        self.deselected += len(items)

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
            self._bad += category in ("failed", "error")
            self._tell(_told(report, category))
        if report.when == "teardown":
            self._tell({"kind": "end", "name": report.nodeid})

    def pytest_collectreport(self, report: Any) -> None:
        """Tell of a file that cannot be collected."""
        if report.failed:
            self._bad += 1
            self._tell(_told(report, "error"))

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        """Tell where the tests were stopped."""
        self._is_stopped = True
        self._tell({"kind": "stopped", "text": _frames(excinfo.tb)})


def _told(report: Any, category: str) -> Event:
    event: Event = {"kind": "result", "name": report.nodeid, "outcome": category}
    if category in ("failed", "error"):
        written = str(report.longreprtext or report.longrepr or "")
        is_import = report.when == "collect"
        event["text"] = cut(_without_importers(written) if is_import else written, LONGEST)
        printed = "".join(content for _, content in report.sections if content)
        event["output"] = tail(printed)
    return event


def _without_importers(written: str) -> str:
    """Leave out the frames by which pytest and Python came to a file that cannot be imported."""
    kept, is_inner = [], False
    for line in written.splitlines():
        if _HEAD.match(line) is not None:
            is_inner = _IMPORTER.match(line) is not None
        if not is_inner or line.startswith("E "):
            kept.append(line)
    return "\n".join(kept)


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
