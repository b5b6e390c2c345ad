"""A control group for the processes of an image, in which the kernel itself bounds their memory.

systemd creates it, by the user's manager or, for root, the system's, and removes it with its last process,
even when this process is killed. Without systemd there is no group: processes and subgroups cannot share a
group, so this process would have to move itself, and groups of another manager are not ours.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from gramercy.directories import runtime_directory

ROOT = Path("/sys/fs/cgroup")
# Exists while systemd runs, as sd_booted(3) says.
RUNNING = Path("/run/systemd/system")
PREFIX = "gramercy-image-"
# Evaluating processes may use twice the memory of one process, and so may kept ones.
TIMES_MEMORY = 4
# How much earlier the kernel kills evaluating processes than kept ones, of 1,000.
SOONER = 300
# Never from a directory that a project could have put on PATH.
PLACES = "/usr/bin:/bin"
RUNTIME = "XDG_RUNTIME_DIR"
# Why systemd refused a group to this process, if it has.
_refused: list[str] = []


def why_none() -> str | None:
    """Return why no group can be created here, None where it can."""
    if _refused:
        return _refused[0]
    if not (ROOT / "cgroup.controllers").exists():
        return f"no control groups of version 2 are at {ROOT}"
    if not RUNNING.is_dir() or shutil.which("systemd-run", path=PLACES) is None:
        return "systemd does not run here"
    user = os.geteuid()
    above = ROOT / f"user.slice/user-{user}.slice/user@{user}.service" if user else ROOT
    if user and not ((runtime := runtime_directory()) and (runtime / "systemd").is_dir()):
        return "systemd has no session for this user"
    try:
        controllers = (above / "cgroup.controllers").read_text().split()
    except OSError:
        controllers = []
    return None if "memory" in controllers else "systemd may not bound the memory of this user's programs"


def told_bound() -> str:
    """Describe what bounds the memory of an image."""
    lacking = why_none()
    return "memory bounded by a control group" if lacking is None else f"memory watched ({lacking})"


def refuse(reason: str) -> None:
    """Create no more groups in this process."""
    _refused[:] = [reason]


def allow() -> None:
    """Create groups again."""
    _refused.clear()


def scope(memory_mb: int | None) -> list[str]:
    """Return the words before a command that put it into a group. Empty without groups."""
    if memory_mb is None or why_none() is not None:
        return []
    manager = ["--user"] if os.geteuid() else []
    unit = f"--unit={PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    bounds = (f"MemoryMax={TIMES_MEMORY * memory_mb}M", "MemorySwapMax=0", "OOMPolicy=continue")
    words = [word for bound in bounds for word in ("-p", bound)]
    program = shutil.which("systemd-run", path=PLACES) or "systemd-run"
    # Its variables are not for the image.
    rest = ["--", "env", "-u", RUNTIME, "-u", "INVOCATION_ID"]
    return [program, *manager, "--scope", "--quiet", "--collect", unit, *words, *rest]


def scope_environment() -> dict[str, str]:
    """Return the variables that locate the user's manager."""
    return {RUNTIME: os.environ[RUNTIME]} if RUNTIME in os.environ and os.geteuid() else {}


class Group:
    """The group that a process of an image is in, as the kernel tells."""

    def __init__(self, place: Path, limit: int) -> None:
        self._place = place
        self.limit = limit
        self._known = self._kills()
        self._scored: dict[int, int] = {}

    @classmethod
    def of(cls, process: int) -> Group | None:
        """Return the group of ours that a process is in, None where it is in another."""
        with contextlib.suppress(OSError, ValueError, StopIteration):
            lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
            path = next(line[3:] for line in lines if line.startswith("0::"))
            place = ROOT / path.lstrip("/")
            if place.name.startswith(PREFIX):
                return cls(place, int((place / "memory.max").read_text()))
        return None

    def has_killed(self) -> bool:
        """Return whether the kernel has killed processes for lack of memory since the last call of this."""
        before, self._known = self._known, self._kills()
        return self._known > before

    def _kills(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            for line in (self._place / "memory.events").read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
        return 0

    def prefer(self, zygote: int, running: list[int], kept: set[int]) -> None:
        """Let the kernel kill evaluating processes before the states that would restore them."""
        least = self._scored.get(zygote)
        if least is None:
            least = _score(zygote)
        wanted = {zygote: least, **dict.fromkeys(kept, least)}
        wanted |= dict.fromkeys(running, min(1000, least + SOONER))
        for process, score in wanted.items():
            if self._scored.get(process) != score:
                with contextlib.suppress(OSError):
                    Path(f"/proc/{process}/oom_score_adj").write_text(str(score))
        self._scored = wanted


def _score(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/oom_score_adj").read_text())
    except (OSError, ValueError):
        return 0
