"""Undo the effects of a message: the conversation, the state of the image, and the files, together.

The state is marked before each message. Effects of tools outside of the image cannot be undone; those calls
are named instead.
"""

from __future__ import annotations

from contextlib import suppress
from time import time
from typing import TYPE_CHECKING

import msgspec

from gramercy.agents.talks import go_back
from gramercy.errors import CheckpointError, GramercyError, ImageError
from gramercy.images.files.telling import outcomes_text
from gramercy.text import listed
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.images.base import CheckpointInfo
    from gramercy.images.files.changes import FileOutcome
    from gramercy.images.live import LiveImage
    from gramercy.providers.base import Message
    from gramercy.workbench.workplace import Workplace

# More steps than one message makes: fifty calls, each of which may write files.
MOST_STEPS = 500
# Calls that cannot be undone, named on one line.
MOST_NAMED = 5


class Point(msgspec.Struct, frozen=True):
    """The state before a message: the number of messages, and the state of the image."""

    messages: int
    at: float
    state: str = ""


class Rewinding:
    """The points of one conversation that can be restored."""

    def __init__(self, place: Workplace) -> None:
        self._place = place
        self._points: list[Point] = []
        # Why the list of files to restore is incomplete.
        self._unknown = ""

    def mark(self, messages: int) -> None:
        """Mark the state before a message."""
        self._points = [point for point in self._points if point.messages < messages]
        state = ""
        if self._place.image is not None:
            # An image that cannot keep a state, or does not start, must not prevent the conversation.
            with suppress(ImageError):
                state = self._place.image.checkpoint(f"before message {messages + 1}").id
        self._points.append(Point(messages, time(), state))

    def forget(self) -> None:
        """Drop the points, for another conversation."""
        self._points.clear()

    def back(self, left: int, said: Sequence[Message], states: dict[str, str]) -> list[str]:
        """Undo the effects of the last message, after the conversation was cut. Return messages about it.

        `left` is the number of remaining messages, `said` are the removed messages, `states` the states that
        the conversation has recorded.
        """
        point = next((each for each in reversed(self._points) if each.messages == left), None)
        self._points = [each for each in self._points if each.messages < left]
        told = self._effects(point) if point else go_back(self._place.images, states)
        return [*told, *self._lasting(said, is_known=point is not None)]

    def _effects(self, point: Point) -> list[str]:
        """Restore image and files, the newest change first: later changes may depend on earlier ones."""
        told: list[str] = []
        outcomes: dict[str, FileOutcome] = {}
        self._unknown = ""
        image = self._place.image
        before = image.span().after if image is not None else ""
        try:
            for _ in range(MOST_STEPS):
                if not self._step(point, outcomes):
                    break
        except GramercyError as error:
            told.append(f"not all of it could be taken back: {error}")
        if image is not None and image.span().after != before:
            told.insert(0, f"the image is back at {image.span().after}")
        if outcomes:
            told.append(f"files: {outcomes_text(list(outcomes.values()))}")
        if self._unknown:
            told.append(f"not all files that changed are known: {self._unknown}")
        return told

    def _step(self, point: Point, outcomes: dict[str, FileOutcome]) -> bool:
        """Undo one change. Return whether there was one."""
        workspace, image = self._place.tools.workspace, self._place.image
        written = (workspace.changed_at if workspace is not None else None) or 0.0
        has_changed = image is not None and bool(point.state) and image.span().after != point.state
        if workspace is not None and written > point.at:
            changed = (image.changed_at() if image is not None and has_changed else None) or 0.0
            if written >= changed:
                outcomes.update({each.path: each for each in workspace.take_back()})
                return True
        if image is None or not has_changed:
            return False
        info = self._earlier(image, point, is_between=written > point.at)
        outcomes.update({each.path: each for each in info.files})
        self._unknown = info.unknown_files or self._unknown
        return True

    @staticmethod
    def _earlier(image: LiveImage, point: Point, *, is_between: bool) -> CheckpointInfo:
        """Go back state by state if a file that a tool wrote lies between and the states are kept."""
        if is_between:
            with suppress(CheckpointError):
                return image.undo()
        return image.rollback(point.state)

    def _lasting(self, said: Sequence[Message], *, is_known: bool) -> list[str]:
        """Name the calls whose effects stay: those of tools outside of the image that are not read-only.

        The replaced contents of files are known only to the process that marked the point.
        """
        failed = {message.call_id for message in said if message.role == "tool" and message.is_error}
        library, undoable = self._place.library, self._place.tools.of_image
        names = [
            call.name
            for message in said
            for call in message.calls
            if call.id not in failed
            and call.name in library
            and (
                call.name not in undoable or (not is_known and "filesystem" in library[call.name].categories)
            )
            and library[call.name].safety_level is not Safety.SAFE
        ]
        return [f"what these calls did stays done: {listed(names, MOST_NAMED)}"] if names else []
