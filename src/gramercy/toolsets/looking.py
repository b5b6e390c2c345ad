"""Tools that find definitions, methods, documentation and systems, as the image itself knows them.

They run no code of the user's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.toolsets.factory import PACKAGE, Workshop, text
from gramercy.toolsets.rendering import answered

if TYPE_CHECKING:
    from gramercy.images.base import Image
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.workspace import Workspace


def looking_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tools."""
    del workspace
    return [_find_definition(workshop)]


def _find_definition(workshop: Workshop) -> Tool:
    def find(image: Image, arguments: dict[str, Any]) -> Any:
        return answered(image.ask("find_definition", **arguments))

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
        find,
        required=["symbol"],
        categories=["introspection"],
        title="Find a definition",
    )
