"""The gram syntax tree: plain values with the author's style kept beside them.

Equality is about meaning: spans and style (quotes, separators, arrow families) never take part in it.
This module knows no text: reading is `reader`, writing is `printer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Span: TypeAlias = tuple[int, int]
NO_SPAN: Span = (-1, -1)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A bare word in value position, such as `red` in `{color: red}`."""

    name: str


@dataclass(frozen=True, slots=True)
class Tagged:
    """Text with a tag in front, such as json`{"a": 1}`."""

    tag: str
    text: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """A number with a unit, such as `5kg`."""

    value: int | float
    unit: str


@dataclass(frozen=True, slots=True)
class Range:
    """A numeric interval; a missing bound is open."""

    lower: int | float | Measurement | None
    upper: int | float | Measurement | None


Number: TypeAlias = int | float | Measurement
Value: TypeAlias = "str | bool | Number | Symbol | Tagged | Range | list[Value] | dict[str, Value]"


@dataclass(frozen=True, slots=True)
class Property:
    """One `key: value` of a record, with the texts the author wrote (None when made by a program)."""

    key: str
    value: Value
    span: Span = field(default=NO_SPAN, compare=False)
    key_text: str | None = field(default=None, compare=False)
    separator: Literal[":", "::"] = field(default=":", compare=False)
    value_text: str | None = field(default=None, compare=False)
    value_span: Span = field(default=NO_SPAN, compare=False)


class Record(Mapping[str, Value]):
    """An ordered mapping of properties; of two with the same key the last one counts."""

    __slots__ = ("_values", "properties", "span")

    def __init__(self, properties: tuple[Property, ...] = (), span: Span = NO_SPAN) -> None:
        self.properties = properties
        self.span = span
        self._values = {p.key: p.value for p in properties}

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Record:
        """Make a record from plain values."""
        return cls(tuple(Property(key, value) for key, value in values.items()))

    def property(self, key: str) -> Property | None:
        """Return the property that counts under a key, or None."""
        return next((p for p in reversed(self.properties) if p.key == key), None)

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Record({self._values!r})"


EMPTY_RECORD = Record()


@dataclass(frozen=True, slots=True)
class Label:
    """One label of a subject, with its separator."""

    name: str
    separator: Literal[":", "::"] = field(default=":", compare=False)
    text: str | None = field(default=None, compare=False)
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a pattern says about itself: identity, labels, record; each may be missing.

    `record` is None when no braces were written; an empty record is `{}`.
    """

    identity: str | None = None
    labels: tuple[Label, ...] = ()
    record: Record | None = None
    identity_text: str | None = field(default=None, compare=False)
    span: Span = field(default=NO_SPAN, compare=False)

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels, in order."""
        return tuple(label.name for label in self.labels)

    @property
    def properties(self) -> Record:
        """The record, or an empty one."""
        return EMPTY_RECORD if self.record is None else self.record


EMPTY_SUBJECT = Subject()


@dataclass(frozen=True, slots=True)
class Arrow:
    """The shape of an edge: `tail` is one of - = ~ <- <= <~, `head` is the family sign, with > when directed.

    All families mean the same, so only the direction takes part in equality.
    """

    tail: str = field(default="=", compare=False)
    head: str = field(default="=>", compare=False)
    points_left: bool = field(init=False)
    points_right: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "points_left", self.tail.startswith("<"))
        object.__setattr__(self, "points_right", self.head.endswith(">"))


@dataclass(frozen=True, slots=True)
class Node:
    """`(subject)`."""

    subject: Subject = EMPTY_SUBJECT
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Edge:
    """One arrow of a path, with its own subject when it has brackets."""

    arrow: Arrow
    subject: Subject | None = None
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Path:
    """Nodes joined by edges: always one node more than edges, at least one edge."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Reference:
    """An element that names a pattern written elsewhere."""

    identity: str
    text: str | None = field(default=None, compare=False)
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Bracket:
    """`[subject | element, element]`: a pattern with elements."""

    subject: Subject = EMPTY_SUBJECT
    elements: tuple[Element, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Annotated:
    """A top-level pattern with `@@id:Label` and `@key(value)` in front of it."""

    header: Subject | None
    annotations: tuple[Property, ...]
    pattern: Node | Path | Bracket
    span: Span = field(default=NO_SPAN, compare=False)


Element: TypeAlias = Node | Path | Bracket | Reference
Pattern: TypeAlias = Node | Path | Bracket | Annotated


@dataclass(frozen=True, slots=True)
class Extension:
    """A place where the text uses syntax that the strict language does not have."""

    message: str
    span: Span


@dataclass(frozen=True, slots=True)
class Document:
    """A whole text: an optional root record and the patterns, with the source for spans to point into."""

    record: Record | None
    patterns: tuple[Pattern, ...]
    source: str = field(default="", compare=False)
    extensions: tuple[Extension, ...] = field(default=(), compare=False)
