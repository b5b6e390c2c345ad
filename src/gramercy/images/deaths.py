"""Say in words why an image ended, from the little that is known."""

from __future__ import annotations

from gramercy.images.base import ImageFault

LOG_SHOWN = 2000

_SIGNS = (
    ("Heap exhausted", "it ran out of heap"),
    ("GC invariant lost", "its garbage collector failed"),
    ("Control stack guard page", "it ran out of control stack"),
    ("MemoryError", "it ran out of memory"),
    ("Segmentation fault", "it accessed memory that is not its own"),
    ("fatal error", "its runtime gave up"),
)


def died(log: str, code: str) -> ImageFault:
    """Describe a death in the middle of a call."""
    return ImageFault(
        type="IMAGE-DIED", message=f"The image ended during this call: {_cause(log, code)}.", backtrace=[]
    )


def killed(seconds: float) -> ImageFault:
    """Describe an evaluation that could be stopped only by ending the process."""
    told = f"The evaluation did not finish within {seconds:g} s and ignored two interrupts"
    message = f"{told}, so its process was ended."
    return ImageFault(type="TIMEOUT", message=message, interrupted=True)


def _cause(log: str, code: str) -> str:
    for sign, words in _SIGNS:
        if sign in log:
            return words
    for word in ("exit", "quit", "_exit", "kill", "abort"):
        if word in code:
            return f"the code may have asked for it ({word})"
    return "it left no word"
