"""A server that is a program of this machine: its process, and the frames on its input and output.

Everything it sends is bounded: the length of a message, lines that are not messages, and unsolicited
messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from msgspec import UNSET

from gramercy.errors import DeepFrameError, ForeignError, InvalidFrameError, ServerGoneError
from gramercy.images.programs import find_program, none_on_path
from gramercy.mcp.jsonrpc import Message, read_message
from gramercy.mcp.pipes import LARGEST_FRAME, Overlong, Splitter
from gramercy.text import reveal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gramercy.mcp.foreign.session import Hear, Outgoing

# Messages in a row without a response among them; the progress of a long call comes to a few thousand.
MOST_UNASKED = 10_000
# Lines that are not messages: servers print banners and warnings to standard output by mistake.
MOST_GARBAGE = 1_000
# High-water mark of unread input of the process: one largest frame and its neighbours.
MOST_UNREAD = 16 * 1024 * 1024
# Characters of standard error that are quoted when the process ends: the end of a traceback.
LAST_WORDS = 2_000
# Seconds between two checks of a process that is about to exit.
GLANCE = 0.02
# The variables that a program needs to run at all. It must not get the keys and tokens of this process.
INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")


class _Voice(asyncio.Protocol):
    """Passes on the output of a descriptor."""

    def __init__(self, link: PipeLink, *, is_wire: bool) -> None:
        self._link = link
        self._is_wire = is_wire

    def data_received(self, data: bytes) -> None:
        """Pass on the data."""
        (self._link.take if self._is_wire else self._link.note)(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that no more data will come."""
        del exc
        if self._is_wire:
            self._link.lost()


class PipeLink:
    """A process and its unanswered requests."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: str | None) -> None:
        self._command = tuple(command)
        self._env = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(env)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._input: asyncio.WriteTransport | None = None
        self._outputs: list[asyncio.ReadTransport] = []
        self._splitter = Splitter()
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._unasked = self._garbage = 0
        self._said = bytearray()
        self._end: str | None = None
        self._reaper: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the process takes requests."""
        return self._input is not None and self._end is None

    async def open(self, hear: Hear) -> None:
        """Start the process."""
        self._hear = hear
        pipe = subprocess.PIPE
        try:
            # In a session of its own, so that all its children can be ended with it.
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603 - takes a moment; the user's own command
                self._found(),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=self._env,
                cwd=self._folder,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ForeignError(f"{self._command[0]!r:.100} cannot be started: {error}") from None
        loop = asyncio.get_running_loop()
        for stream, is_wire in ((self._process.stdout, True), (self._process.stderr, False)):
            voice = _Voice(self, is_wire=is_wire)
            transport, _ = await loop.connect_read_pipe(lambda voice=voice: voice, stream)  # type: ignore[misc]
            self._outputs.append(transport)
        self._input, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self._process.stdin)

    def _found(self) -> list[str]:
        """Return the command with its program found on PATH, but not in a project."""
        name, *rest = self._command
        if "/" in name:
            return [name, *rest]
        path = self._env.get("PATH", os.defpath)
        found = find_program(name, path)
        if found is None:
            raise ForeignError(f"{name!r:.100} cannot be started: {none_on_path(name, path)}")
        return [found, *rest]

    async def ask(self, outgoing: Outgoing) -> Message:
        """Send a request and wait for its response."""
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[outgoing.id] = answer
        try:
            self.tell(outgoing.frame)
            return await answer
        finally:
            self._pending.pop(outgoing.id, None)

    def tell(self, frame: bytes, version: str | None = None) -> None:
        """Send a frame; close the connection if the process leaves too much of its input unread."""
        del version
        if self._input is None or self._end is not None:
            raise ServerGoneError(self._end or "it was not started")
        if self._input.get_write_buffer_size() > MOST_UNREAD:
            self._break("it does not read what it is sent")
            raise ServerGoneError(self._end or "")
        self._input.write(frame + b"\n")

    async def settle(self) -> None:
        """Return at once: a pipe keeps the order."""

    def forget(self, outgoing: Outgoing, cancellation: bytes) -> None:
        """Send the cancellation, if the process still takes messages."""
        del outgoing
        if self.is_open:
            with contextlib.suppress(ServerGoneError):
                self.tell(cancellation)

    def remarks(self) -> str:
        """Report lines that were not messages, and the end of the process's standard error."""
        odd = f"; {self._garbage} lines from it were no messages of the protocol" if self._garbage else ""
        said = reveal(self._said.decode("utf-8", "replace")).strip()
        return f"{odd}; the end of its standard error: {said}" if said else odd

    def take(self, data: bytes) -> None:
        """Split the output of the process into frames."""
        for frame in self._splitter.feed(data):
            if self._end is not None:
                return
            if isinstance(frame, Overlong):
                self._break(f"it sent a message of more than {LARGEST_FRAME:,} bytes")
            else:
                self._take_frame(frame)

    def note(self, data: bytes) -> None:
        """Keep the end of the process's standard error."""
        self._said += data
        del self._said[:-LAST_WORDS]

    def _take_frame(self, frame: bytes) -> None:
        try:
            message = read_message(frame)
        except DeepFrameError as error:
            # The request that it answers is unknown too, and no request should wait for its deadline.
            self._break(f"it sent a message that cannot be read: {error}")
            return
        except InvalidFrameError:
            self._garbage += 1
            if self._garbage > MOST_GARBAGE:
                self._break(f"more than {MOST_GARBAGE:,} lines from it are no messages of the protocol")
            return
        answer = None
        if message.method is UNSET and isinstance(message.id, int):
            answer = self._pending.get(message.id)
        if answer is not None and not answer.done():
            self._unasked = 0
            answer.set_result(message)
            return
        self._unasked += 1
        if self._unasked > MOST_UNASKED:
            self._break(f"it floods: more than {MOST_UNASKED:,} messages that nobody asked for")
        elif message.method is not UNSET:
            self._hear(message)

    def lost(self) -> None:
        """Determine how the process ended, now that its output has ended."""
        if self._end is None and self._reaper is None:
            self._reaper = asyncio.get_running_loop().create_task(self._reap())

    async def _reap(self) -> None:
        await self._exited(0.5)
        code = self._kill()
        if code is None:
            self._break("it closed its output and was ended")
        else:
            self._break(f"it ended by signal {-code}" if code < 0 else f"it ended with exit code {code}")

    async def _exited(self, seconds: float) -> bool:
        """Wait for the exit without reaping the process: its pid must not be reused before the kill."""
        assert self._process is not None  # noqa: S101 - for mypy: only called after the start
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            if _has_exited(self._process.pid):
                return True
            await asyncio.sleep(GLANCE)
        return False

    def _kill(self) -> int | None:
        """Kill the rest of the process and its children; return its exit code if it had ended itself."""
        process = self._process
        if process is None or process.returncode is not None:
            return None if process is None else process.returncode
        by_itself = _has_exited(process.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        return process.returncode if by_itself else None

    def _break(self, reason: str) -> None:
        """End the connection with a reason, and fail the pending requests."""
        if self._end is None:
            self._end = reason
        self._kill()
        for transport in (*self._outputs, self._input):
            if transport is not None:
                transport.close()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ServerGoneError(self._end))

    async def close(self, seconds: float) -> None:
        """Close the input, as the protocol wants it; kill the process if it does not end by that."""
        if self._process is None:
            return
        if self._input is not None and self._end is None:
            self._input.close()
            await self._exited(seconds)
        self._break("it was closed")

    def kill(self) -> None:
        """Kill the process at once, from any thread; for the end of the program."""
        self._kill()


def _has_exited(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
