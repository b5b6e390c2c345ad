"""Whatever strangers send, reading it ends in an answer or in one of our own errors, within bounds."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gramercy.mcp.foreign.definitions import read_listing, review_tools
from gramercy.mcp.foreign.pipe import PipeLink
from gramercy.mcp.foreign.registration import read_result
from gramercy.mcp.foreign.web import EventReader
from gramercy.text import is_hidden
from gramercy.tools.content import ToolOutput

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "audio", "resource", "resource_link"])},
    optional=dict.fromkeys(("text", "data", "mimeType", "resource", "uri", "name"), JSON),
)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "name": JSON | st.sampled_from("ab"),
        "inputSchema": JSON | st.just({"type": "object"}),
        "description": JSON | st.text(),
        "annotations": JSON,
    },
)


@given(
    st.fixed_dictionaries(
        {}, optional={"content": JSON | st.lists(ITEM | JSON), "isError": JSON, "structuredContent": JSON}
    )
)
def test_every_result_becomes_an_output(result):
    """Other servers: nonsense is told, not raised."""
    assert isinstance(read_result(result), ToolOutput)


@given(st.lists(ENTRY | JSON, max_size=6))
def test_every_listing_can_be_read_and_shown(entries):
    """Other servers: faults are told tool by tool, and nothing hidden is printed."""
    listing = read_listing(entries)
    assert not listing.definitions.keys() & listing.faults.keys()
    for review in review_tools("s", listing, {}):
        assert not any(map(is_hidden, review.text().replace("\n", "").replace("\t", "")))


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_every_output_of_a_program_is_read_without_harm(chunks):
    """Other servers: garbage on the wire."""
    heard: list[Any] = []
    link = PipeLink(["none"], {}, None)
    link._hear = heard.append
    for chunk in chunks:
        link.take(chunk)
    assert link.remarks() == "" or "no messages of the protocol" in link.remarks()


def _read(chunks):
    async def given_in_chunks():
        for chunk in chunks:
            yield chunk

    async def read():
        return [event async for event in EventReader().read(given_in_chunks())]

    return asyncio.run(read())


@given(
    st.lists(st.lists(st.text(max_size=10), min_size=1, max_size=3), max_size=4),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 200), max_size=5),
)
def test_events_are_the_same_however_they_are_cut(events, ending, cuts):
    """Other servers: streams come in any pieces."""
    spoken = [[json.dumps(line) for line in lines] for lines in events]
    text = "".join("".join(f"data: {line}{ending}" for line in lines) + ending for lines in spoken)
    # After a lone carriage return one more byte shows that it was not half of a line's end.
    whole = f"{text}:{ending}".encode()
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[a:b] for a, b in pairwise(places)]
    assert _read(pieces) == ["\n".join(lines).encode() for lines in spoken]


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_every_stream_of_events_is_read_without_harm(chunks):
    """Other servers: garbage on the wire."""
    assert all(isinstance(event, bytes) for event in _read(chunks))
