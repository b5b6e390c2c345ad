"""save_state and restore_state with real images: what comes back, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.toolsets.conftest import Desk


@pytest.fixture(autouse=True)
def _state_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.contract("day.runs.states")
def test_a_state_is_taken_up_again_after_a_reset(desk):
    """Definitions and values are back; the answer says what is in the file and what is not."""
    desk.evaluate("(defvar *kept* (list 1 2))", "kept = [1, 2]")
    saved = desk.text("save_state", name="garden-1")
    assert saved.startswith("Saved as garden-1: ")
    assert desk.either("whole heap", "run again") in saved
    desk.text("reset-session")
    restored = desk.text("restore_state", name="garden-1")
    assert restored.startswith("Restored garden-1")
    assert desk.evaluate("*kept*", "kept").startswith(desk.either("=> (1 2)", "=> [1, 2]"))


@pytest.mark.slow
def test_no_state_is_overwritten_and_a_missing_one_is_answered_with_those_there(desk):
    """And the present state stays when a state cannot be taken up."""
    desk.evaluate("(defvar *kept* 5)", "kept = 5")
    assert "None is saved" in desk.failure("restore_state", name="nothing")
    desk.text("save_state", name="one")
    assert "not overwritten" in desk.failure("save_state", name="one")
    assert "one (2" in desk.failure("restore_state", name="two")
    assert desk.evaluate("*kept*", "kept").startswith("=> 5")


@pytest.mark.parametrize("name", ["../x", "/etc/x", "", ".hidden", "a b", "a\0b", "x" * 70])
def test_a_name_that_is_a_path_or_no_name_is_refused(python_desk, name):
    """The argument is a name; nothing is written."""
    assert "name" in python_desk.failure("save_state", name=name)


def test_a_state_of_the_other_language_is_not_offered(images, workspace):
    """States are listed for the language of the image."""
    lisp, python = Desk(images("sbcl"), workspace), Desk(images("python"), workspace, "python")
    python.text("save_state", name="both")
    assert "there is no state both" in lisp.failure("restore_state", name="both")


def test_a_file_that_is_no_state_leaves_the_image_as_it_is(python_desk):
    """Someone may have damaged it."""
    python_desk.text("evaluate-python", code="kept = 5")
    saved = python_desk.text("save_state", name="one")
    Path(saved.rpartition("The file is ")[2]).write_text("{")
    assert "is not a saved image" in python_desk.failure("restore_state", name="one")
    assert python_desk.text("evaluate-python", code="kept").startswith("=> 5")
