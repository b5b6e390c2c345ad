"""Find what is wrong with any gram document: names and keys written twice, syntax that is not portable.

Checks yield code, message and span; they never raise. Tools and agents are the business of `review`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gramercy.gram.patterns import brackets_in
from gramercy.gram.syntax.tree import Annotated, Bracket, Node, Path, Reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gramercy.gram.syntax.tree import Document, Element, Pattern, Record, Span, Subject

Finding: TypeAlias = "tuple[str, str, Span]"


def find_repeated_keys(document: Document) -> Iterator[Finding]:
    """Find keys that a record has twice: only the last one counts."""
    for record in _records(document):
        seen = set()
        for entry in record.properties:
            if entry.key in seen:
                message = f"the key {entry.key!r} is written twice, and only the last one counts: remove one"
                yield "duplicate-key", message, entry.span
            seen.add(entry.key)


def find_extensions(document: Document) -> Iterator[Finding]:
    """Find syntax that other gram programs refuse."""
    for extension in document.extensions:
        yield "A108", extension.message, extension.span


def find_repeated_names(document: Document) -> Iterator[Finding]:
    """Find names that are introduced twice side by side, at the top or inside one pattern."""
    tops = [bare(pattern) for pattern in document.patterns]
    yield from repeated_names(
        node for top in tops for node in (top.nodes if isinstance(top, Path) else (top,))
    )
    for bracket in brackets_in(tops):
        yield from repeated_names(bracket.elements)


def repeated_names(patterns: Iterable[Element]) -> Iterator[Finding]:
    """Find names that two of the patterns introduce; a bare name only refers."""
    seen = set()
    for pattern in patterns:
        if not isinstance(pattern, Bracket | Node):
            continue
        name = pattern.subject.identity
        if name is None or not (pattern.subject.labels or pattern.subject.record is not None):
            continue
        if name in seen:
            message = f"the name {name!r} is defined a second time: rename one, or refer to the first"
            yield "duplicate-element", message, name_span(pattern)
        seen.add(name)


def bare(pattern: Pattern) -> Node | Path | Bracket:
    """Return a pattern without its annotations."""
    return pattern.pattern if isinstance(pattern, Annotated) else pattern


def name_span(pattern: Bracket | Node) -> Span:
    """Return where the name of a pattern stands, or its first sign when it has none."""
    start = pattern.subject.span[0]
    if pattern.subject.identity_text:
        return start, start + len(pattern.subject.identity_text)
    return pattern.span[0], pattern.span[0] + 1


def _records(document: Document) -> Iterator[Record]:
    if document.record is not None:
        yield document.record
    for pattern in document.patterns:
        for subject in _subjects(bare(pattern)):
            yield subject.properties


def _subjects(element: Element) -> Iterator[Subject]:
    if isinstance(element, Path):
        yield from (node.subject for node in element.nodes)
        yield from (edge.subject for edge in element.edges if edge.subject is not None)
    elif not isinstance(element, Reference):
        yield element.subject
    if isinstance(element, Bracket):
        for inner in element.elements:
            yield from _subjects(inner)
