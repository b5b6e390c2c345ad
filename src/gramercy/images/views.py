"""Describe an image while code runs in it: without its lock, without a request to its processes.

The facts come from the keeper, from the kernel, and from the memory that the running code shares with the
keeper. So this waits for nothing and starts nothing. The facts may be a moment old, and from two different
moments.
"""

from __future__ import annotations

import contextlib
from time import monotonic, time
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from gramercy.images.base import CheckpointInfo, Form, HistoryEntry, ImageFault
from gramercy.images.kin import resident_bytes

if TYPE_CHECKING:
    from gramercy.images.connection import Wait
    from gramercy.images.lifecycle import Lifecycle
    from gramercy.images.output import Printed
    from gramercy.images.runner import Runner

# A person sees the end of a running evaluation's output. The reply has more.
LONGEST_OUTPUT = 4_000
LONGEST_CODE = 4_000
LONGEST_FRAME = 300
# Definitions and files of one state, frames of an error, values of a form.
MOST_LISTED = 50

# busy: it is started, restored or forked, and no user code runs.
Activity = Literal["not started", "idle", "busy", "running", "closed"]


class RunningCall(msgspec.Struct, frozen=True):
    """The running call of an image. `op` is the request, `code` the beginning of the evaluated code.

    `since` is in seconds since 1970. `stdout` and `stderr` are the end of its output so far.
    """

    op: str
    code: str
    since: float
    seconds: float
    stdout: str = ""
    stderr: str = ""


class ImageView(msgspec.Struct, frozen=True):
    """The state of an image at one moment.

    `unkept` says why the present state is not kept. The `checkpoints` have the memory from their last
    listing, where that is known. `memory_bytes` is that of the live process, now. `latest` is the last
    finished evaluation. `jobs` are lines about background jobs. Texts and lists are bounded: it is sent to
    other processes.
    """

    name: str
    language: str
    state: Activity
    epoch: str = ""
    sandbox: str = ""
    running: RunningCall | None = None
    pid: int = 0
    memory_bytes: int = 0
    heap_bytes: int = 0
    checkpoints: list[CheckpointInfo] = []
    unkept: str = ""
    latest: HistoryEntry | None = None
    calls: int = 0
    jobs: list[str] = []


def view_of(name: str, language: str, runner: Runner) -> ImageView:
    """Describe an image, from any thread, with or without its lock."""
    lifecycle = runner.lifecycle
    live, family, wait = lifecycle.live, lifecycle.family, runner.wait
    running = _running(wait) if wait is not None and not wait.is_over else None
    history = list(runner.history)
    latest = history[-1] if history else None
    return ImageView(
        name=name,
        language=family.program.language if family is not None else language,
        state=_activity(runner, running),
        epoch=lifecycle.epoch,
        sandbox=family.program.confinement.value if family is not None else "",
        running=running,
        pid=live.pid if live is not None else 0,
        memory_bytes=resident_bytes(live.pid) if live is not None else 0,
        heap_bytes=latest.reply.state.heap_bytes if latest is not None else 0,
        checkpoints=_tree(lifecycle),
        unkept=lifecycle.unkept_reason,
        latest=_shortened(latest) if latest is not None else None,
        calls=len(history),
        jobs=[job.shown for job in lifecycle.jobs.all() if job.state == "running"],
    )


def _activity(runner: Runner, running: RunningCall | None) -> Activity:
    lifecycle = runner.lifecycle
    if lifecycle.is_closed:
        return "closed"
    if running is not None:
        return "running"
    if runner.lock.locked() and not runner.is_settling:
        return "busy"
    return "idle" if lifecycle.live is not None else "not started"


def _running(wait: Wait) -> RunningCall:
    printed = _printed(wait)
    seconds = monotonic() - wait.started
    return RunningCall(
        wait.op or "tests",
        wait.code[:LONGEST_CODE],
        time() - seconds,
        seconds,
        printed.stdout[-LONGEST_OUTPUT:] if printed is not None else "",
        printed.stderr[-LONGEST_OUTPUT:] if printed is not None else "",
    )


def _printed(wait: Wait) -> Printed | None:
    # Closed meanwhile, when the call or the image has ended.
    with contextlib.suppress(OSError):
        return wait.printed().folded()
    return None


def _tree(lifecycle: Lifecycle) -> list[CheckpointInfo]:
    """Describe the kept states from facts known here."""
    timeline, is_present = lifecycle.timeline, lifecycle.unkept == 0
    infos = [timeline.told(checkpoint, is_present=is_present) for checkpoint in timeline.all()]
    return [
        info
        if len(info.changed) <= MOST_LISTED and len(info.definitions) <= MOST_LISTED
        else replace(info, changed=info.changed[:MOST_LISTED], definitions=info.definitions[:MOST_LISTED])
        for info in infos
    ]


def _shortened(entry: HistoryEntry) -> HistoryEntry:
    """Return an evaluation with shortened parts, as much as a person looks at."""
    reply = entry.reply
    values = [value[:LONGEST_OUTPUT] for value in reply.values[:MOST_LISTED]]
    shown = replace(
        reply,
        forms=[Form(values)] if reply.forms else [],
        stdout=reply.stdout[-LONGEST_OUTPUT:],
        stderr=reply.stderr[-LONGEST_OUTPUT:],
        log=reply.log[-LONGEST_OUTPUT:],
        error=_shortened_fault(reply.error) if reply.error is not None else None,
        changed=reply.changed[:MOST_LISTED],
        files=reply.files[:MOST_LISTED],
        warnings=[],
        displays=[],
        objects=[],
        lengths=[],
        profile={},
    )
    return replace(entry, code=entry.code[:LONGEST_CODE], reply=shown)


def _shortened_fault(fault: ImageFault) -> ImageFault:
    frames = [frame[:LONGEST_FRAME] for frame in fault.backtrace[:MOST_LISTED]]
    return replace(fault, message=fault.message[:LONGEST_OUTPUT], backtrace=frames, causes=[])
