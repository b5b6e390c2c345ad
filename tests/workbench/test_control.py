"""The control socket: what a person at another terminal can have a server do, and who else cannot."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gramercy import Executor, Policy, Registry, tool
from gramercy.errors import ControlError
from gramercy.execution.policy import Action, Rule
from gramercy.images.views import ImageView
from gramercy.journal.base import NewCall, State
from gramercy.workbench import control
from gramercy.workbench.control import Control, Desk, Serving, serving_processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENOUGH = 20.0
# Connects as the person's command does, and prints the answer.
ASK = """
import ctypes, json, os, socket, sys
path, uid, confined = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "confined"
if uid: os.setresuid(uid, uid, uid)
if confined: ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
connection.sendall(b'{"do": "about"}\\n')
print(connection.makefile().readline())
"""


@tool(safety_level="dangerous", edits=("before", "after"))
def rewrite(path: str, before: str, after: str) -> str:
    """Change a text."""
    return f"{path}: {before} -> {after}"


@tool(safety_level="dangerous")
def launch(target: str, speed: int = 1) -> str:
    """Do what cannot be undone."""
    return f"{target} {speed}"


class Looked:
    """An image, as far as it is looked at."""

    def look(self) -> ImageView:
        return ImageView("main", "python", "idle", memory_bytes=12)


@pytest.fixture
def executor() -> Executor:
    return Executor(Registry([rewrite, launch]))


@pytest.fixture
def server(tmp_path: Path, executor: Executor) -> Iterator[Control]:
    desk = Desk(executor, lambda: [Looked()], lambda: str(tmp_path))  # type: ignore[list-item]  # all that is asked of it
    opened = Control(tmp_path / "run", desk.operations())
    yield opened
    opened.close()


@pytest.fixture
def serving(server: Control) -> Serving:
    return serving_processes(server.path.parent)[0]


def awaiting(executor: Executor, name: str, **arguments: Any) -> int:
    key = executor.journal.begin(NewCall("1", name, "dangerous", arguments))
    executor.journal.move(key, State.AWAITING)
    return key


BEFORE = "".join(f"line {number}\n" for number in range(30))
AFTER = BEFORE.replace("line 2\n", "line two\n").replace("line 20\n", "line twenty\n")


@pytest.mark.contract("journal.desk.control")
def test_a_process_tells_what_it_serves(serving: Serving, tmp_path: Path) -> None:
    about = serving.ask("about")
    assert about["pid"] == serving.pid == os.getpid()
    assert about["project"] == str(tmp_path)
    assert about["tools"] == ["launch", "rewrite"]


def test_the_images_of_a_process_are_looked_at(serving: Serving) -> None:
    [view] = serving.ask("images")
    assert msgspec.convert(view, ImageView) == Looked().look()


@pytest.mark.contract("journal.desk.control-check")
def test_edited_arguments_are_checked_and_their_effect_is_told_anew(
    serving: Serving, executor: Executor
) -> None:
    key = awaiting(executor, "rewrite", path="a", before=BEFORE, after=AFTER)
    checked = serving.ask("check", key=key, arguments={"path": "b", "before": "x\n", "after": "y\n"})
    assert checked["arguments"] == {"path": "b", "before": "x\n", "after": "y\n"}
    assert checked["text"].startswith('rewrite (dangerous)\npath: "b"\n')
    with pytest.raises(ControlError, match=r"before.*required|required.*before"):
        serving.ask("check", key=key, arguments={"path": "b"})


def test_edited_arguments_that_a_rule_denies_are_refused(serving: Serving, executor: Executor) -> None:
    key = awaiting(executor, "launch", target="x")
    executor.policy = Policy([Rule(Action.DENY, tools=("launch",), arguments={"target": "home"})])
    with pytest.raises(ControlError, match="the policy denies the edited call"):
        serving.ask("check", key=key, arguments={"target": "home"})


@pytest.mark.contract("journal.desk.control-hunks")
def test_hunks_are_listed_and_some_of_them_are_chosen(serving: Serving, executor: Executor) -> None:
    key = awaiting(executor, "rewrite", path="a", before=BEFORE, after=AFTER)
    listed = serving.ask("hunks", key=key)
    assert [hunk["added"] for hunk in listed["hunks"]] == [["line two\n"], ["line twenty\n"]]
    chosen = serving.ask("choose", key=key, seal=listed["seal"], numbers=[2], reason="keep two")
    assert chosen["arguments"]["after"] == BEFORE.replace("line 20\n", "line twenty\n")
    assert "accepted hunk 2 of 2 and rejected hunk 1 (keep two)" in chosen["note"]


def test_hunks_of_a_text_that_is_another_now_are_not_chosen(serving: Serving, executor: Executor) -> None:
    key = awaiting(executor, "rewrite", path="a", before=BEFORE, after=AFTER)
    with pytest.raises(ControlError, match="another text now"):
        serving.ask("choose", key=key, seal="of another text", numbers=[1])


def test_what_changes_no_text_has_no_hunks(serving: Serving, executor: Executor) -> None:
    key = awaiting(executor, "launch", target="x")
    assert serving.ask("hunks", key=key) == {"seal": "", "hunks": []}


def test_a_call_that_waits_for_nobody_is_not_acted_on(serving: Serving, executor: Executor) -> None:
    key = awaiting(executor, "launch", target="x")
    executor.journal.move(key, State.DENIED)
    with pytest.raises(ControlError, match=f"call {key} waits for no decision"):
        serving.ask("hunks", key=key)


def test_the_socket_is_for_its_user_alone(server: Control) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(server.path.parent.stat().st_mode) == 0o700


def answered(path: Path, uid: int = 0, confined: str = "") -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", ASK, str(path), str(uid), confined],
        capture_output=True, text=True, timeout=ENOUGH, check=False,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"refused": done.stderr}
    return found


@pytest.mark.contract("journal.desk.control-peer")
@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="only Linux tells how confined a process is")
def test_a_process_that_is_more_confined_than_the_server_is_refused(server: Control) -> None:
    assert "done" in answered(server.path)
    assert "a confined process may not act for a person" in answered(server.path, 0, "confined")["failed"]


@pytest.mark.contract("journal.desk.control-peer")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_by_the_directory_and_behind_it_by_the_server(
    server: Control, tmp_path: Path
) -> None:
    server.path.chmod(0o666)
    assert "PermissionError" in answered(server.path, 65534)["refused"]
    for directory in (server.path.parent, *tmp_path.parents[:-1], tmp_path):
        if directory.stat().st_uid == 0 and "pytest" in str(directory):
            directory.chmod(0o755)
    assert answered(server.path, 65534)["failed"] == "this server belongs to another user"


def raw(server: Control, *frames: bytes) -> list[bytes]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ENOUGH)
        connection.connect(str(server.path))
        answers = []
        for frame in frames:
            connection.sendall(frame)
            answers.append(control.read_line(connection) or b"")
        return answers


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (b"what\n", "malformed"),
        (b"[1]\n", "Expected `object`"),
        (b'{"do": "exit"}\n', "there is no request 'exit': expected one of about, images, "),
        (b'{"do": "hunks"}\n', "missing 1 required positional argument"),
        (b'{"do": "hunks", "key": 1, "more": 2}\n', "unexpected keyword argument"),
        (b'{"do": "hunks", "key": "x"}\n', "waits for no decision"),
    ],
)
def test_a_bad_request_is_answered_and_the_next_one_too(server: Control, frame: bytes, problem: str) -> None:
    first, second = raw(server, frame, b'{"do": "about"}\n')
    assert problem in json.loads(first)["failed"]
    assert "done" in json.loads(second)


def test_a_frame_without_end_is_given_up(server: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LONGEST_FRAME", 100_000)
    with pytest.raises((ConnectionError, AssertionError)):
        assert raw(server, b"x" * 3_000_000) != [b""]
    assert "done" in json.loads(raw(server, b'{"do": "about"}\n')[0])


@pytest.mark.contract("trust.answers.mute")
def test_terminals_that_hang_do_not_keep_others_out_for_good(
    server: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that say nothing give way, long before they count as stalled."""
    monkeypatch.setattr(control, "STALLED_SECONDS", 3_600.0)
    hung = []
    for _ in range(40):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(server.path))
        hung.append(connection)
    assert "done" in json.loads(raw(server, b'{"do": "about"}\n')[0])
    for connection in hung:
        connection.close()


def test_the_socket_of_a_killed_process_is_removed_when_it_is_asked(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    path = tmp_path / f"4711-00000000{control.SUFFIX}"
    left.bind(str(path))
    left.close()
    [serving] = serving_processes(tmp_path)
    with pytest.raises(ControlError, match="process 4711 serves no longer"):
        serving.ask("about")
    assert serving_processes(tmp_path) == []


def test_a_server_that_closes_takes_socket_and_thread_away(tmp_path: Path) -> None:
    opened = Control(tmp_path / "run", {})
    thread = next(each for each in threading.enumerate() if each.name == "gramercy-control")
    opened.close()
    thread.join(ENOUGH)
    assert not thread.is_alive()
    assert serving_processes(tmp_path / "run") == []


def test_where_nobody_serves_there_is_nobody(tmp_path: Path) -> None:
    assert serving_processes(tmp_path / "nowhere") == []


class Short(socket.socket):
    """A socket that has no descriptor for the first connections."""

    tries = 0

    def accept(self) -> tuple[socket.socket, Any]:
        Short.tries += 1
        if Short.tries < 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_a_server_without_descriptors_answers_when_it_has_some_again(tmp_path: Path) -> None:
    """The thread that accepts ended with the first error, and terminals waited for an answer in vain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Short, "tries", 0)
        patch.setattr(socket, "socket", Short)
        opened = Control(tmp_path / "run", {"about": dict})
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(ENOUGH)
                connection.connect(str(opened.path))
                connection.sendall(b'{"do": "about"}\n')
                assert "done" in json.loads(control.read_line(connection) or b"")
        finally:
            opened.close()
        assert Short.tries >= 3


def test_what_is_no_socket_of_ours_is_passed_over(server: Control) -> None:
    folder = server.path.parent
    for name in ("notes", f"notes{control.SUFFIX}", f"x-1{control.SUFFIX}"):
        (folder / name).touch()
    assert [each.path for each in serving_processes(folder)] == [server.path]
