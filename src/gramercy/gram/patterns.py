"""Labelled patterns, as tools and agents have in common: find them, read their properties, write them.

What programs write has one property a line; patterns that people wrote keep their own layout (`formatter`).
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from gramercy.errors import SpecificationError, TextPosition
from gramercy.gram.suggestion import LONGEST_WORD
from gramercy.gram.syntax.literals import SURROGATE
from gramercy.gram.syntax.printer import print_key, print_label, print_name, print_value
from gramercy.gram.syntax.scanner import SYMBOL
from gramercy.gram.syntax.tree import Annotated, Bracket, Symbol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gramercy.gram.syntax.tree import Document, Element, Pattern, Value


def labelled_brackets(document: Document, labels: Collection[str]) -> Iterator[Bracket]:
    """Yield every bracket that carries one of the labels, at any depth, in the order of the text."""
    for bracket in brackets_in(document.patterns):
        if label_of(bracket, labels) is not None:
            yield bracket


def brackets_in(patterns: Iterable[Pattern | Element]) -> Iterator[Bracket]:
    """Yield every bracket, outer ones before the ones inside them."""
    for pattern in patterns:
        inner = pattern.pattern if isinstance(pattern, Annotated) else pattern
        if isinstance(inner, Bracket):
            yield inner
            yield from brackets_in(inner.elements)


def label_of(bracket: Bracket, labels: Collection[str]) -> str | None:
    """Return the first label of a bracket that is one of the given ones."""
    return next((name for name in bracket.subject.label_names if name in labels), None)


def fault_at(pattern: Element, source: str, reason: str) -> SpecificationError:
    """Make the error for a pattern, with its line and column."""
    place = TextPosition.at(source, max(0, pattern.span[0]))
    return SpecificationError(f"{place.line}:{place.column}: {reason}")


def text_of(values: Mapping[str, Any], key: str) -> Any:
    """Return a property, a bare word as text; None when it is missing."""
    value = values.get(key)
    return value.name if isinstance(value, Symbol) else value


def misspelt(values: Iterable[str], known: Collection[str]) -> tuple[str, str] | None:
    """Return a key that means nothing but is nearly one that is missing, with that one."""
    present = list(values)
    missing = [key for key in known if key not in present]
    for key in present:
        # Metadata of other programs is welcome, so only an obvious slip counts.
        close = get_close_matches(key[:LONGEST_WORD], missing, n=1, cutoff=0.8) if key not in known else []
        if close:
            return key, close[0]
    return None


def check_name(name: object, what: str) -> None:
    """Refuse a name that is empty or could not be shown on one line."""
    if not isinstance(name, str) or not name.strip():
        raise SpecificationError(f"a {what} needs a name that is not empty, received {name!r:.100}")
    if not name.isprintable():
        raise SpecificationError(
            f"the {what} name {name!r:.100} has characters that cannot be shown: remove them"
        )


def check_tool_name(name: object) -> None:
    """Refuse a name that no tool can have: nothing could ever be bound to it."""
    check_name(name, "tool")
    if isinstance(name, str) and not SYMBOL.fullmatch(name):
        raise SpecificationError(
            f"no tool can be called {name!r:.100}: use ASCII letters, digits and _ . - @, as in sayHello"
        )


def check_text(value: object, which: str, advice: str) -> None:
    """Refuse text that is missing, empty or not valid Unicode."""
    if not isinstance(value, str):
        found = "missing" if value is None else f"not text but {type(value).__name__}"
        raise SpecificationError(f"{which} is {found}: {advice}")
    if not value.strip():
        raise SpecificationError(f"{which} is empty: {advice}")
    if SURROGATE.search(value):
        raise SpecificationError(f"{which} has a lone surrogate: remove it")


STEP = "  "


def block_text(
    name: str, label: str, values: Mapping[str, Value], elements: Sequence[str], *, indent: str = ""
) -> str:
    """Write `[name:label {…} | …]`; elements come as text, laid out for one step more than `indent`."""
    inner = indent + STEP
    properties = ",\n".join(
        f"{inner}{print_key(key)}: {_value_text(value, inner)}" for key, value in values.items()
    )
    head = f"[{print_name(name)}:{print_label(label)}"
    if properties:
        head += f" {{\n{properties}\n{indent}}}"
    if not elements:
        return f"{head}]"
    return f"{head} |\n" + ",\n".join(inner + element for element in elements) + f"\n{indent}]"


def _value_text(value: Value, indent: str) -> str:
    if isinstance(value, str) and _fits_a_fence(value):
        return f"```\n{value}\n{indent}```"
    return print_value(value)


def _fits_a_fence(text: str) -> bool:
    """Tell whether text is of several lines that a fence can hold without loss."""
    plain = text.replace("\n", "").replace("\t", "").isprintable()
    return "\n" in text and plain and "```" not in text and not text.lstrip().startswith("//")
