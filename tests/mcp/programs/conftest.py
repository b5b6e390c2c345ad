"""The client programs, installed by scripts/programs, each in a home of its own, with a model on loopback."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from gramercy.testing.clients import StdioClient
from tests.mcp.programs.clients import MACHINE, PROGRAMS, Place
from tests.mcp.programs.screens import Screen
from tests.mcp.programs.stand_in import Call, Script, StandIn
from tests.support import install, until

ROOT = Path(__file__).parents[3]
RUNNING = 120


@pytest.fixture(scope="session")
def packages():
    """Install the programs, which costs nothing when they are there, and return where they are."""
    if sys.platform != "linux" or not MACHINE:
        pytest.skip("the client programs are installed for Linux on x64 and arm64 only")
    return Path(install("programs"))


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda program: program.name)
def program(request, packages):
    """Return one program after the other."""
    return request.param(packages, ROOT / ".venv-judges" / "bin" / "node")


@pytest.fixture(scope="module")
def make_place(tmp_path_factory):
    """Return a function that makes an empty home and an empty project for a program, with its model.

    The model is ended here; what the program has started has to end by itself.
    """
    with ExitStack() as opened:

        def make(*calls):
            base = tmp_path_factory.mktemp("place")
            for name in ("home", "project"):
                (base / name).mkdir()
            opened.callback(until, lambda: not _processes_about(str(base)))
            script = Script(*calls)
            return script, Place(base / "home", base / "project", opened.enter_context(StandIn(script)).url)

        yield make


def _processes_about(text):
    """List the living processes that have a path in their command line or in their environment."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            known = (directory / "cmdline").read_bytes() + (directory / "environ").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if text.encode() in known:
            found.append(directory.name)
    return found


@pytest.fixture(scope="module")
def run():
    """Return a function that runs a command of a program without a person until it ends by itself."""

    def run(program, place, command):
        done = subprocess.run(
            command,
            env={**program.environment(place), **program.alone},
            cwd=place.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUNNING,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def open_screen():
    """Return a function that starts a program in a terminal; it is closed at the end."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: apt-get install tmux")
    with ExitStack() as opened:
        yield lambda program, place: opened.enter_context(
            Screen(program.at_terminal(), place.project, program.environment(place))
        )


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """Return the tools that the server lists by default, by their names but for hyphens."""
    with StdioClient.serve("--image", "python", cwd=tmp_path_factory.mktemp("served")) as server:
        server.initialize()
        tools = server.ask("tools/list")["result"]["tools"]
    return {tool["name"].replace("-", "_"): tool for tool in tools}


@pytest.fixture(scope="session")
def evaluation(served):
    """Return a function that makes a call which evaluates code, by whichever tool is listed for that."""
    tool = served.get("evaluate_python") or served["eval_form"]
    (argument,) = tool["inputSchema"]["required"]
    return lambda code: Call(tool["name"], {argument: code})
