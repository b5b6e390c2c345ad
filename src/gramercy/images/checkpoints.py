"""The states an image can return to: a tree of sleeping processes, and the calls that led to each.

A checkpoint remembers the steps from the start to it, so that calls can be counted, listed and replayed.
`lifecycle` and `states` decide what to do with a checkpoint.
"""

from __future__ import annotations

import re
import secrets
import zlib
from itertools import count
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import CheckpointError
from gramercy.images.base import FRESH, CheckpointInfo
from gramercy.images.files.trails import changed_between
from gramercy.images.kin import shared_out_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.images.base import Change, Reply
    from gramercy.images.connection import Connection
    from gramercy.images.files.changes import FileChange, FileOutcome
    from gramercy.images.files.trails import Trail

# Each is a process with about 1 MB of private memory. The first limit does not count named ones.
MOST_CHECKPOINTS = 16
MOST_NAMED = 64
# Abandoned states that are kept longest: a person who went back may want to return.
RECENTLY_LEFT = 4
# Lisp remembers the values of the last three evaluations (`*`, `**`, `***`), Python of one (`_`).
MOST_LOOKS = 3
# Characters of code that are kept for a replay. More would take too long to run, and too much memory.
LARGEST_PAST = 16 * 1024 * 1024
# Definitions of one call that are kept: a file has as many, and a reader of a comparison reads no more.
MOST_DEFINED = 100
# Differences of a replay that are listed: as many as a person or model reads.
MOST_DIFFERENCES = 10
# Calls lost by a death, or undone at once, that are listed: the latest.
MOST_LISTED = 5
# One line of a list.
LONGEST_LABEL = 60
# Part of the epochs of this process, so that no other process has an epoch of the same name.
_ERA = secrets.token_hex(6)
_numbers = count(1)
# A memory address as the languages print it. It differs in every run.
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\{[0-9A-F]{6,}\}")


# A run of tests that changed files. It has left nothing in the image.
TESTS = "tests"
# Steps that are not replayed, and why: the choice of a restart belongs to one stack, and a job would delay
# the calls after it.
LEFT_OUT = {"restart": "went on from an error", "start_job": "began a job", TESTS: "ran tests"}


class Step(msgspec.Struct, frozen=True):
    """One call that may have changed the state, and its result: `told` is a digest of its reply.

    A `look` changes nothing, though it has run the methods that print its values.
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
        return first_words(self.code)


def first_words(code: str) -> str:
    """Return the beginning of the code, on one line."""
    if code.startswith("/") and code.endswith(".py"):
        # The code of a call that loads a file is the path of the file.
        return f"load {code.rpartition('/')[2]}"[:LONGEST_LABEL]
    return " ".join(code[: 4 * LONGEST_LABEL].split())[:LONGEST_LABEL]


class Past(msgspec.Struct, frozen=True):
    """A linked list of steps, newest first. States with common steps share them.

    `depth` counts the steps that are not looks, also those dropped beyond LARGEST_PAST. `at` is the end of
    the last of them, `epoch` names the state after it, `definitions` are those of the step.
    """

    step: Step
    previous: Past | None = None
    size: int = 0
    depth: int = 1
    at: float = 0.0
    epoch: str = ""
    definitions: tuple[Change, ...] = ()

    def steps(self) -> list[Step]:
        """Return the steps, oldest first."""
        found, past = [], self
        while True:
            found.append(past.step)
            if past.previous is None:
                return found[::-1]
            past = past.previous


def extended(past: Past | None, step: Step, defined: Sequence[Change] = ()) -> Past:
    """Return a past with one more step. Beyond LARGEST_PAST only size and depth are kept."""
    size = (past.size if past else 0) + len(step.code)
    deep = depth(past) + (not step.look)
    at = past.at if step.look and past is not None else time()
    epoch = new_epoch()
    if size > LARGEST_PAST:
        return Past(Step(step.op, ""), None, size, deep, at, epoch)
    return Past(step, past, size, deep, at, epoch, tuple(defined[:MOST_DEFINED]))


def new_epoch() -> str:
    """Return a unique name for a state."""
    return f"{_ERA}.{next(_numbers)}"


def epochs(past: Past | None) -> tuple[set[str], float]:
    """Return the epochs on the way to a state, and since when they are known."""
    found, since = set(), 0.0
    while past is not None:
        found.add(past.epoch)
        if past.size > LARGEST_PAST:
            since = past.at
        past = past.previous
    return found, since


def depth(past: Past | None) -> int:
    """Return the number of calls that led to a state and may have changed something."""
    return 0 if past is None else past.depth


def steps_since(past: Past | None, earlier: Past | None) -> list[Step] | None:
    """Return the steps from an earlier state to a later one, None where some were dropped."""
    found: list[Step] = []
    while past is not None and past is not earlier:
        found.append(past.step)
        past = past.previous
    return found[::-1] if past is earlier else None


def digest(reply: Reply) -> str:
    """Return a digest of a reply, to compare it with that of a replay.

    A CRC, since one is computed after every change: it protects against chance, not against an attack.
    """
    parts = [value for form in reply.forms for value in form.values]
    told = "\0".join([*parts, reply.stdout, reply.stderr])
    if "0x" in told or "{" in told:
        told = _ADDRESS.sub("", told)
    return f"{zlib.crc32(told.encode('utf-8', 'replace')):08x}"


def differences(steps: list[Step], replies: list[Reply | None]) -> list[str]:
    """Describe the steps with another result in a replay. A step without a reply was left out."""
    told = []
    for number, (step, reply) in enumerate(zip(steps, replies, strict=True), 1):
        if reply is None:
            why = LEFT_OUT.get(step.op, "had been interrupted")
            told.append(f"step {number} ({step.shown()}) {why}, and is left out")
        elif step.ok != reply.ok:
            reason = f": {reply.error.type}, {reply.error.message}" if reply.error else ""
            now = "fails now" if step.ok else "does not fail now"
            told.append(f"step {number} ({step.shown()}) {now}{reason}")
        elif step.told and step.told != digest(reply):
            told.append(f"step {number} ({step.shown()}) answers otherwise now")
    return told


class Checkpoint(msgspec.Struct):
    """One sleeping copy of the image.

    `code` is the beginning of the call that led to it, `names` are its labels. `looks` are the latest calls
    in this state that changed only the variables with the last values (`*`, `_`). `looks_before` are those of
    its parent when the call that led here began. `trail` is the file changes of calls so far.
    """

    id: str
    parent: str | None
    code: str
    connection: Connection
    at: float
    past: Past | None = None
    names: list[str] = msgspec.field(default_factory=list)
    looks: tuple[Step, ...] = ()
    looks_before: tuple[Step, ...] = ()
    trail: Trail | None = None
    epoch: str = FRESH
    # From the last listing of the states: reading it takes milliseconds.
    private_bytes: int | None = None

    @property
    def label(self) -> str:
        """Its names, else the code that led to it."""
        return ", ".join(self.names) or self.code

    def shown(self) -> str:
        """Return its id and label, for a sentence."""
        return f"{self.id} ({self.label})" if self.label else self.id


class Timeline:
    """Checkpoints by id, oldest first.

    `standing` is the origin of the live process: the newest one on the way to the present state.
    """

    def __init__(self, limit: int = MOST_CHECKPOINTS) -> None:
        self.limit = limit
        self._checkpoints: dict[str, Checkpoint] = {}
        self._count = 0
        self.standing: Checkpoint | None = None
        # The journal's keys of the calls that led to states, also of states that have not connected yet.
        self.keys: dict[str, int] = {}

    def new_id(self) -> str:
        """Return the id of a future state, so that a reply can name it before its process has connected."""
        self._count += 1
        return f"c{self._count}"

    def add(
        self,
        connection: Connection,
        code: str,
        past: Past | None = None,
        *,
        goal: Checkpoint | None = None,
        known_as: str = "",
    ) -> Checkpoint:
        """Add the present state of the live process, with its past. It becomes the standing one.

        The oldest unnamed one is dropped for it, unless that is the `goal` of a rollback in progress.
        """
        parent = self.standing
        name = parent.id if parent is not None else None
        checkpoint = Checkpoint(known_as or self.new_id(), name, code, connection, time(), past)
        if past is not None:
            checkpoint.epoch = past.epoch
        # The parent's looks are those before the last call only if no call in between was left unkept.
        if parent is not None and depth(past) - depth(parent.past) == 1:
            checkpoint.looks_before = parent.looks
        self._checkpoints[checkpoint.id] = self.standing = checkpoint
        self._make_room(goal)
        return checkpoint

    def get(self, word: str) -> Checkpoint:
        """Return a checkpoint by its id or by a unique name. The error lists the valid words."""
        found = self._checkpoints.get(word)
        named = self.named(word)
        if found is not None or len(named) == 1:
            return found or named[0]
        if named:
            ids = ", ".join(checkpoint.id for checkpoint in named)
            raise CheckpointError(f"several states are named {word!r}: give one of the ids {ids}")
        there = ", ".join(self._checkpoints) or "none"
        raise CheckpointError(f"there is no checkpoint {word!r} (any more): there are {there}")

    def newest_first(self) -> list[Checkpoint]:
        """Return the standing checkpoint and its ancestors, newest first."""
        current = self.standing
        line = []
        while current is not None:
            line.append(current)
            current = self._checkpoints.get(current.parent or "")
        return line

    def named(self, name: str) -> list[Checkpoint]:
        """Return the checkpoints that carry a name."""
        return [checkpoint for checkpoint in self._checkpoints.values() if name in checkpoint.names]

    def name(self, checkpoint: Checkpoint, name: str) -> None:
        """Give a checkpoint one more name. A named one is not evicted."""
        if (
            not checkpoint.names
            and sum(bool(each.names) for each in self._checkpoints.values()) >= MOST_NAMED
        ):
            raise CheckpointError(
                f"{MOST_NAMED} states have names, and there may be no more: go back to one that has, or reset"
            )
        if name not in checkpoint.names:
            checkpoint.names.append(name)

    def forget(self, checkpoint: Checkpoint) -> None:
        """Drop a checkpoint. Its process exits at EOF."""
        self._checkpoints.pop(checkpoint.id, None)
        self.keys.pop(checkpoint.id, None)
        for child in self._checkpoints.values():
            # Its children get its parent, so that the line of ancestors has no gap.
            if child.parent == checkpoint.id:
                child.parent, child.looks_before = checkpoint.parent, ()
        if self.standing is checkpoint:
            self.standing = self._checkpoints.get(checkpoint.parent or "")
        checkpoint.connection.close()

    def clear(self) -> None:
        """Drop all."""
        for checkpoint in list(self._checkpoints.values()):
            self.forget(checkpoint)
        self.standing = None
        self.keys.clear()

    def _by_worth(self) -> list[Checkpoint]:
        """Return the checkpoints that may be evicted, the least valuable first: abandoned states.

        Those on the way to the present state follow, oldest first: undo needs them. The latest abandoned ones
        may still be wanted, so they count like these. A named one is not evicted.
        """
        line = {each.id for each in self.newest_first()}
        nameless = [each for each in self.all() if not each.names and each is not self.standing]
        left = [each for each in nameless if each.id not in line][:-RECENTLY_LEFT]
        return [*left, *(each for each in nameless if each not in left)]

    def _make_room(self, goal: Checkpoint | None) -> None:
        if len(self._checkpoints) < self.limit:
            return
        nameless = self._by_worth()
        for checkpoint in nameless[: max(0, len(nameless) + 1 - self.limit)]:
            if checkpoint is not goal:
                self.forget(checkpoint)

    def shed(self, most_bytes: int) -> tuple[list[Checkpoint], int]:
        """Drop the least valuable until the rest fits the limit. Return them, and the size of the rest."""
        used = {each.id: shared_out_bytes(each.connection.pid) for each in self._checkpoints.values()}
        dropped, excess = [], sum(used.values()) - most_bytes
        for each in self._by_worth():
            if excess > 0:
                self.forget(each)
                dropped.append(each)
                excess -= used[each.id]
        return dropped, most_bytes + excess

    def halve(self) -> list[Checkpoint]:
        """Drop the less valuable half of the unnamed ones. Return the dropped."""
        nameless = self._by_worth()
        dropped = nameless[: (len(nameless) + 1) // 2]
        for each in dropped:
            self.forget(each)
        return dropped

    def all(self) -> list[Checkpoint]:
        """Return the checkpoints, oldest first."""
        return list(self._checkpoints.values())

    def infos(self, *, is_present: bool = True) -> list[CheckpointInfo]:
        """Describe the checkpoints, oldest first. `is_present`: nothing has changed since `standing`."""
        return [self.info(checkpoint, is_present=is_present) for checkpoint in self._checkpoints.values()]

    def info(
        self,
        checkpoint: Checkpoint,
        *,
        is_present: bool = True,
        taken_back: int = 0,
        notes: list[str] | None = None,
        files: list[FileOutcome] | None = None,
    ) -> CheckpointInfo:
        """Describe one checkpoint."""
        checkpoint.private_bytes = private_bytes(checkpoint.connection.pid)
        return self.told(checkpoint, is_present=is_present, taken_back=taken_back, notes=notes, files=files)

    def told(
        self,
        checkpoint: Checkpoint,
        *,
        is_present: bool = True,
        taken_back: int = 0,
        notes: list[str] | None = None,
        files: list[FileOutcome] | None = None,
    ) -> CheckpointInfo:
        """Describe one checkpoint with the known facts, without a request to its process."""
        return CheckpointInfo(
            checkpoint.id,
            checkpoint.parent,
            checkpoint.label,
            checkpoint.at,
            is_present and checkpoint is self.standing,
            checkpoint.private_bytes,
            list(checkpoint.names),
            taken_back,
            notes or [],
            files or [],
            self._changed(checkpoint),
            list(checkpoint.past.definitions) if checkpoint.past is not None else [],
            checkpoint.past is None or checkpoint.past.step.ok,
            checkpoint.epoch,
            bool(checkpoint.names),
            self.keys.get(checkpoint.id, 0),
        )

    def _changed(self, checkpoint: Checkpoint) -> list[FileChange]:
        parent = self._checkpoints.get(checkpoint.parent or "")
        return changed_between(checkpoint.trail, parent.trail) if parent is not None else []


def private_bytes(pid: int) -> int | None:
    """Return the private memory of a process, from smaps_rollup. None where that cannot be read."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in rollup if ":" in line)
        return sum(int(fields[name].split()[0]) * 1024 for name in ("Private_Clean", "Private_Dirty"))
    except (OSError, KeyError, ValueError):
        return None
