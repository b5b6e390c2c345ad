"""Which provider a model's name means, opened when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.errors import ModelUnavailableError

if TYPE_CHECKING:
    from gramercy.gram.agents import ModelName
    from gramercy.providers.base import Provider


def open_provider(model: ModelName) -> Provider:
    """Return the provider of a model, or raise ModelUnavailableError with the ways to get one."""
    if model.provider.casefold() == "scripted":
        from gramercy.providers.scripted import ScriptedProvider

        return ScriptedProvider.load(model.id)
    if model.provider.lower() == "local":
        from gramercy.providers.local import LocalProvider

        return LocalProvider()
    raise ModelUnavailableError(f"there is no provider named {model.provider!r:.100}")
