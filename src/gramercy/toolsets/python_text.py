"""Find the definitions and syntax errors of Python text. Evaluates nothing.

The interpreter of this program parses the text. It may be older than that of a project.
"""

from __future__ import annotations

from functools import lru_cache
from io import StringIO
from token import COMMENT, DEDENT, ENDMARKER, INDENT, NEWLINE, NL, tok_name
from tokenize import TokenError, generate_tokens
from typing import TYPE_CHECKING, Any

from gramercy.toolsets.documents import lines
from gramercy.toolsets.outlines import Definition, Fault, Language, Lines, Outline, indentation
from gramercy.toolsets.python_survey import survey

if TYPE_CHECKING:
    from tokenize import TokenInfo

# The indentation of nearly all Python text.
WIDTH = 4
HOST = "on which gramercy runs: what is newer is taken for a fault"


# Each call parses the text for the seal, for the question and when it runs, both before and after the change.
@lru_cache(maxsize=4)
def outline(text: str) -> Outline:
    """Parse a text."""
    return outline_of(text, survey(text, is_whole=True))


def part(code: str) -> Outline:
    """Parse a piece of a text. Statements that need their place, such as nonlocal, are accepted."""
    text = unindented(code)
    return outline_of(text, survey(text, is_whole=False))


def outline_of(text: str, found: dict[str, Any], reader: str = HOST) -> Outline:
    """Make an outline from a survey of a text."""
    if "fault" in found:
        hint = f"read as Python {found['version']}, {reader}"
        line, column, message = found["fault"]
        return Outline(faults=[Fault(line, column, message, hint)])
    numbers = Lines(text)
    return Outline([_definition(numbers, row) for row in found["rows"]], found["count"])


def _definition(numbers: Lines, row: list[Any]) -> Definition:
    kind, name, parent, above, first, line, last, column, end_column, is_documented = row
    before = numbers.text(line).encode()[:column].strip()
    after = numbers.text(last).encode()[end_column:].strip()
    return Definition(
        kind=kind,
        name=name,
        exact=name,
        lead=_lead(numbers, first, above),
        outer=numbers.starts[first - 1],
        start=numbers.starts[line - 1],
        end=numbers.starts[last - 1] + len(numbers.text(last)),
        line=line,
        last_line=last,
        keys=frozenset({name, name.replace(".", ".<locals>.")}),
        weak_keys=frozenset({name.rpartition(".")[2]}),
        parent=parent,
        is_alone=not before and (not after or after.startswith(b"#")),
        is_documented=is_documented,
    )


def _lead(numbers: Lines, first: int, above: int) -> int:
    """Return the start of the comment lines right above a line, after the previous statement."""
    number = first
    while number - 1 > above and numbers.text(number - 1).lstrip().startswith("#"):
        number -= 1
    return numbers.starts[number - 1]


def wanted_key(wanted: str) -> str:
    """Return the lookup key for a definition that a caller has named."""
    words = wanted.strip().rstrip(":").partition("(")[0].split()
    # A caller may give the beginning of the definition: def area, class Circle(Shape).
    return words[-1] if words and words[0] in {"def", "class", "async"} else wanted.strip()


def unindented(code: str) -> str:
    """Remove the common indentation of a piece of text, so that it can be parsed on its own."""
    return _behind("", code)


def fitted(code: str, indent: str, text: str) -> str:
    """Indent code for its place, with tabs or blanks as in the file."""
    return _behind(indent, _in_units(code, _unit(text)))


def _behind(indent: str, code: str) -> str:
    """Replace the indentation of code. Lines inside of strings are never changed."""
    every = lines(code.strip("\r\n").rstrip())
    if not every:
        return ""
    inside = _lines_in_strings("".join(every))
    own = indentation(every[0])
    depths = [len(indentation(line)) for n, line in enumerate(every, 1) if line.strip() and n not in inside]
    further = [depth for depth in depths if depth]
    # Only the first line was cut out of its class without indentation: the others are already in place.
    if not own and indent and further and min(further) > len(indent) and _is_double(min(further), indent):
        return "".join(line if indentation(line) or not line.strip() else indent + line for line in every)
    return "".join(
        line
        if number in inside or not line.strip() or not line.startswith(own)
        else indent + line[len(own) :]
        for number, line in enumerate(every, 1)
    )


def _is_double(depth: int, indent: str) -> bool:
    """Return whether a body is already indented for its place, and not for the left margin."""
    return "\t" not in indent and depth == len(indent) + WIDTH and len(indent) % WIDTH == 0


def _unit(text: str) -> str:
    """Return the unit of indentation of a file: a tab or blanks."""
    indented = [line for line in lines(text) if line[:1] in {" ", "\t"} and line.strip()]
    tabs = sum(line[0] == "\t" for line in indented)
    return "\t" if tabs * 2 > len(indented) else " " * WIDTH


def _in_units(code: str, unit: str) -> str:
    """Convert the indentation of code to the file's unit, tabs or blanks."""
    every = lines(code)
    inside = _lines_in_strings(code)
    used = [indentation(line) for n, line in enumerate(every, 1) if line.strip() and n not in inside]
    if unit == "\t":
        widths = [len(each) for each in used if each and "\t" not in each]
        step, old, new = " " * min(widths, default=WIDTH), " ", "\t"
    else:
        step, old, new = "\t", "\t", unit
    if not any(old in each for each in used) or any(each.strip(old) for each in used):
        return code
    return "".join(
        line if n in inside else indentation(line).replace(step, new) + line[len(indentation(line)) :]
        for n, line in enumerate(every, 1)
    )


def _lines_in_strings(code: str) -> set[int]:
    """Return the numbers of the lines that begin inside of a string, except for docstrings.

    The lines of a docstring are usually indented with the code around it, and its readers expect that.
    """
    found: set[int] = set()
    try:
        tokens = [
            token for token in generate_tokens(StringIO(code).readline) if token.type not in {COMMENT, NL}
        ]
    except (TokenError, SyntaxError):
        # The code does not parse. That is reported elsewhere.
        return found
    opened: list[int] = []
    for number, token in enumerate(tokens):
        name = tok_name[token.type]
        if name == "STRING" and not _is_docstring(tokens, number):
            found.update(range(token.start[0] + 1, token.end[0] + 1))
        elif name in {"FSTRING_START", "TSTRING_START"}:
            opened.append(token.start[0])
        elif name in {"FSTRING_END", "TSTRING_END"}:
            found.update(range(opened.pop() + 1, token.end[0] + 1))
    return found


def _is_docstring(tokens: list[TokenInfo], number: int) -> bool:
    """Tell whether a string is a statement of its own."""
    before = tokens[number - 1].type if number else NEWLINE
    after = tokens[number + 1].type if number + 1 < len(tokens) else NEWLINE
    return before in {NEWLINE, INDENT, DEDENT} and after in {NEWLINE, ENDMARKER}


PYTHON = Language("Python", outline, part, wanted_key, fitted, "#", (2, 1))
