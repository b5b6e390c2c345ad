"""Libraries and the binding of specifications to implementations."""

from __future__ import annotations

import pytest

from gramercy import Safety, ToolLibrary, create_tool, create_tool_specification
from gramercy.errors import BindingError, InvalidToolError
from gramercy.gram.specification import ToolSpecification

SIGNATURE = "(personName::Text)==>(::String)"
SPECIFICATION = create_tool_specification("sayHello", "Greet a person.", SIGNATURE)


def implement(specification=SPECIFICATION, **changes):
    parts = {
        "name": specification.name,
        "description": specification.description,
        "schema": specification.schema,
        "invoke": dict,
    }
    return create_tool(**(parts | changes))


def mismatches(specification, tool):
    return [str(found) for found in ToolLibrary.of([tool]).explain_binding(specification)]


def test_an_empty_library_has_nothing():
    """Seed 004, emptyToolLibrary."""
    library = ToolLibrary()
    assert (len(library), list(library), library.lookup("sayHello")) == (0, [], None)
    assert library.bind(SPECIFICATION) is None


def test_registering_makes_a_new_library():
    """Seed 004, registerTool: libraries are values."""
    empty = ToolLibrary()
    one = empty.register("sayHello", implement())
    other = implement()
    two = one.register("sayHello", other)
    assert (len(empty), len(one), len(two)) == (0, 1, 1)
    assert one.lookup("sayHello") is not other
    assert two["sayHello"] is other
    assert repr(one) == "<ToolLibrary of 1 tools>"


def test_a_library_cannot_be_changed_through_its_methods():
    """Names table: immutable."""
    library = ToolLibrary.of([implement()])
    with pytest.raises(TypeError):
        library["sayHello"] = implement()  # type: ignore[index]  # on purpose
    assert not hasattr(library, "pop")


def test_names_must_agree():
    """Seed 004: the key is the tool's name."""
    with pytest.raises(InvalidToolError, match="cannot register tool 'sayHello' under 'hello'"):
        ToolLibrary().register("hello", implement())
    with pytest.raises(InvalidToolError, match="a library holds Tools, not str"):
        ToolLibrary().register("hello", "hello")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidToolError, match="two different tools are named 'sayHello'"):
        ToolLibrary.of([implement(), implement()])


def test_a_matching_implementation_is_bound():
    """Seed 004, bindTool: name, description and schema match."""
    tool = implement()
    library = ToolLibrary().register("sayHello", tool)
    assert library.bind(SPECIFICATION) is tool
    assert library.explain_binding(SPECIFICATION) == ()


def test_key_order_and_the_order_of_required_names_do_not_matter():
    """Two schemas that mean the same bind."""
    specification = create_tool_specification("add", "Add.", "(a::Int)==>(b::Int)==>(::Int)")
    schema = {
        "required": ["b", "a"],
        "properties": {"b": {"type": "integer"}, "a": {"type": "integer"}},
        "type": "object",
    }
    assert mismatches(specification, implement(specification, schema=schema)) == []


def test_an_implementation_may_refuse_additional_arguments_by_itself():
    """A signature does not speak of additional arguments."""
    closed = SPECIFICATION.schema | {"additionalProperties": False}
    assert mismatches(SPECIFICATION, implement(schema=closed)) == []
    opened = SPECIFICATION.schema | {"additionalProperties": {"type": "string"}}
    assert mismatches(SPECIFICATION, implement(schema=opened)) == [
        'schema.additionalProperties: specified nothing, implemented {"type": "string"}'
    ]


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({"description": "Say hi."}, ['description: specified "Greet a person.", implemented "Say hi."']),
        (
            {
                "schema": {
                    "type": "object",
                    "properties": {"personName": {"type": "integer"}},
                    "required": ["personName"],
                }
            },
            ['schema.properties.personName.type: specified "string", implemented "integer"'],
        ),
        (
            {"schema": {"type": "object", "properties": {"personName": {"type": "string"}}}},
            ['schema.required: specified ["personName"], implemented []'],
        ),
        (
            {
                "description": "Other.",
                "schema": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "personName": {"type": "string", "minLength": 1},
                    },
                    "required": ["name"],
                },
            },
            [
                'description: specified "Greet a person.", implemented "Other."',
                'schema.properties.name: specified nothing, implemented {"type": "string"}',
                "schema.properties.personName.minLength: specified nothing, implemented 1",
                'schema.required[0]: specified "personName", implemented "name"',
            ],
        ),
        (
            {"safety_level": "dangerous"},
            [],
        ),
    ],
)
def test_every_mismatch_is_told_with_its_place(changes, texts):
    """Seed 004, bindTool: the reasons why nothing was bound."""
    assert mismatches(SPECIFICATION, implement(**changes)) == texts


def test_a_missing_implementation_is_answered_with_what_was_probably_meant():
    """Errors say what to try."""
    library = ToolLibrary.of([implement(name="sayHelo")])
    (found,) = library.explain_binding(SPECIFICATION)
    assert (
        str(found) == "name: specified 'sayHello', implemented nothing of that name; did you mean 'sayHelo'?"
    )
    (found,) = ToolLibrary().explain_binding(SPECIFICATION)
    assert "register an implementation under this name" in str(found)


def test_truth_and_numbers_are_different_in_schemas():
    """Python thinks that 1 == True, JSON does not."""
    schema = {"type": "object", "properties": {"n": {"enum": [1]}}, "required": []}
    specification = _with_schema(
        "pick", {"type": "object", "properties": {"n": {"enum": [True]}}, "required": []}
    )
    assert mismatches(specification, implement(specification, schema=schema)) == [
        "schema.properties.n.enum[0]: specified true, implemented 1"
    ]


def _with_schema(name, schema):
    """Make a specification and give it a schema that signatures can hardly say."""
    specification = create_tool_specification(name, "It.", SIGNATURE)
    object.__setattr__(specification, "schema", schema)
    return specification


def test_a_specification_that_forbids_additional_arguments_binds_to_one_that_does():
    """Equal schemas bind, whatever is in them."""
    closed = SPECIFICATION.schema | {"additionalProperties": False}
    specification = _with_schema("closed", closed)
    assert mismatches(specification, implement(specification)) == []
    opened = implement(specification, schema=SPECIFICATION.schema)
    assert mismatches(specification, opened) == [
        "schema.additionalProperties: specified false, implemented nothing"
    ]


def test_a_specification_may_raise_the_level_and_add_categories():
    """Names table: one Tool type; guard design: levels are ordered."""
    specification = ToolSpecification("sayHello", "Greet a person.", SIGNATURE, "dangerous", ("people",))
    tool = implement(categories=["words"])
    bound = ToolLibrary.of([tool]).bind(specification)
    assert bound is not None
    assert (bound.safety_level, bound.categories) == (Safety.DANGEROUS, ("words", "people"))
    assert (tool.safety_level, tool.categories) == (Safety.SAFE, ("words",))
    assert bound.handler is tool.handler


def test_a_specification_may_never_lower_the_level():
    """Guard design: the text of a file cannot make an implementation less dangerous than it says it is."""
    specification = ToolSpecification("sayHello", "Greet a person.", SIGNATURE, "safe")
    tool = implement(safety_level="dangerous")
    assert ToolLibrary.of([tool]).bind(specification) is None
    (text,) = mismatches(specification, tool)
    assert text.startswith("safety: specified safe, implemented dangerous; a specification may raise")


def test_all_specifications_are_bound_at_once_in_their_order():
    """Seed 004, Tool Invocation, step 2."""
    other = create_tool_specification("sayBye", "Part from a person.", SIGNATURE, safety="cautious")
    library = ToolLibrary.of([implement(), implement(other)])
    tools = library.bind_all([other, SPECIFICATION])
    assert [(tool.name, tool.safety_level) for tool in tools] == [
        ("sayBye", Safety.CAUTIOUS),
        ("sayHello", Safety.SAFE),
    ]


def test_binding_all_names_every_mismatch_of_every_specification():
    """Seed 004, Tool Invocation, step 2."""
    other = create_tool_specification("sayBye", "Part from a person.", SIGNATURE)
    library = ToolLibrary.of([implement(description="Something else.")])
    with pytest.raises(BindingError) as caught:
        library.bind_all([SPECIFICATION, other])
    assert "- sayHello: description:" in str(caught.value)
    assert "- sayBye: name:" in str(caught.value)
