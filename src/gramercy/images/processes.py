"""The processes of one image: a zygote that only forks, and its descendants, each with its own connection.

This module knows nothing of evaluations and checkpoints: it starts, forks, connects and ends processes. They
share a private directory for temporary files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from collections import deque
from functools import cache
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import ImageError, ImageGoneError, ImageProtocolError, ImageStartError
from gramercy.images import groups
from gramercy.images.connection import Connection
from gramercy.images.deaths import Fate, with_start_hint
from gramercy.images.handover import Ends
from gramercy.images.output import Log, OutputMirror
from gramercy.images.ports import DIALER, Relay
from gramercy.images.sandbox import Confinement, Grants, inner_places
from gramercy.images.spawning import Spawned
from gramercy.images.wire import Forked

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.environment import PublishedPort
    from gramercy.images.files.listener import Listener
    from gramercy.images.sentry import Sentry
    from gramercy.images.walls import Walls

# A zygote starts within 0.1 s from a core and within 5 s from source. The rest is for a busy machine.
START_SECONDS = 30.0
# Children that may have been dropped and not have ended yet: some of the kept states and moments.
MOST_LEAVING = 64
# A fork takes milliseconds, but with a heap of gigabytes on a busy machine some seconds.
FORK_SECONDS = 10.0
# How often a wait for a child checks whether its parent has died.
TURN_SECONDS = 0.05
# A child whose parent has ended connects within milliseconds, or never: another process holds its end. The
# rest is for a machine that stalls and for hooks that run first in a forked process: the state would be lost.
ORPHAN_SECONDS = 5.0
# From SIGKILL to the end: the kernel may have gigabytes to free.
STOP_SECONDS = 2.0
# The output of a zygote that failed to start is already in the pipe. This is for the thread that reads it.
END_OF_LOG_SECONDS = 0.5
# A process closes its socket a moment before its parent can reap it. The rest is for a busy machine.
FATE_SECONDS = 5.0
# The interval of checks whether a starting live process has ended.
BEGIN_TURN_SECONDS = 0.5
FATE_TURN_SECONDS = 0.002


class Program(msgspec.Struct, frozen=True):
    """How to start the zygote of a language. The descriptor of its connection is appended to the command.

    `saved` returns how to start from a saved core, for a language that has them. `memory_mb` is the user's
    limit. `notes` are for the user, with the first reply. `start_seconds` is the timeout for the hello of a
    process that the zygote forks.
    """

    language: str
    command: list[str]
    encode: Callable[[dict[str, Any]], bytes]
    grants: Grants = msgspec.field(default_factory=Grants)
    confinement: Confinement = Confinement.BUBBLEWRAP
    saved: Callable[[Path], Program] | None = None
    memory_mb: int | None = None
    publish: tuple[PublishedPort, ...] = ()
    notes: tuple[str, ...] = ()
    start_seconds: float = FORK_SECONDS


class Family:
    """Starts the zygote, lets processes fork, connects to their children, and ends them all.

    `heir_of` is a family about to be closed, whose published ports this one takes over. `notes` are for the
    user.
    """

    def __init__(self, program: Program, *, heir_of: Family | None = None) -> None:
        self.program = program
        self.notes = list(program.notes)
        self.relay: Relay | None = None
        self.directory = PrivateDirectory()
        self.log, self.mirror = self._outputs()
        self._numbers = count(1)
        self._ends = Ends()
        # The children that connected last. Dropped ones end by themselves, a moment later.
        self.met_pids: deque[int] = deque(maxlen=MOST_LEAVING)
        self._spawned: Spawned | None = None
        # Ends by itself after the last process. Closing waits for that.
        self.listener: Listener | None = None
        # Protects control files of the project. None where nothing is confined.
        self.sentry: Sentry | None = None
        self.zygote = self._start(heir_of)

    def _outputs(self) -> tuple[Log, OutputMirror | None]:
        """Return the log and the mirror of the processes. On failure nothing is left behind."""
        log = None
        try:
            log = Log()
            return log, OutputMirror.make()
        except OSError:
            if log is not None:
                log.close_writer()
            self.directory.remove()
            raise

    def _start(self, heir_of: Family | None) -> Connection:
        try:
            tag = self._ends.new()
            line = self._ends.fresh.pop(tag)
            command = [*self.program.command, "--connection", str(line.fileno())]
            inherited: tuple[int, ...] = (line.fileno(),)
            if self.mirror is not None:
                inherited = (*inherited, self.mirror.fd)
                command += ["--mirror", str(self.mirror.fd)]
            if self.program.publish:
                self.relay = Relay(self.program.publish, heir_of.relay if heir_of is not None else None)
                self.notes += self.relay.notes
            with line:
                self._spawn(command, inherited)
            return self._first(tag)
        except (OSError, ImageError) as error:
            self.close()
            self.log.wait_for_end(END_OF_LOG_SECONDS)
            told = f"{error}\n{self.log.tail().strip()}".rstrip()
            told = with_start_hint(told, self.program)
            raise ImageStartError(f"the {self.program.language} image does not start: {told}") from None
        except BaseException:
            self.close()
            raise
        finally:
            self.log.close_writer()

    def _spawn(self, command: list[str], inherited: tuple[int, ...]) -> None:
        grants = msgspec.structs.replace(self.program.grants, private=self.directory.path)
        if self.relay is not None:
            command = self.relay.command(command)
            inherited = (*inherited, self.relay.descriptor)
            grants = msgspec.structs.replace(grants, readable=(*grants.readable, *inner_places(DIALER)))
        self._spawned = Spawned(
            command, self.program.confinement, grants, self.log.writer, inherited=inherited
        )
        walls: Walls | None = self._spawned.walls
        self.sentry = walls.sentry if walls is not None else None
        if self.relay is not None:
            self.relay.start()

    def _first(self, tag: str) -> Connection:
        """Return the zygote, which says hello by itself."""
        try:
            return self.meet(tag, START_SECONDS)
        except ImageGoneError:
            # Its end closes a moment before it can be reaped.
            deadline = monotonic() + FATE_SECONDS
            while self.is_alive and monotonic() < deadline:
                sleep(FATE_TURN_SECONDS)
            self._check_alive()
            raise

    def fork(
        self, source: Connection, role: str, seconds: float = FORK_SECONDS, *, plain: bool | None = None
    ) -> Connection:
        """Let a process fork and return the connection of its child. `plain` skips the init file."""
        tag, pid = self._forked(source, role, seconds, plain=plain)
        may_end = source is self.zygote and self.program.start_seconds > FORK_SECONDS and not plain
        try:
            child = self._begun(tag, pid) if may_end else self.meet(tag, seconds)
        finally:
            self.forget(tag)
        child.parent = source
        return child

    def _forked(self, source: Connection, role: str, seconds: float, **more: Any) -> tuple[str, int]:
        tag = self.new_tag()
        try:
            answer = source.request(Forked, seconds, "fork", role=role, tag=tag, **more)
        except ImageError:
            self.forget(tag)
            raise
        if not answer.ok:
            self.forget(tag)
            raise ImageError(answer.reason or "the image cannot be forked")
        return tag, answer.pid

    def _begun(self, tag: str, pid: int) -> Connection:
        """Return the live process that the zygote forked. If the init file ended it, skip the init file."""
        deadline = monotonic() + self.program.start_seconds
        while monotonic() < deadline and tag in self._ends:
            with contextlib.suppress(ImageGoneError):
                return self.meet(tag, BEGIN_TURN_SECONDS)
            if not self.is_alive or self._told_by(self.zygote, pid).kind in ("exited", "signaled"):
                break
        limit = f"{self.program.start_seconds:g} s"
        if "--init" not in self.program.command:
            raise ImageGoneError(f"its process ended when it began, or was not ready within {limit}")
        child = self.fork(self.zygote, "live", plain=True)
        if child.hello is not None:
            note = f"The init file is left out: it ended its process, or was not done within {limit}."
            child.hello = msgspec.structs.replace(child.hello, notes=[*child.hello.notes, note])
        return child

    def new_tag(self) -> str:
        """Return a name for a future child. The request that names it carries the child's end."""
        return self._ends.new()

    @property
    def is_scarce(self) -> bool:
        """Whether few descriptors were left when the latest tag was made."""
        return self._ends.is_scarce

    def forget(self, tag: str | None) -> None:
        """Stop waiting for the child with that tag."""
        if tag is not None:
            self._ends.forget(tag)

    def meet(self, tag: str, seconds: float, *, parent: Connection | None = None) -> Connection:
        """Return the connection of the child with that tag, waiting for it if needed.

        Waits only ORPHAN_SECONDS once the `parent` that should fork it has ended.
        """
        deadline = monotonic() + seconds
        while True:
            known = self._arrived(tag)
            if known is not None:
                return known
            self._check_alive()
            if parent is not None and parent.has_ended():
                deadline, parent = min(deadline, monotonic() + ORPHAN_SECONDS), None
            left = deadline - monotonic()
            if left <= 0:
                raise ImageGoneError("a process of the image did not say hello in time")
            # Short turns, so that the death of a zygote is noticed soon.
            self._ends.wait(tag, min(left, TURN_SECONDS))

    def met(self, tag: str) -> Connection | None:
        """Return the connection of the child with that tag if it has connected. Raise where it never will."""
        return self._arrived(tag)

    def _arrived(self, tag: str) -> Connection | None:
        arrival = self._ends.take(tag)
        if arrival is None:
            return None
        connection = Connection(arrival.channel, self.program.encode, self._numbers, self._ends, arrival)
        try:
            if self._spawned is not None and not self._spawned.is_above(arrival.pid):
                # Without confinement root can forge the kernel's word about a sender.
                raise ImageProtocolError("a process that is none of the image's said hello")
            connection.read_hello(arrival.frame)
        except ImageError:
            connection.close()
            raise
        self.met_pids.append(connection.pid)
        return connection

    def wait_for_child(self, tag: str, seconds: float) -> None:
        """Wait, on any thread, until a child says hello or cannot connect. `met` accepts it."""
        self._ends.wait(tag, seconds)

    def _check_alive(self) -> None:
        if not self.is_alive:
            status = self._spawned.status() if self._spawned is not None else "unknown"
            raise ImageGoneError(f"it ended with status {status}")

    def kill(self, connection: Connection, *, waits: bool = False) -> None:
        """Send SIGKILL to a process and close its connection, with `waits` after it has ended."""
        connection.signal(signal.SIGKILL)
        if waits:
            connection.wait_for_end(STOP_SECONDS)
        connection.close()

    def fate(self, connection: Connection) -> Fate:
        """Return the end of a process, from its parent or the zygote, which reaps orphans (subreaper)."""
        deadline = monotonic() + FATE_SECONDS
        parents = [self.zygote] if connection.parent is None else [connection.parent, self.zygote]
        # An orphan reaches the zygote a little later, when its parent has ended too.
        while monotonic() < deadline and self.is_alive:
            for parent in parents:
                fate = self._told_by(parent, connection.inner_pid)
                if fate.kind in ("exited", "signaled"):
                    return fate
            sleep(FATE_TURN_SECONDS)
        return Fate()

    @staticmethod
    def _told_by(parent: Connection, pid: int) -> Fate:
        try:
            return parent.request(Fate, FATE_SECONDS, "fate", pid=pid)
        except ImageError:
            return Fate()

    def end_first(self) -> None:
        """Kill the first process. All the others end with it."""
        if self._spawned is not None:
            self._spawned.kill()

    @property
    def is_alive(self) -> bool:
        """Whether the zygote still runs."""
        return self._spawned is not None and self._spawned.status() is None

    def close(self) -> None:
        """End every process and remove their shared files."""
        if self.relay is not None:
            self.relay.close()
        if self.listener is not None:
            self.listener.holds_forks = True
        if self._spawned is not None:
            self._spawned.end(STOP_SECONDS)
        self._ends.close()
        if self.listener is not None:
            self.listener.join(STOP_SECONDS)
        with contextlib.suppress(AttributeError):  # it is missing when the start failed
            self.zygote.close()
        self.log.close_writer()
        self.directory.remove()
        if self.mirror is not None:
            self.mirror.close()


def start_family(program: Program, heir_of: Family | None = None) -> Family:
    """Start the processes of an image in a control group, or without one if the group is what fails."""
    try:
        return Family(program, heir_of=heir_of)
    except ImageStartError as error:
        if not groups.scope(program.grants.memory_mb):
            raise
        groups.refuse("systemd gives no group")
        try:
            return Family(program, heir_of=heir_of)
        except ImageStartError:
            groups.allow()
            raise error from None


PREFIX = "gramercy-image-"
LOCK = "lock"


class PrivateDirectory:
    """A directory for temporary files, locked as long as this process lives."""

    def __init__(self) -> None:
        _tidy_up(os.getpid())
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        (self.path / "tmp").mkdir(mode=0o700)
        # Locked before it gets its name: other processes remove a directory whose lock is free.
        unnamed = self.path / f"{LOCK}.new"
        self._lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unnamed.rename(self.path / LOCK)

    def remove(self) -> None:
        """Remove it with its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


@cache
def _tidy_up(process: int) -> None:
    """Remove, once in each process, the directories of killed processes: their locks are free."""
    del process  # the key of the cache: a forked process tidies up again
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            _remove_if_left(directory)


def _remove_if_left(directory: Path) -> None:
    if directory.is_symlink() or directory.stat().st_uid != os.getuid():
        return
    # Without a lock file (ENOENT) it is just being made.
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)
