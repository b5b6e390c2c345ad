"""Two tools that save the state of an image beyond the end of its processes, and restore it.

The files are in a directory of gramercy, one for each project. Evaluated code cannot write there, so the
restored state is the saved one, and no file of the project can be overwritten.
"""

from __future__ import annotations

import hashlib
import os
import re
from time import localtime, strftime
from typing import TYPE_CHECKING

from gramercy.directories import state_home
from gramercy.errors import ImageError
from gramercy.text import reason_of
from gramercy.toolsets.factory import as_evaluation, present_state, text

if TYPE_CHECKING:
    from pathlib import Path

    from gramercy.images.image import Image
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import Workshop
    from gramercy.toolsets.workspace import Workspace

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ENDINGS = {"sbcl": ".core"}
# A core of SBCL has at least 40 MB.
MOST_STATES = 20
HOLDS = {
    "sbcl": "It is the whole heap: packages, definitions and objects. Threads, open files and connections, "
    "other processes and checkpoints are not in it.",
    "python": "It is the calls that led here, to be run again with all their effects; objects themselves, "
    "threads, open files and checkpoints are not in it.",
}


def saved_state_tools(workshop: Workshop, workspace: Workspace) -> list[Tool]:
    """Make the two tools."""
    name = {"name": text("Name of the state: letters, digits, dots, hyphens", pattern=f"^{NAME.pattern}$")}
    return [
        workshop.make(
            "save_state",
            workshop.told(
                "Write the state of the image to disk under a name, to take it up after the server ended.",
                ("checkpoint_image", "Within a session checkpoint_image is enough."),
            ),
            name,
            lambda image, a: _save(States(workspace), image, a["name"]),
            required=["name"],
            level="cautious",
            categories=["time-travel"],
            title="Save the state",
            destructive=False,
        ),
        workshop.make(
            "restore_state",
            "Take up a state that save_state wrote. The present state and its checkpoints are given up.",
            name,
            lambda image, a: _restore(States(workspace), image, a["name"]),
            required=["name"],
            level="cautious",
            categories=["time-travel"],
            title="Restore a saved state",
            # A saved state of Python is a list of calls, which run again.
            judged_as=as_evaluation(),
            target=present_state,
            open_world=workshop.open_world,
        ),
    ]


class States:
    """The saved states of one project."""

    def __init__(self, workspace: Workspace) -> None:
        root = workspace.root
        mark = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
        self.directory = state_home() / "gramercy" / "states" / f"{root.name or 'root'}-{mark}"

    def file(self, name: str, language: str) -> Path:
        """Return the file of a state."""
        if not NAME.fullmatch(name):
            raise ImageError(f"{name[:100]!r} cannot name a state: use letters, digits, dots and hyphens")
        return self.directory / f"{name}{ENDINGS.get(language, '.json')}"

    def listed(self, language: str) -> list[str]:
        """List the names for a language, with date and size, newest first."""
        ending = ENDINGS.get(language, ".json")
        files = sorted(self.directory.glob(f"*{ending}"), key=lambda file: -file.stat().st_mtime)
        return [f"{file.name.removesuffix(ending)} ({_looks(file)})" for file in files]


def _looks(file: Path) -> str:
    status = file.stat()
    return f"{strftime('%Y-%m-%d %H:%M', localtime(status.st_mtime))}, {max(1, status.st_size >> 10):,} KB"


def _save(states: States, image: Image, name: str) -> str:
    file = states.file(name, image.language)
    if file.exists():
        raise ImageError(f"there is a state {name} already, which is not overwritten: choose another name")
    if len(states.listed(image.language)) >= MOST_STATES:
        raise ImageError(
            f"{MOST_STATES} states are saved for this project: a person can remove some from "
            f"{states.directory}"
        )
    try:
        states.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ImageError(f"{states.directory} cannot be made: {reason_of(error)}") from None
    written = image.save(str(file))
    size = written.partition(f"{file}: ")[2] or written
    return f"Saved as {name}: {size}. {HOLDS.get(image.language, '')}\nThe file is {file}"


def _restore(states: States, image: Image, name: str) -> str:
    file = states.file(name, image.language)
    if not file.is_file():
        known = states.listed(image.language)
        there = f"There are: {'; '.join(known)}" if known else "None is saved for this project and language"
        raise ImageError(f"there is no state {name}. {there}")
    told = image.restore(str(file)).partition(str(file))[2].removeprefix(":").strip()
    return f"Restored {name}{f': {told}' if told else ''}. The checkpoints from before are gone."
