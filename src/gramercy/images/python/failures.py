"""Turn an exception of evaluated code into a record: type, message, backtrace, position.

The frames of this program are dropped. It never raises and never keeps the exception.
"""

import linecache
import traceback as _traceback  # noqa: F401 - loaded before the fork, for user code that prints tracebacks
import types

from .anatomy import class_name, kinds, mro_of
from .printing import preview, shorten
from .sources import Sources

_FRAMES = 25
_FRAME = 300
_MESSAGE = 4000
_CAUSES = 5
_CAUSE_FRAMES = 8
_HOME = __file__.rpartition("/")[0] + "/"
_NO_INTEREST = (_HOME, "<frozen importlib")
# Where a top-level `await` is driven from: frames of no interest between ours and the user's.
_ASYNCIO = linecache.__file__.rpartition("/")[0] + "/asyncio/"
_UNREADABLE = kinds(SyntaxError, IndentationError, TabError)
_line_of = linecache.getline


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
    causes = _causes(error, sources)
    if causes:
        record["causes"] = causes
    return record


def message_of(error: BaseException) -> str:
    """Return the text of an exception with its notes and parts; a broken `__str__` is told, not raised."""
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
    """Return the place of what could not be read: without a file it lies in the code that was sent."""
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
        found["text"] = shorten(_first_line(str(found["text"])), _FRAME)
        if id(type(error)) in _UNREADABLE and type(getattr(error, "msg", None)) is str:
            # The place is told on its own, and so need not be part of the message.
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
    seen = {id(error)}
    while len(found) < _CAUSES:
        cause, relation = error.__cause__, "cause"
        if cause is None and not error.__suppress_context__:
            cause, relation = error.__context__, "context"
        if cause is None or id(cause) in seen:
            break
        seen.add(id(cause))
        frames = backtrace(cause.__traceback__, sources, _CAUSE_FRAMES)
        record = {"type": class_name(type(cause)), "message": message_of(cause)}
        found.append({**record, "backtrace": frames, "relation": relation})
        error = cause
    return found


def backtrace(trace: types.TracebackType | None, sources: Sources, most: int = _FRAMES) -> list[str]:
    """Return the user's frames, innermost first; of a deep stack the two ends."""
    frames: list[tuple[types.FrameType, int]] = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not (file.startswith(_NO_INTEREST) or (not frames and file.startswith(_ASYNCIO))):
            frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    frames.reverse()
    shown = list(enumerate(frames))
    half = most // 2
    cut = len(frames) - 2 * half if len(frames) > most else 0
    if cut:
        shown = shown[:half] + shown[-half:]
    lines = [shorten(f"{index}: {_frame(*place, sources)}", _FRAME) for index, place in shown]
    if cut:
        lines.insert(half, f"… {cut} frames left out")
    return lines


def _frame(frame: types.FrameType, number: int, sources: Sources) -> str:
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    call = name if name == "<module>" else f"{name}({_arguments(frame)})"
    line = sources.line(code.co_filename, number)
    return f"{call} at {code.co_filename}:{number}" + (f": {line}" if line else "")


def _arguments(frame: types.FrameType) -> str:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    known = frame.f_locals
    if type(known) is dict:
        names = [name for name in code.co_varnames[:count] if name in known]
    else:
        names = [name for name in code.co_varnames[:count] if name in list(known)]
    return ", ".join(f"{name}={preview(known[name], 40)}" for name in names[:8])
