"""What the printer writes: the author's style, the portable style, and never a different meaning."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramercy.errors import GramError
from gramercy.gram.syntax.printer import (
    is_same_value,
    print_gram,
    print_key,
    print_label,
    print_name,
    print_value,
)
from gramercy.gram.syntax.reader import read
from gramercy.gram.syntax.tree import (
    Annotated,
    Arrow,
    Bracket,
    Document,
    Edge,
    Label,
    Measurement,
    Node,
    Path,
    Property,
    Range,
    Record,
    Reference,
    Subject,
    Symbol,
    Tagged,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["//x", " //", "\v//", "\\", "`", "```", "a\nb", "\r", "\0", "true", "-", "7", "\ufeff", "\x85", "'\"`"]
)
SYMBOLS = st.from_regex(r"[a-zA-Z_][0-9a-zA-Z_.\-@]{0,6}", fullmatch=True)
UNITS = st.from_regex(r"[a-zA-Z]{1,4}", fullmatch=True) | st.sampled_from(["x", "xA", "xAB", "e", "E"])
PLAIN_NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = PLAIN_NUMBERS | st.builds(Measurement, PLAIN_NUMBERS, UNITS)
RANGES = st.builds(Range, NUMBERS, st.none() | NUMBERS) | st.builds(Range, st.none(), NUMBERS)
WORDS = SYMBOLS.filter(lambda word: word not in {"true", "false"})
SCALARS = (
    st.booleans() | NUMBERS | TEXTS | RANGES | st.builds(Symbol, WORDS) | st.builds(Tagged, WORDS, TEXTS)
)
STRICT_TEXTS = TEXTS.filter(lambda text: "\0" not in text)
STRICT_NUMBERS = PLAIN_NUMBERS | st.builds(Measurement, st.integers(-(10**9), 10**9), UNITS)
STRICT_SCALARS = (
    st.booleans()
    | STRICT_NUMBERS
    | STRICT_TEXTS
    | st.builds(Symbol, WORDS)
    | st.builds(Tagged, WORDS, STRICT_TEXTS)
)


def documents(texts: st.SearchStrategy[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    """Make whole documents, as a program would: without spans and spellings."""
    properties = st.builds(Property, texts, values, separator=st.sampled_from([":", "::"]))
    records = st.builds(Record, st.lists(properties, max_size=3).map(tuple))
    labels = st.lists(st.builds(Label, texts, st.sampled_from([":", "::"])), max_size=2).map(tuple)
    subjects = st.builds(Subject, st.none() | texts, labels, st.none() | records)
    nodes = st.builds(Node, subjects)
    arrows = st.builds(
        lambda left, sign, right: Arrow(left + sign, sign + right),
        st.sampled_from(["", "<"]),
        st.sampled_from("-=~"),
        st.sampled_from(["", ">"]),
    )
    edges = st.builds(Edge, arrows, st.none() | subjects)
    paths = st.lists(st.tuples(edges, nodes), min_size=1, max_size=3).flatmap(
        lambda steps: nodes.map(
            lambda first: Path((first, *(n for _, n in steps)), tuple(e for e, _ in steps))
        )
    )
    leaves = nodes | paths | st.builds(Reference, texts)
    elements = st.recursive(
        leaves,
        lambda inner: st.builds(Bracket, subjects, st.lists(inner, max_size=3).map(tuple)),
        max_leaves=4,
    )
    brackets = st.builds(Bracket, subjects, st.lists(elements, max_size=3).map(tuple))
    notes = st.lists(st.builds(Property, SYMBOLS, values), min_size=1, max_size=2).map(tuple)
    annotated = st.builds(
        Annotated, st.none() | st.builds(Subject, texts, labels), notes, nodes | paths | brackets
    )
    return st.builds(
        Document, st.none() | records, st.lists(nodes | paths | brackets | annotated, max_size=2).map(tuple)
    )


NESTED = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
FLAT = (
    STRICT_SCALARS
    | st.lists(STRICT_SCALARS, min_size=1, max_size=3)
    | st.dictionaries(STRICT_TEXTS, STRICT_SCALARS, max_size=3)
)


def bare(tree: Any) -> Any:
    """Copy a tree without spans and spellings, as a program would have made it."""
    if isinstance(tree, Record):
        return Record(bare(tree.properties))
    if isinstance(tree, tuple):
        return tuple(map(bare, tree))
    if is_dataclass(tree) and not isinstance(tree, type | Arrow | Symbol | Tagged | Range | Measurement):
        kept = {field.name: bare(getattr(tree, field.name)) for field in fields(tree) if field.compare}
        return type(tree)(**kept)
    return tree


@settings(deadline=None)
@given(documents(TEXTS, NESTED))
def test_any_tree_of_a_program_reads_back_equal(document: Document) -> None:
    """What is printed always re-reads to an equal tree."""
    again = read(print_gram(document))
    assert again == document
    assert repr(bare(again)) == repr(bare(document))


@settings(deadline=None)
@given(documents(STRICT_TEXTS, FLAT))
def test_a_tree_without_extensions_reads_back_strictly(document: Document) -> None:
    """Trees that need no extension are printed in the portable language."""
    assert read(print_gram(document), strict=True) == document


@settings(deadline=None)
@given(NESTED)
def test_any_value_reads_back_with_its_type(value: Any) -> None:
    """1, 1.0 and true are different values, though Python calls them equal."""
    record = read(f"{{v: {print_value(value)}}}").record
    assert record is not None
    assert is_same_value(record["v"], value)


@pytest.mark.slow
def test_texts_of_authors_read_back_equal_and_print_the_same_again(make_scribe: Any) -> None:
    """The author's style is printed, and is stable."""
    for wide in (False, True):
        scribe = make_scribe("printer", wide=wide)
        for _ in range(800):
            text = scribe.document()
            document = read(text)
            printed = print_gram(document)
            again = read(printed, strict=not document.extensions)
            assert again == document, repr(text)
            assert repr(bare(again)) == repr(bare(document)), repr(text)
            assert print_gram(again) == printed, repr(text)
            assert read(print_gram(bare(document))) == document, repr(text)


@pytest.mark.parametrize(
    "text",
    [
        '(::Text {paramName:"name"})==>(::Int {paramName:"age", optional:true})==>(::String)',
        '(::Object {paramName:"p", fields:[{name:"n", type:"Text"}, {name:"a", type:"Int"}]})==>(::String)',
        "(a)<-[r::R {x:'y'}]-(`b c`)~~>(7)",
        "[t:Tool {description:: 'single', \"quoted key\": 0x1F} | ref, `other ref`, (x), [| y]]",
        "@@id::L @k(1..5) @l(`tick`) [a]",
        "()",
        "[]",
        "({})",
        "(a)-[]->(b)",
    ],
)
def test_the_style_of_the_author_is_kept(text: str) -> None:
    """Seed 004, type signature format; separators, arrows and quotes are never changed."""
    assert print_gram(read(text).patterns[0]) == text


def test_a_document_is_a_line_for_each_pattern() -> None:
    """The root record comes first."""
    assert print_gram(read("{a:1}(b) (c)-->(d)")) == "{a: 1}\n(b)\n(c)-->(d)\n"
    assert print_gram(read("")) == ""


def test_trees_of_programs_are_printed_in_the_portable_style() -> None:
    """Nodes are dense, brackets are airy."""
    signature = Path(
        (
            Node(Subject(None, (Label("Text", "::"),), Record.of({"paramName": "name"}))),
            Node(Subject(None, (Label("String", "::"),))),
        ),
        (Edge(Arrow()),),
    )
    subject = Subject(
        "sayHello", (Label("Tool"),), Record.of({"description": "Greets", "sizes": {"x": [1.5]}})
    )
    assert print_gram(Bracket(subject, (signature, Reference("a b")))) == (
        '[sayHello:Tool {description: "Greets", sizes: {x: [1.5]}} | '
        '(::Text {paramName:"name"})==>(::String), `a b`]'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", '"plain"'),
        ('say "hi" \\ \n\t', r'"say \"hi\" \\ \n\t"'),
        ("//x", r'"\//x"'),
        (" //x", r'" \//x"'),
        ("http://x", '"http://x"'),
        (True, "true"),
        (-0.0, "-0.0"),
        (1e22, "10000000000000000000000.0"),
        (1.5e-7, "0.00000015"),
        (Measurement(5, "kg"), "5kg"),
        (Measurement(0, "xAB"), "-0xAB"),
        (Measurement(0, "xABz"), "0xABz"),
        (Range(1, None), "1..."),
        (Range(None, 2.5), "...2.5"),
        (Range(1, 2), "1..2"),
        (Symbol("red"), "red"),
        (Tagged("json", "{`}"), r"json`{\`}`"),
        (Tagged("true", "x"), "```true\nx\n```"),
        ([1, "a", [True]], '[1, "a", [true]]'),
        ({"a b": {}}, '{"a b": {}}'),
    ],
)
def test_values_have_one_portable_spelling(value: Any, text: str) -> None:
    """A string that starts with slashes would be read as a comment by the official parser."""
    assert print_value(value) == text


def test_names_are_bare_where_they_can_be() -> None:
    """An identity may be an integer, a label may not; keys prefer double quotes."""
    assert [print_name(name) for name in ("a", "-7", "07", "a b", "")] == ["a", "-7", "`07`", "`a b`", "``"]
    assert [print_label(name) for name in ("a", "7", "[Text]")] == ["a", "`7`", "`[Text]`"]
    assert [print_key(key) for key in ("a", "7", "a b")] == ["a", '"7"', '"a b"']


def test_a_spelling_that_no_longer_fits_is_dropped() -> None:
    """Programs change trees with dataclasses.replace and leave old texts behind."""
    node = read("(`a`:`B` {'k': 'old', n: 01, b: true})".replace("'k'", '"k"')).patterns[0]
    assert isinstance(node, Node)
    assert node.subject.record
    first, second, third = node.subject.record.properties
    changed = (replace(first, value="new", key="l"), replace(second, value=1.0), replace(third, value=1))
    label = replace(node.subject.labels[0], name="C")
    subject = replace(node.subject, identity="z", labels=(label,), record=Record(changed))
    assert print_gram(replace(node, subject=subject)) == '(z:C {l:"new", n:1.0, b:1})'


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "no value for NoneType"),
        ((1, 2), "no value for tuple"),
        (float("nan"), "no number for nan"),
        (float("-inf"), "no number for -inf"),
        ("\ud800", "a lone surrogate"),
        ({1: 2}, "a property name is text"),
        (Symbol("two words"), "cannot be written as a symbol"),
        (Symbol("true"), "cannot be written as a symbol"),
        (Tagged("no tag", ""), "is not a bare word"),
        (Tagged("true", "```"), "use another tag"),
        (Tagged("false", "x\r"), "use another tag"),
        (Measurement(1, "km/h"), "letters a to z"),
        (Range(None, None), "at least one bound"),
        (10**600, "use a string"),
        (-(10**600), "use a string"),
        (10**100_000, "use a string"),
        (deep(200), "nested deeper than 64 levels"),
        (deep(100_000), "nested deeper than 64 levels"),
        (CYCLE, "nested deeper than 64 levels"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isascii() else type(value).__name__,
)
def test_values_without_a_gram_form_are_refused(value: Any, words: str) -> None:
    """Never print what does not read back."""
    with pytest.raises(GramError, match=words):
        print_value(value)


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (Path((Node(),), ()), "needs one node more"),
        (Path((Node(), Node()), (Edge(Arrow("-", "=>")),)), "no gram arrow"),
        (Path((Node(), Node()), (Edge(Arrow("", "-->")),)), "no gram arrow"),
        (Annotated(None, (), Node()), "needs a header or an annotation"),
        (Annotated(Subject(), (), Node()), "an identity or labels"),
        (Annotated(Subject("a", (), Record()), (), Node()), "no record"),
        (Annotated(None, (Property("a b", 1),), Node()), "is a bare word"),
        (Bracket(Subject(), (Annotated(Subject("a"), (), Node()),)), "expected an element"),  # type: ignore[arg-type]
        ("(a)", "expected an element"),
    ],
)
def test_trees_without_a_gram_form_are_refused(tree: Any, words: str) -> None:
    """Never print what does not read back."""
    with pytest.raises(GramError, match=words):
        print_gram(tree)


def test_a_huge_hexadecimal_number_reads_back() -> None:
    """Its decimal spelling would be longer than the reader allows."""
    value = int("f" * 498, 16)
    assert read(f"{{a: {print_value(value)}}}").record == Record.of({"a": value})
