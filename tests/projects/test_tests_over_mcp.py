"""run_tests as a client has it: with progress while it runs, and with a call that is taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.projects.walking import write

SLOW = """
import time


def test_wrong():
    assert 1 == 2


def test_waits():
    time.sleep(1.5)


def test_hangs():
    import os
    while os.path.exists("hang"):
        time.sleep(0.05)
"""
ALONE = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"
PYTEST = str(Path(pytest.__file__).parents[1])


@pytest.mark.contract("day.runs.progress")
def test_a_client_is_told_how_far_the_tests_are_and_can_take_them_back(project, walk):
    """Progress goes on in number, and names the test that runs."""
    write(project, {"test_slow.py": SLOW})
    client = walk("python", project, "--path", PYTEST, "--env", ALONE).client
    call = {"name": "run_tests", "arguments": {}}
    number = client.begin("tools/call", **call, _meta={"progressToken": "t"})
    told = []
    while (message := client.message()).get("id") != number:
        told.append(message["params"])
    assert message["result"]["content"][0]["text"].startswith("1 failed, 2 passed in ")
    assert any(one["message"] == "1 of 3, 1 failed; test_slow.py::test_waits" for one in told)
    numbers = [one["progress"] for one in told]
    assert numbers == sorted(set(numbers))
    write(project, {"hang": ""})
    number = client.begin("tools/call", **call, _meta={"progressToken": "u"})
    while "test_hangs" not in client.message().get("params", {}).get("message", ""):
        pass
    client.tell("notifications/cancelled", requestId=number)
    # It still would hang: one call runs at a time, so this is answered only if the other has ended.
    assert client.call("run_tests", last_failed=True)["content"][0]["text"].startswith("1 failed in ")
