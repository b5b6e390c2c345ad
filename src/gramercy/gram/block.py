"""Write patterns that programs make: one property a line, elements indented by two.

Patterns that people wrote keep their own layout: that is the business of `formatter`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gramercy.gram.syntax.printer import print_key, print_label, print_name, print_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gramercy.gram.syntax.tree import Value

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
