"""Five tools that evaluate, remember what was evaluated, and read on in what it printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.tools.content import ToolOutput
from gramercy.toolsets.factory import PACKAGE, Running, dry_run, text, whole
from gramercy.toolsets.rendering import (
    MOST_OUTPUT,
    STREAMS,
    evaluated,
    evaluation_text,
    fault_text,
    output_sections,
)

if TYPE_CHECKING:
    from gramercy.images.base import HistoryEntry, Image, Reply
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import Workshop

MOST_HISTORY = 50
DEFAULT_HISTORY = 10
# 50 entries of this length stay below the executor's 100,000 characters, which would cut in the middle.
LONGEST_ENTRY = 1_800
# How many evaluations back read_output goes: as many as get_repl_history shows.
FARTHEST = MOST_HISTORY


def evaluation_tools(workshop: Workshop) -> list[Tool]:
    """Make the four tools."""
    return [_eval_form(workshop), _compile_form(workshop), _last_error(workshop), _history(workshop)]


def _eval_form(workshop: Workshop) -> Tool:
    running = Running(
        lambda image, a: image.evaluate(a["form"], package=a.get("package"), timeout=a.get("timeout")),
        lambda image, a, watch: image.begin(
            a["form"], package=a.get("package"), timeout=a.get("timeout"), watch=watch
        ),
        lambda reply, _: evaluated(reply, shows_objects=workshop.has("inspect_object")),
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
        effect=dry_run("form"),
    )


def _compile_form(workshop: Workshop) -> Tool:
    running = Running(
        lambda image, a: image.compile(a["form"], package=a.get("package"), timeout=a.get("timeout")),
        lambda image, a, watch: image.acompile(
            a["form"], package=a.get("package"), timeout=a.get("timeout"), watch=watch
        ),
        lambda reply, _: _compiled(reply),
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
    )


def _compiled(reply: Reply) -> Any:
    if reply.error is not None or not reply.ok:
        return ToolOutput(None, error=evaluation_text(reply, can_read_on=True))
    verdict = [] if reply.warnings else ["Compiled without warnings."]
    return "\n\n".join([*output_sections(reply, can_read_on=True), *verdict, *reply.notes])


def _last_error(workshop: Workshop) -> Tool:
    return workshop.make(
        "get_last_error",
        "Show the last error of an evaluation in this image again: the code, the error and its backtrace. "
        "Use it to find out what a person ran into, or when an earlier answer is no longer at hand.",
        {},
        lambda image, _: _error_text(image),
        categories=["execution"],
        title="Show the last error",
    )


def _error_text(image: Image) -> str:
    for entry in reversed(image.history()):
        if entry.reply.error is not None:
            return f"{_shortened(entry.code)}\n\n{fault_text(entry.reply.error)}"
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
    return "\n\n".join(map(_entry_text, entries))


def _entry_text(entry: HistoryEntry) -> str:
    reply = entry.reply
    # What was compiled has no values, which is not the same as a form that returned none.
    result = evaluation_text(reply) if reply.forms or reply.error else "\n\n".join(output_sections(reply))
    return _shortened(f"> {entry.code}\n{result}".rstrip("\n"))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_ENTRY else f"{text[:LONGEST_ENTRY]}\n… [{len(text):,} characters]"


def output_tool(workshop: Workshop) -> Tool:
    """Make the tool."""
    return workshop.make(
        "read_output",
        "Read on in what an evaluation printed, from an offset: an answer shows only the beginning of a long "
        "output and says where it was cut. Runs nothing again.",
        {
            "stream": text("Which stream", enum=list(STREAMS), default="stdout"),
            "offset": whole("Characters to skip, as the answer that was cut says", minimum=0, default=0),
            "evaluation": whole(
                "Which evaluation: 1 is the latest, 2 the one before", minimum=1, maximum=FARTHEST, default=1
            ),
        },
        _read_on,
        categories=["execution"],
        title="Read on in an answer",
    )


def _read_on(image: Image, arguments: dict[str, Any]) -> Any:
    history, back = image.history(), arguments.get("evaluation", 1)
    if back > len(history):
        return ToolOutput(None, error=f"There are {len(history)} evaluations to read from, not {back}.")
    stream, offset = arguments.get("stream", "stdout"), arguments.get("offset", 0)
    return _kept_part(history[-back].reply, stream, offset)


def _kept_part(reply: Reply, stream: str, offset: int) -> str:
    kept = str(getattr(reply, stream))
    total = max(reply.truncated.get(stream, 0), len(kept))
    if offset >= len(kept):
        return f"[{stream} has no more: {len(kept):,} of {total:,} characters were kept]"
    shown = kept[offset : offset + MOST_OUTPUT]
    end = offset + len(shown)
    if end < len(kept):
        return f"{shown}\n… [characters {offset:,} to {end:,} of {total:,}; go on with offset {end}]"
    if end < total:
        return f"{shown}\n… [characters {offset:,} to {end:,} of {total:,}; the rest was not kept]"
    return shown
