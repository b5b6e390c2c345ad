"""Put together the tools that files define and those of a live image, and end the image afterwards."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gramercy.errors import SourceError
from gramercy.workbench.loading import load_tools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gramercy.images.environment import Environment
    from gramercy.images.live import LiveImage
    from gramercy.tools.registry import Registry

# An image that ends a call by itself can tell more about it than a guard that gives up waiting.
GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Origin:
    """Where tools come from: files or modules, and an image when a language is given."""

    sources: tuple[str, ...] = ()
    language: str | None = None
    project: str = "."
    sandbox: bool = True
    environment: Environment | None = None
    timeout: float = 60.0

    def patience(self, deadline: float) -> float:
        """Return how long to wait for a call that may take `deadline` seconds."""
        return deadline if self.language is None else deadline + GRACE_SECONDS


@contextmanager
def live_image(
    language: str | None,
    *,
    project: str = ".",
    sandbox: bool = True,
    timeout: float = 60.0,
    environment: Environment | None = None,
) -> Iterator[LiveImage]:
    """Give an image that starts when it is first used; all its processes end with the block."""
    from gramercy.images.opening import open_image

    image = open_image(language, project=project, sandbox=sandbox, timeout=timeout, environment=environment)
    try:
        yield image
    finally:
        # A call that was given up holds the image until it ends.
        image.interrupt()
        image.close()


@contextmanager
def assembled(origin: Origin, *, timeout: float = 60.0) -> Iterator[Registry]:
    """Give a registry of all tools of an origin."""
    registry = load_tools(*origin.sources)
    if origin.language is None:
        yield registry
        return
    taken = set(registry.names())
    with live_image(
        origin.language,
        project=origin.project,
        sandbox=origin.sandbox,
        timeout=timeout,
        environment=origin.environment,
    ) as image:
        for tool in image_registry(image, origin.language, origin.project).library().values():
            if tool.name in taken:
                raise SourceError(
                    f"{', '.join(origin.sources)} defines {tool.name}, which the image has too: rename it"
                )
            registry.register(tool)
        yield registry


def image_registry(image: LiveImage, language: str, project: str) -> Registry:
    """Return the core, session and time-travel tools of an image; it need not be started for that."""
    from gramercy.tools.registry import Registry
    from gramercy.toolsets.core import register_core_tools, register_session_tools

    registry = Registry()
    register_core_tools(registry, image, project=project)
    register_session_tools(registry, image, language=language)
    return registry
