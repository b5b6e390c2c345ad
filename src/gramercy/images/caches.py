"""The user's cache: SBCL cores with the image's program inside, and ASDF's compiled files of each project.

A core starts in milliseconds, its source in seconds. The name of a core identifies runtime and source, so a
core that does not fit is never found. Evaluated code can write compiled files, so each project has its own
directory, and images with other rights have another one: an image with more rights never loads files that
confined code wrote.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING

from gramercy.directories import cache_home
from gramercy.errors import ImageStartError
from gramercy.images.asdf import VARIABLE, lisp_string
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Tell = Callable[[str], object]

SOURCE = Path(__file__).parent / "lisp"
# A build takes 5 s. The rest is for a busy machine.
BUILD_SECONDS = 120.0
# The interval of progress lines during a build.
QUIET_SECONDS = 1.0
# Cores and compiled files that were unused for this long are removed.
KEPT_SECONDS = 30 * 24 * 3600.0
# Characters of the output of a failed build: the error is at its end.
TAIL = 2000
# The mode bit that lets every user write.
OTHERS_WRITE = 0o002
# A core serves every project. It must not contain systems of the machine, such as a newer ASDF.
BUILD_REGISTRY = "(:source-registry :ignore-inherited-configuration)"
BUILDING = "building the SBCL core, once; this takes a few seconds"
WAITING = "waiting for the SBCL core, which another process builds"


def cache_directory() -> Path:
    """Return the directory of gramercy in the user's cache."""
    return cache_home() / "gramercy"


def core_name(sbcl: str, version: str) -> str:
    """Return the name of the core for a runtime and the present source."""
    binary = Path(sbcl).resolve().stat()
    digest = hashlib.sha256(f"{binary.st_size} {binary.st_mtime_ns} {BUILD_REGISTRY}".encode())
    for file in sorted(SOURCE.glob("*.lisp")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return f"sbcl-{version}-{digest.hexdigest()[:16]}.core"


def find_core(sbcl: str, version: str, tell: Tell | None = None) -> Path | None:
    """Return the core, building it when there is none. None where it cannot be kept.

    `tell` gets a line about a slow step, once a second while it lasts, and about failures. Without it, each
    line goes to standard error once.
    """
    tell = tell or on_standard_error
    core = cache_directory().resolve() / core_name(sbcl, version)
    try:
        _keep_private(core)
        if not core.exists():
            core.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _lock(core.with_suffix(".lock"), tell):
                if not core.exists():
                    _build(sbcl, core, tell)
        os.utime(core)
    except OSError as error:
        if core.exists():
            return core
        tell(
            f"the SBCL core cannot be kept in {core.parent} ({reason_of(error)}), so images start "
            "from source, which takes seconds: make room there and let it be written, or set XDG_CACHE_HOME"
        )
        return None
    _remove_old(core)
    return core


def _keep_private(core: Path) -> None:
    """Let no other user write the core, since images run it. If others could write it, build it anew."""
    with suppress(FileNotFoundError):
        if core.parent.stat().st_mode & OTHERS_WRITE:
            core.parent.chmod(0o700)
            core.unlink(missing_ok=True)
        if core.lstat().st_mode & OTHERS_WRITE:
            core.unlink()


@cache
def on_standard_error(text: str) -> None:
    """Write a line to standard error, once in each process."""
    write_line(text)


def write_line(text: str) -> None:
    """Write a line to standard error, each time."""
    # EPIPE from a client that has closed its end, or ENOSPC from a log, must not cause a failure.
    with suppress(OSError, ValueError):
        sys.stderr.write(f"gramercy: {text}\n")


@contextmanager
def _lock(path: Path, tell: Tell) -> Iterator[None]:
    """Let one process build while the others wait. The kernel releases the lock of a dead process."""
    begun = told = monotonic()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as file:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            now = monotonic()
            if now > begun + BUILD_SECONDS:
                raise ImageStartError(
                    f"another process has been building the SBCL core for too long: see {path}"
                )
            if now > told + QUIET_SECONDS:
                told = now
                tell(WAITING)
            sleep(0.05)
        yield


def _build(sbcl: str, core: Path, tell: Tell) -> None:
    with tempfile.TemporaryDirectory(prefix="building-", dir=core.parent) as directory:
        made = Path(directory) / "core"
        command = [
            str(Path(sbcl).absolute()),
            "--noinform",
            "--no-sysinit",
            "--no-userinit",
            "--disable-debugger",
        ]
        command += ["--load", str(SOURCE / "build.lisp")]
        command += ["--eval", f"(gramercy.image:build-core {lisp_string(str(made))})"]
        status, said = _run(command, directory, tell)
        if not made.exists():
            raise ImageStartError(f"the SBCL core cannot be built:\n{said[-TAIL:].strip()}")
        if status != 0:
            # When the disk or a quota is full, SBCL leaves a truncated core.
            raise OSError(errno.ENOSPC, "it could not be written to its end; the disk may be full")
        made.chmod(0o600)
        _write_through(made)
        made.replace(core)


def _write_through(path: Path) -> None:
    """Sync a file before it is renamed: after a crash a truncated core would be used repeatedly."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _run(command: list[str], home: str, tell: Tell) -> tuple[int, str]:
    """Run the build with a clean environment; return its exit status and output."""
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": home, "LANG": "C.UTF-8"}
    environment[VARIABLE] = BUILD_REGISTRY
    with (
        tempfile.TemporaryFile(dir=home) as log,
        subprocess.Popen(  # noqa: S603 - our own words
            command, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        ) as process,
    ):
        try:
            status = _wait(process, tell)
        except BaseException:
            process.kill()
            raise
        log.seek(0)
        return status, log.read().decode("utf-8", "replace")


def _wait(process: subprocess.Popen[bytes], tell: Tell) -> int:
    latest = monotonic() + BUILD_SECONDS
    while monotonic() < latest:
        try:
            return process.wait(QUIET_SECONDS)
        except subprocess.TimeoutExpired:
            tell(BUILDING)
    raise ImageStartError(f"the SBCL core was not built within {BUILD_SECONDS:g} s")


@cache
def _remove_old(current: Path) -> None:
    """Remove, once in each process, cores that were not used for long."""
    for path in [*current.parent.glob("sbcl-*.core"), *current.parent.glob("sbcl-*.lock")]:
        with suppress(OSError):
            if path.stem != current.stem and time() - path.stat().st_mtime > KEPT_SECONDS:
                path.unlink()


# The limit of all compile caches together: some dozens of projects with large libraries.
MOST_BYTES = 2 << 30
# Free space on the disk. A library such as ironclad takes 20 MB.
LEAST_FREE_BYTES = 64 << 20
# A cache that was opened within a day may be in use, and is not evicted.
IN_USE_SECONDS = 24 * 3600.0
# A sweep walks through all caches, so it runs once a day.
SWEEP_SECONDS = 24 * 3600.0


def build_key(sbcl: str, version: str) -> str:
    """Return a key of everything that compiled files depend on: builds of one version differ in features."""
    binary = Path(sbcl).resolve()
    words = []
    for file in (binary, binary.parent.parent / "lib/sbcl/sbcl.core"):
        with suppress(OSError):
            status = file.stat()
            words.append(f"{status.st_size} {status.st_mtime_ns}")
    return f"sbcl-{version}-{platform.machine()}-{_digest(words)[:8]}"


def fasl_directory(project: Path | None, build: str, rights: str, sources: Iterable[Path] = ()) -> Path:
    """Return the compile cache for a project and the rights of an image there.

    `sources` are the directories of its libraries: files compiled against one version of a library must not
    be loaded with another.
    """
    name = _digest([str(project), *map(str, sources)])[:16]
    return cache_directory().resolve() / "fasl" / f"{build}-{name}-{rights}" / "files"


def open_cache(directory: Path, project: Path | None) -> str | None:
    """Prepare the directory. Return why it cannot be used, or None when it can."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # It lies outside of the image's writable area. Its mtime is the last use, its content the project.
        (directory.parent / "project").write_text(f"{project}\n", encoding="utf-8", errors="replace")
        with tempfile.TemporaryFile(dir=directory):
            pass
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return f"{directory} cannot be written ({reason_of(error)})"
    if free < LEAST_FREE_BYTES:
        return f"{directory} has only {free >> 20} MB left"
    _sweep(directory.parent)
    return None


def size_of(directory: Path) -> int:
    """Return the bytes below a directory, without following links that evaluated code may have made."""
    return sum(status.st_size for status in _files(directory))


def _files(directory: Path) -> Iterator[os.stat_result]:
    for place, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                yield os.stat(os.path.join(place, name), follow_symlinks=False)  # noqa: PTH116, PTH118 - many


def _sweep(current: Path) -> None:
    """Remove, once a day, caches of deleted projects, those unused for long, and the oldest beyond 2 GB."""
    stamp = current.parent / "swept"
    with suppress(OSError):
        if stamp.exists() and time() - stamp.stat().st_mtime < SWEEP_SECONDS:
            return
        stamp.touch()
        kept = 0
        for age, cache in sorted(_ages(current.parent)):
            kept += size_of(cache)
            is_old = age > KEPT_SECONDS or (age > IN_USE_SECONDS and (kept > MOST_BYTES or _is_orphan(cache)))
            if is_old and cache != current:
                shutil.rmtree(cache, ignore_errors=True)


def _is_orphan(cache: Path) -> bool:
    project = (cache / "project").read_text(encoding="utf-8", errors="replace").strip()
    return project.startswith("/") and not Path(project).is_dir()


def _ages(directory: Path) -> Iterator[tuple[float, Path]]:
    for kept in directory.iterdir():
        with suppress(OSError):
            yield time() - (kept / "project").stat().st_mtime, kept


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()
