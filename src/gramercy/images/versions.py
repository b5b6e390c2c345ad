"""Find the interpreter that a person means by a path, an environment or a version such as 3.12."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.errors import ImageStartError
from gramercy.images.interpreters import environment_at, interpreter_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.images.interpreters import Interpreter

SHIMS = "shims"
_VERSION = re.compile(r"(?:python)?(?P<version>3(?:\.\d{1,3}(?:\.\d{1,3})?)?)?(?P<flag>t?)")
_EXPECTED = "expected an interpreter, the directory of an environment, or a version such as 3.12"


def chosen_interpreter(word: str, origin: str = "chosen") -> Interpreter:
    """Return what the word means, or say why it cannot be used."""
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
    """Yield the programs of a version: on PATH, then the newest; one such as 3.12.1 by its directory."""
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
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    yield Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")


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
    """Return the interpreter that a shim of pyenv stands for: the shim is a script that runs pyenv."""
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
