"""A Jupyter notebook as readable text: its cells by number, with shortened outputs.

The file itself is JSON, and the editing tools work on that. No part of it is trusted to have a known shape.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gramercy.text import counted

# Part of a refused edit, where its text may come from this view.
VIEWED = "read_file shows a notebook as cells: the text of the file itself is JSON. "
# Limits of each output, enough to recognize it. The cell can be run again for more.
MOST_LINES, MOST_CHARACTERS = 12, 800
_TEXT = "text/plain"


def cells_of(text: str) -> list[Any] | None:
    """Return the cells of a notebook, None where the text is not a notebook of format 4."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    cells = found.get("cells") if isinstance(found, dict) else None
    return cells if isinstance(cells, list) else None


def view(cells: list[Any], exact: str) -> str:
    """Format the cells, after a line that says so and how to get the `exact` text."""
    count = counted(len(cells), "cell")
    head = f"[A view of {count}, outputs shortened: the file is JSON, and edits are made of that{exact}.]\n"
    return head + "\n".join(_cell(number, cell) for number, cell in enumerate(cells, 1))


def _cell(number: int, cell: Any) -> str:
    if not isinstance(cell, dict):
        return f"── cell {number}: not a cell\n"
    kind, count = cell.get("cell_type"), cell.get("execution_count")
    ran = f", ran as [{count}]" if isinstance(count, int) else ""
    parts = [f"── cell {number}: {kind if isinstance(kind, str) else 'unknown'}{ran}"]
    if source := _joined(cell.get("source")).rstrip("\n"):
        parts.append(source)
    outputs = cell.get("outputs")
    shown = map(_output, outputs if isinstance(outputs, list) else ())
    parts.extend(f"── output of {number}: {output}" for output in shown)
    return "\n".join(parts) + "\n"


def _output(output: Any) -> str:
    if not isinstance(output, dict):
        return "unknown"
    if output.get("output_type") == "error":
        return _shortened(f"{_joined(output.get('ename'))}: {_joined(output.get('evalue'))}")
    if "text" in output:
        return _shortened(_joined(output["text"]))
    data = output.get("data")
    if not isinstance(data, dict):
        return "unknown"
    others = ", ".join(f"[{name}]" for name in data if name != _TEXT)
    return " ".join(filter(None, [others, _shortened(_joined(data.get(_TEXT)))]))


def _joined(value: Any) -> str:
    """Return a text. A notebook may keep it as a list of lines."""
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _shortened(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    shown = "\n".join(lines[:MOST_LINES])[:MOST_CHARACTERS]
    left = len(text.rstrip("\n")) - len(shown)
    shown = f"{shown}… ({left:,} more characters)" if left else shown
    return f"\n{shown}" if "\n" in shown else shown
