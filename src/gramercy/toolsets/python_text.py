"""Find the definitions of Python text, and where it cannot be read. Evaluates nothing.

The text is parsed by the interpreter that runs this program: syntax that is newer is told as such.
"""

from __future__ import annotations

import ast
import sys
import warnings
from functools import lru_cache
from io import StringIO
from token import COMMENT, DEDENT, ENDMARKER, INDENT, NEWLINE, NL, tok_name
from tokenize import TokenError, generate_tokens
from typing import TYPE_CHECKING

from gramercy.toolsets.documents import lines
from gramercy.toolsets.outlines import Definition, Fault, Language, Lines, Outline, indentation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from tokenize import TokenInfo

# The indentation of nearly all Python text.
WIDTH = 4
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
# Blocks that open no scope of their own: what they define belongs to what is around them.
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


# A call is worked out for the seal, for the question and when it runs, before and after the change each time.
@lru_cache(maxsize=4)
def outline(text: str) -> Outline:
    """Read a text."""
    return _outline(text, is_whole=True)


def part(code: str) -> Outline:
    """Read a piece of a text: what only holds in its place, such as nonlocal, is let through."""
    return _outline(_behind("", code), is_whole=False)


def _outline(text: str, *, is_whole: bool) -> Outline:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
            if is_whole:
                # Finds what only a compiler does, such as return outside of a function.
                compile(text, "<text>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return Outline(faults=[_fault(error)])
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or "it is nested too deeply"
        return Outline(faults=[Fault(1, 1, f"the text cannot be parsed: {reason}")])
    finder = _Finder(text)
    finder.find(tree.body)
    return Outline(finder.found, len(tree.body))


def _fault(error: SyntaxError) -> Fault:
    version = "{}.{}".format(*sys.version_info)
    kind = "" if type(error) is SyntaxError else f"{type(error).__name__}: "
    hint = f"read as Python {version}, on which gramercy runs: what is newer is taken for a fault"
    return Fault(error.lineno or 1, max(1, error.offset or 1), f"{kind}{error.msg}", hint)


class _Finder:
    """Collects the definitions of a tree."""

    def __init__(self, text: str) -> None:
        self._lines = Lines(text)
        self.found: list[Definition] = []

    def find(self, statements: Iterable[ast.AST], parent: str = "", *, in_function: bool = False) -> None:
        """Add the definitions among these statements, and those inside of them."""
        for node in statements:
            if isinstance(node, _DEFINITIONS):
                name = f"{parent}.{node.name}" if parent else node.name
                self.found.append(self._definition(node, name, parent))
                self.find(node.body, name, in_function=isinstance(node, _FUNCTIONS))
                continue
            if not in_function:
                self.found += [
                    self._definition(node, f"{parent}.{name}" if parent else name, parent)
                    for name in _assigned(node)
                ]
            for block in _BLOCKS:
                self.find(getattr(node, block, ()), parent, in_function=in_function)

    def _definition(self, node: ast.AST, name: str, parent: str) -> Definition:
        first, last = _line_span(node)
        outer = self._lines.starts[first - 1]
        start = self._lines.starts[getattr(node, "lineno", first) - 1]
        short = name.rpartition(".")[2]
        local = name.replace(".", ".<locals>.")
        return Definition(
            kind=_kind(node, parent),
            name=name,
            exact=f"{name}@{getattr(node, 'lineno', first)}",
            lead=self._lead(first),
            outer=outer,
            start=start,
            end=self._lines.starts[last - 1] + len(self._lines.text(last)),
            line=getattr(node, "lineno", first),
            last_line=last,
            keys=frozenset({name, local}),
            weak_keys=frozenset({short}),
            parent=parent,
            is_alone=self._is_alone(node),
        )

    def _is_alone(self, node: ast.AST) -> bool:
        """Tell whether no other statement is on the lines of this one."""
        first = self._lines.text(node.lineno).encode()  # type: ignore[attr-defined]  # statements have places
        last = self._lines.text(node.end_lineno).encode()  # type: ignore[attr-defined]
        after = last[node.end_col_offset :].strip()  # type: ignore[attr-defined]
        return not first[: node.col_offset].strip() and (not after or after.startswith(b"#"))  # type: ignore[attr-defined]

    def _lead(self, first: int) -> int:
        """Return where the comment lines right above a line begin."""
        number = first
        while number > 1 and self._lines.text(number - 1).lstrip().startswith("#"):
            number -= 1
        return self._lines.starts[number - 1]


def _line_span(node: ast.AST) -> tuple[int, int]:
    """Return the first line, decorators included, and the last one."""
    decorators = [decorator.lineno for decorator in getattr(node, "decorator_list", ())]
    first: int = min([node.lineno, *decorators])  # type: ignore[attr-defined]  # statements have places
    return first, node.end_lineno or first  # type: ignore[attr-defined]


def _kind(node: ast.AST, parent: str) -> str:
    if isinstance(node, ast.ClassDef):
        return "class"
    if isinstance(node, _FUNCTIONS):
        word = "method" if parent else "function"
        return f"async {word}" if isinstance(node, ast.AsyncFunctionDef) else word
    return "variable"


def _assigned(node: ast.AST) -> Iterator[str]:
    """Return the names that a statement assigns to."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    elif type(node).__name__ == "TypeAlias":
        targets = [node.name]  # type: ignore[attr-defined]  # from Python 3.12 on
    else:
        return
    for target in targets:
        yield from dict.fromkeys(
            each.id
            for each in ast.walk(target)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        )


def wanted_key(wanted: str) -> str:
    """Return the key under which a definition is looked up that a caller has named."""
    words = wanted.strip().rstrip(":").partition("(")[0].split()
    # A caller may give the beginning of the definition: def area, class Circle(Shape).
    return words[-1] if words and words[0] in {"def", "class", "async"} else wanted.strip()


def fitted(code: str, indent: str, text: str) -> str:
    """Write code as it stands behind an indentation, with tabs or blanks as the file has them."""
    return _behind(indent, _in_units(code, _unit(text)))


def _behind(indent: str, code: str) -> str:
    """Put code behind an indentation in place of its own. Lines inside of strings are never touched."""
    every = lines(code.strip("\r\n").rstrip())
    if not every:
        return ""
    inside = _lines_in_strings("".join(every))
    own = indentation(every[0])
    depths = [len(indentation(line)) for n, line in enumerate(every, 1) if line.strip() and n not in inside]
    further = [depth for depth in depths if depth]
    # Code whose first line alone was cut out of its class: the others stand where they should already.
    if not own and indent and further and min(further) > len(indent) and _is_double(min(further), indent):
        return "".join(line if indentation(line) or not line.strip() else indent + line for line in every)
    return "".join(
        line
        if number in inside or not line.strip() or not line.startswith(own)
        else indent + line[len(own) :]
        for number, line in enumerate(every, 1)
    )


def _is_double(depth: int, indent: str) -> bool:
    """Tell whether a body is indented as one behind an indentation would be, and not as one at its left."""
    return "\t" not in indent and depth == len(indent) + WIDTH and len(indent) % WIDTH == 0


def _unit(text: str) -> str:
    """Return what the lines of a file are indented with: a tab or blanks."""
    indented = [line for line in lines(text) if line[:1] in {" ", "\t"} and line.strip()]
    tabs = sum(line[0] == "\t" for line in indented)
    return "\t" if tabs * 2 > len(indented) else " " * WIDTH


def _in_units(code: str, unit: str) -> str:
    """Write the indentation of code with tabs where a file has tabs, and with blanks where it has blanks."""
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
    """Return the numbers of the lines that begin inside of a string, docstrings aside.

    The lines of a docstring are indented with the code around it by habit, and its readers know that.
    """
    found: set[int] = set()
    try:
        tokens = [
            token for token in generate_tokens(StringIO(code).readline) if token.type not in {COMMENT, NL}
        ]
    except (TokenError, SyntaxError):
        # The code does not parse, which is told elsewhere.
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
