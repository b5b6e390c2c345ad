"""Keep evaluated code from leaving files in a project that the person's programs would run.

Git, editors, agents and shells read files of a project that name programs. Read-only mounts protect those
that exist at the start, also deeper ones. Three missing directories at the top are protected by an empty
placeholder. Other missing names have no mount: a sentry watches them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from typing import TYPE_CHECKING

from gramercy.images.census import census
from gramercy.images.guarded import GIT
from gramercy.images.own import own_notes
from gramercy.images.programs import find_program
from gramercy.images.project import COMMON, HELD, has_repository, is_empty
from gramercy.images.sentry import Sentry
from gramercy.images.trust import Witness

if TYPE_CHECKING:
    from pathlib import Path

# An attempt fails only if another image removes the directory at that moment.
TRIES = 50
# The time of a placeholder (2001-09-09). It distinguishes it from an empty directory of the person.
MARK_NS = 1_000_000_000 * 10**9
# Reads until its host has closed its standard input, or was killed. The processes inside end with the host. A
# second later there is none left that could use a removed mount point. Those that another host has locked
# stay: "/." since flock creates a missing file.
_AFTER = """
while read -r line; do :; done
sleep 1
for each; do
    if [ -d "$each" ]; then flock -n -x "$each/." rmdir "$each"; fi
done
"""


class Placeholders:
    """Empty directories in place of missing ones, shared by all images of a project, removed by the last.

    Two of them stop git where the project has no repository of its own: it skips an empty .git, and stops at
    a `commondir` that is a directory, wherever HEAD was planted.
    """

    def __init__(self, project: Path) -> None:
        names = HELD if has_repository(project) else (GIT, COMMON, *HELD)
        self._held: dict[Path, int] = {}
        for path in (project / name for name in names):
            if is_empty(path) or (not os.path.lexists(path) and os.access(project, os.W_OK)):
                descriptor = _hold(path)
                if descriptor is not None:
                    self._held[path] = descriptor
        self._heir = _heir([str(path) for path in self._held if _is_ours(path)])

    def close(self) -> None:
        """Remove each that is still empty and that no other image holds, and unlock it."""
        if self._heir is not None:
            self._heir.kill()
            self._heir.wait()
            if self._heir.stdin is not None:
                self._heir.stdin.close()
            self._heir = None
        for path, descriptor in self._held.items():
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # An empty .git is not a repository of anyone. Of the others only created ones are removed.
                if path.name == GIT or os.fstat(descriptor).st_mtime_ns == MARK_NS:
                    path.rmdir()
            os.close(descriptor)
        self._held.clear()


def _is_ours(path: Path) -> bool:
    """Return whether a directory is a placeholder: empty, with the time that only these have."""
    with contextlib.suppress(OSError):
        return path.lstat().st_mtime_ns == MARK_NS and is_empty(path)
    return False


def _heir(paths: list[str]) -> subprocess.Popen[bytes] | None:
    """Start a process that removes placeholders if this one is killed. None where that is impossible."""
    if not paths or find_program("flock") is None:
        return None
    with contextlib.suppress(OSError):
        return subprocess.Popen(  # noqa: S603 - our own words
            ["/bin/sh", "-c", _AFTER, "sh", *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C at the terminal is for the host.
            start_new_session=True,
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
        )
    return None


def remove_leftovers(project: Path) -> None:
    """Remove placeholders that a killed process has left and no living one holds."""
    for path in (project / name for name in (GIT, COMMON, *HELD)):
        if not _is_ours(path):
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.rmdir()
            finally:
                os.close(descriptor)


def _hold(path: Path) -> int | None:
    """Take a shared lock on a directory, created if needed. Retry if another image has removed it."""
    for _ in range(TRIES):
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                os.utime(path, ns=(MARK_NS, MARK_NS))
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    return descriptor
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)
    return None


class Walls:
    """The placeholders and the sentry of one image, from its start until all its processes have ended."""

    def __init__(self, project: Path, kept: tuple[Path, ...] = (), *, holds: bool) -> None:
        # Without mounts a placeholder would protect nothing.
        self._placeholders = Placeholders(project) if holds else None
        found = census(project)
        self.held = tuple(project / name for name in found.held)
        self.sentry = Sentry(project, found, own_notes(project))
        self._witness = Witness(project, kept if holds else ())

    def leave(self) -> list[str]:
        """Check a last time, after the end of every process, and release the placeholders."""
        told = self.sentry.close()
        self._witness.close(could_write=self.sentry.has_written or not self.sentry.listens)
        if self._placeholders is not None:
            self._placeholders.close()
        return told
