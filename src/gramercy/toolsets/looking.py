"""Tools that find definitions, methods, documentation and systems, as the image knows them.

They run no user code.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gramercy.text import reason_of
from gramercy.tools.content import ToolOutput
from gramercy.toolsets.factory import PACKAGE, Workshop, text
from gramercy.toolsets.rendering import LONGEST_ANSWER, answered, fault_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.base import Answer
    from gramercy.images.image import Image
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.workspace import Workspace

# The names of errors about an unknown name.
NOT_KNOWN = ("NOT-FOUND", "NameError", "ModuleNotFoundError")


def looking_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tools."""
    del workspace
    return [
        _find_definition(workshop),
        _find_methods(workshop),
        _look_up_documentation(workshop),
        _describe_system(workshop),
    ]


def _question(name: str) -> Callable[[Image, dict[str, Any]], Any]:
    return lambda image, arguments: answered(image.ask(name, **arguments))


def _found(workshop: Workshop, answer: Answer) -> Any:
    """Return the answer. For an unknown name, add that it may only not be loaded."""
    if answer.error is None or not answer.error.type.endswith(NOT_KNOWN) or not workshop.has("search_files"):
        return answered(answer)
    told = f"{fault_text(answer.error)}\nThe image knows only what is loaded; search_files looks into files."
    return ToolOutput(None, error=told)


def _find_definition(workshop: Workshop) -> Tool:
    return workshop.make(
        "find_definition",
        "Show the source text of a function, method, class, macro or variable of the running image, with "
        "file and line; of a generic function its methods too. Use it before you change a definition, "
        "instead of reading whole files.",
        {
            "symbol": text(
                "The name, with or without its package: area, shapes:area, json.loads", minLength=1
            ),
            "package": PACKAGE,
        },
        lambda image, arguments: _found(workshop, image.ask("find_definition", **arguments)),
        required=["symbol"],
        categories=["introspection"],
        title="Find a definition",
    )


def _find_methods(workshop: Workshop) -> Tool:
    return workshop.make(
        "find_methods",
        "List the methods of a class, inherited ones too, or those of a generic function, with places and "
        "what overrides what; of a Python method, the classes that define it. Use it to find the code that "
        "really runs for an object.",
        {
            "name": text(
                "Class, generic function or method: circle, area, json.JSONDecoder.decode", minLength=1
            ),
            "package": PACKAGE,
        },
        _question("find_methods"),
        required=["name"],
        categories=["introspection", "clos"],
        title="Find methods",
    )


def _describe_system(workshop: Workshop) -> Tool:
    return workshop.make(
        "describe_system",
        "Describe a Lisp system or a Python distribution without loading it: version, author, license, "
        "dependencies, files, where it lies, whether it is loaded. Use it before you load or depend on a "
        "library, and to find the files of one.",
        {"system": text("Name of the system, distribution or module: alexandria, click, yaml", minLength=1)},
        _question("describe_system"),
        required=["system"],
        categories=["introspection"],
        title="Describe a library",
    )


def _look_up_documentation(workshop: Workshop) -> Tool:
    return workshop.make(
        "look_up_documentation",
        "Show the documentation of a name, package, module or system, with parameters and place; also of "
        "keywords and operators of Python, and the page of the Common Lisp HyperSpec where it is installed. "
        "Use it for what a docstring says in full.",
        {
            "name": text("The name or word: mapcar, shapes:area, json.loads, with, +=", minLength=1),
            "package": PACKAGE,
        },
        lambda image, arguments: _documented(image.ask("look_up_documentation", **arguments)),
        required=["name"],
        categories=["introspection", "documentation"],
        title="Look up documentation",
    )


def _documented(answer: Answer) -> Any:
    """Return the answer, with the page of the HyperSpec for a name of the standard."""
    symbol = answer.data.get("standard")
    if answer.error is not None or not symbol:
        return answered(answer)
    page = standard_page(symbol)
    return f"{answered(answer, LONGEST_ANSWER - len(page) - 2)}\n\n{page}"


# Variables that name a copy of the HyperSpec. Debian has only a package that fetches one.
HYPERSPEC_VARIABLES = ("CLHS_ROOT", "HYPERSPEC_ROOT")
HYPERSPEC_PLACES = (
    "/usr/share/doc/hyperspec",
    "/usr/share/doc/hyperspec/HyperSpec",
    "/usr/local/share/doc/HyperSpec",
    "~/HyperSpec",
    "~/.local/share/HyperSpec",
    "~/quicklisp/dists/quicklisp/software/clhs-*/HyperSpec-*/HyperSpec",
)
INDEX = "Data/Map_Sym.txt"
# Characters of a page: mostly its syntax and description.
LONGEST_PAGE = 4_000


def standard_page(symbol: str) -> str:
    """Return the HyperSpec page of a standard symbol, or a note that there is no copy here."""
    root = _hyperspec()
    if root is None:
        return f"HyperSpec: no copy was found here; {HYPERSPEC_VARIABLES[0]} may name its directory."
    lines = (root / INDEX).read_text(encoding="latin-1").splitlines()
    # The index has a name, and in the next line its page relative to the folder of the index.
    places = dict(zip(lines[::2], lines[1::2], strict=False))
    place = places.get(symbol)
    if place is None:
        return f"HyperSpec: {root / INDEX} has no {symbol}."
    file = (root / INDEX).parent / place.partition("#")[0]
    try:
        source = file.read_text(encoding="latin-1")
    except OSError as error:
        return f"HyperSpec: {file}: {reason_of(error)}"
    title, body = _page_text(source)
    shown = (
        body if len(body) <= LONGEST_PAGE else f"{body[:LONGEST_PAGE]}\n… [{len(body):,} characters in all]"
    )
    return f"HyperSpec: {title or symbol} ({file.resolve()})\n{shown}"


def _hyperspec() -> Path | None:
    named = [os.environ[name] for name in HYPERSPEC_VARIABLES if os.environ.get(name)]
    for place in [*named, *HYPERSPEC_PLACES]:
        path = Path(place).expanduser()
        if "*" in place:
            anchor = Path(path.anchor)
            for found in sorted(anchor.glob(str(path.relative_to(anchor)))):
                if (found / INDEX).is_file():
                    return found
        elif (path / INDEX).is_file():
            return path
    return None


def _page_text(source: str) -> tuple[str, str]:
    """Return the title and the text of an HTML page, without tags and repeated blank lines."""
    # Its table of names is large, and few servers need it.
    from html import unescape

    title = re.search(r"<title>(.*?)</title>", source, re.IGNORECASE | re.DOTALL)
    body = re.sub(r"(?is)<(script|style|head)\b.*?</\1>", "", source)
    body = re.sub(r"(?i)<(p|br|h\d|li|tr|pre|hr|dd|dt)\b[^>]*>", "\n", body)
    told = unescape(re.sub(r"<[^>]*>", "", body))
    lines = [re.sub(r"[ \t]+", " ", line).strip() for line in told.splitlines()]
    kept = [line for line, above in zip(lines, ["", *lines], strict=False) if line or above]
    return unescape(title[1]).strip() if title else "", "\n".join(kept).strip()
