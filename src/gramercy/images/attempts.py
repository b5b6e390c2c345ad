"""Edited files that a Python image could not take up, and those that ended it or did not end meanwhile.

A process that is gone says nothing. So it writes into the memory that it shares with this one which file it
takes up, and on which line it is, before it runs what the file says. What is written there is never believed
to be more than a name to show, and a mark that only the image itself compares.
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

# Files whose marks are kept: a project that has more of them at once has another problem.
MOST_MARKS = 1_000


class Attempt(msgspec.Struct, frozen=True):
    """What was taken up when a process ended: the place, and the mark of the file's text by its path."""

    at: str
    marks: dict[str, str]

    def ended(self, why: str) -> str:
        """Say that the process ended by it."""
        return EDITS["failed"].format(f"the process ended while {self.at} was taken up: {why}")

    def stayed(self) -> str:
        """Say that it did not end."""
        return EDITS["failed"].format(f"{self.at} did not end while it was taken up")


_read = msgspec.json.Decoder(Attempt).decode


def attempt_of(wait: Wait | None) -> Attempt | None:
    """Return what the process that is waited for takes up; None where it does something else."""
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
    """The texts that failed, by file: a process that comes from an earlier state does not know of them."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}
        self._is_told = False
        self._knows: Connection | None = None

    def add(self, marks: dict[str, str]) -> None:
        """Note texts that have failed in a process which is given up; the reply tells of them."""
        self.marks = dict([*self.marks.items(), *marks.items()][-MOST_MARKS:])
        self._is_told, self._knows = True, None

    def unknown_to(self, live: Connection) -> dict[str, str] | None:
        """Return what a process has not been told, if anything."""
        return self.marks if self.marks and live is not self._knows else None

    def tell(self, evaluation: Evaluation, live: Connection) -> None:
        """Let an evaluation tell the process; the file that the user asks for is tried in any case."""
        if evaluation.op == "take_up" and not evaluation.is_repeated:
            self.marks.pop(os.path.realpath(evaluation.code), None)
        evaluation.declined = self.unknown_to(live)
        evaluation.is_told, self._is_told = self._is_told, False
        self._knows = live


def joined(reply: Reply, before: Printed) -> Reply:
    """Return a reply with what was printed before it by edited files that failed."""
    more = {name: getattr(before, name) + getattr(reply, name) for name in ("stdout", "stderr")}
    totals = {
        name: before.truncated.get(name, len(getattr(before, name)))
        + reply.truncated.get(name, len(getattr(reply, name)))
        for name in more
        if name in before.truncated or name in reply.truncated
    }
    return msgspec.structs.replace(reply, **more, truncated={**reply.truncated, **totals})


def printed_by(reply: Reply) -> Printed:
    """Return what a reply shows of the output."""
    return Printed(reply.stdout, reply.stderr, reply.truncated)
