"""The resources of a server: what its images hold, what was called, and its tools as specifications.

Reading one changes nothing, and starts no image that nobody has used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from gramercy.errors import GramercyError
from gramercy.gram.suggestion import suggest
from gramercy.images.opening import Gallery
from gramercy.mcp.jsonrpc import Code
from gramercy.mcp.tool_calls import without_controls
from gramercy.tools.content import ToolOutput
from gramercy.tools.context import current_call
from gramercy.tools.safety import Safety
from gramercy.toolsets.evaluation import evaluation_tools
from gramercy.toolsets.factory import Workshop
from gramercy.toolsets.session import session_tools
from gramercy.workbench.audit import AuditJournal
from gramercy.workbench.completions import Symbols
from gramercy.workbench.instructions import SPOKEN
from gramercy.workbench.offers import AUDIT, DEFINITIONS, SYMBOL, TOOLS, TRANSCRIPT, was_used
from gramercy.workbench.specifications import specification_text

if TYPE_CHECKING:
    from gramercy.execution.executor import Executor
    from gramercy.images.base import Image
    from gramercy.mcp.catalogue import Catalog
    from gramercy.tools.tool import Tool

TEXT = "text/plain"
TRANSCRIPT_LENGTH = 20
NOT_STARTED = "The image {name} has not started yet: it starts when a tool first uses it."


@dataclass(frozen=True, slots=True)
class Shelf:
    """What the offers of a server are made from."""

    images: dict[str, Image]
    executor: Executor
    categories: tuple[str, ...] = ()
    symbols: Symbols = field(default_factory=Symbols)

    def image(self, name: str) -> Image:
        """Return the image of that name; an empty one means the first."""
        found = self.images.get(name or next(iter(self.images)))
        if found is None:
            close = suggest(name[:60], self.images)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(self.images)}"
            _refuse(f"there is no image {name!r:.60}: {hint}")
        return found

    def tools(self) -> list[Tool]:
        """List the tools that the present caller may see."""
        peer = getattr(getattr(current_call(), "request", None), "peer", None)
        ceiling = min(getattr(peer, "ceiling", Safety.DANGEROUS), self.executor.policy.max_safety_level)
        return self.executor.settings.registry.select(ceiling, self.categories or None)

    def complete_image(self, typed: str, known: dict[str, str]) -> list[str]:
        """Complete the name of an image."""
        del known
        return [name for name in self.images if name.startswith(typed)]

    async def complete_symbol(self, typed: str, known: dict[str, str]) -> list[str]:
        """Complete a name in the image that is named so far."""
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
    """Make the tools whose texts the resources are, whether or not they are served."""
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
    journal = shelf.executor.journal
    if isinstance(journal, AuditJournal):
        catalog.resource(
            AUDIT,
            "audit",
            lambda: without_controls(journal.text(current_call().principal)),
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
        return specification_text(tool)
    except GramercyError as error:
        # One tool that gram cannot say must not hide the others.
        return f"// {tool.name}: {' '.join(str(error).split())[:200]}"


def _refuse(message: str, code: int = Code.INVALID_PARAMS) -> NoReturn:
    current_call().fail(message[:2_000], code=code)
