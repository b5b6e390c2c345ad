"""Pictures and tables at the terminal: tables as text, pictures in the terminal where it can, else in files.

A picture of evaluated code is written only after its bytes were recognized as one.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from base64 import b64encode
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gramercy.errors import GramercyError
from gramercy.images.base import Display
from gramercy.images.files.whole import whole_file
from gramercy.images.pictures import FORMATS, SVG, settled
from gramercy.text import reason_of
from gramercy.tools.content import ImageBlock
from gramercy.toolsets.rendering import displays_text
from gramercy.ui.cli.terminal import show, tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gramercy.images.base import Reply
    from gramercy.tools.content import Block

# The limit of kitty for one sequence.
KITTY_CHUNK = 4096
SETTING, TEMPORARY = "gramercy.pictures", "gramercy.pictures.temporary"
# Terminals with the protocol of kitty, and those with the protocol of iTerm2, by their TERM_PROGRAM.
KITTY_PROGRAMS = frozenset({"ghostty"})
ITERM_PROGRAMS = frozenset({"iTerm.app", "WezTerm", "mintty"})


class Graphics(StrEnum):
    """How a terminal shows pictures among its text."""

    KITTY = "kitty"
    ITERM = "iterm"


def _keep_directory(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[SETTING] = Path(value)


pictures_option = click.option(
    "--pictures",
    metavar="DIR",
    type=click.Path(file_okay=False),
    expose_value=False,
    callback=_keep_directory,
    help="Write pictures to files in DIR; by default they are shown in a terminal that can (kitty, Ghostty, "
    "iTerm2, WezTerm, mintty), else written to a temporary directory.",
)


def show_displays(reply: Reply) -> None:
    """Show the tables of an evaluation below its values, and its pictures."""
    if not reply.displays:
        return
    tables, _ = displays_text(reply)
    if tables and reply.error is None:
        show(tables.removeprefix("\n"))
    show_pictures(reply.displays)


def show_pictures(displays: Iterable[Display]) -> None:
    """Show pictures, or write them to files and say where."""
    folder: Path | None = click.get_current_context().meta.get(SETTING)
    graphics = terminal_graphics(os.environ) if folder is None and sys.stdout.isatty() else None
    for display in displays:
        if display.kind != "picture":
            continue
        shown = settled(display)
        note = f" ({shown.note})" if shown.note else ""
        if not shown.data:
            tell(f"{shown.text}{note}")
        elif graphics is not None and (sequences := drawn(graphics, shown)):
            click.echo(sequences)
            tell(f"{shown.text}{note}")
        else:
            tell(f"{shown.text}{note}: {_written(shown, display.text, folder or _temporary())}")


def show_blocks(blocks: Iterable[Block]) -> None:
    """Show the pictures among the blocks of a tool's result."""
    found = [block for block in blocks if isinstance(block, ImageBlock)]
    show_pictures(Display("picture", block.mime_type, block.data, "picture") for block in found)


def _temporary() -> Path:
    """Return a directory for this process. It stays: the person looks at the pictures afterwards."""
    meta = click.get_current_context().meta
    if TEMPORARY not in meta:
        meta[TEMPORARY] = Path(tempfile.mkdtemp(prefix="gramercy-pictures-"))
    made: Path = meta[TEMPORARY]
    return made


def terminal_graphics(environment: Mapping[str, str]) -> Graphics | None:
    """Derive from its environment how a terminal shows pictures, None where it does not.

    Inside of tmux and screen the variables describe the outer terminal, which would not get the sequences.
    """
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if "TMUX" in environment or term.startswith(("tmux", "screen", "dumb")):
        return None
    if program in ITERM_PROGRAMS or environment.get("LC_TERMINAL") == "iTerm2":
        return Graphics.ITERM
    if (
        program in KITTY_PROGRAMS
        or "KITTY_WINDOW_ID" in environment
        or term in {"xterm-kitty", "xterm-ghostty"}
    ):
        return Graphics.KITTY
    return None


def drawn(graphics: Graphics, picture: Display) -> str:
    """Return the control sequences that show a picture. Empty where the protocol cannot."""
    text = b64encode(picture.data).decode("ascii")
    if graphics is Graphics.ITERM and picture.mime != SVG:
        return f"\x1b]1337;File=inline=1;size={len(picture.data)};preserveAspectRatio=1:{text}\x07"
    if graphics is Graphics.KITTY and picture.mime == "image/png":
        return "".join(_kitty(text))
    return ""


def _kitty(text: str) -> Iterable[str]:
    for start in range(0, len(text), KITTY_CHUNK):
        more = int(start + KITTY_CHUNK < len(text))
        # Quiet (q=2): an answer of the terminal would be read as typed keys.
        control = f"a=T,f=100,q=2,m={more}" if start == 0 else f"m={more}"
        yield f"\x1b_G{control};{text[start : start + KITTY_CHUNK]}\x1b\\"


def _written(picture: Display, name: str, folder: Path) -> Path:
    """Write a picture to a new file and return its path."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "picture"
    ending = FORMATS[picture.mime].lower()
    number = 1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            path = folder / f"{words}{f'-{number}' if number > 1 else ''}.{ending}"
            try:
                with whole_file(path, is_new=True) as file:
                    file.write(picture.data)
            except FileExistsError:
                number += 1
            else:
                return path
    except OSError as error:
        raise GramercyError(f"a picture cannot be written to {folder}: {reason_of(error)}") from None
