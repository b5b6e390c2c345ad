"""`gramercy run` that was killed in the middle of a dangerous call goes on, as a person would have it."""

import os
import signal
import subprocess
import sys

import pytest

AGENT = """
[payer:Agent {instruction: "Pay.", model: "Scripted/script.jsonl"} |
  [pay:ToolSpecification {description: "Pays."} | (::Text {paramName:"who"})==>(::String)]
]
"""
# The first payment pulls the plug.
TOOLS = '''
import os
import pathlib
import signal

from gramercy import tool


@tool(safety_level="dangerous")
def pay(who: str) -> str:
    """Pays."""
    ledger = pathlib.Path("ledger")
    is_first = not ledger.exists()
    with ledger.open("a") as file:
        file.write(f"{who}\\n")
    if is_first:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {who}"
'''
RULES = """
[[rules]]
action = "allow"
tools = ["pay"]
"""
CALL = '{"name": "pay", "arguments": {"who": "ann"}}\n'


@pytest.mark.contract("agents.memory.kill")
def test_a_killed_run_is_continued_and_pays_once(tmp_path):
    """Agents, proof: resume continues the conversation without repeating a dangerous call."""
    project = tmp_path / "project"
    project.mkdir()
    for name, text in (("pay.gram", AGENT), ("pay.py", TOOLS), ("rules.toml", RULES)):
        (project / name).write_text(text)

    def gramercy(*words, script=""):
        (project / "script.jsonl").write_text(script)
        return subprocess.run(
            [sys.executable, "-m", "gramercy", *words],
            cwd=project,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    run = ("run", "pay.gram", "--tools", "pay.py", "--policy", "rules.toml")
    assert gramercy(*run, "Pay Ann", script=CALL).returncode == -signal.SIGKILL
    # Without a message the run goes on where it was; the model tries again what is in doubt.
    done = gramercy(*run, "--continue", script=f'{CALL}"I leave it."')
    assert (done.returncode, done.stdout) == (0, "I leave it.\n")
    assert done.stderr.count("nobody knows whether it has taken effect") == 2
    assert (project / "ledger").read_text() == "ann\n"
    # Once a person has looked, it is not paid again; what is asked for anew is.
    resolved = gramercy("approvals", "resolve", "1", "done", "--reason", "it is on the statement")
    assert resolved.returncode == 0
    again = gramercy(*run, "--continue", "And?", "Pay her once more", script=f'{CALL}"Done."\n{CALL}"Twice."')
    assert again.stdout.split() == ["Done.", "Twice."]
    assert (project / "ledger").read_text() == "ann\nann\n"
