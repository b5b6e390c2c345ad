"""Cases for an agent: a message, and the expectations of the run; read from lines of JSON or from traces.

A case may include the model's answers: then no model is asked, and only the tools differ.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.agents.traces import Trace, load_traces
from gramercy.errors import InvalidCaseError, UnreadableFileError
from gramercy.gram.patterns import misspelt
from gramercy.text import cut_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gramercy.agents.traces import TracedCall

# The quoted length of an unexpected answer: one line.
LONGEST_QUOTE = 80


class ExpectedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An expected call; only the arguments given here count."""

    tool: str
    arguments: dict[str, Any] = {}

    def __str__(self) -> str:
        return (
            f"{self.tool} {json.dumps(self.arguments, ensure_ascii=False)}" if self.arguments else self.tool
        )


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The expectations of a run; a run that ends without an answer meets none.

    `contains`, `excludes`, `equals` and `regex` are about the answer, and case matters. `calls` are all calls
    in their order; an empty list expects none. Each of `results` must be in the result of some call.
    """

    contains: str | tuple[str, ...] = ()
    excludes: str | tuple[str, ...] = ()
    equals: str | None = None
    regex: str | None = None
    calls: tuple[str | ExpectedCall, ...] | None = None
    results: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a pattern that could never match."""
        try:
            re.compile(self.regex or "")
        except re.error as error:
            raise ValueError(f"{self.regex!r} is no regular expression: {error}") from None

    def failures(self, trace: Trace) -> tuple[str, ...]:
        """Return the expectations that a run does not meet."""
        if trace.outcome != "answered":
            return (trace.error or f"the run ended without an answer: {trace.outcome}",)
        return (*self._answer_failures(trace.answer), *self._call_failures(trace.calls))

    def _answer_failures(self, answer: str) -> Iterator[str]:
        said = f"the answer {_quoted(answer)}"
        yield from (f"{said} lacks {_quoted(word)}" for word in _listed(self.contains) if word not in answer)
        yield from (f"{said} has {_quoted(word)}" for word in _listed(self.excludes) if word in answer)
        if self.equals is not None and answer.strip() != self.equals.strip():
            yield f"{said} is not {_quoted(self.equals)}"
        if self.regex is not None and not re.search(self.regex, answer):
            yield f"{said} does not match {self.regex}"

    def _call_failures(self, calls: Sequence[TracedCall]) -> Iterator[str]:
        if self.calls is not None:
            wanted = [ExpectedCall(each) if isinstance(each, str) else each for each in self.calls]
            met = len(wanted) == len(calls) and all(map(_is_call, wanted, calls))
            if not met:
                listed = ", ".join(map(str, wanted)) or "none"
                yield f"the calls are {', '.join(call.said for call in calls) or 'none'}, expected {listed}"
        for word in _listed(self.results):
            if not any(word in call.result for call in calls):
                yield f"no call gave {_quoted(word)}"


class Case(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message to run an agent on. `script` are the model's answers, `trace` a run to take them from."""

    message: str
    name: str = ""
    expect: Expectation = Expectation()
    script: tuple[Any, ...] = ()
    trace: Trace | None = None

    @property
    def brings_model(self) -> bool:
        """Whether it includes the model's answers, so that no model is asked."""
        return bool(self.script) or self.trace is not None


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A case as it is written on a line."""

    message: str
    name: str = ""
    expect: Expectation = Expectation()
    script: tuple[Any, ...] = ()


def load_cases(path: str | Path) -> tuple[Case, ...]:
    """Read cases from a file of JSON lines, or from a file of traces (.gram)."""
    if Path(path).suffix == ".gram":
        found = load_traces(path)
        return _named([Case(each.message, trace=each) for each in found], str(path))
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFileError(f"{path} cannot be read: {error}") from None
    return read_cases(text, str(path))


def read_cases(text: str, where: str = "cases") -> tuple[Case, ...]:
    """Read cases, one JSON object on a line; empty lines and lines that begin with // are skipped.

    InvalidCaseError names every invalid line.
    """
    cases, faults = [], []
    # `splitlines` would also end a line at characters that a JSON text may hold, such as U+2028.
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("//"):
            continue
        try:
            read = msgspec.convert(_object(line), _Line)
            cases.append(Case(read.message, read.name, read.expect, read.script))
        except ValueError as error:
            faults.append(f"{where}:{number}: {error}")
    if faults:
        raise InvalidCaseError("\n".join(faults))
    return _named(cases, where)


def _object(line: str) -> dict[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError(f'expected an object such as {{"message": "Hello"}}, found {line.strip()[:40]}')  # noqa: TRY004 - text
    inner = found.get("expect")
    for values, kind in ((found, _Line), (inner if isinstance(inner, dict) else {}, Expectation)):
        wrong = misspelt(values, kind.__struct_fields__)
        if wrong:
            raise ValueError(f"unknown key {wrong[0]!r}: did you mean {wrong[1]!r}?")
    if not str(found.get("message", "x")).strip():
        raise ValueError("the message is empty: say what the agent is asked")
    return found


def _named(cases: Sequence[Case], where: str) -> tuple[Case, ...]:
    """Give every case a name for reports."""
    if not cases:
        raise InvalidCaseError(f'{where} has no cases: write lines such as {{"message": "Hello, I am Ada"}}')
    named = [
        msgspec.structs.replace(case, name=case.name or f"case {number}")
        for number, case in enumerate(cases, 1)
    ]
    seen: set[str] = set()
    for case in named:
        if case.name in seen:
            raise InvalidCaseError(f"{where} has two cases named {case.name!r}: rename one")
        seen.add(case.name)
    return tuple(named)


def _is_call(wanted: ExpectedCall, call: TracedCall) -> bool:
    if wanted.tool != call.tool:
        return False
    try:
        given = json.loads(call.arguments)
    except ValueError:
        return False
    return isinstance(given, dict) and all(
        key in given and given[key] == value for key, value in wanted.arguments.items()
    )


def _listed(words: str | tuple[str, ...]) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else words


def _quoted(text: str) -> str:
    return f"'{cut_line(text, LONGEST_QUOTE)}'"
