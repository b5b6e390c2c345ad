"""The resources, the prompts and the completion of names of a server of images.

Imported when a client first requests one of them. Reading changes nothing and starts no image. A prompt names
only tools that the server has.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn

from gramercy.errors import GramercyError
from gramercy.gram.suggestion import did_you_mean
from gramercy.images.base import Gallery
from gramercy.mcp.catalogue import PromptArgument
from gramercy.mcp.jsonrpc import Code
from gramercy.mcp.tool_calls import without_controls
from gramercy.tools.content import ToolOutput
from gramercy.tools.context import current_call
from gramercy.tools.library import specified
from gramercy.tools.safety import Safety
from gramercy.toolsets.evaluation import evaluation_tools
from gramercy.toolsets.factory import Workshop
from gramercy.toolsets.session import LANGUAGE_WORDS, session_tools
from gramercy.workbench.audit import Audit
from gramercy.workbench.deferred import DeferredImage
from gramercy.workbench.settings import SPOKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.execution.executor import Executor
    from gramercy.execution.hooks import Hook
    from gramercy.images.image import Image
    from gramercy.mcp.catalogue import Catalog
    from gramercy.tools.tool import Tool

DEFINITIONS, TRANSCRIPT = "image://{name}/definitions", "image://{name}/transcript"
SYMBOL = "image://{name}/symbol/{symbol}"
AUDIT, TOOLS = "gramercy://audit", "gramercy://tools.gram"
# Tools of these sets change an image, unless they are safe.
CHANGING = frozenset({"session", "execution", "time-travel"})
TEXT = "text/plain"
# The latest evaluations, about as many as a model can use at once.
TRANSCRIPT_LENGTH = 20
NOT_STARTED = "The image {name} has not started yet: it starts when a tool first uses it."
# A person is typing: a later answer is useless, so a busy image offers no names.
COMPLETION_SECONDS = 1.0
# More than are shown, so that the names that start with the typed text are among them.
MOST_NAMES = 1_000
# Longer than any name. The text goes into a search of all symbols.
LONGEST_TYPED = 200


def add_offers(
    catalog: Catalog,
    images: Sequence[Image],
    executor: Executor,
    categories: Sequence[str],
    audit: Audit | None = None,
) -> None:
    """Fill a catalogue. Calls that change an image notify the clients that have subscribed to it."""
    named = {image.name: image for image in images}
    shelf = Shelf(named, executor, audit or Audit(executor.journal), tuple(categories))
    add_resources(catalog, shelf)
    add_prompts(catalog, shelf)
    # Added late: an observer costs every call something, and hardly any client subscribes.
    catalog.when_subscribed(lambda: executor.hooks.append(_observer(catalog, images)))


def _observer(catalog: Catalog, images: Sequence[Image]) -> Hook:
    def observe(phase: str, tool: Tool, arguments: dict[str, Any], result: object) -> None:
        del result
        if phase == "before":
            return
        catalog.updated(AUDIT)
        if tool.level_word == "safe" or CHANGING.isdisjoint(tool.categories):
            return
        named = arguments.get("image")
        for image in images:
            # If the call names no image, only the tool knows which one it used. An extra notification is
            # harmless.
            if named in {None, image.name} and was_used(image):
                catalog.updated(DEFINITIONS.format(name=image.name))
                catalog.updated(TRANSCRIPT.format(name=image.name))

    return observe


def was_used(image: Image) -> bool:
    """Return whether a call has used an image. Then inspecting it starts nothing."""
    return not isinstance(image, DeferredImage) or image.was_used


class Symbols:
    """Asks images for names, one request per image at a time."""

    def __init__(self) -> None:
        self._asked: dict[str, Future[list[str]]] = {}

    async def of(self, image: Image, typed: str) -> list[str]:
        """Return names that match the typed text, the best first. Without text, return its definitions."""
        before = self._asked.get(image.name)
        if len(typed) > LONGEST_TYPED or (before is not None and not before.done()):
            return []
        asked = self._asked[image.name] = Future()
        # Not a worker: a cancelled worker would be interrupted in the middle of its exchange with the image.
        Thread(target=_answer, args=(asked, image, typed), daemon=True).start()
        done, _ = await asyncio.wait({asyncio.wrap_future(asked)}, timeout=COMPLETION_SECONDS)
        return asked.result() if done else []


def _answer(asked: Future[list[str]], image: Image, typed: str) -> None:
    try:
        names = _matching(image, typed) if typed else _defined(image)
    except GramercyError:
        names = []
    except BaseException as error:  # noqa: BLE001 - raised again where the result is taken
        asked.set_exception(error)
        return
    asked.set_result(names)


def _defined(image: Image) -> list[str]:
    data = image.ask("definitions").data
    entries = [entry for found in data.values() if isinstance(found, list) for entry in found]
    return sorted({name for name in map(_name, entries) if name and not name.startswith("(")})


def _matching(image: Image, typed: str) -> list[str]:
    mark = ":" if image.language == "sbcl" else "."
    place, _, start = typed.rpartition(mark)
    details = {"package": place.rstrip(mark)} if place.rstrip(mark) else {}
    data = image.ask("apropos", pattern=start, limit=MOST_NAMES, **details).data
    names = {_name(entry) for entry in data.get("matches", data.get("symbols", []))}

    def rank(name: str) -> tuple[bool, bool, str]:
        begins = name.rpartition(mark)[2].lower().startswith(start.lower())
        # Keywords only name themselves.
        return not begins, name.startswith(":"), name

    return sorted(filter(None, names), key=rank)


def _name(entry: Any) -> str:
    return str(entry.get("name", "")) if isinstance(entry, dict) else ""


@dataclass(frozen=True, slots=True)
class Shelf:
    """The parts from which the offers of a server are made."""

    images: dict[str, Image]
    executor: Executor
    audit: Audit
    categories: tuple[str, ...] = ()
    symbols: Symbols = field(default_factory=Symbols)

    def image(self, name: str) -> Image:
        """Return the image of that name. An empty name means the first."""
        found = self.images.get(name or next(iter(self.images)))
        if found is None:
            hint = did_you_mean(name[:60], self.images, f"there are {', '.join(self.images)}")
            _refuse(f"there is no image {name!r:.60}: {hint}")
        return found

    def tools(self) -> list[Tool]:
        """List the tools that the current caller may see."""
        peer = getattr(getattr(current_call(), "request", None), "peer", None)
        ceiling = min(getattr(peer, "ceiling", Safety.DANGEROUS), self.executor.policy.max_safety_level)
        return self.executor.settings.registry.select(ceiling, self.categories or None)

    def complete_image(self, typed: str, known: dict[str, str]) -> list[str]:
        """Complete the name of an image."""
        del known
        return [name for name in self.images if name.startswith(typed)]

    async def complete_symbol(self, typed: str, known: dict[str, str]) -> list[str]:
        """Complete a name in the image that the other arguments name."""
        image = self.images.get(known.get("name") or known.get("image") or next(iter(self.images)))
        return [] if image is None or not was_used(image) else await self.symbols.of(image, typed)


def add_resources(catalog: Catalog, shelf: Shelf) -> None:
    """Offer the resources, the template for symbols, and the completion of its arguments."""
    looking = _looking_tools(shelf)
    for name, image in shelf.images.items():
        definitions = partial(_looked, image, looking["list-definitions"])
        transcript = partial(_looked, image, looking["get_repl_history"], limit=TRANSCRIPT_LENGTH)
        where = f"in the image {name} ({SPOKEN[image.language]})"
        catalog.resource(
            DEFINITIONS.format(name=name),
            f"{name}-definitions",
            definitions,
            description=f"What was defined {where} since its session began, and is still there",
            mime_type=TEXT,
        )
        catalog.resource(
            TRANSCRIPT.format(name=name),
            f"{name}-transcript",
            transcript,
            description=f"The latest evaluations {where}, with their results",
            mime_type=TEXT,
        )
    _add_template(catalog, shelf)
    _add_server(catalog, shelf)


def _looking_tools(shelf: Shelf) -> dict[str, Tool]:
    """Make the tools whose texts become resources, whether or not they are served."""
    workshop = Workshop(Gallery(shelf.images.values()))
    return {tool.name: tool for tool in (*session_tools(workshop), *evaluation_tools(workshop))}


def _looked(image: Image, tool: Tool, **arguments: Any) -> str:
    if not was_used(image):
        return NOT_STARTED.format(name=image.name)
    found = tool.handler({"image": image.name, **arguments})
    if isinstance(found, ToolOutput):
        _refuse(str(found.error), Code.INTERNAL_ERROR)
    return without_controls(found)


def _add_template(catalog: Catalog, shelf: Shelf) -> None:
    catalog.template(
        SYMBOL,
        "symbol",
        lambda variables: _described(shelf.image(variables["name"]), variables["symbol"]),
        description="What a name in an image names: its value or parameters, type and documentation",
        mime_type=TEXT,
    )
    catalog.complete(SYMBOL, "name", shelf.complete_image)
    catalog.complete(SYMBOL, "symbol", shelf.complete_symbol)


def _described(image: Image, symbol: str) -> str:
    if not was_used(image):
        return NOT_STARTED.format(name=image.name)
    answer = image.ask("describe", symbol=symbol)
    if answer.error is not None:
        close = answer.error.suggestions
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        _refuse(without_controls(f"{answer.error.message}{hint}"))
    return without_controls(answer.text)


def _add_server(catalog: Catalog, shelf: Shelf) -> None:
    catalog.resource(
        AUDIT,
        "audit",
        lambda: without_controls(shelf.audit.text(current_call().principal)),
        description="The latest calls of this server: when, which tool, how it ended, what was decided",
        mime_type=TEXT,
    )
    catalog.resource(
        TOOLS,
        "tools.gram",
        lambda: without_controls("\n\n".join(map(_specification, shelf.tools())) + "\n"),
        description="The tools of this server as specifications in gram notation",
        mime_type=TEXT,
    )


def _specification(tool: Tool) -> str:
    try:
        return specified(tool).to_gram()
    except GramercyError as error:
        # One tool that gram cannot express must not hide the others.
        return f"// {tool.name}: {' '.join(str(error).split())[:200]}"


def _refuse(message: str, code: int = Code.INVALID_PARAMS) -> NoReturn:
    current_call().fail(message[:2_000], code=code)


IMAGE = PromptArgument("image", "Name of the image; by default the first")
EVALUATING = "evaluate-lisp evaluate-python eval_form compile_form"
# Opencode requests a prompt once, with these as arguments, and later replaces them by the typed text.
PLACEHOLDER = re.compile(r"\$\d+")


@dataclass(frozen=True, slots=True)
class Outline:
    """A prompt: its beginning, its steps with the tools they need, and its goal."""

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
        ("Get the code, the error and its backtrace: {tools}.", "get_last_error get_repl_history"),
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
    """Format a prompt. A blank argument counts as not given."""
    given = {name: value.strip() for name, value in given.items()}
    if any(argument.required and not given.get(argument.name) for argument in outline.arguments):
        current_call().fail(f"{outline.name} needs a symbol: give its name", code=Code.INVALID_PARAMS)
    where, name, language = _meant(shelf, given.get("image", ""))
    opening = outline.opening.format(where=where, goal=_goal(given), symbol=given.get("symbol", ""))
    choice = [f"The tools take its name as the argument image{name}."] if len(shelf.images) > 1 else []
    return "\n".join([opening, *choice, *_steps(outline, shelf, language), outline.closing])


def _goal(given: dict[str, str]) -> str:
    goal = given.get("goal", "")
    if not goal:
        return "Ask me first what the goal is."
    is_open = PLACEHOLDER.fullmatch(goal)
    return f"The goal: {goal}" + ("\nIf none is given, ask me first what the goal is." if is_open else "")


def _meant(shelf: Shelf, named: str) -> tuple[str, str, str]:
    """Return the words for an image, its name in texts, and its language. Empty where not yet chosen."""
    is_open = PLACEHOLDER.fullmatch(named)
    if is_open and len(shelf.images) > 1:
        known = " or ".join(shelf.images)
        first = next(iter(shelf.images))
        return f'the live image that I name here: "{named}" ({known}; {first} if none is named)', "", ""
    image = shelf.image("" if is_open else named)
    return f"the live image {image.name} ({SPOKEN[image.language]})", f": {image.name}", image.language


def _steps(outline: Outline, shelf: Shelf, language: str) -> list[str]:
    """Format the numbered steps for which there are tools."""
    spoken = {language} if language else {image.language for image in shelf.images.values()}
    others = {f"evaluate-{LANGUAGE_WORDS.get(other, other)}" for other in SPOKEN if other not in spoken}
    known = {tool.name for tool in shelf.tools()} - others
    found = [(text, [tool for tool in tools.split() if tool in known]) for text, tools in outline.steps]
    there = [text.format(tools=", ".join(tools)) for text, tools in found if tools]
    return [f"{number}. {text}" for number, text in enumerate(there, 1)]
