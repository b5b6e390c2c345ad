"""Modules whose file is a link, or whose folder was replaced: their edits are taken up like all others."""

from contextlib import closing
from shutil import rmtree

import pytest

from gramercy.images.opening import open_image

# By then each file is older than the grain of its times, so that only the kernel tells of a change.
QUIET = "import time; time.sleep(0.05)"


@pytest.fixture
def image(tmp_path):
    with closing(open_image("python", project=tmp_path)) as opened:
        yield opened


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _values(image, *codes):
    replies = [image.evaluate(code) for code in codes]
    assert all(reply.error is None for reply in replies), [reply.error for reply in replies]
    return replies[-1].values


@pytest.mark.contract("day.reload.auto.replaced")
def test_an_edit_of_the_file_that_a_link_leads_to_is_taken_up(image, tmp_path):
    """The folder of the link does not change when the file is edited where it lies."""
    _write(tmp_path / "shared/real.py", "def f(): return 1\n")
    (tmp_path / "linked.py").symlink_to("shared/real.py")
    assert _values(image, "import linked; linked.f()", QUIET, "linked.f()") == ["1"]
    _write(tmp_path / "shared/real.py", "def f(): return 22\n")
    assert _values(image, "linked.f()") == ["22"]
    _write(tmp_path / "other/real.py", "def f(): return 333\n")
    (tmp_path / "linked.py").unlink()
    (tmp_path / "linked.py").symlink_to("other/real.py")
    assert _values(image, "linked.f()", QUIET, "linked.f()", "linked.f()") == ["333"]
    _write(tmp_path / "other/real.py", "def f(): return 4444\n")
    assert _values(image, "linked.f()") == ["4444"]


@pytest.mark.contract("day.reload.auto.replaced")
@pytest.mark.parametrize("is_seen", [False, True], ids=["at_once", "after_a_call"])
@pytest.mark.parametrize("gone", ["pack", "pack/deep"])
def test_edits_in_a_folder_that_was_made_anew_are_taken_up(image, tmp_path, gone, is_seen):
    """Git removes the folder of a package on one branch and makes it again on the next."""
    file = tmp_path / "pack/deep/mod.py"
    _write(file, "def f(): return 1\n")
    assert _values(image, "import pack.deep.mod as m; m.f()", QUIET, "m.f()") == ["1"]
    rmtree(tmp_path / gone)
    if is_seen:
        assert _values(image, "m.f()", "m.f()") == ["1"]
    for number in (22, 333, 4444):
        _write(file, f"def f(): return {number}\n")
        assert _values(image, "m.f()", QUIET, "m.f()", "m.f()") == [str(number)]


@pytest.mark.contract("day.reload.auto.replaced")
def test_edits_below_a_folder_that_was_renamed_are_taken_up(image, tmp_path):
    """The kernel tells nothing of a folder whose parent was renamed."""
    file = tmp_path / "pack/deep/mod.py"
    _write(file, "def f(): return 1\n")
    assert _values(image, "import pack.deep.mod as m; m.f()", QUIET, "m.f()") == ["1"]
    (tmp_path / "pack").rename(tmp_path / "old")
    for number in (22, 333):
        _write(file, f"def f(): return {number}\n")
        assert _values(image, "m.f()", QUIET, "m.f()", "m.f()") == [str(number)]
