"""What only the Python image program does, driven over its socket without a sandbox around it.

What it must do as the SBCL program does is in `test_children`.
"""

# ruff: noqa: E501 - the forms are data, and read best on one line

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gramercy.images.python.landlock import landlock_version
from tests.images import child_forms, children

SITE = Path(sys.prefix) / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
live = children.live


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    home = tmp_path_factory.mktemp("family")
    with closing(children.Family(home, "python", "--path", str(SITE))) as family:
        yield family


@pytest.fixture(scope="module")
def world(family):
    live = family.live()
    assert live.eval(child_forms.WORLD["python"])["ok"]
    return live


def test_the_zygote_never_evaluates(family):
    """Live images, zygote."""
    reply = family.zygote.eval("1")
    assert reply["error"]["type"] == "ZYGOTE"


def test_an_unknown_operation_is_told_what_was_meant(live):
    """Child protocol, unknown operations."""
    assert live.ask("evall")["error"]["suggestions"][0] == "eval"


def test_causes_notes_and_groups_are_told(live):
    """Live images, a reply: full error detail."""
    reply = live.eval("try: 1/0\nexcept Exception as e: raise KeyError('k') from e")
    (cause,) = reply["error"]["causes"]
    assert (cause["type"], cause["message"]) == ("ZeroDivisionError", "division by zero")
    reply = live.eval("e = ValueError('v'); e.add_note('look here'); raise ExceptionGroup('g', [e])")
    assert "ValueError: v\nlook here" in reply["error"]["message"]


def test_a_module_stays_the_current_one(live):
    """Child protocol: package is the module, it persists."""
    live.eval("x = 1\nimport sys, types\nsys.modules['other'] = types.ModuleType('other')")
    assert live.eval("x = 'there'", package="other")["package"] == "other"
    assert live.value("x") == "'there'"


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


def test_compile_tells_the_warnings_of_the_compiler_and_undefined_names(live):
    """Child protocol, compile."""
    reply = live.ask("compile", code="def f(x):\n    return x + missing\n\nf\n1 is 1")
    assert [(row["type"], row["line"]) for row in reply["warnings"]] == [
        ("SyntaxWarning", 5),
        ("UndefinedName", 2),
    ]


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


def test_bytes_and_text_written_to_the_streams_are_kept_in_order(live):
    """Child protocol, streams: sys.stdout.buffer."""
    code = "import sys\nprint('a')\nsys.stdout.buffer.write('é'.encode())\nsys.stdout.buffer.write(b'\\xff|\\xe2\\x82')\nprint('z')"
    assert live.eval(code)["stdout"] == "a\né\ufffd|z\n\ufffd"


def test_every_way_to_read_stdin_finds_it_empty(live):
    """Child protocol: stdin is empty."""
    code = "import sys; sys.stdin.read(), list(sys.stdin), sys.stdin.buffer.read()"
    assert live.value(code) == "('', [], b'')"


def test_a_thread_that_prints_after_the_evaluation_reaches_the_log_not_the_next_reply(family):
    """Live images, wire."""
    link = family.live()
    link.eval(
        "import threading\ngo = threading.Event()\nt = threading.Thread(target=lambda: (go.wait(20), print('late-print')))\nt.start()"
    )
    assert link.ask("state")["state"]["threads"] == 2
    assert link.eval("go.set(); t.join(20)")["stdout"] in ("late-print\n", "")
    assert link.eval("1")["stdout"] == ""
    link.plug.close()


def test_lone_surrogates_are_replaced_in_every_text(live):
    """Child protocol: JSON text is valid whatever the strings hold."""
    reply = live.eval(
        "print('\\ud800|\\x00')\nimport warnings\nwarnings.warn('\\udfff')\nraise ValueError('\\udc80')"
    )
    assert reply["stdout"] == "\ufffd|\x00\n"
    assert reply["warnings"][0]["message"] == "\ufffd"
    assert reply["error"]["message"] == "\ufffd"


def changes(reply):
    return [(row["kind"], row["name"].removeprefix("__main__."), row["change"]) for row in reply["changed"]]


def test_modules_made_by_hand_are_followed(live):
    """Child protocol: definitions in every module of the user's."""
    live.eval("import sys, types\nm = sys.modules['mine'] = types.ModuleType('mine')\nm.a = 1")
    reply = live.eval("def g(): pass\na = 2", package="mine")
    assert [row["name"] for row in reply["changed"]] == ["mine.a", "mine.g"]
    data = live.ask("definitions")["data"]
    assert {"name": "mine.g", "arglist": "()"} in data["functions"]
    gone = live.eval("del sys.modules['mine']", package="__main__")
    assert {"kind": "module", "name": "mine", "change": "removed"} in gone["changed"]


def test_the_listing_has_classes_and_imports_and_no_macros(live):
    """Seed 003, list-definitions."""
    live.eval("import os\nclass K:\n    def __init__(self, q): pass")
    data = live.ask("definitions")["data"]
    assert data["classes"] == [{"name": "K", "arglist": "(q)"}]
    assert data["imports"][0]["name"] == "os"
    assert data["macros"] == []


def test_looking_for_changes_keeps_nothing_alive(live):
    """Live images: a checked image behaves like a plain one."""
    live.eval("class D:\n    def __del__(self): print('gone')\nd = D()")
    assert live.eval("del d; print('after')")["stdout"] == "gone\nafter\n"


def test_the_handler_is_back_after_user_code_replaced_it(live):
    """Child protocol: reinstall the handler before each evaluation."""
    live.eval("import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)")
    os.kill(live.pid, signal.SIGINT)
    assert live.value("1") == "1"
    live.eval(
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}); signal.signal(signal.SIGINT, signal.SIG_IGN)"
    )
    assert live.eval_interrupted("while True: pass")["error"]["interrupted"]


def test_a_second_interrupt_ends_what_swallowed_the_first(live):
    """Live images, the ladder."""
    first, second = children.Signpost(live.family), children.Signpost(live.family)
    live.send(
        "eval",
        code=f"try:\n    {first.code('python')}\n    while True: 1 + 1\nexcept KeyboardInterrupt: print('swallowed')\n"
        f"{second.code('python')}\nwhile True: pass",
    )
    for post in (first, second):
        post.wait()
        os.kill(live.pid, signal.SIGINT)
    reply = live.receive()
    assert reply["error"]["interrupted"]
    assert reply["stdout"] == "swallowed\n"


def test_everything_ends_when_the_parent_goes(tmp_path):
    """Live images, orphans: a test counts processes after every kind of ending."""
    with closing(children.Family(tmp_path, "python")) as family:
        live = family.live()
        checkpoint = live.fork("checkpoint")
        live.send("eval", code=child_forms.forms("python").stubborn_loop)
        family.zygote.plug.close()
        for member in (family.zygote, live, checkpoint):
            assert member.is_ended()


@pytest.mark.skipif(landlock_version() < 6, reason="this kernel cannot scope signals")
def test_a_live_process_cannot_signal_the_zygote_or_its_siblings(family, live):
    """Live images, crash-proof: the zygote outlives whatever user code does."""
    sibling = family.live()
    for pid in (family.zygote.pid, sibling.pid):
        assert live.eval(f"import os\nos.kill({pid}, 15)")["error"]["type"] == "PermissionError"
    assert family.zygote.ask("ping")["ok"]
    assert sibling.ask("ping")["ok"]
    live.eval("import subprocess\np = subprocess.Popen(['sleep', '60'])\np.kill()")
    assert live.value("p.wait(20)") == "-9"


def test_imports_in_a_preview_do_not_count_as_writes(live):
    """Live images, preview: no bytecode files."""
    preview = live.fork("preview")
    if not preview.confine()["confined"]:
        pytest.skip("no confinement here")
    reply = preview.eval("import colorsys")
    assert reply["ok"]
    assert reply["effects"] == []


def test_a_question_about_a_thing_of_another_kind_is_an_error(world):
    """Seed 001, function_arglist and class_slots."""
    assert world.ask("arglist", function="LIMIT")["error"]["type"] == "TypeError"
    assert world.ask("class_slots", **{"class": "LIMIT"})["error"]["type"] == "TypeError"


def test_the_hierarchy_of_the_classes_of_all_classes_is_told(world):
    """Seed 001, class_hierarchy."""
    assert world.ask("class_hierarchy", **{"class": "type"})["ok"]
    assert world.ask("class_hierarchy", **{"class": "object"})["ok"]


def test_apropos_searches_one_module_where_one_is_named(world):
    """Seed 001, apropos_search."""
    found = world.ask("apropos", pattern="dumps", package="json")["data"]["matches"]
    assert [row["name"] for row in found] == ["json.dumps"]


def test_an_expansion_in_full_shows_instructions(live):
    """Seed 001, macroexpand_form."""
    assert "RETURN" in live.ask("macroexpand", form="f(1)", full=True)["text"]


def test_questions_about_a_module_of_the_users_own_class_run_none_of_its_code(live):
    """Live images, introspection: "safe" tools run no user code."""
    setup, *_, count, _reset = child_forms.TRAPS["python"]
    assert live.eval(setup)["ok"]
    assert live.ask("package_symbols", package="trap", include_internal=True)["ok"]
    for package in ("__main__", "trap"):
        assert live.ask("describe", symbol="x", package=package)["error"]["type"] == "NameError"
    assert live.ask("macroexpand", form="spy + spy", full=True)["ok"]
    number = live.ask("describe", symbol="everything")["data"]["object"]
    assert live.ask("inspect", object=number)["ok"]
    assert live.value(count) == "0"


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


def test_objects_can_be_looked_into_by_the_names_of_their_parts(world):
    """Child protocol, inspect."""
    number = world.eval("t = Thing([1, {'k': (2,)}])\nt")["objects"][0]
    data = world.ask("inspect", object=number)["data"]
    assert data["children"][0]["label"] == ".a"
    inner = data["children"][0]["object"]
    first = {"label": "[0]", "value": "1", "type": "int", "object": None}
    assert world.ask("inspect", object=inner)["data"]["children"][0] == first
    assert world.ask("inspect", object=number, path=["a", 1, "['k']"])["data"]["preview"] == "(2,)"
    assert world.ask("inspect", object=number, path=["zz"])["error"]["type"] == "NO-SUCH-CHILD"
    assert world.ask("inspect", object=99999)["error"]["type"] == "NO-SUCH-OBJECT"


def test_a_big_object_is_shown_in_part_and_counted(live):
    """Child protocol, inspect: bounded."""
    number = live.eval("list(range(10**6))")["objects"][0]
    data = live.ask("inspect", object=number)["data"]
    assert data["total"] == 10**6
    assert len(data["children"]) == 100


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
    assert "click" in live.ask("load_system", system="clck")["error"]["suggestions"]


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
    live.plug.close()


def test_plain_lines_of_pth_files_are_followed_and_code_lines_are_not(tmp_path):
    """Live images: how the packages of a user become visible."""
    (tmp_path / "site").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "editable_thing.py").write_text("value = 5")
    (tmp_path / "site" / "a.pth").write_text(
        f"import os; os.mkdir({str(tmp_path / 'ran')!r})\n{tmp_path / 'project'}\n/not/there\n"
    )
    with closing(children.Family(tmp_path, "python", "--path", str(tmp_path / "site"))) as family:
        assert family.live().value("import editable_thing\neditable_thing.value") == "5"
        assert not (tmp_path / "ran").exists()


DISTURBS = [
    "import signal\nsignal.signal(signal.SIGALRM, lambda *a: 1/0); signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)",
    "import sys; sys.addaudithook(lambda *a: 1/0)",
    "import sys; sys.addaudithook(lambda *a: sys.exit())",
    "import sys; sys.stdout.__class__.begin = None",
]


@pytest.mark.parametrize("piece", ["bytes(10**5)", "[1] * 50", "{'k': 'v' * 100}"])
def test_taking_all_the_memory_is_an_error_that_can_be_answered(family, piece):
    """Live images, sandbox: memory is limited by RLIMIT_AS."""
    link = family.live()
    link.eval("import resource; resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))")
    for _time in range(2):
        reply = link.eval(f"taken = []\nwhile True: taken.append({piece})")
        assert reply["error"]["type"] == "MemoryError"
        assert link.eval("taken = None; 1 + 2")["forms"][-1]["values"] == ["3"]
    link.plug.close()


def test_interrupts_at_any_moment_never_break_a_frame_or_a_fork(live):
    """Child protocol: SIGINT acts in user code only."""
    forms = ["y = 1 + 2", "print('a' * 1000)\n1 / 0", "[x for x in range(2000)]", "def f(): f()\nf()"]
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import os\nwhile True:\n    for _ in range(200): pass\n    os.kill({live.pid}, 2)",
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
                assert checkpoint.tag == str(number)
                checkpoint.plug.close()
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
    link.plug.close()
    assert family.zygote.ask("ping")["ok"]


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
    command = [str(places[0]), *children.program("python")[1:]]
    with closing(children.Family(tmp_path, "python", command=command)) as family:
        live = family.live()
        assert live.hello["version"].startswith(version)
        assert live.eval(child_forms.WORLD["python"])["ok"]
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
        if preview.confine()["confined"]:
            assert preview.eval(f"open({str(tmp_path / 'n')!r}, 'w')")["effects"][0]["kind"] == "write"
        assert live.eval_interrupted("while True: pass")["error"]["interrupted"]
        live.eval("import sys\nm = sys.monitoring; m.use_tool_id(1, 'x'); seen = []")
        live.eval("m.register_callback(1, m.events.PY_START, lambda code, _: seen.append(code.co_name))")
        live.eval("m.set_events(1, m.events.PY_START)")
        assert "send" not in live.value("seen")
        assert live.value("1 + 2") == "3"
        for op, field in (("class_slots", "class"), ("class_hierarchy", "class"), ("arglist", "function")):
            assert live.ask(op, **{field: "Data"})["ok"]
