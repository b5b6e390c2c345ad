"""The program that gives up rights and then executes another one.

`… [--network] [--read PATH]… [--write PATH]… -- COMMAND…`, with its own environment and directory.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys

from gramercy.images.confine.seccomp import build_filter
from gramercy.images.python.landlock import TRUNCATE_SINCE, install_filter, landlock_version, restrict

DROP_FROM_BOUNDING_SET = 24
LAST_CAPABILITY = 63
CAPABILITY_VERSION = 0x20080522
USAGE_STATUS, REFUSED_STATUS = 64, 77


def main() -> None:
    """Confine this process and run the command."""
    arguments = sys.argv[1:]
    network = arguments[:1] == ["--network"]
    readable, writable, command = _read_arguments(arguments[1:] if network else arguments)
    try:
        program = _filter(network=network)
        restrict(readable, writable, network=network)
        drop_capabilities()
        install_filter(program)
        os.execvp(command[0], command)  # noqa: S606 - running a command is what this program is for
    except OSError as error:
        sys.stderr.write(f"cannot confine {command[0]}: {error}\n")
        sys.exit(REFUSED_STATUS)


def _filter(*, network: bool) -> bytes:
    machine, version = platform.machine(), landlock_version()
    truncation = version >= TRUNCATE_SINCE
    program = build_filter(machine, namespaces=False, truncation=truncation, network=network)
    if program is None:
        raise OSError(f"no filter of system calls is known for {machine}")
    return program


def _read_arguments(arguments: list[str]) -> tuple[list[str], list[str], list[str]]:
    places: dict[str, list[str]] = {"--read": [], "--write": []}
    words = iter(arguments)
    for word in words:
        if word == "--":
            break
        if word not in places:
            sys.exit(USAGE_STATUS)
        places[word].append(next(words, ""))
    return places["--read"], places["--write"], list(words) or sys.exit(USAGE_STATUS)


def drop_capabilities() -> None:
    """Give up the capabilities of root, also for programs that are run later."""
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    for capability in range(LAST_CAPABILITY + 1):
        # Fails beyond the last capability of this kernel, and without CAP_SETPCAP.
        libc.prctl(DROP_FROM_BOUNDING_SET, ctypes.c_ulong(capability), zero, zero, zero)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")
