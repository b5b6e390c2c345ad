"""What can be seen of agents: lines, a file of objects, sums, and spans beside those of tools."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import subprocess
import sys

import msgspec
import pytest

from gramercy import Agent, Executor, Registry, setup_observability, tool
from gramercy.agents import watching
from gramercy.errors import InvalidSettingError, ProviderError
from gramercy.providers.base import Usage
from gramercy.providers.scripted import ScriptedProvider

SECRET = "sk-abcdefghijklmnopqrstuvwxyz"


@tool
def say_hello(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


# Not safe, so that it runs after the call before it and not beside.
@tool(safety_level="cautious")
def fail(text: str) -> str:
    """Fail."""
    raise OSError(f"the disk is full, token={text}")


@tool(safety_level="dangerous")
def wipe(disk: str) -> str:
    """Wipe a disk."""
    return f"{disk} is gone"


HELPER = Agent("helper", "Help.", "OpenAI/gpt-x", [say_hello])
AGENT = Agent("greeter", "Greet.", "Anthropic/claude-x", [say_hello, fail, wipe], [HELPER])


def script() -> ScriptedProvider:
    """Return a model that calls everything once: what works, fails, is denied, is not there, and an agent."""
    calls = [
        {"name": "say_hello", "arguments": {"name": "Ada"}},
        {"name": "fail", "arguments": {"text": SECRET}},
        {"name": "wipe", "arguments": {"disk": "sda"}},
        {"name": "nothing"},
    ]
    asked = {"name": "helper", "arguments": {"message": "hi"}}
    return ScriptedProvider(calls, asked, "I help", "done", usage=Usage(100, 20, 10))


@pytest.fixture(name="observed")
def observed_program(tmp_path):
    with setup_observability(level=None, file=tmp_path / "seen.jsonl") as made:
        yield made


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.usefixtures("observed")
@pytest.mark.contract("agents.interop.observe-file")
def test_requests_models_tools_and_tokens_go_to_a_file(tmp_path):
    """Agents: setup_observability(level=…, file=…) in one call; requests, models, tools, tokens, cost."""
    AGENT.run("hi", provider=script())
    file = tmp_path / "seen.jsonl"
    found = lines_of(file)
    assert [(each["event"], each.get("tool", each.get("agent"))) for each in found] == [
        ("model", "greeter"),
        ("call", "say_hello"),
        ("call", "fail"),
        ("call", "wipe"),
        ("call", ""),
        ("model", "greeter"),
        ("model", "helper"),
        ("run", "helper"),
        ("call", "helper"),
        ("model", "greeter"),
        ("run", "greeter"),
    ]
    assert [each["outcome"] for each in found if each["event"] == "call"] == [
        "done",
        "failed",
        "denied",
        "refused",
        "done",
    ]
    asked, run = found[0], found[-1]
    assert (asked["model"], asked["stop"], asked["calls"]) == ("Anthropic/claude-x", "calls", 4)
    assert 0 < asked["first_seconds"] <= asked["seconds"]
    assert asked["usage"] == {"input": 100, "output": 20, "cached": 10}
    assert run["turns"] == 3
    assert run["usage"]["input"] == 400, "the nested agent's too"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.usefixtures("observed")
@pytest.mark.contract("agents.interop.observe-contents")
def test_nothing_that_was_said_is_told_and_no_secret(tmp_path, caplog):
    """Keys are never in logs; what was said is in the journal, which has its own rules."""
    AGENT.run("my message", provider=script())
    failing = ScriptedProvider(ProviderError(f"401: the api key {SECRET} is wrong"))
    with pytest.raises(ProviderError):
        AGENT.run("my message", provider=failing)
    text = (tmp_path / "seen.jsonl").read_text() + caplog.text
    for said in (SECRET, "my message", "Hello, Ada", "I help", "sda"):
        assert said not in text
    last = lines_of(tmp_path / "seen.jsonl")[-1]
    assert (last["event"], last["level"], last["error"]) == (
        "run",
        "ERROR",
        "401: the api key … is wrong",
    )


@pytest.mark.contract("agents.interop.observe-summary")
def test_the_summary_adds_up(observed):
    AGENT.run("hi", provider=script())
    with pytest.raises(ProviderError):
        AGENT.run("hi", provider=ScriptedProvider(ProviderError("busy")))
    figures = observed.figures()
    assert (figures.runs, figures.failed_runs) == (3, 1)
    model = figures.models["Anthropic/claude-x"]
    assert (model.questions, model.failed, model.usage) == (4, 1, Usage(300, 60, 30))
    assert figures.models["OpenAI/gpt-x"].questions == 1
    tools = {name: (each.calls, each.failed, each.denied) for name, each in figures.tools.items()}
    assert tools == {"fail": (1, 1, 0), "helper": (1, 0, 0), "say_hello": (1, 0, 0), "wipe": (1, 0, 1)}
    summary = observed.summary()
    assert summary.startswith("3 runs of agents, 1 of them failed\n\nmodel ")
    assert "Anthropic/claude-x          4       1  300   60" in summary
    assert "\nwipe " in summary


def test_the_cost_of_a_model_is_unknown_when_one_answer_has_none(observed):
    answered = watching.ModelAnswered("a", 0, "X/y", usage=Usage(1, 1), cost=0.25)
    for cost in (0.25, 0.5):
        watching.observers[-1](msgspec.structs.replace(answered, cost=cost))
    assert observed.figures().models["X/y"].cost == 0.75
    assert "$0.7500" in observed.summary()
    watching.observers[-1](msgspec.structs.replace(answered, cost=None))
    assert observed.figures().models["X/y"].cost is None
    assert "N/A" in observed.summary()


@pytest.mark.contract("agents.interop.observe-everywhere")
def test_executors_of_before_and_after_are_observed_until_it_is_closed():
    """Seed 002, Observability Hooks: one function populates the hooks."""
    before = Executor(Registry([say_hello, wipe]))
    call = {"id": "1", "name": "say_hello", "arguments": {"name": "Ada"}}
    assert before.hooks == []
    with setup_observability(level=None) as seen:
        after = Executor(Registry([say_hello]))
        derived = before.with_tools(Registry([say_hello])).with_approver(lambda *_: "approved")
        for executor in (before, after, derived):
            executor.execute(call)
            asyncio.run(executor.aexecute(call))
        before.execute({"id": "2", "name": "wipe", "arguments": {"disk": "sda"}})
        assert seen.figures().tools["say_hello"].calls == 6
        assert seen.figures().tools["wipe"].denied_by == {"nobody": 1}
    for executor in (before, after, derived):
        assert executor.hooks == [], "what nobody observes costs nothing"
        executor.execute(call)
    assert seen.figures().tools["say_hello"].calls == 6
    assert watching.observers == []


def test_a_second_call_takes_the_place_of_the_first(tmp_path):
    first = setup_observability(level=None, file=tmp_path / "first.jsonl")
    with setup_observability(level=None, file=tmp_path / "second.jsonl") as second:
        AGENT.run("hi", provider=ScriptedProvider("done"))
    assert (first.figures().runs, second.figures().runs) == (0, 1)
    assert (tmp_path / "first.jsonl").read_text() == ""
    assert len(lines_of(tmp_path / "second.jsonl")) == 2


def test_a_program_with_handlers_of_its_own_gets_the_lines_there(caplog):
    with setup_observability(level="WARNING"):
        AGENT.run("hi", provider=script())
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    assert caplog.messages[1].startswith("tool wipe denied: wipe was not run: it needs approval")
    assert caplog.messages[1].endswith("(for agent greeter)")


def test_of_errors_only_the_runs_that_failed_are_told(caplog):
    async def stop() -> None:
        asked = asyncio.Event()

        async def never(_request):
            asked.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(AGENT.arun("hi", provider=ScriptedProvider(never)))
        await asyncio.wait_for(asked.wait(), 60)
        task.cancel()
        await asyncio.wait({task}, timeout=60)

    with setup_observability(level="ERROR") as seen:
        AGENT.run("hi", provider=script())
        asyncio.run(stop())
        with pytest.raises(ProviderError):
            AGENT.run("hi", provider=ScriptedProvider(ProviderError("busy")))
    assert seen.figures().failed_runs == 2
    assert [message.partition(" (")[0] for message in caplog.messages] == ["agent greeter failed: busy"]


def test_lines_go_to_standard_error_where_nothing_else_is_set_up(tmp_path):
    program = (
        "from gramercy import Agent, setup_observability\n"
        "from gramercy.providers.base import Usage\n"
        "from gramercy.providers.scripted import ScriptedProvider\n"
        "setup_observability()\n"
        "Agent('a', 'Help.', 'X/y').run('hi', provider=ScriptedProvider('done', usage=Usage(1200, 3)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path
    )
    first, second = done.stderr.splitlines()
    assert "INFO model X/y answered in 0.0 s: 1,200 tokens in, 3 out, cost N/A (for agent a)" in first
    assert "INFO agent a is done (1 turn in 0.0 s, 1,203 tokens, cost N/A)" in second
    assert done.stdout == ""


@pytest.mark.contract("agents.interop.observe-shell")
def test_a_variable_has_commands_write_the_file(tmp_path):
    (tmp_path / "a.gram").write_text('[a:Agent {instruction: "Help.", model: "Scripted/a.json"}]')
    (tmp_path / "a.json").write_text('["done"]')
    for file, code in (("seen.jsonl", 0), ("missing/seen.jsonl", 1)):
        done = subprocess.run(
            [sys.executable, "-m", "gramercy", "run", "a.gram", "hi"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "GRAMERCY_OBSERVE": file},
        )
        assert done.returncode == code, done.stderr
    assert [each["event"] for each in lines_of(tmp_path / "seen.jsonl")] == ["model", "run"]
    assert "missing/seen.jsonl cannot be written: No such file or directory" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"level": "LOUD"}, "'LOUD' is no level of observability: DEBUG, INFO, WARNING, ERROR or None"),
        ({"file": "missing/directory.jsonl"}, "missing/directory.jsonl cannot be written: No such file"),
        ({"file": os.sep}, "cannot be written: Is a directory"),
    ],
)
def test_what_cannot_be_set_up_is_explained(options, said):
    with pytest.raises(InvalidSettingError, match=said):
        setup_observability(**options)
    assert watching.observers == []


def test_an_observer_that_fails_changes_nothing(caplog):
    def broken(_observation):
        raise ValueError("broken")

    watching.observers.append(broken)
    try:
        assert AGENT.run("hi", provider=ScriptedProvider("done")).content == "done"
    finally:
        watching.observers.remove(broken)
    assert "an observer of agents failed: broken (ValueError)" in caplog.messages


SPANS = """
import asyncio, json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from gramercy import Agent, tool
from gramercy.errors import ProviderError
from gramercy.providers.base import Usage
from gramercy.providers.scripted import ScriptedProvider

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

@tool
def say_hello(name: str) -> str:
    "Greet somebody."
    return f"SECRET {name}"

helper = Agent("helper", "Help.", "OpenAI/gpt-x")
agent = Agent("greeter", "Greet.", "Mistral/large", [say_hello], [helper])
calls = [{"name": "say_hello", "arguments": {"name": "SECRET"}}]
nested = {"name": "helper", "arguments": {"message": "SECRET"}}
model = ScriptedProvider(calls, nested, "SECRET", "SECRET", usage=Usage(10, 2, 5))

async def main():
    async for event in agent.stream("SECRET", provider=model):
        assert not trace.get_current_span().is_recording(), "no span leaks to who reads the events"
    try:
        await agent.arun("SECRET", provider=ScriptedProvider(ProviderError("SECRET")))
    except ProviderError:
        pass

asyncio.run(main())
print(json.dumps([json.loads(span.to_json()) for span in exporter.get_finished_spans()]))
"""


@pytest.mark.contract("agents.interop.observe-spans")
def test_runs_and_questions_are_spans_around_those_of_tools():
    """OpenTelemetry's conventions for generative AI: invoke_agent, chat and execute_tool."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SPANS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "SECRET" not in done.stdout
    spans = json.loads(done.stdout)
    names = {span["context"]["span_id"]: span["name"] for span in spans}
    tree = [(span["name"], names.get(span["parent_id"])) for span in spans]
    assert tree == [
        ("chat large", "invoke_agent greeter"),
        ("execute_tool say_hello", "invoke_agent greeter"),
        ("chat large", "invoke_agent greeter"),
        ("chat gpt-x", "invoke_agent helper"),
        ("invoke_agent helper", "execute_tool helper"),
        ("execute_tool helper", "invoke_agent greeter"),
        ("chat large", "invoke_agent greeter"),
        ("invoke_agent greeter", None),
        ("chat large", "invoke_agent greeter"),
        ("invoke_agent greeter", None),
    ]
    assert spans[0]["kind"] == "SpanKind.CLIENT"
    first = spans[0]["attributes"].pop("gen_ai.response.time_to_first_chunk")
    assert 0 < first < 60
    assert spans[0]["attributes"] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mistral_ai",
        "gen_ai.request.model": "large",
        "gen_ai.agent.name": "greeter",
        "gen_ai.response.finish_reasons": ["calls"],
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 5,
    }
    run = spans[7]["attributes"]
    assert (run["gen_ai.operation.name"], run["gen_ai.agent.name"]) == ("invoke_agent", "greeter")
    assert run["gen_ai.usage.input_tokens"] == 40
    assert [span["status"]["status_code"] for span in spans[7:]] == ["UNSET", "ERROR", "ERROR"]
    assert spans[-1]["attributes"]["error.type"] == "ProviderError"
