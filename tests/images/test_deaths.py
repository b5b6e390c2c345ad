"""How a process ended can be asked of the one that forked it, and user code loses nothing by it."""

import os
import select
import signal
from contextlib import closing

import pytest

from tests.images import children

RUNNING = {"kind": "running"}
UNKNOWN = {"kind": "unknown"}
KILLED = {"kind": "signaled", "signal": signal.SIGKILL}
CODE = {
    "sbcl": {
        # SBCL turns the signal into a condition, until it is told not to.
        "crash": '(sb-alien:alien-funcall (sb-alien:extern-alien "signal" (function sb-alien:unsigned-long'
        " sb-alien:int sb-alien:unsigned-long)) 11 0) (sb-posix:kill (sb-posix:getpid) 11)",
        "start": "(defvar *p* (sb-posix:fork)) (when (zerop *p*) (exit :code 7 :abort t)) *p*",
        "collect": "(ash (nth-value 1 (sb-posix:waitpid *p* 0)) -8)",
    },
    "python": {
        "crash": "import os; os.kill(os.getpid(), 11)",
        "start": "import subprocess\np = subprocess.Popen(['/bin/sh', '-c', 'exit 7'])\np.pid",
        "collect": "p.wait()",
    },
}


@pytest.fixture
def code(words):
    return CODE[words.language]


@pytest.fixture
def family(words, tmp_path):
    with closing(children.Family(tmp_path, words.language)) as family:
        yield family


@pytest.fixture
def live(family):
    return family.live()


def wait_for_end(pid):
    handle = os.pidfd_open(pid)
    assert select.select([handle], [], [], children.PATIENCE)[0]
    os.close(handle)


def test_a_process_that_left_tells_its_code(family, live, words):
    """Child protocol, fate."""
    live.send("eval", code=words.leave)
    assert live.is_ended()
    assert family.zygote.fate(live.pid) == {"kind": "exited", "code": 3}


def test_a_process_that_was_killed_tells_the_signal(family, live):
    """Child protocol, fate."""
    live.kill()
    assert live.is_ended()
    assert family.zygote.fate(live.pid) == KILLED
    assert family.zygote.fate(live.pid) == KILLED


def test_a_process_that_crashed_tells_the_signal(family, live, code):
    """Child protocol, fate."""
    live.send("eval", code=code["crash"])
    assert live.is_ended()
    assert family.zygote.fate(live.pid) == {"kind": "signaled", "signal": signal.SIGSEGV}


def test_a_process_that_runs_or_is_stopped_is_running(family, live):
    """Child protocol, fate: stopped is not ended."""
    assert family.zygote.fate(live.pid) == RUNNING
    live.kill(signal.SIGSTOP)
    assert family.zygote.fate(live.pid) == RUNNING
    live.kill(signal.SIGCONT)
    assert live.ask("ping")["ok"]


@pytest.mark.parametrize("pid", [1, 2**22 + 1, 2**31, 2**70])
def test_a_process_that_was_never_a_child_is_unknown(family, live, pid):
    """Child protocol, fate."""
    assert family.zygote.fate(pid) == UNKNOWN
    assert live.fate(pid) == UNKNOWN


def test_a_process_does_not_know_itself(family, live):
    """Child protocol, fate: children only."""
    assert family.zygote.fate(family.zygote.pid) == UNKNOWN
    assert live.fate(live.pid) == UNKNOWN


@pytest.mark.parametrize("pid", [0, -1, "1"])
def test_a_number_that_no_process_has_is_refused(live, family, pid):
    """Child protocol, malformed requests: 0 and -1 would mean any child to the system."""
    for member in (live, family.zygote):
        reply = member.ask("fate", pid=pid)
        assert reply["error"]["type"] in {"INVALID-REQUEST", "MALFORMED-REQUEST"}
        assert member.ask("ping")["ok"]


def test_a_live_process_tells_of_its_checkpoints(live):
    """Child protocol, fate: of its own forks, whether reaped before or by the question."""
    first, second = live.fork("checkpoint"), live.fork("checkpoint")
    assert live.fate(first.pid) == RUNNING
    first.kill()
    assert first.is_ended()
    assert live.fate(first.pid) == KILLED
    second.send("exit")
    assert second.is_ended()
    live.ask("ping")
    assert live.fate(second.pid) == {"kind": "exited", "code": 0}
    assert live.fate(first.pid) == KILLED


def test_a_checkpoint_tells_of_its_forks_and_not_of_others(live):
    """Child protocol, fate: a copy starts without memories."""
    earlier = live.fork("preview")
    earlier.kill()
    assert earlier.is_ended()
    assert live.fate(earlier.pid) == KILLED
    checkpoint = live.fork("checkpoint")
    assert checkpoint.fate(earlier.pid) == UNKNOWN
    restored = checkpoint.fork("live")
    restored.kill()
    assert restored.is_ended()
    assert checkpoint.fate(restored.pid) == KILLED
    assert live.fate(restored.pid) == UNKNOWN


def test_the_zygote_tells_of_orphans(family, live):
    """Child protocol, fate: orphans below a subreaper become its children."""
    checkpoint = live.fork("checkpoint")
    assert family.zygote.fate(checkpoint.pid) == UNKNOWN
    live.kill()
    assert live.is_ended()
    assert family.zygote.fate(checkpoint.pid) == RUNNING
    checkpoint.kill()
    assert checkpoint.is_ended()
    assert family.zygote.fate(checkpoint.pid) == KILLED


def test_the_latest_ends_are_remembered_and_old_ones_forgotten(family):
    """Child protocol, fate: 64 are kept."""
    pids = []
    for _ in range(65):
        member = family.live()
        member.kill()
        assert member.is_ended()
        pids.append(member.pid)
    assert family.zygote.fate(pids[0]) == UNKNOWN
    assert [family.zygote.fate(pid) for pid in pids[1:]] == [KILLED] * 64


def test_children_of_user_code_are_left_to_user_code(live, code):
    """Child protocol, fate: run-program and subprocess want their statuses themselves."""
    checkpoint = live.fork("checkpoint")
    pid = int(live.value(code["start"]))
    wait_for_end(pid)
    checkpoint.kill()
    assert checkpoint.is_ended()
    assert live.fate(pid) == UNKNOWN
    assert live.fate(checkpoint.pid) == KILLED
    assert live.value(code["collect"]) == "7"
