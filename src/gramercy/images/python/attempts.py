"""Say in shared memory which edited file is taken up, before any of it runs: the process may end by that."""

from importlib.util import source_hash

from .following import File
from .protocol import encode
from .streams import Mirror


def mark(data: bytes | None) -> str:
    """Return what tells one text of a file from another."""
    return source_hash(data or b"").hex()


class Attempt:
    """The taking up of edited files, as the parent sees it."""

    def __init__(self, mirror: Mirror | None, files: list[File]) -> None:
        self._mirror = mirror
        self._marks = {file.path: mark(file.pending) for file in files}
        self.at(files[-1])

    def at(self, file: File, line: int = 0) -> None:
        """Say which file is taken up now, and which line of it."""
        if self._mirror is not None:
            place = f"{file.shown}:{line}" if line else file.shown
            self._mirror.attempt(encode({"at": place, "marks": {file.path: self._marks.get(file.path, "")}}))

    def end(self) -> None:
        """Say that nothing is taken up any more."""
        if self._mirror is not None:
            self._mirror.attempt(b"")
