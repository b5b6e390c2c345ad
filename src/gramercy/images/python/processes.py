"""Fork this process and reap the copies.

Only copies made here are reaped, so that user code can wait for its own children. The zygote, which runs no
user code, adopts and reaps every orphan. Their wait statuses are kept for a while.
"""

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any

from .threads import Threads, count

_fork, _waitpid, _listdir, _getpid, _exit = os.fork, os.waitpid, os.listdir, os.getpid, os._exit
_waitid, _clock = os.waitid, time.monotonic
_open, _read, _close, _setpgid = os.open, os.read, os.close, os.setpgid
_signaled, _signal, _code = os.WIFSIGNALED, os.WTERMSIG, os.WEXITSTATUS
_PAGE = os.sysconf("SC_PAGE_SIZE")
_NOHANG = os.WNOHANG
_ALL, _LOOK = os.P_ALL, os.WEXITED | os.WNOHANG | os.WNOWAIT
_SUBREAPER = 36
# Wait statuses kept: the parent asks for one right after EOF, so only the latest matter.
_REMEMBERED = 64
_interval, _set_interval = sys.getswitchinterval, sys.setswitchinterval
# Seconds that a woken thread waits while this one checks and forks: longer than both take, and soon over.
_STILL = 0.05
_ATTEMPTS = 5
_modules = sys.modules


class CannotForkError(Exception):
    """A fork was refused, with the reason."""


class Family:
    """The processes this one has forked for the parent, and how the last of them ended."""

    def __init__(self) -> None:
        self._copies: set[int] = set()
        self._ended: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        self._adopts = False
        self._threads = Threads()
        # For a copy: the duration of its fork.
        self.fork_us = 0
        # For a copy: functions that restart the threads that it lacks.
        self.asleep: list[Callable[[], object]] = []

    def why_not(self) -> str | None:
        """Return why this process cannot be copied, or None when it can. Empties idle thread pools."""
        return self._threads.obstacle()

    def fork(self, *, is_asked: bool = False) -> int:
        """Fork. Return 0 in the copy. `is_asked`: `why_not` was called, and nothing has run since."""
        reason = None if is_asked else self.why_not()
        if reason is not None:
            raise CannotForkError(reason)
        dice = _random_state()
        began = _clock()
        try:
            pid = self._fork_beside_threads() if self._threads.resting else _uninterrupted_fork()
        except CannotForkError:
            raise
        except Exception as error:  # noqa: BLE001 - no memory, no processes left, or an audit hook of the user's
            raise CannotForkError(f"fork failed: {error}") from None
        if pid == 0:
            self._begin_as_copy(began)
            _restore_random(dice)
        else:
            self._copies.add(pid)
        return pid

    def _begin_as_copy(self, began: float) -> None:
        # Its own process group: code that kills its group must not kill its checkpoints.
        with suppress(OSError):
            _setpgid(0, 0)
        self.fork_us = int((_clock() - began) * 1e6)
        self._copies = set()
        self._ended.clear()
        gone = self._threads.begin_as_copy()
        for rest in gone:
            with suppress(Exception):  # user code owns these objects
                rest.mend()
        self.asleep += [rest.revive for rest in gone if rest.revive is not None]

    def _fork_beside_threads(self) -> int:
        """Fork while all other threads wait. A thread that is woken now does not run before the fork."""
        interval = _interval()
        for _attempt in range(_ATTEMPTS):
            # A thread that waits for its turn from now on waits this long, unless this thread yields.
            _set_interval(_STILL)
            try:
                reason = self.why_not()
                if reason is not None:
                    raise CannotForkError(reason)
                if self._threads.is_still():
                    return _uninterrupted_fork()
            finally:
                _set_interval(interval)
        raise CannotForkError("threads that wait were woken again and again")

    def wake(self) -> None:
        """Restart, in a copy, the threads that served the original process."""
        asleep, self.asleep = self.asleep, []
        for revive in asleep:
            with suppress(Exception):  # user code owns these objects, and may have patched threading
                revive()

    def reap(self) -> None:
        """Reap the copies that have ended."""
        # One system call for any number of copies.
        if self._copies and _any_ended():
            for pid in list(self._copies):
                self._collect(pid)

    def fate(self, pid: int) -> dict[str, object]:
        """Return the wait status of a child, or that it runs, as far as known."""
        if self._adopts:
            self._collect_all()
        if (pid in self._copies or self._adopts) and self._collect(pid):
            return {"kind": "running"}
        # The latest first, since pids are reused. The handler of SIGCHLD may append meanwhile, so a copy.
        for known, status in reversed(tuple(self._ended)):
            if known == pid and _signaled(status):
                return {"kind": "signaled", "signal": _signal(status)}
            if known == pid:
                return {"kind": "exited", "code": _code(status)}
        return {"kind": "unknown"}

    def _collect(self, pid: int) -> bool:
        """Reap a child if it has ended. Return whether it still runs."""
        try:
            ended, status = _waitpid(pid, _NOHANG)
        except (OSError, OverflowError):
            # Not a child, or reaped already, by the handler of SIGCHLD or by user code.
            self._copies.discard(pid)
            return False
        if ended:
            self._remember(ended, status)
        return not ended

    def _collect_all(self) -> None:
        with suppress(OSError):
            while True:
                ended, status = _waitpid(-1, _NOHANG)
                if not ended:
                    return
                self._remember(ended, status)

    def _remember(self, pid: int, status: int) -> None:
        self._copies.discard(pid)
        self._ended.append((pid, status))

    def adopt_orphans(self, prctl: Callable[..., int]) -> None:
        """Become the subreaper of orphaned descendants and reap every child that ends."""
        self._adopts = True
        prctl(_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: self._collect_all())

    def stop_adopting(self) -> None:
        """Leave children alone again: in a live process they belong to user code."""
        self._adopts = False
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _uninterrupted_fork() -> int:
    """Fork. Each fork waits until the keeper has counted it, and a signal during that interrupts it."""
    while True:
        with suppress(InterruptedError):
            return _fork()


def _any_ended() -> bool:
    """Return whether there is a zombie, either a copy or a child of user code."""
    try:
        return _waitid(_ALL, 0, _LOOK) is not None
    except OSError:
        return True


def _random_state() -> object:
    """Return the state of the shared generator: `random` reseeds in a copy, a checkpoint must not."""
    try:
        return _modules["random"].getstate()
    except Exception:  # noqa: BLE001 - not loaded, or patched by user code
        return None


def _restore_random(dice: object) -> None:
    if dice is not None:
        try:
            _modules["random"].setstate(dice)
        except Exception:  # noqa: BLE001 - as above
            return


def state() -> dict[str, object]:
    """Return the measurements of this process."""
    return {"threads": count(), "heap_bytes": _resident(), "pid": _getpid()}


def _resident() -> int:
    try:
        file = _open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(_read(file, 200).split()[1]) * _PAGE
        finally:
            _close(file)
    except Exception:  # noqa: BLE001 - no /proc, or an audit hook of the user's
        return 0


def end_all() -> None:
    """End the zygote and, when it leads its session, everything in the session.

    The copies have their own process groups, and one in an endless loop never reads the EOF.
    """
    own = _getpid()
    if os.getsid(0) == own:
        for name in _listdir("/proc"):
            if name.isdecimal() and int(name) != own:
                with suppress(OSError):
                    if os.getsid(int(name)) == own:
                        os.kill(int(name), signal.SIGKILL)
    _exit(0)


# Modules that are loaded when a process is first started other than by a fork, and those ways.
SPAWNERS = ("multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver")
_WAYS = ("spawn", "forkserver")
_launching: list[None] = []


def refuse_session(spawner: ModuleType) -> None:
    """Refuse to send functions of the session to a process that lacks them: a pool would wait for ever."""
    popen: Any = vars(spawner).get("Popen")
    reduction: Any = _modules.get("multiprocessing.reduction")
    if popen is None or reduction is None:
        return
    launch = popen._launch  # noqa: SLF001 - there is no other place that all starts pass

    def launched(self: object, process: object) -> object:
        _launching.append(None)
        try:
            return launch(self, process)
        finally:
            _launching.pop()

    popen._launch = launched  # noqa: SLF001 - see above
    reduction.ForkingPickler.reducer_override = _sent


def _sent(_pickler: object, value: object) -> object:
    if type(value) is not FunctionType and not issubclass(type(value), type):
        return NotImplemented
    main = _modules.get("__main__")
    is_ours = getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None
    if getattr(value, "__module__", None) != "__main__" or not is_ours or not _is_spawned():
        return NotImplemented
    raise TypeError(
        f"{getattr(value, '__name__', value)} is defined in this session, which a process that is started by "
        "spawn or forkserver does not have: put it into a module of the project, or use "
        "multiprocessing.get_context('fork')."
    )


def _is_spawned() -> bool:
    """Return whether data may be sent to a process that was not forked."""
    process: Any = _modules.get("multiprocessing.process")
    children = getattr(process, "_children", ())
    return bool(_launching) or any(
        getattr(getattr(child, "_popen", None), "method", None) in _WAYS for child in list(children)
    )
