"""Describe why an evaluation ended early: its process died, its timeout expired, its memory ran out.

The cause comes from the exit status, where that is known, and from the process's last lines in the log.
"""

from __future__ import annotations

import os
import re
import signal
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import ImageError, ImageStartError
from gramercy.images.base import ImageFault
from gramercy.images.census import above, reader_in
from gramercy.images.environment import Files, Network
from gramercy.images.files.changes import shown
from gramercy.images.guarded import GIT
from gramercy.images.sandbox import Confinement

if TYPE_CHECKING:
    from pathlib import Path

    from gramercy.errors import ImageProtocolError
    from gramercy.images.base import Reply
    from gramercy.images.processes import Program

# Messages that runtimes print before they die, and their meaning.
_SIGNS = (
    ("Heap exhausted", "it ran out of heap"),
    ("GC invariant lost", "its garbage collector failed"),
    ("Control stack guard page", "it ran out of control stack"),
    ("MemoryError", "it ran out of memory"),
    ("Segmentation fault", "it accessed memory that is not its own"),
    ("fatal error", "its runtime gave up"),
)
# Signs of too little memory: the type or the message of an error (the second message is from the dynamic
# loader), the output of a runtime that does not start (also with a core larger than the limit), or a death.
_TYPES = ("MemoryError", "HEAP-EXHAUSTED")
_MESSAGES = ("Cannot allocate memory", "failed to map segment from shared object")
_AT_START = ("MemoryError", "Heap exhausted", "too small for core", "allocate", "out of memory")
_DEATHS = ("it ran out of heap", "it ran out of memory")
NOT_RUN = "The call was not run."
MORE_TIME = "The limit is set by --timeout, and for one call by its argument timeout."
_SIGNALS: dict[int, str] = {
    signal.SIGSEGV: "it accessed memory that is not its own",
    signal.SIGBUS: "it accessed memory that is not there",
    signal.SIGABRT: "its runtime gave up",
    signal.SIGKILL: "it was killed, by its own code or from outside",
    signal.SIGTERM: "it was told to end",
    signal.SIGSYS: "it made a system call that the sandbox forbids",
    signal.SIGXCPU: "it used up its processor time",
}


class Fate(msgspec.Struct, frozen=True):
    """The end of a process, as waitpid told its parent: `exited`, `signaled`, `running` or `unknown`."""

    kind: str = "unknown"
    code: int = 0
    signal: int = 0


def died(log: str, fate: Fate) -> ImageFault:
    """Describe a death during an evaluation."""
    return ImageFault(type="IMAGE-DIED", message=f"The image ended during this call: {cause(log, fate)}.")


def unready(at: str, why: str) -> ImageFault:
    """Describe a death while an edited file was loaded. The call was not run."""
    return ImageFault("IMAGE-DIED", f"The image ended while it took up {at}: {why}. {NOT_RUN}")


def not_run(fault: ImageFault) -> ImageFault:
    """Add to a fault that the call was not run."""
    return msgspec.structs.replace(fault, message=f"{fault.message} {NOT_RUN}")


def exceeded(reason: str) -> ImageFault:
    """Describe an evaluation whose processes exceeded a common limit."""
    return ImageFault(type="IMAGE-DIED", message=f"The image was ended during this call: {reason}.")


def tests_ended(log: str, fate: Fate, at: str) -> ImageFault:
    """Describe the end of a process that ran tests, or first loaded an edited file. The image goes on."""
    when = f" while it took up {at}" if at else ""
    return ImageFault("TESTS-ENDED", f"The process of the tests ended{when}: {cause(log, fate)}.")


def killed(seconds: float, what: str = "The evaluation") -> ImageFault:
    """Describe an evaluation that could be stopped only by SIGKILL."""
    told = f"{what} did not finish within {seconds:g} s and ignored two interrupts"
    message = f"{told}, so the process was ended. {MORE_TIME}"
    return ImageFault(type="TIMEOUT", message=message, interrupted=True)


def broken(error: ImageProtocolError) -> ImageFault:
    """Describe a process that broke the protocol. Its further messages cannot be trusted."""
    told = f"The process of the image broke the protocol: {error}"
    return ImageFault("INVALID-REPLY", f"{told}. Its code may have written on the connection; it was ended.")


def late(fault: ImageFault, seconds: float, what: str = "The evaluation") -> ImageFault:
    """Describe an evaluation that was interrupted at its timeout."""
    message = f"{what} did not finish within {seconds:g} s and was interrupted. {MORE_TIME}"
    return msgspec.structs.replace(fault, type="TIMEOUT", message=message)


def caught(seconds: float) -> str:
    """Describe an evaluation that caught the interrupt at its timeout and went on."""
    return f"After {seconds:g} s the evaluation was interrupted; its code caught that. {MORE_TIME}"


def cause(log: str, fate: Fate) -> str:
    """Describe why a process ended."""
    # After a clean exit the log says nothing about it: its text is older.
    if fate.kind != "exited" or fate.code != 0:
        for sign, words in _SIGNS:
            if sign in log:
                return f"{words} ({_status(fate)})" if fate.kind in ("exited", "signaled") else words
    if fate.kind == "exited":
        return f"its code ended it with {_status(fate)}"
    if fate.kind == "signaled":
        return f"{_SIGNALS.get(fate.signal, 'it was ended')} ({_status(fate)})"
    return "it left no word"


def _status(fate: Fate) -> str:
    if fate.kind == "exited":
        return f"status {fate.code}"
    try:
        return signal.Signals(fate.signal).name
    except ValueError:
        return f"signal {fate.signal}"


def memory_hint(program: Program) -> str:
    """Describe the memory limit of an image and how to raise it. Empty where it is not limited."""
    if program.memory_mb is None:
        return ""
    return f"the image may use {program.memory_mb} MB: start it with --memory for more"


def with_start_hint(told: str, program: Program) -> str:
    """Add the hint to the output of an image that did not start, if that shows too little memory."""
    is_about_memory = program.memory_mb is not None and any(word in told for word in _AT_START)
    return f"{told}\n{memory_hint(program)}" if is_about_memory else told


def with_memory_hint(fault: ImageFault, program: Program) -> ImageFault:
    """Add the hint to a fault or a death that shows too little memory. Return others unchanged."""
    hint = memory_hint(program)
    if not hint or hint in fault.message or not is_about_memory(fault):
        return fault
    told = fault.message.rstrip()
    if told:
        told = f"{told}\n" if "\n" in told else f"{told.rstrip('.')}; "
    return msgspec.structs.replace(fault, message=f"{told}{hint}")


def is_about_memory(fault: ImageFault) -> bool:
    """Return whether a fault or a death shows too little memory."""
    if fault.type == "IMAGE-DIED":
        return any(words in fault.message for words in _DEATHS)
    return any(word in fault.type for word in _TYPES) or any(word in fault.message for word in _MESSAGES)


# The system's messages about an unreachable host or an unknown name.
_UNREACHABLE = re.compile(
    "Network is unreachable|[Nn]ame resolution|Name or service not known|No address associated with hostname|"
    "NAME-SERVICE-ERROR|HOST-NOT-FOUND|TRY-AGAIN"
)
_NO_NETWORK = "the image has no network: start it with --network open for one"
# The meaning of other Python errors here, by type and beginning of the message.
_MEANINGS = {
    (
        "EOFError",
        "EOF when reading a line",
    ): "evaluated code has no standard input: put the value in the code",
    (
        "BdbQuit",
        "",
    ): "no debugger can be talked to here: breakpoint() keeps its moment, to look at the frames",
}
_NO_MODULE = re.compile(r"No module named '([A-Za-z0-9_]+)'")
# Modules whose package has another name.
_PACKAGES = {
    "sklearn": "scikit-learn", "skimage": "scikit-image", "cv2": "opencv-python-headless", "PIL": "pillow",
    "yaml": "pyyaml", "bs4": "beautifulsoup4", "dateutil": "python-dateutil", "dotenv": "python-dotenv",
}  # fmt: skip


def with_hint(fault: ImageFault, program: Program, *, has_input: bool = False) -> ImageFault:
    """Add one line of help to a fault whose cause is the start of the image. Return others unchanged.

    With `has_input` a person could type lines, and the end of the input comes from them.
    """
    hint = "" if has_input and fault.type == "EOFError" else _hint(fault, program)
    if not hint:
        return with_memory_hint(fault, program)
    told = f"{fault.message.rstrip().rstrip('.')}; " if fault.message.strip() else ""
    return msgspec.structs.replace(fault, message=f"{told}{hint}")


def hinted(reply: Reply, program: Program) -> Reply:
    """Return the reply of a copy, or of a job, with the same help if it failed."""
    if reply.error is None:
        return reply
    return msgspec.structs.replace(reply, error=with_hint(reply.error, program))


def _hint(fault: ImageFault, program: Program) -> str:
    is_shut = program.confinement is not Confinement.NONE and program.grants.network is Network.NONE
    if is_shut and _UNREACHABLE.search(f"{fault.type} {fault.message}"):
        return _NO_NETWORK
    kind = fault.type.rpartition(".")[2]
    for (name, beginning), meaning in _MEANINGS.items():
        if kind == name and fault.message.startswith(beginning):
            return meaning
    missing = _NO_MODULE.fullmatch(fault.message) if kind == "ModuleNotFoundError" else None
    return _module_hint(missing[1], program) if missing else _refusal(fault.message, program)


def _module_hint(module: str, program: Program) -> str:
    """Say in which environment a module is missing and how to install it. Not for the project's own."""
    from gramercy.images.installing import installation_for

    project = program.grants.project
    own = (
        (project / place / f"{module}{suffix}" for place in ("", "src") for suffix in ("", ".py"))
        if project
        else ()
    )
    if any(path.exists() for path in own):
        return ""
    try:
        found = installation_for(program, project, [_PACKAGES.get(module, module)])
    except ImageError as error:
        return f"it is not in {program.command[0]}, which the image runs: {error}"
    return f"it is not in {found.place}. If it is a package, a person installs it with: {found.shown}"


# The kernel's messages about a read-only mount, about replacing a mount, and, for Landlock, about a file.
_READ_ONLY = re.compile("Read-only file system|Device or resource busy")
_REFUSED = re.compile("Permission denied")
# Python quotes a path once and Lisp twice. A longer text is not a path.
_QUOTED = re.compile(r"'([^'\n]{1,2000})'|\"([^\"\n]{1,2000})\"")


def _refusal(message: str, program: Program) -> str:
    """Return why a file of the project in a fault cannot be written, and which tools can write it. Else "".

    The message comes from the image and may name any file: only true facts are said about it.
    """
    grants, confinement = program.grants, program.confinement
    if grants.project is None or confinement is Confinement.NONE:
        return ""
    is_refused = confinement is Confinement.LANDLOCK and _REFUSED.search(message)
    if not is_refused and not _READ_ONLY.search(message):
        return ""
    names = [name for found in _QUOTED.finditer(message) if (name := _within(grants.project, found))]
    if names and grants.files is Files.READ:
        return "evaluated code may only read this project, as --files read says: the file tools can write"
    for name in names:
        for place in (name, *above(name)):
            if reason := grants.reasons.get(str(grants.project / place)):
                return f"{shown(name)} is read-only to evaluated code, since {reason}"
    return next(filter(None, (_control(grants.project, name) for name in names)), "")


def _within(project: Path, found: re.Match[str]) -> str:
    """Return a quoted path relative to the project directory, "" for one outside of it."""
    path = os.path.normpath(project / (found[1] or found[2]))
    return path[len(str(project)) + 1 :] if path.startswith(f"{project}/") else ""


def _control(project: Path, name: str) -> str:
    reader = reader_in(project, name)
    if not reader:
        return ""
    told = f"{shown(name)} is a control file, which {reader}: evaluated code can only read it"
    # The file tools do not write files of git either.
    is_of_git = GIT in name.casefold().split("/")
    return told if is_of_git else f"{told}, and the file tools ask a person before they write it"


# A fault of the start repeats at once, so three are enough. Five minutes let a person repair it.
MOST_DEATHS = 3
WITHIN_SECONDS = 300.0


class Breaker:
    """A circuit breaker for failed starts. A death in a call does not count: a state is restored after it."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=MOST_DEATHS)
        self._reason = ""

    def record(self, reason: str) -> None:
        """Note a failed start, with the text of the log."""
        self._deaths.append(monotonic())
        self._reason = reason

    def check(self) -> None:
        """Raise after too many recent failures to start."""
        if len(self._deaths) == MOST_DEATHS and monotonic() - self._deaths[0] < WITHIN_SECONDS:
            raise ImageStartError(
                f"the image died {MOST_DEATHS} times within {WITHIN_SECONDS:g} s while starting; it is not "
                f"tried again until reset. The last time: {self._reason}"
            )

    def reset(self) -> None:
        """Forget the failures, because a person asked to try again."""
        self._deaths.clear()
