"""The tools for the moment of an error, as a model meets them."""

from __future__ import annotations

import pytest

from gramercy.images.base import Answer, ImageFault, Reply, Restart
from gramercy.toolsets.errors import error_tools, frames_text, locals_text
from gramercy.toolsets.factory import SingleImage, Workshop
from gramercy.toolsets.rendering import LONGEST_ANSWER
from tests.support import saying

CODE = """(defun area (w h)
  (let ((both (list w h)))
    (list both scale both)))
(list (area 2 3))"""


@pytest.mark.contract("day.moment.tools")
def test_a_model_looks_at_an_error_and_goes_on(lisp_desk):
    """Moments: the error names its restarts and the tools, and each answer says what to do next."""
    error = lisp_desk.failure("eval_form", form=CODE)
    assert (
        "[Restarts]\n[0] CONTINUE: Retry using SCALE.\n[1] USE-VALUE (VALUE): Use specified value." in error
    )
    moment, _, tools = error.splitlines()[-1].partition(" keeps this moment: ")
    assert tools == "error_frames, eval_in_frame, invoke_restart"
    frames = lisp_desk.text("error_frames")
    assert frames.startswith(
        f"{moment}: UNBOUND-VARIABLE: The variable SCALE is unbound.\n\n[Restarts]\n[0] "
    )
    assert (
        "0: (AREA 2 3)\n   line 3 of the evaluated code  (list both scale both)))\n   variables: " in frames
    )
    assert "BOTH = (2 3)" in lisp_desk.text("error_frames", frame=0)
    assert lisp_desk.text("eval_in_frame", code="(length both)").startswith("=> 2")
    went = lisp_desk.text("invoke_restart", restart="store-value", arguments="(+ 4 5)")
    assert went.startswith(("[warnings]", "=> (((2 3) 9 (2 3)))"))
    assert f"{moment}.a1 is the copy of {moment} that went on. The image is as it was." in went
    assert f"{moment}.a1 is the image now" in lisp_desk.text("rollback_image", checkpoint=f"{moment}.a1")
    assert lisp_desk.text("eval_form", form="scale") == "=> 9"


def test_an_error_names_only_tools_that_are_served(paper):
    """Moments: a text should name no others, and none where no moment is kept."""
    fault = ImageFault("E", "m", choices=[Restart(0, "MINE", "Take it.", ["A"])], moment="m3")
    reply = Reply(ok=False, error=fault)
    for beside, line in (
        ({"error_frames", "invoke_restart"}, "m3 keeps this moment: error_frames, invoke_restart"),
        (set(), ""),
    ):
        told = Workshop(SingleImage(paper), beside=beside).evaluated(reply)
        assert (told.error.splitlines()[-1], told.note) == ("[0] MINE (A): Take it.", line)
    without = Reply(ok=False, error=ImageFault("E", "m", no_moment="threads"))
    assert Workshop(SingleImage(paper)).evaluated(without).error == "[ERROR] E\nm"


def test_many_restarts_are_counted(paper_desk, paper):
    """Moments: error answers stay compact."""
    choices = [Restart(number, "R", "x" * 500) for number in range(20)]
    paper.replies = saying(Reply(ok=False, error=ImageFault("E", "m", choices=choices)))
    text = paper_desk.failure("eval_form", form="1")
    assert text.endswith("… 14 more")
    assert len(text) < 1_000


def test_frames_and_variables_stay_within_the_limit():
    """Answers: at most 8,000 characters, what is left out is counted with the way to see it."""
    frames = [
        {"number": n, "call": "(F " + "x" * 900, "line": n, "source": "s" * 900, "locals": ["v"] * 50}
        for n in range(30)
    ]
    text = frames_text(Answer(ok=True, data={"frames": frames, "total": 2000, "complete": False}))
    assert len(text) <= LONGEST_ANSWER
    assert "at least " in text
    assert text.endswith("shows the next")
    many = [{"name": f"v{n}", "value": "x" * 400, "type": "T"} for n in range(60)]
    assert len(locals_text(Answer(ok=True, data={"locals": many}))) <= LONGEST_ANSWER


def test_without_a_moment_the_tools_say_so(lisp_desk, paper_desk):
    """Moments: bad input gets what, which, and what there is."""
    lisp_desk.call("reset-session")
    for name, arguments in (
        ("error_frames", {}),
        ("error_frames", {"frame": 3}),
        ("eval_in_frame", {"code": "1"}),
        ("invoke_restart", {"restart": "0"}),
    ):
        assert "No moment of an error is kept" in lisp_desk.failure(name, **arguments)
        assert "keeps no moment" in paper_desk.failure(name, **arguments)


@pytest.mark.parametrize("name", ["error_frames", "eval_in_frame", "invoke_restart"])
def test_descriptions_are_short(paper, name):
    """A model pays for them in every turn."""
    tool = next(tool for tool in error_tools(Workshop(SingleImage(paper))) if tool.name == name)
    assert len(tool.description.split()) <= 60
