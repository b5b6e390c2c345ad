"""Lint gram texts: read them, run every check, and give the findings their place in the file.

Checks yield code, message and span, and never raise; the codes are those of `diagnostics`. Knows texts, and
paths as names only: the caller reads the files.
"""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from gramercy.errors import GramError, GramSyntaxError, SpecificationError, TypeSignatureError
from gramercy.gram.agents import AGENT_LABEL, AGENT_PROPERTIES, ModelName
from gramercy.gram.lint.diagnostics import Lines
from gramercy.gram.patterns import brackets_in, label_of, labelled_brackets, misspelt, text_of
from gramercy.gram.signatures.declaration import default_faults
from gramercy.gram.signatures.signature import read_signature
from gramercy.gram.specification import (
    TOOL_LABELS,
    ToolSpecification,
    check_pattern,
    stored_schema,
    unchecked_specification,
)
from gramercy.gram.suggestion import did_you_mean
from gramercy.gram.syntax.reader import gram_sources, read
from gramercy.gram.syntax.tree import Annotated, Bracket, Node, Path, Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gramercy.gram.lint.diagnostics import Diagnostic
    from gramercy.gram.signatures.signature import TypeSignature
    from gramercy.gram.syntax.tree import Document, Element, Pattern, Property, Record, Span, Subject


class Mismatch(Protocol):
    """One reason why an implementation does not fit; its text is shown."""

    @property
    def path(self) -> str:
        """What differs: `name`, `description`, `safety` or a path into the schema."""


def lint(
    text: str, *, path: str = "", explain: Callable[[ToolSpecification], Iterable[Mismatch]] | None = None
) -> list[Diagnostic]:
    """Return everything found in a file, in the order of its text; of Markdown only the gram blocks are read.

    `explain` lists why a specification cannot be bound to an implementation, for A109 and A112.
    """
    found: list[Diagnostic] = []
    for source in gram_sources(text, path):
        found += (item.moved(source.first_line) for item in _lint_source(source.text, explain))
    return found


def lint_document(document: Document) -> list[Diagnostic]:
    """Return everything that the checks find in a document."""
    return _diagnostics(document, (finding for check in _CHECKS for finding in check(document)))


def lint_bindings(
    document: Document, explain: Callable[[ToolSpecification], Iterable[Mismatch]]
) -> list[Diagnostic]:
    """Return why tools of the document have no implementation (A109) or a more dangerous one (A112)."""
    return _diagnostics(document, _unbound(document, explain))


def _lint_source(
    text: str, explain: Callable[[ToolSpecification], Iterable[Mismatch]] | None
) -> list[Diagnostic]:
    try:
        document = read(text)
    except GramSyntaxError as error:
        message = f"{error.reason}; {error.hint}" if error.hint else error.reason
        code = "syntax-error" if text[error.offset :].strip() else "missing-node"
        return [Lines(text).diagnostic(code, message, (error.offset, error.offset + 1))]
    found = lint_document(document)
    if explain is not None:
        found += lint_bindings(document, explain)
    return sorted(found, key=lambda item: (item.start, item.code))


def _unbound(
    document: Document, explain: Callable[[ToolSpecification], Iterable[Mismatch]]
) -> Iterator[Finding]:
    for bracket in labelled_brackets(document, TOOL_LABELS):
        try:
            check_pattern(bracket)
            specification = unchecked_specification(bracket, document.source)
        except GramError:
            continue
        for mismatch in explain(specification):
            code = "A112" if mismatch.path == "safety" else "A109"
            yield code, f"tool {specification.name!r}: {mismatch}", name_span(bracket)


def _diagnostics(document: Document, findings: Iterable[Finding]) -> list[Diagnostic]:
    lines = Lines(document.source)
    return sorted(
        {lines.diagnostic(*finding) for finding in findings},
        key=lambda item: (item.start, item.code, item.message),
    )


_LISTED = 'fields in a list are not portable; where a type says all, write fields:{name:"Text", age:"Int"}'
Finding: TypeAlias = "tuple[str, str, Span]"


def find_repeated_keys(document: Document) -> Iterator[Finding]:
    """Find keys that a record has twice: only the last one counts."""
    for record in _records(document):
        seen = set()
        for entry in record.properties:
            if entry.key in seen:
                message = f"the key {entry.key!r} is written twice, and only the last one counts: remove one"
                yield "duplicate-key", message, entry.span
            seen.add(entry.key)


def find_extensions(document: Document) -> Iterator[Finding]:
    """Find syntax that other gram programs refuse."""
    listed = [each.value_span for record in _records(document) for each in _listed_fields(record)]
    for extension in document.extensions:
        start, end = extension.span
        is_field = any(first < start and end < last for first, last in listed)
        if is_field and extension.message.startswith("a map inside an array"):
            yield "A113", _LISTED, extension.span
        else:
            yield "A108", extension.message, extension.span


def _listed_fields(record: Record) -> Iterator[Property]:
    """Yield the fields that are written as the contract writes them, a list of maps with names and types."""
    for entry in record.properties:
        items = entry.value if entry.key == "fields" and isinstance(entry.value, list) else []
        if items and all(isinstance(item, dict) and {"name", "type"} <= item.keys() for item in items):
            yield entry


def find_repeated_names(document: Document) -> Iterator[Finding]:
    """Find names that are introduced twice side by side, at the top or inside one pattern."""
    tops = [bare(pattern) for pattern in document.patterns]
    yield from repeated_names(
        node for top in tops for node in (top.nodes if isinstance(top, Path) else (top,))
    )
    for bracket in brackets_in(tops):
        yield from repeated_names(bracket.elements)


def repeated_names(patterns: Iterable[Element]) -> Iterator[Finding]:
    """Find names that two of the patterns introduce; a bare name only refers."""
    seen = set()
    for pattern in patterns:
        if not isinstance(pattern, Bracket | Node):
            continue
        name = pattern.subject.identity
        if name is None or not (pattern.subject.labels or pattern.subject.record is not None):
            continue
        if name in seen:
            message = f"the name {name!r} is defined a second time: rename one, or refer to the first"
            yield "duplicate-element", message, name_span(pattern)
        seen.add(name)


def bare(pattern: Pattern) -> Node | Path | Bracket:
    """Return a pattern without its annotations."""
    return pattern.pattern if isinstance(pattern, Annotated) else pattern


def name_span(pattern: Bracket | Node) -> Span:
    """Return where the name of a pattern stands, or its first sign when it has none."""
    start = pattern.subject.span[0]
    if pattern.subject.identity_text:
        return start, start + len(pattern.subject.identity_text)
    return pattern.span[0], pattern.span[0] + 1


def _records(document: Document) -> Iterator[Record]:
    if document.record is not None:
        yield document.record
    for pattern in document.patterns:
        for subject in _subjects(bare(pattern)):
            yield subject.properties


def _subjects(element: Element) -> Iterator[Subject]:
    if isinstance(element, Path):
        yield from (node.subject for node in element.nodes)
        yield from (edge.subject for edge in element.edges if edge.subject is not None)
    elif not isinstance(element, Reference):
        yield element.subject
    if isinstance(element, Bracket):
        for inner in element.elements:
            yield from _subjects(inner)


_SNAKE_CASE: Final = re.compile(r"[a-z][a-z0-9_]*\Z")
_DEFINING: Final = (AGENT_LABEL, *TOOL_LABELS)


def review_definitions(document: Document) -> Iterator[Finding]:
    """Find tools and agents that are defined twice anywhere in the text."""
    yield from repeated_names(labelled_brackets(document, _DEFINING))


def review_tools(document: Document) -> Iterator[Finding]:
    """Find faults of every tool specification."""
    for bracket in labelled_brackets(document, TOOL_LABELS):
        yield from _description(bracket)
        faults = list(_signature(bracket))
        yield from faults
        if not any(code in {"A103", "A104"} for code, _, _ in faults):
            yield from _specification(bracket, document.source)
        name = bracket.subject.identity
        if name and not _SNAKE_CASE.match(name):
            yield "A111", f"the name {name!r} is not snake_case", name_span(bracket)


def review_agents(document: Document) -> Iterator[Finding]:
    """Find faults of every agent."""
    definitions = {item.subject.identity: item for item in labelled_brackets(document, _DEFINING)}
    for agent in labelled_brackets(document, {AGENT_LABEL}):
        yield from _necessities(agent)
        seen = set()
        for element in agent.elements:
            name = element_name(element)
            if name is not None and name in seen:
                yield "A102", f"the agent has two tools named {name!r}: remove one", _element_span(element)
            seen.add(name)
            yield from _reference(element, definitions)
    yield from _circles(definitions)


def element_name(element: Element) -> str | None:
    """Return the name that an element of an agent has or refers to."""
    if isinstance(element, Reference):
        return element.identity
    return element.subject.identity if isinstance(element, Bracket) else None


def _description(bracket: Bracket) -> Iterator[Finding]:
    value = text_of(bracket.subject.properties, "description")
    if not isinstance(value, str) or not value.strip():
        yield "A105", "the tool has no description: say what it does", name_span(bracket)


def _signature(bracket: Bracket) -> Iterator[Finding]:
    # Only offsets are wanted: without the source no error spends time on finding its line.
    try:
        check_pattern(bracket)
        signature = read_signature(bracket.elements[0], "")
    except SpecificationError as error:
        yield "A103", str(error), name_span(bracket)
    except TypeSignatureError as error:
        yield _from_error("A103", error)
    else:
        yield from _parameters(signature)


def _parameters(signature: TypeSignature) -> Iterator[Finding]:
    for parameter in signature.parameters:
        for fault in default_faults(parameter, ""):
            yield _from_error("A104", fault)
        if parameter.naming == "position":
            message = f"the parameter has no name and is called {parameter.name!r}: write (name::Text)"
            yield "A106", message, parameter.span


def _specification(bracket: Bracket, source: str) -> Iterator[Finding]:
    """Find what else keeps a well-typed tool from being used, and a schema that says something else."""
    described = text_of(bracket.subject.properties, "description")
    if not isinstance(described, str) or not described.strip():
        return
    try:
        specification = unchecked_specification(bracket, source)
    except SpecificationError as error:
        yield "A103", str(error), name_span(bracket)
        return
    stored = bracket.subject.properties.property("schema")
    if stored is not None and not specification.agrees_with(stored_schema(bracket) or {}):
        message = "the stored schema differs from the type signature, which counts: remove the schema"
        yield "A110", message, stored.span


def _necessities(agent: Bracket) -> Iterator[Finding]:
    values = agent.subject.properties
    instruction = text_of(values, "instruction")
    if not agent.subject.identity:
        yield "A101", "the agent has no name: write [name:Agent {…} | …]", name_span(agent)
    wrong = misspelt(values, AGENT_PROPERTIES)
    if wrong:
        yield "A101", f"unknown property {wrong[0]!r}: did you mean {wrong[1]!r}?", name_span(agent)
    if not isinstance(instruction, str) or not instruction.strip():
        yield "A101", "the agent has no instruction: say what it is to do", name_span(agent)
    try:
        ModelName.parse(text_of(values, "model"))
    except SpecificationError as error:
        found = values.property("model")
        yield "A101", str(error), name_span(agent) if found is None else found.value_span


def _reference(element: Element, definitions: dict[str | None, Bracket]) -> Iterator[Finding]:
    if isinstance(element, Bracket) and label_of(element, _DEFINING):
        return
    if not isinstance(element, Reference):
        yield "A107", "expected a tool, an agent or the name of one", element.span
    elif element.identity not in definitions:
        hint = did_you_mean(element.identity, filter(None, definitions), "define it in this text")
        yield "A107", f"nothing is named {element.identity!r}: {hint}", element.span


def _circles(definitions: dict[str | None, Bracket]) -> Iterator[Finding]:
    """Find a circle of agents that use each other."""
    uses = {
        name: [element_name(item) for item in bracket.elements]
        for name, bracket in definitions.items()
        if label_of(bracket, {AGENT_LABEL})
    }
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        names = error.args[1][::-1]
        message = f"agents use each other in a circle: {' > '.join(map(str, names))}"
        yield "A107", message, name_span(definitions[names[0]])


def _element_span(element: Element) -> Span:
    return name_span(element) if isinstance(element, Bracket) else element.span


def _from_error(code: str, error: TypeSignatureError) -> Finding:
    message = f"{error.reason}; {error.hint}" if error.hint else error.reason
    return code, message, (error.offset, error.offset + 1)


_CHECKS: Final = (
    find_repeated_keys,
    find_repeated_names,
    find_extensions,
    review_definitions,
    review_tools,
    review_agents,
)
