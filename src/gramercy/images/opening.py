"""Open an image by its language: find its program, confine it, and give it the user's variables and network.

What means something different to each language is in `cpython` and `sbcl`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import ImageError, ImageStartError
from gramercy.gram.suggestion import did_you_mean
from gramercy.images.cpython import python_findings, python_program
from gramercy.images.environment import DISK_MB, LANGUAGES, Environment, Files, Network
from gramercy.images.live import DEFAULT_TIMEOUT, LiveImage
from gramercy.images.project import check_project, default_language, project_directory
from gramercy.images.python import landlock
from gramercy.images.sandbox import Confinement, find_confinement, in_force, inner_command, inner_places
from gramercy.images.sbcl import lisp_findings, sbcl_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gramercy.images.environment import Finding
    from gramercy.images.processes import Program

# For the doctor: what each language finds in a project.
FINDINGS: dict[str, Callable[[Path, Environment], list[Finding]]] = {
    "sbcl": lisp_findings,
    "python": python_findings,
}


class ImageKind(msgspec.Struct, frozen=True):
    """A kind of image that a plug-in adds.

    `language` is the one whose tools and protocol it has; `program` returns how to start it.
    """

    language: str
    program: Callable[[Path, Environment, Confinement], Program]


# The kinds of plug-ins by name; they come with `gramercy.workbench.plugins.load_plugins`.
KINDS: dict[str, ImageKind] = {}


class ImageSettings(msgspec.Struct, frozen=True):
    """What it takes to start an image; without a `confinement`, the best that works here.

    `tell` gets a line while the start takes long; without it, standard error.
    """

    language: str
    project: Path
    confinement: Confinement | None = None
    environment: Environment = msgspec.field(default_factory=Environment)
    tell: Callable[[str], object] | None = None
    kind: ImageKind | None = None

    def program(self) -> Program:
        """Return how to start the image; the first time for SBCL this builds a core, which takes seconds."""
        required = self.environment.require_sandbox
        is_open = self.confinement is Confinement.NONE
        confinement = self.confinement or find_confinement(required=required)
        if required is not None and is_open:
            in_force(sandbox=False, required=required)
        if self.kind is not None:
            program = self.kind.program(self.project, self.environment, confinement)
        elif self.language == "sbcl":
            program = sbcl_program(self.project, self.environment, confinement=confinement, tell=self.tell)
        else:
            program = python_program(self.project, self.environment, confinement=confinement)
        program = msgspec.structs.replace(program, notes=(*self.environment.notes, *program.notes))
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
    """Return an image that starts when it is first used; without a language, in that of the project.

    Where its files do not tell, that is SBCL if it is installed, else Python. A kind that a plug-in has added
    is named as a language is.
    `tell` gets a line while the start takes long; without it, standard error.
    """
    chosen = language or default_language(project)
    kind = KINDS.get(chosen)
    if chosen not in LANGUAGES and kind is None:
        names = (*LANGUAGES, *KINDS)
        hint = did_you_mean(chosen, names, f"there are {' and '.join(names)}")
        raise ImageError(f"there is no image language {chosen!r}: {hint}")
    place = check_project(project) if sandbox else project_directory(project)
    confinement = None if sandbox else Confinement.NONE
    language = chosen if kind is None else kind.language
    settings = ImageSettings(language, place, confinement, environment or Environment(), tell, kind)
    return LiveImage(name or chosen, settings.program, timeout=timeout, language=language)


# A program of ours that denies abstract unix sockets, which belong to the network namespace, by Landlock.
SOCKETS = Path(landlock.__file__)
# The kernel allows 32 pages for one variable (MAX_ARG_STRLEN), its name included.
LONGEST_VALUE = 128 * 1024 - 256
# A quarter of what the kernel commonly allows for arguments and environment together.
MOST_BYTES = 512 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_OWN = "the image has its own"
_LOADER = "it would load other code into the programs that start and confine the image"
_SHELL = "it would change the shell that starts the image"
# Variables that are refused, with the reason and what to try.
REFUSED = {
    "PATH": f"{_OWN}; name programs by their full path",
    "HOME": f"{_OWN}, since yours is out of its reach",
    "TMPDIR": f"{_OWN}, since yours is out of its reach",
    "PWD": f"{_OWN}, the project",
    "PYTHONHOME": "a Python image does not read it; choose an interpreter with --python",
    "SBCL_HOME": f"{_OWN}, where its SBCL is installed",
    "SBCL_CORE": f"{_OWN}; begin with a saved state by --restore",
    "GCONV_PATH": _LOADER,
    "GLIBC_TUNABLES": _LOADER,
    "ENV": _SHELL,
    "BASH_ENV": _SHELL,
    "BASHOPTS": _SHELL,
    "SHELLOPTS": _SHELL,
    "IFS": _SHELL,
    "PS4": _SHELL,
}
REFUSED_PREFIXES = {"LD_": _LOADER}


def equipped(program: Program, environment: Environment) -> Program:
    """Return the program with the user's variables, network and ports, also for a saved core."""
    if environment.files is Files.READ and program.confinement is Confinement.NONE:
        raise ImageStartError(
            "only a sandbox can keep evaluated code from writing files of the project: leave out "
            "--no-sandbox, or let it write with --files write"
        )
    grants = msgspec.structs.replace(
        program.grants,
        # The language comes last: it has read the user's value of such a variable, as of CL_SOURCE_REGISTRY.
        environment={**_variables(environment.variables), **program.grants.environment},
        network=environment.network,
        files=environment.files,
        disk_mb=DISK_MB if environment.disk_mb is None else environment.disk_mb,
        kept=tuple(path for path in environment.kept if path.exists()),
        reasons=environment.reasons,
    )
    saved = program.saved

    def again(path: Path) -> Program:
        assert saved is not None  # noqa: S101 - else it is not called
        return equipped(saved(path), environment)

    is_namespaced = program.confinement is Confinement.BUBBLEWRAP
    is_relayed = is_namespaced and environment.network is Network.NONE
    command = program.command
    if is_namespaced and environment.network is Network.OPEN:
        command = [*inner_command(SOCKETS), *command]
        grants = msgspec.structs.replace(grants, readable=(*grants.readable, *inner_places(SOCKETS)))
    return msgspec.structs.replace(
        program,
        command=command,
        grants=grants,
        saved=again if saved is not None else None,
        publish=environment.publish if is_relayed else (),
        notes=(*program.notes, *_network_notes(program.confinement, environment)),
    )


def _variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Check names and values; no message has a value in it, which may be secret."""
    for name, value in variables.items():
        reason = _why_refused(name, value)
        if reason is not None:
            raise ImageStartError(f"the variable {name!r:.60} cannot be given to the image: {reason}")
    if (
        sum(len(name) + len(value.encode("utf-8", "replace")) for name, value in variables.items())
        > MOST_BYTES
    ):
        raise ImageStartError(f"the variables for the image are too long: {MOST_BYTES} bytes at most")
    return dict(variables)


def _why_refused(name: str, value: str) -> str | None:
    if not _NAME.fullmatch(name):
        return "a name has letters, digits and underscores, and no digit first"
    for prefix, reason in REFUSED_PREFIXES.items():
        if name.startswith(prefix):
            return reason
    if name in REFUSED:
        return REFUSED[name]
    if "\0" in value:
        return "its value has a NUL character"
    if len(value.encode("utf-8", "replace")) > LONGEST_VALUE:
        return f"its value is longer than {LONGEST_VALUE} bytes"
    return None


def _network_notes(confinement: Confinement, environment: Environment) -> list[str]:
    notes = []
    if environment.network is Network.OPEN and confinement is not Confinement.NONE:
        is_scoped = landlock.landlock_version() >= landlock.SCOPES_SINCE
        sockets = "" if is_scoped else ", its abstract unix sockets"
        notes.append(
            f"The network is open: evaluated code can reach this machine's own servers{sockets} and "
            "everything that this machine can reach."
        )
    if environment.publish:
        notes += _publishing_notes(confinement, environment)
    return notes


def _publishing_notes(confinement: Confinement, environment: Environment) -> list[str]:
    ports = ", ".join(str(port.inner) for port in environment.publish)
    if confinement is Confinement.NONE or environment.network is Network.OPEN:
        why = "without a sandbox" if confinement is Confinement.NONE else "with an open network"
        return [f"Nothing is published: {why} a port of the image is this machine's own (here {ports})."]
    if confinement is Confinement.LANDLOCK:
        told = f"Port {ports} is not published: that needs bubblewrap, since the Landlock sandbox refuses TCP"
        return [f"{told}. Install it with 'apt-get install bubblewrap'."]
    return []
