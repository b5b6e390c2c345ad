"""`gramercy tour`: the real parts at work in a scratch directory, told in a minute. Nothing is canned.

First scenes that need no image (schemas, binding, repair, approval, rules), then the main act: a live image
that is changed, broken, taken back, crashed, and still there.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from gramercy.errors import SandboxError
from gramercy.execution.approval import ApprovalRequest, Approved, Decision, Modified
from gramercy.execution.calls import ToolCall, ToolResult
from gramercy.execution.executor import Executor
from gramercy.execution.policy import Policy
from gramercy.gram.specification import ToolSpecification
from gramercy.tools.definition import create_tool, tool
from gramercy.tools.library import ToolLibrary
from gramercy.tools.registry import Registry
from gramercy.tools.tool import Tool  # noqa: TC001 - as a user would write it: @tool reads annotations
from gramercy.toolsets import hunks
from gramercy.ui.cli.approval import Review
from gramercy.ui.cli.options import language_option
from gramercy.ui.cli.terminal import json_text, start, visible
from gramercy.workbench.sources import image_registry, live_image

if TYPE_CHECKING:
    from gramercy.images.live import LiveImage


WIDTH = 14
HELLO = """\
[sayHello:ToolSpecification {
  description: "Returns a friendly greeting message for the given name"
} |
  (::Text {paramName:"name"})==>(::String)
]"""


@click.command()
@language_option
def tour(language: str | None) -> None:
    """Show in under a minute what gramercy does."""
    with tempfile.TemporaryDirectory(prefix="gramercy-tour-") as directory:
        executor = play_scenes(Path(directory))
        executor = _play_live(Path(directory), language) or executor
    title("Every call is counted")
    click.echo(executor.metrics_table())
    click.echo("\nNext: try  gramercy repl  or  gramercy tools list --from my_tools.py", err=True)


def _play_live(directory: Path, language: str | None) -> Executor | None:
    """Play the main act. Without a sandbox it is left out: its code could do everything that the user may."""
    try:
        with live_image(language, project=str(directory)) as image:
            start(image)
            return play_live_scenes(image, image.language, directory)
    except SandboxError as error:
        title("The scenes with a live image are left out")
        click.echo(str(error))
        return None


def title(text: str) -> None:
    """Begin a scene."""
    click.secho(f"\n── {text}", bold=True)


def tell(who: str, text: str) -> None:
    """Print a line about one actor. Further lines are indented under the first."""
    lines = visible(text).splitlines() or [""]
    click.echo("\n".join(f"{'' if i else who:<{WIDTH}}{line}".rstrip() for i, line in enumerate(lines)))


def call(executor: Executor, name: str, arguments: dict[str, Any], *, told: str | None = None) -> ToolResult:
    """Make a call as a model would, and show both sides. `told` replaces arguments that are hard to read."""
    tell("model calls", f"{name}({json.dumps(arguments)})" if told is None else f"{name}  {told}")
    result = executor.execute(ToolCall("call_1", name, arguments))
    tell("result" if result.success else "error", result.content)
    return result


class Stage:
    """Shared by the scenes: a scratch directory with one file, and the tools that act on it."""

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
            tell("meanwhile", "another program changes the file")
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


@dataclass(frozen=True, slots=True)
class Script:
    """The same story in the words of one language. `kept` and `proposed` are a file and a change of it."""

    define: str
    use: str
    change: str
    damage: str
    crash: str
    file: str
    kept: str
    proposed: str


SCRIPTS = {
    "sbcl": Script(
        define='(defun price (apples) "In cents." (* 30 apples))',
        use="(price 4)",
        change="(defun price (apples) (* 25 apples)) (price 4)",
        damage="(defun price (apples) (* rate apples)) (price 4)",
        crash="(sb-ext:exit :abort t)",
        file="shop.lisp",
        kept=";; In cents.\n(defvar *currency* :eur)\n\n(defun price (apples)\n  (* 30 apples))\n",
        proposed=";; In cents.\n(defvar *currency* :usd)\n\n(defun price (apples)\n  (* 25 apples))\n",
    ),
    "python": Script(
        define='def price(apples):\n    """In cents."""\n    return 30 * apples',
        use="price(4)",
        change="def price(apples):\n    return 25 * apples\nprice(4)",
        damage="def price(apples):\n    return rate * apples\nprice(4)",
        crash="import os; os._exit(3)",
        file="shop.py",
        kept="# In cents.\nCURRENCY = 'eur'\n\ndef price(apples):\n    return 30 * apples\n",
        proposed="# In cents.\nCURRENCY = 'usd'\n\ndef price(apples):\n    return 25 * apples\n",
    ),
}
# The person of the tour accepts the new price, but not the new currency.
WANTED = {2}


def play_live_scenes(image: LiveImage, language: str, project: Path) -> Executor:
    """Play the act in a started image; return the executor that made its calls."""
    script = SCRIPTS[language]
    executor = Executor(image_registry(image, language, str(project)), _person)
    _live(executor, script)
    _preview(executor, script)
    _undo(executor, script)
    _crash(executor, script)
    _write(executor, script, project)
    return executor


def _evaluate(executor: Executor, code: str) -> None:
    call(executor, "eval_form", {"form": code}, told=_shown(code))


def _shown(code: str) -> str:
    return f"\n{code}" if "\n" in code else code


def _live(executor: Executor, script: Script) -> None:
    title("A live image keeps what is defined in it from call to call")
    _evaluate(executor, script.define)
    _evaluate(executor, script.use)


def _preview(executor: Executor, script: Script) -> None:
    title("A preview shows what a change would do, in a copy that can write nothing")
    call(executor, "preview_form", {"form": script.change}, told=_shown(script.change))
    _evaluate(executor, script.use)


def _undo(executor: Executor, script: Script) -> None:
    title("What breaks can be taken back")
    _evaluate(executor, script.damage)
    call(executor, "undo_last", {})
    _evaluate(executor, script.use)


def _crash(executor: Executor, script: Script) -> None:
    title("The image is crashed, and still there")
    _evaluate(executor, script.crash)
    _evaluate(executor, script.use)


def _write(executor: Executor, script: Script, project: Path) -> None:
    title("A dangerous write waits for a person, who decides about each hunk of its diff")
    file = project / script.file
    file.write_text(script.kept)
    about = {"path": script.file, "description": "Sell in America"}
    proposal = {**about, "original": script.kept, "modified": script.proposed}
    call(executor, "propose_file_edit", proposal, told=f"{script.file}: {about['description']}")
    tell("file", file.read_text())


def _person(tool: Tool, arguments: dict[str, Any]) -> Decision:
    """Answer as a person would who reviews the hunks."""
    original, modified = arguments["original"], arguments["modified"]
    tell("person sees", f"{tool.name} ({tool.safety_level}): {arguments['description']}")
    tell("", hunks.diff(original, modified, arguments["path"]))
    review = Review(hunks.split(original, modified))
    for hunk in hunks.split(original, modified):
        key = "a" if hunk.number in WANTED else "r"
        review.press(key)
        tell("person types", f"{key}   {review.header()}")
    note = hunks.applied_note(original, modified, review.accepted, "we sell in euros")
    chosen = hunks.accepted(original, modified, review.accepted)
    return Modified({**arguments, "modified": chosen}, note=note)
