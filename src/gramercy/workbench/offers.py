"""What a server of images offers beside tools, put together when somebody first asks for it.

A server that is only asked for its tools imports nothing of it and starts nothing.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gramercy.execution.executor import Executor
    from gramercy.execution.hooks import Hook
    from gramercy.images.base import Image
    from gramercy.mcp.catalogue import Catalog, Change, Watcher
    from gramercy.tools.tool import Tool

DEFINITIONS, TRANSCRIPT = "image://{name}/definitions", "image://{name}/transcript"
SYMBOL = "image://{name}/symbol/{symbol}"
AUDIT, TOOLS = "gramercy://audit", "gramercy://tools.gram"
# Tools of these sets change an image, unless they are safe.
CHANGING = frozenset({"session", "execution", "time-travel"})


class DeferredCatalog:
    """A catalogue that is made and filled when it is first looked into, but not to be watched."""

    def __init__(self, fill: Callable[[Catalog], object]) -> None:
        self._fill = fill
        self._lock = Lock()
        self._catalog: Catalog | None = None
        self._watchers: list[Watcher] = []

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._catalog or self._made(), attribute)

    def _made(self) -> Catalog:
        from gramercy.mcp.catalogue import Catalog

        with self._lock:
            if self._catalog is None:
                catalog = Catalog()
                self._fill(catalog)
                # Only now: that there is something in it is no change for anybody.
                catalog.watch(self._tell)
                self._catalog = catalog
            return self._catalog

    def watch(self, watcher: Watcher) -> None:
        """Call the watcher after every change."""
        self._watchers.append(watcher)

    def updated(self, uri: str) -> None:
        """Tell those who watch a resource that its content has changed."""
        self._tell("resource", uri)

    def _tell(self, change: Change, uri: str) -> None:
        for watcher in self._watchers:
            watcher(change, uri)


def offers_of(images: Sequence[Image], executor: Executor, categories: Sequence[str] = ()) -> Catalog:
    """Return what there is beside tools; calls that change an image tell those who have subscribed to it."""

    def fill(catalog: Catalog) -> None:
        from gramercy.workbench.prompts import add_prompts
        from gramercy.workbench.resources import Shelf, add_resources

        shelf = Shelf({image.name: image for image in images}, executor, tuple(categories))
        add_resources(catalog, shelf)
        add_prompts(catalog, shelf)
        # Not before: an observer costs every call something, and hardly any client subscribes.
        catalog.when_subscribed(lambda: executor.hooks.append(_observer(deferred, images)))

    # What it does not define itself is found in the catalogue when it is looked up.
    deferred = cast("Catalog", DeferredCatalog(fill))
    return deferred


def _observer(catalog: Catalog, images: Sequence[Image]) -> Hook:
    def observe(phase: str, tool: Tool, arguments: dict[str, Any], result: object) -> None:
        del result
        if phase == "before":
            return
        catalog.updated(AUDIT)
        if tool.level_word == "safe" or CHANGING.isdisjoint(tool.categories):
            return
        named = arguments.get("image")
        for image in images:
            # Where none is named, the tool knows which it was; one notice too many does no harm.
            if named in {None, image.name} and was_used(image):
                catalog.updated(DEFINITIONS.format(name=image.name))
                catalog.updated(TRANSCRIPT.format(name=image.name))

    return observe


def was_used(image: Image) -> bool:
    """Tell whether somebody has used an image, so that to look into it starts nothing."""
    return bool(getattr(image, "was_used", True))
