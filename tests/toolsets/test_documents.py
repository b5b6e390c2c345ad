"""Texts keep their encoding, byte order mark and line ends."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gramercy.toolsets import documents

BYTES = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=30).map(lambda t: t.encode("utf-8", "replace")),
    st.lists(st.sampled_from([b"a", b"\r\n", b"\n", b"\r", b"\xe4", b"\xff\xfe", b"\xef\xbb\xbf"])).map(
        b"".join
    ),
)


@given(BYTES)
@example(b"\xff\xfe\x00")
@example(codecs.BOM_UTF8 + b"\xff")
def test_what_is_read_is_written_back_byte_for_byte(data):
    """Workspace: encodings kept."""
    decoded = documents.decode(data)
    if decoded is not None:
        text, script = decoded
        assert script.encode(text) == data


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        (b"plain\n", "plain\n", "utf-8"),
        ("größe\n".encode(), "größe\n", "utf-8"),
        ("größe\n".encode("latin-1"), "größe\n", "latin-1"),
        (codecs.BOM_UTF8 + "ä".encode(), "ä", "utf-8"),
        (codecs.BOM_UTF16_LE + "ä".encode("utf-16-le"), "ä", "utf-16-le"),
        (codecs.BOM_UTF16_BE + "ä".encode("utf-16-be"), "ä", "utf-16-be"),
        (codecs.BOM_UTF32_LE + "ä".encode("utf-32-le"), "ä", "utf-32-le"),
        (codecs.BOM_UTF32_BE + "ä".encode("utf-32-be"), "ä", "utf-32-be"),
        (b"one\r\ntwo\r\n", "one\ntwo\n", "utf-8"),
        (b"one\r\ntwo\n", "one\r\ntwo\n", "utf-8"),
        (b"", "", "utf-8"),
    ],
)
def test_each_kind_of_text_is_recognised(data, text, encoding):
    """Workspace: non-UTF-8 and BOM'd files, CRLF."""
    found, script = documents.decode(data) or pytest.fail("not recognised")
    assert (found, script.encoding) == (text, encoding)


@pytest.mark.parametrize("data", [b"\x7fELF\x00\x01", b"\x00", b"text\x00more"])
def test_bytes_with_a_nul_are_no_text(data):
    """Workspace: binary files."""
    assert documents.decode(data) is None


def test_new_lines_of_a_crlf_file_end_like_the_others():
    """Workspace: CRLF kept."""
    _, script = documents.decode(b"one\r\n") or pytest.fail("not recognised")
    assert script.encode("one\ntwo\n") == b"one\r\ntwo\r\n"
    assert script.encode("one\r\ntwo\n") == b"one\r\ntwo\r\n"


def test_lines_end_where_editors_end_them():
    """Line numbers agree with those of people."""
    assert documents.lines("a\x0cb\u2028c\nd\r\ne\rf") == ["a\x0cb\u2028c\n", "d\r\n", "e\r", "f"]
