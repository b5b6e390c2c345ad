"""The main act of the tour: a live image that is changed, broken, taken back, crashed, and still there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gramercy.execution.approval import Decision, Modified
from gramercy.execution.executor import Executor
from gramercy.toolsets import hunks
from gramercy.ui.cli.review import Review
from gramercy.ui.cli.stage import call, tell, title
from gramercy.workbench.assembly import image_registry

if TYPE_CHECKING:
    from pathlib import Path

    from gramercy.images.live import LiveImage
    from gramercy.tools.tool import Tool


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
# The person of the tour lets the new price through, but not the new currency.
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
    """Answer as a person would who goes through the hunks."""
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
