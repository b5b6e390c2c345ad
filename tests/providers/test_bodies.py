"""Bodies as services really send them: odd line ends, huge lines, pages, dates, and keys at any place."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from time import thread_time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.errors import CutStreamError, ProviderError
from gramercy.providers import bodies
from gramercy.providers.bodies import model_names, read_events, reason_of, seconds_to_wait, taken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "sk-bodies-" + "0123456789" * 6


def events_of(*pieces: bytes) -> list[bytes]:
    async def chunks() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def read() -> list[bytes]:
        return [each async for each in read_events(chunks())]

    return asyncio.run(read())


def hide(text: str) -> str:
    return text.replace(KEY, "(key)")


@given(
    data=st.lists(st.text(max_size=8).map(json.dumps), max_size=4),
    end=st.sampled_from(["\n", "\r", "\r\n"]),
    cuts=st.lists(st.integers(0, 200), max_size=6),
    is_marked=st.booleans(),
)
def test_events_are_the_same_whatever_ends_their_lines_and_wherever_they_are_cut(data, end, cuts, is_marked):
    """The format of server-sent events: LF, CR or CRLF, and a byte order mark that is no part of it."""
    lines = [line for each in data for line in (": note", "event: x", f"data: {each}", "")]
    sent = (b"\xef\xbb\xbf" if is_marked else b"") + "".join(line + end for line in lines).encode()
    places = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    pieces = [sent[start:until] for start, until in pairwise(places)]
    assert events_of(*pieces) == [each.encode() for each in data]


def test_a_long_line_in_small_pieces_is_read_in_one_go():
    """A file in the arguments of a call is one line of megabytes; it was copied with each of its pieces."""
    began = thread_time()
    (event,) = events_of(b"data: ", *[b"x" * 100] * 40_000, b"\n\n")
    assert len(event) == 4_000_000
    # Copied with each piece, these were 80 gigabytes. Of the processor: other programs must not count.
    assert thread_time() - began < 5


def test_a_line_is_bounded_also_among_others(monkeypatch):
    monkeypatch.setattr(bodies, "LARGEST_EVENT", 1000)
    with pytest.raises(ProviderError, match="longer than"):
        events_of(b": note\n\ndata: " + b"x" * 2000 + b"\n\n")


@pytest.mark.parametrize("data", [b"no JSON: " + KEY.encode(), b'{"a": "%s"}' % KEY.encode()])
def test_an_event_of_no_form_is_quoted_without_the_key(data):
    def take(event):
        raise TypeError(event)

    with pytest.raises(CutStreamError) as told:
        taken(take, data, hide)
    assert "(key)" in str(told.value)
    assert KEY[:20] not in str(told.value)


def test_what_is_nested_too_deeply_is_no_json():
    deep = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"
    with pytest.raises(CutStreamError, match="is not JSON"):
        taken(lambda _: [], deep)
    assert reason_of(b"[" * 5000).startswith("[[[")
    assert model_names(deep) == []


@pytest.mark.parametrize("place", [0, 400, 470, 499, 700])
@pytest.mark.parametrize("is_json", [True, False])
def test_a_key_is_hidden_at_any_place_of_a_reason(place, is_json):
    """The reason was cut before the key was hidden: half of it was not recognised, and shown."""
    said = "x" * place + " " + KEY
    body = json.dumps({"error": {"message": said}}) if is_json else said
    shown = reason_of(body.encode(), hide)
    assert len(shown) <= 500
    assert KEY[:12] not in shown


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"error": null, "message": "too long"}', "too long"),
        (b'{"errors": [{"code": 1, "message": "too long"}]}', "too long"),
        (b'{"detail": [{"loc": ["body"], "msg": "too long"}]}', "too long"),
        (b'{"error": {"message": {"detail": "too long"}}}', "too long"),
        (b"<!DOCTYPE html>\n<html><head><title>\n502 Bad&nbsp;Gateway</title></head>", "502 Bad Gateway"),
        (b"<Error><Code>TooLong</Code></Error>", "<Error><Code>TooLong</Code></Error>"),
        (b"upstream\x1b[2J timed\r\nout", "upstream\\u{1b}[2J timed out"),
        (b"", ""),
        (b"{}", "{}"),
    ],
)
def test_reasons_are_found_in_the_forms_that_services_have(body, reason):
    assert reason_of(body) == reason


@pytest.mark.parametrize(
    "date",
    ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"],
    ids=["RFC 1123", "RFC 850", "asctime"],
)
def test_a_date_to_wait_for_has_three_forms(date):
    when = datetime.now(UTC) + timedelta(seconds=100)
    assert 90 < (seconds_to_wait({"retry-after": when.strftime(date)}) or 0) <= 100


@pytest.mark.parametrize(
    "given",
    [
        "0",
        "-3",
        "nan",
        "inf",
        "soon",
        "",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Fri, 31 Dec 99999999999 00:00 GMT",
    ],
)
def test_a_wait_that_is_none_is_not_told(given):
    """Who says 0 is asked again after our own wait, which grows: it was asked four times at once."""
    assert seconds_to_wait({"retry-after": given}) is None


def test_milliseconds_that_are_none_leave_the_seconds():
    assert seconds_to_wait({"retry-after-ms": "soon", "retry-after": "3"}) == 3
    assert seconds_to_wait({"retry-after-ms": "250", "retry-after": "3"}) == 0.25


def test_names_of_models_do_nothing_to_a_terminal():
    listed = {"data": [{"id": "a\x1b[2J\nb"}, {"id": "x" * 1000}, {"id": 3}, {}, 4]}
    assert model_names(json.dumps(listed).encode()) == ["a\\u{1b}[2J b", "x" * 100]
