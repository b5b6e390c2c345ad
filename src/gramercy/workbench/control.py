"""The control socket: a person at another terminal acts through a serving process.

Each side sends one JSON object per line, bounded in length. Only the same user can reach the socket (0600 in
a 0700 directory). The user is checked again on every connection, and a process that is more confined than the
server is refused: the code in an image is such a process. Decisions do not use the socket: they are
transitions in the journal, and need no living server.
"""

from __future__ import annotations

import os
import re
import select
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import asdict
from itertools import filterfalse
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy import __version__
from gramercy.errors import ControlError, GramercyError
from gramercy.execution.approval import EFFECT_SECONDS, ApprovalRequest
from gramercy.execution.callers import BLOCKING, Limit, drive
from gramercy.execution.policy import Action
from gramercy.execution.seal import digest_of_text, seal_call
from gramercy.journal.base import State
from gramercy.journal.bells import Address, own_directory
from gramercy.tools.effects import Effect, read_effect
from gramercy.tools.values import copy_json
from gramercy.toolsets import hunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gramercy.execution.executor import Executor
    from gramercy.images.image import Image
    from gramercy.tools.tool import Tool

    Operations = Mapping[str, Callable[..., Any]]

SUFFIX = ".control"
# The process id comes first. Other names in the directory are not ours.
NAME = re.compile(rf"\d+-[0-9a-f]+{re.escape(SUFFIX)}")
# An effect has at most 16 million characters, and JSON may escape some. Arguments have less.
LONGEST_FRAME = 64_000_000
# The size of one read. Most frames fit.
CHUNK = 65_536
# One person has few terminals. Further connections wait in the queue of the socket.
MOST_CONNECTIONS = 16
# A terminal sends its request at once, and reads the answer at once.
STALLED_SECONDS = 10.0
# A connection that was silent for this long is closed when there is no place left.
MUTE_SECONDS = 0.2
LOOK_SECONDS = 0.05
# Running the preview of an effect takes up to 20 s.
ANSWER_SECONDS = 40.0
# A healthy server describes itself at once. A person does not wait longer for one that hangs.
GLANCE_SECONDS = 5.0
# Between two attempts to accept a connection, while the process has no free descriptor.
PAUSE_SECONDS = 0.1
# pid, uid and gid.
CREDENTIALS = struct.Struct("3i")
CONFINEMENT = ("NoNewPrivs", "Seccomp", "Seccomp_filters")


class Control:
    """The socket of one serving process. `operations` are its requests by name, with their arguments."""

    def __init__(self, directory: Path, operations: Operations) -> None:
        self._operations = operations
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        # Connections that have not sent a request yet, with the time since when.
        self._mute: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        own_directory(directory)
        self.path = directory / f"{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with Address(self.path) as address:
                self._socket.bind(address)
            # Before listen(), so that another user cannot connect at any moment.
            self.path.chmod(0o600)
            self._socket.listen()
        except OSError:
            self.close()
            raise
        threading.Thread(target=self._accept, name="gramercy-control", daemon=True).start()

    def close(self) -> None:
        """Stop answering, and remove the socket."""
        self._is_closed.set()
        self.path.unlink(missing_ok=True)
        # Wakes the accepting thread. Closing the socket alone does not.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            self._take_place()
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if self._is_closed.wait(PAUSE_SECONDS):
                    return
                # The process has no free descriptor, or the terminal disconnected before it was served.
                self._places.release()
                continue
            threading.Thread(target=self._serve, args=[connection], name="gramercy-desk", daemon=True).start()

    def _take_place(self) -> None:
        """Wait for a place. Silent connections lose theirs."""
        while not self._places.acquire(timeout=LOOK_SECONDS):
            with self._lock:
                late = [each for each, since in self._mute.items() if monotonic() - since >= MUTE_SECONDS]
                for connection in filterfalse(_has_news, late):
                    # Ends the read of its thread, which then closes it.
                    with suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(STALLED_SECONDS)
                problem = why_refused(connection)
                while (line := self._heard(connection)) is not None:
                    answer = _failure(ControlError(problem)) if problem else self._answer(line)
                    connection.sendall(answer + b"\n")
                    if problem:
                        return
        except (OSError, ControlError):
            # The terminal has disconnected, or does not speak our protocol: there is no client to notify.
            return
        finally:
            self._places.release()

    def _heard(self, connection: socket.socket) -> bytes | None:
        """Read the next request. Until it is complete, the connection counts as silent."""
        with self._lock:
            self._mute[connection] = monotonic()
        try:
            return read_line(connection)
        finally:
            with self._lock:
                del self._mute[connection]

    def _answer(self, line: bytes) -> bytes:
        try:
            request = msgspec.json.decode(line, type=dict[str, Any])
            name = str(request.pop("do", ""))
            if name not in self._operations:
                known = ", ".join(self._operations)
                return _failure(ControlError(f"there is no request {name!r:.40}: expected one of {known}"))
            return msgspec.json.encode({"done": self._operations[name](**request)}, enc_hook=repr)
        except Exception as error:  # noqa: BLE001 - whatever it is, the person is told and the server goes on
            return _failure(error)


def _failure(error: Exception) -> bytes:
    kind = type(error).__name__
    text = str(error) if isinstance(error, GramercyError) else f"{kind}: {error}"
    return msgspec.json.encode({"failed": text[:CHUNK], "kind": kind})


def _has_news(connection: socket.socket) -> bool:
    """Return whether data can be read at once."""
    # Unlike select(), this supports descriptors beyond 1,023.
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def why_refused(connection: socket.socket) -> str:
    """Return why the process at the other end may not act here. Empty when it may."""
    if not hasattr(socket, "SO_PEERCRED"):
        # Not Linux: the modes of directory and socket have kept other users out.
        return ""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(told)
    if uid != os.getuid():
        return "this server belongs to another user"
    try:
        theirs, ours = confinement(pid), confinement(os.getpid())
    except OSError:
        return "the process that asks cannot be looked at"
    if any(theirs[name] > ours.get(name, 0) for name in theirs):
        return (
            "a confined process may not act for a person: ask from a terminal that is in no sandbox "
            "(no_new_privs or seccomp is set)"
        )
    return ""


def confinement(pid: int) -> dict[str, int]:
    """Return how confined a process is. A process cannot undo any of these."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: int(value) for name, _, value in pairs if name in CONFINEMENT}


def read_line(connection: socket.socket) -> bytes | None:
    """Read one frame. None at the end of the stream."""
    parts: list[bytes] = []
    size = 0
    while True:
        chunk = connection.recv(CHUNK)
        if not chunk:
            return None
        parts.append(chunk)
        size += len(chunk)
        if chunk.endswith(b"\n"):
            return b"".join(parts)
        if size > LONGEST_FRAME:
            raise ControlError(f"the frame is longer than {LONGEST_FRAME:,} bytes")


class Serving(msgspec.Struct, frozen=True):
    """A process that serves, as another process sees it."""

    path: Path
    patience: float = ANSWER_SECONDS

    @property
    def pid(self) -> int:
        """Its process id."""
        return int(self.path.name.partition("-")[0])

    def ask(self, request: str, **details: Any) -> Any:
        """Send a request and return the result. ControlError carries the server's message."""
        frame = msgspec.json.encode({"do": request, **details}) + b"\n"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self.patience)
                with Address(self.path) as address:
                    connection.connect(address)
                connection.sendall(frame)
                line = read_line(connection)
        except ConnectionRefusedError:
            # It was killed, or it would have removed its socket.
            self.path.unlink(missing_ok=True)
            raise ControlError(f"process {self.pid} serves no longer") from None
        except OSError as error:
            raise ControlError(f"process {self.pid} does not answer ({error})") from None
        return self._read(line)

    def _read(self, line: bytes | None) -> Any:
        if line is None:
            raise ControlError(f"process {self.pid} ended before it answered")
        try:
            answer = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ControlError(f"process {self.pid} answered what is not JSON ({error})") from None
        if "failed" in answer:
            raise ControlError(str(answer["failed"]))
        return answer.get("done")


def serving_processes(directory: Path | None) -> list[Serving]:
    """List the processes that serve with a journal, oldest first. Some of them may have ended."""
    if directory is None:
        return []
    found = []
    with suppress(OSError):
        for path in directory.iterdir():
            # A process that ends just now must not hide the others.
            with suppress(FileNotFoundError):
                if NAME.fullmatch(path.name):
                    found.append((path.lstat().st_mtime, path))
    return [Serving(path) for _, path in sorted(found)]


def asked_at_once(
    servings: Iterable[Serving], *requests: str, seconds: float = GLANCE_SECONDS
) -> list[tuple[Serving, dict[str, Any] | ControlError]]:
    """Ask all processes in parallel. Return their answers by request, or the errors.

    They share one timeout: several hanging processes must not be awaited one after the other.
    """
    found: list[tuple[Serving, dict[str, Any] | ControlError]] = []
    asked = []
    for serving in servings:
        place: list[dict[str, Any] | ControlError] = []
        hasty = msgspec.structs.replace(serving, patience=seconds)
        thread = threading.Thread(target=_ask_all, args=[hasty, requests, place], daemon=True)
        thread.start()
        asked.append((serving, thread, place))
    until = monotonic() + seconds
    for serving, thread, place in asked:
        thread.join(max(0.0, until - monotonic()))
        late = ControlError(f"process {serving.pid} does not answer within {seconds:g} s")
        found.append((serving, place[0] if place else late))
    return found


def _ask_all(serving: Serving, requests: Iterable[str], place: list[dict[str, Any] | ControlError]) -> None:
    try:
        place.append({request: serving.ask(request) for request in requests})
    except ControlError as error:
        place.append(error)


class Desk:
    """The requests that a person at another terminal can send to a server, through its executor.

    `project` returns its directory, `session` is recorded with its calls.
    """

    def __init__(
        self,
        executor: Executor,
        images: Callable[[], Iterable[Image]],
        project: Callable[[], str],
        session: str = "",
    ) -> None:
        self._executor = executor
        self._images = images
        self._project = project
        self._session = session
        self._since = time()

    def operations(self) -> Operations:
        """Return the requests by name."""
        return {
            "about": self.about,
            "images": self.images,
            "check": self.check,
            "hunks": self.hunks,
            "choose": self.choose,
        }

    def about(self) -> dict[str, Any]:
        """Describe the served tools."""
        tools = [tool.name for tool in self._executor.tools()]
        return {
            "pid": os.getpid(),
            "version": __version__,
            "since": self._since,
            "session": self._session,
            "project": self._project(),
            "tools": tools,
        }

    def images(self) -> list[dict[str, Any]]:
        """Describe the images. This never waits for an image, and never starts one."""
        return [msgspec.to_builtins(image.look()) for image in self._images()]

    def check(self, key: int, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return a call with edited arguments as it would be asked about, with a new preview."""
        tool = self._tool(key)[0]
        checked = tool.checker.check(arguments)
        verdict = self._executor.why(tool.name, checked)
        if verdict.action is Action.DENY:
            raise ControlError(f"the policy denies the edited call: {verdict.explanation}")
        told = _effect(tool, checked)
        seal = seal_call(tool, checked, self._executor.policy.version)
        request = ApprovalRequest(tool, checked, verdict, seal, effect=told.text())
        return {"arguments": checked, "text": request.text(), "effect": told.as_data()}

    def hunks(self, key: int) -> dict[str, Any]:
        """Return the hunks of the edit that a call proposes, if any, and the seal for them."""
        tool, arguments = self._tool(key)
        texts = tool.proposed_edit(arguments)
        found = hunks.split(*texts) if texts else []
        return {"seal": _name(texts) if texts else "", "hunks": [asdict(hunk) for hunk in found]}

    def choose(self, key: int, seal: str, numbers: list[int], reason: str = "") -> dict[str, Any]:
        """Return the arguments of the same call with some of its hunks, and the note for the model."""
        tool, arguments = self._tool(key)
        texts = tool.proposed_edit(arguments)
        if texts is None or _name(texts) != seal:
            raise ControlError("what the call changes is another text now: look at its hunks again")
        taken = hunks.accepted(*texts, set(numbers))
        note = hunks.applied_note(*texts, set(numbers), reason)
        return {"arguments": tool.with_edit(arguments, texts[0], taken), "note": note}

    def _tool(self, key: int) -> tuple[Tool, dict[str, Any]]:
        """Return the tool of a call that waits for a decision, and its arguments as they are asked about."""
        record = self._executor.journal.record(key)
        if record is None or record.state is not State.AWAITING:
            raise ControlError(f"call {key} waits for no decision")
        tool = self._executor.settings.registry.resolve(record.call.tool)
        return tool, copy_json(dict(record.facts.arguments or record.call.arguments))


def _effect(tool: Tool, arguments: dict[str, Any]) -> Effect:
    if tool.effect is None:
        return Effect()
    limit = Limit("the preview", EFFECT_SECONDS)
    return read_effect(drive(BLOCKING.call(tool.effect, copy_json(arguments), limit=limit)))


def _name(texts: tuple[str, str]) -> str:
    return digest_of_text("\0".join(texts))
