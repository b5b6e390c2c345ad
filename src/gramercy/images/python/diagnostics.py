"""Errors and warnings of evaluated code, with the line of the source text that they belong to.

The texts of the evaluations are kept, so that tracebacks and `inspect.getsource` can show lines. Nothing here
raises, and no exception is kept.
"""

import builtins
import difflib
import linecache
import traceback as _traceback  # noqa: F401 - loaded before the fork, for user code that prints tracebacks
import types
import warnings
from collections.abc import Iterator
from itertools import islice

from .anatomy import (
    class_name,
    class_space,
    instance_space,
    is_class,
    is_module,
    kinds,
    module_space,
    mro_of,
)
from .backtraces import backtrace
from .places import split, texts
from .printing import shorten

# Characters of source texts: thousands of calls, and little compared to the memory of an image.
_KEPT = 16 * 1024 * 1024
# The cost of a text besides its characters. Most are short.
_EACH = 512
# The first hundred repetitions of a warning in a loop are enough.
_KEPT_WARNINGS = 100
_STYLE = kinds(DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, ResourceWarning)
# The protocol's bounds for an error, so that it fits the reader's context: characters of a line and of a
# message, exceptions behind it, and lines of the backtrace of each of those.
_LINE = 300
_MESSAGE = 4000
_CAUSES, _CAUSE_FRAMES = 5, 8
_HOME = __file__.rpartition("/")[0] + "/"
_UNREADABLE = kinds(SyntaxError, IndentationError, TabError)
_line_of = linecache.getline
# Similar names: how many are suggested, and how many are compared, which takes some milliseconds.
_NEAR, _COMPARED = 3, 5000
# Two swapped letters in a name of four give 0.75. rate and range, two different words, give 0.67.
_LIKENESS = 0.72
_close_matches = difflib.get_close_matches


class Sources:
    """Texts by their made-up file names."""

    def __init__(self) -> None:
        self._texts = texts
        self._size = 0
        self._count = 0

    def add(self, text: str) -> str:
        """Keep the text and return the file name it goes by."""
        self._count += 1
        name = f"<image {self._count}>"
        lines = split(text)
        self._texts[name] = lines
        self._size += len(text) + _EACH
        while self._size > _KEPT and len(self._texts) > 1:
            self._drop(next(iter(self._texts)))
        self._publish(name, text, lines)
        return name

    def line(self, name: str, number: int | None) -> str:
        """Return one line, stripped; nothing when it is not known."""
        return self.raw_line(name, number).strip()

    def raw_line(self, name: str, number: int | None) -> str:
        """Return one line as it was sent, so that a column counts in it."""
        lines = self._texts.get(name)
        if lines is None or number is None or not 0 < number <= len(lines):
            return ""
        return lines[number - 1]

    def has(self, name: str) -> bool:
        """Say whether the file name is one of ours."""
        return name in self._texts

    def _drop(self, name: str) -> None:
        self._size -= sum(map(len, self._texts.pop(name))) + _EACH
        self._published().pop(name, None)

    def _publish(self, name: str, text: str, lines: list[str]) -> None:
        self._published()[name] = (len(text), None, lines, name)

    @staticmethod
    def _published() -> dict[str, object]:
        cache = getattr(linecache, "cache", None)
        return cache if type(cache) is dict else {}


class CollectedWarnings:
    """The warnings of the evaluation under way."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._found: list[dict[str, object]] = []
        self._original = warnings.showwarning

    def begin(self, space: dict[str, object]) -> None:
        """Start collecting. A line that warned in an earlier evaluation may warn again."""
        self._found = []
        space.pop("__warningregistry__", None)
        if getattr(warnings, "showwarning", None) is self._original:
            warnings.showwarning = self._show  # type: ignore[assignment]  # takes more than it must

    def end(self) -> list[dict[str, object]]:
        """Return what was collected."""
        found, self._found = self._found, []
        return found

    def add(self, kind: str, name: str, message: str, **place: object) -> None:
        """Collect one record with its form, line and file. Without a file the line counts in the code."""
        if len(self._found) < _KEPT_WARNINGS:
            record = {"kind": kind, "type": name, "message": shorten(message, 1000)}
            self._found.append({**record, **place, "form": shorten(str(place.get("form", "")), 200)})

    def _show(self, message: object, category: type, filename: str, lineno: int, *_rest: object) -> None:
        kind = "style-warning" if any(id(base) in _STYLE for base in mro_of(category)) else "warning"
        place: dict[str, object] = {"form": self._sources.line(filename, lineno), "line": lineno}
        if filename.startswith(_HOME):
            # A library warned while a picture was drawn here: the place is meaningless to the user.
            place = {}
        elif not self._sources.has(filename):
            place.update(form=_line_of(filename, lineno).strip(), file=filename)
        self.add(kind, class_name(category), str(message), **place)


def failure(error: BaseException, index: int, sources: Sources) -> dict[str, object]:
    """Return the record of an exception that ended the form with this index."""
    record: dict[str, object] = {
        "type": class_name(type(error)),
        "message": message_of(error),
        "restarts": [],
        "backtrace": backtrace(error.__traceback__, sources),
        "form_index": index,
        "interrupted": any(base is KeyboardInterrupt for base in mro_of(type(error))),
    }
    if any(base is SyntaxError for base in mro_of(type(error))):
        record.update(_position(error, sources))
    if meant := _meant(error):
        record["suggestions"] = meant
    causes = _causes(error, sources)
    if causes:
        record["causes"] = causes
    return record


def _meant(error: BaseException) -> list[str]:
    """Return known names similar to the missing one. No user code runs."""
    bases = mro_of(type(error))
    if any(base is AttributeError for base in bases):
        name = vars(AttributeError)["name"].__get__(error)
        known = _attributes(vars(AttributeError)["obj"].__get__(error))
    elif any(base is NameError for base in bases):
        name, known = vars(NameError)["name"].__get__(error), _visible(error.__traceback__)
    else:
        return []
    if type(name) is not str:
        return []
    near = [
        other for other in known if type(other) is str and 0 < len(other) <= len(name) + 3 and other != name
    ]
    return _close_matches(name[:100], near[:_COMPARED], _NEAR, _LIKENESS)


def _attributes(thing: object) -> list[str]:
    if is_module(thing):
        return list(module_space(thing))
    own = [] if is_class(thing) else list(instance_space(thing))
    classes = mro_of(thing if is_class(thing) else type(thing))  # type: ignore[arg-type]  # seen to be one
    return own + [name for cls in classes for name in class_space(cls)]


def _visible(trace: types.TracebackType | None) -> list[str]:
    """Return the names that the innermost frame could have meant."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return []
    frame = trace.tb_frame
    code = frame.f_code
    local = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    return [*local, *dict.keys(frame.f_globals), *dict.keys(vars(builtins))]


def message_of(error: BaseException) -> str:
    """Return an exception's text with its notes and parts. A broken `__str__` is reported, not raised."""
    try:
        text = str.__str__(str(error))
        notes = getattr(error, "__notes__", None)
        if type(notes) is list:
            text = "\n".join([text, *(note for note in notes[:10] if type(note) is str)])
    except KeyboardInterrupt:
        raise
    except BaseException as broken:  # noqa: BLE001 - the message of a message
        text = f"<its __str__ raised {class_name(type(broken))}>"
    if any(base is BaseExceptionGroup for base in mro_of(type(error))):
        parts = BaseExceptionGroup.exceptions.__get__(error)[:10]
        text = "\n".join([text, *(f"- {class_name(type(part))}: {message_of(part)}" for part in parts)])
    return shorten(text, _MESSAGE)


def _position(error: BaseException, sources: Sources) -> dict[str, object]:
    """Return the place of a syntax error. Without a file it is in the code that was sent."""
    found: dict[str, object] = {}
    for key, name in (("line", "lineno"), ("column", "offset"), ("file", "filename"), ("text", "text")):
        value = getattr(error, name, None)
        if type(value) in (int, str) and value not in (0, ""):
            found[key] = value
    file, line = found.get("file"), found.get("line")
    if type(file) is str and sources.has(file):
        del found["file"]
    if type(line) is int and "text" not in found:
        found["text"] = _source_line(file, line, sources)
    if type(found.get("text")) is str:
        found["text"] = shorten(_first_line(str(found["text"])), _LINE)
        if id(type(error)) in _UNREADABLE and type(getattr(error, "msg", None)) is str:
            # The place has fields of its own, and need not be part of the message.
            found["message"] = shorten(error.msg, _MESSAGE)  # type: ignore[attr-defined]  # of these three
    return found


def _source_line(file: object, line: int, sources: Sources) -> str:
    if type(file) is not str:
        return ""
    if sources.has(file):
        return sources.raw_line(file, line)
    try:
        return _line_of(file, line)
    except Exception:  # noqa: BLE001 - the cache of lines is open to user code
        return ""


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0].rstrip()


def _causes(error: BaseException, sources: Sources) -> list[dict[str, object]]:
    """Return the exceptions that led to this one, nearest first."""
    found: list[dict[str, object]] = []
    for cause, relation in islice(chain(error), _CAUSES):
        frames = backtrace(cause.__traceback__, sources, _CAUSE_FRAMES)
        record = {"type": class_name(type(cause)), "message": message_of(cause)}
        found.append({**record, "backtrace": frames, "relation": relation})
    return found


def chain(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """Yield the exceptions that led to this one, nearest first, each with its relation to the previous."""
    seen = {id(error)}
    while True:
        cause, relation = error.__cause__, "cause"
        if cause is None and not error.__suppress_context__:
            cause, relation = error.__context__, "context"
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause, relation
        error = cause
