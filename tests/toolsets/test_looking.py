"""The tools that find definitions, methods and documentation, as a caller meets them."""

from __future__ import annotations

import pytest

from gramercy.images.base import Answer
from gramercy.toolsets.looking import standard_page
from gramercy.toolsets.workspace import Workspace
from tests.toolsets.conftest import Desk

PAGE = """<HTML><HEAD><TITLE>CLHS: Function MAPC, MAPCAR</TITLE></HEAD><BODY>
<A HREF="x">up</A><P><I>Function</I> <B>MAPCAR</B> <P>Applies &lt;function&gt; to successive
elements.</BODY></HTML>"""


@pytest.fixture
def hyperspec(tmp_path, monkeypatch):
    (tmp_path / "Data").mkdir()
    (tmp_path / "Body").mkdir()
    (tmp_path / "Data" / "Map_Sym.txt").write_text(
        "CAR\n../Body/gone.htm\nMAPCAR\n../Body/f_mapc_.htm#mapcar\n"
    )
    (tmp_path / "Body" / "f_mapc_.htm").write_text(PAGE)
    monkeypatch.setenv("CLHS_ROOT", str(tmp_path))
    return tmp_path


@pytest.mark.contract("day.looks.documentation")
def test_a_name_of_the_standard_comes_with_its_page(hyperspec):
    """Where the HyperSpec is installed: the title, the file, and the text without tags."""
    text = standard_page("MAPCAR")
    assert text.startswith(f"HyperSpec: CLHS: Function MAPC, MAPCAR ({hyperspec}/Body/f_mapc_.htm)\n")
    assert "Function MAPCAR\n" in text
    assert "Applies <function> to successive\nelements." in text
    assert "has no NOSUCH" in standard_page("NOSUCH")
    assert "gone.htm: No such file" in standard_page("CAR")


def test_without_a_copy_that_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("CLHS_ROOT", str(tmp_path / "nowhere"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("gramercy.toolsets.looking.HYPERSPEC_PLACES", ("~/HyperSpec", "~/*/x"))
    assert "no copy was found here; CLHS_ROOT may name" in standard_page("CAR")


def test_the_page_stands_behind_the_docstring_and_the_answer_is_bounded(hyperspec, paper, tmp_path):
    (hyperspec / "Body" / "f_mapc_.htm").write_text(PAGE.replace("elements", "elements " * 5_000))
    paper.ask = lambda question, **details: Answer(
        ok=True, text=f"{question} {details['name']} " + "x" * 9_000, data={"standard": "MAPCAR"}
    )
    text = Desk(paper, Workspace(tmp_path)).text("look_up_documentation", name="mapcar")
    assert text.startswith("look_up_documentation mapcar xxx")
    assert "HyperSpec: CLHS: Function MAPC" in text
    assert len(text) <= 8_000


@pytest.mark.parametrize("tool", ["find_definition", "find_methods", "look_up_documentation"])
def test_a_name_that_is_not_there_comes_back_with_near_ones(desk, tool):
    """Did you mean."""
    argument = "symbol" if tool == "find_definition" else "name"
    desk.evaluate("(defclass apple () ())", "class Apple: pass")
    text = desk.failure(tool, **{argument: desk.either("aple", "Aple")})
    assert desk.either("APPLE", "Apple") in text


def test_a_library_is_described_and_a_misspelt_one_suggested(desk):
    text = desk.text("describe_system", system=desk.either("uiop", "json"))
    assert "loaded" in text
    assert desk.either("uiop", "json") in desk.failure(
        "describe_system", system=desk.either("uiopp", "jsonn")
    )


def test_a_definition_that_is_not_loaded_leads_to_the_files(desk):
    text = desk.failure("find_definition", symbol="no_such_name_here")
    assert text.endswith("The image knows only what is loaded; search_files looks into files.")
