"""The tools for the moment of an error on a Python image: what a model sees and can try."""

from __future__ import annotations

import re

import pytest

SHOP = """
class Line:
    def __init__(self, name, price): self.name, self.price = name, price
    def __repr__(self): raise ValueError("repr ran")
class Basket:
    __rate = 0.5
    def __init__(self, lines): self.lines = lines
    def total(self):
        found = 0
        for line in self.lines:
            found += line.price * (1 + self.__rate)
        return found
basket = Basket([Line("tea", 3), Line("jam", "4")])
"""


@pytest.fixture
def shop(python_desk):
    python_desk.text("eval_form", form=SHOP)
    assert kept(python_desk.failure("eval_form", form="basket.total()"))
    return python_desk


def kept(told):
    """Return the id of the moment that an error has left."""
    found = re.search(r"^(m\d+) keeps this moment", told, re.MULTILINE)
    assert found is not None, told
    return found[1]


@pytest.fixture
def first(shop):
    """Return the id of the latest moment."""
    return shop.text("error_frames").partition(":")[0]


@pytest.mark.contract("day.moment.python.tools")
def test_a_model_finds_the_value_that_failed_and_tries_a_cure(shop):
    """Frames, the variables of one, code in it; the image stays as it was."""
    frames = shop.text("error_frames")
    assert re.match(r"m\d+: TypeError: ", frames)
    assert "0: Basket.total(self=<Basket object>)" in frames
    assert "here: line.price * (1 + self.__rate)" in frames
    assert "variables: self found line" in frames
    assert "[Restarts]" not in frames
    variables = shop.text("error_frames", frame=0)
    assert "line = <Line object: name='jam', price='4'>" in variables
    assert "repr ran" not in variables
    assert shop.text("eval_in_frame", code="type(line.price), self.__rate") == "=> (<class 'str'>, 0.5)"
    cured = "for each in self.lines: each.price = float(each.price)\nself.total()"
    assert shop.text("eval_in_frame", code=cured).endswith("=> 10.5")
    assert shop.text("eval_form", form="basket.lines[1].price") == "=> '4'"


def test_objects_of_the_moment_are_not_offered_to_the_image(shop):
    """What is in the copy cannot be inspected in the image."""
    assert "[object" not in shop.text("eval_in_frame", code="list(range(3))")
    assert "[object" in shop.text("eval_form", form="list(range(3))")


def test_a_cause_has_its_frames_below_those_of_the_error(shop, first):
    """Chained exceptions: numbered on."""
    code = "try: basket.total()\nexcept TypeError as e: raise RuntimeError('no sum') from e"
    second = kept(shop.failure("eval_form", form=code))
    frames = shop.text("error_frames")
    assert f"{second}: RuntimeError: no sum" in frames
    assert "raised from TypeError: " in frames
    assert shop.text("eval_in_frame", code="line.name", frame=1) == "=> 'jam'"
    assert shop.text("eval_in_frame", code="found", moment=first) == "=> 4.5"


def test_an_endless_recursion_is_told_in_a_few_lines(shop):
    """Folded; from an offset each frame is told, with the way on."""
    shop.failure("eval_form", form="def deep(n): return deep(n + 1) + 1\ndeep(0)")
    frames = shop.text("error_frames")
    assert len(frames) < 1200
    assert ": deep again" in frames
    some = shop.text("error_frames", offset=100)
    assert "\n100: deep(n=" in some
    assert "offset 130 shows the next" in some


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("error_frames", {"frame": 99}, "There is no frame 99: the frames are 0 to 1."),
        ("error_frames", {"moment": "m0"}, "there are m"),
        ("eval_in_frame", {"code": "1", "frame": 7}, "There is no frame 7"),
        ("eval_in_frame", {"code": "(", "frame": 0}, "never closed"),
        ("invoke_restart", {"restart": "0"}, "Python has no restarts"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(shop, tool, arguments, said):
    """Bad input."""
    assert said in shop.failure(tool, **arguments)


def test_code_that_ends_the_copy_is_told(shop, first):
    """The image is not touched by it."""
    assert first in shop.failure("eval_in_frame", code="import os\nos._exit(1)")
    assert shop.text("eval_form", form="1 + 1") == "=> 2"
