"""Seed 004, the tool system, as tests: specifications, implementations, libraries, binding and invocation."""

from __future__ import annotations

import copy
import json
import pickle
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gramercy import (
    Executor,
    GramercyError,
    Registry,
    Tool,
    ToolLibrary,
    ToolSpecification,
    create_tool,
    create_tool_specification,
    default_registry,
)
from gramercy.errors import InvalidToolError, SpecificationError, TypeSignatureError
from gramercy.gram.agents import AgentSpecification, read_agents

if TYPE_CHECKING:
    from pathlib import Path

NAME = "sayHello"
DESCRIPTION = "Returns a friendly greeting message for the given name"
SIGNATURE = '(::Text {paramName:"name"})==>(::String)'
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def greet(arguments: dict[str, Any]) -> str:
    return f"Hello, {arguments['name']}! Nice to meet you."


@pytest.fixture
def specification() -> ToolSpecification:
    """Make the specification of the contract's example."""
    return create_tool_specification(NAME, DESCRIPTION, SIGNATURE)


@pytest.fixture
def tool() -> Tool:
    """Make the implementation of the contract's example."""
    return create_tool(NAME, DESCRIPTION, SCHEMA, greet)


def run(tool: Tool, arguments: Any) -> Any:
    return Executor(Registry([tool])).execute({"id": "call_1", "name": tool.name, "arguments": arguments})


# Architecture


@pytest.mark.contract("004.architecture.separate", "004.architecture.gram")
def test_a_specification_has_no_function_and_a_tool_has_no_gram(
    specification: ToolSpecification, tool: Tool
) -> None:
    """Seed 004, Architecture."""
    assert not any(callable(getattr(specification, slot)) for slot in specification.__slots__)
    assert not hasattr(tool, "to_gram")
    assert tool.handler is greet
    assert ToolSpecification.from_gram(specification.to_gram()) == specification


@pytest.mark.contract("004.architecture.late-binding", "004.note.bound-at-execution")
def test_a_specification_is_bound_to_whatever_is_in_the_library_at_that_time(
    specification: ToolSpecification, tool: Tool
) -> None:
    """Seed 004, Architecture, and Notes."""
    library = ToolLibrary()
    assert library.bind(specification) is None
    library = library.register(NAME, tool)
    assert library.bind(specification) is tool
    newer = create_tool(NAME, DESCRIPTION, SCHEMA, lambda _: "Hi.")
    assert library.register(NAME, newer).bind(specification) is newer


@pytest.mark.contract("004.architecture.a-b-testing")
def test_one_specification_works_with_different_implementations(specification: ToolSpecification) -> None:
    """Seed 004, Architecture."""
    answers = []
    for invoke in (greet, lambda arguments: "Good day, " + arguments["name"] + "."):
        library = ToolLibrary().register(NAME, create_tool(NAME, DESCRIPTION, SCHEMA, invoke))
        bound = library.bind(specification)
        assert bound is not None
        answers.append(run(bound, {"name": "Ada"}).content)
    assert answers == ["Hello, Ada! Nice to meet you.", "Good day, Ada."]


# Tool Specification Creation, and Tool Specification Accessors


@pytest.mark.contract(
    "004.specify.signature",
    "004.specify.schema-generated",
    "004.specify.example",
    "004.specification.name",
    "004.specification.description",
    "004.specification.type-signature",
    "004.specification.schema",
)
def test_the_example_specification_tells_its_parts_and_its_generated_schema() -> None:
    """Seed 004, createToolSpecification: the example of the contract; and Tool Specification Accessors."""
    made = create_tool_specification(NAME, DESCRIPTION, SIGNATURE)
    assert isinstance(made, ToolSpecification)
    assert made.name == NAME
    assert made.description == DESCRIPTION
    assert made.type_signature == SIGNATURE
    assert made.schema == SCHEMA


@pytest.mark.contract("004.specification.schema-not-given")
def test_the_schema_of_a_specification_cannot_be_given_or_changed(specification: ToolSpecification) -> None:
    """Seed 004, toolSpecSchema."""
    with pytest.raises(TypeError):
        create_tool_specification(NAME, DESCRIPTION, SIGNATURE, schema=SCHEMA)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        ToolSpecification(NAME, DESCRIPTION, SIGNATURE, schema=SCHEMA)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        specification.schema = {}  # type: ignore[misc]


@pytest.mark.contract("004.specify.name-non-empty")
def test_a_specification_without_a_name_is_refused() -> None:
    """Seed 004, createToolSpecification, Preconditions."""
    with pytest.raises(SpecificationError, match="name"):
        create_tool_specification("", DESCRIPTION, SIGNATURE)


@pytest.mark.contract("004.specify.description-non-empty")
@pytest.mark.parametrize("description", ["", "  "])
def test_a_specification_without_a_description_is_refused(description: str) -> None:
    """Seed 004, createToolSpecification, Preconditions."""
    with pytest.raises(SpecificationError, match="description"):
        create_tool_specification(NAME, description, SIGNATURE)


@pytest.mark.contract("004.specify.signature-valid", "004.bind.valid-parts")
@pytest.mark.parametrize(
    "signature", ["", "Text -> String", "(::Text)", "(::Text)==>", "(::Txt)==>(::String)"]
)
def test_a_specification_without_a_valid_signature_is_refused(signature: str) -> None:
    """Seed 004, createToolSpecification, Preconditions."""
    with pytest.raises(TypeSignatureError):
        create_tool_specification(NAME, DESCRIPTION, signature)


@pytest.mark.contract("004.specify.serializable", "004.specify.for-agents")
def test_a_specification_can_be_serialized_and_given_to_an_agent(specification: ToolSpecification) -> None:
    """Seed 004, createToolSpecification, Postconditions."""
    assert json.loads(json.dumps(specification.to_json()))["name"] == NAME
    agent = AgentSpecification("greeter", "Greet.", "OpenAI/gpt-4o-mini", tools=(specification,))  # type: ignore[arg-type]
    [read] = read_agents(agent.to_gram())
    assert read.tools == (specification,)


# Tool Implementation Creation, and Tool Accessors


@pytest.mark.contract(
    "004.create.signature", "004.create.example", "004.tool.name", "004.tool.description", "004.tool.schema"
)
def test_the_example_tool_tells_its_parts_and_greets_by_name() -> None:
    """Seed 004, createTool: the example of the contract; and Tool Accessors."""
    made = create_tool(NAME, DESCRIPTION, SCHEMA, greet)
    assert isinstance(made, Tool)
    assert (made.name, made.description, made.schema) == (NAME, DESCRIPTION, SCHEMA)
    assert run(made, {"name": "World"}).content == "Hello, World! Nice to meet you."


@pytest.mark.parametrize(
    ("name", "description", "schema", "fault"),
    [
        pytest.param("", "Greet.", SCHEMA, "name", marks=pytest.mark.contract("004.create.name-non-empty")),
        pytest.param(
            NAME, " ", SCHEMA, "description", marks=pytest.mark.contract("004.create.description-non-empty")
        ),
        pytest.param(NAME, "Greet.", None, "schema", marks=pytest.mark.contract("004.create.schema-valid")),
        pytest.param(
            NAME,
            "Greet.",
            {"type": "object", "properties": {"name": {"type": "text"}}},
            "Schema",
            marks=pytest.mark.contract("004.create.schema-valid"),
        ),
        pytest.param(
            NAME,
            "Greet.",
            {"type": "object", "required": "name"},
            "Schema",
            marks=pytest.mark.contract("004.create.schema-valid"),
        ),
    ],
)
def test_a_tool_that_misses_a_precondition_is_refused(
    name: str, description: str, schema: Any, fault: str
) -> None:
    """Seed 004, createTool, Preconditions."""
    with pytest.raises(InvalidToolError, match=fault):
        create_tool(name, description, schema, greet)


@pytest.mark.contract("004.create.invoke-json")
def test_the_function_takes_and_gives_json_values() -> None:
    """Seed 004, createTool."""
    received: list[Any] = []

    def invoke(arguments: dict[str, Any]) -> dict[str, Any]:
        received.append(arguments)
        return {"greeted": arguments["name"], "times": 2}

    result = run(create_tool(NAME, DESCRIPTION, SCHEMA, invoke), '{"name": "Zoë"}')
    assert received == [{"name": "Zoë"}]
    assert json.loads(result.content) == {"greeted": "Zoë", "times": 2}


@pytest.mark.contract("004.create.invoke-errors", "004.note.errors-returned", "004.invocation.6-error")
def test_an_error_of_the_function_is_returned_as_a_message() -> None:
    """Seed 004, createTool, Preconditions; Tool Invocation, step 6; and Notes."""

    def invoke(_: dict[str, Any]) -> str:
        raise ConnectionError("the greeting service is away")

    result = run(create_tool(NAME, DESCRIPTION, SCHEMA, invoke), {"name": "Ada"})
    assert (result.success, result.content) == (False, "Tool error: the greeting service is away")


@pytest.mark.contract("004.create.registrable", "004.create.bindable")
def test_a_tool_can_be_registered_and_bound_late(specification: ToolSpecification, tool: Tool) -> None:
    """Seed 004, createTool, Postconditions."""
    library = ToolLibrary().register(NAME, tool)
    assert library.bind(specification) is tool


# Tool Library Management


@pytest.mark.contract("004.library.empty")
def test_a_new_library_is_empty() -> None:
    """Seed 004, emptyToolLibrary."""
    assert len(ToolLibrary()) == 0
    assert list(ToolLibrary()) == []


@pytest.mark.contract("004.library.register.name-matches")
@pytest.mark.parametrize("name", ["sayhello", "say_hello", ""])
def test_a_tool_can_only_be_registered_under_its_own_name(tool: Tool, name: str) -> None:
    """Seed 004, registerTool, Preconditions."""
    with pytest.raises(InvalidToolError, match="sayHello"):
        ToolLibrary().register(name, tool)


@pytest.mark.contract("004.library.register.valid-tool", "004.bind.valid-parts")
@pytest.mark.parametrize("thing", [None, greet, {"name": NAME}])
def test_only_a_tool_can_be_registered(thing: Any) -> None:
    """Seed 004, registerTool, Preconditions."""
    with pytest.raises(InvalidToolError, match="Tool"):
        ToolLibrary().register(NAME, thing)


@pytest.mark.contract(
    "004.library.register.returns-library",
    "004.library.register.lookup",
    "004.library.register.example",
    "004.library.lookup.found",
)
def test_the_example_registers_a_tool_that_can_then_be_looked_up(tool: Tool) -> None:
    """Seed 004, registerTool: the example of the contract; and lookupTool."""
    library = ToolLibrary().register("sayHello", tool)
    assert isinstance(library, ToolLibrary)
    assert library.lookup("sayHello") is tool


@pytest.mark.contract("004.library.register.replaces", "004.note.unique-in-library")
def test_a_tool_of_the_same_name_is_replaced(tool: Tool) -> None:
    """Seed 004, registerTool, Postconditions; and Notes."""
    other = create_tool(NAME, "Another.", SCHEMA, greet)
    library = ToolLibrary().register(NAME, tool).register(NAME, other)
    assert library.lookup(NAME) is other
    assert list(library) == [NAME]


@pytest.mark.contract("004.library.lookup.missing", "004.library.lookup.empty-name")
@pytest.mark.parametrize("name", ["sayGoodbye", "SayHello", ""])
def test_looking_up_another_name_finds_nothing(tool: Tool, name: str) -> None:
    """Seed 004, lookupTool."""
    assert ToolLibrary().register(NAME, tool).lookup(name) is None


@pytest.mark.contract("004.bind.found")
def test_binding_finds_the_tool_that_matches_in_name_description_and_schema(
    specification: ToolSpecification, tool: Tool
) -> None:
    """Seed 004, bindTool; the order of keys is no difference."""
    assert ToolLibrary().register(NAME, tool).bind(specification) is tool
    turned = create_tool(NAME, DESCRIPTION, dict(reversed(SCHEMA.items())), greet)
    assert ToolLibrary().register(NAME, turned).bind(specification) is turned


@pytest.mark.parametrize(
    ("name", "description", "schema"),
    [
        pytest.param("sayHi", DESCRIPTION, SCHEMA, marks=pytest.mark.contract("004.bind.name-differs")),
        pytest.param(NAME, "Greets.", SCHEMA, marks=pytest.mark.contract("004.bind.description-differs")),
        pytest.param(
            NAME, DESCRIPTION, {"type": "object"}, marks=pytest.mark.contract("004.bind.schema-differs")
        ),
        pytest.param(
            NAME,
            DESCRIPTION,
            {**SCHEMA, "properties": {"name": {"type": "integer"}}},
            marks=pytest.mark.contract("004.bind.schema-differs"),
        ),
        pytest.param(
            NAME,
            DESCRIPTION,
            {**SCHEMA, "required": []},
            marks=pytest.mark.contract("004.bind.schema-differs"),
        ),
    ],
)
def test_binding_finds_nothing_when_something_differs(
    specification: ToolSpecification, name: str, description: str, schema: dict[str, Any]
) -> None:
    """Seed 004, bindTool, Validation."""
    library = ToolLibrary().register(name, create_tool(name, description, schema, greet))
    assert library.bind(specification) is None


@pytest.mark.contract("004.bind.not-found")
def test_binding_finds_nothing_in_an_empty_library(specification: ToolSpecification) -> None:
    """Seed 004, bindTool."""
    assert ToolLibrary().bind(specification) is None


# Tool Invocation, and Schema Definition


@pytest.mark.contract(
    "004.invocation.2-binding",
    "004.invocation.3-json-parameters",
    "004.invocation.5-invoke",
    "004.invocation.6-result",
)
def test_a_bound_tool_is_invoked_with_the_parameters_that_come_as_json(
    specification: ToolSpecification, tool: Tool
) -> None:
    """Seed 004, Tool Invocation, steps 2, 3, 5 and 6."""
    bound = ToolLibrary().register(NAME, tool).bind(specification)
    assert bound is not None
    executor = Executor(Registry([bound]))
    result = executor.execute({"id": "call_1", "name": "sayHello", "arguments": '{"name": "Ada"}'})
    assert (result.id, result.content) == ("call_1", "Hello, Ada! Nice to meet you.")


@pytest.mark.contract("004.invocation.4-validation", "004.note.validation-first")
@pytest.mark.parametrize("arguments", ["{}", '{"name": 7}', '{"name": ', {"nmae": "Ada"}])
def test_parameters_that_do_not_fit_the_schema_never_reach_the_function(arguments: Any) -> None:
    """Seed 004, Tool Invocation, step 4, and Notes."""
    received: list[Any] = []
    result = run(create_tool(NAME, DESCRIPTION, SCHEMA, received.append), arguments)
    assert not result.success
    assert received == []


@pytest.mark.contract(
    "004.schema.types", "004.schema.required", "004.schema.descriptions", "004.schema.format"
)
def test_a_schema_of_the_documented_format_makes_a_tool() -> None:
    """Seed 004, Schema Definition."""
    schema = json.loads("""
{
  "type": "object",
  "properties": {
    "paramName": {
      "type": "string",
      "description": "Parameter description"
    }
  },
  "required": ["paramName"]
}
""")
    made = create_tool("documented", "Show the format.", schema, lambda arguments: arguments["paramName"])
    [parameter] = made.parameters
    assert (parameter.name, parameter.type, parameter.required) == ("paramName", "string", True)
    assert parameter.description == "Parameter description"
    assert made.to_schema()["function"]["parameters"] == schema
    assert run(made, {"paramName": "x"}).content == "x"
    assert not run(made, {}).success
    assert not run(made, {"paramName": 1}).success


# Notes, and Tool Serialization


@pytest.mark.contract("004.serialize.tool-is-not", "004.create.not-serializable")
@pytest.mark.parametrize("invoke", [greet, lambda _: "Hi."], ids=["a function of a module", "a closure"])
def test_a_tool_has_no_serialized_form(invoke: Any) -> None:
    """Seed 004, Tool Serialization: not even with a function that could be found again by its name."""
    tool = create_tool(NAME, DESCRIPTION, SCHEMA, invoke)
    assert not hasattr(tool, "to_json")
    with pytest.raises(TypeError):
        json.dumps(tool)
    with pytest.raises(TypeError):
        msgspec.json.encode(tool)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(
            TypeError, match=r"the tool sayHello has no serialized form: .* its specification"
        ):
            pickle.dumps(tool, protocol)
    assert copy.copy(tool) is copy.deepcopy(tool) is tool


@pytest.mark.contract("004.note.specification-pure", "004.note.tool-pure")
def test_making_specifications_and_tools_does_nothing_else() -> None:
    """Seed 004, Notes."""
    called: list[Any] = []
    schema = json.loads(json.dumps(SCHEMA))
    before = default_registry().names()
    create_tool(NAME, DESCRIPTION, schema, called.append)
    first = create_tool_specification(NAME, DESCRIPTION, SIGNATURE)
    assert first == create_tool_specification(NAME, DESCRIPTION, SIGNATURE)
    assert called == []
    assert schema == SCHEMA
    assert default_registry().names() == before


@pytest.mark.contract("004.note.library-pure")
def test_registering_leaves_the_library_as_it_was(tool: Tool) -> None:
    """Seed 004, Notes."""
    empty = ToolLibrary()
    one = empty.register(NAME, tool)
    two = one.register("other", create_tool("other", "Another.", SCHEMA, greet))
    assert (list(empty), list(one), list(two)) == ([], [NAME], ["other", NAME])


@pytest.mark.contract("004.note.invocation-io")
def test_a_tool_may_read_and_write_when_it_is_invoked(tmp_path: Path) -> None:
    """Seed 004, Notes."""
    book = tmp_path / "guests.txt"

    def invoke(arguments: dict[str, Any]) -> str:
        book.write_text(arguments["name"], "utf-8")
        return book.read_text("utf-8")

    made = create_tool(NAME, DESCRIPTION, SCHEMA, invoke)
    assert not book.exists()
    assert run(made, {"name": "Ada"}).content == "Ada"
    assert book.exists()


@pytest.mark.contract("004.note.shared-specifications")
def test_several_agents_can_share_a_specification(specification: ToolSpecification, tool: Tool) -> None:
    """Seed 004, Notes."""
    text = f"""
[one:Agent {{instruction: "Greet.", model: "OpenAI/gpt-4o-mini"}} | sayHello]
[two:Agent {{instruction: "Greet twice.", model: "OpenAI/gpt-4o-mini"}} | sayHello]
{specification.to_gram()}
"""
    agents = read_agents(text)
    assert [agent.tools for agent in agents] == [(specification,), (specification,)]
    library = ToolLibrary().register(NAME, tool)
    assert [library.bind(agent.tools[0]) for agent in agents] == [tool, tool]


@pytest.mark.contract("004.note.unique-in-agent")
def test_an_agent_cannot_have_two_tools_of_one_name(specification: ToolSpecification) -> None:
    """Seed 004, Notes."""
    other = create_tool_specification(NAME, "Another.", "(::Int)==>(::String)")
    with pytest.raises(GramercyError, match="sayHello"):
        AgentSpecification("greeter", "Greet.", "OpenAI/gpt-4o-mini", tools=(specification, other))  # type: ignore[arg-type]
