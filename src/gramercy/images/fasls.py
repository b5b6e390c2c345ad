"""Where an SBCL image keeps what ASDF has compiled: for the next session, never in the user's own cache.

Evaluated code can write there, so each project has one of its own, and images with other rights have another:
what confined code wrote is never loaded by an image that may do more.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from gramercy.images.cores import KEPT_SECONDS, cache_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_BYTES = 2 << 30
# A library such as ironclad takes 20 MB.
LEAST_FREE_BYTES = 64 << 20
# One in use must not be removed for room.
IN_USE_SECONDS = 24 * 3600.0
SWEEP_SECONDS = 24 * 3600.0


def build_key(sbcl: str, version: str) -> str:
    """Return what compiled files depend on: the version alone would mix builds with other features."""
    binary = Path(sbcl).resolve()
    words = []
    for file in (binary, binary.parent.parent / "lib/sbcl/sbcl.core"):
        with suppress(OSError):
            status = file.stat()
            words.append(f"{status.st_size} {status.st_mtime_ns}")
    return f"sbcl-{version}-{platform.machine()}-{_digest(words)[:8]}"


def fasl_directory(project: Path | None, build: str, rights: str, sources: Iterable[Path] = ()) -> Path:
    """Return the directory for a project and what an image there may do.

    `sources` are the places of its libraries: a file that was compiled against one version of a library must
    not be taken for one that was compiled against another.
    """
    name = _digest([str(project), *map(str, sources)])[:16]
    return cache_directory().resolve() / "fasl" / f"{build}-{name}-{rights}" / "files"


def open_cache(directory: Path, project: Path | None) -> str | None:
    """Make the directory ready; return why it cannot be used, or None when it can."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Beside the files, where no image can write: when it was last used, and by which project.
        (directory.parent / "project").write_text(f"{project}\n", encoding="utf-8", errors="replace")
        with tempfile.TemporaryFile(dir=directory):
            pass
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return f"{directory} cannot be written ({error.strerror})"
    if free < LEAST_FREE_BYTES:
        return f"{directory} has only {free >> 20} MB left"
    _sweep(directory.parent)
    return None


def size(directory: Path) -> int:
    """Return how many bytes are kept in a directory, without following links that code in an image made."""
    return sum(status.st_size for status in _files(directory))


def _files(directory: Path) -> Iterator[os.stat_result]:
    for place, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                yield os.stat(os.path.join(place, name), follow_symlinks=False)  # noqa: PTH116, PTH118 - many


def _sweep(current: Path) -> None:
    """Remove, once a day, what nobody needs: of projects that are gone, unused for long, or too much."""
    stamp = current.parent / "swept"
    with suppress(OSError):
        if stamp.exists() and time() - stamp.stat().st_mtime < SWEEP_SECONDS:
            return
        stamp.touch()
        kept = 0
        for age, cache in sorted(_ages(current.parent)):
            kept += size(cache)
            is_old = age > KEPT_SECONDS or (age > IN_USE_SECONDS and (kept > MOST_BYTES or _is_orphan(cache)))
            if is_old and cache != current:
                shutil.rmtree(cache, ignore_errors=True)


def _is_orphan(cache: Path) -> bool:
    project = (cache / "project").read_text(encoding="utf-8", errors="replace").strip()
    return project.startswith("/") and not Path(project).is_dir()


def _ages(directory: Path) -> Iterator[tuple[float, Path]]:
    for cache in directory.iterdir():
        with suppress(OSError):
            yield time() - (cache / "project").stat().st_mtime, cache


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()
