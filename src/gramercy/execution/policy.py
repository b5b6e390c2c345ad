"""Rules as data that decide whether a call is allowed, asked about or denied. The first match wins."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import InvalidPolicyError
from gramercy.execution.rules import Action, Rule, read_level
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from gramercy.tools.tool import Tool

__all__ = ["Action", "Policy", "Rule", "Verdict"]

# Tools are few; a program that makes them without end must not make the memory of verdicts grow without end.
MOST_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy says about a call, and which rule said it (None: the default for the level)."""

    action: Action
    rule: Rule | None
    explanation: str


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """An ordered list of rules with a ceiling. Without a match, safe and cautious run, dangerous asks."""

    rules: tuple[Rule, ...]
    max_safety_level: Safety
    version: str
    # Verdicts for tools on whose arguments no rule depends: nearly all, and every call asks.
    settled: dict[Tool, Verdict] = field(init=False, repr=False, compare=False, default_factory=dict)
    _relevant: dict[Tool, list[tuple[int, Rule]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __init__(
        self,
        rules: Iterable[Rule | Mapping[str, Any]] = (),
        max_safety_level: Safety | str = Safety.DANGEROUS,
    ) -> None:
        """Read rules, which may be plain data, and derive the version, by which approvals notice a change."""
        if isinstance(rules, str | bytes | Mapping) or not isinstance(rules, Iterable):
            raise InvalidPolicyError(f"rules must be a list of rules, not {type(rules).__name__}")
        object.__setattr__(self, "rules", tuple(Rule.from_data(rule) for rule in rules))
        object.__setattr__(self, "max_safety_level", read_level(max_safety_level))
        object.__setattr__(self, "settled", {})
        object.__setattr__(self, "_relevant", {})
        text = msgspec.json.encode([self.max_safety_level, [rule.to_data() for rule in self.rules]])
        object.__setattr__(self, "version", hashlib.sha256(text).hexdigest()[:16])

    def why(self, tool: Tool, arguments: Mapping[str, Any]) -> Verdict:
        """Decide a call and name the rule that decided."""
        settled = self.settled.get(tool)
        if settled is not None:
            return settled
        relevant = self._relevant.get(tool)
        if relevant is None:
            relevant = [(n, rule) for n, rule in enumerate(self.rules, 1) if rule.matches_tool(tool)]
            _remember(self._relevant, tool, relevant)
        verdict = self._decide(tool, arguments, relevant)
        if not any(rule.arguments for _, rule in relevant):
            _remember(self.settled, tool, verdict)
        return verdict

    def _decide(
        self, tool: Tool, arguments: Mapping[str, Any], relevant: Iterable[tuple[int, Rule]]
    ) -> Verdict:
        level = tool.safety_level
        if level > self.max_safety_level:
            text = f"{tool.name} is {level.value}, above the ceiling {self.max_safety_level.value}"
            return Verdict(Action.DENY, None, text)
        for number, rule in relevant:
            if rule.matches_arguments(arguments):
                reason = f" ({rule.reason})" if rule.reason else ""
                return Verdict(rule.action, rule, f"rule {number} says {rule.action.value}{reason}: {rule}")
        action = Action.ASK if level is Safety.DANGEROUS else Action.ALLOW
        text = f"no rule matches; the default for {level.value} tools is {action.value}"
        return Verdict(action, None, text)

    def may_ask(self, tool: Tool) -> bool:
        """Tell whether some call of this tool would be asked about."""
        asks = (rule.action is Action.ASK for rule in self.rules if rule.matches_tool(tool))
        return tool.safety_level is Safety.DANGEROUS or any(asks)

    def with_rule(self, rule: Rule | Mapping[str, Any]) -> Policy:
        """Return a policy that tries this rule first, as after «always allow this»."""
        return Policy((Rule.from_data(rule), *self.rules), self.max_safety_level)


def _remember(memory: dict[Tool, Any], tool: Tool, value: Any) -> None:
    if len(memory) >= MOST_REMEMBERED:
        memory.clear()
    memory[tool] = value
