"""Which provider a model's name means, opened when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.errors import ModelUnavailableError
from gramercy.gram.suggestion import suggest

if TYPE_CHECKING:
    from gramercy.gram.agents import ModelName
    from gramercy.providers.base import Provider
    from gramercy.providers.services import Service

# How a model is had without a key, for the line that says there is none.
WITHOUT_KEY = "or without a key: ollama serve and --model Ollama/llama3.2"


def open_provider(model: ModelName) -> Provider:
    """Return the provider of a model, or raise ModelUnavailableError with the ways to get one."""
    from gramercy.providers.services import SERVICES

    wanted = plain(model.provider)
    for service in SERVICES:
        if plain(service.name) == wanted:
            return _open_service(service, model)
    close = suggest(model.provider, [service.name for service in SERVICES])
    hint = (
        f"did you mean {close[0]}/{model.id:.60}?"
        if close
        else "there are " + ", ".join(service.name for service in SERVICES)
    )
    raise ModelUnavailableError(f"there is no provider named {model.provider!r:.100}: {hint}")


def plain(name: str) -> str:
    """Return the name of a provider without the habits of its spelling: LM Studio is lmstudio."""
    return "".join(c for c in name.casefold() if c.isalnum())


def _open_service(service: Service, model: ModelName) -> Provider:
    from gramercy.providers.services import Access

    if service.needs_key and not Access(service).key:
        raise ModelUnavailableError(
            f"no key for {model}: set {service.key_variable}, {WITHOUT_KEY}, or gramercy models install"
        )
    from gramercy.providers.openai import OpenAIProvider

    return OpenAIProvider(service)
