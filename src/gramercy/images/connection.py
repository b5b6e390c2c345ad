"""One connection to one process of an image, and an evaluation under way on it.

Length-prefixed frames go out and in. Requests are written in the syntax that the image reads: a property list
for Lisp, JSON for Python. The timeout of an evaluation is enforced here: at the deadline the process gets
SIGINT, a second later SIGINT again, and one more second later it is killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import struct
import threading
from itertools import count
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gramercy.errors import ImageError, ImageGoneError, ImageProtocolError
from gramercy.images import bounds
from gramercy.images.base import Progress, Reply
from gramercy.images.checkpoints import Step, digest
from gramercy.images.output import Printed
from gramercy.images.requests import Evaluate
from gramercy.images.wire import (
    EVENT,
    LARGEST_REQUEST,
    MOST_EVENTS,
    MOST_STRAYS,
    Done,
    Frames,
    Hello,
    SuiteFrame,
    kind_of,
    number_of,
)
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from io import FileIO

    from gramercy.images.base import Span, Watcher
    from gramercy.images.handover import Arrival, Ends
    from gramercy.images.lines import Lines, Typist
    from gramercy.images.output import OutputMirror
    from gramercy.images.requests import Work

T = TypeVar("T")

# Nearly every reply fits into one read of this size.
CHUNK = 1 << 16
_HEADER = struct.Struct(">I")
_WAITING_TIME = struct.Struct("ll")
# How often a wait for a reply looks whether the process has ended, where another one holds its socket open.
WATCH_TURN = 1.0
# The shortest SO_RCVTIMEO: zero would mean no timeout.
_SHORTEST = 1e-6
AT_ONCE = int(socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
# For a request that a process does not read: 64 MB take a second, the rest is for a loaded machine.
SEND_SECONDS = 10.0
# The kernel limits how many descriptors all processes of a user have on their way together (root is exempt).
# A moment later there is room; code that uses them up for longer must not hold up this process.
ROOM_SECONDS, ROOM_TURN = 1.0, 0.01


class Connection:
    """A process of an image, by its socket. `pid` is its number in the pid namespace of this process.

    `ends` has those that a request takes along; `arrival` is what the kernel says of the process.
    """

    def __init__(
        self,
        channel: socket.socket,
        encode: Callable[[dict[str, Any]], bytes],
        numbers: Iterator[int] | None = None,
        ends: Ends | None = None,
        arrival: Arrival | None = None,
    ) -> None:
        self._channel = channel
        self._encode = encode
        self._numbers = count(1) if numbers is None else numbers
        self._frames = Frames()
        self._patience: float | None = None
        # How the process has broken the grammar: from then on nothing it sends is read.
        self._broken = ""
        # Frames that answer no request of this process, since the last request.
        self._strays = self._events = 0
        self.last_id = 0
        self._ends = ends
        # From the kernel: evaluated code may lie. The pidfd is never that of another process.
        self.pid = arrival.pid if arrival is not None else 0
        self.inner_pid = arrival.inner_pid if arrival is not None else 0
        self._handle = arrival.handle if arrival is not None else -1
        self.hello: Hello | None = None
        self.parent: Connection | None = None

    def signal(self, number: int) -> None:
        """Send the process a signal; nothing happens when it has ended."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._handle, number)

    def wait_for_end(self, seconds: float) -> bool:
        """Wait until the process has ended, and has left its ports and locks; tell whether it has."""
        if self._handle < 0:
            return False
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def read_hello(self, frame: bytes) -> Hello:
        """Return the first frame."""
        with self._guarded():
            self.hello = kind_of(Hello).read(frame)
        return self.hello

    def send(self, op: str, **fields: Any) -> None:
        """Send a request; fields that are None are left out."""
        self.post({"op": op, **fields})

    def post(self, fields: dict[str, Any]) -> None:
        """Send a request that has all its fields but `id`, with the ends for the copies that it asks for."""
        fields["id"] = self.last_id = next(self._numbers)
        self._strays = self._events = 0
        ends = self._ends.given(fields) if self._ends is not None and self._ends.fresh else {}
        if ends:
            fields["ends"] = list(ends)
        try:
            payload = self._encode(fields)
        except UnicodeEncodeError:
            raise ImageProtocolError("the code has a lone surrogate in it, which is no character") from None
        if len(payload) > LARGEST_REQUEST:
            raise ImageProtocolError(
                f"the request has {len(payload):,} bytes: at most {LARGEST_REQUEST:,} can be sent"
            )
        frame = _HEADER.pack(len(payload)) + payload
        try:
            sent = self._send(frame, ends)
            if sent < len(frame):
                self._send_rest(memoryview(frame)[sent:])
        except OSError as error:
            raise ImageGoneError(f"the image cannot be reached ({reason_of(error)})") from None

    def lend(self, descriptor: int) -> str:
        """Return the `tag` with which a request takes a file along."""
        assert self._ends is not None, "a process that cannot be given anything"  # noqa: S101 - it was met
        return self._ends.lend(descriptor)

    def hand_over(self, end: socket.socket) -> str:
        """Return the tag with which a request takes an end along."""
        assert self._ends is not None, "a process that cannot be given anything"  # noqa: S101 - it was met
        return self._ends.hand_over(end)

    def fileno(self) -> int:
        """Return the descriptor on which frames come."""
        return self._channel.fileno()

    def is_coming(self, beside: int, seconds: float) -> bool:
        """Wait for a frame, or for what comes on a descriptor beside it; tell whether it is the frame."""
        if self._frames:
            return True
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(beside, select.POLLIN)
        return self._channel.fileno() in dict(poll.poll(seconds * 1000))

    def _send(self, frame: bytes, ends: Mapping[str, socket.socket | FileIO]) -> int:
        if not ends:
            return self._channel.send(frame, AT_ONCE)
        try:
            return self._send_with(frame, [end.fileno() for end in ends.values()])
        finally:
            # Also where it failed: that a copy never comes is seen at once.
            for tag, end in ends.items():
                del self._ends.fresh[tag]  # type: ignore[union-attr]  # there are ends
                end.close()

    def _send_with(self, frame: bytes, descriptors: list[int]) -> int:
        deadline = monotonic() + ROOM_SECONDS
        while True:
            try:
                return socket.send_fds(self._channel, [frame], descriptors, AT_ONCE)
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS or monotonic() > deadline:
                    raise
            sleep(ROOM_TURN)

    def _send_rest(self, rest: memoryview) -> None:
        """Send what the socket has no room for yet; a process that does not read it has ended for us."""
        poll = select.poll()
        poll.register(self._channel, select.POLLOUT)
        deadline = monotonic() + SEND_SECONDS
        while rest:
            left = deadline - monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise ImageGoneError(f"the image did not read the request within {SEND_SECONDS:g} s")
            with contextlib.suppress(BlockingIOError):
                rest = rest[self._channel.send(rest, AT_ONCE) :]

    def _receive_until(self, deadline: float, seconds: float, longest: int) -> bytes | None:
        """Return the next frame, or None at the deadline, which nothing that comes moves.

        A part of a frame stays where it is.
        """
        frames = self._frames
        frame = frames.take(longest) if frames else None
        while frame is None:
            turn = min(seconds, WATCH_TURN)
            if turn != self._patience:
                self._be_patient(turn)
            try:
                chunk = self._channel.recv(CHUNK)
            except BlockingIOError:
                seconds = max(0.0, deadline - monotonic())
                if not seconds:
                    return None
                if not self.has_ended():
                    continue
                chunk = b""
            except OSError:
                chunk = b""
            if not chunk:
                raise ImageGoneError("the image has ended")
            frame = frames.feed(chunk, longest)
            if frame is None and (seconds := deadline - monotonic()) <= 0:
                return None
        return frame

    def _be_patient(self, seconds: float) -> None:
        """Set SO_RCVTIMEO: the kernel waits, which saves the poll that a Python timeout makes."""
        exact = max(seconds, _SHORTEST)
        whole = int(exact)
        value = _WAITING_TIME.pack(whole, int((exact - whole) * 1e6))
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self._patience = seconds

    def receive_reply(self, published: type[T], seconds: float) -> T | None:
        """Return the reply to the last request, or None at the timeout; other replies are dropped.

        There is one request at a time, but a process that evaluated code has forked may reply too.
        """
        if self._broken:
            raise ImageProtocolError(self._broken)
        kind = kind_of(published)
        deadline = monotonic() + seconds
        try:
            while (frame := self._receive_until(deadline, seconds, kind.longest)) is not None:
                reply = kind.reply_to(self.last_id, frame)
                if reply is not None:
                    return reply
                self._pass_over()
                if (seconds := deadline - monotonic()) <= 0:
                    break
        except ImageProtocolError as error:
            self._broken = str(error)
            raise
        return None

    def receive_of_suite(self, seconds: float) -> SuiteFrame | None:
        """Return the next event of a run of tests, or the reply at its end; None at the timeout."""
        kind = kind_of(SuiteFrame)
        with self._guarded():
            frame = self._receive_until(monotonic() + seconds, seconds, kind.longest)
            if frame is None:
                return None
            number = number_of(frame)
            told = kind.read(frame) if number in (EVENT, self.last_id) else None
            if told is not None and (number == EVENT) == (told.event is not None):
                self._events += 1
                if self._events > MOST_EVENTS:
                    raise ImageProtocolError(f"the image sent more than {MOST_EVENTS:,} events")
                return told
            self._pass_over()
        return None

    def _pass_over(self) -> None:
        """Count a frame that nothing asked for; an image that sends them without end is misbehaving."""
        self._strays += 1
        if self._strays > MOST_STRAYS:
            raise ImageProtocolError(f"the image sent more than {MOST_STRAYS} frames that nothing asked for")

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Remember a violation of the grammar: what follows one in the stream means nothing."""
        if self._broken:
            raise ImageProtocolError(self._broken)
        try:
            yield
        except ImageProtocolError as error:
            self._broken = str(error)
            raise

    def request(self, reply: type[T], seconds: float, op: str, **fields: Any) -> T:
        """Send a request and return its reply; raise ImageGoneError at the timeout, as at a death."""
        self.send(op, **fields)
        answer = self.receive_reply(reply, seconds)
        if answer is None:
            raise ImageGoneError(f"the image did not answer {op} within {seconds:g} s")
        return answer

    def request_descriptor(self, seconds: float, op: str, **fields: Any) -> tuple[Done, int | None]:
        """Send a request whose reply may come with one descriptor; return both."""
        self.send(op, **fields)
        self._be_patient(seconds)
        try:
            data, descriptors, flags, _ = socket.recv_fds(self._channel, CHUNK, 1)
        except OSError as error:
            raise ImageGoneError(f"the image did not answer {op} ({reason_of(error)})") from None
        self._frames.hold(data)
        answer = None
        with contextlib.suppress(ImageError):
            answer = self.receive_reply(Done, seconds) if data and not flags else None
        if answer is None:
            for descriptor in descriptors:
                os.close(descriptor)
            raise ImageGoneError(f"the image did not answer {op} as it should")
        return answer, descriptors[0] if descriptors else None

    def has_ended(self) -> bool:
        """Tell, without waiting, whether the other end has closed the socket (EOF) or its process ended."""
        # Another process may hold the socket too. Looked at first: what it has sent before is there by then.
        has_ended = self.wait_for_end(0.0)
        try:
            return not self._channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return has_ended
        except OSError:
            return True

    def close(self) -> None:
        """Close the socket; the process at the other end exits at EOF."""
        self._channel.close()
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


as_json = msgspec.json.Encoder().encode


class _Keywords(dict[str, str]):
    """Lisp keywords by field name, each made once."""

    def __missing__(self, name: str) -> str:
        keyword = self[name] = f":{name.replace('_', '-')}"
        return keyword


_KEYWORDS = _Keywords()


def as_plist(request: dict[str, Any]) -> bytes:
    """Write a request as one property list, in standard syntax and without read-time evaluation."""
    ends = request.get("ends", ())
    usual = len(request) == _MEMBERS + (1 if ends else 0)
    if usual and "code" in request and "then_fork" in request and "keep_moment" in request:
        code, tag, keep = request["code"], request["then_fork"], request["keep_moment"]
        if '"' in code or "\\" in code:
            code = _escaped(code)
        tags = f':then-fork "{tag}" :keep-moment "{keep}"'
        if ends:
            tags = f"{tags} :ends {_datum(ends)}"
        return f'(:op "{request["op"]}" :code "{code}" {tags} :id {request["id"]})'.encode()
    words = [f"{_KEYWORDS[name]} {_datum(value)}" for name, value in request.items() if value is not None]
    return f"({' '.join(words)})".encode()


# `id`, `op`, `code`, `then_fork` and `keep_moment`: an evaluation, as nearly all requests are. A template
# writes it in a third of the time.
_MEMBERS = 5


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _datum(value: Any) -> str:
    if value is None or value is False:
        return "NIL"
    if value is True:
        return "T"
    if isinstance(value, str):
        return f'"{_escaped(value)}"'
    if isinstance(value, list | tuple):
        return f"({' '.join(map(_datum, value))})"
    return repr(value)


# Seconds between the first SIGINT and the second, and from the second to SIGKILL: long enough for a handler
# to clean up, short enough that a person still waits.
PATIENCE = 1.0
# A wait that took so much longer than it was to: the machine stood still, and with it the process.
STALL_SECONDS = 0.5
# Seconds that a deadline may be late for the sake of speed.
NEGLIGIBLE = 0.05
# How often a watcher is told of new output: four times a second looks continuous to a person.
WATCH_SECONDS = 0.25


class Evaluation(msgspec.Struct, eq=False):
    """Work that runs the user's code, from the request to its reply.

    `seconds` is its timeout; `tag` names the checkpoint that the process makes of itself after the reply,
    `keep` the copy that it leaves behind where it fails. `job` is the number and the place of work in the
    background; `began` is the state in which it was sent to the live process. `typist` types lines for it,
    which it asks for over `lines`.
    """

    work: Work[Any]
    seconds: float
    watch: Watcher | None = None
    tag: str | None = None
    keep: str | None = None
    job: tuple[int, int] | None = None
    began: Span | None = None
    wait: Wait | None = None
    is_cancelled: bool = False
    # Of Python: whether its state is kept to which a failed edit can go back, which edits have failed and
    # whether that was told, whether it runs a second time after one has, and what was printed the first time.
    back: bool = False
    declined: dict[str, str] | None = None
    is_told: bool = False
    is_repeated: bool = False
    printed: Printed | None = None
    typist: Typist | None = None
    lines: Lines | None = None
    started: float = msgspec.field(default_factory=perf_counter)
    # Of the work: its operation, its code or the name of what it loads, and its package.
    op: str = ""
    code: str = ""
    package: str | None = None

    def __post_init__(self) -> None:
        """Take from the work what every step of the call reads."""
        work = self.work
        self.op = work.__struct_config__.tag  # type: ignore[assignment]  # all kinds have a text for a tag
        if type(work) is Evaluate:
            self.code, self.package = work.code, work.package
        else:
            self.code, self.package = work.text, getattr(work, "package", None)

    def fields(self) -> dict[str, Any]:
        """Return the fields of the request, without its number."""
        fields: dict[str, Any] = msgspec.to_builtins(self.work)
        if self.tag is not None:
            fields["then_fork"] = self.tag
        if self.keep is not None:
            fields["keep_moment"] = self.keep
        if self.back:
            fields["back"] = True
        if self.declined is not None:
            fields["declined"], fields["told"] = self.declined, self.is_told
        if self.is_repeated:
            fields["repeated"] = True
        if self.job is not None:
            fields["job"], fields["slot"] = self.job
        if self.lines is not None:
            fields["input"] = self.lines.tag
        return fields

    def elapsed_ms(self) -> float:
        """Return the milliseconds since it was asked for."""
        return (perf_counter() - self.started) * 1000.0

    def as_step(self, reply: Reply, *, look: bool = False) -> Step:
        """Return the record from which it can be run again."""
        interrupted = reply.error is not None and reply.error.interrupted
        # What was measured once is only evaluated when it is run again.
        op = "eval" if self.op == "profile" else self.op
        return Step(op, self.code, self.package, reply.ok, interrupted, digest(reply), look)

    def hang_up(self) -> None:
        """Let nothing be typed for it any more."""
        if self.lines is not None:
            self.lines.close()

    def cancel(self) -> None:
        """Interrupt it, or keep it from being sent."""
        self.is_cancelled = True
        if self.wait is not None:
            self.wait.cut_short()


class Wait(msgspec.Struct, eq=False):
    """The wait for the reply of one process. Another thread may cut it short.

    `op` and `code` are what was sent, for who looks at the image meanwhile.
    """

    connection: Connection
    mirror: OutputMirror | None = None
    watch: Watcher | None = None
    op: str = ""
    code: str = ""
    lines: Lines | None = None
    seen: Printed = Printed()
    started: float = msgspec.field(default_factory=monotonic)
    is_over: bool = False
    # The timeout has passed: an interrupt after that is not the person's.
    is_late: bool = False
    # Made by `cut_short` only: an event for every evaluation would cost 2 µs.
    over: threading.Event | None = None

    def for_reply(self, kind: type[T], seconds: float) -> T | None:
        """Return the reply; interrupt twice when so many seconds have passed since the request.

        None means that the process ignored both interrupts and has to be killed.
        """
        bounds.watch.hurry()
        try:
            # From the request on. The kernel knows the whole time already: to set it anew is a system call.
            left = self.started + seconds - monotonic()
            reply = self._within(kind, seconds if seconds - left < NEGLIGIBLE else left)
            return self._after_interrupts(kind) if reply is None else reply
        finally:
            self.end()

    def _after_interrupts(self, kind: type[T]) -> T | None:
        self.is_late = True
        if self.lines is not None:
            # Who is asked from now on would answer code that is over.
            self.lines.close()
        for _ in range(2):
            self.connection.signal(signal.SIGINT)
            began = monotonic()
            reply = self._within(kind, PATIENCE)
            if reply is None and _has_stalled(began):
                reply = self._within(kind, PATIENCE)
            if reply is not None:
                return reply
        return None

    def end(self) -> None:
        """Note that the reply has come: there is nothing left to cut short."""
        self.is_over = True
        if self.over is not None:
            self.over.set()

    def _within(self, kind: type[T], seconds: float) -> T | None:
        if self.watch is None and self.lines is None:
            return self.connection.receive_reply(kind, seconds)
        deadline = monotonic() + seconds
        while (left := deadline - monotonic()) > 0:
            turn = min(left, WATCH_SECONDS)
            lines = self.lines if self.lines is not None and self.lines.is_open else None
            if lines is None or self.connection.is_coming(lines.fileno(), turn):
                reply = self.connection.receive_reply(kind, turn)
                if reply is not None:
                    return reply
                self._tell()
            else:
                self._tell()
                # The time of a person is not that of the evaluation.
                deadline += lines.answer()
        return None

    def _tell(self) -> None:
        """Tell the watcher what was printed; one that raises is not called again."""
        printed, seen = self.printed(), self.seen
        self.seen = printed
        news = (printed.stdout[len(seen.stdout) :], printed.stderr[len(seen.stderr) :])
        if self.watch is not None:
            try:
                self.watch(Progress(monotonic() - self.started, *news))
            except Exception:  # noqa: BLE001 - a watcher's fault must not fail the evaluation
                self.watch = None

    def printed(self) -> Printed:
        """Return what the evaluation has printed so far."""
        return Printed() if self.mirror is None else self.mirror.read(self.connection.last_id)

    def cut_short(self) -> None:
        """Stop the evaluation: SIGINT, SIGINT, and SIGKILL if it resists."""
        over = self.over = self.over or threading.Event()
        for _ in range(2):
            if self.is_over:
                return
            self.connection.signal(signal.SIGINT)
            began = monotonic()
            if over.wait(PATIENCE) or (_has_stalled(began) and over.wait(PATIENCE)):
                return
        self.connection.signal(signal.SIGKILL)


def _has_stalled(began: float) -> bool:
    """Tell whether a wait of PATIENCE was far longer: then the process had no time to answer either."""
    return monotonic() - began > PATIENCE + STALL_SECONDS


def with_output(reply: Reply, printed: Printed) -> Reply:
    """Return a reply that was made on this side, with what the evaluation itself had printed."""
    printed = printed.folded()
    return msgspec.structs.replace(
        reply, stdout=printed.stdout, stderr=printed.stderr, truncated=printed.truncated
    )
