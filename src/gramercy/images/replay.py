"""The journal of forms: what an image was asked to run, along the way to its present state.

For a language whose processes cannot be written to disk this is how a state is saved: what led to it is run
again. A step back in time is a step back along the journal.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import ImageError

if TYPE_CHECKING:
    from pathlib import Path

    from gramercy.images.base import Reply

FORMAT = 1
# The first octets of a core of SBCL.
CORE_MAGIC = b"LCBS"
LARGEST_JOURNAL = 16 * 1024 * 1024
# Where an object happens to lie, as the languages print it; no two runs have it in common.
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\{[0-9A-F]{6,}\}")


class Step(msgspec.Struct, frozen=True):
    """One call that may have changed the state, and how it went: `told` is a digest of what it answered.

    A look is not counted as a change, though values may have run code of their own to print themselves.
    """

    op: str
    code: str
    package: str | None = None
    ok: bool = True
    interrupted: bool = False
    told: str = ""
    look: bool = False

    def shown(self) -> str:
        """Return the beginning of the code, on one line."""
        return " ".join(self.code[:240].split())[:60]


class Past(msgspec.Struct, frozen=True):
    """A step and all those before it; states that have steps in common share them.

    `depth` counts the steps that are no looks, also those that were dropped because they would be too long
    to write.
    """

    step: Step
    previous: Past | None = None
    size: int = 0
    depth: int = 1

    def steps(self) -> list[Step]:
        """Return the steps, oldest first."""
        found, past = [], self
        while True:
            found.append(past.step)
            if past.previous is None:
                return found[::-1]
            past = past.previous


def extended(past: Past | None, step: Step) -> Past:
    """Return a past with one more step; of one that is too long to be written only the length is kept."""
    size = (past.size if past else 0) + len(step.code)
    count = depth(past) + (not step.look)
    if size > LARGEST_JOURNAL:
        return Past(Step(step.op, ""), None, size, count)
    return Past(step, past, size, count)


def depth(past: Past | None) -> int:
    """Return how many calls that may have changed something led to a state."""
    return 0 if past is None else past.depth


def steps_since(past: Past | None, earlier: Past | None) -> list[Step] | None:
    """Return the steps that lead from an earlier state to a later one; None where some were not kept."""
    found: list[Step] = []
    while past is not None and past is not earlier:
        found.append(past.step)
        past = past.previous
    return found[::-1] if past is earlier else None


def digest(reply: Reply) -> str:
    """Return a short digest of what an evaluation answered, to tell whether it answers the same again.

    Made after every change, so it is a quick one: it guards against chance, not against an attack.
    """
    parts = [value for form in reply.forms for value in form.values]
    told = "\0".join([*parts, reply.stdout, reply.stderr])
    if "0x" in told or "{" in told:
        told = _ADDRESS.sub("", told)
    return f"{zlib.crc32(told.encode('utf-8', 'replace')):08x}"


class Recording(msgspec.Struct, frozen=True):
    """The journal as it stands in a file."""

    gramercy_journal: int
    language: str
    steps: list[Step]


def write_recording(path: Path, language: str, past: Past | None) -> int:
    """Write the journal into a file, whole or not at all; return the number of steps."""
    if past is not None and past.size > LARGEST_JOURNAL:
        raise ImageError(
            f"what led to this state is {past.size:,} characters of code, more than the "
            f"{LARGEST_JOURNAL:,} that are run again: reset the image and load the code from files"
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
    """Read a journal that was written for this language."""
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


def differences(steps: list[Step], replies: list[Reply | None]) -> list[str]:
    """Tell which steps did not go as they went the first time; one without a reply was left out."""
    told = []
    for number, (step, reply) in enumerate(zip(steps, replies, strict=True), 1):
        if reply is None:
            told.append(f"step {number} ({step.shown()}) had been interrupted, and is left out")
        elif step.ok != reply.ok:
            reason = f": {reply.error.type}, {reply.error.message}" if reply.error else ""
            now = "fails now" if step.ok else "does not fail now"
            told.append(f"step {number} ({step.shown()}) {now}{reason}")
        elif step.told and step.told != digest(reply):
            told.append(f"step {number} ({step.shown()}) answers otherwise now")
    return told
