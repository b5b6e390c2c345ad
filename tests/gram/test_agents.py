"""Agents in gram: reading, resolving, writing, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.errors import GramSyntaxError, SpecificationError
from gramercy.gram.agents import AgentSpecification, ModelName, read_agents
from gramercy.gram.specification import create_tool_specification
from gramercy.gram.syntax.reader import read

TWO_TOOLS = """\
[door_agent:Agent {
  description: "Welcomes people and sees them off",
  instruction: ```
  Welcome everybody with `welcome`.
  See everybody off with `farewell`.
  ```,
  model: "OpenAI/gpt-4o-mini"
} |
  [welcome:Tool {
    description: "Welcomes somebody"
  } |
    (personName::String {default:"world"})==>(::String)
  ],
  [farewell:Tool {
    description: "Sees somebody off"
  } |
    (personName::String {default:"world"})==>(::String)
  ]
]"""

SHARED = """\
// Tools that several agents use stand alone.
[search:ToolSpecification {description: "Searches"} | (query::Text)==>(::`[Text]`)]
[writer:Agent {instruction: "Write.", model: "OpenRouter/meta/llama-3"} | search, checker]
[checker:Agent {description: "Checks facts", instruction: "Check.", model: "Ollama/qwen"} | search]
"""


def agent(name: str, *elements: str) -> str:
    inside = f" | {', '.join(elements)}" if elements else ""
    return f'[{name}:Agent {{instruction:"i", model:"A/b"}}{inside}]'


TOOL = '[t:Tool {description:"d"} | (a::Text)==>(::String)]'


def test_an_agent_with_two_tools_is_read():
    """The reference implementation cannot run an agent with two tools in its own command line."""
    (found,) = read_agents(TWO_TOOLS)
    assert found.name == "door_agent"
    assert found.description == "Welcomes people and sees them off"
    assert found.instruction == "  Welcome everybody with `welcome`.\n  See everybody off with `farewell`."
    assert found.model == ModelName("OpenAI", "gpt-4o-mini")
    assert [tool.name for tool in found.tools] == ["welcome", "farewell"]
    assert found.tools[0].schema["properties"] == {"personName": {"type": "string", "default": "world"}}


def test_an_agent_is_written_as_it_was_read():
    """The reference implementation has no serializer for agents."""
    assert read_agents(TWO_TOOLS)[0].to_gram() == TWO_TOOLS


def test_tools_and_agents_are_shared_by_reference():
    """Seed 004, Notes: tool specifications can be shared across multiple agents."""
    writer, checker = read_agents(read(SHARED))
    assert writer.tools == checker.tools
    assert writer.tools[0] is checker.tools[0]
    assert writer.agents == (checker,)
    assert (writer.model.provider, writer.model.id) == ("OpenRouter", "meta/llama-3")
    assert str(writer.model) == "OpenRouter/meta/llama-3"


def test_what_is_written_twice_is_written_as_a_reference():
    """One text cannot define a name twice."""
    writer = read_agents(SHARED)[0]
    assert writer.to_gram().count("[search:") == 1
    assert read_agents(writer.to_gram()) == (writer,)


def test_a_reference_may_lead_into_another_agent():
    """Definitions count wherever they stand."""
    first, second = read_agents(agent("a", TOOL) + agent("b", "t"))
    assert first.tools == second.tools


def test_annotations_do_not_hide_an_agent():
    """Annotated patterns are patterns."""
    assert [found.name for found in read_agents(f'@owner("me") {agent("a")}')] == ["a"]


def test_a_text_without_agents_has_none():
    """Files of tools alone are fine."""
    assert read_agents(TOOL) == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (agent("a", "missing"), "1:43: nothing is named 'missing': define it"),
        (agent("a", "serch") + SHARED, "did you mean 'search'"),
        (agent("a", "a"), "in a circle: a > a"),
        (agent("a", "b") + agent("b", "c") + agent("c", "a"), "in a circle: a > b > c > a"),
        (agent("a", "t", "t") + TOOL, "agent 'a' has two tools named 't'"),
        (TOOL + TOOL, "'t' is defined a second time"),
        (agent("a", TOOL) + agent("b", TOOL), "'t' is defined a second time"),
        (agent("t", TOOL), "'t' is defined a second time"),
        (agent("a", "(t)") + TOOL, "the name of one, without parentheses"),
        (agent("a", "[x:Other]"), "expected a tool, an agent"),
        ('[:Agent {instruction:"i", model:"A/b"}]', "the agent has no name"),
        ('[a:Agent {instruction:"i"}]', "no model is given"),
        ('[a:Agent {instruction:"i", model:"gpt"}]', "not of the form Provider/id"),
        ('[a:Agent {instruction:"i", model:"/x"}]', "not of the form Provider/id"),
        ('[a:Agent {instruction:"i", model:5}]', "not of the form Provider/id"),
        ('[a:Agent {model:"A/b"}]', "the instruction of agent 'a' is missing"),
        ('[a:Agent {instruction:" ", model:"A/b"}]', "the instruction of agent 'a' is empty"),
        ('[a:Agent {instrction:"i", model:"A/b"}]', "did you mean 'instruction'"),
        ('[a:Agent {description:5, instruction:"i", model:"A/b"}]', "is not text but int"),
    ],
)
def test_what_no_agent_could_run_with_is_refused(text, reason):
    """Design of the gram layer, Agents."""
    with pytest.raises(SpecificationError, match=reason):
        read_agents(text)


def test_text_that_is_not_gram_is_refused_as_such():
    """The reader's own error passes."""
    with pytest.raises(GramSyntaxError):
        read_agents("[a:Agent")


def test_a_long_chain_of_agents_is_refused_and_not_followed():
    """Nesting costs a model call a level, and must not exhaust the stack."""
    chain = "".join(agent(f"a{number}", f"a{number + 1}") for number in range(2000)) + agent("a2000")
    with pytest.raises(SpecificationError, match="nested deeper than 32 levels"):
        read_agents(chain)


def test_two_different_things_of_one_name_cannot_be_written():
    """Made by a program, such agents have no text."""
    one = create_tool_specification("t", "one", "()==>(::Int)")
    two = create_tool_specification("t", "two", "()==>(::Int)")
    inner = AgentSpecification("inner", "i", ModelName("A", "b"), tools=(two,))
    outer = AgentSpecification("outer", "i", ModelName("A", "b"), tools=(one,), agents=(inner,))
    with pytest.raises(SpecificationError, match="two different things are named 't'"):
        outer.to_gram()


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)
lines = (
    st.lists(st.text(alphabet="ab `/.\t", max_size=8), min_size=1, max_size=4)
    .map("\n".join)
    .filter(str.strip)
)


@given(instruction=texts | lines, description=st.just("") | texts)
def test_every_agent_survives_gram(instruction, description):
    """Instructions of any shape come back as they were."""
    tools = (create_tool_specification("t", "d", "(a::Text)==>(::String)"),)
    inner = AgentSpecification("inner", instruction, ModelName("A", "b/c"), description, tools)
    outer = AgentSpecification("outer one", instruction, ModelName("A", "b"), description, tools, (inner,))
    assert read_agents(outer.to_gram()) == (outer,)
