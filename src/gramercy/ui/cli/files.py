"""Read and replace the text files that commands are pointed at, and the settings of clients.

Every failure becomes one line for the person. This module does not know the content of the files.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gramercy.errors import ClientSettingsError, UnreadableFileError
from gramercy.images.files.whole import write_whole
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STDIN: Final = "-"
# No hand-written file comes near this size. It bounds time and memory.
LARGEST: Final = 4 * 1024 * 1024
# The settings of a busy client grow to several megabytes; this bounds time and memory.
LARGEST_SETTINGS = 32 * 1024 * 1024
BACKUP = ".gramercy.bak"
# The bits that let anyone write.
WRITABLE = 0o222
# For a file that holds a token.
PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text and the name under which people know it."""

    name: str
    path: str
    text: str


class Reader:
    """Reads files one after the other and remembers the failures."""

    def __init__(self, suffixes: tuple[str, ...]) -> None:
        self.suffixes = suffixes
        self.problems: list[str] = []

    def read(self, paths: Sequence[str]) -> Iterator[TextFile]:
        """Yield the files of all paths, including those inside directories. Each file comes once."""
        seen = set()
        for path in paths:
            for found in self._expand(path):
                identity = _identity(found)
                if identity not in seen:
                    seen.add(identity)
                    yield from self._read_one(found)

    def _read_one(self, path: str) -> Iterator[TextFile]:
        try:
            yield read_text(path)
        except UnreadableFileError as error:
            self.report(str(error))

    def _expand(self, path: str) -> Iterator[str]:
        if path == STDIN or not Path(path).is_dir():
            yield path
            return
        found = 0
        for directory, folders, names in os.walk(path, onerror=self._walk_error):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                if name.lower().endswith(self.suffixes) and not name.startswith("."):
                    found += 1
                    yield str(Path(directory, name))
        if not found:
            print_line(f"{display_name(path)}: no files that end in {' or '.join(self.suffixes)}", err=True)

    def _walk_error(self, error: OSError) -> None:
        self.report(f"{display_name(error.filename)}: {small_reason(error)}")

    def report(self, line: str) -> None:
        """Show one failure and remember it."""
        self.problems.append(line)
        print_line(line, err=True)


def read_text(path: str) -> TextFile:
    """Read one file of UTF-8 text, or standard input for `-`."""
    name = display_name(path)
    try:
        data = _read_stdin() if path == STDIN else _read_regular(path)
    except (OSError, ValueError, RuntimeError) as error:
        raise UnreadableFileError(f"{name}: {small_reason(error)}") from None
    if len(data) > LARGEST:
        raise UnreadableFileError(f"{name}: larger than {LARGEST // 1024 // 1024} MiB")
    try:
        return TextFile(name, path, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UnreadableFileError(
            f"{name}: not UTF-8 text (byte {error.start}): convert it to UTF-8"
        ) from None


def replace_text(path: str, text: str) -> None:
    """Replace a file atomically, keeping its mode."""
    target = Path(path).resolve()
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        write_whole(target, text, mode=mode)
    except OSError as error:
        raise UnreadableFileError(f"{display_name(path)}: cannot be written: {small_reason(error)}") from None


def display_name(path: str) -> str:
    """Return a path in a form that any terminal can show."""
    return "<stdin>" if path == STDIN else click.format_filename(path)


def print_line(text: str, *, err: bool = False) -> None:
    """Print a line, with an escape for each character that the terminal's encoding lacks."""
    encoding = (sys.stderr if err else sys.stdout).encoding or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err)


def small_reason(error: Exception) -> str:
    """Return the reason of a failure for the middle of a sentence."""
    reason = reason_of(error)
    return reason[:1].lower() + reason[1:]


def _identity(path: str) -> str:
    try:
        return path if path == STDIN else str(Path(path).resolve())
    except (OSError, ValueError, RuntimeError):  # Reading it will report the reason.
        return path


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise ValueError("standard input is closed")
    return sys.stdin.buffer.read(LARGEST + 1)


def _read_regular(path: str) -> bytes:
    # A pipe could block, and a device could be endless.
    mode = Path(path).stat().st_mode
    if stat.S_ISDIR(mode):
        raise ValueError("a directory, not a file")
    if not stat.S_ISREG(mode):
        raise ValueError("not a regular file: give - to read standard input")
    with Path(path).open("rb") as stream:
        return stream.read(LARGEST + 1)


def read_settings(path: Path) -> str | None:
    """Return the text of a file unchanged, or None where there is no file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ClientSettingsError("not a regular file")
        with path.open("rb") as stream:
            data = stream.read(LARGEST_SETTINGS + 1)
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError, ValueError) as error:
        raise ClientSettingsError(f"cannot be read: {small_reason(error)}") from None
    if len(data) > LARGEST_SETTINGS:
        raise ClientSettingsError(f"larger than {LARGEST_SETTINGS // 1024 // 1024} MiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ClientSettingsError(f"not UTF-8 text (byte {error.start})") from None


def write_settings(path: Path, old: str | None, new: str, *, is_private: bool = False) -> Path | None:
    """Replace a file if it still has the old text. Return the path of the backup, if there was a file.

    A private file and its backup can afterwards be read by their owner only.
    """
    try:
        target = path.resolve()
        if old is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, new, mode=PRIVATE if is_private else None)
            return None
        mode = stat.S_IMODE(target.stat().st_mode)
        # Root could still write it, but its owner has made it read-only.
        if not mode & WRITABLE or not os.access(target, os.W_OK):
            raise ClientSettingsError("cannot be written: it is read-only")
        if read_settings(target) != old:
            raise ClientSettingsError(
                "another program has just changed it: close the client and run this again"
            )
        mode = mode & PRIVATE if is_private else mode
        backup = target.with_name(target.name + BACKUP)
        write_whole(backup, old, mode=mode)
        write_whole(target, new, mode=mode)
    except (OSError, RuntimeError, ValueError) as error:
        raise ClientSettingsError(f"cannot be written: {small_reason(error)}") from None
    return backup


def make_private(path: Path) -> None:
    """Let only the owner of a file read it."""
    try:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & PRIVATE)
    except OSError as error:
        raise ClientSettingsError(
            f"others may read it, and that cannot be changed: {small_reason(error)}"
        ) from None
