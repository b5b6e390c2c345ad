"""Tie an approval to exactly what the person saw: tool, implementation, arguments, policy, target, text."""

from __future__ import annotations

import functools
import hashlib
import time
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import TYPE_CHECKING, Any

from gramercy.journal.texts import canonical_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Seal:
    """Digests of everything an approval depends on. Comparing two seals tells what has drifted.

    `shown` is that of the text that a person was shown, empty where a program was handed the call itself.
    """

    tool: str
    implementation: str
    arguments: str
    policy: str
    target: str
    expires_at: float | None = field(default=None, compare=False)
    shown: str = field(default="", compare=False)

    @property
    def digest(self) -> str:
        """One digest over all parts."""
        parts = [self.tool, self.implementation, self.arguments, self.policy, self.target, self.shown]
        return _digest(parts)

    def with_shown(self, text: str | None) -> Seal:
        """Return the seal with the text that was shown."""
        return self if text is None else replace(self, shown=digest_of_text(text))

    def is_for(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether these are the arguments that were approved."""
        return self.arguments == _digest(arguments)

    def drift(self, now: Seal) -> list[str]:
        """List in words what has changed since this seal was made; empty when nothing has."""
        changed = [text for part, text in _PARTS.items() if getattr(self, part) != getattr(now, part)]
        if self.expires_at is not None and time.monotonic() > self.expires_at:
            changed.append("the approval came after it had expired")
        return changed


_PARTS = {
    "tool": "the tool's name, level or schema has changed",
    "implementation": "the tool's implementation has changed",
    "arguments": "the arguments have changed",
    "policy": "the policy has changed",
    "target": "what the call acts on has changed",
}


def seal_call(
    tool: Tool,
    arguments: Mapping[str, Any],
    policy_version: str,
    *,
    state: object = None,
    lifetime: float | None = None,
) -> Seal:
    """Seal a call as it is now; `state` is what the call acts on, as its tool tells."""
    return Seal(
        tool=_digest([tool.name, tool.safety_level.value, tool.schema]),
        implementation=fingerprint(tool.function or tool.handler),
        arguments=_digest(arguments),
        policy=policy_version,
        target=_digest(repr(state)),
        expires_at=None if lifetime is None else time.monotonic() + lifetime,
    )


def digest_of_text(text: str) -> str:
    """Identify a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical_text(value).encode()).hexdigest()


def fingerprint(function: Any) -> str:
    """Identify an implementation: the object itself and, for Python code, the code it runs now."""
    parts = [str(id(function)), getattr(function, "__module__", ""), getattr(function, "__qualname__", "")]
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__code__"):
        function = getattr(type(function), "__call__", None)  # noqa: B004 - the method is wanted, not a test
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        parts += [*_code_parts(code), repr(function.__defaults__), repr(function.__kwdefaults__)]
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def _code_parts(code: CodeType) -> list[str]:
    constants = [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]
    nested = [part for c in code.co_consts if isinstance(c, CodeType) for part in _code_parts(c)]
    return [code.co_code.hex(), repr(code.co_names), *constants, *nested]
