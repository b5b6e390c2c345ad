"""The registry: registration, look-up, selection, and many threads at once."""

from __future__ import annotations

import threading

import pytest

from gramercy import Registry, Safety, create_tool, default_registry, define_tool, tools_to_schema
from gramercy.errors import InvalidToolError, UnknownToolError


def make(name, level="safe", categories=(), description="It."):
    return define_tool(name, description, [], safety_level=level, categories=categories, handler=dict)


@pytest.fixture
def registry():
    return Registry([
        make("describe_symbol", "safe", ["introspection"]),
        make("who_calls", "safe", ["introspection", "xref"]),
        make("eval_form", "cautious", ["execution"]),
        make("write_file", "dangerous", ["buffer"]),
    ])  # fmt: skip


def test_registering_returns_the_tool_and_makes_it_found(registry):
    """Seed 001, register-tool and get-tool."""
    tool = make("read_file")
    assert registry.register(tool) is tool
    assert registry.get("read_file") is tool
    assert "read_file" in registry
    assert len(registry) == 5
    assert registry.get("nonexistent") is None


def test_registering_again_overwrites(registry):
    """Seed 001, Invariants 1 and 4: unique names, idempotent registration."""
    again = make("eval_form", "dangerous")
    registry.register(again)
    registry.register(again)
    assert registry.get("eval_form") is again
    assert len(registry) == 4


@pytest.mark.parametrize("wrong", [None, "read_file", dict, {"name": "a"}])
def test_only_tools_can_be_registered(registry, wrong):
    """Seed 001: values must be tool objects."""
    with pytest.raises(InvalidToolError, match="make one with define_tool"):
        registry.register(wrong)
    with pytest.raises(InvalidToolError):
        registry.register_all([make("fresh"), wrong])
    assert len(registry) == 4


def test_several_tools_are_registered_all_or_none(registry):
    """Two different tools of one name in one batch are a mistake, not an overwrite."""
    with pytest.raises(InvalidToolError, match="two different tools are named 'a'"):
        registry.register_all([make("a"), make("b"), make("a")])
    assert "b" not in registry
    twice = make("c")
    assert registry.register_all([twice, twice]) == 1


def test_listings_are_in_alphabetical_order_whatever_the_order_of_registration(registry):
    """Decision 10: deterministic listings."""
    names = ["describe_symbol", "eval_form", "who_calls", "write_file"]
    assert registry.names() == names
    backwards = Registry(reversed([registry.get(name) for name in names]))
    assert backwards.names() == names
    assert [tool.name for tool in backwards.select()] == names


@pytest.mark.parametrize(
    ("level", "names"),
    [
        (None, ["describe_symbol", "eval_form", "who_calls", "write_file"]),
        ("safe", ["describe_symbol", "who_calls"]),
        (":cautious", ["describe_symbol", "eval_form", "who_calls"]),
        (Safety.DANGEROUS, ["describe_symbol", "eval_form", "who_calls", "write_file"]),
    ],
)
def test_selection_by_level_includes_everything_below(registry, level, names):
    """Seed 001, get-agent-q-tools."""
    assert [tool.name for tool in registry.select(max_safety_level=level)] == names


@pytest.mark.parametrize(
    ("categories", "names"),
    [
        (["introspection"], ["describe_symbol", "who_calls"]),
        ([":xref", "buffer"], ["who_calls", "write_file"]),
        ("xref", ["who_calls"]),
        (["unknown"], []),
        ([], []),
    ],
)
def test_selection_by_categories_needs_one_match(registry, categories, names):
    """Seed 001: tools with at least one matching category."""
    assert [tool.name for tool in registry.select(categories=categories)] == names


def test_both_filters_must_hold(registry):
    """Seed 001: AND logic."""
    selected = registry.select("safe", ["buffer", "xref", "execution"])
    assert [tool.name for tool in selected] == ["who_calls"]


def test_an_unknown_level_is_refused_with_the_words_there_are(registry):
    """Errors say what to try."""
    with pytest.raises(InvalidToolError, match="did you mean 'cautious'"):
        registry.select("cautios")


def test_a_call_may_use_either_spelling():
    """Decision 4: hyphens and underscores."""
    hyphened = create_tool("evaluate-lisp", "Evaluate.", {"type": "object"}, dict)
    registry = Registry([hyphened, make("read_file")])
    for name in ("evaluate-lisp", "evaluate_lisp"):
        assert registry.resolve(name) is hyphened
        assert registry.find(name) is hyphened
    assert registry.resolve("read-file").name == "read_file"
    assert registry.names() == ["evaluate-lisp", "read_file"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("wriet_file", "Unknown tool: wriet_file\nDid you mean write_file?"),
        ("WhoCalls", "Unknown tool: WhoCalls\nDid you mean who_calls?"),
        ("zzzz", "Unknown tool: zzzz"),
    ],
)
def test_an_unknown_name_is_answered_with_what_was_probably_meant(registry, name, text):
    """Decision 8: Unknown tool: NAME plus did-you-mean."""
    with pytest.raises(UnknownToolError) as caught:
        registry.resolve(name)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("name", [None, 3, [], {}, "x" * 1_000_000])
def test_names_that_are_none_are_unknown_and_nothing_else(registry, name):
    """Style: never a traceback, never unbounded text."""
    assert registry.find(name) is None
    with pytest.raises(UnknownToolError) as caught:
        registry.resolve(name)
    assert len(str(caught.value)) < 1_000


def test_a_library_taken_before_a_registration_does_not_change(registry):
    """Names table: a listing in flight never changes under its reader."""
    before = registry.library()
    registry.register(make("aaa"))
    assert "aaa" not in before
    assert "aaa" in registry.library()
    assert registry.library() is registry.library()


def test_many_threads_register_and_list_at_once():
    """Names table: the registry is thread-safe."""
    registry = Registry()
    start = threading.Barrier(8)
    failures = []

    def work(number):
        try:
            start.wait(10)
            for step in range(60):
                registry.register(make(f"tool_{number}_{step}"))
                names = registry.names()
                assert names == sorted(names)
                assert f"tool_{number}_{step}" in names
                assert len(registry.select("safe")) >= step
        except BaseException as error:  # noqa: BLE001 - reported by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert len(registry.names()) == 480


def test_ten_thousand_tools_are_registered_and_found():
    """Performance design: growth to 10,000 tools."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    shared = create_tool("it", "It.", schema, dict)
    registry = Registry()
    for number in range(10_000):
        registry.register(type(shared)(f"tool_{number:05}", "It.", shared.schema, dict))
    assert len(registry.select()) == 10_000
    assert registry.names()[-1] == "tool_09999"
    assert registry.resolve("tool-04711").name == "tool_04711"
    with pytest.raises(UnknownToolError, match="tool_0"):
        registry.resolve("tool_0471x")


def test_the_default_registry_lives_as_long_as_the_process():
    """Seed 001: the registry persists for the image lifetime."""
    assert default_registry() is default_registry()
    assert repr(Registry()) == "<Registry of 0 tools>"


def test_schemas_are_what_providers_expect(registry):
    """Seed 001, tools-to-schema."""
    tool = define_tool("greet", "Greet.", [{"name": "who", "type": "string"}], required=["who"], handler=dict)
    assert tools_to_schema([tool]) == [
        {
            "type": "function",
            "function": {
                "name": "greet",
                "description": "Greet.",
                "parameters": {
                    "type": "object",
                    "properties": {"who": {"type": "string"}},
                    "required": ["who"],
                    "additionalProperties": False,
                },
            },
        }
    ]
    names = [entry["function"]["name"] for entry in tools_to_schema(registry.select("safe"))]
    assert names == ["describe_symbol", "who_calls"]
