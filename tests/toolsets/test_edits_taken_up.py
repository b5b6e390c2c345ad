"""The tools that write files say what the image runs of them, and can let it take the edit up at once."""

from __future__ import annotations

from contextlib import closing

import pytest

from gramercy.images.environment import Environment, Reload
from gramercy.images.opening import open_image
from gramercy.toolsets.workspace import Workspace
from tests.toolsets.conftest import SANDBOX, Desk

TEXT = "RATE = 2\ndef price(x):\n    return x * RATE\n"
HOLD = "import shop; held = shop.price"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return the desk of an image that does this with edits; the module `shop` is loaded."""
    opened = {}

    def at(mode):
        if mode not in opened:
            place = tmp_path_factory.mktemp(f"shop-{mode}")
            environment = Environment(reload=Reload(mode))
            image = open_image("python", project=place, sandbox=SANDBOX, environment=environment)
            opened[mode] = place, image
        place, image = opened[mode]
        image.reset()
        (place / "shop.py").write_text(TEXT)
        desk = Desk(image, Workspace(place), "python")
        desk.text("eval_form", form=HOLD)
        return desk, place / "shop.py"

    yield at
    for _, image in opened.values():
        with closing(image):
            pass


@pytest.mark.contract("day.reload.tools.told")
def test_an_edit_says_that_the_next_evaluation_takes_it_up(places):
    """A model that edits and evaluates must know which code it will see."""
    desk, _ = places("auto")
    said = desk.text("edit_file", path="shop.py", old="x * RATE", new="x + RATE")
    assert (
        said
        == "Edited shop.py:3 (-1 +1 line)\nshop is loaded from it: the next evaluation takes the edit up."
    )
    assert desk.text("eval_form", form="held(5)") == "=> 7\n\ntook up shop.py: price"
    said = desk.text("write_file", path="shop.py", content=TEXT)
    assert said.endswith("shop is loaded from it: the next evaluation takes the edit up.")
    said = desk.text("edit_definition", path="shop.py", name="price", code="def price(x):\n    return 1\n")
    assert said.endswith("shop is loaded from it: the next evaluation takes the edit up.")


@pytest.mark.contract("day.reload.tools.told")
@pytest.mark.parametrize("mode", ["tell", "off"])
def test_an_edit_says_that_the_old_code_runs_where_it_is_not_taken_up(places, mode):
    """--reload tell or off."""
    desk, _ = places(mode)
    said = desk.text("edit_file", path="shop.py", old="x * RATE", new="x + RATE")
    assert said.endswith("\nshop is loaded from it: its old code runs until it is loaded again.")
    assert desk.text("eval_form", form="held(5)").startswith("=> 10")


@pytest.mark.contract("day.reload.tools.told")
def test_an_edit_of_what_is_not_loaded_says_nothing_of_it(places):
    """Replies get shorter."""
    desk, file = places("auto")
    (file.parent / "other.py").write_text("x = 1\n")
    assert desk.text("edit_file", path="other.py", old="1", new="2") == "Edited other.py:1 (-1 +1 line)"
    (file.parent / "notes.txt").write_text("x = 1\n")
    assert desk.text("edit_file", path="notes.txt", old="1", new="2") == "Edited notes.txt:1 (-1 +1 line)"


@pytest.mark.contract("day.reload.tools.load")
@pytest.mark.parametrize("mode", ["auto", "tell"])
def test_an_edit_with_load_is_taken_up_in_the_same_call(places, mode):
    """One call instead of two, with what came of it."""
    desk, _ = places(mode)
    said = desk.text("edit_file", path="shop.py", old="x * RATE", new="x + RATE", load=True)
    assert said == "Edited shop.py:3 (-1 +1 line)\ntook up shop.py: price"
    assert desk.text("eval_form", form="held(5)") == "=> 7"
    said = desk.text("write_file", path="shop.py", content=TEXT.replace("= 2", "= 3"), load=True)
    assert said.endswith("bytes to shop.py\ntook up shop.py: price; ran line 1")
    assert desk.text("eval_form", form="held(5)") == "=> 15"


@pytest.mark.contract("day.reload.tools.load")
def test_an_edit_whose_load_fails_stays_written_and_is_told(places):
    """The file is the person's; the image stays as it was."""
    desk, file = places("auto")
    said = desk.failure("edit_file", path="shop.py", old="RATE = 2", new="RATE = 2 / 0", load=True)
    told = "The module stays as it was: shop.py:1: ZeroDivisionError: division by zero; nothing was taken up"
    assert said == f"Edited shop.py:1 (-1 +1 line)\n{told}"
    assert "RATE = 2 / 0" in file.read_text()
    assert desk.text("eval_form", form="held(5)") == "=> 10"


@pytest.mark.contract("day.reload.tools.load")
def test_a_file_that_is_no_code_is_refused_before_it_is_written(places):
    """Nothing is half done."""
    desk, file = places("auto")
    notes = file.parent / "notes.txt"
    notes.write_text("one\n")
    assert "neither Lisp nor Python" in desk.failure(
        "edit_file", path="notes.txt", old="one", new="two", load=True
    )
    assert "neither Lisp nor Python" in desk.failure("write_file", path="notes.txt", content="two", load=True)
    assert notes.read_text() == "one\n"


@pytest.mark.contract("day.reload.tools.load")
def test_a_file_that_was_not_loaded_is_imported_by_load(places):
    """Nothing to take up yet."""
    desk, _ = places("auto")
    said = desk.text("write_file", path="fresh.py", content="def f(): return 1\n", load=True)
    assert "Loaded fresh.py as fresh." in said
    assert desk.text("eval_form", form="import fresh; fresh.f()") == "=> 1"
