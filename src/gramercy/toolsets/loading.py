"""Load a file into an image, on request or right after it was written, and report the result.

When a file was written without being loaded, and an image has loaded it before, the answer says so: the image
runs the loaded version until an evaluation picks up the edit.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from msgspec import structs

from gramercy.errors import ImageError, WorkspaceError
from gramercy.images.requests import Evaluate, Load, TakeUp
from gramercy.text import counted, listed
from gramercy.tools.content import RunFacts, TextWithFacts, ToolOutput, facts_of, with_facts
from gramercy.toolsets.factory import facts_of_reply, flag, present_state
from gramercy.toolsets.rendering import CHANGES, ROOM, told

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gramercy.images.base import Answer, Reply
    from gramercy.images.image import Image
    from gramercy.images.requests import Work
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.paths import RealPlace
    from gramercy.toolsets.workspace import Workspace

SPOKEN = {"sbcl": "Lisp", "python": "Python"}
# The definitions are mostly those of the file. The first names show that it was the right one.
MOST_CHANGES = 12
FEW_CHANGES = 3
LONGEST_CHANGES = 1_500
# SBCL's message when a form of a file fails, and the frames of the loader.
FAILED_FORM = re.compile(r"While evaluating the form starting at line (\d+)")
LOADER = re.compile(r"\d: (?:ASDF and )?the loader$|import_module\(name=")
# In a terminal a script may run as long as it wants. Here the image's own timeout holds.
SCRIPT = '__import__("runpy").run_path({path!r}, run_name="__main__") and None'
# Callers of redefined functions are recompiled in both cases.
WHOLE = "(load {})\n(gramercy:refresh)"
CHANGES_OF = "(gramercy:load-changes {})"
LISP_SUFFIXES = (".lisp", ".lsp", ".cl")
GOES_ON = "The image goes on with what it has loaded of this file: load true takes the change up."
# The beginning of a reply about edited files.
FAILED = "The module stays as it was: "
EDITED = ("took up ", FAILED, "changed since it was loaded: ")
# The argument of the tools that write a file.
LOAD = flag("Load it too")


def check_loadable(arguments: Mapping[str, Any]) -> None:
    """Refuse to load a file that is neither Lisp nor Python, before anything is written."""
    if arguments.get("load"):
        from gramercy.toolsets.rewriting import language_of

        language_of(arguments["path"])


def state_for_load(workshop: Workshop, arguments: Mapping[str, Any]) -> str:
    """Name the state of the image that would load the file. Empty if the file would not be loaded."""
    if not arguments.get("load"):
        return ""
    from gramercy.toolsets.rewriting import language_of

    image = speaker(workshop, language_of(arguments["path"]).name)
    return present_state(image, arguments) if image is not None else ""


def after_writing(workshop: Workshop, workspace: Workspace, arguments: Mapping[str, Any]) -> str | ToolOutput:
    """Load the written file, if the call asked for it, and report the result."""
    if not arguments.get("load"):
        return _told_of_old_code(workshop, arguments["path"])
    from gramercy.toolsets.rewriting import language_of

    language = language_of(arguments["path"]).name
    image = speaker(workshop, language)
    if image is None:
        return f"It was not loaded: there is no image of {language}."
    load = _load_python if language == "Python" else _load_lisp
    told = load(workshop, workspace, image, arguments)
    # Both are one call, and one step of undo.
    workspace.note_load(image.name, image.changed_at())
    return told


def with_load(done: str, more: str | ToolOutput, file: str) -> Any:
    """Return the result of a call that has written a file: its effect, and the result of the load.

    A failed load is a failure of the call, although the file stays written.
    """
    facts = facts_of(more) or RunFacts()
    facts = structs.replace(facts, files=(file, *facts.files))
    if isinstance(more, ToolOutput):
        return with_facts(ToolOutput(None, error=f"{done}\n{more.error}"), facts)
    return with_facts("\n".join(filter(None, [done, more])), facts)


def _told_of_old_code(workshop: Workshop, path: RealPlace) -> str:
    """Describe the loaded version of a file, if the image has loaded it. Nothing is started or awaited."""
    suffix = PurePath(path.name).suffix.lower()
    if suffix == ".py":
        return _told_of_old_module(workshop, path)
    return _told_of_old_forms(workshop, path) if suffix in LISP_SUFFIXES else ""


def _told_of_old_forms(workshop: Workshop, path: RealPlace) -> str:
    """Say that a Lisp image keeps its loaded version of a file. Empty where no form differs."""
    answers = _asked(workshop, "sbcl", "loaded_file", path)
    return GOES_ON if any(answer.data.get("behind") is True for answer in answers) else ""


def _told_of_old_module(workshop: Workshop, path: RealPlace) -> str:
    """Describe the loaded version of a Python file, if any. Nothing is started or awaited."""
    for answer in _asked(workshop, "python", "loaded_from", path):
        name = str(answer.data.get("module", ""))
        # The answer comes from a process that runs evaluated code. Accept nothing but a module name.
        if all(part.isidentifier() for part in name.split(".")):
            return f"{name} is loaded from it: {_fate(answer.data)}."
    return ""


def _asked(workshop: Workshop, language: str, question: str, path: RealPlace) -> Iterator[Answer]:
    """Ask the idle images of a language about a file. Yield the successful answers."""
    for image in map(workshop.source.get, workshop.source.handles()):
        view = image.look()
        if view.language == language and view.state == "idle":
            with contextlib.suppress(ImageError):
                answer = image.ask(question, file=path.absolute)
                if answer.ok:
                    yield answer


def _fate(data: Mapping[str, Any]) -> str:
    if data.get("reload") == "auto":
        return "the next evaluation takes the edit up"
    return "its old code runs until it is loaded again"


def _load_lisp(
    workshop: Workshop, workspace: Workspace, image: Image, arguments: Mapping[str, Any]
) -> str | ToolOutput:
    """Load the changes of a Lisp file that was just written, into an image that speaks Lisp."""
    # Resolve it again: the written file is a new one.
    given = {"path": arguments["path"].name, "changes": True}
    return _with_loaded(workshop, image, given, image.run(loading(image, workspace, given)))


def _load_python(
    workshop: Workshop, workspace: Workspace, image: Image, arguments: Mapping[str, Any]
) -> str | ToolOutput:
    """Let the image pick up a Python file that was just written. The file stays written in any case."""
    given = {"path": arguments["path"].name}
    work = loading(image, workspace, given)
    reply = image.run(TakeUp(work.text))
    if reply.error is not None or not any(note.startswith(EDITED) for note in reply.notes):
        return _with_loaded(workshop, image, given, reply)
    told, facts = "\n".join(reply.notes), facts_of_reply(image, reply)
    if any(note.startswith(FAILED) for note in reply.notes):
        failed: ToolOutput = with_facts(ToolOutput(None, error=told), facts)
        return failed
    return TextWithFacts(told, facts)


def _with_loaded(
    workshop: Workshop, image: Image, given: dict[str, Any], reply: Reply
) -> TextWithFacts | ToolOutput:
    # The caller knows the file: for more than a few names the number is enough.
    result = loaded_text(reply, given, workshop, most=FEW_CHANGES)
    facts = facts_of_reply(image, reply)
    return with_facts(result, facts) if isinstance(result, ToolOutput) else TextWithFacts(result, facts)


def speaker(workshop: Workshop, language: str) -> Image | None:
    """Return the first image that speaks a language."""
    images = map(workshop.source.get, workshop.source.handles())
    return next((each for each in images if SPOKEN.get(each.language) == language), None)


def loading(image: Image, workspace: Workspace, arguments: dict[str, Any]) -> Work[Reply]:
    """Return the work that loads the file of a call."""
    from gramercy.toolsets.lisp_text import string_of
    from gramercy.toolsets.rewriting import language_of

    path = workspace.place(arguments["path"])
    language, spoken = language_of(path).name, SPOKEN.get(image.language, image.language)
    if language != spoken:
        raise ImageError(
            f"{path} is {language}, and {image.name} is an image of {spoken}: name another image"
        )
    # Refuses, in its own words, a file that is not text, is missing, or is not the approved one.
    workspace.check_sealed(path, workspace.read(path).digest)
    place = path.absolute
    if language == "Lisp":
        if arguments.get("as_script"):
            raise WorkspaceError("as_script is for Python: a Lisp file is loaded without it")
        return Evaluate((CHANGES_OF if arguments.get("changes") else WHOLE).format(string_of(place)))
    return Evaluate(SCRIPT.format(path=place)) if arguments.get("as_script") else Load(place)


def loaded_text(
    reply: Reply, arguments: dict[str, Any], workshop: Workshop, *, most: int = MOST_CHANGES
) -> Any:
    """Describe the result of a load: the verdict first, then its definitions, then the rest."""
    path, verb = arguments["path"], "Ran" if arguments.get("as_script") else "Loaded"
    defined = _defined(reply, most)[:LONGEST_CHANGES]
    # A load of a system is not in the history, so no tool can page through it.
    can_read_on = workshop.has("read_output") and reply.system is None
    rest = told(_without_loader(reply), can_read_on=can_read_on, room=ROOM - LONGEST_CHANGES - len(path))
    if reply.error is not None or not reply.ok:
        line = FAILED_FORM.search(reply.stderr)
        verdict = f"{path}{f':{line[1]}' if line else ''} failed: the file was not loaded to its end."
        parts = [verdict, defined, rest, workshop.moment_of(reply)]
        return ToolOutput(None, error="\n\n".join(filter(None, parts)))
    counts = Counter(notice.kind for notice in reply.warnings)
    notices = ", ".join(counted(n, kind.replace("-", " ")) for kind, n in counts.items())
    module = f" as {reply.system}" if reply.system else ""
    verdict = f"{verb} {path}{module}" + (f", with {notices}." if notices else ".")
    return "\n\n".join(filter(None, [verdict + (f"\n{defined}" if defined else ""), rest]))


def _without_loader(reply: Reply) -> Reply:
    """Remove the frames of the loader."""
    if reply.error is None:
        return reply
    frames = reply.error.backtrace
    last = next((n for n, frame in enumerate(frames) if LOADER.search(frame)), len(frames))
    return structs.replace(reply, error=structs.replace(reply.error, backtrace=frames[:last]))


def _defined(reply: Reply, most: int) -> str:
    """List the definitions, grouped by how they changed."""
    # A reload of a Python module sets __doc__ and the like anew.
    told = [each for each in reply.changed if not each.name.endswith("__")]
    parts = []
    for how in sorted({change.change for change in told}, key=lambda how: CHANGES.get(how, 0)):
        names = [f"{each.kind} {each.name}" for each in told if each.change == how]
        # A file that is loaded again redefines all its names. New names matter more.
        shown = FEW_CHANGES if how == "redefined" and len(names) > most // 2 else most
        parts.append(f"{how.capitalize()}: {listed(names, shown, counts=True)}.")
    return "\n".join(parts)
