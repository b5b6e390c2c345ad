"""What the reader makes of gram text; most cases stand in corpus/*.gramtest, with what to expect."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import NamedTuple

import pytest

from gramercy.errors import GramSyntaxError
from gramercy.gram.syntax.reader import read
from gramercy.gram.syntax.tree import (
    Annotated,
    Bracket,
    Document,
    Edge,
    Element,
    Measurement,
    Node,
    Path,
    Pattern,
    Range,
    Record,
    Reference,
    Subject,
    Symbol,
    Tagged,
    Value,
)

CORPUS = FilePath(__file__).parent / "corpus"


class Case(NamedTuple):
    """One `=== name`, its text, and what stands after `---`: a verdict line and the expected outline."""

    name: str
    text: str
    verdict: str
    detail: str
    outline: str


def cases() -> list[Case]:
    found = []
    for file in sorted(CORPUS.glob("*.gramtest")):
        for block in file.read_text(encoding="utf-8").split("\n=== ")[1:]:
            name, _, rest = block.partition("\n")
            text, _, expected = rest.partition("\n--- ")
            verdict, _, outline = expected.partition("\n")
            word, _, detail = verdict.partition(" ")
            found.append(Case(f"{file.stem}: {name}", text, word, detail, outline.strip()))
    return found


def outline_value(value: Value) -> str:  # noqa: PLR0911 - one for each kind of value
    match value:
        case Symbol(name):
            return f"symbol({name})"
        case Tagged(tag, text):
            return f"tagged({tag}, {text!r})"
        case Measurement(number, unit):
            return f"measure({number!r}, {unit})"
        case Range(lower, upper):
            bounds = ["open" if bound is None else outline_value(bound) for bound in (lower, upper)]
            return f"range({', '.join(bounds)})"
        case list():
            return f"[{', '.join(map(outline_value, value))}]"
        case dict():
            return "{" + ", ".join(f"{key!r}: {outline_value(item)}" for key, item in value.items()) + "}"
        case _:
            return repr(value)


def outline_record(record: Record) -> list[str]:
    return [f"{prop.key!r}={outline_value(prop.value)}" for prop in record.properties]


def outline_subject(subject: Subject | None) -> list[str]:
    if subject is None:
        return []
    identity = [] if subject.identity is None else [repr(subject.identity)]
    labels = [f":{name!r}" for name in subject.label_names]
    braces = [] if subject.record is None else ["{" + " ".join(outline_record(subject.record)) + "}"]
    return identity + labels + braces


def outline_edge(edge: Edge) -> str:
    middle = "" if edge.subject is None else f"[{' '.join(outline_subject(edge.subject))}]"
    return f"{edge.arrow.tail}{middle}{edge.arrow.head}"


def outline(tree: Document | Pattern | Element) -> str:
    match tree:
        case Document():
            root = [] if tree.record is None else [f"record({' '.join(outline_record(tree.record))})"]
            return "\n".join([*root, *map(outline, tree.patterns)])
        case Annotated():
            notes = [f"@{note.key}={outline_value(note.value)}" for note in tree.annotations]
            header = [] if tree.header is None else [f"@@({' '.join(outline_subject(tree.header))})"]
            return " ".join(["annotated", *header, *notes, outline(tree.pattern)])
        case Node():
            return f"node({' '.join(outline_subject(tree.subject))})"
        case Reference():
            return f"reference({tree.identity!r})"
        case Path():
            steps = [
                f"{outline_edge(e)} {outline(n)}" for e, n in zip(tree.edges, tree.nodes[1:], strict=True)
            ]
            return " ".join([outline(tree.nodes[0]), *steps])
        case Bracket():
            inner = [*outline_subject(tree.subject), *(["|"] if tree.elements else [])]
            return f"bracket({' '.join([*inner, ', '.join(map(outline, tree.elements))]).strip()})"


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_corpus_text_reads_as_written_beside_it(case: Case) -> None:
    """Gram notation as the official parser takes it, our extensions, and every text of seed 004."""
    place, _, words = case.detail.partition(" ")
    if case.verdict == "error":
        with pytest.raises(GramSyntaxError):
            read(case.text, strict=True)
        with pytest.raises(GramSyntaxError) as caught:
            read(case.text)
        assert f"{caught.value.line}:{caught.value.column}" == place
        assert words in str(caught.value)
        return
    document = read(case.text)
    assert outline(document) == case.outline
    assert bool(document.extensions) == (case.verdict == "strict-error")
    if case.verdict == "ok":
        assert read(case.text, strict=True) == document
        return
    with pytest.raises(GramSyntaxError) as caught:
        read(case.text, strict=True)
    assert f"{caught.value.line}:{caught.value.column}" == place
    assert words in str(caught.value)


def test_the_corpus_is_found_and_every_verdict_is_known() -> None:
    """A misspelt verdict would let a case pass unread."""
    assert len(cases()) > 100
    assert {case.verdict for case in cases()} == {"ok", "error", "strict-error"}
    assert len({case.name for case in cases()}) == len(cases())


def test_spans_point_at_the_source_of_every_part() -> None:
    """The tree keeps spans, so that linting can point at the place."""
    text = '// é\n@@h:H @note("n") [ tool :Tool {a :: [1] , "b c": 2} | ref , (x)-[ e ]->( y:`Y` ) ]'
    document = read(text)
    annotated = document.patterns[0]
    assert isinstance(annotated, Annotated)
    bracket = annotated.pattern
    assert isinstance(bracket, Bracket)
    path = bracket.elements[1]
    assert isinstance(path, Path)
    assert annotated.header
    assert bracket.subject.record
    assert path.edges[0].subject
    spans = [
        (annotated.span, text[5:]),
        (annotated.header.span, "h:H"),
        (annotated.annotations[0].span, '@note("n")'),
        (annotated.annotations[0].value_span, '"n"'),
        (bracket.span, text[text.index("[") :]),
        (bracket.subject.span, 'tool :Tool {a :: [1] , "b c": 2}'),
        (bracket.subject.labels[0].span, ":Tool"),
        (bracket.subject.record.span, '{a :: [1] , "b c": 2}'),
        (bracket.subject.record.properties[0].span, "a :: [1]"),
        (bracket.subject.record.properties[0].value_span, "[1]"),
        (bracket.elements[0].span, "ref"),
        (path.span, "(x)-[ e ]->( y:`Y` )"),
        (path.edges[0].span, "-[ e ]->"),
        (path.edges[0].subject.span, "e"),
        (path.nodes[1].span, "( y:`Y` )"),
        (path.nodes[1].subject.span, "y:`Y`"),
    ]
    for (start, end), source in spans:
        assert text[start:end] == source


def test_the_texts_of_the_author_are_kept_beside_their_meaning() -> None:
    """Printing and formatting never change style."""
    document = read("[`a`::B:`C` {'k'::'v'} | 1]".replace("'k'", '"k"'))
    bracket = document.patterns[0]
    assert isinstance(bracket, Bracket)
    subject = bracket.subject
    assert (subject.identity, subject.identity_text) == ("a", "`a`")
    assert [(label.separator, label.text) for label in subject.labels] == [("::", "B"), (":", "`C`")]
    prop = subject.properties.property("k")
    assert prop
    assert (prop.key_text, prop.separator, prop.value_text) == ('"k"', "::", "'v'")
    reference = bracket.elements[0]
    assert isinstance(reference, Reference)
    assert (reference.identity, reference.text) == ("1", "1")


def test_style_takes_no_part_in_equality() -> None:
    """`::` and `:` are equal, all arrow families are equal in meaning."""
    assert read("(a::B {x::1})==>(b)") == read("( a:B {'x': 1} ) --> (`b`)".replace("'", '"'))
    assert read("(a)-->(b)") != read("(a)<--(b)")
    assert read("(a)--(b)") != read("(a)-->(b)")


def test_every_extension_is_listed_with_its_place_in_order() -> None:
    """The default mode gives a portability warning for each extension used."""
    text = '{a: [[], {b:: 1e3}], c: "\\u0041", d: 2.5kg}'
    extensions = read(text).extensions
    assert [text[start:end] for start, end in (extension.span for extension in extensions)] == [
        "[]",
        "[]",
        "{b:: 1e3}",
        "b:: ",
        "1e3",
        "\\u0041",
        "2.5kg",
    ]
    assert all("not portable" in extension.message for extension in extensions)


def test_of_two_properties_with_one_key_the_last_one_counts() -> None:
    """A duplicate key is for the linter to report, in both modes."""
    for strict in (True, False):
        record = read("{a: 1, b: 2, a: 3}", strict=strict).record
        assert record is not None
        assert dict(record) == {"a": 3, "b": 2}
        assert [prop.key for prop in record.properties] == ["a", "b", "a"]


@pytest.mark.parametrize("strict", [True, False])
def test_a_byte_order_mark_is_skipped_at_the_start_only(strict: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Files from Windows start with one."""
    document = read("\ufeff(a)", strict=strict)
    assert document == read("(a)")
    assert document.patterns[0].span == (1, 4)
    with pytest.raises(GramSyntaxError, match="ZERO WIDTH NO-BREAK SPACE"):
        read("(a)\ufeff", strict=strict)


def test_windows_line_ends_are_blanks_and_end_a_fence() -> None:
    """A carriage return before the last newline of a fence belongs to that newline."""
    text = '{a: "x",\r\n b: ```\r\none\r\ntwo\r\n```}\r\n(c) // note\r\n(d)\r\n'
    document = read(text, strict=True)
    assert document.record == Record.of({"a": "x", "b": "one\r\ntwo"})
    assert len(document.patterns) == 2


def test_the_strict_mode_reads_slashes_at_the_start_of_a_string_as_a_comment() -> None:
    """A quirk of the official parser, and the one place where the two modes differ in meaning."""
    text = '{a: "// swallowed\n"}'
    assert read(text, strict=True).record == Record.of({"a": ""})
    assert read(text).record == Record.of({"a": "// swallowed"})


def test_an_error_says_where_what_was_expected_what_was_found_and_what_to_try() -> None:
    """Errors carry line:column, a caret line, what was expected, what was found, and a hint."""
    with pytest.raises(GramSyntaxError) as caught:
        read('(a)\n(b {k: "v" z: 1})')
    assert str(caught.value) == (
        "2:12: expected ',' or '}' (the '{' at 2:4 is still open), found 'z'\n"
        '  (b {k: "v" z: 1})\n'
        "             ^\n"
        "  hint: separate items with commas"
    )
    assert (caught.value.line, caught.value.column, caught.value.offset) == (2, 12, 15)
