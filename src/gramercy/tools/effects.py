"""The effect of a call, previewed without running it: in parts for programs, as text for a person."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec

# The beginning of a unified diff.
_DIFFERENCE = "--- "
_HUNK = "@@ "


class Effect(msgspec.Struct, frozen=True, omit_defaults=True):
    """The effect that a call would have, as far as its tool can tell.

    `would_change` lists the definitions that it would make or remove, `would_touch` the files, connections
    and processes that it would use, one each. `value`, `output` and `error` are the results of a trial, each
    as readable text; `difference` is the unified diff of a text. `note` comes before all of that. `state` is
    the target's state at the time of the preview, as `target_state` of the tool returns it: if an approval is
    sealed to another state, the effect belongs to another call.
    """

    note: str = ""
    difference: str = ""
    error: str = ""
    would_change: tuple[str, ...] = ()
    would_touch: tuple[str, ...] = ()
    output: str = ""
    value: str = ""
    state: str = ""

    @property
    def hunks(self) -> tuple[str, ...]:
        """The hunks of the diff, each with its line of numbers."""
        lines = self.difference.splitlines(keepends=True)
        # Lines of the text have a mark before them, so none of them begins like a hunk.
        starts = [number for number, line in enumerate(lines) if line.startswith(_HUNK)]
        return tuple("".join(lines[start:end]) for start, end in pairwise([*starts, len(lines)]))

    def text(self) -> str:
        """Format it for a person; a diff begins on a line of its own, and comes first if there is no note."""
        head = "\n".join(filter(None, [self.note, self.difference]))
        lists = (("[would change]", self.would_change), ("[would touch]", self.would_touch))
        listed = [
            "\n".join([heading, *(f"- {each}" for each in each_of)]) for heading, each_of in lists if each_of
        ]
        return "\n\n".join(filter(None, [head, self.error, *listed, self.output, self.value]))

    def __str__(self) -> str:
        return self.text()

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON values, without empty fields."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}


def read_effect(told: Any) -> Effect:
    """Return the effect that a tool has previewed: an Effect, plain data of one, or a text."""
    if isinstance(told, Effect):
        return told
    if isinstance(told, dict):
        return msgspec.convert(told, Effect)
    text = told if isinstance(told, str) else str(told)
    return Effect(difference=text) if text.startswith(_DIFFERENCE) else Effect(note=text)
