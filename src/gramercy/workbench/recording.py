"""Where the calls of a command or a server are recorded, and how long approvals are waited for."""

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
# Of the calls that are in doubt, on one line.
MOST_TOLD = 10


class Recording(msgspec.Struct, frozen=True):
    """What was set about the journal: without a `place` it is the user's own; `wait` has several defaults."""

    place: str | None = None
    wait: float | None = None
    expiry: float = EXPIRY_SECONDS
    mask: tuple[str, ...] = ()
    mask_patterns: tuple[str, ...] = ()
    retention: float | None = None

    def open(self, project: str | Path, tell: Callable[[str], object]) -> Journal:
        """Open the journal; where nobody has chosen one and the usual one cannot be had, say so and go on."""
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
        """Let the journal know what else is a secret; one in memory keeps none for long."""
        if (self.mask or self.mask_patterns) and journal.run_directory is not None:
            from gramercy.journal.masking import Masking

            journal.masking = Masking(self.mask, self.mask_patterns)  # type: ignore[attr-defined]  # of a database
        return journal


class Ledger:
    """The journal of a serving process: opened, looked after at the start, and closed with it.

    `told` is what the person should know who has started it.
    """

    def __init__(self, recording: Recording, project: str) -> None:
        self.told: list[str] = []
        self.session = f"serve-{os.getpid()}-{token_hex(3)}"
        self.recording = recording
        self.journal = recording.open(project, self.told.append)
        # What other processes can open outlives this one.
        self.is_lasting = self.journal.run_directory is not None
        self._lock = Lock()
        self._is_closed = False
        self._control: Control | None = None

    def signing_key(self) -> bytes | None:
        """Return the key of what clients bring back; None where there is nothing to come back to."""
        if not self.is_lasting:
            return None
        from gramercy.mcp.signing import kept_key

        return kept_key(os.environ)

    def wait_for_watchers(self, executor: Executor, project: Callable[[], str]) -> None:
        """Wait for decisions from elsewhere only while a person looks for questions, unless a time is set.

        Who looks at a database from another machine is not known here.
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
        """Look after calls of processes that are gone, and let a person act through this one.

        On a thread: it waits for the disk, and no client should wait for that. A call whose process is gone
        is looked after in any case when its client comes back.
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
        # An evaluation that was cut off is seen in its image; what is dangerous somebody has approved.
        doubtful = [str(record.key) for record in found if record.call.level == DANGEROUS]
        if doubtful:
            tell(
                f"in doubt, since they were cut off while they ran: {listed(doubtful, MOST_TOLD)} "
                "(gramercy approvals show KEY, then resolve)"
            )

    def tidy(self) -> Thread | None:
        """Delete contents that are older than they are to be kept, beside the work of the server."""
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
            # One of its own, so that no call waits for it.
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
        """Let go of the journal."""
        with self._lock:
            self._is_closed = True
            if self._control is not None:
                self._control.close()
        self.journal.close()


def recording_of(settings: Settings) -> Recording:
    """Return what the settings say about the journal."""
    return Recording(
        settings.journal,
        settings.approval_wait,
        settings.approval_expiry or EXPIRY_SECONDS,
        settings.mask,
        settings.mask_patterns,
        settings.retention,
    )


def _check_outside(place: str, project: str | Path) -> None:
    """Refuse a journal that code could write which is evaluated in the project."""
    if place == MEMORY or place.startswith(SERVERS):
        return
    if Path(place).resolve().is_relative_to(Path(project).resolve()):
        raise InvalidSettingError(
            f"the journal {place} is in the project {project}, where evaluated code could change it: name a "
            "place outside"
        )


def typed_call(tool: str, code: str, project: str | Path) -> NewCall:
    """Return the call that a person makes who types code at this terminal."""
    about = {"code": code}
    return NewCall("cli", tool, "cautious", about, client=f"gramercy {tool}", project=str(project))


class TypedCall(Call):
    """A call that is made with a command, and come back to by giving the command again."""

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
        """The directory that it is about."""
        return self._project

    @property
    def identity(self) -> str:
        """The same for the same command in the same project."""
        from gramercy.mcp.signing import Signer, kept_key

        key = kept_key(os.environ)
        return "" if key is None else Signer(key).identity(self._about)


class Outcome(Protocol):
    """What an evaluation gives: whether it went well."""

    @property
    def ok(self) -> bool:
        """Whether there was no error."""


T = TypeVar("T", bound=Outcome)


def recorded(journal: Journal, call: NewCall, work: Callable[[], T]) -> T:
    """Evaluate what a person has typed, and record it as the call that it is."""
    key = journal.begin(call, State.EXECUTING)
    begun = perf_counter()

    def end(state: State, detail: str = "", where: Facts = NOTHING) -> None:
        elapsed_ms = (perf_counter() - begun) * 1000.0
        journal.move(key, state, replace(where, detail=detail, fence=1, elapsed_ms=elapsed_ms))

    try:
        outcome = work()
    except BaseException as error:
        # Ctrl-C, or an image that is gone. Whoever typed it has seen that, and need not resolve it.
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
