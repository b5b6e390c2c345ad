"""What the image programs of both languages must do, driven over sockets without a sandbox around them.

Each test runs for SBCL and for Python; the forms that mean the same are in `child_forms`. What only one
language has is tested in `test_sbcl_child` and `test_python_child`.
"""

import ctypes
import os
import random
import re
import signal
import struct
import subprocess
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path

import pytest

from gramercy.images.python import landlock
from tests.images import child_forms, children

PROGRAMS = Path(__file__).parents[2] / "src/gramercy/images"
HOME = {"sbcl": "CL-USER", "python": "__main__"}
INTERRUPTED = {"sbcl": "INTERRUPTED", "python": "KeyboardInterrupt"}
REPLY = {"ok", "forms", "stdout", "stderr", "warnings", "error", "package", "changed", "state"}


@pytest.fixture(params=child_forms.LANGUAGES)
def language(request):
    """Name the language of a test."""
    if request.param == "sbcl" and not children.SBCL:
        pytest.skip("sbcl is not installed")
    return request.param


@pytest.fixture
def say(language):
    """Return the forms of the language."""
    return child_forms.forms(language)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Return a function that starts the zygote of a language once, for tests in any order."""
    with ExitStack() as stack:

        @cache
        def started(language):
            home = tmp_path_factory.mktemp(language)
            return stack.enter_context(closing(children.Family(home, language)))

        yield started


@pytest.fixture
def family(start, language):
    """Return a zygote and what was forked from it."""
    return start(language)


@pytest.fixture
def live(family):
    """Return a process that evaluates, fresh for each test."""
    process = family.live()
    yield process
    process.kill()


@pytest.fixture(scope="module")
def start_world(start):
    """Return a function that starts, once, a process in which there is something to ask about."""

    @cache
    def started(language):
        live = start(language).live()
        reply = live.eval(child_forms.WORLD[language])
        assert reply["ok"], reply["error"]
        return live

    return started


@pytest.fixture
def world(start_world, language):
    """Return a process to ask questions, which change nothing."""
    return start_world(language)


@pytest.fixture
def preview(live, tmp_path):
    """Return a confined copy of the live process; in its directory there is a file."""
    (tmp_path / "file").write_text("as it was")
    copy = live.fork("preview")
    answer = copy.confine()
    assert answer["ok"]
    if not answer["confined"]:
        pytest.skip(answer["reason"])
    assert answer["level"].startswith("landlock-")
    yield copy
    copy.kill()


def cases(names, table):
    """Run a test for each case of both languages."""
    rows = child_forms.both(table)
    ids = [f"{row[0]}-{number}" for number, row in enumerate(rows)]
    return pytest.mark.parametrize(f"language,{names}", rows, ids=ids, indirect=["language"])


def changes(reply):
    """Return the changes that a reply tells, without the prefix of Python's own module."""
    return [(row["kind"], row["name"].removeprefix("__main__."), row["change"]) for row in reply["changed"]]


def names(entries):
    """Return the names in a list of names or of records with one."""
    return [entry if isinstance(entry, str) else entry["name"] for entry in entries]


def parts(reply):
    """Return label, value and number of what is inside of an inspected object."""
    data = reply["data"]
    if "children" in data:
        return [(row["label"].lstrip("."), row["value"], row["object"]) for row in data["children"]]
    return [(row["label"].lower(), row["value"], row["id"]) for row in data["parts"]]


# --- hello, frames, requests


def test_the_zygote_says_hello_first_with_what_it_was_given(family, language):
    """Child protocol, hello."""
    hello = family.zygote.hello
    assert hello["hello"] == 1
    assert (hello["role"], hello["language"]) == ("zygote", language)
    assert family.zygote.pid == family.process.pid
    assert {"fork", "preview", "compile", "xref", "macroexpand", "inspect"} <= set(hello["capabilities"])


def test_a_fork_says_hello_with_its_role(family):
    """Child protocol, processes."""
    live = family.zygote.fork("live", "t7")
    assert live.hello["role"] == "live"
    assert live.pid != family.zygote.pid


@pytest.mark.parametrize(("language", "status"), [("sbcl", 64), ("python", 1)], indirect=["language"])
def test_a_missing_connection_is_answered_with_the_usage(language, status):
    """Child protocol, command line."""
    run = subprocess.run(
        [*children.program(language), "--mirror", "3"],
        capture_output=True, text=True, timeout=children.PATIENCE, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert run.returncode == status
    assert "--connection DESCRIPTOR" in run.stderr


@cases("body,kind", child_forms.BAD_REQUESTS)
def test_a_bad_request_is_answered_and_forgotten(live, say, body, kind):
    """Child protocol, malformed requests."""
    live.send_bytes(body)
    assert live.receive()["error"]["type"] == kind
    assert live.value(say.six) == "6"


def test_an_unknown_operation_says_so(live):
    """Child protocol, unknown operations."""
    assert live.ask("dance")["error"]["type"] == "UNKNOWN-OP"


def test_a_frame_that_is_too_long_ends_the_process(live):
    """Child protocol, frames."""
    live.plug.sendall(struct.pack(">I", 64 * 1024 * 1024 + 1))
    assert live.has_hung_up()


def test_a_reply_that_is_too_large_becomes_an_error(live, say):
    """Child protocol, frames."""
    reply = live.eval(say.print_too_much_for_a_frame, limit=16_000_000)
    assert (reply["ok"], reply["error"]["type"]) == (False, "FRAME-TOO-LARGE")
    assert live.value(say.six) == "6"


def test_state_and_ping_answer(live):
    """Child protocol, state."""
    assert live.ask("ping") == {"ok": True, "id": 1}
    state = live.ask("state")["state"]
    assert (state["pid"], state["threads"]) == (live.pid, 1)
    assert state["heap_bytes"] > 1_000_000


# --- evaluation


def test_every_form_has_its_values(live, say, language):
    """Child protocol, eval."""
    reply = live.eval(say.values_of_four)
    last = {"sbcl": ['"three"', "(4)"], "python": ["'three'", "[4]"]}[language]
    assert [form["values"] for form in reply["forms"]] == [["3"], [], *([value] for value in last)]
    assert reply["ok"]
    assert reply["error"] is None
    assert reply["package"] == HOME[language]
    assert reply["state"]["pid"] == live.pid
    assert reply["elapsed_ms"] >= 0


def test_no_code_at_all_is_no_forms(live):
    """Child protocol, eval."""
    assert live.eval("\n \n")["forms"] == []


def test_forms_before_an_error_keep_their_values_and_output(live, say):
    """Child protocol, eval."""
    reply = live.eval(say.fail_third)
    assert len(reply["forms"]) == 2
    assert reply["forms"][1]["values"] == ["42"]
    assert reply["stdout"] == "ONE"
    assert reply["error"]["type"] in ("ZeroDivisionError", "TYPE-ERROR")
    assert reply["error"]["form_index"] == 2
    assert reply["error"]["interrupted"] is False


@pytest.mark.parametrize(
    ("language", "frames"),
    [
        ("sbcl", ["0: (INNER 0)", "1: (OUTER 1)", "2: (EVAL (OUTER 1))"]),
        ("python", ["0: inner(n=0) at <image 1>:2: raise", "1: outer(n=1) at <image 1>:5", "2: <module>"]),
    ],
    indirect=["language"],
)
def test_a_backtrace_has_the_users_frames_only(live, say, frames):
    """Child protocol, backtrace: frames of the program dropped."""
    live.eval(say.nested_functions)
    error = live.eval(say.call_outer)["error"]
    assert error["message"] == "bad 0"
    assert len(error["backtrace"]) == len(frames)
    assert all(told.startswith(frame) for told, frame in zip(error["backtrace"], frames, strict=True))


def test_a_deep_backtrace_is_bounded(live, say):
    """Child protocol: at most 21 lines of 300 characters, of which one counts calls of the same function."""
    error = live.eval(say.recurse)["error"]
    assert error["type"] in ("RecursionError", "SB-KERNEL::CONTROL-STACK-EXHAUSTED")
    assert len(error["backtrace"]) <= 21
    assert any(line.startswith("… ") or " more calls of " in line for line in error["backtrace"])
    assert max(map(len, error["backtrace"])) <= 300
    assert live.value(say.six) == "6"


@cases("code,line", child_forms.UNREADABLE)
def test_code_that_cannot_be_read_has_its_line(live, code, line):
    """Live images, a reply: positions relative to the code sent."""
    error = live.eval(code)["error"]
    assert re.search("Syntax|Indentation|END-OF-FILE|READER", error["type"])
    assert error["line"] == line


def test_packages_are_apart(live, say, language):
    """Child protocol: a request names its package."""
    live.eval(say.make_package)
    live.eval(say.set_x.format(1))
    live.eval(say.set_x.format(2), package="other")
    assert live.value("x", package="other") == "2"
    assert live.value("x", package=HOME[language]) == "1"


@pytest.mark.parametrize(
    ("language", "package", "kind", "near"),
    [
        ("sbcl", "sb-pposix", "PACKAGE-NOT-FOUND", "SB-POSIX"),
        ("python", "jsn", "ModuleNotFoundError", "json"),
    ],
    indirect=["language"],
)
def test_an_unknown_package_is_refused_with_suggestions(live, package, kind, near):
    """Child protocol, resolver: near matches."""
    error = live.eval("1", package=package)["error"]
    assert error["type"] == kind
    assert near in error["suggestions"]
    assert live.value("1") == "1"


@pytest.mark.parametrize(
    ("language", "last", "expected"),
    [("sbcl", "(list * ** +)", "(2 1 2)"), ("python", "(_, __)", "(2, 1)")],
    indirect=["language"],
)
def test_the_last_values_are_kept(live, last, expected):
    """Child protocol, evaluation: the history of a session."""
    live.eval("1")
    live.eval("2")
    assert live.value(last) == expected


def test_a_warning_of_the_user_is_told_with_its_line_each_time(live, say):
    """Child protocol, warnings."""
    for _time in range(2):
        reply = live.eval(say.warn_on_line_3)
        told = [(row["kind"], row["message"], row["line"]) for row in reply["warnings"]]
        assert told == [("warning", "careful 1", 3)]
        assert reply["stderr"] == ""


def test_compile_defines_and_warns_and_has_no_values(live, say, language):
    """Child protocol, compile."""
    reply = live.ask("compile", code=say.compile_with_warning_on_line_3)
    assert reply["ok"], reply["error"]
    assert reply["forms"] == []
    assert ("warning", 3) in [(row["kind"], row["line"]) for row in reply["warnings"]]
    expected = ["CL-USER::F", "CL-USER::G"] if language == "sbcl" else ["f", "g"]
    assert changes(reply) == [("function", name, "defined") for name in expected]


@pytest.mark.parametrize(
    ("language", "open_end"), [("sbcl", "(defun"), ("python", "def (")], indirect=["language"]
)
def test_compile_tells_what_cannot_be_read(live, open_end):
    """Child protocol, compile."""
    assert live.ask("compile", code=open_end)["error"]["line"] == 1


def test_a_huge_form_is_evaluated(live, say):
    """Child protocol, eval: no limit but that of a frame."""
    assert live.value(say.huge_form.format(say.huge_part * 200_000)) == "200000"
    assert live.value(say.length.format("x" * 5_000_000)) == "5000000"


# --- output and values


def test_output_and_error_output_are_kept_apart(live, say):
    """Child protocol, streams."""
    reply = live.eval(say.print_both)
    assert (reply["stdout"], reply["stderr"]) == ("out\n", "err\n")
    assert live.eval(say.six)["stdout"] == ""


def test_standard_input_is_empty(live, say):
    """Child protocol: stdin is empty."""
    assert live.eval(say.read_input)["error"]["type"] in ("EOFError", "END-OF-FILE")


def test_output_is_cut_at_the_stream_and_counted(live, say):
    """Child protocol: output capped at the stream."""
    reply = live.eval(say.print_500_and_300, limit=25)
    assert reply["stdout"] == reply["stderr"] == "0123456789012345678901234"
    assert reply["truncated"] == {"stdout": 500, "stderr": 300}


@pytest.mark.slow
def test_fifty_megabytes_of_output_cost_little_memory_and_time(live, say):
    """Child protocol: 50 MB of prints below 100 MB and a few seconds."""
    before = peak_memory(live.pid)
    reply = live.eval(say.print_50_megabytes)
    assert reply["truncated"] == {"stdout": 50_000_000}
    assert len(reply["stdout"]) == 100_000
    assert reply["elapsed_ms"] < 50_000
    assert live.eval(say.print_many_small_pieces)["truncated"] == {"stdout": 4_000_000}
    assert peak_memory(live.pid) - before < 100 * 1024
    assert live.eval(say.print_50_megabytes_at_once)["truncated"] == {"stdout": 50_000_000}


def peak_memory(pid):
    """Return the most memory the process has had, in kB."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0])


def test_prints_of_programs_and_to_the_descriptor_go_to_the_log(family, live, say):
    """Live images, wire: prints from elsewhere never touch the protocol."""
    assert live.eval(say.print_outside)["stdout"] == ""
    logged = family.log.read_bytes()
    assert b"from-echo" in logged
    assert b"raw-write" in logged


def test_unicode_goes_both_ways(live, say):
    """Child protocol: UTF-8."""
    text = "naïve ∀x. \U0001d518 \U0001f600"
    assert live.value(say.repeat_text.format(text))[1:-1] == text
    assert live.eval(say.print_text.format(text))["stdout"] == text
    assert live.value(say.length.format(text)) == str(len(text))


def test_control_characters_and_lone_surrogates_become_valid_json(live, say):
    """Child protocol: JSON text is valid whatever the strings hold."""
    expected = "\x00\x01\x08\t\n\r\x1b\x1f\x7f\x85\ufffd\ufffd\u2028\U0010ffff"
    assert live.eval(say.print_odd_characters)["stdout"] == expected


@cases("code,printed", child_forms.PRINTED)
def test_values_are_printed_as_the_language_prints_them(live, code, printed):
    """Child protocol: printing of values."""
    assert live.eval(code)["forms"][-1]["values"] == [printed]


@cases("code", child_forms.HUGE)
def test_huge_values_are_printed_within_the_limit(live, code):
    """Child protocol: bounded length and depth."""
    reply = live.eval(code, value_limit=1000)
    assert reply["ok"], reply["error"]
    assert len(reply["forms"][-1]["values"][0]) <= 1010
    assert reply["truncated"]["values"]


def test_a_circular_value_is_printed(live, say):
    """Child protocol: printing of values."""
    assert live.value(say.circle) in ("#1=(1 2 . #1#)", "[1, [...]]")


# --- definitions


@cases("code,expected", child_forms.DEFINED)
def test_a_definition_is_seen_however_it_is_made(live, language, code, expected):
    """Child protocol: definitions by real changes of the image."""
    told = changes(live.eval(code))
    assert set(expected) <= set(told)
    assert language == "sbcl" or told == expected


@cases("before,code,expected", child_forms.CHANGED)
def test_redefinitions_and_removals_are_seen(live, language, before, code, expected):
    """Child protocol: defined, redefined, removed."""
    live.eval(before)
    told = changes(live.eval(code))
    assert set(expected) <= set(told)
    assert (language == "sbcl" and expected) or told == expected
    listed = [
        entry["name"]
        for kind in live.ask("definitions")["data"].values()
        if kind != "CL-USER"
        for entry in kind
    ]
    assert not {name for _kind, name, change in expected if change == "removed"} & set(listed)


@pytest.mark.parametrize(
    ("language", "functions", "variables"),
    [
        ("sbcl", [("ZEBRA", "(A &OPTIONAL B)"), ("APE", "()")], [("*V*", "42")]),
        ("python", [("zebra", "(a, b=2)"), ("ape", "()")], [("v", "42")]),
    ],
    indirect=["language"],
)
def test_the_listing_shows_what_still_exists_in_the_order_of_definition(live, say, functions, variables):
    """Seed 003, list-definitions."""
    live.eval(say.define_many)
    live.eval(say.remove_one)
    data = live.ask("definitions")["data"]
    assert [(row.get("symbol", row["name"]), row["arglist"]) for row in data["functions"]] == functions
    assert [(row.get("symbol", row["name"]), row["value"]) for row in data["variables"]] == variables
    only = live.ask("definitions", kind="functions")["data"]
    assert set(only) - {"package"} == {"functions"}
    assert not live.ask("definitions", kind="spells")["ok"]


def test_definitions_are_undone_with_the_process(live, say):
    """Live images, checkpoint and rollback."""
    checkpoint = live.fork("checkpoint")
    live.eval(say.define_function)
    assert checkpoint.fork("live").ask("definitions")["data"]["functions"] == []


def test_what_changes_nothing_is_told(live, say):
    """Live images, a look: no checkpoint is needed after it."""
    assert "unchanged" not in live.eval(say.define)
    for look in (say.six, say.look):
        assert live.eval(look)["unchanged"] is True
    assert "unchanged" not in live.eval(say.change)


def test_definitions_are_taken_back_while_a_thread_runs(live, say):
    """Child protocol, undo_definitions: the way back where no copy can be made."""
    live.eval(say.start_thread)
    live.eval(say.define_f.format(1))
    live.eval(say.define_f.format(2))
    live.eval(say.six)
    reply = live.ask("undo_definitions")
    assert [(row["kind"], row["change"]) for row in reply["changed"]] == [("function", "restored")]
    assert reply["notes"]
    assert live.value(say.call_f) == "1"


def test_each_undo_goes_one_call_further_back_until_nothing_is_left(live, say):
    """Child protocol, undo_definitions."""
    live.eval(say.define_f.format(1))
    live.eval(say.define)
    live.eval(say.look)
    for kind in ("variable", "function"):
        reply = live.ask("undo_definitions")
        assert [(row["kind"], row["change"]) for row in reply["changed"]] == [(kind, "removed")]
    error = live.ask("undo_definitions")["error"]
    assert error["type"] in ("NothingToUndo", "NOTHING-TO-UNDO")
    assert live.ask("definitions")["data"]["functions"] == []


# --- interrupts


@cases("code", child_forms.INTERRUPTED)
def test_an_interrupt_ends_the_evaluation_and_keeps_the_state(live, say, language, code):
    """Child protocol: SIGINT during an evaluation."""
    live.eval(say.define)
    reply = live.eval_interrupted(f"{say.print_text.format('partial')}\n{code}")
    # A few end by themselves.
    assert (language == "sbcl" and reply["ok"]) or reply["error"]["interrupted"] is True, reply["error"]
    assert reply["stdout"].startswith("partial")
    assert live.value(say.look) == "41"
    error = live.eval_interrupted(say.loop)["error"]
    assert (error["type"], error["interrupted"]) == (INTERRUPTED[language], True)


def test_an_interrupt_at_rest_does_nothing(live, say):
    """Child protocol: SIGINT at any other moment does nothing."""
    for _time in range(50):
        os.kill(live.pid, signal.SIGINT)
        assert live.value(say.six) == "6"


def test_the_zygote_and_checkpoints_do_not_mind_interrupts(family, live):
    """Child protocol: the zygote ignores SIGINT."""
    checkpoint = live.fork("checkpoint", "c")
    os.kill(family.zygote.pid, signal.SIGINT)
    os.kill(checkpoint.pid, signal.SIGINT)
    assert family.zygote.ask("ping")["ok"]
    assert checkpoint.ask("ping")["ok"]


def test_a_preview_can_be_interrupted(preview, say):
    """Live images, preview."""
    preview.send("eval", code=say.loop)
    with pytest.raises(TimeoutError):
        preview.receive(0.2)
    os.kill(preview.pid, signal.SIGINT)
    assert preview.receive()["error"]["interrupted"]


@cases("codes", child_forms.SHORT)
def test_interrupts_at_any_moment_never_break_a_frame_or_a_fork(live, say, codes):
    """Frames of code stopped between two instructions once led the collector of SBCL astray."""
    chance = random.Random(5)
    for turn in range(600):
        is_kept = turn % 20 == 0
        live.send("eval", code=codes[turn % len(codes)], then_fork=str(turn) if is_kept else None)
        for _ in range(chance.randrange(4)):
            os.kill(live.pid, signal.SIGINT)
        reply = live.receive()
        fault = reply["error"] or {"interrupted": True}
        assert fault["interrupted"] or re.match("ZeroDivision|Recursion|SIMPLE-ERROR", fault["type"]), fault
        if is_kept and not reply.get("unchanged"):
            checkpoint = live.family.accept()
            assert checkpoint.tag == str(turn)
            checkpoint.plug.close()
    assert live.value(say.six) == "6"


def test_a_loop_that_swallows_everything_is_ended_by_a_kill_and_restored(live, say):
    """Live images, timeouts and deaths: only SIGKILL."""
    live.eval(say.define)
    checkpoint = live.fork("checkpoint")
    post = children.Signpost(live.family)
    live.send("eval", code=f"{post.code(say.language)}\n{say.stubborn_loop}")
    post.wait()
    with pytest.raises(TimeoutError):
        live.receive(0.1)
    os.kill(live.pid, signal.SIGINT)
    with pytest.raises(TimeoutError):
        live.receive(0.2)
    live.kill()
    assert live.has_hung_up()
    assert checkpoint.fork("live").value(say.look) == "41"


# --- processes


def test_a_checkpoint_restores_the_state_after_the_live_process_was_killed(live, say):
    """Live images, checkpoint and rollback."""
    live.eval(say.define)
    live.eval(say.seed)
    checkpoint = live.fork("checkpoint", "c1")
    expected = live.value(say.draw)
    live.eval(say.change)
    live.kill()
    assert live.has_hung_up()
    for _time in range(2):
        restored = checkpoint.fork("live", "again")
        assert restored.value(say.look) == "41"
        assert restored.value(say.draw) == expected
        restored.eval(say.change)


def test_a_checkpoint_is_taken_after_the_reply_when_asked(live, say):
    """Child protocol, then_fork."""
    reply = live.eval(say.define, then_fork="c13")
    assert reply["ok"]
    assert "unkept" not in reply
    checkpoint = live.family.accept()
    assert (checkpoint.hello["role"], checkpoint.tag) == ("checkpoint", "c13")
    live.eval(say.change)
    assert checkpoint.fork("live").value(say.look) == "41"


def test_a_reply_tells_which_thread_prevents_a_checkpoint(live, say):
    """Child protocol, then_fork: unkept."""
    reply = live.eval(say.start_thread, then_fork="c")
    assert "1 user thread is running: worker" in reply["unkept"]
    assert reply["state"]["threads"] == 2
    refused = live.ask("fork", role="checkpoint", tag="d")
    assert refused["error"]["type"] == "CANNOT-FORK"
    assert "1 user thread is running: worker" in refused["error"]["message"]
    assert "unkept" not in live.eval(say.six, then_fork="c")
    assert "unkept" not in live.eval(say.end_thread, then_fork="e")
    assert live.family.accept().tag == "e"
    assert live.fork("checkpoint", "f").ask("ping")["ok"]


def test_a_checkpoint_outlives_the_process_it_came_from_and_ends_with_its_socket(live):
    """Child protocol: every process ends when its own socket closes."""
    checkpoint = live.fork("checkpoint")
    live.plug.close()
    assert live.is_ended()
    assert checkpoint.ask("ping")["ok"]
    checkpoint.plug.close()
    assert checkpoint.is_ended()


def test_exit_ends_the_process_at_once(live):
    """Child protocol, exit."""
    live.send("exit")
    assert live.has_hung_up()
    assert live.is_ended()


def test_a_polite_signal_ends_a_process_at_rest(live):
    """Live images: nothing is left that only SIGKILL can end while it does nothing."""
    live.kill(signal.SIGTERM)
    assert live.has_hung_up()
    assert live.is_ended()
    assert live.family.zygote.fate(live.pid) == {"kind": "signaled", "signal": signal.SIGTERM}


def test_a_polite_signal_ends_the_process_whichever_thread_gets_it(live, language):
    """Live images: the kernel may choose a thread of the runtime's own, and under load it does."""
    live.ask("ping")
    threads = [int(entry.name) for entry in Path(f"/proc/{live.pid}/task").iterdir()]
    assert len(threads) == {"sbcl": 2, "python": 1}[language]
    [chosen] = [thread for thread in threads if thread != live.pid] or threads
    assert ctypes.CDLL(None).tgkill(live.pid, chosen, signal.SIGTERM) == 0
    assert live.is_ended()


def test_dropped_copies_leave_no_zombies(live):
    """Child protocol: each process reaps its own."""
    copies = [live.fork("checkpoint") for _time in range(3)]
    for copy in copies:
        copy.plug.close()
        assert copy.is_ended()
    live.ask("ping")
    assert live.children() == []


def test_the_zygote_reaps_the_forks_of_a_dead_process(family):
    """Child protocol: the zygote is a child subreaper."""
    live = family.live()
    checkpoint = live.fork("checkpoint")
    live.kill()
    assert live.is_ended()
    checkpoint.kill()
    assert checkpoint.is_ended()
    for _time in range(2000):
        family.zygote.ask("ping")
        if not {live.pid, checkpoint.pid} & set(family.zygote.children()):
            break
    else:
        pytest.fail("zombies are left")


def test_programs_of_user_code_are_left_to_user_code(live, say):
    """Child protocol: reaping does not take a status away from the user's own programs."""
    live.fork("checkpoint").kill()
    live.eval(say.run_program)
    live.ask("ping")
    assert live.value(say.program_status) == "7"


# --- hostile code


@cases("code", child_forms.HOSTILE)
def test_a_hostile_form_leaves_the_process_answering(live, say, language, code):
    """Live images, timeouts and deaths: what survives."""
    live.eval(say.define)
    assert set(live.eval(code)) >= REPLY
    assert live.ask("ping") == {"ok": True, "id": live.count}
    # Lisp has so many symbols that to search all of them takes longer than all the rest.
    where = {"package": HOME[language]} if language == "sbcl" else {}
    for op, fields in (
        ("describe", {"symbol": "k"}),
        ("definitions", {}),
        ("apropos", {"pattern": "k", **where}),
    ):
        assert "ok" in live.ask(op, **fields)
    again = live.eval(say.six, package=HOME[language])
    assert again["ok"], again["error"]
    assert again["forms"][0]["values"][0].strip("#b.") in ("6", "#", "110")


@cases("code", child_forms.DEADLY)
def test_a_deadly_form_ends_in_eof_and_its_checkpoint_is_there(family, live, say, code):
    """Live images, timeouts and deaths: EOF and wait status."""
    live.eval(say.define)
    checkpoint = live.fork("checkpoint")
    live.send("eval", code=code)
    assert live.has_hung_up()
    assert checkpoint.fork("live").value(say.look) == "41"
    assert family.zygote.ask("ping")["ok"]


# --- previews


def test_only_a_preview_can_be_confined(live):
    """Live images, preview."""
    assert live.ask("confine")["ok"] is False


def test_a_preview_tells_what_would_happen_and_the_live_process_is_untouched(live, preview, say, tmp_path):
    """Live images, preview: evaluate in a throw-away fork."""
    reply = preview.eval(f"{say.define_function}\n{say.read_file.format(tmp_path / 'file')}")
    assert "as it was" in reply["forms"][-1]["values"][0]
    assert [change for _kind, _name, change in changes(reply)] == ["defined"]
    assert reply["effects"] == []
    assert live.ask("definitions")["data"]["functions"] == []


@cases("code,kind,target", child_forms.EFFECTS)
def test_a_preview_refuses_effects_and_reports_them(preview, tmp_path, code, kind, target):
    """Live images, preview: attempted effects."""
    reply = preview.eval(code.format(tmp_path))
    assert reply["error"] is not None
    told = [(row["kind"], row["outcome"]) for row in reply["effects"]]
    assert (kind, "refused") in told, reply
    assert target is None or target.format(tmp_path) in [row["target"] for row in reply["effects"]]
    assert preview.eval("1")["effects"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "as it was"
    assert (tmp_path / "file").stat().st_mode & 0o777 != 0


def test_an_attempt_that_the_code_handles_is_told_all_the_same(preview, say, tmp_path):
    """Live images, preview: attempted effects."""
    reply = preview.eval(say.write_handled.format(tmp_path / "x"))
    assert reply["ok"], reply["error"]
    assert reply["effects"] == [{"kind": "write", "target": f"{tmp_path}/x", "outcome": "refused"}]


def test_the_kernel_refuses_what_is_not_recorded(preview, say, tmp_path):
    """Live images, preview: Landlock holds where the language tells of no attempt."""
    refused = preview.value(say.write_behind_the_witness.format(tmp_path))
    assert re.findall(r"-?\d+", refused) == ["-1", "-1", "-1"]
    assert (tmp_path / "file").read_text() == "as it was"


def test_a_preview_cannot_write_through_descriptors_that_were_open(live, say, tmp_path):
    """Live images, preview: descriptors are pointed at the null device."""
    live.eval(say.open_file.format(tmp_path / "log"))
    live.eval(say.write_line.format("live"))
    preview = live.fork("preview")
    if not preview.confine()["confined"]:
        pytest.skip("no confinement here")
    preview.eval(say.write_line.format("preview"))
    preview.kill()
    live.eval(say.write_line.format("again"))
    assert (tmp_path / "log").read_text() == "live\nagain\n"


def test_a_preview_cannot_signal_other_processes(live, preview, say):
    """Live images, preview."""
    reply = preview.eval(say.kill_other.format(live.pid))
    assert reply["error"] is not None
    assert reply["effects"][0]["kind"] == "process"
    assert live.value(say.six) == "6"


def test_both_programs_give_up_the_same_rights():
    """Landlock is written twice, in Python and in Lisp, by the same numbers."""
    lisp = (PROGRAMS / "lisp/confinement.lisp").read_text()
    for name, number in (
        ("create-ruleset", landlock.CREATE_RULESET),
        ("restrict-self", landlock.RESTRICT_SELF),
        ("version-query", landlock.ASK_VERSION),
        ("no-new-privileges", landlock.NO_NEW_PRIVILEGES),
    ):
        assert f"(defconstant +{name}+ {number} " in lisp
    assert f"#b{landlock.BASE_RIGHTS & ~landlock.READ:b}" in lisp
    for since, right in landlock.LATER_RIGHTS:
        assert f"(if (>= version {since}) (ash 1 {right.bit_length() - 1}) 0)" in lisp
    assert f"(if (>= version {landlock.TCP_SINCE}) #b{landlock.TCP_RIGHTS:b} 0)" in lisp
    assert f"(if (>= version {landlock.SCOPES_SINCE}) #b{landlock.SCOPES:b} 0)" in lisp


# --- introspection


@cases("name,data,text", child_forms.DESCRIBED)
def test_describe_tells_kind_arguments_documentation_and_value(world, name, data, text):
    """Seed 001, describe_symbol."""
    reply = world.ask("describe", symbol=name)
    assert reply["ok"], reply
    assert data.items() <= reply["data"].items()
    assert text in reply["text"]


@cases("op,fields,kind,near", child_forms.UNKNOWN)
def test_an_unknown_name_is_answered_with_near_ones(world, op, fields, kind, near):
    """Child protocol, resolver: suggestions."""
    error = world.ask(op, **fields)["error"]
    assert error["type"] == kind
    assert near is None or near in error["suggestions"]


@cases("name,expected", child_forms.ARGLISTS)
def test_an_argument_list_is_written_as_the_language_would(world, name, expected):
    """Seed 001, function_arglist."""
    reply = world.ask("arglist", function=name)
    assert expected in (reply["text"], reply["data"]["arglist"])


def test_apropos_finds_the_users_names_first_and_counts_the_rest(world):
    """Seed 001, apropos_search."""
    data = world.ask("apropos", pattern="ZEBRA")["data"]
    first = names(data.get("matches") or data["symbols"])
    assert first in (
        ["CL-USER::ZEBRA-ONE", "CL-USER::ZEBRA-TWO"],
        ["__main__.zebra_one", "__main__.zebra_two"],
    )
    data = world.ask("apropos", pattern="a", limit=3)["data"]
    assert len(data.get("matches") or data["symbols"]) == 3
    assert data["total"] > 1000
    assert world.ask("apropos", pattern="no-such-thing")["ok"]


@cases("op,fields,expected", child_forms.REFERENCES)
def test_uses_are_found_in_evaluated_definitions(world, op, fields, expected):
    """Seed 001, who_calls and who_references."""
    data = world.ask(op, **fields)["data"]
    assert sorted(names(data.get("references") or data["found"])) == expected


@cases("package,exported,internal", child_forms.SYMBOLS)
def test_the_symbols_of_a_package_are_the_exported_ones_unless_asked(world, package, exported, internal):
    """Seed 001, list_package_symbols."""
    told = names(world.ask("package_symbols", package=package)["data"]["symbols"])
    assert set(exported) <= set(told)
    assert internal not in told
    all_of_them = world.ask("package_symbols", package=package, include_internal=True)["data"]["symbols"]
    assert internal in names(all_of_them)
    assert not world.ask("package_symbols", package=package + "zz")["ok"]


@cases("cls,expected", child_forms.SLOTS)
def test_the_slots_of_a_class_are_told_without_running_its_code(world, cls, expected):
    """Seed 001, class_slots."""
    slots = {row["name"]: row for row in world.ask("class_slots", **{"class": cls})["data"]["slots"]}
    assert list(slots) == list(expected)
    for name, details in expected.items():
        assert {key: slots[name][key] for key in details} == details


@cases("cls,above,below", child_forms.HIERARCHIES)
def test_the_hierarchy_shows_both_directions(world, cls, above, below):
    """Seed 001, class_hierarchy."""
    data = world.ask("class_hierarchy", **{"class": cls})["data"]
    assert names(data["superclasses"]) == above
    assert names(data["subclasses"]) == below


@cases("form,full,text", child_forms.EXPANSIONS)
def test_a_form_is_expanded_one_step_or_in_full(world, form, full, text):
    """Seed 001, macroexpand_form."""
    reply = world.ask("macroexpand", form=form, full=full)
    assert reply["text"] == text or (text.endswith("\n\n") and reply["text"].startswith(text))


@cases("form,kind", child_forms.NOT_EXPANDED)
def test_a_form_that_cannot_be_expanded_is_an_error(world, form, kind):
    """Seed 001, macroexpand_form."""
    assert world.ask("macroexpand", form=form)["error"]["type"] == kind


def test_safe_operations_run_no_code_of_the_users(live, language):
    """Live images, introspection: "safe" tools run no user code."""
    setup, listed, everything, count, reset = child_forms.TRAPS[language]
    reply = live.eval(setup)
    assert reply["ok"], reply["error"]
    number = live.eval(everything)["objects"][0]
    live.eval(reset)
    assert live.ask("definitions")["ok"]
    fields = {
        "describe": "symbol",
        "arglist": "function",
        "who_calls": "function",
        "who_references": "variable",
    }
    for name in listed:
        for op, field in {**fields, "class_slots": "class", "class_hierarchy": "class"}.items():
            fault = live.ask(op, **{field: name}).get("error", {"type": ""})
            assert fault["type"] != "INTERNAL-ERROR", (op, name)
    for pattern in ("trap", "needle", ""):
        assert live.ask("apropos", pattern=pattern)["ok"]
    assert live.ask("package_symbols", package=HOME[language], include_internal=True)["ok"]
    for _label, _value, child in parts(live.ask("inspect", object=number)):
        for _inner, _shown, deeper in parts(live.ask("inspect", object=child)):
            if deeper:
                live.ask("inspect", object=deeper)
    assert live.value(count) == "0"


def test_objects_can_be_looked_into_by_number_and_path(live, say, language):
    """Child protocol, inspect."""
    number = live.eval(say.nested_object)["objects"][0]
    rows = parts(live.ask("inspect", object=number))
    assert [value.strip("'\"") for _label, value, _id in rows[1:]] == ["text", "5"]
    assert rows[1][2] is None
    point = parts(live.ask("inspect", object=rows[0][2]))
    inner = "(2 3)" if language == "sbcl" else "[2, 3]"
    assert [row[:2] for row in point] == [("x", "1"), ("y", inner)]
    assert live.ask("inspect", object=number, path=[0, 1, 0])["text"].lstrip("int: ").startswith("2")
    assert live.ask("inspect", object=number, path=[9])["ok"] is False
    assert live.ask("inspect", object=99999)["error"]["type"] in ("OBJECT-NOT-FOUND", "NO-SUCH-OBJECT")
    assert live.eval(say.six)["objects"] == [None]


def test_a_big_object_is_shown_in_part(live, say):
    """Child protocol, inspect: bounded."""
    number = live.eval(say.million)["objects"][0]
    assert 100 <= len(parts(live.ask("inspect", object=number))) <= 200


def test_only_the_last_thousand_objects_are_remembered(live, say):
    """Child protocol, inspect: bounded."""
    first = live.eval(say.many_objects.format(1))["objects"][0]
    assert live.ask("inspect", object=first)["ok"]
    for _time in range(11):
        reply = live.eval(say.many_objects.format(100))
        parts(live.ask("inspect", object=reply["objects"][0]))
    assert live.ask("inspect", object=first)["ok"] is False
    assert live.ask("inspect", object=reply["objects"][0])["ok"]


# --- systems


@pytest.mark.parametrize(
    ("language", "system", "kind"),
    [
        ("sbcl", "no-such-system", "MISSING-COMPONENT|SYSTEM-NOT-FOUND"),
        ("python", "no_such_system", "ModuleNotFoundError"),
        ("python", "../evil", "ModuleNotFoundError"),
    ],
    indirect=["language"],
)
def test_a_missing_system_is_told_by_name(live, say, system, kind):
    """Seed 003, load-system."""
    reply = live.ask("load_system", system=system, seconds=60)
    assert reply["ok"] is False
    assert re.search(kind, reply["error"]["type"])
    assert system in reply["error"]["message"]
    assert live.value(say.six) == "6"


def test_a_system_is_loaded_again_where_its_source_has_changed(live, say, language, tmp_path):
    """Seed 003, load-system."""
    live.eval(say.search.format(tmp_path))
    for price in (1, 2):
        for name, text in child_forms.SYSTEM[language].items():
            (tmp_path / name).write_text(text.format(price))
        reply = live.ask("load_system", system="shop", seconds=60)
        assert reply["ok"], reply["error"]
        assert live.value(say.look_into_system) == str(price)
        assert ("reloaded" in reply) is (price == 2)
    assert "reloaded" not in live.ask("load_system", system="shop", seconds=60)
