"""The real engine behind the real transport, in both eras."""

import asyncio
import json
import threading

import pytest

from gramercy import Executor, Registry, tool
from gramercy.mcp.engine import Engine
from gramercy.mcp.http import Caller, TokenGate
from gramercy.tools.context import current_call
from gramercy.tools.safety import Safety

ALL, SOME = "may-do-everything", "may-only-look-around"


class World:
    """What the tools do and notice."""

    def __init__(self):
        self.begun = threading.Event()
        self.interrupted = threading.Event()

    def engine(self):
        begun, interrupted = self.begun, self.interrupted

        @tool(inline=True)
        def echo(text: str) -> str:
            """Say it again."""
            return text

        @tool()
        def count(upto: int) -> str:
            """Count, and report it."""
            for number in range(1, upto + 1):
                current_call().report(number, upto)
            return "counted"

        @tool()
        async def linger() -> str:
            """Wait until somebody calls it off."""
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                interrupted.set()
                raise
            return "lingered"

        @tool(safety_level="cautious")
        def touch() -> str:
            """Touch something."""
            return "touched"

        return Engine(Executor(Registry([echo, count, linger, touch])), name="test", version="1")


@pytest.fixture
def world():
    return World()


def call(tools, name, **arguments):
    return tools.message("tools/call", name=name, arguments=arguments)


def data_of(response):
    return [json.loads(line[5:]) for line in response.iter_lines() if line.startswith("data: {")]


def test_a_tool_is_called_in_the_newer_era(start, world):
    """Seed 003, tools/call."""
    site = start(world.engine())
    answer = site.post_modern("tools/call", "echo", name="echo", arguments={"text": "hi"}).json()
    assert answer["result"]["content"] == [{"type": "text", "text": "hi"}]
    assert answer["result"]["resultType"] == "complete"


def test_a_tool_is_called_in_a_session(start, world, tools):
    """Seed 003, Success Response Format, to the letter."""
    site = start(world.engine())
    session = site.initialize()
    answer = site.post(call(tools, "echo", text="hi"), **session).json()
    assert answer["result"] == {"content": [{"type": "text", "text": "hi"}], "isError": False}


@pytest.mark.parametrize("is_newer", [False, True])
def test_progress_comes_before_the_answer(start, world, tools, is_newer):
    """Progress is sent on the stream of its request, also from a worker thread."""
    site = start(world.engine())
    meta = {**(tools.modern_meta() if is_newer else {}), "progressToken": "p"}
    body = tools.message("tools/call", name="count", arguments={"upto": 3}, _meta=meta)
    headers = tools.modern_headers("tools/call", "count") if is_newer else site.initialize()
    with site.stream("POST", body, **headers) as response:
        found = data_of(response)
    assert [one["params"]["progress"] for one in found[:-1]] == [1, 2, 3]
    assert found[-1]["result"]["content"][0]["text"] == "counted"


def test_a_client_that_goes_away_interrupts_its_tool(start, world, tools):
    """2026-07-28, Cancellation."""
    site = start(world.engine())
    with site.connect() as connection:
        body = tools.modern_message("tools/call", name="linger", arguments={})
        connection.sendall(site.raw(body, **tools.modern_headers("tools/call", "linger")))
        assert world.begun.wait(10)
    assert world.interrupted.wait(10)


def test_a_session_calls_its_tool_off(start, world, tools):
    """notifications/cancelled ends the request without an answer."""
    site = start(world.engine())
    session = site.initialize()
    answers = []
    asking = threading.Thread(target=lambda: answers.append(site.post(call(tools, "linger"), **session)))
    asking.start()
    assert world.begun.wait(10)
    note = tools.message("notifications/cancelled", None, requestId=1)
    assert site.post(note, **session).status_code == 202
    asking.join(10)
    assert world.interrupted.wait(10)
    assert answers[0].content == b""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"method": "unknown/method"}, (404, -32601, 1)),
        ({"method": "ping"}, (404, -32601, 1)),
        ({"version": "v999"}, (400, -32022, 1)),
        ({"meta": {}}, (400, -32602, 1)),
    ],
)
def test_the_newer_era_answers_with_the_right_status(start, world, tools, change, expected):
    """2026-07-28, Protocol Version Header."""
    site = start(world.engine())
    method = change.get("method", "server/discover")
    version = change.get("version", "2026-07-28")
    meta = change.get("meta", tools.modern_meta(version))
    headers = {**tools.modern_headers(method), "mcp-protocol-version": version}
    answer = site.post(tools.message(method, _meta=meta), **headers)
    assert (answer.status_code, answer.json()["error"]["code"], answer.json()["id"]) == expected


@pytest.mark.parametrize("is_newer", [False, True])
def test_a_token_with_a_ceiling_neither_sees_nor_runs_what_is_above(start, world, tools, is_newer):
    """Scopes and tokens give ceilings; the engine keeps them."""
    gate = TokenGate({ALL: Caller("owner"), SOME: Caller("guest", Safety.SAFE)})
    site = start(world.engine(), gate=gate)

    def ask(token, method, **params):
        site.headers["authorization"] = f"Bearer {token}"
        if is_newer:
            return site.post_modern(method, params.get("name"), **params).json()
        return site.post(tools.message(method, **params), **site.initialize()).json()

    def names(token):
        return {one["name"] for one in ask(token, "tools/list")["result"]["tools"]}

    assert names(ALL) - names(SOME) == {"touch"}
    assert "touched" in json.dumps(ask(ALL, "tools/call", name="touch", arguments={}))
    refused = ask(SOME, "tools/call", name="touch", arguments={})
    assert "touched" not in json.dumps(refused)
    assert "error" in refused or refused["result"]["isError"]


def test_an_idle_session_with_the_engine_costs_less_than_four_kilobytes(world, tools):
    """The peers need 35 to 76 KB."""
    assert asyncio.run(tools.bytes_of_a_session(world.engine())) < 4096
