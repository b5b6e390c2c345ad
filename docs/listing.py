"""Write the reference of every tool that a server has, from the registry itself."""

# ruff: noqa: INP001 - documentation is not a package

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.images.base import Gallery
from gramercy.images.opening import open_image
from gramercy.toolsets.core import core_tools
from gramercy.toolsets.factory import Workshop
from gramercy.toolsets.opened_images import OpenedImages, opened_image_tools
from gramercy.toolsets.session import session_tools
from gramercy.toolsets.time_travel import time_travel_tools
from gramercy.toolsets.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.tools.tool import Tool

INTRODUCTION = """
# Tools

What `gramercy serve` offers and `gramercy tools list --image` lists, set by set; `--toolset` chooses. Where
there are several, each tool that acts on an image also takes its handle as `image`. The level decides who is
asked: [policy](policy.md). Over MCP every tool carries the four annotations, derived from its level, and its
level and categories under `_meta`.
"""
SETS = {
    "core": "Look, evaluate, read and write files.",
    "session": "The four tools of a session. `evaluate-lisp` is `evaluate-python` for a Python image.",
    "time-travel": "Preview, name and take back states; look into objects and long output.",
    "images": "Open images of your own; only with `--toolset images`.",
}


def tools_page() -> str:
    """Describe every tool of every set."""
    parts = [INTRODUCTION]
    for name, tools in _sets():
        parts.append(f"## {name}\n\n{SETS[name]}\n")
        parts += [_described(tool) for tool in tools]
    return "\n".join(parts)


def _sets() -> Iterator[tuple[str, list[Tool]]]:
    # Nothing is started for a description.
    image = open_image("sbcl", sandbox=False)
    workshop = Workshop(Gallery([image]))
    yield "core", core_tools(workshop, Workspace("."))
    yield "session", session_tools(workshop)
    yield "time-travel", time_travel_tools(workshop)
    yield (
        "images",
        opened_image_tools(
            OpenedImages(workshop.source, lambda name, language: open_image(language, name=name))
        ),
    )


def _described(tool: Tool) -> str:
    categories = ", ".join(tool.categories)
    lines = [f"### {tool.name}\n", f"*{tool.safety_level.value}*, {categories}\n", f"{tool.description}\n"]
    properties = tool.schema.get("properties", {})
    if properties:
        lines += ["| argument | type | |", "|---|---|---|"]
        lines += [_argument(name, schema, tool.required) for name, schema in properties.items()]
        lines.append("")
    return "\n".join(lines)


def _argument(name: str, schema: dict[str, Any], required: tuple[str, ...]) -> str:
    told = [schema.get("description", "")]
    if "enum" in schema:
        told.append(f"one of {', '.join(schema['enum'])}")
    if schema.get("default") not in {None, ""}:
        told.append(f"by default {schema['default']}")
    mark = "*" if name in required else ""
    return f"| `{name}`{mark} | {schema.get('type', 'any')} | {'; '.join(filter(None, told))} |"
