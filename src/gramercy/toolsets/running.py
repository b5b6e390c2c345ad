"""Tools that run code in an image: the same for callers that wait and for those on an event loop.

On an event loop a call can be cancelled, and what it prints while it runs is reported to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gramercy.tools.context import current_call
from gramercy.toolsets.rendering import preview_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gramercy.images.base import Image, Progress, Reply, Watcher
    from gramercy.tools.tool import Tool
    from gramercy.toolsets.source import Workshop

LONGEST_MESSAGE = 500
# A person waits for what would happen, but not for ever.
TRIED = 10.0


class Running:
    """How to run the arguments of a call in an image, and what to make of the reply."""

    def __init__(
        self,
        run: Callable[[Image, dict[str, Any]], Reply],
        run_async: Callable[[Image, dict[str, Any], Watcher], Awaitable[Reply]],
        render: Callable[[Reply, dict[str, Any]], Any],
    ) -> None:
        self._run = run
        self._run_async = run_async
        self._render = render

    def blocking(self, image: Image, arguments: dict[str, Any]) -> Any:
        """Run and wait."""
        return self._render(self._run(image, arguments), arguments)

    async def awaited(self, image: Image, arguments: dict[str, Any]) -> Any:
        """Run without holding up the event loop."""
        return self._render(await self._run_async(image, arguments, _reporter()), arguments)

    def make(
        self, workshop: Workshop, name: str, description: str, properties: dict[str, Any], **options: Any
    ) -> Tool:
        """Make the tool; the options are those of `Workshop.make`.

        It takes a time limit where callers may choose one.
        """
        longest = workshop.longest_timeout
        if longest is not None:
            told = f"Seconds after which the call is interrupted, at most {longest:g}"
            properties = {
                **properties,
                "timeout": {"type": "number", "description": told, "exclusiveMinimum": 0, "maximum": longest},
            }
        return workshop.make(name, description, properties, self.blocking, run_async=self.awaited, **options)


def dry_run(field: str) -> Callable[[Image, dict[str, Any]], str]:
    """Return what tells a person what the code under an argument would do, by trying it on a copy."""

    def tried(image: Image, arguments: dict[str, Any]) -> str:
        return preview_text(image.preview(arguments[field], package=arguments.get("package"), timeout=TRIED))

    return tried


def _reporter() -> Watcher:
    """Return what tells the caller of the present call how an evaluation goes."""
    report = current_call().report

    def tell(progress: Progress) -> None:
        printed = (progress.stdout + progress.stderr).rstrip()
        told = printed[-LONGEST_MESSAGE:] or f"running for {progress.seconds:.0f} s"
        report(progress.seconds, message=told)

    return tell
