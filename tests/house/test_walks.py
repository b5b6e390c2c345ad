"""Calls traced through the running program: which modules they pass, how often they cross, how deep they go.

`python tests/house/test_walks.py` prints a table; with -v the modules too. With `serve OUT ARGUMENT...` it is
the command line, traced from its start to its end.
"""

# ruff: noqa: T201 - it prints a table

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import pytest

import gramercy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HOME = str(Path(gramercy.__file__).parent) + "/"
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
# A reply that takes longer than a moment is waited for on another road, with more modules: not meant here.
TRIES = 40
# A server that starts an SBCL image on a busy machine; the walk itself takes milliseconds.
LONGEST_WAIT = 120

DANGEROUS_TOOL = '''
from gramercy import tool

@tool(safety_level="dangerous")
def zap(path: str) -> str:
    """Delete a path."""
    return "gone " + path
'''


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a function of ours, or its return."""

    time: float
    thread: int
    returns: bool
    module: str
    function: str


class Recorder:
    """Collects the steps of every thread that is begun after `start`, and of the calling one."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._names: dict[Any, tuple[str, str] | None] = {}

    def start(self) -> None:
        threading.setprofile(self._step)
        sys.setprofile(self._step)

    def stop(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def _step(self, frame: Any, event: str, argument: object) -> None:  # noqa: ARG002 - the profiler's signature
        if event not in {"call", "return"}:
            return
        code = frame.f_code
        if code not in self._names:
            inside = code.co_filename.startswith(HOME)
            module = code.co_filename[len(HOME) : -len(".py")].replace("/", ".")
            self._names[code] = (module, code.co_qualname) if inside else None
        if name := self._names[code]:
            self.steps.append(Step(time.monotonic(), threading.get_ident(), event == "return", *name))


@dataclass(frozen=True, slots=True)
class Walk:
    """What a call passed on its way."""

    name: str
    steps: list[Step]

    @property
    def modules(self) -> list[str]:
        """The modules in the order in which they are entered, without the floor that all rooms share.

        The floor has no room: `errors`, `text` and `directories` are read once for the whole house.
        """
        entered = (step.module for step in self.steps if not step.returns)
        return list(dict.fromkeys(module for module in entered if "." in module))

    @property
    def functions(self) -> int:
        return len({(step.module, step.function) for step in self.steps if not step.returns})

    @property
    def crossings(self) -> int:
        """How often a call or a return leads into another module."""
        return sum(before != after for before, after in self._moves())

    @property
    def depth(self) -> int:
        stacks: dict[int, int] = {}
        deepest = 0
        for step in self.steps:
            stacks[step.thread] = max(0, stacks.get(step.thread, 0) + (-1 if step.returns else 1))
            deepest = max(deepest, stacks[step.thread])
        return deepest

    def _moves(self) -> Iterator[tuple[str | None, str]]:
        stacks: dict[int, list[str]] = {}
        for step in self.steps:
            stack = stacks.setdefault(step.thread, [])
            if not step.returns:
                yield stack[-1] if stack else None, step.module
                stack.append(step.module)
            elif stack:
                left = stack.pop()
                yield left, stack[-1] if stack else left


def walk_in_process(name: str, call: gramercy.ToolCall | Mapping[str, Any]) -> Walk:
    """Trace one call of an executor whose person approves everything."""

    @gramercy.tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    @gramercy.tool(safety_level="dangerous")
    def zap(path: str) -> str:
        """Delete a path."""
        return f"gone {path}"

    registry = gramercy.Registry()
    registry.register(add)
    registry.register(zap)
    executor = gramercy.Executor(registry, approval_handler=lambda _tool, _arguments: "approved")
    executor.execute(call)  # The first call of a tool compiles its schema.
    recorder = Recorder()
    recorder.start()
    result = executor.execute(call)
    recorder.stop()
    assert result.success, result
    return Walk(name, [step for step in recorder.steps if not step.function.startswith("walk_in_process")])


class TracedServer:
    """`gramercy serve`, which writes its steps to a file when it ends; ended by leaving the block."""

    def __init__(self, directory: Path, *arguments: str, transport: int) -> None:
        self._trace, self._said = directory / "trace.json", directory / "said"
        self._steps: list[Step] = []
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "serve", str(self._trace), *arguments],
                stdin=transport,
                stdout=transport,
                stderr=said,
                cwd=directory,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            if self.process.stdin:
                self.process.stdin.close()
            else:
                self.process.terminate()
            self.process.wait(LONGEST_WAIT)
        finally:
            self.process.kill()
            self.process.wait(LONGEST_WAIT)
            if self.process.stdout:
                self.process.stdout.close()

    def steps(self, began: float, ended: float) -> list[Step]:
        """Return the steps between two moments, after the end."""
        if not self._steps:
            self._steps = [Step(*each) for each in json.loads(self._trace.read_text())]
        return [step for step in self._steps if began <= step.time <= ended]

    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """Return its standard input and output."""
        assert self.process.stdin
        assert self.process.stdout
        return self.process.stdin, self.process.stdout

    def said_match(self, pattern: str) -> re.Match[str]:
        """Wait until the server has said something on its standard error."""
        end = time.monotonic() + LONGEST_WAIT
        while time.monotonic() < end and self.process.poll() is None:
            if found := re.search(pattern, self._said.read_text()):
                return found
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in what the server said: {self._said.read_text()}")


def request(number: int, method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def walk_over_stdio() -> Walk:
    """Trace `evaluate-lisp` of a form that changes nothing, with a warm image."""
    with tempfile.TemporaryDirectory(prefix="gramercy-walk-") as directory:
        with TracedServer(Path(directory), transport=subprocess.PIPE) as server:
            to_server, from_server = server.pipes()

            def ask(message: dict[str, object]) -> Any:
                to_server.write(json.dumps(message).encode() + b"\n")
                to_server.flush()
                return json.loads(from_server.readline()) if "id" in message else None

            client = {"name": "walk", "version": "1"}
            ask(request(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client))
            ask({"jsonrpc": "2.0", "method": "notifications/initialized"})
            times = []
            for number in range(2, 2 + TRIES):
                began = time.monotonic()
                call = {"name": "evaluate-lisp", "arguments": {"code": "(+ 1 2 3)"}}
                answer = ask(request(number, "tools/call", **call))
                times.append((began, time.monotonic()))
                assert answer["result"]["content"][0]["text"] == "=> 6", answer
        tried = [Walk("evaluate-lisp over stdio", server.steps(*each)) for each in times]
    return min(tried, key=lambda walk: len(walk.modules))


META = "io.modelcontextprotocol/"
VERSION = "2026-07-28"


def walk_over_http() -> Walk:
    """Trace a dangerous call that asks for approval and is sent again with it."""
    meta = {
        META + "protocolVersion": VERSION,
        META + "clientCapabilities": {"elicitation": {"form": {}}},
        META + "clientInfo": {"name": "walk", "version": "1"},
    }
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": "tools/call",
        "mcp-name": "zap",
    }
    with tempfile.TemporaryDirectory(prefix="gramercy-walk-") as directory:
        Path(directory, "zap.py").write_text(DANGEROUS_TOOL)
        arguments = ("--http", "127.0.0.1:0", "--no-auth", "--from", "zap.py")
        with TracedServer(Path(directory), *arguments, transport=subprocess.DEVNULL) as server:
            port = int(server.said_match(r"127\.0\.0\.1:(\d+)")[1])

            def post(number: int, **more: object) -> Any:
                params = {"name": "zap", "arguments": {"path": "x"}, "_meta": meta, **more}
                body = json.dumps(request(number, "tools/call", **params))
                with closing(
                    http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST_WAIT)
                ) as connection:
                    connection.request("POST", "/mcp", body, headers)
                    return json.loads(connection.getresponse().read())["result"]

            for number in (1, 3):
                began = time.monotonic()
                asked = post(number)
                approved = {"action": "accept", "content": {"decision": "approve"}}
                answers = dict.fromkeys(asked["inputRequests"], approved)
                done = post(number + 1, requestState=asked["requestState"], inputResponses=answers)
                ended = time.monotonic()
                assert done["content"][0]["text"] == "gone x", done
        return Walk("approval over HTTP", server.steps(began, ended))


def walks() -> list[Walk]:
    """Take every walk once."""
    arguments = {"a": 1, "b": 2}
    return [
        walk_in_process("safe, dictionary", {"id": "1", "name": "add", "arguments": arguments}),
        walk_in_process("safe, ToolCall", gramercy.ToolCall("1", "add", arguments)),
        walk_in_process("dangerous, approved", {"id": "1", "name": "zap", "arguments": {"path": "x"}}),
        walk_over_stdio(),
        walk_over_http(),
    ]


# How many modules a reader opens who follows the call. A call that passes more has grown a door too many.
MOST_MODULES = {
    # The last door is that of the result, which checks that it has success or an error.
    "safe, dictionary": 7,
    "safe, ToolCall": 7,
    # The question is in the journal whole, as a person reads it.
    "dangerous, approved": 15,
    "evaluate-lisp over stdio": 28,
    # With it a rule is offered that would allow the call from now on, which looks at the rules there are.
    "approval over HTTP": 43,
}


@pytest.fixture(scope="module")
def taken() -> dict[str, Walk]:
    if shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed; scripts/setup does it")
    return {walk.name: walk for walk in walks()}


@pytest.mark.parametrize("name", MOST_MODULES)
def test_a_call_passes_few_modules(taken: dict[str, Walk], name: str) -> None:
    """The house is read along the way of a call; this counts its doors."""
    modules = taken[name].modules
    assert len(modules) <= MOST_MODULES[name], modules


@pytest.mark.parametrize("name", MOST_MODULES)
def test_the_architecture_lists_the_modules_of_a_call(taken: dict[str, Walk], name: str) -> None:
    """A page that is not compared with the program is soon untrue."""
    section = (
        PAGE.read_text(encoding="utf-8")
        .partition(f"### {name[0].upper()}{name[1:]}\n")[2]
        .partition("\n#")[0]
    )
    listed = re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", section)
    assert sorted(listed) == sorted(taken[name].modules)


def serve(trace: str, arguments: list[str]) -> None:
    """Run `gramercy serve` under a recorder."""
    from gramercy.ui.cli import serve as command
    from gramercy.ui.cli.main import main

    # The server ends itself a while after it is closed; on a busy machine the trace is not written by then.
    command.LEAVING_SECONDS = LONGEST_WAIT
    recorder = Recorder()
    # Up to the door of the journal: what a store does behind it is no part of the way of a call.
    sys.argv = ["gramercy", "serve", "--journal", "memory", *arguments]
    recorder.start()
    try:
        main()
    finally:
        recorder.stop()
        rows = [[s.time, s.thread, s.returns, s.module, s.function] for s in recorder.steps]
        Path(trace).write_text(json.dumps(rows))


def show() -> None:
    """Print a table of the walks."""
    print("| walk | modules | functions | crossings | depth |\n|---|---|---|---|---|")
    for walk in walks():
        print(f"| {walk.name} | {len(walk.modules)} | {walk.functions} | {walk.crossings} | {walk.depth} |")
        if "-v" in sys.argv:
            print(*walk.modules)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], sys.argv[3:])
    else:
        show()
