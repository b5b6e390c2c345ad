"""HTTP as no honest client speaks it: requests with two meanings, without an end, or slower than patience."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest

from gramercy.testing.clients import modern_meta, request_head
from tests.mcp import fire
from tests.mcp.conversations import MODERN
from tests.support import port_of

SEED = 20261115
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
SMUGGLED = (
    b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"content-length: 46\r\n\r\n" + b'{"jsonrpc":"2.0","id":"smuggled","method":"x"}'
)
START = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
LENGTH = b"content-length: %d\r\n" % len(PING)
# What two readers could understand in two ways: none of them may be served as if it were clear.
AMBIGUOUS = {
    "length and chunks": b"transfer-encoding: chunked\r\ncontent-length: 6\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths": LENGTH + b"content-length: 0\r\n\r\n" + PING + SMUGGLED,
    "two lengths in one": b"content-length: 40, 0\r\n\r\n" + PING,
    "a signed length": b"content-length: +40\r\n\r\n" + PING,
    "a negative length": b"content-length: -1\r\n\r\n" + PING,
    "a length in hexadecimal": b"content-length: 0x28\r\n\r\n" + PING,
    "a length beyond counting": b"content-length: 99999999999999999999\r\n\r\n" + PING,
    "a space before the colon": b"content-length : 40\r\n\r\n" + PING,
    "two codings": b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "an unknown coding": b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunks that are not last": b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a coding after a tab": b"transfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a folded header": b"x-a: b\r\n content-length: 40\r\n\r\n" + PING,
    "a zero byte": b"x-a: b\0c\r\n" + LENGTH + b"\r\n" + PING,
    "a carriage return alone": b"x-a: b\rcontent-length: 40\r\n\r\n" + PING,
    "a header without a name": b": b\r\n" + LENGTH + b"\r\n" + PING,
    "a bad chunk size": b"transfer-encoding: chunked\r\n\r\nzz\r\n" + PING,
    "a signed chunk size": b"transfer-encoding: chunked\r\n\r\n-1\r\n" + PING,
    "an endless chunk size": b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + PING,
    "a chunk longer than told": b"transfer-encoding: chunked\r\n\r\n3\r\n" + PING + b"\r\n0\r\n\r\n",
    "two hosts": b"host: evil.example\r\n" + LENGTH + b"\r\n" + PING,
    "two session ids": b"mcp-session-id: a\r\nmcp-session-id: b\r\n" + LENGTH + b"\r\n" + PING,
    "two versions": b"mcp-protocol-version: 2026-07-28\r\nmcp-protocol-version: 2025-11-25\r\n"
    + LENGTH + b"\r\n" + PING,
}  # fmt: skip


@pytest.fixture(scope="module")
def under_fire(tmp_path_factory):
    """Return a function that runs a coroutine function with a server to shoot at, one for all tests."""
    folder = tmp_path_factory.mktemp("tools")
    with fire.served(folder, "--http", "127.0.0.1:0", "--no-auth") as server:
        port = port_of(server)
        yield lambda shoot: fire.run_under_fire(port, shoot)


def statuses(said):
    """Return the statuses of all answers in what a connection brought."""
    return [int(line.split()[1]) for line in said.split(b"\r\n") if line.startswith(b"HTTP/1")]


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_requests_with_two_meanings_are_refused_and_hide_no_other(under_fire, case):
    """MCP server, checklist 11: no request is smuggled in behind another one."""

    async def shoot(gun):
        said = await gun.raw(START + AMBIGUOUS[case], half=True)
        assert b"smuggled" not in said
        assert all(400 <= status < 500 for status in statuses(said))

    under_fire(shoot)


ODD_HEADS = {
    "nothing": b"\r\n\r\n",
    "garbage": bytes(range(256)),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
    "an older version": b"POST /mcp HTTP/0.9\r\n\r\n",
    "a newer version": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an endless path": b"POST /" + b"a" * 200_000,
    "an endless header": START + b"x-a: " + b"a" * 200_000,
    "endless headers": START + b"x-a: b\r\n" * 20_000,
    "an odd method": b"EAT /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    "a tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example:443\r\n\r\n",
    "another server's address": b"POST http://evil.example/mcp HTTP/1.1\r\nhost: evil.example\r\n\r\n",
    "another host": START.replace(b"127.0.0.1", b"evil.example") + LENGTH + b"\r\n" + PING,
    "no host": START.replace(b"host: 127.0.0.1\r\n", b"") + LENGTH + b"\r\n" + PING,
    "an upgrade": b"GET /mcp HTTP/1.1\r\nhost: [::1]\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    "a way around": b"POST /x/../mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    "an expectation": START + b"expect: the-impossible\r\n" + LENGTH + b"\r\n" + PING,
}


@pytest.mark.parametrize("case", ODD_HEADS)
def test_odd_heads_are_refused_or_end_the_connection(under_fire, case):
    """MCP server, checklist 11: nothing but a request of the protocol is served."""

    async def shoot(gun):
        assert all(400 <= status < 500 for status in statuses(await gun.raw(ODD_HEADS[case], half=True)))

    under_fire(shoot)


def test_damaged_requests_are_served_or_refused(under_fire):
    """MCP server, checklist 11: a fixed seed of heads and bodies with errors anywhere in them."""
    good = START + b"accept: application/json, text/event-stream\r\n" + LENGTH + b"\r\n" + PING

    async def shoot(gun):
        random = Random(SEED)
        for _ in range(500):
            data = bytearray(good)
            for _ in range(random.randrange(1, 4)):
                place = random.randrange(len(data))
                data[place : place + random.randrange(3)] = random.randbytes(random.randrange(3))
            said = await gun.raw(bytes(data), half=True)
            assert all(status < 500 for status in statuses(said)), bytes(data)

    under_fire(shoot)


def test_chunks_of_any_size_are_one_body(under_fire):
    """HTTP: how a body is cut makes no difference."""
    text = "x" * 5_000
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    message["params"] = {"name": "echo", "arguments": {"text": text}, "_meta": modern_meta({})}

    async def shoot(gun):
        random = Random(SEED)
        body = json.dumps(message).encode()
        headers = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "echo"}
        head = request_head(b"", content_length=None, transfer_encoding="chunked", **headers)
        for _ in range(20):
            chunks, place = [head], 0
            while place < len(body):
                part = body[place : place + random.choice((1, 3, 500, 4_000))]
                chunks.append(b"%x%s\r\n%s\r\n" % (len(part), b";a=b" * random.randrange(3), part))
                place += len(part)
            response = await gun.wire.send(b"".join([*chunks, b"0\r\n\r\n"]))
            assert (response.status, b'"isError":false' in await response.body()) == (200, True)

    under_fire(shoot)


def test_chunks_without_end_are_cut_off(under_fire):
    """MCP server, checklist 11: body limit, also where no length was told."""

    async def shoot(gun):
        endless = b"%x\r\n%s\r\n" % (1 << 20, b"x" * (1 << 20))
        said = await gun.raw(START + b"transfer-encoding: chunked\r\n\r\n" + endless * 12, half=True)
        assert statuses(said) in ([], [413])

    under_fire(shoot)


def test_clients_that_never_finish_do_not_keep_others_waiting(under_fire):
    """MCP server, checklist 11: slow clients hold up nobody."""
    starts = (b"", b"P", START, START + LENGTH + b"\r\n", START + LENGTH + b"\r\n" + PING[:5])

    async def shoot(gun):
        held = []
        for number in range(300):
            reader, writer = await asyncio.open_connection("127.0.0.1", gun.port)
            writer.write(starts[number % len(starts)])
            held.append((reader, writer))
        for _ in range(20):
            await gun.check_alive()
        for reader, writer in held:
            assert not reader.at_eof()
            writer.transport.abort()

    under_fire(shoot)


def test_clients_that_leave_in_the_middle_are_forgotten(under_fire):
    """MCP server, checklist 11: half a request, or an answer that nobody waits for."""
    whole = START + LENGTH + b"\r\n" + PING

    async def shoot(gun):
        for place in range(0, len(whole) + 1, 3):
            _, writer = await asyncio.open_connection("127.0.0.1", gun.port)
            writer.write(whole[:place])
            await writer.drain()
            writer.transport.abort()

    under_fire(shoot)


def test_pipelined_requests_are_answered_in_order(under_fire):
    """HTTP: several requests in one write, good ones and bad ones, get one answer each."""

    async def shoot(gun):
        bodies = [b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % number for number in range(100)]
        bodies[50] = b"{"
        data = b"".join(request_head(body, **gun.session) + body for body in bodies)
        answers = [await gun.wire.send(data)] + [None] * 99
        found = []
        for answer in answers:
            response = answer or await gun.wire.read()
            found.append(json.loads(await response.body()).get("id"))
        assert found == [*range(50), None, *range(51, 100)]

    under_fire(shoot)
