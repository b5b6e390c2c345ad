"""Say in words why an image ended: from its status, where that is known, and from what it left in the log."""

from __future__ import annotations

import signal

import msgspec

from gramercy.images.base import ImageFault

_SIGNS = (
    ("Heap exhausted", "it ran out of heap"),
    ("GC invariant lost", "its garbage collector failed"),
    ("Control stack guard page", "it ran out of control stack"),
    ("MemoryError", "it ran out of memory"),
    ("Segmentation fault", "it accessed memory that is not its own"),
    ("fatal error", "its runtime gave up"),
)
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
    """How a process ended, as its parent learned it: `exited`, `signaled`, `running` or `unknown`."""

    kind: str = "unknown"
    code: int = 0
    signal: int = 0


def died(log: str, fate: Fate) -> ImageFault:
    """Describe a death in the middle of a call."""
    return ImageFault(type="IMAGE-DIED", message=f"The image ended during this call: {_cause(log, fate)}.")


def killed(seconds: float) -> ImageFault:
    """Describe an evaluation that could be stopped only by ending the process."""
    told = f"The evaluation did not finish within {seconds:g} s and ignored two interrupts"
    message = f"{told}, so its process was ended. {MORE_TIME}"
    return ImageFault(type="TIMEOUT", message=message, interrupted=True)


def late(fault: ImageFault, seconds: float) -> ImageFault:
    """Describe an evaluation that was interrupted because its time was up."""
    message = f"The evaluation did not finish within {seconds:g} s and was interrupted. {MORE_TIME}"
    return msgspec.structs.replace(fault, type="TIMEOUT", message=message)


def caught(seconds: float) -> str:
    """Say of an evaluation that went on after its limit that it was told to stop."""
    return f"After {seconds:g} s the evaluation was interrupted; its code caught that. {MORE_TIME}"


def _cause(log: str, fate: Fate) -> str:
    # A clean exit is told by its status alone: what stands in the log is then older.
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
