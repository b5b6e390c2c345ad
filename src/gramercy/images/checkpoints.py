"""The states an image can go back to: a tree of sleeping processes, and the calls that led to each.

A checkpoint remembers the steps from the start to it, so that calls can be counted, listed and run again.
What to do with a checkpoint is decided in `lifecycle` and `states`.
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

# Each is a process with about 1 MB of private memory. Those with names do not count among the first.
MOST_CHECKPOINTS = 16
MOST_NAMED = 64
# Of the states that were left by going back, the latest: one who went back may want to come again.
RECENTLY_LEFT = 4
# Lisp remembers the values of the last three evaluations (`*`, `**`, `***`), Python of one (`_`).
MOST_LOOKS = 3
# Characters of code that are kept to be run again: more would take too long to run, and to hold in memory.
LARGEST_PAST = 16 * 1024 * 1024
# Of the definitions that one call made: a file has as many, and one who compares states reads no more.
MOST_DEFINED = 100
# Of the differences that a replay makes, as many as a person or model reads.
MOST_DIFFERENCES = 10
# Of the calls that a death loses, or one undo takes back, the latest are listed.
MOST_LISTED = 5
# One line of a list.
LONGEST_LABEL = 60
# Of the epochs of this process, so that no other process has one of the same name.
_ERA = secrets.token_hex(6)
_numbers = count(1)
# An address in memory as the languages print it: no two runs have it in common.
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\{[0-9A-F]{6,}\}")


# A run of tests that changed files: nothing of it is in the image.
TESTS = "tests"
# Steps that are not run again, and why: which restart was chosen is a decision about one stack, and a job
# would hold up the calls after it.
LEFT_OUT = {"restart": "went on from an error", "start_job": "began a job", TESTS: "ran tests"}


class Step(msgspec.Struct, frozen=True):
    """One call that may have changed the state, and how it went: `told` is a digest of its reply.

    A `look` is no change, though it has run the methods that print its values.
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
        # A call that loads a file has the path of the file for code.
        return f"load {code.rpartition('/')[2]}"[:LONGEST_LABEL]
    return " ".join(code[: 4 * LONGEST_LABEL].split())[:LONGEST_LABEL]


class Past(msgspec.Struct, frozen=True):
    """A linked list of steps, newest first; states that have steps in common share them.

    `depth` counts the steps that are no looks, also those that were dropped beyond LARGEST_PAST; `at` is when
    the last of them was over, `epoch` names the state after it, `definitions` are what the step defined.
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
    """Return a past with one more step; beyond LARGEST_PAST only size and depth are kept."""
    size = (past.size if past else 0) + len(step.code)
    deep = depth(past) + (not step.look)
    at = past.at if step.look and past is not None else time()
    epoch = new_epoch()
    if size > LARGEST_PAST:
        return Past(Step(step.op, ""), None, size, deep, at, epoch)
    return Past(step, past, size, deep, at, epoch, tuple(defined[:MOST_DEFINED]))


def new_epoch() -> str:
    """Return a name for a state that no other state has."""
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
    """Return how many calls that may have changed something led to a state."""
    return 0 if past is None else past.depth


def steps_since(past: Past | None, earlier: Past | None) -> list[Step] | None:
    """Return the steps from an earlier state to a later one; None where some were dropped."""
    found: list[Step] = []
    while past is not None and past is not earlier:
        found.append(past.step)
        past = past.previous
    return found[::-1] if past is earlier else None


def digest(reply: Reply) -> str:
    """Return a digest of a reply, to tell whether a replay answers the same.

    A CRC, since one is made after every change: it guards against chance, not against an attack.
    """
    parts = [value for form in reply.forms for value in form.values]
    told = "\0".join([*parts, reply.stdout, reply.stderr])
    if "0x" in told or "{" in told:
        told = _ADDRESS.sub("", told)
    return f"{zlib.crc32(told.encode('utf-8', 'replace')):08x}"


def differences(steps: list[Step], replies: list[Reply | None]) -> list[str]:
    """Tell which steps went otherwise in a replay; a step without a reply was left out."""
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

    `code` is the beginning of the call that led to it, `names` are the labels that it was given. `looks` are
    the latest calls in this state that changed nothing but the variables with the last values (`*`, `_`);
    `looks_before` are those of its parent when the call that led here began. `trail` is what calls had
    changed in files by then.
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
    # As it was when the states were last listed: to read it takes milliseconds.
    private_bytes: int | None = None

    @property
    def label(self) -> str:
        """The names that it was given, else the code that led to it."""
        return ", ".join(self.names) or self.code

    def shown(self) -> str:
        """Return its id and label, for a sentence."""
        return f"{self.id} ({self.label})" if self.label else self.id


class Timeline:
    """Checkpoints by id, oldest first.

    `standing` is the one that the live process comes from: the newest on the way to the present state.
    """

    def __init__(self, limit: int = MOST_CHECKPOINTS) -> None:
        self.limit = limit
        self._checkpoints: dict[str, Checkpoint] = {}
        self._count = 0
        self.standing: Checkpoint | None = None
        # What a journal calls the calls that led to states; also of states that have not come yet.
        self.keys: dict[str, int] = {}

    def new_id(self) -> str:
        """Return the id of a state to come, so that a reply can name it before its process has come."""
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
        """Add the present state of the live process, with what led to it; it becomes the standing one.

        The oldest without a name is dropped for it, unless that is the `goal` of a rollback under way.
        """
        parent = self.standing
        name = parent.id if parent is not None else None
        checkpoint = Checkpoint(known_as or self.new_id(), name, code, connection, time(), past)
        if past is not None:
            checkpoint.epoch = past.epoch
        # Only where no call in between was left unkept are the parent's looks those before the last call.
        if parent is not None and depth(past) - depth(parent.past) == 1:
            checkpoint.looks_before = parent.looks
        self._checkpoints[checkpoint.id] = self.standing = checkpoint
        self._make_room(goal)
        return checkpoint

    def get(self, word: str) -> Checkpoint:
        """Return a checkpoint by its id or by a name that only one has, or say which there are."""
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
        """Give a checkpoint one more name; what has a name is not dropped for room."""
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
        """Drop a checkpoint; its process exits at EOF."""
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
        """Return what may be dropped for room, the least worth first: states left behind by going back.

        Those on the way here come after them, oldest first: undo goes through them. The latest ones that were
        left may still be wanted, so they count like these. What has a name is not dropped.
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
        """Drop those worth least until the rest uses no more memory; return them, and what the rest uses."""
        used = {each.id: shared_out_bytes(each.connection.pid) for each in self._checkpoints.values()}
        dropped, excess = [], sum(used.values()) - most_bytes
        for each in self._by_worth():
            if excess > 0:
                self.forget(each)
                dropped.append(each)
                excess -= used[each.id]
        return dropped, most_bytes + excess

    def halve(self) -> list[Checkpoint]:
        """Drop the half that is worth least of those without a name; return the dropped."""
        nameless = self._by_worth()
        dropped = nameless[: (len(nameless) + 1) // 2]
        for each in dropped:
            self.forget(each)
        return dropped

    def all(self) -> list[Checkpoint]:
        """Return the checkpoints, oldest first."""
        return list(self._checkpoints.values())

    def infos(self, *, is_present: bool = True) -> list[CheckpointInfo]:
        """Describe the checkpoints, oldest first; `is_present`: nothing has changed since `standing`."""
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
        """Describe one checkpoint with what is known here, which asks nothing of its process."""
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
    """Return the private memory of a process, from smaps_rollup; None where that cannot be read."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in rollup if ":" in line)
        return sum(int(fields[name].split()[0]) * 1024 for name in ("Private_Clean", "Private_Dirty"))
    except (OSError, KeyError, ValueError):
        return None
