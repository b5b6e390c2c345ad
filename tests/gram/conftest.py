"""Makes gram texts for the tests of this room: valid ones in every style, and broken ones from them."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

BLANKS = (*[""] * 5, " ", " ", "  ", "\n", "\t", "\r\n", " // note\n", "//\n", "\f", "\v", "// \"{[(`'\n ")
SYMBOLS = "a b_1 Text _ x-y k.v at@b true false truest null Z9 a- e5".split()  # noqa: SIM905 - as a list it would fill a screen
QUOTABLE = (
    "",
    "a b",
    "x",
    r"\n",
    r"\\",
    r"\/",
    "/",
    "x//y",
    "é",
    "日本",
    "\U0001f600",
    "{",
    "\t",
    "\r",
    r"\`",
    "- >",
)
NUMBERS = "0 1 -1 42 -0 1.5 -0.25 0x1F 0xab 017 00 5kg -3m 0xyz 0xabz 1e".split()  # noqa: SIM905 - as above
FENCED = ("", "text", "a\nb", "`x` ``y``", '{"a": 1}\n', "  // no\n", "\n\n", r"\q", "x\r\n", "é")
WIDE = ("1e5", "-2.5e-3", "2.5kg", r'"\u0041"', r'"\ud83d\ude00"', r"'\"'", '"// x"')
SIGNS = "( ) [ ] { } | , : :: @ @@ - -> <- = => ~ ~> < > .. ... \" ' ` ``` \\ // / #".split()  # noqa: SIM905 - as above
JUNK = (*SIGNS, "0", "7", "x", "a", "é", ".", "true", "1.5", "-1", "0x", "e5", "json`x`", "\\u0041", "```\n")
JUNK += tuple("\n \t\r\u00a0\ufeff")


class Scribe:
    """Writes random gram texts: strict ones, or with extensions of the default mode when wide."""

    def __init__(self, seed: int | str, *, wide: bool = False) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice
        self.wide = wide

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def upto(self, most: int, least: int = 0) -> int:
        return self.random.randint(least, most)

    def join(self, *tokens: str) -> str:
        return "".join(self.pick(BLANKS) + token for token in tokens)

    def document(self) -> str:
        record = self.record() if self.chance(0.3) else ""
        kinds = [self.pick((self.bracket, self.path, self.path, self.annotated)) for _ in range(self.upto(3))]
        return self.join(record, *[write() for write in kinds]) + self.pick(BLANKS)

    def annotated(self) -> str:
        header = ""
        if self.chance(0.5):
            named = self.chance(0.7)
            header = self.join("@@", self.identity() if named else "")
            header += self.pick((" ", "\n")) + ("" if named and self.chance(0.5) else self.labels())
        notes = [self.annotation() for _ in range(self.upto(2, 0 if header else 1))]
        return self.join(header, *notes, self.pick((self.bracket, self.path))())

    def annotation(self) -> str:
        return " " + self.join("@", self.pick(SYMBOLS), "(", self.value(), ")")

    def bracket(self, depth: int = 0) -> str:
        elements = [self.element(depth + 1) for _ in range(self.upto(3 if depth < 3 else 0))]
        return self.join("[", self.subject(), *(["|", self.commas(elements)] if elements else []), "]")

    def element(self, depth: int) -> str:
        kind = self.upto(2)
        return self.bracket(depth) if kind == 0 else self.path() if kind == 1 else self.identity()

    def commas(self, items: list[str]) -> str:
        return self.join(*[part for item in items for part in (",", item)][1:])

    def path(self) -> str:
        steps = [part for _ in range(self.pick((0, 0, 1, 1, 2, 4))) for part in (self.arrow(), self.node())]
        return self.join(self.node(), *steps)

    def node(self) -> str:
        return self.join("(", self.subject(), ")")

    def arrow(self) -> str:
        sign = self.pick("-=~")
        middle = [self.join("[", self.subject(), "]")] if self.chance(0.3) else []
        return self.join(self.pick(("", "<")) + sign, *middle, sign + self.pick(("", ">")))

    def subject(self) -> str:
        parts = [self.identity() if self.chance(0.6) else "", self.labels() if self.chance(0.5) else ""]
        return self.join(*parts, self.record() if self.chance(0.4) else "")

    def identity(self) -> str:
        kind = self.upto(3)
        return self.quoted("`") if kind == 0 else self.pick(("0", "7", "-12") if kind == 1 else SYMBOLS)

    def labels(self) -> str:
        return self.join(*[self.label() for _ in range(self.upto(2, 1))])

    def label(self) -> str:
        return self.join(self.pick((":", "::")), self.pick((self.pick(SYMBOLS), self.quoted("`"))))

    def quoted(self, quote: str) -> str:
        content = "".join(self.pick(QUOTABLE) for _ in range(self.upto(3))).replace("\\`", "\\" + quote)
        if content.lstrip(" \t\r").startswith("//"):
            content = "x" + content
        return quote + content + (self.pick(("\n", "\n // c\n ")) if self.chance(0.02) else "") + quote

    def record(self) -> str:
        colon = self.pick((":", ":", "::"))
        pairs = [self.join(self.key(), colon, self.value()) for _ in range(self.upto(3))]
        return self.join("{", self.commas(pairs), "}")

    def key(self) -> str:
        return self.pick((self.pick(SYMBOLS), self.pick(SYMBOLS), self.quoted("`"), self.quoted('"')))

    def value(self, depth: int = 0) -> str:
        deeper = self.scalar if not self.wide or depth > 2 else lambda: self.value(depth + 1)
        kind = self.upto(7)
        if kind == 0:
            items = [deeper() for _ in range(self.upto(3, 1 - self.wide))]
            return self.join("[", self.commas(items), "]")
        if kind == 1:
            pairs = [self.join(self.key(), ":", deeper()) for _ in range(self.upto(2))]
            return self.join("{", self.commas(pairs), "}")
        return self.scalar()

    def scalar(self) -> str:
        kind = self.upto(6)
        if kind == 0:
            return self.pick((self.pick(NUMBERS), self.range()))
        if kind == 1:
            return self.pick(SYMBOLS)
        if kind == 2:
            return self.join("json", self.quoted("`"))
        if kind == 3:
            head = self.pick(("", " ", "tag", " tag\t", "// c"))
            return f"```{head}\n{self.pick(FENCED)}\n{self.pick(('', '  '))}```"
        if kind == 4 and self.wide:
            return self.pick(WIDE)
        return self.quoted(self.pick("\"'`"))

    def range(self) -> str:
        lower, upper = self.pick(NUMBERS), self.pick(NUMBERS)
        return self.pick((self.join(lower, "..", upper), self.join(lower, "..."), self.join("...", upper)))

    def mutant(self, text: str) -> str:
        """Spoil a text in one to three places; many results are still gram."""
        for _ in range(self.pick((1, 1, 1, 2, 3))):
            at = self.upto(len(text))
            end = min(len(text), at + self.pick((0, 1, 1, 2, 5)))
            change = self.upto(3)
            if change == 0:
                text = text[:at] + text[end:]
            elif change == 1:
                text = text[:at] + self.pick(JUNK) + text[at:]
            elif change == 2:
                text = text[:at] + self.pick(JUNK) + text[end:]
            else:
                other = self.upto(len(text))
                text = text[:at] + text[other : other + 6] + text[at:]
        return text

    def salad(self, template: str) -> str:
        """Fill the gap of a template with one to five random signs."""
        return template.replace("%", "".join(self.pick(JUNK) for _ in range(self.upto(5, 1))))


@pytest.fixture(scope="session")
def seed() -> int:
    """Choose the seed of every random text here; GRAMERCY_SEED repeats a run."""
    return int(os.environ.get("GRAMERCY_SEED") or random.SystemRandom().randrange(10**9))


@pytest.fixture
def make_scribe(seed: int) -> Callable[..., Scribe]:
    """Make writers of random texts; each test and mode gets its own sequence."""
    print(f"to repeat this run set GRAMERCY_SEED={seed}")  # noqa: T201 - pytest shows it when a test fails

    def make(name: str, *, wide: bool = False) -> Scribe:
        return Scribe(f"{seed}/{name}/{wide}", wide=wide)

    return make
