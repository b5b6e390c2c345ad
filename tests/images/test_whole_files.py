"""Files for the user are written whole or not at all, by one function."""

from __future__ import annotations

import ast
import os
import resource
import stat
import threading
from pathlib import Path

import pytest

import gramercy
from gramercy.images.files.whole import whole_file, write_whole
from tests.support import reap

SOURCE = Path(gramercy.__file__).parent
# Not for the user: the function itself, programs inside of an image, scenes that play in directories of their
# own, marks that are made once and have no content worth a word, and files of the kernel.
OWN = (
    "images/groups.py",
    "images/files/",
    "images/python/",
    "images/caches.py",
    "images/spawning.py",
    "ui/doctor/",
    "ui/cli/tour.py",
)


def written_in_place(path):
    """Return the lines that open a file by its name for writing."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        words = [
            each.value
            for each in (*node.args, *(k.value for k in node.keywords))
            if isinstance(each, ast.Constant)
        ]
        opens = name == "open" and any(
            isinstance(word, str) and set(word) & set("wx") and len(word) < 4 for word in words
        )
        if name in ("write_text", "write_bytes") or opens:
            found.append(node.lineno)
    return found


@pytest.mark.contract("trust.heard.whole")
def test_no_module_writes_a_file_of_the_user_in_place():
    """One function does it, so that no new export can forget to."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if not name.startswith(OWN) and (lines := written_in_place(path)):
            found[name] = lines
    assert found == {}


def in_child(work):
    """Run something in a process of its own; return how it ended."""
    child = os.fork()
    if not child:
        try:
            work()
        except OSError:
            os._exit(7)
        except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
            os._exit(9)
        os._exit(0)
    return reap(child)


@pytest.mark.contract("trust.heard.whole")
def test_a_write_that_fails_in_the_middle_leaves_the_old_file(tmp_path):
    """The disk is full, here by a limit: what was there is there, and nothing lies beside it."""
    place = tmp_path / "export.md"
    place.write_text("old")

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        write_whole(place, "x" * 100_000)

    assert in_child(work) == 7
    assert place.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["export.md"]


@pytest.mark.contract("trust.heard.whole")
def test_a_file_keeps_its_mode_and_a_link_leads_where_it_did(tmp_path):
    """As a write in place would have it."""
    place = tmp_path / "kept.md"
    place.write_text("old")
    place.chmod(0o640)
    (tmp_path / "link.md").symlink_to("kept.md")
    write_whole(tmp_path / "link.md", "new")
    assert (tmp_path / "link.md").is_symlink()
    assert place.read_text() == "new"
    assert stat.S_IMODE(place.stat().st_mode) == 0o640
    write_whole(tmp_path / "private", b"key", mode=0o600)
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600


@pytest.mark.contract("trust.heard.whole")
def test_a_pipe_is_written_into_and_not_replaced(tmp_path):
    """`-o /dev/stdout`, or what a shell puts there for another program."""
    place = tmp_path / "pipe"
    os.mkfifo(place)
    read = []
    thread = threading.Thread(target=lambda: read.append(place.read_text()))
    thread.start()
    write_whole(place, "through")
    thread.join(60)
    assert read == ["through"]
    assert stat.S_ISFIFO(place.stat().st_mode)


@pytest.mark.contract("trust.heard.whole")
def test_a_new_file_never_replaces_another(tmp_path):
    """An export of the audit or a picture: a file of that name stays."""
    place = tmp_path / "audit.jsonl"
    place.write_text("old")

    def write():
        with whole_file(place, is_new=True) as file:
            file.write(b"new")

    with pytest.raises(FileExistsError):
        write()
    assert place.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["audit.jsonl"]
