"""The layers of rules: their owners, their files, and their precedence.

Nearest first: the file that a person gives with --policy; the user's rules for this project; the project's
own, which evaluated code can write and which therefore only tighten; the user's rules for every project; and
the defaults of the safety levels. The lowest ceiling of all counts.
"""

from __future__ import annotations

import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gramercy.errors import GramercyError, InvalidPolicyError
from gramercy.execution.policy import Policy, Rule, RuleOrigin, read_level
from gramercy.gram.suggestion import did_you_mean
from gramercy.images.guarded import OWN, OWN_POLICY
from gramercy.images.trust import check_absent, check_file
from gramercy.text import is_hidden, reason_of
from gramercy.workbench.configuration import PROJECTS, bounded_content, user_file
from gramercy.workbench.modes import Mode, policy_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gramercy.execution.executor import Executor
    from gramercy.tools.safety import Safety

NAME = "policy.toml"
# The table with the rules of a project in its settings file.
TABLE = "policy"
KEYS = ("rules", "max_safety_level")
# A person who has written a rule needs longer than this to return to the client and try again.
LOOK_SECONDS = 1.0
GIVEN, SPECIAL, PROJECT, GENERAL = "given", "user-project", "project", "user"
_HEADER = re.compile(r"^[ \t]*\[\[(.+)\]\][ \t]*(?:#.*)?$", re.MULTILINE)
_CEILING = re.compile(r"^[ \t]*max_safety_level[ \t]*=", re.MULTILINE)


class Layer(msgspec.Struct, frozen=True):
    """The rules and the ceiling of one file."""

    name: str
    path: Path
    rules: tuple[Rule, ...] = ()
    ceiling: Safety | None = None
    ceiling_origin: RuleOrigin | None = None


class Policies(msgspec.Struct, frozen=True):
    """The layers of a project, nearest first, and the policy that combines them.

    `remarks` list the rules that have less effect than they say.
    """

    project: Path | None
    layers: tuple[Layer, ...]
    policy: Policy
    remarks: tuple[str, ...] = ()

    @property
    def own_files(self) -> tuple[str, ...]:
        """The files with rules inside of the project. Evaluated code must not write them."""
        return tuple(str(each.path) for each in self.layers if self.is_inside(each))

    def is_inside(self, layer: Layer) -> bool:
        """Return whether the file of a layer is in the project."""
        return self.project is not None and layer.path.is_relative_to(self.project)


class _File(msgspec.Struct, frozen=True):
    """A file with rules: its displayed name, its text and the parsed data."""

    path: Path
    shown: str
    text: str
    data: dict[str, Any]


def user_policy_file() -> Path:
    """Return the path of the user's own rules."""
    return user_file().with_name(NAME)


def read_policies(
    project: str | Path | None,
    given: str | None = None,
    *,
    before: Policies | None = None,
    instead: str | None = None,
) -> Policies:
    """Return the rules for a project, or report a fault in one of the files with its place.

    None is a project that is not known yet. With `before`, files in the project are not read again. Another
    file may be tried `instead` of the user's own.
    """
    place = None if project is None else Path(project).expanduser().resolve()
    kept = [layer for layer in before.layers if before.is_inside(layer)] if before is not None else []
    told = [layer for layer in kept if layer.name == GIVEN]
    if given and not told:
        told = [_layer(GIVEN, _read(Path(given), given), ())]
    own = [layer for layer in kept if layer.name == PROJECT]
    if before is None and place is not None:
        own = _of_project(place)
    path = Path(instead) if instead else user_policy_file()
    # A file that is only tried cannot give rights to evaluated code, which may have written it.
    may_allow = bool(instead) or place is None or not path.resolve().is_relative_to(place)
    general, special, remarks = _of_user(place, path, may_allow=may_allow)
    if before is not None and not may_allow:
        general = [layer for layer in kept if layer.name == GENERAL]
        special = [layer for layer in kept if layer.name == SPECIAL]
    found = (layer for layer in (*told, *special, *own, *general) if layer.rules or layer.ceiling)
    return _joined(place, tuple(found), remarks)


def _joined(project: Path | None, layers: tuple[Layer, ...], remarks: list[str]) -> Policies:
    rules = [rule for layer in layers for rule in layer.rules]
    lowest = min((layer for layer in layers if layer.ceiling is not None), key=_ceiling, default=None)
    if lowest is None:
        policy = Policy(rules)
    else:
        policy = Policy(rules, _ceiling(lowest), ceiling_origin=lowest.ceiling_origin)
    return Policies(project, layers, policy, tuple(remarks))


def _ceiling(layer: Layer) -> Safety:
    assert layer.ceiling is not None  # noqa: S101 - asked only of those that have one; this tells mypy
    return layer.ceiling


def _of_user(
    project: Path | None, path: Path, *, may_allow: bool
) -> tuple[list[Layer], list[Layer], list[str]]:
    """Return the user's rules for every project, those for this one, and the remarks about them."""
    if not os.path.exists(path):  # noqa: PTH110 - does not raise where the directory cannot be searched
        return [], [], []
    file = _read(path, shown_path(path))
    remarks = []
    if not may_allow:
        remarks.append(f"{file.shown} is in the project, where evaluated code can write: it may only tighten")
    general = [_layer(GENERAL, file, (), tightens=not may_allow, beside=(PROJECTS,))]
    special = [
        _layer(SPECIAL, file, (PROJECTS, name), tightens=not may_allow)
        for name in _table(file, (PROJECTS,))
        if Path(name).expanduser().resolve() == project
    ]
    return general, special, remarks


def _of_project(project: Path) -> list[Layer]:
    """Return the rules in the files of the project, one layer for each: no file can weaken another."""
    layers = []
    places: dict[str, tuple[str, ...]] = {OWN_POLICY: (), OWN: (TABLE,)}
    for name, place in places.items():
        path = project / name
        if not os.path.exists(path):  # noqa: PTH110 - as above
            check_absent(path)
            continue
        if not path.resolve().is_relative_to(project):
            raise InvalidPolicyError(f"{path} leads out of the project: rules of a project must be in it")
        if place and TABLE not in _peeked(path):
            continue
        file = _read(path, name)
        if not place or TABLE in file.data:
            layers.append(_layer(PROJECT, file, place, tightens=True))
    return layers


def _peeked(path: Path) -> str:
    """Return the text of a settings file. Its faults are reported when the settings are read."""
    try:
        return bounded_content(path).decode("utf-8", "replace")
    except OSError:
        return ""


def _read(path: Path, shown: str) -> _File:
    import tomllib

    try:
        text = check_file(path, bounded_content(path)).decode("utf-8")
        return _File(path.resolve(), shown, text, tomllib.loads(text))
    except OSError as error:
        raise InvalidPolicyError(f"the policy {shown} cannot be read: {reason_of(error)}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidPolicyError(f"the policy {shown} is not TOML: {error}") from None


def _layer(
    name: str, file: _File, place: tuple[str, ...], *, tightens: bool = False, beside: tuple[str, ...] = ()
) -> Layer:
    """Parse the rules and the ceiling in one table of a file."""
    table = _table(file, place)
    where = f"{file.shown} [{'.'.join(place)}]" if place else file.shown
    unknown = [key for key in table if key not in (*KEYS, *beside)]
    if unknown:
        hint = did_you_mean(unknown[0], KEYS, f"expected {' and '.join(KEYS)}")
        raise InvalidPolicyError(f"{where}: there is no {unknown[0]!r:.60} in a policy: {hint}")
    found = table.get("rules", [])
    if not isinstance(found, list):
        header = ".".join([*map(written_key, place), "rules"])
        raise InvalidPolicyError(f"{where}: rules must be a list: write [[{header}]] before each of them")
    lines = _lines(file.text).get((*place, "rules"), [])
    if len(lines) != len(found):
        # A list on one line, or brackets in a longer text: better no line than a wrong one.
        lines = [0] * len(found)
    rules = []
    for number, (data, line) in enumerate(zip(found, lines, strict=True), 1):
        origin = RuleOrigin(name, file.shown, line, number, tightens)
        try:
            rules.append(replace(Rule.from_data(data), origin=origin))
        except InvalidPolicyError as error:
            raise InvalidPolicyError(f"{origin}: rule {number}: {error}") from None
    return Layer(name, file.path, tuple(rules), *_ceiling_of(table, file, name))


def _ceiling_of(table: Mapping[str, Any], file: _File, name: str) -> tuple[Safety | None, RuleOrigin | None]:
    if "max_safety_level" not in table:
        return None, None
    found = list(_CEILING.finditer(file.text))
    line = _line_at(file.text, found[0].start()) if len(found) == 1 else 0
    origin = RuleOrigin(name, file.shown, line)
    try:
        return read_level(table["max_safety_level"]), origin
    except InvalidPolicyError as error:
        raise InvalidPolicyError(f"{origin}: {error}") from None


def _table(file: _File, place: tuple[str, ...]) -> dict[str, Any]:
    """Return a table of a file, or an empty one."""
    data: Any = file.data
    for key in place:
        data = data.get(key, {})
        if not isinstance(data, dict):
            raise InvalidPolicyError(f"{file.shown}: {key} must be a table")
    found: dict[str, Any] = data
    return found


def _lines(text: str) -> dict[tuple[str, ...], list[int]]:
    """Return the first lines of the tables in each array of tables. tomllib does not report them."""
    import tomllib

    found: dict[tuple[str, ...], list[int]] = {}
    for header in _HEADER.finditer(text):
        try:
            data: Any = tomllib.loads(f"[[{header[1]}]]")
        except tomllib.TOMLDecodeError:
            continue
        path = []
        while isinstance(data, dict):
            key, data = next(iter(data.items()))
            path.append(key)
        found.setdefault(tuple(path), []).append(_line_at(text, header.start()))
    return found


def _line_at(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def written_key(word: str) -> str:
    """Format a TOML key, with quotes where it needs them."""
    return word if re.fullmatch(r"[A-Za-z0-9_-]+", word) else written_text(word)


def written_text(text: str) -> str:
    """Format a TOML string. Hidden characters, which TOML cannot hold or people not see, are escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(f"\\U{ord(c):08x}" if is_hidden(c) else c for c in quoted)


def shown_path(path: Path) -> str:
    """Format a path with ~ for the home directory."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


class Rulebook:
    """The layers of a server whose project may become known later. `tell` gets lines for the person.

    The person's own files are read again when they change. Those of the project count as they were when the
    server opened it: evaluated code may have changed them since, and only the next start can check that.
    """

    def __init__(
        self,
        project: Path | None,
        given: str | None,
        tell: Callable[[str], object],
        mode: Mode = Mode.ASK,
    ) -> None:
        self.policies: Policies = read_policies(project, given)
        self._mode = mode
        self._given = given
        self._tell = tell
        self._executor: Executor | None = None
        self._used: tuple[object, ...] = ()
        # A project whose rules could not be read yet.
        self._late: Path | None = None
        self._marks = self._look()
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    @property
    def policy(self) -> Policy:
        """The combined layers, in the mode of the server."""
        return policy_in(self._mode, self.policies.policy)

    def serve(self, executor: Executor) -> None:
        """Keep the policy of an executor up to date until `close`."""
        self._executor = executor
        self._used = _identity(self.policy)
        threading.Thread(target=self._watch, name="gramercy-rules", daemon=True).start()

    def close(self) -> None:
        """Stop watching the files."""
        self._is_over.set()

    def move(self, project: Path) -> None:
        """Use the rules of a project that was not known at the start. If they cannot be read, deny."""
        self._late = project
        try:
            with self._lock:
                self._marks = self._look()
                self.policies = read_policies(project, self._given)
                self._use(self.policy)
                self._late = None
        except GramercyError as error:
            self._tell(str(error))
            self._use(Policy([{"action": "deny", "reason": str(error)}]))

    def read_again(self) -> None:
        """Use the current rules of the person's own files. If they are faulty, the old rules stay."""
        if self._late is not None:
            # Nothing is allowed until the rules of the project can be read.
            self.move(self._late)
            return
        try:
            with self._lock:
                self._marks = self._look()
                self.policies = read_policies(self.policies.project, self._given, before=self.policies)
                if self._use(self.policy):
                    count = len(self.policies.policy.rules)
                    told = f"{count} {'is' if count == 1 else 'are'} in force"
                    self._tell(f"the rules were read again: {told}")
        except GramercyError as error:
            self._tell(f"the rules before stay in force: {error}")

    def _use(self, policy: Policy) -> bool:
        """Give the executor new rules, only if they differ: clients are then told to list the tools again."""
        if self._executor is None or _identity(policy) == self._used:
            return False
        self._executor.policy = policy
        self._used = _identity(policy)
        return True

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            if self._look() != self._marks:
                self.read_again()

    def _look(self) -> list[tuple[int, ...]]:
        """Return values that change when the person's files change."""
        files = [user_policy_file(), *([Path(self._given)] if self._given else [])]
        return [_mark(file) for file in files]


def _mark(file: Path) -> tuple[int, ...]:
    try:
        found = os.stat(file)  # noqa: PTH116 - once a second
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _identity(policy: Policy) -> tuple[object, ...]:
    """Return everything that verdicts depend on, including the places of rules in their messages."""
    return policy.version, *(rule.origin for rule in policy.rules)
