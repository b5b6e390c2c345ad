"""What a client brings back to a server that was started again: signed names, answers to open questions."""

from __future__ import annotations

import asyncio
import stat
import threading

import pytest

from gramercy import tool
from gramercy.mcp.jsonrpc import MODERN
from gramercy.mcp.signing import FILE, KEY_BYTES, Signer, kept_key
from gramercy.mcp.tasks import TaskName

LEGACY = "2025-11-25"


def test_a_signed_name_is_read_for_its_purpose_and_owner_only():
    """mcp.md, checklist 4: what a client brings back is signed."""
    signer = Signer(b"k" * KEY_BYTES)
    signed = signer.signed("task", "a.b", "alice")
    assert signer.read("task", signed, "alice") == "a.b"
    assert Signer(b"k" * KEY_BYTES).read("task", signed, "alice") == "a.b"
    assert signer.read("parked", signed, "alice") is None
    assert signer.read("task", signed, "bob") is None
    assert signer.read("task", signed.replace("a.b", "a.c"), "alice") is None
    assert Signer(b"q" * KEY_BYTES).read("task", signed, "alice") is None


def test_the_key_is_made_once_and_private(tmp_path):
    """The key of the signatures outlives the process."""
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    found: list[bytes | None] = []
    threads = [threading.Thread(target=lambda: found.append(kept_key(environment))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found[0] or b"") == KEY_BYTES
    file = tmp_path / "gramercy" / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == [FILE]


@pytest.mark.parametrize("fault", ["readable by others", "too short", "too long"])
def test_a_key_that_others_may_know_is_replaced(tmp_path, fault):
    """Names that were signed with it count no longer."""
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    before = kept_key(environment)
    file = tmp_path / "gramercy" / FILE
    if fault == "readable by others":
        file.chmod(0o644)
    else:
        file.write_bytes(b"x" * (KEY_BYTES + (1 if fault == "too long" else -1)))
    after = kept_key(environment)
    assert after is not None
    assert after != before
    assert after == kept_key(environment)


def test_without_a_place_for_it_there_is_no_kept_key(tmp_path):
    """A server starts nevertheless; then nobody can come back."""
    (tmp_path / "gramercy").write_text("in the way")
    assert kept_key({"XDG_STATE_HOME": str(tmp_path)}) is None


def test_the_id_of_a_task_tells_its_call_to_its_owner_until_it_expires():
    """Tasks outlive the process by what their ids say."""
    signer = Signer(b"k" * KEY_BYTES)
    name = TaskName.made(signer, "alice", "0f" * 16, 60_000)
    assert TaskName.read(signer, "alice", name.id) == name
    assert name.identity == "0f" * 16
    assert TaskName.read(signer, "bob", name.id) is None
    expired = TaskName.made(signer, "alice", "0f" * 16, 0)
    assert TaskName.read(signer, "alice", expired.id) is None


@tool(safety_level="dangerous")
def wipe(path: str) -> str:
    """Wipe a file."""
    return f"wiped {path}"


def test_a_question_that_is_decided_elsewhere_is_withdrawn_at_the_client(serve, desk):
    """MCP specification, Cancellation: the server calls off a request of its own."""

    async def main():
        client = desk(serve(wipe), LEGACY, {"elicitation": {}})
        answer = client.begin("tools/call", {"name": "wipe", "arguments": {"path": "a"}}, id=1)
        async with asyncio.timeout(5):
            while not client.sent:  # noqa: ASYNC110 - a desk has no event
                await asyncio.sleep(0)
        ((question,),) = [[found for found in client.sent if "id" in found]]
        client.tell("notifications/cancelled", {"requestId": 1})
        assert await answer is None
        await asyncio.sleep(0)
        return question["id"], client.sent[-1]

    name, last = asyncio.run(main())
    assert last["method"] == "notifications/cancelled"
    assert last["params"]["requestId"] == name


def test_an_answered_question_is_not_withdrawn(serve, desk, text_of):
    """Only what nobody waits for any more."""

    async def main():
        client = desk(serve(wipe), LEGACY, {"elicitation": {}})
        client.answers["elicitation/create"] = {"action": "accept", "content": {"decision": "approve"}}
        said = text_of(await client.call("wipe", {"path": "a"}))
        await asyncio.sleep(0)
        return said, [found["method"] for found in client.sent]

    assert asyncio.run(main()) == ("wiped a", ["elicitation/create"])


def test_a_state_of_another_process_is_refused_where_nothing_outlives_it(serve, desk):
    """With a journal in memory there is nothing to come back to."""

    async def main():
        first = desk(serve(wipe), MODERN, {"elicitation": {}})
        asked = await first.call("wipe", {"path": "a"})
        second = desk(serve(wipe), MODERN, {"elicitation": {}})
        refused = await second.call(
            "wipe", {"path": "a"}, inputResponses={}, requestState=asked["requestState"]
        )
        first.engine.shutdown()
        await asyncio.sleep(0)
        return refused["error"]["code"]

    assert asyncio.run(main()) == -32602
