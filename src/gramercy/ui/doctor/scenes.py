"""Attempts that need more than one evaluation: several calls, an ending, or the death of the host.

Each scene has its own image and arena. It returns the evidence of an escape, or None.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from string import Template
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from gramercy.errors import GramercyError
from gramercy.execution.approval import Approved, Denied
from gramercy.execution.executor import Executor
from gramercy.execution.policy import Policy
from gramercy.execution.shown import read_back
from gramercy.images.environment import Environment
from gramercy.images.files.changes import shown
from gramercy.images.files.ledger import SAVED_TOO
from gramercy.images.guarded import UNTRUSTED
from gramercy.images.kin import command_line, living, numbers
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement
from gramercy.toolsets.paths import READERS
from gramercy.ui.clients.base import own_command
from gramercy.ui.doctor.attempts import Attempt, Deputy, Where, attempts, prelude
from gramercy.ui.doctor.escapes import (
    ATTEMPT_SECONDS,
    Arena,
    EscapeResult,
    Trial,
    attempts_from,
    run_escapes,
    run_git,
)
from gramercy.workbench.modes import Mode, approver_in
from gramercy.workbench.sources import image_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.execution.approval import ApprovalRequest
    from gramercy.images.base import CheckpointInfo
    from gramercy.images.processes import Program
    from gramercy.tools.tool import Tool

# The timeout of a call that an image tries to prolong. LATEST_SECONDS is the time by which it must have
# ended: after the timeout come an interrupt, a second one, and the end of the process, with a second between
# each, and a new process.
CALL_SECONDS = 1.0
# Filling the memory takes a busy machine many seconds. An attempt that times out proves nothing.
FILLING_SECONDS = 90.0
LATEST_SECONDS = 6.0
# More descriptors than a keeper needs for a few more processes.
MOST_DESCRIPTORS = 20
# The limit of processes of one image (images/bounds.py), and some that are just ending.
MOST_PROCESSES = 320
# From the death of a host to the death of the last process of its images.
GONE_SECONDS = 5.0
TURN_SECONDS = 0.05
# A small image, for attempts that take many times its memory: its limit, and that with SBCL's own memory.
SMALL_MB, BESIDE_MB = 128, 320
# A host that runs from another directory builds its own core for SBCL.
OWN_SECONDS = 120.0
PACKAGE = Path(__file__).resolve().parents[2]
# A host of one image, to be killed: it starts the process that tries to survive, reports it, and waits.
_HOST = """
import sys
from pathlib import Path
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement
language, confinement, project, code = sys.argv[1:]
settings = ImageSettings(language, Path(project), Confinement(confinement))
image = LiveImage("host", settings.program, timeout=10)
print("ready" if image.evaluate(code).ok else "failed", flush=True)
sys.stdin.read()
"""


class Scene:
    """An image in an arena, with the words of one attempt filled in."""

    def __init__(self, language: str, confinement: Confinement, attempt: Attempt) -> None:
        self.language, self.confinement, self.attempt = language, confinement, attempt
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.arena = self._stack.enter_context(Arena())
        form = self.attempt.form(self.language)
        self.words = {**self.arena.words(), **Trial(self.arena, self.attempt, form).words()}
        self.prelude = Template(prelude(self.language)).substitute(self.words)
        self.form = Template(form).substitute(self.words)
        self.mark = f"{self.arena.mark}-{self.attempt.stage}"
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def open(self, *, small: bool = False) -> LiveImage:
        """Start the image and evaluate the definitions of the attempts in it."""
        environment = Environment(memory_mb=SMALL_MB, disk_mb=SMALL_MB) if small else Environment()
        settings = ImageSettings(self.language, self.arena.project, self.confinement, environment)

        def program() -> Program:
            found = settings.program()
            # SBCL may use a gigabyte beside its heap, which is too much for an attempt.
            least = min(found.grants.memory_mb or BESIDE_MB, BESIDE_MB) if small else found.grants.memory_mb
            return replace(found, grants=replace(found.grants, memory_mb=least))

        image = LiveImage("doctor", program, timeout=ATTEMPT_SECONDS)
        self._stack.callback(image.close)
        image.evaluate(self.prelude)
        # Parse it without running it: a malformed form would prove nothing.
        read = image.evaluate(f"'{self.form}" if self.language == "sbcl" else f"lambda: {self.form}")
        if not read.ok:
            raise GramercyError(f"the attempt cannot be read: {read.error.message if read.error else ''}")
        return image


def _words(scene: Scene) -> str | None:
    """Check whether a forged message of the image is reported as the keeper's own."""
    image = scene.open()
    for code in (scene.form, "1"):
        with contextlib.suppress(GramercyError):
            reply = image.evaluate(code, timeout=CALL_SECONDS)
            forged = [note for note in reply.notes if note.startswith(scene.arena.mark)]
            if forged or reply.lost == FORGED_LOSS:
                return f"the keeper said {forged[0] if forged else 'that calls were lost'}"
    return None


# The number of lost calls that the attempt invents.
FORGED_LOSS = 77


def _deadline(scene: Scene) -> str | None:
    """Check whether a call ends in time, and leaves the keeper healthy and the image usable."""
    image = scene.open()
    begun, memory = monotonic(), _resident_mb()
    with contextlib.suppress(GramercyError):
        image.evaluate(scene.form, timeout=CALL_SECONDS)
    spent = monotonic() - begun
    if spent > LATEST_SECONDS:
        return f"a call of {CALL_SECONDS:g} s took {spent:.1f} s"
    if _resident_mb() - memory > MOST_GROWTH_MB:
        return f"the keeper grew by {_resident_mb() - memory} MB"
    for _ in range(2):
        with contextlib.suppress(GramercyError):
            if image.evaluate("1").values == ["1"]:
                return None
    return "the image cannot be used any more"


# A frame is read in pieces. This is more than the largest reply takes.
MOST_GROWTH_MB = 200


def _descriptors(scene: Scene) -> str | None:
    image = scene.open()
    before = _open_descriptors()
    for code in (scene.form, "1", "2"):
        with contextlib.suppress(GramercyError):
            image.evaluate(code, timeout=CALL_SECONDS)
    grown = _open_descriptors() - before
    return f"the keeper holds {grown} descriptors more" if grown > MOST_DESCRIPTORS else None


def _processes(scene: Scene) -> str | None:
    """Count the processes after the bounds had time to act."""
    image = scene.open()
    with contextlib.suppress(GramercyError):
        image.evaluate(scene.form, timeout=CALL_SECONDS)
    Event().wait(CALL_SECONDS)
    running = _below(os.getpid())
    return f"{running} processes run" if running > MOST_PROCESSES else None


def _memory(scene: Scene) -> str | None:
    """Check whether a small image can keep the memory that it takes. The amount does not hurt the machine."""
    reply = scene.open(small=True).evaluate(scene.form, timeout=FILLING_SECONDS)
    if reply.ok:
        return ", ".join(reply.values)
    told = reply.error.message if reply.error is not None else ""
    if "are allowed" not in told:
        raise GramercyError(f"it failed for another reason: {told}")
    return None


def _reset(scene: Scene) -> str | None:
    image = scene.open()
    image.evaluate(scene.form)
    if not _with(scene.mark):
        return None
    image.reset()
    return "it still runs" if _stays(scene.mark) else None


def _close(scene: Scene) -> str | None:
    image = scene.open()
    image.evaluate(scene.form)
    image.close()
    return "it still runs" if _stays(scene.mark) else None


def _kill(scene: Scene) -> str | None:
    """Kill a host without a chance to clean up, and check which processes of its image stay."""
    joined = f"{scene.prelude}\n{scene.form}"
    words = [scene.language, scene.confinement, str(scene.arena.project), joined]
    host = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-c", _HOST, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        said = host.stdout.readline() if host.stdout is not None else b""
        host.send_signal(signal.SIGKILL)
    finally:
        host.kill()
        host.communicate()
    if said != b"ready\n":
        raise GramercyError("the host did not start")
    return "it still runs" if _stays(scene.mark) else None


def _telling(scene: Scene) -> str | None:
    """Start a server, as a client does, and read its text about the sandbox."""
    place = {"PATH": os.environ.get("PATH", "")}
    if scene.confinement is not Confinement.BUBBLEWRAP:
        # An empty directory has no bwrap in it.
        place["PATH"] = str(scene.arena.outside)
    command = [*own_command(), "serve", "--image", "python", "--project", str(scene.arena.project)]
    done = subprocess.run(  # noqa: S603 - our own words
        command,
        input=b"",
        capture_output=True,
        timeout=ATTEMPT_SECONDS,
        env={**os.environ, **place},
        check=False,
    )
    return (
        None if scene.confinement.value.encode() in done.stderr.lower() else "the server said nothing of it"
    )


# The file of another person. Its first line is one that a search finds.
THEIRS = "plain/theirs.md"
SAME = "the same\n"


def _deputy(scene: Scene) -> str | None:
    """Call a tool in a project that evaluated code has prepared, and check its effect on the target."""
    image, deputy = scene.open(), scene.attempt.deputy
    assert deputy is not None  # noqa: S101 - the tables are ours
    theirs, mark = scene.arena.project / THEIRS, scene.arena.mark
    theirs.parent.mkdir()
    is_read = deputy.tool in READERS
    theirs.write_text(f"{SAME}{mark}" if is_read else SAME, encoding="utf-8")
    image.evaluate(scene.form)
    arguments = json.loads(Template(json.dumps(deputy.arguments)).substitute(scene.words))
    result = _guard(scene, image, deputy).execute({"id": "1", "name": deputy.tool, "arguments": arguments})
    if is_read:
        return f"{deputy.tool} showed {deputy.target}" if mark in result.content else None
    target = scene.arena.project / deputy.target
    is_written = target.exists() and mark in target.read_text("utf-8", "replace")
    return f"{deputy.tool} wrote {deputy.target}" if is_written else None


def _guard(scene: Scene, image: LiveImage, deputy: Deputy) -> Executor:
    """Return a guard with a person who approves every call that does not name the target."""
    meanwhile = [scene.attempt.after[scene.language]] if scene.attempt.after else []

    def person(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Approved | Denied:
        del tool, arguments
        if meanwhile:
            image.evaluate(Template(meanwhile.pop()).substitute(scene.words))
        shown = request.text()
        return Denied("it is another file") if deputy.target in read_back(shown) else Approved(shown=shown)

    registry = image_registry(image, scene.language, str(scene.arena.project))
    return Executor(registry, approver_in(Mode(deputy.mode), person), policy=Policy(deputy.rules))


def _left(scene: Scene) -> str | None:
    """Let a leftover process create a control file while no call runs, and check whether the file stays."""
    image = scene.open()
    image.evaluate(scene.form)
    place = scene.arena.work / ".mcp.json"
    aside = place.with_name(f"{place.name}{UNTRUSTED}")
    (scene.arena.work / "go").touch()
    deadline = monotonic() + GONE_SECONDS
    while not aside.exists() and monotonic() < deadline:
        Event().wait(TURN_SECONDS)
    if not aside.exists() and not place.exists():
        raise GramercyError("the process did not write")
    return f"{place.name} stands" if place.exists() else None


def _own(scene: Scene) -> str | None:
    """Run a gramercy that lies in the project, and check whether its image can change it."""
    source = scene.arena.project / "src" / "gramercy"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__"))
    before = (source / "__init__.py").read_bytes()
    joined = f"{scene.prelude}\n{scene.form}"
    words = [scene.language, scene.confinement, str(scene.arena.project), joined]
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-P", "-c", _HOST, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(source.parent)},
        timeout=OWN_SECONDS,
        check=False,
    )
    if done.stdout not in (b"ready\n", b"failed\n"):
        raise GramercyError("the host did not start")
    return "it was changed" if (source / "__init__.py").read_bytes() != before else None


def _time(scene: Scene) -> str | None:
    """Check whether a changed file is reported and restored, or reported as not restored."""
    top = scene.arena.project / "time"
    for path in ("t", "u", "one", "d/in", "e/in"):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(path)
    (top / "d" / "two").hardlink_to(top / "one")
    image = scene.open()
    image.evaluate(Template(scene.attempt.before.get(scene.language, "1")).substitute(scene.words))
    before = _contents(top)
    reply = image.evaluate(scene.form)
    after = _contents(top)
    named = {each.path for each in reply.files}
    unnamed = [path for path in _differing(before, after) if f"time/{path}" not in named]
    if unnamed and not reply.unknown_files:
        return f"{unnamed[0][-LONGEST_SHOWN:]} changed and is not named"
    undone = image.undo()
    return _undone(before, after, _contents(top), undone)


def _undone(before: _Tree, after: _Tree, now: _Tree, undone: CheckpointInfo) -> str | None:
    left = {each.path: each.reason for each in undone.files if each.outcome == "left alone"}
    kept = [path for path in _differing(before, now) if f"time/{path}" not in left]
    if kept and not undone.unknown_files:
        return f"{kept[0][-LONGEST_SHOWN:]} did not go back, and nothing is said of it"
    if any(reason.endswith(SAVED_TOO) for reason in left.values()):
        return "another program is blamed for it"
    lost = set(before.values()) & set(after.values()) - set(now.values())
    return f"the undo lost what was in {lost.pop()!r}" if lost else None


LONGEST_SHOWN = 60
# The contents of files by path, None for everything else.
_Tree = dict[str, bytes | None]


def _contents(top: Path) -> _Tree:
    """Return everything below a directory: files with their contents, the rest without."""
    found: _Tree = {}
    # By descriptors: a path may be too long for a system call.
    for place, folders, files, folder in os.fwalk(top):
        for name in (*folders, *files):
            path = os.path.relpath(os.path.join(place, name), top)  # noqa: PTH118 - as os.fwalk gives it
            found[shown(path)] = _content(name, folder)
    return found


def _content(name: str, folder: int) -> bytes | None:
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            with os.fdopen(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), "rb") as file:
                return file.read()
    return None


def _differing(before: _Tree, after: _Tree) -> list[str]:
    return [path for path in sorted(before | after) if before.get(path, b"?") != after.get(path, b"?")]


SCENES: dict[str, Callable[[Scene], str | None]] = {
    "words": _words,
    "deadline": _deadline,
    "descriptors": _descriptors,
    "processes": _processes,
    "memory": _memory,
    "reset": _reset,
    "close": _close,
    "kill": _kill,
    "telling": _telling,
    "deputy": _deputy,
    "left": _left,
    "own": _own,
    "time": _time,
}


def run_scenes(language: str, confinement: Confinement) -> Iterator[EscapeResult]:
    """Play every scene, each with a new image."""
    for attempt in (each for each in attempts() if each.stage in SCENES):
        reason = attempt.why_open(confinement)
        try:
            with Scene(language, confinement, attempt) as scene:
                seen = SCENES[attempt.stage](scene)
        except (GramercyError, OSError, subprocess.TimeoutExpired) as error:
            yield EscapeResult(attempt, escaped=False, detail=str(error), tried=False, reason=reason)
        else:
            yield EscapeResult(attempt, escaped=seen is not None, detail=seen or "", reason=reason)


def run_bare(language: str, confinement: Confinement) -> Iterator[EscapeResult]:
    """Make the attempts that need a project without the guarded files."""
    chosen = [each for each in attempts() if each.arena is Where.BARE]
    now, later = (
        [each for each in chosen if (each.stage == "git after") is after] for after in (False, True)
    )
    with Arena(bare=True) as arena:
        image = _image(language, confinement, arena.project)
        try:
            yield from run_escapes(image, arena, confinement, chosen=now)
        finally:
            image.close()
    for attempt in later:
        with Arena(bare=True) as arena:
            image = _image(language, confinement, arena.project)
            try:
                result = next(iter(run_escapes(image, arena, confinement, chosen=[attempt])))
            finally:
                image.close()
            run_git(arena.project)
            ran = (arena.outside / f"{attempt.slug}.new").exists()
            reason = attempt.why_open(confinement)
            detail = "git ran a program" if ran else result.detail
            yield EscapeResult(attempt, escaped=ran, detail=detail, tried=result.tried, reason=reason)


def run_battery(language: str, confinement: Confinement) -> Iterator[EscapeResult]:
    """Make every attempt: in a live process, in previews, in a bare project, and the scenes."""
    for preview in (False, True):
        with Arena() as arena:
            image = _image(language, confinement, arena.project)
            try:
                chosen = attempts_from(preview=preview)
                yield from run_escapes(image, arena, confinement, preview=preview, chosen=chosen)
            finally:
                image.close()
    yield from run_bare(language, confinement)
    yield from run_scenes(language, confinement)


def _image(language: str, confinement: Confinement, project: Path) -> LiveImage:
    program = ImageSettings(language, project, confinement).program
    return LiveImage("doctor", program, timeout=ATTEMPT_SECONDS)


def _stays(mark: str) -> bool:
    """Return whether a process with that mark stays."""
    deadline = monotonic() + GONE_SECONDS
    while _with(mark):
        if monotonic() > deadline:
            for process in _with(mark):
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            return True
        Event().wait(TURN_SECONDS)
    return False


def _with(mark: str) -> list[int]:
    """Return the processes whose command line ends with the mark."""
    return [each for each in numbers() if command_line(each).rstrip(b"\0").endswith(mark.encode())]


def _below(process: int) -> int:
    """Count the descendants of a process."""
    parents: dict[int, list[int]] = {}
    for each, (parent, _) in living().items():
        parents.setdefault(parent, []).append(each)
    found = [process]
    for each in found:
        found += parents.get(each, [])
    return len(found) - 1


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count


def _resident_mb() -> int:
    return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
