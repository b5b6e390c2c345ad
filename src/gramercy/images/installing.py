"""Install packages for an image: into the environment of its project, outside of the sandbox.

The image itself can write neither the environment nor Quicklisp, and has no network: its code must not decide
what a person's next command runs. So this is a command of the person, shown before it runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import ImageError
from gramercy.images.interpreters import LARGEST_SETTINGS, is_environment
from gramercy.images.programs import find_program, none_on_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gramercy.images.processes import Program

# A name, extras, and versions, as PEP 508 defines them. No options, paths, addresses or markers.
_PACKAGE = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9._, -]+\])?"
    r"(?: ?(?:===?|~=|!=|<=?|>=?) ?[A-Za-z0-9.*+!_-]+(?: ?, ?(?:===?|~=|!=|<=?|>=?) ?[A-Za-z0-9.*+!_-]+)*)?"
)
_SYSTEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+/_-]*")
# A longer list is a file of requirements, which a person installs.
MOST_PACKAGES = 30
LONGEST_NAME = 200
# Lines kept of an installer's output. Its verdict and its reasons come last.
KEPT_LINES = 200
LONGEST_LINE = 500
# The interval of progress reports and of checks for cancellation.
TURN_SECONDS = 0.25
# Options that a person need not type.
QUIET = ("-I", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-progress")
# uv installs itself here. A server started by a desktop program often has a PATH without these.
HOMES_OF_UV = ("~/.local/bin", "~/.cargo/bin")
# From SIGTERM to SIGKILL: an installer that is told to end removes its partial work.
PATIENCE = 3.0


class Installed(msgspec.Struct, frozen=True):
    """The result of a command: its status (None where it was ended), and its last lines of output."""

    status: int | None
    lines: tuple[str, ...]
    seconds: float


class Installation:
    """A command that installs packages. Runs with the rights of this process."""

    def __init__(self, command: Sequence[str], place: Path) -> None:
        self.command = tuple(command)
        self.place = place
        self._is_cancelled = False

    @property
    def shown(self) -> str:
        """The command as a shell would read it."""
        return shlex.join(self.command)

    @property
    def typed(self) -> str:
        """The command as a person types it, without the options that only keep it quiet."""
        return shlex.join(word for word in self.command if word not in QUIET)

    def cancel(self) -> None:
        """End it soon. Called from another thread."""
        self._is_cancelled = True

    def run(self, seconds: float, watch: Callable[[float, str], object] | None = None) -> Installed:
        """Run the command and wait for its end. `watch` gets the seconds so far and the last line."""
        began = monotonic()
        # Outside of the project: Python and uv would read files there that evaluated code can write.
        process = subprocess.Popen(  # noqa: S603 - no shell; the words are checked
            self.command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        lines = _Lines()
        try:
            is_over = self._follow(process, lines, began, seconds, watch)
        finally:
            _end(process)
        return Installed(process.returncode if is_over else None, lines.last(), monotonic() - began)

    def _follow(
        self,
        process: subprocess.Popen[bytes],
        lines: _Lines,
        began: float,
        seconds: float,
        watch: Callable[[float, str], object] | None,
    ) -> bool:
        """Read until the command has ended. Return whether it ended by itself."""
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while monotonic() - began < seconds and not self._is_cancelled:
                if selector.select(TURN_SECONDS):
                    data = os.read(process.stdout.fileno(), 1 << 16)
                    if not data:
                        process.wait(PATIENCE)
                        return True
                    lines.add(data)
                if watch is not None:
                    watch(monotonic() - began, lines.newest)
        return False


class _Lines:
    """The last lines of an output."""

    def __init__(self) -> None:
        self._kept: deque[str] = deque(maxlen=KEPT_LINES)
        self._rest = b""
        self.newest = ""

    def add(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-LONGEST_LINE * 4 :]
        for line in whole:
            text = line.decode("utf-8", "replace").rstrip()[:LONGEST_LINE]
            if text:
                self._kept.append(text)
                self.newest = text

    def last(self) -> tuple[str, ...]:
        self.add(b"\n")
        return tuple(self._kept)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
    if process.stdout is not None:
        process.stdout.close()


def installation_for(program: Program, project: Path | None, packages: Sequence[str]) -> Installation:
    """Return the command that installs packages for an image. Raise ImageError where there is none."""
    pattern = _SYSTEM if program.language == "sbcl" else _PACKAGE
    _check(packages, pattern, program.language)
    if program.language == "sbcl":
        return _quicklisp(program, packages)
    return _python(Path(program.command[0]), project, packages)


def _check(packages: Sequence[str], pattern: re.Pattern[str], language: str) -> None:
    if not packages or len(packages) > MOST_PACKAGES:
        raise ImageError(f"from 1 to {MOST_PACKAGES} packages can be installed at once, not {len(packages)}")
    for package in packages:
        if len(package) > LONGEST_NAME or not pattern.fullmatch(package):
            example = "alexandria" if language == "sbcl" else "requests or requests>=2.31"
            raise ImageError(
                f"{package[:LONGEST_NAME]!r} is not the name of a package, such as {example}: options, paths "
                "and addresses are not taken. A person can install it in their own shell"
            )


def _python(interpreter: Path, project: Path | None, packages: Sequence[str]) -> Installation:
    root = interpreter.parent.parent
    if not is_environment(root):
        raise ImageError(
            "the project has no environment to install into, and the system's Python is left alone. Make "
            f"one: `python3 -m venv {(project or Path()) / '.venv'}`, or name one with --python, and start "
            "the server again"
        )
    is_own = root.resolve() == Path(sys.prefix).resolve()
    if is_own and (project is None or not root.is_relative_to(project)):
        raise ImageError(
            f"{root} is the environment that gramercy itself runs in, not one of the project's. Make one: "
            f"`python3 -m venv {(project or Path()) / '.venv'}`, and start the server again"
        )
    return Installation([*_installer(root, interpreter, packages), *packages], root)


def _installer(root: Path, interpreter: Path, packages: Sequence[str]) -> list[str]:
    """Return the words before the names: for the environment's own pip, else for uv."""
    if any(root.glob("lib/python*/site-packages/pip/__main__.py")):
        # Isolated, so that neither PYTHONPATH nor the directory brings in another pip.
        quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
        return [str(interpreter), "-I", "-m", "pip", "install", *quiet]
    uv = find_program("uv") or find_program("uv", os.pathsep.join(map(os.path.expanduser, HOMES_OF_UV)))
    words = ["pip", "install", "--no-progress", "--python", str(interpreter)]
    if uv is None:
        typed = Installation(["uv", *words, *packages], root).typed
        way = f"type `{typed}` where you have it, or " if _is_of_uv(root) else ""
        raise ImageError(
            f"{root} has no pip, and {none_on_path('uv')}: {way}bring pip into it by "
            f"`{interpreter} -m ensurepip`"
        )
    return [uv, *words]


def _is_of_uv(root: Path) -> bool:
    """Return whether uv has made an environment. uv notes that there."""
    try:
        with (root / "pyvenv.cfg").open(errors="replace") as file:
            return any(line.startswith("uv =") for line in file.read(LARGEST_SETTINGS).splitlines())
    except OSError:
        return False


def _quicklisp(program: Program, packages: Sequence[str]) -> Installation:
    if "--quicklisp" not in program.command:
        raise ImageError(
            "there is no Quicklisp here, so nothing to install systems with: sources of a system can be put "
            "into the project or into ~/common-lisp, where load-system finds them"
        )
    setup = Path(program.command[program.command.index("--quicklisp") + 1])
    names = " ".join(f'"{package.lower()}"' for package in packages)
    words = [program.command[0], "--noinform", "--non-interactive", "--no-sysinit", "--no-userinit"]
    return Installation(
        [*words, "--load", str(setup), "--eval", f"(ql:quickload (list {names}))"], setup.parent
    )
