"""«Always allow this»: the rules that a person can choose from, and writing one to the user's file.

A rule is written for the project of the call alone, as narrow as the person chooses, before any other rule of
the same table that would decide otherwise.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import contextmanager
from pathlib import Path
from posixpath import dirname, normpath
from time import strftime
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import InvalidPolicyError
from gramercy.execution.policy import Action, Rule, text_of
from gramercy.execution.shown import revealed
from gramercy.images.files.whole import write_whole
from gramercy.images.trust import accept_file, check_file
from gramercy.journal.texts import canonical_text, masked
from gramercy.text import reason_of
from gramercy.workbench.configuration import PROJECTS, bounded_content
from gramercy.workbench.policies import (
    GENERAL,
    GIVEN,
    SPECIAL,
    read_policies,
    shown_path,
    user_policy_file,
    written_key,
    written_text,
)
from gramercy.workbench.replay import let_through, told_let_through

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gramercy.execution.approval import ApprovalRequest
    from gramercy.execution.policy import Verdict
    from gramercy.tools.tool import Place, Tool

# Arguments that name a file or a directory. A rule about them is more useful than one about all arguments.
PATHS = ("path", "file", "directory")
# People read the rules. A call with longer arguments can only be allowed by its tool.
LONGEST_GLOB = 200
MOST_ARGUMENTS = 5
# Wildcards, and characters that TOML cannot hold literally: control characters and lone surrogates.
_WILD = re.compile("[*?\x00-\x1f\x7f\ud800-\udfff]")
_UNWRITABLE = re.compile("[\ud800-\udfff]")
_COMMENT = re.compile(r"[ \t]*#")


class Offer(msgspec.Struct, frozen=True):
    """A rule that a person can choose. `name` is a word for a form, `words` describe what it allows."""

    name: str
    words: str
    rule: Rule


def offered_rules(
    tool: str, arguments: Mapping[str, Any], places: Mapping[str, Place] | None = None
) -> list[Offer]:
    """Return rules that allow a call and others like it, the narrowest first.

    A path is written under its real name. For a control file only that rule is offered: no wider rule would
    allow it.
    """
    reason = f"always allowed by a person, {strftime('%Y-%m-%d')}"

    def rule(globs: dict[str, str] | None = None) -> Rule:
        return Rule(Action.ALLOW, (tool,), arguments=globs or {}, reason=reason)

    offers = []
    name = next((name for name in PATHS if isinstance(arguments.get(name), str) and arguments[name]), None)
    if name is not None:
        place = places.get(name) if places else None
        path = place.name if place is not None else arguments[name]
        if _is_plain(path) and not (place is not None and place.trouble):
            offers.append(Offer("this path", f"{tool} where {name} is {path}", rule({name: path})))
            if place is not None and place.control:
                return offers
            above = dirname(path)
            if above not in ("", "/", ".") and normpath(path) == path:
                glob = f"{above}/**"
                offers.append(Offer("this directory", f"{tool} where {name} is {glob}", rule({name: glob})))
    elif arguments and _is_short(arguments) and not _has_secret(arguments):
        exact = Rule(Action.ALLOW, (tool,), exactly=arguments, reason=reason)
        offers.append(Offer("these arguments", f"{tool} with exactly these arguments and no others", exact))
    return [*offers, Offer("this tool", f"every call of {tool}", rule())]


def _is_plain(glob: str) -> bool:
    """Return whether a value, read as a glob, matches only itself."""
    return bool(glob) and len(glob) <= LONGEST_GLOB and not _WILD.search(glob) and ".." not in glob.split("/")


def _is_short(arguments: Mapping[str, Any]) -> bool:
    """Return whether a person can read all arguments in a rule, and TOML can hold them."""
    if len(arguments) > MOST_ARGUMENTS:
        return False
    return all(
        len(part) <= LONGEST_GLOB and not _UNWRITABLE.search(part)
        for name, value in arguments.items()
        for part in (name, text_of(value))
    ) and not _has_null(list(arguments.values()))


def _has_null(value: Any) -> bool:
    """Return whether a value contains a null: TOML has none."""
    if isinstance(value, list | dict):
        return any(map(_has_null, value.values() if isinstance(value, dict) else value))
    return value is None


def _has_secret(arguments: Mapping[str, Any]) -> bool:
    """Return whether a rule with these arguments would keep a secret that the journal masks later."""
    text = canonical_text(dict(arguments))
    return masked(text) != text


def why_not(verdict: Verdict | None, project: str | None) -> str:
    """Return why a rule in the user's file would not prevent the next question. Else empty."""
    origin = verdict.rule.origin if verdict is not None and verdict.rule is not None else None
    if origin is not None and origin.layer == GIVEN:
        return f"it is asked because of {origin}, given with --policy, which comes before your own rules"
    path = user_policy_file()
    if project and path.resolve().is_relative_to(Path(project).resolve()):
        return f"{shown_path(path)} is in the project, where evaluated code can write, and may only tighten"
    return ""


def remember(rule: Rule, tool: Tool, arguments: Mapping[str, Any], project: str | None) -> Rule:
    """Write a rule into the user's file; return it with its origin.

    It is placed before the rules of its table that decide about this call now. If it cannot be written so
    that it takes effect, InvalidPolicyError contains the rule, so that the person can add it by hand.
    """
    path = user_policy_file().resolve()
    with _locked(path.parent):
        before = _content(path)
        text = _inserted(before, _written(rule, project), _line_before(tool, arguments, project))
        _check(before, text, rule, project)
        _replace(path, text)
        accept_file(path)
    found = read_policies(project or None)
    verdict = found.policy.why(tool, arguments, tool.places(arguments))
    for layer in found.layers:
        for each in layer.rules:
            if each == rule and layer.path == path and verdict.action is Action.ALLOW:
                return each
    told = verdict.explanation
    raise InvalidPolicyError(f"the rule is in {shown_path(path)}, but the call is still not allowed: {told}")


def _content(path: Path) -> str:
    try:
        return check_file(path, bounded_content(path)).decode("utf-8")
    except FileNotFoundError:
        return "# My rules for gramercy; `gramercy policy show` tells which hold where.\n"
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPolicyError(f"{path} cannot be read: {error}") from None


def _header(project: str | None) -> str:
    return f"[[{PROJECTS}.{_text(str(Path(project).resolve()))}.rules]]" if project else "[[rules]]"


def _written(rule: Rule, project: str | None) -> str:
    lines = [_header(project), *(f"{key} = {_text(value)}" for key, value in rule.to_data().items())]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    """Format a value as TOML. Numbers and lists are those of JSON. Unprintable characters are escaped."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{written_key(key)} = {_text(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return written_text(value) if isinstance(value, str) else json.dumps(value)


def _line_before(tool: Tool, arguments: Mapping[str, Any], project: str | None) -> int:
    """Return the line of the first rule of the table that matches this call. 0 is the end of the file."""
    name = SPECIAL if project else GENERAL
    layers = [layer for layer in read_policies(project or None).layers if layer.name == name]
    places = tool.places(arguments)
    for rule in (rule for layer in layers for rule in layer.rules):
        is_about = rule.matches_tool(tool) and rule.matches_arguments(arguments, tool, places)
        if is_about and rule.origin is not None:
            return rule.origin.line
    return 0


def _inserted(text: str, rule: str, line: int) -> str:
    # Lines as TOML counts them: splitlines() also ends a line at a form feed or U+2028.
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    if not line:
        gap = "" if not lines else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}{rule}"
    place = line - 1
    # Comments above a rule belong to that rule.
    while place > 0 and _COMMENT.match(lines[place - 1]):
        place -= 1
    return "".join([*lines[:place], rule, "\n", *lines[place:]])


def _check(before: str, after: str, rule: Rule, project: str | None) -> None:
    """Refuse a text that differs from the old one by more than the rule."""
    import tomllib

    try:
        old, new = tomllib.loads(before), tomllib.loads(after)
        rules = _rules(new, project)
        rules.remove(rule.to_data())
        is_good = rules == _rules(old, project) and _without(new, project) == _without(old, project)
    except (ValueError, KeyError, TypeError, AttributeError):
        is_good = False
    if not is_good:
        by_hand = _written(rule, project)
        raise InvalidPolicyError(
            f"{shown_path(user_policy_file())} was left as it is; add by hand:\n{by_hand}"
        )


def _table(data: dict[str, Any], project: str | None) -> dict[str, Any]:
    if not project:
        return data
    found: dict[str, Any] = data.get(PROJECTS, {}).get(str(Path(project).resolve()), {})
    return found


def _rules(data: dict[str, Any], project: str | None) -> list[Any]:
    return list(_table(data, project).get("rules", []))


def _without(data: dict[str, Any], project: str | None) -> dict[str, Any]:
    """Return all but the rules of one table, without tables that are empty then."""
    table = _table(data, project)
    rest = {key: value for key, value in table.items() if key != "rules"}
    if not project:
        return rest
    others = {key: value for key, value in data.get(PROJECTS, {}).items() if value is not table}
    return {"here": rest, "others": others, **{key: value for key, value in data.items() if key != PROJECTS}}


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let one process at a time write the file."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidPolicyError(f"no rule can be written into {directory}: {reason_of(error)}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _replace(path: Path, text: str) -> None:
    """Replace the text of a file atomically, so that no reader sees half of it."""
    try:
        write_whole(path, text, mode=None if path.exists() else 0o600)
    except OSError as error:
        raise InvalidPolicyError(f"the rule cannot be written into {path}: {reason_of(error)}") from None


class FormOffers:
    """The same offers for a form at a client. `written` is called after a rule was written."""

    def __init__(self, request: ApprovalRequest, written: Callable[[], object]) -> None:
        self._request = request
        self._written = written
        offered = offered_rules(request.tool.name, request.arguments, request.places)
        self._offers = {offer.name: offer for offer in offered}
        self.names = tuple(self._offers)
        told = "; ".join(
            f"{offer.name}: {offer.words} ({self._past(offer)})" for offer in self._offers.values()
        )
        self.description = revealed(f"Allow such calls in {request.project} without asking. {told}")

    def _past(self, offer: Offer) -> str:
        request = self._request
        if request.journal is None:
            return "what it would have let through is not recorded"
        found, total = let_through(request.journal, offer.rule, request.tool, request.project, request.key)
        return told_let_through(found, total)

    def write(self, name: str) -> str:
        """Write the rule of that name. Return a message about it."""
        request = self._request
        rule = remember(self._offers[name].rule, request.tool, request.arguments, request.project)
        self._written()
        return f"always, by {rule.origin}"


def form_offers(written: Callable[[], object], request: ApprovalRequest) -> FormOffers | None:
    """Return the offers for a form, None where no project is known, or a rule would not help."""
    if not request.project or why_not(request.verdict, request.project):
        return None
    return FormOffers(request, written)


def told_rule(rule: Rule) -> str:
    """Describe the rule that was written, and its file."""
    return f"{rule.origin} says from now on: {rule}"
