"""What an image has beside its project: interpreter, libraries, limits and network, as the user wants them.

Only values: how they are found is the business of whoever makes one, what they mean to a language that of
`cpython` and `sbcl`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

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
