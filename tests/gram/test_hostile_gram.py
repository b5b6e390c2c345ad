"""Hostile text: always a document or a clear syntax error, soon, and without a recursion error."""

from __future__ import annotations

import inspect
import sys
import time
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramercy.errors import GramError, GramSyntaxError
from gramercy.gram.syntax.formatter import format_gram
from gramercy.gram.syntax.printer import print_gram
from gramercy.gram.syntax.reader import read
from gramercy.gram.syntax.scanner import MAX_DEPTH
from gramercy.gram.syntax.tree import Document

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 100_000
HUGE = 10_000_000
# Far above what any of these takes (a second or two), far below what a quadratic one would.
SECONDS = 10.0

TOOL = """// tool {number}
[tool_{number}:ToolSpecification {{
  description: "Returns a friendly greeting message for the given name", categories: ["text", "demo"]
}} |
  (::Text {{paramName:"name", description:"who"}})==>(::Int {{paramName:"age", default:42}})==>(::String)
]
"""

BAD = {
    "brackets": ("[" * MANY, "expected '|' or ']'"),
    "brackets with subjects": ("[a|" * MANY, f"nested deeper than {MAX_DEPTH} levels"),
    "bare brackets": ("[|" * MANY, f"nested deeper than {MAX_DEPTH} levels"),
    "nodes": ("(" * MANY, "to close the node"),
    "records": ("{" * MANY, "expected a property name"),
    "arrays": ("{a:" + "[" * MANY, f"nested deeper than {MAX_DEPTH} levels"),
    "closed arrays": ("{a:" + "[" * MANY + "]" * MANY + "}", f"nested deeper than {MAX_DEPTH} levels"),
    "maps": ("{a:" * MANY, f"nested deeper than {MAX_DEPTH} levels"),
    "arrays in brackets": ("[a|" * 50 + "({a:" + "[" * 50, f"nested deeper than {MAX_DEPTH} levels"),
    "annotations": ("@k(" * MANY, "expected a value"),
    "headers": ("@@a " * MANY, "only once"),
    "unterminated string": ('{a:"' + "x" * HUGE, "unterminated string"),
    "unterminated name": ("(`" + "x" * HUGE, "unterminated string"),
    "string of blanks": ('{a:"' + " " * HUGE, "unterminated string"),
    "unterminated fence": ("{a:```\n" + "`` " * MANY, "unterminated fence"),
    "fence of comments": ("{a:```\n" + "//```\n" * MANY, "unterminated fence"),
    "quotes": ("{a:" + '"' * MANY, "expected ',' or '}'"),
    "backticks": ("{a:" + "`" * MANY, "a ``` fence needs a newline"),
    "backslashes": ('{a:"' + "\\" * MANY, "unterminated string"),
    "bad escape": ('{a:"' + "\\\\" * MANY + "\\q", "invalid escape"),
    "digits": ("{a:" + "1" * HUGE + "}", "more than 500 characters"),
    "hexadecimal digits": ("{a:0x" + "f" * HUGE + "}", "more than 500 characters"),
    "exponent": ("{a:1e" + "9" * HUGE + "}", "more than 500 characters"),
    "unit": ("{a:1" + "x" * HUGE + "}", "more than 500 characters"),
    "overflow": ("{a:" + "9" * 400 + ".0}", "is too large"),
    "dots": ("{a:" + "." * MANY, "expected a number"),
    "dashes": ("(a)" + "-" * MANY, "expected a node"),
    "colons": ("(a" + ":" * MANY, "expected a label"),
    "one long line": ("(" + "a" * HUGE, "found the end of the text"),
    "one long key": ("{" + "a" * HUGE + "}", "expected ':' after the property name"),
    "one long annotation": ("@" + "a" * HUGE, "expected '(' after @a"),
    "long line of blanks": (" " * HUGE + "x", f"1:{HUGE + 1}: expected a pattern"),
    "comments": ("// x\n" * MANY + "x", f"{MANY + 1}:1: expected a pattern"),
    "NUL": ("(a)\0", "1:4: the text has a NUL character"),
    "NUL in a string": ('{a:"\0"}', "1:5: the text has a NUL character"),
    "lone surrogate": ('{a:"\ud800"}', "1:5: the text has a lone surrogate U+D800"),
    "lone surrogate in a comment": ("// \udfff", "1:4: the text has a lone surrogate U+DFFF"),
    "half of an escaped pair": ('{a:"\\udc00\\ud800"}', "half of a surrogate pair"),
    "control character": ("(a)\x1c", "1:4: expected a pattern"),
    "zero width space": ("(a\u200b)", "ZERO WIDTH SPACE"),
    "byte order marks": ("\ufeff" * MANY, "ZERO WIDTH NO-BREAK SPACE"),
}

GOOD: dict[str, Callable[[int], str]] = {
    "patterns": lambda count: "()" * count,
    "path": lambda count: "(a)" + "-->(a)" * count,
    "labels": lambda count: "(" + ":a" * count + ")",
    "array": lambda count: "{a:[" + "1," * count + "1]}",
    "equal keys": lambda count: "{" + "a:1," * count + "a:1}",
    "extensions": lambda count: "{a:[" + "[]," * count + "1]}",
    "elements": lambda count: "[a|" + "b," * count + "c]",
    "comments": lambda count: "//\n" * count,
    "comments in a list": lambda count: "[a|b" + "//\n" * count + ",c]",
    "empty lines": lambda count: "\n" * 100 * count,
    "late quotes": lambda count: "[a|" + "`x\n//y\n`," * count + "b]",
    "slashes in strings": lambda count: "{a:[" + '"//x",' * count + "1]}",
    "escapes": lambda count: '{a:"' + "\\u0041" * count + '"}',
    "backticks in a fence": lambda count: "{a:```\n" + "`` ` " * count + "\n```}",
    "annotations": lambda count: "@a(1) " * count + "(x)",
}


def in_time(start: float) -> bool:
    return time.process_time() - start < SECONDS


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "default"])
@pytest.mark.parametrize("name", BAD)
def test_bad_text_of_any_size_gives_a_short_clear_error(name: str, strict: bool) -> None:  # noqa: FBT001 - a parameter
    """Hostile input gives a GramSyntaxError in bounded time, with a message a person can read."""
    text, words = BAD[name]
    start = time.process_time()
    with pytest.raises(GramSyntaxError) as caught:
        read(text, strict=strict)
    assert in_time(start)
    assert len(str(caught.value)) < 600
    if not strict:
        assert words in str(caught.value)


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.slow
def test_good_text_of_any_size_is_read(name: str) -> None:
    """Nothing in the reader is quadratic."""
    text = GOOD[name](MANY)
    start = time.process_time()
    assert read(text)
    assert in_time(start)


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.slow
def test_good_text_of_some_size_is_printed_and_formatted(name: str) -> None:
    """Nothing in the printer and the formatter is quadratic either."""
    text = GOOD[name](MANY // 10)
    document = read(text)
    start = time.process_time()
    assert read(print_gram(document)) == document
    assert read(format_gram(text)) == document
    assert in_time(start)


@pytest.mark.parametrize("value", [b"(a)", None, 1, ["(a)"], bytearray(b"(a)")])
def test_what_is_not_text_is_refused_with_a_hint(value: Any) -> None:
    """Non-text input is a syntax error like any other, not an attribute error from within."""
    with pytest.raises(GramSyntaxError, match=f"expected text, received {type(value).__name__}") as caught:
        read(value)
    assert "decode" in str(caught.value)


NESTS = {
    "brackets": "[a | " * MAX_DEPTH + "b" + "]" * MAX_DEPTH,
    "arrays": "{a: " + "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH + "}",
    "maps": "{a: " + "{b: " * MAX_DEPTH + "1" + "}" * MAX_DEPTH + "}",
}


def at_depth(frames: int, action: Any) -> Any:
    return action() if frames == 0 else at_depth(frames - 1, action)


@pytest.mark.parametrize("name", NESTS)
def test_the_deepest_nesting_allowed_works_from_a_deep_stack(name: str) -> None:
    """The limit is well below Python's recursion limit even when called from a fairly deep stack."""
    text = NESTS[name]
    document = at_depth(600, lambda: read(text))
    assert at_depth(400, lambda: read(print_gram(document)) == document)
    assert format_gram(text)


@pytest.mark.parametrize("name", NESTS)
def test_without_a_stack_the_error_is_still_a_gram_error(name: str) -> None:
    """A RecursionError never escapes while there is room to say so."""
    room = sys.getrecursionlimit() - len(inspect.stack(0))
    for action in (read, format_gram):
        depths = range(room - 600, room - 40, 10)
        verdicts = [at_depth(frames, partial(verdict, action, NESTS[name])) for frames in depths]
        assert verdicts[0] == "done"
        assert "no stack is left" in verdicts[-1]


def verdict(action: Any, text: str) -> str:
    try:
        action(text)
    except GramError as error:
        return str(error)
    return "done"


def test_reading_takes_steps_in_proportion_to_the_text() -> None:
    """Parsing is linear: twice the tools take twice the steps; the benchmark times it."""
    texts = ["".join(TOOL.format(number=n) for n in range(1_000, 1_000 + count)) for count in (200, 400, 800)]
    steps = [steps_to_read(text) for text in texts]
    assert steps[1] < 2.1 * steps[0]
    assert steps[2] < 2.1 * steps[1]


def steps_to_read(text: str) -> int:
    """Count calls and returns, of Python functions and of builtin ones; no clock can disturb that."""
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        read(text)
    finally:
        sys.setprofile(None)
    return steps


def test_reading_takes_memory_in_proportion_to_the_text() -> None:
    """A tree is at most some fifty times its text, a refusal of one long line a few times."""
    text = "".join(TOOL.format(number=n) for n in range(500))
    assert peak_of(text) < 50 * len(text)
    assert peak_of('{a:"' + "x" * HUGE) < 5 * HUGE


def peak_of(text: str) -> int:
    tracemalloc.start()
    try:
        read(text)
    except GramSyntaxError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@settings(deadline=None)
@given(st.text(max_size=60), st.booleans())
def test_any_text_gives_a_document_or_a_syntax_error(text: str, strict: bool) -> None:  # noqa: FBT001 - a parameter
    """Fuzz: nothing else ever comes out, and what is read can be printed."""
    check(text, strict=strict)


@settings(deadline=None)
@given(st.binary(max_size=60), st.sampled_from(["latin-1", "utf-8"]), st.booleans())
def test_any_bytes_decoded_anyhow_give_a_document_or_a_syntax_error(
    data: bytes,
    encoding: str,
    strict: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Fuzz: a file that is no text, read with surrogate escapes or as Latin-1."""
    check(data.decode(encoding, "surrogateescape"), strict=strict)


@pytest.mark.slow
def test_random_signs_give_a_document_or_a_syntax_error(make_scribe: Any) -> None:
    """Fuzz: signs of the grammar in any order, and spoilt documents, in bounded time."""
    scribe = make_scribe("fuzz", wide=True)
    start = time.process_time()
    for _ in range(4_000):
        check(scribe.salad("%%%"), strict=scribe.chance(0.5))
        check(scribe.mutant(scribe.document()), strict=scribe.chance(0.5))
    assert time.process_time() - start < 6 * SECONDS


def check(text: str, *, strict: bool) -> None:
    try:
        document = read(text, strict=strict)
    except GramSyntaxError as error:
        fault = error
    else:
        assert isinstance(document, Document)
        assert read(print_gram(document), strict=strict) == document
        return
    assert 0 <= fault.offset <= len(text)
    assert fault.line >= 1
    assert fault.column >= 1
