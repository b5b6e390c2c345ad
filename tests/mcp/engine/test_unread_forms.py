"""An approval before its question can have been read: asked again where a person sits, then refused."""

import asyncio
from threading import Event

import pytest

from gramercy import tool
from gramercy.mcp import approval
from gramercy.mcp.approval import reading_seconds
from gramercy.mcp.question_files import Nearby
from gramercy.mcp.questions import ATTENDED

MODERN, LEGACY = "2026-07-28", "2025-11-25"
YES: dict[str, object] = {"action": "accept", "content": {}}
NO: dict[str, object] = {"action": "accept", "content": {"decision": "deny"}}
ALONE = Nearby(environment={"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"})


class Wipe:
    """A dangerous tool that remembers what it did, and a person who is asked about it."""

    def __init__(self, serve, desk, text_of):
        self._made = serve, desk, text_of
        self.done = []
        self.asked = []
        self._tool = tool(name="wipe", description="Wipe a file.", safety_level="dangerous")(self.run)

    def run(self, path: str) -> str:
        """Wipe."""
        self.done.append(path)
        return f"wiped {path}"

    def answered(self, era, client, reply, *, nearby=None, path="a"):
        """Call it as a client whose person answers what `reply` returns for a question and its number."""
        serve, desk, text_of = self._made

        def answer(params):
            self.asked.append(params["message"])
            return reply(params["message"], len(self.asked))

        async def main():
            made = desk(serve(self._tool, nearby=nearby), era, {"elicitation": {}}, name=client)
            made.answers = {"elicitation/create": answer}
            result = await made.call("wipe", {"path": path})
            while result.get("resultType") == "input_required":
                ((key, question),) = result["inputRequests"].items()
                brought = {"inputResponses": {key: answer(question["params"])}}
                state = {"requestState": result["requestState"]}
                result = await made.call("wipe", {"path": path}, **brought, **state)
            return text_of(result)

        return asyncio.run(main())


@pytest.fixture
def wipe(serve, desk, text_of):
    return Wipe(serve, desk, text_of)


@pytest.fixture(params=[MODERN, LEGACY])
def era(request):
    return request.param


@pytest.mark.contract("decision.06.unattended", "trust.answers.unread")
@pytest.mark.parametrize("client", sorted(ATTENDED))
def test_an_approval_that_nobody_can_have_read_is_asked_again_and_then_refused(wipe, era, client):
    """A key that was pressed as the form came up was meant for something else."""
    said = wipe.answered(era, client, lambda *_: YES)
    assert (wipe.done, len(wipe.asked)) == ([], 3)
    assert said.startswith("wipe was not run: the client accepted the question 3 times in less ")
    assert "so that nobody can have seen it" in said
    assert '[[rules]]\naction = "allow"\ntools = ["wipe"]' in said
    assert all(each.startswith("Asked again: the approval came after 0.0") for each in wipe.asked[1:])
    assert all("wipe" in each for each in wipe.asked)


@pytest.mark.contract("trust.answers.unread")
@pytest.mark.parametrize("client", ["claude-code", "codex-mcp-client"])
def test_a_person_who_reads_when_asked_again_has_approved(wipe, era, client):
    def reply(text, number):
        if number > 1:
            Event().wait(reading_seconds(text))  # a person reads
        return YES

    assert wipe.answered(era, client, reply) == "wiped a"
    assert (wipe.done, len(wipe.asked)) == (["a"], 2)


@pytest.mark.contract("trust.answers.unread")
def test_a_long_question_takes_longer_to_read(wipe, era):
    """What is enough for a short one is not enough for this."""

    def reply(text, _):
        Event().wait(reading_seconds("") if len(text) > 3_000 else 60)
        return YES

    assert "was not run" in wipe.answered(era, "codex-mcp-client", reply, path="p/" * 2_000)
    assert wipe.done == []


@pytest.mark.contract("trust.answers.unread")
def test_a_program_that_answers_by_itself_has_the_word_of_its_author(wipe, era):
    assert wipe.answered(era, "nightly-job", lambda *_: YES) == "wiped a"
    assert wipe.answered(era, "claude-code", lambda *_: YES, nearby=ALONE) == "wiped a"
    assert len(wipe.asked) == 2


@pytest.mark.contract("trust.answers.unread")
def test_a_denial_is_not_asked_for_again(wipe, era):
    assert "User denied tool execution" in wipe.answered(era, "codex-mcp-client", lambda *_: NO)
    assert (wipe.done, len(wipe.asked)) == ([], 1)


@pytest.mark.contract("trust.answers.unread")
def test_the_time_has_a_floor_and_a_cap():
    assert reading_seconds("") == approval.LEAST_SECONDS == 0.5
    assert reading_seconds("x" * 1_000) == 1.0
    assert reading_seconds("x" * 16_000) == approval.MOST_SECONDS == 2.0
