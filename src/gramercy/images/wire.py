"""The grammar of an image's messages, and the only code that parses its bytes: docs/reference/wire.md.

Evaluated code runs in the process that sends them, so all of it is untrusted input. Each kind of frame has
its own type, apart from the published ones, and a maximal length. Published values are made here, bounded in
number and length. No frame can carry the keeper's own messages, and remarks of the image are published as its
own words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, cast

import msgspec
from msgspec import Meta

from gramercy.errors import ImageProtocolError
from gramercy.images.base import (
    Answer,
    Cause,
    Change,
    Display,
    Effect,
    Form,
    ImageFault,
    ImageState,
    Notice,
    Reply,
    Restart,
)
from gramercy.images.deaths import Fate
from gramercy.images.output import folded
from gramercy.text import cut, reveal_line

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
W = TypeVar("W")

HEADER = 4
# Requests carry whole files of code. The programs inside the image have the same limit.
LARGEST_REQUEST = 64 * 1024 * 1024
# For a reply, an answer or an event: the values of one evaluation have at most 8 MB of characters and its
# pictures 4 MB. The programs inside the image know the limit, and answer with an error instead.
LARGEST_REPLY = 16 * 1024 * 1024
# A hello has names and numbers, and a few sentences about the start.
LARGEST_HELLO = 4096
# A fork, a fate, a confinement, a save: a flag, a number, a sentence.
LARGEST_NOTICE = 16 * 1024
# Commas and brackets outside of strings: two bytes of them can become a hundred bytes of objects here. The
# reply to 100,000 forms in one evaluation has this many.
MOST_NODES = 500_000
# Frames that answer no request, in one wait: a copy that evaluated code has forked may send some.
MOST_STRAYS = 100
# Events of a run of tests have no request number. There are two for each test: no suite has half a million.
EVENT = 0
MOST_EVENTS = 1_000_000

# The published limits of one reply. The programs inside the image cut earlier, each with its own reason.
# These hold for a process that does not.
MOST_FORMS = 100_000
MOST_VALUES = 10_000
LONGEST_TEXT = 1_000_000
LONGEST_PRINTED = 256 * 1024
LONGEST_MESSAGE = 20_000
LONGEST_LINE = 500
# For texts about edited files: names, lines and what cannot be applied.
LONGEST_EDITS = 1_500
MOST_ROWS = 1_000
MOST_NOTES = 20
MOST_PICTURES = 64
LARGEST_PICTURE = 2 * 1024 * 1024
# Levels of the data of an answer. The programs inside the image use four.
DEEPEST = 12
SAYS = "The image says: "
_SPACE = re.compile(r"\s")
# The types of faults that the keeper makes. In a frame they would be forged.
KEEPERS = frozenset(
    {
        "CANCELLED",
        "IMAGE-DIED",
        "IMAGE-NOT-STARTED",
        "INVALID-CODE",
        "INVALID-REPLY",
        "MOMENT-GONE",
        "NO-MOMENT",
        "ATTEMPT-DIED",
        "PREVIEW-DIED",
        "TESTS-ENDED",
        "TIMEOUT",
    }
)

# Numbers that a double holds exactly. A longer one is not a count of anything here.
Number = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Scalar = Number | float | str | bool | None


class Frames:
    """The frames in a stream of bytes. Holds the received part of one frame, and the bytes read beyond it."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def __len__(self) -> int:
        """Return the number of held bytes."""
        return len(self._buffer)

    def hold(self, chunk: bytes) -> None:
        """Add bytes that were read before a frame was requested."""
        self._buffer += chunk

    def feed(self, chunk: bytes, longest: int) -> bytes | None:
        """Add bytes. Return the first frame if it is complete, without its header."""
        # Nearly always one read brings one frame, which then skips the buffer.
        if not self._buffer:
            size = int.from_bytes(chunk[:HEADER])
            if size == len(chunk) - HEADER <= longest:
                return chunk[HEADER:]
        self._buffer += chunk
        return self.take(longest)

    def take(self, longest: int) -> bytes | None:
        """Return the first frame if it is complete. Raise as soon as a longer one is announced."""
        buffer = self._buffer
        if len(buffer) < HEADER:
            return None
        size = int.from_bytes(buffer[:HEADER])
        if size > longest:
            raise ImageProtocolError(
                f"the image announced a frame of {size:,} bytes: {longest:,} are allowed"
            )
        end = HEADER + size
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            frame = bytes(view[HEADER:end])
        del buffer[:end]
        return frame


def line(text: str, longest: int = LONGEST_LINE) -> str:
    """Return a text as one line with hidden characters escaped and plain spaces."""
    text = cut(text, longest)
    return text if text.isprintable() and text.isascii() else cut(reveal_line(_SPACE.sub(" ", text)), longest)


def said(reason: str) -> str:
    """Return words of the image for a sentence of ours, marked so that they cannot pass for ours."""
    return f'the image says "{line(reason).replace(chr(34), chr(39))}"'


def remarks(notes: list[str]) -> list[str]:
    """Return the image's remarks, as its words."""
    return [SAYS + line(note) for note in notes[:MOST_NOTES]]


def _lines(texts: list[str], most: int = MOST_ROWS, longest: int = LONGEST_LINE) -> list[str]:
    return [line(text, longest) for text in texts[:most]] if texts else []


def _optional(text: str | None, longest: int = LONGEST_LINE) -> str | None:
    return None if text is None else line(text, longest)


# The possible content of frames. Unknown fields are ignored.


class _Wire(msgspec.Struct, frozen=True, gc=False):
    """The common base of all frames."""


class _Form(_Wire, frozen=True, gc=False):
    values: list[str] = []


class _Notice(_Wire, frozen=True, gc=False):
    kind: str
    type: str = ""
    message: str = ""
    form: str | None = None
    line: Number | None = None
    file: str | None = None


class _Cause(_Wire, frozen=True, gc=False):
    type: str
    message: str
    backtrace: list[str] = []
    relation: str = "cause"


class _Restart(_Wire, frozen=True, gc=False):
    number: Number
    name: str
    report: str = ""
    parameters: list[str] = []
    asks: bool = False


class _Fault(_Wire, frozen=True, gc=False):
    type: str
    message: str
    restarts: list[str] = []
    backtrace: list[str] = []
    suggestions: list[str] = []
    interrupted: bool = False
    form_index: Number | None = None
    causes: list[_Cause] = []
    file: str | None = None
    line: Number | None = None
    column: Number | None = None
    text: str | None = None
    choices: list[_Restart] = []
    moment: bool = False
    no_moment: str | None = None


class _Change(_Wire, frozen=True, gc=False):
    kind: str
    name: str
    change: str = "defined"


class _Effect(_Wire, frozen=True, gc=False):
    kind: str
    target: str
    outcome: str = "refused"


class _Display(_Wire, frozen=True, gc=False):
    kind: str
    mime: str = ""
    data: bytes = b""
    text: str = ""
    note: str = ""


class _State(_Wire, frozen=True, gc=False):
    threads: Number = 1
    heap_bytes: Number = 0
    pid: Number = 0


class _Reply(_Wire, frozen=True, gc=False):
    ok: bool
    forms: list[_Form] = []
    stdout: str = ""
    stderr: str = ""
    warnings: list[_Notice] = []
    error: _Fault | None = None
    package: str = ""
    changed: list[_Change] = []
    elapsed_ms: float = 0.0
    truncated: dict[str, Number] = {}
    state: _State = _State()
    objects: list[Number | None] = []
    lengths: list[Number | None] = []
    effects: list[_Effect] = []
    displays: list[_Display] = []
    profile: dict[str, Scalar | list[dict[str, Scalar]]] = {}
    unkept: str | None = None
    unchanged: bool = False
    look: bool = False
    statement: bool = False
    reloaded: list[str] = []
    name: str | None = None
    version: str | None = None
    notes: list[str] = []
    spoiled: dict[str, str] = {}
    edits: dict[str, str] = {}
    id: Number | None = None


class _Answer(_Wire, frozen=True, gc=False):
    ok: bool
    text: str = ""
    data: dict[str, Any] = {}
    error: _Fault | None = None
    id: Number | None = None


class _Head(_Wire, frozen=True, gc=False):
    """The number of the request that a frame answers, parsed before anything else of it."""

    id: Number | None = None


class Hello(msgspec.Struct, frozen=True):
    """The first frame of every process. `notes` are its words about its start."""

    hello: Number
    role: str
    language: str
    version: str
    capabilities: list[str] = []
    # For Python: sys.prefix, the active environment.
    prefix: str = ""
    notes: list[str] = []
    # For a copy: the duration of its fork.
    fork_us: Number = 0


class _Forked(_Wire, frozen=True, gc=False):
    ok: bool
    pid: Number = 0
    error: _Fault | None = None
    id: Number | None = None


class _Fate(_Wire, frozen=True, gc=False):
    kind: str = "unknown"
    code: Number = 0
    signal: Number = 0


class _Told(_Wire, frozen=True, gc=False):
    status: _Fate = _Fate()
    id: Number | None = None


class _Done(_Wire, frozen=True, gc=False):
    ok: bool = False
    confined: bool = False
    reason: str = ""
    error: _Fault | None = None
    id: Number | None = None


class _Event(_Wire, frozen=True, gc=False):
    kind: str
    name: str = ""
    outcome: str = ""
    text: str = ""
    output: str = ""
    total: Number = 0
    checks: Number = 0


class _Suite(_Wire, frozen=True, gc=False):
    ok: bool
    id: Number | None = None
    event: _Event | None = None
    error: _Fault | None = None
    framework: str = ""
    trouble: str = ""
    stdout: str = ""
    stderr: str = ""
    notes: list[str] = []
    edits: dict[str, str] = {}


# Published types that `base` does not have.


class Forked(msgspec.Struct, frozen=True):
    """The answer to a request to fork. `reason` says why there is no copy."""

    ok: bool
    pid: int = 0
    reason: str = ""


class Done(msgspec.Struct, frozen=True):
    """The answer to `confine`, `save`, `rehearse` or `watch_files`. `reason` says why it was not done."""

    ok: bool
    confined: bool = False
    reason: str = ""


class SuiteEvent(msgspec.Struct, frozen=True):
    """The events of a running suite: `found`, `deselected`, `begin`, `result`, `end`, `stopped`."""

    kind: str
    name: str = ""
    outcome: str = ""
    text: str = ""
    output: str = ""
    total: int = 0
    checks: int = 0


class SuiteFrame(msgspec.Struct, frozen=True):
    """An event of a run of tests, or the reply at its end."""

    event: SuiteEvent | None = None
    error: ImageFault | None = None
    framework: str = ""
    trouble: str = ""
    stdout: str = ""
    stderr: str = ""
    notes: list[str] = []


def _form(form: _Form) -> Form:
    values = form.values
    if len(values) == 1 and len(values[0]) <= LONGEST_TEXT:
        return Form(values)
    return Form([value[:LONGEST_TEXT] for value in values[:MOST_VALUES]])


def _notice(notice: _Notice) -> Notice:
    return Notice(
        line(notice.kind),
        line(notice.type),
        notice.message[:LONGEST_MESSAGE],
        None if notice.form is None else notice.form[:LONGEST_MESSAGE],
        notice.line,
        _optional(notice.file),
    )


def _fault(fault: _Fault) -> ImageFault:
    kind = line(fault.type)
    return ImageFault(
        f"{kind} (as the image says)" if kind in KEEPERS else kind,
        fault.message[:LONGEST_MESSAGE],
        _lines(fault.restarts),
        [frame[:LONGEST_MESSAGE] for frame in fault.backtrace[:MOST_ROWS]],
        _lines(fault.suggestions, MOST_NOTES),
        fault.interrupted,
        fault.form_index,
        [_cause(cause) for cause in fault.causes[:MOST_NOTES]],
        _optional(fault.file),
        fault.line,
        fault.column,
        None if fault.text is None else fault.text[:LONGEST_MESSAGE],
        [_restart(choice) for choice in fault.choices[:MOST_ROWS]],
        has_moment=fault.moment,
        no_moment=None if fault.no_moment is None else said(fault.no_moment),
    )


def _cause(cause: _Cause) -> Cause:
    frames = [frame[:LONGEST_MESSAGE] for frame in cause.backtrace[:MOST_ROWS]]
    return Cause(line(cause.type), cause.message[:LONGEST_MESSAGE], frames, line(cause.relation))


def _restart(choice: _Restart) -> Restart:
    parameters = _lines(choice.parameters, MOST_NOTES)
    return Restart(choice.number, line(choice.name), choice.report[:LONGEST_MESSAGE], parameters, choice.asks)


def _display(display: _Display) -> Display:
    kind, mime, note = display.kind, line(display.mime), line(display.note)
    if kind == "table":
        return Display("table", mime, b"", display.text[:LONGEST_MESSAGE], note)
    if kind != "picture":
        raise ImageProtocolError("the image shows something that is neither a picture nor a table")
    return Display("picture", mime, display.data[:LARGEST_PICTURE], line(display.text), note)


def _figures(row: dict[str, Scalar]) -> dict[str, Scalar]:
    """Return a row of a profile, with words as single lines."""
    return {line(key): line(each) if type(each) is str else each for key, each in row.items()}


def _profile(told: dict[str, Any]) -> dict[str, Any]:
    rows = {key: value for key, value in told.items() if type(value) is list}
    return _figures({key: value for key, value in told.items() if key not in rows}) | {
        line(key): [_figures(row) for row in value[:MOST_ROWS]] for key, value in rows.items()
    }


def _printed(text: str) -> str:
    """Publish output without its overwritten parts."""
    return folded(text[:LONGEST_PRINTED]) if "\r" in text else text[:LONGEST_PRINTED]


def _reply(told: _Reply) -> Reply:
    """Publish a reply. The keeper's own facts about a call are added later, and are in no frame."""
    forms, state = told.forms, told.state
    reply = Reply(
        told.ok,
        [_form(forms[0])] if len(forms) == 1 else [_form(form) for form in forms[-MOST_FORMS:]],
        told.stdout and _printed(told.stdout),
        told.stderr and _printed(told.stderr),
        package=line(told.package),
        elapsed_ms=told.elapsed_ms,
        state=ImageState(state.threads, state.heap_bytes, state.pid),
        unchanged=told.unchanged,
        look=told.look,
        statement=told.statement,
        id=told.id,
    )
    # Nearly all replies have nothing else. Publishing the empty rest would take twice as long.
    more = _more(told)
    return msgspec.structs.replace(reply, **more) if more else reply


# Our sentences around the image's words about edited files.
EDITS = {
    "taken": "took up {}",
    "told": "changed since it was loaded: {}; the old code runs",
    "held": "changed since it was loaded: {} would run, and no state is kept to go back to; old code runs",
    "failed": "The module stays as it was: {}; nothing was taken up",
    "declined": "not taken up, as it failed before: {}; the old code runs",
    "gone": "removed or renamed since it was loaded: {}; the code that was loaded from it still runs",
}


def _edits(told: dict[str, str]) -> list[str]:
    return [EDITS[kind].format(line(text, LONGEST_EDITS)) for kind, text in told.items() if kind in EDITS]


def _more(told: _Reply) -> dict[str, Any]:  # noqa: C901 - a table, one row for each field
    """Publish the rare fields, by the names of the published ones."""
    more: dict[str, Any] = {}
    if told.error is not None:
        more["error"] = _fault(told.error)
    if told.objects or told.lengths:
        more["objects"], more["lengths"] = told.objects[:MOST_VALUES], told.lengths[:MOST_VALUES]
    if told.unkept is not None:
        more["unkept"] = said(told.unkept)
    if told.changed:
        named = told.changed[:MOST_ROWS]
        more["changed"] = [Change(line(each.kind), line(each.name), line(each.change)) for each in named]
    if told.spoiled:
        more["spoiled"] = {line(path): line(mark) for path, mark in list(told.spoiled.items())[:MOST_ROWS]}
    if told.notes or told.edits:
        more["notes"] = [*_edits(told.edits), *remarks(told.notes)]
    if told.warnings:
        more["warnings"] = [_notice(each) for each in told.warnings[:MOST_ROWS]]
    if told.truncated:
        more["truncated"] = _cuts(told)
    if told.effects:
        tried = told.effects[:MOST_ROWS]
        more["effects"] = [Effect(line(each.kind), line(each.target), line(each.outcome)) for each in tried]
    if told.displays:
        more["displays"] = [_display(each) for each in told.displays[:MOST_PICTURES]]
    if told.profile:
        more["profile"] = _profile(told.profile)
    if told.name is not None or told.reloaded or told.version is not None:
        more["system"], more["version"] = _optional(told.name), _optional(told.version)
        more["reloaded"] = _lines(told.reloaded)
    return more


def _cuts(told: _Reply) -> dict[str, int]:
    """Publish the whole lengths of cut parts. A stream counts without its overwritten parts."""
    cuts = {line(name): size for name, size in list(told.truncated.items())[:MOST_NOTES]}
    for name in {"stdout", "stderr"} & cuts.keys():
        text = getattr(told, name)[:LONGEST_PRINTED]
        cuts[name] -= len(text) - len(folded(text))
    return cuts


def _answer(told: _Answer) -> Answer:
    if not _is_shallow(told.data, DEEPEST):
        raise ImageProtocolError(f"the image answered with data of more than {DEEPEST} levels")
    fault = None if told.error is None else _fault(told.error)
    return Answer(told.ok, told.text[:LONGEST_TEXT], told.data, fault, told.id)


def _is_shallow(value: Any, levels: int) -> bool:
    if type(value) is dict:
        value = value.values()
    elif type(value) is not list:
        return True
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in value)


def _hello(told: Hello) -> Hello:
    return Hello(
        told.hello,
        line(told.role),
        line(told.language),
        line(told.version),
        _lines(told.capabilities, MOST_NOTES, 40),
        line(told.prefix, LARGEST_HELLO),
        remarks(told.notes),
        told.fork_us,
    )


def _forked(told: _Forked) -> Forked:
    return Forked(told.ok, told.pid, _why(told.error))


def _why(fault: _Fault | None) -> str:
    return "" if fault is None else said(fault.message)


def _done(told: _Done) -> Done:
    return Done(told.ok, told.confined, _why(told.error) or (said(told.reason) if told.reason else ""))


def _fate(told: _Told) -> Fate:
    return Fate(line(told.status.kind), told.status.code, told.status.signal)


def _suite(told: _Suite) -> SuiteFrame:
    event = told.event
    if event is not None:
        return SuiteFrame(
            SuiteEvent(
                line(event.kind),
                line(event.name),
                line(event.outcome, 40),
                folded(event.text[:LONGEST_MESSAGE]),
                folded(event.output[:LONGEST_MESSAGE]),
                event.total,
                event.checks,
            )
        )
    fault = None if told.error is None else _fault(told.error)
    printed = _printed(told.stdout), _printed(told.stderr)
    notes = [*_edits(told.edits), *remarks(told.notes)]
    return SuiteFrame(None, fault, line(told.framework), line(told.trouble), *printed, notes)


class Kind(Generic[T]):
    """One kind of frame: its maximal length, its possible content, its published type."""

    __slots__ = ("_decoder", "_publish", "longest", "name")

    def __init__(self, name: str, longest: int, carried: type[W], publish: Callable[[W], T]) -> None:
        self.name = name
        self.longest = longest
        self._decoder = msgspec.json.Decoder(carried)
        self._publish: Callable[[Any], T] = publish

    def read(self, frame: bytes) -> T:
        """Return the published value of a frame, or raise ImageProtocolError. Nothing else is ever raised."""
        return self._publish(self._decoded(frame))

    def reply_to(self, number: int, frame: bytes) -> T | None:
        """Return the published reply to that request, None where the frame answers another one."""
        # A long frame is decoded only when it is known to be the awaited one.
        if len(frame) > LARGEST_NOTICE and number_of(frame) != number:
            return None
        try:
            told = self._decoded(frame)
        except ImageProtocolError:
            if number_of(frame) != number:
                return None
            raise
        return self._publish(told) if told.id == number else None

    def _decoded(self, frame: bytes) -> Any:
        if len(frame) > LARGEST_NOTICE:
            _check_nodes(frame)
        try:
            return self._decoder.decode(frame)
        except (ValueError, RecursionError) as error:
            raise _malformed(self.name, error) from None


def _malformed(name: str, error: Exception) -> ImageProtocolError:
    return ImageProtocolError(f"the image sent something that is not {name}: {line(str(error), 200)}")


_KINDS: dict[type, Kind[Any]] = {
    Reply: Kind("a reply", LARGEST_REPLY, _Reply, _reply),
    Answer: Kind("an answer", LARGEST_REPLY, _Answer, _answer),
    Hello: Kind("a hello", LARGEST_HELLO, Hello, _hello),
    Forked: Kind("an answer to a fork", LARGEST_NOTICE, _Forked, _forked),
    Fate: Kind("the fate of a process", LARGEST_NOTICE, _Told, _fate),
    Done: Kind("an answer", LARGEST_NOTICE, _Done, _done),
    SuiteFrame: Kind("an event of a test", LARGEST_REPLY, _Suite, _suite),
}
_head = msgspec.json.Decoder(_Head)


def kind_of(published: type[T]) -> Kind[T]:
    """Return the kind of frame for a published type."""
    return cast("Kind[T]", _KINDS[published])


def number_of(frame: bytes) -> int | None:
    """Return the number of the request that a frame answers, without decoding the rest."""
    try:
        return _head.decode(frame).id
    except (ValueError, RecursionError) as error:
        raise _malformed("a frame", error) from None


_NODE = re.compile(rb'(?:[^",\[{]++|"(?:[^"\\]++|\\.)*+")*+[,\[{]', re.DOTALL)


def _check_nodes(frame: bytes) -> None:
    """Raise if a frame would become too many objects."""
    # Commas in strings count here too, so this only proves that there are few.
    if sum(map(frame.count, (b",", b"[", b"{"))) <= MOST_NODES:
        return
    place = 0
    for _ in range(MOST_NODES):
        found = _NODE.match(frame, place)
        if found is None:
            return
        place = found.end()
    raise ImageProtocolError(f"the image sent a frame of more than {MOST_NODES:,} parts")
