"""What an evaluation has printed so far can be read from outside at any moment, and nothing else can be."""

# ruff: noqa: E501 - the forms are data, and read best on one line

import os
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gramercy.images.output import Log
from tests.images import children

CODE = {
    "sbcl": {
        "print": '(format t "{}")',
        "complain": '(format *error-output* "{}")',
        "emoji": '(format t "Grüße, 世界 😀")',
        "surrogate": '(format t "a~cb" (code-char #xd800))',
        "letters": "(dotimes (i 200000) (write-char #\\x))",
        "long": "(write-string (make-string 200000 :initial-element #\\x))",
        "full": '(write-char #\\x) (dotimes (i 43692) (write-char (code-char 8364))) (write-string "y")',
        "binary": '(write-string (coerce "abc" (quote simple-base-string)))',
        "fork": "(let ((p (sb-posix:fork)))"
        ' (cond ((zerop p) (format t "copy") (sb-ext:exit :abort t)) (t (sb-posix:waitpid p 0) (format t "mine"))))',
        "crowd": "(let ((o *standard-output*)) (mapc #'sb-thread:join-thread (loop repeat 4 collect"
        ' (sb-thread:make-thread (lambda () (dotimes (i 20000) (write-line "wörd" o)))))))',
        "rebind": '(let ((*standard-output* (make-string-output-stream))) (format t "past"))',
        "own descriptors": '(loop for n below 1024 for name = (format nil "/proc/self/fd/~d" n)'
        " for link = (ignore-errors (sb-posix:readlink name)) when link collect link)",
        "expand": '(defmacro loud () (format t "expanding") 1)',
        "system": "sb-rotate-byte",
    },
    "python": {
        "print": "print('{}', end='')",
        "complain": "import sys; sys.stderr.write('{}')",
        "emoji": "print('Grüße, 世界 😀', end='')",
        "surrogate": "print('a\\ud800b', end='')",
        "letters": "import sys\nfor i in range(200000): sys.stdout.write('x')",
        "long": "print('x' * 200000, end='')",
        "full": "print('x', end='')\nfor i in range(43692): print('€', end='')\nprint('y', end='')",
        "binary": "import sys; sys.stdout.buffer.write(b'abc')",
        "fork": "import os\np = os.fork()\nif p == 0: print('copy', end=''); os._exit(0)\n"
        "os.waitpid(p, 0)\nprint('mine', end='')",
        "crowd": "import threading\n"
        "def shout():\n  for i in range(20000): print('wörd')\n"
        "ts = [threading.Thread(target=shout) for i in range(4)]\nfor t in ts: t.start()\nfor t in ts: t.join()",
        "rebind": "import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()): print('past')",
        "own descriptors": "import os\n[os.readlink(e.path) for e in os.scandir('/proc/self/fd') if e.is_symlink()"
        " and os.path.lexists(e.path)]",
        "system": "colorsys",
    },
}  # fmt: skip


@pytest.fixture
def code(words):
    return CODE[words.language]


@pytest.fixture
def memory():
    memory = children.Memory()
    yield memory
    memory.close()


@pytest.fixture
def start(words, tmp_path):
    """Start families with a mirror, or with the options given; end them with the test."""
    with ExitStack() as stack:

        def begin(*options, memory=None, command=None):
            home = tmp_path / str(len(list(tmp_path.iterdir())))
            home.mkdir()
            if memory is not None:
                options = ("--mirror", str(memory.fd))
            family = children.Family(
                home, words.language, *options, keep=(memory.fd,) if memory else (), command=command
            )
            return stack.enter_context(closing(family))

        yield begin


@pytest.fixture
def family(start, memory):
    return start(memory=memory)


@pytest.fixture
def live(family):
    return family.live()


def descriptors(pid):
    """Return what the descriptors of a process are open on."""
    return [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]


def test_text_is_there_while_the_evaluation_still_runs(live, memory, code, words):
    """Child protocol, mirror."""
    live.send("eval", code=f"{code['print'].format('so far')}\n{words.loop}")
    assert live.sees(lambda: memory.stdout == "so far")
    assert memory.request == live.count


def test_text_outlives_a_process_that_had_to_be_killed(live, memory, code, words):
    """Child protocol, mirror."""
    live.send("eval", code=f"{code['print'].format('last words')}\n{words.stubborn_loop}")
    assert live.sees(lambda: memory.stdout == "last words")
    live.kill()
    assert live.is_ended()
    assert (memory.stdout, memory.stderr, memory.totals) == ("last words", "", (10, 0))


@pytest.mark.parametrize(
    ("name", "text"),
    [("emoji", "Grüße, 世界 😀"), ("surrogate", "a\ufffdb"), ("binary", "abc")],
)
def test_every_character_is_whole(live, memory, code, name, text):
    """Child protocol, mirror: UTF-8, lone surrogates as U+FFFD."""
    assert live.eval(code[name])["ok"]
    assert memory.stdout == text
    assert memory.totals == (len(text), 0)


@pytest.mark.parametrize("name", ["letters", "long"])
def test_a_full_area_keeps_the_beginning_and_the_count(live, memory, code, name):
    """Child protocol, mirror: an area has 131072 octets."""
    assert live.eval(code[name])["ok"]
    assert memory.octets(0) == b"x" * children.AREA
    assert memory.totals == (200_000, 0)
    assert memory.octets(1) == b""
    assert os.pread(memory.fd, children.AREA, children.HEADER + children.AREA) == bytes(children.AREA)


def test_after_a_character_without_room_no_shorter_one_is_let_in(live, memory, code):
    """Child protocol, mirror: full is full."""
    assert live.eval(code["full"])["ok"]
    assert memory.stdout == "x" + "€" * 43690
    assert memory.totals == (43694, 0)


def test_standard_error_stands_apart(live, memory, code):
    """Child protocol, mirror: two areas."""
    live.eval(f"{code['print'].format('out')}\n{code['complain'].format('err')}")
    assert (memory.stdout, memory.stderr, memory.totals) == ("out", "err", (3, 3))


def test_the_limit_of_a_reply_does_not_limit_the_mirror(live, memory, code):
    """Child protocol, mirror: it has limits of its own."""
    assert live.eval(code["print"].format("0123456789"), limit=3)["stdout"] == "012"
    assert memory.stdout == "0123456789"


def test_the_next_evaluation_starts_empty(live, memory, code, words):
    """Child protocol, mirror: reset at the start of each operation."""
    live.eval(code["print"].format("one"))
    live.eval(code["complain"].format("two"))
    assert (memory.stdout, memory.stderr, memory.request) == ("", "two", live.count)
    live.eval(words.six)
    assert memory.counts() == (live.count, 0, 0, 0, 0)


def test_compiling_and_loading_are_mirrored_too(live, memory, code):
    """Child protocol, mirror: operations that capture output."""
    live.ask("compile", code=code["print"].format("compiled"))
    assert (memory.stdout, memory.request) == ("compiled", live.count)
    live.ask("load_system", system=code["system"])
    assert (memory.stdout, memory.request) == ("", live.count)


def test_a_question_leaves_the_mirror_alone(live, memory, code):
    """Child protocol, mirror: only operations that capture output write it."""
    live.eval(code["print"].format("kept"))
    number = live.count
    live.ask("ping")
    live.ask("definitions")
    assert (memory.stdout, memory.request) == ("kept", number)


def test_macroexpansion_leaves_the_mirror_alone(live, memory, code):
    """Child protocol, mirror: it runs user code, but has no output to report."""
    if "expand" not in code:
        pytest.skip("no macros")
    live.eval(f"{code['expand']} {code['print'].format('kept')}")
    number = live.count
    assert live.ask("macroexpand", form="(loud)")["ok"]
    assert (memory.stdout, memory.request) == ("kept", number)


def test_the_rehearsal_after_a_checkpoint_leaves_the_mirror_alone(live, family, memory, code, words):
    """Child protocol, mirror: the parent may still look."""
    live.eval(f"{words.define}\n{code['print'].format('kept')}", then_fork="c")
    number = live.count
    assert family.accept().hello["role"] == "checkpoint"
    live.ask("ping")
    assert (memory.stdout, memory.totals, memory.request) == ("kept", (4, 0), number)


def test_what_follows_a_rehearsal_is_mirrored_again(live, family, memory, code, words):
    """Child protocol, mirror."""
    live.eval(words.define, then_fork="c")
    family.accept()
    live.eval(code["print"].format("again"))
    assert (memory.stdout, memory.request) == ("again", live.count)


def test_a_preview_writes_the_mirror_in_its_turn(live, memory, code):
    """Child protocol, mirror: the mapping is inherited, and confinement leaves it."""
    live.eval(code["print"].format("live"))
    preview = live.fork("preview")
    assert memory.stdout == "live"
    preview.confine()
    assert preview.eval(code["print"].format("preview"))["ok"]
    assert (memory.stdout, memory.request) == ("preview", preview.count)


def test_a_copy_that_user_code_forks_does_not_write_over_its_parent(live, memory, code):
    """Child protocol, mirror: one writer at a time."""
    assert live.eval(code["fork"])["stdout"] == "mine"
    assert memory.stdout == "mine"


def test_user_code_that_prints_elsewhere_goes_past_the_mirror(live, memory, code):
    """Child protocol, mirror."""
    live.eval(code["rebind"])
    assert memory.counts() == (live.count, 0, 0, 0, 0)


def test_threads_that_print_at_once_stay_inside_their_area(live, memory, code, words):
    """Child protocol, mirror: no lock, and no harm."""
    assert live.eval(code["crowd"])["error"] is None
    assert memory.counts()[1] <= children.AREA
    assert os.pread(memory.fd, children.HEADER - 20, 20) == bytes(children.HEADER - 20)
    assert os.pread(memory.fd, children.AREA, children.HEADER + children.AREA) == bytes(children.AREA)
    assert live.value(words.six) == "6"


def test_no_process_keeps_a_descriptor_of_the_mirror(live, family, code):
    """Child protocol, mirror: user code must not find it."""
    for member in (family.zygote, live, live.fork("preview")):
        assert [name for name in descriptors(member.pid) if "memfd" in name] == []
    assert "memfd" not in live.value(code["own descriptors"])


def test_without_a_mirror_everything_works(start, code):
    """Child protocol, mirror: it is an option."""
    family = start()
    assert family.live().eval(code["print"].format("plain"))["stdout"] == "plain"
    assert family.log.read_text() == ""


@pytest.mark.parametrize("number", ["999", "nonsense", "", "-1", "1", "99999999999999999999"])
def test_a_descriptor_that_makes_no_sense_means_no_mirror(start, code, number):
    """Child protocol, mirror: a line on the log, and go on."""
    family = start("--mirror", number)
    assert family.live().eval(code["print"].format("plain"))["stdout"] == "plain"
    lines = family.log.read_text().splitlines()
    assert [line[:25] for line in lines] == ["No mirror of the output: "]


def test_memory_that_is_too_small_means_no_mirror(start, code):
    """Child protocol, mirror: writing beyond its end would kill the process."""
    with closing(children.Memory(children.SIZE - 1)) as memory:
        family = start(memory=memory)
        live = family.live()
        assert live.eval(code["print"].format("plain"))["stdout"] == "plain"
        assert f"expected {children.SIZE}" in family.log.read_text()
        assert [name for name in descriptors(live.pid) if "memfd" in name] == []


def test_a_saved_core_has_a_mirror_of_its_own_or_none(live, start, memory, code, tmp_path):
    """Child protocol, mirror: no address of the old one survives in the core."""
    if live.hello["language"] != "sbcl":
        pytest.skip("Python images are not saved")
    live.eval(code["print"].format("before"))
    core = tmp_path / "saved.core"
    assert live.ask("save", path=str(core))["ok"]
    command = children.core_program(core)
    assert start(command=command).live().eval(code["print"].format("plain"))["stdout"] == "plain"
    with closing(children.Memory()) as other:
        start(command=command, memory=other).live().eval(code["print"].format("own"))
        assert (other.stdout, memory.stdout) == ("own", "before")


def test_a_fresh_image_has_no_symbols_of_its_own_where_users_work(live, words):
    """Live images: what users find in their package is theirs."""
    if words.language != "sbcl":
        pytest.skip("a matter of Lisp")
    found = live.ask("package_symbols", package="CL-USER", **{"include-internal": True})
    assert found["data"]["symbols"] == []


def test_a_log_tells_its_last_words_after_the_end_of_all_processes():
    """Defect: a call after the death of the zygote raised ValueError, since the pipe had been closed at EOF."""
    log = Log()
    os.write(log.writer, b"last words")
    log.close_writer()
    log.wait_for_end(10)
    assert log.news() == "last words"
    assert log.news() == ""
