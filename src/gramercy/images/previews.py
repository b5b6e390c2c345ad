"""Let the copy of a preview give up its rights, and check from outside that it has.

The copy does that by its own code, in a process that has evaluated user code: nothing that it reports about
itself is trusted. It gets its instructions from here each time, and the kernel is asked before and
afterwards: filters of system calls, threads, open descriptors, shared memory. The kernel does not reveal the
content of a filter, nor Landlock rules. So this detects code that has broken the confinement, not code that
imitates it.
"""

from __future__ import annotations

import os
import platform
import re
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gramercy.errors import ImageError, ImageGoneError, ImageProtocolError
from gramercy.images.attempts import attempt_of, joined, printed_by
from gramercy.images.base import ImageFault, Reply
from gramercy.images.confine.seccomp import build_preview_filter
from gramercy.images.connection import Wait, with_output
from gramercy.images.deaths import NOT_RUN, broken, hinted
from gramercy.images.files.states import NO_FILES
from gramercy.images.output import OutputMirror
from gramercy.images.python.landlock import TRUNCATE_SINCE, landlock_version
from gramercy.images.wire import Done
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.images.connection import Connection
    from gramercy.images.processes import Family
    from gramercy.images.runner import Runner

# Giving up its rights takes a copy some milliseconds. The rest is for a busy machine.
CONFINING_SECONDS = 20.0
# Shared memory that is copied for a preview, in total: copying 64 MB takes about 20 ms.
MOST_SHARED = 64 * 1024 * 1024
# null, zero, full, random and urandom: they keep nothing.
MEMORY_DEVICES = frozenset(os.makedev(1, minor) for minor in (3, 5, 7, 8, 9))
MIRROR = b"/memfd:gramercy-mirror"
RIGHTS = {"r": 1, "w": 2, "x": 4}
_AREA = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \S+ *(.*)")


class Area(NamedTuple):
    """Memory that a process shares with others. `rights` as in /proc."""

    start: int
    size: int
    rights: str
    name: str

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Start, size, and the rights as mprotect takes them."""
        return self.start, self.size, sum(RIGHTS.get(letter, 0) for letter in self.rights)


class Filtered(NamedTuple):
    """The kernel's facts about the rights of a thread."""

    filters: int
    is_for_good: bool


def preview(runner: Runner, code: str, package: str | None, seconds: float) -> Reply:
    """Evaluate in a copy that first gives up all rights and is killed afterwards. The lock is held."""
    lifecycle = runner.lifecycle
    family, live = lifecycle.surely_ready()
    # A copy that cannot load an edited file is discarded, and another runs the old code.
    back = True if family.program.language == "python" else None
    fields: dict[str, Any] = {"code": code, "package": package, "back": back}
    known = runner.declined.unknown_to(live)
    reply = _in_a_copy(runner, family, live, {**fields, "declined": known}, seconds)
    if not reply.spoiled:
        return hinted(reply, family.program)
    fields |= {"declined": {**(known or {}), **reply.spoiled}, "told": True}
    again = hinted(_in_a_copy(runner, family, live, fields, seconds), family.program)
    return joined(msgspec.structs.replace(again, notes=[*reply.notes, *again.notes]), printed_by(reply))


def _in_a_copy(
    runner: Runner, family: Family, live: Connection, fields: dict[str, Any], seconds: float
) -> Reply:
    lifecycle = runner.lifecycle
    copy = family.fork(live, "preview")
    try:
        # Confine it first: that opens the null device, and the listener refuses calls that change files.
        with (
            confined(copy, family, CONFINING_SECONDS) as mirror,
            lifecycle.hear_attempts(copy.pid) as tried,
        ):
            copy.send("eval", **fields)
            runner.wait = Wait(copy, mirror, op="preview", code=fields["code"])
            reply = _previewed(runner.wait, seconds)
        return msgspec.structs.replace(reply, files=tried, span=lifecycle.span())
    finally:
        runner.wait = None
        family.kill(copy)


def _previewed(wait: Wait, seconds: float) -> Reply:
    try:
        reply = wait.for_reply(Reply, seconds)
    except ImageProtocolError as error:
        return Reply(ok=False, error=broken(error))
    except ImageGoneError:
        attempt = attempt_of(wait)
        if attempt is not None and wait.over is None:
            told = [attempt.ended("in a copy of the image")]
            return with_output(Reply(ok=False, notes=told, spoiled=attempt.marks), wait.printed())
        reply = None
    if reply is not None:
        return reply
    message = "The code would end the image, or would not stop when told to."
    attempt = attempt_of(wait)
    if attempt is not None:
        message = f"Taking up {attempt.at} would not stop when told to. {NOT_RUN}"
    return with_output(Reply(ok=False, error=ImageFault("PREVIEW-DIED", message)), wait.printed())


@contextmanager
def confined(copy: Connection, family: Family, seconds: float) -> Iterator[OutputMirror | None]:
    """Let a copy give up its rights, or raise ImageError with the reason. Yield its output mirror."""
    mirror = OutputMirror.make() if family.mirror is not None else None
    try:
        try:
            _confine(copy, family, mirror, seconds)
        except ImageGoneError:
            raise _impossible("the copy ended when it was to give up its rights") from None
        except OSError as error:
            raise _impossible(f"the copy cannot be looked at ({reason_of(error)})") from None
        yield mirror
    finally:
        if mirror is not None:
            mirror.close()


def _confine(copy: Connection, family: Family, mirror: OutputMirror | None, seconds: float) -> None:
    before = _filtered(Path(f"/proc/{copy.pid}"))
    known = _shared_lines(family.zygote.pid)
    numbers = [number for area in _to_copy(copy.pid, known) for number in area.numbers]
    told = copy.request(
        Done,
        seconds,
        "confine",
        filter=_program(copy.inner_pid).hex(),
        areas=numbers or None,
        tag=copy.lend(mirror.fd) if mirror is not None else None,
    )
    if not told.confined:
        raise _impossible(f"the copy cannot be confined ({told.reason or 'it does not say why'})")
    # It must not have the mirror of the live process any more, and may have its own.
    known -= {line for line in known if _is_of(line, family.mirror)}
    known |= {line for line in _shared_lines(copy.pid) if _is_of(line, mirror)}
    lacking = _lacking(copy.pid, before, known)
    if lacking is not None:
        why = "evaluated code has changed how previews of this image are confined; undo or reset it"
        raise _impossible(f"the copy has not given up its rights: {lacking} ({why})")


def _impossible(reason: str) -> ImageError:
    return ImageError(f"a preview is not possible: {reason}")


def _program(process: int) -> bytes:
    machine = platform.machine()
    program = build_preview_filter(machine, process, truncation=landlock_version() >= TRUNCATE_SINCE)
    if program is None:
        raise _impossible(f"no filter of system calls is known for {machine}")
    return program


def _filtered(thread: Path) -> Filtered:
    told = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines() if ":" in line)
    try:
        return Filtered(int(told["Seccomp_filters"]), told["NoNewPrivs"].strip() == "1")
    except (KeyError, ValueError):
        raise _impossible("this kernel does not tell of filters of system calls") from None


def _lacking(pid: int, before: Filtered, known: frozenset[bytes]) -> str | None:
    """Return the right that a supposedly confined process has kept, or None."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        now = _filtered(thread)
        if now.filters <= before.filters or not now.is_for_good:
            return "no filter of system calls was added"
    shared = [area.name for area in _writable_areas(pid, known)]
    if shared:
        return f"it still shares the memory {shared[0]}"
    return _open_way(Path(f"/proc/{pid}/fd"))


def _open_way(directory: Path) -> str | None:
    """Return an open descriptor that leads out of a preview, or None."""
    sockets = 0
    for link in directory.iterdir():
        # The permissions of a /proc link are those that its descriptor was opened with.
        rights, status = link.lstat().st_mode, link.stat()
        kind = stat.S_IFMT(status.st_mode)
        sockets += kind == stat.S_IFSOCK
        is_file = kind in (stat.S_IFREG, stat.S_IFDIR) and not rights & stat.S_IWUSR
        is_nothing = kind == stat.S_IFCHR and status.st_rdev in MEMORY_DEVICES
        is_connection = kind == stat.S_IFSOCK and sockets == 1
        is_path = not rights & (stat.S_IRUSR | stat.S_IWUSR)
        if not (is_file or is_nothing or is_connection or is_path):
            return f"descriptor {link.name} is {NO_FILES.get(kind, 'open for writing')}"
    return None


def _shared_lines(pid: int) -> frozenset[bytes]:
    """Return the kernel's list of the shared memory of a process."""
    lines = Path(f"/proc/{pid}/maps").read_bytes().splitlines()
    return frozenset(line for line in lines if line.split(None, 2)[1].endswith(b"s"))


def _is_of(line: bytes, mirror: OutputMirror | None) -> bool:
    """Return whether a line about shared memory is about a mirror."""
    if mirror is None or MIRROR not in line:
        return False
    return line.split(None, 5)[4] == b"%d" % os.fstat(mirror.fd).st_ino


def _to_copy(pid: int, known: frozenset[bytes]) -> list[Area]:
    """Return the shared memory that has to become private. Raise ImageError where it cannot."""
    areas = _writable_areas(pid, known)
    for area in areas:
        if not area.rights.startswith("r"):
            raise _impossible(f"the shared memory {area.name} cannot be read, so it cannot be copied")
    size = sum(area.size for area in areas)
    if size > MOST_SHARED:
        largest = max(areas, key=lambda area: area.size)
        told = f"evaluated code shares {size >> 20:,} MB of memory ({largest.name})"
        raise _impossible(f"{told}, and at most {MOST_SHARED >> 20} MB are copied")
    return areas


def _writable_areas(pid: int, known: frozenset[bytes]) -> list[Area]:
    """Return the new shared memory of a process that is or may become writable.

    `maps` does not show what mprotect may do. Only VmFlags in `smaps` does (sh: shared, mw: may be written).
    Reading it takes milliseconds, so it is read only where something new is shared.
    """
    new = _shared_lines(pid) - known
    if not new:
        return []
    found: list[Area] = []
    area = None
    for line in Path(f"/proc/{pid}/smaps").read_bytes().splitlines():
        if line.startswith(b"VmFlags:"):
            if area is not None and {b"sh", b"mw"} <= set(line.split()):
                found.append(area)
            area = None
        elif line in new:
            area = _area(line)
    return found


def _area(line: bytes) -> Area | None:
    match = _AREA.match(line)
    if match is None:
        return None
    start, end = int(match[1], 16), int(match[2], 16)
    name = os.fsdecode(match[4]) or "without a name"
    return Area(start, end - start, match[3].decode("ascii"), name)
