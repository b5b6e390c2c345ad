"""What is said about a state is so: kept states, names, undo and deaths, with and without threads."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from threading import Event

import pytest

from gramercy.errors import CheckpointError, ImageGoneError
from gramercy.images.opening import open_image
from gramercy.images.processes import Family
from gramercy.images.thrift import Thrift


@dataclass(frozen=True)
class Threads:
    """How a language starts a thread that waits, and ends it."""

    start: str
    end: str


THREADS = {
    "sbcl": Threads(
        "(defvar *go* nil) (defvar *t* (sb-thread:make-thread (lambda () (loop until *go* do (sleep 0.005)))"
        ' :name "worker"))',
        "(setf *go* t) (sb-thread:join-thread *t*)",
    ),
    "python": Threads(
        "import threading\ngo = threading.Event()\n"
        "t = threading.Thread(target=go.wait, name='worker')\nt.start()",
        "go.set(); t.join()",
    ),
}


@pytest.fixture
def threads(words):
    return THREADS[words.language]


def value(image, words):
    reply = image.evaluate(words.look)
    return reply.values[0] if reply.ok else None


def test_a_state_with_threads_is_not_confirmed_as_kept(image, words, threads):
    """Defect: with a thread running an older state was named, and confirmed as the present one."""
    image.evaluate(words.define)
    image.evaluate(threads.start)
    image.evaluate(words.change.format(7))
    with pytest.raises(
        CheckpointError, match=r'cannot be kept: the image says "1 user thread is running: worker"'
    ) as caught:
        image.checkpoint("mine")
    assert "2 calls ago" in str(caught.value)
    assert not any("mine" in info.names for info in image.checkpoints())
    assert not any(info.is_current for info in image.checkpoints())
    image.evaluate(threads.end)
    kept = image.checkpoint("mine")
    assert kept.is_current
    image.evaluate(words.change.format(8))
    image.rollback("mine")
    assert value(image, words) == "7"


def test_a_second_name_does_not_replace_the_first(image, words):
    """Defect: a second label on the same state silently replaced the first."""
    image.evaluate(words.define)
    first, second = image.checkpoint("one"), image.checkpoint("two")
    assert first.id == second.id
    assert second.names == ["one", "two"]
    image.evaluate(words.change.format(7))
    for name in ("one", "two"):
        assert image.rollback(name).id == first.id
        assert value(image, words) == "41"


def test_a_name_that_two_states_have_is_told_and_never_guessed(image, words):
    """Labels never replace one another silently."""
    image.evaluate(words.define)
    first = image.checkpoint("same")
    image.evaluate(words.change.format(7))
    second = image.checkpoint("same")
    assert first.id in second.notes[0]
    with pytest.raises(CheckpointError, match=f"{first.id}, {second.id}"):
        image.rollback("same")


def test_undo_after_a_call_that_left_threads_takes_back_that_call_alone(image, words, threads):
    """Defect: undo went one call too far."""
    image.evaluate(words.define)
    image.evaluate(words.change.format(7))
    image.evaluate(threads.start)
    gone = image.undo()
    assert gone.taken_back == 1
    assert value(image, words) == "7"


def test_undo_that_would_lose_more_than_one_call_is_refused_with_the_choices(image, words, threads):
    """Undo goes to exactly the state it names: what cannot be had is not replaced by something else."""
    image.evaluate(words.define)
    image.evaluate(threads.start)
    image.evaluate(words.change.format(7))
    with pytest.raises(CheckpointError, match="nothing was taken back") as caught:
        image.undo()
    assert "takes back the last 2 calls" in str(caught.value)
    assert value(image, words) == "7"


def test_undo_by_replay_runs_the_calls_before_the_last_one_again_and_says_so(image, words, threads):
    """The next best way back, named for what it is."""
    image.evaluate(words.define)
    image.evaluate(threads.start)
    image.evaluate(words.change.format(7))
    image.evaluate(words.change.format(8))
    told = image.undo("replay")
    assert "2 calls after" in told.notes[0]
    assert "effects outside came twice" in told.notes[0]
    assert value(image, words) == "7"
    image.evaluate(threads.end)


def test_a_replay_tells_what_came_out_otherwise(image, words, threads):
    """Replay: the printed results are compared."""
    image.evaluate(words.define)
    image.evaluate(threads.start)
    dice = {
        # Not by the clock of SBCL, which starts at 0 when it is first asked.
        "sbcl": "(setf *x* (random (expt 2 60) (make-random-state t)))",
        "python": "import time; x = time.time_ns(); print(x)",
    }
    image.evaluate(dice[words.language])
    image.evaluate(words.change.format(8))
    assert any("answers otherwise now" in note for note in image.undo("replay").notes)


# A process with much memory takes long to end, and its port is taken until then.
LISTEN = """
import socket, threading
server = socket.create_server(('127.0.0.1', 8080))
much = b'x' * (300 << 20)
t = threading.Thread(target=threading.Event().wait, daemon=True)
t.start()
"""


def test_a_replay_finds_the_port_free_on_which_the_last_process_listened(tmp_path):
    """Replay: a server that is started again failed, as the process that was left had not ended yet."""
    with closing(open_image("python", project=tmp_path)) as image:
        image.evaluate("x = 1")
        image.evaluate(LISTEN)
        image.evaluate("x = 2")
        assert "All answered as the first time." in image.undo("replay").notes


def test_a_death_with_threads_counts_the_calls_that_are_lost(image, words, threads):
    """Defect: the reply said that the state before is back although later calls were lost."""
    image.evaluate(words.define)
    image.evaluate(threads.start)
    image.evaluate(words.change.format(7))
    died = image.evaluate(words.kill_self)
    assert died.lost == 2
    assert "Also lost are 2 calls after it" in died.notes[0]
    assert "worker" in died.notes[0]
    assert words.change.format(7) in died.notes[0]
    assert "The state before is back" not in " ".join(died.notes)
    assert value(image, words) == "41"


def test_a_rollback_from_a_state_that_cannot_be_kept_says_that_it_is_gone(image, words, threads):
    """Later states stay reachable only where they were kept."""
    image.evaluate(words.define)
    here = image.checkpoint("here")
    image.evaluate(threads.start)
    gone = image.rollback(here.id)
    assert "could not be kept" in gone.notes[0]
    assert "1 call cannot be gone back to" in gone.notes[0]


def test_a_state_is_kept_again_once_the_threads_have_ended(image, words, threads):
    """Threads that start and end."""
    image.evaluate(words.define)
    image.evaluate(threads.start)
    assert image.evaluate(threads.end).unkept is None
    image.evaluate(words.change.format(7))
    assert image.undo().taken_back == 1
    assert value(image, words) == "41"


def test_the_last_values_are_exact_after_an_undo(image, words):
    """Defect: `*` was not exact after undo; `_` of Python likewise."""
    image.evaluate(words.define)
    image.evaluate({"sbcl": "(* 6 7)", "python": "6 * 7"}[words.language])
    image.evaluate(words.change.format(7))
    image.undo()
    last = {"sbcl": "*", "python": "_"}[words.language]
    assert image.evaluate(last).values == ["42"]


def test_the_last_values_are_exact_after_a_death(image, words):
    """As after an undo."""
    image.evaluate(words.define)
    image.evaluate({"sbcl": "(* 6 7)", "python": "6 * 7"}[words.language])
    assert image.evaluate(words.kill_self).error.type == "IMAGE-DIED"
    last = {"sbcl": "*", "python": "_"}[words.language]
    assert image.evaluate(last).values == ["42"]


def test_undo_passes_over_a_look_that_runs_code_to_print_itself(image, words):
    """Defect T4: in Python a look left a state, so undo took back the look."""
    if words.language == "sbcl":
        define = '(defclass bed () ()) (defmethod print-object ((b bed) s) (write-string "a bed" s))'
        codes = [define, "(defvar *b* (make-instance 'bed))", "*b*"]
    else:
        define = "class Bed:\n    def __repr__(self): return 'a bed'"
        codes = [define, "b = Bed()", "b"]
    image.evaluate(words.define)
    for code in codes[:2]:
        image.evaluate(code)
    image.evaluate(words.change.format(7))
    image.evaluate(codes[2])
    assert image.undo().taken_back == 1
    assert value(image, words) == "41"
    assert image.evaluate(codes[2]).values == ["a bed"]


@pytest.mark.parametrize("failing", [("nothing", "*nothing*"), ("f(", "(f")], ids=["unbound", "unreadable"])
def test_undo_after_an_error_takes_back_the_call_that_failed_and_no_work(image, words, failing):
    """Who undoes after an error means that call."""
    image.evaluate(words.define)
    image.evaluate(words.change.format(7))
    assert not image.evaluate(failing[words.language == "sbcl"]).ok
    image.undo()
    assert value(image, words) == "7"


def test_names_leave_room_for_the_latest_states_and_undo_reaches_what_is_listed(image, words):
    """A named state is kept for good, at nobody's cost."""
    image.evaluate(words.define)
    for number in range(20):
        image.evaluate(words.change.format(number))
        image.checkpoint(f"number {number}")
    for number in range(100, 130):
        image.evaluate(words.change.format(number))
    for _ in range(14):
        assert image.undo().taken_back == 1
    while value(image, words) not in ("19", None):
        image.undo()
    assert image.rollback("number 3").names == ["number 3"]
    assert value(image, words) == "3"


def test_there_are_only_so_many_names(image, words):
    """Each kept state is a process."""
    image.evaluate(words.define)
    for number in range(64):
        image.evaluate(words.change.format(number))
        image.checkpoint(f"number {number}")
    image.evaluate(words.change.format(99))
    with pytest.raises(CheckpointError, match="64 states have names"):
        image.checkpoint("one more")
    image.rollback("number 63")
    assert image.checkpoint("again").names == ["number 63", "again"]


def test_a_refused_undo_of_definitions_leaves_no_step(image, words):
    """Nothing was done, so there is nothing to undo."""
    image.evaluate(words.six)
    with pytest.raises(CheckpointError):
        image.undo("definitions")
    with pytest.raises(CheckpointError, match="nothing to undo"):
        image.undo()


def test_what_was_told_before_is_not_told_again_at_a_death(image, words):
    """A death is explained by what was printed since the last reply."""
    shell = {
        "sbcl": '(sb-ext:run-program "/bin/echo" (list "MemoryError") :output t)',
        "python": "import os; os.system('echo MemoryError')",
    }[words.language]
    image.evaluate(shell)
    died = image.evaluate(words.leave)
    assert "MemoryError" not in " ".join(died.notes)
    assert "memory" not in died.error.message


def test_output_of_other_processes_is_shown_in_the_reply_it_belongs_to(image, words):
    """Defect: it was thrown away."""
    shell = {
        "sbcl": '(sb-ext:run-program "/bin/echo" (list "from a child") :output t)',
        "python": "import os; os.system('echo from a child')",
    }[words.language]
    assert image.evaluate(shell).log == "from a child\n"
    assert image.evaluate(words.define).log == ""


def test_the_runtime_speaks_of_its_own_doings_to_nobody(image, words):
    """Answers: tables of the collector and guard pages are no output of anybody."""
    codes = {
        "sbcl": ("(make-array 4000000000)", "(labels ((f (n) (+ 1 (f n)))) (f 1))"),
        "python": ("x = 1",),
    }
    for code in codes[words.language]:
        assert image.evaluate(code).log == ""


def test_a_time_out_says_which_limit_it_was_and_how_to_get_more(image, words):
    """Defect: a time-out read KeyboardInterrupt or INTERRUPTED."""
    fault = image.evaluate(words.loop, timeout=0.2).error
    assert fault.type == "TIMEOUT"
    assert "within 0.2 s" in fault.message
    assert "--timeout" in fault.message


def test_whoever_runs_an_image_it_has_a_user_with_a_name(image, words):
    """Real libraries: many programs ask who they are, and fail where nobody is told."""
    ask = {"sbcl": '(file-author ".")', "python": "__import__('getpass').getuser()"}[words.language]
    assert image.evaluate(ask).values[0].strip("\"'") == "image"


def test_the_empty_input_of_an_image_is_one_of_characters(image, words):
    """ANSI stream-element-type.1: the standard streams have an element type."""
    ask = {"sbcl": "(stream-element-type *standard-input*)", "python": "__import__('sys').stdin.read()"}
    assert image.evaluate(ask[words.language]).values == [
        {"sbcl": "CHARACTER", "python": "''"}[words.language]
    ]


def test_code_that_catches_the_interrupt_of_its_limit_is_told_of_it(image, words):
    """A time-out says which limit, how long, and how to get more."""
    catching = {
        "sbcl": "(handler-case (loop) (serious-condition () 1))",
        "python": "import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    y = 1",
    }
    reply = image.evaluate(catching[words.language], timeout=3)
    assert reply.ok
    assert any("After 3 s the evaluation was interrupted" in note for note in reply.notes)


def test_keeping_the_state_that_is_left_does_not_drop_the_one_that_is_gone_to(image, words):
    """Rollback: the oldest state makes room for a new one, but not while it is the goal."""
    image.evaluate(words.define)
    for number in range(20):
        image.evaluate(words.change.format(number))
    oldest = image.checkpoints()[0]
    before, image._lifecycle.thrift = image._lifecycle.thrift, Thrift(heavy_bytes=1, part=1e-12)
    try:
        assert image.evaluate(words.change.format(99)).unkept
        gone = image.rollback(oldest.id)
    finally:
        image._lifecycle.thrift = before
    assert (gone.id, gone.is_current) == (oldest.id, True)
    assert "is kept as" in gone.notes[0]
    assert value(image, words) == "4"


@pytest.fixture
def unmet(monkeypatch):
    """Let no checkpoint connect before something has to wait for it, as on a machine that is busy."""
    monkeypatch.setattr(Family, "met", lambda _family, _tag: None)
    monkeypatch.setattr(Family, "wait_for_child", lambda _family, _tag, seconds: Event().wait(seconds))


@pytest.mark.usefixtures("unmet")
def test_calls_do_not_wait_for_checkpoints_and_lose_none(image, words):
    """Cold call: a call may come before the last checkpoint has connected; each is kept all the same."""
    image.evaluate(words.define)
    for number in (6, 7, 8):
        image.evaluate(words.change.format(number))
    assert value(image, words) == "8"
    for expected in ("7", "6", "41"):
        assert image.undo().taken_back == 1
        assert value(image, words) == expected


@pytest.mark.usefixtures("unmet")
def test_a_death_falls_back_to_a_checkpoint_that_had_not_connected(image, words):
    """Cold call: the state after the last change is back, although nothing had waited for its copy."""
    image.evaluate(words.define)
    image.evaluate(words.change.format(7))
    reply = image.evaluate(words.kill_self)
    assert reply.lost == 0
    assert any("The state before is back" in note for note in reply.notes)
    assert value(image, words) == "7"


@pytest.mark.usefixtures("unmet")
def test_a_look_before_the_checkpoint_has_connected_is_remembered(image, words):
    """Cold call: values that were looked at in the state of a late checkpoint are there after going back."""
    image.evaluate(words.define)
    image.evaluate(words.change.format(7))
    assert value(image, words) == "7"
    image.evaluate(words.kill_self)
    assert image.evaluate({"sbcl": "*", "python": "_"}[words.language]).values == ["7"]


@pytest.mark.usefixtures("unmet")
def test_a_checkpoint_that_never_came_is_told(image, words, monkeypatch):
    """A state that was to be kept and is not is told with a later reply, and never gone back to."""
    image.evaluate(words.define)
    image.checkpoints()
    meet = Family.meet
    missing: list[str] = []

    def lose_first(family, tag, seconds, *, parent=None):
        connection = meet(family, tag, seconds, parent=parent)
        if missing:
            return connection
        missing.append(tag)
        connection.close()
        raise ImageGoneError("it did not connect")

    monkeypatch.setattr(Family, "meet", lose_first)
    image.evaluate(words.change.format(7))
    image.evaluate(words.change.format(8))
    assert len(image.checkpoints()) == len(missing) + 2
    notes = image.evaluate(words.change.format(9)).notes
    assert any("No state was kept after an earlier call (" in note for note in notes), notes
    image.undo()
    assert value(image, words) == "8"
    assert "That takes back the last 2 calls" in " ".join(image.undo().notes)
    assert value(image, words) == "41"
