"""Read settings and replace them at once, keeping the file as it was beside them.

Knows nothing of what is in them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from gramercy.ui.clients.base import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

# The settings of a busy client grow to several megabytes; this bounds time and memory.
LARGEST = 32 * 1024 * 1024
BACKUP = ".gramercy.bak"
NEW_MODE = 0o666
WRITABLE = 0o222


def read_settings(path: Path) -> str | None:
    """Return the text of a file as it is, or None where there is no file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise SettingsError("not a regular file")
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError, ValueError) as error:
        raise SettingsError(f"cannot be read: {_reason(error)}") from None
    if len(data) > LARGEST:
        raise SettingsError(f"larger than {LARGEST // 1024 // 1024} MiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"not UTF-8 text (byte {error.start})") from None


def write_settings(path: Path, old: str | None, new: str) -> Path | None:
    """Replace a file that still has the old text; return where that is kept, if there was one."""
    try:
        target = path.resolve()
        if old is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            _place(target, new, None)
            return None
        mode = stat.S_IMODE(target.stat().st_mode)
        # Root could write it all the same, but somebody has said that it should not be.
        if not mode & WRITABLE or not os.access(target, os.W_OK):
            raise SettingsError("cannot be written: it is read-only")
        if read_settings(target) != old:
            raise SettingsError("somebody else has just changed it: close the client and run this again")
        backup = target.with_name(target.name + BACKUP)
        _place(backup, old, mode)
        _place(target, new, mode)
    except (OSError, RuntimeError, ValueError) as error:
        raise SettingsError(f"cannot be written: {_reason(error)}") from None
    return backup


def _place(target: Path, text: str, mode: int | None) -> None:
    """Put a whole file in its place: readers see the old one or the new one, never a part."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.gramercy")
    try:
        # Private until it has the mode of what it replaces: settings may hold keys.
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, NEW_MODE if mode is None else 0o600
        )
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return reason[:1].lower() + reason[1:]
