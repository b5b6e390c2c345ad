"""Differences between two traces: calls, results and answer. Times and tokens always differ."""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from gramercy.text import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gramercy.agents.traces import Trace, TracedCall

# The shown lines of two texts: enough to know what to look for; --json has all of them.
MOST_LINES = 40
LONGEST_LINE = 500
# Equal lines shown around the different ones.
AROUND = 3
# Matching takes time up to the square of this: some tenths of a second.
MOST_MATCHED = 2_000
Kind: TypeAlias = Literal["agent", "message", "call", "result", "outcome", "answer"]


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference. `place` says where; a side that lacks the thing is empty."""

    kind: Kind
    place: str
    before: str = ""
    after: str = ""


def differences(one: Trace, other: Trace) -> tuple[Difference, ...]:
    """Return the differences in the order of the run; two traces without any behaved alike."""
    return tuple(_differences(one, other))


def _differences(one: Trace, other: Trace) -> Iterator[Difference]:
    if one.agent != other.agent:
        yield Difference("agent", "agent", one.agent.to_gram(), other.agent.to_gram())
    if one.message != other.message:
        yield Difference("message", "message", one.message, other.message)
    yield from _call_differences(one.calls, other.calls)
    if (one.outcome, one.error) != (other.outcome, other.error):
        yield Difference("outcome", "outcome", _ending(one), _ending(other))
    if one.answer != other.answer:
        yield Difference("answer", "answer", one.answer, other.answer)


def line_differences(before: str, after: str, most: int = MOST_LINES) -> Iterator[str]:
    """Yield the lines in which two texts differ, marked with - and +, and some equal lines around them.

    `difflib.ndiff` also compares inside of lines, which takes minutes for two texts of 1,500 lines.
    """
    lines = list(_line_differences(before.splitlines(), after.splitlines()))
    for line in lines[:most]:
        yield cut(line, LONGEST_LINE)
    if len(lines) > most:
        yield f"  … and {len(lines) - most:,} more lines"


def _line_differences(one: list[str], other: list[str]) -> Iterator[str]:
    if one == other:
        yield "  (the lines are the same, and end otherwise)"
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    begin = max(0, alike - AROUND)
    one, other = one[begin:], other[begin:]
    matcher = SequenceMatcher(None, one[:MOST_MATCHED], other[:MOST_MATCHED])
    for number, group in enumerate(matcher.get_grouped_opcodes(AROUND)):
        if number or begin:
            yield "  …"
        for tag, left, left_end, right, right_end in group:
            if tag == "equal":
                yield from (f"  {line}" for line in one[left:left_end])
            else:
                yield from (f"- {line}" for line in one[left:left_end])
                yield from (f"+ {line}" for line in other[right:right_end])
    yield from (f"- {line}" for line in one[MOST_MATCHED:])
    yield from (f"+ {line}" for line in other[MOST_MATCHED:])


def _call_differences(one: Sequence[TracedCall], other: Sequence[TracedCall]) -> Iterator[Difference]:
    # Calls are matched by tool and arguments, as the lines of two texts are.
    matcher = SequenceMatcher(
        None, [call.said for call in one], [call.said for call in other], autojunk=False
    )
    for tag, begin, end, other_begin, other_end in matcher.get_opcodes():
        before, after = one[begin:end], other[other_begin:other_end]
        for number, (left, right) in enumerate(zip_longest(before, after), begin + 1):
            if tag != "equal":
                yield Difference("call", f"call {number}", _said(left), _said(right))
            if (
                left is not None
                and right is not None
                and left.tool == right.tool
                and _given(left) != _given(right)
            ):
                yield Difference(
                    "result", f"result of call {number}, {left.tool}", *map(_result, (left, right))
                )


def _said(call: TracedCall | None) -> str:
    return "" if call is None else call.said


def _given(call: TracedCall) -> tuple[bool, str]:
    return call.outcome == "done", call.result


def _result(call: TracedCall) -> str:
    return call.result if call.outcome == "done" else f"{call.outcome}: {call.result}"


def _ending(trace: Trace) -> str:
    return f"{trace.outcome}: {trace.error}" if trace.error else trace.outcome
