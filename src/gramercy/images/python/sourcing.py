"""The text of a definition, with its file and line, as far as a file or an evaluation still has it.

Names lead to code objects, and these to lines. The tree of the text shows where a definition ends. If a file
has changed since it was loaded, that is reported. Nothing is run and nothing imported.
"""

import ast
import sys
import types
from collections.abc import Iterator
from typing import NamedTuple

from .anatomy import (
    MISSING,
    class_name,
    class_space,
    code_file,
    code_name,
    code_path,
    instance_space,
    is_class,
    is_kind,
    is_module,
    module_of,
    module_space,
    mro_of,
    plain,
    qualified_name,
)
from .introspection import home_of
from .names import Found, holders, resolve
from .origins import loaded
from .places import USERS, file_of, lines_of, parsed, place_of, shown_file, silently, texts
from .protocol import Request, RequestError, optional_text, text
from .session import Reply, Session
from .trees import (
    DEFINERS,
    code_by_path,
    compiled_alike,
    first_line,
    last_binding,
    last_line,
    last_with_comments,
    node_at,
    node_by_path,
    statements,
)
from .words import PAGE, coarse, unwrapped, what_is, with_article

_modules = sys.modules
# Definitions of one name that are shown, and steps of imports that are followed to one.
_MOST = 40
_STEPS = 8
# Characters for the lines about what was left out.
_ROOM = 400


class Text(NamedTuple):
    """The lines of a file that hold a definition, and the remarks about them."""

    name: str
    what: str
    file: str
    first: int
    last: int
    note: str = ""
    node: "ast.AST | None" = None

    @property
    def place(self) -> str:
        """The place as it is told."""
        return f"{shown_file(self.file)}:{self.first}"


def find_definition(session: Session, request: Request) -> Reply:
    """Show the text of what a name means, where several modules define it, of each."""
    name = text(request, "symbol")
    shown: list[Text] = []
    lines: list[str] = []
    for found in _meanings(session, name, optional_text(request, "package")):
        texts_found = list(_texts_of(session, found))[:_MOST]
        shown += texts_found
        if not texts_found:
            lines.append(_absent(found))
    others = _others(session, name, shown)
    data = [{"name": each.name, "what": each.what, "place": each.place, "end": each.last} for each in shown]
    parts = [*_page(shown, PAGE - _ROOM - sum(map(len, lines)) - len(others)), *lines, others]
    return {"ok": True, "text": "\n".join(filter(None, parts)), "data": {"definitions": data}}


def _meanings(session: Session, name: str, package: str | None) -> list[Found]:
    """Return the meanings of a name here, or else in each user module that defines it."""
    try:
        return [resolve(session, name, package)]
    except RequestError:
        wanted = name.strip()
        found = holders(session, wanted, USERS) if package is None and wanted.isidentifier() else []
        if not found:
            raise
        return [resolve(session, full, None) for full in found[:_MOST]]


def _others(session: Session, name: str, shown: list[Text]) -> str:
    wanted = name.strip()
    if not wanted.isidentifier():
        return ""
    known = {each.name for each in shown}
    users = [full for full in holders(session, wanted, USERS) if full not in known]
    return f"Others of that name: {', '.join(users[:8])}" if users and shown else ""


def _absent(found: Found) -> str:
    """Describe why there is no text."""
    value = unwrapped(found.value)
    head = f"{found.name} is {with_article(what_is(found.value, found.owner))}"
    if type(value) is types.FunctionType:
        file = code_file(value.__code__)
        if file.startswith("<image ") and file not in texts:
            return f"{head} of an earlier evaluation, whose text is no longer kept."
        if file.startswith("<"):
            return f"{head} that was made by code at run time ({file}): it has no text of its own."
        return f"{head} of {shown_file(file)}:{value.__code__.co_firstlineno}, which cannot be read."
    if coarse(found.value, found.owner) in ("variable", "attribute"):
        place = place_of(type(found.value))
        where = f" at {shown_file(place[0])}:{place[1]}" if place is not None else ""
        return (
            f"{head}; no statement that assigns it was found. It is of type "
            f"{class_name(type(found.value))}{where}."
        )
    return f"{head} without Python source: it is built into Python or compiled."


# Definitions


def _texts_of(session: Session, found: Found) -> Iterator[Text]:
    value = found.value
    word = what_is(value, found.owner) + home_of(found)
    if is_module(value):
        yield from _module_text(found, word)
        return
    if is_class(value):
        done = _class_text(session, found, word)
    else:
        done = [
            each
            for label, function in _functions(value)
            for each in [_function_text(session, f"{found.name}{label}", word, function)]
            if each is not None
        ]
    yield from done or _bound(found, word)


def _module_text(found: Found, word: str) -> Iterator[Text]:
    file = file_of(found.value)
    lines = lines_of(file)
    if lines or file.endswith(".py"):
        tree = parsed("".join(lines))
        yield Text(found.name, word, file, 1, len(lines), node=tree)


def _functions(value: object) -> list[tuple[str, types.FunctionType]]:
    """Return the functions of a value: one, those of a property, those of a dispatcher."""
    if is_kind(value, property):
        parts = [(f" ({name[1:]}ter)", vars(property)[name].__get__(value)) for name in ("fget", "fset")]
        parts.append((" (deleter)", vars(property)["fdel"].__get__(value)))
        parts = [(label if label != " (getter)" else "", unwrapped(part)) for label, part in parts]
    else:
        parts = [("", unwrapped(value)), *registered(value)]
    seen: set[int] = set()
    return [
        (label, part)
        for label, part in parts
        if type(part) is types.FunctionType and not (id(part) in seen or seen.add(id(part)))  # type: ignore[func-returns-value]  # notes it
    ]


def registered(value: object) -> list[tuple[str, object]]:
    """Return what `functools.singledispatch` has for each type."""
    space = plain(value.__dict__) if type(value) is types.FunctionType else instance_space(value)
    inner = space.get("dispatcher", MISSING)
    if type(inner) is types.FunctionType:
        space = plain(inner.__dict__)
    registry = space.get("registry")
    if type(registry) is types.FunctionType:
        cells = registry.__closure__ or ()
        registry = next((cell.cell_contents for cell in cells if type(cell.cell_contents) is dict), None)
    if type(registry) is not types.MappingProxyType and type(registry) is not dict:
        return []
    found = [(kind, function) for kind, function in registry.items() if is_class(kind) and kind is not object]
    return [(f" for {class_name(kind)}", unwrapped(function)) for kind, function in found]


def _function_text(session: Session, name: str, word: str, function: types.FunctionType) -> Text | None:
    code = function.__code__
    place = place_of(function)
    lines = lines_of(place[0]) if place is not None else []
    if place is None or not lines:
        return None
    tree = parsed("".join(lines))
    if tree is None:
        return _unparsed(Text(name, word, place[0], place[1], place[1]), lines)
    changed = session.definitions.origins.is_changed(module_of(function), code_path(code))
    node = None if changed else node_at(tree, code.co_firstlineno, code_name(code))
    note = ""
    if node is None:
        node = node_by_path(tree, code_path(code))
        note = _change(place, lines, code, node)
    if node is None:
        return Text(name, word, place[0], place[1], place[1] - 1, note)
    return Text(name, word, place[0], first_line(node), last_with_comments(node, lines), note, node)


def _change(place: tuple[str, int], lines: list[str], code: types.CodeType, node: "ast.AST | None") -> str:
    """Describe how the file differs from the loaded text."""
    file = shown_file(place[0])
    if node is None:
        return f"{file} has changed since it was loaded, and has no {code_path(code)} any more."
    new = code_by_path(silently("".join(lines), place[0], 0), code_path(code))
    if compiled_alike(code, new) and _is_written_alike(place[0], code_path(code), node):
        return f"{file} has changed since it was loaded, but not in this definition."
    return f"{file} has changed since it was loaded: this is its text now, not what is loaded."


def _is_written_alike(file: str, path: str, node: ast.AST) -> bool:
    """Tell whether a definition has the defaults, annotations and decorators of the text that was loaded."""
    data = loaded.get(file)
    if data is None:
        return True  # not known any more: the code alone was compared
    before = node_by_path(silently(data, file, ast.PyCF_ONLY_AST), path)
    return before is not None and ast.dump(before) == ast.dump(node)


def _class_text(session: Session, found: Found, word: str) -> list[Text]:
    cls: type = found.value  # type: ignore[assignment]  # seen to be one
    place = place_of(cls)
    lines = lines_of(place[0]) if place is not None else []
    if place is None or not lines:
        return []
    text_at = Text(found.name, word, place[0], place[1], place[1])
    tree = parsed("".join(lines))
    if tree is None:
        return [_unparsed(text_at, lines)]
    changed = session.definitions.origins.is_changed(module_of(cls), qualified_name(cls))
    node = None if changed else node_at(tree, place[1], qualified_name(cls).rpartition(".")[2])
    note = ""
    if node is None:
        node = node_by_path(tree, qualified_name(cls))
        note = f"{shown_file(place[0])} has changed since it was loaded: this is its text now."
    if node is None:
        gone = f"{shown_file(place[0])} has changed since it was loaded, and has no such class any more."
        return [text_at._replace(last=place[1] - 1, note=gone)]
    return [Text(found.name, word, place[0], first_line(node), last_with_comments(node, lines), note, node)]


def _unparsed(at: Text, lines: list[str]) -> Text:
    """Return the lines that are indented below the first, for a file that is currently not valid Python."""
    head = lines[at.first - 1] if at.first <= len(lines) else ""
    margin = len(head) - len(head.lstrip())
    last = at.first
    for number in range(at.first + 1, len(lines) + 1):
        line = lines[number - 1]
        if line.strip() and len(line) - len(line.lstrip()) <= margin and line.lstrip()[:1] not in "@)]}dac":
            break
        last = number if line.strip() else last
    note = f"{shown_file(at.file)} has a syntax error now, so that the end of this is a guess."
    return at._replace(last=last, note=note)


# Variables


def _bound(found: Found, word: str) -> Iterator[Text]:
    """Give the statement that assigns a variable, or an attribute in the body of a class."""
    if is_class(found.owner):
        yield from _bound_in_class(found, word)
        return
    module, leaf = found.owner, found.leaf
    for _step in range(_STEPS):
        if not is_module(module):
            return
        here = _statement(module, leaf)
        if here is None:
            return
        file, node = here
        source = _imported_from(module, node, leaf)
        if source is None:
            yield Text(found.name, word, file, first_line(node), last_line(node), node=node)
            return
        module, leaf = source


def _bound_in_class(found: Found, word: str) -> Iterator[Text]:
    for base in mro_of(found.owner):  # type: ignore[arg-type]  # seen to be a class
        place = place_of(base) if found.leaf in class_space(base) else None
        tree = parsed("".join(lines_of(place[0]))) if place is not None else None
        outer = node_at(tree, place[1], qualified_name(base).rpartition(".")[2]) if tree and place else None
        node = last_binding(outer, found.leaf)
        if node is not None and place is not None:
            yield Text(found.name, word, place[0], first_line(node), last_line(node), node=node)
            return


def _statement(module: object, name: str) -> "tuple[str, ast.AST] | None":
    """Return the file or the evaluated text that binds a name of a module, and the statement."""
    file = file_of(module)
    files = list(reversed(texts)) + ([file] if file else [])
    if module_space(module).get("__name__") != "__main__" and file:
        files.reverse()
    for each in files:
        lines = lines_of(each)
        if any(name in line for line in lines):
            node = last_binding(parsed("".join(lines)), name)
            if node is not None:
                return each, node
    return None


def _imported_from(module: object, node: ast.AST, name: str) -> "tuple[object, str] | None":
    """Return the loaded module, and the name in it, from which an import statement takes a name."""
    if not isinstance(node, ast.ImportFrom):
        return None
    space = module_space(module)
    package = space.get("__package__")
    above = package.split(".") if type(package) is str and node.level else []
    base = ".".join([*above[: len(above) + 1 - node.level], *([node.module] if node.module else [])])
    for alias in node.names:
        if name == (alias.asname or alias.name) and is_module(_modules.get(base)):
            return _modules[base], alias.name
    return None


# The answer


def _page(shown: list[Text], room: int) -> list[str]:
    """Return the headline and the text of each, as far as there is room. Of the others, return places."""
    parts: list[str] = []
    heads = sum(len(_headline(each)) + 1 for each in shown)
    room -= heads
    for each in shown:
        body = _body(each, max(room, 0))
        parts += [_headline(each), *([body] if body else [])]
        room -= len(body)
    return parts


def _headline(each: Text) -> str:
    if each.last < each.first:
        return f"{each.name}: {each.what}, was at {each.place}\n[{each.note}]"
    size = each.last - each.first + 1
    note = f"\n[{each.note}]" if each.note else ""
    return f"{each.name}: {each.what} at {each.place}, {size} line{'' if size == 1 else 's'}{note}"


def _body(each: Text, room: int) -> str:
    lines = lines_of(each.file)[each.first - 1 : each.last]
    whole = "".join(lines).rstrip("\n")
    if isinstance(each.node, ast.Module):
        return _fitting(each, _outline(each.node), room, "definitions")
    if len(whole) <= room:
        return whole
    if isinstance(each.node, ast.ClassDef):
        hint = f"[methods are folded: ask for {each.name}.NAME]\n"
        return hint + _fitting(each, _folded_class(each), room - len(hint), "lines")
    return _fitting(each, [line.rstrip("\n") for line in lines], room, "lines")


def _fitting(each: Text, lines: list[str], room: int, noun: str) -> str:
    shown = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    left = len(lines) - len(shown)
    where = (
        f"{shown_file(each.file)}:{each.first + len(shown)}-{each.last}" if noun == "lines" else each.place
    )
    return "\n".join([*shown, *([f"… {left} more {noun}: see {where}"] if left else [])])


def _outline(tree: ast.Module) -> list[str]:
    """Return the definitions of a module with their lines."""
    found = [node for node in statements(tree) if isinstance(node, DEFINERS)]
    rows = []
    for node in sorted(found, key=first_line):
        word = "class" if isinstance(node, ast.ClassDef) else "def"
        rows.append(f"{first_line(node):6} {word} {node.name}")
        if isinstance(node, ast.ClassDef):
            inner = (part for part in statements(node) if isinstance(part, DEFINERS))
            rows += [f"{first_line(part):6}   {part.name}" for part in sorted(inner, key=first_line)]
    return rows


def _folded_class(each: Text) -> list[str]:
    """Return the lines of a class with the bodies of its methods folded."""
    lines = lines_of(each.file)
    folded: dict[int, int] = {}
    for node in statements(each.node):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.body[0].lineno > node.lineno:
            folded[node.body[0].lineno] = last_line(node)
    shown, number = [], each.first
    while number <= each.last:
        end = folded.get(number)
        line = lines[number - 1].rstrip("\n")
        if end is not None:
            margin = line[: len(line) - len(line.lstrip())]
            line = f"{margin}…  [lines {number}-{end}]"
        shown.append(line)
        number = (end or number) + 1
    return shown
