"""The user's options for an image beside its project: interpreter, libraries, memory, variables, network.

Only values, their defaults, and the lines of a report about findings. `cpython`, `sbcl` and `opening`
interpret them.
"""

from __future__ import annotations

import contextlib
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import ImageStartError

if TYPE_CHECKING:
    from collections.abc import Mapping

# The languages of images.
LANGUAGES = ("sbcl", "python")


# The DEBUG quality of SBCL's compiler. At 2 the variables of a frame can be read while they are needed, for a
# tenth of the speed at most. At 3 tail calls are not optimized, and deep loops made of them fill the stack.
DEFAULT_DEBUG = 2
MOST_DEBUG = 3


class Network(StrEnum):
    """The allowed network connections of evaluated code."""

    NONE = "none"
    OPEN = "open"


class Files(StrEnum):
    """The permissions of evaluated code for the files of the project."""

    READ = "read"
    WRITE = "write"

    @classmethod
    def parse(cls, word: str) -> Files:
        """Parse a word. read-only is a synonym of read."""
        return cls.READ if word == "read-only" else cls(word)


class Sandbox(StrEnum):
    """The weakest sandbox that an image may be started in. The first is the stronger one."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"


class Reload(StrEnum):
    """How a Python image treats edited files that it has loaded: load them again, report them, or neither."""

    AUTO = "auto"
    TELL = "tell"
    OFF = "off"


class PublishedPort(msgspec.Struct, frozen=True):
    """A port inside the image that programs of this machine can reach on their own loopback."""

    outer: int
    inner: int


class Environment(msgspec.Struct, frozen=True):
    """The user's options for an image. An unset option is found in the project, or has a default.

    `python` is an interpreter or a virtual environment. `paths` are directories outside of the project that
    may be read and imported from. `registries` are trees of Lisp systems outside of the project. `init` is a
    file that is loaded when the image starts. `memory_mb` limits the memory of each process (see
    `memory_for`). `disk_mb` limits the writes of one call to the project. `variables` are added to the
    environment of its processes. `debug` is how well SBCL keeps frames and variables for errors (0 to 3).
    `kept` are read-only paths in the project, beside those that are always protected. `reasons` say why, by
    path, for faults caused by it. `reload` is how a Python image treats edited files. `notes` come with the
    first reply, such as a refused option of a project's own file.
    """

    python: str | None = None
    paths: tuple[Path, ...] = ()
    registries: tuple[Path, ...] = ()
    init: Path | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)
    publish: tuple[PublishedPort, ...] = ()
    network: Network = Network.NONE
    files: Files = Files.WRITE
    require_sandbox: Sandbox | None = None
    debug: int = DEFAULT_DEBUG
    kept: tuple[Path, ...] = ()
    reasons: Mapping[str, str] = msgspec.field(default_factory=dict)
    reload: Reload = Reload.AUTO
    notes: tuple[str, ...] = ()


# The limit for the writes of one call to the project: more than programs leave there, less than fills a disk.
DISK_MB = 1024
# If the machine has it, a Python image gets at least this: enough for numpy, pandas and some data.
PYTHON_MB = 2048
# The heap alone, which SBCL reserves as a whole.
LISP_MB = 1024
# SBCL's memory beside its heap: it starts with 180 MB of tables, and each thread takes 4 MB.
BESIDE_HEAP_MB = 1024
# The limit of a container and its use, as seen from inside: cgroup v2, v1.
_CONTAINER = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
# Python starts with 16 MB and SBCL with 48, but then there is no room for the user's code.
LEAST_MB = 64


def memory_for(language: str, wanted_mb: int | None) -> int:
    """Return the megabytes for a process of the language. Raise if it could not start with them.

    The limit is RLIMIT_DATA, set in `spawning`: private writable memory, not addresses, so libraries, mapped
    files and reserved ranges do not count. It is checked when memory is allocated, so the language raises its
    own error and the process lives on.
    """
    if wanted_mb is None:
        return LISP_MB if language == "sbcl" else python_memory(free_memory())
    if wanted_mb < LEAST_MB:
        raise ImageStartError(
            f"{wanted_mb} MB of memory are too little for a {language} image: give it {LEAST_MB} or more"
        )
    return wanted_mb


def python_memory(free_mb: int | None) -> int:
    """Return the default limit of a Python image: half of the free memory."""
    if free_mb is None:
        return PYTHON_MB
    return max(free_mb // 2, min(PYTHON_MB, free_mb), LEAST_MB)


def free_memory(system: Path = Path("/")) -> int | None:
    """Return the free megabytes of this machine and its container, None if unknown."""
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", (system / "proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    free = [int(found[1]) << 10] if found else []
    for limit, used in _CONTAINER:
        # "max" in place of a number means no limit. v1 writes a number that no machine has.
        with contextlib.suppress(OSError, ValueError):
            most = int((system / limit).read_text())
            free.append(max(0, most - int((system / used).read_text())))
    return min(free) >> 20 if free else None


class Status(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"


class Finding(msgspec.Struct, frozen=True):
    """One line of a report. With a warning something is not used, with a failure something does not work."""

    name: str
    status: Status
    detail: str
    advice: str = ""
