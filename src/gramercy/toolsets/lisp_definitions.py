"""Find the definitions of Common Lisp text, and names that distinguish them."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from gramercy.toolsets.documents import lines
from gramercy.toolsets.lisp_text import Item, Reading, Scan, tokens
from gramercy.toolsets.outlines import Definition, Language, Lines, Outline, indentation

if TYPE_CHECKING:
    from collections.abc import Iterator

# Forms whose subforms count as top-level forms.
_CONTAINERS = frozenset(
    ("PROGN", "EVAL-WHEN", "LOCALLY", "LET", "LET*", "FLET", "LABELS", "MACROLET", "SYMBOL-MACROLET")
)
# Definers whose names do not begin with DEF: those of test libraries.
_DEFINERS = frozenset({"TEST"})
# The words that SBCL prints for methods, in backtraces and listings.
_METHODS = {"DEFMETHOD": "DEFMETHOD", "METHOD": "DEFMETHOD"}
# Definers with documentation as the fourth element, and the least number of elements then.
_DOCUMENTED = {"DEFUN": 5, "DEFMACRO": 5, "DEFVAR": 4, "DEFPARAMETER": 4, "DEFCONSTANT": 4}
# Elements of a definition up to its lambda list. Methods may have several qualifiers.
_MOST_ELEMENTS = 8
# Definitions in progn in eval-when in let. Deeper ones no longer count as definitions of the file.
_DEEPEST = 6
_DEFINITION = re.compile(r"^\(def", re.MULTILINE)
# The columns of a tab, as Emacs indents Lisp.
_TAB = 8
# One missing parenthesis causes one suspicion. A file in an unusual style causes many.
_MOST_SUSPICIONS = 3
_PRINTED_METHOD = re.compile(r"\(\s*method\s", re.IGNORECASE)
# The form that find_definition prints: AREA: method (CIRCLE).
_SAID = re.compile(r":? method (?=[:(])", re.IGNORECASE)
_PACKAGES = re.compile(r"[^\s():|']+::?(?=[^\s:])")
_PACKAGE_PREFIX = re.compile(r"[^|\\:]*::?(?=.)")


class Head(NamedTuple):
    """The head of a form: its operator, and for a definition the name and the method's qualifiers."""

    operator: str
    written: str = ""
    name: str = ""
    qualifiers: tuple[str, ...] = ()
    specializers: tuple[str, ...] | None = None
    parameters: str = ""
    is_documented: bool = False

    @property
    def key(self) -> str:
        """The whole head as a name."""
        parts = [self.operator, spelled(self.name), *self.qualifiers]
        if self.specializers is not None:
            parts.append(f"({' '.join(self.specializers)})")
        return f"({' '.join(parts)})"


# Each call parses the text for the seal, for the question and when it runs, both before and after the change.
@lru_cache(maxsize=4)
def outline(text: str) -> Outline:
    """Parse a text."""
    reading = Reading(text)
    finder = _Finder(reading)
    finder.find(reading.items, reading.comments)
    return Outline(
        finder.found,
        len(reading.items),
        reading.faults,
        _unchecked(reading, finder.readtable),
        list(islice(_suspicions(reading), _MOST_SUSPICIONS)),
    )


def _suspicions(reading: Reading) -> Iterator[str]:
    """Report definitions in the first column inside of another form, whose end may be missing."""
    for item in reading.items:
        if item.start != reading.lines.start(item.start) or item.kind != "open":
            continue
        places = {found.start() for found in _DEFINITION.finditer(reading.text, item.start + 1, item.end)}
        if not places:
            continue
        # In a string or comment it is not a definition.
        for kind, start, _ in tokens(reading.text, item.start, item.end):
            if kind == "open" and start in places:
                yield (
                    f"line {reading.lines.number(start)}: begins in the first column, but inside of the form "
                    f"from line {reading.lines.number(item.start)} on, which may lack a ) before it"
                )
                break


def _unchecked(reading: Reading, readtable: str) -> list[str]:
    """Report the parts that were not checked."""
    found = [
        f"line {reading.lines.number(place)}: {macro} is no standard reader macro; what it reads is unchecked"
        for macro, place in reading.unknown.items()
    ]
    if reading.evaluated:
        count = len(reading.evaluated)
        more = f" and {count - 1} more" if count > 1 else ""
        found.append(f"line {reading.lines.number(reading.evaluated[0])}{more}: #. is not run")
    if readtable:
        found.append(f"{readtable}: the text is read without the reader macros of that readtable")
    return found


class _Finder:
    """Collects the definitions of a reading."""

    def __init__(self, reading: Reading) -> None:
        self._text = reading.text
        self._lines = reading.lines
        self._package = ""
        self.found: list[Definition] = []
        self.readtable = ""

    def find(
        self, items: list[Item], comments: list[tuple[int, int]], depth: int = 0, parent: str = ""
    ) -> None:
        """Add the definitions among these objects, and those inside of them."""
        ends = {end: start for start, end in comments}
        for item in items:
            if item.kind not in {"open", "unclosed"} or not item.is_plain:
                continue
            head = head_of(self._text, item)
            self._note(head)
            definition = self._definition(item, head, ends, parent)
            if depth == 0 or head.name:
                self.found.append(definition)
            if head.operator in _CONTAINERS and depth < _DEEPEST and item.kind == "open":
                scan = Scan(self._text)
                inner = list(scan.items(item.start + 1, item.end - 1))[1:]
                self.find(inner, scan.comments, depth + 1, definition.exact)

    def _note(self, head: Head) -> None:
        if head.operator == "IN-PACKAGE":
            self._package = spelled(head.written)
        elif head.operator == "IN-READTABLE":
            self.readtable = f"(in-readtable {head.written})"

    def _definition(self, item: Item, head: Head, ends: dict[int, int], parent: str) -> Definition:
        outer = item.outer
        keys, exact = _names(head)
        return Definition(
            kind=head.operator.lower(),
            name=head.name or head.operator.lower() or "(…)",
            exact=exact,
            lead=self._lead(outer, ends),
            outer=outer,
            start=item.start,
            end=item.end,
            line=self._lines.number(item.start),
            last_line=self._lines.number(item.end - 1),
            keys=keys if head.name else frozenset(),
            weak_keys=frozenset() if head.name else keys,
            package=self._package,
            parent=parent,
            is_documented=head.is_documented,
        )

    def _lead(self, outer: int, ends: dict[int, int]) -> int:
        """Return the start of the comments right above. A blank line separates comments from a definition."""
        if self._text[self._lines.start(outer) : outer].strip():
            return outer
        first = outer
        while True:
            blank = first
            while blank and self._text[blank - 1] in " \t\n\r\f":
                blank -= 1
            begin = ends.get(blank)
            if begin is None or self._text.count("\n", blank, first) != 1:
                return first
            line = self._lines.start(begin)
            if self._text[line:begin].strip():
                return first
            first = begin


def _names(head: Head) -> tuple[frozenset[str], str]:
    """Return the names under which a form is found, and its exact name."""
    if not head.operator:
        return frozenset(), "(…)"
    if not head.name:
        return frozenset({head.operator, f"({head.operator})"}), f"({head.operator.lower()} …)"
    keys = {spelled(head.name), f"({head.operator} {spelled(head.name)})", head.key}
    exact = f"({head.operator.lower()} {head.name}"
    if head.specializers is not None:
        keys.add(head._replace(specializers=None).key)
        exact = " ".join([exact, *map(str.lower, head.qualifiers), head.parameters])
    return frozenset(keys), f"{exact})"


def head_of(text: str, item: Item) -> Head:
    """Parse the head of a form."""
    end = item.end - 1 if item.kind == "open" else item.end
    elements = list(islice(Scan(text).items(item.start + 1, end), _MOST_ELEMENTS))
    if not elements or elements[0].kind != "atom":
        return Head("")
    operator = spelled(_written(text, elements[0]))
    operator = _METHODS.get(operator, operator)
    written = _squeezed(_written(text, elements[1])) if len(elements) > 1 else ""
    if not (operator.startswith("DEF") or operator in _DEFINERS) or written in {"", "()"}:
        return Head(operator, written)
    head = Head(operator, written, _name(text, elements[1]), is_documented=_is_documented(operator, elements))
    return _method(text, head, elements[2:]) if operator == "DEFMETHOD" else head


def _is_documented(operator: str, elements: list[Item]) -> bool:
    """Return whether a function or variable has documentation. A string that is the whole body is not."""
    least = _DOCUMENTED.get(operator, len(elements) + 1)
    return len(elements) >= least and elements[3].kind == "string"


def _method(text: str, head: Head, elements: list[Item]) -> Head:
    """Add the parts that distinguish a method from others of the same name."""
    qualifiers: list[str] = []
    for element in elements:
        if element.kind == "open":
            required = list(_required(text, element))
            specializers = tuple(_specializer(text, parameter) for parameter in required)
            parameters = " ".join(_squeezed(_written(text, parameter)) for parameter in required)
            return head._replace(
                qualifiers=tuple(qualifiers), specializers=specializers, parameters=f"({parameters})"
            )
        qualifiers.append(spelled(_written(text, element), is_keyword=True))
    return head


def _required(text: str, element: Item) -> Iterator[Item]:
    for parameter in Scan(text).items(element.start + 1, element.end - 1):
        if _written(text, parameter).startswith("&"):
            return
        yield parameter


def _specializer(text: str, parameter: Item) -> str:
    if parameter.kind != "open":
        return "T"
    parts = list(islice(Scan(text).items(parameter.start + 1, parameter.end - 1), 2))
    return _class(_written(text, parts[1])) if len(parts) > 1 else "T"


def _name(text: str, element: Item) -> str:
    """Return the name as written. For a list such as (point (:copier nil)) return its first element."""
    written = _squeezed(_written(text, element))
    if element.kind != "open":
        return written
    inner = list(islice(Scan(text).items(element.start + 1, element.end - 1), 1))
    if not inner or spelled(_written(text, inner[0])) == "SETF":
        return written
    return _name(text, inner[0])


def _written(text: str, item: Item) -> str:
    return text[item.start if item.is_plain else item.outer : item.end]


def _squeezed(written: str) -> str:
    return " ".join(written.split())


def spelled(written: str, *, is_keyword: bool = False) -> str:
    """Normalize a name for comparison: without package and marks, in capitals unless it is escaped."""
    if written.startswith("("):
        inner = " ".join(spelled(part, is_keyword=True) for part in written.strip("()").split())
        return f"({inner})"
    written = written.lstrip("'")
    if written.startswith('"'):
        return written.strip('"').upper()
    if written.startswith("#\\"):
        # Some definers name a character.
        return written.upper()
    if is_keyword and written.startswith(":"):
        return written.upper()
    bare = _PACKAGE_PREFIX.sub("", written.removeprefix("#:"), count=1) if ":" in written else written
    if "|" in bare:
        return bare.replace("|", "")
    return bare.replace("\\", "").upper()


def wanted_key(wanted: str) -> str:
    """Return the lookup key for a definition that a caller has named.

    The name may be the plain name, the beginning of the definition, or a method as SBCL and other tools print
    it.
    """
    wanted = _SAID.sub(" ", wanted.strip())
    items = list(Scan(wanted).items())
    if len(items) > 1 and items[-1].kind == "open":
        wanted = f"({wanted})"
    if not wanted.startswith("("):
        return spelled(wanted)
    scan = Scan(wanted)
    list(scan.items())
    closed = wanted + ")" * len(scan.unclosed)
    item = next(Scan(closed).items())
    head = head_of(closed, item)
    if head.name and not _PRINTED_METHOD.match(closed):
        return head.key
    elements = list(Scan(closed).items(item.start + 1, item.end - 1))
    if head.operator == "SETF" and [each.kind for each in elements[1:]] == ["atom"]:
        return spelled(_squeezed(closed))
    if len(elements) > 1 and elements[-1].kind == "open":
        return _printed_method(closed, elements[1:] if head.name else elements).key
    return f"({head.operator})"


def _printed_method(text: str, elements: list[Item]) -> Head:
    """Parse a printed method: name, qualifiers, and a list of specializers."""
    name, *qualifiers, last = elements
    classes = Scan(text).items(last.start + 1, last.end - 1)
    return Head(
        "DEFMETHOD",
        name=_squeezed(_written(text, name)),
        qualifiers=tuple(spelled(_written(text, each), is_keyword=True) for each in qualifiers),
        specializers=tuple(_class(_written(text, each)) for each in classes),
    )


def _class(written: str) -> str:
    """Normalize a specializer for comparison: without packages and quotes."""
    return _PACKAGES.sub("", _squeezed(written)).replace("'", "").upper()


def fitted(code: str, indent: str, _text: str) -> str:
    """Indent code for a column. Code that is already indented that far stays unchanged.

    Lines that begin inside of a string are never changed. The first line gets no indentation: the text before
    the form in the file stays.
    """
    code = code.strip()
    if not indent or _stands_at(code, _width(indent)):
        return code
    inside = _lines_in_strings(code)
    first, *rest = lines(code)
    shifted = [
        line if number in inside or not line.strip() else _moved(line, indent)
        for number, line in enumerate(rest, 2)
    ]
    return "".join([first, *shifted])


def _width(blanks: str) -> int:
    """Return the column after leading blanks."""
    return len(blanks.expandtabs(_TAB))


def _moved(line: str, indent: str) -> str:
    """Return a line indented further. Its tabs become blanks where they would reach another column."""
    own = indentation(line)
    return indent + (own.expandtabs(_TAB) if _width(indent) % _TAB else own) + line[len(own) :]


def _stands_at(code: str, column: int) -> bool:
    """Return whether the lines after the first are already indented for the column."""
    numbers, inside = Lines(code), _lines_in_strings(code)
    items = list(Scan(code).items())
    outer: list[int] = []
    inner: list[int] = []
    for number, line in enumerate(numbers.all[1:], 2):
        if not line.strip() or number in inside:
            continue
        own = indentation(line)
        place = numbers.starts[number - 1] + len(own)
        is_inner = any(item.start < place < item.end for item in items)
        (inner if is_inner else outer).append(_width(own))
    # Forms beside the first line are at the column itself, and lines inside of a form are further in.
    return min(outer) >= column if outer else min(inner, default=0) > column


def _lines_in_strings(code: str) -> set[int]:
    """Return the numbers of the lines that begin inside of a string."""
    numbers = Lines(code)
    found: set[int] = set()
    for kind, start, end in tokens(code, 0, len(code)):
        if kind in {"string", "atom"}:
            found.update(range(numbers.number(start) + 1, numbers.number(end - 1) + 1))
    return found


LISP = Language("Lisp", outline, outline, wanted_key, fitted, ";", (1, 1))
