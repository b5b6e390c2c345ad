"""Split a change of a text into hunks that a person accepts or rejects one by one.

Numbers count from 1 in the order of the text, and mean the same to the person, the approver and the model.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import count
from typing import TYPE_CHECKING

from gramercy.errors import WorkspaceError
from gramercy.toolsets.documents import lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# Unchanged lines around a change, as in every unified diff.
CONTEXT = 3
# The comparison visits every pair of equal lines repeatedly. Above these limits a change is one hunk, so that
# it takes about a second at most.
MOST_PAIRS = 2_000_000
MOST_LINES = 100_000
# Lines shown of a rejected hunk, enough for a model to recognize it.
LONGEST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Hunk:
    """One contiguous change: lines of the original, and the lines that replace them."""

    number: int
    start: int
    removed: tuple[str, ...]
    added: tuple[str, ...]

    def __str__(self) -> str:
        signed = [*(f"-{line}" for line in self.removed), *(f"+{line}" for line in self.added)]
        return f"@@ hunk {self.number}, line {self.start + 1} @@\n{_joined(signed)}".rstrip("\n")


def split(original: str, modified: str) -> list[Hunk]:
    """Return the hunks that lead from one text to the other."""
    before, after = lines(original), lines(modified)
    first, rest = _common(before, after)
    middle, changed = before[first : len(before) - rest], after[first : len(after) - rest]
    numbers = count(1)
    return [
        Hunk(next(numbers), first + low, tuple(middle[low:high]), tuple(changed[new_low:new_high]))
        for low, high, new_low, new_high in _changes(middle, changed)
    ]


def _common(before: list[str], after: list[str]) -> tuple[int, int]:
    """Count the equal lines at the start and at the end."""
    most = min(len(before), len(after))
    first = next((n for n in range(most) if before[n] != after[n]), most)
    rest = next((n for n in range(most - first) if before[-1 - n] != after[-1 - n]), most - first)
    return first, rest


def _changes(before: list[str], after: list[str]) -> list[tuple[int, int, int, int]]:
    if not before and not after:
        return []
    counts = Counter(after)
    pairs = sum(times * counts[line] for line, times in Counter(before).items())
    if pairs > MOST_PAIRS or len(before) + len(after) > MOST_LINES:
        return [(0, len(before), 0, len(after))]
    opcodes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [where for tag, *where in opcodes if tag != "equal"]  # type: ignore[misc]  # four numbers


def apply(original: str, hunks: Iterable[Hunk]) -> str:
    """Return the original with these hunks applied."""
    result = lines(original)
    for hunk in sorted(hunks, key=lambda h: h.start, reverse=True):
        result[hunk.start : hunk.start + len(hunk.removed)] = hunk.added
    return "".join(result)


def accepted(original: str, modified: str, numbers: Collection[int]) -> str:
    """Return the text for a person who accepted exactly the hunks of these numbers."""
    hunks = split(original, modified)
    _check(hunks, numbers)
    return apply(original, [hunk for hunk in hunks if hunk.number in numbers])


def applied_note(original: str, modified: str, numbers: Collection[int], reason: str = "") -> str:
    """Tell the model which hunks a person accepted and rejected, and not to repeat the rejected ones."""
    hunks = split(original, modified)
    _check(hunks, numbers)
    rejected = [hunk for hunk in hunks if hunk.number not in numbers]
    if not rejected:
        return f"A person accepted {_named([hunk.number for hunk in hunks])} of {len(hunks)}."
    taken = _named(sorted(numbers)) if numbers else "no hunk"
    shown = "\n".join(_shortened(hunk) for hunk in rejected)
    because = f" ({reason})" if reason else ""
    return (
        f"A person accepted {taken} of {len(hunks)} and rejected "
        f"{_named([h.number for h in rejected])}{because}. Do not propose again what was rejected:\n{shown}"
    )


def _check(hunks: list[Hunk], numbers: Collection[int]) -> None:
    unknown = sorted(set(numbers) - {hunk.number for hunk in hunks})
    if unknown:
        there = f"there are 1 to {len(hunks)}" if hunks else "the texts are the same"
        raise WorkspaceError(f"there is no hunk {unknown[0]}: {there}")


def _named(numbers: list[int]) -> str:
    listed = [str(number) for number in numbers]
    if len(listed) == 1:
        return f"hunk {listed[0]}"
    return f"hunks {', '.join(listed[:-1])} and {listed[-1]}"


def _shortened(hunk: Hunk) -> str:
    shown = str(hunk).split("\n")
    if len(shown) <= LONGEST_SHOWN:
        return "\n".join(shown)
    return "\n".join([*shown[:LONGEST_SHOWN], f"… {len(shown) - LONGEST_SHOWN} more lines"])


def diff(original: str, modified: str, path: str) -> str:
    """Return the change as a unified diff; empty when there is none."""
    before = lines(original)
    groups = _grouped(split(original, modified))
    if not groups:
        return ""
    moved = 0
    parts = [f"--- a/{path}\n", f"+++ b/{path}\n"]
    for group in groups:
        parts.append(_group_text(before, group, moved))
        moved += sum(len(hunk.added) - len(hunk.removed) for hunk in group)
    return "".join(parts)


def _grouped(hunks: list[Hunk]) -> list[list[Hunk]]:
    """Group hunks whose context would overlap."""
    groups: list[list[Hunk]] = []
    for hunk in hunks:
        last = groups[-1][-1] if groups else None
        if last is not None and hunk.start - (last.start + len(last.removed)) <= 2 * CONTEXT:
            groups[-1].append(hunk)
        else:
            groups.append([hunk])
    return groups


def _group_text(before: list[str], group: list[Hunk], moved: int) -> str:
    low = max(0, group[0].start - CONTEXT)
    high = min(len(before), group[-1].start + len(group[-1].removed) + CONTEXT)
    signed: list[str] = []
    place = low
    for hunk in group:
        signed += [f" {line}" for line in before[place : hunk.start]]
        signed += [*(f"-{line}" for line in hunk.removed), *(f"+{line}" for line in hunk.added)]
        place = hunk.start + len(hunk.removed)
    signed += [f" {line}" for line in before[place:high]]
    size = high - low + sum(len(hunk.added) - len(hunk.removed) for hunk in group)
    return f"@@ -{_range(low, high - low)} +{_range(low + moved, size)} @@\n{_joined(signed)}"


def _range(start: int, size: int) -> str:
    # As in every unified diff: an empty range stands on the line before it.
    first = start + 1 if size else start
    return str(first) if size == 1 else f"{first},{size}"


def _joined(signed: list[str]) -> str:
    ended = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in signed)
    return "".join(ended)
