"""The stores that are tortured: where a journal of each is, and how it is verified."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gramercy.journal.audit import verify_journal
from gramercy.journal.opening import open_journal
from tests import postgres
from tests.torture.model import JournalMachine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack


class Store:
    """A kind of journal, each time an empty one."""

    name = "sqlite"

    def place(self, folder: Path) -> str:
        """Name a new journal; `folder` is for those that are files."""
        return str(folder / "journal.db")

    def verify(self, where: str) -> str:
        """Return what is wrong with a journal, nothing if it proves itself."""
        journal = open_journal(where)
        try:
            return wrong_with(journal)
        finally:
            journal.close()

    def place_of_example(self, folder: Path) -> str:
        """Name the journal of one example of the model."""
        return self.place(folder)

    def machine(self) -> type[JournalMachine]:
        """Return the machine that holds such a journal against the model, one example after the other."""
        store = self

        class Machine(JournalMachine):
            def __init__(self) -> None:
                super().__init__()
                self.folder = Path(tempfile.mkdtemp(prefix="gramercy-model-"))
                self.where = store.place_of_example(self.folder)

            def open_one(self) -> Any:
                return open_journal(self.where)

            @staticmethod
            def verify(journal: Any) -> None:
                assert wrong_with(journal) == ""

            def teardown(self) -> None:
                try:
                    super().teardown()
                finally:
                    shutil.rmtree(self.folder, ignore_errors=True)

        return Machine


class PostgresStore(Store):
    """The same on PostgreSQL; one server for all of its journals."""

    name = "postgres"

    def __init__(self, server: postgres.PostgresServer) -> None:
        self._server = server
        self._shared = ""

    def place(self, folder: Path) -> str:
        del folder
        return self._server.create()

    def place_of_example(self, folder: Path) -> str:
        """Name the database that all examples share: to make one takes 8 MB, and longer than an example."""
        if not self._shared:
            self._shared = self.place(folder)
        return self._shared


def stores(name: str, stack: ExitStack) -> Iterator[Store]:
    """Start what is asked for; one that cannot be had here is told, and left out."""
    if name in ("sqlite", "all"):
        yield Store()
    if name in ("postgres", "all"):
        if why := postgres.why_none():
            sys.stderr.write(f"postgres is left out: {why}\n")
        else:
            yield PostgresStore(stack.enter_context(postgres.PostgresServer()))


def wrong_with(journal: Any) -> str:
    """Return what is wrong with a journal, nothing if it proves itself."""
    return "; ".join(map(str, verify_journal(journal).flaws[:3]))
