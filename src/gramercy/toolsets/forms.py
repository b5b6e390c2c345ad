"""Change a definition in a file by name, and load a file into an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gramercy.errors import WorkspaceError
from gramercy.text import listed
from gramercy.toolsets.editing import Change, editing_tool
from gramercy.toolsets.factory import Running, as_evaluation, flag, present_state, text
from gramercy.toolsets.loading import (
    LOAD,
    after_writing,
    loaded_text,
    loading,
    speaker,
    state_for_load,
)
from gramercy.toolsets.outlines import shortened
from gramercy.toolsets.workspace import encoded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.tools.tool import Tool
    from gramercy.toolsets.documents import Document
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.outlines import Definition, Language
    from gramercy.toolsets.workspace import Workspace

ACTIONS = ("replace", "insert_before", "insert_after", "delete")
# Names of definitions listed for the code of a call. The rest is counted.
MOST_NAMES = 10
LONGEST_DECORATORS = 200
DONE = {
    "replace": "Replaced",
    "insert_before": "Inserted before",
    "insert_after": "Inserted after",
    "delete": "Deleted",
}


def form_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the tools."""
    return [_edit_definition(workshop, workspace), _load_file(workshop, workspace)]


def _edit_definition(workshop: Workshop, workspace: Workspace) -> Tool:
    return editing_tool(
        workspace,
        "edit_definition",
        workshop.told(
            "Replace, delete or add a definition of a Lisp or Python file by name. The syntax is checked; a "
            "person sees the difference and decides hunk by hunk.",
            ("edit_file", "For a few lines of a long definition use edit_file."),
        ),
        {
            "path": text("Path of the file in the project"),
            "name": text(
                "Such as area, Circle.area, (setf area), (defmethod area ((s circle))) or name@line",
                minLength=1,
            ),
            "code": text("The new definition"),
            "action": text("What to do there", enum=list(ACTIONS), default="replace"),
            "load": LOAD,
        },
        change=lambda a: _change(workshop, workspace, a),
        narrowed=lambda a, before, after: _narrowed(workshop, workspace, a, (before, after)),
        then=lambda a: after_writing(workshop, workspace, a),
        also=lambda a: state_for_load(workshop, a),
        required=["path", "name"],
        hidden=("code",),
        open_world=workshop.open_world,
        title="Edit a definition",
        judged_as=as_evaluation("code", load=True),
        categories=["filesystem"],
    )


@dataclass(frozen=True, slots=True)
class FormChange(Change):
    """The change of a file that a call would make, and the remarks about it."""

    action: str
    old: Definition
    notes: tuple[str, ...]

    def told(self, path: str) -> str:
        """Describe the lines that are there now, and remarks about possible mistakes."""
        done = f"{DONE[self.action]} {shortened(self.old.exact)}"
        return "\n".join([f"{done}. {Change.told(self, path)}", *self.notes])


def _change(workshop: Workshop, workspace: Workspace, arguments: Mapping[str, Any]) -> FormChange:
    # The readers of text take longer to import than a server may take to list its tools.
    from gramercy.toolsets.rewriting import LARGEST_TEXT, language_of, reader_of

    path, action = arguments["path"], arguments.get("action", "replace")
    language = language_of(path)
    workspace.state(path)
    document = workspace.read(path)
    code = document.script.shown(arguments.get("code", "")).replace("\r\n", "\n")
    if len(document.text) <= LARGEST_TEXT:
        language = reader_of(language, speaker(workshop, language.name), document.text, code)
    _check_code(language, action, code)
    old, after = _rewritten(document, language, arguments["name"], action, code)
    _check_whole(language, document, after, action)
    encoded(document.script, after, path)
    return FormChange(document, after, action, old, tuple(_notes(language, document.text, old, action, code)))


def _check_code(language: Language, action: str, code: str) -> None:
    """Refuse code that cannot be parsed, before the file is read."""
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
        from gramercy.toolsets.rewriting import faults_text

        raise WorkspaceError(
            f"the code cannot be read, and nothing was written.\n{faults_text(faults, code, 'code')}"
        )


def _rewritten(
    document: Document, language: Language, name: str, action: str, code: str
) -> tuple[Definition, str]:
    from gramercy.toolsets.rewriting import LARGEST_TEXT, Rewriting, faults_text, find

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
    """Refuse a change after which the file cannot be parsed."""
    if after == document.text:
        raise WorkspaceError(f"{document.name} already has that text: nothing would change")
    faults = language.outline(after).faults
    if faults:
        from gramercy.toolsets.rewriting import faults_text

        empty = " What is around it would be empty: replace it, with pass say." if action == "delete" else ""
        raise WorkspaceError(
            f"{document.name} could not be read after the change, and nothing was written.{empty}\n"
            f"{faults_text(faults, after, document.name)}"
        )


def _notes(language: Language, text: str, old: Definition, action: str, code: str) -> list[str]:
    """Return remarks about possible mistakes."""
    if action == "delete":
        return []
    own = [each for each in language.part(code).definitions if each.keys and not each.parent]
    if not own:
        return ["The code has no definition."]
    names = listed([shortened(each.name) for each in own], MOST_NAMES, counts=True)
    old_keys = old.keys | old.weak_keys
    if action == "replace" and not any((each.keys | each.weak_keys) & old_keys for each in own):
        return [f"The code defines {names}, not {old.name}."]
    notes = [f"The code has {len(own)} definitions: {names}."] if len(own) > 1 else []
    return notes + (_lost(language, text, old, own) if action == "replace" else [])


def _lost(language: Language, text: str, old: Definition, own: list[Definition]) -> list[str]:
    """Describe the parts of the old text that the new one lacks."""
    lost = []
    if language.name == "Python" and old.start != old.outer and all(each.start == each.outer for each in own):
        gone = " ".join(text[old.outer : old.start].split())
        lost.append(f"The decorators are gone with the old text: {gone[:LONGEST_DECORATORS]}")
    if old.is_documented and not any(each.is_documented for each in own):
        lost.append("The old text had documentation, and the code has none.")
    return lost


def _narrowed(
    workshop: Workshop, workspace: Workspace, arguments: Mapping[str, Any], texts: tuple[str, str]
) -> dict[str, Any]:
    """Write the accepted hunks as a call that replaces the definition."""
    before, after = texts
    made = _change(workshop, workspace, arguments)
    rest = len(before) - made.old.end
    first = made.old.lead
    kept = {name: arguments[name] for name in ("path", "name", "load") if name in arguments}
    narrowed = {**kept, "action": "replace", "code": after[first : len(after) - rest]}
    if _change(workshop, workspace, narrowed).after != after:
        raise WorkspaceError("these hunks do not make a definition: take all of them, or none")
    return narrowed


def _load_file(workshop: Workshop, workspace: Workspace) -> Tool:
    running = Running(
        lambda image, a: loading(image, workspace, a),
        lambda reply, a: loaded_text(reply, a, workshop),
    )
    return running.make(
        workshop,
        "load_file",
        "Load a file of the project into the running image: Lisp source, compiled; a Python file into "
        "the module that it is, again in place when it was loaded before. Returns what it defined, "
        "warnings with file:line, or the error. Use it after you have changed a file.",
        {
            "path": text("Path of the file, relative to the project directory"),
            "as_script": flag("Python: run it as a program, with __name__ == '__main__'", default=False),
        },
        required=["path"],
        level="cautious",
        categories=["execution"],
        title="Load a file",
        judged_as=as_evaluation(),
        target=lambda image, a: f"{present_state(image, a)} {workspace.state(a['path'])}",
        paths=workspace.declared("load_file"),
    )
