"""Editable installs of a Python environment: which directories its packages are really in.

Read as text: lines of `.pth` files, and the paths in the finders that setuptools writes. What lies outside of
the project is named by files of the project, so only the user can grant it; the git work tree around the
project may be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.images.protection import work_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LARGEST_FILE = 1 << 20
MOST_FILES = 1000
_QUOTED = re.compile(r"""['"](/[^'"\n]+)['"]""")


@dataclass(frozen=True, slots=True)
class Editables:
    """Directories that editable installs lead to: below the project, in its git work tree, or elsewhere."""

    inside: tuple[Path, ...] = ()
    beside: tuple[Path, ...] = ()
    outside: tuple[Path, ...] = ()


def find_editables(packages: Iterable[Path], project: Path | None, known: Iterable[Path] = ()) -> Editables:
    """Sort the directories that files in `packages` name; those below `known` places are at hand already."""
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
                    # A module of its own, not in a package: what is imported from is its directory.
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
