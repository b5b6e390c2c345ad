"""Several named images side by side. Each starts when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.errors import ImageError
from gramercy.gram.suggestion import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gramercy.images.base import Image


class Gallery:
    """Images by handle; the first is the default."""

    def __init__(self, images: Iterable[Image]) -> None:
        self._images = {image.name: image for image in images}
        if not self._images:
            raise ImageError("a gallery needs at least one image")

    def get(self, handle: str | None = None) -> Image:
        """Return the image of that handle; without one, the first."""
        if handle is None:
            return next(iter(self._images.values()))
        found = self._images.get(handle)
        if found is None:
            close = suggest(handle, self._images)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(self._images)}"
            raise ImageError(f"there is no image {handle!r}: {hint}")
        return found

    def handles(self) -> list[str]:
        """List the handles, the default first."""
        return list(self._images)

    def close(self) -> None:
        """End every image."""
        for image in self._images.values():
            image.close()
