"""The journal for the calls of a command or a server, and the timeouts of approvals."""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial
from pathlib import Path
from secrets import token_hex
from threading import Lock, Thread
from time import perf_counter, time
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from gramercy.errors import InvalidSettingError, JournalError
from gramercy.journal.base import MEMORY, NOTHING, SERVERS, Facts, NewCall, State
from gramercy.text import listed
from gramercy.tools.context import Call
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.execution.executor import Executor
    from gramercy.journal.base import Journal
    from gramercy.workbench.control import Control, Desk
    from gramercy.workbench.settings import Settings

# A person who is asked today may answer tomorrow.
EXPIRY_SECONDS = 86_400.0
DANGEROUS = Safety.DANGEROUS.value
DAY_SECONDS = 86_400.0
# Calls in doubt that are named on one line.
MOST_TOLD = 10


class Recording(msgspec.Struct, frozen=True):
    """The options of the journal. Without a `place` it is the user's own. `wait` has several defaults."""

    place: str | None = None
    wait: float | None = None
    expiry: float = EXPIRY_SECONDS
    mask: tuple[str, ...] = ()
    mask_patterns: tuple[str, ...] = ()
    retention: float | None = None

    def open(self, project: str | Path, tell: Callable[[str], object]) -> Journal:
        """Open the journal. If the default one cannot be opened, warn and record in memory."""
        from gramercy.journal.opening import open_journal

        if self.place is not None:
            _check_outside(self.place, project)
            return self._set(open_journal(self.place))
        try:
            return self._set(open_journal())
        except (JournalError, OSError, RuntimeError) as error:
            tell(
                "WARNING, calls are recorded in memory only, and cannot be approved from elsewhere: "
                f"{error} (--journal names another place)"
            )
            return open_journal(MEMORY)

    def _set(self, journal: Journal) -> Journal:
        """Tell the journal about further secrets. A journal in memory does not keep any for long."""
        if (self.mask or self.mask_patterns) and journal.run_directory is not None:
            from gramercy.journal.masking import Masking

            journal.masking = Masking(self.mask, self.mask_patterns)  # type: ignore[attr-defined]  # of a database
        return journal


class Ledger:
    """The journal of a serving process: opened and recovered at its start, and closed at its end.

    `told` is the message for the person who started it.
    """

    def __init__(self, recording: Recording, project: str) -> None:
        self.told: list[str] = []
        self.session = f"serve-{os.getpid()}-{token_hex(3)}"
        self.recording = recording
        self.journal = recording.open(project, self.told.append)
        # A journal that other processes can open outlives this one.
        self.is_lasting = self.journal.run_directory is not None
        self._lock = Lock()
        self._is_closed = False
        self._control: Control | None = None

    def signing_key(self) -> bytes | None:
        """Return the signing key for data that clients send back. None where a client cannot resume."""
        if not self.is_lasting:
            return None
        from gramercy.mcp.signing import kept_key

        return kept_key(os.environ)

    def wait_for_watchers(self, executor: Executor, project: Callable[[], str]) -> None:
        """Wait for decisions of other processes only while a person watches, unless a timeout is set.

        A person who watches a database from another machine is not known here.
        """
        if self.recording.wait is not None or (self.recording.place or "").startswith(SERVERS):
            return
        directory = self.journal.run_directory

        def is_looked_at() -> bool:
            # Only a question needs it.
            from gramercy.journal.watchers import is_watched

            return is_watched(directory, project())

        executor.settings.is_watched = is_looked_at

    def look_after(self, executor: Executor, desk: Callable[[], Desk], tell: Callable[[str], object]) -> None:
        """Recover calls of ended processes, and let a person act through this process.

        It runs on a thread: it waits for the disk, and no client should wait for that. A call of an ended
        process is recovered in any case when its client returns.
        """
        if self.is_lasting:
            work = partial(self._look_after, executor, desk, tell)
            Thread(target=work, name="gramercy-journal", daemon=True).start()

    def _look_after(
        self, executor: Executor, desk: Callable[[], Desk], tell: Callable[[str], object]
    ) -> None:
        self._open_control(desk, tell)
        try:
            executor.recover()
            # All of them, until a person has resolved them.
            found = self.journal.records([State.IN_DOUBT])
        except JournalError as error:
            if not self._is_closed:
                tell(f"WARNING, calls of earlier processes were not looked after: {error}")
            return
        # Report dangerous calls only: a person has approved those. An interrupted evaluation can be seen in
        # its image.
        doubtful = [str(record.key) for record in found if record.call.level == DANGEROUS]
        if doubtful:
            tell(
                f"in doubt, since they were cut off while they ran: {listed(doubtful, MOST_TOLD)} "
                "(gramercy approvals show KEY, then resolve)"
            )

    def tidy(self) -> Thread | None:
        """Delete contents after their retention, in the background of the server."""
        days = self.recording.retention
        if days is None or not self.is_lasting:
            return None
        thread = Thread(target=self._tidy, args=(days,), name="gramercy-retention", daemon=True)
        thread.start()
        return thread

    def _tidy(self, days: float) -> None:
        # No command needs these.
        import logging

        from gramercy.journal.audit import open_kept, prune

        try:
            # A separate connection, so that no call waits for it.
            with closing(open_kept(self.recording.place)) as journal:
                prune(journal, time() - days * DAY_SECONDS, f"retention of {days:g} days")
        except JournalError:
            logging.getLogger("gramercy.journal").exception("old contents were not deleted")

    def _open_control(self, desk: Callable[[], Desk], tell: Callable[[str], object]) -> None:
        """Let a person at another terminal act through this process."""
        from gramercy.workbench.control import Control

        directory = self.journal.run_directory
        try:
            with self._lock:
                if directory is not None and not self._is_closed:
                    self._control = Control(directory, desk().operations())
        except OSError as error:
            tell(f"WARNING, nobody can act through this server from another terminal: {error}")

    def close(self) -> None:
        """Close the journal."""
        with self._lock:
            self._is_closed = True
            if self._control is not None:
                self._control.close()
        self.journal.close()


def recording_of(settings: Settings) -> Recording:
    """Return the options of the journal from the settings."""
    return Recording(
        settings.journal,
        settings.approval_wait,
        settings.approval_expiry or EXPIRY_SECONDS,
        settings.mask,
        settings.mask_patterns,
        settings.retention,
    )


def _check_outside(place: str, project: str | Path) -> None:
    """Refuse a journal that code evaluated in the project could write."""
    if place == MEMORY or place.startswith(SERVERS):
        return
    if Path(place).resolve().is_relative_to(Path(project).resolve()):
        raise InvalidSettingError(
            f"the journal {place} is in the project {project}, where evaluated code could change it: name a "
            "place outside"
        )


def typed_call(tool: str, code: str, project: str | Path) -> NewCall:
    """Return the call for code that a person types at this terminal."""
    about = {"code": code}
    return NewCall("cli", tool, "cautious", about, client=f"gramercy {tool}", project=str(project))


class TypedCall(Call):
    """A call made by a command. Repeating the command resumes it."""

    __slots__ = ("_about", "_project")

    def __init__(self, tool: str, arguments: object, project: str | Path) -> None:
        self._project = str(Path(project).resolve())
        self._about = ["gramercy tools call", self._project, tool, arguments]

    @property
    def client(self) -> str:
        """The command."""
        return "gramercy tools call"

    @property
    def project(self) -> str:
        """The directory of the call."""
        return self._project

    @property
    def identity(self) -> str:
        """Equal for the same command in the same project."""
        from gramercy.mcp.signing import Signer, kept_key

        key = kept_key(os.environ)
        return "" if key is None else Signer(key).identity(self._about)


class Outcome(Protocol):
    """The result of an evaluation: whether it succeeded."""

    @property
    def ok(self) -> bool:
        """Whether there was no error."""


T = TypeVar("T", bound=Outcome)


def recorded(journal: Journal, call: NewCall, work: Callable[[], T]) -> T:
    """Evaluate code that a person has typed, and record it as a call."""
    key = journal.begin(call, State.EXECUTING)
    begun = perf_counter()

    def end(state: State, detail: str = "", where: Facts = NOTHING) -> None:
        elapsed_ms = (perf_counter() - begun) * 1000.0
        journal.move(key, state, replace(where, detail=detail, fence=1, elapsed_ms=elapsed_ms))

    try:
        outcome = work()
    except BaseException as error:
        # Ctrl-C, or an image that is gone. The person at the terminal has seen that, and need not resolve it.
        end(State.FAILED, f"{type(error).__name__}: {error}".removesuffix(": "))
        raise
    end(State.DONE if outcome.ok else State.FAILED, where=_where(outcome))
    return outcome


def _where(outcome: object) -> Facts:
    """Return where an evaluation ran, and which files it changed."""
    from gramercy.images.base import Reply
    from gramercy.toolsets.factory import listed_files

    if not isinstance(outcome, Reply):
        return NOTHING
    span = outcome.span
    return Facts(
        epoch=span.epoch,
        sandbox=span.sandbox,
        before=span.before,
        after=span.after,
        files=listed_files(outcome.files),
    )
