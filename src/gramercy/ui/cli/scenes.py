"""The scenes of the tour that need no image: schemas, binding, repair, approval, rules."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Any

import click

from gramercy.execution.approval import ApprovalRequest, Approved, Decision, Modified
from gramercy.execution.calls import ToolCall
from gramercy.execution.executor import Executor
from gramercy.execution.policy import Policy
from gramercy.gram.specification import ToolSpecification
from gramercy.tools.definition import create_tool, tool
from gramercy.tools.library import ToolLibrary
from gramercy.tools.registry import Registry
from gramercy.tools.tool import Tool  # noqa: TC001 - as a user would write it: @tool reads annotations
from gramercy.ui.cli.display import json_text
from gramercy.ui.cli.stage import call, tell, title

if TYPE_CHECKING:
    from pathlib import Path

HELLO = """\
[sayHello:ToolSpecification {
  description: "Returns a friendly greeting message for the given name"
} |
  (::Text {paramName:"name"})==>(::String)
]"""


class Stage:
    """What the scenes share: a scratch directory with one file, and the tools that act on it."""

    def __init__(self, directory: Path) -> None:
        self.notes = directory / "notes.txt"
        self.notes.write_text("milk\n")
        self.registry = Registry([self._count_words(), self._write_notes()])

    def _count_words(self) -> Tool:
        @tool(categories=["text"])
        def count_words(text: Annotated[str, "The text to count"], unique: bool = False) -> int:  # noqa: FBT001, FBT002 - as a user would write it
            """Count the words of a text."""
            words = text.split()
            return len(set(words) if unique else words)

        return count_words

    def _write_notes(self) -> Tool:
        @tool(safety_level="dangerous", categories=["files"], target_state=lambda _: _digest(self.notes))
        def write_notes(content: Annotated[str, "The new text of the notes"]) -> str:
            """Replace the notes. They cannot be brought back."""
            self.notes.write_text(content)
            return f"wrote {len(content)} characters"

        return write_notes


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def play_scenes(directory: Path) -> Executor:
    """Play all scenes, each on a fresh stage; return the executor of the last."""
    for scene in (_define, _bind, _repair, _refuse, _edit, _drift):
        scene(Stage(directory))
    return _rules(Stage(directory))


def _define(stage: Stage) -> None:
    title("A tool is a function; its annotations are the schema a model sees")
    click.echo(json_text(stage.registry.resolve("count_words").to_schema()["function"]["parameters"]))
    call(Executor(stage.registry), "count_words", {"text": "to be or not to be", "unique": True})


def _bind(stage: Stage) -> None:
    del stage
    title("A gram specification is bound to an implementation only if they agree")
    click.echo(HELLO)
    specification = ToolSpecification.from_gram(HELLO)
    good = create_tool(
        "sayHello", specification.description, specification.schema, lambda a: f"Hello, {a['name']}!"
    )
    schema = {"type": "object", "properties": {"name": {"type": "integer"}}, "required": ["name"]}
    bad = create_tool("sayHello", specification.description, schema, lambda _: "")
    click.echo(f"implementation A   bound: {ToolLibrary.of([good]).bind(specification) is good}")
    for mismatch in ToolLibrary.of([bad]).explain_binding(specification):
        click.echo(f"implementation B   {mismatch}")


def _repair(stage: Stage) -> None:
    title("A bad call is answered with everything needed to repair it")
    call(Executor(stage.registry), "count_wrods", {"text": "x"})
    call(Executor(stage.registry), "count_words", {"txt": "to be", "unique": "yes"})


def _refuse(stage: Stage) -> None:
    title("A dangerous tool never runs because nobody could be asked")
    call(Executor(stage.registry), "write_notes", {"content": "gone\n"})
    tell("notes", repr(stage.notes.read_text()))


def _edit(stage: Stage) -> None:
    title("A person may edit the call; the model is told")

    def person(tool: Tool, arguments: dict[str, Any]) -> Decision:
        tell("person sees", f"{tool.name} ({tool.safety_level}) {json.dumps(arguments)}")
        edited = {"content": "milk\n" + arguments["content"]}
        tell("person edits", json.dumps(edited))
        return Modified(edited)

    call(Executor(stage.registry, person), "write_notes", {"content": "bread\n"})
    tell("notes", repr(stage.notes.read_text()))


def _drift(stage: Stage) -> None:
    title("An approval is sealed to what the person saw: if that changes, the question comes again")

    def person(tool: Tool, arguments: dict[str, Any], request: ApprovalRequest) -> Decision:
        again = f", asked again: {'; '.join(request.changes)}" if request.changes else ""
        tell("person sees", f"{tool.name} {json.dumps(arguments)}{again}")
        if not request.changes:
            stage.notes.write_text("milk\neggs\n")
            tell("meanwhile", "somebody else changes the file")
        return Approved()

    call(Executor(stage.registry, person), "write_notes", {"content": "bread\n"})


def _rules(stage: Stage) -> Executor:
    title("Rules are data; every decision names its rule")
    policy = Policy([{"action": "deny", "tools": ["write_*"], "reason": "read-only today"}])
    executor = Executor(stage.registry, policy=policy)
    for text in ("one", "one two", "one two three"):
        executor.execute(ToolCall("call_1", "count_words", {"text": text}))
    call(executor, "write_notes", {"content": ""})
    return executor
