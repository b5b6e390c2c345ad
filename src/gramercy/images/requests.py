"""Everything that can be asked of an image, each kind a value: work to run, questions, and moves to a state.

Work goes over the wire as it stands here: the fields of a struct are those of the request, the tag is the
operation. Each kind of image, in this process or in another one, reads the same values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gramercy.images.asking import Comparison  # noqa: F401 - named in bases
    from gramercy.images.base import (
        Answer,  # noqa: F401
        CheckpointInfo,  # noqa: F401
        HistoryEntry,  # noqa: F401
        Measure,
        MomentInfo,  # noqa: F401
        Reply,
        UndoWay,
    )
    from gramercy.images.installing import Installation  # noqa: F401
    from gramercy.images.jobs import JobInfo  # noqa: F401
    from gramercy.images.suites import SuiteRun, WantedTests  # noqa: F401

R_co = TypeVar("R_co", covariant=True)


class Request(msgspec.Struct, Generic[R_co], frozen=True, tag_field="op", omit_defaults=True):
    """Anything that an image can be asked for; the parameter is the type of the answer."""

    @property
    def op(self) -> str:
        """The name of the operation, as the wire has it."""
        return str(self.__struct_config__.tag)


# Work: it runs code, takes time, can be watched and interrupted


class Work(Request[R_co], frozen=True):
    """A request that runs code of the user's."""

    @property
    def text(self) -> str:
        """The code of it, or the name of what it loads: for histories and lists of steps."""
        return ""


class Evaluate(Work["Reply"], frozen=True, tag="eval"):
    """Evaluate every form of the code, in order."""

    code: str
    package: str | None = None

    @property
    def text(self) -> str:
        """The code."""
        return self.code


class Compile(Evaluate, frozen=True, tag="compile"):
    """Compile and load the code; warnings have positions, values are not returned."""


class StartJob(Evaluate, frozen=True, tag="start_job"):
    """Begin work in the background, beside other calls; the reply has its number."""


class Preview(Evaluate, frozen=True, tag="preview"):
    """Evaluate in a throw-away copy that can touch nothing, and tell what would happen."""


class Profile(Work["Reply"], frozen=True, tag="profile"):
    """Evaluate and measure."""

    code: str
    measure: Measure
    package: str | None = None

    @property
    def text(self) -> str:
        """The code."""
        return self.code


class Load(Work["Reply"], frozen=True, tag="load_system"):
    """Load a system (SBCL) or import a package (Python), or run the file of a path."""

    system: str

    @property
    def text(self) -> str:
        """The name of the system, or the path."""
        return self.system


class TakeUp(Load, frozen=True, tag="take_up"):
    """Change in place what was edited in a file that was loaded before; else load it."""


class InFrame(Work["Reply"], frozen=True, tag="eval_in_frame"):
    """Evaluate code with the variables of a frame of a moment, by default of the latest one."""

    code: str
    frame: int = 0
    moment: str | None = None

    @property
    def text(self) -> str:
        """The code."""
        return self.code


class GoOn(Work["Reply"], frozen=True, tag="invoke"):
    """Go on from an error with a restart, by number or name, in a copy of its moment."""

    restart: int | str
    arguments: Sequence[str] = ()
    moment: str | None = None

    @property
    def text(self) -> str:
        """A comment that names the restart."""
        return " ".join(["; restart", str(self.restart), *self.arguments])


class UndoDefinitions(Work["Reply"], frozen=True, tag="undo_definitions"):
    """Put back what the last call defined, and no more."""

    code: str

    @property
    def text(self) -> str:
        """What a history calls it."""
        return self.code


class Suite(Work["SuiteRun"], frozen=True, tag="suite"):
    """Run tests of the project in a process of their own."""

    wanted: WantedTests


def repeated(op: str, code: str, package: str | None = None) -> Work[Reply]:
    """Return the work of a step that is run again."""
    if op in ("eval", "compile"):
        return (Evaluate if op == "eval" else Compile)(code, package)
    return {"load_system": Load, "take_up": TakeUp, "undo_definitions": UndoDefinitions}[op](code)


# Questions: they change nothing


class Question(Request[R_co], frozen=True):
    """A request that changes nothing in the image."""


class About(Question["Answer"], frozen=True, tag="about"):
    """Look into the image: describe, apropos, arglist, who_calls, inspect, …

    With `at`, the id or name of a kept state, a copy of that answers.
    """

    question: str
    details: dict[str, Any] = {}
    at: str | None = None


class AboutMoment(Question["Answer"], frozen=True, tag="about_moment"):
    """Look at the stack of an error, the latest one by default: frames, locals, restarts."""

    question: str
    moment: str | None = None
    details: dict[str, Any] = {}


class Compare(Question["Comparison"], frozen=True, tag="compare"):
    """Tell how a kept state differs from another, or from the present one."""

    a: str
    b: str | None = None


class History(Question["list[HistoryEntry]"], frozen=True, tag="history"):
    """List the latest evaluations, oldest first."""


class Checkpoints(Question["list[CheckpointInfo]"], frozen=True, tag="checkpoints"):
    """List the states that can be gone back to, oldest first."""


class Moments(Question["list[MomentInfo]"], frozen=True, tag="moments"):
    """List the errors whose stack is kept, oldest first."""


class Jobs(Question["list[JobInfo]"], frozen=True, tag="jobs"):
    """List the work in the background, the oldest first."""


class ReadJob(Question["JobInfo"], frozen=True, tag="read_job"):
    """Return what a job has printed since it was last read, and its reply once it is over."""

    number: int


class Epoch(Question[str], frozen=True, tag="epoch"):
    """Name the present state, once no call runs; does not start the image."""


class ChangedAt(Question["float | None"], frozen=True, tag="changed_at"):
    """Tell when the last call was over that may have changed something, in seconds since 1970."""


class HowToInstall(Question["Installation"], frozen=True, tag="installation"):
    """Return the command that installs packages into the environment of the image's project."""

    packages: Sequence[str]


# Moves: they keep a state, lead to another one, or end a job


class Move(Request[R_co], frozen=True):
    """A request that keeps a state or leads to another one, and runs no new code."""


class Keep(Move["CheckpointInfo"], frozen=True, tag="checkpoint"):
    """Keep the present state under a name."""

    label: str = ""


class Rollback(Move["CheckpointInfo"], frozen=True, tag="rollback"):
    """Go back to a state, by its id or name; with the files that calls have changed since."""

    checkpoint: str
    files: bool = True


class Undo(Move["CheckpointInfo"], frozen=True, tag="undo"):
    """Take back the last call that may have changed something, with the files that it changed."""

    by: UndoWay = "state"
    files: bool = True


class Reset(Move["list[str]"], frozen=True, tag="reset"):
    """Begin again with a fresh image; the answer has sentences about it."""


class Save(Move[str], frozen=True, tag="save"):
    """Write the state to disk; the answer says what was written."""

    path: str


class Restore(Move[str], frozen=True, tag="restore"):
    """Take up a state that was written to disk."""

    path: str


class StopJob(Move["JobInfo"], frozen=True, tag="stop_job"):
    """Interrupt a job, and wait a moment for its end."""

    number: int
