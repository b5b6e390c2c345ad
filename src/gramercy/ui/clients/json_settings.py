"""The settings of clients that write JSON, with or without comments. All but one value stays unchanged.

Comments and trailing commas are blanked before the text is parsed, so every position in the blanked text is
the same position in the original.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from gramercy.errors import ClientSettingsError
from gramercy.ui.clients.base import check_entry, merged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n\r]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_SPACE = re.compile(r"\s*")
_COMMA = re.compile(r"\s*,")
_INDENTATION = re.compile(r"[ \t]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class JsonSettings:
    """Servers are the members of one object, in a file that may extend JSON."""

    section: str
    dialect: frozenset[Literal["comments", "commas"]] = frozenset()
    # Some clients keep more servers by directory, in a section of the same name. These are only read.
    directories: str | None = None

    def snippet(self, name: str, entry: dict[str, Any]) -> str:
        """Write a file that has this server and nothing else."""
        return json.dumps({self.section: {name: entry}}, indent=2, ensure_ascii=False) + "\n"

    def servers(self, text: str) -> dict[str, Any]:
        """Return the entries of all servers by their names."""
        document = JsonText(text, self.dialect).object()
        found = dict(_object(document, self.section))
        if self.directories is not None:
            directories = _object(document, self.directories)
            for directory in directories:
                servers = _object(_object(directories, directory), self.section)
                found |= {f"{name} in {directory}": entry for name, entry in servers.items()}
        return found

    def get(self, text: str, name: str) -> Any:
        """Return the entry of a server, or None."""
        document = JsonText(text, self.dialect)
        if document.is_empty:
            return None
        section = document.find(document.root(), self.section)
        if section is None or document.find(section.start, name) is None:
            return None
        return document.value[self.section][name]

    def put(self, text: str, name: str, entry: dict[str, Any]) -> str:
        """Add a server, or set the keys of the entry in the one that is there."""
        there = self.get(text, name)
        check_entry(name, there, entry)
        if there is None:
            changed = JsonText(text, self.dialect).put((self.section, name), entry)
        else:
            changed = text
            for keys, value in _leaves(there, entry):
                changed = JsonText(changed, self.dialect).put((self.section, name, *keys), value)
        self._compare(text, changed, name, merged(there, entry))
        return changed

    def drop(self, text: str, name: str) -> str:
        """Take a server out."""
        changed = JsonText(text, self.dialect).drop((self.section, name))
        self._compare(text, changed, name, None)
        return changed

    def _compare(self, old: str, new: str, name: str, entry: dict[str, Any] | None) -> None:
        """Check that nothing else has changed, for any text."""
        expected = JsonText(old, self.dialect).value
        servers = {key: value for key, value in expected.get(self.section, {}).items() if key != name}
        found = JsonText(new, self.dialect).value
        ours = found.get(self.section, {})
        others = {key: value for key, value in ours.items() if key != name}
        rest = {**found, self.section: None} == {**expected, self.section: None}
        if not rest or others != servers or ours.get(name) != entry:
            raise ClientSettingsError("it cannot be changed without changing something else: do it by hand")


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object: where its key begins, and where its value begins and ends."""

    name: str
    key: int
    start: int
    end: int


class JsonText:
    """A JSON text that can be changed. `dialect` names its extensions of JSON: comments, commas."""

    def __init__(self, text: str, dialect: frozenset[str]) -> None:
        self.text = text
        self._bare = text.replace("\ufeff", " ", 1) if text.startswith("\ufeff") else text
        if "comments" in dialect:
            self._bare = _COMMENT.sub(_blank, self._bare)
        self.plain = _TRAILING_COMMA.sub(_blank, self._bare) if "commas" in dialect else self._bare
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.is_empty = not self.plain.strip()
        self.value: Any = {} if self.is_empty else self._load()

    def _load(self) -> Any:
        try:
            return json.loads(self.plain, parse_constant=self._refuse_constant)
        except json.JSONDecodeError as error:
            is_comment = self.plain.startswith(("//", "/*"), error.pos)
            reason = "comments are not allowed here" if is_comment else error.msg[:1].lower() + error.msg[1:]
            raise ClientSettingsError.at(reason, self.text, error.pos) from None
        except RecursionError:
            raise ClientSettingsError("nested too deeply") from None

    def _refuse_constant(self, name: str) -> NoReturn:
        raise ClientSettingsError.at(f"{name} is not JSON", self.text, self.plain.find(name))

    def object(self) -> dict[str, Any]:
        """Return the value of the whole text, which must be an object."""
        if not isinstance(self.value, dict):
            raise ClientSettingsError.at("expected an object", self.text, self.root())
        return self.value

    def root(self) -> int:
        """Return the position of the top value."""
        return _skip(self.plain, 0)

    def members(self, start: int) -> tuple[list[Member], int]:
        """List the members of the object at a position, and return the position of its end."""
        if self.plain[start] != "{":
            raise ClientSettingsError.at("expected an object", self.text, start)
        found, place = [], _skip(self.plain, start + 1)
        while self.plain[place] != "}":
            name, end = _DECODER.raw_decode(self.plain, place)
            begin = _skip(self.plain, self.plain.index(":", end) + 1)
            close = _DECODER.raw_decode(self.plain, begin)[1]
            found.append(Member(name, place, begin, close))
            place = _skip(self.plain, close)
            if self.plain[place] == ",":
                place = _skip(self.plain, place + 1)
        return found, place

    def find(self, start: int, name: str) -> Member | None:
        """Return the member of that name. Two such members are an error that only a person can resolve."""
        same = [member for member in self.members(start)[0] if member.name == name]
        if len(same) > 1:
            raise ClientSettingsError.at(f"{name} is there twice: remove one", self.text, same[1].key)
        return same[0] if same else None

    def put(self, keys: Sequence[str], value: Any, start: int | None = None) -> str:
        """Set the value at a path of keys, creating missing objects. Return the new text."""
        if self.is_empty:
            before = self.text.rstrip()
            lead = f"{before}{self.newline}" if before.strip("\ufeff") else before
            return f"{lead}{self._render(_nested(keys, value), '')}{self.newline}"
        start = self.root() if start is None else start
        member = self.find(start, keys[0])
        if member is None:
            return self._insert(start, keys[0], _nested(keys[1:], value))
        if len(keys) > 1:
            return self.put(keys[1:], value, member.start)
        return self._replace(member, value)

    def _replace(self, member: Member, value: Any) -> str:
        old = self.text[member.start : member.end]
        if _DECODER.raw_decode(self.plain, member.start)[0] == value:
            return self.text
        is_inline = "\n" not in old
        new = _inline(value) if is_inline else self._render(value, self._indentation(member.key))
        return self.text[: member.start] + new + self.text[member.end :]

    def _insert(self, start: int, name: str, value: Any) -> str:
        members, close = self.members(start)
        text = self.text
        if members and "\n" not in text[start:close]:
            end = members[-1].end
            return f"{text[:end]}, {_inline(name)}: {_inline(value)}{text[end:]}"
        content_end = start + 1 + len(text[start + 1 : close].rstrip())
        had_comma = bool(members and _COMMA.match(self._bare, members[-1].end))
        comma_at = members[-1].end if members and not had_comma else content_end
        indentation = self._member_indentation(start, members)
        new = f"{self.newline}{indentation}{_inline(name)}: {self._render(value, indentation)}"
        tail = text[content_end:close]
        return "".join(
            [
                text[:comma_at],
                "," if members and not had_comma else "",
                text[comma_at:content_end],
                new,
                "," if had_comma else "",
                tail if "\n" in tail else self.newline + self._indentation(start),
                text[close:],
            ]
        )

    def drop(self, keys: Sequence[str]) -> str:
        """Remove the value at a path of keys, and its comma."""
        if self.is_empty:
            return self.text
        start = self.root()
        for key in keys[:-1]:
            outer = self.find(start, key)
            if outer is None:
                return self.text
            start = outer.start
        member = self.find(start, keys[-1])
        return self.text if member is None else self._cut(start, member)

    def _cut(self, start: int, member: Member) -> str:
        members, close = self.members(start)
        text, place = self.text, members.index(member)
        own_comma = _COMMA.match(self._bare, member.end)
        begin, end = self._whole_lines(member.key, own_comma.end() if own_comma else member.end)
        before = text[:begin]
        if place and not own_comma:
            comma = self._bare.index(",", members[place - 1].end)
            before = text[:comma] + text[comma + 1 : begin].rstrip(" \t")
        inside = before[start + 1 :] + text[end:close]
        return before[: start + 1] + (inside if inside.strip() else "") + text[close:]

    def _whole_lines(self, begin: int, end: int) -> tuple[int, int]:
        """Widen a span to whole lines where it is alone on them, else to the spaces after it."""
        line = len(self.text[:begin].rstrip(" \t"))
        rest = _INDENTATION.match(self.text, end)
        after = rest.end() if rest else end
        if self.text[line - 1 : line] == "\n" and self.text[after : after + 1] in ("\n", "\r"):
            return line - (2 if self.text[line - 2 : line] == "\r\n" else 1), after
        return begin, after

    def _member_indentation(self, start: int, members: list[Member]) -> str:
        for member in members:
            line = self._line(member.key)
            if not self.text[line : member.key].strip():
                return self.text[line : member.key]
        return self._indentation(start) + self._unit()

    def _unit(self) -> str:
        members, _ = ([], 0) if self.is_empty else self.members(self.root())
        lead = self._indentation(members[0].key) if members else ""
        return lead or "  "

    def _indentation(self, offset: int) -> str:
        match = _INDENTATION.match(self.text, self._line(offset))
        return match.group() if match else ""

    def _line(self, offset: int) -> int:
        return self.text.rfind("\n", 0, offset) + 1

    def _render(self, value: Any, indentation: str) -> str:
        text = json.dumps(value, indent=self._unit(), ensure_ascii=False)
        return text.replace("\n", self.newline + indentation)


def _object(outer: dict[str, Any], key: str) -> dict[str, Any]:
    inner = outer.get(key)
    return inner if isinstance(inner, dict) else {}


def _leaves(there: dict[str, Any], entry: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values to set: within an existing object, one key after the other."""
    for key, value in entry.items():
        old = there.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            yield from (((key, *keys), leaf) for keys, leaf in _leaves(old, value))
        else:
            yield (key,), value


def _blank(match: re.Match[str]) -> str:
    text = match.group()
    return text if text.startswith('"') else re.sub(r"[^\n\r]", " ", text)


def _skip(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place


def _nested(keys: Sequence[str], value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


def _inline(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
