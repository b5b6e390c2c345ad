"""The two ways of a day: the tools of gramercy over MCP, and a shell with the file tools of a client.

A day is a list of steps; `walk` takes them one way, and fails where an answer does not tell what it must, or
where the disk is not as it should be.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from base64 import b64decode
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from gramercy.testing.clients import StdioClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# A system is compiled the first time.
PATIENCE = 300.0
# A person would say yes to each; that a client asks adds nothing to what the model reads.
POLICY = """
[[rules]]
action = "allow"
tools = ["edit_file", "edit_definition", "save_state"]
"""
SETS = ("default", "project", "errors")


class Step(NamedTuple):
    """One call: the part of the day it belongs to, and what its answer must tell, as a pattern."""

    part: str
    tool: str
    arguments: dict[str, Any]
    tells: str = ""
    fails: bool = False
    # What lies on the disk afterwards, and what does not.
    disk: Mapping[str, bool] = MappingProxyType({})


class Done(NamedTuple):
    """A step, its answer, and the sizes of the pictures in it."""

    step: Step
    answer: str
    pictures: tuple[bytes, ...] = ()

    @property
    def characters(self) -> int:
        """What a model writes and reads for it."""
        return len(self.step.tool) + len(written(self.step)) + len(self.answer)


def written(step: Step) -> str:
    """Return the arguments of a call as a model writes them."""
    return json.dumps(step.arguments, ensure_ascii=False, separators=(",", ":"))


class Desk:
    """A shell and the file tools of a client, as lean as they can be: an edit answers with one word."""

    def __init__(self, project: Path) -> None:
        self.project = project

    def call(self, step: Step) -> Done:
        """Do a step for real."""
        return getattr(self, f"_{step.tool.lower()}")(step, **step.arguments)  # type: ignore[no-any-return]

    def _bash(self, step: Step, command: str) -> Done:
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.project,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env={**os.environ, "NO_COLOR": "1"},
        )
        return Done(step, done.stdout + done.stderr)

    def _read(self, step: Step, file_path: str, offset: int = 1, limit: int | None = None) -> Done:
        data = (self.project / file_path).read_bytes()
        if file_path.endswith(".png"):
            return Done(step, "", (data,))
        lines = data.decode().splitlines()[offset - 1 :][:limit]
        return Done(step, "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, offset)))

    def _edit(self, step: Step, file_path: str, old_string: str, new_string: str) -> Done:
        file = self.project / file_path
        text = file.read_text(encoding="utf-8")
        if text.count(old_string) != 1:
            raise ValueError(f"{old_string!r} is not once in {file_path}")
        file.write_text(text.replace(old_string, new_string), encoding="utf-8")
        # An agent takes longer than a second from one run to the next edit, and ASDF needs that to see it.
        later = file.stat().st_mtime + 2
        os.utime(file, (later, later))
        return Done(step, "Edited.")


class Image:
    """The same steps through `gramercy serve`."""

    def __init__(self, language: str, project: Path, *options: str, sets: Sequence[str] = SETS) -> None:
        self.project = project
        rules = project.with_suffix(".toml")
        rules.write_text(POLICY, encoding="utf-8")
        chosen = [word for name in sets for word in ("--toolset", name)]
        words = ("--image", language, "--project", str(project), "--policy", str(rules), *chosen, *options)
        self.states = project.with_name("states")
        self.client = StdioClient(
            *(sys.executable, "-m", "gramercy", "serve", *words),
            env={"XDG_STATE_HOME": str(self.states)},
            seconds=PATIENCE,
        )
        self.client.initialize()

    def call(self, step: Step) -> Done:
        """Call a tool; a step that is to fail and does not, or the other way round, ends the day."""
        result = self.client.call(step.tool, **step.arguments)
        texts = [block["text"] for block in result["content"] if block["type"] == "text"]
        pictures = [block["data"].encode() for block in result["content"] if block["type"] == "image"]
        told = "\n".join(texts)
        if bool(result.get("isError")) is not step.fails:
            raise AssertionError(
                f"{step.tool} {written(step)} {'did not fail' if step.fails else 'failed'}:\n{told}"
            )
        return Done(step, told, tuple(map(b64decode, pictures)))


def walk(way: Desk | Image, steps: Sequence[Step]) -> list[Done]:
    """Take the steps in order; each answer must tell what it is asked for, and the disk be as it says."""
    done: list[Done] = []
    for step in steps:
        done.append(way.call(_filled(step, done)))
        told = done[-1].answer
        if not re.search(step.tells, told, re.DOTALL):
            raise AssertionError(f"{step.tool} {written(step)} does not tell {step.tells}:\n{told}")
        for name, is_there in step.disk.items():
            if (way.project / name).exists() is not is_there:
                raise AssertionError(f"after {step.tool} {name} is{'' if is_there else ' not'} gone:\n{told}")
    return done


def _filled(step: Step, done: Sequence[Done]) -> Step:
    """Fill in the state to go forward to, which the answer of the last undo names."""
    if "$redo" not in step.arguments.values():
        return step
    found = re.search(r"rollback to (c\d+) redoes", done[-2].answer)
    if found is None:
        raise AssertionError(f"the answer names no state to go forward to:\n{done[-2].answer}")
    return step._replace(arguments={"checkpoint": found[1]})
