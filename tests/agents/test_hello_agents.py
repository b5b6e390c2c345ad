"""The example agents run with the tools that stand beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gramercy import Agent
from gramercy.gram.lint.linter import lint
from gramercy.providers.scripted import ScriptedProvider
from gramercy.workbench.sources import load_tools

EXAMPLES = Path(__file__).parents[2] / "examples"


def hello(stem, *calls):
    agent = Agent.load(EXAMPLES / f"{stem}.gram")
    tools = load_tools(str(EXAMPLES / f"{stem}.py")).library()
    model = ScriptedProvider(*({"name": name, "arguments": arguments} for name, arguments in calls), "done")
    return agent, agent.run("Hello, I am Ada", tools, provider=model)


def results(response):
    return [made.result.content for made in response.calls]


def test_the_hello_agent_greets_with_its_tool():
    """The seed's example: seed 004, "Tool Implementation Creation"."""
    agent, response = hello("helloAgent", ("sayHello", {"name": "Ada"}))
    assert results(response) == ["Hello, Ada! Nice to meet you."]
    assert agent.specification.tools[0].label == "ToolSpecification"


def test_the_hello_goodbye_agent_uses_two_tools_in_the_later_form():
    agent, response = hello("helloGoodbyeAgent", ("sayHello", {"personName": "Ada"}), ("sayGoodbye", {}))
    assert results(response) == ["Hello, Ada! Nice to meet you.", "Goodbye, world! See you soon."]
    assert [each.label for each in agent.specification.tools] == ["Tool", "Tool"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("hello*.gram")), ids=lambda path: path.stem)
def test_nothing_is_wrong_with_the_example_files(path):
    found = lint(path.read_text())
    assert {each.code for each in found} <= {"A111"}, "only the seed's names, which are not snake_case"


def test_both_examples_name_the_embedded_model():
    models = {str(Agent.load(path).model) for path in EXAMPLES.glob("hello*.gram")}
    assert models == {"Local/SmolLM2-135M-Instruct"}
