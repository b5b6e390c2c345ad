"""The agent of the seed, its tool, and what its model says when it greets: for tests of commands."""

from __future__ import annotations

HELLO = """\
[helloAgent:Agent {
  description: "A friendly agent",
  instruction: "Greet whoever tells you a name, with the tool sayHello.",
  model: "Scripted/script.jsonl"
} |
  [sayHello:ToolSpecification {
    description: "Returns a friendly greeting message for the given name"
  } |
    (::Text {paramName:"name"})==>(::String)
  ]
]
"""
TOOLS = """\
from gramercy import create_tool

say_hello = create_tool(
    "sayHello",
    "Returns a friendly greeting message for the given name",
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    lambda arguments: f"Hello, {arguments['name']}! Nice to meet you.",
    safety_level="LEVEL",
)
"""
GREETING = ["Let me see.", {"name": "sayHello", "arguments": {"name": "Ada"}}]
