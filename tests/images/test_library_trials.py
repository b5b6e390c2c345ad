"""Real libraries, installed and used: the reference says how they fare, and the list says why."""

# ruff: noqa: E501 - the programs are data, and read best on one line

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.images import library_page as page
from tests.images import library_trials as trials
from tests.images.library_subjects import SUBJECTS
from tests.support import install

ROOT = Path(__file__).parents[2]
SYSTEMS = Path("/usr/share/common-lisp/source")
COPYING = 8
WITH_COPY = """
import os, signal, sys, time
{}
pid = os.fork()
if pid == 0:
    {}
    os._exit(0)
end = time.monotonic() + {}
while time.monotonic() < end:
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended:
        print(os.waitstatus_to_exitcode(status), flush=True)
        break
    time.sleep(0.01)
else:
    os.kill(pid, signal.SIGKILL)
    print('hangs', flush=True)
os._exit(0)
"""


def test_the_page_is_read_as_it_is_written():
    """Otherwise the comparison below compares nothing."""
    cells = {"undo": trials.Cell("works"), "preview": trials.Cell("refused", "one thread")}
    text = page.page({"duckdb, connected": cells, "asyncio": cells}, {"duckdb": "2.0.0"})
    assert "| duckdb 2.0.0, connected | works | refused |" in text
    assert page.table(text) == {"duckdb, connected": ["works", "refused"], "asyncio": ["works", "refused"]}


def test_the_page_has_every_row_and_no_wrong_state():
    rows = page.table(trials.PAGE.read_text(encoding="utf-8"))
    assert list(rows) == [subject.name for subject in SUBJECTS]
    assert {word for words in rows.values() for word in words} <= {"works", "refused", "partly", "lost"}


@pytest.fixture(scope="module")
def interpreter():
    """Install the libraries, which costs nothing when they are there, and return the interpreter that has them."""
    install("libraries")
    return ROOT / ".venv-libraries/bin/python"


@pytest.mark.slow
@pytest.mark.usefixtures("interpreter")
def test_libraries_fare_as_the_reference_says():
    """Threads and C libraries: the table is made by a test that installs and uses them."""
    lacking = [each.system for each in SUBJECTS if each.system and not (SYSTEMS / each.system).is_dir()]
    if lacking or shutil.which("sbcl") is None:
        pytest.skip(f"not installed: sbcl or {', '.join(lacking)}; scripts/setup does it")
    results, wanted = trials.run([]), page.table(trials.PAGE.read_text(encoding="utf-8"))
    # On a busy machine a thread may outlive its call: what fares otherwise is tried once more, by itself.
    for name in [name for name, cells in results.items() if [c.word for c in cells.values()] != wanted[name]]:
        results[name] = trials.run([name])[name]
    found = {name: [cell.word for cell in cells.values()] for name, cells in results.items()}
    texts = {name: [cell.text for cell in cells.values()] for name, cells in results.items()}
    assert found == wanted, texts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "use", "outcomes"),
    [
        pytest.param(
            "import polars; f = polars.DataFrame({'a': [1, 2] * 999, 'b': range(1998)}); go = lambda: f.lazy().group_by('a').agg(polars.col('b').sum()).collect(); go()",
            "go()",
            {"hangs"},
            id="polars",
        ),
        pytest.param(
            "import duckdb; c = duckdb.connect(); c.execute('select sum(i) from range(3000000) t(i)').fetchone()",
            "c.close()",
            # By which thread gets there first: it waits for one that the copy lacks, or uses what is gone.
            {"-11", "hangs"},
            id="duckdb",
        ),
        pytest.param(
            "import numpy; from sklearn.cluster import KMeans; d = numpy.random.rand(3000, 8); go = lambda: KMeans(4, n_init=1).fit(d); go()",
            "go()",
            {"hangs"},
            id="libgomp",
        ),
    ],
)
def test_a_library_that_is_said_not_to_stand_a_copy_does_not(interpreter, begin, use, outcomes):
    """The list may be too strict for a newer version: then this test fails, and the list can be relaxed."""
    program = WITH_COPY.format(begin, use, COPYING)
    done = subprocess.run(
        [interpreter, "-c", program], capture_output=True, text=True, timeout=90, check=True
    )
    assert done.stdout.strip() in outcomes
