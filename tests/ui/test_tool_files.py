"""Errors in files with tools point at the user's line, without a traceback of ours."""

import pytest

HEAD = "from gramercy import tool\n"
# The text of a file, and what is shown of its fault below the first line.
FAULTS = {
    "expression": (
        f"{HEAD}\n\ndef go():\n    return 1 / 0\n\n\nx = 1 + go()\n",
        ["broken.py:5", "return 1 / 0", "       ^"],
    ),
    "library": (
        f"{HEAD}import json\n\nx = json.loads('{{')\n",
        ["broken.py:4", "x = json.loads('{')", "    ^"],
    ),
    "syntax": (
        f"{HEAD}\n@tool\ndef f(x: int)\n    return x\n",
        ["broken.py:4", "def f(x: int)", "             ^"],
    ),
    "decorator": (
        f'{HEAD}\n\n@tool(safety_level="wild")\ndef f(x: int) -> int:\n    """F."""\n    return x\n',
        ["broken.py:4", '@tool(safety_level="wild")', " ^"],
    ),
    "import": (f"{HEAD}import nothing_there\n", ["broken.py:2", "import nothing_there", "^"]),
    "exit": ("raise SystemExit(3)\n", ["broken.py:1", "raise SystemExit(3)", "^"]),
    "other file": ("import helper\n", ["helper.py:2", "y = 1 +", "       ^"]),
}


def test_a_file_that_is_no_text_is_named_without_a_line(inside, tmp_path):
    (tmp_path / "broken.py").write_bytes(b"\0\xff")
    assert inside("tools", "list", "--from", "broken.py").stderr.endswith("\n  broken.py\n")


@pytest.mark.contract("day.prompt.tool-files")
@pytest.mark.parametrize("name", FAULTS)
def test_a_file_that_cannot_be_loaded_shows_the_line(inside, tmp_path, name):
    text, shown = FAULTS[name]
    (tmp_path / "broken.py").write_text(text)
    (tmp_path / "helper.py").write_text("x = 1\ny = 1 +\n")
    done = inside("tools", "list", "--from", "broken.py")
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (3, "")
    assert lines[0].startswith("gramercy: broken.py ")
    assert [lines[-3][2:], lines[-2][4:], lines[-1][4:]] == shown


def test_two_tools_of_one_name_are_both_shown(inside, tmp_path):
    body = 'def {}(x: int) -> int:\n    """F."""\n    return x\n\n\n'
    text = f"{HEAD}\n\n@tool\n{body.format('dig')}@tool(name='dig')\n{body.format('digs')}"
    (tmp_path / "broken.py").write_text(text)
    done = inside("tools", "list", "--from", "broken.py")
    assert done.returncode == 3
    assert "two different tools are named 'dig'" in done.stderr
    assert done.stderr.splitlines()[-2:] == ["  broken.py:4", "  broken.py:10"]


@pytest.mark.contract("day.prompt.tool-files")
@pytest.mark.parametrize("word", ["def", "async def"])
def test_a_tool_that_fails_shows_the_line(inside, tmp_path, word):
    text = f'{HEAD}\n\n@tool\n{word} dig(depth: int) -> float:\n    """Dig."""\n    return 1 / depth\n'
    (tmp_path / "garden.py").write_text(text)
    done = inside("tools", "call", "dig", "depth=0", "--from", "garden.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-3:] == ["  garden.py:7", "    return 1 / depth", "           ^"]
    done = inside("tools", "call", "dig", "depth=deep", "--from", "garden.py")
    assert "garden.py:" not in done.stderr
