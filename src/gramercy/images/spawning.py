"""Start the first process of an image, with its limits, so that no process of it outlives this one."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import select
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from gramercy.images.caches import write_line
from gramercy.images.confine.seccomp import build_filter
from gramercy.images.environment import Files
from gramercy.images.groups import scope, scope_environment
from gramercy.images.kin import living
from gramercy.images.sandbox import (
    Confinement,
    Grants,
    child_environment,
    confined_command,
    environment_options,
)
from gramercy.images.walls import Walls, remove_leftovers

if TYPE_CHECKING:
    from collections.abc import Callable

# Each turn kills all running processes. Only a fork bomb that is faster survives some.
MOST_TURNS = 10
SURELY_EMPTY = 2
# From a process up to the first one. Each restored state adds a generation, while it is kept.
MOST_GENERATIONS = 1000
# A shell sets the limits: Python code between fork and exec (preexec_fn) is not safe with threads.
# RLIMIT_DATA (-d), not RLIMIT_AS: libraries map far more addresses than they use memory. No core dumps (-c).
_LIMIT = """
ulimit -c 0
ulimit -d "$1" 2>/dev/null
ulimit -S -n "$2"
ulimit -H -n "$3"
shift 3
exec "$@"
"""
# Each descriptor can hold kernel memory, a socket some 400 KB. The first is the usual limit of programs on
# most systems. The second leaves room above it for the image's own connection.
DESCRIPTORS, MOST_DESCRIPTORS = 1024, 4096
# Without a pid namespace a busy image would outlive this process when that is killed. This shell waits for
# EOF on a pipe of ours and then kills the session of the first process.
_WATCH = """
leader=$1
read -r _
for turn in 1 2 3; do
    for file in /proc/[0-9]*/stat; do
        read -r line < "$file" || continue
        set -- ${line##*) }
        process=${file#/proc/}
        if [ "$4" = "$leader" ]; then kill -9 "${process%/stat}"; fi
    done
done
"""


class Spawned:
    """The first process of an image, the watching shell and the walls that end with it."""

    def __init__(
        self,
        command: list[str],
        confinement: Confinement,
        grants: Grants,
        log: int,
        *,
        inherited: tuple[int, ...] = (),
    ) -> None:
        self._is_namespaced = confinement is Confinement.BUBBLEWRAP
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None
        self.walls: Walls | None = None
        if grants.project:
            remove_leftovers(grants.project)
        if grants.project and confinement is not Confinement.NONE and grants.files is Files.WRITE:
            self.walls = Walls(grants.project, grants.kept, holds=self._is_namespaced)
            grants = msgspec.structs.replace(grants, held=self.walls.held)
        try:
            self._process = _start(command, confinement, grants, log, inherited)
            if not self._is_namespaced:
                self._watch = _watch(self._process.pid)
        except BaseException:
            self.end(0.0)
            raise

    def status(self) -> int | None:
        """Return the exit status of the process, or None while it runs.

        WNOWAIT leaves it a zombie: until `end` its pid, the id of the session, must not be recycled.
        """
        if self._process is None:
            return 0
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return -signal.SIGKILL  # reaped just now, after `end`
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def kill(self) -> None:
        """Kill the process. `end` does the rest."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def is_above(self, pid: int) -> bool:
        """Return whether a process descends from this one. In a pid namespace no other can be named."""
        if self._is_namespaced or self._process is None:
            return self._is_namespaced
        for _ in range(MOST_GENERATIONS):
            if pid == self._process.pid or pid <= 1:
                break
            pid = _parent(pid)
        return pid == self._process.pid

    def end(self, seconds: float) -> None:
        """Kill every process, also those that evaluated code has started."""
        if self._process is not None and self._process.returncode is None:
            inner = _children(self._process.pid) if self._is_namespaced else []
            if not self._is_namespaced:
                _end_session(self._process.pid)
            self._process.kill()
            _reap(self._process, seconds)
            _wait_for(inner, seconds)
        self._release()

    def _release(self) -> None:
        if self._watch is not None:
            # Killed before it can act on EOF: the id of the session may be reused by now.
            self._watch.kill()
            self._watch.wait()
            if self._watch.stdin is not None:
                self._watch.stdin.close()
        if self.walls is not None:
            for line in self.walls.leave():
                write_line(line)
            self.walls = None


def _reap(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a killed process. If that takes longer, leave the wait to a thread."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        # On a busy machine freeing gigabytes takes seconds. Without this thread it would stay a zombie.
        threading.Thread(target=process.wait, name="gramercy-reaper", daemon=True).start()


def _start(
    command: list[str], confinement: Confinement, grants: Grants, log: int, inherited: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    limit = "unlimited" if grants.memory_mb is None else str(grants.memory_mb * 1024)
    environment = child_environment(confinement, grants)
    with contextlib.ExitStack() as descriptors:
        seccomp = options = None
        if confinement is Confinement.BUBBLEWRAP:
            program = build_filter(platform.machine(), namespaces=True)
            seccomp = _readable(program, descriptors) if program is not None else None
            options = _readable(environment_options(environment), descriptors)
            # The user's variables are for the image only, not for the shell and bubblewrap.
            environment = child_environment(confinement, msgspec.structs.replace(grants, environment={}))
        words = confined_command(command, confinement, grants, seccomp=seccomp, options=options)
        if group := scope(grants.memory_mb):
            words, environment = [*group, *words], {**environment, **scope_environment()}
        passed = tuple(each for each in (*inherited, seccomp, options) if each is not None)
        return _on_lasting_thread(
            lambda: subprocess.Popen(  # noqa: S603 - our own words
                ["/bin/sh", "-c", _LIMIT, "sh", limit, *_descriptors(), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
                cwd=grants.project,
                pass_fds=passed,
            )
        )


def _descriptors() -> tuple[str, str]:
    """Return the soft and hard limit of descriptors for an image's process: never more than here."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    return str(min(DESCRIPTORS, most)), str(most)


def _watch(leader: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own words
        ["/bin/sh", "-c", _WATCH, "sh", str(leader)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        # The user's variables may be secrets, and other processes of the user can read those of this one.
        env={"PATH": os.defpath},
    )


def _readable(content: bytes, descriptors: contextlib.ExitStack) -> int:
    """Return the descriptor of a memfd with the content, to be inherited."""
    descriptor = os.memfd_create("gramercy")
    descriptors.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _children(process: int) -> list[int]:
    """Return pidfds of the children of bubblewrap: the first process of the namespace."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        words = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        for word in words:
            with contextlib.suppress(OSError):
                found.append(os.pidfd_open(int(word)))
    return found


def _wait_for(descriptors: list[int], seconds: float) -> None:
    """Wait until processes have ended. The first one of a namespace ends after all others in it."""
    deadline = monotonic() + seconds
    for descriptor in descriptors:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        ended.poll(max(0.0, deadline - monotonic()) * 1000)
        os.close(descriptor)


def _end_session(leader: int) -> None:
    """Kill the descendants of the first process, repeatedly since they may be forking."""
    empty = 0
    for _ in range(MOST_TURNS):
        found = _kin(leader)
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        # A process that forked and ended between the listing and the check leaves a child that neither shows.
        empty = 0 if found else empty + 1
        if empty == SURELY_EMPTY:
            return


def _kin(leader: int) -> list[int]:
    """Return the processes of a leader's session, and its descendants that have left the session.

    The leader is a subreaper, so a descendant that loses its parent stays one.
    """
    there = living()
    found = {process for process, (_, session) in there.items() if session == leader}
    grown = True
    while grown:
        below = {process for process, (parent, _) in there.items() if parent in found or parent == leader}
        grown = not below <= found
        found |= below
    return sorted(found - {leader})


def _parent(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(") ")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


_threads: dict[int, ThreadPoolExecutor] = {}
_threads_lock = threading.Lock()


def _on_lasting_thread(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Call it on a thread that lives as long as this process.

    PR_SET_PDEATHSIG (bwrap --die-with-parent) fires when the thread that forked ends, not the process.
    """
    process = os.getpid()
    with _threads_lock:
        if process not in _threads:
            _threads[process] = ThreadPoolExecutor(1, thread_name_prefix="gramercy-spawn")
    return _threads[process].submit(start).result()
