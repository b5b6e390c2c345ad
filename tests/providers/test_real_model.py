"""The embedded model itself: it runs the example agents, keeps to its form, and stops when it is told."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from gramercy import Agent
from gramercy.gram.agents import ModelName
from gramercy.providers.base import CallPart, Message, OfferedTool, Request, StopPart, TextPart
from gramercy.providers.grammar import grammar_of
from gramercy.providers.local import Engine, LocalProvider
from gramercy.workbench.sources import known_tools, load_tools
from tests.providers.real_model import DATA, real_model  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
BOUND = 120
GREETINGS = {
    "Hello, I am Ada": "Ada",
    "Hi! My name is Grace Hopper.": "Grace Hopper",
    "hey, it's Bob": "Bob",
    "Good morning, I'm Linus": "Linus",
    "Please greet Marvin for me": "Marvin",
    "Hello from Zoë": "Zoë",
    "They call me Trinity": "Trinity",
    "Say hello to my friend Alan Turing": "Alan Turing",
    "Hello there, this is Dr. Watson": "Dr. Watson",
    "I am Noor and I would like a greeting": "Noor",
}
FAREWELLS = {
    "Goodbye, says Ada": "Ada",
    "Bye, it was Bob": "Bob",
    "Farewell from Grace": "Grace",
    "I have to go now. Yours, Linus": "Linus",
    "Say goodbye to Marvin": "Marvin",
}


@pytest.fixture(scope="module", name="provider")
def provider_fixture(real_model):  # noqa: F811 - the fixture of that name
    """Return a provider that has the model loaded."""
    provider = LocalProvider(str(real_model))
    yield provider
    asyncio.run(provider.aclose())


def agent_of(stem, path):
    """Return an example agent on the model's own file, and its tools."""
    text = (EXAMPLES / f"{stem}.gram").read_text().replace("Local/SmolLM2-135M-Instruct", f"Local/{path}")
    return Agent.from_gram(text), load_tools(str(EXAMPLES / f"{stem}.py")).library()


def tell(capsys, figures):
    """Write figures where a person sees them, whatever becomes of the test."""
    with capsys.disabled():
        sys.stdout.write(f"\nSmolLM2-135M: {figures}\n")


def asked(provider, *messages, tools=(), **options):
    async def ask():
        request = Request(next(iter(provider._engines)), messages, "", tools, **options)
        return [part async for part in provider.chat(request)]

    return asyncio.run(asyncio.wait_for(ask(), BOUND))


@pytest.mark.contract("agents.local.greets")
def test_the_hello_agent_calls_its_tool_in_nine_of_ten_greetings(provider, real_model, capsys):  # noqa: F811
    """The proof that is asked for: the right name, and here also the right argument and a final answer."""
    agent, tools = agent_of("helloAgent", real_model)
    began, named, greeted, answered = monotonic(), 0, 0, 0
    for message, name in GREETINGS.items():
        response = agent.run(message, tools, provider=provider)
        named += [made.call.name for made in response.calls] == ["sayHello"]
        greeted += [made.result.content for made in response.calls] == [f"Hello, {name}! Nice to meet you."]
        answered += name in response.content
    seconds = (monotonic() - began) / len(GREETINGS)
    tell(
        capsys,
        f"tool {named}/10, argument {greeted}/10, answer {answered}/10, {seconds:.1f} s a greeting",
    )
    assert named >= 9
    assert answered >= 9


def test_the_tool_is_called_in_later_turns_as_well(provider, real_model):  # noqa: F811
    agent, tools = agent_of("helloAgent", real_model)
    first = agent.run("Hello, I am Ada", tools, provider=provider)
    second = agent.run("Hi, my name is Bob", tools, provider=provider, conversation=first)
    assert [made.result.content for made in second.calls] == ["Hello, Bob! Nice to meet you."]


def test_the_hello_goodbye_agent_mostly_chooses_the_right_tool(provider, real_model, capsys):  # noqa: F811
    agent, tools = agent_of("helloGoodbyeAgent", real_model)
    cases = [(message, "sayHello") for message in list(GREETINGS)[:5]]
    cases += [(message, "sayGoodbye") for message in FAREWELLS]
    right = 0
    for message, tool in cases:
        response = agent.run(message, tools, provider=provider)
        right += [made.call.name for made in response.calls] == [tool]
    tell(capsys, f"one of two tools {right}/10")
    assert right >= 7


@pytest.mark.contract("agents.local.command")
def test_the_command_line_answers_without_a_key(real_model, tmp_path):  # noqa: F811
    del real_model
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "gramercy",
            "run",
            str(EXAMPLES / "helloAgent.gram"),
            "Hello, I am Ada",
            "--tools",
            str(EXAMPLES / "helloAgent.py"),
        ],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
        cwd=tmp_path,
        env={**environment, "XDG_DATA_HOME": str(DATA), "NO_COLOR": "1"},
    )
    assert (done.returncode, done.stdout) == (0, "Hello, Ada! Nice to meet you.\n"), done.stderr
    assert 'sayHello {"name":"Ada"}' in done.stderr


def test_a_question_that_needs_no_tool_is_answered_in_text(provider):
    named = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    tool = OfferedTool("sayHello", "Returns a friendly greeting message for the given name", named)
    parts = asked(provider, Message("user", "What is the capital of France?"), tools=(tool,))
    assert "Paris" in "".join(part.text for part in parts if isinstance(part, TextPart))
    assert not [part for part in parts if isinstance(part, CallPart)]


def test_a_limit_of_tokens_cuts_and_says_so(provider):
    parts = asked(provider, Message("user", "Tell me a story."), max_tokens=5)
    assert parts[-1] == StopPart("length")


def test_text_that_is_no_unicode_is_taken(provider):
    assert asked(provider, Message("user", "Hello \ud800 \0!"), max_tokens=3)[-1] == StopPart("length")


def test_a_story_that_nobody_waits_for_ends_at_once(provider):
    async def left():
        parts: Any = provider.chat(
            Request(next(iter(provider._engines)), (Message("user", "Tell me a long story."),))
        )
        async for _ in parts:
            break
        await parts.aclose()

    asyncio.run(asyncio.wait_for(left(), BOUND))
    began = monotonic()
    asked(provider, Message("user", "Hi"), max_tokens=1)
    assert monotonic() - began < 15, "the story of 512 tokens went on"


@pytest.mark.contract("agents.local.port")
def test_the_port_of_the_library_answers_nobody(provider):
    asked(provider, Message("user", "Hi"), max_tokens=1)
    address = next(iter(provider._engines.values()))._server.listening_address
    for path in ("/v1/models", "/slots", "/props", "/v1/chat/completions"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(address + path, timeout=10)
        assert caught.value.code == 401
        caught.value.close()


@pytest.mark.contract("agents.local.grammar")
def test_every_tool_of_ours_has_a_grammar(provider, tmp_path):
    """Of both languages; a schema that the library cannot take would end the run of an agent."""
    tools = known_tools(str(tmp_path)).library().values()
    grammar = grammar_of([OfferedTool(each.name, each.description, each.schema) for each in tools])
    assert len(grammar["anyOf"]) > 18
    engine: Engine = next(iter(provider._engines.values()))

    async def stream():
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20, "json_schema": grammar}
        return [chunk async for chunk in engine.stream(body)]

    chunks = asyncio.run(asyncio.wait_for(stream(), BOUND))
    text = "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk.get("choices", ()))
    assert text.lstrip().startswith("{")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 100, "maxItems": 50},
        {"type": "integer", "minimum": 10**18},
        {"type": "number", "maximum": 2**70},
        {"enum": []},
        {"enum": ['ü\n"', 1, None, {"a": [2**70]}]},
        {"type": "text", "anyOf": []},
        {"type": "object", "properties": {'q"q': {}}, "required": ["missing"]},
        {"type": "string", "pattern": "^a(?!b)", "maxLength": 10**6},
        {"not": {}, "allOf": [{"type": "string"}]},
    ],
    ids=str,
)
def test_odd_schemas_neither_end_a_run_nor_take_all_memory(provider, schema):
    """The first two took 5 GB and half a minute as they are."""
    odd = {"type": "object", "properties": {"odd": schema}, "required": ["odd"]}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    parts = asked(provider, Message("user", "Hi"), tools=(OfferedTool("try", "Tries", odd),), max_tokens=3)
    assert parts[-1] == StopPart("length")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "in KB"


def test_a_model_is_named_by_its_path(real_model):  # noqa: F811
    assert ModelName.parse(f"Local/{real_model}").id == str(real_model)
