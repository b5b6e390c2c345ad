"""A project on a mount that folds case (NTFS): a rule that denies a file denies it in capitals too."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from gramercy.execution.approval import Denied
from gramercy.toolsets.paths import WRITERS
from tests.support import BOUND
from tests.toolsets.test_path_spellings import DECLARED, REAL, SECRET, approve, given, under

MOUNTS, MAKES = "lowntfs-3g", "mkntfs"
SPELLINGS = ("SECRET/key.py", "Secret/Key.PY", "{root}/sEcret//KEY.py", "secret/../SECRET/KEY.PY")


def run(*words):
    """Run a program until it ends; return what it said where it failed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=BOUND)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip() or "it failed"


@pytest.fixture(scope="module")
def mount(tmp_path_factory):
    """Return a directory on a mount that folds case."""
    for program in (MOUNTS, MAKES):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (Debian: ntfs-3g)")
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    base = tmp_path_factory.mktemp("folded")
    image, place = base / "image", base / "place"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    assert run(MAKES, "-F", "-Q", "-q", str(image)) == ""
    if said := run(MOUNTS, "-o", "ignore_case", str(image), str(place)):
        pytest.skip(f"{MOUNTS} cannot mount here: {said[:200]}")
    yield place
    assert run("umount", "--lazy", str(place)) == ""


@pytest.fixture
def project(mount, tmp_path):
    """Return a project there, with a file."""
    directory = mount / tmp_path.name
    (directory / "secret").mkdir(parents=True)
    (directory / REAL).write_text(SECRET)
    assert (directory / "SECRET/KEY.py").read_text() == SECRET
    return directory


@pytest.mark.contract("trust.paths.folded")
@pytest.mark.parametrize("tool", DECLARED)
def test_a_rule_that_denies_a_file_denies_it_in_every_case(paper_desk, project, tool):
    """The mount takes all of them for one file."""
    desk = under(
        paper_desk, {"action": "deny", "tools": tool, "arguments": {DECLARED[tool]: REAL}}, approver=approve
    )
    for spelling in SPELLINGS:
        result = desk.call(tool, **given(tool, spelling.format(root=project)))
        assert result.metadata.get("denied_by") == "rule", (spelling, result.content)
        assert "hidden-4711" not in result.content
    assert (project / REAL).read_text() == SECRET


@pytest.mark.contract("trust.paths.folded")
@pytest.mark.parametrize("tool", DECLARED)
def test_a_question_names_the_file_as_it_is_called_there(paper_desk, project, tool):
    """The person must see which file it is."""
    asked = []

    def person(tool, arguments, request):
        del tool, arguments
        asked.append(request)
        return Denied("no")

    desk = under(paper_desk, {"action": "ask", "tools": tool}, approver=person)
    for spelling in SPELLINGS:
        result = desk.call(tool, **given(tool, spelling.format(root=project)))
        assert result.metadata.get("denied_by") == "person", (spelling, result.content)
        assert asked[-1].places[DECLARED[tool]].name == REAL
    assert (project / REAL).read_text() == SECRET


@pytest.mark.contract("trust.paths.folded")
@pytest.mark.parametrize("tool", WRITERS)
def test_a_control_file_is_asked_about_in_every_case(paper_desk, project, tool):
    """Under a rule that allows everything too: the program that obeys it finds it under its usual name."""
    (project / ".envrc").write_text(SECRET)
    desk = under(paper_desk, {"action": "allow", "tools": tool, "arguments": {"path": "**"}})
    for spelling in (".envrc", ".ENVRC", "{root}/.Envrc"):
        result = desk.call(tool, **given(tool, spelling.format(root=project)))
        assert not result.success, (spelling, result.content)
    assert (project / ".envrc").read_text() == SECRET
