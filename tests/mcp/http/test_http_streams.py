"""Answers as streams: what comes before the answer, resumption, and clients that go away."""

import json
import threading

import pytest

from gramercy.mcp.http.streams import encode_event, split_event_id


def events(response):
    """Read a stream as (id, data) pairs; data is None for an empty one."""
    found, event_id = [], None
    for line in response.iter_lines():
        if line.startswith("id: "):
            event_id = line[4:]
        elif line.startswith("data:"):
            text = line[5:].strip()
            found.append((event_id, json.loads(text) if text else None))
    return found


def first_event(lines):
    """Read up to the first event with data and return its id and data."""
    event_id = None
    for line in lines:
        if line.startswith("id: "):
            event_id = line[4:]
        elif line.startswith("data:") and line[5:].strip():
            return event_id, json.loads(line[5:])
    raise AssertionError("the stream ended")


def test_what_is_said_before_the_answer_makes_it_a_stream(site, tools):
    """2026-07-28, Receiving Messages: no ids, nothing to resume."""
    with site.stream(
        "POST", tools.modern_message("echo", count=3), **tools.modern_headers("echo")
    ) as response:
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["x-accel-buffering"] == "no"
        found = events(response)
    assert [event_id for event_id, _ in found] == [None] * 4
    assert [data["params"] for _, data in found[:3]] == [0, 1, 2]
    assert found[3][1]["result"]["echo"] == ""


def test_a_stream_of_2025_11_25_begins_with_an_empty_event(site, tools):
    """2025-11-25, Sending Messages to the Server 6: primed for resumption, with a time to retry."""
    session = site.initialize()
    with site.stream("POST", tools.message("echo", count=1), **session) as response:
        text = response.read().decode()
    assert text.startswith("id: ")
    head, _, rest = text.partition("\n\n")
    assert "retry: " in head
    assert head.endswith("data: ")
    assert rest.count("id: ") == 2


def test_a_stream_of_an_older_revision_has_no_empty_event(site, tools):
    """Clients of that time would take it for a broken message."""
    session = site.initialize("2025-06-18")
    with site.stream("POST", tools.message("echo", count=1), **session) as response:
        found = events(response)
    assert all(data is not None for _, data in found)
    assert len(found) == 2


def test_a_slow_call_without_messages_is_answered_as_json(start):
    """Quick enough that nobody needs to be kept waiting with events."""
    site = start()
    waiting = threading.Thread(target=lambda: (site.toy.started.wait(10), site.toy.release()))
    waiting.start()
    answer = site.post_modern("wait")
    waiting.join(10)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["result"] == {"waited": True}


def test_a_call_that_takes_long_becomes_a_stream_that_is_kept_alive(start, tools):
    """Proxies close what is silent."""
    site = start(commit_seconds=0.05, keepalive_seconds=0.05)
    with site.stream("POST", tools.modern_message("wait"), **tools.modern_headers("wait")) as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line).startswith(":")
        assert next(line for line in lines if line).startswith(":")
        site.toy.release()
        assert first_event(lines)[1]["result"] == {"waited": True}


def test_a_request_that_was_called_off_ends_without_an_answer(start):
    """JSON-RPC: what is cancelled has no response."""
    site = start()
    waiting = threading.Thread(target=lambda: (site.toy.started.wait(10), site.toy.release()))
    waiting.start()
    answer = site.post_modern("wait", silent=True)
    waiting.join(10)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.content == b""


def test_a_fault_while_waiting_is_answered_without_details(start):
    """Never a traceback to a caller."""
    site = start()
    waiting = threading.Thread(target=lambda: (site.toy.started.wait(10), site.toy.release()))
    waiting.start()
    answer = site.post_modern("wait", broken=True)
    waiting.join(10)
    error = answer.json()["error"]
    assert (error["code"], error["message"].startswith("Internal error: ")) == (-32603, True)


@pytest.mark.parametrize("count", [0, 2])
def test_a_client_of_the_newer_era_that_goes_away_cancels_its_request(start, tools, count):
    """2026-07-28, Cancellation: closing the response stream is the cancellation."""
    site = start()
    with site.connect() as connection:
        connection.sendall(
            site.raw(tools.modern_message("wait", count=count), **tools.modern_headers("wait"))
        )
        assert site.toy.started.wait(10)
    assert site.toy.cancelled.wait(10)
    site.until(lambda: len(site.toy.closed) == 1)


def test_a_client_of_the_older_era_that_goes_away_before_any_event_cancels_its_request(start, tools):
    """Nothing could carry the answer any more."""
    site = start()
    session = site.initialize()
    with site.connect() as connection:
        connection.sendall(site.raw(tools.message("wait"), **session))
        assert site.toy.started.wait(10)
    assert site.toy.cancelled.wait(10)


def test_a_broken_stream_is_resumed_after_the_last_event(start, tools):
    """2025-11-25, Resumability and Redelivery: the call goes on, nothing is lost, nothing comes twice."""
    site = start()
    session = site.initialize()
    with site.stream("POST", tools.message("wait", count=3), **session) as response:
        last, data = first_event(response.iter_lines())
        assert data["params"] == 0
    site.toy.release()
    assert not site.toy.cancelled.is_set()
    with site.stream("GET", **session, last_event_id=last) as response:
        found = events(response)
    assert [data.get("params", data.get("result")) for _, data in found] == [1, 2, {"waited": True}]
    with site.stream("GET", **session, last_event_id=last) as response:
        assert events(response) == found


def test_nobody_coming_back_cancels_the_request_in_the_end(start, tools):
    """A stream waits for its client for a bounded time."""
    site = start(resume_seconds=0.1)
    session = site.initialize()
    with site.stream("POST", tools.message("wait", count=1), **session) as response:
        last, _ = first_event(response.iter_lines())
    assert site.toy.cancelled.wait(10)
    site.until(
        lambda: site.client.get(site.url, headers={**session, "last-event-id": last}).status_code == 400
    )


@pytest.mark.parametrize(
    "last", ["", "nonsense", "99-1", "1-999", "1-1-1", "-1", "\u0663-\u0661", "9" * 5000 + "-1"]
)
def test_an_event_that_never_was_cannot_be_resumed(site, last):
    """The answer says what to do instead."""
    session = site.initialize()
    headers = {**session, "accept": "text/event-stream", "last-event-id": last.encode()}
    answer = site.client.get(site.url, headers=list(headers.items()))
    assert answer.status_code == 400
    assert "Last-Event-ID" in answer.json()["error"]["message"]


def test_the_streams_of_one_session_cannot_be_resumed_in_another(start, tools):
    """Event ids are unique within a session only."""
    site = start()
    mine, other = site.initialize(), site.initialize()
    with site.stream("POST", tools.message("echo", count=1), **mine) as response:
        last = events(response)[0][0]
    assert site.client.get(site.url, headers={**other, "last-event-id": last}).status_code == 400


def test_a_tool_may_let_its_client_come_back_for_the_answer(start, tools):
    """2025-11-25, polling: the server closes the connection, the call goes on."""
    site = start()
    session = site.initialize()
    with site.stream("POST", tools.message("wait", release=True), **session) as response:
        text = response.read().decode()
    last = text.split("\n")[0].removeprefix("id: ")
    assert "retry: " in text.split("\n\n")[1]
    site.toy.release()
    with site.stream("GET", **session, last_event_id=last) as response:
        assert events(response)[0][1]["result"] == {"waited": True}


def test_listening_brings_what_belongs_to_no_request(start, tools):
    """2025-11-25, Listening for Messages from the Server."""
    site = start()
    session = site.initialize()
    with site.stream("GET", **session) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("id: 0-1")
        site.post(tools.message("echo"), **session)
        channel = next(iter(site.server.app._parts.sessions._sessions.values())).peer.channel
        # From a thread that is not the server's.
        channel.send(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
        assert first_event(lines)[1]["method"] == "notifications/tools/list_changed"


def test_listening_again_takes_the_stream_over(start):
    """A client that lost its connection without the server knowing is not locked out."""
    site = start()
    session = site.initialize()
    with site.stream("GET", **session) as first:
        old = first.iter_lines()
        next(old)
        with site.stream("GET", **session) as second:
            assert [line for line in old if line.startswith("data: {")] == []
            peer = next(iter(site.server.app._parts.sessions._sessions.values())).peer
            peer.channel.send(b'{"jsonrpc":"2.0","method":"news"}')
            assert first_event(second.iter_lines())[1]["method"] == "news"


def test_listening_needs_a_client_that_reads_streams(site):
    """2025-11-25, Listening 2."""
    session = site.initialize()
    answer = site.client.get(site.url, headers={**session, "accept": "application/json"})
    assert answer.status_code == 406


def test_ending_a_session_ends_its_streams_and_requests(start, tools):
    """Nothing of it goes on."""
    site = start()
    session = site.initialize()
    with site.stream("POST", tools.message("wait", count=1), **session) as response:
        lines = response.iter_lines()
        first_event(lines)
        assert site.client.delete(site.url, headers=session).status_code == 204
        assert site.toy.cancelled.wait(10)
        assert [line for line in lines if line.startswith("data: {")] == []


def test_a_reader_that_is_too_slow_loses_messages_but_never_the_answer(start, tools):
    """Bounded queues: what waits for one stream has a limit in number and in bytes."""
    site = start(stream_events=10)
    with site.stream(
        "POST", tools.modern_message("echo", count=1000), **tools.modern_headers("echo")
    ) as response:
        found = events(response)
    assert len(found) == 11
    assert "result" in found[-1][1]


def test_a_message_is_one_line_whatever_its_spacing():
    """Server-sent events end at line breaks."""
    assert encode_event(b'{\r\n"a":\n1}', "1-1") == b'id: 1-1\ndata: {  "a": 1}\n\n'


@pytest.mark.parametrize(
    ("text", "found"), [(b"3-14", (3, 14)), (b"3", None), (b"a-1", None), (b"", None), (b"1-", None)]
)
def test_event_ids_tell_stream_and_place(text, found):
    """Event ids encode the originating stream."""
    assert split_event_id(text) == found
