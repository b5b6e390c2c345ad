"""Tie an approval to exactly what the person saw: tool, implementation, arguments, policy, target, text.

A seal is also valid in another process: its parts are digests of texts that are the same in every process.
"""

from __future__ import annotations

import functools
import hashlib
import re
import time
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import TYPE_CHECKING, Any

from gramercy.journal.texts import canonical_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gramercy.tools.tool import Place, Tool


@dataclass(frozen=True, slots=True)
class Seal:
    """Digests of everything an approval depends on. Comparing two seals tells what has drifted.

    `shown` is the digest of the text that a person was shown, empty if a program got the call itself.
    `question` differs for every question, so that an answer is valid for one question only; `expiry` is the
    time until which it is valid. `function` is the id of the object that does the work, by which a process
    recognises its own; 0 in a seal that was read.
    """

    tool: str
    implementation: str
    arguments: str
    policy: str
    target: str
    expires_at: float | None = field(default=None, compare=False)
    shown: str = field(default="", compare=False)
    question: str = field(default="", compare=False)
    expiry: str = field(default="", compare=False)
    function: int = field(default=0, compare=False)

    @classmethod
    def read(cls, parts: Mapping[str, str]) -> Seal:
        """Return the seal with these parts; a missing part matches nothing."""
        found: dict[str, Any] = {name: parts.get(name, "") for name in _SEALED}
        return cls(**found)

    @property
    def parts(self) -> dict[str, str]:
        """The parts that the digest is made of, by name."""
        return {name: getattr(self, name) for name in _SEALED}

    @property
    def digest(self) -> str:
        """One digest over all parts."""
        return _digest_of_parts(tuple(getattr(self, name) for name in _SEALED))

    def with_shown(self, text: str) -> Seal:
        """Return the seal with the text that was shown."""
        return replace(self, shown=digest_of_text(text))

    def is_for(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether these are the arguments that were approved."""
        return self.arguments == _digest(arguments)

    def drift(self, now: Seal) -> list[str]:
        """List in words what has changed since this seal was made; empty when nothing has."""
        changed = [text for part, text in _PARTS.items() if getattr(self, part) != getattr(now, part)]
        if self.function and now.function and self.function != now.function:
            changed = [text for text in _PARTS.values() if text in {*changed, _PARTS["implementation"]}]
        if self.expires_at is not None and time.monotonic() > self.expires_at:
            changed.append(EXPIRED)
        return changed


EXPIRED = "the approval came after it had expired"
_PARTS = {
    "tool": "the tool's name, level or schema has changed",
    "implementation": "the tool's implementation has changed",
    "arguments": "the arguments have changed",
    "policy": "the policy has changed",
    "target": "what the call acts on has changed",
}
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SEALED = (*_PARTS, "shown", "question", "expiry")


def seal_call(  # noqa: PLR0913 - all that an approval depends on
    tool: Tool,
    arguments: Mapping[str, Any],
    policy_version: str,
    *,
    state: object = None,
    lifetime: float | None = None,
    places: Mapping[str, Place] | None = None,
) -> Seal:
    """Seal a call as it is now; `state` is the state of its target, `places` where its paths lead."""
    function = tool.function or tool.handler
    return Seal(
        tool=_digest([tool.name, tool.safety_level.value, tool.schema]),
        implementation=fingerprint(function),
        arguments=_digest(arguments),
        policy=policy_version,
        target=target_of(state, places),
        expires_at=None if lifetime is None else time.monotonic() + lifetime,
        function=id(function),
    )


def target_of(state: object, places: Mapping[str, Place] | None = None) -> str:
    """Identify the target of a call: its state, and where its paths lead."""
    where = [f"{name}: {place.identity}" for name, place in sorted((places or {}).items())]
    return digest_of_text("\0".join([stable_text(state), *where]))


def digest_of_text(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# One question is digested at each step of its call.
@functools.lru_cache(maxsize=64)
def _digest_of_parts(parts: tuple[str, ...]) -> str:
    return _digest(list(parts))


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical_text(value).encode()).hexdigest()


def fingerprint(function: Any) -> str:
    """Identify an implementation, the same in every process: by its name and, for Python code, its code."""
    parts = [getattr(function, "__module__", ""), getattr(function, "__qualname__", "")]
    while isinstance(function, functools.partial):
        parts += [stable_text(function.args), stable_text(function.keywords)]
        function = function.func
    if not hasattr(function, "__code__"):
        parts.append(type(function).__qualname__)
        function = getattr(type(function), "__call__", None)  # noqa: B004 - the method is wanted, not a test
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        parts += [*_code_parts(code), stable_text(function.__defaults__)]
        parts.append(stable_text(function.__kwdefaults__))
    return digest_of_text("\0".join(map(str, parts)))


def _code_parts(code: CodeType) -> list[str]:
    return [code.co_code.hex(), repr(code.co_names), *map(stable_text, code.co_consts)]


def stable_text(value: object) -> str:
    """Write a value equally in every process: sets in order, objects without their addresses."""
    if isinstance(value, CodeType):
        return "\0".join(_code_parts(value))
    if isinstance(value, set | frozenset):
        return f"{{{','.join(sorted(map(stable_text, value)))}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({','.join(map(stable_text, value))})"
    if isinstance(value, dict):
        return f"{{{','.join(sorted(f'{stable_text(k)}:{stable_text(v)}' for k, v in value.items()))}}}"
    text = repr(value)
    return text if isinstance(value, str | bytes) else _ADDRESS.sub("", text)
