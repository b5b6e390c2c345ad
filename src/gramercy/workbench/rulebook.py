"""The rules in force in one server: read at its start, and again when the person changes a file of theirs.

The files of the project count as they were when the server came to it: evaluated code can have changed them
since, and only the next start can tell whether it has.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from gramercy.errors import GramercyError
from gramercy.execution.policy import Policy
from gramercy.workbench.policies import read_policies, user_policy_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.execution.executor import Executor
    from gramercy.workbench.policies import Policies

# A person who has written a rule goes back to the client and tries again: that takes longer.
LOOK_SECONDS = 1.0


class Rulebook:
    """The layers of a server whose project may become known later; `tell` gets lines for the person."""

    def __init__(self, project: Path | None, given: str | None, tell: Callable[[str], object]) -> None:
        self.policies: Policies = read_policies(project, given)
        self._given = given
        self._tell = tell
        self._executor: Executor | None = None
        self._used: tuple[object, ...] = ()
        self._marks = self._look()
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    @property
    def policy(self) -> Policy:
        """What the layers are together."""
        return self.policies.policy

    def serve(self, executor: Executor) -> None:
        """Keep the policy of an executor up to date until `close`."""
        self._executor = executor
        self._used = _identity(self.policy)
        threading.Thread(target=self._watch, name="gramercy-rules", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._is_over.set()

    def move(self, project: Path) -> None:
        """Take over the rules of a project that was not known at the start; if they cannot be read, deny."""
        try:
            with self._lock:
                self.policies = read_policies(project, self._given)
                self._use(self.policies.policy)
        except GramercyError as error:
            self._tell(str(error))
            self._use(Policy([{"action": "deny", "reason": str(error)}]))

    def read_again(self) -> None:
        """Take over what the person's own files say now; where that cannot be used, the old rules stay."""
        try:
            with self._lock:
                self._marks = self._look()
                self.policies = read_policies(self.policies.project, self._given, before=self.policies)
                if self._use(self.policy):
                    count = len(self.policy.rules)
                    told = f"{count} {'is' if count == 1 else 'are'} in force"
                    self._tell(f"the rules were read again: {told}")
        except GramercyError as error:
            self._tell(f"the rules before stay in force: {error}")

    def _use(self, policy: Policy) -> bool:
        """Give the executor other rules; not for nothing, since clients are then told to list the tools."""
        if self._executor is None or _identity(policy) == self._used:
            return False
        self._executor.policy = policy
        self._used = _identity(policy)
        return True

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            if self._look() != self._marks:
                self.read_again()

    def _look(self) -> list[tuple[int, ...]]:
        """Return by what a change of the person's files is noticed."""
        files = [user_policy_file(), *([Path(self._given)] if self._given else [])]
        return [_mark(file) for file in files]


def _mark(file: Path) -> tuple[int, ...]:
    try:
        found = os.stat(file)  # noqa: PTH116 - once a second
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _identity(policy: Policy) -> tuple[object, ...]:
    """Return what verdicts depend on, also where they say that a rule stands."""
    return policy.version, *(rule.origin for rule in policy.rules)
