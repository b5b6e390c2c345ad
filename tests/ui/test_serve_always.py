"""Always allow this, with real servers: the person chooses once, and is not asked again, in no process."""

from __future__ import annotations

import json
import sys
import tomllib

import pytest

from gramercy.testing.clients import StdioClient
from gramercy.workbench.policies import user_policy_file
from tests.support import until

SERVE = (sys.executable, "-m", "gramercy", "serve", "--from", "dig.py")
DIG = '''
from gramercy import tool


@tool(safety_level="dangerous")
def dig(path: str) -> str:
    """Dig a hole."""
    return f"dug {path}"
'''


class Person:
    """A client whose person answers each question with what comes next."""

    def __init__(self, project, *answers):
        self.raw = StdioClient(*SERVE, cwd=project)
        self.raw.initialize("2025-11-25", elicitation={})
        self.answers = list(answers)
        self.asked = []

    def call(self, path):
        number = self.raw.begin("tools/call", name="dig", arguments={"path": path})
        while (message := self.raw.message()).get("id") != number:
            if message.get("method") == "elicitation/create":
                self.asked.append(message["params"])
                content = {"action": "accept", "content": self.answers.pop(0)}
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": content}
                self.raw.send(json.dumps(answer).encode() + b"\n")
        return message["result"]["content"][0]["text"]


@pytest.fixture(name="people")
def people_fixture(tmp_path, monkeypatch):
    """Start servers in one project, with a journal and rules of their own; all are ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("GRAMERCY_JOURNAL", raising=False)
    project = tmp_path / "garden"
    project.mkdir()
    (project / "dig.py").write_text(DIG)
    opened = []

    def start(*answers):
        opened.append(Person(project, *answers))
        return opened[-1]

    yield start
    for person in opened:
        person.raw.close()


@pytest.mark.contract("journal.policy.always")
def test_who_always_allows_is_asked_once_and_in_no_process_again(people, tmp_path):
    once, always = {"decision": "approve"}, {"decision": "approve", "always": "this directory"}
    first, second = people(once, always), people({"decision": "deny"})
    assert first.call("bed/1") == "dug bed/1"
    assert "always, by " in first.call("bed/2")
    described = first.asked[1]["requestedSchema"]["properties"]["always"]["description"]
    assert "bed/** (it would have let through 1 of 1 recorded calls: 1 approved by a person)" in described
    assert [first.call("bed/3"), first.asked[2:]] == ["dug bed/3", []]
    until(lambda: "read again" in second.raw.errors())
    assert [second.call("bed/4"), second.asked] == ["dug bed/4", []]
    assert "denied" in second.call("path/1")
    (rule,) = tomllib.loads(user_policy_file().read_text())["projects"][str(tmp_path / "garden")]["rules"]
    assert rule["arguments"] == {"path": "bed/**"}
