"""What systems and distributions consist of, held against `importlib.metadata` and ASDF."""

from __future__ import annotations

import shutil
from contextlib import closing
from importlib import metadata
from pathlib import Path

import pytest

from gramercy.images.environment import Environment
from gramercy.images.opening import open_image

needs_sbcl = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
# This project's own environment has real distributions, one of them editable.
ROOT = Path(__file__).parents[2]


def shown(image, system):
    answer = image.ask("describe_system", system=system)
    assert answer.ok, answer.error
    return answer.text


@pytest.fixture(scope="module")
def here():
    """Return an image that sees the distributions of this environment."""
    packages = Path(pytest.__file__).parents[1]
    with closing(open_image("python", project=ROOT, environment=Environment(paths=(packages,)))) as image:
        yield image


@pytest.mark.contract("day.looks.system")
@pytest.mark.parametrize("name", ["click", "pytest", "msgspec", "hypothesis"])
def test_distributions_are_those_of_importlib(here, name):
    """Version, summary, requirements, entry points and modules; none of it is imported."""
    wanted = metadata.distribution(name)
    text = shown(here, name)
    assert text.startswith(
        f"{wanted.metadata['Name']}: distribution, version {wanted.version}, installed in "
    )
    assert wanted.metadata["Summary"] in text
    for line in wanted.requires or []:
        if "extra" not in line:
            assert line.partition(";")[0].partition(">")[0].partition("<")[0].strip() in text
    for point in wanted.entry_points:
        assert f"{point.name}={point.value}" in text.replace(" ", "")
    assert here.evaluate(f"import sys; {name!r} in sys.modules").values == ["False"]


@pytest.mark.contract("day.looks.system")
def test_a_module_leads_to_its_distribution(here):
    """By the name of what is imported too."""
    assert shown(here, "_pytest").startswith("pytest: distribution, version ")
    assert "not loaded" in shown(here, "_pytest")


def test_modules_without_a_distribution(here, tmp_path):
    assert shown(here, "json").startswith("json: package of the standard library of Python 3.")
    assert "built in" in shown(here, "sys")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("raise RuntimeError('code of the user ran')")
    (tmp_path / "own" / "part.py").write_text("")
    with closing(open_image("python", project=tmp_path)) as image:
        text = shown(image, "own")
        assert text.startswith("own: package of no distribution, not loaded, own/__init__.py")
        assert "Submodules: part" in text


def test_an_editable_installation_and_broken_metadata(tmp_path):
    packages = tmp_path / "packages"
    source = tmp_path / "source"
    (source / "src" / "mine").mkdir(parents=True)
    (source / "src" / "mine" / "__init__.py").write_text("")
    info = packages / "mine-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Name: mine\nVersion: 1.2\nRequires-Dist: nosuch>=1; extra == 'more'\n\nName: no\n"
    )
    (info / "direct_url.json").write_text(f'{{"url": "file://{source}", "dir_info": {{"editable": true}}}}')
    broken = packages / "broken-1.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_bytes(b"\xff\xfe\0Name\n: :\n")
    (broken / "direct_url.json").write_text("{")
    (packages / "empty.egg-info").write_text("")
    with closing(open_image("python", project=tmp_path, environment=Environment(paths=(packages,)))) as image:
        text = shown(image, "mine")
        assert "version 1.2, installed editable, from source" in text
        assert "Requires: nothing" in text
        assert "Extras: more (nosuch)" in text
        assert "Modules: mine (not loaded)" in text
        assert shown(image, "broken").startswith("broken: distribution, version ?")
        assert shown(image, "empty").startswith("empty: distribution, version ?")


@pytest.mark.parametrize("name", ["", "nosuch", "clik", "/etc/passwd", "../x", "x" * 3_000, "\0"])
def test_bad_names_are_answered(here, name):
    """Bad input."""
    answer = here.ask("describe_system", system=name)
    assert not answer.ok
    assert answer.error is not None
    if name == "clik":
        assert "click" in answer.error.suggestions


# Lisp

SYSTEM = """;; (defsystem "no")
(defsystem "shapes" :version "0.1" :author "Somebody" :license "MIT" :description "Shapes."
  :depends-on ("uiop" #+no-such-feature "never" (:feature :sbcl "sb-posix"))
  :components ((:file "shapes") (:module "more" :components ((:file "extra") (:static-file "notes.txt"))))
  :in-order-to ((test-op (test-op "shapes/tests"))))
(defsystem "shapes/tests" :depends-on ("shapes") :components ((:file "tests")))
"""


@pytest.fixture
def lisp(tmp_path):
    (tmp_path / "shapes.asd").write_text(SYSTEM)
    (tmp_path / "shapes.lisp").write_text("(in-package :cl-user)\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "extra.lisp").write_text("(in-package :cl-user)\n")
    (tmp_path / "more" / "notes.txt").write_text("")
    (tmp_path / "loud.asd").write_text('(error "code of the user ran")\n(defsystem "loud" :version "2")\n')
    with closing(open_image("sbcl", project=tmp_path)) as image:
        yield image


@needs_sbcl
@pytest.mark.contract("day.looks.system")
def test_a_system_that_is_not_loaded_is_read_as_text(lisp):
    """No code of a .asd file runs for a look."""
    text = shown(lisp, "shapes")
    assert text.startswith("shapes: ASDF system, version 0.1, not loaded, shapes.asd:2\n[read as text")
    assert "author Somebody, license MIT" in text
    assert "Depends on: uiop, " in text
    assert "never" not in text
    assert "Files (3): shapes.lisp, more/extra.lisp, more/notes.txt" in text
    assert "shapes/tests: ASDF system, not loaded, shapes.asd:6" in shown(lisp, "shapes/tests")
    assert "loud: ASDF system, version 2, not loaded, loud.asd:2" in shown(lisp, "loud")
    assert lisp.evaluate('(null (asdf:registered-system "shapes"))').values == ["T"]


@needs_sbcl
@pytest.mark.contract("day.looks.system")
def test_a_loaded_system_is_asked(lisp):
    """Dependencies below dependencies, files, tests."""
    assert lisp.load_system("shapes").ok
    text = shown(lisp, ":Shapes")
    assert text.startswith("shapes: ASDF system, version 0.1, loaded, shapes.asd\nShapes.\n")
    assert "Depends on: uiop, sb-posix" in text
    assert "Files (3): shapes.lisp, more/extra.lisp, more/notes.txt" in text
    assert "Tests: shapes/tests" in text
    assert "Also in that file: shapes/tests" in text


@needs_sbcl
@pytest.mark.contract("day.looks.system")
def test_the_files_are_those_of_asdf(lisp):
    """Of a real library, before and after ASDF has read its definition."""
    code = '(mapcar #\'asdf:component-name (asdf:component-children (asdf:find-system "{}")))'
    for name in ("alexandria", "cl-ppcre", "hunchentoot"):
        before = lisp.ask("describe_system", system=name)
        reply = lisp.evaluate(code.format(name))
        if not before.ok or not reply.ok:
            continue
        after = shown(lisp, name)
        for part in reply.values[0].strip("()").replace('"', "").split():
            assert part in before.text, (name, part)
            assert part in after, (name, part)


@needs_sbcl
@pytest.mark.parametrize("name", ["", " ", "nosuch", "shaps", "(", '"', "x" * 3_000, "cl-user", "../x"])
def test_bad_systems_are_answered(lisp, name):
    """Bad input."""
    answer = lisp.ask("describe_system", system=name)
    assert not answer.ok
    assert answer.error is not None
    if name == "shaps":
        assert answer.error.suggestions == ["shapes"]
