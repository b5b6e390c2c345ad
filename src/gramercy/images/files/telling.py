"""Format which files changed and which were restored, on one line, with a readable number of paths.

Evaluated code chooses the names: one that could pass for a sentence of ours is quoted.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gramercy.images.files.changes import FileChange, FileOutcome

# Paths in one answer. More are counted.
MOST_TOLD = 20
VERBS = {"mode": "changed the mode of"}
# The words for attempts that failed.
INFINITIVES = {"created": "create", "changed": "change", "deleted": "delete", "mode": "change the mode of"}
_PLAIN = re.compile(r"[\w./@+=~-]{1,200}")


def changes_text(files: Sequence[FileChange]) -> str:
    """Format changes: created a.txt, b.txt; changed c.py."""
    told = _grouped((VERBS.get(each.change, each.change), each.path, each.note) for each in files[:MOST_TOLD])
    doubt = "" if all(each.certain for each in files) else " (found by comparison, which is not certain)"
    return f"{told}{_more(files)}{doubt}"


def attempts_text(files: Sequence[FileChange]) -> str:
    """Format failed attempts to change files: create a.txt; delete c.py."""
    entries = (
        (INFINITIVES.get(each.change, each.change), each.path, each.note) for each in files[:MOST_TOLD]
    )
    return f"{_grouped(entries)}{_more(files)}"


def outcomes_text(outcomes: Sequence[FileOutcome]) -> str:
    """Format the outcomes of a restore: back a.txt; gone b.txt; left alone c.py (why)."""
    told = sorted(outcomes, key=lambda each: (each.outcome != "left alone", each.path))[:MOST_TOLD]
    return f"{_grouped((f'{each.outcome}:', each.path, each.reason) for each in told)}{_more(outcomes)}"


def _grouped(entries: Iterable[tuple[str, str, str]]) -> str:
    groups: dict[str, list[str]] = {}
    for word, path, note in entries:
        name = path if _PLAIN.fullmatch(path) else json.dumps(path, ensure_ascii=False)
        groups.setdefault(word, []).append(f"{name} ({note})" if note else name)
    return "; ".join(f"{word} {', '.join(names)}" for word, names in sorted(groups.items()))


def _more(all_of_them: Sequence[object]) -> str:
    left = len(all_of_them) - MOST_TOLD
    return f", and {left:,} more" if left > 0 else ""
