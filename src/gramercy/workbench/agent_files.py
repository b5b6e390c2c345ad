"""Read agents from files and check them against their tools. Each fault has a line and column."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gramercy.agents.agent import Agent
from gramercy.errors import GramError, SourceError
from gramercy.images.trust import check_file
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gramercy.gram.agents import AgentSpecification
    from gramercy.tools.library import ToolLibrary

# Larger than any hand-written file.
LARGEST_FILE = 4_000_000


def read_agent(
    file: str, name: str | None, library: ToolLibrary, tell: Callable[[str], object] = lambda _: None
) -> Agent:
    """Read an agent of a file, or raise SourceError with every fault of it by line and column.

    Warnings are reported.
    """
    text = _text(file)
    _check(text, file, (), tell)
    try:
        agent = Agent.from_gram(text, name)
    except GramError as error:
        raise SourceError(f"{file}: {error}") from None
    _check(text, file, _used(agent.specification), tell, library)
    return agent


def _text(file: str) -> str:
    path = Path(file)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise SourceError(f"{file} is larger than {LARGEST_FILE:,} bytes: it is no agent")
        return check_file(path, path.read_bytes()).decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"{file} is not UTF-8 at byte {error.start}: an agent is a text in gram") from None
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {reason_of(error)}") from None


def _check(
    text: str,
    file: str,
    used: Sequence[str],
    tell: Callable[[str], object],
    library: ToolLibrary | None = None,
) -> None:
    """Raise for an unusable agent. With a library, also check that the agent's tools have a match in it."""
    from gramercy.gram.lint.diagnostics import Severity
    from gramercy.gram.lint.linter import lint

    def explain(specification: Any) -> Any:
        return () if library is None else library.explain_binding(specification)

    found = lint(text, explain=lambda each: explain(each) if each.name in used else ())
    wrong = []
    for each in found:
        line = f"{file}:{each.start.line + 1}:{each.start.character + 1}: {each.code} {each.message}"
        if each.severity is Severity.ERROR:
            wrong.append(line)
        elif each.severity is Severity.WARNING and library is None:
            tell(f"warning: {line}")
    if wrong:
        raise SourceError("\n".join(wrong))


def _used(agent: AgentSpecification) -> tuple[str, ...]:
    """Return the names of all tools that an agent and the agents in it use."""
    return (*(tool.name for tool in agent.tools), *(name for each in agent.agents for name in _used(each)))
