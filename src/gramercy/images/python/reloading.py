"""Before code runs: check whether files of loaded modules were edited, and apply or report the edits.

One line reports what was done and what was not possible. A failed edit is reverted. If a statement had begun
to run, only the parent can do that, with its kept state, and so it is told. An edit that ends the process is
known to the parent alone, by the record of `attempts`.
"""

import gc
import sys
import types
from types import FunctionType
from typing import Any

from .anatomy import class_name, is_module, mro_of, raw_space
from .attempts import Attempt, mark
from .diagnostics import message_of
from .following import File, Following, decline, pin
from .origins import Graph
from .places import shown_file
from .renewal import Renewal
from .revision import Revision
from .statements import DEFINITIONS, Text, bound, first_line
from .streams import Mirror

# Names, lines and remarks in the report. The rest is counted.
_NAMES, _REMARKS = 12, 6
_LONGEST = 300
# The rules for applying edits are known to hold for these versions of Python.
_IS_KNOWN = sys.version_info < (3, 14)
_OFF, _TELL, _AUTO = "off", "tell", "auto"
_modules = sys.modules
_RUNNING: dict[type, tuple[str, str]] = {
    types.GeneratorType: ("gi", "generator"),
    types.CoroutineType: ("cr", "coroutine"),
    types.AsyncGeneratorType: ("ag", "asynchronous generator"),
}
_objects, _collect, _frozen, _unfreeze = gc.get_objects, gc.collect, gc.get_freeze_count, gc.unfreeze
_frames = sys._current_frames  # noqa: SLF001 - there is no other way
Living = dict[str, list[FunctionType]]
# Objects that were frozen before there was user code.
frozen = [0]
_UNREADABLE = (SyntaxError, IndentationError, TabError)


class SpoiledError(Exception):
    """Edited files failed, and the call does not run.

    `marks` has the failed file if a statement had begun to run: the earlier state has to be restored.
    """

    def __init__(self, message: str, marks: dict[str, str], *, interrupted: bool) -> None:
        super().__init__(message)
        self.edits = {"failed": message}
        self.marks = marks
        self.interrupted = interrupted


class Told:
    """The result of a check for the reply, and whether names may be bound to other values."""

    def __init__(self, kind: str = "", line: str = "", *, has_changed: bool = False) -> None:
        self.edits = {kind: line} if line else {}
        self.has_changed = has_changed

    def beside(self, others: dict[str, str]) -> "Told":
        """Add the report about other files."""
        self.edits = {**self.edits, **{kind: line for kind, line in others.items() if line}}
        return self


NOTHING = Told()


class Reloading:
    """How one process treats edited files of its modules."""

    def __init__(self, mirror: Mirror | None = None) -> None:
        self.mode = _OFF
        self.following = Following()
        self._mirror = mirror
        # Files that failed in another copy of this process and were not reported yet.
        self._unsaid: list[File] = []

    def begin(self, mode: str) -> None:
        """Follow the modules that are loaded from now on, unless that is not wanted."""
        self.mode = mode if mode in (_TELL, _AUTO) else _OFF
        frozen[0] = gc.get_freeze_count()
        if self.mode != _OFF:
            self.following.begin()

    @property
    def is_on(self) -> bool:
        """Whether modules are followed."""
        return self.mode != _OFF

    def module_of(self, file: str) -> str:
        """Return the module that runs the text of a file. Empty where none does."""
        self.following.settle()
        if self.is_on:
            return next((each.name for each in self.following.files.values() if each.path == file), "")
        modules = [(name, each) for name, each in list(_modules.items()) if is_module(each)]
        return next((name for name, each in modules if raw_space(each).get("__file__") == file), "")

    def decline(self, marks: dict[str, str], *, is_told: bool) -> None:
        """Note texts that could not be applied in another copy of this process.

        Texts edited together with such a text wait for it. `is_told` means that the user knows of it.
        """
        files = self.following.look()
        faulty = [file for file in files if marks.get(file.path) == mark(file.pending)]
        if faulty:
            decline(files)
            self._unsaid = [] if is_told else faulty

    def is_calm(self) -> bool:
        """Return, at little cost, whether there is nothing to apply and nothing to report."""
        return not self._unsaid and self.following.is_calm()

    def freshen(self, *, may_run: bool, asked: str = "") -> Told:
        """Apply the edits since the last time, and report them. Raise SpoiledError.

        `may_run` means that a state is kept to which a failure can return. `asked` is a file that the user
        wants to be applied now, in any mode.
        """
        files, following = self.following.look(asked), self.following
        if not files and not following.gone and not self._unsaid:
            return NOTHING
        told = self._freshen(files, may_run=may_run, is_asked=bool(asked)) if files else Told()
        others = {"declined": _shown(self._unsaid), "gone": _shown(following.gone)}
        following.gone, self._unsaid = [], []
        return told.beside(others) if any(others.values()) else told

    def _freshen(self, files: list[File], *, may_run: bool, is_asked: bool) -> Told:
        if not _IS_KNOWN or (self.mode == _TELL and not is_asked):
            return _told_only(files)
        if not may_run and not is_asked and all(file.told == file.pending for file in files):
            return NOTHING
        attempt = Attempt(self._mirror, files)
        try:
            try:
                renewals = [self._planned(file, attempt) for file in _ordered(files)]
            except Exception as error:  # noqa: BLE001 - no Python, or a text that the comparison does not understand
                return _refused(files, _unreadable(error))
            risk = next((each for each in renewals if each.revision.risk() is not None), None)
            if risk is None or may_run:
                return _taken_up(files, Transaction(renewals))
            return _told_only(files, f"{risk.file.shown}:{risk.revision.risk()}")
        finally:
            attempt.end()

    def _planned(self, file: File, attempt: Attempt) -> Renewal:
        old, new = Text(file.data, file.path), Text(file.pending or b"", file.path)
        return Renewal(file, Revision(file.module, old, new, file.stale).plan(), self.following, attempt)


def living_functions(paths: set[str]) -> tuple[Living, dict[str, list[str]]]:
    """Find every function of the files on the heap, and the running code of these files, by file."""
    living: Living = {path: [] for path in paths}
    running: dict[str, list[str]] = {path: [] for path in paths}
    for frame in _frames().values():
        inner_frame: types.FrameType | None = frame
        while inner_frame is not None:
            code = inner_frame.f_code
            if code.co_filename in running:
                running[code.co_filename].append(f"a running call of {code.co_qualname} in a thread")
            inner_frame = inner_frame.f_back
    if _frozen() > frozen[0]:
        # Objects that user code has frozen are in no list of the collector.
        _unfreeze()
    for each in _objects():
        kind = type(each)
        if kind is FunctionType:
            file = each.__code__.co_filename
            path = file if file in living else file.rpartition("@")[0]
            if path in living:
                living[path].append(each)
        elif kind in _RUNNING:
            _note_running(each, running)
    return living, running


def _note_running(each: Any, running: dict[str, list[str]]) -> None:
    prefix, word = _RUNNING[type(each)]
    code = getattr(each, f"{prefix}_code")
    if code.co_filename in running and getattr(each, f"{prefix}_frame") is not None:
        running[code.co_filename].append(f"a running {word} of {code.co_qualname}")


class Transaction:
    """The application of all changed files: all of them, or none."""

    def __init__(self, renewals: list[Renewal]) -> None:
        self.renewals = renewals
        # Whether a statement may have run that does more than bind names.
        self.has_run = False

    def run(self) -> None:
        """Apply them. An exception is raised after everything possible has been reverted."""
        living, running = living_functions({each.file.path for each in self.renewals})
        try:
            for each in self.renewals:
                each.swap(living[each.file.path])
            self.has_run = any(each.revision.risk() is not None for each in self.renewals)
            for step in (Renewal.sign, Renewal.remove, Renewal.run):
                for each in self.renewals:
                    step(each)
        except BaseException:
            for each in reversed(self.renewals):
                each.take_back()
                pin(each.file.path, each.file.data)
            raise
        living.clear()
        self._finish(running)

    def _finish(self, running: dict[str, list[str]]) -> None:
        for each in self.renewals:
            for told in dict.fromkeys(running[each.file.path]):
                each.revision.say(0, f"{told} goes on with the old code")
            each.finish()
        if any(each.leaves for each in self.renewals):
            _collect()
        for each in self.renewals:
            each.tell_left()


def _ordered(files: list[File]) -> list[File]:
    """Return the files, imported ones first."""
    if len(files) == 1:
        return files
    known = {file.name: file for file in files}
    return [known[name] for name in Graph(known).ordered(set(known))]


def _taken_up(files: list[File], transaction: Transaction) -> Told:
    try:
        transaction.run()
    except BaseException as error:  # noqa: BLE001 - also SystemExit, and what else ends a program
        interrupted = any(base is KeyboardInterrupt for base in mro_of(type(error)))
        place = _place(error, files)
        why = (
            f"{place} was interrupted (load it to try again)" if interrupted else f"{place}: {_error(error)}"
        )
        if not transaction.has_run and not interrupted:
            return _refused(files, why)
        faulty = _faulty(why, files)
        marks = {faulty.path: mark(faulty.pending)} if transaction.has_run else {}
        if not marks:
            decline(files)
        raise SpoiledError(why, marks, interrupted=interrupted) from None
    renewals = transaction.renewals
    has_changed = any(each.revision.again or each.revision.removed for each in renewals)
    return Told("taken", _line(renewals), has_changed=has_changed)


def _refused(files: list[File], why: str) -> Told:
    decline(files)
    return Told("failed", why)


def _faulty(why: str, files: list[File]) -> File:
    """Return the file in which an edit failed, by the place in the message."""
    return next((file for file in files if why.startswith(f"{file.shown}:")), files[-1])


def _shown(files: list[File]) -> str:
    return _listed(list(dict.fromkeys(file.shown for file in files)))


def _told_only(files: list[File], risk: str = "") -> Told:
    """Report the changed definitions once for each text. `risk` is a line that would have to run."""
    parts = []
    for file in [each for each in files if each.told != each.pending]:
        file.told = file.pending
        pin(file.path, file.data)
        names = _listed(_names(file))
        parts.append(f"{file.shown}{': ' if names else ''}{names}")
    if not parts:
        return NOTHING
    listed = "; ".join(parts)
    return Told("held", f"{listed}; {risk}") if risk else Told("told", listed)


def _names(file: File) -> list[str]:
    """Return the differences between the running text and the file, as far as known."""
    try:
        old, new = Text(file.data, file.path), Text(file.pending or b"", file.path)
        return Revision(file.module, old, new, dict(file.stale)).plan().names()
    except Exception:  # noqa: BLE001 - it is no Python at the moment, or not understood
        return []


def _error(error: BaseException) -> str:
    message = message_of(error)[:_LONGEST]
    return f"{class_name(type(error))}: {message}" if message else class_name(type(error))


def _unreadable(error: Any) -> str:
    """Describe the place of a syntax error, or that the comparison has failed."""
    if type(error) not in _UNREADABLE or type(error.filename) is not str:
        return f"the texts cannot be compared ({_error(error)})"
    return f"{shown_file(error.filename)}:{error.lineno}: {type(error).__name__}: {str(error.msg)[:_LONGEST]}"


def _place(error: BaseException, files: list[File]) -> str:
    """Return the innermost line of the edited files that an exception passed through."""
    place, trace = files[-1].shown, error.__traceback__
    paths = {file.path for file in files}
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in paths:
            place = f"{shown_file(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _line(renewals: list[Renewal]) -> str:
    """Describe the applied edits in one line. Empty where only lines have moved."""
    parts = [part for part in map(_part, renewals) if part]
    return "; ".join(parts)


def _part(renewal: Renewal) -> str:
    revision, names = renewal.revision, _changed_names(renewal)
    ran = [one.statement for one in revision.again if not isinstance(one.statement, DEFINITIONS)]
    lines = [str(line) for line in sorted(map(first_line, ran))]
    removed = [name for _, name in revision.removed]
    words = [_listed(names)] if names else []
    words += [f"ran line{'s' if len(lines) > 1 else ''} {_listed(lines)}"] if lines else []
    words += [f"removed {_listed(removed)}"] if removed else []
    what = renewal.file.shown if words or not revision.refused else f"nothing of {renewal.file.shown}"
    words += [f"{name} stays as it was ({why})" for name, why in revision.refused.items()]
    remarks = [*revision.notes, *revision.pairs.notes]
    words += [f"line {line}: {text}" if line else text for line, text in remarks[:_REMARKS]]
    words += [f"and {len(remarks) - _REMARKS} more remarks"] if len(remarks) > _REMARKS else []
    return f"{what}: {'; '.join(words)}" if words else ""


def _changed_names(renewal: Renewal) -> list[str]:
    """Return the functions with new code, and new definitions. Inner ones are named by the outer one."""
    found = [name.partition(".<locals>")[0] for name in renewal.changed]
    for one in renewal.revision.again:
        if isinstance(one.statement, DEFINITIONS):
            path = [each.name for each in one.classes]
            found += [".".join([*path, name]) for name in sorted(bound([one.statement]))]
    return list(dict.fromkeys("a lambda" if name == "<lambda>" else name for name in found))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more
