"""The turns of the workers: what measures is alone, and comes to its turn."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from tests.support import BOUND, until
from tests.turns import GATE, ROOM, Turns

ROOT = Path(__file__).parents[2]
OTHER_WORKER = """
import sys
from tests.turns import Turns
turns = Turns(sys.argv[1])
turns.begin(alone=True)
print("alone", flush=True)
input()
turns.end()
"""


def is_free(turns, place, kind):
    """Tell whether a lock could be had now."""
    try:
        fcntl.lockf(turns._file, kind | fcntl.LOCK_NB, 1, place)
    except BlockingIOError:
        return False
    fcntl.lockf(turns._file, fcntl.LOCK_UN, 1, place)
    return True


def test_what_measures_waits_for_the_others_and_then_they_wait_for_it():
    """Whoever waits holds the gate, so that nobody comes in before."""
    run = uuid4().hex
    turns = Turns(run)
    turns.begin(alone=False)
    command = [sys.executable, "-c", OTHER_WORKER, run]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        try:
            until(lambda: not is_free(turns, GATE, fcntl.LOCK_EX))
            turns.end()
            assert other.stdout
            assert other.stdout.readline() == b"alone\n"
            assert not is_free(turns, ROOM, fcntl.LOCK_SH)
            other.communicate(b"\n", timeout=BOUND)
            turns.begin(alone=True)
            turns.end()
        finally:
            other.kill()
            turns.close()
