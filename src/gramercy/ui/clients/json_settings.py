"""The settings of clients that write JSON, with or without comments."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from gramercy.ui.clients.base import SettingsError, check_entry
from gramercy.ui.clients.json_text import JsonText


@dataclass(frozen=True, slots=True)
class JsonSettings:
    """Servers are the members of one object, in a file that may have more than JSON has."""

    section: str
    dialect: frozenset[Literal["comments", "commas"]] = frozenset()

    def snippet(self, name: str, entry: dict[str, Any]) -> str:
        """Write a file that has this server and nothing else."""
        return json.dumps({self.section: {name: entry}}, indent=2, ensure_ascii=False) + "\n"

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
        check_entry(name, there)
        if there is None:
            changed = JsonText(text, self.dialect).put((self.section, name), entry)
        else:
            changed = text
            for key, value in entry.items():
                changed = JsonText(changed, self.dialect).put((self.section, name, key), value)
        self._compare(text, changed, name, {**(there or {}), **entry})
        return changed

    def drop(self, text: str, name: str) -> str:
        """Take a server out."""
        changed = JsonText(text, self.dialect).drop((self.section, name))
        self._compare(text, changed, name, None)
        return changed

    def _compare(self, old: str, new: str, name: str, entry: dict[str, Any] | None) -> None:
        """See to it that nothing else has changed, whatever the text looked like."""
        expected = JsonText(old, self.dialect).value
        servers = {key: value for key, value in expected.get(self.section, {}).items() if key != name}
        found = JsonText(new, self.dialect).value
        ours = found.get(self.section, {})
        others = {key: value for key, value in ours.items() if key != name}
        rest = {**found, self.section: None} == {**expected, self.section: None}
        if not rest or others != servers or ours.get(name) != entry:
            raise SettingsError("it cannot be changed without changing something else: do it by hand")
