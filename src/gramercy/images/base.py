"""What an image answers: replies, answers, states and moments; and images by their handles.

Nothing here assumes that the image runs on this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from gramercy.errors import ImageError
from gramercy.gram.suggestion import did_you_mean
from gramercy.images.files.changes import FileChange, FileOutcome  # noqa: TC001 - msgspec reads the types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gramercy.images.image import Image


class Form(msgspec.Struct, frozen=True):
    """The printed values of one evaluated form; none at all is not the same as NIL."""

    values: list[str] = []


class Notice(msgspec.Struct, frozen=True):
    """A warning or note of a compiler or reader; `line` counts in the file, or in the code that was sent."""

    kind: str
    type: str = ""
    message: str = ""
    form: str | None = None
    line: int | None = None
    file: str | None = None


class Cause(msgspec.Struct, frozen=True):
    """An exception that led to another, raised from it (`cause`) or while it was handled (`context`)."""

    type: str
    message: str
    backtrace: list[str] = []
    relation: str = "cause"


class Restart(msgspec.Struct, frozen=True):
    """A way to go on from an error; `asks` means that it would ask a person for its parameters."""

    number: int
    name: str
    report: str = ""
    parameters: list[str] = []
    asks: bool = False


class ImageFault(msgspec.Struct, frozen=True):
    """What went wrong inside an image, told by the image itself or, when its process died, by this one.

    `file`, `line`, `column` and `text` (the line itself) are the place of what could not be read or compiled;
    without a file the line counts in the code that was sent. `causes` are nearest first. `choices` are the
    restarts inside of the evaluation. `moment` is the id of the moment that is kept of it; where none is,
    `no_moment` may say why. `has_moment` is what the process of the image says about that.
    """

    type: str
    message: str
    restarts: list[str] = []
    backtrace: list[str] = []
    suggestions: list[str] = []
    interrupted: bool = False
    form_index: int | None = None
    causes: list[Cause] = []
    file: str | None = None
    line: int | None = None
    column: int | None = None
    text: str | None = None
    choices: list[Restart] = []
    has_moment: bool = msgspec.field(default=False, name="moment")
    moment: str | None = msgspec.field(default=None, name="moment_id")
    no_moment: str | None = None


class Change(msgspec.Struct, frozen=True):
    """One definition that an evaluation made, replaced or removed."""

    kind: str
    name: str
    change: str = "defined"


class Effect(msgspec.Struct, frozen=True):
    """Something a preview tried to do to the world outside the image."""

    kind: str
    target: str
    outcome: str = "refused"


class Display(msgspec.Struct, frozen=True):
    """What an evaluation shows beside its printed values.

    A picture has its bytes (base64 on the wire), and its text says what it is; where it could not be made or
    cannot be shown it has none, and the note says why. A table is text, with its shape and types.
    """

    kind: Literal["picture", "table"]
    mime: str = ""
    data: bytes = b""
    text: str = ""
    note: str = ""


class ImageState(msgspec.Struct, frozen=True):
    """How an image is after a call."""

    threads: int = 1
    heap_bytes: int = 0
    pid: int = 0


# The epoch of an image in which nothing was changed since it began. It has no number: an approval that was
# asked for in a fresh image holds in the fresh image of another process.
FRESH = "fresh"


class Span(msgspec.Struct, frozen=True):
    """The states that a call began and ended in, by their ids: empty for one that is not kept.

    `began` and `epoch` are their epochs. An epoch names a state: it is another one after every change, and
    the same again when the image is back there. A fresh image is at `fresh`, whenever it was started.
    `sandbox` is the confinement in force. Where nothing was changed, both states are the same.
    """

    before: str = ""
    after: str = ""
    began: str = ""
    epoch: str = ""
    sandbox: str = ""


class Reply(msgspec.Struct, frozen=True):
    """Everything that is known about one evaluation. `notes` is what else there is to say about it.

    `unchanged` means that it certainly changed nothing, `look` that by its form it only read, so that an undo
    passes over it. `unkept` tells why no state is kept after it; `lost` counts the calls before this one that
    were lost with the process that died in it; `log` is what threads, C code and other processes printed past
    the streams of the evaluation, since the reply before; `reloaded` names the systems or modules that were
    loaded anew. `statement` means that the last form was a statement, which has no value at all in its
    language. `lengths` has, for each value of the last form that was cut, how many characters it has as a
    whole (0 where that is not known), and None for each that is whole; a value that was cut has its number in
    `objects`, and the question `print_value` reads on in it. `displays` are the pictures and tables that it
    shows. `profile` is what was measured, where that was asked for. `files` are the files of the project that
    it changed, as seen from outside; of a preview, those that it tried to. `unknown_files` says why more may
    have changed than these; empty where all are known. `spoiled` has the edited files that failed while they
    were taken up, before the code ran: the keeper goes back to the state before. `span` is told by the
    keeper: the states before and after it; of a preview, that in which it was tried. `job` is the number of
    the work that it has begun in the background. Images leave out what is empty.
    """

    ok: bool
    forms: list[Form] = []
    stdout: str = ""
    stderr: str = ""
    warnings: list[Notice] = []
    error: ImageFault | None = None
    package: str = ""
    changed: list[Change] = []
    elapsed_ms: float = 0.0
    truncated: dict[str, int] = {}
    state: ImageState = ImageState()
    objects: list[int | None] = []
    lengths: list[int | None] = []
    effects: list[Effect] = []
    displays: list[Display] = []
    profile: dict[str, Any] = {}
    unkept: str | None = None
    lost: int = 0
    unchanged: bool = False
    look: bool = False
    statement: bool = False
    reloaded: list[str] = []
    log: str = ""
    system: str | None = msgspec.field(default=None, name="name")
    version: str | None = None
    notes: list[str] = []
    spoiled: dict[str, str] = {}
    files: list[FileChange] = []
    unknown_files: str = ""
    id: int | None = None
    span: Span = Span()
    job: int | None = None

    @property
    def values(self) -> list[str]:
        """The values of the last form."""
        return self.forms[-1].values if self.forms else []


class HistoryEntry(msgspec.Struct, frozen=True):
    """One evaluation as it was asked and answered.

    `undone` means that what it changed is not in the present state: it was taken back, or lost.
    """

    code: str
    reply: Reply
    at: float
    undone: bool = False


class Answer(msgspec.Struct, frozen=True):
    """The answer to a question about an image: text for people and models, data for programs."""

    ok: bool
    text: str = ""
    data: dict[str, Any] = {}
    error: ImageFault | None = None
    id: int | None = None


class Progress(msgspec.Struct, frozen=True):
    """A report of an evaluation that takes long: the seconds so far, and the output since the last report."""

    seconds: float
    stdout: str = ""
    stderr: str = ""


Watcher: TypeAlias = "Callable[[Progress], object]"
UndoWay = Literal["state", "replay", "definitions"]


class CheckpointInfo(msgspec.Struct, frozen=True):
    """One state that an image can go back to. `is_current` marks the one it stands on.

    `names` are the labels it was given. Where the image has just gone there, `taken_back` counts the calls
    that are undone by that, `files` tells what became of each file, and `notes` is what else there is to say.
    `changed` are the files that were changed on the way from its parent to it, `definitions` what the call
    that led to it has defined, `ok` whether that call succeeded, and `key` by which name the journal knows
    it, where that was told. `epoch` names the state. What is `pinned` has a name, and is never dropped for
    room. `unknown_files` says why more files may have to go back than `files` names. After an undo, `undone`
    has the beginnings of the calls that were taken back, newest first, and `left` the state that was left,
    where one can go there again.
    """

    id: str
    parent: str | None
    label: str
    at: float
    is_current: bool = False
    private_bytes: int | None = None
    names: list[str] = []
    taken_back: int = 0
    notes: list[str] = []
    files: list[FileOutcome] = []
    changed: list[FileChange] = []
    definitions: list[Change] = []
    ok: bool = True
    epoch: str = ""
    pinned: bool = False
    key: int = 0
    unknown_files: str = ""
    undone: list[str] = []
    left: str = ""


class MomentInfo(msgspec.Struct, frozen=True):
    """The kept stack of a failed evaluation: its code, what went wrong, and the copies that went on from it.

    `private_bytes` is the memory of its processes, where that is known.
    """

    id: str
    code: str
    type: str
    message: str
    at: float
    attempts: list[str] = []
    private_bytes: int | None = None


# What a profile measures: where the time goes, how often what is called, or what is allocated where.
Measure = Literal["time", "calls", "allocation"]
# What can be asked of a moment; `locals` takes the number of a frame.
MomentQuestion = Literal["frames", "locals", "restarts"]


class Gallery:
    """Images by handle; the first is the default."""

    def __init__(self, images: Iterable[Image]) -> None:
        self._images = {image.name: image for image in images}
        if not self._images:
            raise ImageError("a gallery needs at least one image")

    def get(self, handle: str | None = None) -> Image:
        """Return the image of that handle; without one, the first."""
        if handle is None:
            return next(iter(self._images.values()))
        found = self._images.get(handle)
        if found is None:
            hint = did_you_mean(handle, self._images, f"there are {', '.join(self._images)}")
            raise ImageError(f"there is no image {handle!r}: {hint}")
        return found

    def handles(self) -> list[str]:
        """List the handles, the default first."""
        return list(self._images)

    def close(self) -> None:
        """End every image."""
        for image in self._images.values():
            image.close()
