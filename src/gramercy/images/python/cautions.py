"""Collect the warnings of an evaluation with the line they belong to.

User code keeps its own filters and may install its own `showwarning`; only what Python would have printed is
collected. It knows nothing of forms.
"""

import linecache
import warnings

from .anatomy import class_name, kinds, mro_of
from .printing import shorten
from .sources import Sources

_KEPT = 100
_line_of = linecache.getline
_STYLE = kinds(DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, ResourceWarning)


class Cautions:
    """The warnings of the evaluation under way."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._found: list[dict[str, object]] = []
        self._original = warnings.showwarning

    def begin(self, space: dict[str, object]) -> None:
        """Start collecting; a line that warned in an earlier evaluation may warn again."""
        self._found = []
        space.pop("__warningregistry__", None)
        if getattr(warnings, "showwarning", None) is self._original:
            warnings.showwarning = self._show  # type: ignore[assignment]  # takes more than it must

    def end(self) -> list[dict[str, object]]:
        """Return what was collected."""
        found, self._found = self._found, []
        return found

    def add(self, kind: str, name: str, message: str, **place: object) -> None:
        """Collect one record with its form, line and file; without a file the line counts in the code."""
        if len(self._found) < _KEPT:
            record = {"kind": kind, "type": name, "message": shorten(message, 1000)}
            self._found.append({**record, **place, "form": shorten(str(place.get("form", "")), 200)})

    def _show(self, message: object, category: type, filename: str, lineno: int, *_rest: object) -> None:
        kind = "style-warning" if any(id(base) in _STYLE for base in mro_of(category)) else "warning"
        if self._sources.has(filename):
            place: dict[str, object] = {"form": self._sources.line(filename, lineno)}
        else:
            place = {"form": _line_of(filename, lineno).strip(), "file": filename}
        self.add(kind, class_name(category), str(message), line=lineno, **place)
