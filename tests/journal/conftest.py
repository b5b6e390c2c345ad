"""What the tests of the journal share: a PostgreSQL server for each worker, an empty database for a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.postgres import PostgresServer, why_none

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Return a server that the tests of this worker share; one that stops it uses a server of its own."""
    if reason := why_none():
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_address(postgres_server: PostgresServer) -> str:
    """Return the address of an empty database."""
    return postgres_server.emptied()
