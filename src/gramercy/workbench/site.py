"""The working directory of images and file tools: the project, or a substitute where it is unusable.

Clients start servers in a home directory, in / or in a deleted directory. That is not an error: the first
folder that the client names takes its place, or else an empty directory, and the caller is told. The first
call decides, since the client can be asked only then.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlsplit

from gramercy.errors import ExecutionError, SandboxError
from gramercy.images.project import check_project, project_directory
from gramercy.tools.context import current_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from gramercy.images.processes import PrivateDirectory
    from gramercy.tools.context import Call

# The directory that a program was started in. The person may or may not have chosen it.
HERE = "."
# The client answers by itself, without asking its person.
ROOTS_SECONDS = 10.0
# Since this revision a question ends its request: the client sends the call again with its answer.
QUESTIONS_END_REQUESTS = "2026-07-28"
# A client has a handful of folders open. Further ones are ignored.
MOST_FOLDERS = 50
# The limit of a path on Linux (PATH_MAX is 4096). Of a longer or wrong one this much is repeated.
LONGEST_URI = 4_000
LONGEST_SHOWN = 200
_THIS_MACHINE = frozenset({"", "localhost"})


class Site:
    """The directory of one server, decided at once where the project can be used.

    With `asks_client` the folders of a client on this machine count where no project was named. `name` is the
    program that was started.
    """

    def __init__(
        self, project: str, *, sandbox: bool = True, asks_client: bool = False, name: str = "the server"
    ) -> None:
        self.trouble = ""
        self.note = ""
        # Called with the directory if it is decided later.
        self.when_decided: Callable[[Path], object] | None = None
        self._name = name
        self._check: Callable[[str], Path] = check_project if sandbox else project_directory
        # A client without an open folder, or one that does not know the variable, passes the variable itself.
        if not project or project.startswith("${"):
            project = HERE
        self._is_chosen = project != HERE
        self._asks_client = asks_client and not self._is_chosen
        self._path: Path | None = None
        self._spare: Path | None = None
        self._scratch: PrivateDirectory | None = None
        self._lock = threading.Lock()
        try:
            self._begin(self._check(project))
        except SandboxError as error:
            what = "the project cannot be used" if self._is_chosen else f"{name} was not started in a project"
            self.trouble = _sentence(f"{what}: {error}")

    def _begin(self, path: Path) -> None:
        """Try a directory. A read-only one is used only if the client names no better one."""
        if self._asks_client and not os.access(path, os.W_OK):
            self.trouble = _sentence(f"{self._name} was started in {path}, where nothing can be written")
            self._spare = path
        else:
            self._path = path

    @property
    def introduction(self) -> str:
        """The remark about the directory before the first call. Empty where there is no problem."""
        if not self.trouble:
            return ""
        where = f"in {self._spare or self._empty()}"
        if self._asks_client:
            where = f"in the first folder of the client (roots) that can be a project, else {where}"
            return f"{self.trouble} Images and file tools work {where}; the first reply says which."
        return f"{self.trouble} Images and file tools work {where}. {self._advice()}"

    async def settle(self) -> None:
        """Decide, after asking the client if its folders count."""
        if self._path is not None:
            return
        path, told = None, ""
        if self._asks_client:
            path, told = await self._folder_of_client(current_call())
        # Without a directory some tools may still work. The others report the problem.
        with suppress(SandboxError):
            self._decide(path, told)

    def path(self) -> Path:
        """Return the directory. If it is not decided yet, decide without the client."""
        if self._path is None:
            self._decide(None, "")
        assert self._path is not None  # noqa: S101 - decided just now
        return self._path

    def told(self) -> str:
        """Return the directory for the journal. Empty where it is not decided yet."""
        return "" if self._path is None else str(self._path)

    async def _folder_of_client(self, call: Call) -> tuple[Path | None, str]:
        if not call.can("roots"):
            return None, "The client names no folder (it declares no roots)."
        try:
            return first_usable(await _roots(call), self._check)
        except (ExecutionError, TimeoutError) as error:
            reason = str(error) or f"no answer came within {ROOTS_SECONDS:g} s"
            if (call.version or "") >= QUESTIONS_END_REQUESTS:
                call.fail(f"the folders of the client (roots) are needed: {reason}")
            return None, f"The client was asked for its folders (roots): {reason}."

    def _decide(self, path: Path | None, told: str) -> None:
        with self._lock:
            if self._path is not None:
                return
            if path is not None:
                self.note = f"{self.trouble} {told}"
            else:
                path = self._spare or self._scratch_directory()
                where = f"Images and file tools work in {path}{'' if self._spare else f', {self._empty()}'}."
                self.note = " ".join(filter(None, (self.trouble, told, where, self._advice())))
            self._path = path
            if self.when_decided is not None:
                self.when_decided(path)

    def _scratch_directory(self) -> Path:
        from gramercy.images.processes import PrivateDirectory

        try:
            self._scratch = self._scratch or PrivateDirectory()
            path = self._scratch.path / "project"
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise SandboxError(f"{self.trouble} No other directory can be made: {error}") from None
        return path.resolve()

    def _empty(self) -> str:
        return f"an empty directory that is removed when {self._name} ends"

    def _advice(self) -> str:
        ways = "with another --project DIR" if self._is_chosen else "in it or with --project DIR"
        told = f"To work in a project, start {self._name} {ways}"
        return f"{told}, or open its folder in a client that has roots." if self._asks_client else f"{told}."

    def close(self) -> None:
        """Remove the temporary directory."""
        if self._scratch is not None:
            self._scratch.remove()


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


async def _roots(call: Call) -> list[dict[str, object]]:
    if (call.version or "") >= QUESTIONS_END_REQUESTS:
        return await call.roots()
    async with asyncio.timeout(ROOTS_SECONDS):
        return await call.roots()


@contextmanager
def usable_project(project: str, *, sandbox: bool, tell: Callable[[str], object]) -> Iterator[str]:
    """Yield the project that a person named, or an empty directory where it is unusable."""
    if project != HERE:
        yield project
        return
    site = Site(project, sandbox=sandbox, name="gramercy")
    try:
        path = str(site.path())
        if site.note:
            tell(site.note)
        yield path
    finally:
        site.close()


def first_usable(roots: Iterable[object], check: Callable[[str], Path]) -> tuple[Path | None, str]:
    """Return the first root that passes `check`, and a sentence about the client's roots."""
    named = list(roots)[:MOST_FOLDERS]
    problems = []
    for number, root in enumerate(named, 1):
        try:
            path = check(path_of(root))
        except SandboxError as error:
            problems.append(str(error))
            continue
        which = "the folder" if len(named) == 1 else f"folder {number} of the {len(named)}"
        skipped = f"; not {'; not '.join(problems)}" if problems else ""
        return path, f"The project is {path}, {which} that the client names (roots){skipped}."
    if not named:
        return None, "The client names no folder (roots)."
    return None, f"No folder that the client names (roots) can be a project: {'; '.join(problems)}."


def path_of(root: object) -> str:
    """Return the path of a root, or raise why it is not one on this machine."""
    uri = root.get("uri") if isinstance(root, dict) else None
    if not isinstance(uri, str) or len(uri) > LONGEST_URI:
        raise SandboxError("a root has no uri, or one that is too long")
    shown = ascii(uri[:LONGEST_SHOWN])
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise SandboxError(f"the root {shown} is not a URI") from None
    if parts.scheme != "file" or parts.netloc.lower() not in _THIS_MACHINE:
        raise SandboxError(f"the root {shown} is not a file: URI of this machine")
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if not path.startswith("/") or "\0" in path or parts.query or parts.fragment:
        raise SandboxError(f"the root {shown} does not name a directory")
    return path
