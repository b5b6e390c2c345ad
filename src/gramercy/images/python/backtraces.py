"""The frames of an exception as lines: the user's own with their arguments, those of libraries grouped.

Frames of this program are left out. It reads frames and code only, and runs no user code.
"""

import linecache
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from .anatomy import (
    WRAPPERS,
    class_space,
    code_file,
    code_path,
    is_class,
    is_kind,
    plain,
)
from .definitions import is_installed
from .places import USERS, line_text, shown_file, texts, tier_of
from .printing import preview, shorten
from .words import unwrapped

# Lines of a backtrace, so that it fits the reader's context, characters of each, and lines of its outer end.
_LINES, _LINE = 20, 300
_OUTER = 6
# Consecutive frames at the same line of the same function: in an endless recursion, nearly all.
_SAME = 3
# Consecutive frames of libraries that are grouped, and packages that are named for them.
_RUN, _PACKAGES = 2, 4
# Arguments of a call, and characters of each.
_ARGUMENTS, _ARGUMENT = 8, 40
_HOME = __file__.rpartition("/")[0] + "/"
_NO_INTEREST = (_HOME, "<frozen importlib")
_LIBRARY = linecache.__file__.rpartition("/")[0] + "/"
# A top-level `await` runs inside of asyncio's frames: they are left out, as ours are.
_ASYNCIO = _LIBRARY + "asyncio/"
_INSTALLED = ("/site-packages/", "/dist-packages/")
Frame = tuple[types.FrameType, int, int]


class Lines(Protocol):
    """The texts of evaluations."""

    def line(self, name: str, number: int | None) -> str:
        """Return one line, stripped; nothing when it is not known."""


class Run(NamedTuple):
    """Consecutive frames that make one line: a single one, or several of which only the number is shown."""

    first: int
    last: int
    what: str = ""


def user_frames(trace: types.TracebackType | None) -> list[Frame]:
    """Return the user's frames, innermost first, with the line and the instruction of each."""
    frames: list[Frame] = []
    while trace is not None:
        file = code_file(trace.tb_frame.f_code)
        if not (file.startswith(_NO_INTEREST) or (not frames and file.startswith(_ASYNCIO))):
            frames.append((trace.tb_frame, trace.tb_lineno, trace.tb_lasti))
        trace = trace.tb_next
    frames.reverse()
    return frames


def backtrace(trace: types.TracebackType | None, sources: Lines, most: int = _LINES) -> list[str]:
    """Return the lines of the frames, innermost first; each number is that of the frame in its moment."""
    return frame_lines(user_frames(trace), sources, most)


def frame_lines(frames: list[Frame], sources: Lines, most: int = _LINES) -> list[str]:
    """Return the lines of frames, with libraries and repetitions grouped."""
    runs = _shortened(list(_runs(frames)), most)
    return [_told(run) if run.what else shorten(_line(frames, run.first, sources), _LINE) for run in runs]


def _told(run: Run) -> str:
    return f"… {run.last - run.first + 1} {run.what} ({run.first} to {run.last})"


def _shortened(runs: list[Run], most: int) -> list[Run]:
    """Remove the middle of a backtrace that is too long."""
    if len(runs) <= most:
        return runs
    outer = min(_OUTER, most // 3)
    inner, rest = runs[: most - outer - 1], runs[len(runs) - outer :]
    return [*inner, Run(inner[-1].last + 1, rest[0].first - 1, "frames"), *rest]


def _runs(frames: list[Frame]) -> Iterator[Run]:
    """Group frames: those of libraries between the user's, and repeated calls."""
    place = 0
    while place < len(frames):
        end = place + 1
        if place and is_library(frames[place][0]):
            while end < len(frames) and is_library(frames[end][0]):
                end += 1
            if end - place >= _RUN:
                yield Run(place, end - 1, f"frames of {_packages(frames[place:end])}")
                place = end
                continue
            end = place + 1
        yield Run(place, place)
        place = end
        again = _repetitions(frames, place)
        if again >= _SAME:
            yield Run(place, place + again - 1, f"frames of {code_path(frames[place][0].f_code)} again")
            place += again


def _repetitions(frames: list[Frame], place: int) -> int:
    """Return the number of frames from here on at the same line of the same function as the one before."""
    frame, line, _last = frames[place - 1]
    end = place
    while end < len(frames) and frames[end][0].f_code is frame.f_code and frames[end][1] == line:
        end += 1
    return end - place


def is_library(frame: types.FrameType) -> bool:
    """Tell whether a frame runs code of a package that was installed, or of Python."""
    file = code_file(frame.f_code)
    if file in texts or file.startswith("/"):
        return file not in texts and is_installed(file)
    # Made at run time, or compiled: decide by the module that it names.
    home = frame.f_globals.get("__name__")
    return type(home) is str and home in sys.modules and tier_of(home) != USERS


def _packages(frames: list[Frame]) -> str:
    """Name the packages of these frames, the innermost first."""
    names = dict.fromkeys(_package(frame) for frame, _line, _last in frames)
    shown = ", ".join(list(names)[:_PACKAGES])
    return shown if len(names) <= _PACKAGES else f"{shown}, …"


def _package(frame: types.FrameType) -> str:
    home = frame.f_globals.get("__name__")
    return home.partition(".")[0] if type(home) is str else "a library"


def _line(frames: list[Frame], place: int, sources: Lines) -> str:
    frame, number, _last = frames[place]
    code = frame.f_code
    line = sources.line(code_file(code), number) or line_text(code, number)
    call = code_path(code) if is_library(frame) else call_text(frame)
    return f"{place}: {call} at {short_file(code_file(code))}:{number}" + (f": {line}" if line else "")


def short_file(file: str) -> str:
    """Return a file as a line of a backtrace names it: a file of a package without its directory."""
    for part in _INSTALLED:
        if part in file:
            return file.rpartition(part)[2]
    return file[len(_LIBRARY) :] if file.startswith(_LIBRARY) else shown_file(file)


def call_text(frame: types.FrameType) -> str:
    """Return the call that the frame belongs to, with its arguments as they are now; no user code runs."""
    code = frame.f_code
    name = code_path(code)
    return name if name == "<module>" else f"{name}({_arguments(frame)})"


def _arguments(frame: types.FrameType) -> str:
    """Format the arguments, without those that have their default."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    known: Any = frame.f_locals
    present = known if type(known) is dict else list(known)
    defaults = _defaults(frame)
    # Names with a dot belong to the compiler: the iterable of a comprehension.
    names = [name for name in code.co_varnames[:count] if name in present and name[0] != "."]
    given = [name for name in names if name not in defaults or defaults[name] is not known[name]]
    return ", ".join(f"{name}={preview(known[name], _ARGUMENT)}" for name in given[:_ARGUMENTS])


def _defaults(frame: types.FrameType) -> dict[str, object]:
    """Return the defaults of the function that a frame runs, where it is found by its name."""
    code = frame.f_code
    found: Any = None
    space = plain(frame.f_globals)
    for name in code_path(code).split("."):
        found = space.get(name)
        space = class_space(found) if is_class(found) else {}
    found = found.__func__ if id(type(found)) in WRAPPERS else found
    for function in (found, unwrapped(found)):
        if type(function) is types.FunctionType and function.__code__ is code:
            named = code.co_varnames[: code.co_argcount]
            last = function.__defaults__ or ()
            kept = plain(function.__kwdefaults__) if is_kind(function.__kwdefaults__, dict) else {}
            return {**dict(zip(named[len(named) - len(last) :], last, strict=True)), **kept}
    return {}
