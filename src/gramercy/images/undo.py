"""Ways back to an earlier state: keep one by name, rollback, undo by state, by replay or by definitions.

A way that takes back more or less than was asked, or runs calls again, says so; one that would lose a state
without being told to is refused. All of them work on a lifecycle that the caller has locked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gramercy.errors import CheckpointError, ImageError
from gramercy.images.checkpoints import MOST_DIFFERENCES, depth, differences

if TYPE_CHECKING:
    from gramercy.images.base import CheckpointInfo, Reply
    from gramercy.images.checkpoints import Checkpoint, Step
    from gramercy.images.lifecycle import Lifecycle


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
    standing = lifecycle.timeline.standing()
    if standing is None:
        return "Nothing was named."
    calls = _calls(lifecycle.unkept)
    return f"Nothing was named. The newest state that is kept is {standing.shown()}, {calls} ago."


def go_back(lifecycle: Lifecycle, word: str) -> CheckpointInfo:
    """Go to a state by its id or name; keep the one that is left, or say that it is lost."""
    lifecycle.surely_ready()
    checkpoint = lifecycle.timeline.get(word)
    notes = _left_behind(lifecycle, checkpoint)
    lifecycle.go_to(checkpoint)
    return lifecycle.timeline.info(checkpoint, notes=notes)


def _left_behind(lifecycle: Lifecycle, goal: Checkpoint) -> list[str]:
    """Keep the state that is about to be left for the goal, or say what is lost with it."""
    lost = lifecycle.unkept
    try:
        return _left_behind_or_raise(lifecycle, goal)
    except ImageError as error:
        return [
            f"The state that was left could not be kept ({error}): {_calls(lost)} cannot be gone back to."
        ]


def _left_behind_or_raise(lifecycle: Lifecycle, goal: Checkpoint) -> list[str]:
    if not lifecycle.unkept:
        return []
    return [f"The state that was left is kept as {lifecycle.keep_now(goal).shown()}."]


def undo_exactly(lifecycle: Lifecycle) -> CheckpointInfo:
    """Go to the state before the last call, or to an earlier one if nothing is lost by that; else raise."""
    checkpoint = lifecycle.target()
    count = depth(lifecycle.past) - depth(checkpoint.past)
    if count == 1:
        return _taken_back(lifecycle, checkpoint)
    reason = lifecycle.unkept_reason
    try:
        notes = _left_behind_or_raise(lifecycle, checkpoint)
    except ImageError as error:
        raise CheckpointError(_choices(checkpoint, count, reason or str(error))) from None
    lifecycle.go_to(checkpoint)
    why = f" ({reason})" if reason else ""
    notes.insert(0, f"That takes back the last {_calls(count)}: no state was kept in between{why}.")
    return lifecycle.timeline.info(checkpoint, taken_back=count, notes=notes)


def _taken_back(lifecycle: Lifecycle, checkpoint: Checkpoint) -> CheckpointInfo:
    left = lifecycle.timeline.standing()
    # Looks that came after a return to this checkpoint were not there yet when the call began.
    looks = left.looks_before if left is not None and left.parent == checkpoint.id else None
    lifecycle.go_to(checkpoint, looks)
    return lifecycle.timeline.info(checkpoint, taken_back=1)


def _choices(checkpoint: Checkpoint, count: int, reason: str) -> str:
    return (
        f"the state before the last call was not kept ({reason}), so nothing was taken back. Choose: "
        f"rollback to {checkpoint.shown()} takes back the last {_calls(count)}, for good; "
        f"undo by replay goes there and runs {_calls(count - 1)} again, effects included; "
        "undo by definitions puts back only what the last call defined"
    )


@dataclass(frozen=True, slots=True)
class Replay:
    """The steps to run again from a checkpoint, and the notes about the state that was left for it."""

    start: Checkpoint
    steps: list[Step]
    notes: list[str]


def prepare_replay(lifecycle: Lifecycle) -> Replay:
    """Go to the newest checkpoint before the last call; return what is to be run again from there."""
    checkpoint = lifecycle.target()
    steps = lifecycle.steps_from(checkpoint)
    # The last change is the one to take back; the looks after it are not run again either.
    while steps.pop().look:
        continue
    notes = _left_behind(lifecycle, checkpoint)
    lifecycle.go_to(checkpoint)
    return Replay(checkpoint, steps, notes)


def told_of_replay(lifecycle: Lifecycle, replay: Replay, replies: list[Reply | None]) -> CheckpointInfo:
    """Describe the state after a replay: what was run again, and what went otherwise."""
    count, told = len(replay.steps), differences(replay.steps, replies)
    notes = [f"{_calls(count)} after {replay.start.shown()} ran again: their effects outside came twice."]
    if not count:
        notes = ["Nothing had to be run again: the state before the last call is kept."]
    elif not told:
        notes.append("All answered as the first time.")
    notes += told[:MOST_DIFFERENCES]
    if len(told) > MOST_DIFFERENCES:
        notes.append(f"and {len(told) - MOST_DIFFERENCES} more differences")
    return _standing(lifecycle, [*notes, *replay.notes], taken_back=1)


def told_of_definitions(lifecycle: Lifecycle, reply: Reply) -> CheckpointInfo:
    """Describe what was put back and what was not; raise where nothing could be."""
    if reply.error is not None:
        raise CheckpointError(reply.error.message)
    notes = [f"{change.kind} {change.name} {change.change}" for change in reply.changed]
    return _standing(lifecycle, [*notes, *reply.notes])


def _standing(lifecycle: Lifecycle, notes: list[str], taken_back: int = 0) -> CheckpointInfo:
    """Describe the current checkpoint, which need not be the present state."""
    lifecycle.surely_ready()
    standing = lifecycle.timeline.standing()
    if standing is None:
        raise CheckpointError("no state is kept")
    return lifecycle.timeline.info(
        standing, is_present=lifecycle.unkept == 0, taken_back=taken_back, notes=notes
    )


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"
