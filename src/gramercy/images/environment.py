"""What the user wants for an image beside its project: interpreter, libraries, memory, variables, network.

Only values, their defaults, and the lines of a report about what was found. What they mean is the business of
`cpython`, `sbcl` and `opening`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from gramercy.errors import ImageStartError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Network(StrEnum):
    """What evaluated code may connect to."""

    NONE = "none"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class PublishedPort:
    """A port inside the image that programs of this machine reach on their own loopback."""

    outer: int
    inner: int


@dataclass(frozen=True, slots=True)
class Environment:
    """The user's own word on an image. What is not told is found in the project, or has a default.

    `python` is an interpreter or a virtual environment; `paths` are directories outside of the project that
    may be read and imported from; `registries` are trees of Lisp systems outside of the project; `init` is a
    file that is loaded when the image starts; `memory_mb` bounds the memory that each process uses;
    `variables` are added to the environment of its processes. `notes` are sentences for whoever uses the
    image first, such as what was refused of a project's own file.
    """

    python: str | None = None
    paths: tuple[Path, ...] = ()
    registries: tuple[Path, ...] = ()
    init: Path | None = None
    memory_mb: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    publish: tuple[PublishedPort, ...] = ()
    network: Network = Network.NONE
    notes: tuple[str, ...] = ()


PYTHON_MB = 2048
LISP_MB = 1024
# Beside its heap, which counts as a whole, SBCL starts with 180 MB of tables; each thread takes 4 MB.
BESIDE_HEAP_MB = 1024
# Python comes up with 16 MB and SBCL with 48, but then there is no room left for the user's code.
LEAST_MB = 64


def memory_for(language: str, wanted_mb: int | None) -> int:
    """Return what an image of the language may use; a limit under which it cannot start is refused."""
    if wanted_mb is None:
        return LISP_MB if language == "sbcl" else PYTHON_MB
    if wanted_mb < LEAST_MB:
        raise ImageStartError(
            f"{wanted_mb} MB of memory are too little for a {language} image: give it {LEAST_MB} or more"
        )
    return wanted_mb


class Status(StrEnum):
    """How good it is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report. A warning leaves something out of use, a failure breaks a promise."""

    name: str
    status: Status
    detail: str
    advice: str = ""
