"""Five tools that evaluate, show past evaluations, and page through their output."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gramercy.images.requests import Compile, Evaluate
from gramercy.text import counted
from gramercy.tools.content import ToolOutput
from gramercy.toolsets.dry_runs import dry_run
from gramercy.toolsets.factory import PACKAGE, Running, as_evaluation, text, whole
from gramercy.toolsets.jobs import JOB, job_text
from gramercy.toolsets.rendering import (
    LONGEST_ANSWER,
    LONGEST_NOTE,
    ROOM,
    answered,
    fair_share,
    fault_text,
    picture_blocks,
    sections_of,
    told,
    whole_values,
    with_pictures,
)

if TYPE_CHECKING:
    from gramercy.images.base import HistoryEntry, Reply
    from gramercy.images.image import Image
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import Workshop

MOST_HISTORY = 50
DEFAULT_HISTORY = 10
# Characters of the code before the last error. The error itself matters more.
LONGEST_CODE = 1_800
# The kinds of compiler messages, the worst first.
NOTICES = {"warning": "warning", "style-warning": "style warning", "note": "note"}
# The parts that can be read further: see rendering.
STREAMS = ("stdout", "stderr", "values", "error", "warnings", "log")
# The room of an answer without the note about where it continues.
PAGE = LONGEST_ANSWER - LONGEST_NOTE
# How many evaluations back read_output goes: as many as get_repl_history shows.
FARTHEST = MOST_HISTORY


def evaluation_tools(workshop: Workshop) -> list[Tool]:
    """Make the four tools."""
    return [_eval_form(workshop), _compile_form(workshop), _last_error(workshop), _history(workshop)]


def _eval_form(workshop: Workshop) -> Tool:
    running = Running(
        lambda _, a: Evaluate(a["form"], a.get("package")),
        lambda reply, _: workshop.evaluated(reply),
    )
    return running.make(
        workshop,
        "eval_form",
        workshop.told(
            "Evaluate code in the running image. Returns what it printed, warnings and the values of the "
            "last form, or the error with its backtrace. Definitions and state are kept for later calls. "
            "Use it to try things out and to check what you have changed.",
            ("preview_form", "preview_form shows first what it would do."),
            ("undo_last", "undo_last takes it back."),
        ),
        {"form": text("The code: one form or several (Lisp), or statements (Python)"), "package": PACKAGE},
        required=["form"],
        level="cautious",
        categories=["execution"],
        title="Evaluate",
        judged_as=tuple(like for like in as_evaluation("form") if like.name != "eval_form"),
        effect=dry_run("form"),
    )


def _compile_form(workshop: Workshop) -> Tool:
    running = Running(
        lambda _, a: Compile(a["form"], a.get("package")),
        lambda reply, _: _compiled(reply, can_read_on=workshop.has("read_output")),
    )
    return running.make(
        workshop,
        "compile_form",
        "Compile and load definitions in the running image. Returns the compiler's warnings with their line "
        "numbers, not values. Use it for functions, macros and classes: it finds undefined names and "
        "calls with wrong arguments before they fail. The definitions take effect.",
        {"form": text("The code: one definition or several"), "package": PACKAGE},
        required=["form"],
        level="cautious",
        categories=["execution"],
        title="Compile definitions",
        judged_as=as_evaluation("form"),
        effect=dry_run("form"),
    )


def _compiled(reply: Reply, *, can_read_on: bool) -> Any:
    """Return the verdict, which is the error if there is one, and the compiler's messages."""
    rest = told(reply, can_read_on=can_read_on)
    if reply.error is not None or not reply.ok:
        return ToolOutput(None, error=rest, blocks=picture_blocks(reply))
    counts = Counter(NOTICES.get(notice.kind, "warning") for notice in reply.warnings)
    notices = ", ".join(counted(counts[word], word) for word in NOTICES.values() if counts[word])
    verdict = f"Compiled with {notices}." if notices else "Compiled without warnings."
    return with_pictures(f"{verdict}\n\n{rest}" if rest else verdict, reply)


def _last_error(workshop: Workshop) -> Tool:
    return workshop.make(
        "get_last_error",
        "Show the last error of an evaluation in this image again: the code, the error and its backtrace. "
        "Use it to find out what a person ran into, or when an earlier answer is no longer at hand.",
        {},
        lambda image, _: _error_text(image, can_read_on=workshop.has("read_output")),
        categories=["execution"],
        title="Show the last error",
    )


def _error_text(image: Image, *, can_read_on: bool) -> str:
    for back, entry in enumerate(reversed(image.history()), 1):
        if entry.reply.error is not None:
            code = _shortened(entry.code, LONGEST_CODE)
            more = f"stream error and evaluation {back}" if can_read_on else ""
            error = _shortened(fault_text(entry.reply.error), ROOM - LONGEST_CODE, more)
            return f"{code}\n\n{error}"
    return "No evaluation in this image has failed."


def _history(workshop: Workshop) -> Tool:
    limit = f"How many of the latest evaluations to show, at most {MOST_HISTORY}"
    return workshop.make(
        "get_repl_history",
        "Show the latest evaluations in this image with their results, oldest first. Use it to see what "
        "was done so far, by you or by a person, before you go on.",
        {"limit": whole(limit, minimum=1, maximum=MOST_HISTORY, default=DEFAULT_HISTORY)},
        lambda image, a: _history_text(image, a.get("limit", DEFAULT_HISTORY)),
        categories=["execution"],
        title="Show the latest evaluations",
    )


def _history_text(image: Image, limit: int) -> str:
    entries = image.history()[-limit:]
    if not entries:
        return "Nothing has been evaluated in this image."
    texts = [_entry_text(entry) for entry in entries]
    most = fair_share([len(text) for text in texts], ROOM - len(texts) * len("\n\n… [12,345 characters]"))
    return "\n\n".join(_shortened(text, most) for text in texts)


def _entry_text(entry: HistoryEntry) -> str:
    reply = entry.reply
    # Compiled code has no values. That differs from a form that returned no values.
    result = told(reply, shows_values=bool(reply.forms) and reply.error is None, can_read_on=False, room=None)
    undone = "[not in the present state: taken back or lost]\n" if entry.undone else ""
    return f"> {entry.code}\n{undone}{result}".rstrip("\n")


def _shortened(text: str, most: int, more: str = "") -> str:
    if len(text) <= most:
        return text
    hint = f"; read_output with {more} shows all" if more else ""
    return f"{text[:most]}\n… [{len(text):,} characters{hint}]"


def output_tool(workshop: Workshop) -> Tool:
    """Make the tool."""
    return workshop.make(
        "read_output",
        "Read on where an answer was cut, from an offset: what an evaluation printed, its values, error or "
        "warnings, or the printed text of an object. The answer says which. Runs nothing again.",
        {
            "stream": text("What to read", enum=list(STREAMS), default="stdout"),
            "job": JOB,
            "object": whole("Id of an object to read instead, as the answer says", minimum=1),
            "offset": whole("Characters to skip, as the answer says", minimum=0, default=0),
            "evaluation": whole(
                "Which evaluation: 1 is the latest, 2 the one before", minimum=1, maximum=FARTHEST, default=1
            ),
        },
        _read_on,
        categories=["execution"],
        title="Read on in an answer",
    )


def _read_on(image: Image, arguments: dict[str, Any]) -> Any:
    offset = arguments.get("offset", 0)
    if "job" in arguments:
        return job_text(image.read_job(arguments["job"]))
    if "object" in arguments:
        return _printed_part(image, arguments["object"], offset)
    history, back = image.history(), arguments.get("evaluation", 1)
    if back > len(history):
        return ToolOutput(None, error=f"There are {len(history)} evaluations to read from, not {back}.")
    reply, stream = history[-back].reply, arguments.get("stream", "stdout")
    kept = _kept(reply, stream)
    total = max(reply.truncated.get(stream, 0) if stream != "values" else 0, len(kept))
    return _page(kept[offset : offset + PAGE], stream, offset, len(kept), total)


def _kept(reply: Reply, stream: str) -> str:
    """Return the whole kept text of one part of an evaluation."""
    if stream in {"stdout", "stderr"}:
        return str(getattr(reply, stream))
    if stream == "values":
        return whole_values(reply) if reply.error is None else ""
    return "".join(part.text for part in sections_of(reply, whole=True) if part.name == stream)


def _page(shown: str, name: str, offset: int, kept: int, total: int) -> str:
    """Return a part of a text, with a note where it continues or that it ends."""
    if not shown:
        return f"[{name} has no more: {kept:,} of {total:,} characters were kept]"
    end = offset + len(shown)
    if end >= total:
        return shown
    more = f"go on with offset {end}" if end < kept else "the rest was not kept"
    return f"{shown}\n… [characters {offset:,} to {end:,} of {total:,}; {more}]"


def _printed_part(image: Image, number: int, offset: int) -> Any:
    answer = image.ask("print_value", object=number, offset=offset, limit=PAGE)
    if answer.error is not None:
        return answered(answer)
    total = answer.data.get("total")
    if total is not None or len(answer.text) < PAGE:
        known = total or offset + len(answer.text)
        return _page(answer.text, f"object {number}", offset, known, known)
    # Where the whole length is not known, a full page is assumed to continue.
    end = offset + len(answer.text)
    return f"{answer.text}\n… [characters {offset:,} to {end:,}; go on with offset {end}]"
