"""The two image programs, started directly, with the same client for both and memory to mirror their output.

There is no sandbox and nothing of the parent's side in between.
"""

import contextlib
import fcntl
import json
import os
import platform
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gramercy.errors import ImageGoneError
from gramercy.images.caches import find_core
from gramercy.images.confine.seccomp import build_preview_filter
from gramercy.images.handover import read_hello
from gramercy.images.sbcl import sbcl_version

PROGRAM = Path(__file__).parents[2] / "src/gramercy/images/python/__main__.py"
SBCL = shutil.which("sbcl") or ""
PATIENCE = 60.0
AREA = 131072
HEADER = 4096
# Two areas, then the places of four jobs: a header, a ring and room for a reply.
SIZE = HEADER + 2 * AREA + 4 * (HEADER + 131072 + 65536)


def readable(files, seconds):
    """Wait until one of the files can be read, which may have numbers that select has not; return these."""
    poll = select.poll()
    numbers = {each if isinstance(each, int) else each.fileno(): each for each in files}
    for number in numbers:
        poll.register(number, select.POLLIN)
    return [numbers[number] for number, _ in poll.poll(seconds * 1000)]


class Memory:
    """What the parent keeps of the mirror."""

    def __init__(self, size=SIZE):
        self.fd = os.memfd_create("mirror", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)

    def counts(self):
        return struct.unpack("=5I", os.pread(self.fd, 20, 0))

    @property
    def request(self):
        return self.counts()[0]

    @property
    def totals(self):
        return self.counts()[3:]

    def octets(self, place):
        return os.pread(self.fd, self.counts()[1 + place], HEADER + place * AREA)

    @property
    def stdout(self):
        return self.octets(0).decode("utf-8", "strict")

    @property
    def stderr(self):
        return self.octets(1).decode("utf-8", "strict")

    def close(self):
        os.close(self.fd)


class Member:
    """One process of a family, by its connection, on which it has said hello; `tag` names that."""

    def __init__(self, family, plug, tag):
        self.family = family
        self.tag = tag
        self.plug = plug
        arrival = read_hello(plug)
        self.pid, self.handle = arrival.pid, arrival.handle
        self.count = 0
        self.hello = json.loads(arrival.frame)
        plug.settimeout(PATIENCE)

    def _exactly(self, size):
        parts = []
        while size:
            try:
                part = self.plug.recv(min(size, 1 << 20))
            except ConnectionResetError:
                part = b""
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive(self, seconds=PATIENCE):
        """Return the next reply; raise EOFError at the end, TimeoutError where none comes in time."""
        self.plug.settimeout(seconds)
        head = self._exactly(4)
        self.plug.settimeout(PATIENCE)
        body = self._exactly(struct.unpack(">I", head)[0])
        return completed(json.loads(body.decode("utf-8", "strict"), parse_constant=_refuse))

    def send_bytes(self, body, ends=()):
        frame = struct.pack(">I", len(body)) + body
        sent = socket.send_fds(self.plug, [frame], [end.fileno() for end in ends]) if ends else 0
        self.plug.sendall(frame[sent:])

    def send(self, op, **fields):
        """Send a request, with a fresh end for each copy that it asks for."""
        self.count += 1
        request = {"op": op, "id": self.count, **fields}
        tags = [fields[name] for name in ("tag", "then_fork", "keep_moment") if fields.get(name) is not None]
        ends = [self.family.new_end(tag) for tag in tags]
        if tags:
            request["ends"] = tags
        encoded = json.dumps(request) if self.family.language == "python" else datum(request)
        self.send_bytes(encoded.encode(), ends)
        for end in ends:
            end.close()

    def ask(self, op, seconds=PATIENCE, **fields):
        self.send(op, **fields)
        reply = self.receive(seconds)
        assert reply["id"] == self.count
        return reply

    def eval(self, code, **fields):
        return self.ask("eval", code=code, **fields)

    def value(self, code, **fields):
        reply = self.eval(code, **fields)
        assert reply["ok"], reply
        return reply["forms"][-1]["values"][0]

    def eval_interrupted(self, code):
        """Evaluate, interrupt what goes on, once more where that is not enough, and return the reply."""
        post = Signpost(self.family)
        self.send("eval", code=f"{post.code(self.family.language)}\n{code}")
        post.wait()
        for seconds in (0.05, 0.5):
            try:
                return self.receive(seconds)
            except TimeoutError:
                os.kill(self.pid, signal.SIGINT)
        return self.receive()

    def fork(self, role, tag="t"):
        reply = self.ask("fork", role=role, tag=tag)
        assert reply["ok"], reply
        return self.family.accept()

    def confine(self):
        """Let a preview give up its rights, with the filter that the parent would send."""
        program = build_preview_filter(platform.machine(), self.pid) or b""
        return self.ask("confine", filter=program.hex())

    def fate(self, pid):
        reply = self.ask("fate", pid=pid)
        assert reply["ok"], reply
        return reply["status"]

    def sees(self, condition):
        """Wait until the condition holds, while an evaluation runs; tell whether it came to hold."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline or readable([self.plug], 0.002):
                return condition()
        return True

    def kill(self, number=signal.SIGKILL):
        """Send a signal, to a process that may have ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, number)

    def is_ended(self):
        """Wait for the end of the process; tell whether it came."""
        return bool(readable([self.handle], PATIENCE))

    def has_hung_up(self):
        """Wait for a reply or EOF; tell whether EOF came."""
        try:
            self.receive()
        except EOFError:
            return True
        return False

    def children(self):
        """Return the pids of the children of the process, zombies among them."""
        return list(map(int, Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()))

    def close(self):
        self.plug.close()
        os.close(self.handle)


class Signpost:
    """A named pipe in which evaluated code says how far it has come."""

    def __init__(self, family):
        family.posts += 1
        self.path = family.home / f"post-{family.posts}"
        os.mkfifo(self.path)
        self.handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    def code(self, language):
        """Return the form that says so."""
        if language == "python":
            return f"__import__('pathlib').Path({str(self.path)!r}).write_text('here') and None"
        place = f'"{self.path}" :direction :output :if-exists :append'
        return f'(with-open-file (s {place}) (write-string "here" s))'

    def wait(self):
        assert readable([self.handle], PATIENCE), "the code never came here"
        assert os.read(self.handle, 10) == b"here"
        os.close(self.handle)


class Family:
    """A zygote and the processes below it."""

    def __init__(self, home, language, *options, keep=(), command=None):
        self.home = home
        self.posts = 0
        self.language = language
        self.awaited = {}
        line = self.new_end("zygote")
        self.log = home / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                # Some end by signals that would leave a core, some close all descriptors up to the limit.
                ["/bin/sh", "-c", 'ulimit -c 0; ulimit -S -n 1024; exec "$@"', "sh",
                 *(command or program(language)), "--connection", str(line.fileno()), *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                pass_fds=(*keep, line.fileno()),
            )  # fmt: skip
        line.close()
        self.members = []
        try:
            self.zygote = self.accept()
        except BaseException:
            self.close()
            raise

    def new_end(self, tag):
        """Return one end of a pair, for a process to come; it is waited for at the other."""
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.awaited[ours] = tag
        return theirs

    def accept(self):
        """Return the next process that says hello; ends on which none can come any more are dropped."""
        deadline = time.monotonic() + PATIENCE
        while True:
            left = max(0.0, deadline - time.monotonic())
            ready = readable(self.awaited, left)
            assert ready, "no process came"
            tag = self.awaited.pop(ready[0])
            with contextlib.suppress(ImageGoneError):
                self.members.append(Member(self, ready[0], tag))
                return self.members[-1]
            ready[0].close()

    def live(self):
        return self.zygote.fork("live")

    def close(self):
        for member in self.members:
            member.kill()
            member.close()
        self.process.kill()
        self.process.wait(PATIENCE)
        for end in self.awaited:
            end.close()


def completed(reply):
    """Return the reply to an evaluation with what is left out of it since it is empty; others as they are."""
    if "elapsed_ms" not in reply:
        return reply
    lists: dict[str, Any] = {name: [] for name in ("forms", "warnings", "changed", "effects")}
    full = {"stdout": "", "stderr": "", "error": None, "truncated": {}, **lists, **reply}
    full.setdefault("objects", [None for form in full["forms"][-1:] for _value in form["values"]])
    return full


def _refuse(text):
    raise AssertionError(f"{text} is not JSON")


def datum(value):
    """Write a value as the SBCL program reads it."""
    if isinstance(value, dict):
        return f"({' '.join(f':{key} {datum(item)}' for key, item in value.items())})"
    if isinstance(value, list):
        return f"({' '.join(map(datum, value))})"
    if value is True:
        return "T"
    if value is None or value is False:
        return "NIL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def program(language):
    """Return the command that starts a zygote, without its arguments."""
    if language == "python":
        return [sys.executable, "-I", "-S", "-X", "utf8", str(PROGRAM)]
    return core_program(find_core(SBCL, sbcl_version(SBCL)))


def core_program(core):
    """Return the command that starts a zygote from a core."""
    return [
        SBCL, "--core", str(core), "--noinform", "--disable-ldb", "--dynamic-space-size", "512MB",
        "--end-runtime-options",
    ]  # fmt: skip


@pytest.fixture(scope="module", name="family")
def lisp_family(tmp_path_factory):
    """Start the processes of SBCL, for all tests of a module that imports this as `family`."""
    with contextlib.closing(Family(tmp_path_factory.mktemp("family"), "sbcl")) as family:
        yield family


@pytest.fixture
def live(family):
    """Return a process that evaluates, fresh for each test."""
    process = family.live()
    yield process
    process.kill()
