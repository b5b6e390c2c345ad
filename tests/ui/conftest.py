"""The command line as people meet it: real processes, real pipes, a real terminal."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import pytest

from gramercy.images.caches import cache_directory
from gramercy.ui.cli.main import main
from gramercy.ui.cli.terminal import SLOW_START
from tests.support import files_of_processes, reap

BOUND = 60


@pytest.fixture
def gramercy(tmp_path):
    """Run the command line in an empty project directory."""

    def run(*arguments, stdin=b"", **environment):
        done = subprocess.run(
            [sys.executable, "-m", "gramercy", *arguments],
            input=stdin if isinstance(stdin, bytes) else stdin.encode(),
            capture_output=True,
            timeout=BOUND,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "NO_COLOR": "1", **environment},
        )
        # On a busy machine a start may take long enough for that.
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode().replace(f"{SLOW_START}\n", "")
        assert "Traceback (" not in done.stderr
        return done

    return run


@pytest.fixture(params=["sbcl", "python"])
def language(request):
    """Return the language of an image."""
    if request.param == "sbcl" and shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed: apt-get install sbcl")
    return request.param


@pytest.fixture(name="until")
def until_fixture():
    """Return a function that waits for something that happens in another process."""
    return until


def until(condition):
    """Wait for something that happens in another process."""
    end = monotonic() + BOUND
    while not condition():
        assert monotonic() < end, "it never happened"
        threading.Event().wait(0.005)


def processes_about(text):
    """List the living processes whose command line names something."""
    found = []
    for file in files_of_processes("cmdline"):
        try:
            if text.encode() in file.read_bytes():
                found.append(file.parent.name)
        except OSError:  # it ended meanwhile
            continue
    return found


@pytest.fixture
def no_orphans(tmp_path):
    """Check at the end that no process which knows the project is left."""
    yield
    until(lambda: not processes_about(str(tmp_path)))


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *arguments, cwd, ahead="", **environment):
        self._fd, theirs = pty.openpty()
        # Typed before the program has begun: it waits in the terminal.
        os.write(self._fd, ahead.encode())
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._fd)
            os.login_tty(theirs)
            os.chdir(cwd)
            os.execve(
                sys.executable,
                [sys.executable, "-m", "gramercy", *arguments],
                {**os.environ, "TERM": "dumb", "NO_COLOR": "1", **environment},
            )
        os.close(theirs)
        self.screen = ""
        self._seen = 0
        # A read may end inside of a character, or between the two that end a line.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.is_open = True

    def send(self, text):
        os.write(self._fd, text.encode())

    def resize(self, columns, lines=24):
        """Make the window this large."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def expect(self, text):
        """Read until a text appears after what was expected before; return all up to it."""
        end = monotonic() + BOUND
        while (place := self.screen.find(text, self._seen)) < 0:
            assert monotonic() < end, f"{text!r} never came: {self.screen[self._seen :]!r}"
            assert self._read(), f"{text!r} never came: {self.screen[self._seen :]!r}"
        part, self._seen = self.screen[self._seen : place], place + len(text)
        return part

    def settle(self):
        """Wait until the program waits: a key that comes before is not met by its line editor."""
        until(lambda: Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2][0] == "S")

    def _read(self):
        if not select.select([self._fd], [], [], BOUND)[0]:
            return False
        try:
            chunk = os.read(self._fd, 65536)
        except OSError:  # the other end is closed: the process is gone
            return False
        text = self._held + self._decoder.decode(chunk)
        self._held = "\r" if text.endswith("\r") else ""
        self.screen += text.removesuffix("\r").replace("\r\n", "\n")
        return bool(chunk)

    def end(self):
        """Read to the end and return the exit code."""
        while self._read():
            pass
        return self.close()

    def close(self):
        """Hang up, which ends the program if nothing else did, and return its exit code."""
        os.close(self._fd)
        self.is_open = False
        return reap(self.pid)


@pytest.fixture
def terminal(tmp_path):
    """Start the command line on a terminal, in the project directory; what a test leaves open is closed."""
    opened = []

    def start(*arguments, **environment):
        opened.append(Terminal(*arguments, cwd=tmp_path, **environment))
        return opened[-1]

    yield start
    for one in opened:
        if one.is_open:
            one.close()


# Where clients look before they look into the home directory.
OTHER_PLACES = (
    *("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME", "QWEN_HOME"),
    *("CLINE_DIR", "CLINE_DATA_DIR", "CLINE_MCP_SETTINGS_PATH", "GRAMERCY_TOKEN"),
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return an empty home directory, beside a project named `garden`."""
    for variable in OTHER_PLACES:
        monkeypatch.delenv(variable, raising=False)
    place = tmp_path / "home"
    place.mkdir()
    (tmp_path / "garden").mkdir()
    # What is written is made ready, which must not build a core for every home.
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_directory().parent))
    monkeypatch.setenv("HOME", str(place))
    return place


@pytest.fixture
def inside(tmp_path, monkeypatch, capfd):
    """Run the command line in this process, for tests that run it some hundred times."""
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["gramercy", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capfd.readouterr()
        assert "Traceback (" not in told.err
        return SimpleNamespace(returncode=ended.value.code, stdout=told.out, stderr=told.err)

    return run
