"""A model of an image's states beside the real image: after every step they agree, or the reply said why not.

Changing calls, looks, names, threads that start and end, heaps above and below the limit, deaths, undo,
rollback, branches, previews and replays, in any order, on both languages.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field, replace
from time import time
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gramercy.errors import CheckpointError, ImageError
from gramercy.images.opening import open_image
from gramercy.images.thrift import Thrift


@dataclass(frozen=True)
class Speech:
    """How a language says what the model does."""

    begin: str
    assign: str
    push: str
    look: str
    stare: str
    shown: str
    empty: str
    start_thread: str
    end_thread: str
    fatten: str
    slim: str
    leave: str
    heavy_bytes: int


LISP = Speech(
    begin="(defvar *x* 0) (defvar *items* (list)) (defvar *go* nil) (defvar *t* nil) (defvar *fat* nil)",
    assign="(setf *x* {})",
    push="(setf *items* (append *items* (list {})))",
    look="(list *x* *items*)",
    # A look at what runs code to print itself is certain to change nothing here.
    stare="",
    shown="({0} {1})",
    empty="NIL",
    start_thread="(setf *go* nil *t* (sb-thread:make-thread (lambda () (loop until *go* do (sleep 0.002)))))",
    end_thread="(setf *go* t) (sb-thread:join-thread *t*)",
    # One form: the value of a form before it would stay alive in `**` and `***`.
    fatten="(progn (setf *fat* (make-array 60000000 :element-type '(unsigned-byte 8) :initial-element 1)) 1)",
    slim="(setf *fat* nil) (sb-ext:gc :full t)",
    leave="(sb-ext:exit :code 3 :abort t)",
    heavy_bytes=60_000_000,
)
PYTHON = Speech(
    begin="import threading, os\nx = 0\nitems = []\nfat = None\n"
    "class Bed:\n    def __repr__(self): return 'bed'\nbed = Bed()",
    assign="x = {}",
    push="items.append({})",
    look="(x, items)",
    stare="bed",
    shown="({0}, {1})",
    empty="[]",
    start_thread="go = threading.Event()\nt = threading.Thread(target=go.wait)\nt.start()",
    end_thread="go.set(); t.join()",
    fatten="fat = b'x' * 60_000_000",
    slim="fat = None",
    leave="os._exit(3)",
    heavy_bytes=60_000_000,
)
SPEECH = {"sbcl": LISP, "python": PYTHON}


@dataclass(frozen=True)
class Known:
    """What the model knows of one state of the image."""

    x: int = 0
    items: tuple[int, ...] = ()
    has_thread: bool = False
    is_fat: bool = False
    stares: int = 0

    def shown(self, speech: Speech) -> str:
        """Return how the image prints it."""
        listed = ", ".join(map(str, self.items)) if speech is PYTHON else " ".join(map(str, self.items))
        inner = f"[{listed}]" if speech is PYTHON else f"({listed})"
        return speech.shown.format(self.x, inner if self.items else speech.empty)


@dataclass
class Kept:
    """A state that the image says it has kept, with all those on the way to it."""

    way: tuple[Known, ...]
    parent: Kept | None
    id: str = ""
    names: set[str] = field(default_factory=set)


# Of a big image, whose states are not kept as often.
THRIFT = "a copy of its"


class TimeMachine(RuleBasedStateMachine):
    """One run: a fresh image and a model of it. `way` is every state so far, the present one last."""

    language = "python"
    image: Any = None

    @initialize()
    def begin(self):
        """Begin with a fresh image in a known state."""
        self.speech = SPEECH[self.language]
        self.image.reset()
        self.image._lifecycle.thrift = Thrift(heavy_bytes=self.speech.heavy_bytes, part=1e-12)
        self.kept: list[Kept] = [Kept((), None)]
        self.standing = self.kept[0]
        self.way: tuple[Known, ...] = ()
        self.is_behind = self.is_heavy = False
        self.epochs: dict[str, str] = {}
        self.change(self.speech.begin, Known())

    # The model

    @property
    def now(self):
        return self.way[-1]

    def change(self, code, after, **options):
        """Make a call that leads to another state, and believe what the reply says about keeping it."""
        reply = self.image.evaluate(code, **options)
        assert reply.ok, reply
        assert not reply.unchanged
        self.took_place(reply, after)
        return reply

    def took_place(self, reply, after):
        self.way = (*self.way, after)
        was_heavy, self.is_heavy = self.is_heavy, reply.state.heap_bytes >= self.speech.heavy_bytes
        # The reverse need not hold: the collector of Lisp may take an old word on the stack for a reference.
        assert self.is_heavy or not after.is_fat
        if reply.unkept is None:
            assert not after.has_thread
            self.keep()
        else:
            assert was_heavy or any(state.has_thread or state.is_fat for state in self.way[-2:]), reply.unkept
            # Where it is small again, the next call keeps it first.
            self.is_behind = THRIFT in reply.unkept and not after.has_thread and not self.is_heavy

    def next_call(self):
        """Follow what the image does before a call: it keeps a state that came too soon to be kept."""
        if self.is_behind:
            self.keep()

    def keep(self):
        self.is_behind = False
        self.standing = Kept(self.way, self.standing)
        self.kept.append(self.standing)

    def learn_ids(self):
        """Match the states that the image lists with those the model knows, both in the order of keeping."""
        infos = self.image.checkpoints()
        ids = [info.id for info in infos]
        fresh = [each for each in ids if each not in {kept.id for kept in self.kept}]
        nameless = [kept for kept in self.kept if not kept.id]
        assert len(fresh) <= len(nameless)
        for kept, new in zip(reversed(nameless), reversed(fresh), strict=False):
            kept.id = new
        self.kept = [kept for kept in self.kept if kept.id in ids]
        current = [info.id for info in infos if info.is_current]
        assert current == ([self.standing.id] if self.standing.way == self.way else [])
        return infos

    def line(self):
        """Return the states that undo goes through, newest first, without those dropped for room."""
        found: list[Kept] = []
        kept: Kept | None = self.standing
        while kept is not None:
            if kept in self.kept:
                found.append(kept)
            kept = kept.parent
        return found

    def arrive(self, kept):
        """Stand on a state that the image has gone to; at the very first one begin anew."""
        self.standing, self.way, self.is_behind, self.is_heavy = kept, kept.way, False, False
        if not self.way:
            self.change(self.speech.begin, Known())

    def target(self):
        return next((kept for kept in self.line() if len(kept.way) < len(self.way)), None)

    # The steps

    @rule(number=st.integers(0, 99))
    def assign(self, number):
        self.change(self.speech.assign.format(number), replace(self.now, x=number))

    @rule(number=st.integers(0, 99))
    def push(self, number):
        self.change(self.speech.push.format(number), replace(self.now, items=(*self.now.items, number)))

    @precondition(lambda self: self.speech.stare)
    @rule()
    def stare(self):
        """Look at what runs code to print itself, or is not there: undo passes over it."""
        reply = self.image.evaluate(self.speech.stare)
        assert reply.look
        if reply.unkept is None:
            self.keep()
        else:
            self.way = (*self.way, replace(self.now, stares=self.now.stares + 1))

    @precondition(lambda self: not self.now.has_thread)
    @rule()
    def start_thread(self):
        assert self.change(self.speech.start_thread, replace(self.now, has_thread=True)).unkept

    @precondition(lambda self: self.now.has_thread)
    @rule()
    def end_thread(self):
        self.change(self.speech.end_thread, replace(self.now, has_thread=False))

    @precondition(lambda self: not self.now.is_fat)
    @rule()
    def fatten(self):
        self.change(self.speech.fatten, replace(self.now, is_fat=True))

    @precondition(lambda self: self.now.is_fat)
    @rule()
    def slim(self):
        self.change(self.speech.slim, replace(self.now, is_fat=False))

    @rule(name=st.sampled_from(["a", "b"]))
    def name_it(self, name):
        self.learn_ids()
        if self.now.has_thread:
            with pytest.raises(CheckpointError, match="cannot be kept"):
                self.image.checkpoint(name)
            return
        if self.standing.way != self.way:
            self.keep()
        info = self.image.checkpoint(name)
        self.standing.names.add(name)
        self.learn_ids()
        assert info.id == self.standing.id
        assert set(info.names) == self.standing.names

    @rule()
    def undo(self):
        self.learn_ids()
        target = self.target()
        if target is None:
            with pytest.raises(CheckpointError, match="nothing to undo"):
                self.image.undo()
            return
        count = len(self.way) - len(target.way)
        if count > 1 and self.now.has_thread:
            with pytest.raises(CheckpointError, match=f"the last {count} calls"):
                self.image.undo()
            return
        if count > 1 and self.standing.way != self.way:
            self.keep()
        info = self.image.undo()
        assert (info.id, info.taken_back) == (target.id, count)
        self.arrive(target)

    @rule(data=st.data())
    def roll_back(self, data):
        self.learn_ids()
        chosen = data.draw(st.sampled_from(self.kept))
        left, had_thread = self.standing.way != self.way, self.now.has_thread
        if left and not had_thread:
            self.keep()
        info = self.image.rollback(chosen.id)
        assert info.id == chosen.id
        assert any("could not be kept" in note for note in info.notes) == (left and had_thread)
        self.arrive(chosen)

    @rule()
    def undo_by_replay(self):
        self.learn_ids()
        target = self.target()
        if target is None:
            return
        again = list(self.way[len(target.way) : -1])
        began = time()
        if self.standing.way != self.way and not self.now.has_thread:
            self.keep()
        self.image.undo("replay")
        self.standing, self.way, self.is_heavy = target, target.way, False
        for entry in self.image.history():
            if entry.at >= began:
                self.ran_again(entry.reply, again)
        assert not again
        if not self.way:
            self.arrive(target)

    def ran_again(self, reply, again):
        """Follow one call of a replay; a look was a step of its own only where no state was kept after it."""
        self.next_call()
        counted = self.way[-1].stares if self.way else 0
        was_counted = bool(again) and again[0].stares > counted
        if not reply.look:
            self.took_place(reply, again.pop(0))
            return
        after = again.pop(0) if was_counted else replace(self.now, stares=self.now.stares + 1)
        if reply.unkept is None:
            self.keep()
        else:
            self.way = (*self.way, after)

    @rule()
    def die(self):
        reply = self.image.evaluate(self.speech.leave)
        assert reply.error.type == "IMAGE-DIED"
        assert reply.lost == len(self.way) - len(self.standing.way)
        self.arrive(self.standing)

    @rule()
    def kill(self):
        os.kill(self.image.processes()["live"], signal.SIGKILL)
        expected = len(self.way) - len(self.standing.way)
        reply = self.image.evaluate(self.speech.look)
        assert reply.lost == expected
        assert reply.notes
        self.arrive(self.standing)

    @rule(number=st.integers(0, 99))
    def preview(self, number):
        code = f"{self.speech.assign.format(number)}\n{self.speech.look}"
        if self.now.has_thread:
            with pytest.raises(ImageError, match="thread"):
                self.image.preview(code)
        else:
            shown = self.image.preview(code).values[0]
            assert " ".join(shown.split()) == replace(self.now, x=number).shown(self.speech)

    @invariant()
    def the_image_is_as_the_model_says(self):
        if not getattr(self, "way", ()):
            return
        self.next_call()
        reply = self.image.evaluate(self.speech.look)
        assert reply.ok, reply
        # The printer of Lisp breaks long lines.
        assert " ".join(reply.values[0].split()) == self.now.shown(self.speech)
        assert reply.unchanged, "a look leaves no step to undo"
        span = reply.span
        assert (span.before, span.began) == (span.after, span.epoch)
        # Where an approval was asked for at this epoch, it must be this state.
        assert self.epochs.setdefault(span.epoch, self.now.shown(self.speech)) == self.now.shown(self.speech)
        assert bool(span.after) == (self.standing.way == self.way)
        assert self.image.span() == span


def _run(language, project, examples, steps):
    image = open_image(language, project=project)
    machine = type("Machine", (TimeMachine,), {"language": language, "image": image})
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=examples < 100,
        # What fails is told with its seed; to shrink it would take minutes.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=chosen)
    finally:
        image.close()


@pytest.mark.slow
def test_no_word_about_a_state_is_untrue(words, tmp_path):
    """Time travel that never lies: some hundred steps."""
    _run(words.language, tmp_path, examples=12, steps=40)


@pytest.mark.slow
def test_no_word_about_a_state_is_untrue_in_the_long_run(words, tmp_path):
    """Time travel that never lies: thousands of steps, other ones each time."""
    _run(words.language, tmp_path, examples=100, steps=50)
