"""A plug-in that adds one thing of every kind.

Commands that look for plug-ins import this module, so it imports what is heavy where it is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gramercy.providers.base import Part, Request

hookimpl = pluggy.HookimplMarker("gramercy")


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@hookimpl
def gramercy_tools() -> list[Any]:
    """Add a tool; a function is made one by its signature and docstring."""
    return [count_words]


class EchoProvider:
    """A model that says what it was told."""

    name = "Echo"

    async def chat(self, request: Request) -> AsyncIterator[Part]:
        """Stream the last message back, word by word."""
        from gramercy.providers.base import StopPart, TextPart

        for word in request.messages[-1].text.split():
            yield TextPart(f"{word} ")
        yield StopPart("end")

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""


@hookimpl
def gramercy_providers() -> dict[str, Any]:
    """Add a provider; it is opened when a model of it is first asked."""
    return {"Echo": EchoProvider}


@hookimpl
def gramercy_images() -> dict[str, Any]:
    """Add a kind of image: Python that begins with statistics at hand."""
    from gramercy.images.opening import ImageKind

    return {"statistics": ImageKind("python", _statistics)}


def _statistics(project: Path, environment: Any, confinement: Any) -> Any:
    import msgspec

    from gramercy.images.cpython import python_program

    init = environment.init or Path(__file__).with_name("beginning.py")
    environment = msgspec.structs.replace(environment, init=init)
    return python_program(project, environment, confinement=confinement)


@hookimpl
def gramercy_commands() -> list[Any]:
    """Add a command."""
    import click

    @click.command("words")
    @click.argument("text")
    def words(text: str) -> None:
        """Count the words of a text."""
        click.echo(count_words(text))

    return [words]
