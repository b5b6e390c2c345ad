"""The tools that a server lists, by named sets, and the instructions that a model gets for them.

This module knows tools by their names alone and makes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.workbench.settings import SPOKEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The tools of each set. The first set is the default. It has one tool for one task: a model pays for each of
# them in every turn, so there are at most 27, and 4,500 tokens for one language.
_SETS = {
    "default": "evaluate-lisp evaluate-python load-system reset-session preview_form read_output stop_job "
    "undo_last checkpoint_image rollback_image list-definitions get_repl_history "
    "describe_symbol apropos_search list_package_symbols who_calls inspect_object "
    "read_file write_file edit_file edit_definition search_files find_definition run_tests "
    "error_frames eval_in_frame invoke_restart",
    "core": "describe_symbol apropos_search function_arglist who_calls who_references list_package_symbols "
    "class_slots class_hierarchy macroexpand_form eval_form compile_form get_last_error get_repl_history "
    "read_file read_buffer search_in_buffer write_file propose_file_edit",
    "session": "evaluate-lisp evaluate-python list-definitions reset-session load-system",
    "time-travel": "preview_form checkpoint_image list_checkpoints inspect_object read_output stop_job "
    "rollback_image undo_last",
    "project": "list_files search_files read_file edit_file edit_definition check_syntax load_file "
    "find_definition find_methods look_up_documentation run_tests install_packages profile_form "
    "describe_system save_state restore_state",
    "errors": "error_frames eval_in_frame invoke_restart",
    "images": "open_image list_images close_image",
}
TOOLSETS = {name: frozenset(tools.split()) for name, tools in _SETS.items()}
DEFAULT_TOOLSETS = ("default",)
# Python has no restarts: its exceptions are reported after the stack has been unwound.
_OF_LISP = frozenset(("invoke_restart",))
# Tools that nearly every session calls. A client that loads tools on demand need not search for them.
FOREMOST = frozenset(("evaluate-lisp", "evaluate-python", "find_definition", "edit_definition"))
# A client puts them before every conversation, and some cut them off at about two thousand characters.
LONGEST_INSTRUCTIONS = 2_000
# Long paths must not displace the rest.
LONGEST_PLACE = 600


def chosen_tools(toolsets: Iterable[str], languages: Iterable[str] = ("sbcl",)) -> frozenset[str]:
    """Return the names of the tools of these sets, without those that no given language can use."""
    found = frozenset().union(*(TOOLSETS[name] for name in toolsets))
    return found if "sbcl" in languages else found - _OF_LISP


def elsewhere(toolsets: Iterable[str]) -> dict[str, str]:
    """Return how to get each tool that is in none of these sets."""
    here = chosen_tools(toolsets)
    options = " ".join(f"--toolset {name}" for name in toolsets)
    return {
        tool: f"it is in the toolset {name}: start the server with {options} --toolset {name}"
        for name in reversed(TOOLSETS)
        for tool in TOOLSETS[name] - here
    }


# {tools} is replaced by the tools of this habit that are served.
LOOK = "Look first. {tools} change nothing and show what is there and what was done before."
PREVIEW = (
    "Preview what you are not sure of. {tools} runs the code in a throw-away copy that can write nothing and "
    "reach nobody, and lists what it would print, define and touch."
)
EVALUATE = (
    "Evaluate in small steps with {tools}. Definitions and variables stay for later calls. An error is an "
    "answer: read its backtrace. Code that kills or blocks the process costs one evaluation, not the state."
)
ERRORS = "After an error its stack is kept. Look at its variables and try a way on before you guess: {tools}."
UNDO = (
    "Undo instead of repairing. Every evaluation leaves a checkpoint: {tools} take back, name and return to "
    "states of the image, with the files that it changed."
)
FILES = (
    "Change files with {tools}, a part at a time. A person sees the difference and decides; do not propose "
    "again what was rejected."
)
TESTS = "Run the tests with {tools} after a change: it tells what fails, why and where."
HABITS = {
    LOOK: "find_definition describe_symbol apropos_search who_calls list-definitions search_files read_file "
    "get_repl_history",
    PREVIEW: "preview_form",
    EVALUATE: "evaluate-lisp evaluate-python eval_form compile_form",
    ERRORS: "error_frames eval_in_frame invoke_restart",
    FILES: "edit_definition edit_file propose_file_edit write_file",
    TESTS: "run_tests",
    UNDO: "undo_last checkpoint_image rollback_image",
}
CLOSING = "A text about an error or invalid arguments says what to try next."


def instructions_for(images: Mapping[str, str], tools: Iterable[str], place: str = "") -> str:
    """Format the instructions for images (languages by name) and tools. Without images they are empty.

    `place` describes where they work, if that needs a remark.
    """
    if not images:
        return ""
    known = set(tools)
    told = filter(None, (_told(habit, known) for habit in HABITS))
    steps = [f"{number}. {text}" for number, text in enumerate(told, 1)]
    return "\n".join([_opening(images), *filter(None, [place[:LONGEST_PLACE]]), *steps, CLOSING])[
        :LONGEST_INSTRUCTIONS
    ]


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
