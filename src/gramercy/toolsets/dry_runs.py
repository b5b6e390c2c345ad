"""Preview an evaluation in a throw-away copy of the image, for the person who decides about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.images.files.telling import attempts_text
from gramercy.text import counted
from gramercy.tools.effects import Effect
from gramercy.toolsets.factory import state_name
from gramercy.toolsets.rendering import MOST_CHANGES, ROOM, change_lines, fitting, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.base import Reply
    from gramercy.images.image import Image

# A person waits for the dry run before deciding. After this time the question is asked without it.
DRY_RUN_SECONDS = 10.0
STOPPED = "A copy may touch nothing: if its error comes from that, the call itself would go on."


def dry_run(field: str) -> Callable[[Image, dict[str, Any]], Effect]:
    """Return a function that previews the code under an argument on a copy of the image."""

    def tried(image: Image, arguments: dict[str, Any]) -> Effect:
        package = arguments.get("package")
        reply = image.preview(arguments[field], package=package, timeout=DRY_RUN_SECONDS)
        return effect_of(reply, state_name(image, reply.span.epoch))

    return tried


def effect_of(reply: Reply, state: str = "") -> Effect:
    """Return a preview's reply as an effect of bounded length."""
    tried, reply = reply.files, msgspec.structs.replace(reply, files=[])
    room = ROOM - 2 * MOST_CHANGES
    parts = parts_of(reply, shows_values=reply.error is None, can_read_on=False, room=room)
    touched = [f"{each.kind} {each.target}: {each.outcome}" for each in reply.effects]
    if tried:
        touched.append(f"files, as seen from outside: {attempts_text(tried)}")
    changed = [line.removeprefix("- ") for line in change_lines(reply.changed)]
    return Effect(
        note=_note(reply, bool(touched)),
        error=_joined(parts, "error"),
        would_change=tuple(fitting(changed, MOST_CHANGES)),
        would_touch=tuple(fitting(touched, MOST_CHANGES)),
        output=_joined(parts, "stdout", "stderr", "log", "warnings"),
        value=_joined(parts, "values", "pictures", "notes"),
        state=state,
    )


def _note(reply: Reply, touches: bool) -> str:  # noqa: FBT001 - a fact about the reply
    """Describe the preview in one line: some clients show only that at first."""
    told = []
    if reply.changed:
        told.append(f"change {counted(len(reply.changed), 'definition')}")
    if touches:
        told.append("touch things outside")
    if reply.error is not None:
        told.append(f"end with {reply.error.type}")
    elif not told:
        told.append("change no definition, touch nothing outside")
    head = f"Tried in a copy: it would {', '.join(told)}."
    return f"{head}\n{STOPPED}" if touches and reply.error is not None else head


def _joined(parts: list[tuple[str, str]], *names: str) -> str:
    return "\n\n".join(text for name, text in parts if name in names)
