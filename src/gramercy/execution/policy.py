"""Rules as data that decide whether a call is allowed, asked about or denied. The first match wins.

Argument values match globs without prefix surprises: `?` is one character, `*` any number within one path
segment, `**` any number across segments, `**/` any number of whole leading directories; the whole value must
match, upper and lower case are different. The matcher walks the value once with a set of positions in the
glob, so no value can make it slow.
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
from gramercy.execution.exact import is_same_call, plain_arguments, read_exact
from gramercy.gram.suggestion import did_you_mean
from gramercy.tools.safety import Safety

if TYPE_CHECKING:
    from collections.abc import Callable

    from gramercy.tools.tool import Likeness, Place, Tool


class Action(StrEnum):
    """What a rule decides."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


STRICTNESS = {Action.ALLOW: 0, Action.ASK: 1, Action.DENY: 2}
CONDITIONS = ("tools", "categories", "safety", "arguments")
RULE_KEYS = ("action", *CONDITIONS, "exactly", "reason")


class RuleOrigin(msgspec.Struct, frozen=True):
    """The origin of a rule, as shown to people; `number` counts the rules there from 1.

    A layer that only tightens has rules that are not the person's own, such as those of a project. The first
    of them that matches can make a verdict stricter, never milder.
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

    `tools` and the values of `arguments` are globs; `categories` and `safety` are words. `exactly` holds all
    arguments of the one call that a rule allows, as JSON values; None means no condition.
    """

    action: Action
    tools: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    safety: tuple[Safety, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict, hash=False)
    reason: str = ""
    exactly: Mapping[str, Any] | None = field(default=None, hash=False, kw_only=True)
    origin: RuleOrigin | None = field(default=None, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        """Convert words to their values, or raise InvalidPolicyError saying what to change."""
        set_field = object.__setattr__
        set_field(self, "action", _action(self.action))
        set_field(self, "tools", _words("tools", self.tools))
        set_field(self, "categories", _words("categories", self.categories))
        set_field(self, "safety", tuple(read_level(word) for word in _words("safety", self.safety)))
        set_field(self, "arguments", _argument_globs(self.arguments))
        set_field(self, "reason", str(self.reason))
        if self.exactly is not None:
            set_field(self, "exactly", read_exact(self.exactly))
            self._check_alone()

    def _check_alone(self) -> None:
        """Refuse a rule with `exactly` that does not allow: one more argument would evade it."""
        if self.action is not Action.ALLOW or self.arguments:
            raise InvalidPolicyError(
                "exactly in a rule is for one that allows, without arguments beside it: "
                "a rule that asks or denies needs arguments = {…}, which leaves those that are not named free"
            )

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
                hint = did_you_mean(str(key), RULE_KEYS, f": expected {', '.join(RULE_KEYS)}", before="; ")
                raise InvalidPolicyError(f"unknown key {key!r:.60} in a rule{hint}")
            if (key in CONDITIONS and not data[key]) or (key == "exactly" and data[key] is None):
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
        if self.exactly is not None:
            data["exactly"] = plain_arguments(self.exactly)
        if self.reason:
            data["reason"] = self.reason
        return data

    @property
    def tightens(self) -> bool:
        """Whether it can only make a verdict stricter."""
        return self.origin is not None and self.origin.tightens

    def named(self, number: int) -> str:
        """Name the rule by its place in its file, or by its number in the policy."""
        return f"rule {number}" if self.origin is None else f"rule {self.origin.number} of {self.origin}"

    def matches_tool(self, tool: Tool, like: Likeness | None = None) -> bool:
        """Tell whether the conditions on the tool hold, or would hold for the tool that it is like."""
        named = like or tool
        if self.safety and tool.safety_level not in self.safety:
            return False
        if self.categories and not set(self.categories) & set(named.categories):
            return False
        return not self.tools or any(self._matches_name(glob, named.name) for glob in self.tools)

    def _matches_name(self, glob: str, name: str) -> bool:
        if surely_matches(glob, name):
            return True
        # A call may use either spelling of a name, so a rule in either spelling must stop it.
        spelling = glob.replace("-", "_")
        return self.action is not Action.ALLOW and surely_matches(spelling, name.replace("-", "_"))

    @property
    def looks_inside(self) -> bool:
        """Whether it depends on the arguments of a call."""
        return bool(self.arguments) or self.exactly is not None

    def matches_arguments(
        self,
        arguments: Mapping[str, Any],
        tool: Tool | None = None,
        places: Mapping[str, Place] | None = None,
    ) -> bool:
        """Tell whether the conditions on argument values hold; doubt counts against allowing.

        A path is compared by where it leads: `places` are the places of the call.
        """
        if self.exactly is not None:
            return self._is_that_call(arguments, tool, places or {})
        for name, glob in self.arguments.items():
            place = places.get(name) if places else None
            if place is not None:
                if not (_surely_at if self.action is Action.ALLOW else _possibly_at)(glob, place):
                    return False
            elif name not in arguments or not self._matches_value(glob, arguments[name]):
                return False
        return True

    def _is_that_call(
        self, arguments: Mapping[str, Any], tool: Tool | None, places: Mapping[str, Place]
    ) -> bool:
        """Tell whether a call is the one that the rule allows, with paths that are real names."""
        exactly = self.exactly or {}
        if any(place.name != exactly.get(name) for name, place in places.items()):
            return False
        return is_same_call(exactly, arguments, tool.checker.defaults if tool is not None else {})

    def _matches_value(self, glob: str, value: Any) -> bool:
        return (surely_matches if self.action is Action.ALLOW else possibly_matches)(glob, value)

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
    hint = did_you_mean(word, known, before="; ")
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


# More tools than any registry holds: a bound for a program that makes new tools without end.
MOST_REMEMBERED = 20_000


class Verdict(msgspec.Struct, frozen=True):
    """What the policy says about a call, and which rule said it (None: the default for the level).

    With `must_ask` a person has to decide, even if a rule allows the call: it writes a control file.
    """

    action: Action
    rule: Rule | None
    explanation: str
    must_ask: bool = False


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """An ordered list of rules with a ceiling. Without a match, safe and cautious run, dangerous asks.

    Rules that only tighten take precedence over the rules after them: the first matching rule of each file
    makes the verdict of those stricter.
    """

    rules: tuple[Rule, ...]
    max_safety_level: Safety
    version: str
    ceiling_origin: RuleOrigin | None
    # Verdicts for tools whose arguments no rule depends on: nearly all tools, and every call looks here.
    settled: dict[Tool, Verdict] = field(init=False, repr=False, compare=False, default_factory=dict)
    _relevant: dict[Tool, list[tuple[int, Rule]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    _others: dict[Tool, list[tuple[Likeness, list[tuple[int, Rule]]]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __init__(
        self,
        rules: Iterable[Rule | Mapping[str, Any]] = (),
        max_safety_level: Safety | str = Safety.DANGEROUS,
        *,
        ceiling_origin: RuleOrigin | None = None,
    ) -> None:
        """Read rules, which may be plain data, and derive the version, by which approvals detect a change."""
        if isinstance(rules, str | bytes | Mapping) or not isinstance(rules, Iterable):
            raise InvalidPolicyError(f"rules must be a list of rules, not {type(rules).__name__}")
        object.__setattr__(self, "rules", tuple(Rule.from_data(rule) for rule in rules))
        object.__setattr__(self, "max_safety_level", read_level(max_safety_level))
        object.__setattr__(self, "ceiling_origin", ceiling_origin)
        object.__setattr__(self, "settled", {})
        object.__setattr__(self, "_relevant", {})
        object.__setattr__(self, "_others", {})
        text = msgspec.json.encode([self.max_safety_level, [_in_version(rule) for rule in self.rules]])
        object.__setattr__(self, "version", hashlib.sha256(text).hexdigest()[:16])

    def why(
        self, tool: Tool, arguments: Mapping[str, Any], places: Mapping[str, Place] | None = None
    ) -> Verdict:
        """Decide a call and name the rule that decided; `places` are where the paths of the call lead."""
        settled = self.settled.get(tool)
        if settled is not None and not places:
            return settled
        relevant = self._relevant.get(tool)
        if relevant is None:
            relevant = self._matching(tool)
            _remember(self._relevant, tool, relevant)
        verdict = self._decide(tool, arguments, relevant, places)
        is_settled = not any(rule.looks_inside for _, rule in relevant)
        for like in tool.judged_as:
            verdict, is_settled = self._stricter(tool, arguments, like, (verdict, is_settled), places)
        if tool.paths is not None:
            verdict = self._as_fellows(tool, arguments, places, verdict)
            is_open = bool(tool.paths.writes) and verdict.action is Action.ALLOW
            is_settled = is_settled and not is_open and not self._fellows(tool)
        if is_settled:
            _remember(self.settled, tool, verdict)
        return _guarded(tool, places, verdict) if places else verdict

    def _fellows(self, tool: Tool) -> list[tuple[Likeness, list[tuple[int, Rule]]]]:
        """Return the tools that reach the same files, each with the rules about its paths."""
        found = self._others.get(tool)
        if found is None:
            like = tool.paths.like if tool.paths is not None else ()
            every = [(each, self._on_paths(tool, each.arguments, each)) for each in like]
            found = [(each, rules) for each, rules in every if rules]
            _remember(self._others, tool, found)
        return found

    def _on_paths(
        self, tool: Tool, names: Iterable[str], like: Likeness | None = None
    ) -> list[tuple[int, Rule]]:
        return [each for each in self._matching(tool, like) if any(n in each[1].arguments for n in names)]

    def _as_fellows(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        places: Mapping[str, Place] | None,
        verdict: Verdict,
    ) -> Verdict:
        """Return the strictest of a verdict and those on the same path for tools that reach the same files.

        A rule that allows this tool by its own name and by the path is intended by its author.
        """
        rule = verdict.rule
        is_meant = rule is not None and verdict.action is Action.ALLOW and tool.name in rule.tools
        if is_meant and rule is not None and rule.arguments:
            return verdict
        for like, relevant in self._fellows(tool):
            theirs = {name: places[own] for name, own in like.arguments.items() if places and own in places}
            other = self._decide(tool, like.taken(arguments), relevant, theirs)
            if other.rule is not None and STRICTNESS[other.action] > STRICTNESS[verdict.action]:
                told = f"{tool.name} reaches the files that {like.name} does: {other.explanation}"
                verdict = msgspec.structs.replace(other, explanation=told)
        return verdict

    def withhold(self, tool: Tool, arguments: Mapping[str, Any], places: Mapping[str, Place]) -> None:
        """Give the places of a call a function that tells which names near them the tool must leave out.

        Call it each time the paths are resolved: the tool gets the latest places, and they decide what it
        shows.
        """
        if tool.paths is not None and tool.paths.reads:
            for place in places.values():
                place.withheld = self._withheld(tool, arguments, place)

    def _withheld(
        self, tool: Tool, arguments: Mapping[str, Any], place: Place
    ) -> Callable[[str], bool] | None:
        """Return a function that tells whether to leave a real name out; None if no rule can require it."""
        if tool.paths is None:
            return None
        own = self._on_paths(tool, tool.paths.reads)
        if not own and not self._fellows(tool):
            return None

        def is_withheld(name: str) -> bool:
            there = dict.fromkeys(tool.paths.reads if tool.paths is not None else (), place.beside(name))
            verdict = self._decide(tool, arguments, own, there)
            return self._as_fellows(tool, arguments, there, verdict).action is not Action.ALLOW

        return is_withheld

    def _matching(self, tool: Tool, like: Likeness | None = None) -> list[tuple[int, Rule]]:
        return [(n, rule) for n, rule in enumerate(self.rules, 1) if rule.matches_tool(tool, like)]

    def _allowed_by_name(
        self, tool: Tool, arguments: Mapping[str, Any], places: Mapping[str, Place] | None
    ) -> bool:
        """Tell whether the person's own first rule for a call allows the tool by its name."""
        own = (rule for _, rule in self._matching(tool) if not rule.tightens)
        first = next((rule for rule in own if rule.matches_arguments(arguments, tool, places)), None)
        return first is not None and first.action is Action.ALLOW and tool.name in first.tools

    def _stricter(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        like: Likeness,
        found: tuple[Verdict, bool],
        places: Mapping[str, Place] | None,
    ) -> tuple[Verdict, bool]:
        """Return the verdict found so far or, where that is stricter, the one on the tool that this is like.

        A rule that allows the tool by its own name, without wildcards, is intended by its author.
        """
        verdict, is_settled = found
        if self._allowed_by_name(tool, arguments, places):
            return found
        if not like.covers(arguments):
            return verdict, False
        relevant = self._matching(tool, like)
        other = self._decide(tool, like.taken(arguments), relevant)
        if STRICTNESS[other.action] > STRICTNESS[verdict.action]:
            told = f"{tool.name} is judged as {like.name} is: {other.explanation}"
            verdict = msgspec.structs.replace(other, explanation=told)
        depends = like.when or any(rule.looks_inside for _, rule in relevant)
        return verdict, is_settled and not depends

    def _decide(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        relevant: Iterable[tuple[int, Rule]],
        places: Mapping[str, Place] | None = None,
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
                if origin.file not in tightened and rule.matches_arguments(arguments, tool, places):
                    tightened[origin.file] = _said(number, rule)
            elif rule.matches_arguments(arguments, tool, places):
                return _strictest(_said(number, rule), tightened)
        action = Action.ASK if level is Safety.DANGEROUS else Action.ALLOW
        text = f"no rule matches; the default for {level.value} tools is {action.value}"
        return _strictest(Verdict(action, None, text), tightened)

    def may_ask(self, tool: Tool) -> bool:
        """Tell whether some call of this tool would be asked about."""
        fellows = tool.paths.like if tool.paths is not None else ()
        likenesses = (None, *tool.judged_as, *fellows)
        asks = (rule.action is Action.ASK for like in likenesses for _, rule in self._matching(tool, like))
        return tool.safety_level is Safety.DANGEROUS or any(asks)

    def with_rule(self, rule: Rule | Mapping[str, Any]) -> Policy:
        """Return a policy that tries this rule first, as after "always allow this"."""
        rules = (Rule.from_data(rule), *self.rules)
        return Policy(rules, self.max_safety_level, ceiling_origin=self.ceiling_origin)

    def under(self, ceiling: Safety) -> Policy:
        """Return the same rules under a ceiling that is not above this one."""
        return self if self.max_safety_level <= ceiling else Policy(self.rules, ceiling)


def _in_version(rule: Rule) -> list[Any]:
    """Return the parts of a rule that decide; its line in the file does not."""
    return [rule.to_data(), rule.origin.file if rule.origin is not None and rule.tightens else ""]


def _said(number: int, rule: Rule) -> Verdict:
    reason = f" ({rule.reason})" if rule.reason else ""
    return Verdict(rule.action, rule, f"{rule.named(number)} says {rule.action.value}{reason}: {rule}")


def _strictest(verdict: Verdict, tightened: Mapping[str, Verdict]) -> Verdict:
    """Return the verdict, or a stricter one by the first matching rules of layers that only tighten."""
    for other in tightened.values():
        if STRICTNESS[other.action] > STRICTNESS[verdict.action]:
            verdict = other
        elif other.action is verdict.action and verdict.rule is None and other.action is not Action.ALLOW:
            # The same action as the default, but from a rule, perhaps with a reason. A rule that allows is
            # never taken over here: with its own name it would let a tool pass where the tools that it is
            # like are stopped.
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


def _guarded(tool: Tool, places: Mapping[str, Place], verdict: Verdict) -> Verdict:
    """Return the verdict, or that a person must be asked: only a rule that names it allows a control file."""
    for name in tool.paths.writes if tool.paths is not None else ():
        place = places.get(name)
        if place is None or verdict.action is Action.DENY or not (reader := place.control):
            continue
        rule = verdict.rule
        if verdict.action is Action.ALLOW and _names(rule, name, place):
            continue
        told = (
            f"{place.shown} is a control file, which {reader}: it is asked about in every mode, and only a "
            "rule that names it without wildcards allows it"
        )
        if verdict.action is Action.ASK and rule is not None:
            told = f"{verdict.explanation}; {told}"
        return Verdict(Action.ASK, rule if verdict.action is Action.ASK else None, told, must_ask=True)
    return verdict


def _names(rule: Rule | None, argument: str, place: Place) -> bool:
    """Tell whether a rule has the real name of a path, without wildcards."""
    if rule is None:
        return False
    named = rule.arguments if rule.exactly is None else rule.exactly
    return bool(named.get(argument) == place.name)


def _remember(memory: dict[Tool, Any], tool: Tool, value: Any) -> None:
    if len(memory) >= MOST_REMEMBERED:
        memory.clear()
    memory[tool] = value


_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
# Paths end at 4,096 characters on Linux. A longer value never matches surely and always matches possibly.
LONGEST_VALUE = 10_000
# Up to here every whole number is exact as a float.
LARGEST_EXACT = 2**53


def text_of(value: Any) -> str:
    """Return the text of a value that a glob is compared with: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)


def surely_matches(glob: str, value: Any) -> bool:
    """Tell whether the value matches beyond doubt; used to allow.

    A wildcard never matches a `..` step nor a line break, since both lead out of what the author intended.
    """
    text = text_of(value)
    if text == glob:
        return True
    if len(text) > LONGEST_VALUE or _CONTROL.search(text) or ".." in re.split(r"[/\\]", text):
        return False
    return _walk(_places(glob), text)


def possibly_matches(glob: str, value: Any) -> bool:
    """Tell whether the value could match in any spelling of the same path; used to ask and to deny.

    For a list or an object it is enough that one part matches.
    """
    if isinstance(value, list | dict):
        parts = value.values() if isinstance(value, dict) else value
        if any(possibly_matches(glob, part) for part in parts):
            return True
    if isinstance(value, int | float) and not isinstance(value, bool):
        return any(_walk(_places(glob), spelling) for spelling in _numerals(value))
    text = text_of(value)
    if len(text) > LONGEST_VALUE:
        return True
    return any(_walk(_places(glob), spelling) for spelling in _spellings(text))


def _numerals(value: float) -> set[str]:
    """Return the ways to write the same number: for a tool 5 and 5.0 are the same."""
    found = {text_of(value)}
    if isinstance(value, float) and value.is_integer():
        found.add(str(int(value)))
    elif isinstance(value, int) and abs(value) < LARGEST_EXACT:
        found.add(text_of(float(value)))
    return found


def _spellings(text: str) -> set[str]:
    """Return the spellings of the same path that a rule's author may have intended."""
    found = {text, text.replace("\\", "/")}
    for spelling in tuple(found):
        # normpath keeps two leading slashes, which POSIX leaves to the system and Linux treats as one.
        plain = posixpath.normpath(spelling) if spelling else spelling
        found |= {plain, re.sub(r"^//+", "/", plain)}
    return found


def _surely_at(glob: str, place: Place) -> bool:
    """Tell whether a glob matches the real place of a path, relative to the project or from the root."""
    glob = glob.removeprefix("./")
    if place.trouble:
        return False
    return surely_matches(glob, place.name) or surely_matches(glob, place.absolute)


def _possibly_at(glob: str, place: Place) -> bool:
    """Tell whether a glob may match any spelling of a place: file systems may fold case and Unicode forms."""
    glob = _folded(glob.removeprefix("./"))
    head, tail = _ends(glob)
    for spelling in place.spellings:
        for text in _spellings(_folded(spelling)):
            if text.startswith(head) and text.endswith(tail) and _walk(_places(glob), text):
                return True
    return False


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Imported here: few paths have non-ASCII letters.
    from unicodedata import normalize

    return normalize("NFC", normalize("NFD", text).casefold())


@lru_cache(maxsize=1024)
def _ends(glob: str) -> tuple[str, str]:
    """Return the prefix and suffix of every match of a glob; most values fail these without a walk."""
    parts = re.split(r"\*\*/|[*?]+", glob)
    return parts[0], parts[-1]


# `**/` is two positions: at the start of a directory, where it may end, and inside one, where it may not.
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
    """Add the positions reached by letting wildcards match nothing."""
    reached = set(places)
    for place in places:
        here = place
        while here < len(glob) and glob[here] in {"*", "**", BETWEEN}:
            here += 2 if glob[here] == BETWEEN else 1
            reached.add(here)
    return reached


def _step(glob: tuple[str, ...], place: int, character: str) -> tuple[int, ...]:
    """Return the positions in the glob after one more character."""
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
