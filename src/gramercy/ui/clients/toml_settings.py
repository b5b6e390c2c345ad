"""The settings of clients that write TOML: each server has its own table. Other text stays unchanged.

Statements are found by blanking strings and comments. The real parser always interprets them. tomlkit is not
used: with a table it removes the comment above the next one, and it mixes line ends.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gramercy.errors import ClientSettingsError
from gramercy.ui.clients.base import check_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a file: a header, or an assignment with the place of its value."""

    start: int
    end: int
    keys: tuple[str, ...]
    is_header: bool
    value: int
    value_end: int


@dataclass(frozen=True, slots=True)
class TomlSettings:
    """Servers are the tables below one table."""

    section: str

    def snippet(self, name: str, entry: dict[str, Any]) -> str:
        """Write a file that has this server and nothing else."""
        lines = [f"[{self.section}.{name}]", *(f"{key} = {_render(value)}" for key, value in entry.items())]
        return "\n".join(lines) + "\n"

    def servers(self, text: str) -> dict[str, Any]:
        """Return the entries of all servers by their names."""
        section = _load(text).get(self.section, {})
        return section if isinstance(section, dict) else {}

    def get(self, text: str, name: str) -> Any:
        """Return the entry of a server, or None."""
        return self.servers(text).get(name)

    def put(self, text: str, name: str, entry: dict[str, Any]) -> str:
        """Add a server, or set the keys of the entry in the one that is there."""
        there = self.get(text, name)
        check_entry(name, there, entry)
        newline = "\r\n" if "\r\n" in text else "\n"
        if there is None:
            gap = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
            changed = text + gap + self.snippet(name, entry).replace("\n", newline)
        else:
            changed = text
            for key, value in entry.items():
                if there.get(key) != value:
                    changed = self._set(changed, name, key, _render(value), newline)
        return self._compared(text, changed, name, {**(there or {}), **entry})

    def drop(self, text: str, name: str) -> str:
        """Remove a server, with the tables below it."""
        if self.get(text, name) is None:
            return text
        changed = text
        for start, end in reversed(self._spans(text, name)):
            after = changed[end:]
            before = changed[:start]
            # Remove the empty line before the table as well.
            if before.endswith(("\n\n", "\n\r\n")) and (not after or after.startswith(("\n", "\r\n"))):
                before = before[:-2] if before.endswith("\r\n") else before[:-1]
            changed = before + after
        return self._compared(text, changed, name, None)

    def _set(self, text: str, name: str, key: str, value: str, newline: str) -> str:
        header, body = self._table(text, name)
        for statement in body:
            if statement.keys == (key,):
                return text[: statement.value] + value + text[statement.value_end :]
        line_end = text.find("\n", header.end)
        place = len(text) if line_end < 0 else line_end + 1
        gap = newline if line_end < 0 else ""
        return f"{text[:place]}{gap}{key} = {value}{newline}{text[place:]}"

    def _table(self, text: str, name: str) -> tuple[Statement, list[Statement]]:
        body: list[Statement] = []
        header = None
        for statement in _statements(text):
            if statement.is_header:
                if header is not None:
                    break
                header = statement if statement.keys == (self.section, name) else None
            elif header is not None:
                body.append(statement)
        if header is None:
            raise ClientSettingsError(
                f"{name} is there, but not as a table [{self.section}.{name}]: change it by hand"
            )
        return header, body

    def _spans(self, text: str, name: str) -> list[tuple[int, int]]:
        """Return the spans of a server's tables, without comments after their last line."""
        self._table(text, name)
        spans: list[tuple[int, int]] = []
        is_ours = False
        for statement in _statements(text):
            if statement.is_header:
                is_ours = statement.keys[:2] == (self.section, name)
                if is_ours:
                    spans.append((statement.start, statement.start))
            if is_ours:
                end = text.find("\n", statement.end)
                spans[-1] = (spans[-1][0], len(text) if end < 0 else end + 1)
        return spans

    def _compared(self, old: str, new: str, name: str, entry: dict[str, Any] | None) -> str:
        """Check that nothing else has changed, for any text."""
        expected, advice = _load(old), "it cannot be changed without changing something else: do it by hand"
        section = expected.get(self.section, {})
        if not isinstance(section, dict):
            raise ClientSettingsError(f"{self.section} is not a table")
        wanted = {key: value for key, value in section.items() if key != name}
        try:
            found = tomllib.loads(new)
        except tomllib.TOMLDecodeError:
            raise ClientSettingsError(advice) from None
        ours = found.pop(self.section, {})
        expected.pop(self.section, None)
        if ours.pop(name, None) != entry or ours != wanted or found != expected:
            raise ClientSettingsError(advice)
        return new


def _load(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ClientSettingsError(f"{str(error)[:1].lower()}{str(error)[1:]}") from None
    except RecursionError:
        raise ClientSettingsError("nested too deeply") from None


def _statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a text that is valid TOML."""
    plain = _TOKEN.sub(_blank, text)
    start = depth = offset = 0
    for line in plain.split("\n"):
        if depth == 0:
            start = offset
        offset += len(line) + 1
        is_header = depth == 0 and line.lstrip().startswith("[")
        if not is_header:
            depth += sum(line.count(sign) for sign in "[{") - sum(line.count(sign) for sign in "]}")
        if depth == 0 and plain[start : offset - 1].strip():
            yield _statement(text, plain, start, offset - 1, is_header=is_header)


def _statement(text: str, plain: str, start: int, end: int, *, is_header: bool) -> Statement:
    inside = plain[start:end]
    stop = start + len(inside.rstrip())
    if is_header:
        return Statement(start, stop, _keys(text[start:stop]), is_header=True, value=stop, value_end=stop)
    equals = start + inside.index("=")
    value = equals + 1 + len(plain[equals + 1 : stop]) - len(plain[equals + 1 : stop].lstrip())
    keys = _keys(f"{text[start:equals]}= 0")
    return Statement(start, stop, keys, is_header=False, value=value, value_end=stop)


def _keys(statement: str) -> tuple[str, ...]:
    """Ask the parser which keys a header or an assignment names."""
    found: list[str] = []
    value: Any = tomllib.loads(statement)
    while value:
        value = value[0] if isinstance(value, list) else value
        if not value:
            break
        key = next(iter(value))
        found.append(key)
        value = value[key]
    return tuple(found)


def _blank(match: re.Match[str]) -> str:
    text = match.group()
    return (" " if text.startswith("#") else "S") * len(text)


def _render(value: Any) -> str:
    """Format a string, a number or a list of them. JSON and TOML differ in one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
