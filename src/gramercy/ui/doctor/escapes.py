"""Try to escape from an image, for real, and check from outside whether it worked."""

from __future__ import annotations

import contextlib
import ctypes
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

from gramercy.errors import GramercyError
from gramercy.images.caches import cache_directory
from gramercy.images.confine import seccomp
from gramercy.images.programs import find_program
from gramercy.ui.doctor.attempts import Attempt, Where, attempts, groups, numbers, prelude

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from gramercy.images.base import Reply
    from gramercy.images.image import Image
    from gramercy.images.sandbox import Confinement

# An attempt takes milliseconds; one that hangs must not hold up the others.
ATTEMPT_SECONDS = 10.0
VARIABLE = "GRAMERCY_ESCAPE"
# IPC_CREAT for this user alone, and IPC_RMID.
MAKE_SHARED, REMOVE_SHARED = 0o1600, 0
# Files of the project that evaluated code must not change, with their first content.
GUARDED = {
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/config": "[core]\n",
    ".git/hooks/pre-commit": "#!/bin/sh\n",
    ".mcp.json": "{}",
    ".claude/settings.json": "{}",
    ".cursor/mcp.json": "{}",
    ".vscode/tasks.json": "{}",
    ".envrc": "# none",
    ".pre-commit-config.yaml": "# none",
    "gramercy.toml": "# none",
    "CLAUDE.md": "{}",
    ".github/workflows/ci.yml": "{}",
    ".venv/pyvenv.cfg": "home = /usr/bin\n",
    ".venv/bin/activate": "# none",
    "backend/.venv/pyvenv.cfg": "home = /usr/bin\n",
    "backend/.venv/bin/activate": "# none",
    "backend/.mcp.json": "{}",
    "backend/AGENTS.md": "{}",
    "backend/.vscode/tasks.json": "{}",
    "envs/main/pyvenv.cfg": "home = /usr/bin\n",
    "envs/main/bin/activate": "# none",
    "tools/python/pyvenv.cfg": "home = /usr/bin\n",
    "tools/python/bin/activate": "# none",
    ".tox/py/bin/activate": "# none",
    "vendor/.git/config": "[core]\n",
    "legacy/.git/config": "[core]\n",
}
# A link to a guarded directory, as people make them.
LINKED = ("venv", "envs/main")
# Paths that must not exist after an attempt to create them.
MADE = (
    "work/.mcp.json",
    "work/.vscode/tasks.json",
    "work/.venv/activate",
    "work/.git/config",
    "opencode.jsonc",
    ".nvim.lua",
    ".exrc",
    "lefthook-local.yml",
    "sitecustomize.py",
    "work/AGENTS.md",
    ".gitlab-ci.yml",
    ".github/workflows/new.yml",
)
# Attempts of each group in the short list.
SHORT = 10
# Identifies the text of an attempt in a file that it reached.
ESCAPED = "escaped"


@dataclass(frozen=True, slots=True)
class EscapeResult:
    """How one attempt ended. `detail` is the evidence of an escape, or what the refusal said.

    `reason` says why an escape was to be expected; None where it was not.
    """

    attempt: Attempt
    escaped: bool
    detail: str
    tried: bool = True
    preview: bool = False
    reason: str | None = None

    @property
    def is_hole(self) -> bool:
        """Whether it escaped where that was not expected."""
        return self.escaped and self.reason is None and not self.attempt.awaits

    @property
    def name(self) -> str:
        """The name of the attempt, and where it was made."""
        return f"{self.attempt.name}, in a preview" if self.preview else self.attempt.name


class Arena:
    """A project for the image, and things outside of it that must stay out of reach.

    Enter it before the image starts, so that the image could inherit the secret of the environment.
    """

    def __init__(self, *, home: Path | None = None, bare: bool = False) -> None:
        self._guarded = {} if bare else GUARDED
        self.mark = f"secret-{secrets.token_hex(8)}"
        self.home = home or Path.home()
        self._stack = contextlib.ExitStack()
        self.victims: dict[str, subprocess.Popen[bytes]] = {}
        self.listeners: dict[str, socket.socket] = {}

    def __enter__(self) -> Self:
        # Not in TMPDIR: the path of a socket has to be short.
        self.directory = Path(tempfile.mkdtemp(prefix="gramercy-arena-", dir="/tmp")).resolve()
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self.outside, self.project = self.directory / "outside", self.directory / "project"
        self.work = self.project / "work"
        for path in (self.outside, self.work):
            path.mkdir(parents=True)
        for name, text in self._guarded.items():
            (self.project / name).parent.mkdir(exist_ok=True, parents=True)
            (self.project / name).write_text(text)
        if self._guarded:
            (self.project / LINKED[0]).symlink_to(LINKED[1])
        sign = Path("/tmp", self.mark)  # noqa: S108 - to be found by looking there
        sign.touch(0o600)
        self._stack.callback(sign.unlink, missing_ok=True)
        self._listen()
        self._share()
        os.environ[VARIABLE] = self.mark
        self._stack.callback(os.environ.pop, VARIABLE, None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _listen(self) -> None:
        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        places: dict[str, tuple[int, int, Any]] = {
            "tcp": (socket.AF_INET, stream, ("127.0.0.1", 0)),
            "udp": (socket.AF_INET, datagram, ("127.0.0.1", 0)),
            "tcp6": (socket.AF_INET6, stream, ("::1", 0)),
            "udp6": (socket.AF_INET6, datagram, ("::1", 0)),
            "unix": (socket.AF_UNIX, stream, str(self.outside / "socket")),
            "datagrams": (socket.AF_UNIX, datagram, str(self.outside / "datagrams")),
            "abstract": (socket.AF_UNIX, stream, f"\0{self.mark}"),
            "abstract2": (socket.AF_UNIX, datagram, f"\0{self.mark}-2"),
        }
        for name, (family, kind, address) in places.items():
            # Without IPv6 on this machine those attempts find no listener.
            with contextlib.suppress(OSError):
                listener = self._stack.enter_context(socket.socket(family, kind))
                listener.bind(address)
                if kind == stream:
                    listener.listen(4)
                listener.settimeout(0)
                self.listeners[name] = listener

    def _share(self) -> None:
        """Create shared memory, a message queue and a semaphore of the host, under one key."""
        self.key = secrets.randbits(30) | 1
        libc = ctypes.CDLL(None)
        memory = libc.shmget(self.key, 4096, MAKE_SHARED)
        self._stack.callback(libc.shmctl, memory, REMOVE_SHARED, None)
        messages = libc.msgget(self.key, MAKE_SHARED)
        self._stack.callback(libc.msgctl, messages, REMOVE_SHARED, None)
        semaphores = libc.semget(self.key, 1, MAKE_SHARED)
        self._stack.callback(libc.semctl, semaphores, 0, REMOVE_SHARED)

    def victim(self, slug: str) -> subprocess.Popen[bytes]:
        """Start a process that waits. The mark shows in its command line and in its environment."""
        command = [*_without_powers(), "/bin/sh", "-c", "echo; read -r _", self.mark]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own words
        self._stack.callback(_end, process)
        # Until it has become the shell its command line cannot be read.
        if process.stdout is not None:
            process.stdout.readline()
        self.victims[slug] = process
        return process

    def words(self) -> dict[str, str]:
        """Return the values of the words that all attempts share. Both languages write them alike."""
        column = seccomp.MACHINES.get(platform.machine(), (0, 0))[1]
        ports = {name: self._port(name) for name in ("tcp", "udp", "tcp6", "udp6")}
        return {
            "outside": str(self.outside), "work": str(self.work), "project": str(self.project),
            "mark": self.mark, "abstract": self.mark, "abstract2": f"{self.mark}-2",
            "unix": str(self.outside / "socket"), "datagrams": str(self.outside / "datagrams"),
            "home": _quoted(self.home), "entry": _quoted(self._home_entry()),
            "confiner": _quoted(seccomp.__file__),
            "keeper": str(os.getpid()), "key": str(self.key),
            "tcp_high": str(ports["tcp"] >> 8), "tcp_low": str(ports["tcp"] & 255),
            **{name: str(value) for name, value in (ports | numbers(column)).items()},
        }  # fmt: skip

    def _port(self, name: str) -> int:
        return int(self.listeners[name].getsockname()[1]) if name in self.listeners else 9

    def _home_entry(self) -> str:
        """Return a name in the home directory that is not on the path of any grant of an image."""
        granted = (Path(sys.base_prefix), Path(__file__), cache_directory(), self.directory)
        through = {
            path.relative_to(self.home).parts[:1] for path in granted if path.is_relative_to(self.home)
        }
        names = sorted(path.name for path in self.home.iterdir())
        return next((name for name in names if (name,) not in through), "")


class Trial:
    """One attempt in an arena: the things within its reach, and any changes to them."""

    def __init__(self, arena: Arena, attempt: Attempt, form: str) -> None:
        slug = attempt.slug
        self.arena = arena
        self.target, self.fresh = arena.outside / slug, arena.outside / f"{slug}.new"
        self.own, self.inner = arena.work / slug, arena.work / f"{slug}.file"
        for path in (self.target, self.inner):
            path.write_text(arena.mark)
            path.chmod(0o600)
        self._inner = _state(self.inner)
        self.victim = arena.victim(slug) if "$victim" in form else None
        self.port = _free_port() if "$port" in form else None
        self._git = {"git": arena.project, "git below": self.own}.get(attempt.stage)
        self._before, self._known = self._seen(), self._found()

    def words(self) -> dict[str, str]:
        """Return the values of the words of this attempt."""
        return {
            "slug": self.target.name, "target": str(self.target), "fresh": str(self.fresh),
            "own": str(self.own), "inner": str(self.inner),
            "victim": str(self.victim.pid if self.victim else 0), "port": str(self.port or 0),
        }  # fmt: skip

    def _seen(self) -> dict[str, Any]:
        victim = self.victim.pid if self.victim is not None else None
        return {
            "the file outside": _state(self.target),
            "what was made outside": _state(self.fresh),
            "the process of the host": _process_state(victim) if victim is not None else None,
        }

    def _found(self) -> list[str]:
        return [name for name in (*GUARDED, *MADE) if ESCAPED in _text(self.arena.project / name)]

    def _seen_inside(self) -> list[str]:
        """Return the effects of a preview on the project."""
        made = self.own.is_symlink() or self.own.exists()
        return ["the project"] if made or _state(self.inner) != self._inner else []

    def evidence(self, *, preview: bool) -> str | None:
        """Return the evidence of a successful attempt, as seen from outside."""
        if self.victim is not None:
            # A signal needs some time to arrive.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.victim.wait(0.02)
        if self._git is not None:
            run_git(self._git)
        changed = [name for name, state in self._seen().items() if state != self._before[name]]
        changed += [f"the listener {name}" for name, each in self.arena.listeners.items() if _reached(each)]
        changed += [name for name in self._found() if name not in self._known]
        if self.own.exists() and _is_dangerous(self.own.lstat().st_mode):
            changed.append("a file with rights or a device")
        if _is_dangerous(self.inner.stat().st_mode) if self.inner.exists() else False:
            changed.append("a file with rights")
        changed += self._seen_inside() if preview else []
        if self.port is not None and _answers(self.port):
            changed.append("a port of this machine")
        return f"seen from outside: {', '.join(changed)}" if changed else None


def run_escapes(
    image: Image,
    arena: Arena,
    confinement: Confinement,
    *,
    preview: bool = False,
    chosen: Iterable[Attempt] | None = None,
) -> Iterator[EscapeResult]:
    """Make the attempts in an image whose project is that of the arena, one after the other."""
    words = arena.words()
    prepared = image.evaluate(Template(prelude(image.language)).substitute(words), timeout=ATTEMPT_SECONDS)
    said = prepared.error.message if prepared.error else "no reason was given"
    for attempt in attempts_from(preview=preview) if chosen is None else chosen:
        if prepared.ok:
            yield _run(image, arena, attempt, words, (confinement, preview))
        else:
            yield EscapeResult(attempt, escaped=False, detail=said, tried=False, preview=preview)


def attempts_from(*, preview: bool) -> list[Attempt]:
    """Return the attempts that are made in a live process, or in a preview."""
    place = Where.PREVIEW if preview else Where.LIVE
    return [each for each in attempts() if each.arena in (place, Where.ANYWHERE) and not each.stage]


def short_list() -> list[Attempt]:
    """Return the plainest attempts of each group, for a check of less than a second."""
    return [
        attempt
        for group in groups().values()
        for attempt in [each for each in group.attempt if each in attempts_from(preview=False)][:SHORT]
    ]


def _run(
    image: Image, arena: Arena, attempt: Attempt, words: dict[str, str], place: tuple[Confinement, bool]
) -> EscapeResult:
    confinement, preview = place
    form = attempt.form(image.language)
    reason = attempt.why_open(confinement, preview=preview)
    trial = Trial(arena, attempt, form)
    filled = {**words, **trial.words()}
    before = attempt.before.get(image.language, "")
    if before:
        image.evaluate(Template(before).substitute(filled), timeout=ATTEMPT_SECONDS)
    form = Template(_wrapped(form, image.language)).substitute(filled)
    reply, fault = _answered(image.preview if preview else image.evaluate, form)
    said = reply.values[0].strip("'\"") if reply is not None and reply.ok and reply.values else ""
    seen = trial.evidence(preview=preview)
    after = attempt.after.get(image.language, "")
    if after and seen is None:
        told, _ = _answered(image.evaluate, Template(_wrapped(after, image.language)).substitute(filled))
        found = told.values[0].strip("'\"") if told is not None and told.ok and told.values else ""
        seen = found.removeprefix("ESCAPED: ") if found.startswith("ESCAPED") else None
    if seen is not None or said.startswith("ESCAPED"):
        detail = seen or said.removeprefix("ESCAPED: ")
        return EscapeResult(attempt, escaped=True, detail=detail, preview=preview, reason=reason)
    was_refused = said.startswith("refused")
    detail = said.removeprefix("refused").lstrip(": ") if was_refused else fault or said or "it said nothing"
    return EscapeResult(
        attempt, escaped=False, detail=detail, tried=was_refused, preview=preview, reason=reason
    )


def _wrapped(form: str, language: str) -> str:
    return f"(attempt {form})" if language == "sbcl" else f"_attempt(lambda: {form})"


def _answered(ask: Callable[..., Reply], form: str) -> tuple[Reply | None, str]:
    try:
        reply = ask(form, timeout=ATTEMPT_SECONDS)
    except GramercyError as error:
        return None, str(error)
    return reply, reply.error.message if reply.error else ""


def _without_powers() -> list[str]:
    """Return a command that drops root's capabilities: the kernel guards a process that has them anyway."""
    program = find_program("setpriv") if os.geteuid() == 0 else None
    return [program, "--inh-caps=-all", "--bounding-set=-all", "--"] if program else []


def _quoted(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def _state(path: Path) -> Any:
    """Return everything about a file that an attempt could change."""
    try:
        found = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(found.st_mode) else b""
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_mode, found.st_uid, found.st_gid, found.st_nlink, found.st_mtime_ns, content, names


def _process_state(process: int) -> Any:
    """Return everything about a process that an attempt could change, None after its end."""
    try:
        said = Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(") ")[2].split()
        if said[0] in "ZX":
            return None
        limit = resource.prlimit(process, resource.RLIMIT_NOFILE)
        policy = os.sched_getscheduler(process), os.sched_getaffinity(process)
        return said[0] in "Tt", os.getpriority(os.PRIO_PROCESS, process), policy, limit
    except OSError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _is_dangerous(mode: int) -> bool:
    return bool(mode & (stat.S_ISUID | stat.S_ISGID)) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _reached(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_DGRAM:
            listener.recv(100)
        else:
            listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def run_git(place: Path) -> None:
    """Run git as a person would do next. A planted repository would name a program to run."""
    quiet = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "PATH": os.environ.get("PATH", "")}
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            ["git", "status"],  # noqa: S607 - the person's own
            cwd=place, env=quiet, capture_output=True, timeout=ATTEMPT_SECONDS, check=False,
        )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        return int(plug.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as plug:
        plug.settimeout(0.5)
        return plug.connect_ex(("127.0.0.1", port)) == 0


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    # With a timeout: a traced process ends for its parent only when its tracer lets go.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2.0)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
