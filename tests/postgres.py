"""A real PostgreSQL server for tests, campaigns and measurements, on a socket in a directory of its own.

The programs are Debian's or those on the PATH. Nothing listens on the network, and no cluster of the machine
is touched.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

# A server starts within a second; one that recovers from a crash on a busy machine takes longer.
BOUND = 60.0
# What is written outlives the death of every process without these. Only a crash of the machine itself, which
# no test makes, would tell the difference; `durable` is for measurements with the disk.
HASTY = {"fsync": "off", "full_page_writes": "off"}
SETTINGS = {"listen_addresses": "", "shared_buffers": "32MB", "max_connections": "100", "timezone": "UTC"}
# The server refuses to run as root: these users exist where Debian's package is, and everywhere.
STAND_INS = ("postgres", "nobody")


def find_programs() -> Path | None:
    """Return the directory that has initdb and postgres, the newest of Debian's if there are several."""
    found = [Path(path).parent for path in (shutil.which("initdb"),) if path]
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    found += sorted(debian, key=lambda path: int(path.parent.name), reverse=True)
    return next((path for path in found if (path / "initdb").exists() and (path / "postgres").exists()), None)


def why_none() -> str:
    """Return why no server can be had here; nothing if one can."""
    if find_programs() is None:
        return "no PostgreSQL server on this machine: scripts/setup as root, or apt-get install postgresql"
    if _other_user() == "":
        return "PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody'"
    return ""


def _other_user() -> str | None:
    """Return as whom the server runs: nobody else if we are not root; empty where there is no one."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in STAND_INS if name in names), "")


class PostgresServer:
    """A server with its data in a scratch directory; it ends with the thread that started it."""

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        programs = find_programs()
        assert programs is not None, why_none()
        self._programs = programs
        # A socket's path has at most 107 characters, so it is not below a test's own directory.
        self.directory = Path(tempfile.mkdtemp(prefix="gramercy-pg-"))
        self._user = _other_user()
        self._settings = {**SETTINGS, **({} if durable else HASTY), **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._shared = ""
        if self._user:
            shutil.chown(self.directory, self._user)
        try:
            self._make()
            self.start()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        options = ["--username=gramercy", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        made = self._run([str(self._programs / "initdb"), *options, f"--pgdata={self.directory / 'data'}"])
        assert made.wait(BOUND) == 0, self.log()

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                # What the person at this machine has set for other servers.
                env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
                user=self._user,
                group=pwd.getpwnam(self._user).pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
            )

    @property
    def pid(self) -> int:
        """Return the process of the server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = {**self._settings, "unix_socket_directories": str(self.directory)}
        command = ["setpriv", "--pdeathsig", "QUIT", "--", str(self._programs / "postgres"), "-D"]
        command += [str(self.directory / "data"), *(f"--{name}={value}" for name, value in settings.items())]
        self._process = self._run(command)
        end = monotonic() + BOUND
        # The last line of this file says how far the server has come.
        while "ready" not in self._status():
            assert self._process.poll() is None, self.log()
            assert monotonic() < end, self.log()
            threading.Event().wait(0.005)

    def _status(self) -> str:
        try:
            lines = (self.directory / "data" / "postmaster.pid").read_text("utf-8").splitlines()
        except OSError:
            return ""
        return lines[-1] if lines and lines[0] == str(self.pid) else ""

    def log(self) -> str:
        """Return what the server has said."""
        return (self.directory / "log").read_text("utf-8", errors="replace")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT breaks off what runs, SIGQUIT is a crash, which the next start mends."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(BOUND)
            self._process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server and start it again."""
        self.stop(how)
        self.start()

    def address(self, database: str, socket: Path | None = None) -> str:
        """Return where a database is."""
        return f"postgresql://gramercy@/{database}?host={socket or self.directory}"

    def create(self) -> str:
        """Make an empty database and return its address."""
        import psycopg

        name = f"journal_{next(self._numbers)}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.address(name)

    def emptied(self) -> str:
        """Return the address of a database that has no journal, made once: that is quicker than a new one."""
        import psycopg

        if not self._shared:
            self._shared = self.create()
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        with psycopg.connect(self._shared, autocommit=True) as connection:
            # Connections of a test that has failed.
            connection.execute(f"SELECT pg_terminate_backend(pid) {others}".encode())
            connection.execute("SET client_min_messages = warning")
            connection.execute("DROP SCHEMA IF EXISTS gramercy CASCADE")
        return self._shared

    def close(self) -> None:
        """End the server and remove everything."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
