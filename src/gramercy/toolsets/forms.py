"""Change a definition in a file by its name, and load a file into an image."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import structs

from gramercy.errors import ImageError, WorkspaceError
from gramercy.tools.content import TextWithFacts, ToolOutput
from gramercy.toolsets.editing import Change, editing_tool
from gramercy.toolsets.factory import Running, facts_of_reply, flag, present_state, text
from gramercy.toolsets.outlines import shortened
from gramercy.toolsets.rendering import CHANGES, ROOM, told
from gramercy.toolsets.workspace import encoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from gramercy.images.base import Image, Reply, Watcher
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.documents import Document
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.outlines import Definition, Language
    from gramercy.toolsets.workspace import Workspace

ACTIONS = ("replace", "insert_before", "insert_after", "delete")
SPOKEN = {"sbcl": "Lisp", "python": "Python"}
# What was defined is mostly what is in the file: its first names show that it was the right one.
MOST_CHANGES = 12
FEW_CHANGES = 3
LONGEST_CHANGES = 1_500
# Names of definitions in the code of a call; the rest is counted.
MOST_NAMES = 10
LONGEST_DECORATORS = 200
# What SBCL says when a form of a file fails, and the frames of what loads a file.
FAILED_FORM = re.compile(r"While evaluating the form starting at line (\d+)")
LOADER = re.compile(r"EVAL-TLF |LOAD-AS-SOURCE|\d: \(LOAD \"|import_module\(name=")
# A script may run as long as it wants in the terminal; here the image's own limit holds.
SCRIPT = '__import__("runpy").run_path({path!r}, run_name="__main__") and None'
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
            "load": flag("Load the file into the image afterwards", default=False),
        },
        change=lambda a: _change(workshop, workspace, a),
        narrowed=lambda a, before, after: _narrowed(workshop, workspace, a, (before, after)),
        then=lambda a: _live(workshop, workspace, a),
        also=lambda a: _live_state(workshop, a),
        required=["path", "name"],
        hidden=("code",),
        open_world=workshop.open_world,
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
        language = reader_of(language, _speaker(workshop, language.name), document.text, code)
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
    """Refuse a change after which the file cannot be read."""
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
    """Return what may not have been meant."""
    if action == "delete":
        return []
    own = [each for each in language.part(code).definitions if each.keys and not each.parent]
    if not own:
        return ["The code has no definition."]
    more = f" and {len(own) - MOST_NAMES} more" if len(own) > MOST_NAMES else ""
    names = ", ".join(shortened(each.name) for each in own[:MOST_NAMES]) + more
    old_keys = old.keys | old.weak_keys
    if action == "replace" and not any((each.keys | each.weak_keys) & old_keys for each in own):
        return [f"The code defines {names}, not {old.name}."]
    notes = [f"The code has {len(own)} definitions: {names}."] if len(own) > 1 else []
    return notes + (_lost(language, text, old, own) if action == "replace" else [])


def _lost(language: Language, text: str, old: Definition, own: list[Definition]) -> list[str]:
    """Tell what the old text had and the new one has not."""
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
    """Write the hunks that a person took as a call that replaces the definition."""
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
        lambda image, a: load_into(image, workspace, a, a.get("timeout")),
        lambda image, a, watch: _begun(image, workspace, a, watch),
        lambda reply, a: loaded_text(reply, a, can_read_on=workshop.has("read_output")),
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
        target=lambda image, a: f"{present_state(image, a)} {workspace.state(a['path'])}",
    )


def _live_state(workshop: Workshop, arguments: Mapping[str, Any]) -> str:
    """Name the state of the image into which the file would be loaded; nothing where it would not be."""
    if not arguments.get("load"):
        return ""
    from gramercy.toolsets.rewriting import language_of

    image = _speaker(workshop, language_of(arguments["path"]).name)
    return present_state(image, arguments) if image is not None else ""


def _live(workshop: Workshop, workspace: Workspace, arguments: dict[str, Any]) -> str:
    """Load the file that was edited, where that was asked for, and tell what came of it."""
    if not arguments.get("load"):
        return ""
    from gramercy.toolsets.rewriting import language_of

    language = language_of(arguments["path"]).name
    image = _speaker(workshop, language)
    if image is None:
        return f"It was not loaded: there is no image of {language}."
    given = {"path": arguments["path"]}
    reply = load_into(image, workspace, given)
    # The caller knows the file: of more than a few names the number is enough.
    result = loaded_text(reply, given, can_read_on=workshop.has("read_output"), most=FEW_CHANGES)
    # The file is written in any case.
    shown = str(result.error if isinstance(result, ToolOutput) else result)
    if arguments.get("action") == "delete" and language == "Lisp":
        shown += "\nThe image still has what was deleted, if it had it."
    return TextWithFacts(shown, facts_of_reply(image, reply))


def _speaker(workshop: Workshop, language: str) -> Image | None:
    """Return the first image that speaks a language."""
    images = map(workshop.source.get, workshop.source.handles())
    return next((each for each in images if SPOKEN.get(each.language) == language), None)


def load_into(
    image: Image, workspace: Workspace, arguments: dict[str, Any], timeout: float | None = None
) -> Reply:
    """Load the file of a call into an image, and wait."""
    code, is_system = _request(image, workspace, arguments)
    return image.load_system(code, timeout=timeout) if is_system else image.evaluate(code, timeout=timeout)


def _begun(
    image: Image, workspace: Workspace, arguments: dict[str, Any], watch: Watcher
) -> Reply | Awaitable[Reply]:
    code, is_system = _request(image, workspace, arguments)
    timeout = arguments.get("timeout")
    if is_system:
        return image.aload_system(code, timeout=timeout, watch=watch)
    return image.begin(code, timeout=timeout, watch=watch)


def _request(image: Image, workspace: Workspace, arguments: dict[str, Any]) -> tuple[str, bool]:
    """Return what to evaluate or, where the second value is true, to load as a system."""
    from gramercy.toolsets.lisp_text import string_of
    from gramercy.toolsets.rewriting import language_of

    path = arguments["path"]
    language, spoken = language_of(path).name, SPOKEN.get(image.language, image.language)
    if language != spoken:
        raise ImageError(
            f"{path} is {language}, and {image.name} is an image of {spoken}: name another image"
        )
    # Refuses what is no text or not there, in its own words.
    workspace.read(path)
    place = str(workspace.resolve(path))
    if language == "Lisp":
        if arguments.get("as_script"):
            raise WorkspaceError("as_script is for Python: a Lisp file is loaded without it")
        return f"(load {string_of(place)})", False
    return (SCRIPT.format(path=place), False) if arguments.get("as_script") else (place, True)


def loaded_text(
    reply: Reply, arguments: dict[str, Any], *, can_read_on: bool, most: int = MOST_CHANGES
) -> Any:
    """Tell what came of loading a file: the verdict first, what it defined, and what else there is."""
    path, verb = arguments["path"], "Ran" if arguments.get("as_script") else "Loaded"
    defined = _defined(reply, most)[:LONGEST_CHANGES]
    # What was loaded as a system is in no history, so that nothing reads on in it.
    can_read_on = can_read_on and reply.system is None
    rest = told(_without_loader(reply), can_read_on=can_read_on, room=ROOM - LONGEST_CHANGES - len(path))
    if reply.error is not None or not reply.ok:
        line = FAILED_FORM.search(reply.stderr)
        verdict = f"{path}{f':{line[1]}' if line else ''} failed: the file was not loaded to its end."
        return ToolOutput(None, error="\n\n".join(filter(None, [verdict, defined, rest])))
    counts = Counter(notice.kind for notice in reply.warnings)
    counted = ", ".join(f"{n} {kind.replace('-', ' ')}{'s' if n > 1 else ''}" for kind, n in counts.items())
    module = f" as {reply.system}" if reply.system else ""
    verdict = f"{verb} {path}{module}" + (f", with {counted}." if counted else ".")
    return "\n\n".join(filter(None, [verdict + (f"\n{defined}" if defined else ""), rest]))


def _without_loader(reply: Reply) -> Reply:
    """Leave out the frames of the function that loads."""
    if reply.error is None:
        return reply
    frames = reply.error.backtrace
    last = next((n for n, frame in enumerate(frames) if LOADER.search(frame)), len(frames))
    return structs.replace(reply, error=structs.replace(reply.error, backtrace=frames[:last]))


def _defined(reply: Reply, most: int) -> str:
    """List what was defined, by what happened to it."""
    # A reload of a Python module sets __doc__ and its like anew.
    told = [each for each in reply.changed if not each.name.endswith("__")]
    parts = []
    for how in sorted({change.change for change in told}, key=lambda how: CHANGES.get(how, 0)):
        names = [f"{each.kind} {each.name}" for each in told if each.change == how]
        # A file that is loaded again redefines all that it has: what is new matters more.
        shown = FEW_CHANGES if how == "redefined" and len(names) > most // 2 else most
        more = f" and {len(names) - shown} more" if len(names) > shown else ""
        parts.append(f"{how.capitalize()}: {', '.join(names[:shown])}{more}.")
    return "\n".join(parts)
