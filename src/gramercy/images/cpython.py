"""The start of a Python image: under the interpreter of the project's environment, or a bare one.

The zygote is isolated and without site-packages (`-I -S`). The startup code of the environment, the project's
import path and the directories of editable installs are added to the live process after its fork.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gramercy.errors import ImageStartError
from gramercy.images.connection import as_json
from gramercy.images.environment import Finding, Status, memory_for
from gramercy.images.interpreters import chosen_interpreter, find_environment, own_interpreter
from gramercy.images.processes import Program
from gramercy.images.project import work_tree
from gramercy.images.sandbox import ENVIRONMENT, Confinement, Grants

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gramercy.images.environment import Environment
    from gramercy.images.interpreters import Interpreter

SOURCE = Path(__file__).parent / "python"
# Twice the timeout for the user's init file inside the image.
INIT_SECONDS = 60.0


class Surroundings(msgspec.Struct, frozen=True):
    """The findings for a Python image: interpreter, import directories, and problems."""

    interpreter: Interpreter
    has_packages: bool
    paths: tuple[Path, ...]
    first: tuple[Path, ...]
    editables: Editables
    wrong: tuple[str, ...]


# An image has no display: matplotlib draws into memory, and the figures are shown with the reply.
BACKEND = "MPLBACKEND"


def look_around(project: Path | None, environment: Environment) -> Surroundings:
    """Find interpreter and packages. Raise only if one that the user named cannot be used."""
    paths = tuple(path.expanduser().resolve() for path in environment.paths)
    for path in paths:
        if not path.is_dir():
            raise ImageStartError(f"{path} cannot be added to the image: there is no such directory")
    # An isolated interpreter (-I) ignores PYTHONPATH.
    told = (
        Path(project or "", word)
        for word in environment.variables.get("PYTHONPATH", "").split(os.pathsep)
        if word
    )
    paths += tuple(path.resolve() for path in told if path.is_dir())
    found, wrong = (
        (chosen_interpreter(environment.python), ()) if environment.python else find_environment(project)
    )
    first = [project, project / "src"] if project is not None else []
    return Surroundings(
        interpreter=found or own_interpreter(),
        has_packages=found is not None,
        paths=paths,
        first=tuple(path for path in first if path.is_dir()),
        editables=find_editables(found.packages, project, paths) if found is not None else Editables(),
        wrong=wrong,
    )


def python_program(project: Path | None, environment: Environment, *, confinement: Confinement) -> Program:
    """Return the program for a Python image."""
    around = look_around(project, environment)
    interpreter = around.interpreter
    # Not paths in the project: those are writable, and a read grant would be bound over them.
    readable = {path for path in around.paths if project is None or not path.is_relative_to(project)}
    readable |= {SOURCE.resolve(), *around.editables.beside}
    readable |= {interpreter.environment} if interpreter.environment is not None else set()
    if environment.init is not None:
        readable |= {_init(environment.init)} if not _is_below(environment.init, project) else set()
    memory_mb = memory_for("python", environment.memory_mb)
    grants = Grants(
        readable=tuple(sorted(readable)),
        aliases=tuple(place for place in interpreter.places if not _is_below(place[1], project)),
        project=project,
        environment={BACKEND: environment.variables.get(BACKEND, "agg"), **_activation(interpreter)},
        memory_mb=memory_mb,
    )
    command = [str(interpreter.program), "-I", "-S", "-X", "utf8", str(SOURCE.resolve() / "__main__.py")]
    command += _options(around, environment)
    program = Program(
        "python", command, as_json, grants, confinement, memory_mb=memory_mb, notes=tuple(_notes(around))
    )
    return (
        program if environment.init is None else msgspec.structs.replace(program, start_seconds=INIT_SECONDS)
    )


def _is_below(path: Path, project: Path | None) -> bool:
    return project is not None and path.is_relative_to(project)


def _init(path: Path) -> Path:
    if not path.is_file():
        raise ImageStartError(f"{path} cannot be loaded at the start: there is no such file")
    return path


def _activation(interpreter: Interpreter) -> dict[str, str]:
    """Return the variables that `activate` would set, for programs that evaluated code starts."""
    if interpreter.environment is None:
        return {}
    programs = f"{interpreter.environment / 'bin'}{os.pathsep}{ENVIRONMENT['PATH']}"
    return {"PATH": programs, "VIRTUAL_ENV": str(interpreter.environment)}


def _options(around: Surroundings, environment: Environment) -> list[str]:
    words = ["--site"] if around.has_packages else []
    for option, paths in (("--path", around.paths), ("--first", around.first)):
        words += [word for path in paths for word in (option, str(path))]
    words += ["--reload", environment.reload.value]
    words += [word for path in around.editables.outside for word in ("--outside", str(path))]
    return [*words, "--init", str(environment.init)] if environment.init is not None else words


def _notes(around: Surroundings) -> Iterator[str]:
    """Yield notes about problems and omissions. The doctor reports the rest."""
    yield from around.wrong
    if around.wrong:
        instead = around.interpreter.title if around.has_packages else "a Python without packages"
        yield f"The image runs {instead} instead."
    for path in around.editables.outside:
        yield f"An editable install leads to {path}, outside of the project: to import it, say --path {path}."


def python_findings(project: Path, environment: Environment) -> list[Finding]:
    """Return the findings for a Python image of the project."""
    try:
        around = look_around(project, environment)
    except ImageStartError as error:
        return [
            Finding(
                "interpreter",
                Status.FAILED,
                str(error),
                "choose another one with --python or in the configuration",
            )
        ]
    return list(_findings(around))


def _findings(around: Surroundings) -> Iterator[Finding]:
    for line in around.wrong:
        yield Finding("environment", Status.WARNING, line)
    interpreter = around.interpreter
    bare = "" if around.has_packages else ", without packages: there is no environment"
    yield Finding("interpreter", Status.OK, f"{interpreter.title}{bare}")
    for path in interpreter.packages:
        is_there = path.is_dir()
        yield Finding("packages", Status.OK, str(path) if is_there else f"{path}, which is not there: none")
    for path in (*around.editables.inside, *around.editables.beside):
        yield Finding("editable install", Status.OK, f"{path}")
    for path in around.editables.outside:
        detail = f"{path} is outside of the project and not readable"
        yield Finding("editable install", Status.WARNING, detail, f"to import it, say --path {path}")
    yield Finding("import path", Status.OK, ", ".join(map(str, (*around.first, *around.paths))))


# The limit of a .pth file or a finder: real ones have a few lines, and all are read before the image starts.
LARGEST_FILE = 1 << 20
MOST_FILES = 1000
_QUOTED = re.compile(r"""['"](/[^'"\n]+)['"]""")


class Editables(msgspec.Struct, frozen=True):
    """Directories of editable installs: in the project, in its git work tree, or outside of both.

    Files of the project name the outside ones, so only the user can grant them.
    """

    inside: tuple[Path, ...] = ()
    beside: tuple[Path, ...] = ()
    outside: tuple[Path, ...] = ()


def find_editables(packages: Iterable[Path], project: Path | None, known: Iterable[Path] = ()) -> Editables:
    """Sort by place the directories that .pth files and finders in `packages` name, read as text.

    Directories below `known` ones are granted already.
    """
    at_hand = [*known, *packages]
    inside, beside, outside = set(), set(), set()
    tree = work_tree(project) if project is not None else None
    for path in sorted({real for each in packages for real in _named(each)}):
        if project is not None and path.is_relative_to(project):
            inside.add(path)
        elif any(path.is_relative_to(place.resolve()) for place in at_hand) or path.is_relative_to("/usr"):
            continue
        elif tree is not None and path.is_relative_to(tree):
            beside.add(path)
        else:
            outside.add(path)
    return Editables(*(tuple(sorted(each)) for each in (inside, beside, outside)))


def _named(packages: Path) -> Iterator[Path]:
    files = [*sorted(packages.glob("*.pth")), *sorted(packages.glob("__editable__*.py"))]
    for file in files[:MOST_FILES]:
        for name in _names(file):
            path = Path(packages, name)
            try:
                if path.is_dir():
                    yield path.resolve()
                elif path.suffix == ".py" and path.is_file():
                    # A single module: its directory goes on the import path.
                    yield path.resolve().parent
            except (OSError, ValueError):
                continue


def _names(file: Path) -> list[str]:
    try:
        if not file.is_file() or file.stat().st_size > LARGEST_FILE:
            return []
        text = file.read_text("utf-8", "replace")
    except OSError:
        return []
    if file.suffix == ".py":
        return _QUOTED.findall(text)
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "import ", "import\t"))]
