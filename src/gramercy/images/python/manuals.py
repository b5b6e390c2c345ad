"""The documentation: docstrings of names, and the topics of the language that `help` knows.

A module that is not loaded is read from its file. Nothing is imported, not even pydoc: that would ask a
finder of the user. Its tables are read as text.
"""

import ast
import keyword
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from .anatomy import class_name, class_space, is_class, is_module, module_of, module_space
from .introspection import cleaned, documentation, home_of
from .inventory import file_on_path
from .listings import exported_names
from .members import Member
from .names import Found, near, resolve
from .places import file_of, lines_of, parsed, place_of, shown_file, written
from .printing import preview, shorten
from .protocol import Request, RequestError, optional_text, text
from .session import Reply, Session
from .signatures import arglist, overloads_of
from .trees import DEFINERS, first_line, last_binding, node_by_path, statements
from .words import Page, coarse, unwrapped, what_is

_LIBRARY = os.__file__.rpartition("/")[0]
# Characters of a docstring, so that signature and members have room; of a line about a member.
_LONGEST = 5500
_MEMBER = 160
# Steps from a word to its topic.
_STEPS = 5
_known: dict[str, str] = {}


def look_up_documentation(session: Session, request: Request) -> Reply:
    """Show the documentation of a name, of a module that is not loaded, or of a topic of the language."""
    name, package = text(request, "name").strip(), optional_text(request, "package")
    page = Page()
    try:
        found = None if keyword.iskeyword(name) else resolve(session, name, package)
    except RequestError:
        if not (package is None and (_add_unloaded(page, name) or _add_topic(page, name))):
            raise _unknown(session, name, package) from None
    else:
        if found is not None:
            _add_name(page, found)
        elif not _add_topic(page, name):
            page.add(f"{name} is a keyword of Python; this Python has no text about it.")
    return {"ok": True, "text": page.end("lines"), "data": {"name": name}}


def _unknown(session: Session, name: str, package: str | None) -> RequestError:
    """Return the error for a name, with the topics that resemble it."""
    try:
        resolve(session, name, package)
    except RequestError as error:
        return RequestError(error.kind, error.message, [*error.suggestions, *near(name, _words())][:5])
    return RequestError("NameError", f"Nothing is known about '{name[:100]}'.")


# Names


def _add_name(page: Page, found: Found) -> None:
    value = found.value
    word = what_is(value, found.owner)
    called = arglist(value) if not is_module(value) else None
    place = written(place_of(unwrapped(value)))
    page.add(f"{found.name}{called or ''}")
    for overload in overloads_of(value)[:10]:
        page.add(f"overload {found.leaf}{overload}")
    page.add(f"{word}{home_of(found)}{' at ' + place if place else ''}")
    doc, source = documentation(value, found.owner, found.leaf)
    if coarse(value, found.owner) in ("variable", "attribute"):
        doc, source = _comment(found) or _of_type(value), ""
    if source:
        page.add(f"documented by {source}:")
    _add_text(page, doc or "It has no documentation.")
    for line in _summary(value):
        page.add(line)


def _add_text(page: Page, doc: str) -> None:
    page.add("")
    for line in shorten(doc, _LONGEST).splitlines():
        page.add(line)


def _of_type(value: object) -> str:
    doc, _source = documentation(type(value), None, "")
    return f"{preview(value, 200)}, of type {class_name(type(value))}: {doc.partition(chr(10))[0]}"


def _comment(found: Found) -> str:
    """Return the comment above a variable, or the string below it."""
    file = file_of(found.owner) if is_module(found.owner) else ""
    lines = lines_of(file)
    tree = parsed("".join(lines)) if lines else None
    node = last_binding(tree, found.leaf)
    if node is None:
        return ""
    first = first_line(node) - 1
    above: list[str] = []
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
        above.insert(0, lines[first].strip().lstrip("#: "))
    return "\n".join([*above, *_string_below(tree, node)])


def _string_below(tree: "ast.AST | None", node: ast.AST) -> list[str]:
    body = getattr(tree, "body", [])
    for one, after in pairwise(body):
        if one is node and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            value = after.value.value
            return [cleaned(value)] if isinstance(value, str) else []
    return []


def _summary(value: object) -> Iterator[str]:
    """Yield a line about each public name of a module or method of a class, with its documentation."""
    owner: object = value
    if is_module(value):
        space = module_space(value)
        home, owner = space.get("__name__"), None
        shown = sorted(exported_names(space))
        if "__all__" not in space:
            shown = [key for key in shown if type(home) is str and module_of(space[key]) == home]
        kinds: tuple[str, ...] = ("class", "function")
    elif is_class(value):
        space = class_space(value)  # type: ignore[arg-type]  # seen to be one
        shown = [key for key in space if not key.startswith("_")]
        kinds = ("method", "property", "function")
    else:
        return
    rows = [key for key in shown if coarse(space[key], owner) in kinds]
    yield from [""] if rows else []
    for key in rows:
        doc, _source = documentation(space[key], owner, key)
        call = Member(key, space[key], owner if is_class(owner) else type).call  # type: ignore[arg-type]  # a class
        yield shorten(f"{call}  {doc.strip().partition(chr(10))[0]}".rstrip(), _MEMBER)


# Modules that are not loaded


def _add_unloaded(page: Page, name: str) -> bool:
    """Add the text in the file of an unloaded module on the path, or of a definition in it."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return False
    for size in range(len(parts), 0, -1):
        file = file_on_path(".".join(parts[:size]))
        tree = parsed("".join(lines_of(file))) if file else None
        if tree is None:
            continue
        node = node_by_path(tree, ".".join(parts[size:])) if parts[size:] else tree
        if node is None:
            return False
        _add_node(page, name, node, f"{shown_file(file)}:{1 if node is tree else first_line(node)}")
        return True
    return False


def _add_node(page: Page, name: str, node: ast.AST, place: str) -> None:
    page.add(f"{name}{_parameters(node)}")
    word = (
        "module"
        if isinstance(node, ast.Module)
        else "class"
        if isinstance(node, ast.ClassDef)
        else "function"
    )
    page.add(f"{word} at {place}, as its file says: it is not loaded")
    _add_text(page, ast.get_docstring(node) or "It has no documentation.")  # type: ignore[arg-type]  # one of those
    inner = [
        each for each in statements(node) if isinstance(each, DEFINERS) and not each.name.startswith("_")
    ]
    if not isinstance(node, (ast.Module, ast.ClassDef)):
        return
    page.add("")
    for each in sorted(inner, key=first_line):
        doc = (ast.get_docstring(each) or "").partition("\n")[0]
        page.add(shorten(f"{each.name}{_parameters(each)}  {doc}".rstrip(), _MEMBER))


def _parameters(node: ast.AST) -> str:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
        return f"({ast.unparse(node.args)}){returned}"
    return ""


# Topics of the language


def _table(file: str, *names: str) -> list[dict[str, Any]]:
    """Return tables that a module of the standard library assigns, without importing it."""
    tree = parsed("".join(lines_of(f"{_LIBRARY}/{file}")))
    found: dict[str, dict[str, Any]] = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id in names:
                    found[target.id] = dict(_literals(node.value))
    return [found.get(name, {}) for name in names]


def _literals(node: ast.Dict) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a table. Values that are not literals are left out, in a tuple only that part."""
    for key, value in zip(node.keys, node.values, strict=True):
        parts = value.elts if isinstance(value, ast.Tuple) else []
        name = key.value if isinstance(key, ast.Constant) else None
        if isinstance(name, str) and isinstance(value, ast.Constant):
            yield name, value.value
        elif isinstance(name, str):
            yield name, tuple(part.value for part in parts if isinstance(part, ast.Constant))


def _words() -> dict[str, str]:
    """Return for each keyword, operator and topic the topic that explains it, followed by related ones."""
    if not _known:
        keywords, symbols, inverse, topics = _table(
            "pydoc.py", "keywords", "symbols", "_symbols_inverse", "topics"
        )
        for topic, each in inverse.items():
            _known.update(dict.fromkeys(each, topic))
        for table in (symbols, topics, keywords):
            for word, meant in table.items():
                _known[word] = " ".join(meant) if isinstance(meant, tuple) else meant
    return _known


def _add_topic(page: Page, name: str) -> bool:
    """Add the text about a keyword, an operator or a topic, and where to read on."""
    words, topics = _words(), _table("pydoc_data/topics.py", "topics")[0]
    wanted = name if name in words or name in topics else name.upper()
    related: list[str] = []
    for _step in range(_STEPS):
        if wanted in topics or wanted not in words:
            break
        wanted, *more = words[wanted].split() or [""]
        related += more
    found = topics.get(wanted)
    if type(found) is not str:
        return False
    page.add(f"{name}: the topic '{wanted}' of the language reference")
    for line in found.strip().splitlines():
        page.add(line)
    if related:
        page.add(f"Related: {', '.join(related)}")
    return True
