"""The core tools of a workspace and an image, registered together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.toolsets.evaluation import evaluation_tools
from gramercy.toolsets.factory import ImageSource, Workshop, source_of
from gramercy.toolsets.files import file_tools
from gramercy.toolsets.introspection import introspection_tools
from gramercy.toolsets.session import session_tools
from gramercy.toolsets.time_travel import time_travel_tools
from gramercy.toolsets.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from gramercy.images.base import Image
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Tool


def core_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the eighteen tools."""
    return [*introspection_tools(workshop), *evaluation_tools(workshop), *file_tools(workspace)]


def register_core_tools(
    registry: Registry, image: Image | ImageSource, *, project: str | Path | Workspace = "."
) -> int:
    """Register the eighteen core tools and return their number; registering again changes nothing.

    A program that gives a workspace of its own can attach documents to it and take writes back.
    """
    workspace = project if isinstance(project, Workspace) else Workspace(project)
    return registry.register_all(core_tools(Workshop(source_of(image)), workspace))


def register_session_tools(registry: Registry, image: Image | ImageSource, *, language: str = "sbcl") -> int:
    """Register the session and time-travel tools and return their number."""
    workshop = Workshop(source_of(image))
    return registry.register_all([*session_tools(workshop, language), *time_travel_tools(workshop)])
