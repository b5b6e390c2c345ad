"""Try to get out of an image, for real, and look from outside whether it worked."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Self

from gramercy.images.caches import cache_directory
from gramercy.images.confine.seccomp import MACHINES, NUMBERS
from gramercy.images.python.landlock import SCOPES_SINCE, landlock_version
from gramercy.images.sandbox import Confinement
from gramercy.ui.doctor.attempts import ATTEMPTS, LISP_PRELUDE, PYTHON_PRELUDE, Attempt, Freely

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from gramercy.images.base import Image

# An attempt takes milliseconds; one that hangs must not hold up the others.
ATTEMPT_SECONDS = 10.0
VARIABLE = "GRAMERCY_ESCAPE"
# What the attempt to limit another process sets; seen from outside when it worked.
LIMIT = (64, 64)


@dataclass(frozen=True, slots=True)
class EscapeResult:
    """How one attempt ended. `detail` is the evidence of an escape, or what the refusal said."""

    name: str
    escaped: bool
    detail: str
    tried: bool = True


class Arena:
    """A project to be confined to, and things outside of it that must stay out of reach.

    Enter it before the image starts, so that the secret of the environment is there to be inherited.
    """

    def __init__(self, *, home: Path | None = None) -> None:
        self.mark = f"secret-{secrets.token_hex(8)}"
        self.home = home or Path.home()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        # Not where TMPDIR says: the path of a socket has to be short.
        self.directory = Path(tempfile.mkdtemp(prefix="gramercy-arena-", dir="/tmp")).resolve()
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self.outside, self.project = self.directory / "outside", self.directory / "project"
        for path in (self.outside, self.project / ".git", self.project / "work"):
            path.mkdir(parents=True)
        (self.outside / "secret").write_text(self.mark)
        (self.outside / "modes").touch(0o600)
        (self.project / ".git" / "config").write_text("[core]\n")
        self._listen()
        self._expose()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _listen(self) -> None:
        places: dict[str, tuple[int, int, Any]] = {
            "connect by TCP": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "send by UDP": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "connect to a unix socket": (socket.AF_UNIX, socket.SOCK_STREAM, str(self.outside / "socket")),
            "connect to an abstract unix socket": (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.mark}"),
        }
        self.listeners: dict[str, socket.socket] = {}
        for name, (family, kind, address) in places.items():
            listener = self._stack.enter_context(socket.socket(family, kind))
            listener.bind(address)
            if kind == socket.SOCK_STREAM:
                listener.listen(4)
            listener.settimeout(0)
            self.listeners[name] = listener

    def _expose(self) -> None:
        os.environ[VARIABLE] = self.mark
        self._stack.callback(os.environ.pop, VARIABLE, None)
        self.victim, self.traced = self._victim(), self._victim()

    def _victim(self) -> subprocess.Popen[bytes]:
        # The mark shows in its command line and, by inheritance, in its environment.
        command = ["/bin/sh", "-c", "read -r _", self.mark]
        process = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603 - our own words
        self._stack.callback(_end, process)
        return process

    def words(self) -> dict[str, str]:
        """Return what the words of the attempts stand for; both languages write them alike."""
        column = MACHINES.get(platform.machine(), (0, 0))[1]
        numbers = {name: numbers[column] for name, numbers in NUMBERS.items()}
        work, outside, victim = self.project / "work", self.outside, self.victim.pid
        places = {
            "secret": outside / "secret", "written": outside / "written", "modes": outside / "modes",
            "through": outside / "through", "unix": outside / "socket", "home": self.home,
            "link": work / "link", "link2": work / "link2", "hard": work / "hard", "point": work,
            "suid": work / "suid", "suid2": work / "suid2",
            "git": self.project / ".git", "config": self.project / ".git" / "config",
            "root": f"/proc/{victim}/root{outside}/secret", "root1": f"/proc/1/root{outside}/secret",
            "environ": f"/proc/{victim}/environ", "cmdline": f"/proc/{victim}/cmdline",
            "mark": self.mark, "abstract": self.mark, "entry": self._home_entry(),
        }  # fmt: skip
        ports = {
            "tcp": self.listeners["connect by TCP"].getsockname()[1],
            "udp": self.listeners["send by UDP"].getsockname()[1],
        }
        texts = {name: json.dumps(str(value), ensure_ascii=False) for name, value in places.items()}
        return texts | {
            name: str(value)
            for name, value in {**numbers, **ports, "victim": victim, "traced": self.traced.pid}.items()
        }

    def _home_entry(self) -> str:
        """Return a name in the home directory that no grant of an image leads through."""
        granted = (Path(sys.base_prefix), Path(__file__), cache_directory(), self.directory)
        through = {
            path.relative_to(self.home).parts[:1] for path in granted if path.is_relative_to(self.home)
        }
        names = sorted(path.name for path in self.home.iterdir())
        return next((name for name in names if (name,) not in through), "")

    def evidence(self, name: str) -> str | None:
        """Return what can be seen outside of a successful attempt."""
        if name in self.listeners:
            return self._was_reached(self.listeners[name])
        checks: dict[str, Callable[[], object]] = {
            "write a file outside": (self.outside / "written").exists,
            "write through a symbolic link": (self.outside / "through").exists,
            "change the mode of a file outside": lambda: _mode(self.outside / "modes") != 0o600,  # noqa: PLR2004 - as made
            "write .git/config": lambda: "escaped" in (self.project / ".git" / "config").read_text(),
            "put another .git in its place": (self.project / ".git-old").exists,
            "make a setuid file by changing its mode": lambda: (
                _mode(self.project / "work" / "suid") & stat.S_ISUID
            ),
            "make a setuid file by opening it": lambda: _mode(self.project / "work" / "suid2") & stat.S_ISUID,
            "limit a process of the host": lambda: (
                resource.prlimit(self.traced.pid, resource.RLIMIT_NOFILE) == LIMIT
            ),
            "end a process of the host": lambda: _has_ended(self.victim),
        }
        check = checks.get(name)
        return "seen from outside" if check is not None and check() else None

    def _was_reached(self, listener: socket.socket) -> str | None:
        try:
            if listener.type == socket.SOCK_DGRAM:
                listener.recv(100)
            else:
                listener.accept()[0].close()
        except BlockingIOError:
            return None
        return "the listener outside was reached"


def run_escapes(image: Image, arena: Arena) -> list[EscapeResult]:
    """Make every attempt in an image whose project is that of the arena."""
    is_lisp = image.language == "sbcl"
    words = arena.words()
    prelude = LISP_PRELUDE if is_lisp else PYTHON_PRELUDE
    prepared = image.evaluate(Template(prelude).substitute(words), timeout=ATTEMPT_SECONDS)
    if not prepared.ok:
        said = prepared.error.message if prepared.error else "no reason was given"
        return [EscapeResult(attempt.name, escaped=False, detail=said, tried=False) for attempt in ATTEMPTS]
    return [_run(image, arena, attempt, words) for attempt in ATTEMPTS]


def _run(image: Image, arena: Arena, attempt: Attempt, words: dict[str, str]) -> EscapeResult:
    form = f"(attempt {attempt.lisp})" if image.language == "sbcl" else f"_attempt(lambda: {attempt.python})"
    reply = image.evaluate(Template(form).substitute(words), timeout=ATTEMPT_SECONDS)
    said = reply.values[0].strip("'\"") if reply.ok and reply.values else ""
    seen = arena.evidence(attempt.name)
    if seen is not None or said.startswith("ESCAPED"):
        return EscapeResult(attempt.name, escaped=True, detail=seen or said.removeprefix("ESCAPED: "))
    if not said.startswith("refused"):
        reason = reply.error.message if reply.error else f"it answered {said!r}"
        return EscapeResult(attempt.name, escaped=False, detail=reason, tried=False)
    return EscapeResult(attempt.name, escaped=False, detail=said.removeprefix("refused").lstrip(": "))


def not_confined(confinement: Confinement) -> frozenset[str]:
    """Return the attempts that a confinement is known not to hold back."""
    if confinement is Confinement.NONE:
        return frozenset(attempt.name for attempt in ATTEMPTS)
    if confinement is Confinement.BUBBLEWRAP:
        return frozenset()
    names = {"connect to a unix socket", "see a process of the host"}
    if landlock_version() < SCOPES_SINCE:
        names |= {"connect to an abstract unix socket", "end a process of the host"}
    return frozenset(names)


def escapes_freely() -> frozenset[str]:
    """Return the attempts that must succeed where nothing confines an image, or else prove nothing."""
    sure = {Freely.YES, Freely.AS_ROOT} if os.geteuid() == 0 else {Freely.YES}
    return frozenset(attempt.name for attempt in ATTEMPTS if attempt.freely in sure)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else 0


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(0.2)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    # Bounded: a process that is traced ends for its parent only when its tracer lets go.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2.0)
    if process.stdin is not None:
        process.stdin.close()
