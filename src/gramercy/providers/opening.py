"""Which provider a model's name means, opened when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.errors import ModelUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.gram.agents import ModelName
    from gramercy.providers.base import Provider

# What plug-ins add, by name in lower case; it comes with `gramercy.workbench.plugins.load_plugins`.
ADDED: dict[str, Callable[[], Provider]] = {}


def open_provider(model: ModelName) -> Provider:
    """Return the provider of a model, or raise ModelUnavailableError with the ways to get one."""
    if model.provider.casefold() == "scripted":
        from gramercy.providers.scripted import ScriptedProvider

        return ScriptedProvider.load(model.id)
    added = ADDED.get(model.provider.casefold())
    if added is not None:
        return added()
    raise ModelUnavailableError(f"there is no provider named {model.provider!r:.100}")
