"""Texts about background jobs, and the tool that stops one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.errors import ImageError
from gramercy.toolsets.factory import flag, whole
from gramercy.toolsets.rendering import LONGEST_ANSWER, evaluation_text

if TYPE_CHECKING:
    from gramercy.images.base import Reply
    from gramercy.images.image import Image
    from gramercy.images.jobs import JobInfo
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import Workshop

JOB = whole("Number of a job to read instead: what is new of its output, its result at the end", minimum=1)
# The room in an answer for the output of a job, and for its result.
MOST_PRINTED, MOST_RESULT = LONGEST_ANSWER // 2 - 200, LONGEST_ANSWER // 2
# Every reply of the image says it. The text about a job says it once, in other words.
UNKEPT = "No state was kept"
LASTING = "While it runs no state is kept: undo goes back to before it, and ends it."
STUBBORN = (
    "It was interrupted, but is in compiled code or waits for something, and goes on until that returns. To "
    "go back to a state from before it ends it at once."
)


def lasting(workshop: Workshop) -> dict[str, Any]:
    """Describe the argument that starts a background job, where callers may choose a timeout."""
    if workshop.longest_timeout is None:
        return {}
    return {"background": flag("Run it as a job beside later calls, without a time limit")}


def check_unlimited(arguments: dict[str, Any]) -> None:
    """Refuse a timeout for a job: it would be ignored."""
    if "timeout" in arguments:
        raise ImageError("a job has no time limit, so nothing was run: leave out timeout, or background")


def begun(workshop: Workshop, reply: Reply) -> Any:
    """Report that a job has started, or why it has not."""
    if reply.job is None:
        return workshop.evaluated(reply)
    tools = [
        sentence
        for tool, sentence in (
            ("read_output", f"read_output with job {reply.job} shows what it prints and its result"),
            ("stop_job", "stop_job ends it"),
        )
        if workshop.has(tool)
    ]
    lasting = LASTING if reply.unkept is not None else ""
    notes = [note for note in reply.notes if not note.startswith(UNKEPT)]
    first = " ".join(
        filter(None, [f"Job {reply.job} has begun.", f"{'; '.join(tools)}." if tools else "", lasting])
    )
    return "\n\n".join([first, *notes])


def job_text(job: JobInfo) -> str:
    """Format the news of a job: its output, its result, its state."""
    parts = [_printed(job)]
    if job.reply is not None:
        parts.append(evaluation_text(job.reply, room=MOST_RESULT))
    ended = "ended with its process" if job.state == "lost" else f"is {job.state}"
    state = "runs" if job.state == "running" else ended
    parts.append(f"[job {job.id} {state}, {job.seconds:.0f} s]")
    return "\n\n".join(filter(None, parts))


def _printed(job: JobInfo) -> str:
    printed = job.printed.rstrip("\n")
    left = len(printed) - MOST_PRINTED
    if left > 0:
        printed = f"… [{left:,} characters before this are left out]\n{printed[-MOST_PRINTED:]}"
    return f"… [{job.dropped:,} bytes were not kept]\n{printed}" if job.dropped else printed


def stop_tool(workshop: Workshop) -> Tool:
    """Make the tool."""
    return workshop.make(
        "stop_job",
        "Stop work that runs in the background. What it has changed by then stays.",
        {"job": whole("Number of the job", minimum=1)},
        _stop,
        required=["job"],
        level="cautious",
        categories=["execution"],
        title="Stop a job",
        destructive=False,
        idempotent=True,
    )


def _stop(image: Image, arguments: dict[str, Any]) -> str:
    job = image.stop_job(arguments["job"])
    told = job_text(job)
    return f"{told}\n\n{STUBBORN}" if job.state == "running" else told
