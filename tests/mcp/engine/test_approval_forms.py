"""The form of an approval: which one a client gets, what filling it in means, and what is shown first."""

import asyncio
import json

import pytest

from gramercy import tool
from gramercy.execution.shown import read_back
from gramercy.journal.base import State
from gramercy.journal.memory import MemoryJournal
from gramercy.mcp import approval

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ASKABLE: dict[str, object] = {"elicitation": {}}
DECLINE, CANCEL, NOTHING = {"action": "decline"}, {"action": "cancel"}, {"action": "accept", "content": {}}
SAID = "User denied tool execution"


def filled(**content):
    return {"action": "accept", "content": content}


class Wipe:
    """A dangerous tool that remembers what it did."""

    def __init__(self, name="wipe", **about):
        self.done = []
        self.tool = tool(name=name, description="Wipe a file.", safety_level="dangerous", **about)(self.run)

    def run(self, path: str, times: int = 1) -> str:
        """Wipe."""
        self.done.append((path, times))
        return f"wiped {path}"


@pytest.fixture(params=[MODERN, LEGACY])
def era(request):
    return request.param


@pytest.fixture(autouse=True)
def reading(monkeypatch):
    """Let an approval come at once, as if the person had read: what a form says is not about time."""
    monkeypatch.setattr(approval, "MOST_SECONDS", 0.0)


@pytest.fixture
def unhurried(monkeypatch):
    """Take every answer for a person's, as if it had taken a while."""
    monkeypatch.setattr(approval, "PERSON_SECONDS", 0.0)


@pytest.fixture
def answered(serve, desk, text_of):
    """Return a function that calls a tool as a client whose person gives these answers; all must be used."""

    async def converse(client, wipe, arguments, replies):
        asked = []

        def reply(params):
            asked.append(params)
            return replies[len(asked) - 1]

        client.answers = {"elicitation/create": reply}
        result = await client.call(wipe.tool.name, arguments)
        while result.get("resultType") == "input_required":
            ((key, question),) = result["inputRequests"].items()
            brought = {
                "inputResponses": {key: reply(question["params"])},
                "requestState": result["requestState"],
            }
            result = await client.call(wipe.tool.name, arguments, **brought)
        assert len(asked) == len(replies)
        return text_of(result), asked

    def call(era, client, wipe, *replies, **arguments):
        async def main():
            made = desk(serve(wipe.tool), era, ASKABLE, name=client)
            return await converse(made, wipe, arguments or {"path": "a"}, replies)

        return asyncio.run(main())

    return call


def fields(question):
    return list(question["requestedSchema"]["properties"])


FIRST_FORMS = {
    "claude-code": [],
    "codex-mcp-client": ["decision"],
    "somebody": ["decision", "reason", "arguments"],
}


@pytest.mark.contract("decision.06.one-key")
@pytest.mark.parametrize("client", FIRST_FORMS)
def test_to_accept_a_form_as_it_comes_is_to_approve(answered, era, client):
    """Answers, approval at the client: no form has a required field, and Claude Code's has none at all."""
    wipe = Wipe()
    said, (question,) = answered(era, client, wipe, NOTHING)
    assert (said, wipe.done) == ("wiped a", [("a", 1)])
    assert fields(question) == FIRST_FORMS[client]
    assert "required" not in question["requestedSchema"]


QUICK = {"declined": DECLINE, "dismissed the question": CANCEL}


@pytest.mark.contract("decision.06.unattended")
@pytest.mark.parametrize("done", QUICK)
@pytest.mark.parametrize("client", FIRST_FORMS)
def test_an_answer_faster_than_a_person_is_not_put_into_a_persons_mouth(answered, era, client, done):
    """Answers, refusals: claude -p dismisses and codex exec declines at once; nobody is asked again."""
    wipe = Wipe()
    said, _ = answered(era, client, wipe, QUICK[done])
    assert said.startswith(f"wipe was not run: the client {done} after 0.")
    assert "without telling whether a person was asked" in said
    assert '[[rules]]\naction = "allow"\ntools = ["wipe"]' in said
    assert wipe.done == []


@pytest.mark.usefixtures("unhurried")
def test_to_decline_is_to_deny(answered, era):
    """Answers, approval at the client; seed 002 to the letter."""
    wipe = Wipe()
    said, _ = answered(era, "somebody", wipe, DECLINE)
    assert (said.splitlines()[0], wipe.done) == (SAID, [])


@pytest.mark.usefixtures("unhurried")
def test_to_dismiss_a_question_decides_nothing_and_asks_nothing_more(answered, era):
    """Answers, refusals: cancel is the client's."""
    wipe = Wipe()
    said, _ = answered(era, "claude-code", wipe, CANCEL)
    assert said.startswith("wipe was not run: the question was dismissed at the client, without a decision")
    assert wipe.done == []


MORE = {
    "left alone": (CANCEL, SAID, []),
    "declined again": (DECLINE, SAID, []),
    "nothing": (NOTHING, SAID, []),
    "nonsense": ({"action": "perhaps"}, SAID, []),
    "a reason": (filled(reason="not that file"), f"{SAID}: not that file", []),
    "arguments": (
        filled(arguments='{"path": "b"}'),
        '[A person changed the arguments before approving; the tool ran with {"path":"b","times":1}]',
        [("b", 1)],
    ),
}


@pytest.mark.contract("decision.06.edited-at-the-client")
@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("case", MORE)
def test_who_declines_in_claude_code_can_say_why_or_change_the_call(answered, era, case):
    """Seed 002, (:modified new-args); a form without fields has no place for it, so a second one follows."""
    wipe = Wipe()
    answer, expected, done = MORE[case]
    said, (_, second) = answered(era, "claude-code", wipe, DECLINE, answer)
    assert (said.splitlines()[0], wipe.done) == (expected, done)
    assert fields(second) == ["reason", "arguments"]
    assert second["message"].startswith("Not approved as it is.")


CHOICES = {
    "approve": ([filled(decision="approve")], "wiped a", [("a", 1)]),
    "deny": ([filled(decision="deny")], SAID, []),
    "edit": (
        [filled(decision="change arguments"), filled(arguments='{"times": 2}')],
        "[A person changed",
        [("a", 2)],
    ),
    "explain": ([filled(decision="deny, say why"), filled(reason="later")], f"{SAID}: later", []),
    "dismiss": ([filled(decision="deny, say why"), CANCEL], "wipe was not run: the client dismissed", []),
}


@pytest.mark.contract("clients.forms.codex")
@pytest.mark.parametrize("case", CHOICES)
def test_codex_gets_a_menu_it_never_answers_by_itself(answered, era, case):
    """Codex accepts a form without fields by itself when it has full access."""
    wipe = Wipe()
    replies, expected, done = CHOICES[case]
    said, forms = answered(era, "codex-mcp-client", wipe, *replies)
    assert (said.startswith(expected), wipe.done) == (True, done)
    # Codex takes no Enter in an empty text: a second form has no other field beside the one that was chosen.
    assert [len(fields(form)) for form in forms] == [1] * len(replies)


FAULTS = {
    "no JSON": ("b.txt", "a JSON object"),
    "a list": ("[1]", "expected a JSON object"),
    "unknown name": ('{"file": "b"}', "file: expected only these names"),
    "wrong type": ('{"times": "two"}', "times: expected integer, received string"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_arguments_that_cannot_be_used_are_told_and_asked_for_again(answered, era, case):
    """Guard, Approval: edited arguments are validated; the fault is told to the person who made it."""
    wipe = Wipe()
    text, fault = FAULTS[case]
    said, (_, second) = answered(
        era, "somebody", wipe, filled(arguments=text), filled(arguments='{"times": 3}')
    )
    assert second["message"].startswith("The arguments that you gave cannot be used.")
    assert fault in second["message"]
    assert (said.startswith("[A person changed"), wipe.done) == (True, [("a", 3)])


def test_a_person_is_not_asked_for_usable_arguments_without_end(answered, era):
    wipe = Wipe()
    said, _ = answered(era, "somebody", wipe, *[filled(arguments="{")] * approval.MOST_TRIES)
    assert said.startswith("wipe was not run: no arguments that can be used were given in 3 tries")
    assert wipe.done == []


@pytest.mark.parametrize("text", ["", "  ", "{}", '{"path": "a"}', '{"path": "a", "times": 1}'])
def test_arguments_that_change_nothing_are_an_approval(answered, era, text):
    """Guard, Approval: the model is told of an edit only where there was one."""
    wipe = Wipe()
    said, _ = answered(era, "somebody", wipe, filled(arguments=text, reason=""))
    assert (said, wipe.done) == ("wiped a", [("a", 1)])


FILE = "--- a/x\n+++ b/x\n"
PATH = "path, text of 500 characters:"
LONG = "+30 -0 lines: " + "+many words | " * 30
EFFECTS = {
    f"{FILE}@@ -1,2 +1 @@\n-one\n-  two\n+three\n": ["+1 -2 lines: -one | -two | +three", PATH],
    f"{FILE}@@ -1 +1 @@\n-  one\n+  two\n": ["-  one", "+  two"],
    FILE + "@@ -0,0 +1,30 @@\n" + "+  many words\n" * 30: [LONG[:100], LONG[100:200]],
    f"x is a new file.\n{FILE}@@ -0,0 +1 @@\n+one\n": ["x is a new file.", "+one"],
    "one file goes\nand another": ["one file goes", PATH],
}


@pytest.mark.parametrize("effect", EFFECTS)
def test_the_first_lines_say_what_is_decided(answered, era, effect):
    """Claude Code shows three lines of a question and cuts them at the edge of the terminal."""
    wipe = Wipe(effect=lambda _: effect)
    _, (question,) = answered(era, "claude-code", wipe, NOTHING, path="p" * 500, times=2)
    lines = question["message"].split("\n")
    assert lines[:3] == ["Run wipe (dangerous)? path: 500 characters, times: 2", *EFFECTS[effect]]
    whole = read_back(question["message"])
    assert f"{PATH}\n| {'p' * 500}\ntimes: 2\n" in whole
    assert "\n".join(f"| {line}" for line in effect.splitlines()) in whole
    assert lines[-1].startswith("Asked because no rule matches")


def test_a_question_that_fits_on_a_few_lines_says_nothing_twice(answered, era):
    wipe = Wipe(effect=lambda _: "one file goes")
    _, (question,) = answered(era, "claude-code", wipe, NOTHING)
    assert question["message"].split("\n") == [
        'Run wipe (dangerous)? path: "a", times: 1',
        "one file goes",
        "Asked because no rule matches; the default for dangerous tools is ask",
    ]


@pytest.mark.usefixtures("unhurried")
def test_a_task_asks_with_both_forms_too(serve, desk):
    """mcp.md, checklist 4: tasks and input_required."""
    wipe = Wipe(categories=["task"])
    capabilities = {**ASKABLE, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    replies = iter([DECLINE, filled(arguments='{"path": "b"}')])

    async def main():
        client = desk(serve(wipe.tool), MODERN, capabilities, name="claude-code")
        task = {"taskId": client.now("tools/call", {"name": "wipe", "arguments": {"path": "a"}})["taskId"]}
        answered: set[str] = set()
        async with asyncio.timeout(5):
            while (found := client.now("tasks/get", task))["status"] in {"working", "input_required"}:
                for key in set(found.get("inputRequests", {})) - answered:
                    answered.add(key)
                    client.now("tasks/update", {**task, "inputResponses": {key: next(replies)}})
                await asyncio.sleep(0)
        return found["result"]

    assert asyncio.run(main())["isError"] is False
    assert (wipe.done, list(replies)) == ([("b", 1)], [])


def test_a_client_that_never_answers_is_told_as_such(serve, desk, text_of):
    """Answers, refusals: nobody answered in time; in the newer era only the journal is left to tell."""
    wipe, journal = Wipe(), MemoryJournal()
    engine = serve(wipe.tool, patience=0.02, executor={"journal": journal})

    async def main():
        said = text_of(await desk(engine, LEGACY, ASKABLE).call("wipe", {"path": "a"}))
        parked = await desk(engine, MODERN, ASKABLE).call("wipe", {"path": "a"})
        assert parked["resultType"] == "input_required"
        async with asyncio.timeout(5):
            while len(refused := [one for one in journal.entries() if one.state is State.DENIED]) < 2:  # noqa: ASYNC110 - a journal has no event
                await asyncio.sleep(0.001)
        return said, [one.detail for one in refused]

    said, details = asyncio.run(main())
    assert said.splitlines()[0] == "wipe was not run: nobody answered within 0.02 s"
    assert details == ["wipe was not run: nobody answered within 0.02 s"] * 2
    assert wipe.done == []


def test_a_client_that_answers_with_an_error_is_told_as_such(serve, desk, text_of):
    """Answers, refusals: the client's, with what it said."""
    wipe = Wipe()

    async def main():
        client = desk(serve(wipe.tool), LEGACY, ASKABLE)
        refusal = {"code": -32601, "message": "no forms here"}
        client.reply = lambda asked: client.raw(
            json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": refusal})
        )
        return text_of(await client.call("wipe", {"path": "a"}))

    said = asyncio.run(main())
    assert said.startswith(
        "wipe was not run: the client refused to answer: no forms here\nDo not call it again"
    )
    assert wipe.done == []
