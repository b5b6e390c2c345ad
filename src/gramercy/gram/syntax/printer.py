"""Writes trees as gram text: in the author's style where the tree carries it, in the portable style else.

One pattern makes one line; layout over several lines is the business of `formatter`. What is printed always
reads back as an equal tree, and strictly so when nothing in the tree needs an extension.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from gramercy.errors import GramError, GramSyntaxError
from gramercy.gram.syntax.literals import INTEGER, number_text, quote_text, refuse_surrogates
from gramercy.gram.syntax.scanner import MAX_DEPTH, SYMBOL
from gramercy.gram.syntax.tree import (
    Annotated,
    Bracket,
    Document,
    Measurement,
    Node,
    Path,
    Range,
    Reference,
    Symbol,
    Tagged,
)
from gramercy.gram.syntax.values import ValueScanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gramercy.gram.syntax.tree import (
        Edge,
        Element,
        Label,
        Number,
        Pattern,
        Property,
        Record,
        Subject,
        Value,
    )

_Item = TypeVar("_Item")
_WORDS: Final = frozenset({"true", "false"})
_UNIT: Final = re.compile(r"[a-zA-Z]+")
_ARROW: Final = re.compile(r"<?([-=~]) \1>?")


def print_gram(tree: Document | Pattern | Element) -> str:
    """Write a tree as gram text; raise GramError when a tree made by a program has no gram form."""
    printer = _Printer()
    if not isinstance(tree, Document):
        return printer.pattern(tree) if isinstance(tree, Annotated) else printer.element(tree)
    lines = [printer.pattern(pattern) for pattern in tree.patterns]
    if tree.record is not None:
        lines.insert(0, printer.record(tree.record, " "))
    return "".join(f"{line}\n" for line in lines)


def print_value(value: Value) -> str:
    """Write a value in the portable style; raise GramError when gram has no such value."""
    return _Printer().value(value, " ")


def print_name(name: str) -> str:
    """Write an identity: bare when it is a symbol or an integer, else in backticks."""
    return name if INTEGER.fullmatch(name) else print_label(name)


def print_label(name: str) -> str:
    """Write a label without its separator: bare when it is a symbol, else in backticks."""
    return name if SYMBOL.fullmatch(name) else quote_text(name, "`")


def print_key(key: str) -> str:
    """Write a property name: bare when it is a symbol, else in double quotes."""
    if not isinstance(key, str):
        raise GramError(f"a property name is text, not {type(key).__name__}; convert {key!r} first")
    return key if SYMBOL.fullmatch(key) else quote_text(key)


class _Printer:
    """Writes pieces of one tree and counts nesting, so that nothing is printed that the reader would refuse.

    `gap` stands after the separators of properties: nodes are dense, as in `(::Text {paramName:"name"})`,
    brackets are airy, as in `[tool {description: "..."}]`.
    """

    def __init__(self) -> None:
        self.depth = 0

    def pattern(self, pattern: Pattern) -> str:
        if not isinstance(pattern, Annotated):
            return self.element(pattern)
        header = "" if pattern.header is None else f"@@{self._header(pattern.header)} "
        if not header and not pattern.annotations:
            raise GramError(
                "an annotated pattern needs a header or an annotation; use its inner pattern instead"
            )
        notes = "".join(self._annotation(note) for note in pattern.annotations)
        return header + notes + self.pattern(pattern.pattern)

    def element(self, element: Element) -> str:
        if isinstance(element, Node):
            return f"({self._subject(element.subject, '')})"
        if isinstance(element, Path):
            return self._path(element)
        if isinstance(element, Bracket):
            return self._bracket(element)
        if isinstance(element, Reference):
            return _kept(element.text, element.identity, spells_identity) or print_name(element.identity)
        raise GramError(f"expected an element of a pattern, received {type(element).__name__}")

    def _bracket(self, bracket: Bracket) -> str:
        parts = self._nested(self.element, bracket.elements)
        elements = f"| {', '.join(parts)}" if parts else ""
        subject = self._nested(lambda one: self._subject(one, " "), [bracket.subject])[0]
        return f"[{subject}{' ' if subject and elements else ''}{elements}]"

    def _path(self, path: Path) -> str:
        if not path.edges or len(path.nodes) != len(path.edges) + 1:
            raise GramError(
                f"a path of {len(path.edges)} edges needs one node more, and has {len(path.nodes)}"
            )
        edges = ["", *(self._edge(edge) for edge in path.edges)]
        return "".join(edge + self.element(node) for edge, node in zip(edges, path.nodes, strict=True))

    def _edge(self, edge: Edge) -> str:
        tail, head = edge.arrow.tail, edge.arrow.head
        if not _ARROW.fullmatch(f"{tail} {head}"):
            raise GramError(f"no gram arrow starts with {tail!r} and ends with {head!r}")
        subject = "" if edge.subject is None else f"[{self._subject(edge.subject, '')}]"
        return tail + subject + head

    def _header(self, header: Subject) -> str:
        if header.record is not None or (header.identity is None and not header.labels):
            raise GramError("an annotation header has an identity or labels, and no record")
        return self._subject(header, "")

    def _annotation(self, note: Property) -> str:
        if not SYMBOL.fullmatch(note.key):
            raise GramError(f"an annotation name is a bare word, not {note.key!r}")
        return f"@{note.key}({self._property_value(note, '')}) "

    def _subject(self, subject: Subject, gap: str) -> str:
        name = "" if subject.identity is None else _identity(subject.identity, subject.identity_text)
        name += "".join(map(_label, subject.labels))
        if subject.record is None:
            return name
        return name + (" " if name else "") + self.record(subject.record, gap)

    def record(self, record: Record, gap: str) -> str:
        return "{" + ", ".join(self._property(one, gap) for one in record.properties) + "}"

    def _property(self, one: Property, gap: str) -> str:
        key = _kept(one.key_text, one.key, spells_key) or print_key(one.key)
        return key + one.separator + gap + self._property_value(one, gap)

    def _property_value(self, one: Property, gap: str) -> str:
        return _kept(one.value_text, one.value, spells_value) or self.value(one.value, gap)

    def value(self, value: Value, gap: str) -> str:
        if isinstance(value, list):
            return "[" + ", ".join(self._nested(lambda item: self.value(item, gap), value)) + "]"
        if isinstance(value, dict):
            entries = self._nested(
                lambda entry: f"{print_key(entry[0])}:{gap}{self.value(entry[1], gap)}", value.items()
            )
            return "{" + ", ".join(entries) + "}"
        return _scalar(value)

    def _nested(self, write: Callable[[_Item], str], items: Iterable[_Item]) -> list[str]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise GramError(f"nested deeper than {MAX_DEPTH} levels, which the reader refuses; flatten it")
        written = [write(item) for item in items]
        self.depth -= 1
        return written


def _kept(text: str | None, meaning: _Item, spells: Callable[[str, _Item], bool]) -> str | None:
    # dataclasses.replace leaves old texts behind; one that no longer fits its value must not be printed.
    return text if text is not None and spells(text, meaning) else None


def _identity(identity: str, text: str | None) -> str:
    return _kept(text, identity, spells_identity) or print_name(identity)


def _label(label: Label) -> str:
    return label.separator + (_kept(label.text, label.name, spells_label) or print_label(label.name))


def _scalar(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, int | float | Measurement):
        return _number(value)
    if isinstance(value, Symbol):
        return _symbol(value.name)
    if isinstance(value, Tagged):
        return _tagged(value)
    if isinstance(value, Range):
        return _range(value)
    raise GramError(
        f"gram has no value for {type(value).__name__}; use text, numbers, booleans, lists and dicts"
    )


def _symbol(name: str) -> str:
    if name in _WORDS or not SYMBOL.fullmatch(name):
        raise GramError(f"{name!r} cannot be written as a symbol; use a string")
    return name


def _tagged(value: Tagged) -> str:
    if not SYMBOL.fullmatch(value.tag):
        raise GramError(f"the tag {value.tag!r} is not a bare word")
    if value.tag not in _WORDS:
        return value.tag + quote_text(value.text, "`")
    # Before a backtick true and false would be read as booleans; a fence takes any word.
    if "```" in value.text or "\0" in value.text or value.text.endswith("\r"):
        raise GramError(f"the tag {value.tag!r} needs a fence, which cannot hold this text; use another tag")
    refuse_surrogates(value.text)
    return f"```{value.tag}\n{value.text}\n```"


def _number(value: Number) -> str:
    if not isinstance(value, Measurement):
        return number_text(value)
    if not _UNIT.fullmatch(value.unit):
        raise GramError(f"a unit is made of letters a to z, not {value.unit!r}")
    text = number_text(value.value) + value.unit
    # 0xAB is a hexadecimal number, while -0xAB is nothing in the unit xAB.
    return f"-{text}" if text.startswith("0x") and not spells_value(text, value) else text


def _range(value: Range) -> str:
    lower = "" if value.lower is None else _number(value.lower)
    upper = "" if value.upper is None else _number(value.upper)
    if not lower and not upper:
        raise GramError("a range needs at least one bound")
    return f"{lower}..{upper}" if lower and upper else f"{lower}...{upper}"


def spells_value(text: str, value: Value) -> bool:
    """Tell whether a text reads as exactly this value, of this type."""
    read = _read_all(text, ValueScanner.value)
    return read is not None and is_same_value(read, value)


def spells_identity(text: str, name: str) -> bool:
    """Tell whether a text reads as this identity."""
    return _read_all(text, ValueScanner.identity) == name


def spells_label(text: str, name: str) -> bool:
    """Tell whether a text reads as this label."""
    return _read_all(text, ValueScanner.name) == name


def spells_key(text: str, key: str) -> bool:
    """Tell whether a text reads as this property name."""
    return _read_all(text, ValueScanner.key) == key


def is_same_value(one: Value, other: Value) -> bool:
    """Compare values by type as well, so that 1, 1.0 and true differ, and 0.0 differs from -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_value, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(map(is_same_value, one.values(), other.values()))
    if isinstance(one, float | Range | Measurement):
        return repr(one) == repr(other)
    return one == other


def _read_all(text: str, read: Callable[[ValueScanner], Value | None]) -> Value | None:
    try:
        scanner = ValueScanner(text, strict=False)
        value = read(scanner)
    except GramSyntaxError:
        return None
    return value if scanner.pos == len(text) else None
