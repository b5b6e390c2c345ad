"""The four tools of a session, with the names and texts that clients of Lisp servers know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.errors import ImageError
from gramercy.images.requests import Evaluate, Load, StartJob
from gramercy.tools.content import ToolOutput
from gramercy.toolsets.dry_runs import dry_run
from gramercy.toolsets.factory import PACKAGE, Running, Workshop, as_evaluation, present_state, text
from gramercy.toolsets.jobs import begun, check_unlimited, lasting
from gramercy.toolsets.rendering import HEADINGS, definitions_text, fault_text, told, with_pictures

if TYPE_CHECKING:
    from gramercy.images.base import Reply
    from gramercy.images.image import Image
    from gramercy.images.requests import Work
    from gramercy.tools.tool import Tool

# The word for a language in the names of tools.
LANGUAGE_WORDS = {"sbcl": "lisp"}
# The errors of Quicklisp, ASDF and Python about a missing system. Frames would add nothing.
MISSING = {
    "QUICKLISP-CLIENT:SYSTEM-NOT-FOUND",
    "ASDF/FIND-COMPONENT:MISSING-COMPONENT",
    "ModuleNotFoundError",
}
# Arguments that clients of other servers send: see aliases of a Tool. Neither is listed.
CAPTURE_TIME = ("capture-time", "capture_time")
SYSTEM_NAME = ("system-name", "system_name")


def session_tools(workshop: Workshop, language: str = "sbcl") -> list[Tool]:
    """Make the four tools; the first is named after the language of the image."""
    return [
        _evaluate(workshop, language),
        _list_definitions(workshop),
        _reset_session(workshop),
        _load_system(workshop),
    ]


def _evaluate(workshop: Workshop, language: str) -> Tool:
    word = LANGUAGE_WORDS.get(language, language)
    return _evaluator(workshop, language).make(
        workshop,
        f"evaluate-{word}",
        workshop.told(
            f"Evaluate {word.capitalize()} code in the running image. Returns what it printed, warnings, "
            "plots, and every value of the last form, or the error with its backtrace. Definitions and "
            "variables are kept for later calls. Use it to try things out, to define functions, and to check "
            "that they work.",
            ("preview_form", "preview_form shows first what it would do."),
            ("undo_last", "undo_last takes it back."),
        ),
        {"code": text("The code: one form or several"), "package": PACKAGE, **lasting(workshop)},
        required=["code"],
        level="cautious",
        categories=["session"],
        title=f"Evaluate {word.capitalize()}",
        effect=dry_run("code"),
        aliases=_timed,
        # The tool refuses images of another language, so the rules for evaluating that language do not apply.
        judged_as=tuple(like for like in as_evaluation("code") if like.name == "eval_form"),
    )


def _timed(arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Accept the argument of some clients that asks for the time."""
    wishes = [arguments[name] for name in CAPTURE_TIME if name in arguments]
    rest = {name: value for name, value in arguments.items() if name not in CAPTURE_TIME}
    return rest, "[time] {ms} ms, as capture-time asks" if True in wishes else ""


def _evaluator(workshop: Workshop, language: str) -> Running:
    def work(image: Image, a: dict[str, Any]) -> Work[Reply]:
        if image.language != language:
            raise ImageError(
                f"{image.name} is an image of {image.language}, not of {language}: name another image"
            )
        if a.get("background"):
            check_unlimited(a)
            return StartJob(a["code"], a.get("package"))
        return Evaluate(a["code"], a.get("package"))

    return Running(
        work, lambda reply, a: (begun if a.get("background") else Workshop.evaluated)(workshop, reply)
    )


def _list_definitions(workshop: Workshop) -> Tool:
    return workshop.make(
        "list-definitions",
        "List what was defined in this session and is still there: functions and macros with their "
        "parameters, variables with their values. Use it to see what you have to work with.",
        {"type": text("Only this kind; by default all", enum=list(HEADINGS))},
        _definitions,
        categories=["session"],
        title="List definitions",
        aliases=_plural,
    )


def _plural(arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Accept a kind in the singular, as some clients name it."""
    word = arguments.get("type")
    if not isinstance(word, str) or f"{word}s" not in HEADINGS:
        return arguments, ""
    return {**arguments, "type": f"{word}s"}, f"type {word} was taken as {word}s."


def _definitions(image: Image, arguments: dict[str, Any]) -> Any:
    answer = image.ask("definitions")
    if answer.error is not None:
        return ToolOutput(None, error=fault_text(answer.error))
    package = answer.data.get("package") or _latest_package(image)
    return definitions_text(answer.data, arguments.get("type"), package=package)


def _latest_package(image: Image) -> str:
    named = (entry.reply.package for entry in reversed(image.history()) if entry.reply.package)
    return next(named, "CL-USER")


def _reset_session(workshop: Workshop) -> Tool:
    return workshop.make(
        "reset-session",
        workshop.told(
            "Throw the running image away and begin with a fresh one: all definitions, variables and "
            "checkpoints are lost. Use it only when the state is beyond repair.",
            ("undo_last", "undo_last loses less."),
        ),
        {},
        _reset,
        level="cautious",
        target=present_state,
        categories=["session"],
        title="Reset the session",
        idempotent=True,
    )


def _reset(image: Image, arguments: dict[str, Any]) -> str:
    del arguments
    return " ".join(["Session reset. All definitions cleared.", *image.reset()])


def _load_system(workshop: Workshop) -> Tool:
    running = Running(
        lambda _, a: Load(a["system"]),
        lambda reply, a: _loaded(workshop, reply, a),
    )
    return running.make(
        workshop,
        "load-system",
        "Load a library or a part of the project into the running image: a Lisp system, through Quicklisp "
        "where it is installed and else ASDF, or a Python package by import. What was loaded before and has "
        "changed on disk is loaded anew. Use it before you call what it defines, and after an edit.",
        {"system": text("Name of the system or package, such as alexandria or json", minLength=1)},
        required=["system"],
        level="cautious",
        categories=["session"],
        title="Load a library",
        judged_as=as_evaluation(),
        aliases=_system,
    )


def _system(arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Accept the argument name of other servers."""
    for name in SYSTEM_NAME:
        if name in arguments and "system" not in arguments:
            rest = {key: value for key, value in arguments.items() if key != name}
            return {**rest, "system": arguments[name]}, f"{name} was taken as system."
    return arguments, ""


def _loaded(workshop: Workshop, reply: Reply, arguments: dict[str, Any]) -> Any:
    if reply.error is not None:
        return _not_loaded(workshop, reply)
    system = arguments["system"]
    version = f" (version {reply.version})" if reply.version else ""
    loaded = f"Loading system: {system}\nLoaded: {reply.system or system}{version}"
    if reply.reloaded:
        loaded += f"\nReloaded: {', '.join(reply.reloaded)}"
    rest = told(reply, can_read_on=workshop.has("read_output"))
    return with_pictures("\n\n".join(filter(None, [loaded, rest])), reply)


def _not_loaded(workshop: Workshop, reply: Reply) -> Any:
    fault = reply.error
    if fault is None or fault.type not in MISSING:
        return workshop.evaluated(reply)
    near = f"\nDid you mean {' or '.join(fault.suggestions)}?" if fault.suggestions else ""
    return ToolOutput(None, error=f"[ERROR] {fault.type}\n{fault.message}{near}")
