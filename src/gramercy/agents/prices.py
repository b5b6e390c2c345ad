"""The prices of models: a small table with its date, and the user's own prices.

The table is for orientation and for budgets, not for bills. The user's own prices are read from the file that
`GRAMERCY_PRICES` names, or from `prices.toml` in the user's configuration:

    ["OpenAI/gpt-4o-mini"]
    input = 0.15    # US dollars for a million tokens
    output = 0.60
    cached = 0.075
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from gramercy.directories import config_home
from gramercy.errors import InvalidSettingError
from gramercy.providers.models import known_name
from gramercy.providers.services import plain
from gramercy.text import reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.gram.agents import ModelName
    from gramercy.providers.base import Usage

# The date of the table: prices published by the services, as collected in genai-prices 0.2.1.
DATE = "2026-11-16"
MILLION = 1_000_000
FILE = "GRAMERCY_PRICES"
Dollars: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars per million tokens; without a price for the cache, its tokens cost as much as others."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    cache_written: Dollars | None = None

    @property
    def is_free(self) -> bool:
        """Whether tokens cost nothing."""
        return self.input == self.output == 0

    def of(self, usage: Usage) -> float:
        """Return the cost of this usage, in US dollars."""
        read, written = usage.cached, usage.cache_written
        plain = max(0, usage.input - read - written) * self.input
        cached = read * (self.input if self.cached is None else self.cached)
        kept = written * (self.input if self.cache_written is None else self.cache_written)
        return (plain + cached + kept + usage.output * self.output) / MILLION


FREE = Price(0.0, 0.0)
# They run on the user's own machines.
_OF_ONES_OWN = frozenset({"ollama", "lmstudio", "llamacpp", "vllm", "local", "scripted"})
# Services that charge the prices of the table for models of these names.
_SERVICES = frozenset({"openai", "azure", "anthropic", "google", "googlegla", "googlevertex", "openrouter"})
# Questions of more than some 200,000 tokens cost more with some of these models than the table says.
_TABLE = {
    "claude-3-5-haiku": Price(0.8, 4.0, 0.08, 1.0),
    "claude-3-5-sonnet": Price(3.0, 15.0, 0.3, 3.75),
    "claude-3-7-sonnet": Price(3.0, 15.0, 0.3, 3.75),
    "claude-3-haiku": Price(0.25, 1.25, 0.03, 0.3),
    "claude-3-opus": Price(15.0, 75.0, 1.5, 18.75),
    "claude-fable-5": Price(10.0, 50.0, 1.0, 12.5),
    "claude-fable-5-1": Price(10.0, 50.0, 0.25, 12.5),
    "claude-haiku-4-5": Price(1.0, 5.0, 0.1, 1.25),
    "claude-haiku-5-5": Price(0.1, 0.5, 0.01, 0.125),
    "claude-opus-4": Price(15.0, 75.0, 1.5, 18.75),
    "claude-opus-4-0": Price(15.0, 75.0, 1.5, 18.75),
    "claude-opus-4-1": Price(15.0, 75.0, 1.5, 18.75),
    "claude-opus-4-5": Price(5.0, 25.0, 0.5, 6.25),
    "claude-opus-4-6": Price(5.0, 25.0, 0.5, 6.25),
    "claude-opus-4-7": Price(5.0, 25.0, 0.5, 6.25),
    "claude-opus-4-8": Price(5.0, 25.0, 0.5, 6.25),
    "claude-opus-5": Price(5.0, 25.0, 0.5, 6.25),
    "claude-opus-5-5": Price(4.0, 20.0, 0.2, 5.0),
    "claude-sonnet-4": Price(3.0, 15.0, 0.3, 3.75),
    "claude-sonnet-4-0": Price(3.0, 15.0, 0.3, 3.75),
    "claude-sonnet-4-5": Price(3.0, 15.0, 0.3, 3.75),
    "claude-sonnet-4-6": Price(3.0, 15.0, 0.3, 3.75),
    "claude-sonnet-5": Price(2.0, 10.0, 0.2, 2.5),
    "claude-sonnet-5-5": Price(2.0, 10.0, 0.1, 2.5),
    "gemini-2.0-flash": Price(0.1, 0.4, 0.025),
    "gemini-2.5-flash": Price(0.3, 2.5, 0.03),
    "gemini-2.5-flash-lite": Price(0.1, 0.4, 0.01),
    "gemini-2.5-pro": Price(1.25, 10.0, 0.125),
    "gemini-3.1-flash-lite": Price(0.25, 1.5, 0.025),
    "gemini-3.1-pro-preview": Price(2.0, 12.0, 0.2),
    "gemini-3.5-flash": Price(1.5, 9.0, 0.15),
    "gemini-3.5-flash-lite": Price(0.3, 2.5, 0.03),
    "gpt-3.5-turbo": Price(0.5, 1.5),
    "gpt-4": Price(30.0, 60.0),
    "gpt-4-turbo": Price(10.0, 30.0),
    "gpt-4.1": Price(2.0, 8.0, 0.5),
    "gpt-4.1-mini": Price(0.4, 1.6, 0.1),
    "gpt-4.1-nano": Price(0.1, 0.4, 0.025),
    "gpt-4o": Price(2.5, 10.0, 1.25),
    "gpt-4o-mini": Price(0.15, 0.6, 0.075),
    "gpt-5": Price(1.25, 10.0, 0.125),
    "gpt-5-mini": Price(0.25, 2.0, 0.025),
    "gpt-5-nano": Price(0.05, 0.4, 0.005),
    "gpt-5-pro": Price(15.0, 120.0),
    "gpt-5.1": Price(1.25, 10.0, 0.125),
    "gpt-5.2": Price(1.75, 14.0, 0.175),
    "gpt-5.3-codex": Price(1.75, 14.0, 0.175),
    "gpt-5.4": Price(2.5, 15.0, 0.25),
    "gpt-5.4-mini": Price(0.75, 4.5, 0.075),
    "gpt-5.4-nano": Price(0.2, 1.25, 0.02),
    "gpt-5.5": Price(5.0, 30.0, 0.5),
    "gpt-6-astra": Price(10.0, 50.0, 1.0, 12.5),
    "gpt-6-luna": Price(0.1, 0.5, 0.01, 0.125),
    "gpt-6-sol": Price(2.0, 10.0, 0.2, 2.5),
    "gpt-6.1-sol": Price(2.0, 10.0, 0.1, 2.5),
    "gpt-6.1-terra": Price(1.0, 5.0, 0.05, 1.25),
    "o1": Price(15.0, 60.0, 7.5),
    "o3": Price(2.0, 8.0, 0.5),
    "o3-mini": Price(1.1, 4.4, 0.55),
    "o4-mini": Price(1.1, 4.4, 0.275),
}
# The date of a version, or `latest`: claude-sonnet-4-5-20250929, gpt-4o-2024-11-20.
_VERSION = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


class Prices:
    """The table, and prices that take precedence over it, by the names of models."""

    def __init__(self, own: Mapping[str, Price] | None = None) -> None:
        self._own = {name.casefold(): price for name, price in (own or {}).items()}

    def find(self, model: ModelName) -> Price | None:
        """Return the price of a model, or None if it is unknown."""
        own = self._own.get(str(model).casefold())
        provider = plain(model.provider)
        if own is not None or provider in _OF_ONES_OWN:
            return own or FREE
        if provider not in _SERVICES:
            return None
        name = known_name(model.id)
        return _TABLE.get(name) or _TABLE.get(_VERSION.sub("", name))


def read_prices(path: str | Path) -> Prices:
    """Read a file of prices, or raise InvalidSettingError."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return Prices(msgspec.convert(table, dict[str, Price]))
    except OSError as error:
        raise InvalidSettingError(f"the prices in {path} cannot be read: {reason_of(error)}") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise InvalidSettingError(f"the prices in {path} cannot be used: {error}") from None


def user_prices() -> Prices:
    """Return the table with the user's own prices."""
    named = os.environ.get(FILE)
    if named:
        return read_prices(named)
    path = config_home() / "gramercy" / "prices.toml"
    return read_prices(path) if path.is_file() else Prices()
