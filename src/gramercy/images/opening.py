"""Open an image by the name of its language: find the program, the confinement and the project for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gramercy.errors import ImageError
from gramercy.gram.suggestion import suggest
from gramercy.images.cpython import python_findings, python_program
from gramercy.images.environment import Environment
from gramercy.images.equipment import equipped
from gramercy.images.live import DEFAULT_TIMEOUT, LiveImage
from gramercy.images.protection import check_project, default_language, project_directory
from gramercy.images.sandbox import Confinement, find_confinement
from gramercy.images.sbcl import lisp_findings, sbcl_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gramercy.images.findings import Finding
    from gramercy.images.processes import Program

LANGUAGES = ("sbcl", "python")
# What each language tells about a project, for a report.
FINDINGS: dict[str, Callable[[Path, Environment], list[Finding]]] = {
    "sbcl": lisp_findings,
    "python": python_findings,
}


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """What it takes to start an image; `confinement` None means the best there is.

    `tell` gets a line while the start takes long; without it standard error does.
    """

    language: str
    project: Path
    confinement: Confinement | None = None
    environment: Environment = field(default_factory=Environment)
    tell: Callable[[str], object] | None = None

    def program(self) -> Program:
        """Return how to start the image. Finding out may take a while at the very first use."""
        confinement = self.confinement or find_confinement()
        if self.language == "sbcl":
            program = sbcl_program(self.project, self.environment, confinement=confinement, tell=self.tell)
        else:
            program = python_program(self.project, self.environment, confinement=confinement)
        program = replace(program, notes=(*self.environment.notes, *program.notes))
        return equipped(program, self.environment)


def open_image(  # noqa: PLR0913 - each has a default, and a caller names the ones it means
    language: str | None = None,
    *,
    name: str | None = None,
    project: str | Path = ".",
    sandbox: bool = True,
    timeout: float = DEFAULT_TIMEOUT,
    environment: Environment | None = None,
    tell: Callable[[str], object] | None = None,
) -> LiveImage:
    """Return an image that starts when it is first used; without a language in that of the project.

    Where its files do not tell, that is SBCL if it is installed, else Python.
    `tell` gets a line while starting takes long; without it standard error does.
    """
    chosen = language or default_language(project)
    if chosen not in LANGUAGES:
        close = suggest(chosen, LANGUAGES)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {' and '.join(LANGUAGES)}"
        raise ImageError(f"there is no image language {chosen!r}: {hint}")
    place = check_project(project) if sandbox else project_directory(project)
    confinement = None if sandbox else Confinement.NONE
    settings = ImageSettings(chosen, place, confinement, environment or Environment(), tell)
    return LiveImage(name or chosen, settings.program, timeout=timeout, language=chosen)
