"""A person talks with an agent in an editor: text, calls, questions, modes, the end of a run."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gramercy import Agent
from gramercy.acp.engine import AcpEngine
from gramercy.execution.approval import Approved, decide
from gramercy.journal.base import State
from gramercy.journal.sqlite import SqliteJournal
from gramercy.providers.base import Usage
from gramercy.providers.scripted import ScriptedProvider
from gramercy.workbench.rewinding import Rewinding
from tests.acp.editors import FULL, Editor, Host, Refused, call, choose, script, tool

THREE = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"


def test_text_and_calls_come_in_their_order(tmp_path):
    """Issue: streaming updates, tool_call and tool_call_update."""
    host = Host(script(["Let me see. ", call("look", text="up")], "Done."), [tool("look")])

    async def talk():
        editor = Editor(AcpEngine(host))
        session = await editor.begin(tmp_path)
        assert await editor.say(session, "look up") == "end_turn"
        return editor

    editor = asyncio.run(talk())
    assert editor.kinds() == [
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
        "session_info_update",
    ]
    begun, ended = editor.updates[1:3]
    assert begun["toolCallId"] == ended["toolCallId"]
    assert (begun["title"], begun["status"], begun["rawInput"]) == ("look up", "in_progress", {"text": "up"})
    assert ended["status"] == "completed"
    assert ended["content"] == [{"type": "content", "content": {"type": "text", "text": "```\ndone up\n```"}}]


@pytest.mark.contract("002.dangerous.prompt", "agents.acp.permission")
def test_a_dangerous_call_is_asked_about_in_the_editor(tmp_path):
    """Seed 002, dangerous tools: the prompt is shown in an editor."""
    seen: list[str] = []
    host = Host(script(call("erase", text="all"), "Gone."), [tool("erase", "dangerous", seen=seen)])

    async def talk():
        editor = Editor(AcpEngine(host), choose("once"))
        assert await editor.say(await editor.begin(tmp_path), "erase") == "end_turn"
        return editor

    editor = asyncio.run(talk())
    [(method, params)] = editor.asked
    assert method == "session/request_permission"
    assert [option["kind"] for option in params["options"]] == ["allow_once", "allow_always", "reject_once"]
    shown = params["toolCall"]["content"][0]["content"]["text"]
    assert "erase (dangerous)" in shown
    assert 'text: "all"' in shown
    assert "the default for dangerous tools is ask" in shown
    assert seen == ["all"]
    [record] = host.journal.records()
    assert record.facts.ruling is not None
    assert record.facts.ruling.by == "person at Probe"


@pytest.mark.contract("agents.acp.rejected")
@pytest.mark.parametrize(("option", "told"), [("reject", "User denied"), (None, "dismissed at the editor")])
def test_what_is_not_approved_does_not_run(tmp_path, option, told):
    """Issue: reject; a question that is dismissed approves nothing."""
    seen: list[str] = []
    model = script(call("erase", text="all"), "Well.")
    host = Host(model, [tool("erase", "dangerous", seen=seen)])

    async def talk():
        editor = Editor(AcpEngine(host), choose(option))
        await editor.say(await editor.begin(tmp_path), "erase")
        return editor

    editor = asyncio.run(talk())
    assert seen == []
    assert told in model.requests[1].messages[-1].text
    assert [each["status"] for each in editor.updates if "status" in each][-1] == "failed"


def test_an_option_that_was_not_offered_approves_nothing(tmp_path):
    """Guard: any answer that is not clearly a yes is a no; the whole call has no option of hunks."""
    seen: list[str] = []
    host = Host(script(call("erase", text="all"), "Well."), [tool("erase", "dangerous", seen=seen)])

    async def talk():
        editor = Editor(AcpEngine(host), choose("edit"))
        await editor.say(await editor.begin(tmp_path), "erase")

    asyncio.run(talk())
    assert seen == []


@pytest.mark.contract("agents.acp.always")
def test_always_holds_for_the_session_and_no_longer(tmp_path):
    """Issue: allow_always is a rule for the session."""
    seen: list[str] = []
    answers = [call("erase", text="a"), call("erase", text="b"), "One.", call("erase", text="c"), "Two."]
    host = Host(script(*answers), [tool("erase", "dangerous", seen=seen)])

    async def talk():
        editor = Editor(AcpEngine(host), choose("always", "reject"))
        await editor.say(await editor.begin(tmp_path), "erase two")
        other = (await editor.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        await editor.say(other, "erase one")
        return editor

    editor = asyncio.run(talk())
    assert seen == ["a", "b"]
    assert len(editor.asked) == 2


@pytest.mark.contract("agents.acp.hunks")
def test_an_edit_is_taken_hunk_by_hunk(tmp_path):
    """Issue: one tool call with one diff and one permission each."""
    (tmp_path / "text").write_text(THREE)
    new = THREE.replace("one", "ONE").replace("five", "FIVE").replace("nine", "NINE")
    model = script(call("edit_file", path="text", old=THREE, new=new), "Done.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)), choose("once", "reject", "once"))
        await editor.say(await editor.begin(tmp_path), "shout")
        return editor

    editor = asyncio.run(talk())
    assert (tmp_path / "text").read_text() == new.replace("FIVE", "five")
    asked = [params["toolCall"] for _, params in editor.asked]
    assert [each["toolCallId"] for each in asked] == ["call-1.1", "call-1.2", "call-1.3"]
    assert [each["locations"][0]["line"] for each in asked] == [1, 5, 9]
    diffs = [each["content"][0] for each in asked]
    assert all(diff["path"] == str(tmp_path / "text") for diff in diffs)
    assert diffs[1]["oldText"] == "two\nthree\nfour\nfive\nsix\nseven\neight\n"
    assert diffs[1]["newText"] == "two\nthree\nfour\nFIVE\nsix\nseven\neight\n"
    begun = [each["toolCallId"] for each in editor.updates if each["sessionUpdate"] == "tool_call"]
    assert begun == ["call-1", "call-1.1", "call-1.2", "call-1.3"]
    ends = {each["toolCallId"]: each["status"] for each in editor.updates if "status" in each}
    assert ends == {
        "call-1": "completed",
        "call-1.1": "completed",
        "call-1.2": "failed",
        "call-1.3": "completed",
    }
    assert "accepted hunks 1 and 3 of 3 and rejected hunk 2" in model.requests[1].messages[-1].text


def test_the_rest_of_an_edit_can_be_rejected_at_once(tmp_path):
    (tmp_path / "text").write_text(THREE)
    new = THREE.replace("one", "ONE").replace("five", "FIVE").replace("nine", "NINE")
    model = script(call("edit_file", path="text", old=THREE, new=new), "Done.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)), choose("once", "reject-rest"))
        await editor.say(await editor.begin(tmp_path), "shout")
        return editor

    editor = asyncio.run(talk())
    assert (tmp_path / "text").read_text() == THREE.replace("one", "ONE")
    assert len(editor.asked) == 2


@pytest.mark.contract("clients.acp.rest")
def test_the_rest_of_an_edit_can_be_taken_at_once_and_the_next_edit_asks_again(tmp_path):
    """A day's real work: hunks had no "allow the rest" but the one for the whole session."""
    (tmp_path / "text").write_text(THREE)
    new = THREE.replace("one", "ONE").replace("five", "FIVE").replace("nine", "NINE")
    again = call("edit_file", path="text", old="two", new="TWO")
    model = script(call("edit_file", path="text", old=THREE, new=new), again, "Done.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)), choose("reject", "allow-rest", "reject"))
        await editor.say(await editor.begin(tmp_path), "shout")
        return editor

    editor = asyncio.run(talk())
    assert (tmp_path / "text").read_text() == new.replace("ONE", "one")
    assert len(editor.asked) == 3


@pytest.mark.contract("agents.acp.hunks")
def test_a_hunk_that_was_rejected_stays_so_when_the_next_is_always_allowed(tmp_path):
    (tmp_path / "text").write_text(THREE)
    new = THREE.replace("one", "ONE").replace("five", "FIVE").replace("nine", "NINE")
    again = call("edit_file", path="text", old="two", new="TWO")
    model = script(call("edit_file", path="text", old=THREE, new=new), again, "Done.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)), choose("reject", "always"))
        await editor.say(await editor.begin(tmp_path), "shout")
        return editor

    editor = asyncio.run(talk())
    assert (tmp_path / "text").read_text() == new.replace("ONE", "one").replace("two", "TWO")
    assert len(editor.asked) == 2
    assert "accepted hunks 2 and 3 of 3 and rejected hunk 1" in model.requests[1].messages[-1].text


def test_an_edit_of_one_hunk_is_one_question_with_its_difference(tmp_path):
    (tmp_path / "text").write_text(THREE)
    model = script(call("edit_file", path="text", old="five", new="FIVE"), "Done.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)), choose("once"))
        await editor.say(await editor.begin(tmp_path), "shout")
        return editor

    editor = asyncio.run(talk())
    assert (tmp_path / "text").read_text() == THREE.replace("five", "FIVE")
    [(_, params)] = editor.asked
    diff, text = params["toolCall"]["content"]
    assert diff["newText"] == "two\nthree\nfour\nFIVE\nsix\nseven\neight\n"
    assert "@@" not in text["content"]["text"]
    assert params["toolCall"]["kind"] == "edit"
    [ended] = [each for each in editor.updates if each.get("status") == "completed"]
    assert ended["content"][0] == diff


def test_what_a_difference_hides_is_written_out(tmp_path):
    """Guard: nothing is approved that was not shown; an editor may show nothing of a bidi mark."""
    (tmp_path / "text").write_text("one\n")
    model = script(call("edit_file", path="text", old="one", new="o\u202ene"), "Done.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)), choose("once"))
        await editor.say(await editor.begin(tmp_path), "hide")
        return editor

    [(_, params)] = asyncio.run(talk()).asked
    assert "+o⟦U+202E⟧ne" in params["toolCall"]["content"][1]["content"]["text"]


@pytest.mark.contract("agents.acp.edited")
def test_arguments_are_changed_in_a_form_of_the_editor(tmp_path):
    """Issue: edited arguments by elicitation where the client can."""
    seen: list[str] = []
    model = script(call("erase", text="all"), "Well.")
    host = Host(model, [tool("erase", "dangerous", seen=seen)])
    form = {"action": "accept", "content": {"text": "a little"}}

    async def talk():
        editor = Editor(AcpEngine(host), {**choose("edit"), "elicitation/create": lambda _: form})
        await editor.say(await editor.begin(tmp_path, FULL), "erase")
        return editor

    editor = asyncio.run(talk())
    assert seen == ["a little"]
    (_, asked), (method, params) = editor.asked
    assert "edit" in [option["optionId"] for option in asked["options"]]
    assert method == "elicitation/create"
    assert params["requestedSchema"]["properties"] == {"text": {"type": "string", "default": "all"}}
    assert params["toolCallId"] == "call-1"
    assert "A person changed the arguments" in model.requests[1].messages[-1].text


def test_what_was_edited_to_nonsense_does_not_run(tmp_path):
    seen: list[str] = []
    host = Host(script(call("erase", text="all"), "Well."), [tool("erase", "dangerous", seen=seen)])
    form = {"action": "accept", "content": {"text": 7}}

    async def talk():
        editor = Editor(AcpEngine(host), {**choose("edit"), "elicitation/create": lambda _: form})
        await editor.say(await editor.begin(tmp_path, FULL), "erase")
        return editor

    editor = asyncio.run(talk())
    assert seen == []
    assert [method for method, _ in editor.asked].count("elicitation/create") == 3


@pytest.mark.contract("agents.acp.modes")
def test_a_mode_says_how_much_is_asked(tmp_path):
    """Issue: modes; plan runs what is safe alone, careful asks more, edits asks nothing about files."""
    (tmp_path / "text").write_text(THREE)
    seen: list[str] = []
    tools = [tool(level, level, seen=seen) for level in ("safe", "cautious", "dangerous")]
    calls = [call(each.name, text=each.name) for each in tools]
    edit = call("edit_file", path="text", old="five", new="FIVE")
    model = script(calls, "Planned.", calls, "Asked.", calls, "Asked twice.", edit, "Edited.")

    async def talk():
        editor = Editor(AcpEngine(Host(model, tools)), choose("once"))
        session = await editor.begin(tmp_path)
        asked = []
        for mode in ("plan", "ask", "careful", "edits"):
            await editor.request("session/set_mode", sessionId=session, modeId=mode)
            await editor.say(session, "go")
            asked.append(len(editor.asked))
        with pytest.raises(Refused, match="there is no mode 'yolo': expected ask, careful, edits, plan"):
            await editor.request("session/set_mode", sessionId=session, modeId="yolo")
        return asked

    assert asyncio.run(talk()) == [0, 1, 3, 3]
    assert seen == ["safe", *["safe", "cautious", "dangerous"] * 2]
    refused = [message.text for message in model.requests[1].messages if message.role == "tool"]
    assert "above the ceiling safe" in refused[1]
    assert "plan mode" in model.requests[0].instruction
    assert (tmp_path / "text").read_text() == THREE.replace("five", "FIVE")


def test_the_mode_edits_asks_about_everything_else(tmp_path):
    seen: list[str] = []
    host = Host(script(call("erase", text="all"), "Well."), [tool("erase", "dangerous", seen=seen)])

    async def talk():
        editor = Editor(AcpEngine(host), choose("reject"))
        session = await editor.begin(tmp_path)
        await editor.request("session/set_mode", sessionId=session, modeId="edits")
        await editor.say(session, "go")
        return editor

    assert len(asyncio.run(talk()).asked) == 1
    assert seen == []


@pytest.mark.contract("agents.acp.plan")
def test_a_plan_is_shown_as_a_plan(tmp_path):
    """Issue: plan; an agent shows it with the tool update_plan."""
    steps = ["look", "fix", "test"]
    model = script(call("update_plan", steps=steps, done=1), call("update_plan", steps=[], done=0), "On it.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)))
        await editor.say(await editor.begin(tmp_path), "work")
        return editor

    editor = asyncio.run(talk())
    states = ["completed", "in_progress", "pending"]
    entries = [
        {"content": step, "priority": "medium", "status": state}
        for step, state in zip(steps, states, strict=True)
    ]
    assert editor.updates[0] == {"sessionUpdate": "plan", "entries": entries}
    assert editor.kinds() == ["plan", "agent_message_chunk", "session_info_update"]
    assert model.requests[1].messages[-1].text == "The plan is shown: 1 of 3 steps are done."
    assert "1 to 30 steps" in model.requests[2].messages[-1].text


@pytest.mark.contract("agents.acp.usage")
def test_an_editor_sees_how_full_the_window_is(tmp_path, monkeypatch):
    """Issue: usage; and the title of the conversation once it has one."""
    monkeypatch.setenv("GRAMERCY_CONTEXT_WINDOW", "1000")
    model = ScriptedProvider("Hello.", "Again.", usage=Usage(90, 10))

    async def talk():
        editor = Editor(AcpEngine(Host(model)))
        session = await editor.begin(tmp_path)
        await editor.say(session, "hello")
        await editor.say(session, "once more")
        return editor

    editor = asyncio.run(talk())
    usage = [each for each in editor.updates if each["sessionUpdate"] == "usage_update"]
    assert [(each["used"], each["size"]) for each in usage] == [(100, 1000)] * 2
    titles = [each["title"] for each in editor.updates if each["sessionUpdate"] == "session_info_update"]
    assert titles == ["hello"]


@pytest.mark.contract("agents.acp.unsaved")
def test_what_is_not_saved_in_the_editor_is_read_and_not_overwritten(tmp_path):
    """Seed 001 (read_buffer), issue: files by the client's fs if it offers."""
    (tmp_path / "text").write_text("saved\n")
    unsaved = {"text": "typed\n"}
    model = script(
        call("read_buffer", buffer="text"),
        call("write_file", path="text", content="mine\n"),
        "Not mine.",
        call("write_file", path="text", content="mine\n"),
        call("edit_file", path="text", old="mine", new="still mine"),
        "Mine.",
    )
    reads = {"fs/read_text_file": lambda _: {"content": unsaved["text"]}}

    async def talk():
        editor = Editor(AcpEngine(Host(model)), {**choose("once"), **reads})
        session = await editor.begin(tmp_path, FULL)
        await editor.say(session, "write")
        assert (tmp_path / "text").read_text() == "saved\n"
        # Saved now; the editor does not notice at once that the file is then written twice.
        unsaved["text"] = "saved\n"
        await editor.say(session, "write again")
        return editor

    asyncio.run(talk())
    told = [request.messages[-1].text for request in model.requests]
    assert told[1] == "typed\n"
    assert "text has unsaved changes in Probe" in told[2]
    assert (tmp_path / "text").read_text() == "still mine\n"


@pytest.mark.contract("agents.acp.cancel")
def test_a_cancelled_message_ends_as_such_and_the_session_goes_on(tmp_path):
    """Issue: cancel; every call that was begun is shown as ended."""
    begun = asyncio.Event()

    async def wait(_):
        begun.set()
        await asyncio.Event().wait()

    host = Host(script(call("erase", text="all"), "Better so."), [tool("erase", "dangerous")])

    async def talk():
        editor = Editor(AcpEngine(host), {"session/request_permission": wait})
        session = await editor.begin(tmp_path)
        waiting = asyncio.ensure_future(editor.say(session, "erase"))
        await asyncio.wait_for(begun.wait(), 60)
        editor.notify("session/cancel", sessionId=session)
        assert await asyncio.wait_for(waiting, 60) == "cancelled"
        assert editor.updates[-1]["status"] == "failed"
        assert editor.withdrawn == [1]
        assert await editor.say(session, "then not") == "end_turn"
        editor.drop()

    asyncio.run(talk())


@pytest.mark.contract("agents.acp.one-prompt")
def test_a_second_message_is_refused_while_the_first_is_answered(tmp_path):
    """Issue: two prompts at once."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def wait(_):
        begun.set()
        await go.wait()
        return {"outcome": {"outcome": "selected", "optionId": "once"}}

    host = Host(script(call("erase", text="all"), "Gone."), [tool("erase", "dangerous")])

    async def talk():
        editor = Editor(AcpEngine(host), {"session/request_permission": wait})
        session = await editor.begin(tmp_path)
        first = asyncio.ensure_future(editor.say(session, "erase"))
        await asyncio.wait_for(begun.wait(), 60)
        with pytest.raises(Refused, match="is being answered"):
            await editor.say(session, "hurry")
        go.set()
        assert await first == "end_turn"

    asyncio.run(talk())


def test_a_model_that_fails_is_told_as_an_error(tmp_path):
    """Issue: provider errors; the editor shows the message."""

    async def talk():
        editor = Editor(AcpEngine(Host(script())))
        with pytest.raises(Refused, match="the script has 0 answers") as found:
            await editor.say(await editor.begin(tmp_path), "hello")
        assert found.value.data == {"type": "ProviderError"}

    asyncio.run(talk())


def test_a_run_that_uses_up_its_turns_says_so(tmp_path):
    host = Host(script(*[call("look", text="up")] * 20), [tool("look")])

    async def talk():
        editor = Editor(AcpEngine(host))
        assert await editor.say(await editor.begin(tmp_path), "look") == "max_turn_requests"
        assert "10 turns" in editor.text()

    asyncio.run(talk())


@pytest.mark.contract("agents.acp.undo")
def test_undo_takes_back_talk_and_files_together(tmp_path):
    """Issue: /undo takes back talk, image and files together; the editor offers it as a command."""
    (tmp_path / "text").write_text(THREE)
    model = script("Hello.", call("edit_file", path="text", old="five", new="FIVE"), "Edited.", "Fresh.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)), choose("once"))
        session = await editor.begin(tmp_path)
        await editor.say(session, "hello")
        await editor.say(session, "shout five")
        assert (tmp_path / "text").read_text() == THREE.replace("five", "FIVE")
        assert await editor.say(session, "/undo") == "end_turn"
        assert (tmp_path / "text").read_text() == THREE
        await editor.say(session, "and now?")
        return editor

    editor = asyncio.run(talk())
    assert editor.commands == ["undo", "compact", "model"]
    assert "Taken back: shout five" in editor.text()
    assert [each.text for each in model.requests[-1].messages] == ["hello", "Hello.", "and now?"]


class _Waiting(Rewinding):
    """Goes back when it is let."""

    def __init__(self, place, begun, go):
        super().__init__(place)
        self._begun, self._go = begun, go

    def back(self, *words):
        self._begun.set()
        assert self._go.wait(60)
        return super().back(*words)


@pytest.mark.contract("trust.heard.interrupted")
def test_a_cancel_in_the_middle_of_an_undo_lets_it_come_to_its_end(tmp_path):
    """What was begun is finished before the turn ends, and told; the turn ends as cancelled."""
    (tmp_path / "text").write_text(THREE)
    host = Host(script(call("edit_file", path="text", old="five", new="FIVE"), "Edited."))
    begun, go = threading.Event(), threading.Event()
    setattr(host, "rewinding", lambda place: _Waiting(place, begun, go))  # noqa: B010 - mypy knows its type

    async def talk():
        editor = Editor(AcpEngine(host), choose("once"))
        session = await editor.begin(tmp_path)
        await editor.say(session, "shout five")
        undo = asyncio.ensure_future(editor.say(session, "/undo"))
        assert await asyncio.to_thread(begun.wait, 60)
        editor.notify("session/cancel", sessionId=session)
        await asyncio.sleep(0)
        go.set()
        assert await undo == "cancelled"
        assert (tmp_path / "text").read_text() == THREE
        return editor

    told = asyncio.run(talk()).text()
    assert "Taken back: shout five" in told
    assert "back: text" in told
    assert "brought to its end" in told


def test_compact_lets_a_summary_stand_for_what_was_said(tmp_path):
    words = [f"answer {number}" for number in range(8)]
    model = script(*words, "They counted.", "Nine.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)))
        session = await editor.begin(tmp_path)
        with pytest.raises(Refused, match="nothing to summarize yet"):
            await editor.say(session, "/compact")
        for number in range(8):
            await editor.say(session, f"question {number}")
        await editor.say(session, "/compact")
        await editor.say(session, "and then?")
        return editor

    assert "They counted." in asyncio.run(talk()).text()
    said = [each.text for each in model.requests[-1].messages]
    assert "They counted." in said[0]
    assert "question 0" not in "".join(said)


def test_another_model_answers_from_now_on(tmp_path):
    model = script("As before.", "/undoing is no command.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)))
        session = await editor.begin(tmp_path)
        await editor.say(session, "/model Scripted/other")
        await editor.say(session, "/model")
        await editor.say(session, "who are you?")
        await editor.say(session, "/undo this please")
        with pytest.raises(Refused, match="not of the form Provider/id"):
            await editor.say(session, "/model nonsense")
        return editor

    editor = asyncio.run(talk())
    assert editor.text().startswith("Scripted/other answers.Scripted/other answers.As before.")
    assert [each.model for each in model.requests] == ["other", "other"]
    assert model.requests[1].messages[-1].text == "/undo this please"


def test_what_the_words_mention_is_told_along(tmp_path):
    (tmp_path / "text").write_text("the secret word is mango\n")
    model = script("Mango.")

    async def talk():
        editor = Editor(AcpEngine(Host(model)))
        session = await editor.begin(tmp_path)
        await editor.say(session, "what is in @text ?")
        with pytest.raises(Refused, match=r"@file:nothing\.txt") as found:
            await editor.say(session, "and in @file:nothing.txt ?")
        assert found.value.code == -32602

    asyncio.run(talk())
    assert "mango" in model.requests[0].messages[0].text


@pytest.mark.contract("agents.acp.nested")
def test_the_calls_of_a_nested_agent_are_asked_about_in_its_name(tmp_path):
    """Agents: approvals of nested agents reach the same person."""
    seen: list[str] = []
    helper = Agent("helper", "Erase.", "Scripted/test", [tool("erase", "dangerous", seen=seen)])
    model = script(
        {"id": "same", "name": "helper", "arguments": {"message": "please"}},
        {"id": "same", "name": "erase", "arguments": {"text": "all"}},
        "Erased.",
        "Done.",
    )
    host = Host(model)
    host.agents = [helper]

    async def talk():
        editor = Editor(AcpEngine(host), choose("once"))
        await editor.say(await editor.begin(tmp_path), "delegate")
        return editor

    editor = asyncio.run(talk())
    assert seen == ["all"]
    [(_, params)] = editor.asked
    assert params["toolCall"]["title"] == "helper: erase all"
    begun = [each["title"] for each in editor.updates if each["sessionUpdate"] == "tool_call"]
    assert begun == ["helper please", "helper: erase all"]
    ended = [each for each in editor.updates if each.get("status") == "completed"]
    assert [each["toolCallId"] for each in ended] == ["call-2", "call-1"]


@pytest.mark.contract("agents.acp.elsewhere")
def test_a_question_that_is_answered_elsewhere_is_withdrawn_in_the_editor(tmp_path):
    """Guard: the caller's own channel and every other process are asked side by side; the first counts."""
    (tmp_path / "project").mkdir()
    seen: list[str] = []
    host = Host(script(call("erase", text="all"), "Gone."), [tool("erase", "dangerous", seen=seen)])
    host.journal = SqliteJournal(tmp_path / "journal.db")
    begun = asyncio.Event()

    async def wait(_):
        begun.set()
        await asyncio.Event().wait()

    async def talk():
        editor = Editor(AcpEngine(host), {"session/request_permission": wait})
        session = await editor.begin(tmp_path / "project")
        answering = asyncio.ensure_future(editor.say(session, "erase"))
        await asyncio.wait_for(begun.wait(), 60)
        [record] = host.journal.records([State.AWAITING])
        assert record.facts.question is not None
        decide(host.journal, record.key, record.facts.question.seal, Approved("another terminal"))
        assert await asyncio.wait_for(answering, 60) == "end_turn"
        editor.drop()
        return editor

    try:
        assert asyncio.run(talk()).withdrawn == [1]
    finally:
        host.journal.close()
    assert seen == ["all"]


def test_an_edited_call_is_asked_about_as_it_is_now(tmp_path):
    """Guard: what an edited call would do is shown before it runs."""
    (tmp_path / "text").write_text(THREE)
    model = script(call("write_file", path="text", content="mine\n"), "Done.")
    form = {"action": "accept", "content": {"content": "yours\n"}}

    async def talk():
        answers = {**choose("edit", "once"), "elicitation/create": lambda _: form}
        editor = Editor(AcpEngine(Host(model)), answers)
        await editor.say(await editor.begin(tmp_path, {"elicitation": {"form": {}}}), "write")
        return editor

    asked = [params["toolCall"] for method, params in asyncio.run(talk()).asked if "permission" in method]
    assert [each["rawInput"]["content"] for each in asked] == ["mine\n", "yours\n"]
    assert [each["content"][0]["newText"] for each in asked] == ["mine\n", "yours\n"]
    assert (tmp_path / "text").read_text() == "yours\n"


@pytest.mark.parametrize("can_notice", [True, False])
def test_what_is_odd_about_a_project_is_told_once(tmp_path, can_notice):
    """An editor that has notices shows them as such; in others they stand before the answer."""
    host = Host(script("One.", "Two."))
    host.remarks = ["warning: rule 1 counts for less than it says"]

    async def talk():
        editor = Editor(AcpEngine(host))
        session = await editor.begin(tmp_path, {"session": {"notices": {}}} if can_notice else {})
        await editor.say(session, "hello")
        await editor.say(session, "hello again")
        return editor

    editor = asyncio.run(talk())
    notices = [each["title"] for each in editor.updates if each["sessionUpdate"] == "notice"]
    assert notices == (host.remarks if can_notice else [])
    assert editor.text().count("counts for less") == (0 if can_notice else 1)
