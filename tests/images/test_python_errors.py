"""What an error of the Python image tells: its causes, and the place of what could not be read."""

from contextlib import closing

import pytest

from gramercy.images.environment import Environment, Reload
from gramercy.images.opening import open_image
from tests.images import children


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Return one family for all tests of this file."""
    with closing(children.Family(tmp_path_factory.mktemp("python"), "python")) as family:
        yield family


@pytest.fixture
def live(family):
    """Return a fresh process."""
    return family.live()


def test_causes_are_told_nearest_first_with_frames_and_relation(live):
    """The user's own program: `raise … from e` and the error during whose handling another came."""
    live.eval("def low(): return {}['k']\ndef middle():\n    try: low()\n    except KeyError: int('x')")
    error = live.eval("try: middle()\nexcept ValueError as e: raise RuntimeError('top') from e")["error"]
    assert [(cause["type"], cause["relation"]) for cause in error["causes"]] == [
        ("ValueError", "cause"),
        ("KeyError", "context"),
    ]
    assert error["causes"][0]["backtrace"][0].startswith("0: middle() at <image ")
    assert error["causes"][1]["backtrace"][0].endswith("def low(): return {}['k']")


def test_a_context_that_was_put_aside_is_not_told(live):
    """`raise … from None` says that the context is of no interest."""
    error = live.eval("try: 1 / 0\nexcept ZeroDivisionError: raise RuntimeError('top') from None")["error"]
    assert "causes" not in error


def test_a_chain_of_causes_is_bounded(live):
    """A loop that wraps an error again and again must not fill the reply."""
    live.eval(
        "def f(n):\n    try: f(n - 1) if n else 1 / 0\n    except Exception as e: raise ValueError(n) from e"
    )
    assert len(live.eval("f(100)")["error"]["causes"]) == 5


@pytest.mark.parametrize(
    ("code", "place", "text", "message"),
    [
        ("x = 1\ny = = 2", (2, 5), "y = = 2", "invalid syntax"),
        (
            "def f():\n    return\n  x",
            (3, None),
            "  x",
            "unindent does not match any outer indentation level",
        ),
        (
            "if 1:\n\tx\n        y",
            (3, None),
            "        y",
            "inconsistent use of tabs and spaces in indentation",
        ),
        ("x = 1\nreturn 5", (2, 1), "return 5", "'return' outside function"),
        ("  1", (1, None), "  1", "unexpected indent"),
        (
            "def f(a, a): pass",
            (1, None),
            "def f(a, a): pass",
            "duplicate argument 'a' in function definition",
        ),
    ],
)
def test_what_cannot_be_read_is_shown_with_its_place(live, code, place, text, message):
    """The user's own program: a syntax error has line, column and source line, and no made-up file name."""
    error = live.eval(code)["error"]
    assert (error["line"], error["text"], error["message"]) == (place[0], text, message)
    assert "file" not in error
    # The versions of Python differ in the columns of some.
    assert error["column"] == place[1] if place[1] else error.get("column", 1) > 0


def test_an_unreadable_file_that_is_imported_is_named(live, tmp_path):
    """The place counts in the file, so the file is told."""
    file = tmp_path / "unreadable_module.py"
    file.write_text("x = 1\nif x:\n    y = (\n")
    live.eval(f"import sys; sys.path.insert(0, {str(tmp_path)!r})")
    error = live.eval("import unreadable_module")["error"]
    assert (error["file"], error["line"], error["text"]) == (str(file), 3, "    y = (")
    assert error["text"][error["column"] - 1] == "("


def test_text_that_user_code_compiles_is_not_taken_for_the_code_that_was_sent(live):
    """A line without a file would count in the call."""
    error = live.eval("x = 1\n\nexec('y = 1\\nz = = 2')")["error"]
    assert (error["file"], error["line"], error["text"]) == ("<string>", 2, "z = = 2")


# --- one loop for one call ---------------------------------------------------------------------------------

TWICE = "import asyncio\nasync def twice(n):\n    await asyncio.sleep(0)\n    return n * 2"


def test_a_task_made_in_one_form_is_awaited_in_the_next(live):
    """The user's own program: create_task, then await, in one call."""
    reply = live.eval(
        f"{TWICE}\nt = asyncio.create_task(twice(4))\nawait t\nasyncio.get_running_loop() is t.get_loop()"
    )
    assert reply["forms"][-2:] == [{"values": ["8"]}, {"values": ["True"]}], reply["error"]


def test_a_task_made_in_one_call_is_awaited_in_the_next(live):
    """A call that asks for a running loop by name gets it without an await of its own."""
    live.eval(TWICE)
    assert live.eval("t = asyncio.create_task(twice(5))")["ok"]
    assert live.eval("asyncio.create_task(twice(6))")["ok"]
    assert live.value("await t") == "10"
    assert live.value("await __") == "12"


def test_a_loop_of_the_users_own_still_runs(live):
    """asyncio.run() in a call without a top-level await is plain Python."""
    live.eval(TWICE)
    assert live.value("asyncio.run(twice(3))") == "6"
    code = "async def main():\n    return await asyncio.create_task(twice(7))\nasyncio.run(main())"
    assert live.value(code) == "14"
    assert live.value("with asyncio.Runner() as r: x = r.run(main())\nx") == "14"


def test_the_frames_that_drive_a_loop_are_not_shown(live):
    """Only the user's frames are of interest."""
    live.eval("async def bad(): return 1 / 0")
    for code in ("await bad()", "x = 1\nawait bad()"):
        trace = live.eval(code)["error"]["backtrace"]
        assert [line.split(" at ")[0] for line in trace] == ["0: bad()", "1: <module>"]


def test_threads_of_to_thread_end_with_the_call(live):
    """Idle threads would keep every state from being kept."""
    reply = live.eval(
        "import asyncio\nawait asyncio.gather(*(asyncio.to_thread(abs, -n) for n in range(5)))",
        then_fork="c1",
    )
    assert reply["forms"][-1]["values"] == ["[0, 1, 2, 3, 4]"]
    assert reply["state"]["threads"] == 1
    assert "unkept" not in reply
    assert live.family.accept().hello["role"] == "checkpoint"
    assert live.value("await asyncio.to_thread(abs, -7)") == "7"


def test_an_interrupted_call_runs_no_further_form(live, tmp_path):
    """A form that swallows its cancellation is the last one."""
    mark = tmp_path / "mark"
    live.send(
        "eval",
        code="import asyncio\nn = 0\ntry:\n"
        f"    asyncio.get_running_loop().call_later(0.01, open, {str(mark)!r}, 'w')\n"
        "    await asyncio.sleep(60)\nexcept BaseException: pass\nn = 1",
    )
    assert live.sees(mark.exists)
    live.kill(2)
    assert live.receive()["error"]["interrupted"]
    assert live.value("n") == "0"


def test_context_variables_hold_from_call_to_call(live):
    """A form inside the loop sets what the next call sees, as a form outside of it does."""
    live.eval(
        "import asyncio, contextvars\nv = contextvars.ContextVar('v')\nv.set(1)\nawait asyncio.sleep(0)"
    )
    assert live.value("v.get()") == "1"


def innermost(reply):
    """Return the frame in which an evaluation failed."""
    return reply.error.backtrace[0]


def test_a_frame_shows_the_line_that_was_loaded_not_the_one_in_the_file_now(tmp_path):
    """True before clever: after an edit the line of that number is another one."""
    file = tmp_path / "edited.py"
    file.write_text("def f():\n    return 1 / 0\n")
    environment = Environment(reload=Reload.TELL)
    with closing(open_image("python", name="edited", project=tmp_path, environment=environment)) as image:
        assert innermost(image.evaluate("import edited, importlib\nedited.f()")).endswith("2: return 1 / 0")
        file.write_text("# a line more\n\ndef f():\n    return 2 / 0\n")
        assert innermost(image.evaluate("edited.f()")).endswith("edited.py:2: return 1 / 0")
        assert "return 1 / 0" in image.ask_moment("frames").text
        image.evaluate("importlib.reload(edited)")
        assert innermost(image.evaluate("edited.f()")).endswith("edited.py:4: return 2 / 0")
        file.write_text("# again\n")
        assert innermost(image.evaluate("edited.f()")).endswith("edited.py:4: return 2 / 0")
        file.write_text("def g():\n    return 3 / 0\n\ng()\n")
        failed = image.load_system("edited")
        assert innermost(failed).endswith("edited.py:2: return 3 / 0")
