"""Images that cost nothing before they are used: not a process, and not even the import of their code."""

from __future__ import annotations

import contextlib
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from gramercy.errors import ImageError
from gramercy.gram.suggestion import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from gramercy.images.base import Image
    from gramercy.images.live import LiveImage
    from gramercy.toolsets.workspace import Workspace

# As in the images room, which is not imported just to list them.
LANGUAGES = ("sbcl", "python")
LONGEST_NAME = 40


def read_image_names(words: Iterable[str]) -> dict[str, str]:
    """Read `LANGUAGE` or `NAME=LANGUAGE`, several times, into languages by name; no name may come twice."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, language = word.partition("=")
        language = language if equals else name
        _check_language(language, word)
        _check_name(name)
        if name in found:
            raise ImageError(
                f"two images are named {name}: give them names, "
                f"as in --image first={language} --image second={language}"
            )
        found[name] = language
    return found


def _check_language(language: str, word: str) -> None:
    if language not in LANGUAGES:
        close = suggest(language[:60], LANGUAGES)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {' and '.join(LANGUAGES)}"
        raise ImageError(f"there is no image language {language!r:.60} in {word!r:.80}: {hint}")


def _check_name(name: str) -> None:
    letters = name.replace("-", "").replace("_", "")
    if not (name[:1].isalpha() and letters.isalnum() and name.isascii() and len(name) <= LONGEST_NAME):
        raise ImageError(
            f"{name!r:.60} cannot name an image: expected letters, digits, - and _, at most {LONGEST_NAME}, "
            "beginning with a letter"
        )


class DeferredImage:
    """An image that is opened when it is first used, but not for its name, its language or its end."""

    def __init__(self, name: str, language: str, open_image: Callable[[str, str], LiveImage]) -> None:
        self.name = name
        self.language = language
        self._open = open_image
        self._lock = threading.Lock()
        self._image: LiveImage | None = None

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._image or self._opened(), attribute)

    def _opened(self) -> LiveImage:
        with self._lock:
            if self._image is None:
                self._image = self._open(self.name, self.language)
            return self._image

    @property
    def was_used(self) -> bool:
        """Whether somebody has used the image."""
        return self._image is not None

    def interrupt(self) -> bool:
        """Stop the evaluation under way, if any."""
        return self._image is not None and self._image.interrupt()

    def close(self) -> None:
        """End every process there is."""
        if self._image is not None:
            self._image.interrupt()
            self._image.close()


def deferred(name: str, language: str, open_image: Callable[[str, str], LiveImage]) -> Image:
    """Return an image that is opened when it is first used."""
    # What it does not define itself is found in the image when it is looked up.
    return cast("Image", DeferredImage(name, language, open_image))


class DeferredWorkspace:
    """A workspace whose directory is not known before it is used."""

    def __init__(self, find_root: Callable[[], Path]) -> None:
        self._find_root = find_root
        self._lock = threading.Lock()
        self._workspace: Workspace | None = None

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._workspace or self._made(), attribute)

    def _made(self) -> Workspace:
        from gramercy.toolsets.workspace import Workspace

        with self._lock:
            if self._workspace is None:
                self._workspace = Workspace(self._find_root())
            return self._workspace


def deferred_workspace(find_root: Callable[[], Path]) -> Workspace:
    """Return a workspace that finds its directory when it is first used."""
    return cast("Workspace", DeferredWorkspace(find_root))


def close_within(seconds: float, images: Iterable[Image]) -> None:
    """End images side by side and wait for that, at most so long.

    What is still busy then ends with this process, as every process of an image does.
    """
    threads = [threading.Thread(target=_close, args=(image,), daemon=True) for image in images]
    for thread in threads:
        thread.start()
    end = monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - monotonic()))


def _close(image: Image) -> None:
    with contextlib.suppress(Exception):  # nobody is left who could do something about it
        image.close()
