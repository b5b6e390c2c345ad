"""The parser of what an image says, under any bytes: its own errors, or something that is bounded."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gramercy.errors import ImageGoneError, ImageProtocolError
from gramercy.images.base import Answer, Reply
from gramercy.images.connection import Connection, as_json
from gramercy.images.runner import Background
from gramercy.images.wire import LARGEST_HELLO, LARGEST_REPLY, MOST_NODES, Frames, Hello, kind_of
from tests.images.wire_cases import KINDS, REPLY, Campaign, check, open_files, resident

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
JSON = PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.sampled_from(("kind", "type")), PLAIN)


def read(place, frame):
    """Read a frame as a kind; only the error of the parser may come, and in printed characters."""
    refused = ""
    try:
        check(kind_of(KINDS[place]).read(frame))
    except ImageProtocolError as error:
        refused = str(error)
    assert refused.isprintable()


@pytest.mark.contract("trust.wire.bounds")
@given(frame=st.binary(max_size=200), place=st.integers(0, len(KINDS) - 1))
def test_any_bytes_are_refused_or_published_within_bounds(frame, place):
    """Keeper fuzzing: frames."""
    read(place, frame)


@pytest.mark.contract("trust.wire.bounds")
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    fields=st.dictionaries(st.sampled_from(sorted(REPLY)), JSON, max_size=4),
    place=st.integers(0, len(KINDS) - 1),
)
def test_any_json_is_refused_or_published_within_bounds(fields, place):
    """Keeper fuzzing: fields of every type under the names that are known."""
    read(place, json.dumps({"id": 7, "ok": True, **fields}).encode())


@given(sizes=st.lists(st.integers(0, 50), max_size=8), step=st.integers(1, 60))
def test_frames_come_out_whole_however_they_are_cut(sizes, step):
    """Keeper fuzzing: partial frames."""
    bodies = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    data = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    frames, found = Frames(), []
    for start in range(0, len(data), step):
        frame = frames.feed(data[start : start + step], 100)
        while frame is not None:
            found.append(frame)
            frame = frames.take(100)
    assert found == bodies
    assert len(frames) == 0


@pytest.mark.contract("trust.wire.bounds")
def test_seeded_cases_find_nothing():
    """Keeper fuzzing: the first cases of the campaign, as scripts/fuzz runs it."""
    campaign = Campaign()
    campaign.run(2_000)
    before, descriptors = resident(), open_files()
    campaign.run(3_000)
    assert resident() - before < 40_000_000
    assert open_files() == descriptors
    assert {"published", "refused", "waits"} <= campaign.outcomes.keys()


@pytest.mark.slow
@pytest.mark.contract("trust.wire.bounds")
def test_many_seeded_cases_find_nothing():
    """Keeper fuzzing: a longer part of the campaign."""
    campaign = Campaign(1_000_000)
    campaign.run(20_000)
    before = resident()
    campaign.run(300_000)
    assert resident() - before < 40_000_000


@pytest.mark.contract("trust.wire.bounds")
def test_a_hello_has_four_kilobytes():
    """Trust, group 4: sixty megabytes a hello."""
    with pytest.raises(ImageProtocolError, match="announced a frame of 4,097 bytes"):
        Frames().feed((LARGEST_HELLO + 1).to_bytes(4, "big"), kind_of(Hello).longest)


@pytest.mark.contract("trust.wire.bounds")
def test_a_frame_that_would_become_millions_of_objects_is_refused():
    """Trust: two bytes of a frame become a hundred in memory."""
    empty = b'{"id": 7, "ok": true, "forms": [' + b"{}," * MOST_NODES + b"{}]}"
    assert len(empty) < LARGEST_REPLY
    with pytest.raises(ImageProtocolError, match="more than 500,000 parts"):
        kind_of(Reply).read(empty)
    # Commas inside of a string are none.
    text = json.dumps({"id": 7, "ok": True, "text": "," * (MOST_NODES + 9)}).encode()
    assert len(kind_of(Answer).read(text).text) == MOST_NODES + 9


@pytest.mark.contract("trust.wire.deadline")
def test_a_request_that_is_not_read_ends_in_time(monkeypatch):
    """One absolute deadline: a process that does not read held the caller for ever."""
    monkeypatch.setattr("gramercy.images.connection.SEND_SECONDS", 0.2)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(ImageGoneError, match="did not read"):
        Connection(ours, as_json).send("eval", code="x" * 5_000_000)


@pytest.mark.contract("trust.wire.deadline")
def test_drops_that_come_for_ever_move_no_deadline():
    """One absolute deadline: each byte of a frame came just in time."""
    ours, theirs = socket.socketpair()
    stop = threading.Event()

    def drip():
        theirs.send((1 << 20).to_bytes(4, "big"))
        while not stop.wait(0.005):
            theirs.send(b" ")

    peer = threading.Thread(target=drip)
    peer.start()
    try:
        started = time.monotonic()
        assert Connection(ours, as_json).receive_reply(Reply, 0.3) is None
        # It would go on until the test stops it.
        assert time.monotonic() - started < 20
    finally:
        stop.set()
        peer.join()
        ours.close()
        theirs.close()


def test_a_connection_that_was_broken_stays_broken():
    """What follows a violation in the stream means nothing."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection(ours, as_json)
        connection.last_id = 7
        theirs.send(b"\xff\xff\xff\xff" + b'\0\0\0\x14{"id": 7, "ok":true}')
        for _ in range(2):
            with pytest.raises(ImageProtocolError, match="announced"):
                connection.receive_reply(Reply, 1.0)


@pytest.mark.contract("trust.wire.background")
def test_the_thread_that_all_images_share_survives_a_job_that_fails(caplog):
    """Trust, group 4: the shared housekeeping thread died, for every image of the server."""
    background, done = Background(), threading.Event()

    def fail():
        raise OSError(24, "Too many open files")

    background.later(fail)
    background.later(done.set)
    assert done.wait(60)
    assert "a job after a reply failed" in caplog.text
