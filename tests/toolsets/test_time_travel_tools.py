"""The tools that preview, keep and take back, on real images."""

from __future__ import annotations

import re

import pytest

from gramercy.gram.json_schema import compile_schema
from gramercy.images.base import Change, Reply
from gramercy.toolsets.rendering import preview_text


def test_a_preview_shows_values_and_changes_nothing(desk):
    """What makes gramercy different: preview."""
    desk.evaluate("(defvar *x* 1)", "x = 1")
    code = desk.either("(setf *x* 9) (defun fresh () 1) *x*", "x = 9\ndef fresh(): pass\nx")
    text = desk.text("preview_form", code=code)
    assert text.startswith("[preview] nothing was changed\n\n=> 9")
    assert "[would change]" in text
    assert "fresh" in text.lower()
    assert desk.evaluate("*x*", "x") == "=> 1"


def test_a_preview_reports_the_file_it_would_write(desk):
    """Preview: what it tried to write is reported as an attempted effect."""
    code = desk.either(
        '(with-open-file (s "/tmp/preview-effect" :direction :output) (print 1 s))',
        "open('/tmp/preview-effect', 'w')",
    )
    text = desk.text("preview_form", code=code)
    assert "[attempted effects]\n- write /tmp/preview-effect: refused" in text
    assert desk.evaluate(
        '(probe-file "/tmp/preview-effect")', "__import__('os').path.exists('/tmp/preview-effect')"
    ) in {
        "=> NIL",
        "=> False",
    }


def test_a_preview_of_code_that_fails_shows_the_error_it_would_have(desk):
    """Preview: report what would happen."""
    text = desk.text("preview_form", code=desk.either("(/ 1 0)", "1/0"))
    assert "[ERROR]" in text
    assert "DIVI" in text.upper()


def test_a_preview_of_code_that_ends_the_image_leaves_it_alive(desk):
    """Preview: the copy is thrown away."""
    desk.evaluate("(defvar *x* 1)", "x = 1")
    code = desk.either("(sb-ext:exit :abort t)", "import os; os._exit(0)")
    assert "would end the image" in desk.text("preview_form", code=code)
    assert desk.evaluate("*x*", "x") == "=> 1"


def test_without_confinement_there_is_no_preview(paper_desk):
    """Preview is safe only because the copy is confined; where it cannot be, nothing is evaluated."""
    text = paper_desk.failure("preview_form", code="1")
    assert text == (
        "No preview, and nothing was evaluated: a preview is not possible: "
        "this image has no capability 'preview'"
    )


def test_the_last_evaluation_is_taken_back(desk):
    """Undo: the state before the last call."""
    desk.evaluate("(defvar *x* 1)", "x = 1")
    desk.evaluate("(setf *x* 2)", "x = 2")
    assert desk.text("undo_last").startswith("The image is back at c")
    assert desk.evaluate("*x*", "x") == "=> 1"


def test_a_named_state_is_gone_back_to(desk):
    """Checkpoint and rollback."""
    desk.evaluate("(defvar *x* 1)", "x = 1")
    kept = desk.text("checkpoint_image", label="before the change")
    assert kept.endswith("before the change")
    for number in range(3):
        desk.evaluate(f"(setf *x* {number})", f"x = {number}")
    desk.text("rollback_image", checkpoint=kept.split()[2])
    assert desk.evaluate("*x*", "x") == "=> 1"


def test_states_are_listed_with_parents_and_labels(desk):
    """Checkpoints make a tree."""
    desk.evaluate("(defvar *x* 1)", "x = 1")
    desk.text("checkpoint_image", label="here")
    lines = desk.text("list_checkpoints").split("\n")
    first = lines[0].split()[0]
    assert lines[0].endswith(": start")
    assert f"(now) from {first} " in lines[-1]
    assert lines[-1].endswith(": here")


@pytest.mark.contract("answers.structured")
def test_programs_get_the_states_as_data(desk):
    """Structured results: complete without the text, and as the schema says."""
    desk.evaluate("(defvar *x* 1)", "x = 1")
    desk.text("checkpoint_image", label="here")
    result = desk.call("list_checkpoints")
    found = result.metadata["structured"]
    schema = desk.executor.settings.registry.get("list_checkpoints").output_schema
    assert compile_schema(schema).is_valid(found)
    assert [each["id"] for each in found["checkpoints"]] == re.findall(
        r"^(\S+)", result.content, re.MULTILINE
    )
    now = found["checkpoints"][-1]
    assert (now["label"], now["is_current"], now["parent"]) == ("here", True, found["checkpoints"][0]["id"])


def test_one_can_go_forward_again(desk):
    """Rollback: later states stay reachable."""
    desk.evaluate("(defvar *x* 1)", "x = 1")
    kept = desk.text("checkpoint_image", label="one").split()[2]
    desk.evaluate("(setf *x* 2)", "x = 2")
    later = desk.text("list_checkpoints").split("\n")[-1].split()[0]
    desk.text("rollback_image", checkpoint=kept)
    desk.text("rollback_image", checkpoint=later)
    assert desk.evaluate("*x*", "x") == "=> 2"


def test_an_unknown_state_is_refused_with_those_there_are(desk):
    """Errors say what to try."""
    assert "there are c" in desk.failure("rollback_image", checkpoint="c999999")


def test_nothing_to_undo_is_said(desk):
    """Errors say what is wrong."""
    desk.text("list_checkpoints")
    assert "nothing to undo" in desk.failure("undo_last")


def test_an_unknown_object_is_refused(desk):
    """Object inspector by id."""
    assert "999" in desk.failure("inspect_object", object=999)


def test_the_parts_of_an_object_can_be_followed(desk):
    """Object inspector: parts have ids of their own."""
    text = desk.evaluate('(list (list "deep"))', "[['deep']]")
    number = int(text.split("[object ")[1].split("]")[0])
    inspected = desk.text("inspect_object", object=number)
    inner = int(re.findall(r"(?:is object |  #)(\d+)", inspected)[0])
    assert "deep" in desk.text("inspect_object", object=inner)


def test_a_preview_takes_its_code_also_as_form(desk):
    """The argument had that name before, as in eval_form."""
    text = desk.text("preview_form", form="1")
    assert text.endswith("=> 1\n\nform was taken as code.")


def test_many_changes_of_a_preview_are_put_together_and_new_ones_come_first():
    names = [f"garden.function_{number}" for number in range(40)]
    changed = [*(Change("function", name, "redefined") for name in names), Change("class", "garden.Bed")]
    told = preview_text(Reply(ok=True, changed=changed), is_answer=True)
    new, old = told.partition("[would change]\n")[2].splitlines()
    assert new == "- defined, class: garden.Bed"
    assert old.startswith("- redefined, function: garden.function_0, garden.function_1, ")
    assert old.endswith(", … (40 in all)")
    assert len(old) < 350


def test_few_changes_of_a_preview_have_a_line_each():
    changed = [Change("function", "area", "redefined"), Change("variable", "beds")]
    told = preview_text(Reply(ok=True, changed=changed))
    assert told.endswith("[would change]\n- function area redefined\n- variable beds defined")


@pytest.mark.contract("trust.store.undo-last")
def test_the_newer_of_a_write_and_an_evaluation_is_taken_back(desk, project):
    """undo_last takes back a write_file as well."""
    (project / "f").write_text("old")
    desk.evaluate("(defvar *x* 1)", "x = 1")
    desk.text("write_file", path="f", content="new")
    desk.evaluate("(setf *x* 2)", "x = 2")
    # To look at something is no change.
    assert desk.evaluate("*x*", "x") == "=> 2"
    assert desk.text("undo_last").startswith("The image is back at")
    assert (project / "f").read_text() == "new"
    assert desk.text("undo_last").endswith("\n[files] back: f")
    assert (project / "f").read_text() == "old"
    assert desk.evaluate("*x*", "x") == "=> 1"
    assert desk.text("undo_last").startswith("The image is back at")


@pytest.mark.contract("trust.store.undo-last")
def test_writes_of_every_tool_are_taken_back_path_by_path(python_desk, project):
    """undo_last says path by path: back, gone, left alone (why)."""
    desk = python_desk
    desk.text("write_file", path="new/deep/a.py", content="def f():\n    return 1\n")
    desk.text("edit_file", path="new/deep/a.py", old="1", new="2")
    desk.text("edit_definition", path="new/deep/a.py", name="f", code="def f():\n    return 3\n")
    assert desk.text("undo_last").endswith("\n[files] back: new/deep/a.py")
    assert desk.text("undo_last").endswith("\n[files] back: new/deep/a.py")
    assert (project / "new/deep/a.py").read_text() == "def f():\n    return 1\n"
    (project / "new/mine").write_text("of a person")
    told = desk.text("undo_last").partition("[files] ")[2]
    assert told == "gone: new/deep, new/deep/a.py; left alone: new (other files are in it)"
    desk.text("write_file", path="b", content="1")
    (project / "b").write_text("of a person")
    assert desk.text("undo_last").endswith("left alone: b (it was changed since)")
    assert "nothing to undo" in desk.failure("undo_last")
    assert (project / "b").read_text() == "of a person"
