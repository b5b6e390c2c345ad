"""Open the journal that a setting names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.directories import state_home
from gramercy.errors import JournalError
from gramercy.journal.base import MEMORY, SERVERS
from gramercy.journal.bells import own_directory
from gramercy.journal.memory import MemoryJournal
from gramercy.text import reason_of

if TYPE_CHECKING:
    from gramercy.journal.base import Journal


def default_place() -> Path:
    """Return the file of the user's journal."""
    return state_home() / "gramercy" / "journal.db"


# Import a store only when a setting names it: each costs milliseconds that not every command has to pay.
def open_journal(where: str | Path | None = None, *, project: Path | None = None) -> Journal:
    """Open a journal: a file, `postgresql://…`, or `memory`; without a place, the user's own.

    A file inside of `project` is refused, since evaluated code can write there.
    """
    if where == MEMORY:
        return MemoryJournal()
    if isinstance(where, str) and where.startswith(SERVERS):
        from gramercy.journal.postgres import PostgresJournal

        return PostgresJournal(where)
    if isinstance(where, str) and "://" in where:
        scheme = where.partition("://")[0]
        raise JournalError(f"{scheme}:// is no journal: expected a file, postgresql://…, or memory")
    path = default_place() if where is None else Path(where).expanduser().absolute()
    _check_place(path, project)
    if where is None:
        try:
            own_directory(path.parent)
        except OSError as error:
            raise JournalError(f"the journal {path} cannot be written: {reason_of(error)}") from error
    from gramercy.journal.sqlite import SqliteJournal

    return SqliteJournal(path)


def _check_place(path: Path, project: Path | None) -> None:
    if project is not None and path.resolve().is_relative_to(project.resolve()):
        raise JournalError(
            f"the journal {path} is inside the project {project}, whose files evaluated code can write: "
            "name a file outside of it"
        )
