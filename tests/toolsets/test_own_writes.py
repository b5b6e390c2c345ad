"""Files that tools write while an image cannot be followed in every step: they are not the call's."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from gramercy.images.files.whole import own_writes
from gramercy.images.opening import open_image
from tests.support import until
from tests.toolsets.conftest import SANDBOX, Desk

# A second thread is a doubt: it could change a path while it is read.
WAITS = """import threading, time
go = threading.Event()
thread = threading.Thread(target=go.wait)
thread.start()
open("begun.txt", "w").close()
end = time.monotonic() + 60
while time.monotonic() < end and "new" not in open("notes.txt").read():
    time.sleep(0.01)
go.set()
thread.join()
{}
"""


@pytest.fixture
def desk(project, workspace):
    (project / "notes.txt").write_text("old\n")
    with closing(open_image("python", project=project, sandbox=SANDBOX)) as image:
        yield Desk(image, workspace, "python")


def evaluated_while_written(desk, project, last=""):
    """Return the reply to a call that goes on until a tool has written a file."""
    replies = []
    call = threading.Thread(target=lambda: replies.append(desk.text("eval_form", form=WAITS.format(last))))
    call.start()
    until((project / "begun.txt").exists)
    desk.workspace.write("notes.txt", "new\n")
    call.join(60)
    return replies[0]


@pytest.mark.contract("day.points.own-writes")
def test_what_a_tool_wrote_during_a_call_is_not_told_as_changed_by_it(desk, project):
    """An edit beside threads of Lisp was told as a change that cannot be taken back."""
    told = evaluated_while_written(desk, project)
    assert "begun.txt" in told
    assert "notes.txt" not in told
    assert desk.workspace.undo_last_write() == "notes.txt is as it was before"


@pytest.mark.contract("day.points.own-writes")
def test_what_the_call_makes_of_the_written_file_is_told(desk, project):
    """Only the tool's own write is known; one after it is the call's."""
    told = evaluated_while_written(desk, project, "open('notes.txt', 'a').write('more')")
    assert "notes.txt" in told


@pytest.mark.contract("day.points.own-writes")
def test_a_file_is_known_by_its_content_too(project, workspace):
    """Two writes within one tick of the clock have the same time."""
    workspace.write("notes.txt", "new\n")
    changed = (project / "notes.txt").stat().st_ctime_ns
    known, look = own_writes(workspace.root), workspace._past.store.look
    assert known.has_left("notes.txt", changed, look)
    assert not known.has_left("notes.txt", changed + 1, look)
    (project / "notes.txt").write_text("odd\n")
    assert not known.has_left("notes.txt", changed, look)


@pytest.mark.contract("day.points.own-writes")
def test_a_call_that_ends_before_the_write_is_noted_waits_for_the_note(desk, project, monkeypatch):
    """The file is there before the tool has noted it, and the call that waits for it may end in between."""
    own = own_writes(desk.workspace.root)
    noted, has_left, waiting = own.note, own.has_left, threading.Event()

    def note_late(*words):
        assert waiting.wait(60)
        noted(*words)

    def wait_for_it(name, changed, look):
        if name == "notes.txt":
            threading.Timer(0.05, waiting.set).start()
        return has_left(name, changed, look)

    monkeypatch.setattr(own, "note", note_late)
    monkeypatch.setattr(own, "has_left", wait_for_it)
    told = evaluated_while_written(desk, project)
    assert "begun.txt" in told
    assert "notes.txt" not in told
