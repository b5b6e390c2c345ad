"""What images take of the machine: private memory, many side by side, floods of output."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from time import perf_counter

import msgspec

from gramercy.images.checkpoints import private_bytes
from gramercy.images.opening import open_image

SIX = "(+ 1 2 3)"
OUTPUT_MB = 50
FLOOD = f"""
import sys, time
from gramercy.images.opening import open_image

def peak(pid):
    with open(f"/proc/{{pid}}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e3

image = open_image("sbcl", project=sys.argv[1])
image.evaluate("{SIX}")
line = "(loop with line = (make-string 1023 :initial-element #\\\\x) repeat {OUTPUT_MB} do " \\
       "(loop repeat 1000 do (write-line line)))"
started = time.perf_counter()
reply = image.evaluate(line)
seconds = time.perf_counter() - started
assert reply.ok and reply.truncated, reply
print([seconds, peak("self"), peak(image.processes()["live"])])
image.close()
"""


class Flood(msgspec.Struct, frozen=True, array_like=True):
    """How long an evaluation with much output took, and the most memory of caller and image in MB."""

    seconds: float
    caller_mb: float
    image_mb: float


def flood(project: Path) -> Flood:
    """Let an image print, and tell what that cost; in a new process, whose peak is its own."""
    command = [sys.executable, "-c", FLOOD, str(project)]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=120, check=True)
    return msgspec.json.decode(done.stdout, type=Flood)


class Crowd(msgspec.Struct, frozen=True):
    """So many idle images: seconds until each has answered, and private MB of each one after the first."""

    size: int
    seconds: float
    private_mb: float


def crowd(size: int, project: Path) -> Crowd:
    """Start images side by side, evaluate in each, and look at all of their processes."""
    with ExitStack() as stack:
        first = open_image("sbcl", name="first", project=project)
        stack.callback(first.close)
        first.evaluate(SIX)
        alone = _private_memory()
        images = [open_image("sbcl", name=f"image-{number}", project=project) for number in range(size - 1)]
        started = perf_counter()
        for image in images:
            stack.callback(image.close)
            assert image.evaluate(SIX).values == ["6"]
        spent = perf_counter() - started
        assert all(image.evaluate(SIX).values == ["6"] for image in images)
        return Crowd(size, spent, (_private_memory() - alone) / (size - 1) / 1e6)


def _private_memory() -> int:
    """Return the private bytes of all processes that descend from this one: images, sandboxes, watchers."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return sum(private_bytes(pid) or 0 for pid in parents if _descends(pid, parents))


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False
