"""Read the pages of the documentation: fenced blocks, headings and links. Knows nothing of running them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"(?P<signs>`{3,})(?P<language>[\w+-]*)(?P<options>[^`]*)\Z")
_OPTION = re.compile(r'(\w+)="([^"]*)"')
_HEADING = re.compile(r"#{1,6} (?P<text>.+?)\s*\Z")
_CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^()\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `is_adjacent` tells that only blank lines part it from the block before."""

    language: str
    options: dict[str, str]
    text: str
    line: int
    is_adjacent: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file."""

    path: Path
    blocks: tuple[Block, ...]
    prose: tuple[tuple[int, str], ...]

    @classmethod
    def read(cls, path: Path) -> Page:
        """Read a file."""
        return cls.parse(path, path.read_text(encoding="utf-8"))

    @classmethod
    def parse(cls, path: Path, text: str) -> Page:
        """Split a text into its blocks and what stands between them."""
        blocks: list[Block] = []
        prose: list[tuple[int, str]] = []
        signs, opening, inside, spoken = "", 0, [""], True
        for number, line in enumerate([*text.splitlines()], 1):
            fence = _FENCE.match(line)
            if signs and line.rstrip() == signs:
                signs = ""
                blocks.append(_block(inside, opening, is_adjacent=not spoken))
                spoken = False
            elif signs:
                inside.append(line)
            elif fence:
                signs, opening, inside = fence["signs"], number, [line]
            else:
                prose.append((number, line))
                spoken = spoken or bool(line.strip())
        if signs:
            raise ValueError(f"{path}:{opening}: the block is never closed")
        return cls(path, tuple(blocks), tuple(prose))

    @property
    def name(self) -> str:
        """The path as people write it."""
        return self.path.relative_to(ROOT).as_posix() if self.path.is_relative_to(ROOT) else self.path.name

    def anchors(self) -> set[str]:
        """Return the anchors of the headings, as GitHub makes them."""
        seen: Counter[str] = Counter()
        found = set()
        for _, line in self.prose:
            heading = _HEADING.match(line)
            if heading:
                slug = _slug(heading["text"])
                found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
                seen[slug] += 1
        return found

    def links(self) -> Iterator[tuple[int, str]]:
        """Yield the line and target of every link."""
        for number, line in self.prose:
            for link in _LINK.finditer(_CODE_SPAN.sub("", line)):
                yield number, link["target"]


def all_pages() -> list[Page]:
    """Return every page that users and contributors read."""
    tops = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return [Page.read(path) for path in (*tops, *sorted((ROOT / "docs").rglob("*.md")))]


def _block(lines: list[str], line: int, *, is_adjacent: bool) -> Block:
    fence = _FENCE.match(lines[0])
    assert fence is not None
    options = dict(_OPTION.findall(fence["options"]))
    return Block(
        fence["language"], options, "".join(f"{inside}\n" for inside in lines[1:]), line, is_adjacent
    )


def _slug(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
