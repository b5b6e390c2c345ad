"""`gramercy acp` as a process: what an editor sees of it on pipes, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from gramercy import Agent
from gramercy.testing.clients import StdioClient, frame
from gramercy.workbench.sources import known_tools
from tests.acp.editors import call, tool
from tests.support import children_of, is_running, until

# An editor that is killed before it has answered a question; it tells the pid of the agent.
EDITOR = """
import json, subprocess, sys
agent = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
session = None
def send(number, method, **params):
    line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    agent.stdin.write(line.encode() + b"\\n"); agent.stdin.flush()
def until(found):
    while True:
        message = json.loads(agent.stdout.readline())
        if found(message):
            return message
send(1, "initialize", protocolVersion=1)
send(2, "session/new", cwd=sys.argv[1], mcpServers=[])
session = until(lambda m: m.get("id") == 2)["result"]["sessionId"]
send(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
until(lambda m: m.get("method") == "session/request_permission")
print(agent.pid, flush=True)
agent.wait()
"""
TOOLS = '''
from pathlib import Path

from gramercy import tool

@tool(safety_level="dangerous")
def erase(text: str) -> str:
    """erase a text"""
    with open(Path(__file__).with_name("erased"), "a") as file:
        file.write(f"{text}\\n")
    return f"erased {text}"
'''


@pytest.fixture
def agent(tmp_path):
    """Return a function that makes an agent with a script, and the command that serves it."""
    away = tmp_path / "away"
    away.mkdir()

    def make(*answers, tools, options=()):
        (away / "script").write_text("".join(f"{json.dumps(each)}\n" for each in answers))
        made = Agent("tester", "Work.", f"Scripted/{away / 'script'}", tools)
        (away / "tester.gram").write_text(made.to_gram())
        (away / "tester.py").write_text(TOOLS)
        named = () if "--image" in options else ("--tools", away / "tester.py")
        words = ["acp", away / "tester.gram", *named, "--journal", away / "journal.db", *options]
        return [sys.executable, "-m", "gramercy", *map(str, words)]

    return make


@pytest.fixture
def project(tmp_path):
    made = tmp_path / "project"
    made.mkdir()
    return made


def evaluation(project):
    """Return the tool that evaluates Python, of which nothing is started here."""
    return known_tools(str(project)).resolve("evaluate-python")


def talk(command, project, *, says="go"):
    """Start an agent, open a session and send a message; return the client and the session."""
    client = StdioClient(*command, cwd=project)
    client.ask("initialize", protocolVersion=1, clientInfo={"name": "probe"})
    session = client.ask("session/new", cwd=str(project), mcpServers=[])["result"]["sessionId"]
    prompt = [{"type": "text", "text": says}]
    return client, session, client.begin("session/prompt", sessionId=session, prompt=prompt)


@pytest.mark.contract("agents.acp.ends")
def test_the_end_of_the_input_ends_the_agent_and_its_image(agent, project):
    """Issue: no orphans; an editor that closes leaves nothing behind."""
    script = [call("evaluate-python", code="1 + 2"), "Three."]
    command = agent(*script, tools=[evaluation(project)], options=["--image", "python"])
    (project.parent / "away" / "tester.py").unlink()
    client, _, number = talk(command, project)
    try:
        until(lambda: client.message().get("id") == number)
        children = children_of(client.process.pid)
        assert children
        _, code = client.hang_up()
        assert code == 0
        until(lambda: not any(map(is_running, children)))
        assert "Traceback" not in client.errors()
    finally:
        client.close()


def test_the_configuration_of_the_project_counts_wherever_the_agent_was_started(agent, project):
    """An editor starts agents where it likes, and names the project with each session."""
    (project / "gramercy.toml").write_text('[env]\nCOLOUR = "mango"\n')
    command = agent(
        call("evaluate-python", code="import os; os.environ['COLOUR']"),
        "Yes.",
        tools=[evaluation(project)],
        options=["--image", "python"],
    )
    (project.parent / "away" / "tester.py").unlink()
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    client = StdioClient(*command, cwd=elsewhere)
    try:
        client.ask("initialize", protocolVersion=1)
        session = client.ask("session/new", cwd=str(project), mcpServers=[])["result"]["sessionId"]
        prompt = [{"type": "text", "text": "which?"}]
        seen = answer_all(client, client.begin("session/prompt", sessionId=session, prompt=prompt))
        assert "mango" in json.dumps(seen)
    finally:
        client.close()


def test_a_cancelled_message_stops_what_an_image_evaluates(agent, project):
    """Issue: cancel; the image is there for the next message."""
    loop, sum_ = call("evaluate-python", code="while True: pass"), call("evaluate-python", code="40 + 2")
    command = agent(loop, sum_, "Yes.", tools=[evaluation(project)], options=["--image", "python"])
    (project.parent / "away" / "tester.py").unlink()
    client, session, number = talk(command, project)
    try:
        until(
            lambda: client.message().get("params", {}).get("update", {}).get("sessionUpdate") == "tool_call"
        )
        until(lambda: len(children_of(client.process.pid)) > 1)
        client.tell("session/cancel", sessionId=session)
        stopped = answer_all(client, number)[-1]
        assert stopped["result"] == {"stopReason": "cancelled"}
        prompt = [{"type": "text", "text": "and?"}]
        seen = answer_all(client, client.begin("session/prompt", sessionId=session, prompt=prompt))
        assert "42" in json.dumps(seen)
    finally:
        client.close()


@pytest.mark.contract("agents.acp.killed")
@pytest.mark.parametrize(("killed", "questions"), [("editor", 1), ("agent", 2)])
def test_nothing_runs_twice_or_unasked_when_an_editor_or_its_agent_is_killed(
    agent, project, killed, questions
):
    """Issue: kill of the client, no orphans; kill -9 of a run, and a dangerous call is never repeated.

    An agent whose editor is gone ends its run in order; one that is killed itself leaves a call open, which
    is asked about first when the conversation goes on. The script begins anew and asks for the same again.
    """
    command = agent(call("erase", text="all"), "Gone.", tools=[tool("erase", "dangerous")])
    with subprocess.Popen(
        [sys.executable, "-c", EDITOR, str(project), *command], stdout=subprocess.PIPE, text=True
    ) as editor:
        assert editor.stdout is not None
        pid = int(editor.stdout.readline())
        os.kill(pid if killed == "agent" else editor.pid, signal.SIGKILL)
    until(lambda: not is_running(pid))
    erased = project.parent / "away" / "erased"
    assert not erased.exists()
    again = StdioClient(*command, cwd=project)
    try:
        again.ask("initialize", protocolVersion=1)
        [listed] = again.ask("session/list")["result"]["sessions"]
        assert listed["title"] == "go"
        session = listed["sessionId"]
        again.ask("session/resume", sessionId=session, cwd=str(project))
        prompt = [{"type": "text", "text": "go on"}]
        seen = answer_all(again, again.begin("session/prompt", sessionId=session, prompt=prompt))
    finally:
        again.close()
    asked = [each["params"]["toolCall"]["title"] for each in seen if "id" in each and "method" in each]
    assert asked == ["erase all"] * questions
    assert erased.read_text() == "all\n" * questions


def answer_all(client, number):
    """Allow whatever is asked until a request is answered; return all that came."""
    seen = []
    while True:
        message = client.message()
        seen.append(message)
        if message.get("id") == number and "method" not in message:
            return seen
        if "id" in message:
            allowed = {"outcome": {"outcome": "selected", "optionId": "once"}}
            client.send(frame({"id": message["id"], "result": allowed}))


def test_what_tools_print_stays_off_the_wire(agent, project):
    """Protocol: nothing but messages on standard output."""
    command = agent("Hello.", tools=[tool("erase", "dangerous")])
    away = project.parent / "away"
    (away / "tester.py").write_text('print("loud")\nimport os\nos.system("echo louder")\n' + TOOLS)
    client, _, number = talk(command, project)
    try:
        until(lambda: client.message().get("id") == number)
        client.hang_up()
        assert "loud" in client.errors()
    finally:
        client.close()


@pytest.mark.parametrize(
    ("text", "told"),
    [("[oops", "1:"), ("", "there is no agent in this text"), ("[a:Agent {instruction: 7}]", "1:")],
)
def test_an_agent_that_cannot_be_read_is_told_at_the_start(tmp_path, text, told):
    """Issue: bad input; one line, exit code 3, with the place of the fault."""
    file = tmp_path / "bad.gram"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "gramercy", "acp", str(file), "--journal", "memory"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_tools_that_do_not_fit_are_told_in_the_editor(agent, project):
    """Issue: binding with all mismatches explained; the editor shows why there is no session."""
    command = agent("Hello.", tools=[tool("erase", "dangerous"), tool("vanish")])
    client = StdioClient(*command, cwd=project)
    try:
        client.ask("initialize", protocolVersion=1)
        answer = client.ask("session/new", cwd=str(project), mcpServers=[])
        assert "vanish" in answer["error"]["message"]
    finally:
        client.close()
