"""Tool specifications: creation, gram and JSON forms, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import pickle
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramercy.errors import GramError, SpecificationError, StoredSchemaWarning, TypeSignatureError
from gramercy.gram.specification import (
    SAFETY_WORDS,
    ToolSpecification,
    create_tool_specification,
    specifications_in,
)
from gramercy.gram.syntax.formatter import format_gram
from gramercy.gram.syntax.reader import read
from gramercy.gram.syntax.scanner import SYMBOL

SEED_GRAM = """\
[sayHello:ToolSpecification {
  description: "Returns a friendly greeting message for the given name"
} |
  (::Text {paramName:"name"})==>(::String)
]"""

SEED_JSON = r"""{
  "name": "sayHello",
  "description": "Returns a friendly greeting message for the given name",
  "typeSignature": "(::Text {paramName:\"name\"})==>(::String)",
  "schema": {
    "type": "object",
    "properties": {
      "name": {
        "type": "string"
      }
    },
    "required": ["name"]
  }
}"""

SIGNATURE = '(::Text {paramName:"name"})==>(::String)'


def say_hello() -> ToolSpecification:
    return create_tool_specification(
        "sayHello", "Returns a friendly greeting message for the given name", SIGNATURE
    )


def test_a_specification_has_what_it_was_made_of_and_a_generated_schema():
    """Seed 004, createToolSpecification and the accessors."""
    specification = say_hello()
    assert specification.name == "sayHello"
    assert specification.description == "Returns a friendly greeting message for the given name"
    assert specification.type_signature == SIGNATURE
    assert specification.schema == json.loads(SEED_JSON)["schema"]
    assert specification.schema is specification.schema


def test_the_gram_form_is_the_seeds_to_the_letter():
    """Seed 004, Serialization Format (gram notation)."""
    assert say_hello().to_gram() == SEED_GRAM


def test_the_gram_form_is_read_back():
    """Seed 004, Serialization; the reference implementation has no serializer."""
    assert ToolSpecification.from_gram(SEED_GRAM) == say_hello()
    assert ToolSpecification.from_gram(SEED_GRAM).to_gram() == SEED_GRAM


def test_the_json_form_is_the_seeds():
    """Seed 004, JSON Format, keys in the same order."""
    assert json.dumps(say_hello().to_json()) == json.dumps(json.loads(SEED_JSON))


def test_the_json_form_is_read_back():
    """Seed 004, ToolSpecification is fully serializable."""
    assert ToolSpecification.from_json(json.loads(SEED_JSON)) == say_hello()


def test_the_schema_is_not_needed_to_read_json():
    """Seed 004: the JSON schema is generated during deserialization."""
    data = json.loads(SEED_JSON)
    del data["schema"]
    assert ToolSpecification.from_json(data).schema == say_hello().schema


def test_a_stored_schema_that_differs_is_replaced_with_a_warning():
    """Seed 004: typeSignature is the source of truth."""
    data = json.loads(SEED_JSON)
    data["schema"]["properties"]["name"]["type"] = "integer"
    with pytest.warns(StoredSchemaWarning, match="'sayHello' differs"):
        assert ToolSpecification.from_json(data).schema == say_hello().schema


def test_a_stored_schema_in_gram_is_compared_as_well():
    """The same for the gram form."""
    text = '[t:Tool {description:"d", schema:json`{}`} | (a::Text)==>(::String)]'
    with pytest.warns(StoredSchemaWarning):
        ToolSpecification.from_gram(text)
    with pytest.warns(StoredSchemaWarning):
        specifications_in(read(text))


def test_an_equal_stored_schema_in_another_order_gives_no_warning():
    """Equality of schemas ignores the order of keys and of required names."""
    specification = create_tool_specification("t", "d", "(a::Text)==>(b::Int)==>(::String)")
    data = specification.to_json()
    data["schema"] = {
        "required": ["b", "a"],
        "properties": {"b": {"type": "integer"}, "a": {"type": "string"}},
        "type": "object",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ToolSpecification.from_json(data) == specification


def test_changing_the_json_form_does_not_change_the_specification():
    """A specification is a value."""
    specification = say_hello()
    specification.to_json()["schema"]["properties"].clear()
    assert specification == say_hello()
    assert specification.schema == say_hello().schema


def test_safety_and_categories_are_written_only_when_present():
    """Design of the gram layer, optional properties."""
    specification = create_tool_specification(
        "write_file",
        "Write a file",
        "(path::Text)==>(::String)",
        safety="dangerous",
        categories=("files", "disk"),
    )
    assert specification.to_gram() == (
        "[write_file:ToolSpecification {\n"
        '  description: "Write a file",\n'
        '  safety: "dangerous",\n'
        '  categories: ["files", "disk"]\n'
        "} |\n"
        "  (path::Text)==>(::String)\n"
        "]"
    )
    assert list(specification.to_json()) == [
        "name",
        "description",
        "typeSignature",
        "schema",
        "safety",
        "categories",
    ]
    assert ToolSpecification.from_gram(specification.to_gram()) == specification
    assert ToolSpecification.from_json(specification.to_json()) == specification


def test_bare_words_are_text():
    """Gram has symbols beside strings."""
    text = "[t:Tool {description: short, safety: cautious, categories: [a, b]} | (a::Text)==>(::String)]"
    specification = ToolSpecification.from_gram(text)
    assert (specification.description, specification.safety, specification.categories) == (
        "short",
        "cautious",
        ("a", "b"),
    )


@pytest.mark.parametrize("label", ["ToolSpecification", "Tool"])
def test_the_label_read_is_the_label_printed(label):
    """Design of the gram layer, both labels are read."""
    specification = ToolSpecification.from_gram(SEED_GRAM.replace("ToolSpecification", label))
    assert specification.label == label
    assert specification == say_hello()
    assert f"[sayHello:{label} {{" in specification.to_gram()


def test_the_text_of_the_signature_stays_as_written():
    """The author's style is never changed."""
    signature = "(a :Text)-->  // first\n  (b::`Maybe Int`)~~>(::String)"
    specification = create_tool_specification("t", "d", f"\n {signature} // the end\n")
    assert specification.type_signature == signature
    assert ToolSpecification.from_gram(specification.to_gram()).type_signature == signature


def test_specifications_are_values():
    """Frozen, hashable, comparable, picklable, replaceable."""
    specification = say_hello()
    assert len({specification, say_hello()}) == 1
    assert pickle.loads(pickle.dumps(specification)) == specification
    assert dataclasses.replace(specification, name="other").schema == specification.schema
    with pytest.raises(dataclasses.FrozenInstanceError):
        specification.name = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (("", "d", SIGNATURE), "a tool needs a name that is not empty"),
        (("  ", "d", SIGNATURE), "a tool needs a name that is not empty"),
        ((None, "d", SIGNATURE), "a tool needs a name that is not empty"),
        (("a\nb", "d", SIGNATURE), "cannot be shown: remove them"),
        (("n", "", SIGNATURE), "the description of tool 'n' is empty: say what"),
        (("n", " \n", SIGNATURE), "the description of tool 'n' is empty"),
        (("n", None, SIGNATURE), "the description of tool 'n' is missing"),
        (("n", 5, SIGNATURE), "is not text but int"),
        (("n", "\ud800", SIGNATURE), "lone surrogate"),
        (("n", "d", ""), "a type signature is exactly one path"),
        (("n", "d", "(::Txt)==>(::String)"), "unknown type 'Txt'"),
        (("n", "d", None), "expected text"),
        (("n", "d", SIGNATURE + "] [evil:Tool"), "expected"),
    ],
)
def test_every_precondition_is_refused_by_name(parts, reason):
    """Seed 004, createToolSpecification, Preconditions."""
    with pytest.raises(GramError, match=reason):
        create_tool_specification(*parts)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"safety": "dangeros"}, "use safe, cautious, dangerous; did you mean 'dangerous'"),
        ({"safety": 3}, "use safe, cautious, dangerous"),
        ({"categories": "files"}, "must be a list of words"),
        ({"categories": ("a", "")}, "must be a list of words"),
        ({"categories": (1,)}, "must be a list of words"),
    ],
)
def test_wrong_safety_and_categories_are_refused(options, reason):
    """Design of the gram layer, optional properties."""
    with pytest.raises(SpecificationError, match=reason):
        create_tool_specification("n", "d", SIGNATURE, **options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "found no"),
        ("[x:Other]", "found no"),
        (SEED_GRAM + SEED_GRAM, "found 2 tool specifications"),
        ('[:Tool {description:"d"} | (::Text)==>(::String)]', "1:1: the tool has no name"),
        ('\n [t:Tool {descripton:"d"} | (::Text)==>(::String)]', "2:2: .*did you mean 'description'"),
        ('[t:Tool {description:"d", safty:safe} | (::Text)==>(::String)]', "did you mean 'safety'"),
        ("[t:Tool | (::Text)==>(::String)]", "1:1: the description of tool 't' is missing"),
        ('[t:Tool {description:"d"}]', "one element, its type signature, not 0"),
        ('[t:Tool {description:"d"} | (::Text)==>(::String), x]', "not 2"),
        ('[t:Tool {description:"d", categories:[5kg]} | (::Text)==>(::String)]', "measurement"),
    ],
)
def test_patterns_that_are_no_specification_are_refused_with_their_place(text, reason):
    """Design of the gram layer, exactly one element, name as identity, description not empty."""
    with pytest.raises(SpecificationError, match=reason):
        ToolSpecification.from_gram(text)


def test_a_bad_signature_in_a_pattern_is_shown_where_it_stands():
    """Positions are those of the file."""
    with pytest.raises(TypeSignatureError) as caught:
        ToolSpecification.from_gram(SEED_GRAM.replace("Text", "Txt"))
    assert (caught.value.line, caught.value.column) == (4, 4)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "expected a JSON object, received NoneType"),
        ("{}", "decode the JSON first"),
        ({}, "has no 'name'"),
        ({"name": "n", "description": "d"}, "has no 'typeSignature'"),
        ({"name": "n", "description": "d", "type_signature": SIGNATURE}, "did you mean 'typeSignature'"),
        ({"name": 1, "description": "d", "typeSignature": SIGNATURE}, "needs a name"),
        (
            {"name": "n", "description": "d", "typeSignature": SIGNATURE, "categories": {"a": 1}},
            "list of words",
        ),
    ],
)
def test_json_that_is_no_specification_is_refused(data, reason):
    """Seed 004, FromJSON."""
    with pytest.raises(SpecificationError, match=reason):
        ToolSpecification.from_json(data)


def test_all_specifications_of_a_document_are_found_in_order():
    """Tools stand alone or inside agents."""
    nested = '[g:Agent | [b:Tool {description:"d"} | ()==>(::Int)]]'
    text = f'@note("x") [a:Tool {{description:"d"}} | (::Text)==>(::String)] {nested}'
    assert [item.name for item in specifications_in(read(text))] == ["a", "b"]


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)
shown = words.filter(str.isprintable)
signatures = st.sampled_from(
    [
        SIGNATURE,
        "()==>(::Int)",
        "(a::`[Maybe Int]`)-->(::String)",
        '(a::Text {default:"``` // x"})==>(::String)',
    ]
)
specifications = st.builds(
    create_tool_specification,
    st.from_regex(SYMBOL, fullmatch=True),
    words | st.text(alphabet='ab`/\n\t\r {}"\\', min_size=1).filter(str.strip),
    signatures,
    safety=st.none() | st.sampled_from(SAFETY_WORDS),
    categories=st.lists(shown, max_size=3).map(tuple),
)


@given(specifications)
def test_every_specification_survives_gram(specification):
    """Seed 004, Serialization: nothing is lost in gram notation."""
    assert ToolSpecification.from_gram(specification.to_gram()) == specification


@given(specifications)
def test_every_specification_survives_json(specification):
    """Seed 004, Serialization: nothing is lost in JSON."""
    assert ToolSpecification.from_json(json.loads(json.dumps(specification.to_json()))) == specification


def test_the_formatter_keeps_the_meaning_of_the_seeds_specification():
    """Layout is not meaning."""
    assert ToolSpecification.from_gram(format_gram(SEED_GRAM)) == say_hello()
