"""Say in words why an evaluation ended early: its process died, its time was up, its memory was used up.

The cause comes from the exit status, where that is known, and from what the process left in the log.
"""

from __future__ import annotations

import signal
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import ImageStartError
from gramercy.images.base import ImageFault

if TYPE_CHECKING:
    from gramercy.errors import ImageProtocolError
    from gramercy.images.processes import Program

# What runtimes print before they die, and what that means.
_SIGNS = (
    ("Heap exhausted", "it ran out of heap"),
    ("GC invariant lost", "its garbage collector failed"),
    ("Control stack guard page", "it ran out of control stack"),
    ("MemoryError", "it ran out of memory"),
    ("Segmentation fault", "it accessed memory that is not its own"),
    ("fatal error", "its runtime gave up"),
)
# What tells of too little memory: the type or the message of an error (the second message is of the dynamic
# loader), the output of a runtime that does not start (also of a core bigger than the limit), or a death.
_TYPES = ("MemoryError", "HEAP-EXHAUSTED")
_MESSAGES = ("Cannot allocate memory", "failed to map segment from shared object")
_AT_START = ("MemoryError", "Heap exhausted", "too small for core", "allocate", "out of memory")
_DEATHS = ("it ran out of heap", "it ran out of memory")
MORE_TIME = (
    "The limit is set by --timeout or, where the operator allows it, by the argument timeout of the call."
)
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
    """How a process ended, as its parent learned by waitpid: `exited`, `signaled`, `running` or `unknown`."""

    kind: str = "unknown"
    code: int = 0
    signal: int = 0


def died(log: str, fate: Fate) -> ImageFault:
    """Describe a death during an evaluation."""
    return ImageFault(type="IMAGE-DIED", message=f"The image ended during this call: {_cause(log, fate)}.")


def exceeded(reason: str) -> ImageFault:
    """Describe an evaluation whose processes used more than all of them may together."""
    return ImageFault(type="IMAGE-DIED", message=f"The image was ended during this call: {reason}.")


def killed(seconds: float) -> ImageFault:
    """Describe an evaluation that could be stopped only by SIGKILL."""
    told = f"The evaluation did not finish within {seconds:g} s and ignored two interrupts"
    message = f"{told}, so its process was ended. {MORE_TIME}"
    return ImageFault(type="TIMEOUT", message=message, interrupted=True)


def broken(error: ImageProtocolError) -> ImageFault:
    """Describe a process that broke the protocol: what else it sends cannot be believed to mean anything."""
    told = f"The process of the image broke the protocol: {error}"
    return ImageFault("INVALID-REPLY", f"{told}. Its code may have written on the connection; it was ended.")


def late(fault: ImageFault, seconds: float) -> ImageFault:
    """Describe an evaluation that was interrupted at its timeout."""
    message = f"The evaluation did not finish within {seconds:g} s and was interrupted. {MORE_TIME}"
    return msgspec.structs.replace(fault, type="TIMEOUT", message=message)


def caught(seconds: float) -> str:
    """Describe an evaluation that caught the interrupt at its timeout and went on."""
    return f"After {seconds:g} s the evaluation was interrupted; its code caught that. {MORE_TIME}"


def _cause(log: str, fate: Fate) -> str:
    # After a clean exit the log tells nothing: what stands there is older.
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
    """Say how much memory an image may use and how to get more; nothing where it is not limited."""
    if program.memory_mb is None:
        return ""
    return f"the image may use {program.memory_mb} MB: start it with --memory for more"


def with_start_hint(told: str, program: Program) -> str:
    """Add the hint to the output of an image that did not start, if that tells of too little memory."""
    is_about_memory = program.memory_mb is not None and any(word in told for word in _AT_START)
    return f"{told}\n{memory_hint(program)}" if is_about_memory else told


def with_memory_hint(fault: ImageFault, program: Program) -> ImageFault:
    """Add the hint to a fault, or a death, that tells of too little memory; return others as they are."""
    hint = memory_hint(program)
    if not hint or hint in fault.message or not _is_about_memory(fault):
        return fault
    told = fault.message.rstrip()
    if told:
        told = f"{told}\n" if "\n" in told else f"{told.rstrip('.')}; "
    return msgspec.structs.replace(fault, message=f"{told}{hint}")


def _is_about_memory(fault: ImageFault) -> bool:
    if fault.type == "IMAGE-DIED":
        return any(words in fault.message for words in _DEATHS)
    return any(word in fault.type for word in _TYPES) or any(word in fault.message for word in _MESSAGES)


# A fault of the start repeats at once, so three are enough to tell; five minutes let a person repair it.
MOST_DEATHS = 3
WITHIN_SECONDS = 300.0


class Breaker:
    """A circuit breaker for failed starts; a death in a call, after which a state is restored, is none."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=MOST_DEATHS)
        self._reason = ""

    def record(self, reason: str) -> None:
        """Note a failed start, with what the log said."""
        self._deaths.append(monotonic())
        self._reason = reason

    def check(self) -> None:
        """Raise when too many starts have failed lately."""
        if len(self._deaths) == MOST_DEATHS and monotonic() - self._deaths[0] < WITHIN_SECONDS:
            raise ImageStartError(
                f"the image died {MOST_DEATHS} times within {WITHIN_SECONDS:g} s while starting; it is not "
                f"tried again until reset. The last time: {self._reason}"
            )

    def reset(self) -> None:
        """Forget the failures, because a person asked to try again."""
        self._deaths.clear()
