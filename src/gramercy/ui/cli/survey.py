"""`gramercy doctor --project`: what was found for the images of a project, and what they say when asked."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from gramercy.errors import GramercyError
from gramercy.images.findings import Finding, Status
from gramercy.images.opening import FINDINGS, LANGUAGES, open_image
from gramercy.workbench.configuration import read_configuration, user_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gramercy.workbench.configuration import Configuration
    from gramercy.workbench.settings import Settings

QUESTIONS = {
    "python": "import sys; print(f'Python {sys.version.split()[0]}, sys.prefix {sys.prefix}')",
    "sbcl": '(format t "SBCL ~a, ~a" (lisp-implementation-version) *default-pathname-defaults*)',
}


def survey(project: Path, told: Settings) -> Iterator[Finding]:
    """Tell what files and environment of a project give to its images, then start one of each language."""
    configuration = read_configuration(project, told)
    yield from _configured(configuration)
    for language in LANGUAGES:
        if language == "sbcl" and shutil.which("sbcl") is None:
            continue
        told_by = FINDINGS.get(language)
        for finding in told_by(project, configuration.environment) if told_by else ():
            yield Finding(f"{language} {finding.name}", finding.status, finding.detail, finding.advice)
        yield _asked(language, project, configuration)


def _configured(configuration: Configuration) -> Iterator[Finding]:
    files = ", ".join(map(str, configuration.files))
    none = f"no file: neither gramercy.toml or [tool.gramercy] in the project, nor {user_file()}"
    yield Finding("configuration", Status.OK, files or none)
    for remark in configuration.remarks:
        yield Finding("configuration", Status.WARNING, remark)
    environment = configuration.environment
    memory = "the default" if environment.memory_mb is None else f"{environment.memory_mb} MB"
    parts = [f"timeout {configuration.timeout:g} s", f"memory {memory}", f"network {environment.network}"]
    parts += [f"published {port.outer}:{port.inner}" for port in environment.publish]
    parts += [f"variable {name}" for name in environment.variables]
    parts += [f"init {environment.init}"] if environment.init is not None else []
    yield Finding("limits", Status.OK, ", ".join(parts))


def _asked(language: str, project: Path, configuration: Configuration) -> Finding:
    """Start an image of the project and let it say what it is."""
    name = f"{language} image"
    image = None
    try:
        image = open_image(
            language,
            project=project,
            timeout=configuration.timeout,
            environment=configuration.environment,
        )
        reply = image.evaluate(QUESTIONS[language])
    except GramercyError as error:
        return Finding(name, Status.FAILED, str(error))
    finally:
        if image is not None:
            image.close()
    if not reply.ok:
        return Finding(name, Status.FAILED, reply.error.message if reply.error else "it does not evaluate")
    return Finding(name, Status.OK, f"started: {reply.stdout.strip()}")
