"""An image has the memory it may use, says so when that is not enough, and lives on."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess

import pytest

from gramercy.errors import ImageStartError
from gramercy.images.base import ImageFault
from gramercy.images.deaths import memory_hint, with_memory_hint
from gramercy.images.environment import LISP_MB, PYTHON_MB, Environment, free_memory, python_memory
from gramercy.images.live import LiveImage
from gramercy.images.opening import ImageSettings, open_image
from gramercy.images.processes import Family
from gramercy.images.sandbox import Confinement, why_not

needs_sbcl = pytest.mark.skipif(not shutil.which("sbcl"), reason="sbcl is not installed")
LANGUAGES = [pytest.param("sbcl", marks=needs_sbcl), "python"]
CONFINEMENTS = [
    pytest.param(each, marks=pytest.mark.skipif(why_not(each) is not None, reason=f"{why_not(each)}"))
    for each in Confinement
]
MB = 1 << 20


@pytest.fixture
def images(tmp_path):
    """Make images with a limit, and end them all."""
    made = []

    def make(language, memory_mb=None, confinement=None):
        environment = Environment(memory_mb=memory_mb)
        made.append(LiveImage("test", ImageSettings(language, tmp_path, confinement, environment).program))
        return made[-1]

    yield make
    for image in made:
        image.close()


def fault(image, code):
    reply = image.evaluate(code)
    assert not reply.ok
    return with_memory_hint(reply.error, image.program())


@pytest.mark.parametrize("confinement", CONFINEMENTS)
def test_addresses_are_free_and_memory_is_not(images, confinement):
    """Defect: libraries could not be mapped that need little memory."""
    image = images("python", 128, confinement)
    reserved = (
        "import mmap; mapped = mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot={})"
    )
    assert image.evaluate(reserved.format(0)).ok
    assert image.evaluate("import os; huge = os.open('huge', os.O_RDWR | os.O_CREAT)").ok
    assert image.evaluate("os.ftruncate(huge, 4 << 30); file = mmap.mmap(huge, 0, prot=mmap.PROT_READ)").ok
    assert image.evaluate(reserved.format("mmap.PROT_READ | mmap.PROT_WRITE")).error.type == "OSError"
    assert image.evaluate("len(bytearray(64 << 20))").values == [str(64 * MB)]
    assert image.evaluate("bytearray(200 << 20)").error.type == "MemoryError"


def test_arrays_fit_that_did_not(images):
    """Defect: the fourth array of 288 MB failed."""
    image = images("python")
    assert image.evaluate("arrays = [bytes(288 << 20) for _ in range(6)]; len(arrays)").values == ["6"]


@needs_sbcl
def test_a_lisp_heap_holds_more_than_it_did(images):
    """Defect: 512 MB were fixed."""
    code = "(length (make-array (* 600 1048576) :element-type '(unsigned-byte 8)))"
    assert images("sbcl").evaluate(code).values == [str(600 * MB)]


@pytest.mark.parametrize("confinement", CONFINEMENTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_limit_is_the_one_that_was_asked_for_and_is_told(images, language, confinement):
    """Defect: a limit that is hit says so, and how to get more."""
    image = images(language, 200, confinement)
    keep = {"python": "x = 42", "sbcl": "(defvar *x* 42)"}[language]
    assert image.evaluate(keep).ok
    code = {
        "python": "big = []\nwhile True: big.append(bytearray(1 << 20))",
        # In big pieces: what is left of the heap when one does not fit is enough for the collector, which
        # otherwise may end the process.
        "sbcl": "(let ((big nil)) (loop (push (make-array 4000000) big)))",
    }[language]
    told = fault(image, code)
    assert told.type in ("MemoryError", "SB-KERNEL::HEAP-EXHAUSTED-ERROR")
    assert told.message.endswith("the image may use 200 MB: start it with --memory for more")
    assert image.evaluate({"python": "x", "sbcl": "*x*"}[language]).values == ["42"]


@needs_sbcl
def test_a_death_of_a_full_heap_tells_the_limit_and_the_state_is_back(images):
    """Defect: "Heap exhausted, game over" ends the process."""
    image = images("sbcl", 128)
    assert image.evaluate("(defvar *x* 42)").ok
    told = fault(image, "(let ((big nil)) (loop (push 1 big)))")
    assert told.message.endswith("the image may use 128 MB: start it with --memory for more")
    assert told.type in ("IMAGE-DIED", "SB-KERNEL::HEAP-EXHAUSTED-ERROR")
    assert image.evaluate("*x*").values == ["42"]


@needs_sbcl
def test_memory_of_c_code_is_limited_in_lisp_too(images):
    """Beside the heap."""
    image = images("sbcl", 128)
    told = fault(image, "(sb-alien:make-alien (sb-alien:unsigned 8) (expt 10 10))")
    assert "Cannot allocate memory" in told.message
    assert told.message.endswith("the image may use 128 MB: start it with --memory for more")


@needs_sbcl
def test_a_hundred_and_fifty_lisp_threads_fit_beside_the_heap(images):
    """A server takes a thread for each of its connections."""
    code = (
        "(let* ((gate (sb-thread:make-semaphore)) (all (loop repeat 150 collect (sb-thread:make-thread"
        " (lambda () (sb-thread:wait-on-semaphore gate))))))"
        " (sb-thread:signal-semaphore gate 150) (mapc #'sb-thread:join-thread all) (length all))"
    )
    assert images("sbcl", 128).evaluate(code).values == ["150"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_programs_that_the_image_starts_are_limited_too(images, language):
    """The limit is inherited, and cannot be raised."""
    image = images(language, 100)
    code = {
        "python": "import subprocess; subprocess.run(['sh', '-c', 'ulimit -Hd'], capture_output=True).stdout",
        "sbcl": (
            "(with-output-to-string (out)"
            ' (sb-ext:run-program "/bin/sh" (list "-c" "ulimit -Hd") :output out))'
        ),
    }[language]
    beside = 1024 if language == "sbcl" else 0
    assert str((100 + beside) * 1024) in image.evaluate(code).values[0]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_limit_under_which_nothing_starts_is_one_clear_line(tmp_path, language):
    """Bad input."""
    image = open_image(language, project=tmp_path, environment=Environment(memory_mb=8))
    reply = image.evaluate("1")
    image.close()
    assert reply.error is not None
    told = f"8 MB of memory are too little for a {language} image: give it 64 or more"
    assert reply.error.message == told


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_least_limit_is_enough_to_work(images, language):
    """What the message promises."""
    image = images(language, 64)
    code = {"python": "import json, asyncio; 6 * 7", "sbcl": "(progn (defun f (x) (* x 7)) (f 6))"}[language]
    assert image.evaluate(code).values[-1] == "42"
    image.undo()


@needs_sbcl
@pytest.mark.slow
def test_a_saved_state_that_is_too_big_for_the_limit_says_so(images, tmp_path):
    """The core does not fit into a smaller heap: what to do is said."""
    big = images("sbcl", 512)
    assert big.evaluate("(defvar *big* (make-array (* 100 1048576) :element-type '(unsigned-byte 8)))").ok
    big.save(str(tmp_path / "big.core"))
    program = images("sbcl", 64).program()
    with pytest.raises(ImageStartError) as caught:
        Family(program.saved(tmp_path / "big.core"))
    assert "the image may use 64 MB: start it with --memory for more" in str(caught.value)


@pytest.mark.parametrize(
    ("free", "given"), [(None, PYTHON_MB), (64_000, 32_000), (3_000, PYTHON_MB), (1_000, 1_000), (10, 64)]
)
@pytest.mark.contract("day.long.memory")
def test_a_python_image_may_use_half_of_what_is_free(free, given):
    """W2: 2 GB by default, whatever the machine has."""
    assert python_memory(free) == given


@pytest.mark.contract("day.long.memory")
def test_what_is_free_is_that_of_the_container_where_it_has_less(tmp_path):
    """In a container the kernel tells the memory of the whole machine."""
    (tmp_path / "proc").mkdir()
    assert free_memory(tmp_path) is None
    (tmp_path / "proc/meminfo").write_text("MemTotal: 33554432 kB\nMemAvailable:   16777216 kB\n")
    assert free_memory(tmp_path) == 16_384
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text(f"{1 << 30}\n")
    (group / "memory.max").write_text("max\n")
    assert free_memory(tmp_path) == 16_384
    (group / "memory.max").write_text(f"{4 << 30}\n")
    assert free_memory(tmp_path) == 3_072


def test_the_defaults_are_on_the_program(tmp_path):
    """What is told is what is in force."""
    program = ImageSettings("python", tmp_path, Confinement.NONE).program()
    assert program.memory_mb == program.grants.memory_mb
    told = f"the image may use {program.memory_mb} MB: start it with --memory for more"
    assert memory_hint(program) == told
    if shutil.which("sbcl"):
        assert ImageSettings("sbcl", tmp_path, Confinement.NONE).program().memory_mb == LISP_MB


@pytest.mark.parametrize(
    ("kind", "message", "hinted"),
    [
        ("MemoryError", "", True),
        ("numpy._core._exceptions._ArrayMemoryError", "Unable to allocate 2.79 GiB", True),
        ("OSError", "[Errno 12] Cannot allocate memory", True),
        ("ImportError", "libtorch.so: failed to map segment from shared object", True),
        ("IMAGE-DIED", "The image ended during this call: it ran out of heap (status 1).", True),
        ("IMAGE-DIED", "The image ended during this call: its code ended it with status 1.", False),
        ("SB-KERNEL::CONTROL-STACK-EXHAUSTED", "Control stack exhausted", False),
        ("ValueError", "bad", False),
    ],
)
def test_only_faults_of_memory_get_the_hint_and_only_once(tmp_path, kind, message, hinted):
    """Every sentence is true."""
    program = ImageSettings("python", tmp_path, Confinement.NONE).program()
    told = with_memory_hint(ImageFault(kind, message), program)
    assert (memory_hint(program) in told.message) is hinted
    assert told.message.startswith(message.rstrip("."))
    assert with_memory_hint(told, program) == told


def test_the_keeper_itself_is_not_limited(images):
    """The limit belongs to the processes of the image."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    assert images("python", 64).evaluate("1").ok
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    told = ["sh", "-c", "ulimit -d"]
    assert subprocess.run(told, capture_output=True, check=True, env=os.environ, timeout=60).stdout
