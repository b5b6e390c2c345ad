"""The tool that parses a source text and reports its faults, without evaluating any of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.errors import WorkspaceError
from gramercy.text import counted
from gramercy.toolsets.factory import text
from gramercy.toolsets.lisp_definitions import LISP
from gramercy.toolsets.python_text import PYTHON
from gramercy.toolsets.rewriting import LARGEST_TEXT, faults_text, language_of, reader_of

if TYPE_CHECKING:
    from gramercy.images.image import Image
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.outlines import Outline
    from gramercy.toolsets.workspace import Workspace

# Later faults mostly follow from the first ones.
MOST_FAULTS = 10


def checking_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tool."""
    return [
        workshop.make(
            "check_syntax",
            "Check the syntax of a Lisp or Python file, or of code, without evaluating it: the number of "
            "top-level forms, or every fault with its line and the likely place of an imbalance.",
            {
                "path": text("Path of the file, relative to the project directory"),
                "code": text("Code to check instead, in the language of the image"),
            },
            lambda image, a: _checked(image, workspace, a),
            categories=["filesystem"],
            title="Check syntax",
            paths=workspace.declared("check_syntax"),
        )
    ]


def _checked(image: Image, workspace: Workspace, arguments: dict[str, Any]) -> str:
    path, code = arguments.get("path"), arguments.get("code")
    if (path is None) == (code is None):
        raise WorkspaceError("give either path or code")
    if path is None:
        name, language, source = "code", (LISP if image.language == "sbcl" else PYTHON), str(code)
    else:
        place = workspace.place(path)
        name, language, source = f"{place}", language_of(place), workspace.read(place).text
    if len(source) > LARGEST_TEXT:
        raise WorkspaceError(
            f"{name} has {len(source):,} characters: {LARGEST_TEXT:,} are the most that are checked"
        )
    language = reader_of(language, image, source)
    return _told(language.outline(source), source, name, language.name)


def _told(outline: Outline, source: str, name: str, language: str) -> str:
    forms = "statement" if language == "Python" else "form"
    if not outline.faults:
        count = counted(outline.forms, f"top-level {forms}")
        return "\n".join([f"{name}: ok, {count}.", *outline.suspicions, *outline.unchecked])
    faults = outline.faults
    more = [f"… {len(faults) - MOST_FAULTS} more"] if len(faults) > MOST_FAULTS else []
    count = counted(len(faults), "fault")
    if language == "Python":
        count = "a fault, at which reading ends"
    if outline.unchecked:
        more.append("Not all is checked, so that a fault may be none:")
    shown = faults_text(faults[:MOST_FAULTS], source, name)
    return "\n".join([f"{name}: {count}.", shown, *outline.suspicions, *more, *outline.unchecked])
