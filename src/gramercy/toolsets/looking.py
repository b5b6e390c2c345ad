"""Tools that find definitions, methods, documentation and systems, as the image itself knows them.

They run no code of the user's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.toolsets.factory import PACKAGE, Workshop, text
from gramercy.toolsets.rendering import answered

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.base import Image
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.workspace import Workspace


def looking_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tools."""
    del workspace
    return [_find_definition(workshop), _find_methods(workshop)]


def _question(name: str) -> Callable[[Image, dict[str, Any]], Any]:
    return lambda image, arguments: answered(image.ask(name, **arguments))


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
        _question("find_definition"),
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
