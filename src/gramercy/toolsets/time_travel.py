"""Tools that preview, name, list and undo states of an image, and one that inspects an object."""

from __future__ import annotations

from time import localtime, strftime
from typing import TYPE_CHECKING, Any

from msgspec import structs

from gramercy.errors import ImageError
from gramercy.images.files.telling import changes_text, outcomes_text
from gramercy.tools.content import RunFacts, ToolOutput, with_facts
from gramercy.toolsets.evaluation import output_tool
from gramercy.toolsets.factory import (
    MOST_FILES,
    PACKAGE,
    array_of,
    as_evaluation,
    flag,
    present_state,
    text,
    unknown_files,
    whole,
)
from gramercy.toolsets.jobs import stop_tool
from gramercy.toolsets.rendering import LONGEST_ANSWER, answered, preview_text, with_pictures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gramercy.images.asking import Comparison, Difference
    from gramercy.images.base import Answer, CheckpointInfo
    from gramercy.images.files.changes import FileOutcome
    from gramercy.images.image import Image
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.workspace import Workspace

# Parts of an object that are listed with ids: about as many as a model looks at before the next one.
MOST_PARTS = 40
LONGEST_PARTS = 2_000
# Characters of a value or of parameters in a comparison. Two of them share a line.
LONGEST_SIDE = 60
# Undone calls that are named. The rest is counted.
MOST_UNDONE = 5
# A label is a name in a list of states, one line each.
LONGEST_LABEL = 100
WAYS = (
    "Where the state before was not kept: replay runs the calls since the last kept state again, but for the "
    "last one, and repeats their effects; definitions puts back what the last call defined, and no more"
)
UNDONE = {
    "state": "The image is back at",
    "replay": "The last call is taken back as told below. The newest kept state is",
    "definitions": "Definitions are put back as listed. The newest kept state is",
}
NOT_UNDONE = "Files that evaluated code changed go back too, unless others changed them; other effects stay."
# For an edit of a tool that was undone together with the state that loaded it.
MAKE_AGAIN = "To redo it, make the edit again: the states that are kept do not have it."
FILES = flag("False leaves files as they are", default=True)
# The same facts as in the text, for programs.
CHECKPOINTS = array_of(
    "checkpoints",
    id={"type": "string"},
    parent={"type": ["string", "null"]},
    label={"type": "string"},
    at={"type": "number", "description": "Seconds since 1970"},
    is_current={"type": "boolean"},
    private_bytes={"type": ["integer", "null"]},
    files={"type": "array", "items": {"type": "string"}, "description": "Files changed on the way to it"},
)


def time_travel_tools(workshop: Workshop, workspace: Workspace | None = None) -> list[Tool]:
    """Make the tools: six that inspect states and objects or switch states, two for output and jobs.

    Writes of tools in the workspace are undone as well.
    """
    return [
        _preview(workshop),
        *_looking(workshop),
        output_tool(workshop),
        stop_tool(workshop),
        *_going(workshop, workspace),
    ]


def _preview(workshop: Workshop) -> Tool:
    return workshop.make(
        "preview_form",
        "Show what evaluating code would do, without doing it: output, values or error, the definitions "
        "it would change, and the files or connections it would touch. It runs in a throw-away copy of "
        "the image that gives up its rights first: that holds back mistakes, not malice, once hostile code "
        "was evaluated. Use it before an evaluation that you are not sure of.",
        {"code": text("The code, as for an evaluation"), "package": PACKAGE},
        _previewed,
        required=["code"],
        level="cautious",
        categories=["time-travel"],
        title="Preview an evaluation",
        # These hints hold for an image that has not evaluated hostile code. The copy gives up its rights by
        # its own code, so the tool does not claim to be read-only.
        destructive=False,
        idempotent=True,
        aliases=_form,
        # The copy gives up its rights itself, so the rules treat a preview as an evaluation.
        judged_as=as_evaluation("code"),
    )


def _form(arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Accept the argument name of eval_form."""
    if "form" not in arguments or "code" in arguments:
        return arguments, ""
    rest = {name: value for name, value in arguments.items() if name != "form"}
    return {**rest, "code": arguments["form"]}, "form was taken as code."


def _previewed(image: Image, arguments: dict[str, Any]) -> Any:
    try:
        reply = image.preview(arguments["code"], package=arguments.get("package"))
    except ImageError as error:
        return ToolOutput(None, error=f"No preview, and nothing was evaluated: {error}")
    return with_pictures(preview_text(reply, is_answer=True), reply)


def _looking(workshop: Workshop) -> list[Tool]:
    return [
        workshop.make(
            "checkpoint_image",
            "Keep the present state of the image under a name, so that it can be gone back to with "
            "rollback_image; refused where it cannot be kept. Use it before a series of changes. Each "
            "evaluation keeps a state by itself, but only the latest few.",
            {"label": text("What to call the state", default="", maxLength=LONGEST_LABEL)},
            lambda image, a: f"Kept as {_told(image.checkpoint(a.get('label', '')))}",
            categories=["time-travel"],
            title="Keep the state",
            # The image does not change, but the list of its states does.
            read_only=False,
        ),
        workshop.make(
            "list_checkpoints",
            "List the states that the image can go back to, oldest first: id, the state it came from, "
            "time, memory and label. Use it to find the id for rollback_image.",
            {},
            lambda image, _: _listed(image.checkpoints()),
            categories=["time-travel"],
            title="List kept states",
            output_schema=CHECKPOINTS,
        ),
        _inspect(workshop),
    ]


def _listed(infos: list[CheckpointInfo]) -> ToolOutput:
    """Return the states as text, and the same for programs."""
    told = "\n".join(map(_line, infos)) or "No checkpoints are kept."
    fields = ("id", "parent", "label", "at", "is_current", "private_bytes")
    listed = [
        {name: getattr(info, name) for name in fields}
        | {"files": [f"{each.change} {each.path}" for each in info.changed]}
        for info in infos
    ]
    return ToolOutput(told, structured={"checkpoints": listed})


def _inspect(workshop: Workshop) -> Tool:
    return workshop.make(
        "inspect_object",
        "Look into an object that an evaluation returned: its type and its slots, items or entries, without "
        "running any code of its own. Parts that can be looked into are shown with their ids.",
        {"object": whole("Id of the object, as an answer has shown it: 3 for [object 3] or #3", minimum=1)},
        lambda image, a: _inspected(image.ask("inspect", object=a["object"])),
        required=["object"],
        categories=["introspection"],
        title="Look into an object",
    )


def _inspected(answer: Answer) -> Any:
    """Return an image's description of an object, with the ids of its parts where the text has none."""
    parts = answer.data.get("parts", answer.data.get("children", []))
    ids = [(part["label"], part.get("id", part.get("object"))) for part in parts]
    known = [
        f"{label} is object {number}"
        for label, number in ids
        if number is not None and f"#{number}" not in answer.text
    ]
    if not known or answer.error is not None:
        return answered(answer)
    more = ", …" if len(known) > MOST_PARTS else ""
    listed = f"\n\n[objects] {', '.join(known[:MOST_PARTS])}"[:LONGEST_PARTS] + more
    return f"{answered(answer, LONGEST_ANSWER - len(listed))}{listed}"


def _going(workshop: Workshop, workspace: Workspace | None) -> list[Tool]:
    return [
        workshop.make(
            "rollback_image",
            "Go back to a state of the image that was kept. Later states stay listed, so one can also go "
            f"forward again. {NOT_UNDONE}",
            {"checkpoint": text("Id or name of the state", minLength=1), "files": FILES},
            lambda image, a: _gone_back(
                image,
                "The image is back at",
                lambda: image.rollback(a["checkpoint"], files=a.get("files", True)),
            ),
            required=["checkpoint"],
            level="cautious",
            categories=["time-travel"],
            title="Go back to a kept state",
            target=present_state,
            # Where threads run, the abandoned state cannot be kept.
            destructive=True,
            idempotent=True,
        ),
        workshop.make(
            "undo_last",
            "Take back the last change: an evaluation, after which the image is exactly as before it, or a "
            "file that a tool wrote, whichever is newer. Where that state was not kept, an earlier one is "
            f"taken if nothing is lost by that, or nothing happens; the answer says so. {NOT_UNDONE}",
            {"by": text(WAYS, enum=list(UNDONE), default="state"), "files": FILES},
            lambda image, a: _undone(image, workspace, a),
            level="cautious",
            categories=["time-travel"],
            title="Undo the last change",
            target=lambda image, a: f"{present_state(image, a)}, {workspace and workspace.changed_at}",
            # It undoes the change that the caller asked for, or nothing. A replay runs earlier calls again.
            destructive=False,
            open_world=workshop.open_world,
            judged_as=as_evaluation(by="replay"),
        ),
    ]


def _undone(image: Image, workspace: Workspace | None, arguments: dict[str, Any]) -> Any:
    """Undo the newer one of the last change in the image and the last write of a tool."""
    way, files = arguments.get("by", "state"), arguments.get("files", True)
    written = workspace.changed_at if workspace is not None and files and way == "state" else None
    if workspace is None or written is None or written < (image.changed_at() or 0):
        is_whole = files and way == "state"
        return _gone_back(
            image, UNDONE[way], lambda: _taken_back(image, workspace if is_whole else None, arguments)
        )
    outcomes = workspace.take_back()
    told = "The last change was a file that a tool wrote; the image stays as it is."
    facts = RunFacts(files=_listed_outcomes(outcomes))
    return with_facts(f"{told}\n[files] {outcomes_text(outcomes)}", facts)


def _taken_back(image: Image, workspace: Workspace | None, arguments: dict[str, Any]) -> CheckpointInfo:
    """Undo the last call in an image, and the edits that it loaded: one call is one step."""
    info = image.undo(arguments.get("by", "state"), files=arguments.get("files", True))
    outcomes: list[FileOutcome] = []
    while workspace is not None and workspace.loaded_after(image.name, image.changed_at() or 0):
        outcomes += workspace.take_back()
    if not outcomes:
        return info
    # Where both name a file, the edit was made first and is undone last. A rollback would restore the state,
    # not the edit.
    known = {each.path: each for each in (*info.files, *outcomes)}
    return structs.replace(info, files=list(known.values()), left="", notes=[*info.notes, MAKE_AGAIN])


def _gone_back(image: Image, words: str, going: Callable[[], CheckpointInfo]) -> Any:
    """Switch to a state, and report the state of the image and the outcome for each file."""
    before = image.span().after
    info = going()
    span = image.span()
    files = _listed_outcomes(info.files) + unknown_files(info.unknown_files)
    told = f"{words} {_told(info)}" if not info.undone else _told_of_undo(info)
    return with_facts(told, RunFacts(image.name, span.epoch, before, span.after, span.sandbox, files))


def _listed_outcomes(outcomes: Sequence[FileOutcome]) -> tuple[str, ...]:
    return tuple(f"{each.outcome} {each.path}" for each in outcomes[:MOST_FILES])


def comparison_text(found: Comparison) -> str:
    """Describe how two states differ, for a person: definitions, files, and the calls between them."""
    if found.is_same:
        return f"No difference between {found.a} and {found.b} was found."
    parts = [f"From {found.a} to {found.b}"]
    if found.definitions:
        parts.append("\n".join(["[definitions]", *map(_difference_line, found.definitions)]))
    for state, files in ((found.a, found.files_left), (found.b, found.files)):
        if files:
            parts.append(f"[files that differ by calls that led to {state}] {changes_text(files)}")
    for state, other, calls in ((found.a, found.b, found.left), (found.b, found.a, found.taken)):
        if calls:
            listed = [f"- {call}" for call in calls]
            parts.append("\n".join([f"[calls that led to {state} and not to {other}]", *listed]))
    return "\n\n".join([*parts, *found.notes])


def _difference_line(each: Difference) -> str:
    before, after = each.before[:LONGEST_SIDE], each.after[:LONGEST_SIDE]
    if before and after and before != after:
        return f"- {each.kind} {each.name} {each.change}: {before} → {after}"
    return f"- {each.kind} {each.name} {each.change}" + (f": {before or after}" if before or after else "")


def _told(info: CheckpointInfo) -> str:
    files = [f"[files] {outcomes_text(info.files)}"] if info.files else []
    return "\n".join([_line(info), *files, *info.notes])


def _told_of_undo(info: CheckpointInfo) -> str:
    """Describe the state of the image, the undone calls, and how to restore them."""
    calls = [call or "a call" for call in info.undone[:MOST_UNDONE]]
    more = len(info.undone) - len(calls)
    taken = "; ".join([*calls, *([f"{more} more"] if more else [])])
    redo = f"; rollback to {info.left} redoes it" if info.left else ""
    where = f"The image is back at {info.id}: {info.label or 'no label'}"
    files = [f"[files] {outcomes_text(info.files)}"] if info.files else []
    return "\n".join([where, f"Taken back: {taken}{redo}", *files, *info.notes])


def _line(info: CheckpointInfo) -> str:
    at = strftime("%H:%M:%S", localtime(info.at))
    parent = f" from {info.parent}" if info.parent else ""
    memory = f", {info.private_bytes / 1e6:.1f} MB" if info.private_bytes is not None else ""
    here = " (now)" if info.is_current else ""
    files = f" [files: {changes_text(info.changed)}]" if info.changed else ""
    return f"{info.id}{here}{parent} at {at}{memory}: {info.label or 'no label'}{files}"
