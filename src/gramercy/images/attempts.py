"""Edited files that a Python image could not load, and those during which its process died or hung.

A dead process cannot report anything. So before it runs an edited file, it writes the file and the current
line into memory that it shares with this process. That text is untrusted: it is used only as a name to show,
and as a mark that only the image itself compares.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from gramercy.images.output import Printed
from gramercy.images.wire import EDITS, line

if TYPE_CHECKING:
    from gramercy.images.base import Reply
    from gramercy.images.connection import Connection, Evaluation, Wait

# Files whose marks are kept. A project with more failing files at once has another problem.
MOST_MARKS = 1_000


class Attempt(msgspec.Struct, frozen=True):
    """The file that was being loaded when a process ended: its place, and marks of texts by path."""

    at: str
    marks: dict[str, str]

    def ended(self, why: str) -> str:
        """Describe the end of the process by it."""
        return EDITS["failed"].format(f"the process ended while {self.at} was taken up: {why}")

    def stayed(self) -> str:
        """Describe that it did not end."""
        return EDITS["failed"].format(f"{self.at} did not end while it was taken up")


_read = msgspec.json.Decoder(Attempt).decode


def attempt_of(wait: Wait | None) -> Attempt | None:
    """Return the edited file that the awaited process is loading, None where it does something else."""
    if wait is None or wait.mirror is None:
        return None
    data = wait.mirror.read_attempt(wait.connection.last_id)
    if not data:
        return None
    try:
        found = _read(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    marks = {line(path): line(mark) for path, mark in found.marks.items()}
    return Attempt(line(found.at), marks) if marks else None


class Declined:
    """The texts that failed, by file: a process restored from an earlier state does not know them."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}
        self._is_told = False
        self._knows: Connection | None = None

    def add(self, marks: dict[str, str]) -> None:
        """Note texts that failed in an abandoned process. The reply reports them."""
        self.marks = dict([*self.marks.items(), *marks.items()][-MOST_MARKS:])
        self._is_told, self._knows = True, None

    def unknown_to(self, live: Connection) -> dict[str, str] | None:
        """Return the failures that a process has not been told, if any."""
        return self.marks if self.marks and live is not self._knows else None

    def tell(self, evaluation: Evaluation, live: Connection) -> None:
        """Pass the failures on with an evaluation. A file that the user asks for is tried in any case."""
        if evaluation.op == "take_up" and not evaluation.is_repeated:
            self.marks.pop(os.path.realpath(evaluation.code), None)
        evaluation.declined = self.unknown_to(live)
        evaluation.is_told, self._is_told = self._is_told, False
        self._knows = live


def joined(reply: Reply, before: Printed) -> Reply:
    """Return a reply with the earlier output of edited files that failed."""
    more = {name: getattr(before, name) + getattr(reply, name) for name in ("stdout", "stderr")}
    totals = {
        name: before.truncated.get(name, len(getattr(before, name)))
        + reply.truncated.get(name, len(getattr(reply, name)))
        for name in more
        if name in before.truncated or name in reply.truncated
    }
    return msgspec.structs.replace(reply, **more, truncated={**reply.truncated, **totals})


def printed_by(reply: Reply) -> Printed:
    """Return the output in a reply."""
    return Printed(reply.stdout, reply.stderr, reply.truncated)
