"""Tool specifications: what a tool is called, what it is for and what it takes; never how it is done.

The type signature is the source of truth. The JSON Schema is derived from it and never read back.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gramercy.errors import SpecificationError, StoredSchemaWarning
from gramercy.gram.json_schema import canonical_schema
from gramercy.gram.patterns import (
    block_text,
    check_text,
    check_tool_name,
    fault_at,
    label_of,
    labelled_brackets,
    misspelt,
    text_of,
)
from gramercy.gram.signatures.properties import to_json
from gramercy.gram.signatures.signature import path_of_signature, signature_of_path
from gramercy.gram.suggestion import did_you_mean
from gramercy.gram.syntax.reader import read

if TYPE_CHECKING:
    from gramercy.gram.json_schema import Schema
    from gramercy.gram.syntax.tree import Bracket, Document, Value

TOOL_LABELS: Final = ("ToolSpecification", "Tool")
# The words for safety levels, from harmless to dangerous.
SAFETY_WORDS: Final = ("safe", "cautious", "dangerous")
TOOL_PROPERTIES: Final = ("description", "safety", "categories", "schema")


@dataclass(frozen=True, slots=True)
class ToolSpecification:
    """A tool as agents know it; the schema is made from the type signature.

    `label` is the label it was read with, and is printed with.
    """

    name: str
    description: str
    type_signature: str
    safety: str | None = None
    categories: tuple[str, ...] = ()
    label: str = field(default=TOOL_LABELS[0], compare=False, kw_only=True)
    schema: Schema = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what the contract refuses, and derive the schema."""
        check_tool_name(self.name)
        check_text(self.description, f"the description of tool {self.name!r}", "say what the tool does")
        object.__setattr__(self, "safety", _safety_word(self))
        object.__setattr__(self, "categories", _category_words(self))
        if self.label not in TOOL_LABELS:
            raise SpecificationError(f"the label {self.label!r} is unknown: use {' or '.join(TOOL_LABELS)}")
        path = path_of_signature(self.type_signature)
        schema = signature_of_path(path, self.type_signature).to_schema()
        start, end = path.span
        object.__setattr__(self, "type_signature", self.type_signature[start:end])
        object.__setattr__(self, "schema", schema)

    def to_gram(self) -> str:
        """Write the specification in gram notation, the name as the pattern's identity."""
        return block_text(self.name, self.label, self.properties(), [self.type_signature])

    def properties(self) -> dict[str, Value]:
        """Return the properties that are written in gram notation."""
        values: dict[str, Value] = {"description": self.description}
        if self.safety is not None:
            values["safety"] = self.safety
        if self.categories:
            values["categories"] = list(self.categories)
        return values

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; the schema is included for convenience."""
        data: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "typeSignature": self.type_signature,
            "schema": deepcopy(self.schema),
        }
        values = self.properties()
        return data | {key: values[key] for key in ("safety", "categories") if key in values}

    @classmethod
    def from_gram(cls, text: str) -> ToolSpecification:
        """Read the one specification that a text holds."""
        brackets = list(labelled_brackets(read(text), TOOL_LABELS))
        if len(brackets) != 1:
            found = (
                f"{len(brackets)} tool specifications" if brackets else "no [name:ToolSpecification {…} | …]"
            )
            raise SpecificationError(
                f"expected one tool specification, found {found}: use specifications_in for many"
            )
        specification = specification_of(brackets[0], text)
        specification.warn_of(stored_schema(brackets[0]))
        return specification

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ToolSpecification:
        """Read the JSON form; the schema is made anew, and a stored one that differs is warned of."""
        if not isinstance(data, Mapping):
            raise SpecificationError(
                f"expected a JSON object, received {type(data).__name__}: decode the JSON first"
            )
        wrong = misspelt(map(str, data), ("name", "typeSignature", *TOOL_PROPERTIES))
        if wrong:
            raise SpecificationError(f"unknown key {wrong[0]!r}: did you mean {wrong[1]!r}?")
        for key in ("name", "description", "typeSignature"):
            if key not in data:
                raise SpecificationError(f"the JSON of a tool specification has no {key!r}: add it")
        specification = cls(
            data["name"],
            data["description"],
            data["typeSignature"],
            data.get("safety"),
            data.get("categories") or (),
        )
        specification.warn_of(data.get("schema"))
        return specification

    def agrees_with(self, stored: Any) -> bool:
        """Tell whether a stored schema says the same as the signature; none at all agrees."""
        return stored is None or canonical_schema(stored) == canonical_schema(self.schema)

    def warn_of(self, stored: Any) -> None:
        """Warn when a stored schema differs from the derived one, which is the one that counts."""
        if not self.agrees_with(stored):
            warnings.warn(
                f"the schema stored with tool {self.name!r} differs from its type signature, which counts",
                StoredSchemaWarning,
                stacklevel=3,
            )


def create_tool_specification(
    name: str,
    description: str,
    type_signature: str,
    *,
    safety: str | None = None,
    categories: tuple[str, ...] = (),
) -> ToolSpecification:
    """Make a tool specification; its JSON Schema comes from the type signature."""
    return ToolSpecification(name, description, type_signature, safety, categories)


def specifications_in(document: Document) -> list[ToolSpecification]:
    """Return every tool specification of a document, those inside agents included, in order."""
    found = []
    for bracket in labelled_brackets(document, TOOL_LABELS):
        specification = specification_of(bracket, document.source)
        specification.warn_of(stored_schema(bracket))
        found.append(specification)
    return found


def specification_of(bracket: Bracket, source: str) -> ToolSpecification:
    """Read one pattern as a tool specification, with errors that tell its place."""
    try:
        check_pattern(bracket)
        signature_of_path(bracket.elements[0], source)
        return unchecked_specification(bracket, source)
    except SpecificationError as error:
        raise fault_at(bracket, source, str(error)) from None


def check_pattern(bracket: Bracket) -> None:
    """Refuse a pattern that has not the shape of a tool: label, name, known properties, one element."""
    if label_of(bracket, TOOL_LABELS) is None:
        raise SpecificationError(f"a tool needs the label {' or '.join(TOOL_LABELS)}")
    if not bracket.subject.identity:
        raise SpecificationError("the tool has no name: write [name:Tool {…} | …]")
    wrong = misspelt(bracket.subject.properties, TOOL_PROPERTIES)
    if wrong:
        raise SpecificationError(f"unknown property {wrong[0]!r}: did you mean {wrong[1]!r}?")
    if len(bracket.elements) != 1:
        raise SpecificationError(f"a tool has one element, its type signature, not {len(bracket.elements)}")


def unchecked_specification(bracket: Bracket, source: str) -> ToolSpecification:
    """Read a pattern whose shape was checked; errors do not tell its place in the text."""
    values = bracket.subject.properties
    start, end = bracket.elements[0].span
    categories: Any = values.get("categories", [])
    try:
        words = to_json(categories) if isinstance(categories, list) else categories
    except ValueError as error:
        raise SpecificationError(f"the categories cannot be used: {error}") from None
    return ToolSpecification(
        bracket.subject.identity or "",
        text_of(values, "description"),
        source[start:end],
        text_of(values, "safety"),
        words,
        label=label_of(bracket, TOOL_LABELS) or TOOL_LABELS[0],
    )


def stored_schema(bracket: Bracket) -> Any:
    """Return the schema that a pattern stores beside its signature, or None."""
    try:
        return to_json(bracket.subject.properties["schema"])
    except (KeyError, ValueError):
        return None


def _safety_word(specification: ToolSpecification) -> str | None:
    word = specification.safety
    if word is None:
        return None
    if not isinstance(word, str) or word not in SAFETY_WORDS:
        guess = did_you_mean(word, SAFETY_WORDS, before="; ")
        words = ", ".join(SAFETY_WORDS)
        raise SpecificationError(
            f"the safety of tool {specification.name!r} is {word!r:.100}: use {words}{guess}"
        )
    return SAFETY_WORDS[SAFETY_WORDS.index(word)]


def _category_words(specification: ToolSpecification) -> tuple[str, ...]:
    words = specification.categories
    if not isinstance(words, list | tuple) or not all(
        isinstance(word, str) and _is_word(word) for word in words
    ):
        raise SpecificationError(
            f'the categories of tool {specification.name!r} must be a list of words: ["files", "search"]'
        )
    return tuple(words)


def _is_word(text: str) -> bool:
    return bool(text.strip()) and text.isprintable()
