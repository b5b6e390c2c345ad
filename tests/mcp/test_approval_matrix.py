"""Approvals end to end: real servers, both transports, both eras, and every answer that a person can give."""

from __future__ import annotations

import json
import re
import time
from itertools import product
from pathlib import Path

import pytest

from gramercy.execution.shown import unshown
from gramercy.mcp.approval import PERSON_SECONDS, reading_seconds
from gramercy.toolsets.hunks import diff
from tests.mcp import approval_desk as desk

YES, BEFORE, AFTER = desk.YES, desk.BEFORE, desk.AFTER
arguments_for, calling, text_of = desk.arguments_for, desk.calling, desk.text_of
key, token, project, port = desk.key, desk.token, desk.project, desk.port
era, run, file = desk.era, desk.run, desk.file
over_http, over_pipes, meet = desk.over_http, desk.over_pipes, desk.meet

EDITS = ("propose_file_edit", "edit_file")
TOOLS = ("write_file", *EDITS)
UNABLE = {"nothing": {}, "links only": {"elicitation": {"url": {}}}, "models only": {"sampling": {}}}
WORDS = {
    "write_file": "Wrote",
    "propose_file_edit": "Applied 3 hunks",
    "edit_file": "Edited 3 places in",
}
ANSWERS = {
    "approve": (YES, None),
    "deny": (desk.NO, "User denied tool execution: not today"),
    "decline": (
        {"action": "decline"},
        "{tool} was not run yet: … Nobody has decided: the client declined after",
    ),
    "cancel": (
        {"action": "cancel"},
        "{tool} was not run yet: … Nobody has decided: the client dismissed the question after",
    ),
    "empty": ({"action": "accept"}, None),
    "odd": (
        {"action": "accept", "content": {"decision": "yes"}},
        "{tool} was not run yet: … Nobody has decided: the answer does not fit",
    ),
    "nonsense": ({"yes": True}, "{tool} was not run yet: … Nobody has decided: the client answered"),
}


@pytest.mark.parametrize("case", list(product(TOOLS, ANSWERS)), ids="-".join)
def test_a_file_is_changed_only_after_a_clear_yes(meet, run, era, file, case):
    """MCP server, checklist 4: every answer on both transports in both eras."""
    tool, answer = case
    reply, refusal = ANSWERS[answer]
    refusal = refusal and refusal.format(tool=tool)
    client = meet(era, lambda _: reply)
    result = calling(run, client, tool, file)
    assert result["isError"] is (refusal is not None)
    # Where nobody has decided, the question stays open for a person at another terminal.
    begin, _, rest = (refusal or WORDS[tool]).partition(" … ")
    assert text_of(result).startswith(begin)
    assert rest in text_of(result)
    assert file.read_text() == (BEFORE if refusal else AFTER)
    (question,) = client.questions
    assert tool in question["message"]
    assert file.name in question["message"]


def test_a_person_who_declines_has_denied(meet, run, era, file):
    """Seed 002: the person's no, to the letter; a program's is told as such."""

    def reply(_):
        time.sleep(PERSON_SECONDS)  # a person reads first
        return {"action": "decline"}

    result = calling(run, meet(era, reply), "write_file", file)
    assert text_of(result).splitlines()[0] == "User denied tool execution"
    assert (result["isError"], file.read_text()) == (True, BEFORE)


def test_a_person_at_the_client_changes_the_arguments(meet, run, era, file):
    """Seed 002, (:modified new-args): what runs is what was given, and the model is told."""
    other = {"arguments": json.dumps({"content": "other\n"})}
    client = meet(era, lambda _: {"action": "accept", "content": other})

    async def main():
        await client.greet()
        # One hunk: there is nothing to choose from.
        return await client.call("write_file", path=file.name, content="new\n")

    result = run(main())
    assert text_of(result).startswith("[A person changed the arguments before approving; the tool ran with")
    assert (result["isError"], file.read_text()) == (False, "other\n")


def test_claude_code_gets_a_bare_form_and_after_a_no_a_second_one(meet, run, era, file):
    """Answers, approval at the client: one key for yes; hunks, arguments and a reason are behind the no."""

    def reply(question):
        time.sleep(max(PERSON_SECONDS, reading_seconds(question["message"])))  # a person reads first
        if not question["requestedSchema"]["properties"]:
            return {"action": "decline"}
        return {"action": "accept", "content": {"hunk_2": True, "reason": "only that"}}

    client = meet(era, reply, name="claude-code")
    result = calling(run, client, "edit_file", file)
    assert file.read_text() == BEFORE.replace("line 15\n", "")
    assert "accepted hunk 2 of 3 and rejected hunks 1 and 3 (only that)" in text_of(result)
    first, second = client.questions
    # Three hunks, a reason, and a rule that would allow such calls from now on.
    assert (first["requestedSchema"]["properties"], len(second["requestedSchema"]["properties"])) == ({}, 5)


@pytest.mark.parametrize("case", list(product(TOOLS, UNABLE)), ids="-".join)
@pytest.mark.slow
def test_a_client_that_cannot_ask_changes_nothing(meet, run, era, file, case):
    """MCP server, checklist 4, no channel: denied, with what to do about it."""
    tool, lack = case
    client = meet(era, capabilities=UNABLE[lack])
    result = calling(run, client, tool, file)
    assert result["isError"] is True
    assert "elicitation" in text_of(result)
    assert (client.questions, file.read_text()) == ([], BEFORE)


@pytest.mark.contract("clients.hunks.write")
@pytest.mark.parametrize("tool", TOOLS)
def test_a_person_at_the_client_accepts_some_hunks_of_an_edit(meet, run, era, file, tool):
    """Guard, Approval: pick hunks; the model is told which, and not to propose the others again."""
    chosen = {"decision": "approve", "hunk_1": True, "hunk_2": False, "hunk_3": True, "reason": "15 stays"}
    client = meet(era, lambda _: {"action": "accept", "content": chosen})
    result = calling(run, client, tool, file)
    assert file.read_text() == AFTER.replace("line 16\n", "line 15\nline 16\n")
    assert result["isError"] is False
    assert "accepted hunks 1 and 3 of 3 and rejected hunk 2 (15 stays)" in text_of(result)
    (question,) = client.questions
    assert "-line 3\n+third" in question["message"]
    # The text of a file that is there is not repeated before its difference.
    assert "line 10\n" not in question["message"].partition("@@")[0]
    kinds = {name: one["type"] for name, one in question["requestedSchema"]["properties"].items()}
    assert [kinds[f"hunk_{number}"] for number in (1, 2, 3)] == ["boolean"] * 3


def test_a_person_at_the_client_rejects_all_hunks_of_an_edit(meet, run, era, file):
    """Guard, Approval: what is rejected as a whole is a refusal."""
    none = {"decision": "approve", "hunk_1": False, "hunk_2": False, "hunk_3": False}
    result = calling(
        run, meet(era, lambda _: {"action": "accept", "content": none}), "propose_file_edit", file
    )
    assert file.read_text() == BEFORE
    assert result["isError"] is True
    assert "rejected hunks 1, 2 and 3" in text_of(result)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_file_that_changes_while_the_person_looks_is_not_overwritten(meet, run, era, file, tool):
    """Guard, Approval: any drift is asked about again, or refused."""
    changed = BEFORE + "somebody was faster\n"

    def reply(_):
        if len(client.questions) == 1:
            file.write_text(changed)
            return YES
        return {"action": "decline"}

    client = meet(era, reply)
    result = calling(run, client, tool, file)
    assert result["isError"] is True
    assert file.read_text() == changed
    if tool != "propose_file_edit":
        assert "Asked again" in client.questions[1]["message"]
    else:
        assert "somebody was faster" in text_of(result)


@pytest.mark.slow
def test_a_file_that_no_form_can_show_takes_the_code_from_another_place(meet, run, era, file):
    """Trust, 7: to accept the form as it comes writes nothing; the code at the end of what was shown does."""
    content = "".join(f"line {number} of many\n" for number in range(50_000)) + "the tail"
    seen = []

    def reply(question):
        path = Path(re.findall(r"Read all of it in (\S+)", question["message"])[0])
        seen.append(path.read_text())
        assert path.stat().st_mode & 0o777 == 0o600
        code = re.findall(r"the code (\S+) in", seen[-1])[-1]
        return {"action": "accept", "content": {"code": code} if len(seen) > 1 else {}}

    client = meet(era, reply)

    async def main():
        await client.greet()
        return await client.call("write_file", path=file.name, content=content)

    result = run(main())
    assert (result["isError"], file.read_text()) == (False, content)
    assert len(client.questions) == 2
    difference = diff(BEFORE, content, file.name)
    assert unshown(seen[-1], difference, {"path": file.name, "content": content}, ["content"]) is None
