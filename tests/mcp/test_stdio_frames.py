"""A stream of bytes becomes frames, however it is cut."""

from hypothesis import given
from hypothesis import strategies as st

from gramercy.mcp.pipes import BYTE_ORDER_MARK, Overlong, Splitter


def frames_of(*chunks, limit=100):
    splitter = Splitter(limit)
    found = [frame for chunk in chunks for frame in splitter.feed(chunk)]
    return found + splitter.finish()


def test_a_line_is_a_frame():
    """MCP, transports: messages are delimited by newlines."""
    assert frames_of(b"one\n") == [b"one"]
    assert frames_of(b"one\ntwo\n") == [b"one", b"two"]


def test_a_frame_may_come_in_parts():
    """MCP, transports: messages are delimited by newlines."""
    assert frames_of(b"o", b"n", b"e\ntw", b"o\n") == [b"one", b"two"]


def test_what_stands_after_the_last_newline_is_a_frame_too():
    """MCP checklist 10: malformed frames are answered, also the last."""
    assert frames_of(b"one\ntwo") == [b"one", b"two"]


def test_empty_lines_and_carriage_returns_are_nobodys_fault():
    """MCP checklist 10."""
    assert frames_of(b"\n\r\n  \none\r\n\n\ntwo\r\n") == [b"one", b"two"]


def test_a_byte_order_mark_is_nobodys_fault():
    """MCP checklist 10."""
    assert frames_of(BYTE_ORDER_MARK + b"one\n", BYTE_ORDER_MARK + b"\r\n", b"two\n") == [b"one", b"two"]


def test_a_frame_may_be_as_long_as_the_limit_but_not_longer():
    """MCP specification of this server: 10 MB per frame."""
    assert frames_of(b"x" * 100 + b"\n") == [b"x" * 100]
    assert frames_of(b"x" * 101 + b"\n", b"two\n") == [Overlong(b"x" * 100), b"two"]


def test_a_frame_that_is_too_long_is_told_once_and_before_its_end():
    """MCP specification of this server: resynchronised at the next newline."""
    splitter = Splitter(100)
    assert splitter.feed(b"x" * 99) == []
    assert splitter.feed(b"xx") == [Overlong(b"x" * 100)]
    assert splitter.feed(b"x" * 1000) == []
    assert splitter.feed(b"end\ntwo\n") == [b"two"]


def test_only_the_beginning_of_a_frame_that_is_too_long_is_kept():
    """No unbounded memory."""
    (told,) = Splitter(1_000_000).feed(b"y" * 1_000_001)
    assert told == Overlong(b"y" * 4_096)
    splitter = Splitter(100)
    for _ in range(1000):
        splitter.feed(b"x" * 60)
    assert len(splitter._begun) == 0


def says_something(line):
    return b"\n" not in line and line.removeprefix(BYTE_ORDER_MARK).strip()


lines = st.lists(st.binary(min_size=1, max_size=150).filter(says_something))


@given(lines, st.data())
def test_how_the_stream_is_cut_makes_no_difference(given_lines, data):
    """A pipe may cut anywhere."""
    stream = b"".join(line + b"\n" for line in given_lines)
    whole = frames_of(stream)
    chunks = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        chunks.append(stream[:size])
        stream = stream[size:]
    assert frames_of(*chunks) == whole
    assert len(whole) == len(given_lines)
