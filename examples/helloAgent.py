"""The tool of helloAgent.gram, with its schema written out.

Try it: gramercy tools call sayHello name=Ada --from examples/helloAgent.py
"""

from gramercy import create_tool

say_hello = create_tool(
    "sayHello",
    "Returns a friendly greeting message for the given name",
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    lambda arguments: f"Hello, {arguments['name']}! Nice to meet you.",
)
