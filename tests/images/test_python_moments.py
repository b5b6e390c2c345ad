"""The moment of an exception in the Python program, driven over its socket: kept, looked at, and tried."""

# ruff: noqa: E501 - the forms are data, and read best on one line

import os
import sys
from contextlib import closing

import pytest

from tests.images import children

live = children.live

PROGRAM = """
import weakref
watched = []
class Loud:
    def __init__(self): watched.append(weakref.ref(self))
    def __repr__(self): raise ValueError("repr ran")
    __str__ = __repr__
    def __getattr__(self, name): raise ValueError("getattr ran")
class Base:
    def hello(self): return "base"
class Deep(Base):
    __secret = 5
    def hello(self): return "deep"
    def fail(self, n): return n / 0
    @classmethod
    def make(cls): return cls.missing
total = 0
def inner(x, loud):
    rows = [1, 2, 3]
    def closed(): return x
    return rows[0] + rows[x] * 2
def outer(n):
    for step in range(3):
        inner(n + step, Loud())
def count():
    global total
    total += 1
    raise KeyError(total)
"""


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    with closing(children.Family(tmp_path_factory.mktemp("family"), "python")) as family:
        yield family


@pytest.fixture(scope="module")
def world(family):
    live = family.live()
    assert live.eval(PROGRAM)["ok"]
    return live


def failed(live, code, tag="m1"):
    """Evaluate what fails and return the process that keeps its moment."""
    reply = live.eval(code, keep_moment=tag)
    assert reply["error"].get("moment") is True, reply["error"]
    keeper = live.family.accept()
    assert (keeper.hello["role"], keeper.tag) == ("moment", tag)
    return keeper


@pytest.fixture(scope="module")
def moment(world):
    return failed(world, "outer(2)")


def inside(keeper, code, frame=0):
    """Evaluate in a frame and return the last value."""
    reply = keeper.ask("eval_in_frame", code=code, frame=frame)
    assert reply["ok"], reply
    return reply["forms"][-1]["values"][0]


@pytest.mark.contract("day.moment.python.frames")
def test_frames_begin_where_it_failed_with_the_very_expression(moment):
    """The moment of an error: frames with source line and column."""
    reply = moment.ask("frames")
    first, second, last = reply["data"]["frames"]
    line = PROGRAM.splitlines().index("    return rows[0] + rows[x] * 2") + 1
    assert (first["number"], first["name"], first["line"]) == (0, "inner", line)
    assert first["file"].startswith("<image ")
    assert (first["source"], first["failed"]) == ("return rows[0] + rows[x] * 2", "rows[x]")
    assert first["source"] == "    return rows[0] + rows[x] * 2"[4:]
    assert "    return rows[0] + rows[x] * 2"[first["column"] - 1 : first["end_column"] - 1] == "rows[x]"
    assert first["locals"] == ["x", "loud", "rows", "closed"]
    assert (second["name"], second["locals"], last["name"]) == ("outer", ["n", "step"], "<module>")
    assert reply["data"]["total"] == 3
    assert "IndexError: list index out of range" in reply["text"]
    assert "inner(x=3, loud=<Loud object>)" in reply["text"]


@pytest.mark.contract("day.moment.python.locals")
def test_locals_are_told_by_their_structure(moment):
    """No code of the user's runs: a __repr__ that raises would be seen."""
    reply = moment.ask("locals", frame=0)
    rows = {row["name"]: (row["value"], row["type"]) for row in reply["data"]["locals"]}
    assert rows["x"] == ("3", "int")
    assert rows["loud"] == ("<Loud object>", "Loud")
    assert rows["rows"] == ("[1, 2, 3]", "list")
    assert "ran" not in reply["text"]


@pytest.mark.contract("day.moment.python.let-go")
def test_the_exception_is_let_go_in_the_image_itself(world):
    """A weak reference to a local of the failed call dies, and the keeper has the object."""
    keeper = failed(world, "outer(2)")
    assert world.value("watched[-1]() is None") == "True"
    assert inside(keeper, "type(loud).__name__") == "'Loud'"


def test_without_a_tag_nothing_is_kept(world):
    """Wire: keep_moment asks for it."""
    assert "moment" not in world.eval("outer(2)")["error"]


@pytest.mark.parametrize("code", ["x = (", "  x", "def f(:\n pass"])
def test_code_that_cannot_be_read_leaves_no_moment(world, code):
    """There is no frame to look at, and nothing to say about it."""
    error = world.eval(code, keep_moment="m")["error"]
    assert not {"moment", "no_moment"} & set(error)


@pytest.mark.contract("day.moment.python.code")
@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("x", "3"),
        ("[x * row for row in rows]", "[3, 6, 9]"),
        ("(lambda: x + 1)()", "4"),
        ("{row: [x for _ in rows] for row in rows}[1]", "[3, 3, 3]"),
        ("closed()", "3"),
        ("rows[:x]\nlen(rows)", "3"),
        ("extra = x + 1\n(lambda: extra)()", "4"),
        ("def later(): return x * 2\nlater()", "6"),
        ("if x > 2:\n    seen = 'big'\nseen", "'big'"),
        ("import asyncio\nawait asyncio.sleep(0, x)", "3"),
        ("nonlocal x\nx = 5\nx", "5"),
        ("del rows\n'rows' in locals()", "False"),
    ],
)
def test_code_in_a_frame_sees_and_changes_its_locals(world, code, value):
    """Evaluation in a frame: the locals are the parameters of a function around the code."""
    assert inside(failed(world, "outer(2)"), code) == value


@pytest.mark.contract("day.moment.python.stays")
def test_what_is_assigned_stays_in_the_moment_only(world):
    """The kept copy is written, the image is not."""
    keeper = failed(world, "outer(2)")
    inside(keeper, "rows.append(4); extra = x + 1\nNone")
    assert inside(keeper, "(extra, rows[x])") == "(4, 4)"
    assert "extra = 4" in keeper.ask("locals", frame=0)["text"]
    assert inside(keeper, "(n, step)", frame=1) == "(2, 1)"
    assert inside(keeper, "total = 9\ntotal", frame=2) == "9"
    assert world.value("total") == "0"
    assert not world.eval("extra")["ok"]


def test_names_declared_global_reach_the_module(world):
    """By the code in the frame, or by the function of the frame."""
    keeper = failed(world, "outer(2)")
    assert inside(keeper, "global total\ntotal = 7\ntotal") == "7"
    assert inside(keeper, "total", frame=2) == "7"
    keeper = failed(world, "count()")
    before = int(inside(keeper, "total"))
    inside(keeper, "total = total + 10\nNone")
    assert inside(keeper, "total", frame=1) == str(before + 10)


def test_methods_have_super_and_private_names(world):
    """`super()` and two underscores mean what they mean in the method."""
    keeper = failed(world, "Deep().fail(3)")
    assert inside(keeper, "super().hello(), self.hello()") == "('base', 'deep')"
    assert inside(keeper, "self.__secret") == "5"
    assert inside(keeper, "__class__ is Deep") == "True"
    assert inside(failed(world, "Deep.make()"), "cls.__secret, super().hello(None)") == "(5, 'base')"


@pytest.mark.contract("day.moment.python.survives")
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("raise SystemExit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("1/0", "ZeroDivisionError"),
        ("return 5", "SyntaxError"),
        ("yield 5", "SyntaxError"),
        ("x = (", "SyntaxError"),
        ("undefined", "NameError"),
    ],
)
def test_nothing_in_a_frame_ends_the_moment(moment, code, kind):
    """A failure is a reply, and the moment stays."""
    assert moment.ask("eval_in_frame", code=code, frame=1)["error"]["type"] == kind
    assert inside(moment, "n", frame=1) == "2"


def test_code_in_a_frame_can_be_interrupted(world):
    """SIGINT ends the code, not the moment."""
    keeper = failed(world, "outer(2)")
    post = children.Signpost(world.family)
    keeper.send("eval_in_frame", code=f"{post.code('python')}\nwhile True: pass", frame=0)
    post.wait()
    os.kill(keeper.pid, 2)
    assert keeper.receive()["error"]["interrupted"]
    assert inside(keeper, "x") == "3"


@pytest.mark.parametrize("frame", [3, -1, "0", None, 1.0, True, 10**30])
@pytest.mark.parametrize("op", ["locals", "eval_in_frame"])
def test_a_frame_that_is_not_there_is_refused(moment, op, frame):
    """Bad input: which frames there are."""
    reply = moment.ask(op, frame=frame, code="1")
    assert reply["error"]["type"] == "NO-SUCH-FRAME"
    assert "0 to 2" in reply["error"]["message"]


def test_a_process_without_a_moment_says_so(world):
    """Bad input: asked in the wrong process."""
    for op in ("frames", "locals", "eval_in_frame"):
        assert world.ask(op, code="1")["error"]["type"] == "NO-MOMENT"


def test_there_are_no_restarts(moment):
    """Python: what to do instead."""
    reply = moment.ask("restarts")
    assert reply["data"]["restarts"] == []
    assert "try code in them" in reply["text"]
    assert moment.ask("invoke", restart=0)["error"]["type"] == "NO-RESTARTS"


@pytest.mark.contract("day.moment.python.behind")
def test_causes_and_groups_have_frames_of_their_own(world):
    """Chained exceptions: numbered on, so that they can be looked into."""
    keeper = failed(
        world,
        "try:\n  outer(1)\nexcept IndexError as e:\n  kept = ValueError('v')\n  raise ExceptionGroup('g', [kept, e]) from e",
    )
    reply = keeper.ask("frames")
    parts = [(part["type"], part["relation"], part["first"]) for part in reply["data"]["parts"]]
    assert parts == [("ExceptionGroup", "", 0), ("IndexError", "cause", 1), ("ValueError", "part", 4)]
    assert "raised from IndexError: list index out of range\n1: inner(" in reply["text"]
    assert inside(keeper, "x", frame=1) == "3"


@pytest.mark.contract("day.moment.python.bounded")
def test_a_recursion_without_end_is_folded(world):
    """RecursionError: bounded, and every frame can be asked for."""
    keeper = failed(world, "def deep(n): return deep(n + 1) + 1\ndeep(0)")
    reply = keeper.ask("frames")
    assert reply["data"]["total"] > 500
    assert len(reply["data"]["frames"]) < 10
    assert ": deep again" in reply["text"]
    depth = int(inside(keeper, "n", frame=0))
    assert inside(keeper, "n", frame=400) == str(depth - 400)
    assert keeper.ask("eval_in_frame", code="deep(0)", frame=3)["error"]["type"] == "RecursionError"


def test_a_deep_stack_shows_both_ends(world):
    """Frames are bounded: the rest is counted and has numbers."""
    code = (
        "\n".join(f"def f{n}(): return f{n + 1}()" for n in range(200))
        + "\ndef f200(): raise OSError('end')\nf0()"
    )
    reply = failed(world, code).ask("frames")
    assert len(reply["data"]["frames"]) == 30
    assert len(reply["text"]) <= 8000
    assert "… frames 20 to 191, left out here" in reply["text"]
    assert reply["data"]["frames"][-1]["name"] == "<module>"


def test_many_large_locals_are_bounded(world):
    """Locals: at most 8,000 characters, what is left out is counted."""
    names = "\n".join(f"    v{n} = 'a' * 1000" for n in range(300))
    keeper = failed(world, f"def wide():\n{names}\n    raise OSError\nwide()")
    assert len(keeper.ask("frames")["text"]) <= 8000
    reply = keeper.ask("locals", frame=0)
    assert len(reply["text"]) <= 8000
    assert reply["data"]["total"] == 300
    assert "more locals" in reply["text"]


def test_an_error_in_a_frame_leaves_a_moment_of_its_own(world):
    """Nested: the copy is made from the moment."""
    keeper = failed(world, "outer(2)")
    reply = keeper.ask("eval_in_frame", code="[1][x]", frame=0, keep_moment="m2")
    assert reply["error"]["moment"] is True
    second = world.family.accept()
    assert second.tag == "m2"
    assert second.ask("frames")["data"]["frames"][0]["failed"] == "[1][x]"
    assert inside(second, "x") == "3"
    assert inside(keeper, "x") == "3"


def test_a_moment_can_be_copied(world):
    """Wire: fork with role moment, so that code can be tried in a copy."""
    keeper = failed(world, "outer(2)")
    other = keeper.fork("moment", "m1copy")
    inside(other, "x = 100\nx")
    assert (inside(other, "x"), inside(keeper, "x")) == ("100", "3")
    assert keeper.ask("fork", role="live", tag="t")["error"]["type"] == "INVALID-REQUEST"
    assert world.ask("fork", role="moment", tag="t")["error"]["type"] == "INVALID-REQUEST"


def test_a_moment_ends_with_its_connection(world):
    """No process is left."""
    keeper = failed(world, "outer(2)")
    keeper.plug.shutdown(2)
    assert keeper.is_ended()


def test_an_interrupted_loop_shows_where_it_was(world):
    """SIGINT: the frame of the loop, with its locals."""
    post = children.Signpost(world.family)
    world.send(
        "eval",
        keep_moment="late",
        code=f"def hang():\n    step = 41\n    {post.code('python')}\n    while True: pass\nhang()",
    )
    post.wait()
    os.kill(world.pid, 2)
    error = world.receive()["error"]
    assert (error["interrupted"], error["moment"]) == (True, True)
    keeper = world.family.accept()
    # The signal may have come before the file of the signpost was closed: then those frames are on top.
    (hanging,) = [row for row in keeper.ask("frames")["data"]["frames"] if row["name"] == "hang"]
    assert inside(keeper, "step", frame=hanging["number"]) == "41"


@pytest.mark.contract("day.moment.python.none")
def test_threads_forbid_the_copy_and_the_reason_is_told(live):
    """No moment: the reason."""
    live.eval(
        "import threading\ngone = threading.Event()\nt = threading.Thread(target=gone.wait, name='worker')\nt.start()"
    )
    error = live.eval("1/0", keep_moment="m")["error"]
    assert "moment" not in error
    assert "worker" in error["no_moment"]
    assert live.eval("gone.set(); t.join()")["ok"]
    failed(live, "1/0")


def test_out_of_memory_leaves_no_moment(live):
    """A copy would keep all of it."""
    error = live.eval("raise MemoryError", keep_moment="m")["error"]
    assert "memory" in error["no_moment"]


def test_the_checkpoint_of_a_failed_call_does_not_hold_its_frames(live):
    """With both, the moment is forked first and let go before the checkpoint."""
    live.eval(PROGRAM)
    reply = live.eval("outer(2)", keep_moment="m1", then_fork="c1")
    assert reply["error"]["moment"]
    copies = {copy.hello["role"]: copy for copy in (live.family.accept(), live.family.accept())}
    assert set(copies) == {"moment", "checkpoint"}
    assert copies["checkpoint"].value("watched[-1]() is None") == "True"


def test_output_and_finalizers_belong_to_the_failed_call(live):
    """What a finalizer prints when the exception is let go is part of the reply, as without a moment."""
    code = "class Last:\n    def __del__(self): print('gone')\ndef f():\n    last = Last()\n    print('before')\n    1/0\nf()"
    reply = live.eval(code, keep_moment="m1")
    assert reply["stdout"] == "before\ngone\n"
    keeper = live.family.accept()
    answer = keeper.ask("eval_in_frame", code="print('inside')", frame=0)
    assert (answer["stdout"], answer["changed"]) == ("inside\n", [])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="positions came with 3.11")
def test_columns_count_characters(world):
    """Columns are of characters, whatever the line holds before."""
    row = failed(world, "a = 'äöü€𝄞', 1/0").ask("frames")["data"]["frames"][0]
    assert row["failed"] == "1/0"
    assert "a = 'äöü€𝄞', 1/0"[row["column"] - 1 : row["end_column"] - 1] == "1/0"
