"""Score the text a model gets for a bad call, by what it contains. The same rules for everybody's format.

A value of 1 means fulfilled, 0 not, a fraction that only some of the faults were treated so, None that the
question does not arise for this call.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

import jsonschema_rs

from bench.bad_calls import UNKNOWN_TOOL
from bench.bad_tools import RAN, SCHEMAS
from bench.vocabulary import expected_words, received_words, schema_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.bad_calls import BadCall, BadPlace, Path

CRITERIA = {
    "answered": "a text came back and the run went on",
    "refused": "the handler did not run",
    "place": "the place of each fault is named",
    "every fault": "all faults are named in the one text",
    "expected": "it is said what was expected there",
    "received": "it is said what was received there (its value, or its type if that was wrong)",
    "meant": "a slip is answered with the name that was meant",
    "options": "the options are listed; for an unknown tool the right one is named, or any if none was meant",
    "example": "there is a JSON object that validates against the tool's schema",
    "no links": "no web address",
    "no noise": "no traceback, class path or memory address",
}
BEFORE, AFTER = 160, 260  # characters around the naming of a place that belong to it
SUGGESTING = r"(?:did|do) you mean|perhaps|maybe|closest|similar|suggest\w*|meant"
NOISE = (
    r"Traceback \(most recent|File \"[^\"]+\", line|<class '|0x[0-9a-f]{6,}"
    r"|\b[a-z_]\w*(?:\.[a-z_]\w*)+\.[A-Z]\w*(?:Error|Exception)"
)

Score = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a library made of a call: the text for the model, or the exception that ended the run."""

    text: str
    aborted: bool = False


def score(call: BadCall, answer: Answer) -> Score:
    """Score one answer; a run that ended or a handler that ran earns nothing further."""
    ran = RAN in answer.text
    if answer.aborted or ran or not answer.text.strip():
        lost = {name: None if value is None else 0.0 for name, value in _content_score(call, "").items()}
        return {"answered": float(ran), "refused": float(not ran), **lost, "no links": 0.0, "no noise": 0.0}
    return {
        "answered": 1.0,
        "refused": 1.0,
        **_content_score(call, answer.text),
        "no links": float(not re.search(r"https?://", answer.text)),
        "no noise": float(not re.search(NOISE, answer.text)),
    }


def total(scores: list[Score]) -> float:
    """Return the mean over all calls of the share of the applicable criteria fulfilled, in percent."""
    return 100 * fmean(fmean(value for value in one.values() if value is not None) for one in scores)


def _content_score(call: BadCall, text: str) -> Score:
    said = _without_echoes(call, text)
    places = [(fault, _mentions(said, fault.path)) for fault in call.faults]
    named = [bool(spans) for fault, spans in places if fault.path]
    given = [(words, spans) for fault, spans in places if (words := received_words(call, fault))]
    return {
        "place": _mean(named),
        "every fault": float(all(named)) if named else None,
        "expected": _mean([_found(expected_words(call, fault), said, spans) for fault, spans in places]),
        # An echo does not name a fault, but beside a named one it does show what was received.
        "received": _mean([_found(words, text, spans) for words, spans in given]),
        "meant": _mean([_suggests(said, fault.meant) for fault in call.faults if fault.meant]),
        "options": _mean([_lists(call, fault, said) for fault in call.faults if _has_options(fault)]),
        "example": float(_has_example(call, text)) if call.tool in SCHEMAS else None,
    }


def _mean(values: list[bool]) -> float | None:
    return fmean(values) if values else None


def _found(words: str, text: str, spans: list[tuple[int, int]]) -> bool:
    around = (text[max(0, start - BEFORE) : end + AFTER] for start, end in spans)
    return any(re.search(words, passage, re.IGNORECASE) for passage in around)


def _mentions(text: str, path: Path) -> list[tuple[int, int]]:
    """Find each naming of a place, however its steps are joined; no place means the whole text."""
    if not path:
        return [(0, len(text))] if text else []
    joined = r"[^A-Za-z0-9]{1,6}".join(re.escape(str(step)) for step in path)
    return [m.span() for m in re.finditer(rf"(?<![A-Za-z0-9_]){joined}(?![A-Za-z0-9_])", text)]


def _suggests(text: str, meant: str) -> bool:
    return bool(re.search(rf"(?:{SUGGESTING})[^\n]{{0,60}}?\b{re.escape(meant)}\b", text, re.IGNORECASE))


def _has_options(fault: BadPlace) -> bool:
    return fault.keyword in {"enum", UNKNOWN_TOOL}


def _lists(call: BadCall, fault: BadPlace, text: str) -> bool:
    if fault.keyword == UNKNOWN_TOOL:
        tools = [fault.meant] if fault.meant else SCHEMAS
        return any(re.search(rf"\b{re.escape(tool)}\b", text) for tool in tools)
    options = schema_at(call.tool, fault.path)["enum"]
    return all(re.search(rf"\b{re.escape(option)}\b", text) for option in options)


def _has_example(call: BadCall, text: str) -> bool:
    """Look for arguments that fit, bare or inside a whole call: nested objects are candidates too."""
    validator = _validator(call.tool)
    return any(validator.is_valid(candidate) for _, _, candidate in _objects(text, json_only=True))


@lru_cache
def _validator(tool: str) -> Any:
    return jsonschema_rs.Draft202012Validator(SCHEMAS[tool], validate_formats=True)


def _without_echoes(call: BadCall, text: str) -> str:
    """Blank out what merely repeats the call or shows an example: naming a fault takes more than that."""
    parts = list(_objects_within(call.arguments))
    for start, end, value in _objects(text):
        if value in parts or (call.tool in SCHEMAS and _validator(call.tool).is_valid(value)):
            text = text[:start] + " " * (end - start) + text[end:]
    return text


def _objects_within(value: Any) -> Iterator[Any]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield value
    for child in children:
        yield from _objects_within(child)


def _objects(text: str, *, json_only: bool = False) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Find every JSON object (and Python dictionary) in a text, the nested ones too."""
    for brace in re.finditer(r"\{", text):
        start = brace.start()
        try:
            value, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            value, end = (None, start) if json_only else _python_literal(text, start)
        if isinstance(value, dict):
            yield start, end, value


def _python_literal(text: str, start: int) -> tuple[Any, int]:
    for close in re.finditer(r"\}", text[start : start + 2000]):
        end = start + close.end()
        try:
            return ast.literal_eval(text[start:end]), end
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None, start
