"""The page docs/reference/libraries.md: the outcome of the trials as a table, and what is told."""

# ruff: noqa: E501 - the page has lines of its own length

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.images.python.threads import LIBRARIES
from tests.images.library_subjects import SUBJECTS

if TYPE_CHECKING:
    from tests.images.library_trials import Cell

HEAD = """<!-- Made by `scripts/trials --write`, which uses each library in a real image; change that, not this page. -->
# Libraries and time travel

What a [kept state](../how-to/work-with-threads.md) is worth with a library in use: each cell is a real image that imports the
library, computes with it, goes the way of the column, and computes again. `works` means: the same state and the same answer.
`refused` means that no state is kept, and the reply says why; `lost`, that what was not kept is gone after a crash, as had been
said. `partly` is explained below. Undo by replay goes back to the last kept
state and runs what came after it again; undo by definitions puts back what the last call defined, without any copy.

"""
LIST = """
## Threads of compiled libraries

A copy of a process has only the thread that makes it. Before a state is kept, the owner of every other thread is looked
up: the library whose function it was started with. A thread of Python code prevents a copy unless it waits, with nothing in hand, in
one of three places: as a thread of a `ThreadPoolExecutor` for work (asyncio's default one among them), as the monitor of tqdm, or as a
listener of `logging.handlers`. Its whole stack decides, never its name. The copy works without it: a pool starts new threads, the others
run there again before code does. For compiled libraries there is a list, found by trying:

| library | a copy with its threads | tried | |
|---|---|---|---|
"""
RULE = """
A library that stood a copy in the versions above is taken to stand it in others, older or newer. A library that is not in the
list prevents copies while a thread of it runs, and is named; without a thread running there is nothing to ask.
"""


def page(results: dict[str, dict[str, Cell]], versions: dict[str, str]) -> str:
    """Write the whole page."""
    ways = list(next(iter(results.values())))
    rows = [f"| | {' | '.join(ways)} |", f"|---|{'---|' * len(ways)}"]
    rows += [f"| {_titled(name, versions)} | {_words(cells)} |" for name, cells in results.items()]
    return HEAD + "\n".join(rows) + "\n" + _told(results) + LIST + _libraries() + RULE


def table(text: str) -> dict[str, list[str]]:
    """Read the words of the first table of a page, by the name of the row without its version."""
    lines = text.partition("|---|")[2].splitlines()[1:]
    found = {}
    for line in lines:
        if not line.startswith("|"):
            break
        name, *words = [cell.strip() for cell in line.strip("|").split("|")]
        found[_untitled(name)] = words
    return found


def _titled(name: str, versions: dict[str, str]) -> str:
    package, comma, condition = name.partition(",")
    version = versions.get(package)
    return f"{package} {version}{comma}{condition}" if version else name


def _untitled(title: str) -> str:
    package, comma, condition = title.partition(",")
    name, _space, version = package.rpartition(" ")
    return (name if name and version[0].isdigit() else package) + comma + condition


def _words(cells: dict[str, Cell]) -> str:
    return " | ".join(cell.word for cell in cells.values())


def _told(results: dict[str, dict[str, Cell]]) -> str:
    """List what was said, once for each text, and what else there is to know."""
    remarks = {subject.name: subject.remark for subject in SUBJECTS}
    lines = ["", "## What is told", ""]
    for name, cells in results.items():
        said: dict[str, list[str]] = {}
        for way, cell in cells.items():
            if cell.text:
                said.setdefault(cell.text, []).append(way)
        lines += [f"- **{name}**, {', '.join(ways)}: {_plain(text)}" for text, ways in said.items()]
        if remarks[name]:
            lines.append(f"- **{name}**: {remarks[name]}")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Keep Markdown from reading anything into a message, and a message from being long."""
    shown = " ".join(text.split())
    return f"`{shown[:240].replace('`', chr(39))}{'…' if len(shown) > 240 else ''}`"


def _libraries() -> str:
    verdicts = {True: "works", False: "does not work"}
    return "".join(
        f"| {each.name} | {verdicts[each.stands]} | {', '.join(each.tried)} | {each.remark} |\n"
        for each in LIBRARIES
    )
