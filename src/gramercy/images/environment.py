"""What the user wants for an image beside its project: interpreter, libraries, memory, variables, network.

Only values, their defaults, and the lines of a report about what was found. What they mean is the business of
`cpython`, `sbcl` and `opening`.
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

# The languages in which there are images.
LANGUAGES = ("sbcl", "python")


# Quality DEBUG of SBCL's compiler. At 2 the variables of a frame can be read as long as they are needed, for
# a tenth of the speed at most; at 3 a tail call is none, and deep loops made of them fill the stack.
DEFAULT_DEBUG = 2
MOST_DEBUG = 3


class Network(StrEnum):
    """What evaluated code may connect to."""

    NONE = "none"
    OPEN = "open"


class Files(StrEnum):
    """What evaluated code may do with the files of the project."""

    READ = "read"
    WRITE = "write"

    @classmethod
    def parse(cls, word: str) -> Files:
        """Read a word; read-only is another one for read."""
        return cls.READ if word == "read-only" else cls(word)


class Sandbox(StrEnum):
    """The least sandbox that an image may be started in; the first is the stronger one."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"


class Reload(StrEnum):
    """What a Python image does with edited files that it has loaded: take them up, tell it, or neither."""

    AUTO = "auto"
    TELL = "tell"
    OFF = "off"


class PublishedPort(msgspec.Struct, frozen=True):
    """A port inside the image that programs of this machine reach on their own loopback."""

    outer: int
    inner: int


class Environment(msgspec.Struct, frozen=True):
    """What the user wants for an image. What is not set is found in the project, or has a default.

    `python` is an interpreter or a virtual environment; `paths` are directories outside of the project that
    may be read and imported from; `registries` are trees of Lisp systems outside of the project; `init` is a
    file that is loaded when the image starts; `memory_mb` limits the memory of each process (see
    `memory_for`); `disk_mb` is what one call may write to the project; `variables` are added to the
    environment of its processes; `debug` is how well SBCL keeps frames and variables for errors (0 to 3).
    `kept` are paths in the project that evaluated code may only read, beside those that are always
    protected; `reasons` say why, by path, for a fault that comes of it. `reload` is what a Python image does
    with edited files. `notes` come with the first reply, such as what was refused of a project's own file.
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


# What one call may write to the project: more than programs leave there, less than fills a disk.
DISK_MB = 1024
# Where the machine has it, a Python image has at least this: enough for numpy, pandas and data of some size.
PYTHON_MB = 2048
# The heap alone, which SBCL reserves as a whole.
LISP_MB = 1024
# What SBCL may use beside its heap: it starts with 180 MB of tables, and each thread takes 4 MB.
BESIDE_HEAP_MB = 1024
# The limit of a container and what it uses, as seen from inside: cgroup v2, v1.
_CONTAINER = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
# Python comes up with 16 MB and SBCL with 48, but then there is no room left for the user's code.
LEAST_MB = 64


def memory_for(language: str, wanted_mb: int | None) -> int:
    """Return the megabytes that a process of the language may use; raise where it could not start with them.

    The limit is RLIMIT_DATA, set in `spawning`: private writable memory, not addresses, so that libraries,
    mapped files and reserved ranges are free. It counts when memory is asked for, so that the language raises
    its own error and the process lives on.
    """
    if wanted_mb is None:
        return LISP_MB if language == "sbcl" else python_memory(free_memory())
    if wanted_mb < LEAST_MB:
        raise ImageStartError(
            f"{wanted_mb} MB of memory are too little for a {language} image: give it {LEAST_MB} or more"
        )
    return wanted_mb


def python_memory(free_mb: int | None) -> int:
    """Return what a Python image may use by default: half of what is free."""
    if free_mb is None:
        return PYTHON_MB
    return max(free_mb // 2, min(PYTHON_MB, free_mb), LEAST_MB)


def free_memory(system: Path = Path("/")) -> int | None:
    """Return the megabytes that are free on this machine and in its container; None if that is not known."""
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", (system / "proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    free = [int(found[1]) << 10] if found else []
    for limit, used in _CONTAINER:
        # "max" in place of a number is no limit; v1 writes a number that no machine has.
        with contextlib.suppress(OSError, ValueError):
            most = int((system / limit).read_text())
            free.append(max(0, most - int((system / used).read_text())))
    return min(free) >> 20 if free else None


class Status(StrEnum):
    """How good a finding is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"


class Finding(msgspec.Struct, frozen=True):
    """One line of a report: with a warning something is not used, with a failure something does not work."""

    name: str
    status: Status
    detail: str
    advice: str = ""
