"""The source texts of the evaluations, so that tracebacks and `inspect.getsource` can show lines.

Bounded by characters: the oldest texts go first. It knows text only, no code and no frames.
"""

import linecache

_KEPT = 16 * 1024 * 1024
# What a text costs besides its characters; most are short.
_EACH = 512


class Sources:
    """Texts by their made-up file names."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._size = 0
        self._count = 0

    def add(self, text: str) -> str:
        """Keep the text and return the file name it goes by."""
        self._count += 1
        name = f"<image {self._count}>"
        lines = text.splitlines(keepends=True)
        self._texts[name] = lines
        self._size += len(text) + _EACH
        while self._size > _KEPT and len(self._texts) > 1:
            self._drop(next(iter(self._texts)))
        self._publish(name, text, lines)
        return name

    def line(self, name: str, number: int | None) -> str:
        """Return one line, stripped; nothing when it is not known."""
        return self.raw_line(name, number).strip()

    def raw_line(self, name: str, number: int | None) -> str:
        """Return one line as it was sent, so that a column counts in it."""
        lines = self._texts.get(name)
        if lines is None or number is None or not 0 < number <= len(lines):
            return ""
        return lines[number - 1]

    def has(self, name: str) -> bool:
        """Say whether the file name is one of ours."""
        return name in self._texts

    def _drop(self, name: str) -> None:
        self._size -= sum(map(len, self._texts.pop(name))) + _EACH
        self._published().pop(name, None)

    def _publish(self, name: str, text: str, lines: list[str]) -> None:
        self._published()[name] = (len(text), None, lines, name)

    @staticmethod
    def _published() -> dict[str, object]:
        cache = getattr(linecache, "cache", None)
        return cache if type(cache) is dict else {}
