"""Copies of a Python process that has threads: of Python code, of known libraries, of unknown ones."""

# ruff: noqa: E501 - the forms are data, and read best on one line

import ctypes.util
import importlib
import re
import shutil
import subprocess

import pytest

from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings
from gramercy.images.sandbox import Confinement, why_not
from tests.images import children

libraries = importlib.import_module("gramercy.images.python.threads")

GCC = shutil.which("gcc")
# A thread that compiled code starts, which waits in the function that it is given.
NATIVE = """
import ctypes
libc = ctypes.CDLL(None)
handle = ctypes.c_ulong()
def begin(function, argument=None):
    assert libc.pthread_create(ctypes.byref(handle), None, function, argument) == 0
def end():
    assert libc.pthread_cancel(handle) == 0
    assert libc.pthread_join(handle, None) == 0
"""
# A library with a thread that waits in its own code.
WAITING = """
#include <pthread.h>
#include <semaphore.h>
static sem_t gate;
static pthread_t waiting;
static volatile int is_over;
static void *wait_here(void *nothing) { while (sem_wait(&gate)) {} return nothing; }
static void *turn_here(void *nothing) { while (!is_over) {} return nothing; }
int begin(void) { sem_init(&gate, 0, 0); return pthread_create(&waiting, 0, wait_here, 0); }
void wait_now(void) { sem_init(&gate, 0, 0); wait_here(0); }
static void *call(void *function) { ((void (*)(void))function)(); return 0; }
int begin_with(void *function) { return pthread_create(&waiting, 0, call, function); }
int turn(void) { return pthread_create(&waiting, 0, turn_here, 0); }
int end(void) { is_over = 1; sem_post(&gate); return pthread_join(waiting, 0); }
"""
# Four threads, each of which calls a function of the system's library once.
PARALLEL = """
import ctypes, os
gomp, libc = ctypes.CDLL('{}'), ctypes.CDLL(None)
def go():
    gomp.GOMP_parallel(libc.rand, None, 4, 0)
    return len(os.listdir('/proc/self/task'))
"""


@pytest.fixture
def live(tmp_path):
    """Return one process that evaluates, below a zygote of its own."""
    family = children.Family(tmp_path, "python")
    yield family.live()
    family.close()


@pytest.fixture(scope="session")
def waiting_library(tmp_path_factory):
    """Make libraries that keep a thread, under whatever name a test needs."""
    if GCC is None:
        pytest.skip("gcc is not installed: apt-get install gcc")
    home = tmp_path_factory.mktemp("waiting")
    source = home / "waiting.c"
    source.write_text(WAITING)

    def make(name):
        made = home / name
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([GCC, "-shared", "-fPIC", "-pthread", "-o", made, source], check=True, timeout=60)
        return made

    return make


def kept(live, code="kept = 1"):
    """Evaluate, and return why no copy follows, or None after one has come."""
    reply = live.eval(code, then_fork="t")
    assert reply["ok"], reply
    if "unkept" in reply:
        return reply["unkept"]
    live.copy = live.family.accept()
    return None


# --- threads of Python code --------------------------------------------------------------------------------


def test_a_thread_without_an_object_is_counted(live):
    code = "import _thread\ngate = _thread.allocate_lock()\ngate.acquire()\n_thread.start_new_thread(gate.acquire, ())"
    assert "1 user thread is running (started with _thread)" in kept(live, code)


def test_a_thread_that_has_just_ended_is_not_in_the_way(live):
    """A joined thread stays in the system's list for a moment."""
    code = "import threading\nfor _ in range(8):\n    t = threading.Thread(target=int)\n    t.start()\n    t.join()"
    assert [kept(live, code) for _ in range(30)] == [None] * 30


# --- threads of unknown compiled code ----------------------------------------------------------------------


def test_a_thread_that_compiled_code_started_is_in_the_way_until_it_ends(live):
    live.value(f"{NATIVE}\nbegin(libc.pause)")
    reason = kept(live)
    assert "a thread that compiled code started (the system calls it 'python" in reason
    refused = live.ask("fork", role="preview", tag="t")["error"]
    assert refused["type"] == "CANNOT-FORK"
    assert "that compiled code started" in refused["message"]
    assert live.ask("state")["state"]["threads"] == 2
    assert kept(live, "end()") is None


def test_a_thread_is_told_by_the_library_whose_function_it_was_started_with(live):
    code = f"{NATIVE}\nimport _sqlite3\nbegin(ctypes.CDLL(_sqlite3.__file__).sqlite3_sleep, 60000)"
    assert re.search(r"a thread of \S*sqlite3\S* .*is running, and it is not known", kept(live, code))
    assert kept(live, "end()") is None


def test_an_unknown_library_is_named_with_its_package(live, waiting_library):
    library = waiting_library("site-packages/zebra.libs/libstripes.so.3")
    reason = kept(live, f"import ctypes\nlib = ctypes.CDLL('{library}')\nlib.begin()")
    assert reason.startswith("a thread of zebra (libstripes.so.3) is running")
    assert kept(live, "lib.end()") is None


# Has the process wait far longer for a thread, so that a second wait cannot be taken for noise.
PATIENT = """
import sys, time
frame = sys._getframe()
while 'Family' not in frame.f_globals: frame = frame.f_back
frame.f_globals['Family'].fork.__globals__['Threads'].obstacle.__globals__['_PATIENCE'] = 40.0
"""


def test_a_busy_thread_of_compiled_code_is_not_waited_for_twice(live):
    """Every wait is bounded, and the second call need not pay for it."""
    live.value(f"{NATIVE}\nbegin(libc.pause)")
    kept(live)
    assert live.eval(PATIENT)["ok"]
    assert live.eval("then = time.monotonic()", then_fork="t")["unkept"]
    assert float(live.value("time.monotonic() - then")) < 20


# --- threads of known libraries ----------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["libarrow.so.2600", "libomp.so.5", "libscipy_openblas64_-32a4b2a6.so"])
def test_a_copy_is_made_with_the_threads_of_a_library_that_stands_it(live, waiting_library, file):
    live.value(f"import ctypes\nlib = ctypes.CDLL('{waiting_library(file)}')\nlib.begin()")
    assert kept(live, "x = 41") is None
    assert live.eval("x = 0")["state"]["threads"] == 2
    assert live.copy.fork("live").value("x") == "41"


def test_what_a_thread_calls_does_not_own_it(live, waiting_library):
    """Numexpr's threads call numpy, and what they called before remains on their stacks."""
    stands, unknown = waiting_library("libarrow.so.2600"), waiting_library("libstripes.so.3")
    code = (
        f"import ctypes\na, b = ctypes.CDLL('{stands}'), ctypes.CDLL('{unknown}')\na.begin_with(b.wait_now)"
    )
    assert kept(live, code) is None
    code = code.replace("a.begin_with(b.", "b.begin_with(a.")
    assert kept(live, code).startswith("a thread of libstripes.so.3 is running")


def test_a_thread_that_never_waits_is_told_by_the_function_it_began_with(live, waiting_library):
    """LLVM's OpenMP turns for 200 ms before it waits: the end of such a stack is not known."""
    stands, unknown = waiting_library("libomp.so.5"), waiting_library("libstripes.so.3")
    assert kept(live, f"import ctypes\nlib = ctypes.CDLL('{stands}')\nlib.turn()") is None
    assert live.copy.fork("live").value("6 * 7") == "42"
    reason = kept(live, f"lib.end()\nlib = ctypes.CDLL('{unknown}')\nlib.turn()")
    assert reason.startswith("a thread of libstripes.so.3 is running")
    assert kept(live, "lib.end()") is None


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("_duckdb.cpython-311-x86_64-linux-gnu.so", "duckdb is loaded.*: close its connections"),
        ("_polars_runtime.abi3.so", "polars is loaded.*: go back to before its import"),
        ("libgomp-a34b3233.so.1.0.0", "libgomp is loaded.*OMP_NUM_THREADS=1"),
    ],
)
def test_a_library_that_does_not_stand_a_copy_is_named_with_what_to_do(live, waiting_library, file, told):
    live.eval(f"import ctypes\nlib = ctypes.CDLL('{waiting_library(file)}')")
    assert kept(live) is None
    assert re.search(told, kept(live, "lib.begin()"))
    assert kept(live, "lib.end()") is None


def test_the_one_that_is_in_the_way_is_named_among_others(live, waiting_library):
    arrow, duckdb = waiting_library("libarrow.so.2600"), waiting_library("_duckdb.so")
    code = f"import ctypes\nlibs = [ctypes.CDLL(f) for f in ('{arrow}', '{duckdb}')]\nfor lib in libs: lib.begin()"
    assert kept(live, code).startswith("duckdb is loaded")


@pytest.mark.parametrize("name", ["gomp", "omp"])
def test_a_copy_of_a_copy_computes_with_openmp(live, name):
    """A copy that was made with the threads of libgomp hangs; one after a pause of LLVM's libomp aborts."""
    library = ctypes.util.find_library(name)
    if library is None:
        pytest.skip(f"lib{name} is not installed: apt-get install libgomp1 libomp5")
    assert live.value(f"{PARALLEL.format(library)}\ngo()") == "4"
    assert kept(live) is None
    assert live.value("go()") == "4"
    again = live.copy.fork("live")
    assert again.value("go()") == "4"
    assert again.fork("checkpoint").fork("live").value("go()") == "4"


@pytest.mark.parametrize("confinement", Confinement)
def test_threads_are_told_apart_inside_every_sandbox(tmp_path, waiting_library, confinement):
    """The owner of a thread is read from /proc, which a sandbox shows in its own way."""
    if why_not(confinement) is not None:
        pytest.skip(f"{why_not(confinement)}")
    for file in ("libarrow.so.2600", "_duckdb.so"):
        shutil.copy(waiting_library(file), tmp_path)
    image = LiveImage("test", ImageSettings("python", tmp_path, confinement).program)
    try:
        load = "import ctypes\nlib = ctypes.CDLL('{}')\nlib.begin()"
        assert image.evaluate(load.format(tmp_path / "libarrow.so.2600")).unkept is None
        image.evaluate("x = 41")
        image.evaluate("x = 0")
        image.undo()
        assert image.evaluate("x").values == ["41"]
        assert image.preview("x + 1").values == ["42"]
        reply = image.evaluate(load.format(tmp_path / "_duckdb.so"))
        assert reply.unkept is not None
        assert "duckdb is loaded" in reply.unkept
    finally:
        image.close()


# --- the table ---------------------------------------------------------------------------------------------

FILES = {
    "OpenBLAS": [
        "/v/site-packages/numpy.libs/libscipy_openblas64_-32a4b2a6.so",
        "/v/site-packages/numpy.libs/libopenblas64_p-r0-0cf96a72.3.23.dev.so",
        "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblasp-r0.3.21.so",
    ],
    "libgomp": [
        "/v/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0",
        "/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0",
    ],
    "LLVM and Intel OpenMP": ["/usr/lib/llvm-14/lib/libomp.so.5", "/v/lib/libiomp5.so"],
    "MKL": ["/v/lib/libmkl_intel_thread.so.3"],
    "Apache Arrow": ["/v/pyarrow/libarrow.so.2600", "/v/pyarrow/libparquet.so.2600"],
    "numexpr": ["/v/numexpr/interpreter.cpython-311-x86_64-linux-gnu.so"],
    "OpenCV": ["/v/cv2/cv2.abi3.so", "/usr/lib/x86_64-linux-gnu/libopencv_core.so.4.6.0"],
    "polars": ["/v/_polars_runtime_32/_polars_runtime.abi3.so", "/v/polars/polars.abi3.so"],
    "duckdb": [
        "/v/_duckdb.cpython-311-x86_64-linux-gnu.so",
        "/v/duckdb/duckdb.cpython-311-x86_64-linux-gnu.so",
    ],
}


def test_each_file_is_recognised_as_one_library():
    """The table is data: a pattern that takes another's files would give the wrong verdict."""
    assert list(FILES) == [library.name for library in libraries.LIBRARIES]
    for name, files in FILES.items():
        for file in files:
            assert [each.name for each in libraries.LIBRARIES if re.search(each.file, file)] == [name]
            assert not libraries.is_neutral(file)
            assert not libraries.is_interpreter(file)


@pytest.mark.parametrize("library", libraries.LIBRARIES, ids=lambda library: library.name)
def test_each_row_of_the_table_says_what_was_tried_and_what_to_do(library):
    assert library.tried
    assert library.remark
    assert library.stands != bool(library.remedy)


@pytest.mark.parametrize(
    "file", ["/lib/libc.so.6", "/lib/libc-2.31.so", "/lib/ld-linux-x86-64.so.2", "/lib/libstdc++.so.6.0.30"]
)
def test_what_is_under_every_thread_says_nothing(file):
    assert libraries.is_neutral(file)


@pytest.mark.parametrize("file", ["/usr/lib/libpython3.11.so.1.0", "/usr/bin/python3.13", "/usr/bin/python"])
def test_the_interpreter_is_known(file):
    assert libraries.is_interpreter(file)
