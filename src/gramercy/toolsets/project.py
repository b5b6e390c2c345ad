"""The tools for daily work by family: the module that makes each of them.

A module is imported only when one of its tools is served, since a server must list its tools quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gramercy.images.image import Image
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import ImageSource, Workshop
    from gramercy.toolsets.workspace import Workspace


class Family(NamedTuple):
    """A module of this package, its function `(Workshop, Workspace) -> list[Tool]`, and its tools."""

    module: str
    maker: str
    tools: str


FAMILIES: tuple[Family, ...] = (
    # Files: list, search, edit.
    Family("editing", "edit_tools", "edit_file"),
    Family("searching", "searching_tools", "list_files search_files"),
    # Definitions in files: edit, check, load.
    Family("forms", "form_tools", "edit_definition load_file"),
    Family("checking", "checking_tools", "check_syntax"),
    # Definitions in the image: find, document, describe.
    Family("looking", "looking_tools", "find_definition find_methods look_up_documentation describe_system"),
    # Tests, packages and states.
    Family("running_tests", "running_test_tools", "run_tests"),
    Family("installing", "installing_tools", "install_packages"),
    Family("saved_states", "saved_state_tools", "save_state restore_state"),
    # The moment of an error.
    Family("errors", "error_tools", "error_frames eval_in_frame invoke_restart"),
    # Time and memory.
    Family("profiling", "profiling_tools", "profile_form"),
)


def project_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tools of each family with at least one served tool."""
    tools: list[Tool] = []
    for module, maker, names in FAMILIES:
        if any(map(workshop.has, names.split())):
            make = getattr(import_module(f"gramercy.toolsets.{module}"), maker)
            tools += make(workshop, workspace)
    return tools


def register_project_tools(
    registry: Registry,
    image: Image | ImageSource,
    workspace: Workspace,
    *,
    longest_timeout: float | None = None,
) -> int:
    """Register all of them and return their number."""
    from gramercy.toolsets.factory import Workshop, source_of

    return registry.register_all(project_tools(Workshop(source_of(image), longest_timeout), workspace))
