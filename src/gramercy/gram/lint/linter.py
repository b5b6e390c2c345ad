"""Lint gram texts: read them, run every check, and give the findings their place in the file.

Knows text and paths as names; the caller reads the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from gramercy.errors import GramError, GramSyntaxError
from gramercy.gram.lint.checks import (
    find_extensions,
    find_repeated_keys,
    find_repeated_names,
    name_span,
    review_agents,
    review_definitions,
    review_tools,
)
from gramercy.gram.lint.diagnostics import Lines
from gramercy.gram.patterns import labelled_brackets
from gramercy.gram.specification import TOOL_LABELS, ToolSpecification, check_pattern, unchecked_specification
from gramercy.gram.syntax.reader import gram_sources, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gramercy.gram.lint.checks import Finding
    from gramercy.gram.lint.diagnostics import Diagnostic
    from gramercy.gram.syntax.tree import Document


class Mismatch(Protocol):
    """One reason why an implementation does not fit; its text is shown."""

    @property
    def path(self) -> str:
        """What differs: `name`, `description`, `safety` or a path into the schema."""


_CHECKS: Final = (
    find_repeated_keys,
    find_repeated_names,
    find_extensions,
    review_definitions,
    review_tools,
    review_agents,
)


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
