"""The doctor examines the machine for real, says what to do, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from gramercy.images.environment import Finding, Status
from gramercy.images.sandbox import Confinement, why_not
from gramercy.journal.base import NewCall
from gramercy.journal.base import State as CallState
from gramercy.journal.sqlite import SqliteJournal
from gramercy.ui.doctor.attempts import attempts
from gramercy.ui.doctor.checks import _expect, _not_held, _table, check_journal, line
from gramercy.ui.doctor.escapes import EscapeResult
from gramercy.workbench.configuration import read_configuration
from gramercy.workbench.serving import Service, open_server
from tests.support import files_of_processes

SOURCE = Path(__file__).parents[2] / "src"
RUN = "import sys; from gramercy.ui.doctor.checks import doctor; sys.exit(doctor.main(standalone_mode=False))"
BOUND = 120.0

needs_sandbox = pytest.mark.skipif(
    all(why_not(c) is not None for c in (Confinement.BUBBLEWRAP, Confinement.LANDLOCK)), reason="no sandbox"
)


def consult(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * BOUND,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
    )


@pytest.fixture
def short_directory():
    """Return a directory whose path leaves room for the name of a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield Path(directory)


@needs_sandbox
def test_a_healthy_machine_passes_every_check_in_time_and_nothing_is_left(short_directory, home):
    """Images, Sandbox: doctor runs the escape suite live, here without the clients of this machine."""
    (home / "private").touch()
    started = time.monotonic()
    done = consult("--json", TMPDIR=str(short_directory))
    assert time.monotonic() - started < BOUND
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (0, True)
    checks = {check["name"]: check["status"] for check in report["checks"]}
    languages = ["python", "sbcl"] if shutil.which("sbcl") else ["python"]
    for name in ("starts", "undo", "recovery", "escapes"):
        assert {checks[f"{language} {name}"] for language in languages} == {"ok"}
    # MCP checklist 13: starts, lists, calls, in both eras.
    assert (checks["server 2025-11-25"], checks["server 2026-07-28"]) == ("ok", "ok")
    assert checks["clients"] == "ok"
    assert list(short_directory.iterdir()) == []
    assert processes_with(short_directory) == []


def processes_with(directory):
    """Return the command lines that name the directory, once those that are about to end have ended."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = []
        for path in files_of_processes("cmdline"):
            with contextlib.suppress(OSError):
                found.append(path.read_bytes())
        found = [line for line in found if str(directory).encode() in line]
        if not found:
            break
        threading.Event().wait(0.02)
    return found


@pytest.mark.skipif(why_not(Confinement.LANDLOCK) is not None, reason="no Landlock")
def test_a_machine_without_the_programs_gets_advice_and_still_works(tmp_path):
    """SBCL and bubblewrap are wanted, not needed."""
    done = consult(PATH=str(tmp_path), NO_COLOR="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning  SBCL" in done.stdout
    assert "apt-get install sbcl" in done.stdout
    assert "apt-get install bubblewrap" in done.stdout
    assert "landlock, which does not confine: names and command lines of other processes" in done.stdout
    assert "ok       python escapes" in done.stdout


def test_a_broken_sbcl_is_a_failure_with_advice(tmp_path):
    """Exit code 1 when an essential check fails."""
    for name, text in (("sbcl", "#!/bin/sh\nexit 1\n"),):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = consult("--json", PATH=f"{tmp_path}:{os.environ['PATH']}")
    report = json.loads(done.stdout)
    broken = next(check for check in report["checks"] if check["name"] == "SBCL")
    assert (done.returncode, report["ok"], broken["status"]) == (1, False, "FAILED")
    assert broken["advice"] == "reinstall it: apt-get install sbcl"


def test_state_that_did_not_come_back_is_a_failure():
    """A check that cannot fail proves nothing."""
    assert _expect("x", ["42"], "fine").status is Status.OK
    assert _expect("x", ["0"], "fine") == Finding("x", Status.FAILED, "expected 42, found 0")


def test_a_line_of_the_report_cannot_move_the_cursor():
    """Texts of images are strangers' texts."""
    assert "\x1b" not in line(Finding("x", Status.FAILED, "\x1b[2J"))


def serve(*arguments, **environment):
    """Start a server whose client hangs up at once."""
    return subprocess.run(
        [sys.executable, "-m", "gramercy", "serve", "--image", "python", *arguments],
        input="",
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
    )


@pytest.mark.contract("trust.attack.told")
@pytest.mark.skipif(why_not(Confinement.LANDLOCK) is not None, reason="no Landlock")
def test_a_server_says_in_which_sandbox_images_run(tmp_path):
    """Trust 9: at its start, with what the weaker one leaves open, and in its instructions."""
    weaker = serve("--project", str(tmp_path), PATH=str(tmp_path))
    assert "WARNING, the weaker sandbox, landlock (bubblewrap is not installed)" in weaker.stderr
    assert "command lines of other processes" in weaker.stderr
    if why_not(Confinement.BUBBLEWRAP) is None:
        assert "gramercy: sandbox: bubblewrap, memory " in serve("--project", str(tmp_path)).stderr
    server = open_server(Service(images=("python",), project=str(tmp_path)))
    server.close(1.0)
    assert server.sandbox
    assert "WARNING, no sandbox" in open_server(Service(project=str(tmp_path), sandbox=False)).sandbox


@pytest.mark.contract("trust.attack.required")
def test_nothing_starts_in_a_weaker_sandbox_than_is_required(tmp_path):
    """Trust 9: on the command line, and where both are said."""
    done = serve("--project", str(tmp_path), "--require-sandbox", "bubblewrap", PATH=str(tmp_path))
    assert done.returncode == 3
    assert "bubblewrap is required" in done.stderr
    assert "apt-get install bubblewrap" in done.stderr
    done = serve("--project", str(tmp_path), "--require-sandbox", "landlock", "--no-sandbox")
    assert (done.returncode, "--no-sandbox switches off" in done.stderr) == (3, True)


def test_a_project_may_ask_for_a_stronger_sandbox_never_for_a_weaker_one(tmp_path, monkeypatch):
    """Trust 9: the setting; what a project says cannot lower what the person requires."""
    (tmp_path / "gramercy.toml").write_text('require_sandbox = "landlock"\n')
    monkeypatch.setenv("GRAMERCY_REQUIRE_SANDBOX", "bubblewrap")
    assert read_configuration(tmp_path).environment.require_sandbox == "bubblewrap"
    monkeypatch.delenv("GRAMERCY_REQUIRE_SANDBOX")
    assert read_configuration(tmp_path).environment.require_sandbox == "landlock"
    (tmp_path / "gramercy.toml").write_text('require_sandbox = "bubblewrap"\n')
    assert read_configuration(tmp_path).environment.require_sandbox == "bubblewrap"


def test_the_journal_is_looked_at_and_not_made(tmp_path, monkeypatch):
    path = tmp_path / "journal.db"
    monkeypatch.setenv("GRAMERCY_JOURNAL", str(path))
    assert check_journal() == Finding("journal", Status.OK, f"none yet; the first call makes {path}")
    assert not path.exists()
    journal = SqliteJournal(path)
    key = journal.begin(NewCall("c", "pay", "dangerous", {}), CallState.EXECUTING)
    assert check_journal() == Finding("journal", Status.OK, f"{path}, 0 waiting for a decision, 0 in doubt")
    journal.move(key, CallState.IN_DOUBT)
    journal.close()
    found = check_journal()
    assert (found.status, "1 in doubt" in found.detail) == (Status.WARNING, True)
    assert "approvals resolve" in found.advice


def test_a_journal_that_was_damaged_or_cannot_be_read_is_told(tmp_path, monkeypatch):
    path = tmp_path / "journal.db"
    monkeypatch.setenv("GRAMERCY_JOURNAL", str(path))
    path.write_text("my notes")
    assert check_journal().status is Status.FAILED
    path.write_bytes(b"SQLite format 3\0" + os.urandom(5_000))
    found = check_journal()
    assert (found.status, "damaged" in found.advice) == (Status.WARNING, True)


def test_an_attempt_that_could_not_be_made_does_not_count_as_held():
    """True before clever: an attempt that ran out of time says nothing about the sandbox."""
    first, second = attempts()[:2]
    results = [
        EscapeResult(first, escaped=False, detail=""),
        EscapeResult(second, escaped=False, detail="late", tried=False),
    ]
    last = _table("python", Confinement.BUBBLEWRAP, results).splitlines()[-1]
    assert last.split()[-2:] == ["1", "1"]
    assert "it could not be tried: late" in _not_held({"python": results})
