"""The strict reader against the official parser: both must accept and refuse the same texts.

Known and left out of the random texts, because we refuse on purpose what the parser takes: nesting deeper
than 64 levels, numbers of more than 500 characters, and decimals that no float can hold.
"""

from __future__ import annotations

from typing import Any

import pytest
import tree_sitter
import tree_sitter_gram

from gramercy.errors import GramSyntaxError
from gramercy.gram.syntax.reader import read
from gramercy.gram.syntax.tree import (
    Annotated,
    Bracket,
    Document,
    Element,
    Node,
    Path,
    Pattern,
    Record,
    Reference,
    Span,
)

DOCUMENTS = 6_000
MUTANTS_EACH = 6
SALADS = 60_000
# Salads fill the gap in one of these, so that every state of the grammar meets every sequence of signs.
TEMPLATES = (
    "%",
    "{a:%}",
    "{%}",
    "(%)",
    "[%]",
    "[a|%]",
    "@%(x)",
    "@@%(x)",
    "(a)%(b)",
    '{a:"%"}',
    '{"%":1}',
    "{a:`%`}",
    "{a:'%'}",
    "{a:```\n%```}",
    "{a:```%\n```}",
    "{a:[%]}",
    "{a:{%}}",
    "@k(%)(x)",
    "(a:%)",
    "{a:1%}",
    "(a)-[%]->(b)",
)


@pytest.fixture(scope="module")
def oracle() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_gram.language()))


def parse(oracle: tree_sitter.Parser, text: str) -> tree_sitter.Node:
    return oracle.parse(text.encode()).root_node


def accepts(text: str) -> bool:
    try:
        read(text, strict=True)
    except GramSyntaxError:
        return False
    return True


@pytest.mark.slow
def test_every_generated_document_is_accepted_by_both(oracle: tree_sitter.Parser, make_scribe: Any) -> None:
    """Gram layer: strict is exactly the language of the official parser."""
    scribe = make_scribe("documents")
    for _ in range(DOCUMENTS):
        text = scribe.document()
        assert not parse(oracle, text).has_error, repr(text)
        assert accepts(text), repr(text)


@pytest.mark.slow
def test_no_mutant_divides_the_reader_and_the_oracle(oracle: tree_sitter.Parser, make_scribe: Any) -> None:
    """Gram layer: 100 % agreement; the mutants are mixed enough to be refused and accepted often."""
    scribe = make_scribe("mutants")
    accepted = 0
    for _ in range(DOCUMENTS):
        document = scribe.document()
        for _ in range(MUTANTS_EACH):
            text = scribe.mutant(document)
            verdict = not parse(oracle, text).has_error
            accepted += verdict
            assert accepts(text) == verdict, f"the oracle says {verdict}: {text!r}"
    assert 0.1 < accepted / (DOCUMENTS * MUTANTS_EACH) < 0.9


@pytest.mark.slow
def test_no_salad_of_signs_divides_the_reader_and_the_oracle(
    oracle: tree_sitter.Parser, make_scribe: Any
) -> None:
    """Gram layer: short texts reach the corners of the grammar that mutants of long ones rarely do."""
    scribe = make_scribe("salads")
    accepted = 0
    for _ in range(SALADS):
        text = scribe.salad(scribe.pick(TEMPLATES))
        verdict = not parse(oracle, text).has_error
        accepted += verdict
        assert accepts(text) == verdict, f"the oracle says {verdict}: {text!r}"
    assert 0.05 < accepted / SALADS < 0.9


def test_the_strict_language_is_read_by_default_as_well(make_scribe: Any) -> None:
    """The default is a superset, without extensions for strict text, and with the same meaning."""
    scribe = make_scribe("superset")
    for _ in range(1_000):
        text = scribe.document()
        document = read(text)
        assert not document.extensions, repr(text)
        assert document == read(text, strict=True), repr(text)


@pytest.mark.slow
def test_spans_of_all_parts_agree_with_the_oracle(oracle: tree_sitter.Parser, make_scribe: Any) -> None:
    """Not only the verdict: nodes, brackets, records, properties and references stand at the same places."""
    scribe = make_scribe("spans")
    for _ in range(1_500):
        text = scribe.document()
        assert sorted(own_spans(read(text, strict=True))) == sorted(oracle_spans(oracle, text)), repr(text)


ORACLE_KINDS = {
    "node_pattern": "node",
    "subject_pattern": "bracket",
    "annotated_pattern": "annotated",
    "pattern_reference": "reference",
    "record": "record",
    "record_property": "property",
}


def oracle_spans(oracle: tree_sitter.Parser, text: str) -> list[tuple[str, Span]]:
    offsets = {0: 0}
    total = 0
    for index, char in enumerate(text):
        total += len(char.encode())
        offsets[total] = index + 1
    spans = []
    todo = [parse(oracle, text)]
    while todo:
        node = todo.pop()
        todo.extend(node.children)
        if node.type in ORACLE_KINDS:
            spans.append((ORACLE_KINDS[node.type], (offsets[node.start_byte], offsets[node.end_byte])))
    return spans


def own_spans(tree: Document | Pattern | Element) -> list[tuple[str, Span]]:
    match tree:
        case Document():
            return [
                *record_spans(tree.record),
                *(span for pattern in tree.patterns for span in own_spans(pattern)),
            ]
        case Annotated():
            return [("annotated", tree.span), *own_spans(tree.pattern)]
        case Node():
            return [("node", tree.span), *record_spans(tree.subject.record)]
        case Reference():
            return [("reference", tree.span)]
        case Path():
            edges = [edge.subject.record for edge in tree.edges if edge.subject]
            nodes = [span for node in tree.nodes for span in own_spans(node)]
            return nodes + [span for record in edges for span in record_spans(record)]
        case Bracket():
            elements = [span for element in tree.elements for span in own_spans(element)]
            return [("bracket", tree.span), *record_spans(tree.subject.record), *elements]


def record_spans(record: Record | None) -> list[tuple[str, Span]]:
    if record is None:
        return []
    return [("record", record.span), *(("property", prop.span) for prop in record.properties)]
