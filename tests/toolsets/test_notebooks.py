"""Notebooks: read as cells, edited as the JSON that they are."""

from __future__ import annotations

import json

import pytest

CELLS = [
    {"cell_type": "markdown", "source": ["# Beds\n", "How large they are."]},
    {
        "cell_type": "code",
        "execution_count": 3,
        "source": ["area = 3 * 4\n", "area"],
        "outputs": [
            {"output_type": "stream", "name": "stdout", "text": [f"line {n}\n" for n in range(1000)]},
            {"output_type": "execute_result", "data": {"text/plain": ["12"], "image/png": "A" * 99_999}},
            {"output_type": "error", "ename": "ValueError", "evalue": "no bed", "traceback": ["\x1b[31mx"]},
        ],
    },
]


@pytest.fixture
def notebook(project):
    path = project / "beds.ipynb"
    path.write_text(
        json.dumps({"cells": CELLS, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    )
    return path


@pytest.mark.contract("day.points.notebooks")
def test_a_notebook_is_read_as_cells(paper_desk, notebook):
    """The JSON of a notebook with a picture was a wall of base64."""
    told = paper_desk.text("read_file", path=notebook.name)
    head, *rest = told.split("\n")
    assert head.startswith("[A view of 2 cells, outputs shortened: the file is JSON")
    assert rest[:3] == ["── cell 1: markdown", "# Beds", "How large they are."]
    assert "── cell 2: code, ran as [3]\narea = 3 * 4\narea\n── output of 2: \nline 0\n" in told
    assert "more characters)" in told
    assert "── output of 2: [image/png] 12\n── output of 2: ValueError: no bed" in told
    assert "AAAA" not in told


@pytest.mark.contract("day.points.notebooks")
def test_edits_of_a_notebook_are_made_of_its_text(paper_desk, notebook):
    """What was copied from the view is refused, with the reason; the text of the file is taken."""
    before = notebook.read_text()
    told = paper_desk.failure("edit_file", path=notebook.name, old="area = 3 * 4\narea", new="x")
    assert "read_file shows a notebook as cells: the text of the file itself is JSON." in told
    view = paper_desk.text("read_file", path=notebook.name)
    told = paper_desk.failure(
        "propose_file_edit", path=notebook.name, original=view, modified="x", description="d"
    )
    assert "the text of the file itself is JSON" in told
    assert notebook.read_text() == before
    paper_desk.text("edit_file", path=notebook.name, old="area = 3 * 4", new="area = 3 * 5")
    assert notebook.read_text() == before.replace("3 * 4", "3 * 5")
    assert paper_desk.text("read_buffer", buffer=notebook.name).startswith('{\n "cells": [')


@pytest.mark.contract("day.points.notebooks")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 3}', "[" * 5000, '{"worksheets": []}'])
def test_what_is_no_notebook_is_shown_as_it_is(paper_desk, project, text):
    """By its name alone a file is no notebook."""
    (project / "odd.ipynb").write_text(text)
    assert paper_desk.text("read_file", path="odd.ipynb") == text


@pytest.mark.contract("day.points.notebooks")
def test_cells_of_odd_shape_are_shown_as_far_as_they_are_known(paper_desk, project):
    """Nothing in a file is trusted to have a known shape."""
    cells = [None, {}, {"cell_type": 1, "source": {"a": 1}, "outputs": [None, {}, {"data": 3}]}]
    (project / "odd.ipynb").write_text(json.dumps({"cells": cells}))
    told = paper_desk.text("read_file", path="odd.ipynb")
    assert "── cell 1: not a cell" in told
    assert told.count("── output of 3: unknown") == 3
