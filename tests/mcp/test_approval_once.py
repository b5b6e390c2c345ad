"""An approval counts once, for exactly what was shown, and only from the person who was asked."""

from __future__ import annotations

import asyncio

import pytest

from tests.mcp import approval_desk as desk
from tests.mcp.conversations import LEGACY, MODERN

YES, BEFORE, AFTER = desk.YES, desk.BEFORE, desk.AFTER
arguments_for, calling, text_of = desk.arguments_for, desk.calling, desk.text_of
key, token, project, port = desk.key, desk.token, desk.project, desk.port
era, run, file = desk.era, desk.run, desk.file
over_http, over_pipes, meet = desk.over_http, desk.over_pipes, desk.meet

ANSWERS = {"approve": YES, "decline": {"action": "decline"}}


async def parked(client, file, tool="write_file"):
    """Call a tool in the newer era up to its question; return the arguments and what would answer it."""
    given = {"name": tool, "arguments": arguments_for(tool, file)}
    asked = (await client.round("tools/call", given))["result"]
    assert asked["resultType"] == "input_required"
    return given, client.retry(asked)


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_replayed_state_runs_nothing_twice(meet, run, file, answer):
    """MCP server, checklist 4: approvals are single-use, and so are refusals."""
    client = meet(MODERN, lambda _: YES)
    client.reply = lambda _: ANSWERS[answer]

    async def main():
        given, brought = await parked(client, file)
        first = await client.round("tools/call", {**given, **brought})
        file.write_text("later\n")
        yes = dict.fromkeys(brought["inputResponses"], YES)
        again = await client.round("tools/call", {**given, **brought, "inputResponses": yes})
        return first["result"]["isError"], again["error"]["code"]

    assert run(main()) == (answer == "decline", -32602)
    assert file.read_text() == "later\n"


CHANGES = {
    "other content": lambda given, _: {**given, "arguments": {**given["arguments"], "content": "evil"}},
    "other path": lambda given, _: {**given, "arguments": {**given["arguments"], "path": "other.txt"}},
    "other tool": lambda given, _: {**given, "name": "read_file"},
    "more arguments": lambda given, _: {**given, "arguments": {**given["arguments"], "more": 1}},
    "signature": lambda given, state: {
        **given,
        "requestState": state[:-1] + "0" if state[-1] != "0" else "1",
    },
    "other call": lambda given, state: {**given, "requestState": "A" * 22 + state[22:]},
    "no signature": lambda given, state: {**given, "requestState": state.partition(".")[0]},
    "nothing": lambda given, _: {**given, "requestState": ""},
    "beyond ascii": lambda given, _: {**given, "requestState": "ä.ö"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_approval_is_for_exactly_what_was_shown(meet, run, file, project, change):
    """MCP server, checklist 4: changed arguments and forged states are refused; the real one still works."""
    client = meet(MODERN, lambda _: YES)

    async def main():
        given, brought = await parked(client, file)
        bad = CHANGES[change]({**given, **brought}, brought["requestState"])
        refused = await client.round("tools/call", bad)
        between = file.read_text()
        good = await client.round("tools/call", {**given, **brought})
        return refused["error"]["code"], between, good["result"]["isError"]

    assert run(main()) == (-32602, BEFORE, False)
    assert file.read_text() == AFTER
    assert not (project / "other.txt").exists()


def test_of_several_answers_at_once_exactly_one_counts(over_http, run, file):
    """MCP server, checklist 4: approvals are single-use, also when they race."""
    one = over_http(MODERN, lambda _: YES)
    others = [over_http(MODERN, lambda _: YES) for _ in range(8)]

    async def main():
        given, brought = await parked(one, file)
        racing = (other.round("tools/call", {**given, **brought}) for other in others)
        return await asyncio.gather(*racing)

    answers = run(main())
    assert sorted("result" in answer for answer in answers) == [False] * 7 + [True]
    assert {answer["error"]["code"] for answer in answers if "error" in answer} == {-32602}


def test_the_approval_of_another_principal_is_refused(over_http, run, file):
    """MCP server, checklist 4: bound to the principal; the right one can still answer."""
    alice, bob = over_http(MODERN, lambda _: YES), over_http(MODERN, lambda _: YES, subject="bob")

    async def main():
        given, brought = await parked(alice, file)
        stolen = await bob.round("tools/call", {**given, **brought})
        between = file.read_text()
        right = await alice.round("tools/call", {**given, **brought})
        return stolen["error"]["code"], between, right["result"]["isError"]

    assert run(main()) == (-32602, BEFORE, False)


@pytest.mark.parametrize("subject", ["alice", "bob"])
def test_another_session_cannot_answer_a_question(over_http, run, file, subject):
    """MCP server, checklist 4: neither of another person nor of the same; ids of questions can be guessed."""
    intruder = over_http(LEGACY, lambda _: YES, subject=subject)

    async def main():
        asking = over_http(LEGACY, lambda _: YES)
        await asking.greet()
        await intruder.greet()
        given = {"name": "write_file", "arguments": arguments_for("write_file", file)}
        response = await asking.post(asking.message("tools/call", given, 50))
        messages = response.messages()
        question = await anext(messages)
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": YES}
        await intruder.say(answer)
        await asking.say({**answer, "result": {"action": "decline"}})
        return await anext(messages)

    answer = run(main())
    assert "the client declined after" in text_of(answer["result"])
    assert file.read_text() == BEFORE


def test_a_second_answer_to_a_question_changes_nothing(meet, run, file):
    """MCP server, checklist 4: the first answer counts, in the older era too."""
    client = meet(LEGACY, lambda _: {"action": "decline"})
    assert calling(run, client, "write_file", file)["isError"] is True

    async def late():
        for number in range(1, 200):
            await client.say({"jsonrpc": "2.0", "id": f"gramercy-{number}", "result": YES})
        return await client.call("read_file", path=file.name)

    assert text_of(run(late())) == BEFORE


def test_a_question_whose_client_has_gone_is_a_refusal(over_http, run, file, era):
    """MCP server, checklist 4: whoever goes away has not agreed."""

    async def main():
        client, other = over_http(era, lambda _: YES), over_http(era, lambda _: YES)
        await client.greet()
        await other.greet()
        given = {"name": "write_file", "arguments": arguments_for("write_file", file)}
        response = await client.post(client.message("tools/call", given, 50))
        await anext(response.messages())
        client.close()
        return await other.call("read_file", path=file.name)

    assert text_of(run(main())) == BEFORE


async def as_task(client, file):
    """Begin to write a file as a task of the older era and return the task's id."""
    given = {"name": "write_file", "arguments": arguments_for("write_file", file), "task": {"ttl": 60_000}}
    return (await client.round("tools/call", given))["result"]["task"]["taskId"]


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_task_asks_when_its_result_is_wanted(meet, run, file, answer):
    """MCP server, checklist 4: tasks ask too; the question comes with the wait for the result."""
    client = meet(LEGACY, lambda _: ANSWERS[answer])

    async def main():
        await client.greet()
        task = await as_task(client, file)
        return (await client.ask("tasks/result", taskId=task))["result"]

    assert run(main())["isError"] is (answer == "decline")
    assert len(client.questions) == 1
    assert file.read_text() == (BEFORE if answer == "decline" else AFTER)


def test_the_task_of_another_principal_is_not_there(over_http, run, file):
    """MCP server, checklist 4: nobody else is asked about a task, can wait for it or call it off."""
    bob = over_http(LEGACY, lambda _: YES, subject="bob")

    async def main():
        alice = over_http(LEGACY, lambda _: {"action": "decline"})
        await alice.greet()
        await bob.greet()
        task = await as_task(alice, file)
        methods = ("tasks/result", "tasks/get", "tasks/cancel")
        refused = [await bob.ask(method, taskId=task) for method in methods]
        return [one["error"]["code"] for one in refused], await alice.ask("tasks/result", taskId=task)

    codes, answer = run(main())
    assert codes == [-32602] * 3
    assert "the client declined after" in text_of(answer["result"])
    assert (bob.questions, file.read_text()) == ([], BEFORE)
