"""Texts for a person to start from: four ways to work in an image. Each names only tools that are there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gramercy.mcp.catalogue import PromptArgument
from gramercy.mcp.jsonrpc import Code
from gramercy.tools.context import current_call
from gramercy.toolsets.session import LANGUAGES
from gramercy.workbench.settings import SPOKEN

if TYPE_CHECKING:
    from gramercy.mcp.catalogue import Catalog
    from gramercy.workbench.offers import Shelf

IMAGE = PromptArgument("image", "Name of the image; by default the first")
EVALUATING = "evaluate-lisp evaluate-python eval_form compile_form"


@dataclass(frozen=True, slots=True)
class Outline:
    """A prompt: how it begins, its steps with the tools they need, and what is to come of it."""

    name: str
    description: str
    opening: str
    steps: tuple[tuple[str, str], ...]
    closing: str
    arguments: tuple[PromptArgument, ...] = (IMAGE,)


WORK = Outline(
    "work-in-the-image",
    "Reach a goal in a live image in small steps: look, preview, evaluate, undo",
    "Work in {where}. {goal}",
    (
        (
            "Look before you write: {tools}. Tell me in two sentences what is there that helps.",
            "list-definitions get_repl_history describe_symbol apropos_search who_calls read_file",
        ),
        ("Preview with {tools} whatever redefines something or reaches out of the image.", "preview_form"),
        (
            "Evaluate the smallest step that can be checked, with {tools}, and check it with a known answer.",
            EVALUATING,
        ),
        (
            "When a step turns out wrong, take it back with {tools} before you try another way.",
            "undo_last rollback_image",
        ),
    ),
    "At the end list what you have defined or changed, with an example of each, and what is still open.",
    (PromptArgument("goal", "What is to be reached; without one you are asked for it"), IMAGE),
)
EXPLAIN = Outline(
    "explain-symbol",
    "Explain a name in a live image to a programmer who has to use or change it",
    "Explain {symbol} in {where} to a programmer who has to use it or change it. Change nothing.",
    (
        (
            "Read what the image says about it: {tools}.",
            "describe_symbol function_arglist class_slots class_hierarchy",
        ),
        ("Find out who depends on it: {tools}.", "who_calls who_references"),
        ("Try one or two examples with {tools}.", "preview_form"),
    ),
    "Then write what it is for, what it takes and gives, one example with its real result, and what to watch "
    "out for. Where the image does not tell, say so instead of guessing.",
    (PromptArgument("symbol", "The name to explain", required=True), IMAGE),
)
REPAIR = Outline(
    "repair-last-error",
    "Find the cause of the last error in a live image and repair it",
    "Repair what failed last in {where}. If no evaluation has failed, say so and stop.",
    (
        ("Get the code, the error and its backtrace: {tools}.", "get_last_error"),
        (
            "Look for the cause where the wrong value comes from, not where it is noticed: {tools}.",
            "describe_symbol function_arglist who_calls read_file",
        ),
        ("Try the repair with {tools}: the code that failed must succeed there.", "preview_form"),
        (
            "Make the smallest change that repairs it, with {tools}, and run the failed code again.",
            EVALUATING,
        ),
        ("If that makes things worse, take it back: {tools}.", "undo_last"),
    ),
    "Before you change anything, tell me in one sentence what is wrong. At the end tell me what you changed, "
    "and where else the same mistake may be.",
)
REVIEW = Outline(
    "review-changes",
    "Review what was defined in a live image since its session began",
    "Review what was defined in {where} since its session began. Change nothing.",
    (
        ("See what is there and how it came about: {tools}.", "list-definitions get_repl_history"),
        (
            "Look at each definition and at what depends on it: {tools}.",
            "describe_symbol who_calls who_references",
        ),
        ("Show with {tools} that what looks wrong is wrong.", "preview_form"),
    ),
    "Report, the most serious first: what is wrong or fragile, with an example that shows it; what is left "
    "over from trying things out; what is missing. End with the definitions that deserve a place in a file.",
)
OUTLINES = (WORK, EXPLAIN, REPAIR, REVIEW)


def add_prompts(catalog: Catalog, shelf: Shelf) -> None:
    """Offer the prompts, and the completion of their arguments."""
    for outline in OUTLINES:
        catalog.prompt(
            outline.name,
            partial(_filled, outline, shelf),
            arguments=outline.arguments,
            description=outline.description,
            inline=True,
        )
        catalog.complete(outline.name, "image", shelf.complete_image)
    catalog.complete(EXPLAIN.name, "symbol", shelf.complete_symbol)


def _filled(outline: Outline, shelf: Shelf, given: dict[str, str]) -> str:
    """Write a prompt out; an argument that is blank was not given."""
    given = {name: value.strip() for name, value in given.items()}
    if any(argument.required and not given.get(argument.name) for argument in outline.arguments):
        current_call().fail(f"{outline.name} needs a symbol: give its name", code=Code.INVALID_PARAMS)
    image = shelf.image(given.get("image", ""))
    goal = f"The goal: {given['goal']}" if given.get("goal") else "Ask me first what the goal is."
    where = f"the live image {image.name} ({SPOKEN[image.language]})"
    opening = outline.opening.format(where=where, goal=goal, symbol=given.get("symbol", ""))
    choice = (
        [f"The tools take its name as the argument image: {image.name}."] if len(shelf.images) > 1 else []
    )
    return "\n".join([opening, *choice, *_steps(outline, shelf, image.language), outline.closing])


def _steps(outline: Outline, shelf: Shelf, language: str) -> list[str]:
    """Write the steps for which there are tools, with numbers."""
    others = {f"evaluate-{LANGUAGES.get(other, other)}" for other in SPOKEN if other != language}
    known = {tool.name for tool in shelf.tools()} - others
    found = [(text, [tool for tool in tools.split() if tool in known]) for text, tools in outline.steps]
    there = [text.format(tools=", ".join(tools)) for text, tools in found if tools]
    return [f"{number}. {text}" for number, text in enumerate(there, 1)]
