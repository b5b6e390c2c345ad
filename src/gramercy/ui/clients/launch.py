"""How this very gramercy is started by a program that has another directory, and maybe another PATH."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

# Where uv keeps the environments of `uvx`, which it may remove at any time.
_FLEETING = ("archive-v", "environments-v")


def own_command() -> list[str]:
    """Return the command that starts this gramercy, with absolute paths."""
    script = Path(sys.argv[0])
    if script.stem == "gramercy" and script.is_file() and os.access(script, os.X_OK):
        return [str(script.absolute())]
    return [sys.executable, "-m", "gramercy"]


def uvx_command(*, is_shared: bool) -> list[str]:
    """Return the command that lets uv fetch gramercy; in a file for others the name alone, else the path."""
    return ["uvx" if is_shared else shutil.which("uvx") or "uvx", "gramercy"]


def is_fleeting() -> bool:
    """Tell whether this gramercy may be gone tomorrow."""
    return any(part.startswith(_FLEETING) for part in Path(sys.prefix).parts)
