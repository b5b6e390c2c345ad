"""Write the reference of every tool that a server has, from the registry itself."""

# ruff: noqa: INP001 - documentation is not a package

from __future__ import annotations

import json
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from gramercy.images.base import Gallery
from gramercy.images.opening import open_image
from gramercy.toolsets.core import core_tools
from gramercy.toolsets.factory import Workshop
from gramercy.toolsets.opened_images import OpenedImages, opened_image_tools
from gramercy.toolsets.project import project_tools
from gramercy.toolsets.session import session_tools
from gramercy.toolsets.time_travel import time_travel_tools
from gramercy.toolsets.workspace import Workspace
from gramercy.workbench.selection import TOOLSETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.tools.tool import Tool

INTRODUCTION = """
# Tools

What `gramercy tools list --image` lists, set by set. `gramercy serve` lists the default set; `--toolset`
chooses others, and may be given several times. A tool that is not listed cannot be called, and the error
says which set has it. Names may be written with hyphens or underscores.

Where there are several images, each tool that acts on one also takes its handle as `image`. The level
decides who is asked: [policy](policy.md). Over MCP every tool has a title and the four annotations: `reads`
stands for a tool that changes nothing, `destructive` for one that may lose what no other call brings back,
`repeatable` for one whose second call changes nothing more, `open world` for one that runs code, where that
is not confined to a sandbox without network ([why](../explanation/decisions.md)). Its level, categories and
the decision of the policy are under `_meta`.

## default

{tools}

{count} tools for about {tokens} tokens (name, description and schema as JSON, four characters for a token); a
tool for each language where images speak two. Each is described below in its own set.
"""
SETS = {
    "core": "Look, evaluate, read and write files.",
    "session": "The four tools of a session; `evaluate-lisp` is `evaluate-python` for a Python image. Also "
    "taken, and told in the answer: `system-name` for `system`, a singular word for `type`, `capture-time`.",
    "time-travel": "Preview, name and take back states; look into objects and long output.",
    "project": "Files, definitions, tests and states of a project; `read_file` of the core belongs to it.",
    "errors": "Look at the stack of an error, evaluate in it, and choose how it goes on.",
    "images": "Open images of your own; only with `--toolset images`.",
}


def tools_page() -> str:
    """Describe every tool of every set."""
    sets = dict(_sets())
    parts = [_introduction([tool for tools in sets.values() for tool in tools])]
    for name, tools in sets.items():
        parts.append(f"## {name}\n\n{SETS[name]}\n")
        parts += [_described(tool) for tool in tools]
    return "\n".join(parts)


def _introduction(tools: list[Tool]) -> str:
    default = sorted((tool for tool in tools if tool.name in TOOLSETS["default"]), key=lambda tool: tool.name)
    shown = [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.schema} for tool in default
    ]
    size = len(json.dumps(shown, separators=(",", ":"), ensure_ascii=False))
    names = ", ".join(f"`{tool.name}`" for tool in default)
    return INTRODUCTION.format(
        tools="\n".join(wrap(names, 110)), count=len(default), tokens=f"{round(size / 400) * 100:,}"
    )


def _sets() -> Iterator[tuple[str, list[Tool]]]:
    # Nothing is started for a description.
    image = open_image("sbcl", sandbox=False)
    workshop = Workshop(Gallery([image]))
    workspace = Workspace(".")
    yield "core", core_tools(workshop, workspace)
    yield "session", session_tools(workshop)
    yield "time-travel", time_travel_tools(workshop)
    made = project_tools(workshop, workspace)
    yield "project", [tool for tool in made if tool.name not in TOOLSETS["errors"]]
    yield "errors", [tool for tool in made if tool.name in TOOLSETS["errors"]]
    yield (
        "images",
        opened_image_tools(
            OpenedImages(workshop.source, lambda name, language: open_image(language, name=name))
        ),
    )


def _described(tool: Tool) -> str:
    categories = ", ".join(tool.categories)
    about = ", ".join([f"*{tool.safety_level.value}*", categories, *_hints(tool)])
    lines = [f"### {tool.name}\n", f"{about}\n", f"{tool.description}\n"]
    properties = tool.schema.get("properties", {})
    if properties:
        lines += ["| argument | type | |", "|---|---|---|"]
        lines += [_argument(name, schema, tool.required) for name, schema in properties.items()]
        lines.append("")
    return "\n".join(lines)


def _hints(tool: Tool) -> list[str]:
    told = tool.to_schema("mcp")["annotations"]
    if told["readOnlyHint"]:
        return ["reads"]
    words = {
        "destructiveHint": "destructive",
        "idempotentHint": "repeatable",
        "openWorldHint": "open world",
    }
    return [word for name, word in words.items() if told[name]]


def _argument(name: str, schema: dict[str, Any], required: tuple[str, ...]) -> str:
    told = [schema.get("description", "")]
    if "enum" in schema:
        told.append(f"one of {', '.join(schema['enum'])}")
    if schema.get("default") not in {None, ""}:
        told.append(f"by default {schema['default']}")
    mark = "*" if name in required else ""
    return f"| `{name}`{mark} | {schema.get('type', 'any')} | {'; '.join(filter(None, told))} |"
