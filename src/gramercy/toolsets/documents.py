"""Open documents: files that were read or written, and unsaved texts from an editor.

Decoding and encoding a file keeps its encoding, byte order mark and line ends.
"""

from __future__ import annotations

import codecs
import io
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

# Longer marks come first: the one of UTF-32 begins with the one of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Binary formats by their first bytes, with words that say which program could read them.
_FORMATS = (
    (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF8", "a GIF picture"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"# FASL", "a compiled Lisp file (fasl)"),
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program or library"),
    (b"\0asm", "a WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "a Java class or a macOS program"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"PAR1", "a Parquet table"),
    (b"\x89HDF", "an HDF5 file"),
    (b"OggS", "Ogg sound or video"),
    (b"ID3", "MP3 sound"),
    (b"RIFF", "RIFF data (WebP, WAV or AVI)"),
)
# A compiled Python file begins with two bytes for the version and these.
_PYC = b"\r\n"
CRLF = "\r\n"
# Only the names of files are kept, so this bounds the list of read_buffer, not memory.
MOST_OPEN = 500


@dataclass(frozen=True, slots=True)
class Script:
    """How a text is encoded. With CRLF every line ends so, and the text itself shows plain newlines."""

    encoding: str = "utf-8"
    mark: bytes = b""
    newline: str = "\n"

    def encode(self, text: str) -> bytes:
        """Encode a text. UnicodeEncodeError when the encoding lacks one of its characters."""
        shown = self.shown(text)
        written = shown.replace("\n", CRLF) if self.newline == CRLF else shown
        return self.mark + written.encode(self.encoding)

    def shown(self, text: str) -> str:
        """Return a text as it will be shown after it was encoded and decoded."""
        return plain(text) if self.newline == CRLF else text

    def same(self, one: str, other: str) -> bool:
        """Return whether two texts have the same bytes."""
        return self.shown(one) == self.shown(other)


def decode(data: bytes) -> tuple[str, Script] | None:
    """Return a text and its encoding, or None when the bytes are not text."""
    for mark, encoding in (*_MARKS, (b"", "utf-8"), (b"", "latin-1")):
        if not data.startswith(mark):
            continue
        # Latin-1 decodes any byte, so nothing is lost in both directions. A text in it has no NUL.
        if not mark and b"\0" in data:
            return None
        try:
            text = data[len(mark) :].decode(encoding)
        except UnicodeDecodeError:
            continue
        newline = CRLF if _is_all_crlf(text) else "\n"
        return (plain(text) if newline == CRLF else text), Script(encoding, mark, newline)
    return None


def format_of(data: bytes) -> str:
    """Describe the format of bytes that are not text."""
    if data[2:4] == _PYC:
        return "compiled Python (pyc)"
    if data[257:262] == b"ustar":
        return "a tar archive"
    return next((name for start, name in _FORMATS if data.startswith(start)), "binary data")


def is_notebook(name: str) -> bool:
    """Return whether a file name is that of a Jupyter notebook, which is shown as cells."""
    return name.lower().endswith(".ipynb")


def _is_all_crlf(text: str) -> bool:
    return text.count(CRLF) == text.count("\n") == text.count("\r") > 0


def plain(text: str) -> str:
    """Return a text with CRLF replaced by newlines."""
    return text.replace(CRLF, "\n")


def lines(text: str) -> list[str]:
    """Split a text into lines as editors do, with line ends kept. A form feed does not end a line."""
    return list(io.StringIO(text, newline=""))


def unwritable(error: UnicodeEncodeError) -> str:
    """Name the character that an encoding does not have."""
    character = error.object[error.start]
    return f"the character {character!a} at position {error.start}"


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its name. `digest` is that of its file, `owner` the program that has it unsaved."""

    name: str
    text: str
    script: Script = field(default_factory=Script)
    digest: str | None = None
    owner: str = ""


class OpenFiles(Protocol):
    """An editor with files open, whose texts may not be saved yet."""

    @property
    def name(self) -> str:
        """The editor's name, for people."""

    def text(self, path: Path) -> str | None:
        """Return the editor's text of a file, None where the editor has none. May be slow."""


class Documents:
    """The documents of a workspace. The one opened last is at the end.

    Of a file only the name is kept, so its text is never out of date.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: dict[str, Document | None] = {}

    def opened(self, name: str) -> None:
        """Remember that a file was opened."""
        with self._lock:
            self._put(name, self._open.get(name))

    def attach(self, document: Document) -> Document:
        """Add a document with unsaved text. It replaces one of the same name."""
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
