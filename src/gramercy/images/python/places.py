"""Places: the owner of a module's code, the file and line of a definition, and the text of a line.

Files are read as plain text, never through a loader of the user, and nothing is imported. Texts of
evaluations are known by their made-up file names.
"""

import ast
import io
import os
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from .anatomy import (
    MISSING,
    class_space,
    code_file,
    code_name,
    code_path,
    is_class,
    is_heap,
    is_module,
    module_of,
    module_space,
    qualified_name,
    raw_space,
)
from .definitions import is_users
from .origins import loaded, older

_modules = sys.modules
_open, _stat, _Stream = open, os.stat, io.StringIO
_compile = compile
_match = re.compile
_renew: Callable[[], object] = (
    getattr(warnings, "_filters_mutated", None)
    or getattr(warnings, "_filters_mutated_lock_held", None)
    or list
)
# Bytes of one file: more is data. Files that are kept as lines: those that the last questions were about.
_LARGEST = 4 * 1024 * 1024
_FILES = 16
# Texts whose code is kept for the frames of one error.
_VERSIONS = 8
# The most lines of decorators above a class that are followed.
_DECORATORS = 60
_HERE = __file__.rpartition("/")[0] + "/"
_OURS = __name__.rpartition(".")[0]
_STANDARD = sys.stdlib_module_names
USERS, LIBRARY, STANDARD = range(3)
# The texts of the evaluations, by file name; `diagnostics` fills it.
texts: dict[str, list[str]] = {}
# Older texts of code that an edit could not reach, by the made-up names of their files.
asides: dict[str, list[str]] = {}
# The directory of the project, if there is one.
project: list[str] = []
_read: dict[str, tuple[tuple[int, int], list[str]]] = {}
_tiers: dict[str, tuple[int, int]] = {}


def is_ours(module: str) -> bool:
    """Return whether a module of this name is part of this program."""
    return module == _OURS or module.startswith(_OURS + ".")


def tier_of(module: str) -> int:
    """Return the owner of a module by its name: the user, a library, or Python."""
    if module == "__main__":
        return USERS
    found = _modules.get(module)
    known = _tiers.get(module)
    if known is None or known[0] != id(found):
        is_standard = module.partition(".")[0] in _STANDARD
        tier = USERS if is_module(found) and is_users(found) else STANDARD if is_standard else LIBRARY
        known = _tiers[module] = (id(found), tier)
    return known[1]


def shown_file(file: str) -> str:
    """Return the displayed file: relative to the project where it is inside of it."""
    for directory in project:
        if file.startswith(directory + "/") and "/site-packages/" not in file:
            return file[len(directory) + 1 :]
    return file


def split(text: str) -> list[str]:
    """Split a text into lines as the compiler does: str.splitlines also splits at a form feed and U+2028."""
    if "\n" not in text and "\r" not in text:
        return [text] if text else []
    return list(_Stream(text, newline=""))


def lines_of(file: str) -> list[str]:
    """Return the lines of a file or of an evaluated text. Empty where it cannot be read."""
    if file in texts or file in asides:
        return texts[file] if file in texts else asides[file]
    if not file.endswith((".py", ".pyw")):
        return []
    try:
        status = _stat(file)
        mark = (status.st_mtime_ns, status.st_size)
        known = _read.get(file)
        if known is not None and known[0] == mark:
            return known[1]
        if status.st_size > _LARGEST:
            return []
        with _open(file, "rb") as stream:
            lines = split(stream.read(_LARGEST).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return []
    while len(_read) >= _FILES:
        del _read[next(iter(_read))]
    _read[file] = (mark, lines)
    return lines


def running_lines(code: types.CodeType) -> list[str]:
    """Return the text that code was compiled from: the loaded text, where that is known, or else the file.

    A module itself runs while it is loaded, so its text is that of the file. The same holds for a function
    that does not begin where it should: it is called while its module is loaded again.
    """
    current, data = lines_of(code_file(code)), loaded.get(code_file(code))
    if data is None or code_name(code) == "<module>":
        return current
    if code_file(code) in older:
        data = text_with(code) or data
    before = split(data.decode("utf-8", "replace"))
    return before if _begins_in(before, code) or not _begins_in(current, code) else current


def text_with(code: types.CodeType) -> bytes | None:
    """Return the text that contains this very code, of those that a module was loaded from or applied."""
    file = code_file(code)
    texts_of_file: list[bytes] = [*older.get(file, []), *([loaded[file]] if file in loaded else [])]
    for data in reversed(texts_of_file):
        if code in _codes_of(data, file):
            return data
    return None


@lru_cache(_VERSIONS)
def _codes_of(data: bytes, file: str) -> frozenset[types.CodeType]:
    waiting = [each for each in [silently(data, file, 0)] if each is not None]
    for each in waiting:
        waiting += [one for one in each.co_consts if type(one) is types.CodeType]
    return frozenset(waiting)


def _begins_in(lines: list[str], code: types.CodeType) -> bool:
    first = code.co_firstlineno - 1
    head = lines[first : first + _DECORATORS]
    count = 1 if head and not head[0].lstrip().startswith("@") else len(head)
    return code_name(code).startswith("<") or any(code_name(code) in line for line in head[:count])


def line_text(code: types.CodeType, number: int) -> str:
    """Return one line of the text that code was compiled from, without its margins, if it is known."""
    lines = running_lines(code)
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def is_known(file: str) -> bool:
    """Return whether to show a file: not one of ours, and not a made-up name."""
    return file in texts or not file.startswith(("<", _HERE))


def file_of(module: object) -> str:
    """Return the source file of a module, or nothing."""
    file = module_space(module).get("__file__") if is_module(module) else None
    return file if type(file) is str else ""


def place_of(thing: object) -> tuple[str, int] | None:
    """Return the file and the line in which a function, class or module is defined."""
    if type(thing) is types.FunctionType:
        code = thing.__code__
        return (code_file(code), code.co_firstlineno) if is_known(code_file(code)) else None
    if is_class(thing):
        return _class_place(thing)  # type: ignore[arg-type]  # seen to be one
    if is_module(thing):
        file = file_of(thing)
        return (file, 1) if file else None
    return None


def written(place: tuple[str, int] | None) -> str:
    """Format a place as `file:line`. A place in an older text is shown with its real file."""
    if place is None:
        return ""
    file, line = place
    if file in asides:
        return f"{shown_file(file.rpartition('@')[0])}:{line} of its text before an edit"
    return f"{shown_file(file)}:{line}"


def _class_place(cls: type) -> tuple[str, int] | None:
    if not is_heap(cls):
        return None
    codes = [part.__code__ for part in class_space(cls).values() if type(part) is types.FunctionType]
    path = qualified_name(cls)
    own = [code for code in codes if code_path(code).startswith(path + ".") and is_known(code_file(code))]
    first = class_space(cls).get("__firstlineno__", MISSING)  # since 3.13
    for file in _files_of(cls, own):
        if type(first) is int:
            return file, first
        below = [code.co_firstlineno for code in own if code_file(code) == file]
        line = _class_line(lines_of(file), path, min(below, default=None))
        if line:
            return file, line
    return None


def _files_of(cls: type, codes: list[types.CodeType]) -> list[str]:
    """Return the files that may contain the class: those of its methods, its module, evaluated texts."""
    home = module_of(cls)
    found = [code_file(code) for code in codes[:1]] or [file_of(_modules.get(home))]
    if found == [""] and (home == "__main__" or tier_of(home) == USERS):
        name = "class " + qualified_name(cls).rpartition(".")[2]
        found = [file for file, lines in reversed(texts.items()) if any(name in line for line in lines)]
    return [file for file in found if file]


def _class_line(lines: list[str], path: str, below: int | None) -> int:
    """Return the line of a class statement, or of its first decorator; 0 where it is not found."""
    outer, _dot, name = path.removesuffix(".<locals>").rpartition(".")
    statement = _match(rf"[ \t]*class[ \t]+{re.escape(name)}\b").match
    found = [number for number, line in enumerate(lines, 1) if name in line and statement(line)]
    if not found:
        return 0
    if below is not None:
        line = max((number for number in found if number <= below), default=found[0])
    elif not outer:
        line = next((number for number in reversed(found) if lines[number - 1][0] == "c"), found[-1])
    else:
        start = 0 if outer.endswith("<locals>") else _class_line(lines, outer, None)
        line = next((number for number in found if number > start), found[-1])
    return _first_decorator(lines, line)


def _first_decorator(lines: list[str], line: int) -> int:
    margin = len(lines[line - 1]) - len(lines[line - 1].lstrip())
    first = line
    for number in range(line - 1, max(line - _DECORATORS, 0), -1):
        text = lines[number - 1]
        indent = len(text) - len(text.lstrip())
        if (
            text.startswith("@", margin)
            and indent == margin
            and _is_decorators(lines[number - 1 : first - 1])
        ):
            first = number
        elif text.strip() and (indent < margin or (indent == margin and text[margin] not in "@)]}#")):
            break
    return first


def _is_decorators(lines: list[str]) -> bool:
    margin = len(lines[0]) - len(lines[0].lstrip())
    text = "".join(line[margin:] if line[:margin].isspace() else line for line in lines)
    return parsed(f"{text}\nclass A: pass") is not None


def parsed(text: str) -> ast.Module | None:
    """Return the tree of a text, or None where it is not Python."""
    found: ast.Module | None = silently(text, "<source>", ast.PyCF_ONLY_AST)
    return found


def silently(text: str | bytes, file: str, flags: int) -> Any:
    """Compile without warnings, which might run a hook of the user. None where it cannot be compiled."""
    try:
        with without_warnings():
            return _compile(text, file, "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress compiler warnings: they were reported when the text was first compiled."""
    space = raw_space(warnings)
    filters = space.get("filters", MISSING)
    space["filters"] = [("ignore", None, Warning, None, 0)]
    _renew()
    try:
        yield
    finally:
        if filters is MISSING:
            del space["filters"]
        else:
            space["filters"] = filters
        _renew()
