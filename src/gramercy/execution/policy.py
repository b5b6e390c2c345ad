"""Rules as data that decide whether a call is allowed, asked about or denied. The first match wins.

Argument values match globs without prefix surprises: `?` is one character, `*` any number within one path
segment, `**` any number across segments, `**/` any number of whole leading directories; the whole value must
match, upper and lower case are different. The matcher walks the value once with a set of places in the glob,
so no value can make it slow.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import InvalidPolicyError, InvalidToolError
from gramercy.gram.suggestion import suggest
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from gramercy.tools.tool import Likeness, Tool


class Action(StrEnum):
    """What a rule decides."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


STRICTNESS = {Action.ALLOW: 0, Action.ASK: 1, Action.DENY: 2}
CONDITIONS = ("tools", "categories", "safety", "arguments")
RULE_KEYS = ("action", *CONDITIONS, "reason")


class RuleOrigin(msgspec.Struct, frozen=True):
    """Where a rule comes from, as people are told; `number` counts the rules there from 1.

    The rules of a layer that only tightens are not the person's own word, such as those of a project: the
    first of them that matches can make a verdict stricter, never milder.
    """

    layer: str
    file: str
    line: int = 0
    number: int = 0
    tightens: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a policy. Every condition given must hold; a rule without conditions matches every call.

    `tools` and the values of `arguments` are globs; `categories` and `safety` are words.
    """

    action: Action
    tools: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    safety: tuple[Safety, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict, hash=False)
    reason: str = ""
    origin: RuleOrigin | None = field(default=None, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        """Accept words for what they mean, or raise InvalidPolicyError saying what to change."""
        set_field = object.__setattr__
        set_field(self, "action", _action(self.action))
        set_field(self, "tools", _words("tools", self.tools))
        set_field(self, "categories", _words("categories", self.categories))
        set_field(self, "safety", tuple(read_level(word) for word in _words("safety", self.safety)))
        set_field(self, "arguments", _argument_globs(self.arguments))
        set_field(self, "reason", str(self.reason))

    @classmethod
    def from_data(cls, data: Any) -> Rule:
        """Read a rule from plain data, or raise InvalidPolicyError saying what to change."""
        if isinstance(data, Rule):
            return data
        if not isinstance(data, Mapping):
            example = "{'action': 'ask', 'tools': ['write_*']}"
            raise InvalidPolicyError(f"a rule is an object such as {example}, not {data!r:.60}")
        for key in data:
            if key not in RULE_KEYS:
                close = suggest(str(key), RULE_KEYS)
                hint = f"; did you mean {close[0]!r}?" if close else f": expected {', '.join(RULE_KEYS)}"
                raise InvalidPolicyError(f"unknown key {key!r:.60} in a rule{hint}")
            if key in CONDITIONS and not data[key]:
                # An empty list was meant to match nothing, but would match everything.
                raise InvalidPolicyError(f"{key} in a rule is empty: leave it out to match all calls")
        return cls(**{"action": None, **data})

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

    @property
    def tightens(self) -> bool:
        """Whether it can only make a verdict stricter."""
        return self.origin is not None and self.origin.tightens

    def named(self, number: int) -> str:
        """Say which rule it is: by its place in its file, or by its number in the policy."""
        return f"rule {number}" if self.origin is None else f"rule {self.origin.number} of {self.origin}"

    def matches_tool(self, tool: Tool, like: Likeness | None = None) -> bool:
        """Tell whether the conditions on the tool itself hold, or would if it were the one it is like."""
        named = like or tool
        if self.safety and tool.safety_level not in self.safety:
            return False
        if self.categories and not set(self.categories) & set(named.categories):
            return False
        return not self.tools or any(self._matches_name(glob, named.name) for glob in self.tools)

    def _matches_name(self, glob: str, name: str) -> bool:
        if surely_matches(glob, name):
            return True
        # A call may use either spelling of a name, so either spelling of a rule must stop it.
        spelling = glob.replace("-", "_")
        return self.action is not Action.ALLOW and surely_matches(spelling, name.replace("-", "_"))

    def matches_arguments(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether the conditions on argument values hold; doubt counts against allowing."""
        matches = surely_matches if self.action is Action.ALLOW else possibly_matches
        given = self.arguments.items()
        return all(name in arguments and matches(glob, arguments[name]) for name, glob in given)

    def __str__(self) -> str:
        return msgspec.json.encode(self.to_data()).decode()


def read_level(word: Any) -> Safety:
    """Read a safety level in a policy."""
    try:
        return Safety.parse(word)
    except InvalidToolError as error:
        raise InvalidPolicyError(str(error)) from None


def _action(word: Any) -> Action:
    known = [action.value for action in Action]
    if isinstance(word, str) and word.lower() in known:
        return Action(word.lower())
    close = suggest(word, known) if isinstance(word, str) else []
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise InvalidPolicyError(f"unknown action {word!r:.60} in a rule: expected allow, ask or deny{hint}")


def _words(key: str, value: Any) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) else value
    if isinstance(words, Mapping) or not isinstance(words, Iterable):
        raise InvalidPolicyError(f"{key} in a rule must be a word or a list of words, not {value!r:.60}")
    found = tuple(words)
    if not all(isinstance(word, str) and word for word in found):
        raise InvalidPolicyError(f"{key} in a rule must be a word or a list of words, not {found!r:.60}")
    return tuple(word.removeprefix(":") for word in found)


def _argument_globs(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(
        isinstance(name, str) and isinstance(glob, str) for name, glob in value.items()
    ):
        raise InvalidPolicyError(
            f"arguments in a rule must map names to globs, such as {{'path': 'notes/**'}}, not {value!r:.60}"
        )
    # A rule must not change after its policy has got a version.
    return MappingProxyType(dict(value))


# More tools than any registry holds: a bound for a program that makes new ones without end.
MOST_REMEMBERED = 20_000


class Verdict(msgspec.Struct, frozen=True):
    """What the policy says about a call, and which rule said it (None: the default for the level)."""

    action: Action
    rule: Rule | None
    explanation: str


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """An ordered list of rules with a ceiling. Without a match, safe and cautious run, dangerous asks.

    Rules that only tighten hold against the rules that come after them: of each file the first that matches
    makes what those say stricter.
    """

    rules: tuple[Rule, ...]
    max_safety_level: Safety
    version: str
    ceiling_origin: RuleOrigin | None
    # Verdicts for tools on whose arguments no rule depends: nearly all, and every call asks.
    settled: dict[Tool, Verdict] = field(init=False, repr=False, compare=False, default_factory=dict)
    _relevant: dict[Tool, list[tuple[int, Rule]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __init__(
        self,
        rules: Iterable[Rule | Mapping[str, Any]] = (),
        max_safety_level: Safety | str = Safety.DANGEROUS,
        *,
        ceiling_origin: RuleOrigin | None = None,
    ) -> None:
        """Read rules, which may be plain data, and derive the version, by which approvals notice a change."""
        if isinstance(rules, str | bytes | Mapping) or not isinstance(rules, Iterable):
            raise InvalidPolicyError(f"rules must be a list of rules, not {type(rules).__name__}")
        object.__setattr__(self, "rules", tuple(Rule.from_data(rule) for rule in rules))
        object.__setattr__(self, "max_safety_level", read_level(max_safety_level))
        object.__setattr__(self, "ceiling_origin", ceiling_origin)
        object.__setattr__(self, "settled", {})
        object.__setattr__(self, "_relevant", {})
        text = msgspec.json.encode([self.max_safety_level, [_in_version(rule) for rule in self.rules]])
        object.__setattr__(self, "version", hashlib.sha256(text).hexdigest()[:16])

    def why(self, tool: Tool, arguments: Mapping[str, Any]) -> Verdict:
        """Decide a call and name the rule that decided."""
        settled = self.settled.get(tool)
        if settled is not None:
            return settled
        relevant = self._relevant.get(tool)
        if relevant is None:
            relevant = self._matching(tool)
            _remember(self._relevant, tool, relevant)
        verdict = self._decide(tool, arguments, relevant)
        is_settled = not any(rule.arguments for _, rule in relevant)
        for like in tool.judged_as:
            verdict, is_settled = self._stricter(tool, arguments, like, (verdict, is_settled))
        if is_settled:
            _remember(self.settled, tool, verdict)
        return verdict

    def _matching(self, tool: Tool, like: Likeness | None = None) -> list[tuple[int, Rule]]:
        return [(n, rule) for n, rule in enumerate(self.rules, 1) if rule.matches_tool(tool, like)]

    def _stricter(
        self, tool: Tool, arguments: Mapping[str, Any], like: Likeness, found: tuple[Verdict, bool]
    ) -> tuple[Verdict, bool]:
        """Return the verdict found so far or, where that is stricter, the one on the tool that this is like.

        A rule that allows the tool by its own name, without wildcards, is what its author meant.
        """
        verdict, is_settled = found
        if verdict.rule is not None and verdict.action is Action.ALLOW and tool.name in verdict.rule.tools:
            return found
        relevant = self._matching(tool, like)
        other = self._decide(tool, like.taken(arguments), relevant)
        if STRICTNESS[other.action] > STRICTNESS[verdict.action]:
            told = f"{tool.name} is judged as {like.name} is: {other.explanation}"
            verdict = msgspec.structs.replace(other, explanation=told)
        return verdict, is_settled and not any(rule.arguments for _, rule in relevant)

    def _decide(
        self, tool: Tool, arguments: Mapping[str, Any], relevant: Iterable[tuple[int, Rule]]
    ) -> Verdict:
        level = tool.safety_level
        if level > self.max_safety_level:
            where = f" of {self.ceiling_origin}" if self.ceiling_origin else ""
            text = f"{tool.name} is {level.value}, above the ceiling {self.max_safety_level.value}{where}"
            return Verdict(Action.DENY, None, text)
        tightened: dict[str, Verdict] = {}
        for number, rule in relevant:
            origin = rule.origin
            if origin is not None and origin.tightens:
                if origin.file not in tightened and rule.matches_arguments(arguments):
                    tightened[origin.file] = _said(number, rule)
            elif rule.matches_arguments(arguments):
                return _strictest(_said(number, rule), tightened)
        action = Action.ASK if level is Safety.DANGEROUS else Action.ALLOW
        text = f"no rule matches; the default for {level.value} tools is {action.value}"
        return _strictest(Verdict(action, None, text), tightened)

    def may_ask(self, tool: Tool) -> bool:
        """Tell whether some call of this tool would be asked about."""
        likenesses = (None, *tool.judged_as)
        asks = (rule.action is Action.ASK for like in likenesses for _, rule in self._matching(tool, like))
        return tool.safety_level is Safety.DANGEROUS or any(asks)

    def with_rule(self, rule: Rule | Mapping[str, Any]) -> Policy:
        """Return a policy that tries this rule first, as after «always allow this»."""
        rules = (Rule.from_data(rule), *self.rules)
        return Policy(rules, self.max_safety_level, ceiling_origin=self.ceiling_origin)

    def under(self, ceiling: Safety) -> Policy:
        """Return the same rules under a ceiling that is not above this one."""
        return self if self.max_safety_level <= ceiling else Policy(self.rules, ceiling)


def _in_version(rule: Rule) -> list[Any]:
    """Return what of a rule decides; the line it stands on does not."""
    return [rule.to_data(), rule.origin.file if rule.origin is not None and rule.tightens else ""]


def _said(number: int, rule: Rule) -> Verdict:
    reason = f" ({rule.reason})" if rule.reason else ""
    return Verdict(rule.action, rule, f"{rule.named(number)} says {rule.action.value}{reason}: {rule}")


def _strictest(verdict: Verdict, tightened: Mapping[str, Verdict]) -> Verdict:
    """Return the verdict, or what the first rules of layers that only tighten make of it."""
    for other in tightened.values():
        if STRICTNESS[other.action] > STRICTNESS[verdict.action]:
            verdict = other
        elif other.action is verdict.action and verdict.rule is None and other.action is not Action.ALLOW:
            # The same as the default, but said by somebody, perhaps with a reason. What allows never counts:
            # by its own name it would let a tool pass where those that it is like are held.
            verdict = other
    milder = [
        other.rule.named(0)
        for other in tightened.values()
        if other.rule is not None and STRICTNESS[other.action] < STRICTNESS[verdict.action]
    ]
    if verdict.rule is None and milder:
        told = f"{verdict.explanation} ({milder[0]} says less, but may only tighten)"
        return msgspec.structs.replace(verdict, explanation=told)
    return verdict


def _remember(memory: dict[Tool, Any], tool: Tool, value: Any) -> None:
    if len(memory) >= MOST_REMEMBERED:
        memory.clear()
    memory[tool] = value


_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
# Paths end at 4,096 characters on Linux. A longer value is never surely, and always possibly, a match.
LONGEST_VALUE = 10_000


def text_of(value: Any) -> str:
    """Return the text of a value that a glob is compared with: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)


def surely_matches(glob: str, value: Any) -> bool:
    """Tell whether the value matches beyond doubt; used to allow.

    A wildcard never covers a `..` step nor a line break, since both lead out of what the author had in mind.
    """
    text = text_of(value)
    if text == glob:
        return True
    if len(text) > LONGEST_VALUE or _CONTROL.search(text) or ".." in re.split(r"[/\\]", text):
        return False
    return _walk(_places(glob), text)


def possibly_matches(glob: str, value: Any) -> bool:
    """Tell whether the value could match in any spelling of the same path; used to ask and to deny.

    Of a list or an object it is enough that one part matches.
    """
    if isinstance(value, list | dict):
        parts = value.values() if isinstance(value, dict) else value
        if any(possibly_matches(glob, part) for part in parts):
            return True
    text = text_of(value)
    if len(text) > LONGEST_VALUE:
        return True
    return any(_walk(_places(glob), spelling) for spelling in _spellings(text))


def _spellings(text: str) -> set[str]:
    """Return the ways to write the same path that a rule's author may have had in mind."""
    found = {text, text.replace("\\", "/")}
    for spelling in tuple(found):
        # normpath keeps two leading slashes, which POSIX leaves to the system and Linux reads as one.
        plain = posixpath.normpath(spelling) if spelling else spelling
        found |= {plain, re.sub(r"^//+", "/", plain)}
    return found


# `**/` is two places: at the start of a directory, where it may end, and inside one, where it may not.
BETWEEN, INSIDE = "**/", "**/…"


@lru_cache(maxsize=1024)
def _places(glob: str) -> tuple[str, ...]:
    """Split a glob into wildcards and characters."""
    places: list[str] = []
    for part in re.findall(r"\*\*/|\*\*|.", glob, flags=re.DOTALL):
        places += (BETWEEN, INSIDE) if part == BETWEEN else (part,)
    return tuple(places)


def _walk(glob: tuple[str, ...], text: str) -> bool:
    reached = _with_skips({0}, glob)
    for character in text:
        stepped: set[int] = set()
        for place in reached:
            stepped.update(_step(glob, place, character))
        reached = _with_skips(stepped, glob)
        if not reached:
            return False
    return len(glob) in reached


def _with_skips(places: set[int], glob: tuple[str, ...]) -> set[int]:
    """Add the places reached by letting wildcards match nothing."""
    reached = set(places)
    for place in places:
        here = place
        while here < len(glob) and glob[here] in {"*", "**", BETWEEN}:
            here += 2 if glob[here] == BETWEEN else 1
            reached.add(here)
    return reached


def _step(glob: tuple[str, ...], place: int, character: str) -> tuple[int, ...]:
    """Return the places in the glob after one more character."""
    part = glob[place] if place < len(glob) else None
    if part == "**":
        return (place,)
    if part == BETWEEN:
        return (place,) if character == "/" else (place + 1,)
    if part == INSIDE:
        return (place - 1,) if character == "/" else (place,)
    if part == "*":
        return () if character == "/" else (place,)
    if part == "?":
        return () if character == "/" else (place + 1,)
    return (place + 1,) if part == character else ()
