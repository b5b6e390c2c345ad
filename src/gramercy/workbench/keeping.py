"""The paths of a project that are read-only for evaluated code: our own files, and those that rules protect.

A rule that denies one of the file tools a path, or asks about it, would be useless if `eval_form` could write
the same file: code cannot ask in the middle of its work. So it holds for evaluated code too, whichever file
tool it names, and whether that tool is served or not. Mounts work on paths, not on patterns: rules that
cannot be enforced are reported.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gramercy.execution.policy import Action
from gramercy.images.environment import Environment, Files
from gramercy.tools.definition import create_tool
from gramercy.toolsets.factory import EVALUATORS
from gramercy.toolsets.paths import READERS, WRITERS, RealPlace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gramercy.execution.policy import Policy, Rule
    from gramercy.tools.tool import Tool

# Entries of the project that are compared with a pattern when an image starts: about 50 ms.
MOST_ENTRIES = 5_000
# Each is a mount, and costs a third of a millisecond at the start.
MOST_KEPT = 60
READER = "read_file"
# Actions that forbid a write without a question.
HELD = (Action.DENY, Action.ASK)
_WORDS = {Action.DENY: "denies", Action.ASK: "asks about"}
_WILD = re.compile(r"[*?]")
_OWN = "gramercy reads rules, tools or pins from it"


class Kept(msgspec.Struct, frozen=True):
    """Read-only paths for evaluated code, each with a reason, and the rules that are not enforced inside."""

    reasons: Mapping[Path, str] = {}
    notes: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths alone."""
        return tuple(self.reasons)


def walled(
    environment: Environment | None,
    project: Path,
    named: Iterable[str | None],
    policy: Policy | None,
    tools: Iterable[Tool] = (),
) -> Environment:
    """Return an environment in which our own files, as named to us, and protected paths are read-only."""
    environment = environment or Environment()
    found = {tool.name: tool for tool in tools}
    kept, shown = Kept(), tuple[str, ...]()
    if policy is not None:
        shown = readable_inside(policy, found.get(READER) or _stand_in(READER, READERS[READER][1], "safe"))
        if environment.files is Files.WRITE:
            kept = kept_by_rules(policy, file_writers(found), project)
    reasons = {**dict.fromkeys(own_files(project, named), _OWN), **kept.reasons}
    return msgspec.structs.replace(
        environment,
        kept=tuple(reasons),
        reasons={str(path): reason for path, reason in reasons.items()},
        notes=(*environment.notes, *kept.notes, *shown),
    )


def file_writers(found: Mapping[str, Tool] | None = None) -> list[Tool]:
    """Return the tools that write a file by its path. For those that are not found, return a stand-in.

    A rule about one of them is a statement about its path, whether or not the tool is served.
    """
    return [
        (found or {}).get(name) or _stand_in(name, categories, "dangerous")
        for name, (_, categories) in WRITERS.items()
    ]


def _stand_in(name: str, categories: Sequence[str], level: str) -> Tool:
    return create_tool(
        name, "A file tool.", {"type": "object"}, dict, safety_level=level, categories=categories
    )


def readable_inside(policy: Policy, reader: Tool) -> tuple[str, ...]:
    """Describe which rules about reading hold for the file tools only: an image reads its whole project."""
    return tuple(
        f"{_begun(rule.named(number))} {_WORDS[rule.action]} reading {rule.arguments['path']} by the file "
        "tools, but evaluated code can read it."
        for number, rule in enumerate(policy.rules, 1)
        if rule.action in HELD and "path" in rule.arguments and rule.matches_tool(reader)
    )


def _begun(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


def own_files(project: Path, named: Iterable[str | None]) -> tuple[Path, ...]:
    """Return those of our own files, as they were named to us, that are in the project."""
    found = (Path(name).resolve() for name in named if name and os.path.isfile(name))  # noqa: PTH113
    return tuple(path for path in found if path.is_relative_to(project))


def kept_by_rules(policy: Policy, writers: Sequence[Tool], project: Path) -> Kept:
    """Return the paths of a project that a policy does not let one of the tools write without a question."""
    reasons: dict[Path, str] = {}
    notes = []
    for number, rule in enumerate(policy.rules, 1):
        writer = next((tool for tool in writers if rule.matches_tool(tool)), None)
        if rule.action not in HELD or writer is None:
            continue
        if not rule.looks_inside:
            notes += _beside(rule, number, writer)
        if set(rule.arguments) != {"path"}:
            continue
        found, lacking = _Held(policy, writer, project, number).found()
        what = f"{rule.named(number)} {_WORDS[rule.action]} writing {rule.arguments['path']}"
        for path in found:
            reasons.setdefault(path, _reason(rule, what))
        if lacking:
            notes.append(f"{_begun(what)}, but evaluated code is not kept from {lacking}.")
    if len(reasons) > MOST_KEPT:
        notes.append(f"Of {len(reasons)} paths that rules hold, the first {MOST_KEPT} are read-only inside.")
    return Kept(dict(list(reasons.items())[:MOST_KEPT]), tuple(notes))


def _reason(rule: Rule, what: str) -> str:
    if rule.action is Action.DENY:
        return what
    return f"{what}, and an evaluation cannot ask: the file tools can"


def _beside(rule: Rule, number: int, writer: Tool) -> list[str]:
    """For a rule about a file tool without a path, say that it does not limit evaluated code."""
    evaluators = (_stand_in(name, (category,), "cautious") for name, category, _ in EVALUATORS)
    if any(rule.matches_tool(tool) for tool in evaluators):
        return []
    what = f"{_begun(rule.named(number))} {_WORDS[rule.action]} {writer.name}"
    told = "so it does not hold for evaluated code, which can write files of the project"
    return [f"{what} and names no path, {told}: --files read keeps it from that."]


class _Held:
    """The protected paths for the pattern of one rule."""

    def __init__(self, policy: Policy, writer: Tool, project: Path, number: int) -> None:
        self._policy, self._writer, self._project = policy, writer, project
        self._number, self._rule = number, policy.rules[number - 1]
        self._glob = self._rule.arguments["path"]

    def found(self) -> tuple[list[Path], str]:
        """Return the paths that are protected by the pattern, and a note about the rest."""
        whole = _directory_of(self._glob)
        if whole is not None and not self._has_exceptions():
            return self._single(whole, f"making {whole}, which is not there", is_directory=True)
        if not _WILD.search(self._glob):
            return self._single(self._glob, "making it: it is not there")
        found, beyond = self._walked()
        return found, f"making new files that match{beyond}"

    def _single(self, name: str, absent: str, *, is_directory: bool = False) -> tuple[list[Path], str]:
        """Return the one path that is meant. If it is missing, return its spellings in other case."""
        place = Path(os.path.normpath(self._project / name))
        if not place.is_relative_to(self._project):
            return [], ""
        if place.resolve() != place:
            return [], "writing it: a link leads there, and could be replaced"
        if place.is_dir() if is_directory else place.exists():
            is_held = is_directory or self._decides(str(place.relative_to(self._project)), name)
            return ([place], "") if is_held else ([], "")
        return self._walked()[0], absent

    def _walked(self) -> tuple[list[Path], str]:
        """Return the existing files that match, and a note if there are too many to check."""
        found: list[Path] = []
        for count, (name, path) in enumerate(_entries(self._project)):
            if count >= MOST_ENTRIES:
                return found, f", nor from those beyond the first {MOST_ENTRIES:,} entries"
            if self._decides(name):
                found.append(path)
        return found, ""

    def _decides(self, name: str, given: str = "") -> bool:
        """Return whether this rule decides about a path, by its real name and as it is given."""
        given = given.removeprefix("./") or name
        arguments, places = {"path": given}, {"path": RealPlace(given, str(self._project), name)}
        # Most names do not match, and finding the rule that decides takes longer.
        if not self._rule.matches_arguments(arguments, self._writer, places):
            return False
        return self._policy.why(self._writer, arguments, places).rule is self._rule

    def _has_exceptions(self) -> bool:
        """Return whether an earlier rule lets the tool write something, which may be below the directory."""
        held = self._rule.origin
        earlier = (
            rule
            for rule in self._policy.rules[: self._number - 1]
            # A rule that only tightens cannot weaken another file.
            if not (rule.tightens and rule.origin and (held is None or rule.origin.file != held.file))
        )
        return any(rule.action not in HELD and rule.matches_tool(self._writer) for rule in earlier)


def _directory_of(glob: str) -> str | None:
    """Return the directory that a pattern covers completely: the project itself for `**`."""
    if glob in ("**", "**/*"):
        return "."
    head = glob.removesuffix("/**")
    return head if head != glob and not _WILD.search(head) else None


def _entries(project: Path) -> Iterator[tuple[str, Path]]:
    for place, folders, files in os.walk(project):
        folders.sort()
        for name in sorted(files):
            path = Path(place, name)
            if not path.is_symlink():
                yield str(path.relative_to(project)), path
