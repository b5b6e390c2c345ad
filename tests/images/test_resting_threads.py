"""Copies of a Python process whose threads wait with nothing in hand: they work here and in the copy."""

# ruff: noqa: E501 - the forms are data, and read best on one line

import pytest

from tests.images import children
from tests.support import install

POOL = """
import threading, time
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
meeting = threading.Barrier(2)
# Each of the two jobs waits for the other, so both threads are needed.
def both(): return [job.result(60) for job in [pool.submit(meeting.wait, 60) for _ in range(2)]]
sorted(both())
"""
LISTENER = """
import io, logging, logging.handlers, queue
source, sink = {}(), io.StringIO()
log = logging.getLogger('day')
log.addHandler(logging.handlers.QueueHandler(source))
listener = logging.handlers.QueueListener(source, logging.StreamHandler(sink))
listener.start()
def said(word):
    log.warning(word)
    listener.stop(); listener.start()
    return sink.getvalue().split()
"""
ALIVE = "import threading\nsorted(each.name for each in threading.enumerate() if each is not threading.main_thread())"


@pytest.fixture
def live(tmp_path):
    """Return one process that evaluates, below a zygote of its own."""
    family = children.Family(tmp_path, "python")
    yield family.live()
    family.close()


def kept(live, code="kept = 1"):
    """Evaluate, and return why no copy follows, or None after one has come."""
    reply = live.eval(code, then_fork="t")
    assert reply["ok"], reply
    if "unkept" in reply:
        return reply["unkept"]
    live.copy = live.family.accept()
    return None


@pytest.mark.contract("day.heavy.threads-pool")
def test_a_pool_at_rest_works_in_the_copy_and_where_it_was(live):
    """A pool that had done its work cost undo, previews and moments until it was shut down."""
    assert kept(live, POOL) is None
    again = live.copy.fork("live")
    assert again.value("sorted(both())") == "[0, 1]"
    assert live.value("sorted(both())") == "[0, 1]"
    # Also in a copy of a copy that has used it.
    assert again.fork("checkpoint").fork("live").value("sorted(both())") == "[0, 1]"


@pytest.mark.contract("day.heavy.threads-pool")
def test_many_copies_beside_a_pool_that_has_just_worked_do_not_hang(live):
    """A thread that has taken work and has not begun it looks as if it waited."""
    live.value(POOL)
    code = "jobs = [pool.submit(int) for _ in range(20)]\n[job.result(60) for job in jobs]"
    for _ in range(20):
        assert kept(live, code) is None
    assert live.copy.fork("live").value("sorted(both())") == "[0, 1]"


@pytest.mark.contract("day.heavy.threads-held")
def test_a_pool_at_work_is_named(live):
    """What a thread does would be missing in the copy."""
    live.value(POOL)
    reason = kept(live, "gate = threading.Event()\njob = pool.submit(gate.wait, 60)")
    assert reason.startswith("1 user thread is running: ThreadPoolExecutor-0_")
    assert kept(live, "gate.set(); job.result(60)") is None


@pytest.mark.contract("day.heavy.threads-held")
def test_a_thread_of_the_users_that_waits_is_named_beside_a_pool_at_rest(live):
    """Its function may hold anything: it cannot be begun again."""
    live.value(POOL)
    code = (
        "gate = threading.Event()\nthread = threading.Thread(target=gate.wait, name='mine')\nthread.start()"
    )
    assert kept(live, code) == "1 user thread is running: mine"
    assert kept(live, "gate.set(); thread.join()") is None


@pytest.mark.contract("day.heavy.threads-held")
def test_a_thread_with_the_name_of_a_pool_is_none(live):
    """Where a thread stands decides, never its name."""
    code = "import threading\ngate = threading.Event()\nthreading.Thread(target=gate.wait, name='ThreadPoolExecutor-0_0').start()"
    assert kept(live, code).startswith("1 user thread is running: ThreadPoolExecutor-0_0")
    assert kept(live, "gate.set(); [each.join() for each in threading.enumerate()[1:]]") is None


@pytest.mark.contract("day.heavy.threads-serving")
@pytest.mark.parametrize("source", ["queue.Queue", "queue.SimpleQueue"])
def test_a_listener_of_logging_serves_in_the_copy_and_where_it_was(live, source):
    """Its thread waits for records; a copy starts one of its own."""
    assert kept(live, LISTENER.format(source)) is None
    again = live.copy.fork("live")
    assert again.value("listener._thread.is_alive()") == "True"
    assert again.value("said('there')") == "['there']"
    assert live.value("said('here')") == "['here']"


@pytest.mark.slow
@pytest.mark.contract("day.heavy.threads-serving")
def test_the_monitor_of_tqdm_is_there_again_in_the_copy(live):
    """One bar ended states, previews and moments for the session."""
    from tests.images.library_trials import PACKAGES

    install("libraries")
    live.value(f"import sys; sys.path.append({str(PACKAGES)!r})")
    assert kept(live, "import io, tqdm\nlist(tqdm.tqdm(range(3), file=io.StringIO()))") is None
    again = live.copy.fork("live")
    assert again.value(ALIVE) == live.value(ALIVE) == "['tqdm_monitor']"
    assert again.value("tqdm.tqdm.monitor.is_alive()") == "True"
    assert again.value("tqdm.tqdm.monitor.exit()\ntqdm.tqdm.monitor.is_alive()") == "False"


@pytest.mark.contract("day.heavy.threads-pool")
def test_code_in_a_preview_uses_a_pool_at_rest(live):
    """Previews were refused while a pool was open."""
    live.value(POOL)
    assert live.fork("preview").value("sorted(both())") == "[0, 1]"


@pytest.mark.contract("day.heavy.threads-pool")
def test_an_error_beside_a_pool_at_rest_keeps_its_moment(live):
    """Moments were refused as well."""
    live.value(POOL)
    reply = live.eval("1 / 0", keep_moment="m")
    assert reply["error"]["moment"] is True, reply["error"]
