"""The image in memory keeps the interface of images, and does what a real image of Python does."""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict

import pytest

from gramercy import Executor, Registry, open_image, register_core_tools
from gramercy.errors import CheckpointError, ImageError
from gramercy.images.base import Answer, ImageFault, Reply
from gramercy.images.image import Image
from gramercy.images.requests import Compile, Load
from gramercy.testing.image import MemoryImage


@pytest.fixture
def image() -> Image:
    # That this is accepted says that the double has the whole interface: mypy reads the tests too.
    return MemoryImage()


def test_every_operation_of_the_interface_is_there_with_the_same_parameters():
    """House, testing: an image in memory implements the protocol."""
    for name, member in inspect.getmembers(Image, inspect.isfunction):
        if not name.startswith("_"):
            wanted = list(inspect.signature(member).parameters)
            assert list(inspect.signature(getattr(MemoryImage, name)).parameters) == wanted, name


def told(reply: Reply) -> tuple[object, ...]:
    """Return what both images must say alike; where an object lies and how long it took is their own."""
    error = None if reply.error is None else (reply.error.type, reply.error.message, reply.error.form_index)
    values = [form.values for form in reply.forms]
    return (reply.ok, values, reply.stdout, error, reply.changed, reply.unkept is None)


CODES = [
    "x = 1\nx + 1\nprint('hi')\nx",
    "def double():\n    return 2 * x",
    "double()",
    "1 / 0",
    "y = 5\nundefined",
    "for",
    "x",
    "items = [x]",
    "items.append(2)",
    "import math",
    "class Bed: pass",
    "x = 7",
    "double()",
    "del items",
]


def test_code_is_answered_as_by_a_real_image(image, tmp_path):
    """A double that says something else than what it stands for proves nothing."""
    real = open_image("python", project=tmp_path)
    try:
        for code in CODES:
            assert told(image.evaluate(code)) == told(real.evaluate(code)), code
        for step in ("undo", "undo", "undo"):
            mine, theirs = getattr(image, step)(), getattr(real, step)()
            assert (mine.id, mine.label, mine.taken_back) == (theirs.id, theirs.label, theirs.taken_back)
            assert image.evaluate("items").values == real.evaluate("items").values
        assert told(image.preview("x = 100\nx")) == told(real.preview("x = 100\nx"))
        assert [(c.id, c.parent, c.label, c.is_current) for c in image.checkpoints()] == [
            (c.id, c.parent, c.label, c.is_current) for c in real.checkpoints()
        ]
    finally:
        real.close()


def test_an_undo_takes_back_what_objects_hold_too(image):
    image.evaluate("items = [1]\nsame = items")
    image.evaluate("items.append(2)")
    assert image.undo().taken_back == 1
    assert image.evaluate("(items, same, items is same)").values == ["([1], [1], True)"]


def test_functions_see_the_state_that_was_gone_back_to(image):
    image.evaluate("x = 1\ndef f():\n    return x")
    image.evaluate("x = 2")
    image.undo()
    assert image.evaluate("f()").values == ["1"]


def test_a_state_has_names_and_is_gone_back_to_by_them(image):
    image.evaluate("x = 1")
    assert image.checkpoint("before").names == ["before"]
    image.evaluate("x = 2")
    assert image.rollback("before").is_current
    assert image.evaluate("x").values == ["1"]
    with pytest.raises(CheckpointError, match="there is no checkpoint 'after'"):
        image.rollback("after")


def test_what_cannot_be_copied_is_told_and_can_be_replayed(image):
    """Interface: unkept tells why no state is kept; undo by state is exact or nothing happens."""
    image.evaluate("x = 1")
    assert image.evaluate("g = iter([1]); h = (n for n in [1])").unkept.startswith("h cannot be copied")
    assert image.evaluate("x = 2").unkept
    with pytest.raises(CheckpointError, match="was not kept"):
        image.undo()
    with pytest.raises(CheckpointError, match="cannot be kept"):
        image.checkpoint("here")
    with pytest.raises(ImageError, match="a preview is not possible"):
        image.preview("1")
    assert image.undo("replay").taken_back == 1
    assert image.evaluate("x").values == ["1"]
    assert "could not be kept" in image.rollback("c2").notes[0]


def test_nothing_can_be_undone_at_the_start(image):
    image.evaluate("1 + 1")
    with pytest.raises(CheckpointError, match="nothing to undo"):
        image.undo()


def test_prepared_replies_come_before_evaluation():
    lisp = MemoryImage("sbcl", replies={"(+ 1 2)": "3", "(boom)": Reply(ok=False)})
    assert lisp.evaluate("(+ 1 2)").values == ["3"]
    assert not lisp.evaluate("(boom)").ok
    message = "There is no reply to '(+ 1 3)': give one in `replies`."
    assert lisp.evaluate("(+ 1 3)").error == ImageFault("NO-REPLY", message)
    assert [entry.code for entry in lisp.history()] == ["(+ 1 2)", "(boom)", "(+ 1 3)"]


def test_a_mapping_with_a_default_answers_everything():
    image = MemoryImage(replies=defaultdict(lambda: "42"), answers={"describe": "a number"})
    assert image.load_system("no-such-system").values == ["42"]
    assert image.ask("describe", symbol="x") == Answer(ok=True, text="a number")
    assert not image.ask("arglist", symbol="x").ok


def test_systems_are_imported(image):
    assert image.load_system("json").ok
    assert image.load_system("no_such_module").error.type == "ModuleNotFoundError"


def test_coroutines_do_the_same(image):
    async def main():
        await image.arun(Compile("def f():\n    return 3"))
        await image.arun(Load("json"))
        return await image.aevaluate("f()")

    assert asyncio.run(main()).values == ["3"]
    assert not image.interrupt()


def test_a_saved_state_is_taken_up_by_another_image(image, tmp_path):
    image.evaluate("x = 1")
    image.evaluate("x += 1")
    image.save(str(tmp_path / "state"))
    other = MemoryImage()
    other.restore(str(tmp_path / "state"))
    assert other.evaluate("x").values == ["2"]
    other.reset()
    assert not other.evaluate("x").ok


def test_an_exit_is_a_failure_and_not_the_end_of_the_test(image):
    assert image.evaluate("raise SystemExit").error.type == "SystemExit"


def test_a_closed_image_refuses(image):
    image.close()
    with pytest.raises(ImageError, match="closed"):
        image.evaluate("1")


def test_without_the_capability_there_is_no_preview():
    with pytest.raises(ImageError, match="no capability 'preview'"):
        MemoryImage(capabilities=frozenset()).preview("1")


def test_the_core_tools_work_on_it(tmp_path):
    """House, testing: tools can be tested without a process."""
    registry = Registry()
    register_core_tools(registry, MemoryImage(), project=tmp_path)
    executor = Executor(registry)
    result = executor.execute({"id": "1", "name": "eval_form", "arguments": {"form": "6 * 7"}})
    assert result.content == "=> 42"
