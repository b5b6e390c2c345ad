"""Suites that unittest can run: its own, those of Django, and the examples in documentation.

All of them report to one recorder. Django's runner makes a database for the tests, so the developer's
database stays unchanged.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .protocol import RequestError

Event = dict[str, object]
Tell = Callable[[Event], None]
# Characters of a failure and of an output that are reported: the answer shows less of each.
LONGEST = 6_000
OUTPUT = 4_000
# Bytes of a file that are searched for a word.
_READ = 100_000
# Files that are searched for examples.
_MOST_FILES = 2_000
_HOMES = ("tests", "test")
_MANAGE = "manage.py"
_SETTINGS = re.compile(rb"""setdefault\(\s*["']DJANGO_SETTINGS_MODULE["']\s*,\s*["']([\w.]+)["']""")
_PROMPT = b">>> "
_exists, _isfile, _isdir = os.path.exists, os.path.isfile, os.path.isdir
_getcwd, _listdir, _stat, _unlink = os.getcwd, os.listdir, os.stat, os.unlink


class Outcome:
    """The remarks about a whole run."""

    def __init__(self) -> None:
        self.framework = ""
        self.trouble = ""


def cut(text: str, most: int) -> str:
    """Return the text, or its beginning and end: the first frame has the place, the last lines the error."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… [{len(text) - 2 * half:,} characters]\n{text[-half:]}"


def tail(text: str) -> str:
    """Return the end of a test's output."""
    if len(text) <= OUTPUT:
        return text
    return f"… [{len(text) - OUTPUT:,} characters before this]\n{text[-OUTPUT:]}"


def _read(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - os.walk gives plain names
            return opened.read(_READ)
    except OSError:
        return b""


def holds(file: str, word: bytes) -> bool:
    """Return whether a file has a word near its beginning."""
    return word in _read(file)


def _run_unittest(names: list[str], outcome: Outcome, tell: Tell) -> None:
    import unittest

    loader = unittest.TestLoader()
    _run_suite(_loaded(loader, names) if names else _discovered(loader), outcome, tell)


def _run_suite(suite: Any, outcome: Outcome, tell: Tell) -> None:
    tell({"kind": "found", "total": suite.countTestCases()})
    if not suite.countTestCases():
        outcome.trouble = "nothing"
        return
    suite.run(_recorder(tell)())


def _discovered(loader: Any) -> Any:
    """Discover as `python -m unittest` does. If that finds nothing, try the usual directories."""
    suite = loader.discover(".")
    for home in _HOMES:
        if not suite.countTestCases() and _isdir(home):
            suite = _in_directory(loader, home)
    return suite


def _in_directory(loader: Any, directory: str) -> Any:
    """Discover in a directory. If it is not a package, it is not imported as a part of the project."""
    # A loader would keep the first directory for all later ones.
    return loader.discover(
        directory, top_level_dir=None if _isfile(f"{directory}/__init__.py") else directory
    )


def _loaded(loader: Any, names: list[str]) -> Any:
    suite = loader.suiteClass()
    for name in names:
        suite.addTest(_by_name(loader, name))
    return suite


def _dotted(file: str, inner: str = "") -> str:
    """Return unittest's name for an `inner` part of a file."""
    module = file.removeprefix("./").removesuffix(".py").replace("/", ".")
    return ".".join([module, *inner.split("::")] if inner else [module])


def _by_name(loader: Any, name: str) -> Any:
    file, _, inner = name.partition("::")
    if _isdir(file):
        return _in_directory(loader, file)
    if _isfile(file):
        return loader.loadTestsFromName(_dotted(file, inner))
    if "." in name:
        # Tests discovered in a directory that is not a package are named without it.
        first = name.partition(".")[0]
        sys.path[:0] = [home for home in _HOMES if _isfile(f"{home}/{first}.py")]
        return loader.loadTestsFromName(name)
    loader.testNamePatterns = [f"*{name}*"]
    try:
        return _discovered(loader)
    finally:
        loader.testNamePatterns = None


def _recorder(tell: Tell) -> Any:  # noqa: C901 - a class, which has to be made here
    """Return a class of results that report. unittest is not loaded before a run needs it."""
    import unittest

    class Recorder(unittest.TestResult):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments[:3], **options)
            self.buffer = True

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
                event["text"], event["output"] = cut(text.rstrip(), LONGEST), tail(output)
            tell(event)

    return Recorder


# Django


def _django_home() -> str | None:
    """Return the directory of manage.py, at the top of the project or one level below."""
    homes = [".", *sorted(name for name in _listdir(".") if _isfile(f"{name}/{_MANAGE}"))]
    return next((home for home in homes if holds(f"{home}/{_MANAGE}", b"DJANGO_SETTINGS_MODULE")), None)


def has_django() -> bool:
    """Return whether it is a Django project, and Django is installed to run its tests."""
    return _django_home() is not None and find_spec("django") is not None


def check_django() -> None:
    """Refuse a project whose settings are not known."""
    home = _django_home() or "."
    if "DJANGO_SETTINGS_MODULE" not in os.environ and not _SETTINGS.search(_read(f"{home}/{_MANAGE}")):
        raise RequestError(
            "NoSettings",
            f"{_MANAGE} does not name the settings in plain text: set DJANGO_SETTINGS_MODULE for the image.",
        )


def _enter_django(home: str) -> None:
    """Use the settings that manage.py names, unless the environment names others."""
    named = _SETTINGS.search(_read(f"{home}/{_MANAGE}"))
    if named is not None:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", named[1].decode())
    os.chdir(home)
    if _getcwd() not in sys.path:
        sys.path.insert(0, _getcwd())


def _run_django(names: list[str], outcome: Outcome, tell: Tell) -> None:
    home = _django_home() or "."
    labels, words = _labels(names, home)
    _enter_django(home)
    import django  # type: ignore[import-not-found,unused-ignore]  # of the project's environment

    django.setup()
    from django.conf import (  # type: ignore[import-not-found,unused-ignore]
        settings,
    )
    from django.test.utils import (  # type: ignore[import-not-found,unused-ignore]
        get_runner,
    )

    outcome.framework = f"django {django.get_version()}"
    runner = get_runner(settings)
    options = {"verbosity": 0, "interactive": False, "buffer": True, "test_name_patterns": words or None}
    if hasattr(runner, "get_resultclass") and hasattr(runner, "build_suite"):
        _telling(runner, outcome, tell)(**options).run_tests(labels)
    else:
        _tell_number(f"{runner.__module__}.{runner.__name__}", runner(**options).run_tests(labels), tell)


def _telling(runner: Any, outcome: Outcome, tell: Tell) -> Any:
    """Return the runner of the project's settings, with our recorder for its results."""

    class Telling(runner):  # type: ignore[misc]  # a class of the project's
        def get_resultclass(self) -> Any:
            return _recorder(tell)

        def build_suite(self, *arguments: Any, **options: Any) -> Any:
            suite = super().build_suite(*arguments, **options)
            tell({"kind": "found", "total": suite.countTestCases()})
            if not suite.countTestCases():
                outcome.trouble = "nothing"
            return suite

    return Telling


def _tell_number(name: str, failed: object, tell: Tell) -> None:
    """Report the return value of a project's own runner: by Django's contract the number of failed tests."""
    verdict = "passed" if failed == 0 else "failed" if type(failed) is int else "unknown"
    text = f"TEST_RUNNER of the settings returned {failed!r:.100} as the number of failed tests."
    tell({"kind": "result", "name": name, "outcome": verdict, "text": text})


def _labels(names: list[str], home: str) -> tuple[list[str], list[str]]:
    """Return dotted names for places, which are relative to the project, and patterns for other words."""
    labels, words = [], []
    for name in names:
        file, _, inner = name.partition("::")
        if _exists(file):
            below = os.path.relpath(file, home)
            labels.append(_dotted(below, inner) if _isfile(file) else below)
        elif "." in name:
            labels.append(name)
        else:
            words.append(f"*{name}*")
    return labels, words


# Examples in documentation


def _run_doctest(names: list[str], outcome: Outcome, tell: Tell) -> None:
    import doctest
    import unittest

    suite = unittest.TestSuite()
    sys.path[:0] = [home for home in ("src",) if _isdir(home) and home not in sys.path]
    for file in _example_files(names):
        if file.endswith(".py"):
            _add_examples(suite, file, tell)
        else:
            suite.addTest(doctest.DocFileSuite(file, module_relative=False))
    _run_suite(suite, outcome, tell)


def _add_examples(suite: Any, file: str, tell: Tell) -> None:
    import doctest

    name = _dotted(file.removeprefix("./").removeprefix("src/").removesuffix("/__init__.py"))
    try:
        suite.addTest(doctest.DocTestSuite(import_module(name)))
    except Exception as error:  # noqa: BLE001 - a module of the project's
        text = f"It cannot be imported: {type(error).__name__}: {error}"
        tell({"kind": "result", "name": name, "outcome": "error", "text": cut(text, LONGEST)})


def _example_files(names: list[str]) -> list[str]:
    """Return the named files and those in named directories. Without names, return those of the project."""
    found: list[str] = []
    for name in names or ["."]:
        if _isdir(name):
            found += [file for file in _walked(name) if holds(file, _PROMPT)]
        else:
            found.append(name)
    return found


def _walked(home: str) -> Iterator[str]:
    """Return the modules in a directory. Other files with examples run only if they are named."""
    count = 0
    for folder, inner, files in os.walk(home):
        inner[:] = sorted(
            name for name in inner if not name.startswith(".") and not _is_foreign(folder, name)
        )
        for name in sorted(files):
            count += name.endswith(".py")
            if name.endswith(".py") and count <= _MOST_FILES:
                yield f"{folder}/{name}"


def drop_older_compiled(home: str) -> None:
    """Prevent frameworks from running a compiled file that is older than its source.

    Python and pytest compare the second and the size only: an edit within the same second may escape them.
    """
    for folder, inner, files in os.walk(home):
        inner[:] = [
            name
            for name in inner
            if name == "__pycache__" or not (name.startswith(".") or _is_foreign(folder, name))
        ]
        above, _, last = folder.rpartition("/")
        for name in files if last == "__pycache__" else ():
            source, compiled = f"{above}/{name.partition('.')[0]}.py", f"{folder}/{name}"
            with suppress(OSError):  # there is no such source, or it may not be removed
                if _stat(compiled).st_mtime_ns < _stat(source).st_mtime_ns:
                    _unlink(compiled)


def _is_foreign(folder: str, name: str) -> bool:
    return name in ("node_modules", "__pycache__") or _exists(f"{folder}/{name}/pyvenv.cfg")


RUNS = {"unittest": _run_unittest, "django": _run_django, "doctest": _run_doctest}
