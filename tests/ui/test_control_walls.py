"""Code that is evaluated in an image cannot reach the control sockets through which a person decides."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from gramercy import Executor, Registry
from gramercy.images.sandbox import Confinement, why_not
from gramercy.journal.opening import open_journal
from gramercy.workbench.control import Control, Desk

KNOCK = """
import socket
connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
connection.connect({path!r})
connection.sendall(b'{{"do": "about"}}\\n')
print(connection.recv(1000))
"""


@pytest.fixture(params=[Confinement.BUBBLEWRAP, Confinement.LANDLOCK])
def confinement(request, tmp_path, monkeypatch):
    """Return where programs are found so that images are confined in one of the two ways."""
    if reason := why_not(request.param):
        pytest.skip(reason)
    programs = tmp_path / "programs"
    programs.mkdir()
    names = {"bwrap"} if request.param is Confinement.BUBBLEWRAP else set()
    for name in {*names, "python3", "sh"}:
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(programs))
    return request.param


@pytest.fixture
def control(monkeypatch, tmp_path_factory):
    """Serve, with a journal beside the project as the user's state is; return the socket and who asked."""
    # Short, so that the path is one that a socket can have.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("s")))
    journal = open_journal()
    asked: list[str] = []

    def project() -> str:
        asked.append("about")
        return ""

    desk = Desk(Executor(Registry(), journal=journal), list, project)
    assert journal.run_directory is not None
    opened = Control(journal.run_directory, desk.operations())
    yield str(opened.path), asked
    opened.close()
    journal.close()


def knock(gramercy, path, *options):
    words = ["eval", "--language", "python", "--python", sys.executable, *options]
    done = gramercy(*words, KNOCK.format(path=path), PATH=os.environ["PATH"])
    return done.stdout + done.stderr


@pytest.mark.contract("journal.desk.control-walls")
def test_evaluated_code_cannot_reach_the_control_socket(gramercy, control, confinement):
    path, asked = control
    told = knock(gramercy, path)
    assert "PermissionError" in told or "FileNotFoundError" in told, confinement
    assert asked == []


def test_without_a_sandbox_evaluated_code_reaches_the_socket_and_is_refused_there(gramercy, control):
    """The second wall; nothing is promised without the first, since the journal's file is in reach then."""
    path, asked = control
    assert "a confined process may not act for a person" in knock(gramercy, path, "--no-sandbox")
    assert asked == []
