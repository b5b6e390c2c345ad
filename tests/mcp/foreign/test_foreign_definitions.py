"""What strangers say of their tools is read with suspicion, and shown so that nothing can hide."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy import Registry
from gramercy.mcp.foreign import ForeignError, register_foreign, registered_name
from gramercy.mcp.foreign.definitions import hidden_in, read_definition, read_listing
from gramercy.text import reveal, tame

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "What\u2066 to say"}},
}


@pytest.mark.parametrize(
    "hidden",
    [
        "\u200b",
        "\u202e",
        "\U000e0041",
        "\x1b",
        "\x00",
        "\ufeff",
        "\u2028",
        "\u3164",
        "\ufe0f",
        "\u00a0",
        "\u2009",
        "\u00ad",
    ],
)
def test_what_cannot_be_seen_is_written_out_and_flagged(hidden):
    """Other servers: control characters, zero width, bidirectional marks and tag characters."""
    text = f"safe{hidden}text"
    assert reveal(text) == f"safe\\u{{{ord(hidden):x}}}text"
    (finding,) = hidden_in(text)
    assert finding.startswith(f"U+{ord(hidden):04X} ")
    assert finding.endswith("(once)")


def test_ordinary_texts_of_all_scripts_are_left_alone():
    """Other servers: only what hides is flagged."""
    text = "Grüße, Ελλάδα, 東京, ไทย, עברית, “ok”\n\ttabs too"
    assert reveal(text) == text
    assert hidden_in(text) == []


def test_results_keep_joiners_but_cannot_steer_a_terminal():
    """Checklist 11: control characters are stripped from output; emoji are not broken."""
    assert tame("👩\u200d🔬 \x1b[2J\u202e\U000e0041\n") == "👩\u200d🔬 \\u{1b}[2J\\u{202e}\\u{e0041}\n"


def test_a_model_sees_what_the_person_saw(stranger, pins):
    """Other servers: hidden text in descriptions is shown escaped and flagged."""
    server = stranger("hidden")
    registry = Registry()
    (review,) = register_foreign(registry, server, pins=pins).reviews
    assert "  ! hidden: U+200B ZERO WIDTH SPACE (once)" in review.text().splitlines()
    assert "  ! hidden: U+E006F TAG LATIN SMALL LETTER O (once)" in review.text().splitlines()
    pins.accept("odd", server.tools())
    register_foreign(registry, server, pins=pins)
    told = registry.resolve("odd__echo").description
    assert told == "Say\\u{200b} it \\u{202e}again.\\u{e006f}\\u{e0062}\\u{e0065}\\u{e0079}\\u{1b}[2J"
    assert told.isascii()


def test_prose_in_a_schema_is_revealed_but_its_meaning_kept():
    """Other servers: hidden text in descriptions of arguments too."""
    enum = {"type": "string", "enum": ["a\u200bb"]}
    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "kind": enum}}
    definition = read_definition({"name": "say", "inputSchema": schema})
    assert definition.schema["properties"]["text"]["description"] == "What\\u{2066} to say"
    assert definition.schema["properties"]["kind"] == enum
    assert len(definition.hidden) == 2


def test_a_digest_covers_every_part_and_no_order():
    """Other servers: name, description, schema, annotations."""
    raw = {"name": "say", "description": "Say it.", "inputSchema": SCHEMA, "annotations": {"title": "Say"}}
    digest = read_definition(raw).digest
    reordered = json.loads(json.dumps(raw, sort_keys=True))
    assert read_definition({**reordered, "_meta": {"ignored": 1}}).digest == digest
    changes: list[dict[str, object]] = [
        {"description": "Say it!"},
        {"name": "tell"},
        {"annotations": {}},
        {"title": "Say"},
        {"outputSchema": {"type": "object"}},
        {"inputSchema": {**SCHEMA, "required": ["text"]}},
    ]
    for changed in changes:
        assert read_definition({**raw, **changed}).digest != digest


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (7, "no object"),
        ({"inputSchema": {}}, "no usable name"),
        ({"name": "", "inputSchema": {}}, "no usable name"),
        ({"name": "n" * 200, "inputSchema": {}}, "no usable name"),
        ({"name": "say"}, "no inputSchema"),
        ({"name": "say", "inputSchema": []}, "inputSchema is no object"),
        ({"name": "say", "inputSchema": {}, "description": 7}, "description is no text"),
        ({"name": "say", "inputSchema": {}, "annotations": "safe"}, "annotations is no object"),
        ({"name": "say", "inputSchema": {"x": "y" * 70_000}}, "bytes: expected at most"),
    ],
)
def test_a_faulty_definition_is_refused_with_its_fault(raw, complaint):
    """Style: messages say what, which, expected."""
    with pytest.raises(ForeignError, match=complaint):
        read_definition(raw)


def test_a_definition_that_is_nested_without_end_is_refused():
    """Style: never a hang, never unbounded."""
    deep: object = {}
    for _ in range(5_000):
        deep = {"a": deep}
    with pytest.raises(ForeignError, match="nested more than"):
        read_definition({"name": "say", "inputSchema": deep})


def test_names_twice_are_faults_and_the_others_stay():
    """Other servers: collisions are told."""
    one, two = {"name": "one", "inputSchema": {}}, {"name": "two", "inputSchema": {}}
    listing = read_listing([two, one, two])
    assert list(listing.definitions) == ["one"]
    assert listing.faults == {"two": "the server lists it twice"}


def test_odd_tools_are_refused_one_by_one(stranger, pins):
    """Other servers: names of at most 64 characters, collisions told, unusable schemas refused."""
    server = stranger("odd")
    pins.accept("odd", server.tools())
    done = register_foreign(Registry(), server, pins=pins)
    (cut,) = done.registered
    assert cut.startswith("odd__nnnn")
    assert len(cut) == 64
    told = "\n".join(done.lines())
    assert "odd: unusable: bare, entry 10, twin, vast" in told
    assert "a.b is refused: several tools would be named odd__a_b" in told
    assert "a_b is refused: several tools would be named odd__a_b" in told
    assert "remote is refused" in told
    assert "fetching is refused" in told
    assert "nothing is fetched" in told


@given(st.text(min_size=1, max_size=128))
def test_every_name_becomes_one_that_providers_take(tool):
    """Other servers: valid tool names."""
    name = registered_name("server", tool)
    assert len(name) <= 64
    assert name.isascii()
    assert name.replace("_", "").replace("-", "").isalnum()
