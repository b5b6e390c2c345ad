"""`gramercy chat` on a real terminal: a scripted model, real tools, a real image."""

from __future__ import annotations

import json
import os
import pty
import shutil
import sys
from pathlib import Path
from time import monotonic

import pytest

from gramercy.ui.cli.approval import Screen
from tests.hello import GREETING, HELLO, TOOLS
from tests.providers.service import Service, stream

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BACK, LEAVE, STOP = "\x7f", "\x04", "\x03"


@pytest.fixture
def state(tmp_path_factory):
    """Return a directory for the journal of one test, outside of its project."""
    return str(tmp_path_factory.mktemp("state"))


@pytest.fixture
def chat(tmp_path, terminal, state):
    """Start a chat with helloAgent whose model gives these answers, or with the agent of another file."""

    def start(*answers, options=(), level="safe", file="hello.gram", **environment):
        (tmp_path / "hello.gram").write_text(HELLO)
        (tmp_path / "hello.py").write_text(TOOLS.replace("LEVEL", level))
        (tmp_path / "script.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in answers))
        tools = ("--tools", "hello.py") if file == "hello.gram" and "--tools" not in options else ()
        words = ("chat", file, *tools, "--model", "Scripted/script.jsonl", *options)
        opened = terminal(*words, XDG_STATE_HOME=state, **environment)
        opened.expect("Ctrl-D leaves")
        opened.expect("> ")
        return opened

    return start


def said(opened, message, answer):
    """Say something, and wait for the answer and the next prompt; return what came between."""
    opened.send(f"{message}\n")
    before = opened.expect(answer)
    opened.expect("> ")
    return before


def left(opened):
    """Leave, and check that it went well."""
    opened.settle()
    opened.send(LEAVE)
    assert opened.end() == 0


def test_an_answer_streams_with_its_calls_and_figures(chat):
    opened = chat(GREETING, "Hello, Ada!")
    shown = said(opened, "Hello, I am Ada", "Hello, Ada!\n(Scripted/script.jsonl, ")
    assert "Let me see.\n" in shown
    assert '→ sayHello {"name":"Ada"}' in shown
    left(opened)


def test_markdown_is_styled_where_there_are_colours(chat):
    opened = chat("# Title\nsome **bold** words\n", TERM="xterm", NO_COLOR="")
    opened.settle()
    opened.send("hi\n")
    opened.expect("\x1b[1;35mTitle\x1b[0m\n")
    opened.expect("some \x1b[1mbold\x1b[0m words")
    left(opened)


@pytest.mark.contract("agents.chat.writing")
def test_several_lines_are_one_message(chat, tmp_path):
    opened = chat("one", "two", "three")
    opened.send("first \\\n")
    opened.settle()
    opened.send("second\n")
    opened.expect("one")
    opened.expect("> ")
    opened.send('"""\nin a\n\nblock\n"""\n')
    opened.expect("two")
    opened.expect("> ")
    said(opened, "/export talk.md", "talk.md")
    text = (tmp_path / "talk.md").read_text()
    assert "\nfirst \nsecond\n" in text
    assert "\nin a\n\nblock\n" in text
    left(opened)


def test_a_message_is_written_in_the_editor(chat, tmp_path):
    editor = tmp_path / "editor.sh"
    editor.write_text("#!/bin/sh\nprintf 'from the\\neditor' > \"$1\"\n")
    editor.chmod(0o755)
    opened = chat("done", EDITOR=str(editor), VISUAL=str(editor))
    shown = said(opened, "/edit", "done")
    assert "from the\neditor" in shown
    left(opened)


@pytest.mark.contract("agents.chat.stopped")
def test_ctrl_c_stops_a_question_and_not_the_program(chat):
    """What is typed next is a message, not the answer to the question that was left."""
    opened = chat(GREETING, "I heard you.", level="dangerous")
    opened.send("Hello, I am Ada\n")
    opened.expect("approve, deny or edit? [a/d/e]: ")
    opened.settle()
    opened.send(STOP)
    opened.expect("(stopped)")
    opened.expect("> ")
    said(opened, "what now?", "I heard you.")
    left(opened)


def test_a_question_that_is_gone_does_not_take_the_line_that_was_typed_after_it(monkeypatch):
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r", closefd=True) as typed, os.fdopen(os.dup(theirs), "w") as shown:
        monkeypatch.setattr(sys, "stdin", typed)
        monkeypatch.setattr(sys, "stderr", shown)

        def decided_elsewhere():
            os.write(ours, b"a message\n")
            return False

        assert Screen(decided_elsewhere).read("? ") is None
        assert Screen(lambda: True).read("? ", goes_on=True) == "a message"
    os.close(ours)


def piece(text, reason=None):
    """Return a piece of an answer in the format of OpenAI."""
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


@pytest.mark.contract("agents.chat.stopped", "agents.chat.streaming")
def test_ctrl_c_stops_a_streaming_answer_of_a_real_service(chat):
    """The first words are shown while the rest has not come; afterwards the conversation goes on."""
    half, whole = (
        stream(piece("The first words"), hang=True),
        stream(piece("Going on.", "stop"), done="[DONE]"),
    )
    with Service(half, whole) as service:
        address = {"OPENAI_BASE_URL": f"{service.address}/v1", "OPENAI_API_KEY": "sk-not-a-key"}
        opened = chat(options=("--model", "OpenAI/gpt-4o-mini"), **address)
        opened.send("tell me\n")
        opened.expect("The first words")
        opened.send(STOP)
        opened.expect("(stopped)")
        opened.expect("> ")
        said(opened, "go on", "Going on.\n(OpenAI/gpt-4o-mini, ")
        left(opened)
        assert "sk-not-a-key" not in opened.screen
        told = [each["content"] for each in service.asked[1].body["messages"]]
    assert "tell me" in told
    assert told[-1] == "go on"


def test_an_approved_call_runs_and_a_denied_one_is_told_to_the_model(chat):
    opened = chat(GREETING, "first", GREETING, "second", level="dangerous")
    opened.send("one\n")
    opened.expect("[a/d/e]: ")
    opened.send("a\n")
    opened.expect("← Hello, Ada!")
    opened.expect("> ")
    opened.send("two\n")
    opened.expect("[a/d/e]: ")
    opened.send("d not today\n")
    opened.expect("not today")
    opened.expect("second")
    left(opened)


def test_careful_mode_asks_about_cautious_tools_and_plan_mode_refuses_them(chat):
    opened = chat(GREETING, "first", GREETING, "second", level="cautious", options=("--mode", "careful"))
    opened.send("one\n")
    opened.expect("asks because rule 0 of the mode careful says ask")
    opened.expect("[a/d/e]: ")
    opened.send("a\n")
    opened.expect("first")
    said(opened, "/mode plan", "only tools that change nothing run")
    assert "above the ceiling safe of the mode plan" in said(opened, "two", "second")
    left(opened)


def test_the_mode_before_a_plan_holds_again_after_it(chat):
    opened = chat(options=("--mode", "careful"))
    said(opened, "/plan", "plan: only tools")
    said(opened, "/plan", "careful: every tool that may change something asks")
    left(opened)


def test_undo_after_a_restart_names_the_files_that_stay_changed(tmp_path, chat):
    """What an edit replaced was known to the process that made it."""
    shutil.copy(EXAMPLES / "python_pair.gram", tmp_path)
    (tmp_path / "notes.txt").write_text("one\n")
    options = ("--image", "python", "--mode", "edits")
    edit = {"name": "edit_file", "arguments": {"path": "notes.txt", "old": "one", "new": "two"}}
    first = chat(edit, "done", file="python_pair.gram", options=options)
    said(first, "edit it", "done")
    left(first)
    again = chat("x", file="python_pair.gram", options=(*options, "--continue"))
    said(again, "/undo", "what these calls did stays done: edit_file")
    assert (tmp_path / "notes.txt").read_text() == "two\n"
    left(again)


def test_another_model_answers_after_a_switch(chat, tmp_path):
    opened = chat("of the first")
    (tmp_path / "other.jsonl").write_text('"of the other"\n')
    said(opened, "hi", "of the first")
    said(opened, "/model Nonsense/x", "Nonsense")
    said(opened, "/model Scripted/other.jsonl", "Scripted/other.jsonl answers")
    said(opened, "hi", "of the other")
    left(opened)


@pytest.mark.contract("agents.chat.talks")
def test_a_conversation_goes_on_another_day(chat):
    first = chat("You are Ada.")
    said(first, "I am Ada", "You are Ada.")
    said(first, "/rename Names", "Names")
    left(first)
    again = chat("answer", options=("--resume", "names"))
    said(again, "/export -", "I am Ada")
    said(again, "/fork Other names", "a copy")
    said(again, "/sessions", "Other names")
    said(again, "/search ada", "I am Ada")
    said(again, "/new", "a new conversation")
    said(again, "/resume Names", "I am Ada")
    left(again)
    said(third := chat("answer", options=("--continue",)), "/export -", "You are Ada.")
    left(third)


@pytest.mark.contract("agents.chat.undo")
def test_undo_takes_back_the_talk_the_image_and_the_files(tmp_path, chat):
    """`/undo` takes back talk, image and files together."""
    shutil.copy(EXAMPLES / "python_pair.gram", tmp_path)
    (tmp_path / "notes.txt").write_text("one\n")
    opened = chat(
        {"name": "evaluate-python", "arguments": {"code": "x = 41; open('made.txt', 'w').write('a')"}},
        {"name": "edit_file", "arguments": {"path": "notes.txt", "old": "one", "new": "two"}},
        {"name": "evaluate-python", "arguments": {"code": "open('more.txt', 'w').write('b')"}},
        "done",
        {"name": "evaluate-python", "arguments": {"code": "'x' in globals()"}},
        "looked",
        file="python_pair.gram",
        options=("--image", "python", "--mode", "edits"),
    )
    said(opened, "define x", "done")
    assert (tmp_path / "notes.txt").read_text() == "two\n"
    assert (tmp_path / "made.txt").exists()
    shown = said(opened, "/undo", "back: notes.txt")
    assert "taken back: define x" in shown
    assert (tmp_path / "notes.txt").read_text() == "one\n"
    assert not (tmp_path / "made.txt").exists()
    assert not (tmp_path / "more.txt").exists()
    assert "← => False" in said(opened, "is x there?", "looked")
    said(opened, "/undo", "taken back: is x there?")
    said(opened, "/undo", "there is nothing to take back")
    left(opened)


@pytest.mark.contract("trust.heard.interrupted")
def test_ctrl_c_in_the_middle_of_an_undo_lets_it_come_to_its_end(tmp_path, chat):
    """What was begun is finished and told path by path; the chat goes on."""
    shutil.copy(EXAMPLES / "python_pair.gram", tmp_path)
    code = "for n in range(2000): open(f'made-{n:04}', 'w').close()"
    opened = chat(
        {"name": "evaluate-python", "arguments": {"code": code}},
        "done",
        file="python_pair.gram",
        options=("--image", "python", "--mode", "edits"),
    )
    said(opened, "make them", "done")
    opened.settle()
    opened.send("/undo\n")
    deadline = monotonic() + 60
    # They go from the last to the first.
    while (tmp_path / "made-1999").exists() and monotonic() < deadline:
        continue
    opened.send(STOP)
    shown = opened.expect("and 1,980 more")
    assert "taken back: make them" in shown
    assert not list(tmp_path.glob("made-*"))
    opened.expect("> ")
    left(opened)


@pytest.mark.contract("agents.chat.undo")
def test_undo_names_what_it_cannot_take_back(chat):
    opened = chat(GREETING, "done", level="cautious")
    said(opened, "Hello, I am Ada", "done")
    said(opened, "/undo", "what these calls did stays done: sayHello")
    left(opened)


@pytest.mark.contract("agents.chat.stopped")
def test_an_evaluation_is_stopped_with_ctrl_c_and_the_image_goes_on(tmp_path, chat):
    shutil.copy(EXAMPLES / "python_pair.gram", tmp_path)
    opened = chat(
        {"name": "evaluate-python", "arguments": {"code": "import time; time.sleep(600)"}},
        {"name": "evaluate-python", "arguments": {"code": "6 * 7"}},
        "42",
        file="python_pair.gram",
        options=("--image", "python"),
    )
    opened.send("sleep\n")
    opened.expect("time.sleep(600)")
    opened.send(STOP)
    opened.expect("(stopped)")
    opened.expect("> ")
    assert "← => 42" in said(opened, "and now?", "42\n(")
    left(opened)


WRONG = {
    "/nonsense": "there is no command /nonsense",
    "/mod": "did you mean /model or /mode?",
    "/rename": "/rename needs a title",
    "/mode plam": "did you mean 'plan'?",
    "/model gpt": "is not of the form Provider/id",
    "/resume nothing": "there is no session nothing",
    "/role poet": "there is no role 'poet'",
    "/template": "there are none",
    "/undo": "there is nothing to take back",
    "/copy": "there is no answer yet",
    "/fork": "there is nothing to copy yet",
    "/export": "there is nothing to write yet",
    "/tools": "sayHello",
    "/cost": "nothing was used yet",
    "/pin ctx-1": "there is no 'ctx-1' in the context",
}


def test_commands_say_what_is_wrong_and_the_chat_goes_on(chat):
    opened = chat("still here")
    for typed, says in WRONG.items():
        said(opened, typed, says)
    said(opened, "hello?", "still here")
    left(opened)


@pytest.mark.contract("day.eyes.counts")
def test_one_answer_is_counted_as_one(chat):
    """A day's work: "1 answers"."""
    opened = chat("the only one")
    said(opened, "hello", "the only one")
    said(opened, "/cost", "1 answer: ")
    left(opened)


@pytest.mark.contract("agents.chat.mentions")
def test_files_are_mentioned_cut_and_refused_with_a_clear_line(chat, tmp_path):
    """Bad input: binary files mentioned. What is wrong holds the message back; nothing is lost."""
    (tmp_path / "notes.md").write_text("the notes")
    (tmp_path / "long.txt").write_text("word\n" * 20_000)
    (tmp_path / "picture.bin").write_bytes(bytes(range(256)) * 10)
    opened = chat("read", "read on", options=("--debug",))
    assert "the notes" in said(opened, "look at @notes.md please", "StopPart")
    opened.send("look at @long.txt\n")
    opened.expect("@long.txt was cut: the first 51,2")
    opened.expect("StopPart")
    opened.expect("> ")
    assert "@picture.bin: picture.bin is not a text file" in said(
        opened, "and @picture.bin?", "evaluating code"
    )
    said(opened, "/export talk.json", "talk.json")
    assert len(json.loads((tmp_path / "talk.json").read_text())["said"]) == 4
    left(opened)


def test_context_is_laid_beside_told_once_and_dropped(chat, tmp_path):
    (tmp_path / "notes.md").write_text("the notes")
    opened = chat("one", "two", options=("--debug",))
    said(opened, "/add notes.md", "ctx-1: file notes.md, about 3 tokens")
    said(opened, "/add some plain words", "ctx-2: a text")
    said(opened, "/pin ctx-1", "ctx-1 stays")
    first = said(opened, "hello", "StopPart")
    assert "the notes" in first
    assert "some plain words" in first
    assert said(opened, "once more", "StopPart").count("the notes") == 1
    assert "of a window that is not known" in said(opened, "/context", "ctx-2")
    said(opened, "/drop all", "1 dropped; what is pinned stays")
    said(opened, "/drop ctx-9", "there is no 'ctx-9' in the context")
    left(opened)


@pytest.mark.contract("agents.chat.talks")
def test_compact_lets_a_summary_stand_for_what_was_said(chat):
    opened = chat("one", "two", "three", "They counted.", "four", options=("--debug",))
    said(opened, "/compact", "there is nothing to summarize yet")
    for message, answer in (("first", "one"), ("second", "two"), ("third", "three")):
        said(opened, message, answer)
        opened.settle()
    said(opened, "/compact", "a summary stands for 2 messages")
    shown = said(opened, "go on", "StopPart")
    assert "They counted." in shown
    assert "first" not in shown
    left(opened)


def test_a_failing_model_loses_nothing(chat):
    opened = chat("one")
    said(opened, "first", "one")
    said(opened, "second", "question 2 came")
    said(opened, "/export -", "second")
    left(opened)


def test_roles_and_templates_come_from_the_persons_own_files(chat, tmp_path):
    for kind, name, text in (("roles", "poet", "Answer in verse."), ("templates", "review", "Review {}!")):
        folder = tmp_path / "config" / "gramercy" / kind
        folder.mkdir(parents=True)
        (folder / f"{name}.md").write_text(text)
    opened = chat("verse", options=("--role", "poet", "--debug"), XDG_CONFIG_HOME=str(tmp_path / "config"))
    shown = said(opened, "/template review the parser", "StopPart")
    assert "Answer in verse." in shown
    assert "Review the parser!" in shown
    left(opened)


@pytest.mark.contract("agents.chat.writing")
def test_tab_completes_commands_modes_and_files(chat, tmp_path):
    (tmp_path / "a_long_name.txt").write_text("x")
    opened = chat("ok", TERM="xterm")
    opened.settle()
    opened.send("/renam\t")
    opened.expect("/rename")
    opened.send(BACK * 10 + "/mode pl\t\n")
    opened.expect("only tools that change nothing run")
    opened.expect("> ")
    opened.settle()
    opened.send("see @a_lo\t")
    opened.expect("@a_long_name.txt")
    opened.send("\n")
    opened.expect("ok")
    left(opened)


def test_a_pipe_is_one_message(gramercy, tmp_path):
    (tmp_path / "hello.gram").write_text(HELLO)
    (tmp_path / "hello.py").write_text(TOOLS.replace("LEVEL", "safe"))
    (tmp_path / "script.jsonl").write_text('"short: **x**"\n')
    done = gramercy(
        "chat",
        "hello.gram",
        "--tools",
        "hello.py",
        "--journal",
        "memory",
        "-m",
        "Explain this",
        stdin="line one\nline two",
    )
    assert (done.returncode, done.stdout) == (0, "short: **x**\n")


def test_without_a_file_it_is_an_assistant_with_the_tools_of_an_image(gramercy, tmp_path):
    (tmp_path / "script.jsonl").write_text('"I am here."\n')
    words = ("chat", "--image", "python", "--model", "Scripted/script.jsonl", "--journal", "memory")
    assert gramercy(*words, stdin="hello").stdout == "I am here.\n"
    listed = gramercy(*words, stdin="/tools").stdout
    assert {"evaluate-python", "edit_file", "run_tests"} <= {line.split()[0] for line in listed.splitlines()}


def test_without_a_model_the_assistant_says_how_to_get_one(gramercy):
    done = gramercy("chat", "--journal", "memory")
    assert done.returncode == 3
    assert "--model PROVIDER/ID" in done.stderr
