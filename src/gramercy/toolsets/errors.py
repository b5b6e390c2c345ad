"""Three tools for the moment of an error: show its stack, evaluate in a frame, continue with a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.images.requests import GoOn, InFrame
from gramercy.text import cut_line
from gramercy.toolsets.factory import Running, as_evaluation, flag, text, whole
from gramercy.toolsets.rendering import LONGEST_ANSWER, answered, choice_line

if TYPE_CHECKING:
    from gramercy.images.base import Answer, MomentInfo
    from gramercy.images.image import Image
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.workspace import Workspace

MOMENT = text("Id of the moment, as the error has told it; by default the latest")
# Frames of one answer. With source lines and names of variables they fill it.
MOST_FRAMES = 30
LONGEST_LINE = 240
# Variable names of a frame in the list of frames. The frame itself shows all.
MOST_NAMES = 10
HEADER = 400


def error_tools(workshop: Workshop, _workspace: Workspace | None = None) -> list[Tool]:
    """Make the three tools."""
    return [_frames(workshop), _in_frame(workshop), _restart(workshop)]


def _frames(workshop: Workshop) -> Tool:
    return workshop.make(
        "error_frames",
        "Look at the stack that an error has left: restarts, and frames with their source lines; with "
        "frame, the variables of that one. Runs no code.",
        {
            "frame": whole("Number of a frame, to see its variables", minimum=0),
            "offset": whole("First frame to list", minimum=0, default=0),
            "moment": MOMENT,
            "threads": flag("True lists the threads that run, with their stacks, instead", default=False),
        },
        _look,
        categories=["errors"],
        title="Look at an error",
    )


def _in_frame(workshop: Workshop) -> Tool:
    running = Running(
        lambda _, a: InFrame(a["code"], a.get("frame", 0), a.get("moment")),
        lambda reply, _: workshop.evaluated(reply),
    )
    return running.make(
        workshop,
        "eval_in_frame",
        "Evaluate code with the variables of a frame of an error. What it changes, it changes in the kept "
        "copy of that moment, not in the image.",
        {
            "code": text("The code: one form or several"),
            "frame": whole("Number of the frame; 0 is where it failed", minimum=0, default=0),
            "moment": MOMENT,
        },
        required=["code"],
        level="cautious",
        categories=["errors"],
        title="Evaluate in a frame",
        judged_as=as_evaluation("code"),
    )


def _restart(workshop: Workshop) -> Tool:
    running = Running(
        lambda _, a: GoOn(*_chosen(a), a.get("moment")),
        lambda reply, _: workshop.evaluated(reply),
    )
    return running.make(
        workshop,
        "invoke_restart",
        workshop.told(
            "Go on from an error with one of its restarts, in a copy: the answer is that of the whole "
            "evaluation, and the image stays as it was. Try several; each leaves an attempt (m1.a1).",
            ("rollback_image", "rollback_image m1.a1 makes it the image."),
        ),
        {
            "restart": text("Number or name of the restart", minLength=1),
            "arguments": text("Code for what it takes: one form for each argument", default=""),
            "moment": MOMENT,
        },
        required=["restart"],
        level="cautious",
        categories=["errors"],
        title="Go on from an error",
        judged_as=as_evaluation("arguments"),
    )


def _chosen(arguments: dict[str, Any]) -> tuple[str, list[str]]:
    forms = arguments.get("arguments", "")
    return arguments["restart"].strip(), [forms] if forms.strip() else []


def _look(image: Image, arguments: dict[str, Any]) -> Any:
    moment = arguments.get("moment")
    if arguments.get("threads"):
        return answered(image.ask("threads"))
    if "frame" in arguments:
        return _variables(image, moment, arguments["frame"])
    offset = arguments.get("offset", 0)
    answer = image.ask_moment("frames", moment, offset=offset, limit=MOST_FRAMES)
    if answer.error is not None:
        return _as_text(image, answer) if moment is None and offset == 0 else answered(answer)
    restarts = image.ask_moment("restarts", moment) if offset == 0 else None
    known = {info.id: info for info in image.moments()}
    return frames_text(answer, restarts, known.get(answer.data.get("moment", "")))


def _as_text(image: Image, answer: Answer) -> Any:
    """Return the backtrace of the last error if no moment was kept, else the answer."""
    entries = image.history()
    fault = entries[-1].reply.error if entries else None
    if fault is None or not fault.backtrace:
        return answered(answer)
    why = answer.error.message if answer.error is not None else ""
    return "\n".join([f"{why} Its frames as text, without variables:", *fault.backtrace])


def _variables(image: Image, moment: str | None, number: int) -> Any:
    answer = image.ask_moment("locals", moment, frame=number)
    if answer.error is not None:
        return _as_text(image, answer) if moment is None and number == 0 else answered(answer)
    if "frame" not in answer.data:
        frames = image.ask_moment("frames", moment).data.get("frames", [])
        found = [each for each in frames if each["number"] == number]
        return locals_text(answer, found[0] if found else None)
    return locals_text(answer)


def frames_text(answer: Answer, restarts: Answer | None = None, info: MomentInfo | None = None) -> str:
    """Format the restarts and frames of a moment, and say how to see more."""
    parts = []
    if info is not None:
        more = f"; attempts: {', '.join(info.attempts)}" if info.attempts else ""
        parts.append(f"{info.id}: {info.type}: {info.message}"[:HEADER] + more)
    if restarts is not None and restarts.data.get("restarts"):
        parts.append("\n".join(["[Restarts]", *(choice_line(each) for each in restarts.data["restarts"])]))
    frames = answer.data.get("frames", [])
    lines = ["[Frames] error_frames with frame N shows the variables of one"]
    room = LONGEST_ANSWER - sum(map(len, parts)) - 400
    shown = 0
    for frame in frames:
        around = [frame[key] for key in ("gap", "heading") if key in frame]
        told = "\n".join([*around, frame_lines(frame)])
        room -= len(told) + 1
        if room < 0:
            break
        lines.append(told)
        shown += 1
    # Not a count: an overview may leave out repetitions.
    following = frames[shown]["number"] if shown < len(frames) else frames[-1]["number"] + 1 if frames else 0
    left = answer.data.get("total", following) - following
    if left > 0:
        some = "" if answer.data.get("complete", True) else "at least "
        lines.append(f"… {some}{left:,} more frames: offset {following} shows the next")
    return "\n\n".join([*parts, "\n".join(lines) if frames else "There are no frames."])


def frame_lines(frame: dict[str, Any]) -> str:
    """Format a frame: its number and call, its place with the source line, the names of its variables."""
    lines = [f"{frame['number']}: {cut_line(frame.get('call') or frame.get('name', ''), LONGEST_LINE)}"]
    if place := place_text(frame):
        lines.append(f"   {place}")
    failed = " ".join((frame.get("failed") or "").split())
    if failed and failed != " ".join((frame.get("source") or "").split()):
        lines.append(f"   here: {cut_line(failed, LONGEST_LINE)}")
    names = frame.get("locals", [])
    if names:
        more = f" … {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        lines.append(f"   variables: {' '.join(names[:MOST_NAMES])}{more}")
    return "\n".join(lines)


def place_text(frame: dict[str, Any]) -> str:
    """Format the place of a frame, in a file or in the evaluated code, with the line itself."""
    file, line, source = frame.get("file"), frame.get("line"), (frame.get("source") or "").strip()
    if line is None:
        return file or ""
    place = f"{file}:{line}" if file else f"line {line} of the evaluated code"
    return f"{place}  {cut_line(source, LONGEST_LINE)}" if source else place


def locals_text(answer: Answer, frame: dict[str, Any] | None = None) -> str:
    """Format a frame and its variables with their values."""
    frame, found = frame or answer.data.get("frame") or {}, answer.data.get("locals", [])
    lines = [frame_lines({**frame, "locals": []})] if frame else []
    lines += [f"{each['name']} = {each['value']}{_typed(each)}" for each in found if not each.get("unset")]
    if unset := [each["name"] for each in found if each.get("unset")]:
        lines.append(f"Without a value here: {' '.join(unset)}")
    if not found:
        lines.append("No variables are known by name in this frame.")
    told = "\n".join(lines)
    return (
        told
        if len(told) <= LONGEST_ANSWER
        else f"{told[: LONGEST_ANSWER - 60]}\n… [{len(told):,} characters]"
    )


def _typed(local: dict[str, Any]) -> str:
    kind = local.get("type") or ""
    return f"  [{kind}]" if kind and kind not in local["value"] else ""
