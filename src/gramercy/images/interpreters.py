"""Find the Python interpreter for a project, or the one that the user names, without running any file.

A repository can bring any file as `.venv/bin/python`, so nothing is started here: `pyvenv.cfg` is read as
text. Of the installation behind an environment only the program, its standard library and libpython are
granted. Each is checked by the name of the real file, so that a link or a false `home` grants nothing else.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gramercy.directories import data_home
from gramercy.errors import ImageStartError
from gramercy.images.project import SYSTEM_DIRECTORIES, work_tree
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# The program inside an image uses the syntax of this version.
OLDEST = (3, 11)
# The limit of pyvenv.cfg, which has five lines.
LARGEST_SETTINGS = 1 << 16
# The limit of the kernel (ELOOP).
MOST_LINKS = 40
# Of an ELF file: magic, class and byte order are its first 6 bytes, the machine is bytes 18 and 19.
ELF_HEADER_BYTES = 20
# Variables that name the user's own environment, in order of preference.
VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX")
SETTINGS, CONDA = "pyvenv.cfg", "conda-meta"
_PROGRAM = re.compile(r"python(?:3(?:\.(?P<minor>\d{1,3}))?)?(?P<flags>[td]{0,2})")
_LIBRARY = re.compile(r"libpython3[.\w]*\.so[.\d]*")
_AGAIN = "make the environment again"


class Interpreter(msgspec.Struct, frozen=True):
    """A Python to start. `program` is the path by which it finds its `environment`, with links unresolved.

    `origin` says where it was found. `places` are (real path, name) of the files it reads outside of its
    environment.
    """

    program: Path
    version: tuple[int, int]
    origin: str
    environment: Path | None = None
    packages: tuple[Path, ...] = ()
    places: tuple[tuple[Path, Path], ...] = ()

    @property
    def title(self) -> str:
        """Version, directory and origin, for people."""
        where = self.environment or self.program
        return f"Python {self.version[0]}.{self.version[1]} of {where} ({self.origin})"


def find_environment(project: Path | None) -> tuple[Interpreter | None, tuple[str, ...]]:
    """Return the first usable environment of project or user, and the problems of those before it."""
    wrong: list[str] = []
    for place, origin in _candidates(project):
        try:
            if project is not None and origin not in VARIABLES:
                _check_inside(place, project)
            return environment_at(place, origin), tuple(wrong)
        except ImageStartError as error:
            wrong.append(f"{origin} is not used: {error}.")
    return None, tuple(wrong)


def _candidates(project: Path | None) -> Iterator[tuple[Path, str]]:
    for name in (".venv", "venv") if project is not None else ():
        place = Path(project or "", name)
        # Another directory of that name is skipped. A dangling link was meant as an environment.
        if is_environment(place) or os.path.lexists(place / "bin" / "python") or _is_dangling(place):
            yield place, name
    for name in VARIABLES:
        told = os.environ.get(name)
        if told:
            yield Path(told).expanduser(), name


def is_environment(directory: Path) -> bool:
    """Tell whether a directory is a virtual environment or one of conda."""
    return (directory / SETTINGS).is_file() or (directory / CONDA).is_dir()


def _is_dangling(place: Path) -> bool:
    return place.is_symlink() and not place.exists()


def _check_inside(place: Path, project: Path) -> None:
    """Refuse a link that leads out of the project: only the user may grant paths outside."""
    real = place.resolve()
    if not real.is_relative_to(work_tree(project) or project):
        raise ImageStartError(
            f"it leads to {real}, outside of the project: if that is yours, say --python {real}"
        )


def environment_at(directory: Path, origin: str) -> Interpreter:
    """Return the interpreter of an environment, or raise with its problem."""
    # Only the directory is resolved: Python finds its environment by the unresolved path of the program.
    root = directory.resolve()
    if not root.is_dir():
        raise ImageStartError(f"there is no directory {root}")
    _check_root(root)
    names = (root / "bin" / name for name in ("python", "python3"))
    program = next((name for name in names if os.path.lexists(name)), None)
    if program is None:
        raise ImageStartError(f"{root} has no bin/python: {_AGAIN}")
    if (root / CONDA).is_dir():
        return _conda(root, program, origin)
    if not (root / SETTINGS).is_file():
        return interpreter_at(program, origin)
    return _virtual(root, program, origin)


def _check_root(root: Path) -> None:
    home = Path.home().resolve()
    if root == home or root in home.parents or (root in SYSTEM_DIRECTORIES and is_environment(root)):
        raise ImageStartError(f"{root} cannot be an environment: all that is in it would be readable")


def _virtual(root: Path, program: Path, origin: str) -> Interpreter:
    real = _real_program(program)
    told = _settings(root / SETTINGS)
    home = Path(told.get("home", ""))
    if not home.is_absolute():
        raise ImageStartError(f"{root / SETTINGS} does not say where its Python is (home = ...): {_AGAIN}")
    version = _version(real, told)
    base = Path(os.path.normpath(home.parent))
    libraries = _libraries(base, version)
    if not libraries:
        name = f"Python {version[0]}.{version[1]}"
        raise ImageStartError(f"the {name} that {root} was made with is not in {home} any more: {_AGAIN}")
    names = [*_chain(program), home / real.name, real]
    places = _pieces(real, names, version, {base, *(name.parent.parent for name in names)})
    packages = tuple(root / "lib" / library.name / "site-packages" for library in libraries[:1])
    outer = (place for place in places if not place[1].is_relative_to(root))
    return Interpreter(program, version, origin, root, packages, tuple(outer))


def _conda(root: Path, program: Path, origin: str) -> Interpreter:
    """Return a conda environment, which is a whole installation with its own libraries."""
    real = _real_program(program)
    version = _version(real, {})
    libraries = _libraries(root, version)
    if not libraries:
        raise ImageStartError(f"{root} has no standard library of Python {version[0]}.{version[1]}: {_AGAIN}")
    return Interpreter(program, version, origin, root, (libraries[0] / "site-packages",))


def interpreter_at(program: Path, origin: str) -> Interpreter:
    """Return the interpreter for a file, with its environment if it belongs to one."""
    if is_environment(root := program.parent.parent):
        return environment_at(root, origin)
    real = _real_program(program)
    version = _version(real, {})
    root = real.parent.parent
    libraries = _libraries(root, version)
    if not libraries:
        raise ImageStartError(
            f"{program} is not a Python that can be used: "
            f"{root / 'lib'} has no standard library of {version[0]}.{version[1]}"
        )
    places = _pieces(real, [real], version, {root})
    packages = tuple(library / "site-packages" for library in libraries[:1])
    return Interpreter(real, version, origin, None, packages, tuple(places))


def _real_program(program: Path) -> Path:
    real = Path(os.path.realpath(program))
    if not real.is_file():
        leads = f"leads to {real}, which" if real != program else "is no file: it"
        raise ImageStartError(f"{program} {leads} is not there: install that Python again or {_AGAIN}")
    if not _PROGRAM.fullmatch(real.name):
        raise ImageStartError(f"{program} is not a Python that can be used: it is {real}, not python3")
    if not _is_of_this_machine(real):
        machine = os.uname().machine
        raise ImageStartError(
            f"{program} is not a Python that can be used: {real} is no program for {machine}"
        )
    return real


def _is_of_this_machine(program: Path) -> bool:
    own = _header(Path(os.path.realpath(sys.executable)))
    return own[:4] != b"\x7fELF" or _kind(_header(program)) == _kind(own)


def _kind(header: bytes) -> tuple[bytes, bytes]:
    """Return the parts of an ELF header with the word size, the byte order and the machine."""
    return header[:6], header[18:20]


def _header(program: Path) -> bytes:
    try:
        with program.open("rb") as file:
            return file.read(ELF_HEADER_BYTES)
    except OSError:
        return b""


def _settings(file: Path) -> dict[str, str]:
    """Parse the `key = value` lines of pyvenv.cfg. O_NONBLOCK, since a project may have a FIFO there."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as source:
            is_plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
            text = source.read(LARGEST_SETTINGS).decode("utf-8", "replace") if is_plain else ""
    except OSError as error:
        raise ImageStartError(f"{file} cannot be read: {reason_of(error)}") from None
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _version(real: Path, told: dict[str, str]) -> tuple[int, int]:
    """Return the version: from the name of the real program, pyvenv.cfg, or the library beside it."""
    minor = next(_minors(real, told), None)
    if minor is None:
        raise ImageStartError(
            f"{real} does not tell which version it is: say --python with another name of it"
        )
    if (3, minor) < OLDEST:
        raise ImageStartError(f"{real} is Python 3.{minor}: 3.11 or newer is needed")
    return 3, minor


def _minors(real: Path, told: dict[str, str]) -> Iterator[int]:
    named = _PROGRAM.fullmatch(real.name)
    if named and named["minor"]:
        yield int(named["minor"])
    for key in ("version", "version_info"):
        if found := re.match(r"3\.(\d{1,3})\b", told.get(key, "")):
            yield int(found[1])
    yield from sorted(
        int(found[1])
        for path in real.parent.parent.glob("lib/python3.*")
        if (found := re.fullmatch(r"python3\.(\d{1,3})t?", path.name)) and (path / "os.py").is_file()
    )


def _libraries(root: Path, version: tuple[int, int]) -> list[Path]:
    """Return the standard library of an installation, which some distributions split over lib and lib64."""
    name = f"python{version[0]}.{version[1]}"
    found = [root / lib / each for lib in ("lib", "lib64") for each in (name, f"{name}t")]
    found = [path for path in found if path.resolve().name in (name, f"{name}t") and path.is_dir()]
    has_core = any((path / "os.py").is_file() and (path / "encodings").is_dir() for path in found)
    return found if has_core else []


def _chain(program: Path) -> list[Path]:
    """Return every path that a chain of links goes through."""
    names = [program]
    while names[-1].is_symlink() and len(names) < MOST_LINKS:
        last = names[-1]
        target = last.readlink()
        # `..` is relative to the real directory.
        start = Path(os.path.realpath(last.parent)) if os.pardir in target.parts else last.parent
        names.append(Path(os.path.normpath(start / target)))
    return names


def _pieces(
    real: Path, names: Iterable[Path], version: tuple[int, int], roots: Iterable[Path]
) -> list[tuple[Path, Path]]:
    """Return (real path, name) of the parts of an installation, under each name by which it is opened."""
    places = dict.fromkeys(names, real)
    for root in sorted(roots):
        for library in _libraries(root, version):
            places[library] = library.resolve()
        for library in sorted(root.glob("lib/libpython3*.so*")):
            if _LIBRARY.fullmatch(library.resolve().name):
                places[library] = library.resolve()
    both = dict(places)
    both.update({source: source for source in places.values()})
    return [
        (source, name) for name, source in both.items() if not name.is_relative_to("/usr") and source.exists()
    ]


@cache
def own_interpreter() -> Interpreter:
    """Return the interpreter of this process, without any environment and without packages."""
    program = Path(os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable))
    homes = {Path(sys.base_prefix).resolve(), Path(sys.base_exec_prefix).resolve(), program}
    outer = sorted(home for home in homes if home != Path("/") and not home.is_relative_to("/usr"))
    return Interpreter(
        program, sys.version_info[:2], "that of gramercy", places=tuple((home, home) for home in outer)
    )


SHIMS = "shims"
_VERSION = re.compile(r"(?:python)?(?P<version>3(?:\.\d{1,3}(?:\.\d{1,3})?)?)?(?P<flag>t?)")
_EXPECTED = "expected an interpreter, the directory of an environment, or a version such as 3.12"


def chosen_interpreter(word: str, origin: str = "chosen") -> Interpreter:
    """Return the interpreter that the user means by a path, an environment or a version such as 3.12."""
    path = Path(word).expanduser()
    if path.is_dir():
        return environment_at(path, origin)
    if "/" in word:
        if not os.path.lexists(path):
            raise ImageStartError(f"there is no {path}: {_EXPECTED}")
        return interpreter_at(_behind_shim(path.absolute()), origin)
    wanted = _VERSION.fullmatch(word)
    if wanted is None:
        raise ImageStartError(f"{word!r:.80} is no Python that is known: {_EXPECTED}")
    version = wanted["version"] or "3"
    for program in _installed(version, wanted["flag"]):
        return interpreter_at(program, f"{origin} as {word}")
    there = ", ".join(
        sorted({program.name[6:] for program in _installed("3", wanted["flag"], every=True)}, key=_order)
    )
    others = f"; there are {there}" if there else ""
    raise ImageStartError(f"there is no Python {version} on PATH, nor among those of pyenv and uv{others}")


def _installed(version: str, flag: str, *, every: bool = False) -> Iterator[Path]:
    """Yield the programs of a version: on PATH, then of pyenv and uv, newest first. 3.12.1 only of those."""
    name = "python3.*" if every else f"python{'.'.join(version.split('.')[:2])}{flag}"
    is_full = version.count(".") > 1
    for directory in os.environ.get("PATH", "").split(os.pathsep) if not is_full else ():
        found = Path(directory).glob(name) if directory else ()
        yield from (_behind_shim(program) for program in found if _is_plain(program))
    wanted = re.compile(rf"(?:cpython-)?{re.escape(version)}(?![\d])")
    kept = [path for home in _homes() for path in home.glob("*") if wanted.match(path.name)]
    for path in sorted(kept, key=lambda path: _order(path.name), reverse=True):
        yield from filter(_is_plain, path.glob(f"bin/{name}"))


def _is_plain(program: Path) -> bool:
    return bool(re.fullmatch(r"python3(\.\d+)?t?", program.name)) and os.access(program, os.X_OK)


def _order(name: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", name)))[:3]


def _homes() -> Iterator[Path]:
    """Yield the directories in which pyenv and uv keep versions."""
    if root := _pyenv():
        yield root / "versions"
    yield Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data_home() / "uv" / "python")


def _pyenv() -> Path | None:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return root if (root / "versions").is_dir() else None


def _pyenv_choice(root: Path) -> str:
    told = os.environ.get("PYENV_VERSION", "")
    if not told:
        try:
            told = (root / "version").read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return "-"
    first = (told.split() or ["-"])[0].partition(":")[0]
    return first if re.fullmatch(r"[\w.-]+", first) else "-"


def _behind_shim(program: Path) -> Path:
    """Return the interpreter that a pyenv shim would run: the shim itself is a script."""
    root = program.parent.parent
    if program.parent.name != SHIMS or not (root / "versions").is_dir():
        return program
    chosen = root / "versions" / _pyenv_choice(root) / "bin" / program.name
    if chosen.exists():
        return chosen
    version = program.name.removeprefix("python")
    found = [path for path in (root / "versions").glob(f"{version}.*/bin/{program.name}") if version]
    if not found:
        raise ImageStartError(f"{program} is a shim of pyenv, and no version of pyenv has {program.name}")
    return max(found, key=lambda path: _order(path.parent.parent.name))
