"""The folders that a client names as its roots. They are a stranger's words: each is read and checked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlsplit

from gramercy.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

# A client has a handful of folders open; more are not looked at.
MOST_FOLDERS = 50
LONGEST_URI = 4_000
LONGEST_SHOWN = 200
_THIS_MACHINE = frozenset({"", "localhost"})


def first_usable(roots: Iterable[object], check: Callable[[str], Path]) -> tuple[Path | None, str]:
    """Return the first root that `check` lets pass, and a sentence about what the client names."""
    named = list(roots)[:MOST_FOLDERS]
    problems = []
    for number, root in enumerate(named, 1):
        try:
            path = check(path_of(root))
        except SandboxError as error:
            problems.append(str(error))
            continue
        which = "the folder" if len(named) == 1 else f"folder {number} of the {len(named)}"
        skipped = f"; not {'; not '.join(problems)}" if problems else ""
        return path, f"The project is {path}, {which} that the client names (roots){skipped}."
    if not named:
        return None, "The client names no folder (roots)."
    return None, f"No folder that the client names (roots) can be a project: {'; '.join(problems)}."


def path_of(root: object) -> str:
    """Return the path that a root names, or say why it names none on this machine."""
    uri = root.get("uri") if isinstance(root, dict) else None
    if not isinstance(uri, str) or len(uri) > LONGEST_URI:
        raise SandboxError("a root has no uri, or one that is too long")
    shown = ascii(uri[:LONGEST_SHOWN])
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise SandboxError(f"the root {shown} is not a URI") from None
    if parts.scheme != "file" or parts.netloc.lower() not in _THIS_MACHINE:
        raise SandboxError(f"the root {shown} is not a file: URI of this machine")
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if not path.startswith("/") or "\0" in path or parts.query or parts.fragment:
        raise SandboxError(f"the root {shown} does not name a directory")
    return path
