"""Find the provider for a model's name, and open it at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.errors import GramercyError, ModelUnavailableError
from gramercy.gram.suggestion import suggest
from gramercy.providers.services import SERVICES, find_key, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.gram.agents import ModelName
    from gramercy.providers.base import Provider
    from gramercy.providers.services import Service

# Providers of plug-ins, by name in lower case, from `gramercy.workbench.plugins.load_plugins`.
ADDED: dict[str, Callable[[], Provider]] = {}
# Providers of pydantic-ai that our own client lacks, as people write them; its own names are in lower case.
THROUGH_PYDANTIC_AI = (
    "Alibaba",
    "Azure",
    "Bedrock",
    "Cerebras",
    "Cohere",
    "DeepSeek",
    "Fireworks",
    "GitHub",
    "Google",
    "Google-Cloud",
    "Groq",
    "HuggingFace",
    "LiteLLM",
    "Meta",
    "Mistral",
    "MoonshotAI",
    "Nebius",
    "OVHcloud",
    "SambaNova",
    "Snowflake",
    "Together",
    "Vercel",
    "xAI",
    "ZAI",
)
# How to use a model without a key, for the message that there is no key.
WITHOUT_KEY = (
    "a model of this machine: gramercy models install and --model Local/smollm2, or --model Ollama/…"
)


def open_provider(model: ModelName) -> Provider:
    """Return the provider of a model, or raise ModelUnavailableError with the ways to get one."""
    added = ADDED.get(model.provider.lower())
    if added is not None:
        return _open_added(added, model)
    wanted = plain(model.provider)
    own = _OWN.get(wanted)
    if own is not None:
        return own(model)
    for service in SERVICES:
        if plain(service.name) == wanted:
            return _open_service(service, model)
    for name in THROUGH_PYDANTIC_AI:
        if plain(name) == wanted:
            return _open_pydantic(name.lower(), model)
    raise ModelUnavailableError(f"there is no provider named {model.provider!r:.100}: {_hint(model)}")


def _open_added(opened: Callable[[], Provider], model: ModelName) -> Provider:
    """Open a provider of a plug-in, whose code may raise and return anything."""
    told = f"the plug-in that has the provider {model.provider} cannot open it"
    try:
        provider = opened()
    except GramercyError:
        raise
    except Exception as error:
        raise ModelUnavailableError(f"{told}: {type(error).__name__}: {error}") from error
    if not all(callable(getattr(provider, name, None)) for name in ("chat", "aclose")):
        raise ModelUnavailableError(f"{told}: it gives {type(provider).__name__}, which is no provider")
    return provider


def provider_names() -> list[str]:
    """Return the names that come before the slash, as people write them."""
    return [*(service.name for service in SERVICES), "Local", *THROUGH_PYDANTIC_AI, "Scripted", *ADDED]


def _hint(model: ModelName) -> str:
    close = suggest(model.provider, provider_names())
    if close:
        return f"did you mean {close[0]}/{model.id:.60}?"
    return f"there are {', '.join(provider_names())}, and pydantic-ai/NAME:ID"


def _open_service(service: Service, model: ModelName) -> Provider:
    if service.needs_key and not find_key(service):
        raise ModelUnavailableError(f"no key for {model}: set {service.key_variable}, or take {WITHOUT_KEY}")
    if service.format == "anthropic":
        from gramercy.providers.anthropic import AnthropicProvider

        return AnthropicProvider(service)
    from gramercy.providers.openai import OpenAIProvider

    return OpenAIProvider(service)


def _open_scripted(model: ModelName) -> Provider:
    from gramercy.providers.scripted import ScriptedProvider

    return ScriptedProvider.load(model.id)


def _open_pydantic(kind: str, model: ModelName) -> Provider:
    from gramercy.providers.pydantic_models import PydanticProvider

    provider = PydanticProvider(kind, name=model.provider)
    # Report what is missing now, and not in the middle of a conversation.
    provider.model(model.id)
    return provider


def _open_any_pydantic(model: ModelName) -> Provider:
    return _open_pydantic("", model)


def _open_local(model: ModelName) -> Provider:
    from gramercy.providers.local import LocalProvider

    return LocalProvider(model.id)


_OWN: dict[str, Callable[[ModelName], Provider]] = {
    "local": _open_local,
    "pydanticai": _open_any_pydantic,
    "scripted": _open_scripted,
}
