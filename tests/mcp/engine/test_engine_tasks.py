"""Calls that outlive their request: the modern extension, and the tasks of 2025-11-25."""

import asyncio

import pytest

from gramercy import ToolOutput, tool
from gramercy.mcp.tasks import MOST_TASKS_OF_ONE
from gramercy.tools.context import current_call

MODERN, LEGACY = "2026-07-28", "2025-11-25"
TASKS = "io.modelcontextprotocol/tasks"
ABLE: dict[str, object] = {"elicitation": {}, "extensions": {TASKS: {}}}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ALICE = {"action": "accept", "content": {"name": "Alice"}}
CREATED = {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "_meta"}


@tool(categories=["task"])
async def work(seconds: float) -> str:
    """Work for a while."""
    await asyncio.sleep(seconds)
    return "worked"


@tool(categories=["task-required"])
async def toil() -> ToolOutput:
    """Fail after a while."""
    await asyncio.sleep(0)
    return ToolOutput(None, error="too hard")


@tool(categories=["task"])
async def break_down() -> str:
    """Fail as the protocol does."""
    await asyncio.sleep(0)
    current_call().fail("broken", code=-32603)


@tool(categories=["task"])
async def consult() -> str:
    """Ask two people at once."""
    call = current_call()
    one, two = await asyncio.gather(call.ask("1?", NAME, key="one"), call.ask("2?", NAME, key="two"))
    return f"{one['content']['name']}{two['content']['name']}"


@tool
async def ask_then_work() -> str:
    """Ask first, then take long."""
    answer = await current_call().ask("Who?", NAME, key="who")
    await current_call().detach()
    await asyncio.sleep(0)
    return f"for {answer['content']['name']}"


@tool
async def plain(seconds: float) -> str:
    """Take as long as it takes."""
    await asyncio.sleep(seconds)
    return "plain"


TOOLS = (work, toil, break_down, consult, ask_then_work, plain)


async def until_over(client, task_id):
    async with asyncio.timeout(5):
        while True:
            found = client.now("tasks/get", {"taskId": task_id})
            if found["status"] not in {"working", "input_required"}:
                return found
            await asyncio.sleep(0.005)


async def until(client, task_id, status):
    async with asyncio.timeout(5):
        while True:
            found = client.now("tasks/get", {"taskId": task_id})
            if found["status"] == status:
                return found
            await asyncio.sleep(0)


def test_a_long_tool_is_a_task_for_clients_that_understand_tasks(serve, desk):
    """Tasks extension, Task Creation and Task Polling."""

    async def main():
        client = desk(serve(*TOOLS), MODERN, ABLE)
        created = client.now("tools/call", {"name": "work", "arguments": {"seconds": 0}})
        assert set(created) == CREATED
        assert (created["resultType"], created["status"]) == ("task", "working")
        at_once = client.now("tasks/get", {"taskId": created["taskId"]})
        assert (at_once["resultType"], at_once["status"]) == ("complete", "working")
        client.engine.close(client.peer)
        return await until_over(desk(client.engine, MODERN, ABLE), created["taskId"])

    found = asyncio.run(main())
    assert found["status"] == "completed"
    assert found["result"]["content"] == [{"type": "text", "text": "worked"}]


def test_other_clients_wait_for_the_result_as_always(serve, desk, text_of):
    """Tasks extension: a server must not return a task to a client that did not declare it."""

    async def main():
        client = desk(serve(*TOOLS), MODERN)
        return await client.call("work", {"seconds": 0}), await client.call("toil")

    worked, refused = asyncio.run(main())
    assert text_of(worked) == "worked"
    assert refused["error"]["code"] == -32021
    assert refused["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


def test_a_tool_that_fails_completes_its_task_and_a_protocol_error_fails_it(serve, desk):
    """Tasks extension, Task Execution Errors."""

    async def main():
        client = desk(serve(*TOOLS), MODERN, ABLE)
        ids = [client.now("tools/call", {"name": name})["taskId"] for name in ("toil", "break_down")]
        return [await until_over(client, task_id) for task_id in ids]

    toiled, broken = asyncio.run(main())
    assert (toiled["status"], toiled["result"]["isError"]) == ("completed", True)
    assert (broken["status"], broken["error"]) == ("failed", {"code": -32603, "message": "broken"})
    assert "result" not in broken


def test_a_task_asks_through_its_status_and_takes_answers_one_by_one(serve, desk):
    """Tasks extension, Task Update Requests."""

    async def main():
        client = desk(serve(*TOOLS), MODERN, ABLE)
        task_id = client.now("tools/call", {"name": "consult"})["taskId"]
        asked = await until(client, task_id, "input_required")
        assert set(asked["inputRequests"]) == {"one", "two"}
        ack = client.now("tasks/update", {"taskId": task_id, "inputResponses": {"one": ALICE, "no": {}}})
        assert set(ack) == {"resultType", "_meta"}
        assert set(client.now("tasks/get", {"taskId": task_id})["inputRequests"]) == {"two"}
        client.now("tasks/update", {"taskId": task_id, "inputResponses": {"one": {}, "two": ALICE}})
        return await until_over(client, task_id)

    assert asyncio.run(main())["result"]["content"][0]["text"] == "AliceAlice"


def test_a_call_can_ask_first_and_become_a_task_then(serve, desk):
    """Tasks extension: multi round-trip exchanges are resolved before the task is created."""

    async def main():
        client = desk(serve(*TOOLS), MODERN, ABLE)
        asked = await client.call("ask_then_work")
        assert (asked["resultType"], "taskId" in asked) == ("input_required", False)
        state = {"inputResponses": {"who": ALICE}, "requestState": asked["requestState"]}
        created = await client.call("ask_then_work", **state)
        assert created["resultType"] == "task"
        return await until_over(client, created["taskId"])

    assert asyncio.run(main())["result"]["content"][0]["text"] == "for Alice"


def test_any_call_becomes_a_task_when_it_takes_too_long(serve, desk, text_of):
    """mcp.md, checklist 9: tasks when the client declares them."""

    async def main():
        client = desk(serve(*TOOLS, task_after=0.02), MODERN, ABLE)
        short = text_of(await client.call("plain", {"seconds": 0}))
        created = await client.call("plain", {"seconds": 0.06})
        return short, created["resultType"], await until_over(client, created["taskId"])

    short, kind, found = asyncio.run(main())
    assert (short, kind, found["status"]) == ("plain", "task", "completed")


@pytest.mark.parametrize("name", ["work", "consult"])
def test_a_cancelled_task_stops_its_handler(serve, desk, name):
    """Tasks extension, Task Cancellation."""

    async def main():
        client = desk(serve(*TOOLS), MODERN, ABLE)
        arguments = {"seconds": 60} if name == "work" else {}
        task_id = client.now("tools/call", {"name": name, "arguments": arguments})["taskId"]
        await asyncio.sleep(0)
        for _ in range(2):
            assert set(client.now("tasks/cancel", {"taskId": task_id})) == {"resultType", "_meta"}
        for _ in range(5):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return client.now("tasks/get", {"taskId": task_id})["status"]

    assert asyncio.run(main()) == "cancelled"


def test_tasks_belong_to_their_principal(serve, desk):
    """Tasks extension, Security Considerations, Auth binding."""

    async def main():
        client = desk(serve(*TOOLS), MODERN, ABLE)
        task_id = client.now("tools/call", {"name": "work", "arguments": {"seconds": 60}})["taskId"]
        eve = desk(client.engine, MODERN, ABLE, principal="eve")
        codes = [
            eve.now(f"tasks/{verb}", {"taskId": task_id})["error"]["code"]
            for verb in ("get", "cancel", "update")
        ]
        unable = desk(client.engine, MODERN)
        codes += [
            unable.now(f"tasks/{verb}", {"taskId": "x"})["error"]["code"]
            for verb in ("get", "update", "cancel")
        ]
        codes.append(client.now("tasks/get", {})["error"]["code"])
        client.engine.shutdown()
        await asyncio.sleep(0)
        return codes

    assert asyncio.run(main()) == [-32602] * 3 + [-32021] * 3 + [-32602]


def test_the_number_of_tasks_is_bounded(serve, desk):
    """style.md: never unbounded memory."""

    async def main():
        client = desk(serve(*TOOLS), MODERN, ABLE)
        for _ in range(MOST_TASKS_OF_ONE):
            assert client.now("tools/call", {"name": "consult"})["resultType"] == "task"
        refused = client.now("tools/call", {"name": "consult"})
        client.engine.shutdown()
        await asyncio.sleep(0)
        return refused["error"]["message"]

    assert "too many tasks" in asyncio.run(main())


def test_those_who_listen_to_a_task_hear_how_it_stands(serve, desk):
    """Tasks extension, Task Status Notifications."""

    async def main():
        client = desk(serve(*TOOLS), MODERN, ABLE)
        task_id = client.now("tools/call", {"name": "consult"})["taskId"]
        stream = client.begin("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        eve = desk(client.engine, MODERN, ABLE, principal="eve")
        other = eve.begin("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        await until(client, task_id, "input_required")
        client.now("tasks/update", {"taskId": task_id, "inputResponses": {"one": ALICE, "two": ALICE}})
        await until_over(client, task_id)
        stream.cancel()
        other.cancel()
        await asyncio.sleep(0)
        unable = desk(client.engine, MODERN)
        refused = unable.now("subscriptions/listen", {"notifications": {"taskIds": []}})
        return client.of("notifications/tasks"), eve.of("notifications/tasks"), refused["error"]["code"]

    told, others, refused = asyncio.run(main())
    assert [params["status"] for params in told][-1] == "completed"
    assert "input_required" in [params["status"] for params in told]
    assert (others, refused) == ([], -32021)


def test_legacy_tasks_are_asked_for_and_their_result_is_waited_for(serve, desk, text_of):
    """MCP specification 2025-11-25, Tasks."""

    async def main():
        client = desk(serve(*TOOLS), LEGACY, {"elicitation": {}})
        task = client.now(
            "tools/call", {"name": "plain", "arguments": {"seconds": 0.01}, "task": {"ttl": 60_000}}
        )
        task = task["task"]
        assert (task["status"], task["ttl"]) == ("working", 60_000)
        assert client.now("tasks/get", {"taskId": task["taskId"]})["status"] == "working"
        assert [found["taskId"] for found in client.now("tasks/list")["tasks"]] == [task["taskId"]]
        result = await client.ask("tasks/result", {"taskId": task["taskId"]})
        late = client.now("tasks/cancel", {"taskId": task["taskId"]})
        return text_of(result), result["_meta"], task["taskId"], late["error"]["code"]

    said, meta, task_id, late = asyncio.run(main())
    assert (said, late) == ("plain", -32602)
    assert meta == {"io.modelcontextprotocol/related-task": {"taskId": task_id}}


def test_a_legacy_task_asks_the_client_that_waits_for_its_result(serve, desk, text_of):
    """MCP specification 2025-11-25, Tasks, Input Required Status."""

    async def main():
        client = desk(serve(*TOOLS), LEGACY, {"elicitation": {}})
        client.answers = {"elicitation/create": ALICE}
        task_id = client.now("tools/call", {"name": "consult", "task": {}})["task"]["taskId"]
        await until(client, task_id, "input_required")
        assert client.sent == []
        result = await client.ask("tasks/result", {"taskId": task_id})
        return text_of(result), [message["params"]["_meta"] for message in client.sent], task_id

    said, metas, task_id = asyncio.run(main())
    assert said == "AliceAlice"
    assert metas == [{"io.modelcontextprotocol/related-task": {"taskId": task_id}}] * 2


def test_a_cancelled_legacy_task_ends_those_who_wait(serve, desk):
    """MCP specification 2025-11-25, Tasks, Task Cancellation."""

    async def main():
        client = desk(serve(*TOOLS), LEGACY)
        task_id = client.now("tools/call", {"name": "work", "arguments": {"seconds": 60}, "task": {}})
        task_id = task_id["task"]["taskId"]
        waiting = asyncio.ensure_future(client.ask("tasks/result", {"taskId": task_id}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        status = client.now("tasks/cancel", {"taskId": task_id})["status"]
        return status, (await waiting)["error"]["code"]

    assert asyncio.run(main()) == ("cancelled", -32603)


def test_a_tool_that_is_never_a_task_says_so(serve, desk):
    """MCP specification 2025-11-25, Tasks, Tool-Level Negotiation."""

    @tool(inline=True)
    def quick() -> str:
        """Be quick."""
        return "quick"

    async def main():
        client = desk(serve(quick, *TOOLS), LEGACY)
        listed = {entry["name"]: entry.get("execution") for entry in client.now("tools/list")["tools"]}
        codes = [
            client.now("tools/call", {"name": "quick", "task": {}})["error"]["code"],
            client.now("tools/call", {"name": "toil"})["error"]["code"],
        ]
        old = desk(client.engine, "2025-06-18")
        ran = old.now("tools/call", {"name": "quick", "task": {}})
        return listed, codes, ran["isError"]

    listed, codes, failed = asyncio.run(main())
    assert (listed["quick"], listed["plain"], listed["toil"]) == (
        None,
        {"taskSupport": "optional"},
        {"taskSupport": "required"},
    )
    assert (codes, failed) == ([-32601, -32601], False)


def test_a_task_ends_with_its_time_to_live(serve, desk):
    """MCP specification 2025-11-25, Tasks, TTL and Resource Management."""

    async def main():
        client = desk(serve(*TOOLS), LEGACY)
        created = client.now("tools/call", {"name": "work", "arguments": {"seconds": 60}, "task": {"ttl": 1}})
        task = client.engine._tasks.find(created["task"]["taskId"], "local")
        assert task.ttl_ms == 1_000
        client.engine._tasks._expire(task)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return client.now("tasks/get", {"taskId": task.id})["error"]["code"], len(client.engine._tasks)

    assert asyncio.run(main()) == (-32602, 0)
