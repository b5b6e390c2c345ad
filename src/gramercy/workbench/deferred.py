"""Images and offers that cost nothing before they are used.

Not a process is started for them, and what they need is not even imported.
"""

from __future__ import annotations

import contextlib
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gramercy.images.base import FRESH, Span
from gramercy.images.image import Image
from gramercy.images.requests import ChangedAt, Epoch, Jobs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from gramercy.execution.executor import Executor
    from gramercy.images.lines import Typist
    from gramercy.images.requests import Move, Question, Work
    from gramercy.images.views import ImageView
    from gramercy.mcp.catalogue import Catalog
    from gramercy.workbench.audit import Audit

R = TypeVar("R")

# What an image that was never used would answer.
FRESH_ANSWERS: dict[type, Callable[[], Any]] = {
    Jobs: list,
    Epoch: lambda: FRESH,
    ChangedAt: lambda: None,
}


class DeferredImage(Image):
    """An image that is opened when it is first used, but not for its name, its language or its end.

    `kind` is the kind of image that a plug-in has added, else the language.
    """

    name = ""
    language = ""

    def __init__(
        self, name: str, language: str, open_image: Callable[[str, str], Image], kind: str | None = None
    ) -> None:
        self.name = name
        self.language = language
        self._kind = kind or language
        self._open = open_image
        self._lock = threading.Lock()
        self._opened: Image | None = None

    def _image(self) -> Image:
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    self._opened = self._open(self.name, self._kind)
        return self._opened

    @property
    def was_used(self) -> bool:
        """Whether a call has used the image."""
        return self._opened is not None

    @property
    def capabilities(self) -> frozenset[str]:
        """What the image can do."""
        return self._image().capabilities

    def run(
        self,
        work: Work[R],
        *,
        timeout: float | None = None,
        watch: Callable[[Any], object] | None = None,
        typist: Typist | None = None,
    ) -> R:
        """Run work and wait for its reply."""
        return self._image().run(work, timeout=timeout, watch=watch, typist=typist)

    def arun(
        self,
        work: Work[R],
        *,
        timeout: float | None = None,
        watch: Callable[[Any], object] | None = None,
    ) -> Coroutine[Any, Any, R]:
        """Run work without holding up the event loop."""
        return self._image().arun(work, timeout=timeout, watch=watch)

    def begin(
        self,
        work: Work[R],
        *,
        timeout: float | None = None,
        watch: Callable[[Any], object] | None = None,
    ) -> R | Awaitable[R]:
        """Begin work on the event loop."""
        return (self._opened or self._image()).begin(work, timeout=timeout, watch=watch)

    def answer(self, question: Question[R]) -> R:
        """Answer a question; an image that was never used is not opened to say that it is fresh."""
        if self._opened is None and type(question) in FRESH_ANSWERS:
            return cast("R", FRESH_ANSWERS[type(question)]())
        return self._image().answer(question)

    def go(self, move: Move[R]) -> R:
        """Keep the present state, or go to another one."""
        return self._image().go(move)

    def look(self) -> ImageView:
        """Tell how the image is right now; one that was never used is not opened for it."""
        if self._opened is not None:
            return self._opened.look()
        from gramercy.images.views import ImageView

        return ImageView(self.name, self.language, "not started")

    def span(self) -> Span:
        """Return the state that the image is in; to ask it starts no image."""
        return Span() if self._opened is None else self._opened.span()

    def note_call(self, state: str, key: int) -> None:
        """Take note of the key of the call that led to a state."""
        self._image().note_call(state, key)

    def interrupt(self) -> bool:
        """Stop the evaluation under way, if any."""
        return self._opened is not None and self._opened.interrupt()

    def close(self) -> None:
        """End every process there is."""
        if self._opened is not None:
            self._opened.interrupt()
            self._opened.close()


def offers_of(
    images: Sequence[Image],
    executor: Executor,
    categories: Sequence[str] = (),
    audit: Callable[[], Audit] | None = None,
) -> Catalog:
    """Return what a server of images offers beside tools."""
    from gramercy.mcp.catalogue import Catalog

    def fill(catalog: Catalog) -> None:
        from gramercy.workbench.offers import add_offers

        add_offers(catalog, images, executor, categories, audit() if audit is not None else None)

    return Catalog(fill)


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
    with contextlib.suppress(Exception):  # the process is about to end
        image.close()
