"""Show strangers' text on a terminal without letting it move the cursor or hide itself."""

from __future__ import annotations

import json
import sys
from typing import Any

import click


def visible(text: str) -> str:
    """Escape everything that does not print, line breaks and tabs excepted."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def json_text(value: Any) -> str:
    """Write a value as indented JSON that is safe to show."""
    return visible(json.dumps(value, indent=2, ensure_ascii=False, default=repr))


def show(text: str, *, ends_line: bool = True) -> None:
    """Write to standard output; a terminal is protected from what evaluated code prints."""
    click.echo(visible(text) if sys.stdout.isatty() else text, nl=ends_line)


def tell(text: str) -> None:
    """Write to standard error what is about the work, not its result."""
    click.echo(visible(text), err=True)
