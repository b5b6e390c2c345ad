"""An agent runs from gram to its answer."""

from __future__ import annotations

from gramercy import Agent, create_tool
from gramercy.providers.scripted import ScriptedProvider

HELLO = """
[helloAgent:Agent {
  description: "A friendly agent",
  instruction: "Greet whoever tells you a name, with the tool sayHello.",
  model: "OpenAI/gpt-4o-mini"
} |
  [sayHello:ToolSpecification {
    description: "Returns a friendly greeting message for the given name"
  } |
    (::Text {paramName:"name"})==>(::String)
  ]
]
"""


say_hello = create_tool(
    "sayHello",
    "Returns a friendly greeting message for the given name",
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    lambda arguments: f"Hello, {arguments['name']}! Nice to meet you.",
)


def test_the_model_gets_the_result_and_answers():
    model = ScriptedProvider(
        ["Let me see. ", {"name": "sayHello", "arguments": {"name": "Ada"}}], "Hello, Ada! Nice to meet you."
    )
    response = Agent.from_gram(HELLO).run("Hello, I am Ada", [say_hello], provider=model)
    assert response.content == "Hello, Ada! Nice to meet you."
    assert [made.result.content for made in response.calls] == ["Hello, Ada! Nice to meet you."]
    assert [message.role for message in response.conversation] == ["user", "assistant", "tool", "assistant"]
    assert model.requests[1].messages[-1].text == "Hello, Ada! Nice to meet you."


def test_an_agent_from_python_is_the_same_as_from_gram():
    agent = Agent("greeter", "Greet.", "OpenAI/gpt-4o-mini", [say_hello])
    again = Agent.from_gram(agent.to_gram())
    assert again.specification == agent.specification
    model = ScriptedProvider({"name": "sayHello", "arguments": '{"name": "Ada"}'}, "done")
    assert again.run("hi", agent.library, provider=model).content == "done"
