"""The tool that changes a definition in a file by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gramercy.errors import WorkspaceError
from gramercy.toolsets.editing import Change, editing_tool
from gramercy.toolsets.factory import text
from gramercy.toolsets.python_text import PYTHON
from gramercy.toolsets.rewriting import LARGEST_TEXT, Rewriting, faults_text, find, language_of
from gramercy.toolsets.workspace import encoded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.tools.tool import Tool
    from gramercy.toolsets.documents import Document
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.outlines import Definition, Language
    from gramercy.toolsets.workspace import Workspace

ACTIONS = ("replace", "insert_before", "insert_after", "delete")
DONE = {
    "replace": "Replaced",
    "insert_before": "Inserted before",
    "insert_after": "Inserted after",
    "delete": "Deleted",
}


def form_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tools."""
    return [_edit_definition(workshop, workspace)]


def _edit_definition(workshop: Workshop, workspace: Workspace) -> Tool:
    del workshop
    return editing_tool(
        workspace,
        "edit_definition",
        "Replace, delete or add a whole definition of a Lisp or Python file by name: function, method, class "
        "or variable. The syntax is checked before anything is written. A person sees the difference and "
        "decides hunk by hunk. For a small change inside of a long definition use edit_file.",
        {
            "path": text("Path of the file, relative to the project directory"),
            "name": text(
                "Name of the definition, such as area, Circle.area, (setf area), "
                "(defmethod area ((s circle))), or name@line",
                minLength=1,
            ),
            "code": text("The new definition, with its comments if they change"),
            "action": text("What to do with it", enum=list(ACTIONS), default="replace"),
        },
        change=lambda a: _change(workspace, a),
        narrowed=lambda a, before, after: _narrowed(workspace, a, before, after),
        required=["path", "name"],
        hidden=("code",),
        title="Edit a definition",
        categories=["filesystem"],
    )


@dataclass(frozen=True, slots=True)
class FormChange(Change):
    """What a call would make of a file, and what is to be told of it."""

    action: str
    old: Definition
    notes: tuple[str, ...]

    def told(self, path: str) -> str:
        """Tell which lines are there now, and what may not have been meant."""
        done = f"{DONE[self.action]} {self.old.exact.partition('@')[0]}"
        return "\n".join([f"{done}. {Change.told(self, path)}", *self.notes])


def _change(workspace: Workspace, arguments: Mapping[str, Any]) -> Change:
    path, action = arguments["path"], arguments.get("action", "replace")
    language = language_of(path)
    workspace.state(path)
    document = workspace.read(path)
    code = document.script.shown(arguments.get("code", "")).replace("\r\n", "\n")
    _check_code(language, action, code)
    old, after = _rewritten(document, language, arguments["name"], action, code)
    _check_whole(language, document, after, action)
    encoded(document.script, after, path)
    return FormChange(document, after, action, old, tuple(_notes(language, document.text, old, action, code)))


def _check_code(language: Language, action: str, code: str) -> None:
    """Refuse code that cannot be read, before the file is looked at."""
    if action == "delete":
        if code.strip():
            raise WorkspaceError("delete takes no code: leave it out, or choose the action replace")
        return
    if not code.strip():
        raise WorkspaceError(
            f"code is empty: give the definition to {action.partition('_')[0]}, or choose the action delete"
        )
    faults = language.part(code).faults
    if faults:
        raise WorkspaceError(
            f"the code cannot be read, and nothing was written.\n{faults_text(faults, code, 'code')}"
        )


def _rewritten(
    document: Document, language: Language, name: str, action: str, code: str
) -> tuple[Definition, str]:
    text = document.text
    if len(text) > LARGEST_TEXT:
        raise WorkspaceError(
            f"{document.name} has {len(text):,} characters, too many to look for definitions: use edit_file"
        )
    outline = language.outline(text)
    if outline.faults and not outline.definitions:
        raise WorkspaceError(
            f"{document.name} cannot be read, so its definitions are not known: correct it with edit_file.\n"
            f"{faults_text(outline.faults, text, document.name)}"
        )
    old = find(outline, language, name, document.name)
    if not old.is_alone:
        raise WorkspaceError(f"{old.name} shares line {old.line} with something else: use edit_file")
    rewriting = Rewriting(text, outline, language)
    if action == "replace":
        return old, rewriting.replaced(old, code)
    if action == "delete":
        return old, rewriting.deleted(old)
    return old, rewriting.inserted(old, code, after=action == "insert_after")


def _check_whole(language: Language, document: Document, after: str, action: str) -> None:
    """Refuse a change after which the file cannot be read."""
    if after == document.text:
        raise WorkspaceError(f"{document.name} already has that text: nothing would change")
    faults = language.outline(after).faults
    if faults:
        empty = " What is around it would be empty: replace it, with pass say." if action == "delete" else ""
        raise WorkspaceError(
            f"{document.name} could not be read after the change, and nothing was written.{empty}\n"
            f"{faults_text(faults, after, document.name)}"
        )


def _notes(language: Language, text: str, old: Definition, action: str, code: str) -> list[str]:
    """Return what may not have been meant."""
    if action == "delete":
        return []
    defined = language.part(code).definitions
    own = [each for each in defined if each.keys and not each.parent]
    names = ", ".join(each.name for each in own)
    notes = []
    if not own:
        notes.append("The code has no definition.")
    elif action == "replace" and not any(
        (each.keys | each.weak_keys) & (old.keys | old.weak_keys) for each in own
    ):
        notes.append(f"The code defines {names}, not {old.name}.")
    elif len(own) > 1:
        notes.append(f"The code has {len(own)} definitions: {names}.")
    if (
        action == "replace"
        and language is PYTHON
        and old.start != old.outer
        and all(e.start == e.outer for e in own)
    ):
        gone = " ".join(text[old.outer : old.start].split())
        notes.append(f"The decorators are gone with the old text: {gone[:200]}")
    return notes


def _narrowed(workspace: Workspace, arguments: Mapping[str, Any], before: str, after: str) -> dict[str, Any]:
    """Write the hunks that a person took as a call that replaces the definition."""
    made = _change(workspace, arguments)
    assert isinstance(made, FormChange)  # noqa: S101 - what it makes
    rest = len(before) - made.old.end
    first = made.old.lead
    kept = {name: arguments[name] for name in ("path", "name") if name in arguments}
    narrowed = {**kept, "action": "replace", "code": after[first : len(after) - rest]}
    if _change(workspace, narrowed).after != after:
        raise WorkspaceError("these hunks do not make a definition: take all of them, or none")
    return narrowed
