"""Ask several servers the same questions, and count the characters and the facts of what they answer.

`python -m bench.answers` prints the tables; `--write` makes docs/reference/answers.md. Servers of others are
run where they are: `--cl-mcp` and `--cl-mcp-server` name directories with their sources, `--libraries` one
with what cl-mcp needs, `--jupyter` an environment with jupyter-mcp-server and jupyter-server, and
`--clojure-mcp` sources that are only read. Who is not named is left out, and the page says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from bench.facts import machine_facts
from bench.questions import (
    CL_MCP,
    CL_MCP_SERVER,
    JUPYTER,
    LISP,
    LISP_PROGRAM,
    LISP_SYSTEM,
    OURS,
    PYTHON,
    PYTHON_PROGRAM,
    Question,
)
from gramercy.testing.clients import StdioClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DOCUMENT = Path(__file__).parents[1] / "docs" / "reference" / "answers.md"
# A server that is compiled when it first starts.
PATIENCE = 300.0
# The usual estimate for English and JSON.
CHARACTERS_PER_TOKEN = 4
CLOJURE_MCP = "clojure-mcp"


@dataclass(slots=True)
class Server:
    """One server in one language: what it lists, and what it answers."""

    name: str
    version: str
    tools: list[dict[str, Any]] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)

    @property
    def listing(self) -> str:
        """The list as it crosses the wire."""
        return json.dumps(self.tools, ensure_ascii=False, separators=(",", ":"))

    def counts(self, number: int, question: Question) -> tuple[int, int] | None:
        """Return how many characters and facts an answer has; None where there is no tool to ask."""
        answer = self.answers[number]
        if answer is None:
            return None
        return len(answer), sum(fact.is_in(answer) for fact in question.facts)


def main() -> int:
    """Run the command line."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="garden-") as directory:
        project = Path(directory).resolve()
        write_program(project)
        lisp = [_ask(start, LISP) for start in _lisp_servers(options, project)]
        python = [_ask(start, PYTHON) for start in _python_servers(options, project)]
    page = _page(lisp, python, _clojure_list(options.clojure_mcp))
    if options.write:
        DOCUMENT.write_text(page, encoding="utf-8")
    if options.texts:
        for server in (*lisp, *python):
            for number, question in enumerate(LISP if server in lisp else PYTHON):
                print(f"===== {server.name}: {question.title}\n{server.answers[number]}\n")
    print(page)
    return 0


def write_program(project: Path) -> None:
    """Write what all servers are asked about."""
    (project / "garden.lisp").write_text(LISP_PROGRAM, encoding="utf-8")
    (project / "garden.asd").write_text(LISP_SYSTEM, encoding="utf-8")
    (project / "garden.py").write_text(PYTHON_PROGRAM, encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.answers", description=__doc__)
    for name in ("cl-mcp", "cl-mcp-server", "libraries", "jupyter", "clojure-mcp"):
        parser.add_argument(f"--{name}", type=Path, metavar="DIR")
    parser.add_argument("--write", action="store_true", help=f"make {DOCUMENT.name}")
    parser.add_argument("--texts", action="store_true", help="print every answer")
    return parser.parse_args()


Call = tuple[str, dict[str, Any]]
Start = tuple[str, "Callable[[], contextlib.AbstractContextManager[StdioClient]]", list[Call]]


def _lisp_servers(options: argparse.Namespace, project: Path) -> Iterator[Start]:
    """Yield the servers for Lisp: name, how it is started, and the calls that load the program."""
    registry = '(symbol-value (read-from-string "asdf:*central-registry*"))'
    find = f'(progn (require :asdf) (push #p"{project}/" {registry}))'
    yield OURS, lambda: _started(*_serve("sbcl", project)), [("load-system", {"system": "garden"})]
    if options.cl_mcp:
        script = _cl_mcp_script(options.cl_mcp, options.libraries, project)
        words = ("sbcl", "--noinform", "--no-userinit", "--disable-debugger", "--load", str(script))
        calls = [("repl-eval", {"code": find}), ("load-system", {"system": "garden"})]
        yield CL_MCP, lambda: _started(*words, cwd=project), calls
    if options.cl_mcp_server:
        program = str(options.cl_mcp_server / "run-server.lisp")
        calls = [("evaluate-lisp", {"code": find}), ("load-system", {"system-name": "garden"})]
        yield CL_MCP_SERVER, lambda: _started("sbcl", "--script", program, cwd=project), calls


def _python_servers(options: argparse.Namespace, project: Path) -> Iterator[Start]:
    load = {"code": "import garden"}
    yield OURS, lambda: _started(*_serve("python", project)), [("evaluate-python", load)]
    if options.jupyter:
        yield JUPYTER, lambda: _jupyter(options.jupyter / "bin", project), [("execute_code", load)]


def _serve(language: str, project: Path) -> tuple[str, ...]:
    return sys.executable, "-m", "gramercy", "serve", "--image", language, "--project", str(project)


@contextlib.contextmanager
def _started(*words: str, cwd: Path | None = None) -> Iterator[StdioClient]:
    client = StdioClient(*words, cwd=cwd, seconds=PATIENCE)
    try:
        yield client
    finally:
        client.close()


def _cl_mcp_script(sources: Path, libraries: Path | None, project: Path) -> Path:
    """Write how cl-mcp is loaded and served; what it prints meanwhile must not reach its standard output."""
    directories = [sources, *(libraries.iterdir() if libraries else ())]
    registry = "".join(
        f'(push #p"{directory.resolve()}/" asdf:*central-registry*)' for directory in directories
    )
    script = project.with_suffix(".lisp")
    script.write_text(
        f"(require :asdf)(let ((*standard-output* *error-output*)) {registry}"
        '(asdf:load-system "cl-mcp"))'
        '(funcall (find-symbol "RUN" "CL-MCP") :transport :stdio :worker-pool nil)',
        encoding="utf-8",
    )
    return script


@contextlib.contextmanager
def _jupyter(programs: Path, project: Path) -> Iterator[StdioClient]:
    """Start a Jupyter server on this machine alone, and the MCP server that uses it."""
    token = secrets.token_hex(16)
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        port = plug.getsockname()[1]
    words = [f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={token}"]
    server = subprocess.Popen(
        [programs / "jupyter", "server", "--no-browser", "--allow-root", *words],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/api?token={token}")
        address = ("--jupyter-url", f"http://127.0.0.1:{port}", "--jupyter-token", token)
        with _started(str(programs / "jupyter-mcp-server"), "--transport", "stdio", *address) as client:
            yield client
    finally:
        server.terminate()
        server.wait(30)


def _wait_for(url: str) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            with urlopen(url, timeout=5):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def _ask(start: Start, questions: tuple[Question, ...]) -> Server:
    name, opened, calls = start
    with opened() as client:
        known = client.initialize("2025-06-18")["serverInfo"]
        server = Server(name, known.get("version", ""))
        server.tools = client.ask("tools/list")["result"]["tools"]
        for tool, arguments in calls:
            client.ask("tools/call", name=tool, arguments=arguments)
        for question in questions:
            asked = question.ask.get(name)
            server.answers.append(None if asked is None else _answer(client, *asked))
    return server


def _answer(client: StdioClient, tool: str, arguments: dict[str, Any]) -> str:
    """Return what a model sees of an answer: its text, or the message of a protocol error."""
    message = client.ask("tools/call", name=tool, arguments=arguments)
    if "error" in message:
        return f"{message['error']['message']}"
    return "\n".join(part.get("text", "") for part in message["result"]["content"])


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
# Not in the list unless they are asked for: they need a key, or a program of their own.
_NOT_LISTED = ("figwheel", "agent_tool_builder")


def _clojure_list(sources: Path | None) -> tuple[int, int] | None:
    """Count the tools of clojure-mcp in its sources, and the characters of their descriptions and schemas."""
    if sources is None:
        return None
    files = [
        path for path in sources.glob("src/clojure_mcp/tools/**/*.clj") if path.parent.name not in _NOT_LISTED
    ]
    texts = [path.read_text(encoding="utf-8") for path in files]
    described = [form for text in texts for form in _forms(text, "(defmethod tool-system/tool-description")]
    schemas = [form for text in texts for form in _forms(text, "(defmethod tool-system/tool-schema")]
    strings = [string for form in described for string in _STRING.findall(form)]
    return len(described), sum(map(len, strings)) + sum(len(" ".join(form.split())) for form in schemas)


def _forms(text: str, start: str) -> Iterator[str]:
    """Yield the forms that begin so, each up to its last parenthesis."""
    blank = _STRING.sub(lambda match: "s" * len(match.group()), text)
    place = text.find(start)
    while place >= 0:
        depth, end = 0, place
        for end in range(place, len(blank)):
            depth += {"(": 1, ")": -1}.get(blank[end], 0)
            if depth == 0:
                break
        yield text[place : end + 1]
        place = text.find(start, end)


HEAD = """# Answers beside those of others

The same questions to servers that give a model a live image, and what comes back: characters, and
facts out of the list below. All facts in few characters is what a model can work with. Made by
`python -m bench.answers --write`, with `--cl-mcp DIR`, `--libraries DIR`, `--cl-mcp-server DIR`,
`--jupyter DIR` and `--clojure-mcp DIR` for the others: the sources of each (and of the libraries that
cl-mcp needs), or an environment in which it is installed. `--texts` prints every answer. Characters are
those of the text that a model is shown. A fact counts where its pattern in `bench/questions.py` is
found, however it is worded; the patterns are the same for all. All servers load the same program, a file
of some forty lines that is in that module too, before they are asked. Who has no tool for a question is
not asked.
"""
CLOJURE = f"""{CLOJURE_MCP} was not run, since it needs libraries that no package of the system has: its
figures are the characters of descriptions and schemas in its sources, without the JSON around them. It
evaluates (`=> 3` and a line with the namespace: 35 characters for the first question) and marks a value
that it cuts, but has no tool to describe a name, to list callers or to search names in the image; its other
tools are about files."""


def _page(lisp: list[Server], python: list[Server], clojure: tuple[int, int] | None) -> str:
    named = {CL_MCP, CL_MCP_SERVER, JUPYTER}
    missing = sorted(named - {server.name for server in (*lisp, *python)})
    parts = [HEAD, "\n".join(f"- {fact}" for fact in machine_facts())]
    if missing:
        parts.append(f"Not run here, so without figures: {', '.join(missing)}.")
    parts += ["## The list of tools", _lists(lisp, python, clojure)]
    parts += ["## Lisp", _table(lisp, LISP), "## Python", _table(python, PYTHON)]
    parts += ["## The facts", _facts("Lisp", lisp, LISP), _facts("Python", python, PYTHON)]
    return "\n\n".join(parts) + "\n"


def _lists(lisp: list[Server], python: list[Server], clojure: tuple[int, int] | None) -> str:
    rows = ["| server | tools | characters | about tokens | with annotations |", "|---|---:|---:|---:|---:|"]
    for server in (*lisp, *(each for each in python if each.name != OURS)):
        size = len(server.listing)
        annotated = sum("annotations" in tool for tool in server.tools)
        rows.append(
            f"| {server.name} {server.version} | {len(server.tools)} | {size:,} "
            f"| {size // CHARACTERS_PER_TOKEN:,} | {annotated} |"
        )
    if clojure is not None:
        count, size = clojure
        rows.append(f"| {CLOJURE_MCP} | {count} | {size:,} | {size // CHARACTERS_PER_TOKEN:,} | not read |")
        rows += ["", CLOJURE]
    return "\n".join(rows)


def _table(servers: list[Server], questions: tuple[Question, ...]) -> str:
    rows = [
        "| question | of " + "".join(f"| {server.name}: facts | characters " for server in servers) + "|",
        "|---|---:" + "|---:|---:" * len(servers) + "|",
    ]
    totals = [[0, 0] for _ in servers]
    for number, question in enumerate(questions):
        cells = ""
        for server, total in zip(servers, totals, strict=True):
            found = server.counts(number, question)
            cells += "| no tool | " if found is None else f"| {found[1]} | {found[0]:,} "
            total[0] += found[1] if found else 0
            total[1] += found[0] if found else 0
        rows.append(f"| {question.title} | {len(question.facts)} {cells}|")
    every = sum(len(question.facts) for question in questions)
    rows.append(f"| together | {every} " + "".join(f"| {facts} | {size:,} " for facts, size in totals) + "|")
    return "\n".join(rows)


def _facts(title: str, servers: list[Server], questions: tuple[Question, ...]) -> str:
    """Say which facts there are, and who tells which."""
    header = "".join(f"| {server.name} " for server in servers)
    rows = [f"| {title}: question | fact {header}|", "|---|---" + "|:---:" * len(servers) + "|"]
    for number, question in enumerate(questions):
        for fact in question.facts:
            marks = ""
            for server in servers:
                answer = server.answers[number]
                marks += "| yes " if answer is not None and fact.is_in(answer) else "| no "
            rows.append(f"| {question.title} | {fact.says} {marks}|")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
