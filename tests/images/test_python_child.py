"""The Python image program, driven over its socket as the product does, without a sandbox around it."""

# ruff: noqa: E501 - the forms are data, and read best on one line

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.images.children import completed

PROGRAM = Path(__file__).parents[2] / "src/gramercy/images/python/__main__.py"
SITE = Path(sys.prefix) / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
PATIENCE = 10.0
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def landlock_version():
    """Ask the kernel; 0 where there is no Landlock."""
    return max(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1)), 0)


class Link:
    """One connection to one process of the family."""

    def __init__(self, family, plug):
        self.family = family
        self.plug = plug
        plug.settimeout(PATIENCE)
        self.outer = struct.unpack("3i", plug.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self.hello = self.receive()
        self.count = 0

    def _exactly(self, size):
        parts = []
        while size:
            part = self.plug.recv(min(size, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive(self):
        try:
            body = self._exactly(struct.unpack(">I", self._exactly(4))[0])
        except ConnectionResetError:
            raise EOFError from None
        return completed(json.loads(body.decode("utf-8", "strict"), parse_constant=_refuse))

    def send_bytes(self, body):
        self.plug.sendall(struct.pack(">I", len(body)) + body)

    def send(self, op, **fields):
        self.count += 1
        self.send_bytes(json.dumps({"op": op, "id": self.count, **fields}).encode())

    def ask(self, op, **fields):
        self.send(op, **fields)
        reply = self.receive()
        assert reply["id"] == self.count
        return reply

    def eval(self, code, **fields):
        return self.ask("eval", code=code, **fields)

    def value(self, code):
        reply = self.eval(code)
        assert reply["ok"], reply["error"]
        return reply["forms"][-1]["values"][0]

    def fork(self, role, tag=None):
        reply = self.ask("fork", role=role, tag=tag)
        assert reply["ok"], reply
        return self.family.accept()

    def is_ended(self):
        try:
            self.receive()
        except EOFError:
            return True
        return False

    def close(self):
        self.plug.close()


def _refuse(text):
    raise AssertionError(f"{text} is not JSON")


class Family:
    """A zygote and the processes below it."""

    def __init__(self, home, *options, executable=sys.executable, **settings):
        self.path = str(home / "socket")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.listener.settimeout(PATIENCE)
        self.log = (home / "log").open("w+b")
        self.process = subprocess.Popen(
            [executable, "-I", "-S", "-X", "utf8", str(PROGRAM), self.path, "token-1", *options],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
            cwd=home,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, HARD)),  # noqa: PLW1509 - no threads here
            **settings,
        )
        self.links = []
        self.zygote = self.accept()

    def accept(self):
        link = Link(self, self.listener.accept()[0])
        self.links.append(link)
        return link

    def live(self):
        return self.zygote.fork("live")

    def stop(self):
        for link in self.links:
            link.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self.listener.close()
        self.log.close()


@pytest.fixture(autouse=True)
def patience():
    """Bound every test: a wait that never ends is a failure, not a hang."""

    def give_up(_number, _frame):
        raise TimeoutError("the test took longer than a minute")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    family = Family(tmp_path_factory.mktemp("family"), "--path", str(SITE))
    yield family
    family.stop()


@pytest.fixture
def live(family):
    link = family.live()
    yield link
    link.close()


def is_running(pid):
    """Say whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_gone_soon(pid):
    """Wait for the end of a process, on a descriptor instead of a clock."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENCE)[0])
    finally:
        os.close(handle)


# --- hello, frames, requests -------------------------------------------------------------------------------


def test_the_zygote_says_hello_first_with_what_it_was_given(family):
    """Child protocol, hello."""
    hello = family.zygote.hello
    assert hello["hello"] == 1
    assert (hello["role"], hello["language"], hello["token"]) == ("zygote", "python", "token-1")
    assert hello["version"] == ".".join(map(str, sys.version_info[:3]))
    assert hello["pid"] == family.zygote.outer == family.process.pid
    assert {"fork", "preview", "compile", "xref", "macroexpand"} <= set(hello["capabilities"])


def test_a_fork_says_hello_with_its_role_and_tag(family):
    """Child protocol, processes."""
    link = family.zygote.fork("live", "t7")
    assert (link.hello["role"], link.hello["tag"], link.hello["token"]) == ("live", "t7", "token-1")
    assert link.hello["pid"] == link.outer != family.zygote.outer
    link.close()


def test_the_zygote_never_evaluates(family):
    """Live images, zygote."""
    reply = family.zygote.eval("1")
    assert reply["error"]["type"] == "ZYGOTE"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "MALFORMED-REQUEST"),
        (b"{", "MALFORMED-REQUEST"),
        (b"nonsense", "MALFORMED-REQUEST"),
        (b"[1]", "MALFORMED-REQUEST"),
        (b'{"op":"ping"} {}', "MALFORMED-REQUEST"),
        (b"\xff\xfe", "MALFORMED-REQUEST"),
        (b"[" * 200_000, "MALFORMED-REQUEST"),
        (b"{}", "INVALID-REQUEST"),
        (b'{"op":7}', "INVALID-REQUEST"),
        (b'{"op":"eval"}', "INVALID-REQUEST"),
        (b'{"op":"eval","code":7}', "INVALID-REQUEST"),
        (b'{"op":"describe"}', "INVALID-REQUEST"),
        (b'{"op":"fork","role":"king"}', "INVALID-REQUEST"),
        (b'{"op":"package_symbols","package":"json","include_internal":"yes"}', "INVALID-REQUEST"),
        (b'{"op":"apropos","pattern":"a","limit":-1}', "INVALID-REQUEST"),
        (b'{"op":"confine"}', "INVALID-REQUEST"),
        (b'{"op":"evil"}', "UNKNOWN-OP"),
        (b'{"op":"save","path":"x"}', "NOT-SUPPORTED"),
    ],
)
def test_a_bad_request_is_answered_and_forgotten(live, body, kind):
    """Child protocol, malformed requests."""
    live.send_bytes(body)
    assert live.receive()["error"]["type"] == kind
    assert live.value("1 + 2") == "3"


def test_a_frame_that_is_too_long_ends_the_process(family):
    """Child protocol, frames."""
    link = family.live()
    link.plug.sendall(struct.pack(">I", 64 * 1024 * 1024 + 1))
    assert link.is_ended()
    link.close()


def test_an_unknown_operation_is_told_what_was_meant(live):
    """Child protocol, unknown operations."""
    assert live.ask("evall")["error"]["suggestions"][0] == "eval"


def test_a_reply_that_is_too_large_becomes_an_error(live):
    """Child protocol, frames."""
    reply = live.eval("for i in range(17): print(chr(1) * 1_000_000)", limit=16_000_000)
    assert reply["error"]["type"] == "FRAME-TOO-LARGE"
    assert live.value("1") == "1"


def test_state_and_ping_answer(live):
    """Child protocol, state."""
    assert live.ask("ping")["ok"]
    state = live.ask("state")["state"]
    assert state["pid"] == live.hello["pid"]
    assert state["threads"] == 1
    assert state["heap_bytes"] > 1_000_000


# --- evaluation --------------------------------------------------------------------------------------------


def test_every_form_has_its_values_and_statements_have_none(live):
    """Child protocol, eval."""
    reply = live.eval("x = 2\nx + 1\nNone\n'a'")
    assert [form["values"] for form in reply["forms"]] == [[], ["3"], ["None"], ["'a'"]]
    assert reply["ok"]
    assert reply["error"] is None
    assert reply["package"] == "__main__"
    assert reply["elapsed_ms"] >= 0


def test_forms_before_an_error_keep_their_values_and_output(live):
    """Child protocol, eval."""
    reply = live.eval("print('one')\n40 + 2\n1 / 0\nprint('never')")
    assert [form["values"] for form in reply["forms"]] == [["None"], ["42"]]
    assert reply["stdout"] == "one\n"
    assert reply["error"]["type"] == "ZeroDivisionError"
    assert reply["error"]["form_index"] == 2


def test_a_backtrace_has_the_users_frames_only_with_source(live):
    """Child protocol, backtrace: helper frames dropped."""
    live.eval("def inner(n):\n    return 1 / n\n\ndef outer(m):\n    return inner(m - 1)")
    trace = live.eval("outer(1)")["error"]["backtrace"]
    assert len(trace) == 3
    assert trace[0].startswith("0: inner(n=0) at <image 1>:2: return 1 / n")
    assert trace[1].startswith("1: outer(m=1)")
    assert "<module>" in trace[2]


def test_a_deep_backtrace_is_bounded(live):
    """Child protocol: at most 25 frames of 300 characters."""
    reply = live.eval(f"def f({'n' * 400}): return f({'n' * 400})\nf(1)")
    assert reply["error"]["type"] == "RecursionError"
    assert len(reply["error"]["backtrace"]) <= 25
    assert max(map(len, reply["error"]["backtrace"])) <= 300
    assert live.value("1") == "1"


def test_causes_notes_and_groups_are_told(live):
    """Live images, a reply: full error detail."""
    reply = live.eval("try: 1/0\nexcept Exception as e: raise KeyError('k') from e")
    (cause,) = reply["error"]["causes"]
    assert (cause["type"], cause["message"]) == ("ZeroDivisionError", "division by zero")
    reply = live.eval("e = ValueError('v'); e.add_note('look here'); raise ExceptionGroup('g', [e])")
    assert "ValueError: v\nlook here" in reply["error"]["message"]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("1 +", 1),
        ("x = 1\n\nif x:\n  )", 4),
        ("def f(:\n pass", 1),
        ("'abc", 1),
        ("x = (1,\n2", 1),
        (" 1", 1),
    ],
)
def test_a_syntax_error_has_its_line(live, code, line):
    """Live images, a reply: positions relative to the code sent."""
    error = live.eval(code)["error"]
    assert error["type"] in ("SyntaxError", "IndentationError")
    assert error["line"] == line
    assert error["backtrace"] == []


def test_state_stays_between_evaluations_and_modules_are_apart(live):
    """Child protocol: package is the module, it persists."""
    live.eval("x = 1\nimport sys, types\nsys.modules['other'] = types.ModuleType('other')")
    assert live.eval("x = 'there'", package="other")["package"] == "other"
    assert live.value("x") == "'there'"
    assert live.eval("x", package="__main__")["forms"][0]["values"] == ["1"]


def test_an_unknown_module_is_refused_with_suggestions(live):
    """Child protocol, resolver: near matches."""
    error = live.eval("1", package="jsn")["error"]
    assert error["type"] == "ModuleNotFoundError"
    assert "json" in error["suggestions"]
    assert live.value("1") == "1"


def test_the_last_values_are_kept_in_underscores(live):
    """Child protocol, evaluation: `_` and `__`."""
    live.eval("41")
    live.eval("'later'")
    assert live.value("(_, __)") == "('later', 41)"


def test_await_works_at_the_top_level_and_tasks_stay(live):
    """Live images: top-level await on a private loop."""
    live.eval("import asyncio\nasync def f(n):\n    await asyncio.sleep(0)\n    return n * 2")
    assert live.value("await f(21)") == "42"
    live.eval("t = asyncio.ensure_future(f(4), loop=asyncio.get_event_loop())")
    assert live.value("await t") == "8"
    assert live.value("[await f(i) for i in range(3)]") == "[0, 2, 4]"


def test_future_imports_hold_for_later_evaluations(live):
    """Live images: state between calls."""
    live.eval("from __future__ import annotations")
    live.eval("def f(x: undefined_name): pass")
    assert live.value("f.__annotations__") == "{'x': 'undefined_name'}"


def test_tracebacks_printed_by_user_code_show_source(live):
    """Child protocol: linecache."""
    live.eval("def f():\n    return 1 / 0  # here")
    reply = live.eval("import traceback\ntry: f()\nexcept Exception: traceback.print_exc()")
    assert "return 1 / 0  # here" in reply["stderr"]
    assert "# here" in live.value("import inspect\ninspect.getsource(f)")


def test_warnings_have_lines_and_come_again_next_time(live):
    """Child protocol, warnings."""
    code = "import warnings\n\nwarnings.warn('careful')\nwarnings.warn('old', DeprecationWarning)\n1 is 1"
    for _time in range(2):
        found = live.eval(code)["warnings"]
        assert ("UserWarning", "careful", 3, "warning") in [_row(row) for row in found]
        assert ("DeprecationWarning", "old", 4, "style-warning") in [_row(row) for row in found]
        assert ("SyntaxWarning", 5) in [(row["type"], row["line"]) for row in found]


def _row(row):
    return row["type"], row["message"], row["line"], row["kind"]


def test_compile_defines_and_warns_and_has_no_values(live):
    """Child protocol, compile."""
    reply = live.ask("compile", code="def f(x):\n    return x + missing\n\nf\n1 is 1")
    assert reply["ok"]
    assert reply["forms"] == []
    assert [(row["type"], row["line"]) for row in reply["warnings"]] == [
        ("SyntaxWarning", 5),
        ("UndefinedName", 2),
    ]
    assert reply["changed"] == [{"kind": "function", "name": "__main__.f", "change": "defined"}]
    assert live.ask("compile", code="def (")["error"]["line"] == 1


@pytest.mark.parametrize(
    "code",
    [
        "class A:\n    x = 1\n    y = x + 1\n    def f(self): return __class__",
        "import os.path as p\nprint(p, end='')",
        "from os.path import *\njoin",
        "[q for q in range(3)]\n{k: v for k, v in {}.items()}",
        "def f():\n    global g\n    g = 1\ndef h(): return g",
        "try: pass\nexcept Exception as e: e\nwith open('/dev/null') as w: w\nfor i in (): i",
        "def f(a, *b, c=1, **d):\n    def g(): return a, b, c, d\n    return g",
        "match 3:\n    case int(n): n",
        "lambda z: z\n(w := 3)\nw",
        "__name__, __doc__, __builtins__",
    ],
)
def test_compile_does_not_cry_wolf(live, code):
    """Child protocol, compile: undefined names only."""
    assert live.ask("compile", code=code)["warnings"] == []


# --- output ------------------------------------------------------------------------------------------------


def test_output_is_cut_at_the_stream_and_counted(live):
    """Child protocol: output capped at the stream."""
    reply = live.eval("print('x' * 500); import sys; print('e' * 300, file=sys.stderr)", limit=100)
    assert reply["stdout"] == "x" * 100
    assert reply["stderr"] == "e" * 100
    assert reply["truncated"] == {"stdout": 501, "stderr": 301}


def test_fifty_megabytes_of_output_cost_little_memory_and_time(family):
    """Child protocol: 50 MB of prints below 100 MB and a few seconds."""
    link = family.live()
    began = time.monotonic()
    reply = link.eval("for i in range(500_000): print('y' * 99)")
    assert time.monotonic() - began < 10
    assert reply["truncated"]["stdout"] == 50_000_000
    assert len(reply["stdout"]) == 100_000
    link.eval("print('z' * 50_000_000)")
    reply = link.eval("import sys\nfor i in range(2_000_000): sys.stdout.write('ab')")
    assert reply["truncated"]["stdout"] == 4_000_000
    assert int(link.value("import resource; resource.getrusage(resource.RUSAGE_SELF).ru_maxrss")) < 100 * 1024
    link.close()


def test_bytes_and_text_written_to_the_streams_are_kept_in_order(live):
    """Child protocol, streams: sys.stdout.buffer."""
    code = "import sys\nprint('a')\nsys.stdout.buffer.write('é'.encode())\nsys.stdout.buffer.write(b'\\xff|\\xe2\\x82')\nprint('z')"
    assert live.eval(code)["stdout"] == "a\né\ufffd|z\n\ufffd"


def test_stdin_is_empty(live):
    """Child protocol: stdin is empty."""
    assert live.eval("input('name? ')")["error"]["type"] == "EOFError"
    assert (
        live.value("import sys; sys.stdin.read(), list(sys.stdin), sys.stdin.buffer.read()")
        == "('', [], b'')"
    )


def test_prints_of_child_processes_and_c_code_go_to_the_log(family):
    """Live images, wire: prints from elsewhere never touch the protocol."""
    link = family.live()
    code = "import os, subprocess, sys\nsubprocess.run(['echo', 'from-echo'], stdout=sys.stdout)\nos.write(1, b'raw-write')"
    assert link.eval(code)["stdout"] == ""
    family.log.flush()
    logged = Path(family.log.name).read_bytes()
    assert b"from-echo" in logged
    assert b"raw-write" in logged
    link.close()


def test_a_thread_that_prints_after_the_evaluation_reaches_the_log_not_the_next_reply(family):
    """Live images, wire."""
    link = family.live()
    link.eval(
        "import threading\ngo = threading.Event()\nt = threading.Thread(target=lambda: (go.wait(20), print('late-print')))\nt.start()"
    )
    assert link.ask("state")["state"]["threads"] == 2
    assert link.eval("go.set(); t.join(20)")["stdout"] in ("late-print\n", "")
    assert link.eval("1")["stdout"] == ""
    link.close()


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("'\\ud800'", "'\\ud800'"),
        ("'é漢😀'", "'é漢😀'"),
        ("float('nan'), float('inf')", "(nan, inf)"),
        ("'\\x00\\x1f\\x7f'", "'\\x00\\x1f\\x7f'"),
        ("[1, [2, (3,)], {'a': {4}}, frozenset(), set()]", "[1, [2, (3,)], {'a': {4}}, frozenset(), set()]"),
        ("frozenset({1})", "frozenset({1})"),
        ("l = [1]; l.append(l); l", "[1, [...]]"),
        ("d = {}; d['d'] = d; d", "{'d': {...}}"),
        ("()", "()"),
        ("10**100", str(10**100)),
        ("...", "Ellipsis"),
        ("range(3)", "range(0, 3)"),
        ("b'\\xff'", "b'\\xff'"),
    ],
)
def test_values_print_as_python_prints_them(live, code, printed):
    """Child protocol: printing of values."""
    assert live.eval(code)["forms"][-1]["values"] == [printed]


@pytest.mark.parametrize(
    "code",
    [
        "'a' * 10**8",
        "b'a' * 10**8",
        "list(range(10**6))",
        "dict.fromkeys(range(10**6))",
        "set(range(10**6))",
        "10**100_000",
        "x = []\nfor _ in range(100_000): x = [x]\nx",
        "['a' * 10**6] * 1000",
        "class R:\n    def __repr__(self): return 'r' * 10**8\nR()",
    ],
)
def test_huge_values_are_printed_within_the_limit(live, code):
    """Child protocol: bounded length and depth."""
    reply = live.eval(code, value_limit=1000)
    assert reply["ok"], reply["error"]
    assert len(reply["forms"][-1]["values"][0]) <= 1010
    assert reply["truncated"]["values"] == 1


def test_lone_surrogates_are_replaced_in_every_text(live):
    """Child protocol: JSON text is valid whatever the strings hold."""
    reply = live.eval(
        "print('\\ud800|\\x00')\nimport warnings\nwarnings.warn('\\udfff')\nraise ValueError('\\udc80')"
    )
    assert reply["stdout"] == "\ufffd|\x00\n"
    assert reply["warnings"][0]["message"] == "\ufffd"
    assert reply["error"]["message"] == "\ufffd"


# --- definitions -------------------------------------------------------------------------------------------


def changes(reply):
    return [(row["kind"], row["name"].removeprefix("__main__."), row["change"]) for row in reply["changed"]]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(): pass", [("function", "f", "defined")]),
        ("class C:\n    def m(self): pass", [("class", "C", "defined")]),
        ("x = 1", [("variable", "x", "defined")]),
        ("import json", [("import", "json", "defined")]),
        ("if True:\n    def f(): pass", [("function", "f", "defined")]),
        ("exec('def f(): pass')", [("function", "f", "defined")]),
        ("globals()['g'] = lambda: 0", [("function", "g", "defined")]),
        ("def mk():\n    global made\n    made = 1\nmk()\ndel mk", [("variable", "made", "defined")]),
        ("f = 1\ndel f", []),
        ("for i in range(3): pass", [("variable", "i", "defined")]),
        ("setattr(__import__('sys').modules['__main__'], 'late', 5)", [("variable", "late", "defined")]),
        ("def f(): pass\n1 / 0", [("function", "f", "defined")]),
        (
            "from os.path import join, split",
            [("function", "join", "defined"), ("function", "split", "defined")],
        ),
        (
            "a, (b, *c) = 1, (2, 3)",
            [("variable", "a", "defined"), ("variable", "b", "defined"), ("variable", "c", "defined")],
        ),
    ],
)
def test_new_definitions_are_seen_whatever_the_form(live, code, expected):
    """Child protocol: definitions by real changes of the image."""
    assert changes(live.eval(code)) == expected


def test_redefinitions_removals_and_methods_are_seen(live):
    """Child protocol: defined, redefined, removed."""
    live.eval("def f(): pass\nclass C:\n    def m(self): pass\nx = 1")
    assert changes(live.eval("def f(): return 2")) == [("function", "f", "redefined")]
    assert changes(live.eval("C.m = lambda self: 1\nC.k = 3")) == [
        ("method", "C.m", "redefined"),
        ("attribute", "C.k", "defined"),
    ]
    assert changes(live.eval("del C.k")) == [("attribute", "C.k", "removed")]
    assert changes(live.eval("del f, x")) == [("function", "f", "removed"), ("variable", "x", "removed")]
    assert changes(live.eval("x = object()")) == [("variable", "x", "defined")]
    assert changes(live.eval("del x; x = object()")) == [("variable", "x", "redefined")]
    assert changes(live.eval("1 + 1\nC().m()")) == []


def test_modules_made_by_hand_are_followed(live):
    """Child protocol: definitions in every module of the user's."""
    live.eval("import sys, types\nm = sys.modules['mine'] = types.ModuleType('mine')\nm.a = 1")
    reply = live.eval("def g(): pass\na = 2", package="mine")
    assert [row["name"] for row in reply["changed"]] == ["mine.a", "mine.g"]
    data = live.ask("definitions")["data"]
    assert {"name": "mine.g", "arglist": "()"} in data["functions"]
    gone = live.eval("del sys.modules['mine']", package="__main__")
    assert {"kind": "module", "name": "mine", "change": "removed"} in gone["changed"]


def test_the_listing_shows_what_still_exists_sorted_by_name(live):
    """Seed 003, list-definitions."""
    live.eval(
        "def z(a, b=2): pass\ndef f(): pass\nv = [1]\nimport os\nclass K:\n    def __init__(self, q): pass\ndef gone(): pass"
    )
    live.eval("del gone")
    data = live.ask("definitions")["data"]
    assert data["functions"] == [{"name": "f", "arglist": "()"}, {"name": "z", "arglist": "(a, b=2)"}]
    assert data["variables"] == [{"name": "v", "value": "[1]"}]
    assert data["classes"] == [{"name": "K", "arglist": "(q)"}]
    assert data["imports"][0]["name"] == "os"
    assert data["macros"] == []
    assert list(live.ask("definitions", kind="functions")["data"]) == ["functions"]
    assert not live.ask("definitions", kind="spells")["ok"]


def test_looking_for_changes_keeps_nothing_alive(live):
    """Live images: a checked image behaves like a plain one."""
    live.eval("class D:\n    def __del__(self): print('gone')\nd = D()")
    assert live.eval("del d; print('after')")["stdout"] == "gone\nafter\n"


# --- interrupts --------------------------------------------------------------------------------------------


class Signpost:
    """A named pipe in which evaluated code says how far it has come."""

    def __init__(self, link):
        link.count += 1
        self.path = Path(link.family.path).parent / f"post-{link.outer}-{link.count}"
        os.mkfifo(self.path)
        self.handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.code = f"__import__('pathlib').Path({str(self.path)!r}).write_text('here')"

    def wait(self):
        assert select.select([self.handle], [], [], PATIENCE)[0], "the code never came here"
        assert os.read(self.handle, 10) == b"here"
        os.close(self.handle)


def interrupt(link, code):
    """Evaluate the code and send SIGINT once it has begun."""
    post = Signpost(link)
    code = code if "POST" in code else f"POST\n{code}"
    link.send("eval", code="print('partial')\n" + code.replace("POST", post.code))
    post.wait()
    os.kill(link.outer, signal.SIGINT)


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "import threading; threading.Lock().acquire() and None; l = threading.Lock(); l.acquire(); l.acquire()",
        "import asyncio; await asyncio.sleep(60)",
        "class R:\n    def __repr__(self):\n        while True: pass\nR()",
        "import signal; signal.signal(signal.SIGUSR1, lambda *a: None); signal.pause()",
        "import select; select.select([], [], [], 60)",
        "sum(i for i in iter(int, 1))",
        "import subprocess; subprocess.run(['sleep', '60'])",
        "input\nfor x in iter(lambda: 1, 2): str(x)",
    ],
)
def test_an_interrupt_ends_the_evaluation_and_keeps_the_state(live, code):
    """Child protocol: SIGINT during an evaluation."""
    live.eval("kept = 5")
    interrupt(live, code)
    reply = live.receive()
    assert reply["error"]["type"] == "KeyboardInterrupt"
    assert reply["error"]["interrupted"] is True
    assert reply["stdout"] == "partial\n"
    assert live.value("kept") == "5"


def test_an_interrupt_at_rest_does_nothing(live):
    """Child protocol: SIGINT at any other moment does nothing."""
    for _time in range(20):
        os.kill(live.outer, signal.SIGINT)
        assert live.value("1 + 2") == "3"


def test_the_zygote_and_checkpoints_do_not_mind_interrupts(family, live):
    """Child protocol: the zygote ignores SIGINT."""
    checkpoint = live.fork("checkpoint", "c")
    os.kill(family.zygote.outer, signal.SIGINT)
    os.kill(checkpoint.outer, signal.SIGINT)
    assert family.zygote.ask("ping")["ok"]
    assert checkpoint.ask("ping")["ok"]


def test_the_handler_is_back_after_user_code_replaced_it(live):
    """Child protocol: reinstall the handler before each evaluation."""
    live.eval("import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)")
    os.kill(live.outer, signal.SIGINT)
    assert live.value("1") == "1"
    live.eval(
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}); signal.signal(signal.SIGINT, signal.SIG_IGN)"
    )
    interrupt(live, "while True: pass")
    assert live.receive()["error"]["interrupted"]


def test_a_second_interrupt_ends_what_swallowed_the_first(live):
    """Live images, the ladder."""
    second = Signpost(live)
    interrupt(
        live,
        f"try:\n    POST\n    while True: pass\nexcept KeyboardInterrupt: print('swallowed')\n{second.code}\nwhile True: pass",
    )
    second.wait()
    os.kill(live.outer, signal.SIGINT)
    reply = live.receive()
    assert reply["error"]["interrupted"]
    assert reply["stdout"] == "partial\nswallowed\n"


# --- processes ---------------------------------------------------------------------------------------------


def test_a_checkpoint_restores_the_state_after_the_live_process_was_killed(live):
    """Live images, checkpoint and rollback."""
    live.eval("k = 41\nimport random\nrandom.seed(3)")
    checkpoint = live.fork("checkpoint", "c1")
    expected = live.value("random.random()")
    live.eval("k = 0")
    os.kill(live.outer, signal.SIGKILL)
    assert live.is_ended()
    for _time in range(2):
        restored = checkpoint.fork("live", "again")
        assert restored.value("k") == "41"
        assert restored.value("random.random()") == expected
        restored.close()


def test_a_checkpoint_is_taken_after_the_reply_when_asked(live):
    """Child protocol, then_fork."""
    reply = live.eval("n = 1", then_fork="c13")
    assert reply["ok"]
    checkpoint = live.family.accept()
    assert (checkpoint.hello["role"], checkpoint.hello["tag"]) == ("checkpoint", "c13")
    live.eval("n = 2")
    assert checkpoint.fork("live").value("n") == "1"


def test_a_reply_tells_why_no_checkpoint_follows_it(live):
    """Child protocol, then_fork: unkept."""
    reply = live.eval(
        "import threading\ngo = threading.Event()\nt = threading.Thread(target=go.wait, args=(20,), name='worker')\nt.start()",
        then_fork="c",
    )
    assert "1 user thread is running: worker" in reply["unkept"]
    refused = live.ask("fork", role="checkpoint", tag="d")
    assert refused["error"]["type"] == "CANNOT-FORK"
    assert "worker" in refused["error"]["message"]
    assert "unkept" not in live.eval("go.set(); t.join(20)")
    assert live.fork("checkpoint", "e").ask("ping")["ok"]


def test_a_checkpoint_outlives_the_process_it_came_from_and_ends_with_its_socket(live):
    """Child protocol: every process ends when its own socket closes."""
    checkpoint = live.fork("checkpoint")
    live.close()
    assert is_gone_soon(live.outer)
    assert checkpoint.ask("ping")["ok"]
    checkpoint.close()
    assert is_gone_soon(checkpoint.outer)


def test_exit_ends_the_process_at_once(live):
    """Child protocol, exit."""
    live.send("exit")
    assert live.is_ended()
    assert is_gone_soon(live.outer)


def test_dropped_copies_leave_no_zombies(live):
    """Child protocol: each process reaps its own."""
    copies = [live.fork("checkpoint") for _time in range(3)]
    for copy in copies:
        copy.close()
        assert is_gone_soon(copy.outer)
    live.ask("ping")
    children = Path(f"/proc/{live.outer}/task/{live.outer}/children").read_text().split()
    assert children == []


def test_children_of_user_code_are_left_to_user_code(live):
    """Child protocol: reaping does not take a status away from subprocess."""
    live.eval("import subprocess\np = subprocess.Popen(['sh', '-c', 'exit 7'])")
    live.fork("checkpoint").close()
    live.ask("ping")
    assert live.value("p.wait(20)") == "7"


def test_everything_ends_when_the_parent_goes(tmp_path):
    """Live images, orphans: a test counts processes after every kind of ending."""
    family = Family(tmp_path)
    live = family.live()
    checkpoint = live.fork("checkpoint")
    live.send("eval", code="while True:\n    try:\n        while True: pass\n    except BaseException: pass")
    family.zygote.close()
    for pid in (family.zygote.outer, live.outer, checkpoint.outer):
        assert is_gone_soon(pid) or not is_running(pid)
    family.stop()


def test_an_orphaned_checkpoint_is_reaped_by_the_zygote(family):
    """Child protocol: the zygote is a child subreaper."""
    live = family.live()
    checkpoint = live.fork("checkpoint")
    os.kill(live.outer, signal.SIGKILL)
    assert live.is_ended()
    checkpoint.close()
    assert is_gone_soon(checkpoint.outer)
    family.zygote.ask("ping")
    children = Path(f"/proc/{family.zygote.outer}/task/{family.zygote.outer}/children").read_text().split()
    assert str(checkpoint.outer) not in children


@pytest.mark.skipif(landlock_version() < 6, reason="this kernel cannot scope signals")
def test_a_live_process_cannot_signal_the_zygote_or_its_siblings(family, live):
    """Live images, crash-proof: the zygote outlives whatever user code does."""
    sibling = family.live()
    for pid in (family.zygote.outer, sibling.outer):
        assert live.eval(f"import os\nos.kill({pid}, 15)")["error"]["type"] == "PermissionError"
    assert family.zygote.ask("ping")["ok"]
    assert sibling.ask("ping")["ok"]
    live.eval("import subprocess\np = subprocess.Popen(['sleep', '60'])\np.kill()")
    assert live.value("p.wait(20)") == "-9"


def test_a_polite_signal_ends_a_process_at_rest(live):
    """Live images: nothing is left that only SIGKILL can end while it does nothing."""
    os.kill(live.outer, signal.SIGTERM)
    assert live.is_ended()


# --- preview -----------------------------------------------------------------------------------------------

WRITES = [
    ("open(target, 'w')", "write"),
    ("open(existing, 'a')", "write"),
    ("import os; os.remove(existing)", "write"),
    ("import os; os.rename(existing, target)", "write"),
    ("import os; os.mkdir(target)", "write"),
    ("import os; os.symlink('x', target)", "write"),
    ("import os; os.truncate(existing, 0)", "write"),
    ("import os; os.chmod(existing, 0)", "write"),
    ("import pathlib; pathlib.Path(target).write_text('x')", "write"),
    ("import os; os.open(target, os.O_CREAT | os.O_WRONLY)", "write"),
    ("import tempfile; tempfile.mkdtemp(dir=target[:-4])", "write"),
    ("import socket; socket.create_connection(('127.0.0.1', 9))", "connect"),
    ("import socket; socket.socket(socket.AF_UNIX).connect(sock)", "connect"),
    ("import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))", "connect"),
    ("import subprocess; subprocess.run(['touch', target])", "process"),
    ("import os; os.system('touch ' + target)", "process"),
    ("import os; os.kill(os.getppid(), 9)", "process"),
    ("import os; os.fork()", "process"),
]


@pytest.fixture
def preview(live, tmp_path):
    existing = tmp_path / "existing"
    existing.write_text("as it was")
    live.eval(
        f"target = {str(tmp_path / 'new1')!r}; existing = {str(existing)!r}; sock = {live.family.path!r}"
    )
    live.eval(f"already = open({str(tmp_path / 'already')!r}, 'w', buffering=1)")
    link = live.fork("preview")
    answer = link.ask("confine")
    assert answer["ok"]
    if not answer["confined"]:
        pytest.skip(answer["reason"])
    assert answer["level"].startswith("landlock-")
    yield link
    link.close()


@pytest.mark.parametrize(("code", "kind"), WRITES)
def test_a_preview_refuses_effects_and_reports_them(preview, tmp_path, code, kind):
    """Live images, preview: attempted effects."""
    reply = preview.eval(f"try:\n    exec({code!r})\nexcept PermissionError: print('refused')")
    assert reply["stdout"] == "refused\n"
    assert reply["effects"][0]["kind"] == kind
    assert reply["effects"][0]["outcome"] == "refused"
    assert (tmp_path / "existing").read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["already", "existing"]
    assert preview.eval("1")["effects"] == []


def test_a_preview_shows_values_and_changes_and_leaves_the_live_process_alone(preview, live, tmp_path):
    """Live images, preview: evaluate in a throw-away fork."""
    reply = preview.eval("def f(): pass\nprint('would', file=already)\nopen(existing).read()")
    assert reply["forms"][-1]["values"] == ["'as it was'"]
    assert changes(reply) == [("function", "f", "defined")]
    assert live.eval("f")["error"]["type"] == "NameError"
    live.eval("already.write('still writes'); already.flush(); open(target, 'w').write('x')")
    assert (tmp_path / "already").read_text() == "still writes"
    assert (tmp_path / "new1").exists()


def test_the_wall_holds_without_the_witness(preview, tmp_path):
    """Live images, preview: Landlock holds where no audit event is raised."""
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "made = libc.creat(target.encode(), 0o600), libc.unlink(existing.encode()), libc.kill(1, 0)\nmade"
    )
    assert preview.value(code) == "(-1, -1, -1)"
    assert (tmp_path / "existing").read_text() == "as it was"


def test_a_shared_mapping_means_not_confined(live, tmp_path):
    """Live images, preview: where confinement is incomplete it says so."""
    live.eval(
        f"import mmap\nf = open({str(tmp_path / 'm')!r}, 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096)"
    )
    answer = live.fork("preview").ask("confine")
    assert answer["confined"] is False
    assert str(tmp_path / "m") in answer["reason"]


def test_imports_in_a_preview_do_not_count_as_writes(preview):
    """Live images, preview: no bytecode files."""
    reply = preview.eval("import colorsys")
    assert reply["ok"]
    assert reply["effects"] == []


# --- introspection -----------------------------------------------------------------------------------------

SETUP = '''
import dataclasses, functools
LIMIT = 10
class Base:
    """The base."""
    kind: str = "b"
class Thing(Base):
    __slots__ = ("a",)
    def __init__(self, a, *, b: int = 2): self.a = a
    def method(self, x): return helper(x)
    @property
    def prop(self): return 1 / 0
    @staticmethod
    def static(q): return LIMIT
    @classmethod
    def make(cls, n): return cls(n)
@dataclasses.dataclass
class Data(Base):
    x: int
    y: list[int] = dataclasses.field(default_factory=list)
    z: "str" = "zed"
def helper(n, /, m=3, *rest, k: int | None = None, **more) -> int:
    """Help out."""
    return n + LIMIT
def caller(): return helper(1)
def indirect(): return [helper(i) for i in range(3)]
def by_name(obj): return obj.method(1)
def setter():
    global LIMIT
    LIMIT = 11
alias = helper
def uses_alias(): return alias(2)
cached = functools.lru_cache(helper)
part = functools.partial(helper, 1)
'''


@pytest.fixture
def world(live):
    assert live.eval(SETUP)["ok"]
    return live


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("helper", "function", "Help out."),
        ("Thing", "class", "(a, *, b: int = 2)"),
        ("LIMIT", "variable", "10"),
        ("Base", "class", "The base."),
        ("Thing.method", "function", "(self, x)"),
        ("Thing.prop", "variable", "property"),
        ("__main__:Thing.method", "function", "(self, x)"),
        ("__main__.helper", "function", "Help out."),
        ("json.dumps", "function", "Serialize"),
        ("json:dumps", "function", "Serialize"),
        ("len", "function", "(obj, /)"),
        ("dict", "class", "dict"),
        ("json", "import", "module"),
        ("os.path.join", "function", "(a, *p)"),
    ],
)
def test_describe_tells_kind_arguments_documentation_and_value(world, name, kind, expected):
    """Seed 001, describe_symbol."""
    reply = world.ask("describe", symbol=name)
    assert reply["ok"], reply
    assert reply["data"]["kind"] == kind
    assert expected in reply["text"]


@pytest.mark.parametrize(
    ("op", "field"),
    [
        ("describe", "symbol"),
        ("arglist", "function"),
        ("who_calls", "function"),
        ("who_references", "variable"),
        ("class_slots", "class"),
    ],
)
def test_an_unknown_name_is_answered_with_near_ones(world, op, field):
    """Child protocol, resolver: suggestions."""
    error = world.ask(op, **{field: "helpr"})["error"]
    assert error["type"] == "NameError"
    assert "helper" in error["suggestions"]
    assert "json.dumps" in world.ask(op, **{field: "json.dmps"})["error"]["suggestions"]
    assert world.ask(op, **{field: "not a name("})["error"]["type"] == "NameError"
    assert world.ask(op, **{field: "x", "package": "jsonn"})["error"]["type"] == "ModuleNotFoundError"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("helper", "helper(n, /, m=3, *rest, k: int | None = None, **more) -> int"),
        ("Thing", "Thing(a, *, b: int = 2)"),
        ("Thing.make", "make(n)"),
        ("Thing.static", "static(q)"),
        ("cached", "cached(n, /, m=3, *rest, k: int | None = None, **more) -> int"),
        ("part", "part(m=3, *rest, k: int | None = None, **more) -> int"),
        (
            "Data",
            "Data(x: int, y: list[int] = <dataclasses._HAS_DEFAULT_FACTORY_CLASS object>, z: str = 'zed') -> None",
        ),
        ("len", "len(obj, /)"),
        ("print", "print(*args, sep=' ', end='\\n', file=None, flush=False)"),
        ("str.upper", "upper(self, /)"),
        ("Base", "Base()"),
        ("dict", "dict: no argument list is known"),
    ],
)
def test_an_argument_list_is_written_as_python_would(world, name, expected):
    """Seed 001, function_arglist."""
    assert world.ask("arglist", function=name)["text"] == expected


def test_a_thing_that_is_not_callable_has_no_argument_list(world):
    """Seed 001, function_arglist."""
    assert world.ask("arglist", function="LIMIT")["error"]["type"] == "TypeError"


def test_apropos_finds_the_users_names_first_and_counts_the_rest(world):
    """Seed 001, apropos_search."""
    reply = world.ask("apropos", pattern="HELP")
    assert reply["data"]["matches"][0]["name"] == "__main__.helper"
    reply = world.ask("apropos", pattern="e", limit=5)
    assert len(reply["data"]["matches"]) == 5
    assert reply["data"]["total"] > 100
    assert [
        row["name"] for row in world.ask("apropos", pattern="dumps", package="json")["data"]["matches"]
    ] == ["json.dumps"]
    assert world.ask("apropos", pattern="no-such-thing")["ok"]


def test_who_calls_marks_what_is_exact_and_what_is_by_name(world):
    """Seed 001, who_calls."""
    found = {row["name"]: row["match"] for row in world.ask("who_calls", function="helper")["data"]["found"]}
    assert found == dict.fromkeys(
        ("__main__.caller", "__main__.indirect", "__main__.Thing.method", "__main__.uses_alias"), "exact"
    )
    found = {
        row["name"]: row["match"] for row in world.ask("who_calls", function="Thing.method")["data"]["found"]
    }
    assert found == {"__main__.by_name": "by-name"}


def test_who_references_tells_readers_from_setters(world):
    """Seed 001, who_references."""
    found = {
        row["name"]: row["how"] for row in world.ask("who_references", variable="LIMIT")["data"]["found"]
    }
    assert found == {"__main__.helper": "reads", "__main__.setter": "sets", "__main__.Thing.static": "reads"}


def test_a_modules_symbols_are_the_exported_ones_unless_asked(world):
    """Seed 001, list_package_symbols."""
    names = [row["name"] for row in world.ask("package_symbols", package="json")["data"]["symbols"]]
    assert {"dumps", "loads", "JSONEncoder"} <= set(names)
    assert "_default_encoder" not in names
    names = [
        row["name"]
        for row in world.ask("package_symbols", package="json", include_internal=True)["data"]["symbols"]
    ]
    assert "_default_encoder" in names
    assert not world.ask("package_symbols", package="jsom")["ok"]


def test_class_slots_come_from_annotations_slots_fields_and_properties(world):
    """Seed 001, class_slots."""
    rows = {row["name"]: row for row in world.ask("class_slots", **{"class": "Thing"})["data"]["slots"]}
    assert rows["kind"] == {
        "name": "kind",
        "class": "Base",
        "source": "annotation",
        "type": "str",
        "default": "'b'",
    }
    assert rows["a"]["source"] == "__slots__"
    assert rows["prop"]["source"] == "property"
    rows = {row["name"]: row for row in world.ask("class_slots", **{"class": "Data"})["data"]["slots"]}
    assert (rows["x"]["source"], rows["x"]["type"]) == ("field", "int")
    assert rows["z"]["default"] == "'zed'"
    assert rows["y"]["type"] == "list[int]"
    assert world.ask("class_slots", **{"class": "LIMIT"})["error"]["type"] == "TypeError"


def test_the_hierarchy_shows_both_directions(world):
    """Seed 001, class_hierarchy."""
    data = world.ask("class_hierarchy", **{"class": "Base"})["data"]
    assert data["superclasses"] == ["object"]
    assert [row["name"] for row in data["subclasses"]] == ["Data", "Thing"]
    assert world.ask("class_hierarchy", **{"class": "Thing"})["data"]["superclasses"] == ["Base", "object"]
    assert world.ask("class_hierarchy", **{"class": "type"})["ok"]
    assert world.ask("class_hierarchy", **{"class": "object"})["ok"]


def test_macroexpand_normalises_and_shows_instructions_in_full(live):
    """Seed 001, macroexpand_form."""
    reply = live.ask("macroexpand", form="if(x):y=( 1 )")
    assert reply["text"] == "if x:\n    y = 1"
    assert "RETURN" in live.ask("macroexpand", form="f(1)", full=True)["text"]
    assert live.ask("macroexpand", form="1 +")["error"]["type"] == "SyntaxError"


def test_objects_can_be_looked_into_by_number(world):
    """Child protocol, inspect."""
    reply = world.eval("t = Thing([1, {'k': (2,)}])\nt")
    number = reply["objects"][0]
    data = world.ask("inspect", object=number)["data"]
    assert data["children"][0]["label"] == ".a"
    inner = data["children"][0]["object"]
    assert world.ask("inspect", object=inner)["data"]["children"][0] == {
        "label": "[0]",
        "value": "1",
        "type": "int",
        "object": None,
    }
    assert world.ask("inspect", object=number, path=["a", 1, "['k']"])["data"]["preview"] == "(2,)"
    assert world.ask("inspect", object=number, path=["zz"])["error"]["type"] == "NO-SUCH-CHILD"
    assert world.ask("inspect", object=99999)["error"]["type"] == "NO-SUCH-OBJECT"
    assert world.eval("1")["objects"] == [None]


def test_big_objects_are_shown_in_part_and_old_ones_forgotten(live):
    """Child protocol, inspect: bounded."""
    first = live.eval("list(range(10**6))")["objects"][0]
    data = live.ask("inspect", object=first)["data"]
    assert data["total"] == 10**6
    assert len(data["children"]) == 100
    second = live.eval("[[i] for i in range(2000)]")["objects"][0]
    for start in range(0, 1100, 100):
        number = live.eval(f"[[i] for i in range({start}, {start + 100})]")["objects"][0]
        live.ask("inspect", object=number)
    assert live.ask("inspect", object=second)["error"]["type"] == "NO-SUCH-OBJECT"


SPIES = """
count = 0
def touch(*a, **k):
    global count
    count += 1
    raise RuntimeError("touched")
class Meta(type):
    __repr__ = __instancecheck__ = __subclasscheck__ = __iter__ = __len__ = touch
    __getattr__ = touch
    def __getattribute__(cls, name): return touch()
    def __eq__(cls, other): return touch()
    def __hash__(cls): return touch()
    __name__ = __doc__ = __mro__ = __dict__ = property(touch)
class Spy(metaclass=Meta):
    __repr__ = __str__ = __eq__ = __len__ = __iter__ = __bool__ = __getattr__ = __dir__ = __format__ = __call__ = touch
    def __getattribute__(self, name): return touch()
    def __hash__(self): return touch()
    __class__ = __doc__ = __signature__ = __wrapped__ = __name__ = property(touch)
    prop = property(touch)
class Listing(list):
    __iter__ = __len__ = __getitem__ = __repr__ = __getattribute__ = touch
class Mapping(dict):
    __iter__ = __len__ = __getitem__ = __repr__ = items = keys = get = __getattribute__ = touch
class Key(str):
    def __eq__(self, other): return touch()
    __hash__ = str.__hash__
class Descriptor:
    __get__ = __set__ = __set_name__ = touch
    def __set_name__(self, owner, name): pass
class Holder:
    field = Descriptor()
    other: int = 3
    def __init__(self): self.__dict__["plain"] = spy
class Answer(__import__("types").ModuleType):
    __getattribute__ = __getattr__ = __repr__ = touch
import sys
spy = object.__new__(Spy)
listing = Listing([1, spy]); mapping = Mapping(a=spy); holder = Holder()
sys.modules["trap"] = Answer("trap")
globals()[Key("needle")] = 1
table = {Key("k"): spy, "s": spy}
def taking(a=spy, *, b=listing) -> spy: return spy
taking.__wrapped__ = spy
def calls(): return spy.method() or Spy.other or taking()
everything = [spy, listing, mapping, holder, table, Spy, Holder]
count = 0
None
"""


def test_safe_operations_run_no_code_of_the_users(live):
    """Live images, introspection: "safe" tools run no user code."""
    reply = live.eval(SPIES)
    assert reply["ok"], reply["error"]
    assert live.ask("definitions")["ok"]
    for name in (
        "spy",
        "Spy",
        "listing",
        "mapping",
        "holder",
        "Holder",
        "Holder.field",
        "taking",
        "everything",
        "trap",
        "needle",
        "holder.plain",
        "spy.prop",
        "Spy.prop",
        "nothing",
    ):
        for op, field in (
            ("describe", "symbol"),
            ("arglist", "function"),
            ("who_calls", "function"),
            ("who_references", "variable"),
            ("class_slots", "class"),
            ("class_hierarchy", "class"),
        ):
            assert live.ask(op, **{field: name}).get("error", {}).get("type") != "INTERNAL-ERROR", (op, name)
    for pattern in ("p", "needle", ""):
        assert live.ask("apropos", pattern=pattern)["ok"]
    for package in ("__main__", "trap"):
        assert live.ask("package_symbols", package=package, include_internal=True)["ok"]
        assert live.ask("describe", symbol="x", package=package)["error"]["type"] == "NameError"
    assert live.ask("macroexpand", form="spy + spy", full=True)["ok"]
    number = live.ask("describe", symbol="everything")["data"]["object"]
    data = live.ask("inspect", object=number)["data"]
    for child in data["children"]:
        deeper = live.ask("inspect", object=child["object"])["data"]
        for grandchild in deeper["children"]:
            if grandchild["object"]:
                live.ask("inspect", object=grandchild["object"])
    assert live.value("count") == "0"


# --- systems -----------------------------------------------------------------------------------------------


def test_load_system_imports_an_installed_package_and_tells_its_version(live):
    """Seed 003, load-system."""
    reply = live.ask("load_system", system="click")
    assert reply["ok"], reply
    assert (reply["name"], reply["version"]) == (
        "click",
        __import__("importlib.metadata").metadata.version("click"),
    )
    assert live.value("import click, msgspec\nmsgspec.json.encode({'a': 1})") == "b'{\"a\":1}'"
    assert live.ask("load_system", system="json")["version"] == live.hello["version"]
    reply = live.eval(
        "from click.testing import CliRunner\n@click.command()\ndef hi(): click.echo('hello')\nprint(CliRunner().invoke(hi).output)"
    )
    assert reply["stdout"] == "hello\n\n"


def test_a_missing_system_is_told_with_near_names(live):
    """Seed 003, load-system."""
    error = live.ask("load_system", system="clck")["error"]
    assert error["type"] == "ModuleNotFoundError"
    assert "click" in error["suggestions"]
    assert live.ask("load_system", system="../evil")["error"]["type"] == "ModuleNotFoundError"


def test_loading_captures_output_and_errors_of_the_module(family, tmp_path):
    """Seed 003, load-system."""
    (tmp_path / "loud_module.py").write_text("print('loading')\ndef f(): pass\n")
    (tmp_path / "bad_module.py").write_text("x = 1\n1 / 0\n")
    live = family.live()
    live.eval(f"import sys; sys.path.insert(0, {str(tmp_path)!r})")
    reply = live.ask("load_system", system="loud_module")
    assert reply["stdout"] == "loading\n"
    assert {"kind": "module", "name": "loud_module", "change": "defined"} in reply["changed"]
    reply = live.ask("load_system", system="bad-module")
    assert reply["error"]["type"] == "ZeroDivisionError"
    assert "bad_module.py:2" in reply["error"]["backtrace"][0]
    assert changes(live.eval("import loud_module\nloud_module.f = 1"))[-1] == (
        "variable",
        "loud_module.f",
        "redefined",
    )
    live.close()


def test_plain_lines_of_pth_files_are_followed_and_code_lines_are_not(tmp_path):
    """Live images: how the packages of a user become visible."""
    (tmp_path / "site").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "editable_thing.py").write_text("value = 5")
    (tmp_path / "site" / "a.pth").write_text(
        f"import os; os.mkdir({str(tmp_path / 'ran')!r})\n{tmp_path / 'project'}\n/not/there\n"
    )
    family = Family(tmp_path, "--path", str(tmp_path / "site"))
    try:
        assert family.live().value("import editable_thing\neditable_thing.value") == "5"
        assert not (tmp_path / "ran").exists()
    finally:
        family.stop()


# --- hostile forms -----------------------------------------------------------------------------------------

ANSWERS = [
    "import os; os.closerange(3, 1000)",
    "import os; os.closerange(0, os.sysconf('SC_OPEN_MAX'))",
    "import os; [os.close(n) for n in (0, 1, 2)]",
    "import os; os.dup2(os.open('/dev/null', os.O_RDWR), 1); print('x', flush=True)",
    "import sys; sys.exit(3)",
    "exit()",
    "quit(1)",
    "raise SystemExit",
    "raise KeyboardInterrupt",
    "raise GeneratorExit",
    "class B(BaseException): pass\nraise B",
    "class E(Exception):\n    def __str__(self): raise self\nraise E",
    "class E(Exception):\n    __str__ = __repr__ = lambda self: 5\nraise E",
    "class M(type):\n    def __getattribute__(c, n): raise ValueError\nclass E(Exception, metaclass=M): pass\nraise E",
    "class R:\n    def __repr__(self): raise SystemExit\nR()",
    "class R:\n    def __repr__(self): return 7\nR()",
    "class R:\n    def __repr__(self): return repr(self)\nR()",
    "class R:\n    __class__ = property(lambda s: 1/0)\nR()",
    "class S(str):\n    def __getitem__(self, i): raise ValueError\n    def __len__(self): return -5\nprint(S('x')); S('y')",
    "class S(str):\n    __repr__ = lambda s: s\nS('\\ud800')",
    "import builtins\nfor n in ('len', 'print', 'type', 'isinstance', 'repr', 'str', 'dict', 'open', 'compile', 'exec', 'eval', 'min', 'max', 'list'): setattr(builtins, n, None)",
    "import builtins; builtins.__dict__.clear()",
    "import builtins; builtins.__import__ = None",
    "__builtins__ = {}",
    "globals().clear()",
    "import json\njson.dumps = json.loads = None; json.encoder.c_make_encoder = None; json.JSONEncoder.encode = lambda *a: 'x'",
    "import os\nos.write = os.read = os.fork = os._exit = os.getpid = None",
    "import sys\nsys.stdout = sys.stderr = sys.stdin = None",
    "import sys\nsys.stdout.write = lambda s: 1/0\nprint('x')",
    "import sys\nsys.stdout.close(); sys.stderr.close(); sys.stdin.close(); print('still')",
    "import sys\ndel sys.stdout",
    "import sys\nsys.stdout.buffer.raw.write(b'\\xff' * 100)",
    "import sys\nsys.modules.clear()",
    "import sys\nsys.modules = None",
    "import sys\ndel sys.modules['__main__']",
    "import sys\nfor n in list(sys.modules): sys.modules[n] = None",
    "import sys\nsys.modules[5] = sys.modules[''] = object()",
    "import sys\nsys.path = None; sys.meta_path = []; sys.path_hooks = None",
    "import sys\nsys.settrace(lambda *a: 1/0)",
    "import sys\nsys.setprofile(lambda *a: 1/0)",
    "import sys\ndef t(*a): return t\nsys.settrace(t); sys.setprofile(t)",
    "import sys\nsys.setrecursionlimit(60)",
    "import sys\nsys.setrecursionlimit(5)",
    "import sys\nsys.excepthook = sys.displayhook = sys.unraisablehook = None\n1/0",
    "import sys\nsys.getrecursionlimit = sys.settrace = sys.setprofile = None",
    "def f(): return f()\nf()",
    "def f(n): return [f(n)]\nf(1)",
    "l = []\nfor _ in range(10**5): l = [l]\nl == l\nl",
    "x = {}\nfor _ in range(2000): x = {'x': x}\nx",
    "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass",
    "import signal\nsignal.signal(signal.SIGALRM, lambda *a: 1/0); signal.setitimer(signal.ITIMER_REAL, 0.001)\nwhile True: pass",
    "import signal\nsignal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())",
    "import signal, os\nos.kill(os.getpid(), signal.SIGINT)",
    "import signal\nsignal.signal = signal.pthread_sigmask = None",
    "import os\npid = os.fork()\nif pid: print(os.waitpid(pid, 0))",
    "import os\nif os.fork() == 0: raise ValueError('in the child')",
    "import os\nif os.fork() == 0: import sys; sys.exit(1)",
    "import os\nfor _ in range(3): os.fork()",
    "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))",
    "import threading\nt = threading.Thread(target=lambda: print('t')); t.start(); t.join()",
    "import threading\nthreading.Thread(target=lambda: 1/0).start()",
    "import threading, time\nfor _ in range(5): threading.Thread(target=lambda: [print('noise') for _ in range(10**4)], daemon=True).start()",
    "import os\nos.chdir('/')\nos.environ.clear()\nos.umask(0o777)",
    "import gc\ngc.disable(); gc.set_threshold(0)",
    "import gc\nfor o in gc.get_objects():\n    if type(o) is list and len(o) < 3: pass",
    "import warnings\nwarnings.simplefilter('error')\nwarnings.warn('x')",
    "import warnings\nwarnings.showwarning = lambda *a: 1/0\nwarnings.warn('x')",
    "import warnings\ndel warnings.showwarning",
    "import linecache\nlinecache.cache = None\n1/0",
    "import linecache\nlinecache.clearcache()\ndef f(): 1/0\nf()",
    "input()",
    "breakpoint()",
    "help()",
    "import pdb; pdb.set_trace()",
    "print(b'\\xff\\x00', '\\x00\\ud800', sep='\\udfff')",
    "import sys; sys.stdout.buffer.write(bytes(range(256)) * 100)",
    "import sys; sys.stdout.write(5)",
    "import sys; sys.stdout.buffer.write('text')",
    "import os; os.write(1, b'\\x00\\x00\\x00\\x05hello')",
    "import sys; sys.stdout.reconfigure(encoding='ascii'); print('é'); sys.stdout.detach()",
    "class D:\n    def __del__(self): raise ValueError\nD()\n1",
    "class W:\n    def __del__(self): print('del')\nw = W(); w.w = w; del w",
    "globals()[5] = 1\nglobals()[None] = 2",
    "class K(str):\n    def __eq__(self, o): raise ValueError\n    __hash__ = str.__hash__\nglobals()[K('code')] = 1\ndel K",
    "__name__ = 5; __doc__ = 6; __annotations__ = 7; __warningregistry__ = 8",
    "__import__('sys').modules['__main__'].__class__ = type('M', (type(__import__('sys')),), {'__getattribute__': lambda s, n: 1/0})",
    "import atexit; atexit.register(lambda: 1/0)",
    "import os; os.register_at_fork(before=lambda: 1/0, after_in_child=lambda: 1/0, after_in_parent=lambda: 1/0)",
    "import faulthandler; faulthandler.enable()",
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    "bytearray(10**13)",
    "'x' * 10**18",
    "[0] * 10**15",
    "1 << 10**6",
    "int('9' * 5000)",
    "10 ** 5000",
    "eval('(' * 1000)",
    "eval('[' * 90 + ']' * 90)",
    "compile('1' + '+1' * 100000, 'x', 'exec')",
    "exec('x = ' + '-' * 50000 + '1')",
    "'\\N{BAD}'",
    "import ctypes; ctypes.pythonapi.PyErr_SetInterrupt()",
    "raise ExceptionGroup('g', [ExceptionGroup('h', [ValueError(1)] * 100)] * 100)",
    "e = ValueError(); e.__context__ = f = KeyError(); f.__context__ = e; raise e",
    "e = ValueError(); e.__notes__ = 5; raise e",
    "def g():\n    try: yield\n    except GeneratorExit: raise RuntimeError\nx = g(); next(x); del x",
    "import asyncio; asyncio.run(asyncio.sleep(0)); await asyncio.sleep(0)",
    "import asyncio; asyncio.get_event_loop_policy(); loop = asyncio.new_event_loop(); loop.run_until_complete(asyncio.sleep(0)); loop.close()",
    "await 5",
    "async def f():\n    while True:\n        try: await __import__('asyncio').sleep(0.01)\n        except BaseException: break\nt = __import__('asyncio').ensure_future(f(), loop=__import__('asyncio').new_event_loop()); t.cancel()",
    "yield 1",
    "return 5",
    "break",
    "\x00",
    "\ufeff1",
    "#" * 100000,
    "",
    "\n\n",
    "x = 1;" * 5000,
    "'" + "a" * 3_000_000 + "'",
    "(" * 5000,
    "import sys\nf = sys._getframe()\nwhile f.f_back: f = f.f_back\nlist(f.f_globals)",
    "import _thread; _thread.interrupt_main()",
    "import os; os.nice(5)",
    "import time; time.perf_counter = None; time.sleep = None",
    "type('X' * 10**6, (), {})()",
    "type('a\\ud800b', (), {})()",
    "raise type('E\\ud800', (Exception,), {})('m')",
    "import sys; sys.set_int_max_str_digits(640); 10**3000",
    "import sys; sys.set_int_max_str_digits(0); 10**60000",
]

# What these leave behind goes on disturbing user code, as it would in any Python; the frames stay whole.
DISTURBS = [
    "import signal\nsignal.signal(signal.SIGALRM, lambda *a: 1/0); signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)",
    "import sys; sys.addaudithook(lambda *a: 1/0)",
    "import sys; sys.addaudithook(lambda *a: sys.exit())",
    "import sys; sys.stdout.__class__.begin = None",
]

DIES = [
    "import os; os._exit(7)",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "import os; os.abort()",
    "import ctypes; ctypes.string_at(0)",
    "import os; os.execv('/bin/true', ['true'])",
    "import os; os.closerange(0, 70000)",
    "import sys\nsys.setrecursionlimit(10**8)\nl = []\nfor _ in range(10**6): l = [l]\nrepr(l)",
]


@pytest.mark.parametrize("code", ANSWERS, ids=range(len(ANSWERS)))
def test_a_hostile_form_leaves_the_process_answering(family, code):
    """Live images, timeouts and deaths: what survives."""
    link = family.live()
    link.eval("kept = [1, 2]")
    reply = link.eval(code)
    assert set(reply) >= {"ok", "forms", "stdout", "stderr", "warnings", "error", "changed", "state"}
    assert link.ask("ping") == {"ok": True, "id": link.count}
    for op, fields in (
        ("describe", {"symbol": "kept"}),
        ("definitions", {}),
        ("apropos", {"pattern": "kept"}),
    ):
        assert "ok" in link.ask(op, **fields)
    again = link.eval("1 + 2")
    assert again["ok"] is True, again["error"]
    assert again["forms"] == [{"values": ["3"]}]
    link.close()


@pytest.mark.parametrize("piece", ["bytes(10**5)", "[1] * 50", "{'k': 'v' * 100}"])
def test_taking_all_the_memory_is_an_error_that_can_be_answered(family, piece):
    """Live images, sandbox: memory is limited by RLIMIT_AS."""
    link = family.live()
    link.eval("import resource; resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))")
    for _time in range(2):
        reply = link.eval(f"taken = []\nwhile True: taken.append({piece})")
        assert reply["error"]["type"] == "MemoryError"
        assert link.eval("taken = None; 1 + 2")["forms"][-1]["values"] == ["3"]
    link.close()


def test_interrupts_at_any_moment_never_break_a_frame_or_a_fork(live):
    """Child protocol: SIGINT acts in user code only."""
    forms = ["y = 1 + 2", "print('a' * 1000)\n1 / 0", "[x for x in range(2000)]", "def f(): f()\nf()"]
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import os\nwhile True:\n    for _ in range(200): pass\n    os.kill({live.outer}, 2)",
        ],
        stderr=subprocess.DEVNULL,
    ) as shooter:
        for number in range(400):
            reply = live.eval(forms[number % 4], then_fork=str(number) if number % 20 == 0 else None)
            assert reply["error"] is None or reply["error"]["type"] in (
                "KeyboardInterrupt",
                "ZeroDivisionError",
                "RecursionError",
            )
            if number % 20 == 0:
                checkpoint = live.family.accept()
                assert checkpoint.hello["tag"] == str(number)
                checkpoint.close()
        shooter.kill()
    assert live.value("1 + 2") == "3"


@pytest.mark.parametrize("code", DISTURBS, ids=range(len(DISTURBS)))
def test_a_lasting_disturbance_never_breaks_a_frame(family, code):
    """Live images, timeouts and deaths: errors, never a broken frame."""
    link = family.live()
    link.send("eval", code=code)
    for _time in range(50):
        assert "ok" in link.receive()
        link.send("eval", code="1 + 2")
    link.close()
    assert family.zygote.ask("ping")["ok"]


@pytest.mark.parametrize("code", DIES, ids=range(len(DIES)))
def test_a_deadly_form_ends_in_a_clean_end_of_stream(family, code):
    """Live images, timeouts and deaths: EOF and wait status."""
    link = family.live()
    checkpoint = link.fork("checkpoint")
    link.send("eval", code=code)
    assert link.is_ended()
    assert checkpoint.ask("ping")["ok"]
    assert family.zygote.ask("ping")["ok"]
    link.close()
    checkpoint.close()


def test_a_loop_that_swallows_everything_is_ended_by_the_parent_and_restored(live):
    """Live images, timeouts and deaths: only SIGKILL."""
    live.eval("kept = 1")
    checkpoint = live.fork("checkpoint")
    post = Signpost(live)
    live.send(
        "eval",
        code=f"{post.code}\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass",
    )
    post.wait()
    os.kill(live.outer, signal.SIGINT)
    os.kill(live.outer, signal.SIGKILL)
    assert live.is_ended()
    assert checkpoint.fork("live").value("kept") == "1"


def test_a_process_still_forks_after_hostile_forms(live):
    """Live images: a checkpoint after anything that left one thread."""
    live.eval(
        "import os, builtins, sys\nos.fork = None\nsys.modules.clear()\nbuiltins.len = None\nos.closerange(3, 900)"
    )
    copy = live.fork("checkpoint")
    assert copy.fork("live").value("1 + 2") == "3"


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_other_pythons_run_the_program_too(tmp_path, version):
    """The image program runs on any Python from 3.11 on."""
    places = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    if not places:
        pytest.skip(f"no Python {version} here")
    family = Family(tmp_path, executable=str(places[0]))
    try:
        live = family.live()
        assert live.hello["version"].startswith(version)
        assert live.eval(SETUP)["ok"]
        assert live.value("helper(1)") == "11"
        assert live.ask("describe", symbol="helper")["data"]["arglist"].startswith("(n, /, m=3, *rest")
        found = {
            row["name"]
            for row in live.ask("who_calls", function="helper")["data"]["found"]
            if row["match"] == "exact"
        }
        assert found == {
            "__main__.caller",
            "__main__.indirect",
            "__main__.Thing.method",
            "__main__.uses_alias",
        }
        assert live.ask("compile", code="def q(): return zzz")["warnings"][0]["line"] == 1
        assert live.fork("checkpoint").fork("live").value("LIMIT") == "10"
        preview = live.fork("preview")
        if preview.ask("confine")["confined"]:
            assert preview.eval(f"open({str(tmp_path / 'n')!r}, 'w')")["effects"][0]["kind"] == "write"
        interrupt(live, "while True: pass")
        assert live.receive()["error"]["interrupted"]
        live.eval("import sys\nm = sys.monitoring; m.use_tool_id(1, 'x'); seen = []")
        live.eval("m.register_callback(1, m.events.PY_START, lambda code, _: seen.append(code.co_name))")
        live.eval("m.set_events(1, m.events.PY_START)")
        assert "send" not in live.value("seen")
        assert live.value("1 + 2") == "3"
        for op, field in (("class_slots", "class"), ("class_hierarchy", "class"), ("arglist", "function")):
            assert live.ask(op, **{field: "Data"})["ok"]
    finally:
        family.stop()
