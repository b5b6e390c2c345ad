"""The readers of definitions against SBCL's own reader and Python's parser, and edits that cancel out."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from gramercy import images
from gramercy.toolsets.documents import decode
from gramercy.toolsets.lisp_definitions import outline, spelled
from gramercy.toolsets.lisp_text import Reading
from gramercy.toolsets.rewriting import Rewriting, language_of

# Our own are on every machine; scripts/setup installs the libraries, and the sources of SBCL may be there.
OWN_LISP = Path(images.__file__).parent / "lisp"
LISP_SOURCES = (OWN_LISP, Path("/usr/share/common-lisp/source"), Path("/usr/share/sbcl-source"))
LIBRARY = Path(sysconfig.get_path("stdlib"))
# Files with a reader macro of another implementation, which SBCL cannot read either.
UNREADABLE = {"cffi-abcl.lisp"}
# Names that only evaluation tells (#.), and SBCL's own package::(form), whose prefix stands alone for others.
ODD_NAMES = {"octet-stream.lisp", "save.lisp", "print-object.lisp", "globaldb.lisp"}
# Texts with faults on purpose, and in encodings of their own.
BAD_PYTHON = ("lib2to3/tests/data", "/bad", "test/test_lib2to3", "idlelib/idle_test/example_noext")
READER = Path(__file__).with_name("lisp_reader.lisp")

pytestmark = pytest.mark.skipif(shutil.which("sbcl") is None, reason="needs sbcl")


def lisp_files(step):
    """Return every one of so many files: of our own, and then of what this machine has besides."""
    roots = (sorted(root.rglob("*.lisp")) for root in LISP_SOURCES)
    return [path for files in roots for path in files[::step]]


def python_files(step):
    found = sorted(path for path in LIBRARY.rglob("*.py") if "site-packages" not in path.parts)
    return [path for path in found if not any(bad in str(path) for bad in BAD_PYTHON)][::step]


def read_by_sbcl(files):
    """Return for each file the forms that SBCL's reader finds: end, operator and name."""
    done = subprocess.run(
        ["sbcl", "--script", str(READER)],
        input="".join(f"{file}\n" for file in files),
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    found: dict[Path, list[list[str]]] = {}
    rows: list[list[str]] = []
    for line in done.stdout.splitlines():
        if line.startswith("file "):
            rows = found.setdefault(Path(line.removeprefix("file ")), [])
        else:
            rows.append(line.split(" ", 2))
    return found


def text_of(path):
    data = path.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def shown(path):
    """Return a text as the tools read it."""
    decoded = decode(path.read_bytes())
    assert decoded is not None, path
    return decoded[0]


def compare_with_sbcl(step):
    found = read_by_sbcl(lisp_files(step))
    count = 0
    for file, rows in found.items():
        if file.name in UNREADABLE:
            continue
        assert rows.pop() == ["end"], file
        reading = Reading(text_of(file))
        assert [str(item.end) for item in reading.items] == [row[0] for row in rows], file
        assert not reading.faults, file
        begins = [reading.text[item.outer : item.outer + 2] for item in reading.items]
        assert not [begin for begin in begins if begin[0] in " \t\n\f;" or begin == "#|"], file
        if file.name not in ODD_NAMES:
            here, there = defined_here(reading.text), defined_there(rows)
            # What SBCL cannot read for other reasons, such as the name of a character, has no name there.
            known = {int(row[0]) for row in rows if len(row) == 3}
            assert [each for each in here if each[0] in known] == there, file
        count += len(rows)
    return count


def defined_here(text):
    top = [each for each in outline(text).definitions if each.keys and each.kind.startswith("def")]
    named = [(each.end, each.kind.upper(), spelled(each.name)) for each in top if not each.parent]
    return [each for each in named if each[2] != "NIL"]


def defined_there(rows):
    named = [row for row in rows if len(row) == 3 and row[1].startswith("DEF") and row[2] != "NIL"]
    return [(int(end), operator, name) for end, operator, name in named]


@pytest.mark.contract("day.forms.oracle")
def test_forms_of_lisp_are_where_the_reader_of_sbcl_finds_them():
    """Oracle: a part of our own sources, and of what there is of libraries and of SBCL."""
    assert compare_with_sbcl(8) > 200


@pytest.mark.slow
@pytest.mark.contract("day.forms.oracle")
def test_forms_of_lisp_are_where_the_reader_of_sbcl_finds_them_everywhere():
    """Oracle: all of them, 1,362 files with 37,908 forms where this was written."""
    assert compare_with_sbcl(1) > 1000


def expected_names(body, parent=""):
    """Return the definitions of a tree by another way than the reader's."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{parent}{node.name}"
            yield name, node
            yield from expected_names(node.body, f"{name}.")
        else:
            inner = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
            yield from expected_names(inner, parent)


def compare_with_ast(step):
    count = 0
    for file in python_files(step):
        text = shown(file)
        expected = list(expected_names(ast.parse(text).body))
        found = language_of(file.name).outline(text)
        assert not found.faults, file
        defined = [each for each in found.definitions if each.kind != "variable"]
        assert [each.name for each in defined] == [name for name, _ in expected], file
        # Each is parsed again, with what is inside of it: some of many are enough.
        for each, (_, node) in list(zip(defined, expected, strict=True))[:: max(1, len(defined) // 8)]:
            if each.is_alone:
                assert ast.dump(parsed_alone(text[each.outer : each.end])) == ast.dump(node), (
                    file,
                    each.name,
                )
                count += 1
    return count


def parsed_alone(piece):
    """Return the statement that a piece of a text is."""
    if piece[0] in " \t\f":
        return next(ast.iter_child_nodes(ast.parse(f"class A:\n{piece}").body[0]))
    return ast.parse(piece).body[0]


@pytest.mark.contract("day.forms.oracle")
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("step", [40, pytest.param(1, marks=pytest.mark.slow)])
def test_definitions_of_python_are_where_its_parser_finds_them(step):
    """Oracle: a part of the standard library, and all of it."""
    assert compare_with_ast(step) > 100


def edits_cancel_out(files, most):
    """Try definitions of each file, spread over it; return how many, and how many came back exactly."""
    tried = back = 0
    for file in files:
        text = shown(file)
        language = language_of(file.name)
        found = language.outline(text)
        rewriting = Rewriting(text, found, language)
        own = [each for each in found.definitions if each.is_alone]
        for old in own[:: max(1, len(own) // most)]:
            # Comments at another column than what they are about cannot be told from code at column 0.
            columns = {place - text.rfind("\n", 0, place) for place in (old.outer, old.lead)}
            for begin in {old.outer, old.lead if len(columns) == 1 else old.outer}:
                assert rewriting.replaced(old, text[begin : old.end]) == text, (file, old.exact)
            tried += 1
            back += comes_back(rewriting, old, file)
    return tried, back


def comes_back(rewriting, old, file):
    """Delete a definition, insert it before the next one, and tell whether the text is as it was."""
    text, language = rewriting.text, rewriting.language
    level = [each for each in rewriting.outline.definitions if each.parent == old.parent]
    following = level[level.index(old) + 1 :][:1]
    if not following or text[old.end : following[0].lead].strip():
        return False
    gone = rewriting.deleted(old)
    left = language.outline(gone)
    same = [
        each
        for each in left.definitions
        if gone[each.lead : each.end] == text[following[0].lead : following[0].end]
    ]
    if left.faults or len(same) != 1 or not same[0].is_alone:
        return False
    again = Rewriting(gone, left, language).inserted(same[0], text[old.lead : old.end], after=False)
    assert again.split() == text.split(), (file, old.exact)
    return again == text


@pytest.mark.contract("day.forms.properties")
@pytest.mark.parametrize("step", [40, pytest.param(4, marks=pytest.mark.slow)])
def test_edits_that_cancel_out_leave_a_lisp_text_as_it_was(step):
    """Property: replace with itself changes nothing, delete and insert give the text back."""
    tried, back = edits_cancel_out([file for file in lisp_files(step) if file.name not in UNREADABLE], 6)
    assert tried > 30
    assert back > tried / 3


@pytest.mark.contract("day.forms.properties")
@pytest.mark.parametrize("step", [40, pytest.param(16, marks=pytest.mark.slow)])
def test_edits_that_cancel_out_leave_a_python_text_as_it_was(step):
    """Property: replace with itself changes nothing, delete and insert give the text back."""
    tried, back = edits_cancel_out(python_files(step), 6)
    assert tried > 80
    assert back > tried / 3
