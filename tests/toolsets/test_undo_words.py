"""What undo_last says and takes back: calls, files, and an edit together with its load."""

from __future__ import annotations

import shutil

import pytest

from gramercy.images.opening import open_image
from tests.toolsets.conftest import LANGUAGES, SANDBOX, Desk


@pytest.fixture(params=LANGUAGES)
def desk(request, project, workspace):
    """Return a desk for each language, with an image that works in the project itself."""
    if request.param == "sbcl" and shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed")
    image = open_image(request.param, project=project, sandbox=SANDBOX)
    yield Desk(image, workspace, request.param)
    image.close()


@pytest.mark.contract("clients.undo.told")
def test_undo_names_the_call_that_it_took_back_and_the_way_forward(desk):
    """A day's real work: undo did not say what it took back, and redo could not be found."""
    desk.evaluate("(defvar *x* 1)", "x = 1")
    desk.evaluate("(defun f () (setf *x* 2))", "def f():\n    global x\n    x = 2")
    # A call of a function may change something: it counts, and is named.
    desk.evaluate("(f)", "f()")
    where, taken, *_ = desk.text("undo_last").split("\n")
    assert where.startswith("The image is back at c")
    assert taken.startswith(f"Taken back: {desk.either('(f)', 'f()')}; rollback to c")
    assert desk.evaluate("*x*", "x") == "=> 1"
    desk.text("rollback_image", checkpoint=taken.split()[-3])
    assert desk.evaluate("*x*", "x") == "=> 2"


@pytest.mark.contract("clients.undo.told")
def test_undo_names_the_files_that_went_back(desk, project):
    """A day's real work: calls and files."""
    desk.evaluate(
        '(with-open-file (o "mud.txt" :direction :output) (print 1 o))', "open('mud.txt', 'w').write('1')"
    )
    told = desk.text("undo_last")
    assert "Taken back: " in told
    assert "[files] gone: mud.txt" in told
    assert not (project / "mud.txt").exists()


@pytest.mark.contract("clients.undo.one-step")
def test_an_edit_that_loads_its_file_is_one_step(desk, project):
    """A day's real work: the first undo took back the load, and left the file."""
    name = desk.either("g.lisp", "g.py")
    old = desk.either("(defun one () 1)\n", "def one():\n    return 1\n")
    (project / name).write_text(old)
    desk.text("load_file", path=name)
    desk.text("edit_definition", path=name, name="one", code=old.replace("1", "2").rstrip(), load=True)
    assert desk.evaluate("(one)", "import g; g.one()") == "=> 2"
    # The look at it is a call, which is taken back first.
    assert desk.either("(one)", "import g; g.one()") in desk.text("undo_last")
    told = desk.text("undo_last")
    assert f"[files] back: {name}" in told
    assert told.endswith("To redo it, make the edit again: the states that are kept do not have it.")
    assert str(project) not in told
    assert (project / name).read_text() == old
    assert desk.evaluate("(one)", "import g; g.one()") == "=> 1"


@pytest.mark.contract("clients.undo.one-step")
def test_undo_that_leaves_files_alone_takes_back_the_load_alone(desk, project):
    """The argument files stands for the edit, too."""
    name = desk.either("g.lisp", "g.py")
    old = desk.either("(defun one () 1)\n", "def one():\n    return 1\n")
    (project / name).write_text(old)
    new = old.replace("1", "2").rstrip()
    desk.text("edit_definition", path=name, name="one", code=new, load=True)
    assert "[files]" not in desk.text("undo_last", files=False)
    assert (project / name).read_text() == f"{new}\n"
