"""Move a live process into its environment right after its fork: the zygote never runs code of the user's."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from . import systems
from .arrival import Options
from .evaluation import Run
from .session import Session

_signal, _timer = signal.signal, signal.setitimer
_ALARM, _REAL, _DEFAULT = signal.SIGALRM, signal.ITIMER_REAL, signal.SIG_DFL
# The parent waits twice as long for a process to connect.
_PATIENCE = 5
_INIT_PATIENCE = 30
_LARGEST = 16 * 1024 * 1024


class TooSlow(BaseException):
    """What runs at the start takes too long; nothing in it shall catch this by chance."""


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def give_up(_number: int, _frame: object) -> None:
        raise TooSlow(f"it takes more than {seconds} seconds")

    _signal(_ALARM, give_up)
    _timer(_REAL, seconds)
    try:
        yield
    finally:
        _timer(_REAL, 0)
        _signal(_ALARM, _DEFAULT)


class Household:
    """What the command line says about packages, project and the file to run first."""

    def __init__(self, options: Options) -> None:
        self._first = options.first
        self._init = options.init
        self._site = None
        systems.not_granted.extend(options.outside)
        if options.site:
            # With -S it does nothing by itself; what it needs is loaded once, for all live processes.
            import site

            self._site = site

    def move_in(self) -> None:
        """Take up the packages of the environment, then put the project first.

        In this order a sitecustomize of the project does not run, as with `python script.py`; the code of
        .pth files and the environment's own sitecustomize do.
        """
        if self._site is not None:
            try:
                with _limited(_PATIENCE):
                    self._site.main()
            except BaseException as error:  # noqa: BLE001 - code of the environment, which may do anything
                _tell(f"the environment {sys.prefix} could not be taken up: {type(error).__name__}: {error}")
        sys.path[:0] = [path for path in self._first if path not in sys.path]

    def run_init(self, session: Session) -> None:
        """Run the user's file in `__main__`; what fails in it is told on the log."""
        if self._init is None:
            return
        name = self._init

        def work(_run: Run) -> None:
            with open(name, "rb") as file:  # noqa: PTH123 - pathlib may be patched by now
                source = file.read(_LARGEST)
            exec(compile(source, name, "exec", dont_inherit=True), vars(session.main))  # noqa: S102 - the user's file

        with _limited(_INIT_PATIENCE):
            reply, _ = session.perform(work, session.main, {})
        error = reply.get("error")
        if type(error) is dict:
            kind = str(error.get("type")).rpartition(".")[2]
            _tell(f"{name} failed: {kind}: {error.get('message')}")
        for text in (reply.get("stdout"), reply.get("stderr")):
            if type(text) is str and text:
                _tell(text.rstrip("\n"))


def _tell(text: str) -> None:
    with suppress(OSError):
        os.write(2, f"{text}\n".encode("utf-8", "replace"))
