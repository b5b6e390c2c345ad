"""Background jobs of an image: code that a thread of the live process evaluates beside other calls.

Its output and its reply are in memory that the image shares with this process, so nothing here waits for the
image. A job ends with its process: at a death, an undo or a reset. Evaluated code can write anything into
that memory, so its content is only used as bytes to show.
"""

from __future__ import annotations

import codecs
import threading
from time import monotonic, time
from typing import TYPE_CHECKING, Literal

import msgspec

from gramercy.errors import ImageError, ImageProtocolError
from gramercy.images.base import Reply
from gramercy.images.output import JOBS, RING, folded
from gramercy.images.wire import kind_of
from gramercy.text import cut_line

if TYPE_CHECKING:
    from gramercy.images.connection import Connection
    from gramercy.images.output import OutputMirror

# Finished jobs that can still be read.
MOST_KEPT = 20
# Characters of the code in a list of jobs.
LONGEST_CODE = 60
_decoder = codecs.getincrementaldecoder("utf-8")
JobState = Literal["running", "done", "failed", "stopped", "lost"]


class JobInfo(msgspec.Struct, frozen=True):
    """One job. `printed` is the output since it was last read, of which `dropped` bytes were not kept.

    `reply` is that of its code, once it is over. A lost job ended with its process and has none.
    """

    id: int
    code: str
    state: JobState
    since: float
    seconds: float
    printed: str = ""
    dropped: int = 0
    reply: Reply | None = None

    @property
    def shown(self) -> str:
        """The job in one line."""
        code = cut_line(self.code, LONGEST_CODE)
        return f"job {self.id} ({self.state}, {self.seconds:.0f} s): {code}"


class _Job:
    """The facts about a job in this process."""

    def __init__(self, number: int, slot: int, code: str, mirror: OutputMirror, owner: Connection) -> None:
        self.number, self.slot, self.code = number, slot, code
        self.mirror, self.owner = mirror, owner
        self.since, self._started, self._ended = time(), monotonic(), 0.0
        self.state: JobState = "running"
        self.is_stopped = False
        self.is_told = False
        self.reply: Reply | None = None
        self._seen = self._dropped = 0
        self._unread = b""

    @property
    def is_news(self) -> bool:
        """Whether it has ended and that was not reported yet."""
        return self.state != "running" and not self.is_told

    def look(self) -> None:
        """Read the news. It stays known when the memory is gone."""
        if self.state != "running":
            return
        try:
            found = self.mirror.read_job(self.slot, self.number, self._seen)
        except OSError:  # closed with the image
            return
        if found is None:
            return
        unread = self._unread + found.text
        self._unread = unread[-RING:]
        self._dropped += found.dropped + len(unread) - len(self._unread)
        self._seen = found.written
        if found.reply is not None:
            self._end(found.reply)

    def _end(self, frame: bytes) -> None:
        self._ended = monotonic()
        try:
            self.reply = kind_of(Reply).read(frame)
        except ImageProtocolError as error:
            self.reply = Reply(ok=False, notes=[f"Its reply cannot be read: {error}."])
        ended: JobState = "stopped" if self.is_stopped else "failed"
        self.state = "done" if self.reply.ok else ended

    def lose(self) -> None:
        """Note that its process has ended."""
        self.look()
        if self.state == "running":
            self.state, self._ended = "lost", monotonic()

    def info(self, *, reads: bool = False) -> JobInfo:
        """Describe it. With `reads`, include the new output and mark it as read."""
        seconds = (self._ended or monotonic()) - self._started
        if self.reply is not None:
            seconds = self.reply.elapsed_ms / 1000
        decoder = _decoder("replace")
        printed = folded(decoder.decode(self._unread, final=self.state != "running"))
        dropped = self._dropped
        if reads:
            # The first bytes of a character that is not complete yet.
            self._unread, self._dropped = decoder.getstate()[0], 0
            self.is_told = self.is_told or self.state != "running"
        return JobInfo(self.number, self.code, self.state, self.since, seconds, printed, dropped, self.reply)


class Jobs:
    """The jobs of one image. Any thread may call it."""

    def __init__(self) -> None:
        self._jobs: dict[int, _Job] = {}
        self._lock = threading.RLock()
        self._last = 0
        self.runs = False

    def begin(self, code: str, mirror: OutputMirror | None, owner: Connection) -> tuple[int, int]:
        """Return the number and the place of a job that is about to begin. Raise without a free place."""
        with self._lock:
            slot = self.free_place()
            if mirror is None:
                raise ImageError("there is no memory for work in the background on this system")
            self._last += 1
            self._jobs[self._last] = _Job(self._last, slot, code, mirror, owner)
            self.runs = True
            over = [number for number, job in self._jobs.items() if job.state != "running"]
            for number in over[: max(0, len(self._jobs) - MOST_KEPT)]:
                del self._jobs[number]
            return self._last, slot

    def free_place(self) -> int:
        """Return the place for another job. Raise without a free place."""
        with self._lock:
            self._look()
            taken = {job.slot for job in self._jobs.values() if job.state == "running"}
            if len(taken) == JOBS:
                raise ImageError(f"{JOBS} jobs run, and there may be no more: stop one first")
            return min(set(range(JOBS)) - taken)

    def forget(self, job: tuple[int, int] | None) -> None:
        """Forget a job that did not begin, by its number and place."""
        if job is not None:
            with self._lock:
                self._jobs.pop(job[0], None)

    def read(self, number: int) -> JobInfo:
        """Return a job, with its output since it was last read."""
        with self._lock:
            self._look()
            return self._known(number).info(reads=True)

    def all(self) -> list[JobInfo]:
        """List the jobs, the oldest first, without marking output as read."""
        with self._lock:
            self._look()
            return [job.info() for job in self._jobs.values()]

    def stopping(self, number: int) -> Connection | None:
        """Return the process of a job that is about to be stopped, None where it is over."""
        with self._lock:
            self._look()
            job = self._known(number)
            job.is_stopped = job.is_stopped or job.state == "running"
            return job.owner if job.state == "running" else None

    def leave(self, owner: Connection | None) -> None:
        """Note that a process is no longer the image: its jobs have ended with it."""
        if not self.runs:
            return
        with self._lock:
            for job in self._jobs.values():
                if job.owner is owner:
                    job.lose()

    def clear(self) -> list[str]:
        """Drop them all, with their processes. Return notes on running ones. Numbers are not reused."""
        with self._lock:
            running = [job.info().shown for job in self._jobs.values() if job.state == "running"]
            self._jobs.clear()
            self.runs = False
        return [f"Ended with it: {line}." for line in running]

    def told(self, but: int | None = None) -> list[str]:
        """Report each finished job once, except for one that has just begun."""
        with self._lock:
            self._look()
            over = [job for job in self._jobs.values() if job.is_news and job.number != but]
            for job in over:
                job.is_told = True
            self.runs = any(job.state == "running" or job.is_news for job in self._jobs.values())
        return [_ended(job.info()) for job in over]

    def _look(self) -> None:
        for job in self._jobs.values():
            job.look()

    def _known(self, number: int) -> _Job:
        if number in self._jobs:
            return self._jobs[number]
        known = "; ".join(job.info().shown for job in self._jobs.values())
        raise ImageError(f"there is no job {number}: {known or 'none was started'}")


def _ended(info: JobInfo) -> str:
    if info.state == "lost":
        return f"Job {info.id} ended with its process after {info.seconds:.0f} s; its output can be read."
    return f"Job {info.id} is over ({info.state}) after {info.seconds:.0f} s; its result can be read."
