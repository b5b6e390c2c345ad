"""Servers under fire: real processes get what no honest client sends, and go on as if nothing had been."""

from __future__ import annotations

import json
from contextlib import ExitStack
from random import Random

import pytest

from tests.mcp import fire
from tests.mcp import odd_frames as odd
from tests.mcp.conversations import MODERN
from tests.support import port_of, said_besides, start_server

SEED = 20261115
NUMBER = 2_000
UNREADABLE = (-32700, -32600)
BARRIER = b'\n{"jsonrpc":"2.0","id":"barrier","method":"ping"}\n'
PONG = {"jsonrpc": "2.0", "id": "barrier", "result": {}}


@pytest.fixture
def serve(tmp_path):
    """Return a function that starts a server on pipes."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(fire.served(tmp_path))


def answers_to(client, frame):
    """Send a frame and return all that is said before the answer to the next one."""
    client.send(frame + BARRIER)
    found = []
    while (message := client.message()) != PONG:
        found.append(message)
    return found


def check_answers(frame, answers):
    """Check that an answer is one that this frame may have."""
    shown = frame[:200]
    for answer in answers:
        for one in answer if isinstance(answer, list) else [answer]:
            assert one["jsonrpc"] == "2.0", shown
            assert ("result" in one) is not ("error" in one), shown
            assert one.get("error", {}).get("code") != -32603, shown
    wanted = odd.wanted_id(frame)
    if odd.is_silent(frame) or not frame.strip():
        assert answers == [], shown
    elif wanted is not None:
        assert [answer.get("id") for answer in answers] == [wanted], shown
    else:
        assert len(answers) <= 1, shown
        if odd.is_unreadable(frame):
            assert _is_refusal(answers[0]), shown


def _is_refusal(answer):
    """Tell whether an answer, or one of a batch, says that something could not be read."""
    parts = answer if isinstance(answer, list) else [answer]
    return any(one.get("error", {}).get("code") in UNREADABLE for one in parts)


def test_odd_frames_on_pipes_are_answered_or_passed_over_and_nothing_else(serve):
    """MCP server, checklist 10: malformed frames are answered, notifications never."""
    client = serve()
    for frame in (*odd.HANDMADE, *odd.odd_frames(SEED, NUMBER)):
        check_answers(frame, answers_to(client, frame))
    assert client.call("echo", text="still here")["content"][0]["text"] == "still here"


def test_frames_that_come_in_shreds_get_the_same_answers(serve):
    """A pipe keeps no boundaries: frames cut anywhere and glued together are the same frames."""
    frames = [frame for frame in odd.odd_frames(SEED + 1, 500) if b"\r" not in frame]
    whole, shredded = serve(), serve()
    expected = [answer for frame in frames for answer in answers_to(whole, frame)]
    stream, random = b"\n".join(frames) + BARRIER, Random(SEED)
    place = 0
    while place < len(stream):
        size = random.choice((1, 7, 400, 4_000))
        shredded.send(stream[place : place + size])
        place += size
    found = []
    while (message := shredded.message()) != PONG:
        found.append(message)
    assert found == expected


def test_ten_megabytes_of_anything_on_pipes_cost_no_memory_afterwards(serve):
    """MCP server, checklist 10 and 11: bounded frames, bounded memory."""
    client = serve()
    for frame in (*odd.LONG, b"x" * (12 * odd.MEGABYTE), *odd.LONG):
        assert len(answers_to(client, frame)) == 1
    assert client.call("echo", text="still here")["isError"] is False


def test_half_a_frame_at_the_end_is_no_reason_to_fail(tmp_path):
    """MCP server, checklist 10: clean exit on EOF."""
    client = start_server("--image", "python", cwd=tmp_path)
    try:
        client.send(b'{"jsonrpc":"2.0","id":1,"method":"pi')
        client.stdin.close()
        assert [one["error"]["code"] for one in client.rest()] == [-32700]
        said = said_besides(client)
        assert (client.process.wait(20), said) == (0, [])
    finally:
        client.close()


@pytest.fixture
def under_fire(tmp_path):
    """Return a function that runs a coroutine function with a server to shoot at."""
    with fire.served(tmp_path, "--http", "127.0.0.1:0", "--no-auth") as server:
        port = port_of(server)
        yield lambda shoot: fire.run_under_fire(port, shoot)


def modern_headers(frame):
    message = odd.strictly_read(frame)
    method = message.get("method") if isinstance(message, dict) else None
    is_plain = isinstance(method, str) and method.isprintable() and method.isascii()
    found = {"mcp_protocol_version": MODERN, "mcp_method": method if is_plain else "ping"}
    return {**found, "mcp_name": "echo"}


def test_odd_bodies_are_answered_or_accepted_and_nothing_else(under_fire):
    """MCP server, checklist 11: whatever is posted is answered with a status that says so."""

    async def shoot(gun):
        random = Random(SEED)
        for frame in (*odd.HANDMADE, *odd.odd_frames(SEED + 2, NUMBER)):
            headers = modern_headers(frame) if random.random() < 0.5 else gun.session
            status, body = await gun.post(frame, **headers)
            check_response(frame, status, body)

    under_fire(shoot)


def check_response(frame, status, body):
    shown = (status, body[:200], frame[:200])
    assert status in {200, 202, 400, 404}, shown
    if status == 202:
        assert body == b"", shown
        assert odd.wanted_id(frame) is None, shown
        return
    answer = json.loads(body)
    if odd.is_silent(frame):
        # HTTP wants a status for everything, but nobody is answered who has not asked.
        assert (status, "id" in answer) == (400, False), shown
    for one in answer if isinstance(answer, list) else [answer]:
        assert one["jsonrpc"] == "2.0", shown
        assert one.get("error", {}).get("code") != -32603, shown
    if odd.wanted_id(frame) is not None:
        assert answer.get("id") == odd.wanted_id(frame), shown
    elif odd.is_unreadable(frame):
        assert _is_refusal(answer), shown
        assert status == 400 or isinstance(answer, list), shown


def test_ten_megabytes_of_anything_over_http_cost_no_memory_afterwards(under_fire):
    """MCP server, checklist 11: body limit."""

    async def shoot(gun):
        for frame in odd.LONG * 2:
            assert (await gun.post(frame, **gun.session))[0] in {200, 400}
        assert (await gun.post(b"x" * (12 * odd.MEGABYTE), **gun.session))[0] in {0, 413}

    under_fire(shoot)
