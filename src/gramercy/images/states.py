"""Ways back to an earlier state: kept names, rollback, undo by state, replay or definitions, and files.

A way that takes back more or less than was asked, or runs calls again, says so; one that would lose a state
without being told to is refused. All of them work on a lifecycle that the caller has locked. In a file, a
state of SBCL is a core, which holds everything; of Python, the steps that led to it, which are run again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, BinaryIO, Protocol

import msgspec

from gramercy.errors import CheckpointError, ImageError
from gramercy.images.base import CheckpointInfo
from gramercy.images.checkpoints import (
    LARGEST_PAST,
    MOST_DIFFERENCES,
    TESTS,
    Past,
    Step,
    depth,
    differences,
    steps_since,
)
from gramercy.images.files.ledger import UNKNOWN
from gramercy.images.files.trails import last_to_take_back
from gramercy.images.files.whole import whole_file
from gramercy.images.wire import Done
from gramercy.text import counted, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.images.base import Reply
    from gramercy.images.checkpoints import Checkpoint
    from gramercy.images.connection import Connection
    from gramercy.images.files.changes import FileOutcome
    from gramercy.images.lifecycle import Lifecycle
    from gramercy.images.moments import Attempt
    from gramercy.images.processes import Family, Program


def keep_state(lifecycle: Lifecycle, name: str) -> CheckpointInfo:
    """Keep the present state under a name; raise where it cannot be kept."""
    try:
        kept = lifecycle.keep_now()
    except ImageError as error:
        raise CheckpointError(f"the present state cannot be kept: {error}. {_instead(lifecycle)}") from None
    notes = []
    others = [each.id for each in lifecycle.timeline.named(name) if each is not kept] if name else []
    if others:
        notes.append(f"{', '.join(others)} has this name too: go back by the ids.")
    if not name:
        # A state that was asked for shall last, and what has a name is not dropped for room.
        name = kept.label
    lifecycle.timeline.name(kept, name)
    return lifecycle.timeline.info(kept, notes=notes)


def _instead(lifecycle: Lifecycle) -> str:
    standing = lifecycle.timeline.standing
    if standing is None:
        return "Nothing was named."
    calls = counted(lifecycle.unkept, "call")
    return f"Nothing was named. The newest state that is kept is {standing.shown()}, {calls} ago."


def go_back(lifecycle: Lifecycle, word: str, *, files: bool = True) -> CheckpointInfo:
    """Go to a state by its id or name; keep the one that is left, or say that it is lost."""
    lifecycle.surely_ready()
    attempt = lifecycle.moments.attempt(word)
    if attempt is not None:
        return _take_up(lifecycle, attempt)
    checkpoint = lifecycle.timeline.get(word)
    notes = _left_behind(lifecycle, checkpoint)
    outcomes = lifecycle.go_to(checkpoint, files=files)
    return _doubted(lifecycle, lifecycle.timeline.info(checkpoint, notes=notes, files=outcomes))


def _take_up(lifecycle: Lifecycle, attempt: Attempt) -> CheckpointInfo:
    """Let an attempt to go on from an error be the image; keep the state that is left, or say it is lost."""
    notes = _left_behind(lifecycle, None)
    left = lifecycle.timeline.standing
    kept = lifecycle.take_up(attempt)
    back = f"; undo goes back to {left.shown()}" if left is not None else ""
    notes.insert(0, f"{attempt.id} is the image now{back}.")
    if kept is None:
        notes.append(f"No state of it was kept: {lifecycle.unkept_reason}.")
        parent = left.id if left is not None else None
        return CheckpointInfo(attempt.id, parent, attempt.code, time(), is_current=True, notes=notes)
    # By this name one can come here again, also after an undo.
    with contextlib.suppress(CheckpointError):
        lifecycle.timeline.name(kept, attempt.id)
    return lifecycle.timeline.info(kept, notes=notes)


def _left_behind(lifecycle: Lifecycle, goal: Checkpoint | None) -> list[str]:
    """Keep the state that is about to be left for the goal, or say what is lost with it."""
    lost = lifecycle.unkept
    try:
        return _left_behind_or_raise(lifecycle, goal)
    except ImageError as error:
        why = f"The state that was left could not be kept ({error})"
        return [f"{why}: {counted(lost, 'call')} cannot be gone back to."]


def _left_behind_or_raise(lifecycle: Lifecycle, goal: Checkpoint | None) -> list[str]:
    if not lifecycle.unkept:
        return []
    return [f"The state that was left is kept as {lifecycle.keep_now(goal).shown()}."]


def undo_exactly(lifecycle: Lifecycle, *, files: bool = True) -> CheckpointInfo:
    """Go to the state before the last call, or to an earlier one if nothing is lost by that; else raise."""
    if files and _is_by_tests(lifecycle):
        return _tests_taken_back(lifecycle)
    checkpoint = lifecycle.target()
    count = depth(lifecycle.past) - depth(checkpoint.past)
    calls = steps_since(lifecycle.past, checkpoint.past) or []
    undone = [step.shown() for step in reversed(calls) if not step.look]
    if count == 1:
        return msgspec.structs.replace(_taken_back(lifecycle, checkpoint, files=files), undone=undone)
    reason = lifecycle.unkept_reason
    try:
        notes = _left_behind_or_raise(lifecycle, checkpoint)
    except ImageError as error:
        raise CheckpointError(_choices(checkpoint, count, reason or str(error))) from None
    outcomes = lifecycle.go_to(checkpoint, files=files)
    why = f" ({reason})" if reason else ""
    notes.insert(0, f"That takes back the last {counted(count, 'call')}: no state was kept in between{why}.")
    info = lifecycle.timeline.info(checkpoint, taken_back=count, notes=notes, files=outcomes)
    return _doubted(lifecycle, msgspec.structs.replace(info, undone=undone))


def _is_by_tests(lifecycle: Lifecycle) -> bool:
    """Tell whether the last call ran tests, and no state could be kept after it: then files go back alone."""
    past = lifecycle.past
    return past is not None and past.step.op == TESTS and lifecycle.unkept > 0


def _tests_taken_back(lifecycle: Lifecycle) -> CheckpointInfo:
    _, live = lifecycle.surely_ready()
    past, ledger, last = lifecycle.past, lifecycle.files, last_to_take_back(lifecycle.trail)
    if past is None or ledger is None or last is None:
        raise CheckpointError("there is nothing to undo: the files of the tests are not known any more")
    outcomes = ledger.go(last.previous, live.pid)
    lifecycle.past = past.previous
    notes = ["Only the files that the tests changed: the image stays as it is."]
    return _doubted(lifecycle, _standing(lifecycle, notes, taken_back=1, files=outcomes))


def _taken_back(lifecycle: Lifecycle, checkpoint: Checkpoint, *, files: bool) -> CheckpointInfo:
    left = lifecycle.timeline.standing
    is_kept = left is not None and left is not checkpoint and not lifecycle.unkept
    # Looks that came after a return to this checkpoint were not there yet when the call began.
    looks = left.looks_before if left is not None and left.parent == checkpoint.id else None
    outcomes = lifecycle.go_to(checkpoint, looks, files=files)
    info = lifecycle.timeline.info(checkpoint, taken_back=1, files=outcomes)
    if left is not None and is_kept:
        info = msgspec.structs.replace(info, left=left.id)
    return _doubted(lifecycle, info)


def _doubted(lifecycle: Lifecycle, info: CheckpointInfo) -> CheckpointInfo:
    """Say which jobs ended by it, and where not all files that were to go along are known."""
    if ended := lifecycle.jobs.told():
        info = msgspec.structs.replace(info, notes=[*info.notes, *ended])
    why = lifecycle.unknown_files
    if not why:
        return info
    notes = [*info.notes, f"{UNKNOWN}: {why}."]
    return msgspec.structs.replace(info, notes=notes, unknown_files=why)


def _choices(checkpoint: Checkpoint, count: int, reason: str) -> str:
    return (
        f"the state before the last call was not kept ({reason}), so nothing was taken back. Choose: "
        f"rollback to {checkpoint.shown()} takes back the last {counted(count, 'call')}, for good; "
        f"undo by replay goes there and runs {counted(count - 1, 'call')} again, effects included; "
        "undo by definitions puts back only what the last call defined"
    )


class Replay(msgspec.Struct, frozen=True):
    """The steps to run again from a checkpoint, the notes about the state that was left for it, and files."""

    start: Checkpoint
    steps: list[Step]
    notes: list[str]
    files: list[FileOutcome]


def prepare_replay(lifecycle: Lifecycle, *, files: bool = True) -> Replay:
    """Go to the newest checkpoint before the last call; return what is to be run again from there."""
    checkpoint = lifecycle.target()
    steps = lifecycle.steps_from(checkpoint)
    # The last change is the one to take back; the looks after it are not run again either.
    while steps.pop().look:
        continue
    notes = _left_behind(lifecycle, checkpoint)
    # What runs again may want the ports and locks of the process that is left.
    outcomes = lifecycle.go_to(checkpoint, waits=True, files=files)
    return Replay(checkpoint, steps, notes, outcomes)


def told_of_replay(lifecycle: Lifecycle, replay: Replay, replies: list[Reply | None]) -> CheckpointInfo:
    """Describe the state after a replay: what was run again, and what went otherwise."""
    count, told = len(replay.steps), differences(replay.steps, replies)
    notes = [
        f"{counted(count, 'call')} after {replay.start.shown()} ran again: their effects outside came twice."
    ]
    if not count:
        notes = ["Nothing had to be run again: the state before the last call is kept."]
    elif not told:
        notes.append("All answered as the first time.")
    notes += told[:MOST_DIFFERENCES]
    if len(told) > MOST_DIFFERENCES:
        notes.append(f"and {len(told) - MOST_DIFFERENCES} more differences")
    info = _standing(lifecycle, [*notes, *replay.notes], taken_back=1, files=replay.files)
    return _doubted(lifecycle, info)


def told_of_definitions(lifecycle: Lifecycle, reply: Reply) -> CheckpointInfo:
    """Describe what was put back and what was not; raise where nothing could be."""
    if reply.error is not None:
        raise CheckpointError(reply.error.message)
    notes = [f"{change.kind} {change.name} {change.change}" for change in reply.changed]
    stay = ["Files stay as they are."] if lifecycle.trail is not None else []
    return _standing(lifecycle, [*notes, *reply.notes, *stay])


def _standing(
    lifecycle: Lifecycle, notes: list[str], taken_back: int = 0, files: list[FileOutcome] | None = None
) -> CheckpointInfo:
    """Describe the current checkpoint, which need not be the present state."""
    lifecycle.surely_ready()
    standing = lifecycle.timeline.standing
    if standing is None:
        raise CheckpointError("no state is kept")
    return lifecycle.timeline.info(
        standing, is_present=lifecycle.unkept == 0, taken_back=taken_back, notes=notes, files=files
    )


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
    project = family.program.grants.project
    if family.program.saved is None:
        count = write_recording(path, family.program.language, past, project)
        return f"saved to {path}: {counted(count, 'step')}, to be run again to restore the state"
    return f"saved to {path}: {_save_core(path, family, live):,} bytes"


def _save_core(path: Path, family: Family, live: Connection) -> int:
    """Let the image write a core into a file that it is lent, and copy that to where it may not write."""
    made = family.directory.path / "tmp" / f"{secrets.token_hex(8)}.core"
    try:
        # Opened here and never again by name: evaluated code may have put something else there.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(made, flags, 0o600), "r+b") as source:
            answer = live.request(Done, SAVE_SECONDS, "save", tag=live.lend(source.fileno()))
            if not answer.ok:
                raise ImageError(f"the image cannot be saved: {answer.reason or 'it does not say why'}")
            with _whole_file(path, family.program.grants.project) as target:
                shutil.copyfileobj(source, target, 1 << 20)
                return target.tell()
    except OSError as error:
        raise ImageError(f"{path} cannot be written: {reason_of(error)}") from None
    finally:
        made.unlink(missing_ok=True)


@contextlib.contextmanager
def _whole_file(path: Path, project: Path | None) -> Iterator[BinaryIO]:
    """Give a new file that takes its name when the block ends well, in place of whatever has it.

    Evaluated code can write the project: a name that it could guess may be a link, and so may a directory.
    """
    with whole_file(path, check=lambda folder: _check_inside(folder, path.parent, project)) as file:
        yield file


def _check_inside(folder: int, named: Path, project: Path | None) -> None:
    """Refuse a directory that by its name is in the project, and in truth is not."""
    if project is None or not Path(os.path.abspath(named)).is_relative_to(project):  # noqa: PTH100 - no links
        return
    # Of what is open: the name may lead elsewhere by now.
    if not Path(f"/proc/self/fd/{folder}").readlink().is_relative_to(project):
        raise ImageError(
            f"{named} leads out of the project by a link, which evaluated code may have made: name the "
            "directory itself"
        )


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
    return f"restored from {path}: {counted(len(steps), 'step')} run again{outcome}"


def _check_core(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(CORE_MAGIC))
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {reason_of(error)}") from None
    if magic.startswith(b"{"):
        raise ImageError(f"{path} is not a saved image of SBCL: restore it into an image of python")
    if magic != CORE_MAGIC:
        raise ImageError(f"{path} is not a saved image of SBCL")


class Recording(msgspec.Struct, frozen=True):
    """The steps that led to a state, as they are written to a file."""

    gramercy_journal: int
    language: str
    steps: list[Step]


def write_recording(path: Path, language: str, past: Past | None, project: Path | None = None) -> int:
    """Write the steps to a file, atomically; return their number."""
    if past is not None and past.size > LARGEST_PAST:
        raise ImageError(
            f"what led to this state is {past.size:,} characters of code, more than the "
            f"{LARGEST_PAST:,} that are run again: reset the image and load the code from files"
        )
    steps = past.steps() if past else []
    try:
        with _whole_file(path, project) as file:
            file.write(msgspec.json.encode(Recording(FORMAT, language, steps)))
    except OSError as error:
        raise ImageError(f"{path} cannot be written: {reason_of(error)}") from None
    return len(steps)


def read_recording(path: Path, language: str) -> list[Step]:
    """Read the steps of a file that was written for this language."""
    try:
        data = path.read_bytes()
        if data[: len(CORE_MAGIC)] == CORE_MAGIC:
            raise ImageError(f"{path} was saved by an image of sbcl, not of {language}")
        recording = msgspec.json.decode(data, type=Recording)
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {reason_of(error)}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ImageError(f"{path} is not a saved image: {error}") from None
    if recording.gramercy_journal != FORMAT:
        raise ImageError(
            f"{path} has the format {recording.gramercy_journal}: this version reads format {FORMAT}"
        )
    if recording.language != language:
        raise ImageError(f"{path} was saved by an image of {recording.language}, not of {language}")
    return recording.steps
