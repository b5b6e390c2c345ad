"""What of a project evaluated code may only read: our own files there, and what rules hold from writing.

A rule that denies `write_file` a path, or asks about it, would be beside the point if `eval_form` could write
the same file: code cannot ask in the middle of its work. Mounts know paths and no patterns: what cannot be
held is told.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gramercy.execution.policy import Action
from gramercy.images.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gramercy.execution.policy import Policy
    from gramercy.tools.tool import Tool

# Entries of the project that are compared with a pattern when an image starts: about 50 ms.
MOST_ENTRIES = 5_000
# Each is a mount, a third of a millisecond of the start.
MOST_KEPT = 60
# Tools that write a file by its path; the rules for the first that is served count.
WRITERS = ("write_file", "edit_file", "edit_definition")
# What may not be written unasked.
HELD = (Action.DENY, Action.ASK)
_WORDS = {Action.DENY: "denies", Action.ASK: "asks about"}
_WILD = re.compile(r"[*?]")


class Kept(msgspec.Struct, frozen=True):
    """Paths that evaluated code may only read, and sentences about what of the rules is not held inside."""

    paths: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def walled(
    environment: Environment | None,
    project: Path,
    named: Iterable[str | None],
    policy: Policy | None,
    tools: Iterable[Tool],
) -> Environment:
    """Return an environment in which our own files, as named to us, and what rules deny are read-only."""
    found = {tool.name: tool for tool in tools}
    writer = next((found[name] for name in WRITERS if name in found), None)
    kept = kept_by_rules(policy, writer, project) if policy is not None and writer is not None else Kept()
    environment = environment or Environment()
    return msgspec.structs.replace(
        environment,
        kept=(*own_files(project, named), *kept.paths),
        notes=(*environment.notes, *kept.notes),
    )


def own_files(project: Path, named: Iterable[str | None]) -> tuple[Path, ...]:
    """Return those of our own files, as they were named to us, that are in the project."""
    found = (Path(name).resolve() for name in named if name and os.path.isfile(name))  # noqa: PTH113
    return tuple(path for path in found if path.is_relative_to(project))


def kept_by_rules(policy: Policy, writer: Tool, project: Path) -> Kept:
    """Return the paths of a project that a policy does not let a tool write unasked."""
    paths: dict[Path, None] = {}
    notes = []
    for number, rule in enumerate(policy.rules, 1):
        if rule.action not in HELD or set(rule.arguments) != {"path"} or not rule.matches_tool(writer):
            continue
        glob = rule.arguments["path"]
        found, lacking = _held(policy, writer, project, number, glob)
        paths |= dict.fromkeys(found)
        if lacking:
            named = rule.named(number)
            what = f"{named[0].upper()}{named[1:]} {_WORDS[rule.action]} writing {glob}"
            notes.append(f"{what}, but evaluated code is not kept from {lacking}.")
    held = tuple(paths)[:MOST_KEPT]
    if len(paths) > MOST_KEPT:
        notes.append(f"Of {len(paths)} paths that rules hold, the first {MOST_KEPT} are read-only inside.")
    return Kept(held, tuple(notes))


def _held(policy: Policy, writer: Tool, project: Path, number: int, glob: str) -> tuple[list[Path], str]:
    """Return what is held of a pattern, and what is not."""
    whole = _directory_of(glob)
    if whole is not None and not _has_exceptions(policy, writer, number):
        place = _inside(project, whole)
        if place is None or not place.is_dir():
            return [], f"making {whole}, which is not there"
        return [place], ""
    if not _WILD.search(glob):
        place = _inside(project, glob)
        if place is None or not _is_held(policy, writer, glob):
            return [], ""
        return ([place], "") if place.exists() else ([], "making it: it is not there")
    found, is_cut = [], False
    for count, (name, place) in enumerate(_entries(project)):
        is_cut = count >= MOST_ENTRIES
        if is_cut:
            break
        if _rule_matches(policy, writer, number, name):
            found.append(place)
    beyond = f", nor from those beyond the first {MOST_ENTRIES:,} entries" if is_cut else ""
    return found, f"making new files that match{beyond}"


def _rule_matches(policy: Policy, writer: Tool, number: int, name: str) -> bool:
    """Tell whether it is this rule that decides about a path."""
    return policy.why(writer, {"path": name}).rule is policy.rules[number - 1]


def _directory_of(glob: str) -> str | None:
    """Return the directory of which a pattern means all; the project itself for `**`."""
    if glob in ("**", "**/*"):
        return "."
    head = glob.removesuffix("/**")
    return head if head != glob and not _WILD.search(head) else None


def _has_exceptions(policy: Policy, writer: Tool, number: int) -> bool:
    """Tell whether an earlier rule lets the tool write something, which may be below the directory."""
    held = policy.rules[number - 1]
    earlier = (
        rule
        for rule in policy.rules[: number - 1]
        # What only tightens takes nothing from another file.
        if not (
            rule.tightens and rule.origin and (held.origin is None or rule.origin.file != held.origin.file)
        )
    )
    return any(rule.action not in HELD and rule.matches_tool(writer) for rule in earlier)


def _is_held(policy: Policy, writer: Tool, name: str) -> bool:
    return policy.why(writer, {"path": name}).action in HELD


def _inside(project: Path, name: str) -> Path | None:
    """Return a path in the project that is what it is called: a link could be replaced."""
    path = Path(os.path.normpath(project / name))
    is_inside = path.is_relative_to(project) and path.resolve() == path
    return path if is_inside else None


def _entries(project: Path) -> Iterator[tuple[str, Path]]:
    for place, folders, files in os.walk(project):
        folders.sort()
        for name in sorted(files):
            path = Path(place, name)
            if not path.is_symlink():
                yield str(path.relative_to(project)), path
