"""Three processes: one whose call waits, one at which a person decides, and the journal between them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from gramercy.journal.base import State
from gramercy.journal.opening import open_journal
from gramercy.ui.cli.inbox import code_of, seal_of, waiting_calls

BOUND = 60
# A process whose call waits for a person: an agent, a worker, a server.
WORKER = '''
import json, os, sys
from pathlib import Path
from gramercy import Executor, Registry, tool
from gramercy.journal.opening import open_journal
from gramercy.toolsets.hunks import diff
from gramercy.workbench.control import Control, Desk

def told(arguments):
    path = Path(arguments["path"])
    return diff(path.read_text() if path.exists() else "", arguments["content"], arguments["path"])

@tool(safety_level="dangerous", effect=told, target_state=lambda a: Path(a["path"]).exists())
def write(path: str, content: str) -> str:
    """Write a file."""
    Path(path).write_text(content)
    return f"wrote {path}"

journal = open_journal()
executor = Executor(Registry([write]), journal=journal, approval_wait=60)
control = Control(journal.run_directory, Desk(executor, list, os.getcwd).operations())
print("ready", flush=True)
arguments = {"path": "a.txt", "content": "one\\ntwo\\n"}
result = executor.execute({"id": "1", "name": "write", "arguments": arguments})
print(json.dumps([result.success, result.content]), flush=True)
control.close()
journal.close()
'''


@pytest.fixture
def journal(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    opened = open_journal()
    yield opened
    opened.close()


@pytest.fixture
def worker(tmp_path, journal, until):
    """Start a process whose call waits; return it when the question is in the journal."""
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stdout is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        until(lambda: waiting_calls(journal))
        yield process
        process.kill()


def answer(worker):
    return json.loads(worker.stdout.readline())


def current(journal):
    [record] = waiting_calls(journal)
    return record


def code(journal):
    return code_of(seal_of(current(journal)))


@pytest.mark.contract("journal.desk.elsewhere")
def test_a_call_runs_as_soon_as_it_is_approved_in_another_process(gramercy, journal, worker, tmp_path):
    done = gramercy("approvals", "approve", "1", "--seal", code(journal), "--reason", "fine")
    assert answer(worker) == [True, "[The person who approved it says: fine]\nwrote a.txt"]
    assert done.stdout == "call 1 is approved and has run\n"
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"
    # Decided and run before the poll of a second could have found it.
    moves = {entry.state: entry.at for entry in journal.entries(1)}
    assert moves[State.EXECUTING] - moves[State.READY] < 0.9


def test_a_call_that_is_denied_in_another_process_is_not_run(gramercy, journal, worker, tmp_path):
    assert gramercy("approvals", "deny", "1", "--reason", "not this one").returncode == 0
    success, content = answer(worker)
    assert not success
    assert content.startswith("User denied tool execution: not this one")
    assert not (tmp_path / "a.txt").exists()
    assert journal.record(1).state is State.DENIED


@pytest.mark.contract("journal.desk.edit")
def test_an_edited_call_waits_again_with_what_it_would_do_now(gramercy, journal, worker, tmp_path):
    words = ["--arguments", '{"path": "a.txt", "content": "three\\n"}', "--seal", code(journal)]
    done = gramercy("approvals", "edit", "1", *words)
    assert done.stdout == "call 1 waits again (the arguments were edited): gramercy approvals show 1\n"
    assert "| +three" in current(journal).facts.question.text
    assert not (tmp_path / "a.txt").exists()
    assert gramercy("approvals", "approve", "1", "--seal", code(journal)).returncode == 0
    assert answer(worker)[0]
    assert (tmp_path / "a.txt").read_text() == "three\n"


@pytest.mark.contract("journal.desk.edit")
def test_a_person_edits_a_call_in_their_editor_and_sees_what_it_would_do(terminal, journal, worker, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/two/deux/ "$1"\n')
    editor.chmod(0o755)
    screen = terminal("approvals", "edit", "1", EDITOR=str(editor), VISUAL="")
    screen.expect("Asked again: the arguments were edited")
    screen.expect("| +deux")
    screen.expect("[a/d/e]: ")
    screen.send("a\n")
    screen.expect("call 1 is approved and has run")
    assert screen.end() == 0
    assert answer(worker)[0]
    assert (tmp_path / "a.txt").read_text() == "one\ndeux\n"
    assert journal.record(1).state is State.DONE


@pytest.mark.contract("journal.desk.drift")
def test_what_has_changed_since_it_was_shown_is_asked_again(gramercy, journal, worker, tmp_path):
    shown = code(journal)
    (tmp_path / "a.txt").write_text("somebody else\n")
    done = gramercy("approvals", "approve", "1", "--seal", shown)
    assert done.stdout.startswith("call 1 waits again (what the call acts on has changed): ")
    assert (tmp_path / "a.txt").read_text() == "somebody else\n"
    assert "-somebody else" in current(journal).facts.question.text
    assert gramercy("approvals", "approve", "1", "--seal", shown).returncode == 1
    gramercy("approvals", "approve", "1", "--seal", code(journal))
    assert answer(worker)[0]


def test_a_call_whose_process_was_killed_can_still_be_decided(gramercy, journal, worker):
    worker.send_signal(signal.SIGKILL)
    worker.wait(BOUND)
    done = gramercy("approvals", "approve", "1", "--seal", code(journal))
    assert done.stdout == "call 1 is approved; it runs when its caller goes on, or comes back\n"
    assert journal.record(1).state is State.READY
