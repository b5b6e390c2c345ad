"""Questions that are too long for the form of a client, as files that its person can open.

A file holds the whole question and ends with a code. A person who has not opened the file cannot give the
code, so an approval with the code approves the text of the file.
"""

from __future__ import annotations

import hmac
import os
import stat
import time
from secrets import choice, token_hex
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.directories import runtime_directory, state_home
from gramercy.errors import ExecutionError
from gramercy.execution.seal import digest_of_text
from gramercy.execution.shown import revealed
from gramercy.mcp.questions import REASON, Chosen, asked, gist_of, in_short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gramercy.execution.approval import ApprovalRequest
    from gramercy.mcp.questions import RuleOffers

# Without letters and digits that look alike: a person types them.
_LETTERS = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
# Files of a server that was killed while it asked; a person would have answered long before.
STALE_SECONDS = 86_400


class Nearby(msgspec.Struct, frozen=True):
    """Facilities that a server shares with clients on its own machine.

    `directory` is for files that the person can open. `environment` is the one in which the client started
    the server; it is empty if no client did. `rules` returns the rules by which a person can allow such calls
    from now on.
    """

    directory: Path | None = None
    environment: Mapping[str, str] = {}
    rules: Callable[[ApprovalRequest], RuleOffers | None] | None = None

    def write(self, text: str) -> QuestionFile | None:
        """Write a question to a file for its person; None if that is not possible."""
        try:
            return None if self.directory is None else _write(self.directory, text)
        except OSError:
            return None


class QuestionFile(msgspec.Struct, frozen=True):
    """A question in a file."""

    path: Path
    text: str
    code: str

    @property
    def digest(self) -> str:
        """The digest of the text."""
        return digest_of_text(self.text)

    def content(self) -> bytes:
        """Return the contents of the file."""
        end = (
            f"That is all of it, {len(self.text):,} characters with the SHA-256 {self.digest}.\n"
            f"To approve exactly this, give the code {self.code} in the form at your client.\n"
        )
        return f"{self.text}\n\n{end}".encode()

    def is_code(self, typed: str) -> bool:
        """Tell whether the typed text is the code."""
        given = "".join(typed.split()).replace("-", "").upper()
        return hmac.compare_digest(given.encode(), self.code.replace("-", "").encode())

    def is_intact(self) -> bool:
        """Tell whether the file still has the written contents."""
        try:
            return self.path.read_bytes() == self.content()
        except OSError:
            return False

    def withdraw(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)


CODE = {"type": "string", "title": "Code", "description": "From the end of the file; without it nothing runs"}


class FiledQuestion:
    """A question whose text is in a file; approving it requires the code from the file."""

    trouble = "Nothing was run yet:"
    wanted = "code of the file was"

    def __init__(self, request: ApprovalRequest, file: QuestionFile) -> None:
        self.asked = asked(request)
        self._file = file
        self.schema: dict[str, Any] = {"type": "object", "properties": {"code": CODE, "reason": REASON}}
        given = {name: value for name, value in request.arguments.items() if name not in request.told}
        size = f"{len(file.text):,} characters"
        lines = [
            f"Run {request.tool.name} ({request.tool.level_word})? {in_short(given)[0]}".rstrip(),
            f"Too long to be shown here ({size}). Read all of it in {file.path}",
            "and give the code from its end. Decline to deny; without the code nothing runs.",
            *gist_of(request.effect),
            f"SHA-256 of the text there: {file.digest}",
        ]
        self.text = revealed("\n".join(line.replace("\n", " ") for line in lines))

    def chosen(self, content: dict[str, Any]) -> Chosen:
        """Return the approval; raise an error that says what is missing."""
        if not self._file.is_code(str(content.get("code", ""))):
            raise ExecutionError("the code is not the one at the end of the file.")
        return Chosen(str(content.get("reason", "")).strip())


def _write(directory: Path, text: str) -> QuestionFile:
    """Write a file that no other user can read, in a directory that no other user can enter."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{directory} is not ours")
    if stat.S_IMODE(found.st_mode) & 0o077:
        directory.chmod(0o700)
    _clear(directory)
    letters = "".join(choice(_LETTERS) for _ in range(8))
    file = QuestionFile(directory / f"question-{token_hex(6)}.txt", text, f"{letters[:4]}-{letters[4:]}")
    descriptor = os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(file.content())
    return file


def _clear(directory: Path) -> None:
    before = time.time() - STALE_SECONDS
    for path in directory.glob("question-*.txt"):
        if path.lstat().st_mtime < before:
            path.unlink(missing_ok=True)


def question_directory(project: Path, environment: Mapping[str, str]) -> Path | None:
    """Return a directory for such files outside of a project; None if there is none."""
    runtime, state = runtime_directory(environment), state_home(environment)
    for base in (runtime, state, state_home({**environment, "XDG_STATE_HOME": ""})):
        if base is not None and not (base / "gramercy" / "questions").is_relative_to(project):
            return base / "gramercy" / "questions"
    return None
