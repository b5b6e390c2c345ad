"""The moment of an error, kept in a copy of the process: its frames, their locals, and code in one of them.

A traceback is the remainder of unwinding: `finally` and `with` have already run. So the code cannot continue,
and there are no restarts. Inspection runs no user code. Code in a frame changes this copy only.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

from .anatomy import (
    FUNCTIONS,
    class_name,
    code_file,
    code_name,
    code_path,
    instance_space,
    is_class,
    is_heap,
    is_kind,
    is_module,
    plain,
)
from .backtraces import call_text, frame_lines, is_library, user_frames
from .diagnostics import chain, message_of
from .places import USERS, running_lines, shown_file, tier_of
from .printing import preview, shorten
from .protocol import Request, RequestError, count
from .resting import stacks
from .session import Reply, Session
from .shapes import view_of
from .words import Page

# Frames in one answer, from both ends of a deep stack: a reader looks at the first few.
_FRAMES, _MOST_FRAMES = 30, 1000
# Frames of each thread in a list of threads.
_THREAD_FRAMES = 12
# Consecutive frames at the same line of the same function: in an endless recursion, nearly all.
_SAME = 3
# Exceptions behind the failed one, and parts of a group: as many as the error itself shows.
_CAUSES, _PARTS = 5, 10
# Names of locals in a list of frames, and locals in one answer, with the characters of each value.
_NAMES, _LOCALS, _VALUE = 20, 100, 400
_LINE, _MESSAGE = 200, 1000
# Attributes of an instance that is a local, and characters of each.
_FIELDS, _FIELD = 8, 60
_RELATIONS = {"cause": "raised from", "context": "raised while handling", "part": "part of the group"}
NO_RESTARTS = (
    "Python has no restarts: an exception is told after its stack has been unwound. Look at the frames and "
    "try code in them, then change the code and evaluate it again."
)
_NO_MOMENT = (
    "This process keeps no moment of an error; ask the copy that was made when the evaluation failed."
)
_OUT_OF_MEMORY = "memory had run out, and a copy would keep all of it"


class Place(NamedTuple):
    """One frame of a traceback: its place and its instruction."""

    frame: FrameType
    line: int
    last: int


class Part(NamedTuple):
    """An exception of the moment, its relation to the previous one, and the number of its first frame."""

    error: BaseException
    relation: str
    message: str
    first: int
    places: list[Place]


def why_none(error: BaseException) -> str | None:
    """Return why no moment of this exception is kept: a reason, an empty text, or None if one is kept."""
    if type(error) is MemoryError:
        return _OUT_OF_MEMORY
    return None if next(iter(user_frames(error.__traceback__)), None) is not None else ""


class Moment:
    """The frames of one exception and of those behind it, and the assignments of code in them."""

    def __init__(self, error: BaseException) -> None:
        self.parts: list[Part] = []
        self._add(error, "")
        for cause, relation in islice(chain(error), _CAUSES):
            self._add(cause, relation)
        for part in islice(_grouped(error), _PARTS):
            self._add(part, "part")
        self._spaces: dict[int, dict[str, object]] = {}

    def _add(self, error: BaseException, relation: str) -> None:
        if any(part.error is error for part in self.parts):
            return
        places = [Place(*found) for found in user_frames(error.__traceback__)]
        # Computed here, before any inspection, since the `__str__` of an exception may be user code.
        self.parts.append(Part(error, relation, shorten(message_of(error), _MESSAGE), self.total, places))

    @property
    def total(self) -> int:
        """The total number of frames."""
        return self.parts[-1].first + len(self.parts[-1].places) if self.parts else 0

    def place(self, number: object) -> Place:
        """Return a frame by its number, or raise with the valid numbers."""
        if type(number) is not int or not 0 <= number < self.total:
            there = f"the frames are 0 to {self.total - 1}" if self.total else "there is none"
            raise RequestError("NO-SUCH-FRAME", f"There is no frame {str(number)[:40]}: {there}.")
        part = next(part for part in reversed(self.parts) if part.first <= number and part.places)
        return part.places[number - part.first]

    def space(self, number: int) -> dict[str, object]:
        """Return the locals of a frame, which code in the frame reads and writes.

        They are copied once: until 3.12 `f_locals` of a function is made anew at each access.
        """
        if number not in self._spaces:
            frame = self.place(number).frame
            self._spaces[number] = _in_order(_raw_locals(frame), frame.f_code)
        return self._spaces[number]

    def names(self, number: int) -> dict[str, object]:
        """Return the displayed locals of a frame: for a module, the names that its code mentions."""
        frame = self.place(number).frame
        if frame.f_locals is not frame.f_globals:
            return {name: value for name, value in self.space(number).items() if name[:1] != "."}
        known = plain(frame.f_globals)
        found = {name: known[name] for name in frame.f_code.co_names if name in known}
        return {name: value for name, value in found.items() if not _is_definition(value)}


def _is_definition(value: object) -> bool:
    return id(type(value)) in FUNCTIONS or is_class(value) or is_module(value)


def _grouped(error: BaseException) -> Iterator[BaseException]:
    """Give the exceptions of a group, and of the groups in it."""
    if is_kind(error, BaseExceptionGroup):
        for part in BaseExceptionGroup.exceptions.__get__(error):
            yield part
            yield from _grouped(part)


def _raw_locals(frame: FrameType) -> dict[str, object]:
    """Return the locals, except for a class body whose metaclass keeps them in its own mapping."""
    found = frame.f_locals
    if is_kind(found, dict):
        return plain(found)
    is_proxy = type(found).__module__ == "builtins" and type(found).__name__ == "FrameLocalsProxy"
    return {name: found[name] for name in list(found)} if is_proxy else {}


def _in_order(found: dict[str, object], code: CodeType) -> dict[str, object]:
    """Put the parameters first: `super()` without arguments takes the first one as the instance."""
    size = code.co_argcount + code.co_kwonlyargcount
    return {name: found[name] for name in (*code.co_varnames[:size], *found) if name in found}


def kept(session: Session) -> Moment:
    """Return the moment that this process keeps, or say that it keeps none."""
    if session.moment is None:
        raise RequestError("NO-MOMENT", _NO_MOMENT)
    found: Moment = session.moment
    return found


def tell_restarts(_session: Session, _request: Request) -> Reply:
    """Say that there are none."""
    return {"ok": True, "text": NO_RESTARTS, "data": {"restarts": []}}


def refuse_restart(_session: Session, _request: Request) -> Reply:
    """Say that there is nothing to go on with."""
    raise RequestError("NO-RESTARTS", NO_RESTARTS)


def tell_threads(session: Session, _request: Request) -> Reply:
    """List the threads of Python code beside the one that evaluates, each with its stack."""
    page, rows = Page(), []
    for thread, frames, rests in stacks():
        lines = frame_lines([(*place, -1) for place in frames], session.sources, _THREAD_FRAMES)
        rows.append({"name": str(thread.name), "rests": rests, "frames": lines})
        told = "waits for work" if rests else "runs"
        page.add("\n".join([f"{thread.name} {told}:", *(f"  {line}" for line in lines)]))
    text = page.end("threads") if rows else "No other thread of Python code is there."
    return {"ok": True, "text": text, "data": {"threads": rows}}


def tell_frames(session: Session, request: Request) -> Reply:
    """List the frames, the one that failed first, then those of the exceptions behind it.

    From the first one on it is an overview, without repetitions; from an `offset` each frame is told.
    """
    moment = kept(session)
    start, most = count(request, "offset", 0, moment.total), count(request, "limit", _FRAMES, _MOST_FRAMES)
    overview = [number for part in moment.parts for number in _selected(part, most)]
    numbers = list(range(start, min(start + most, moment.total))) if start else overview
    rows = [
        _placed(moment, number, before)
        for before, number in zip([start - 1, *numbers], numbers, strict=False)
    ]
    page = Page()
    page.add(_headline(moment.parts[0]))
    for row in rows:
        page.add("\n".join([*(str(row[key]) for key in ("gap", "heading") if key in row), _row_text(row)]))
    left = moment.total - 1 - numbers[-1] if numbers else 0
    told = page.end("frames: ask for the locals of one by its number", more=left)
    parts = [_part_data(part) for part in moment.parts]
    data = {"frames": rows, "total": moment.total, "parts": parts}
    return {"ok": True, "text": told, "data": data}


def _placed(moment: Moment, number: int, before: int) -> Reply:
    """Return the row of a frame, with what is left out before it, and whose frames begin with it."""
    row = _row(moment, number)
    if number > before + 1:
        row["gap"] = _gap(moment, before + 1, number - 1)
    part = next((part for part in moment.parts[1:] if part.first == number and part.places), None)
    if part is not None:
        row["heading"] = _headline(part)
    return row


def _gap(moment: Moment, first: int, last: int) -> str:
    """Describe which frames are left out, and whether a call repeats itself in them."""
    codes = [moment.place(number).frame.f_code for number in range(max(first - 1, 0), last + 1)]
    again = f": {code_name(codes[0])} again" if all(code is codes[0] for code in codes) else ", left out here"
    return f"… frames {first} to {last}{again}" if first < last else f"… frame {first}{again}"


def _headline(part: Part) -> str:
    relation = _RELATIONS.get(part.relation)
    said = f"{class_name(type(part.error))}: {part.message}" if part.message else class_name(type(part.error))
    return f"{relation} {said}" if relation else said


def _part_data(part: Part) -> Reply:
    return {
        "type": class_name(type(part.error)),
        "message": part.message,
        "relation": part.relation,
        "first": part.first,
        "total": len(part.places),
    }


def _selected(part: Part, most: int) -> list[int]:
    """Return the numbers of the frames to show: without repetitions, and of libraries only the ends of a run.

    Of a deep stack both ends.
    """
    found: list[int] = []
    before, repeated = (0, 0), 0
    foreign = [is_library(place.frame) for place in part.places] + [False]
    for place, (frame, line, _last) in enumerate(part.places):
        here = (id(frame.f_code), line)
        repeated = repeated + 1 if here == before else 0
        before = here
        is_inside = place > 0 and foreign[place - 1] and foreign[place] and foreign[place + 1]
        if repeated < _SAME and not is_inside:
            found.append(part.first + place)
    outer = most // 3
    return found if len(found) <= most else found[: most - outer] + found[len(found) - outer :]


def _row(moment: Moment, number: int) -> Reply:
    place = moment.place(number)
    code = place.frame.f_code
    lines = running_lines(code)
    source = lines[place.line - 1].rstrip() if 0 < place.line <= len(lines) else ""
    names, home = list(moment.names(number)), place.frame.f_globals.get("__name__")
    row: Reply = {
        "number": number,
        "name": code_path(code),
        "call": shorten(call_text(place.frame), _LINE),
        "file": shown_file(code_file(code)),
        "line": place.line,
        "source": shorten(source.strip(), _LINE),
        "locals": names[:_NAMES],
        "own": tier_of(home if type(home) is str else "?") == USERS,
    }
    if len(names) > _NAMES:
        row["more_locals"] = len(names) - _NAMES
    row.update(_columns(place, source))
    return row


def _columns(place: Place, source: str) -> Reply:
    """Return the exact part of the source line that failed: its columns, counted from 1, and its text."""
    positions: Callable[[], Any] | None = getattr(place.frame.f_code, "co_positions", None)
    if positions is None or not source:
        return {}
    found = next(islice(positions(), place.last // 2, None), None)
    line, last, first, end = found or (None, None, None, None)
    if line != place.line or first is None or end is None:
        return {}
    octets = source.encode()
    begin = len(octets[:first].decode(errors="replace"))
    if line != last:
        return {"column": begin + 1, "end_line": last}
    failed = octets[first:end].decode(errors="replace")
    return {"column": begin + 1, "end_column": begin + 1 + len(failed), "failed": shorten(failed, _LINE)}


def _row_text(row: Reply) -> str:
    lines = [f"{row['number']}: {row['call']} at {row['file']}:{row['line']}"]
    source, failed = str(row["source"]), str(row.get("failed", ""))
    if source:
        lines.append(f"     {source}")
    if failed and failed != source:
        lines.append(f"     here: {failed}")
    names: list[str] = row["locals"]  # type: ignore[assignment]  # a row of ours
    # Names of a library's frame can be requested. Listing them all would bury the user's own.
    if names and row["own"]:
        more = f" and {row['more_locals']} more" if "more_locals" in row else ""
        lines.append(f"     locals: {', '.join(names)}{more}")
    return "\n".join(lines)


def _structure(value: object) -> str:
    """Print a value. For an instance print the attributes as well, since its type alone says little."""
    shown = preview(value, _VALUE)
    if _is_definition(value) or not is_heap(type(value)) or view_of(value) is not None:
        return shown
    fields = instance_space(value)
    if not fields or not shown.endswith(">"):
        return shown
    parts = [f"{name}={preview(held, _FIELD)}" for name, held in islice(fields.items(), _FIELDS)]
    more = f", … {len(fields) - _FIELDS} more" if len(fields) > _FIELDS else ""
    return f"{shown[:-1]}: {', '.join(parts)}{more}>"


def tell_locals(session: Session, request: Request) -> Reply:
    """List the locals of a frame, printed by their structure."""
    moment = kept(session)
    number: Any = request.get("frame", 0)
    moment.place(number)
    found = moment.names(number)
    frame = _row(moment, number)
    page, rows = Page(), []
    page.add(f"{number}: {frame['call']} at {frame['file']}:{frame['line']}")
    for name, value in islice(found.items(), _LOCALS):
        row = {"name": name, "value": _structure(value), "type": class_name(type(value))}
        rows.append(row)
        page.add(f"{name} = {row['value']}  ({row['type']})")
    if not found:
        page.add("It has no locals.")
    told = page.end("locals: evaluate a name in the frame to see it", more=max(len(found) - _LOCALS, 0))
    return {"ok": True, "text": told, "data": {"frame": frame, "locals": rows, "total": len(found)}}
