"""The picture in the README shows what the tour really prints."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def picture() -> ModuleType:
    """Return the program that draws it."""
    spec = importlib.util.spec_from_file_location("picture", ROOT / "docs" / "picture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_shows_what_the_tour_prints(picture: ModuleType) -> None:
    """Style: what is shown is checked for drift."""
    printed = picture.run_tour()
    if "live image are left out" in printed:
        pytest.skip("no sandbox here, so the tour has no live image")
    drawn = picture.drawn_lines(picture.PICTURE.read_text(encoding="utf-8"))
    assert picture.constant(drawn) == picture.constant(picture.lines_of(printed))


def test_the_picture_has_all_scenes_as_text(picture: ModuleType) -> None:
    """README: a picture that can be searched and read aloud."""
    tree = ET.parse(picture.PICTURE)
    texts = [element.text or "" for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    for scene in picture.SCENES:
        assert any(text.startswith(f"── {scene}") for text in texts)


def test_a_change_is_noticed_but_not_the_time_of_day(picture: ModuleType) -> None:
    """Style: every test can fail, this machinery included."""
    lines = ["$ gramercy tour", "result  back at c4 from c3 at 15:06:43, 1.2 MB", "  => 120 <&>"]
    drawn = picture.drawn_lines(picture.draw(lines))
    later = [lines[0], "result  back at c5 from c4 at 09:00:00, 900 KB", lines[2]]
    assert picture.constant(drawn) == picture.constant(later)
    assert picture.constant(drawn) != picture.constant([*lines[:2], "  => 100 <&>"])


def test_a_misspelt_option_draws_nothing(picture: ModuleType) -> None:
    """As docs/generate.py: --chek must not write."""
    assert picture.main(["--chek"]) == 2
