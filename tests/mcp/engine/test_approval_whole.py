"""A question at the client shows all of a call, or nobody can approve it there."""

import asyncio
import os
import re
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramercy import Executor, Registry, tool
from gramercy.execution.shown import read_back, unshown
from gramercy.mcp import approval
from gramercy.mcp.engine import Engine
from gramercy.mcp.question_files import Nearby, question_directory
from gramercy.mcp.questions import CAPACITY
from gramercy.testing.approver import ScriptedApprover
from gramercy.tools.definition import create_tool
from gramercy.toolsets import hunks
from tests.mcp.engine.conftest import Desk, text

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ASKABLE: dict[str, object] = {"elicitation": {}}
CLIENTS = ("claude-code", "codex-mcp-client", "somebody")
DECLINE, NOTHING = {"action": "decline"}, {"action": "accept", "content": {}}
PATH = re.compile(r"Read all of it in (\S+)")


def filled(**content):
    return {"action": "accept", "content": content}


class Writer:
    """Tools that remember what they wrote: any values, and the edit of a text."""

    def __init__(self):
        self.done = []
        anything = {"type": "object", "additionalProperties": True}
        self.write = create_tool("write", "Write.", anything, self._run, safety_level="dangerous")
        texts = {"original": {"type": "string"}, "modified": {"type": "string"}}
        self.edit = create_tool(
            "edit",
            "Edit.",
            {"type": "object", "properties": texts, "required": list(texts), "additionalProperties": False},
            self._run,
            safety_level="dangerous",
            effect=lambda given: hunks.diff(given["original"], given["modified"], "a.txt"),
            edits=("original", "modified"),
        )

    def _run(self, arguments):
        self.done.append(arguments)
        return "done"


class Person:
    """A client with a person: keeps the questions, answers what `reply` says, and reads the files offered."""

    def __init__(self, reply, nearby=None, era=LEGACY, client="somebody", **engine):
        self.writer = Writer()
        self.questions = []
        self.files = []
        self._reply = reply
        self._era, self._client = era, client
        self._options = {"nearby": nearby, **engine}

    def answer(self, params):
        self.questions.append(params["message"])
        found = PATH.search(params["message"])
        if found is not None:
            with Path(found[1]).open(encoding="utf-8") as file:
                self.files.append((file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)))
        return self._reply(self)

    @property
    def code(self):
        """The code at the end of the last file."""
        (code,) = re.findall(r"the code (\S+) in", self.files[-1][0])
        return code

    async def _call(self, name, arguments, meta):
        executor = Executor(
            Registry([self.writer.write, self.writer.edit]), self._options.pop("approver", None)
        )
        engine = Engine(executor, name="desk", version="1", **self._options)
        desk = Desk(engine, self._era, ASKABLE, name=self._client)
        desk.answers = {"elicitation/create": self.answer}
        result = await desk.call(name, arguments, _meta=meta)
        while result.get("resultType") == "input_required":
            ((key, question),) = result["inputRequests"].items()
            replies = {key: self.answer(question["params"])}
            state = {"inputResponses": replies, "requestState": result["requestState"], "_meta": meta}
            result = await desk.call(name, arguments, **state)
        return text(result)

    def asks(self, name, arguments, **meta):
        return asyncio.run(self._call(name, arguments, meta))


@pytest.fixture(params=[MODERN, LEGACY])
def era(request):
    return request.param


@pytest.fixture(autouse=True)
def reading(monkeypatch):
    """Let an approval come at once, as if the person had read: what a form shows is not about time."""
    monkeypatch.setattr(approval, "MOST_SECONDS", 0.0)


@pytest.fixture
def nearby(tmp_path):
    return Nearby(tmp_path / "questions")


def deep(levels):
    found: object = "bottom"
    for _ in range(levels):
        found = {"a": [found]}
    return found


LINES = "".join(f"line {number}\n" for number in range(1, 2_001))
LONG: dict[str, dict[str, object]] = {
    "long text": {"path": "a", "content": "x" * 20_000 + "rm -rf /"},
    "a megabyte of code": {"code": "(print 1)\n" * 100_000 + "(delete-everything)"},
    "deep JSON": {"value": [deep(25)] * 20},
    "many arguments": {f"name_{number}": f"value {number}" for number in range(1_000)},
    "hidden text": {"content": "\u202e" * 3_000 + "end"},
}


@pytest.mark.contract("trust.approval.whole")
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", LONG)
def test_what_no_form_can_show_is_not_approved_by_accepting_one(era, client, case):
    """Trust, 7: on the old code the person saw 4,000 characters, and accepting ran the hidden tail."""
    person = Person(lambda _: NOTHING, era=era, client=client)
    said = person.asks("write", LONG[case])
    assert (person.writer.done, person.questions) == ([], [])
    assert re.search(r"write was not run: all of it takes [\d,]+ characters, more than a form", said)
    assert "Do it in smaller steps" in said


@pytest.mark.contract("trust.approval.file")
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", LONG)
def test_what_no_form_can_show_is_approved_with_the_code_from_the_file(era, nearby, client, case):
    """Trust, 7: the file has all of it, is the person's alone, and is gone afterwards."""
    person = Person(lambda person: filled(code=person.code.lower()), nearby, era, client)
    os.umask(before := os.umask(0))
    os.umask(0)
    try:
        assert person.asks("write", LONG[case]) == "done"
    finally:
        os.umask(before)
    ((shown, mode),) = person.files
    assert person.writer.done == [LONG[case]]
    assert unshown(shown, "", LONG[case], ()) is None
    assert (mode, stat.S_IMODE(nearby.directory.stat().st_mode)) == (0o600, 0o700)
    assert list(nearby.directory.iterdir()) == []
    # Claude Code shows three lines: the file and the code are in them.
    assert str(nearby.directory) in "\n".join(person.questions[0].split("\n")[:3])
    assert len(person.questions[0]) < CAPACITY


WRONG = {"nothing": NOTHING, "a guess": filled(code="AAAA-AAAA"), "yes": filled(code="approve", reason="go")}


@pytest.mark.contract("trust.approval.file")
@pytest.mark.parametrize("case", WRONG)
def test_without_the_code_nothing_runs(era, nearby, case):
    person = Person(lambda _: WRONG[case], nearby, era)
    said = person.asks("write", LONG["long text"])
    assert said.startswith("write was not run: no code of the file was given in 3 tries")
    assert (person.writer.done, len(person.questions)) == ([], approval.MOST_TRIES)
    assert list(nearby.directory.iterdir()) == []


@pytest.mark.contract("trust.approval.file")
def test_a_file_that_was_changed_while_the_person_looked_approves_nothing(nearby):
    def reply(person):
        (path,) = nearby.directory.iterdir()
        path.write_text("harmless")
        return filled(code=person.code)

    person = Person(reply, nearby)
    assert "has changed meanwhile" in person.asks("write", LONG["long text"])
    assert person.writer.done == []


@pytest.mark.contract("trust.approval.file")
@pytest.mark.parametrize("trap", ["a link", "a file"])
def test_a_directory_that_is_not_ours_gets_no_questions(nearby, tmp_path, trap):
    if trap == "a link":
        (tmp_path / "elsewhere").mkdir()
        nearby.directory.symlink_to(tmp_path / "elsewhere")
    else:
        nearby.directory.write_text("")
    person = Person(lambda _: NOTHING, nearby)
    assert "smaller steps" in person.asks("write", LONG["long text"])
    assert not (tmp_path / "elsewhere").exists() or list((tmp_path / "elsewhere").iterdir()) == []


def test_questions_are_kept_outside_of_the_project(tmp_path):
    home = {"HOME": str(tmp_path / "home")}
    state = tmp_path / "home/.local/state/gramercy/questions"
    assert question_directory(tmp_path / "project", home) == state
    runtime = {**home, "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    assert question_directory(tmp_path / "project", runtime) == tmp_path / "run/gramercy/questions"
    assert question_directory(tmp_path / "run", runtime) == state
    assert question_directory(tmp_path, runtime) is None


@pytest.mark.contract("trust.approval.whole")
def test_what_no_form_can_show_is_asked_in_this_process_where_somebody_is(era):
    """Guard, Channels: an approver in the process is handed the whole call."""
    with ScriptedApprover("approved") as approver:
        person = Person(lambda _: NOTHING, era=era, approver=approver)
        assert person.asks("write", LONG["long text"]) == "done"
    assert approver.calls == [("write", LONG["long text"])]
    assert person.questions == []


HUNDRED = re.sub(r"line (\d+)0\n", r"changed \1, with some more words to be longer than nothing\n" * 4, LINES)
EDIT = {"original": LINES, "modified": HUNDRED}


@pytest.mark.contract("trust.approval.parts")
@pytest.mark.parametrize("client", CLIENTS)
def test_an_edit_of_many_hunks_is_asked_about_in_parts(era, client):
    """Trust, 7: on the old code more than twenty hunks were cut and approved as a whole."""
    person = Person(lambda person: person.writer.done or NOTHING, era=era, client=client)
    assert person.asks("edit", EDIT) == "done"
    assert person.writer.done == [EDIT]
    assert len(person.questions) == 10
    assert all(len(question) <= CAPACITY for question in person.questions)
    assert person.questions[1].split("\n")[1].startswith("Part 2 of 10, hunks 21 to 40 of 200;")
    assert unshown("\n".join(person.questions), hunks.diff(LINES, HUNDRED, "a"), EDIT, EDIT) is None


@pytest.mark.contract("trust.approval.parts")
def test_hunks_of_each_part_can_be_left_out(era):
    replies = [NOTHING, filled(hunk_21=False, reason="twenty-one stays"), *[NOTHING] * 8]
    person = Person(lambda person: replies[len(person.questions) - 1], era=era)
    said = person.asks("edit", EDIT)
    others = {number for number in range(1, 201) if number != 21}
    assert person.writer.done == [{**EDIT, "modified": hunks.accepted(LINES, HUNDRED, others)}]
    assert "rejected hunk 21 (twenty-one stays)" in said


@pytest.mark.contract("trust.approval.parts")
@pytest.mark.parametrize("place", [0, 5, 9])
def test_a_no_to_one_part_is_a_no_to_all(era, monkeypatch, place):
    monkeypatch.setattr(approval, "PERSON_SECONDS", 0.0)
    person = Person(lambda person: DECLINE if len(person.questions) > place else NOTHING, era=era)
    assert person.asks("edit", EDIT).splitlines()[0] == "User denied tool execution"
    assert (person.writer.done, len(person.questions)) == ([], place + 1)


@pytest.mark.contract("trust.approval.parts")
def test_one_long_hunk_among_others_needs_the_file(era, nearby):
    """Trust, 7: on the old code it could be switched on unseen."""
    edit = {"original": LINES, "modified": HUNDRED.replace("line 999\n", "y" * 17_000 + "\n")}
    person = Person(lambda _: NOTHING, nearby, era)
    assert "was not run: no code" in person.asks("edit", edit)
    assert person.writer.done == []
    person = Person(lambda person: filled(code=person.code), nearby, era)
    assert person.asks("edit", edit) == "done"
    assert person.writer.done == [edit]
    assert "+" + "y" * 17_000 in read_back(person.files[0][0])


@tool(safety_level="dangerous", edits=("original", "modified"), effect=lambda _: 1 / 0)
def hopeless(original: str, modified: str) -> str:
    """Have an effect that cannot be told."""
    return f"{original} {modified}"


@pytest.mark.contract("trust.approval.whole")
def test_arguments_are_shown_where_their_difference_cannot_be_told(serve, desk):
    """Trust, 7: on the old code they were hidden behind the sentence that it cannot be told."""
    shown = []

    def answer(params):
        shown.append(params["message"])
        return NOTHING

    async def main():
        client = desk(serve(hopeless), LEGACY, ASKABLE)
        client.answers = {"elicitation/create": answer}
        await client.call("hopeless", {"original": "a\nb", "modified": "a\nevil"})

    asyncio.run(main())
    assert "modified, text of 2 lines:\n| a\n| evil\n" in shown[0]


SIZES = st.integers(0, 12_000) | st.integers(0, 40)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=100),
    st.builds(
        lambda piece, times: piece * times, st.sampled_from(["x", "a\n", "\u202e", "| ", "⟦", "ä"]), SIZES
    ),
)


@pytest.mark.contract("trust.approval.whole")
@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(min_size=1, max_size=20), TEXTS, max_size=6), st.sampled_from(CLIENTS))
def test_either_the_question_shows_all_of_it_or_no_approval_is_possible_there(arguments, client):
    """Trust, 7, for any arguments."""
    person = Person(lambda _: NOTHING, client=client)
    person.asks("write", arguments)
    if person.writer.done:
        assert person.writer.done == [arguments]
        assert unshown("\n".join(person.questions), "", arguments, ()) is None
    else:
        assert person.questions == []
        assert sum(map(len, arguments.values())) > 1_000


@pytest.mark.contract("trust.approval.absent")
def test_codex_exec_is_told_at_once_that_nobody_is_there():
    """Real clients: it says so with every call, and declines every question."""
    alone = {"x-codex-turn-metadata": {"turn_trigger": "exec"}}
    person = Person(lambda _: NOTHING, client="codex-mcp-client")
    said = person.asks("write", {"path": "a"}, **alone)
    assert said.startswith("write was not run: it needs a person's approval, and nobody is there to give it")
    assert 'action = "allow"' in said
    assert (person.questions, person.writer.done) == ([], [])


UNCERTAIN: dict[str, tuple[str, dict[str, object]]] = {
    "another client": ("somebody", {"x-codex-turn-metadata": {"turn_trigger": "exec"}}),
    "a turn of a person": ("codex-mcp-client", {"x-codex-turn-metadata": {"turn_trigger": "user"}}),
    "nonsense": ("codex-mcp-client", {"x-codex-turn-metadata": "exec"}),
}


@pytest.mark.contract("trust.approval.absent")
@pytest.mark.parametrize("case", UNCERTAIN)
def test_where_it_is_not_certain_the_person_is_asked(case):
    client, meta = UNCERTAIN[case]
    person = Person(lambda _: NOTHING, client=client)
    assert person.asks("write", {"path": "a"}, **meta) == "done"
    assert len(person.questions) == 1


@pytest.mark.contract("trust.approval.absent")
def test_claude_code_without_a_person_is_asked_for_its_hooks_and_then_told_so(era):
    """Real clients: `claude -p` starts the server with sdk-cli and dismisses at once what no hook answers."""
    alone = Nearby(environment={"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"})
    person = Person(lambda _: {"action": "cancel"}, alone, era, "claude-code")
    said = person.asks("write", {"path": "a"})
    assert "nobody is there to give it: claude -p runs without a person" in said
    assert person.writer.done == []
    person = Person(lambda _: NOTHING, alone, era, "claude-code")
    assert person.asks("write", {"path": "a"}) == "done"


@pytest.mark.contract("trust.approval.reason")
def test_a_reason_beside_an_approval_at_the_client_reaches_the_model(era):
    person = Person(lambda _: filled(decision="approve", reason="but run the tests"), era=era)
    said = person.asks("write", {"path": "a"})
    assert said == "[The person who approved it says: but run the tests]\ndone"
