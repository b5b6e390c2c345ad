"""What the tests of both stores share: calls, and a process of its own that runs one and can be killed."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

from gramercy.journal.base import Facts, NewCall, Question, Ruling

WRITE = NewCall("c1", "write_file", "dangerous", {"path": "a.txt", "text": "x"}, identity="me:write")
READ = NewCall("c2", "read_file", "safe", {"path": "a.txt"})
QUESTION = Question(
    "Write a.txt?", "seal-1", {"arguments": "d1"}, "it is dangerous", {"would_change": "a.txt"}
)
ASKED = Facts(question=QUESTION, expires_at=4e9)
YES = Facts(ruling=Ruling(approved=True, by="person", seal="seal-1", reason="fine"))
NO = Facts(ruling=Ruling(approved=False, by="person", seal="seal-1", reason="not now", refuser="person"))
# A process that is slower than this is stuck.
BOUND = 30.0

PROGRAM = """
import sys
from gramercy.journal.base import *
from gramercy.journal.opening import open_journal
from tests.journal.stores import *
journal = open_journal(sys.argv[1])
{code}
print("there", flush=True)
sys.stdin.read()
"""


@contextmanager
def process(where, code):
    """Run code with a journal in another process; it waits, with the journal open, until it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(code=code), str(where)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            lines = []
            assert child.stdout
            while (line := child.stdout.readline().strip()) != "there":
                assert line or child.poll() is None, "the process has ended"
                lines.append(line)
            yield child, lines
        finally:
            child.kill()
            child.wait(BOUND)
