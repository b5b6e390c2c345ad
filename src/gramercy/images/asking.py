"""Ask an image about itself: as it is, as it was in a kept state, or how two of its states differ.

A kept state is asked in a copy that is thrown away afterwards, so the state itself sleeps on. All of it works
on a lifecycle that the caller has locked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gramercy.errors import CheckpointError, ImageError, ImageGoneError, ImageProtocolError
from gramercy.images.base import Answer, ImageFault
from gramercy.images.checkpoints import MOST_DEFINED, Past
from gramercy.images.connection import Wait
from gramercy.images.deaths import broken
from gramercy.images.files.changes import FileChange  # noqa: TC001 - msgspec reads the type
from gramercy.images.files.trails import changed_between

if TYPE_CHECKING:
    from gramercy.images.checkpoints import Checkpoint
    from gramercy.images.connection import Connection
    from gramercy.images.files.trails import Trail
    from gramercy.images.lifecycle import Lifecycle
    from gramercy.images.runner import Runner

# A question runs no code of the user's, except for methods that print values.
ANSWER_SECONDS = 20.0
# Of the calls on a way that are listed: the latest, as many as a person reads.
MOST_CALLS = 50
# The module that evaluations are in has no name in a listing.
MAIN = "__main__."


class Difference(msgspec.Struct, frozen=True):
    """One definition that is not the same in two states.

    `before` and `after` are its parameters or its value there, as far as they are shown; a function that is
    `redefined` may have the same ones. `changed` is a variable whose value has changed without a definition.
    """

    kind: str
    name: str
    change: Literal["defined", "removed", "redefined", "changed"]
    before: str = ""
    after: str = ""


class Comparison(msgspec.Struct, frozen=True):
    """How a state differs from another: what is to be done to come from `a` to `b`.

    `left` are the calls that led to `a` and not to `b`, `taken` those that led to `b` and not to `a`, both
    oldest first. `files` are what the second have changed, `files_left` what the first have.
    """

    a: str
    b: str
    definitions: list[Difference] = []
    left: list[str] = []
    taken: list[str] = []
    files_left: list[FileChange] = []
    files: list[FileChange] = []
    notes: list[str] = []

    @property
    def is_same(self) -> bool:
        """Whether no difference was found."""
        return not (self.definitions or self.left or self.taken or self.files or self.files_left)


def ask(runner: Runner, question: str, at: str | None, details: dict[str, Any]) -> Answer:
    """Ask the live process, or a copy of a kept state."""
    family, live = runner.lifecycle.surely_ready()
    if at is not None:
        return _ask_kept(runner, runner.lifecycle.timeline.get(at), question, details)
    answer, fault = _answered(runner, live, question, details)
    if answer is not None:
        return answer
    family.kill(live)
    restored = runner.lifecycle.restore(family)
    message = " ".join([fault.message, *restored.notes])
    return Answer(ok=False, error=ImageFault(fault.type, message))


def _ask_kept(runner: Runner, kept: Checkpoint, question: str, details: dict[str, Any]) -> Answer:
    family = runner.lifecycle.started()
    try:
        copy = family.fork(kept.connection, "preview")
    except ImageError as error:
        raise CheckpointError(f"{kept.id} cannot be asked: {error}") from None
    try:
        answer, fault = _answered(runner, copy, question, details)
    finally:
        family.kill(copy)
    return Answer(ok=False, error=fault) if answer is None else answer


def _answered(
    runner: Runner, connection: Connection, question: str, details: dict[str, Any]
) -> tuple[Answer | None, ImageFault]:
    """Return the answer of a process; None and what is wrong where it ended, or has to be."""
    fault = ImageFault("IMAGE-DIED", "The image ended while it was asked.")
    runner.wait = Wait(connection, op=question)
    try:
        connection.send(question, **details)
        return runner.wait.for_reply(Answer, ANSWER_SECONDS), fault
    except ImageProtocolError as error:
        return None, broken(error)
    except ImageGoneError:
        return None, fault
    finally:
        runner.wait = None


class _Side(msgspec.Struct):
    """One of the states that are compared."""

    name: str
    past: Past | None
    trail: Trail | None
    listed: dict[tuple[str, str], str]


def compare(runner: Runner, a: str, b: str | None) -> Comparison:
    """Tell how a state differs from another, or from the present one."""
    lifecycle = runner.lifecycle
    lifecycle.surely_ready()
    first, second = _side(runner, a), _side(runner, b)
    common = _common(first.past, second.past)
    left, taken = _since(first.past, common), _since(second.past, common)
    redefined = {_key(each.kind, each.name) for past in [*left, *taken] for each in past.definitions}
    notes = [] if _is_known(left, taken) else ["Not all that was redefined on the way is known."]
    return Comparison(
        first.name,
        second.name,
        _differences(first.listed, second.listed, redefined),
        [past.step.shown() for past in left][-MOST_CALLS:],
        [past.step.shown() for past in taken][-MOST_CALLS:],
        changed_between(first.trail, _shared(first.trail, second.trail)),
        changed_between(second.trail, _shared(first.trail, second.trail)),
        notes,
    )


def _side(runner: Runner, word: str | None) -> _Side:
    lifecycle: Lifecycle = runner.lifecycle
    answer = ask(runner, "definitions", word, {})
    if answer.error is not None:
        raise CheckpointError(f"{word or 'the image'} cannot be asked: {answer.error.message}")
    listed = _listed(answer.data)
    if word is None:
        return _Side("now", lifecycle.past, lifecycle.trail, listed)
    kept = lifecycle.timeline.get(word)
    return _Side(kept.id, kept.past, kept.trail, listed)


def _listed(data: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Return the definitions of a state, each with its parameters or value."""
    found = {}
    for plural, entries in data.items():
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                told = entry.get("value") if entry.get("value") is not None else entry.get("arglist")
                found[_key(_singular(plural), entry["name"])] = str(told or "")
    return found


def _key(kind: str, name: str) -> tuple[str, str]:
    return kind.replace("-", "_"), name.removeprefix(MAIN)


def _singular(plural: str) -> str:
    if plural.endswith("sses"):
        return plural.removesuffix("es")
    return plural.removesuffix("s")


def _differences(
    before: dict[tuple[str, str], str], after: dict[tuple[str, str], str], redefined: set[tuple[str, str]]
) -> list[Difference]:
    found = []
    for key in sorted({*before, *after}):
        kind, name = key
        if key not in before:
            found.append(Difference(kind, name, "defined", "", after[key]))
        elif key not in after:
            found.append(Difference(kind, name, "removed", before[key], ""))
        elif key in redefined:
            found.append(Difference(kind, name, "redefined", before[key], after[key]))
        elif before[key] != after[key]:
            found.append(Difference(kind, name, "changed", before[key], after[key]))
    return found


def _line(past: Past | None) -> list[Past]:
    """Return the way to a state, newest step first."""
    found = []
    while past is not None:
        found.append(past)
        past = past.previous
    return found


def _common(one: Past | None, other: Past | None) -> Past | None:
    """Return the last step that two ways have in common."""
    known = {id(past) for past in _line(one)}
    return next((past for past in _line(other) if id(past) in known), None)


def _since(past: Past | None, common: Past | None) -> list[Past]:
    """Return the steps after a common one, oldest first."""
    found = []
    while past is not None and past is not common:
        found.append(past)
        past = past.previous
    return found[::-1]


def _is_known(*ways: list[Past]) -> bool:
    """Tell whether all steps of these ways have all that they defined."""
    return all(len(past.definitions) < MOST_DEFINED for way in ways for past in way)


def _shared(one: Trail | None, other: Trail | None) -> Trail | None:
    """Return the last changes of files that two states have in common."""
    while one is not other:
        if one is None or other is None:
            return None
        one, other = (one.previous, other) if one.depth > other.depth else (one, other.previous)
    return one
