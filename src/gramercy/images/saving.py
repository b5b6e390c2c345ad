"""Write the state of an image to a file, and take it up again.

For SBCL the file is a core, which holds everything. Python has no such thing: the steps that led to the state
are written, and run again.
"""

from __future__ import annotations

import os
import secrets
import shutil
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from gramercy.errors import ImageError
from gramercy.images.checkpoints import LARGEST_PAST, MOST_DIFFERENCES, Past, Step, differences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gramercy.images.base import Reply
    from gramercy.images.checkpoints import Step
    from gramercy.images.connection import Connection
    from gramercy.images.processes import Family, Program

# Of a recording; to be raised when old files cannot be read any more.
FORMAT = 1
# The first bytes of a core of SBCL.
CORE_MAGIC = b"LCBS"
# A core of gigabytes on a slow disk.
SAVE_SECONDS = 120.0


class Restorable(Protocol):
    """What `restore_image` needs of an image."""

    def program(self) -> Program:
        """Return how the image was started."""

    def adopt(self, program: Callable[[], Program]) -> None:
        """Begin again with another program."""

    def repeat(self, steps: list[Step]) -> list[Reply | None]:
        """Begin again and run the steps but for those that are left out."""


def save_image(path: Path, family: Family, live: Connection, past: Past | None) -> str:
    """Write the state; return a sentence that says what was written."""
    path = path.expanduser()
    if path.is_dir() or not path.parent.is_dir():
        raise ImageError(f"{path} cannot be written: it is to be a file in a directory that exists")
    if family.program.saved is None:
        count = write_recording(path, family.program.language, past)
        return f"saved to {path}: {_steps(count)}, to be run again to restore the state"
    return f"saved to {path}: {_save_core(path, family, live):,} bytes"


def _save_core(path: Path, family: Family, live: Connection) -> int:
    """Let the image write a core into its private directory, and copy it to where it may not write."""
    made = family.directory.path / "tmp" / f"{secrets.token_hex(8)}.core"
    try:
        answer = live.request(dict[str, Any], SAVE_SECONDS, "save", path=str(made))
        if not answer.get("ok"):
            reason = (answer.get("error") or {}).get("message", "it does not say why")
            raise ImageError(f"the image cannot be saved: {reason}")
        return _copy(made, path)
    except OSError as error:
        raise ImageError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        made.unlink(missing_ok=True)


def _copy(made: Path, path: Path) -> int:
    partial = path.with_name(f"{path.name}.partial")
    try:
        # O_NOFOLLOW: evaluated code may have put a link there.
        with (
            os.fdopen(os.open(made, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as source,
            partial.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path.stat().st_size


def restore_image(path: Path, image: Restorable) -> str:
    """Take up a state; the present one is given up only when that has worked."""
    path = path.expanduser().resolve()
    program = image.program()
    if program.saved is not None:
        _check_core(path)
        with_core = program.saved
        image.adopt(lambda: with_core(path))
        return f"restored from {path}"
    steps = read_recording(path, program.language)
    told = differences(steps, image.repeat(steps))
    more = f"\nand {len(told) - MOST_DIFFERENCES} more" if len(told) > MOST_DIFFERENCES else ""
    listed = "".join(f"\n{each}" for each in told[:MOST_DIFFERENCES])
    outcome = f"; not as the first time:{listed}{more}" if told else ", all as the first time"
    return f"restored from {path}: {_steps(len(steps))} run again{outcome}"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _check_core(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(CORE_MAGIC))
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror}") from None
    if magic.startswith(b"{"):
        raise ImageError(f"{path} is not a saved image of SBCL: restore it into an image of python")
    if magic != CORE_MAGIC:
        raise ImageError(f"{path} is not a saved image of SBCL")


class Recording(msgspec.Struct, frozen=True):
    """The steps that led to a state, as they are written to a file."""

    gramercy_journal: int
    language: str
    steps: list[Step]


def write_recording(path: Path, language: str, past: Past | None) -> int:
    """Write the steps to a file, atomically; return their number."""
    if past is not None and past.size > LARGEST_PAST:
        raise ImageError(
            f"what led to this state is {past.size:,} characters of code, more than the "
            f"{LARGEST_PAST:,} that are run again: reset the image and load the code from files"
        )
    steps = past.steps() if past else []
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_bytes(msgspec.json.encode(Recording(FORMAT, language, steps)))
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ImageError(f"{path} cannot be written: {error.strerror}") from None
    return len(steps)


def read_recording(path: Path, language: str) -> list[Step]:
    """Read the steps of a file that was written for this language."""
    try:
        data = path.read_bytes()
        if data[: len(CORE_MAGIC)] == CORE_MAGIC:
            raise ImageError(f"{path} was saved by an image of sbcl, not of {language}")
        recording = msgspec.json.decode(data, type=Recording)
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ImageError(f"{path} is not a saved image: {error}") from None
    if recording.gramercy_journal != FORMAT:
        raise ImageError(
            f"{path} has the format {recording.gramercy_journal}: this version reads format {FORMAT}"
        )
    if recording.language != language:
        raise ImageError(f"{path} was saved by an image of {recording.language}, not of {language}")
    return recording.steps
