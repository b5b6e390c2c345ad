"""Images that callers open: each has an unguessable handle, belongs to its caller, and is closed when idle.

The handle is not tied to a connection: the same caller may use it in another one.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from gramercy.errors import ImageError
from gramercy.images.environment import LANGUAGES
from gramercy.tools.content import ToolOutput
from gramercy.tools.context import current_call
from gramercy.toolsets.factory import Workshop, array_of, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.images.image import Image
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.factory import ImageSource

# For each caller. An image with its checkpoints takes some hundred megabytes.
MOST_OPEN = 8
# Long enough for a person to return from a meeting. A waiting image holds memory.
IDLE_SECONDS = 3600.0
# 96 bits: only the handle protects an image from other callers, so it must not be guessable.
HANDLE_OCTETS = 12


@dataclass(slots=True, eq=False)
class OpenedImage:
    """An image with the caller that opened it and the time of its last use."""

    image: Image
    owner: str
    used: float


def _works(image: Image) -> bool:
    return any(job.state == "running" for job in image.jobs())


class OpenedImages:
    """A source of the images that all callers share, and of those that single callers open.

    The number of open images per caller is limited, and idle ones are closed.
    """

    accepts_more = True

    def __init__(
        self,
        shared: ImageSource,
        open_image: Callable[[str, str], Image],
        *,
        most: int = MOST_OPEN,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._shared = shared
        self._open_image = open_image
        self._most = most
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._opened: dict[str, OpenedImage] = {}

    def get(self, handle: str | None = None) -> Image:
        """Return the image of that handle. A handle of another caller is unknown."""
        self.close_idle()
        if handle is None or handle in self._shared.handles():
            return self._shared.get(handle)
        return self._own(handle).image

    def handles(self) -> list[str]:
        """List the handles of the shared images, the default first."""
        return self._shared.handles()

    def own_handles(self) -> list[tuple[str, str]]:
        """List the handles of the current caller, with their languages."""
        self.close_idle()
        owner = current_call().principal
        with self._lock:
            return [
                (handle, each.image.language) for handle, each in self._opened.items() if each.owner == owner
            ]

    def open(self, language: str) -> str:
        """Open an image for the current caller and return its handle."""
        self.close_idle()
        owner = current_call().principal
        handle = f"{language}-{secrets.token_urlsafe(HANDLE_OCTETS)}"
        with self._lock:
            have = sum(each.owner == owner for each in self._opened.values())
            if have >= self._most:
                raise ImageError(
                    f"{have} images are open, and there may be no more: close one with close_image first"
                )
            self._opened[handle] = OpenedImage(self._open_image(handle, language), owner, monotonic())
        return handle

    def close(self, handle: str) -> None:
        """End an image of the current caller."""
        if handle in self._shared.handles():
            raise ImageError(
                f"{handle} is there for everybody and cannot be closed: reset-session empties it"
            )
        self._own(handle)
        self._end(handle)

    def close_idle(self) -> None:
        """End the images that were idle for too long and run no job."""
        now = monotonic()
        with self._lock:
            idle = [
                (name, each) for name, each in self._opened.items() if now - each.used > self._idle_seconds
            ]
        for handle in [name for name, each in idle if not _works(each.image)]:
            self._end(handle)

    def opened(self) -> tuple[Image, ...]:
        """Return the images of every caller, for a server that ends them all."""
        with self._lock:
            return tuple(each.image for each in self._opened.values())

    def _own(self, handle: str) -> OpenedImage:
        with self._lock:
            found = self._opened.get(handle)
            if found is None or found.owner != current_call().principal:
                raise ImageError(
                    f"there is no image {handle[:60]!r}: there are {', '.join(self.handles())}, and what "
                    "open_image returns; an image that is not used for long is closed"
                )
            found.used = monotonic()
            return found

    def _end(self, handle: str) -> None:
        with self._lock:
            gone = self._opened.pop(handle, None)
        if gone is not None:
            gone.image.interrupt()
            gone.image.close()


def opened_image_tools(images: OpenedImages) -> list[Tool]:
    """Make the three tools that open, list and close images."""
    # These tools take a handle as their subject, so they need no image argument.
    workshop = Workshop(_Nothing())
    handle = text("Handle of the image, as open_image returned it", minLength=1)
    return [
        workshop.make(
            "open_image",
            "Open a fresh image of your own, beside those that are there. Returns a handle: give it as the "
            "argument image of other tools. Use it to try things out without touching the shared image.",
            {"language": text("sbcl for Common Lisp, python for Python", enum=list(LANGUAGES))},
            lambda _, a: images.open(a["language"]),
            required=["language"],
            level="cautious",
            categories=["images"],
            title="Open an image",
            destructive=False,
        ),
        workshop.make(
            "list_images",
            "List the handles of the images that you can use: those that are there for everybody, then your "
            "own.",
            {},
            lambda _image, _arguments: _listed(images),
            categories=["images"],
            title="List images",
            output_schema=IMAGES,
        ),
        workshop.make(
            "close_image",
            "Close an image that you have opened. Its definitions and checkpoints are lost.",
            {"handle": handle},
            lambda _, a: _closed(images, a["handle"]),
            required=["handle"],
            level="cautious",
            categories=["images"],
            title="Close an image",
            idempotent=True,
        ),
    ]


class _Nothing:
    """A source for tools that act on no image."""

    def get(self, handle: str | None = None) -> Any:
        """Return None: these tools need no image."""
        del handle

    def handles(self) -> list[str]:
        """List no handles."""
        return []


# The same facts as in the text, for programs.
IMAGES = array_of(
    "images", handle={"type": "string"}, language={"type": "string"}, is_own={"type": "boolean"}
)


def _listed(images: OpenedImages) -> ToolOutput:
    """Return the images as text, and the same for programs."""
    shared = [(handle, images.get(handle).language, False) for handle in images.handles()]
    found = [*shared, *((handle, language, True) for handle, language in images.own_handles())]
    lines = [
        f"{handle} ({'yours' if is_own else 'for everybody'}, {language})"
        for handle, language, is_own in found
    ]
    names = ("handle", "language", "is_own")
    return ToolOutput(
        "\n".join(lines), structured={"images": [dict(zip(names, each, strict=True)) for each in found]}
    )


def _closed(images: OpenedImages, handle: str) -> str:
    images.close(handle)
    return f"{handle} is closed."
