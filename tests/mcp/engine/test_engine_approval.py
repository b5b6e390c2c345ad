"""Dangerous tools over MCP: who is asked, and what every answer means."""

import asyncio

import pytest

from gramercy import tool
from gramercy.execution.shown import read_back

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ASKABLE: dict[str, object] = {"elicitation": {}}


class Wipe:
    """A dangerous tool that remembers what it did."""

    def __init__(self):
        self.done = []
        self.tool = tool(name="wipe", description="Wipe a file.", safety_level="dangerous")(self.run)

    def run(self, path: str) -> str:
        """Wipe."""
        self.done.append(path)
        return f"wiped {path}"


ANSWERS = {
    "approve": ({"action": "accept", "content": {"decision": "approve"}}, "wiped a", ["a"]),
    "deny": (
        {"action": "accept", "content": {"decision": "deny", "reason": "not a"}},
        "User denied tool execution: not a",
        [],
    ),
    "decline": ({"action": "decline"}, "wipe was not run: the client declined after ", []),
    "cancel": (
        {"action": "cancel"},
        "wipe was not run: the client dismissed the question after ",
        [],
    ),
    "empty": ({"action": "accept", "content": {}}, "wiped a", ["a"]),
    "none": ({"action": "accept"}, "wiped a", ["a"]),
    "null": ({"action": "accept", "content": None}, "wiped a", ["a"]),
    "edited": (
        {"action": "accept", "content": {"arguments": '{"path": "b"}'}},
        '[A person changed the arguments before approving; the tool ran with {"path":"b"}]',
        ["b"],
    ),
    "odd": (
        {"action": "accept", "content": {"decision": "yes"}},
        "wipe was not run: the answer does not fit",
        [],
    ),
    "nonsense": ({}, "wipe was not run: the client answered the question with action None", []),
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("version", [MODERN, LEGACY, "2025-06-18"])
def test_a_dangerous_call_runs_only_after_a_clear_yes(serve, desk, text_of, version, answer):
    """mcp.md, checklist 4: accept, decline, cancel for legacy and modern clients; decision 6."""
    reply, said, done = ANSWERS[answer]
    wipe = Wipe()

    async def main():
        client = desk(serve(wipe.tool), version, ASKABLE)
        client.answers = {"elicitation/create": reply}
        result = await client.call("wipe", {"path": "a"})
        if version == MODERN:
            ((key, asked),) = result["inputRequests"].items()
            question = asked["params"]
            state = {"inputResponses": {key: reply}, "requestState": result["requestState"]}
            result = await client.call("wipe", {"path": "a"}, **state)
        else:
            question = client.sent[0]["params"]
        return result, question["message"]

    result, question = asyncio.run(main())
    assert text_of(result).startswith(said)
    assert result["isError"] is (not done)
    assert wipe.done == done
    asked_because = "Asked because no rule matches; the default for dangerous tools is ask"
    assert question.splitlines() == ['Run wipe (dangerous)? path: "a"', asked_because]


def test_an_approval_cannot_come_before_its_question(serve, desk):
    """mcp.md, checklist 4: approvals are single-use and tied to what was shown."""
    wipe = Wipe()
    yes = {"action": "accept", "content": {"decision": "approve"}}

    async def main():
        client = desk(serve(wipe.tool), MODERN, ASKABLE)
        asked = await client.call("wipe", {"path": "a"})
        (key,) = asked["inputRequests"]
        early = await client.call("wipe", {"path": "a"}, inputResponses={key: yes})
        state = {"inputResponses": {key: yes}, "requestState": asked["requestState"]}
        other = await client.call("wipe", {"path": "b"}, **state)
        first = await client.call("wipe", {"path": "a"}, **state)
        replay = await client.call("wipe", {"path": "a"}, **state)
        client.engine.shutdown()
        await asyncio.sleep(0)
        return early["resultType"], other["error"]["code"], first["isError"], replay["error"]["code"]

    assert asyncio.run(main()) == ("input_required", -32602, False, -32602)
    assert wipe.done == ["a"]


def test_a_client_without_questions_is_told_what_to_do(serve, desk, version, text_of):
    """mcp.md, checklist 4, no channel; guard.md: nothing is approved because nobody could be asked."""
    wipe = Wipe()

    async def main():
        return await desk(serve(wipe.tool), version).call("wipe", {"path": "a"})

    result = asyncio.run(main())
    assert result["isError"] is True
    assert "declares no elicitation" in text_of(result)
    assert wipe.done == []


def test_a_cancelled_call_no_longer_waits_for_an_approval(serve, desk, version):
    """MCP specification, Cancellation."""
    wipe = Wipe()

    async def main():
        asked, ended = asyncio.Event(), asyncio.Event()

        async def wait(_tool, _arguments):
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        client = desk(serve(wipe.tool, executor={"approval_handler": wait}), version)
        answer = client.begin("tools/call", {"name": "wipe", "arguments": {"path": "a"}}, id=1)
        async with asyncio.timeout(60):
            await asked.wait()
            client.tell("notifications/cancelled", {"requestId": 1})
            assert await answer is None
            await ended.wait()

    asyncio.run(main())
    assert wipe.done == []


def test_the_handler_that_the_executor_had_is_asked_last(serve, desk, text_of):
    """guard.md, Channels."""
    wipe = Wipe()
    engine_options = {"executor": {"approval_handler": lambda *_: "approved"}}

    async def main():
        client = desk(serve(wipe.tool, **engine_options), LEGACY)
        return text_of(await client.call("wipe", {"path": "a"}))

    assert asyncio.run(main()) == "wiped a"


def test_a_target_that_changes_while_the_person_looks_is_asked_about_again(serve, desk, text_of):
    """guard.md, Approval: any drift at dispatch, ask again, showing what changed."""
    state = iter([1, 2, 3, 3, 3, 3])
    drifting = tool(
        name="drifting", description="Drift.", safety_level="dangerous", target_state=lambda _: next(state)
    )(lambda: "done")

    async def main():
        client = desk(serve(drifting), MODERN, ASKABLE)
        result = await client.call("drifting")
        questions = []
        while result["resultType"] == "input_required":
            ((key, asked),) = result["inputRequests"].items()
            questions.append(asked["params"]["message"])
            yes = {key: {"action": "accept", "content": {"decision": "approve"}}}
            result = await client.call("drifting", inputResponses=yes, requestState=result["requestState"])
        return questions, text_of(result)

    questions, said = asyncio.run(main())
    assert said == "done"
    assert ["Asked again: what the call acts on has changed" in text for text in questions] == [False, True]


def test_a_question_hides_nothing_behind_control_characters(serve, desk):
    """mcp.md, checklist 11: control characters stripped from output."""
    wipe = Wipe()

    async def main():
        client = desk(serve(wipe.tool), MODERN, ASKABLE)
        result = await client.call("wipe", {"path": "a\u202eb\x1b[2Jc" + "x" * 9_000})
        client.engine.shutdown()
        await asyncio.sleep(0)
        ((_, asked),) = result["inputRequests"].items()
        return asked["params"]["message"]

    message = asyncio.run(main())
    assert "\u202e" not in message
    assert "\x1b" not in message
    assert "| a⟦U+202E⟧b⟦U+001B⟧[2Jcxxx" in message
    assert read_back(message).count("x" * 9_000) == 1


async def leaving(client, task, *statuses):
    """Wait until a task is no longer in one of these."""
    async with asyncio.timeout(5):
        while True:
            found = client.now("tasks/get", task)
            if found["status"] not in statuses:
                return found
            await asyncio.sleep(0)


def test_a_dangerous_task_waits_for_its_approval(serve, desk):
    """mcp.md, checklist 4: tasks and input_required."""
    wipe = Wipe()
    tasks = "io.modelcontextprotocol/tasks"
    slow = tool(name="wipe", description="Wipe.", safety_level="dangerous", categories=["task"])(wipe.run)

    async def main():
        client = desk(serve(slow), MODERN, {"elicitation": {}, "extensions": {tasks: {}}})
        task = {"taskId": client.now("tools/call", {"name": "wipe", "arguments": {"path": "a"}})["taskId"]}
        (key,) = (await leaving(client, task, "working"))["inputRequests"]
        assert wipe.done == []
        yes = {"action": "accept", "content": {"decision": "approve"}}
        client.now("tasks/update", {**task, "inputResponses": {key: yes}})
        return await leaving(client, task, "working", "input_required")

    found = asyncio.run(main())
    assert (found["status"], found["result"]["isError"], wipe.done) == ("completed", False, ["a"])
