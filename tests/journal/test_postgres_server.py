"""The server that the tests start is real, keeps what was committed, and leaves nothing behind."""

import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.postgres import PostgresServer, why_none
from tests.support import BOUND, until

START = """
from tests.postgres import PostgresServer
server = PostgresServer()
print(server.pid, server.directory, flush=True)
input()
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_what_was_committed_is_there_after_a_restart(how):
    if reason := why_none():
        pytest.skip(reason)
    with PostgresServer() as server:
        address = server.create()
        with psycopg.connect(address) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        server.restart(how)
        with psycopg.connect(address) as connection:
            assert connection.execute("SELECT number FROM kept").fetchone() == (7,)
    assert not server.directory.exists()


def test_the_server_ends_with_the_process_that_started_it():
    if reason := why_none():
        pytest.skip(reason)
    command = [sys.executable, "-c", START]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid, directory = starter.stdout.readline().split()
        try:
            starter.kill()
            until(lambda: not Path("/proc", pid).exists())
        finally:
            subprocess.run(["rm", "-rf", directory], check=True, timeout=BOUND)
