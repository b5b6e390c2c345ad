"""`gramercy trust`: look at files that evaluated code could have changed, and accept them."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from gramercy.images.trust import accept_file, accepted_content, doubtful_files
from gramercy.text import reveal
from gramercy.ui.cli.asking import is_confirmed, why_nobody
from gramercy.ui.cli.main import DENIED

# A person reads a file of tools or rules. For a longer difference they must open the file itself.
MOST_LINES = 2_000


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@click.option("--yes", is_flag=True, help="Accept without asking, what is shown.")
def trust(*, paths: tuple[Path, ...], yes: bool) -> int:
    """Show what changed in files that run or rule here, and accept them; without PATH, list them.

    Files with tools, policies and pins are known by their content. One that changed while an image of its
    project ran, which could have changed it, is not used before you have accepted it here.
    """
    if not paths:
        found = doubtful_files()
        for path in found:
            click.echo(reveal(str(path)))
        if not found:
            click.echo("nothing is in doubt", err=True)
        return 0
    for path in paths:
        if not path.exists() and accepted_content(path) is None:
            raise click.BadParameter(f"Path {str(path)!r} does not exist.", param_hint="'[PATH]...'")
    if not yes and (why := why_nobody()):
        raise click.UsageError(
            f"nobody can be asked here, since {why}: look at the files, then accept them with --yes"
        )
    refused = 0
    for path in (file for each in paths for file in _files(each)):
        click.echo(_difference(path))
        if yes or is_confirmed(f"accept {reveal(str(path))}?"):
            accept_file(path)
            click.echo(f"accepted {reveal(str(path))}", err=True)
        else:
            refused += 1
    return DENIED if refused else 0


def _files(path: Path) -> list[Path]:
    """Return the file itself, or the modules of a new package."""
    return [path] if not path.is_dir() else sorted(each for each in path.rglob("*") if each.is_file())


def _difference(path: Path) -> str:
    """Return the changes since the file was accepted, with hidden characters written out."""
    old = accepted_content(path)
    before = old.decode("utf-8", "replace").splitlines() if old is not None else []
    now = "now" if path.exists() else "gone"
    after = path.read_bytes().decode("utf-8", "replace").splitlines() if path.exists() else []
    source = "as accepted" if old is not None else "not accepted before"
    lines = list(difflib.unified_diff(before, after, f"{path} ({source})", f"{path} ({now})", lineterm=""))
    more = [f"... and {len(lines) - MOST_LINES:,} more lines: look at the file itself"]
    shown = lines[:MOST_LINES] + (more if len(lines) > MOST_LINES else [])
    return "\n".join(map(reveal, shown)) or f"{path} is as it was accepted"
