"""Data frames, series and arrays as tables of a bounded size, and the tables of HTML as text.

The libraries format their values themselves, with limits that are reduced here until the text fits. Nothing
is imported: a value of a library that is not loaded cannot occur.
"""

import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .anatomy import mro_of, raw_space, short_name

# Characters of a table, and of a line of it: some 800 tokens, and the width of a wide terminal.
_LARGEST, _WIDEST = 2_600, 118
# Rows and columns at first, and characters of a cell. There are fewer where the text is still too long.
_ROWS, _COLUMNS, _CELL = 24, 16, 40
# Rows of a longer one: the first and the last six.
_ENDS = 12
_LEAST_ROWS, _LEAST_COLUMNS = 6, 2
# Columns whose types are shown.
_TYPES = 16
# An array of fewer elements is printed as usual, exactly.
_SMALL = 100
# Elements at each end, by the number of dimensions.
_EDGES = {1: 12, 2: 5}
# Digits of an element: ten of them fit a line.
_DIGITS = 5
_PLANE = 2
# Characters of HTML that are read, and rows and columns that are shown of its tables.
_HTML = 200_000
_HTML_ROWS, _HTML_COLUMNS = 30, 10
_tokens = re.compile(r"<(/?[a-zA-Z][a-zA-Z0-9]*)[^>]*>|([^<]+)").findall
_hidden = re.compile(r"<(script|style)\b.*?</\1\s*>|<!--.*?-->", re.DOTALL | re.IGNORECASE).sub
_loaded = sys.modules.get


def _class_of(module: str, name: str) -> object:
    found = _loaded(module)
    return raw_space(found).get(name) if type(found) is ModuleType else None


def _kind_of(value: object) -> str | None:
    """Return the kind of a value that is shown as a table: array, frame or series. Else None."""
    kind = type(value)
    array = _class_of("numpy", "ndarray")
    if array is not None and kind is array:
        return "array" if value.size > _SMALL else None  # type: ignore[attr-defined]  # an array
    frame, series = _class_of("pandas", "DataFrame"), _class_of("pandas", "Series")
    if frame is None:
        return None
    for base in mro_of(kind):
        if base is frame or base is series:
            return "frame" if base is frame else "series"
    return None


def summary_of(value: object) -> str | None:
    """Return the one-line summary of a value that is shown as a table, or None."""
    kind = _kind_of(value)
    if kind is None:
        return None
    makers = {"array": _array_summary, "frame": _frame_summary, "series": _series_summary}
    return makers[kind](value)


def table_of(value: object) -> str | None:
    """Return the table of a value that has a summary, or None."""
    kind = _kind_of(value)
    if kind is None:
        return None
    return {"array": _array_table, "frame": _frame_table, "series": _series_table}[kind](value)


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _frame_summary(frame: Any) -> str:
    rows, columns = frame.shape
    types = [
        f"{name} {kind}"
        for name, kind in zip(frame.columns[:_TYPES], frame.dtypes.iloc[:_TYPES], strict=False)
    ]
    if columns > _TYPES:
        types.append(f"… {columns - _TYPES:,} more")
    told = f": {', '.join(_short(each) for each in types)}" if types else ""
    return f"{short_name(type(frame))}, {_counted(rows, 'row')} x {_counted(columns, 'column')}{told}"


def _series_summary(series: Any) -> str:
    name = "" if series.name is None else f" {_short(str(series.name))}"
    return f"{short_name(type(series))}{name}, {_counted(len(series), 'row')}: {series.dtype}"


def _array_summary(array: Any) -> str:
    shape = " x ".join(f"{side:,}" for side in array.shape)
    return f"ndarray, shape {shape}: {_short(str(array.dtype))}"


def _short(text: str) -> str:
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def _frame_table(frame: Any) -> str:
    rows, columns = frame.shape
    if not rows or not columns:
        return "(empty)"

    def write(most_rows: int, most_columns: int) -> str:
        text: str = frame.to_string(
            max_rows=most_rows, max_cols=most_columns, max_colwidth=_CELL, line_width=None
        )
        return text

    text, most_rows, most_columns = _fitted(write, rows, columns)
    return text + _left_out(max(0, rows - most_rows), max(0, columns - most_columns), "iloc")


def _series_table(series: Any) -> str:
    if not len(series):
        return "(empty)"

    def write(most_rows: int, _most_columns: int) -> str:
        text: str = series.to_string(max_rows=most_rows)
        return text

    text, most_rows, _ = _fitted(write, len(series), 1)
    return text + _left_out(max(0, len(series) - most_rows), 0, "iloc")


def _fitted(write: Callable[[int, int], str], rows: int, columns: int) -> tuple[str, int, int]:
    """Format with fewer columns and rows until the text fits. Return their numbers."""
    most_rows, most_columns = rows if rows <= _ROWS else _ENDS, min(columns, _COLUMNS)
    while True:
        text = write(most_rows, most_columns)
        if len(max(text.split("\n"), key=len)) > _WIDEST and most_columns > _LEAST_COLUMNS:
            most_columns = max(_LEAST_COLUMNS, most_columns * 2 // 3)
        elif len(text) > _LARGEST and most_rows > _LEAST_ROWS:
            most_rows = max(_LEAST_ROWS, most_rows * 2 // 3)
        else:
            return _cut(text), most_rows, most_columns


def _cut(text: str) -> str:
    """Cut the lines of a text, and then the text, if no limit of the library has made it short enough."""
    lines = [line if len(line) <= _WIDEST else f"{line[: _WIDEST - 1]}…" for line in text.split("\n")]
    while len(lines) > 1 and sum(map(len, lines)) + len(lines) > _LARGEST:
        lines = [*lines[: len(lines) // 2], "…"]
    return "\n".join(lines)


def _left_out(rows: int, columns: int, way: str, word: str = "row") -> str:
    parts = [_counted(count, what) for count, what in ((rows, word), (columns, "column")) if count]
    return f"\n… {' and '.join(parts)} not shown; {way} selects others" if parts else ""


def _array_table(array: Any) -> str:
    """Format the array, or the first plane of one with many dimensions, with the elements at the ends."""
    write: Any = _class_of("numpy", "array2string")
    note = ""
    if array.ndim > _PLANE:
        at = (0,) * (array.ndim - _PLANE)
        array, note = (
            array[at],
            f"\n… only the plane [{', '.join(map(str, at))}] is shown; index it to see others",
        )
    edges = _EDGES.get(array.ndim, 1)
    text = write(array, threshold=_SMALL, edgeitems=edges, precision=_DIGITS, max_line_width=_WIDEST)
    hidden = [max(0, side - 2 * edges) for side in array.shape] if array.size > _SMALL else [0, 0]
    if array.ndim == 1:
        return _cut(text) + _left_out(hidden[0], 0, "a slice", "element")
    return _cut(text) + _left_out(hidden[0], hidden[1], "a slice") + note


def html_table(html: str) -> str | None:
    """Return the tables in HTML as text, or None where there are none."""
    if "<table" not in html[:_HTML].lower():
        return None
    rows = _read_html(html[:_HTML])
    filled = [row[:_HTML_COLUMNS] for row in rows if any(row)]
    if not filled:
        return None
    shown = filled[:_HTML_ROWS]
    widths = [max(len(row[at]) for row in shown if at < len(row)) for at in range(max(map(len, shown)))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in shown
    ]
    most = max(len(row) for row in rows)
    left = _left_out(len(filled) - len(shown), max(0, most - _HTML_COLUMNS), "the object itself")
    return _cut("\n".join(lines)) + left


def _read_html(html: str) -> list[list[str]]:
    """Return the cells of all rows."""
    from html import unescape

    rows: list[list[str]] = []
    is_inside = False
    for tag, text in _tokens(_hidden("", html)):
        name = tag.lower()
        if name == "tr":
            rows.append([])
        elif name in ("td", "th") and rows:
            rows[-1].append("")
            is_inside = True
        elif name in ("/td", "/th", "/tr", "/table"):
            is_inside = False
        elif is_inside and rows and rows[-1]:
            rows[-1][-1] += " " if name == "br" else unescape(text)
    return [[_short(" ".join(cell.split())) for cell in row] for row in rows]
