"""Rules as data that decide whether a call is allowed, asked about or denied. The first match wins."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import InvalidPolicyError, InvalidToolError
from gramercy.execution.globs import possibly_matches, surely_matches
from gramercy.gram.suggestion import suggest
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from gramercy.tools.tool import Tool


class Action(StrEnum):
    """What a rule decides."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


RULE_KEYS = ("action", "tools", "categories", "safety", "arguments", "reason")


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a policy. Every condition given must hold; a rule without conditions matches every call.

    `tools` and the values of `arguments` are globs (see globs.py); `categories` and `safety` are words.
    """

    action: Action
    tools: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    safety: tuple[Safety, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""

    @classmethod
    def from_data(cls, data: Any) -> Rule:
        """Read a rule from plain data, or raise InvalidPolicyError saying what to change."""
        if isinstance(data, Rule):
            return data
        if not isinstance(data, Mapping):
            raise InvalidPolicyError(f"a rule is an object such as {{'action': 'ask', 'tools': ['write_*']}}, not {data!r:.60}")
        for key in data:
            if key not in RULE_KEYS:
                close = suggest(str(key), RULE_KEYS)
                hint = f"; did you mean {close[0]!r}?" if close else f": expected {', '.join(RULE_KEYS)}"
                raise InvalidPolicyError(f"unknown key {key!r} in a rule{hint}")
        return cls(
            action=_action(data.get("action")),
            tools=_words("tools", data.get("tools", ())),
            categories=_words("categories", data.get("categories", ())),
            safety=tuple(_level(word) for word in _words("safety", data.get("safety", ()))),
            arguments=_argument_globs(data.get("arguments", {})),
            reason=str(data.get("reason", "")),
        )

    def to_data(self) -> dict[str, Any]:
        """Return the rule as plain data, without the conditions it does not have."""
        data: dict[str, Any] = {"action": self.action.value}
        data |= {k: list(v) for k, v in (("tools", self.tools), ("categories", self.categories)) if v}
        if self.safety:
            data["safety"] = [level.value for level in self.safety]
        if self.arguments:
            data["arguments"] = dict(self.arguments)
        if self.reason:
            data["reason"] = self.reason
        return data

    def matches_tool(self, tool: Tool) -> bool:
        """Tell whether the conditions on the tool itself hold."""
        if self.safety and tool.safety_level not in self.safety:
            return False
        if self.categories and not set(self.categories) & set(tool.categories):
            return False
        return not self.tools or any(surely_matches(glob, tool.name) for glob in self.tools)

    def matches_arguments(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether the conditions on argument values hold; doubt counts against allowing."""
        matches = surely_matches if self.action is Action.ALLOW else possibly_matches
        return all(name in arguments and matches(glob, arguments[name]) for name, glob in self.arguments.items())

    def __str__(self) -> str:
        return msgspec.json.encode(self.to_data()).decode()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy says about a call, and which rule said it (None: the default for the level)."""

    action: Action
    rule: Rule | None
    explanation: str


@dataclass(frozen=True, slots=True)
class Policy:
    """An ordered list of rules with a ceiling. Where no rule matches: safe and cautious run, dangerous asks."""

    rules: tuple[Rule, ...] = ()
    max_safety_level: Safety = Safety.DANGEROUS
    version: str = field(init=False)
    _settled: dict[Tool, Verdict] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(Rule.from_data(rule) for rule in _listed(self.rules)))
        object.__setattr__(self, "max_safety_level", _level(self.max_safety_level))
        text = msgspec.json.encode([self.max_safety_level, [rule.to_data() for rule in self.rules]])
        object.__setattr__(self, "version", hashlib.sha256(text).hexdigest()[:16])

    def why(self, tool: Tool, arguments: Mapping[str, Any]) -> Verdict:
        """Decide a call and name the rule that decided."""
        settled = self._settled.get(tool)
        if settled is not None:
            return settled
        relevant = [(n, rule) for n, rule in enumerate(self.rules, 1) if rule.matches_tool(tool)]
        verdict = self._decide(tool, arguments, relevant)
        if not any(rule.arguments for _, rule in relevant):
            if len(self._settled) >= MOST_SETTLED:
                self._settled.clear()
            self._settled[tool] = verdict
        return verdict

    def _decide(self, tool: Tool, arguments: Mapping[str, Any], relevant: Iterable[tuple[int, Rule]]) -> Verdict:
        level = tool.safety_level
        if level > self.max_safety_level:
            text = f"{tool.name} is {level.value}, above the ceiling {self.max_safety_level.value}"
            return Verdict(Action.DENY, None, text)
        for number, rule in relevant:
            if rule.matches_arguments(arguments):
                reason = f" ({rule.reason})" if rule.reason else ""
                return Verdict(rule.action, rule, f"rule {number} says {rule.action.value}{reason}: {rule}")
        action = Action.ASK if level is Safety.DANGEROUS else Action.ALLOW
        return Verdict(action, None, f"no rule matches; the default for {level.value} tools is {action.value}")

    def with_rule(self, rule: Rule | Mapping[str, Any]) -> Policy:
        """Return a policy that tries this rule first, as after «always allow this»."""
        return Policy((Rule.from_data(rule), *self.rules), self.max_safety_level)


# Tools are few; a program that makes them without end must not make this grow without end.
MOST_SETTLED = 20_000


def _listed(rules: Any) -> Iterable[Any]:
    if isinstance(rules, str | bytes | Mapping) or not isinstance(rules, Iterable):
        raise InvalidPolicyError(f"rules must be a list of rules, not {type(rules).__name__}")
    return rules


def _action(word: Any) -> Action:
    if isinstance(word, str) and word.lower() in Action:
        return Action(word.lower())
    close = suggest(word, [a.value for a in Action]) if isinstance(word, str) else []
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise InvalidPolicyError(f"unknown action {word!r:.60} in a rule: expected allow, ask or deny{hint}")


def _level(word: Any) -> Safety:
    try:
        return Safety.parse(word)
    except InvalidToolError as error:
        raise InvalidPolicyError(str(error)) from None


def _words(key: str, value: Any) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) else value
    if not isinstance(words, Iterable) or not all(isinstance(word, str) for word in words):
        raise InvalidPolicyError(f"{key} in a rule must be a word or a list of words, not {value!r:.60}")
    return tuple(word.removeprefix(":") for word in words)


def _argument_globs(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        raise InvalidPolicyError(
            f"arguments in a rule must map names to globs, such as {{'path': 'notes/**'}}, not {value!r:.60}"
        )
    return dict(value)
