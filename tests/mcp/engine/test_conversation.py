"""The states of a conversation: what the table allows, who is answered, what is logged."""

import asyncio
import logging

import pytest

from gramercy import tool
from gramercy.errors import ExecutionError
from gramercy.mcp import conversation, jsonrpc
from gramercy.mcp.conversation import MOVES, WAITED_FOR, State
from gramercy.mcp.jsonrpc import MODERN
from gramercy.tools.context import current_call

CAN: dict[str, object] = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
ASKS: dict[str, object] = {"elicitation": {}}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ALICE = {"action": "accept", "content": {"name": "Alice"}}
SECRET = "swordfish"


@tool
async def greet() -> str:
    """Ask for a name and greet."""
    answer = await current_call().ask("Who?", NAME, key="who")
    return f"Hello, {answer['content']['name']}!"


@tool(inline=True)
def explode(password: str) -> str:
    """Return what nothing can write."""
    return password


def test_every_state_has_its_moves_and_the_last_two_have_none():
    """architecture.md: a conversation moves by a table."""
    assert set(MOVES) == set(State)
    assert [state for state in State if not MOVES[state]] == [State.DONE, State.CANCELLED]
    for state in set(State) - {State.DONE, State.CANCELLED}:
        assert {State.DONE, State.CANCELLED} <= MOVES[state]
    assert {State.RUNNING, State.ASKING} == WAITED_FOR


def test_an_illegal_move_is_refused(serve, desk):
    """A task cannot be parked, nor what has ended be resumed."""

    async def main():
        client = desk(serve(greet), MODERN, ASKS)
        await client.call("greet")
        (parked,) = client.engine._conversations.parked._parked.values()
        conversation = parked.conversation
        assert conversation.state.value == "parked"
        with pytest.raises(ExecutionError, match="from parked to parked"):
            conversation.park(b"{}")
        with pytest.raises(ExecutionError, match="from parked to task"):
            conversation._move(State.TASK)
        assert not conversation.detach()
        conversation.cancel()
        assert conversation.state.value == "cancelled"
        conversation.cancel()
        with pytest.raises(ExecutionError, match="from cancelled to running"):
            conversation._move(State.RUNNING)

    asyncio.run(main())


def test_a_call_goes_through_the_states_in_their_order(serve, desk, text_of):
    """running, asking, parked, running, done."""
    seen = []

    @tool
    async def watch() -> str:
        """Look at its own conversation."""
        call = current_call()
        conversation = call.conversation  # type: ignore[attr-defined]
        seen.append(conversation.state)
        asyncio.get_running_loop().call_soon(lambda: seen.append(conversation.state))
        await call.ask("Who?", NAME, key="who")
        seen.append(conversation.state)
        return "seen"

    async def main():
        client = desk(serve(watch), MODERN, ASKS)
        asked = await client.call("watch")
        (parked,) = client.engine._conversations.parked._parked.values()
        seen.append(parked.conversation.state)
        state = {"inputResponses": {"who": ALICE}, "requestState": asked["requestState"]}
        done = text_of(await client.call("watch", **state))
        return done, parked.conversation.state

    assert asyncio.run(main()) == ("seen", State.DONE)
    assert seen == [State.RUNNING, State.ASKING, State.PARKED, State.RUNNING]


def test_a_handler_whose_client_never_came_back_cannot_ask_again(serve, desk):
    """A question that no request can carry would wait for ever."""
    heard = []

    @tool
    async def insist() -> str:
        """Ask twice."""
        for _ in range(2):
            try:
                await current_call().ask("Who?", NAME)
            except ExecutionError as error:
                heard.append(str(error))
        return "gave up"

    async def main():
        client = desk(serve(insist, patience=0.02), MODERN, ASKS)
        await client.call("insist")
        async with asyncio.timeout(5):
            while len(heard) < 2:  # noqa: ASYNC110 - nobody is told when a question expires
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(main()) == set()
    assert heard == [
        "nobody answered within 0.02 s",
        "nobody can be asked: the client did not come back in time",
    ]


def test_a_retry_that_cannot_begin_leaves_the_call_parked(serve, desk, text_of):
    """An id that is already under way is the client's mistake, and costs it nothing."""

    @tool
    async def wait() -> str:
        """Wait for long."""
        await asyncio.sleep(60)
        return "never"

    async def main():
        client = desk(serve(greet, wait), MODERN, ASKS)
        asked = await client.call("greet")
        under_way = client.begin("tools/call", {"name": "wait"}, id="same")
        retry = {
            "name": "greet",
            "arguments": {},
            "inputResponses": {"who": ALICE},
            "requestState": asked["requestState"],
        }
        refused = client.read("tools/call", client.begin("tools/call", retry, id="same"))
        under_way.cancel()
        done = text_of(await client.ask("tools/call", retry))
        return refused["error"]["code"], done

    assert asyncio.run(main()) == (-32600, "Hello, Alice!")


@pytest.mark.parametrize("capabilities", [{}, CAN], ids=["request", "task"])
def test_an_unexpected_exception_is_logged_once_with_what_was_asked(
    serve, desk, caplog, monkeypatch, capabilities
):
    """architecture.md, broad catches: once, with method, tool and id, without arguments."""
    categories = ["task"] if capabilities else []

    @tool(categories=categories)
    async def fail(password: str) -> str:
        """Fail after the executor's last catch."""
        await asyncio.sleep(0)
        return password

    async def main():
        client = desk(serve(fail), MODERN, capabilities)
        monkeypatch.setattr("gramercy.mcp.tool_calls.call_result", _explode)
        found = await client.call("fail", {"password": SECRET})
        for _ in range(5):
            await asyncio.sleep(0)
        if capabilities:
            found = client.now("tasks/get", {"taskId": found["taskId"]})
        return found["error"]["message"]

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(main()) == "Internal error"
    (record,) = caplog.records
    assert record.getMessage() == "tools/call 'fail' failed (request 1)"
    assert SECRET not in caplog.text


def _explode(*_):
    raise RuntimeError("a fault of ours")


def test_an_exception_before_any_waiting_is_logged_the_same(serve, desk, caplog, monkeypatch):
    """The way without a conversation."""
    client = desk(serve(explode), MODERN, {})
    monkeypatch.setattr("gramercy.mcp.tool_calls.call_result", _explode)
    with caplog.at_level(logging.ERROR):
        found = client.now("tools/call", {"name": "explode", "arguments": {"password": SECRET}})
    assert found["error"]["message"] == "Internal error"
    assert [record.getMessage() for record in caplog.records] == ["tools/call 'explode' failed (request 1)"]
    assert SECRET not in caplog.text


def test_the_table_has_the_moves_of_the_drawing_and_no_others():
    """MCP, conversation: a move too many would let two requests wait for one outcome."""
    moves = {
        (before.value, after.value)
        for before, followers in conversation.MOVES.items()
        for after in followers
        if after.value not in {"done", "cancelled"}
    }
    assert moves == {
        ("running", "asking"),
        ("running", "task"),
        ("asking", "running"),
        ("asking", "parked"),
        ("asking", "task"),
        ("parked", "running"),
        ("parked", "asking"),
        ("parked", "expired"),
    }


def test_every_code_has_one_meaning():
    """MCP, errors: the same on every transport; an enum makes an alias of a number given twice."""
    assert len(jsonrpc.Code.__members__) == len(set(jsonrpc.Code))
    assert (jsonrpc.Code.DENIED, jsonrpc.Code.BUSY) == (-32000, -32001)
