"""What a call would do, told without doing it: in parts for programs, as text for the person who decides."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec

# How a unified difference begins.
_DIFFERENCE = "--- "
_HUNK = "@@ "


class Effect(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call would do, as far as its tool can tell.

    `would_change` lists what it would define or remove, `would_touch` the files, connections and processes it
    would reach for, one each. `value`, `output` and `error` are what a trial gave, each as it is to be read;
    `difference` is the unified difference of a text. `note` is said before all of that. `state` is that of
    the target when this was found out, as `target_state` of the tool tells it: where that is not what an
    approval is sealed to, the effect is that of another call.
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
        """The parts of the difference, each with its line of numbers."""
        lines = self.difference.splitlines(keepends=True)
        # Lines of the text have a mark before them, so that none of them begins as a hunk does.
        starts = [number for number, line in enumerate(lines) if line.startswith(_HUNK)]
        return tuple("".join(lines[start:end]) for start, end in pairwise([*starts, len(lines)]))

    def text(self) -> str:
        """Write it for a person; a difference begins a line of its own, and stands first without a note."""
        head = "\n".join(filter(None, [self.note, self.difference]))
        lists = (("[would change]", self.would_change), ("[would touch]", self.would_touch))
        listed = [
            "\n".join([heading, *(f"- {each}" for each in each_of)]) for heading, each_of in lists if each_of
        ]
        return "\n\n".join(filter(None, [head, self.error, *listed, self.output, self.value]))

    def __str__(self) -> str:
        return self.text()

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON has it, without what is empty."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}


def read_effect(told: Any) -> Effect:
    """Return the effect that a tool has told: one in parts, plain data of one, or a text."""
    if isinstance(told, Effect):
        return told
    if isinstance(told, dict):
        return msgspec.convert(told, Effect)
    text = told if isinstance(told, str) else str(told)
    return Effect(difference=text) if text.startswith(_DIFFERENCE) else Effect(note=text)
