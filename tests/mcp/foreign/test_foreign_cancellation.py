"""A caller who leaves, or a deadline, stops the work at the other server: both transports, both eras."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from gramercy import Executor, Registry
from gramercy.mcp.foreign import connect_server, register_foreign

SLOW = """
import asyncio
from pathlib import Path
from gramercy import tool

@tool
async def slow(path: str) -> str:
    "Take long."
    trace = Path(path)
    trace.write_text("called\\n")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        trace.write_text("called\\ncancelled\\n")
        raise
    return "late"
"""


@pytest.fixture(params=["stdio", "http"])
def slow_place(request, tmp_path):
    """Return how to reach a server with a tool that takes long."""
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    command = [sys.executable, "-m", "gramercy", "serve", "--from", str(tmp_path / "slow.py")]
    if request.param == "stdio":
        yield {"command": command}
        return
    with subprocess.Popen(
        [*command, "--http", "127.0.0.1:0", "--no-auth"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        yield {"url": process.stderr.readline().split()[-1]}
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("leaving", ["caller", "deadline"])
def test_work_that_nobody_waits_for_is_stopped_at_the_other_side(leaving, slow_place, pins, traces, era):
    """MCP server, checklist 9 and 14: cancellation is passed on."""
    timeout = 60.0 if leaving == "caller" else 1.0
    with connect_server(**slow_place, name="slow", era=era, timeout=timeout) as server:
        pins.accept("slow", server.tools())
        registry = Registry()
        register_foreign(registry, server, pins=pins, level="safe")
        call = {"id": "1", "name": "slow__slow", "arguments": {"path": str(traces.path)}}

        async def leave():
            task = asyncio.ensure_future(Executor(registry).aexecute(call))
            if leaving == "deadline":
                return (await task).error
            await asyncio.to_thread(traces.wait_for, "called")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return "the caller has left"

        said = asyncio.run(leave())
        assert said
        assert "left" in said or "did not finish within 1 s" in said
        traces.wait_for("cancelled")
