"""Facts about models by their names: how much they read, and how much they may write.

The table was written in November 2026; services change their models. An unlisted model has no figure.
`GRAMERCY_CONTEXT_WINDOW` overrides it, for the user's own servers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gramercy.errors import ModelUnavailableError
from gramercy.providers.services import plain

if TYPE_CHECKING:
    from gramercy.gram.agents import ModelName

# Tokens that a model reads, by the prefix of its id; the longest matching prefix counts.
_WINDOWS = {
    "claude-": 200_000,
    "claude-fable-": 1_000_000,
    "claude-haiku-5": 1_000_000,
    "claude-opus-4-6": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-4-8": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "deepseek-": 128_000,
    "gemini-1.5-pro": 2_097_152,
    "gemini-": 1_048_576,
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-0125": 128_000,
    "gpt-4-1106": 128_000,
    "gpt-4-32k": 32_768,
    "gpt-4-turbo": 128_000,
    "gpt-4-vision": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4.5": 128_000,
    "gpt-4o": 128_000,
    "gpt-5": 400_000,
    "gpt-5.4": 1_050_000,
    "gpt-5.4-mini": 400_000,
    "gpt-5.4-nano": 400_000,
    "gpt-5.5": 1_000_000,
    "gpt-5.6": 1_050_000,
    "gpt-6": 1_050_000,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
}
# The user's own servers limit a model's window to what their machine has room for.
_OF_ONES_OWN = frozenset({"ollama", "lmstudio", "llamacpp", "vllm", "scripted"})
WINDOW_VARIABLE = "GRAMERCY_CONTEXT_WINDOW"
# Anthropic's format requires the maximum number of tokens of an answer. Its oldest models give no more than
# 4,096. An answer larger than 8,192 takes minutes and rather means that the model is looping.
_OLD_ANSWER, _ANSWER = 4_096, 8_192
_OLD = ("claude-3-haiku", "claude-3-opus", "claude-3-sonnet", "claude-2", "claude-instant")


def context_window(model: ModelName) -> int | None:
    """Return how many tokens a model reads, or None if that is unknown."""
    given = os.environ.get(WINDOW_VARIABLE, "").strip()
    if given:
        if not given.isdecimal() or int(given) == 0:
            raise ModelUnavailableError(f"{WINDOW_VARIABLE} is {given!r:.60}: expected tokens, as in 32768")
        return int(given)
    provider = plain(model.provider)
    if provider == "local":
        from gramercy.providers.local import context_size

        return context_size()
    if provider in _OF_ONES_OWN:
        return None
    name = known_name(model.id)
    found = max((start for start in _WINDOWS if name.startswith(start)), key=len, default=None)
    return None if found is None else _WINDOWS[found]


def known_name(model_id: str) -> str:
    """Return the name of a model in the tables, independent of the service.

    Services that offer models of other makers write the maker before the name, and versions with a dot:
    anthropic/claude-sonnet-4.5.
    """
    name = model_id.casefold().rpartition("/")[2]
    return name.replace(".", "-") if name.startswith("claude-") else name


def longest_answer(model_id: str) -> int:
    """Return the maximum number of tokens to request from a model of Anthropic."""
    return _OLD_ANSWER if model_id.startswith(_OLD) else _ANSWER
