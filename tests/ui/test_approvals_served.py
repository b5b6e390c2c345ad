"""A real server, a client that cannot show questions, and a person at another terminal."""

from __future__ import annotations

import pytest

from gramercy.journal.base import State
from gramercy.journal.opening import open_journal
from gramercy.testing.clients import StdioClient
from gramercy.ui.cli.inbox import code_of, seal_of, waiting_calls

LINES = "".join(f"line {number}\n" for number in range(30))
EDITED = LINES.replace("line 2\n", "line two\n").replace("line 20\n", "line twenty\n")


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """Return the user's own journal, which the server uses too; the project is beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    opened = open_journal()
    yield opened
    opened.close()


@pytest.fixture
def project(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    (place / "notes.txt").write_text(LINES)
    return place


@pytest.fixture
def server(journal, project):
    """Serve the project to a client without elicitation."""
    assert journal.run_directory is not None
    words = ("--image", "python", "--toolset", "core", "--toolset", "session", "--approval-wait", "50")
    client = StdioClient.serve(*words, cwd=project)
    client.initialize()
    yield client
    said = client.errors()
    client.close()
    assert "Traceback (" not in said


def propose(server):
    arguments = {"path": "notes.txt", "original": LINES, "modified": EDITED, "description": "words"}
    return server.begin("tools/call", name="propose_file_edit", arguments=arguments)


def waiting(journal, until):
    until(lambda: waiting_calls(journal))
    [record] = waiting_calls(journal)
    return record


def text_of(message):
    return message["result"]["content"][0]["text"]


@pytest.mark.contract("journal.desk.served")
def test_hunks_of_a_call_of_a_client_are_picked_at_another_terminal(
    server, journal, until, terminal, project
):
    number = propose(server)
    key = str(waiting(journal, until).key)
    screen = terminal("approvals", "approve", key)
    screen.expect("asked by ")
    screen.expect("+line two")
    # One line longer than the screen.
    screen.expect("Enter: go on")
    screen.send("\n")
    screen.expect("[a/d/e/h]: ")
    screen.send("h\n")
    screen.expect("hunk 1, line 3")
    screen.expect("[n p a r SPC A K v q ?] ")
    screen.send("r\n")
    screen.expect("hunk 2, line 21")
    screen.expect("[n p a r SPC A K v q ?] ")
    screen.send("a\n")
    screen.expect("[n p a r SPC A K v q ?] ")
    screen.send("q\n")
    screen.expect("reason for the rejected ones: ")
    screen.send("keep it a number\n")
    screen.expect(f"call {key} is approved and has run")
    assert screen.end() == 0
    answer = server.message()
    assert answer["id"] == number
    assert "rejected hunk 1 (keep it a number)" in text_of(answer)
    assert (project / "notes.txt").read_text() == LINES.replace("line 20\n", "line twenty\n")


def test_a_call_of_a_client_is_denied_at_another_terminal(server, journal, until, gramercy, project):
    number = propose(server)
    key = str(waiting(journal, until).key)
    assert gramercy("approvals", "deny", key, "--reason", "not these words").returncode == 0
    answer = server.message()
    assert answer["id"] == number
    assert "User denied tool execution: not these words" in text_of(answer)
    assert (project / "notes.txt").read_text() == LINES
    assert journal.record(int(key)).state is State.DENIED


@pytest.mark.contract("journal.desk.served")
def test_what_runs_in_the_image_of_a_server_is_seen_from_another_terminal(server, gramercy, until, project):
    code = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.01)"
    number = server.begin("tools/call", name="evaluate-python", arguments={"code": code})
    until(lambda: "begun" in gramercy("images", "python").stdout)
    listed = gramercy("images").stdout.splitlines()[1]
    assert listed.split()[1:4] == ["python", "python", "running"]
    assert str(project) in listed
    server.tell("notifications/cancelled", requestId=number)
    until(lambda: "running" not in gramercy("images").stdout)


def test_an_approval_by_code_reaches_a_client_of_another_process(server, journal, until, gramercy, project):
    propose(server)
    record = waiting(journal, until)
    done = gramercy("approvals", "approve", str(record.key), "--seal", code_of(seal_of(record)))
    assert done.stdout == f"call {record.key} is approved and has run\n"
    assert "notes.txt" in text_of(server.message())
    assert (project / "notes.txt").read_text() == EDITED


@pytest.mark.contract("journal.desk.withdrawn")
def test_a_question_at_the_callers_own_terminal_is_withdrawn_when_another_approves(
    terminal, journal, until, gramercy, tmp_path
):
    (tmp_path / "tools.py").write_text(
        "from gramercy import tool\n\n"
        '@tool(safety_level="dangerous")\n'
        'def launch(target: str) -> str:\n    """Do it."""\n    return f"launched at {target}"\n'
    )
    screen = terminal("tools", "call", "launch", "target=moon", "--from", "tools.py")
    screen.expect("[a/d/e]: ")
    record = waiting(journal, until)
    done = gramercy("approvals", "approve", str(record.key), "--seal", code_of(seal_of(record)))
    assert done.returncode == 0
    screen.expect("it was decided elsewhere")
    screen.expect("launched at moon")
    assert screen.end() == 0
