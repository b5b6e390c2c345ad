"""Complete names at the prompt. The image is asked for them: it looks them up and runs none of its code.

A prompt must never wait for this: an image that does not answer soon has no names to offer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gramercy.errors import GramercyError
from gramercy.ui.cli.background import in_background

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from gramercy.images.base import Answer
    from gramercy.images.live import LiveImage

SECONDS = 0.5
# When there are more, a part of them would be completed to what only that part has in common.
MOST_NAMES = 1000
DELIMITERS = {"sbcl": " \t\n()'`,\";#|\\", "python": " \t\n()[]{}=+-*/%&|^~<>,;@!\"'\\"}
_LISP_NAME = re.compile(r"(?:([^:]+)(::?))?([^:]+)")


class Completer:
    """What readline asks: the first, second, … way to complete a text, until there is none."""

    def __init__(self, image: LiveImage, language: str, package: Callable[[], str]) -> None:
        self._image = image
        self._package = package
        self._complete = self._lisp if language == "sbcl" else self._python
        self._asked: Future[Answer] | None = None
        self._found: list[str] = []

    def __call__(self, text: str, state: int) -> str | None:
        """Return one way to complete a text; where there is none yet, the key indents."""
        if state == 0:
            self._found = sorted(set(self._complete(text))) if text else ["\t"]
        return self._found[state] if state < len(self._found) else None

    def _python(self, text: str) -> list[str]:
        module, dot, start = text.rpartition(".")
        places = [module] if dot else ["__main__", "builtins"]
        names = [
            entry["name"].rpartition(".")[2] for place in places for entry in self._entries(start, place)
        ]
        return [f"{module}{dot}{name}" for name in names if name.startswith(start)]

    def _lisp(self, text: str) -> list[str]:
        parts = _LISP_NAME.fullmatch(text)
        if parts is None:
            return []
        package, colons, start = parts[1] or "", parts[2] or "", parts[3]
        names = [entry["name"] for entry in self._entries(start, package or self._package())]
        if package:
            # Only an own symbol is named with its package, and only an external one with a single colon.
            names = [name for name in names if colons in name and (colons == "::" or "::" not in name)]
        leaves = [name.rpartition(":")[2] for name in names]
        leaves = leaves if start != start.lower() else [leaf.lower() for leaf in leaves]
        return [f"{package}{colons}{leaf}" for leaf in leaves if leaf.startswith(start)]

    def _entries(self, pattern: str, place: str) -> list[dict[str, Any]]:
        if self._asked is not None and not self._asked.done():
            return []
        details = {"pattern": pattern, "package": place, "limit": MOST_NAMES}
        self._asked = in_background(lambda: self._image.ask("apropos", **details))
        try:
            data = self._asked.result(SECONDS).data
        except (TimeoutError, GramercyError):
            return []
        entries: list[dict[str, Any]] = data.get("matches", data.get("symbols", []))
        return entries if data.get("total", 0) <= len(entries) else []


def offer_names(completer: Completer, language: str) -> None:
    """Let the Tab key complete names, where there is line editing."""
    try:
        import readline
    except ImportError:
        return
    readline.set_completer(completer)
    readline.set_completer_delims(DELIMITERS[language])
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
