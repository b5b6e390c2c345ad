"""Find the place that a piece of text has in a file, and tell what comes closest when it has none.

Pure: it knows texts and lines, no files. Lines count from 1, as in every other answer.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate

from gramercy.toolsets.documents import CRLF, lines, plain

# As many places as a model compares at a glance; the rest is counted.
MOST_PLACES = 20
# Enough of a line to know it again.
LONGEST_LINE = 120
# What is shown of the closest place: a model copies it into its next try.
MOST_SHOWN = 30
# Comparing characters takes about 20 microseconds a line: 0.2 s, then the rest of a long file is left out.
MOST_COMPARED = 10_000
# Below this lines have little more in common than letters.
ALIKE = 0.6
# Lines as read_file numbers them.
_NUMBERED = re.compile(r" *\d+  ")


@dataclass(frozen=True, slots=True)
class Match:
    """A piece of a text, by its characters and by the line where it begins."""

    start: int
    end: int
    line: int


def matches(text: str, piece: str) -> list[Match]:
    """Return where a piece of text is, overlapping ones too; where it is nowhere, CRLF counts as newline."""
    spans = _spans(text, piece)
    if not spans and CRLF in text:
        pattern = "\r?\n".join(map(re.escape, plain(piece).split("\n")))
        spans = [found.span() for found in re.finditer(pattern, text)]
    starts = list(accumulate(map(len, lines(text)), initial=0)) if spans else []
    return [Match(start, end, bisect_right(starts, start)) for start, end in spans]


def _spans(text: str, piece: str) -> list[tuple[int, int]]:
    found, start = [], text.find(piece)
    while start >= 0:
        found.append((start, start + len(piece)))
        start = text.find(piece, start + 1)
    return found


def replaced(text: str, places: list[Match], new: str) -> str:
    """Return the text with another in these places; one that begins inside the one before is left alone."""
    parts, end = [], 0
    for place in places:
        if place.start >= end:
            parts += [text[end : place.start], _ended_as(text, place, new)]
            end = place.end
    return "".join([*parts, text[end:]])


def _ended_as(text: str, place: Match, new: str) -> str:
    """Return the new text with the line ends of its place: a file may have both kinds."""
    there = text[place.start : place.end]
    if "\n" not in there:
        there = text[place.end : text.find("\n", place.end) + 1]
    is_crlf = there.count("\n") == there.count(CRLF) > 0
    return plain(new).replace("\n", CRLF) if is_crlf else new


def places_listed(text: str, found: list[Match]) -> str:
    """List places with their lines, and with what each is in when that is all that tells them apart."""
    every = lines(text)
    shown = [f"{place.line}: {_line(every[place.line - 1])}" for place in found[:MOST_PLACES]]
    if len({every[place.line - 1] for place in found}) == 1:
        shown = [
            f"{row}{_within(every, place.line)}"
            for row, place in zip(shown, found[:MOST_PLACES], strict=True)
        ]
    rest = len(found) - MOST_PLACES
    return "\n".join([*shown, *([f"… {rest} more"] if rest > 0 else [])])


def _within(every: list[str], line: int) -> str:
    """Name the line above that is indented less: the head of the definition or block, in most languages."""
    own = _indentation(every[line - 1])
    for above in reversed(every[: line - 1]):
        if above.strip() and len(_indentation(above)) < len(own):
            return f"   (in: {_line(above).strip()})"
    return f"   (after: {_line(every[line - 2]).strip()})" if line > 1 else ""


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _line(line: str) -> str:
    bare = line.rstrip("\r\n")
    return bare if len(bare) <= LONGEST_LINE else f"{bare[:LONGEST_LINE]}…"


def closest(text: str, piece: str) -> str:
    """Say what comes closest to a piece that is not in the text, so that the next try fits."""
    every, wanted = lines(text), lines(piece)
    if all(_NUMBERED.match(line) for line in wanted if line.strip()):
        bare = "".join(_NUMBERED.sub("", line, count=1) for line in wanted)
        if found := matches(text, bare):
            return f"Without the line numbers it is on line {found[0].line}: leave them out."
    first = _same_but_for_space(every, wanted)
    if first is not None:
        there = every[first : first + len(wanted)]
        return f"Only white space differs on {_range(first, there)}: {_space(there, wanted, first)}.\n" + (
            _shown(there, first)
        )
    first = _most_alike(every, wanted)
    if first is None:
        return f"None of its {len(every)} lines is like it: read the file again."
    there = every[first : first + len(wanted)]
    differing = [first + n + 1 for n, line in enumerate(there) if line.rstrip() != wanted[n].rstrip()]
    where = f"; what differs is on line {', '.join(map(str, differing[:MOST_PLACES]))}" if differing else ""
    return f"The closest is {_range(first, there)}{where}:\n{_shown(there, first)}"


def _range(first: int, there: list[str]) -> str:
    return f"line {first + 1}" if len(there) == 1 else f"lines {first + 1} to {first + len(there)}"


def _shown(there: list[str], first: int) -> str:
    """Show lines with their numbers, as read_file does."""
    rows = [f"{number:>4}  {_line(line)}" for number, line in enumerate(there[:MOST_SHOWN], first + 1)]
    rest = len(there) - MOST_SHOWN
    return "\n".join([*rows, *([f"… {rest} more lines"] if rest > 0 else [])])


def _same_but_for_space(every: list[str], wanted: list[str]) -> int | None:
    """Return the index of the first line where all lines are the same but for space at either end."""
    bare, sought = [line.strip() for line in every], [line.strip() for line in wanted]
    if not any(sought):
        return None
    starts = (n for n, line in enumerate(bare) if line == sought[0])
    return next((n for n in starts if bare[n : n + len(sought)] == sought), None)


def _space(there: list[str], wanted: list[str], first: int) -> str:
    """Name the white space of the first line that differs."""
    for number, (line, want) in enumerate(zip(there, wanted, strict=True), first + 1):
        if _indentation(line) != _indentation(want):
            return f"line {number} is indented by {_named(line)}, in old by {_named(want)}"
        if line.rstrip("\r\n") != want.rstrip("\r\n"):
            ends = line.rstrip("\r\n")
            extra = "has" if ends != ends.rstrip() else "does not have"
            return f"line {number} {extra} spaces or tabs at its end"
    return f"line {first + len(there)} ends without a newline, old with one"


def _named(line: str) -> str:
    spaces = Counter(_indentation(line.rstrip("\r\n")))
    known = {" ": "space", "\t": "tab"}
    counts = [f"{n} {known.get(c, repr(c))}{'s' if n > 1 else ''}" for c, n in spaces.items()]
    return " and ".join(counts) or "nothing"


def _most_alike(every: list[str], wanted: list[str]) -> int | None:
    """Return the index of the line where most lines are the same; else where one is much alike."""
    bare = [line.strip() for line in every]
    places: dict[str, list[int]] = {}
    for n, line in enumerate(bare):
        places.setdefault(line, []).append(n)
    votes: defaultdict[int, float] = defaultdict(float)
    for index, want in enumerate(wanted):
        found = places.get(want.strip(), ()) if want.strip() else ()
        for n in found[:MOST_COMPARED]:
            # A line that is everywhere, such as a closing bracket, says little about where.
            votes[max(0, n - index)] += 1 / len(found)
    if votes:
        return max(votes, key=votes.__getitem__)
    index = max(range(len(wanted)), key=lambda n: len(wanted[n].strip()))
    alike = _alike(bare[:MOST_COMPARED], wanted[index].strip())
    return None if alike is None else max(0, alike - index)


def _alike(bare: list[str], want: str) -> int | None:
    compared = SequenceMatcher(None, autojunk=False)
    compared.set_seq2(want[:LONGEST_LINE])
    best, place = ALIKE, None
    for n, line in enumerate(bare):
        compared.set_seq1(line[:LONGEST_LINE])
        # Each of these is an upper bound of the next and much cheaper.
        if (
            compared.real_quick_ratio() > best
            and compared.quick_ratio() > best
            and (ratio := compared.ratio()) > best
        ):
            best, place = ratio, n
    return place
