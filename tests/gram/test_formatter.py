"""What the formatter does to text: one layout, no change of meaning, style or comments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramercy.errors import GramSyntaxError
from gramercy.gram.syntax.formatter import comments_of, format_gram, tokenize
from gramercy.gram.syntax.layout import WIDTH
from gramercy.gram.syntax.reader import read

SEED_TOOL = """\
[sayHello:ToolSpecification {
  description: "Returns a friendly greeting message for the given name"
} |
  (::Text {paramName:"name"})==>(::String)
]
"""

AGENT = """\
// A friendly agent.

{version: 1}

// The agent itself.
[greeter:Agent {
  description: "Greets people in the language they like best",
  instruction: ```
Be kind.
  Keep this line as it is.
```,
  model: "anthropic/claude"
} |
  sayHello, // by reference
  // This one is written out.
  [tell_time:Tool {description: "Tells the time"} | ()==>(::String)],

  [search:Tool {description: "Looks something up", safety: "read"} |
    (query::Text {description:"What to look for, in the words of the person who asks"})
      ==>(limit::Int {default:10, range:1..100})
      ==>(::String)
  ]
]
@@x @since(2025) (a) // the end
// and after it
"""


@pytest.mark.parametrize("text", ["", "()\n", "{}\n", "(a)-->(b)\n", SEED_TOOL, AGENT])
def test_canonical_text_stays_as_it_is(text: str) -> None:
    """Seed 004 shows a tool specification in this layout."""
    assert format_gram(text) == text


@pytest.mark.parametrize(
    ("text", "formatted"),
    [
        ("(a)(b)", "(a)\n(b)\n"),
        ("( a :B::C{ k :1,l::'x' } )", "(a:B::C {k:1, l::'x'})\n"),
        ("[ a:B{ k :1 }|b,c ]", "[a:B {k: 1} | b, c]\n"),
        ("[|b]", "[| b]\n"),
        ("(a) - [ r ] -> (b)", "(a)-[r]->(b)\n"),
        ("@ k ( [ 1,2 ] ) @l({a:1}) [a]", "@k([1, 2]) @l({a:1}) [a]\n"),
        ("@@ a : B (c)", "@@a:B (c)\n"),
        ("{a: 1 .. 2, b: ... 3, c: 4 ..., d: json `x`}", "{a: 1..2, b: ...3, c: 4..., d: json`x`}\n"),
        ("{a:[],b:{},c:[[1],{d:[2]}]}", "{a: [], b: {}, c: [[1], {d: [2]}]}\n"),
        ("\ufeff(a)\r\n(b)\r\n", "(a)\n(b)\n"),
        ("\n\n(a)\n\n\n\n(b)\n\n", "(a)\n\n(b)\n"),
        ("(a {\n\nk: 1\n\n})", "(a {k:1})\n"),
    ],
)
def test_short_patterns_stand_on_one_line(text: str, formatted: str) -> None:
    """Blanks are canonical, separators and quotes are the author's; one empty line between is kept."""
    assert format_gram(text) == formatted


@pytest.mark.parametrize(
    ("text", "formatted"),
    [
        ("(a)//x", "(a) //x\n"),
        ("// x\n\n\n// y\n(a)", "// x\n\n// y\n(a)\n"),
        ("// only", "// only\n"),
        ("( // x\na)", "( // x\na)\n"),
        ("{a: 1 // x\n, b: 2}", "{\n  a: 1, // x\n  b: 2\n}\n"),
        ("{a: 1\n// x\n, // y\nb: 2}", "{\n  a: 1,\n  // x\n  // y\n  b: 2\n}\n"),
        ("{a: 1, b: 2 // x\n// y\n}", "{\n  a: 1,\n  b: 2 // x\n  // y\n}\n"),
        ("{// x\n}", "{ // x\n}\n"),
        ("{\n// x\n}", "{\n  // x\n}\n"),
        ("{a: // x\n1}", "{\n  a: // x\n  1\n}\n"),
        ("[a // x\n| b]", "[a // x\n|\n  b\n]\n"),
        ("(a)-- // x\n(b)", "(a)\n  -- // x\n  (b)\n"),
        ("(a {k:1}) // x\n-->(b)", "(a {k:1}) // x\n  -->(b)\n"),
        ("{a: 1 // x\n..2}", "{\n  a: 1 // x\n  ..2\n}\n"),
        ("@a(1) // x\n(b)", "@a(1) // x\n(b)\n"),
    ],
)
def test_comments_stay_with_what_they_are_about(text: str, formatted: str) -> None:
    """A comment behind something stays behind it, a comment on its own line keeps a line."""
    assert format_gram(text) == formatted
    assert format_gram(formatted) == formatted


def test_long_patterns_are_broken_from_the_outside_in() -> None:
    """Width 100, two blanks of indentation, paths break before their arrows."""
    words = ", ".join(f'"a rather long word number {number}"' for number in range(5))
    assert format_gram(f"(a:B {{words: [{words}], other: 1}})") == (
        "(a:B {\n"
        "  words:[\n"
        + ",\n".join(f'    "a rather long word number {number}"' for number in range(5))
        + "\n  ],\n  other:1\n})\n"
    )


def test_a_line_may_be_exactly_as_wide_as_the_page() -> None:
    """Width 100 is allowed, 101 is broken."""
    fits = f'(a {{k:"{"x" * (WIDTH - 10)}"}})'
    assert len(fits) == WIDTH
    assert format_gram(fits) == fits + "\n"
    assert format_gram(fits.replace("a", "aa")).count("\n") == 3


def test_lines_are_too_wide_only_where_no_break_is_possible(make_scribe: Any) -> None:
    """Strings are never broken; everything else finds its line."""
    scribe = make_scribe("width")
    for _ in range(300):
        parts = "".join(f", k{index}: {scribe.upto(10**9)}" for index in range(scribe.upto(12)))
        steps = "".join(f"==>(::Text {{n:{scribe.upto(10**9)}}})" for _ in range(scribe.upto(6, 1)))
        text = f"[tool:Tool {{a: [{', '.join(['12345678'] * scribe.upto(20, 1))}]{parts}}} | (x){steps}, y]"
        assert max(map(len, format_gram(text).splitlines())) <= WIDTH, text


@pytest.mark.slow
def test_formatting_keeps_meaning_style_and_comments_and_is_idempotent(make_scribe: Any) -> None:
    """`fmt` preserves comments and style, is idempotent."""
    for wide in (False, True):
        scribe = make_scribe("formatter", wide=wide)
        for _ in range(600):
            text = scribe.document()
            formatted = format_gram(text)
            assert format_gram(formatted) == formatted, repr(text)
            assert read(formatted) == read(text), repr(text)
            before, after = tokenize(text), tokenize(formatted)
            assert [token.text for token in before] == [token.text for token in after], repr(text)
            assert comments_of(before) == comments_of(after), repr(text)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["a", ",", "// x\n", "\n", "\n\n", " ", "(b)", "[c | d]", "[e |\n// y\nf]", "]", "["])
    )
)
def test_comments_anywhere_in_a_list_are_stable(parts: list[str]) -> None:
    """Idempotence where comments, commas and empty lines meet."""
    text = f"[x | {''.join(parts)}]"
    try:
        formatted = format_gram(text)
    except GramSyntaxError:
        return
    assert format_gram(formatted) == formatted


def test_no_line_ends_in_blanks() -> None:
    """Only strings and fences may hold blanks before a newline."""
    text = "{a: // x  \n1, b:\n// y\t\n2} \n (c) \n [d | // z \n e] "
    assert all(line == line.rstrip() for line in format_gram(text).splitlines())


@pytest.mark.parametrize("text", ["(", "{a: }", "x", '{a: "'])
def test_text_that_is_not_gram_is_refused(text: str) -> None:
    """Formatting starts with reading."""
    with pytest.raises(GramSyntaxError):
        format_gram(text)
