"""Open documents: files that were read or written, and texts that somebody has open and has not saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

from gramercy.toolsets.texts import Script

MOST_OPEN = 500


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its name. `digest` is that of the file it was read from, `owner` who has it unsaved."""

    name: str
    text: str
    script: Script = field(default_factory=Script)
    digest: str | None = None
    owner: str = ""


class Documents:
    """The documents of a workspace, the one opened last at the end.

    Of a file only the name is kept, so that its text is never out of date.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: dict[str, Document | None] = {}

    def opened(self, name: str) -> None:
        """Remember that a file was opened."""
        with self._lock:
            self._put(name, self._open.get(name))

    def attach(self, document: Document) -> Document:
        """Take in a document with unsaved text; the same name again replaces it."""
        with self._lock:
            self._put(document.name, document)
        return document

    def detach(self, name: str) -> None:
        """Forget the unsaved text of a document; its file stays open."""
        with self._lock:
            if name in self._open:
                self._open[name] = None

    def attached(self, name: str) -> Document | None:
        """Return the unsaved document of that name."""
        return self._open.get(name)

    def latest(self) -> str | None:
        """Return the name of the document that was opened last."""
        return next(reversed(self._open), None)

    def names(self) -> list[str]:
        """List the open documents, the one opened last at the end."""
        return list(self._open)

    def _put(self, name: str, document: Document | None) -> None:
        self._open.pop(name, None)
        self._open[name] = document
        unowned = [known for known, kept in self._open.items() if kept is None]
        for known in unowned[: max(0, len(self._open) - MOST_OPEN)]:
            del self._open[known]
