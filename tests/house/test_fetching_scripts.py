"""What scripts/fetch does with a registry that answers, that does not, and that refuses."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tests.support import BOUND, ROOT, UNANSWERED

PIP = (sys.executable, "-m", "pip", "--isolated", "download", "--no-deps", "--retries", "1", "--timeout", "1")
SENTENCE = "scripts/fetch: a fern cannot be installed, the registry does not answer; try again later\n"


def run_fetch(mark, *command):
    """Run the script; return its status and what it said."""
    done = subprocess.run(
        [ROOT / "scripts" / "fetch", mark, "a fern", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND,
        env={**os.environ, "PIP_NO_INPUT": "1"},
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.fixture
def mute():
    """Return the address of a registry that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/index"


def test_a_registry_that_does_not_answer_is_told_in_one_sentence(mute, tmp_path):
    """No script waits silently for a registry."""
    words = (*PIP, "--dest", str(tmp_path), "--index-url", mute, "fern")
    assert run_fetch("", *words) == (UNANSWERED, SENTENCE)


def test_the_second_try_of_the_next_minutes_is_told_at_once(mute, tmp_path):
    """Several workers ask for the same judges, and each would wait."""
    words = (*PIP, "--dest", str(tmp_path), "--index-url", mute, "fern")
    mark = tmp_path / "mark"
    assert run_fetch(mark, *words) == (UNANSWERED, SENTENCE)
    assert run_fetch(mark, "touch", tmp_path / "tried") == (UNANSWERED, SENTENCE)
    assert not (tmp_path / "tried").exists()


def test_a_mark_that_is_old_is_no_reason_not_to_try(tmp_path):
    """After ten minutes the registry may answer; the mark goes then."""
    mark = tmp_path / "mark"
    mark.touch()
    os.utime(mark, (0, 0))
    assert run_fetch(mark, "touch", tmp_path / "tried") == (0, "")
    assert (tmp_path / "tried").exists()
    assert not mark.exists()


def test_another_failure_is_shown_as_it_is(tmp_path):
    """A version that does not exist is a fault of ours, and no reason to skip a test."""
    status, said = run_fetch(tmp_path / "mark", "sh", "-c", "echo no such version >&2; exit 3")
    assert (status, said) == (1, "no such version\n")
    assert not (tmp_path / "mark").exists()
