"""Try every way back with real libraries, through the product, and write docs/reference/libraries.md.

`scripts/trials [NAME...] [--write]`. Each cell begins with a fresh image, uses the library, goes the way, and
uses it again: only the same answer counts. A column is a function in WAYS.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.errors import GramercyError
from gramercy.images.environment import Environment
from gramercy.images.opening import open_image
from tests.images import library_subjects as subjects

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.base import Reply
    from gramercy.images.image import Image
    from tests.images.library_subjects import Subject


ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "libraries.md"
CONSTRAINTS = Path(__file__).parent / "library-constraints.txt"
PACKAGES = ROOT / f".venv-libraries/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
# Compiling a big Lisp library for the first time takes a minute and more on a busy machine.
LOADING, USING = 400.0, 60.0
MEMORY_MB = 4096
AT_ONCE = 2


class WrongStateError(Exception):
    """A state came back other than it was."""


@dataclass
class Trial:
    """A library in use: `mark` is a variable that changes, `answer` what its use gives."""

    subject: Subject
    image: Image
    home: Path
    answer: list[str] = field(default_factory=list)
    told: str = ""

    def begin(self) -> None:
        """Take up the library, use it, and leave 41 in the mark; the state before all that is kept, too."""
        self.mark(1)
        self.evaluate(self.subject.begin)
        self.answer = self.evaluate(self.subject.use).values
        self.mark(41)

    def evaluate(self, code: str) -> Reply:
        """Evaluate what must not fail."""
        reply = self.image.evaluate(code, timeout=USING)
        if not reply.ok:
            message = reply.error.message if reply.error else "no reason"
            raise WrongStateError(f"{code.strip().splitlines()[0]!r} failed: {message}")
        return reply

    def mark(self, number: int) -> None:
        """Change the mark; remember what is said if the state after that is not kept."""
        reply = self.evaluate(subjects.MARK[self.subject.language][0].format(number))
        self.told = reply.unkept or ""

    def verify(self) -> None:
        """See that the mark is 41, and that the library still gives its answer."""
        for code, expected in ((self.look, ["41"]), (self.subject.use, self.answer)):
            found = self.evaluate(code).values
            if found != expected:
                raise WrongStateError(f"{code} gave {found}, not {expected}")

    @property
    def look(self) -> str:
        """The code that shows the mark."""
        return str(subjects.MARK[self.subject.language][1])


@dataclass(frozen=True)
class Cell:
    """How one way went: a word for the table, and what was said about it."""

    word: str
    text: str = ""


def checkpoint(trial: Trial) -> str:
    """Keep a state by name, change it, and go back to it."""
    kept = trial.image.checkpoint("kept")
    trial.mark(7)
    # Now nothing that was told before is an excuse.
    trial.told = ""
    trial.image.rollback(kept.id)
    trial.verify()
    return ""


def undo(trial: Trial) -> str:
    """Change the state and take that back."""
    trial.mark(7)
    trial.image.undo()
    trial.verify()
    return ""


def undo_by_replay(trial: Trial) -> str:
    """Change the state and go back by running again what came before."""
    trial.mark(7)
    trial.image.undo(by="replay")
    trial.verify()
    return ""


def undo_by_definitions(trial: Trial) -> str:
    """Change the state and put back what the last call defined, which needs no copy."""
    trial.mark(7)
    trial.image.undo(by="definitions")
    trial.verify()
    return ""


def preview(trial: Trial) -> str:
    """Use the library in a preview; the image stays as it is."""
    change = subjects.MARK[trial.subject.language][0].format(7)
    reply = trial.image.preview(f"{change}\n{trial.subject.use}", timeout=USING)
    trial.verify()
    if reply.ok and reply.values == trial.answer:
        return ""
    error = reply.error
    message = (
        f"{error.type} {error.message}".strip() if error else f"{reply.values} instead of {trial.answer}"
    )
    held = ", ".join(f"{effect.kind} {effect.target}" for effect in reply.effects)
    return f"{message} ({held} is held back)" if held else message


def crash(trial: Trial) -> str:
    """Let the process end by a signal in the middle of a call."""
    reply = trial.image.evaluate(subjects.KILL[trial.subject.language], timeout=USING)
    if reply.ok:
        raise WrongStateError("it did not end")
    trial.verify()
    return ""


def save(trial: Trial) -> str:
    """Write the state to a file, and take it up in an image that has begun again."""
    path = str(trial.home / "state")
    trial.image.save(path)
    trial.image.reset()
    told = trial.image.restore(path)
    trial.verify()
    return told.partition("not as the first time:")[2].strip()


WAYS: dict[str, Callable[[Trial], str]] = {
    "checkpoint": checkpoint,
    "undo": undo,
    "undo by replay": undo_by_replay,
    "undo by definitions": undo_by_definitions,
    "preview": preview,
    "crash recovery": crash,
    "save and restore": save,
}


def attempt(trial: Trial, way: Callable[[Trial], str]) -> Cell:
    """Go one way with a library in use, and say how that went."""
    trial.begin()
    try:
        text = way(trial)
    except GramercyError as error:
        # The reason is enough: the rest of the sentence tells of this image's own states.
        return Cell("refused", trial.told if trial.told and trial.told in str(error) else str(error))
    except WrongStateError as error:
        # A loss that was told of before is none of a promise; one that was not is a defect.
        return Cell("lost", trial.told) if trial.told and way is crash else Cell("WRONG", str(error))
    return Cell("partly", text) if text else Cell("works")


def try_all(subject: Subject) -> dict[str, Cell]:
    """Go every way with one library, each with a fresh image."""
    with tempfile.TemporaryDirectory(prefix="gramercy-trial-") as directory:
        home, project = Path(directory), Path(directory) / "project"
        project.mkdir()
        environment = (
            Environment(paths=(PACKAGES,), memory_mb=MEMORY_MB) if subject.package else Environment()
        )
        image = open_image(subject.language, project=project, environment=environment)
        try:
            cells = {}
            for name, way in WAYS.items():
                image.reset()
                if subject.system:
                    loaded = image.load_system(subject.system, timeout=LOADING)
                    assert loaded.ok, loaded
                cells[name] = attempt(Trial(subject, image, home), way)
            return cells
        finally:
            image.close()


def run(names: list[str]) -> dict[str, dict[str, Cell]]:
    """Try the libraries of these names, or all."""
    chosen = [
        each for each in subjects.SUBJECTS if not names or any(each.name.startswith(name) for name in names)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = pool.map(try_all, chosen)
        return {subject.name: cells for subject, cells in zip(chosen, done, strict=True)}


def main(arguments: list[str]) -> int:
    """Print the outcome; write the page when asked to."""
    results = run([each for each in arguments if each != "--write"])
    for name, cells in results.items():
        sys.stdout.write(f"{name}: {', '.join(f'{way} {cell.word}' for way, cell in cells.items())}\n")
        for text in dict.fromkeys(cell.text for cell in cells.values() if cell.text):
            sys.stdout.write(f"    {text}\n")
    if "--write" in arguments:
        page = importlib.import_module("tests.images.library_page").page
        PAGE.write_text(page(results, versions()), encoding="utf-8")
    return 1 if any(cell.word == "WRONG" for cells in results.values() for cell in cells.values()) else 0


def versions() -> dict[str, str]:
    """Return the versions that are installed for the trials."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
