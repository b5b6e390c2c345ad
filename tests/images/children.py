"""The two image programs, started directly, with the same client for both and memory to mirror their output.

There is no sandbox and nothing of the parent's side in between.
"""

import contextlib
import fcntl
import json
import os
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

from gramercy.images.caches import find_core
from gramercy.images.sbcl import sbcl_version

PROGRAM = Path(__file__).parents[2] / "src/gramercy/images/python/__main__.py"
SBCL = shutil.which("sbcl") or ""
PATIENCE = 20.0
AREA = 131072
HEADER = 4096
SIZE = HEADER + 2 * AREA


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
    """One process of a family, by its connection."""

    def __init__(self, family, plug):
        self.family = family
        self.plug = plug
        plug.settimeout(PATIENCE)
        self.pid = struct.unpack("3i", plug.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self.handle = os.pidfd_open(self.pid)
        self.count = 0
        self.hello = self.receive()

    def _exactly(self, size):
        parts = []
        while size:
            part = self.plug.recv(size)
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive(self):
        return completed(json.loads(self._exactly(struct.unpack(">I", self._exactly(4))[0])))

    def send(self, op, **fields):
        self.count += 1
        request = {"op": op, "id": self.count, **fields}
        body = (json.dumps(request) if self.family.language == "python" else datum(request)).encode()
        self.plug.sendall(struct.pack(">I", len(body)) + body)

    def ask(self, op, **fields):
        self.send(op, **fields)
        return self.receive()

    def eval(self, code, **fields):
        return self.ask("eval", code=code, **fields)

    def value(self, code):
        reply = self.eval(code)
        assert reply["ok"], reply
        return reply["forms"][-1]["values"][0]

    def fork(self, role):
        reply = self.ask("fork", role=role, tag="t")
        assert reply["ok"], reply
        return self.family.accept()

    def fate(self, pid):
        reply = self.ask("fate", pid=pid)
        assert reply["ok"], reply
        return reply["status"]

    def sees(self, condition):
        """Wait until the condition holds, while an evaluation runs; tell whether it came to hold."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline or select.select([self.plug], [], [], 0.002)[0]:
                return condition()
        return True

    def kill(self, number=signal.SIGKILL):
        signal.pidfd_send_signal(self.handle, number)

    def is_ended(self):
        """Wait for the end of the process; tell whether it came."""
        return bool(select.select([self.handle], [], [], PATIENCE)[0])

    def close(self):
        self.plug.close()
        os.close(self.handle)


class Family:
    """A zygote and the processes below it."""

    def __init__(self, home, language, *options, keep=(), command=None):
        self.language = language
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(home / "socket"))
        self.listener.listen(16)
        self.listener.settimeout(PATIENCE)
        self.log = home / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                # Some end by signals that would leave a core behind.
                ["/bin/sh", "-c", 'ulimit -c 0; exec "$@"', "sh", *(command or program(language)),
                 str(home / "socket"), "token", *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=keep,
            )  # fmt: skip
        self.members = []
        try:
            self.zygote = self.accept()
        except BaseException:
            self.close()
            raise

    def accept(self):
        member = Member(self, self.listener.accept()[0])
        self.members.append(member)
        return member

    def live(self):
        return self.zygote.fork("live")

    def close(self):
        for member in self.members:
            with contextlib.suppress(ProcessLookupError):
                member.kill()
            member.close()
        self.process.kill()
        self.process.wait(PATIENCE)
        self.listener.close()


def completed(reply):
    """Return the reply to an evaluation with what is left out of it since it is empty; others as they are."""
    if "elapsed_ms" not in reply:
        return reply
    lists: dict[str, Any] = {name: [] for name in ("forms", "warnings", "changed", "effects")}
    full = {"stdout": "", "stderr": "", "error": None, "truncated": {}, **lists, **reply}
    full.setdefault("objects", [None for form in full["forms"][-1:] for _value in form["values"]])
    return full


def datum(value):
    """Write a value as the SBCL program reads it."""
    if isinstance(value, dict):
        return f"({' '.join(f':{key} {datum(item)}' for key, item in value.items())})"
    if value is True:
        return "T"
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
