"""Our tools in the agents of other libraries, with the real packages and models that follow a script.

One set of calls for all three: what works, what is denied and approved, and every way to be wrong.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from gramercy import Approved, Denied, Executor, Policy, Registry, tool
from gramercy.journal.base import State

NEEDED = {"pydantic_ai": "pydantic_ai", "langchain": "langchain_core", "openai_agents": "agents"}


@tool
def say_hello(name: str, config: str = "plain") -> str:
    """Greet somebody."""
    return f"Hello, {name}! ({config})"


@tool(safety_level="dangerous")
async def wipe(disk: str) -> str:
    """Wipe a disk."""
    await asyncio.sleep(0)
    return f"{disk} is gone"


@tool
def fail() -> str:
    """Fail."""
    raise OSError("the disk is full")


# id, tool, arguments as the model writes them.
CALLS = (
    ("c1", "say_hello", '{"name": "Ada", "config": "fancy"}'),
    ("c2", "wipe", '{"disk": "sda"}'),
    ("c3", "wipe", '{"disk": "sdb"}'),
    ("c4", "fail", "{}"),
    ("c5", "say_hello", '{"nam": "Ada"}'),
)
HALF = ("c6", "say_hello", '{"name": "Ad')


@dataclass
class Heard:
    """What came back for a call: its text, and whether it is marked as failed (None where nothing is)."""

    texts: dict[str, str] = field(default_factory=dict)
    failed: dict[str, bool | None] = field(default_factory=dict)

    def take(self, call_id: str, text: str, *, failed: bool | None) -> None:
        self.texts[call_id], self.failed[call_id] = text, failed


def run_pydantic_ai(executor: Executor, calls: Any) -> Heard:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from gramercy.interop.pydantic_ai import Toolset

    heard = Heard()

    def model(messages: Any, info: Any) -> Any:
        assert {each.name for each in info.function_tools} == {"say_hello", "wipe", "fail"}
        if len(messages) == 1:
            parts = [ToolCallPart(name, text, tool_call_id=call_id) for call_id, name, text in calls]
            return ModelResponse(parts=parts)
        for part in messages[-1].parts:
            heard.take(part.tool_call_id, part.content, failed=part.outcome != "success")
        return ModelResponse(parts=[TextPart("done")])

    agent = Agent(FunctionModel(model), toolsets=[Toolset(executor)])
    assert asyncio.run(agent.run("go")).output == "done"
    return heard


def run_langchain(executor: Executor, calls: Any) -> Heard:
    from langchain_core.messages import AIMessage
    from langchain_core.messages.tool import tool_call
    from langchain_core.utils.function_calling import convert_to_openai_tool

    from gramercy.interop.langchain import structured_tools

    tools = {each.name: each for each in structured_tools(executor)}
    assert "guarded" not in tools["wipe"].model_dump_json()
    schema = convert_to_openai_tool(tools["say_hello"])["function"]["parameters"]
    assert (schema["required"], set(schema["properties"])) == (["name"], {"name", "config"})
    asked = [tool_call(name=name, args=json.loads(text), id=call_id) for call_id, name, text in calls]
    heard = Heard()
    for number, call in enumerate(AIMessage("", tool_calls=asked).tool_calls):
        chosen = tools[call["name"]]
        told = asyncio.run(chosen.ainvoke(call)) if number % 2 else chosen.invoke(call)
        heard.take(told.tool_call_id, told.content, failed=told.status == "error")
        assert (told.artifact is None) is (told.status == "error")
    return heard


def run_openai_agents(executor: Executor, calls: Any) -> Heard:
    from agents import Agent, ModelResponse, RunConfig, Runner, Usage
    from agents.models.interface import Model
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    from gramercy.interop.openai_agents import function_tools

    heard = Heard()

    class Scripted(Model):  # type: ignore[misc]
        async def get_response(self, **asked_with: Any) -> Any:
            given = [each for each in asked_with["input"] if isinstance(each, dict)]
            outputs = [each for each in given if each.get("type") == "function_call_output"]
            for each in outputs:
                heard.take(each["call_id"], each["output"], failed=None)
            text = ResponseOutputText(annotations=[], text="done", type="output_text")
            said = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
            asked = [
                ResponseFunctionToolCall(call_id=call_id, name=name, arguments=words, type="function_call")
                for call_id, name, words in calls
            ]
            return ModelResponse(output=[said] if outputs else asked, usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    agent = Agent(name="a", model=Scripted(), tools=function_tools(executor))
    quiet = RunConfig(tracing_disabled=True)
    assert asyncio.run(Runner.run(agent, "go", run_config=quiet)).final_output == "done"
    return heard


RUNNERS = {
    "pydantic_ai": run_pydantic_ai,
    "langchain": run_langchain,
    "openai_agents": run_openai_agents,
}
libraries = pytest.mark.parametrize("library", RUNNERS)


@pytest.fixture
def executor():
    def decide(_tool, arguments):
        return Approved(by="Ada") if arguments["disk"] == "sdb" else Denied("keep it", by="Ada")

    return Executor(Registry([say_hello, wipe, fail]), decide)


def run(library: str, executor: Executor, calls: Any = CALLS) -> Heard:
    pytest.importorskip(NEEDED[library], reason=f"{library} is not installed")
    return RUNNERS[library](executor, calls)


@libraries
@pytest.mark.contract("agents.interop.library-results")
@pytest.mark.slow
def test_every_call_has_a_result_that_the_model_reads(library, executor):
    """Agents: everything wrong with a call is a result; the run goes on to its answer."""
    heard = run(library, executor)
    assert heard.texts["c1"] == "Hello, Ada! (fancy)"
    assert "keep it" in heard.texts["c2"]
    assert heard.texts["c3"].endswith("sdb is gone")
    assert "Tool error: the disk is full" in heard.texts["c4"].splitlines()
    assert 'it is required, but "nam" was given' in heard.texts["c5"]
    marked = {"c1": False, "c2": True, "c3": False, "c4": True, "c5": True}
    assert heard.failed in (marked, dict.fromkeys(marked))


@libraries
@pytest.mark.contract("agents.interop.library-guard")
def test_calls_go_through_the_guard_into_the_journal(library, executor):
    """Agents: their users get the guard: approvals, journal, who called."""
    run(library, executor)
    records = {each.call.call_id: each for each in executor.journal.records()}
    states = {call_id: each.state for call_id, each in records.items()}
    # What does not fit the schema never becomes a call.
    assert states == {
        "c1": State.DONE,
        "c2": State.DENIED,
        "c3": State.DONE,
        "c4": State.FAILED,
    }
    assert {each.call.client for each in records.values()} == {library.replace("_", "-")}


@libraries
def test_rules_decide_as_everywhere(library):
    rules = Policy([{"action": "deny", "tools": ["say_*"], "reason": "nobody greets"}])
    executor = Executor(Registry([say_hello, wipe, fail]), policy=rules)
    heard = run(library, executor, CALLS[:2])
    assert "nobody greets" in heard.texts["c1"]
    assert "nobody can be asked" in heard.texts["c2"]


@pytest.mark.parametrize("library", ["pydantic_ai", "openai_agents"])
def test_half_a_call_is_explained(library, executor):
    """LangChain itself sorts such calls out, as invalid_tool_calls of the message."""
    heard = run(library, executor, [*CALLS[:1], HALF])
    assert "expected a JSON object, received text that stops being JSON" in heard.texts["c6"]


@libraries
def test_tools_above_the_ceiling_are_not_offered(library):
    pytest.importorskip(NEEDED[library], reason=f"{library} is not installed")
    executor = Executor(Registry([say_hello, wipe]), max_safety_level="safe")
    module = importlib.import_module(f"gramercy.interop.{library}")
    if library == "pydantic_ai":
        names = list(asyncio.run(module.Toolset(executor).get_tools(None)))
    else:
        make = module.structured_tools if library == "langchain" else module.function_tools
        names = [each.name for each in make(executor)]
    assert names == ["say_hello"]


@libraries
@pytest.mark.contract("agents.interop.library-lazy")
def test_without_the_package_it_is_said_how_to_get_it(library):
    program = (
        "import sys\n"
        f"sys.modules[{NEEDED[library]!r}] = None\n"
        "import gramercy.interop.guarding\n"
        f"import gramercy.interop.{library}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: this needs ")
    assert f"pip install 'gramercy[{library.replace('_', '-')}]'" in last
