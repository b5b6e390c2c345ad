"""What to try after a syntax error, guessed from the character that stands where something else should.

Every function takes that character, or an empty string at the end of the text, and may know nothing.
"""

from __future__ import annotations

import unicodedata


def for_sign(char: str) -> str | None:
    """Guess from the character alone."""
    if not char:
        return None
    if char.isspace() or unicodedata.category(char) == "Cf":
        return "only plain spaces, tabs and newlines may separate tokens"
    if char.isalpha() and not char.isascii():
        return "put names with other letters than a to z in backticks: `naïve`"
    if char in {"<", ">"}:
        return "arrows are --> <-- -- <--> and the same with = or ~"
    return "a comment starts with //" if char in {"#", "/", ";"} else None


def for_top(char: str) -> str | None:
    """Guess what stands between patterns."""
    if char == ",":
        return "patterns at the top are not separated by commas"
    if char == "{":
        return "a record without a pattern may only be the very first thing"
    if char in {")", "]", "}"}:
        return "this closes nothing that is open"
    return "write (name) for a node, or [name | element] for a pattern" if char.isalnum() else None


def for_bracket(char: str) -> str | None:
    """Guess what follows the subject of a bracket."""
    if char in {"(", "["}:
        return "separate the subject from its elements with '|': [name | element]"
    return "the first element follows '|', the others ','" if char == "," else for_subject(char)


def for_subject(char: str) -> str | None:
    """Guess what stands in or behind an identity with labels."""
    if char == "`" or char.isalnum():
        return "put names with blanks in backticks: `Maybe Text`"
    if char in {'"', "'"}:
        return "names are bare words or in backticks; strings belong into a {key: value} record"
    return None


def for_element(char: str) -> str | None:
    """Guess what stands in place of an element."""
    if char in {"]", ","}:
        return "write the missing element, or remove the sign before this one"
    return "annotations stand only before patterns at the top" if char == "@" else for_subject(char)


def for_label(char: str) -> str | None:
    """Guess what stands in place of a label."""
    return "labels are bare words or in backticks: :Text, :`[Text]`" if char else None


def for_key(char: str) -> str | None:
    """Guess what stands in place of a property name."""
    if char in {",", "}"}:
        return "remove the extra comma"
    return "put the name in double quotes" if char == "'" or char.isdigit() else None


def for_item(char: str) -> str | None:
    """Guess what follows an item of a list."""
    return "separate items with commas" if char.isalnum() or char in {'"', "'", "`", "{", "[", "("} else None


def for_value(char: str) -> str | None:
    """Guess what stands in place of a value."""
    if char in {",", "]", "}", ")"}:
        return "write the missing value, or remove the sign before this one"
    return "a number starts with a digit: 5, -5, 0.5" if char in {".", "+", "-"} else None
