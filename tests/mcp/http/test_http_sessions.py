"""Sessions of the legacy era: their beginning, their end, and what they cost."""

import asyncio
import json
import re

import pytest

from gramercy.errors import HttpError
from gramercy.mcp.base import Peer
from gramercy.mcp.http import Caller, HttpSettings, OpenGate, TokenGate
from gramercy.mcp.http.sessions import Sessions

ALICE, BOB = "alice" * 5, "bob" * 8


def test_initialize_begins_a_session_with_an_unguessable_id(site):
    """2025-11-25, Session Management 1."""
    ids = {site.initialize()["mcp-session-id"] for _ in range(20)}
    assert len(ids) == 20
    assert all(re.fullmatch(r"[\x21-\x7e]{32,}", one) for one in ids)


def test_a_failed_initialize_begins_none(site, tools):
    """No session without a version."""
    answer = site.post(tools.message("initialize"))
    assert answer.json()["error"]["code"] == -32602
    assert "mcp-session-id" not in answer.headers


def test_a_request_without_a_session_is_a_bad_request(site, tools):
    """2025-11-25, Session Management 2."""
    answer = site.post(tools.message("echo"))
    assert answer.status_code == 400
    assert "Mcp-Session-Id" in answer.json()["error"]["message"]


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_an_unknown_session_is_not_found(site, tools, method):
    """2025-11-25, Session Management 3: the client then starts a new one."""
    content = json.dumps(tools.message("echo"))
    headers = {"accept": tools.BOTH, "content-type": "application/json", "mcp-session-id": "never-was"}
    assert site.client.request(method, site.url, content=content, headers=headers).status_code == 404


def test_delete_ends_a_session_and_its_engine_peer(start, tools):
    """2025-11-25, Session Management 5."""
    site = start()
    session = site.initialize()
    assert site.client.delete(site.url, headers=session).status_code == 204
    assert site.post(tools.message("echo"), **session).status_code == 404
    assert len(site.toy.closed) == 1
    assert site.server.app.session_count == 0


def test_the_session_of_another_caller_is_not_found(start, tools):
    """Session hijacking: an id is no credential."""
    site = start(gate=TokenGate({ALICE: Caller("alice"), BOB: Caller("bob")}))
    session = site.initialize(authorization=f"Bearer {ALICE}")
    assert site.post(tools.message("echo"), authorization=f"Bearer {BOB}", **session).status_code == 404
    stolen = site.client.delete(site.url, headers={**session, "authorization": f"Bearer {BOB}"})
    assert stolen.status_code == 404
    assert site.post(tools.message("echo"), authorization=f"Bearer {ALICE}", **session).status_code == 200


def test_an_idle_session_ends_by_itself(start, tools):
    """Nobody has to clean up."""
    site = start(session_seconds=0.1)
    session = site.initialize()
    site.until(lambda: site.server.app.session_count == 0)
    assert site.post(tools.message("echo"), **session).status_code == 404
    assert len(site.toy.closed) == 1


@pytest.fixture
def sessions(tools):
    """Return sessions with a clock of their own, and the receiver they tell."""
    watch = tools.Toy()
    settings = HttpSettings(gate=OpenGate(), session_seconds=100.0, sessions=3)
    return Sessions(watch, settings, lambda: watch.now), watch


def test_a_session_that_is_used_lives_on(sessions):
    """Idle is since the last use, not since the beginning."""
    found, watch = sessions
    name = found.open(Peer(principal="a")).encode()
    for _ in range(5):
        watch.now += 60
        found.sweep()
        found.find(name, "a")
    watch.now += 101
    found.sweep()
    with pytest.raises(HttpError):
        found.find(name, "a")
    assert [peer.principal for peer in watch.closed] == ["a"]


def test_a_session_with_something_going_on_lives_on(sessions):
    """A long call or an open stream is use."""
    found, watch = sessions
    session = found.find(found.open(Peer(principal="a")).encode(), "a")
    session.busy = 1
    watch.now = 1000.0
    found.sweep()
    session.busy = 0
    watch.now = 1050.0
    found.sweep()
    assert len(found) == 1


def test_too_many_sessions_push_out_the_one_unused_for_longest(sessions):
    """Memory is bounded, and the new client is served."""
    found, watch = sessions
    first, second = (found.open(Peer(principal=name)).encode() for name in "ab")
    found.open(Peer(principal="c"))
    found.find(first, "a")
    found.open(Peer(principal="d"))
    assert (len(found), watch.closed[0].principal) == (3, "b")
    with pytest.raises(HttpError):
        found.find(second, "b")


def test_a_handshake_cannot_fill_the_memory(site, tools):
    """What a client tells of itself is kept as long as the session."""
    answer = site.post(
        tools.message("initialize", protocolVersion="2025-11-25", capabilities={"x": "y" * 70_000})
    )
    assert answer.status_code == 413


def test_an_idle_session_costs_less_than_four_kilobytes(tools):
    """The peers need 35 to 76 KB."""
    assert asyncio.run(tools.bytes_of_a_session(tools.Toy())) < 4096
