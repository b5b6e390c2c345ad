"""A model of files and states: what is on the disk is what the model says, and nothing of a person's is lost.

The oracle knows names and texts only: worlds before and after a call, and a few rules about what goes back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gramercy.errors import WorkspaceError
from gramercy.images.files.changes import ChangeSet, Collector
from gramercy.images.files.restoring import restore
from gramercy.images.files.store import Store
from gramercy.toolsets.workspace import Workspace
from tests.images.file_worlds import world

NAMES = ("a", "b", "d", "d/x", "d/y", "d/e/z")
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
names = st.sampled_from(NAMES)
work = st.one_of(
    st.tuples(st.just("write"), names, names),
    st.tuples(st.just("delete"), names, names),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("link"), names, names),
    st.tuples(st.just("directory"), names, names),
    st.tuples(st.just("mode"), names, names),
)
# Most restores have fewer places than this.
places = st.integers(1, 30)


class Killed(BaseException):
    """The process is killed here: no code of a restore handles this."""


def is_directory(value):
    return value is not None and value.startswith("directory")


def has_children(now, path):
    return any(name.startswith(f"{path}/") for name in now)


def difference(before, after):
    return {
        path: (before.get(path), after.get(path))
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
    }


def turned(pairs):
    return {path: (after, before) for path, (before, after) in pairs.items()}


def predicted(now, pairs):
    """Return the world after changes were taken back."""
    now = dict(now)
    away = [path for path in sorted(pairs, reverse=True) if pairs[path][0] is None]
    for path in away + sorted(path for path in pairs if pairs[path][0] is not None):
        want, left = pairs[path]
        parent = path.rpartition("/")[0]
        if (parent and not is_directory(now.get(parent))) or now.get(path) != left:
            continue
        if is_directory(left) and not is_directory(want) and has_children(now, path):
            continue
        now[path] = want
        if want is None:
            del now[path]
    return now


class Acts:
    """What a program or a person does to a project; `note` hears of each path before it changes."""

    def __init__(self, root: Path, note: Any, moved: Any, text: str, mode: int) -> None:
        self.root, self.note, self.moved, self.text, self.bits = root, note, moved, text, mode

    def do(self, act: str, name: str, other: str) -> None:
        with contextlib.suppress(OSError):
            getattr(self, act)(self.root / name, self.root / other)

    def _above(self, place):
        for folder in reversed(place.parents):
            if self.root in folder.parents and not folder.exists():
                self.note(folder)
                folder.mkdir()

    def write(self, place, _):
        self._above(place)
        self.note(place)
        if place.is_symlink():
            place.unlink()
        place.write_text(self.text)

    def delete(self, place, _):
        if place.is_dir() and not place.is_symlink():
            for inner in sorted(place.rglob("*"), reverse=True):
                self.note(inner)
            self.note(place)
            shutil.rmtree(place)
        else:
            self.note(place)
            place.unlink()

    def rename(self, place, other):
        self.moved(place, other)
        place.rename(other)

    def link(self, place, other):
        self.note(place)
        if place.is_file() or place.is_symlink():
            place.unlink()
        place.symlink_to(other if self.bits else "/etc/passwd")

    def directory(self, place, _):
        self._above(place)
        self.note(place)
        if place.is_file() or place.is_symlink():
            place.unlink()
        place.mkdir()

    def mode(self, place, _):
        self.note(place)
        if not place.is_symlink():
            place.chmod((0o700 if place.is_dir() else 0o600) | self.bits)


def nothing(*_):
    """Hear nothing: a person is not watched."""


class State:
    """A state of the image: the one it came from, and what the call between them changed."""

    def __init__(self, parent=None, changes=None, pairs=None):
        self.parent, self.changes, self.pairs = parent, changes, pairs

    def line(self):
        return [self, *(self.parent.line() if self.parent else ())]


class Files(RuleBasedStateMachine):
    """Evaluations, file tools and a person at work in one project; undo, rollback, branches and kills."""

    def __init__(self):
        super().__init__()
        self.base = Path(tempfile.mkdtemp(dir=MEMORY))
        self.root = self.base / "project"
        self.root.mkdir()
        self.store = Store(self.base / "state", self.root)
        self.workspace = Workspace(self.root)
        self.writes: list[Any] = []
        self.now: Any = None
        self.states: Any = None
        self.numbers = count()

    @initialize()
    def begin(self):
        Acts(self.root, nothing, nothing, "first", 0).write(self.root / "a", None)
        Acts(self.root, nothing, nothing, "first", 0).write(self.root / "d/x", None)
        self.now = State()
        self.states = [self.now]
        self.model = world(self.root)

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.base)

    @invariant()
    def the_disk_is_as_the_model_says(self):
        if self.now is not None:
            assert world(self.root) == self.model

    @rule(acts=st.lists(work, min_size=1, max_size=4), mode=st.sampled_from((0, 0o44, 0o55)))
    def evaluation(self, acts, mode):
        collector = Collector(self.store)
        doing = Acts(
            self.root,
            lambda place: collector.note(str(place)),
            lambda old, new: collector.note_moved(str(old), str(new)),
            f"evaluation {next(self.numbers)}",
            mode,
        )
        for act in acts:
            doing.do(*act)
        after = world(self.root)
        changes = collector.finish()
        pairs = difference(self.model, after)
        assert changes.pairs.keys() == pairs.keys()
        self.now = State(self.now, changes, pairs)
        self.states.append(self.now)
        self.model = after

    @rule(act=work, mode=st.sampled_from((0, 0o44)))
    def person(self, act, mode):
        Acts(self.root, nothing, nothing, f"person {next(self.numbers)}", mode).do(*act)
        self.model = world(self.root)

    @rule(name=names)
    def tool(self, name):
        try:
            self.workspace.write(name, f"tool {next(self.numbers)}")
        except WorkspaceError:
            return
        after = world(self.root)
        self.writes.append(difference(self.model, after))
        self.model = after

    @rule()
    def take_back_a_write(self):
        if self.writes:
            self.model = predicted(self.model, self.writes.pop())
            self.workspace.take_back()

    @rule()
    def undo(self):
        if self.now.parent is not None:
            restore(self.store, self.now.changes)
            self.model = predicted(self.model, self.now.pairs)
            self.now = self.now.parent

    @rule(number=st.integers(0, 20))
    def rollback(self, number):
        """Take back what led here from the common ancestor, then do again what leads to the goal."""
        goal = self.states[number % len(self.states)]
        common = next(state for state in self.now.line() if state in goal.line())
        for state in self.now.line():
            if state is common:
                break
            restore(self.store, state.changes)
            self.model = predicted(self.model, state.pairs)
        down = goal.line()[: goal.line().index(common)]
        for state in reversed(down):
            restore(self.store, state.changes.turned())
            self.model = predicted(self.model, turned(state.pairs))
        self.now = goal

    @rule(place=places)
    def killed_undo(self, place):
        """End the process at some place of an undo; the next one finishes it first."""
        if self.now.parent is None:
            return
        reached = count(1)

        def at(_):
            if next(reached) == place:
                raise Killed

        with contextlib.suppress(Killed):
            restore(self.store, self.now.changes, at=at)
        restore(self.store, ChangeSet({}))
        self.model = predicted(self.model, self.now.pairs)
        self.now = self.now.parent

    @rule(place=places, name=names, by_rename=st.booleans(), dies=st.booleans())
    def saved_in_the_middle_of_an_undo(self, place, name, by_rename, dies):
        """Let a person save a file while files go back, or after the process was killed there."""
        if self.now.parent is None:
            return
        text, reached, saved = f"saved {next(self.numbers)}", count(1), []

        def at(_):
            if next(reached) == place:
                if dies:
                    raise Killed
                saved.extend(self.save(name, text, by_rename=by_rename))

        try:
            restore(self.store, self.now.changes, at=at)
        except Killed:
            saved.extend(self.save(name, text, by_rename=by_rename))
            restore(self.store, ChangeSet({}))
        end, expected = world(self.root), predicted(self.model, self.now.pairs)
        assert not saved or text in end[name], end
        # A directory in which something was saved stays, and with it what is not to be put over it.
        top = name.partition("/")[0]
        for path in expected.keys() | end.keys():
            if not saved or path.partition("/")[0] != top:
                assert end.get(path) == expected.get(path), path
        self.model = end
        self.now = self.now.parent

    def save(self, name, text, *, by_rename):
        """Save a file as an editor does, where there can be one, and return what was saved."""
        target = self.root / name
        folders = [folder for folder in target.parents if self.root in folder.parents]
        if target.is_symlink() or target.is_dir() or not target.parent.is_dir():
            return []
        if any(folder.is_symlink() for folder in folders):
            return []
        written = self.root / "other~" if by_rename else target
        written.write_text(text)
        written.rename(target)
        return [text]


CALM: Any = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.mark.contract("trust.store.model")
def test_files_and_states_are_as_the_model_says():
    """Issue: a hypothesis model of files and states."""
    run_state_machine_as_test(
        Files, settings=settings(max_examples=40, stateful_step_count=20, derandomize=True, **CALM)
    )


@pytest.mark.slow
@pytest.mark.contract("trust.store.model")
def test_files_and_states_are_as_the_model_says_at_length():
    """The same, with other cases each time."""
    run_state_machine_as_test(Files, settings=settings(max_examples=300, stateful_step_count=30, **CALM))
