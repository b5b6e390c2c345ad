"""The owner of a call: a process name that is never used twice, and whether the process still lives.

A process of this machine is identified by its id and its start time, since ids are reused. Processes of other
machines, and of containers with another namespace of ids, cannot be checked from here: their lease tells
whether they live.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

# Journals of this process that are open; a closed journal runs no calls any more.
_open_here: set[str] = set()


def new_owner() -> str:
    """Return a name for a journal that this process opens: host/boot/namespace/pid/start/nonce."""
    pid = os.getpid()
    owner = f"{_place()}/{pid}/{_started(pid)}/{os.urandom(4).hex()}"
    _open_here.add(owner)
    return owner


def leave(owner: str) -> None:
    """Remove a name: its journal was closed."""
    _open_here.discard(owner)


def is_here(owner: str) -> bool:
    """Tell whether an owner belongs to this machine since its last boot, and to this namespace."""
    return owner.startswith(f"{_place()}/")


def is_alive(owner: str) -> bool | None:
    """Tell whether an owner still runs; None if that cannot be determined from here."""
    place, _, rest = owner.rpartition("/")[0].rpartition("/")[0].rpartition("/")
    if not rest.isdigit():
        return None
    started = owner.split("/")[-2]
    host, boot, _ = (*place.split("/"), "", "")[:3]
    here_host, here_boot, _ = _place().split("/")
    if host == here_host and boot != here_boot:
        # This machine has rebooted since.
        return False
    if place != _place():
        return None
    if int(rest) == os.getpid() and started == _started(os.getpid()):
        return owner in _open_here
    return bool(started) and _started(int(rest)) == started


@cache
def _place() -> str:
    """Return host, boot and the namespace of process ids."""
    host = os.uname().nodename.replace("/", "_")
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        space = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        boot = space = ""
    return f"{host}/{boot}/{space}"


def _started(pid: int) -> str:
    """Return the start time of a process, in ticks since boot; empty if it does not exist or is a zombie."""
    try:
        # The name of the program stands in parentheses and may hold any character.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
