"""What a server tells a model about itself: how to work well with these tools. Shown once, so it is short."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LONGEST = 2_000
# Long paths must not push out the rest.
LONGEST_PLACE = 600
SPOKEN = {"sbcl": "Common Lisp (SBCL)", "python": "Python"}

# {tools} stands for those of the habit that are there.
LOOK = "Look first. {tools} change nothing and show what is there and what was done before."
PREVIEW = (
    "Preview what you are not sure of. {tools} runs the code in a throw-away copy that can write nothing and "
    "reach nobody, and lists what it would print, define and touch."
)
EVALUATE = (
    "Evaluate in small steps with {tools}. Definitions and variables stay for later calls. An error is an "
    "answer: read its backtrace. Code that kills or blocks the process costs one evaluation, not the state."
)
UNDO = (
    "Undo instead of repairing. Every evaluation leaves a checkpoint: {tools} take back, name and return to "
    "states of the image. Files are not taken back."
)
FILES = (
    "Change files with {tools}. A person sees the difference and decides; do not propose again what was "
    "rejected."
)
HABITS = {
    LOOK: "describe_symbol apropos_search who_calls list-definitions read_file get_repl_history",
    PREVIEW: "preview_form",
    EVALUATE: "evaluate-lisp evaluate-python eval_form compile_form",
    UNDO: "undo_last checkpoint_image rollback_image",
    FILES: "propose_file_edit write_file",
}
CLOSING = "A text about an error or invalid arguments says what to try next."


def instructions_for(images: Mapping[str, str], tools: Iterable[str], place: str = "") -> str:
    """Write the instructions for images (languages by name) and tools; without images there is no need.

    `place` says where they work, if there is something to say about that.
    """
    if not images:
        return ""
    known = set(tools)
    told = filter(None, (_told(habit, known) for habit in HABITS))
    steps = [f"{number}. {text}" for number, text in enumerate(told, 1)]
    return "\n".join([_opening(images), *filter(None, [place[:LONGEST_PLACE]]), *steps, CLOSING])[:LONGEST]


def _told(habit: str, known: set[str]) -> str:
    there = [tool for tool in HABITS[habit].split() if tool in known]
    return habit.format(tools=", ".join(there)) if there else ""


def _opening(images: Mapping[str, str]) -> str:
    first = next(iter(images))
    if len(images) == 1:
        return f"A live {SPOKEN[images[first]]} image that keeps its state between calls."
    listed = ", ".join(f"{name} ({SPOKEN[language]})" for name, language in images.items())
    return (
        f"Live images that keep their state between calls: {listed}. The argument image names one of them; "
        f"without it {first} is meant, or the first that speaks the language of the tool."
    )
