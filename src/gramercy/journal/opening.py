"""Open the journal that a setting names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.journal.memory import MemoryJournal

if TYPE_CHECKING:
    from gramercy.journal.base import Journal

MEMORY = "memory"


def default_place() -> Path:
    """Return the file of the user's journal: never in a project, whose files evaluated code can write."""
    told = os.environ.get("XDG_STATE_HOME", "")
    # The specification of these directories has relative paths ignored.
    base = Path(told) if told.startswith("/") else Path.home() / ".local" / "state"
    return base / "gramercy" / "journal.db"


def open_journal(where: str | Path | None = None) -> Journal:
    """Open a journal: a file, `postgresql://…`, or `memory`; without a place, the user's own."""
    if where == MEMORY:
        return MemoryJournal()
    if isinstance(where, str) and where.startswith(("postgresql://", "postgres://")):
        from gramercy.journal.postgres import PostgresJournal

        return PostgresJournal(where)
    # Imported when used: SQLite costs milliseconds that not every command has to pay.
    from gramercy.journal.sqlite import SqliteJournal

    return SqliteJournal(default_place() if where is None else Path(where).expanduser().absolute())
