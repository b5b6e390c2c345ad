"""Loading tools from files and modules: what is found, and what each kind of broken source is told."""

import sys
from pathlib import Path

import pytest

from gramercy.errors import SourceError
from gramercy.workbench.sources import load_tools

ONE_TOOL = '''
from gramercy import tool

@tool
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"
'''


def write(directory: Path, text: str, name: str = "my_tools.py") -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def test_a_file_gives_the_tools_in_its_globals(tmp_path):
    registry = load_tools(write(tmp_path, ONE_TOOL))
    assert registry.names() == ["greet"]


def test_tools_inside_registries_and_libraries_are_found(tmp_path):
    text = ONE_TOOL + (
        "from gramercy import Registry, ToolLibrary, define_tool\n"
        "def _make(name):\n"
        "    return define_tool(name, 'A tool.', [], handler=lambda a: name)\n"
        "registry = Registry([_make('in_registry')])\n"
        "library = ToolLibrary.of([_make('in_library')])\n"
    )
    assert load_tools(write(tmp_path, text)).names() == ["greet", "in_library", "in_registry"]


def test_tools_registered_with_the_default_registry_are_found(tmp_path):
    text = (
        "from gramercy import default_registry, define_tool\n"
        "default_registry().register(define_tool('by_default', 'A tool.', [], handler=lambda a: 1))\n"
    )
    assert load_tools(write(tmp_path, text)).names() == ["by_default"]


def test_a_module_name_is_imported(tmp_path, monkeypatch):
    write(tmp_path, ONE_TOOL, "importable_tools.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_tools("importable_tools").names() == ["greet"]


def test_a_file_can_import_its_neighbours_and_leaves_the_path_as_it_was(tmp_path):
    write(tmp_path, "WORD = 'hi'\n", "neighbour_of_tools.py")
    before = list(sys.path)
    load_tools(write(tmp_path, "from neighbour_of_tools import WORD\n" + ONE_TOOL))
    assert sys.path == before


def test_several_sources_share_a_registry(tmp_path):
    other = ONE_TOOL.replace("greet", "part")
    sources = [write(tmp_path, ONE_TOOL), write(tmp_path, other, "other.py")]
    assert load_tools(*sources).names() == ["greet", "part"]


def test_what_a_file_prints_does_not_reach_standard_output(tmp_path, capsys):
    load_tools(write(tmp_path, "print('noise')\n" + ONE_TOOL))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "noise" in captured.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\n", "defines no tools"),
        ("def broken(:\n", "SyntaxError: invalid syntax\n  {file}:1\n    def broken(:"),
        ("\n\n1 / 0\n", "ZeroDivisionError: division by zero\n  {file}:3\n    1 / 0"),
        ("import no_such_module_anywhere\n", "needs a module that is not installed: no_such_module_anywhere"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        (
            (
                "from gramercy import define_tool\n"
                "a = define_tool('same', 'One.', [], handler=lambda a: 1)\n"
                "b = define_tool('same', 'Two.', [], handler=lambda a: 2)\n"
            ),
            "two different tools are named 'same'",
        ),
        ("from gramercy import define_tool\ndefine_tool('camelCase', '', [])\n", "try 'camel_case'"),
    ],
)
def test_a_broken_file_is_told_what_and_where(tmp_path, text, told):
    with pytest.raises(SourceError) as caught:
        load_tools(write(tmp_path, text))
    assert told.replace("{file}", str(tmp_path / "my_tools.py")) in str(caught.value)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("missing.py", "does not exist"),
        ("no_such_module_anywhere", "there is no module 'no_such_module_anywhere'"),
        ("no_such_module_anywhere.deeper", "there is no module"),
    ],
)
def test_a_missing_source_is_named(source, told):
    with pytest.raises(SourceError, match=told):
        load_tools(source)


def test_a_directory_is_not_a_source(tmp_path):
    with pytest.raises(SourceError, match="is a directory"):
        load_tools(str(tmp_path))
