"""What SBCL itself tells of names and classes, computed in the image without the code under test.

Functions of Lisp write it to a file, one record a line; the rest reads such records and brings two texts to a
form in which they can be compared.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

WRITER = (Path(__file__).parent / "lisp_oracle.lisp").read_text("utf-8")
PREFIX = re.compile(r"(?<![\w|\\#:])[A-Z0-9%*+./_-]+::?(?=[^\s:])")
TOKEN = re.compile(r"""\s*("(?:\\.|[^"\\])*"|#'|'|`|,@|,|\(|\)|(?:\|[^|]*\||\\.|[^\s()'"`,|])+)""", re.DOTALL)


def records(path) -> list[list[Any]]:
    """Read what the form has written."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def bare(text: str) -> str:
    """Take the packages off the symbols of a text."""
    return PREFIX.sub("", text)


def read(text: str) -> list[Any]:
    """Read all expressions of a text as nested lists of tokens without packages."""
    stack: list[list[Any]] = [[]]
    signs: list[tuple[int, str]] = []

    def add(item: Any) -> None:
        while signs and signs[-1][0] == len(stack):
            item = [signs.pop()[1], item]
        stack[-1].append(item)

    for token in TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            closed = stack.pop()
            add(closed)
        elif token in ("'", "#'", "`", ",", ",@"):
            signs.append((len(stack), {"'": "QUOTE", "#'": "FUNCTION"}.get(token, token)))
        else:
            add(bare(token).removeprefix("#:"))
    return stack[0]


def caller_view(parameters: Any) -> Any:
    """Bring a lambda list to what a caller gives: the rules by which an answer leaves something out.

    &whole, &environment and &aux have no arguments; a variable that tells whether an argument was given, and
    NIL as a default, say nothing; of ((:key variable)) a caller writes only the key.
    """
    if not isinstance(parameters, list):
        return parameters
    view: list[Any] = []
    section, skip = "", False
    for item in parameters:
        if skip:
            skip = False
        elif item in ("&WHOLE", "&ENVIRONMENT"):
            skip = True
        elif item == "&AUX":
            break
        elif isinstance(item, str) and item.startswith("&"):
            section = item
            view.append(item)
        elif section in ("&OPTIONAL", "&KEY") and isinstance(item, list) and item:
            view.append(_parameter(item))
        else:
            view.append(caller_view(item))
    return view


def _parameter(item: list[Any]) -> Any:
    name = item[0]
    if isinstance(name, list) and len(name) == 2 and isinstance(name[0], str) and name[0].startswith(":"):
        name = name[0][1:]
    elif isinstance(name, list):
        name = [name]
    default = item[1] if len(item) > 1 else "NIL"
    return name if default in ("NIL", []) else [name, default]


def words(text: str) -> set[str]:
    """Return the words of a text, without packages and punctuation, in upper case."""
    return {word.strip('.:"`') for word in re.split(r"[\s()<>,;{}\[\]=#']+", bare(text).upper())} - {""}


LABELS = (
    *(
        "Lambda-list",
        "Argument precedence order",
        "Dynamic-extent arguments",
        "Declared type",
        "Derived type",
    ),
    *(
        "Documentation",
        "Inline proclamation",
        "Known attributes",
        "Method-combination",
        "Methods",
        "Source file",
    ),
    *(
        "Value",
        "Expansion",
        "Class precedence-list",
        "Direct superclasses",
        "Direct subclasses",
        "Direct slots",
    ),
    *("Slots", "Source form", "Symbol-plist"),
)
LABEL = re.compile(rf"^ {{0,2}}({'|'.join(LABELS)}):(.*)$")
# Words of DESCRIBE's own about a slot; what they say stands behind them.
OURS = re.compile(r"GRAMERCY\.IMAGE::?[^\s,()]+")
# Functions of SBCL's own that read or write a slot, which only SBCL calls.
PRIVATE = re.compile(r"(?<=[ (])SB-[A-Z-]+::?[^\s,()]+")
ACCESSORS = re.compile(r"^ {4,8}(?:Readers|Writers):.*$", re.MULTILINE)
SLOT_LABEL = re.compile(
    r"^ {4,8}(Type|Allocation|Initargs|Initform|Readers|Writers|Documentation):", re.MULTILINE
)
# A heading or a remark of DESCRIBE, and the words of an answer that say the same.
SAID = {
    r"names a compiled function:": "function (",
    r"names a generic function:": "generic function (",
    r"names a macro:": "macro (",
    r"names a special operator:": "special operator (",
    r"names a special variable:": "special variable",
    r"names a global variable:": "global variable",
    r"names a constant variable:": "constant",
    r"names a symbol macro:": "symbol macro",
    r"names an undefined variable:": "undeclared variable",
    r"names an undefined function": "declared and not defined",
    r"names the structure-class": "structure",
    r"names the condition-class": "condition",
    r"names the built-in-class": "built-in class",
    r"names the standard-class": "class",
    r"names the (system|funcallable-standard)-class": "class of metaclass",
    r"names a type-specifier:": "type (",
    r"names a primitive type-specifier:": "primitive type",
    r"has a compiler-macro:": "compiler macro",
    r"has setf-expansion: ": "...) ...) calls ",
    r"has a complex setf-expansion:": "setf expander (",
    r"names a standard declaration": "standard declaration",
    r"names an SBCL-specific declaration": "declaration of SBCL",
    r"names an optimization policy quality:": "optimization quality",
    r"names a dependent optimization policy quality:": "dependent optimization quality",
    r"Declared always-bound\.": "always bound",
    r"Sealed\.": ", sealed",
    r"Not yet finalized\.": "Not finalized yet",
    r"Currently unbound\.": "unbound",
    # What there is not, is not told; neither is a lack of documentation.
    r"No (subclasses|direct slots|slots|methods)\.|\(undocumented\)": "",
}
# By label: words that an answer leaves out, since they say nothing or stand in another form.
LEFT_OUT = {
    "Declared type": {"FUNCTION", "VALUES", "&OPTIONAL", "T", "NIL", "*"},
    "Derived type": {
        "FUNCTION",
        "VALUES",
        "&OPTIONAL",
        "T",
        "NIL",
        "*",
        "&REST",
        "&KEY",
        "&ALLOW-OTHER-KEYS",
    },
    "Lambda-list": {"QUOTE", "FUNCTION", "NIL", "UNDOCUMENTED"},
    "Dynamic-extent arguments": {"POSITIONAL", "KEYWORD"},
    "Inline proclamation": {"INLINE", "EXPANSION", "AVAILABLE", "NO"},
    "Method-combination": {"STANDARD"},
    "Slots": {"NIL", "QUOTE", "FUNCTION", "UNBOXED"},
    "Direct slots": {"SETF", "NIL", "QUOTE", "FUNCTION"},
    "Expansion": {"QUOTE"},
}


def facts(description: str) -> list[tuple[str, str]]:
    """Take what DESCRIBE has printed apart: headings, remarks, and labels with what stands behind them."""
    found: list[tuple[str, str]] = []
    # The first two lines are the name and [symbol].
    for line in description.splitlines()[2:]:
        label = LABEL.match(line)
        if label:
            found.append((label[1], label[2]))
        elif line and not line.startswith(" "):
            found.append(("heading", line))
        elif any(re.fullmatch(f" {{2}}(?:{remark})", line) for remark in SAID):
            found.append(("remark", line.strip()))
        elif line.strip() and found:
            found[-1] = (found[-1][0], f"{found[-1][1]}\n{line}")
    return found


def untold(label: str, value: str, answer: str) -> set[str]:
    """Return what an answer does not tell of a fact of DESCRIBE."""
    if label in ("heading", "remark"):
        said = next((words for pattern, words in SAID.items() if re.search(pattern, value)), None)
        return {value} if said is None or said not in answer else set()
    if label == "Source file":
        name = re.split("[;/]", value.strip())[-1].lower()
        return set() if name in answer.lower() else {name}
    if label == "Lambda-list":
        expressions = read(value.replace("(undocumented)", ""))
        value = str(caller_view(expressions[0])) if expressions and isinstance(expressions[0], list) else ""
    if label == "Value" and "[cut after " in answer:
        return set()
    if label in ("Methods", "Direct subclasses") and re.search(
        r"… [\d,]+ more| and [\d,]+ in \d+ package", answer
    ):
        return set()
    value = ACCESSORS.sub(lambda line: PRIVATE.sub("", line[0]), OURS.sub("", value))
    # The signs of parts that occur twice say nothing.
    value = re.sub(r"#\d+[=#]", " ", SLOT_LABEL.sub("", value))
    return words(value) - words(answer) - LEFT_OUT.get(label, set())
