"""SBCL cores with the image's program inside, built at first use and kept in the user's cache.

A core starts in milliseconds, its source in seconds. The name of a core tells which runtime and which source
it belongs to, so that one which does not fit is never found.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING

from gramercy.errors import ImageStartError

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parent / "lisp"
BUILD_SECONDS = 120.0
QUIET_SECONDS = 1.0
KEPT_SECONDS = 30 * 24 * 3600.0
TAIL = 2000


def cache_directory() -> Path:
    """Return where cores are kept."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if root.startswith("/") else Path.home() / ".cache") / "gramercy"


def core_name(sbcl: str, version: str) -> str:
    """Return the name of the core for a runtime and the present source."""
    binary = Path(sbcl).resolve().stat()
    digest = hashlib.sha256(f"{binary.st_size} {binary.st_mtime_ns}".encode())
    for file in sorted(SOURCE.glob("*.lisp")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return f"sbcl-{version}-{digest.hexdigest()[:16]}.core"


def find_core(sbcl: str, version: str) -> Path | None:
    """Return the core, building it when there is none; None where the cache cannot be written."""
    core = cache_directory().resolve() / core_name(sbcl, version)
    try:
        if not core.exists():
            core.parent.mkdir(parents=True, exist_ok=True)
            with _lock(core.with_suffix(".lock")):
                if not core.exists():
                    _build(sbcl, core)
        os.utime(core)
    except OSError:
        return core if core.exists() else None
    _remove_old(core)
    return core


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process build while the others wait; a builder that dies lets go."""
    deadline = monotonic() + BUILD_SECONDS
    with path.open("w") as file:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if monotonic() > deadline:
                raise ImageStartError(
                    f"another process has been building the SBCL core for too long: see {path}"
                )
            sleep(0.05)
        yield


def _build(sbcl: str, core: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="building-", dir=core.parent) as directory:
        made = Path(directory) / "core"
        command = [sbcl, "--noinform", "--no-sysinit", "--no-userinit", "--disable-debugger"]
        command += ["--load", str(SOURCE / "build.lisp")]
        command += ["--eval", f"(gramercy.image:build-core {_lisp_string(made)})"]
        said = _run(command, directory)
        if not made.exists():
            raise ImageStartError(f"the SBCL core cannot be built:\n{said[-TAIL:].strip()}")
        made.replace(core)


def _run(command: list[str], home: str) -> str:
    """Run the build with a clean environment; say on standard error that it takes a while if it does."""
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": home, "LANG": "C.UTF-8"}
    with (
        tempfile.TemporaryFile(dir=home) as log,
        subprocess.Popen(  # noqa: S603 - our own words
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        ) as process,
    ):
        try:
            try:
                process.wait(QUIET_SECONDS)
            except subprocess.TimeoutExpired:
                sys.stderr.write("gramercy: building the SBCL core, once; this takes a few seconds\n")
                process.wait(BUILD_SECONDS)
        except BaseException as error:
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise ImageStartError(f"the SBCL core was not built within {BUILD_SECONDS:g} s") from None
            raise
        log.seek(0)
        return log.read().decode("utf-8", "replace")


def _lisp_string(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _remove_old(current: Path) -> None:
    for path in [*current.parent.glob("sbcl-*.core"), *current.parent.glob("sbcl-*.lock")]:
        with suppress(OSError):
            if path.stem != current.stem and time() - path.stat().st_mtime > KEPT_SECONDS:
                path.unlink()
