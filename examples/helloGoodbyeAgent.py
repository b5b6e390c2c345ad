"""The tools of helloGoodbyeAgent.gram, with their schema made from the signature.

Try it: gramercy tools call sayGoodbye personName=Ada --from examples/helloGoodbyeAgent.py
"""

from gramercy import create_tool, type_signature_to_json_schema

NAMED = type_signature_to_json_schema('(personName::String {default:"world"})==>(::String)')

say_hello = create_tool(
    "sayHello",
    "Returns a friendly greeting message for the given name",
    NAMED,
    lambda arguments: f"Hello, {arguments['personName']}! Nice to meet you.",
)

say_goodbye = create_tool(
    "sayGoodbye",
    "Returns a friendly farewell message for the given name",
    NAMED,
    lambda arguments: f"Goodbye, {arguments['personName']}! See you soon.",
)
