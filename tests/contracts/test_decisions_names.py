"""The decisions on names, types and registration, as tests: where the contracts differ or are silent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import gramercy
from gramercy import (
    Approved,
    Denied,
    Executor,
    Modified,
    Registry,
    Safety,
    Tool,
    ToolLibrary,
    ToolResult,
    create_tool,
    create_tool_specification,
    define_tool,
    type_signature_to_json_schema,
)
from gramercy.errors import InvalidToolError, TypeSignatureError

Arguments = dict[str, Any]
# Every name of the table of names that exists without images and servers.
ROOT_NAMES = [
    *("Approved", "Denied", "Executor", "InvalidArgumentsError", "Modified", "Registry", "Safety", "Tool"),
    *("ToolCall", "ToolLibrary", "ToolOutput", "ToolResult", "ToolSpecification", "create_tool"),
    *("create_tool_specification", "default_registry", "define_tool", "format_tool_result", "tool"),
    *("parse_type_signature", "tools_to_schema", "type_signature_to_json_schema", "validate_tool_args"),
]


def named(name: str, **options: Any) -> Tool:
    return define_tool(name, f"Answer {name}.", [], handler=lambda _: name, **options)


def run(tool: Tool, arguments: Any = None, approve: Any = None) -> ToolResult:
    executor = Executor(Registry([tool]), approve)
    return executor.execute({"id": "call_1", "name": tool.name, "arguments": arguments or {}})


# Names


@pytest.mark.contract("decision.00.root-names")
@pytest.mark.parametrize("name", ROOT_NAMES)
def test_the_names_of_the_contracts_are_at_the_root(name: str) -> None:
    """Decisions, names."""
    assert getattr(gramercy, name) is not None
    assert name in dir(gramercy)


@pytest.mark.contract("decision.00.tool-decorator")
def test_an_annotated_function_becomes_a_tool() -> None:
    """Decisions, names."""

    @gramercy.tool(safety_level="cautious", categories=["text"])
    def repeat(word: str, times: int = 2) -> str:
        """Say a word several times."""
        return " ".join([word] * times)

    assert (repeat.name, repeat.description) == ("repeat", "Say a word several times.")
    assert (repeat.safety_level, repeat.categories, repeat.required) == ("cautious", ("text",), ("word",))
    assert [(p.name, p.type) for p in repeat.parameters] == [("word", "string"), ("times", "integer")]
    assert run(repeat, {"word": "ho"}).content == "ho ho"
    assert run(repeat, {"word": "ho", "times": 3}).content == "ho ho ho"


@pytest.mark.contract("decision.00.safety-order")
def test_safety_levels_are_ordered_and_read_from_the_words_of_the_contracts() -> None:
    """Decisions, names."""
    assert Safety.SAFE < Safety.CAUTIOUS < Safety.DANGEROUS
    assert max(Safety.SAFE, Safety.DANGEROUS, Safety.CAUTIOUS) is Safety.DANGEROUS
    for word, level in {
        "safe": Safety.SAFE,
        ":cautious": Safety.CAUTIOUS,
        ":dangerous": Safety.DANGEROUS,
    }.items():
        assert named("act", safety_level=word).safety_level is level


@pytest.mark.contract("decision.00.decision-values")
@pytest.mark.parametrize(
    ("decision", "ran", "text"),
    [
        (Approved(), [{"path": "a"}], "written"),
        (Denied("not on a Friday"), [], "not on a Friday"),
        (Modified({"path": "b"}), [{"path": "b"}], "written"),
    ],
)
def test_an_approval_handler_may_answer_with_a_value(decision: Any, ran: list[Arguments], text: str) -> None:
    """Decisions, names."""
    received: list[Arguments] = []

    def write(arguments: Arguments) -> str:
        received.append(arguments)
        return "written"

    parameters = [{"name": "path", "type": "string"}]
    tool = define_tool("write", "Write.", parameters, safety_level="dangerous", handler=write)
    result = run(tool, {"path": "a"}, lambda *_: decision)
    assert received == ran
    assert text in result.content


@pytest.mark.contract("decision.00.async-approval", "decision.00.async-execution")
@pytest.mark.parametrize(("decision", "success"), [("approved", True), ("denied", False)])
def test_approval_handlers_may_be_async_and_calls_may_come_from_async_code(
    decision: str, *, success: bool
) -> None:
    """Decisions, names."""

    async def approve(_tool: Tool, _arguments: Arguments) -> str:
        await asyncio.sleep(0)
        return decision

    executor = Executor(Registry([named("act", safety_level="dangerous"), named("look")]), approve)
    calls = [{"id": "1", "name": "act", "arguments": {}}, {"id": "2", "name": "look", "arguments": {}}]
    plain = executor.execute_tool_calls(calls)
    awaited = asyncio.run(executor.aexecute_tool_calls(calls))
    assert [(r.id, r.success, r.content, r.error) for r in awaited] == [
        (r.id, r.success, r.content, r.error) for r in plain
    ]
    assert [result.success for result in awaited] == [success, True]


@pytest.mark.contract("decision.00.approved-only-when-asked")
@pytest.mark.parametrize(("level", "said"), [("safe", None), ("cautious", None), ("dangerous", True)])
def test_the_metadata_say_approved_only_when_approval_was_asked(level: str, said: Any) -> None:
    """Decisions, names."""
    result = run(named("act", safety_level=level), approve=lambda *_: "approved")
    assert result.metadata.get("approved") is said
    assert result.metadata["safety_level"] == level


@pytest.mark.contract("decision.00.explain-binding")
def test_a_library_explains_why_a_specification_cannot_be_bound() -> None:
    """Decisions, names."""
    specification = create_tool_specification("greet", "Greets.", '(::Text {paramName:"name"})==>(::String)')
    schema = {"type": "object", "properties": {"name": {"type": "integer"}}, "required": ["name"]}
    library = ToolLibrary().register("greet", create_tool("greet", "Shouts.", schema, len))
    mismatches = library.explain_binding(specification)
    assert {mismatch.path for mismatch in mismatches} == {"description", "schema.properties.name.type"}
    assert all(text in " ".join(map(str, mismatches)) for text in ("Greets.", "Shouts.", "string", "integer"))
    fitting = create_tool("greet", "Greets.", specification.schema, len)
    assert library.register("greet", fitting).explain_binding(specification) == ()


@pytest.mark.contract("decision.00.positioned-errors")
def test_a_bad_type_signature_is_an_error_with_line_column_and_hint() -> None:
    """Decisions, names."""
    with pytest.raises(TypeSignatureError) as caught:
        type_signature_to_json_schema('(::Text {paramName:"a"})\n  ==>(::Txt {paramName:"b"})==>(::String)')
    assert (caught.value.line, caught.value.column) == (2, 7)
    assert (caught.value.hint or "").startswith("did you mean Text? ")


@pytest.mark.contract("decision.00.one-tool-type")
def test_one_tool_serves_the_registry_and_the_library() -> None:
    """Decisions, names."""
    tool = create_tool("sayHello", "Greets.", {"type": "object"}, lambda _: "Hello.")
    registry = Registry([tool, named("other")])
    assert registry.get("sayHello") is ToolLibrary().register("sayHello", tool).lookup("sayHello")
    assert registry.library().lookup("sayHello") is tool


@pytest.mark.contract("decision.00.listing-in-flight")
def test_a_listing_does_not_change_while_tools_are_registered() -> None:
    """Decisions, names."""
    registry = Registry([named("b")])
    library, listed = registry.library(), registry.names()
    seen = []
    for name in library:
        registry.register(named("a"))
        registry.register(named("c"))
        seen.append(name)
    assert seen == listed == list(library) == ["b"]
    assert registry.names() == ["a", "b", "c"]


# 3 and 4: types and names


@pytest.mark.contract("decision.03.integer")
def test_a_parameter_may_be_an_integer() -> None:
    """Decision 3."""
    tool = define_tool("act", "Act.", [{"name": "n", "type": "integer"}], handler=lambda a: a["n"])
    assert run(tool, {"n": 7}).content == "7"
    assert not run(tool, {"n": 7.5}).success


@pytest.mark.contract("decision.04.snake-case", "decision.04.gram-symbol")
@pytest.mark.parametrize("name", ["sayHello", "say-hello", "Say", "say.hello", "_say"])
def test_define_tool_wants_snake_case_where_a_specification_takes_any_gram_symbol(name: str) -> None:
    """Decision 4."""
    with pytest.raises(InvalidToolError, match="snake_case"):
        named(name)
    assert create_tool_specification(name, "Says.", "(::Text)==>(::Text)").name == name
    assert create_tool(name, "Says.", {"type": "object"}, len).name == name
    assert named("s2_say_hello_").name == "s2_say_hello_"


@pytest.mark.contract("decision.04.either-spelling", "decision.04.one-listed")
@pytest.mark.parametrize("registered", ["evaluate_lisp", "evaluate-lisp"])
@pytest.mark.parametrize("called", ["evaluate_lisp", "evaluate-lisp"])
def test_a_call_may_use_either_spelling_and_a_listing_shows_one(registered: str, called: str) -> None:
    """Decision 4."""
    registry = Registry([create_tool(registered, "Evaluate.", {"type": "object"}, lambda _: "6")])
    [result] = Executor(registry).execute_tool_calls([{"id": "1", "name": called, "arguments": {}}])
    assert result.content == "6"
    assert registry.names() == [registered]


# 10: registration


@pytest.mark.contract("decision.10.overwrites")
def test_registration_overwrites_by_name_and_can_be_repeated() -> None:
    """Decision 10."""
    first, second = named("act"), named("act", safety_level="cautious")
    registry = Registry([first])
    registry.register(second)
    registry.register(second)
    assert registry.select() == [second]
    assert ToolLibrary().register("act", first).register("act", second).lookup("act") is second


@pytest.mark.contract("decision.10.no-unregister")
@pytest.mark.parametrize("keeper", [Registry([named("act")]), ToolLibrary().register("act", named("act"))])
def test_neither_registry_nor_library_can_forget_a_tool(keeper: Any) -> None:
    """Decision 10."""
    ways = (
        "unregister",
        "remove",
        "delete",
        "discard",
        "pop",
        "popitem",
        "clear",
        "__delitem__",
        "__setitem__",
    )
    assert [way for way in ways if hasattr(keeper, way)] == []


@pytest.mark.contract("decision.10.order")
def test_listings_have_one_order_whatever_the_order_of_registration_was() -> None:
    """Decision 10."""
    tools = [named(name) for name in ("delta", "alpha", "charlie", "bravo")]
    one, other = Registry(tools), Registry(reversed(tools))
    assert one.names() == other.names() == ["alpha", "bravo", "charlie", "delta"]
    assert one.select() == other.select()
    assert list(one.library()) == list(other.library()) == one.names()
