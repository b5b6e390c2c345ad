"""The core tools: nine that inspect an image, and the registration of all eighteen.

Inspection runs no user code, except for macro expansion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.toolsets.evaluation import evaluation_tools
from gramercy.toolsets.factory import PACKAGE, ImageSource, Workshop, as_evaluation, flag, source_of, text
from gramercy.toolsets.files import file_tools
from gramercy.toolsets.rendering import answered
from gramercy.toolsets.session import session_tools
from gramercy.toolsets.time_travel import time_travel_tools
from gramercy.toolsets.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from pathlib import Path

    from gramercy.images.image import Image
    from gramercy.tools.registry import Registry
    from gramercy.tools.tool import Tool


def introspection_tools(workshop: Workshop) -> list[Tool]:
    """Make the nine tools."""
    return [
        *_name_tools(workshop),
        *_reference_tools(workshop),
        *_class_tools(workshop),
        _macroexpand(workshop),
    ]


def _question(name: str) -> Callable[[Image, dict[str, Any]], Any]:
    """Return a handler that forwards the arguments to the image as a question."""
    return lambda image, arguments: answered(image.ask(name, **arguments))


def _name_tools(workshop: Workshop) -> list[Tool]:
    return [
        workshop.make(
            "describe_symbol",
            "Get detailed information about a name in the running image: what it names, its value or "
            "parameters, its type and documentation. Use it before you call or change something that you "
            "did not write.",
            {
                "symbol": text(
                    "The name, with or without its package: car, alexandria:curry, json.loads", minLength=1
                ),
                "package": PACKAGE,
            },
            _question("describe"),
            required=["symbol"],
            categories=["introspection"],
            title="Describe a name",
        ),
        workshop.make(
            "apropos_search",
            "List names in the running image that contain a text, with what they name. Use it when you do "
            "not know the exact name, or to see what there is for a subject.",
            {
                "pattern": text("Part of a name; upper and lower case are the same", minLength=1),
                "package": PACKAGE,
            },
            _question("apropos"),
            required=["pattern"],
            categories=["introspection"],
            title="Find names",
        ),
        workshop.make(
            "function_arglist",
            "Show the parameters of a function, macro, method or class. Use it to write a call with the "
            "right arguments; it is shorter than describe_symbol.",
            {"function": text("Name of the function", minLength=1), "package": PACKAGE},
            _question("arglist"),
            required=["function"],
            categories=["introspection"],
            title="Show parameters",
        ),
    ]


def _reference_tools(workshop: Workshop) -> list[Tool]:
    return [
        workshop.make(
            "who_calls",
            "List the definitions in the running image that call a function. Use it before you change "
            "what a function takes or returns, to find the places that must change with it.",
            {"function": text("Name of the function that is called", minLength=1), "package": PACKAGE},
            _question("who_calls"),
            required=["function"],
            categories=["introspection", "xref"],
            title="Find callers",
        ),
        workshop.make(
            "who_references",
            "List the definitions in the running image that refer to a global variable. Use it before you "
            "rename, remove or give another meaning to one.",
            {"variable": text("Name of the variable", minLength=1), "package": PACKAGE},
            _question("who_references"),
            required=["variable"],
            categories=["introspection", "xref"],
            title="Find uses of a variable",
        ),
        workshop.make(
            "list_package_symbols",
            "List the names that a package or module exports, or all of its own names. Use it to get to "
            "know a library after you have loaded it.",
            {
                "package": text("Name of the package or module", minLength=1),
                "include_internal": flag("Whether to list also what is not exported", default=False),
            },
            _question("package_symbols"),
            required=["package"],
            categories=["introspection", "packages"],
            title="List names of a package",
        ),
    ]


def _class_tools(workshop: Workshop) -> list[Tool]:
    return [
        workshop.make(
            "class_slots",
            "List the slots or fields of a class, inherited ones too: names, types, initial values as "
            "they are written, accessors. Use it before you make or change instances.",
            {"class": text("Name of the class", minLength=1), "package": PACKAGE},
            _question("class_slots"),
            required=["class"],
            categories=["introspection", "clos"],
            title="List slots of a class",
        ),
        workshop.make(
            "class_hierarchy",
            "Show the superclasses and subclasses of a class and the order in which methods are looked "
            "up. Use it to find where behaviour is inherited from and what a change would reach.",
            {"class": text("Name of the class", minLength=1), "package": PACKAGE},
            _question("class_hierarchy"),
            required=["class"],
            categories=["introspection", "clos"],
            title="Show superclasses and subclasses",
        ),
    ]


def _macroexpand(workshop: Workshop) -> Tool:
    return workshop.make(
        "macroexpand_form",
        "Show what a form becomes when its macros are expanded (in Python: how the code is understood). "
        "Use it to see what a macro does with your code. It runs the code of the macros, but not the form.",
        {
            "form": text("The form to expand", minLength=1),
            "full": flag(
                "Whether to expand until nothing is left to expand, inner forms too, or only once",
                default=False,
            ),
            "package": PACKAGE,
        },
        _question("macroexpand"),
        required=["form"],
        level="cautious",
        categories=["introspection"],
        title="Expand macros",
        # A form can bring its own macros (macrolet), so expanding it runs the caller's code.
        judged_as=as_evaluation("form"),
        destructive=False,
        idempotent=True,
        open_world=workshop.open_world,
    )


def core_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the eighteen tools."""
    return [*introspection_tools(workshop), *evaluation_tools(workshop), *file_tools(workshop, workspace)]


def register_core_tools(
    registry: Registry,
    image: Image | ImageSource,
    *,
    project: str | Path | Workspace = ".",
    longest_timeout: float | None = None,
) -> int:
    """Register the eighteen core tools and return the size of the registry. A second call changes nothing.

    A program with its own workspace can attach documents to it and undo writes. With `longest_timeout` a call
    may ask for more seconds, up to that.
    """
    workspace = project if isinstance(project, Workspace) else Workspace(project)
    _join(registry, source_of(image), longest_timeout, lambda workshop: core_tools(workshop, workspace))
    return len(registry)


def register_session_tools(
    registry: Registry,
    image: Image | ImageSource,
    *,
    language: str = "sbcl",
    workspace: Workspace | None = None,
    longest_timeout: float | None = None,
) -> int:
    """Register the session and time-travel tools and return their number.

    With the workspace of the file tools, undo_last also undoes their writes.
    """
    return _join(
        registry,
        source_of(image),
        longest_timeout,
        lambda workshop: [*session_tools(workshop, language), *time_travel_tools(workshop, workspace)],
    )


def _join(
    registry: Registry,
    source: ImageSource,
    longest_timeout: float | None,
    make: Callable[[Workshop], list[Tool]],
) -> int:
    """Register tools whose texts name only each other and tools that are already registered."""
    names = frozenset(tool.name for tool in make(Workshop(source, longest_timeout)))
    beside = _Beside(registry, names)
    return registry.register_all(make(Workshop(source, longest_timeout, beside=beside)))


class _Beside:
    """The tools of a registry and those that are about to join it: texts may name these tools only."""

    def __init__(self, registry: Registry, joining: Container[str]) -> None:
        self._registry, self._joining = registry, joining

    def __contains__(self, name: object) -> bool:
        return name in self._joining or name in self._registry
