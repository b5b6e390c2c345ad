"""Write into shared memory which edited file is being applied, before it runs: the process may die by it."""

from importlib.util import source_hash

from .following import File
from .protocol import encode
from .streams import Mirror


def mark(data: bytes | None) -> str:
    """Return a digest that distinguishes one text of a file from another."""
    return source_hash(data or b"").hex()


class Attempt:
    """The application of edited files, as the parent sees it."""

    def __init__(self, mirror: Mirror | None, files: list[File]) -> None:
        self._mirror = mirror
        self._marks = {file.path: mark(file.pending) for file in files}
        self.at(files[-1])

    def at(self, file: File, line: int = 0) -> None:
        """Record the file that is being applied now, and its line."""
        if self._mirror is not None:
            place = f"{file.shown}:{line}" if line else file.shown
            self._mirror.attempt(encode({"at": place, "marks": {file.path: self._marks.get(file.path, "")}}))

    def end(self) -> None:
        """Record that no file is being applied any more."""
        if self._mirror is not None:
            self._mirror.attempt(b"")
