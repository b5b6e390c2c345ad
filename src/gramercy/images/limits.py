"""How much memory an image may use, and what to say when that is not enough.

The kernel counts the private writable memory of each process (RLIMIT_DATA), not its addresses: libraries,
files that are mapped and ranges that are only reserved are free. What is asked for counts at once, so that
the language says that there is no more, and the process need not be ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import ImageStartError

if TYPE_CHECKING:
    from gramercy.images.base import ImageFault
    from gramercy.images.processes import Program

PYTHON_MB = 2048
LISP_MB = 1024
# Beside its heap, which counts as a whole, SBCL starts with 180 MB of tables; each thread takes 4 MB.
BESIDE_HEAP_MB = 1024
# Python comes up with 16 MB and SBCL with 48, but then there is no room left for the user's code.
LEAST_MB = 64
_TYPES = ("MemoryError", "HEAP-EXHAUSTED")
# The second is what the loader says of a library whose data does not fit.
_MESSAGES = ("Cannot allocate memory", "failed to map segment from shared object")
# What runtimes print that cannot start: for lack of memory, or since a saved state is bigger than the limit.
_AT_START = ("MemoryError", "Heap exhausted", "too small for core", "allocate", "out of memory")
# As the reports of deaths put it.
_DEATHS = ("it ran out of heap", "it ran out of memory")


def memory_for(language: str, wanted_mb: int | None) -> int:
    """Return what an image of the language may use; a limit under which it cannot start is refused."""
    if wanted_mb is None:
        return LISP_MB if language == "sbcl" else PYTHON_MB
    if wanted_mb < LEAST_MB:
        raise ImageStartError(
            f"{wanted_mb} MB of memory are too little for a {language} image: give it {LEAST_MB} or more"
        )
    return wanted_mb


def memory_hint(program: Program) -> str:
    """Say what an image may use and how to get more; nothing where it is not limited."""
    if program.memory_mb is None:
        return ""
    return f"the image may use {program.memory_mb} MB: start it with --memory for more"


def with_start_hint(told: str, program: Program) -> str:
    """Add the hint to what an image said that did not start, if that tells of too little memory."""
    is_about_memory = program.memory_mb is not None and any(word in told for word in _AT_START)
    return f"{told}\n{memory_hint(program)}" if is_about_memory else told


def with_memory_hint(fault: ImageFault, program: Program) -> ImageFault:
    """Add the hint to a fault that tells of too little memory, also by a death; return others as they are."""
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
