"""The services that our own client can ask: their addresses, their formats, and where their keys are.

Keys come from the environment, or from the keyring of the desktop if its package is installed. No shown text
contains them.
"""

from __future__ import annotations

import base64
import os
from typing import Any, Literal, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from gramercy.errors import ModelUnavailableError

Format: TypeAlias = Literal["openai", "anthropic"]

# The version of Anthropic's format; newer features are requested by other headers.
VERSION = "2023-06-01"
_KEY_NAMES = ("_API_KEY", "_TOKEN", "_ACCESS_KEY", "_SECRET")
# Shorter values are placeholders for servers on the user's own machine, and words of any text.
SHORTEST_KEY = 8


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service over HTTP. `variable` is the prefix of its environment variables.

    A service on the user's own machine needs no key; `start` says how to start it.
    """

    name: str
    format: Format = "openai"
    address: str
    variable: str
    start: str = ""

    @property
    def key_variable(self) -> str:
        """The environment variable with the key."""
        return f"{self.variable}_API_KEY"

    @property
    def address_variable(self) -> str:
        """The environment variable with another address."""
        return f"{self.variable}_BASE_URL"

    @property
    def needs_key(self) -> bool:
        """Whether the service refuses questions without a key."""
        return not self.start


OPENAI = Service(name="OpenAI", address="https://api.openai.com/v1", variable="OPENAI")
ANTHROPIC = Service(
    name="Anthropic", format="anthropic", address="https://api.anthropic.com", variable="ANTHROPIC"
)
SERVICES: tuple[Service, ...] = (
    OPENAI,
    ANTHROPIC,
    Service(
        name="Ollama", address="http://localhost:11434/v1", variable="OLLAMA", start="start it: ollama serve"
    ),
    Service(name="OpenRouter", address="https://openrouter.ai/api/v1", variable="OPENROUTER"),
    Service(
        name="LMStudio",
        address="http://localhost:1234/v1",
        variable="LMSTUDIO",
        start="start its server: lms server start",
    ),
    Service(
        name="llama.cpp",
        address="http://localhost:8080/v1",
        variable="LLAMACPP",
        start="start it: llama-server --jinja -m MODEL.gguf",
    ),
    Service(
        name="vLLM", address="http://localhost:8000/v1", variable="VLLM", start="start it: vllm serve MODEL"
    ),
)


class Access:
    """A service with its address and key. It is printed without the key."""

    def __init__(self, service: Service, address: str | None = None, key: str | None = None) -> None:
        self.service = service
        given = address or os.environ.get(service.address_variable, "").strip() or service.address
        self._address = _whole_address(_checked_address(given, service), service)
        self._key = _checked_key(key or find_key(service) or "", service)

    @property
    def key(self) -> str:
        """The key, or an empty text."""
        return self._key

    @property
    def is_here(self) -> bool:
        """Whether the service is on this machine."""
        host = self._address.hostname or ""
        return host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.")  # noqa: S104 - as servers print it

    @property
    def has_path(self) -> bool:
        """Whether the address has more than a host, as those of most services do."""
        return bool(self._address.path)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that authenticate the user.

        A name and a password in the address take precedence over the key. They are not part of requested
        addresses, since addresses are written into logs.
        """
        told = {"anthropic-version": VERSION} if self.service.format == "anthropic" else {}
        if self._key and self.service.format == "anthropic":
            told["x-api-key"] = self._key
        elif self._key:
            told["authorization"] = f"Bearer {self._key}"
        name, at, _ = self._address.netloc.rpartition("@")
        if at:
            told["authorization"] = f"Basic {base64.b64encode(unquote(name).encode()).decode()}"
        return told

    def url(self, path: str) -> str:
        """Return the address for questions; the configured address may already have the path's version."""
        above = self._address.path
        rest = path.removeprefix("/v1") if above.endswith("/v1") else path
        return self._address._replace(netloc=self._host, path=above + rest, fragment="").geturl()

    def hide(self, text: str) -> str:
        """Remove the key and the password from a text that is not ours."""
        for secret in (self._key, unquote(self._address.password or "")):
            if len(secret) >= SHORTEST_KEY:
                text = text.replace(secret, "(key)")
        return hide_keys(text)

    @property
    def _host(self) -> str:
        return self._address.netloc.rpartition("@")[2]

    def __str__(self) -> str:
        """Return the address, without its password."""
        return self._address._replace(netloc=self._host, query="", fragment="").geturl()

    def __repr__(self) -> str:
        return f"<Access to {self.service.name} at {self}>"


def plain(name: str) -> str:
    """Return the name of a provider in a normalized spelling: LM Studio is lmstudio."""
    return "".join(c for c in name.casefold() if c.isalnum())


def find_key(service: Service) -> str | None:
    """Return the key of a service, from the environment or the keyring."""
    return os.environ.get(service.key_variable, "").strip() or _from_keyring(service.key_variable)


def hide_keys(text: str) -> str:
    """Remove every key of the environment from a text that is not ours."""
    for name, value in os.environ.items():
        if name.endswith(_KEY_NAMES) and len(value) >= SHORTEST_KEY and value in text:
            text = text.replace(value, "(key)")
    return text


def _from_keyring(variable: str) -> str | None:
    try:
        import keyring
    except ImportError:
        return None
    try:
        found: Any = keyring.get_password("gramercy", variable)
    except Exception:  # noqa: BLE001 - keyrings fail in many ways; none of them is about the model
        return None
    return found.strip() if isinstance(found, str) else None


def _checked_key(key: str, service: Service) -> str:
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ModelUnavailableError(
            f"the key of {service.name} has characters that no key has: look at {service.key_variable}"
        )
    return key


def _checked_address(address: str, service: Service) -> str:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        usable = False
    if not usable or not address.isprintable() or " " in parts.netloc:
        raise no_address(service)
    return address


def no_address(service: Service) -> ModelUnavailableError:
    """Return the error for an invalid address."""
    return ModelUnavailableError(
        f"the address of {service.name} is not one of HTTP: set {service.address_variable}, "
        f"as in {service.address}"
    )


def _whole_address(address: str, service: Service) -> SplitResult:
    """Return the base address of the service: without the path of a request, and with a missing base path.

    The user's own servers are written as host and port; all of them answer below a path.
    """
    parts = urlsplit(address)
    path = parts.path.rstrip("/")
    for asked in ("/chat/completions", "/v1/messages"):
        path = path.removesuffix(asked)
    usual = urlsplit(service.address)
    if not path and (service.start or parts.hostname == usual.hostname):
        path = usual.path
    return parts._replace(path=path.rstrip("/"))
